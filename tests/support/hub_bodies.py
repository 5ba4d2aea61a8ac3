"""Large bodies of publications, and the parser that reads them."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Final

from griphub.api.body_parser import LARGE_BODY, BodyParser
from griphub.api.query import PublishQuery
from griphub.api.request import Request, target_of

__all__ = ["LARGE", "QUERY", "body_parser", "publish_request"]

QUERY: Final = PublishQuery()
LARGE: Final = json.dumps("x" * LARGE_BODY).encode()


def publish_request(body: bytes = LARGE, content_type: str = "application/json") -> Request:
    """Return a request to publish.

    Args:
        body: of the request.
        content_type: of the body.
    """
    headers = [(b"content-type", content_type.encode())]
    return Request(b"POST", target_of(b"/topics/t/events"), headers, body)


@contextlib.asynccontextmanager
async def body_parser(folder: pathlib.Path, deadline: float | None = None) -> AsyncIterator[BodyParser]:
    """Return a parser, which is ended with the context.

    Args:
        folder: of the store.
        deadline: seconds for the reading of a body; None for the default.
    """
    path = folder / "hub.db"
    parser = BodyParser(path) if deadline is None else BodyParser(path, deadline=deadline)
    try:
        yield parser
    finally:
        await parser.stop()
