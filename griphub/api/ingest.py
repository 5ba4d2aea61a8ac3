"""Ingest over HTTP: lines of a source of a soft topic, taken in whole or not at all."""

from __future__ import annotations

from typing import Final

import orjson

from griphub.access.owner import owner_key
from griphub.access.rights import Rights
from griphub.api.problem import Problem, bad_request, conflict, limited, too_large
from griphub.api.request import Answer, Request
from griphub.api.soft_feed import SoftFeed
from griphub.api.soft_problems import limit_reached
from griphub.api.soft_query import check_ingest_headers, ingest_query
from griphub.api.turns import Turns
from griphub.store.topic import Topic
from griphub.windows.bounds import WindowLimit
from griphub.windows.decisions import Accepted, Refusal, Refused
from griphub.windows.ingest_lines import BadLine, IngestLine, LineParser

__all__ = ["BYTES_MAX", "OWNER_BYTES_MAX", "PIECE", "IngestRequests"]

PIECE: Final = 65_536
"""Bytes of a body that are parsed in one turn of the loop: a few milliseconds."""

OWNER_BYTES_MAX: Final = 32_000_000
"""Bytes of the bodies of one owner that are being parsed or wait for their window; beyond, 429. A single one fits."""

BYTES_MAX: Final = 128_000_000
"""Bytes of the bodies of all owners; beyond, 429."""

WAITING_MAX: Final = 1000
"""Requests that wait for a turn, of all owners; further ones get 503."""

OWNER_WAITING_MAX: Final = 100
"""Requests that wait for a turn, of one owner; further ones get 429."""

RETRY: Final = 1
"""Seconds after which a request that was refused for others under way may succeed."""


class IngestRequests:
    """Answers to requests of ingesters.

    Args:
        feed: windows of the soft topics.
    """

    def __init__(self, feed: SoftFeed) -> None:
        self._feed = feed
        self._turns = Turns("ingest requests", WAITING_MAX, OWNER_WAITING_MAX)
        self._sizes: dict[str, int] = {}
        """Bytes of bodies under way, by owner."""
        self._size = 0

    async def answer(self, request: Request, topic: Topic, rights: Rights) -> Answer:
        """Answer ``POST /topics/T/ingest``.

        Args:
            request: the request.
            topic: its topic, a soft one; the caller may publish to it.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: 400, 413 or 415, the request breaks a rule or a bound; 404, the topic was deleted meanwhile; 409, a
                line contradicts the window; 410, the window is another one; 429, a bound was reached.
        """
        epoch = ingest_query(request.target.query)
        check_ingest_headers(request.headers)
        owner, size = owner_key(rights.owner), len(request.body)
        self._take(owner, size)
        try:
            lines = await self._lines(request.body, owner)
            outcome = await self._feed.submit(topic, lines, epoch)
        except WindowLimit as error:
            raise limit_reached(error, RETRY) from error
        except LookupError as error:
            raise Problem(404, "not-found", f"the topic {topic.name!r} was deleted meanwhile") from error
        finally:
            self._give(owner, size)
        if isinstance(outcome, Refused):
            raise _refusal(outcome)
        return Answer(200, _accepted(outcome), headers=[("Cache-Control", "no-store")])

    async def _lines(self, body: bytes, owner: str) -> list[IngestLine]:
        parser, lines = LineParser(), list[IngestLine]()
        try:
            for place in range(0, len(body), PIECE):
                await self._turns.next(owner)
                lines += parser.feed(body[place : place + PIECE])
            parser.finish()
        except BadLine as error:
            extra = {"line": error.number}
            if not error.limit:
                raise Problem(400, "bad-request", str(error), extra) from error
            problem = too_large(str(error), error.limit, error.most)
            problem.extra.update(extra)
            raise problem from error
        if not lines:
            raise bad_request('the body has no line: expected {"append": …}, {"progress": …} or {"reset": …}')
        return lines

    def _take(self, owner: str, size: int) -> None:
        held = self._sizes.get(owner, 0)
        if held and held + size > OWNER_BYTES_MAX:
            text = "too many bytes of the owner are being taken in: send the next request after the answer"
            raise limited(text, "ingest_bytes_per_owner", OWNER_BYTES_MAX, RETRY)
        if self._size + size > BYTES_MAX:
            text = "too many bytes of all owners are being taken in: repeat the request later"
            raise limited(text, "ingest_bytes", BYTES_MAX, RETRY)
        self._sizes[owner] = held + size
        self._size += size

    def _give(self, owner: str, size: int) -> None:
        self._size -= size
        left = self._sizes.get(owner, 0) - size
        if left:
            self._sizes[owner] = left
        else:
            self._sizes.pop(owner, None)


def _accepted(outcome: Accepted) -> bytes:
    document = {
        "epoch": outcome.epoch,
        "progress": None if outcome.progress is None else str(outcome.progress),
        "events": outcome.events,
        "repeated": outcome.repeated,
    }
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def _refusal(outcome: Refused) -> Problem:
    extra: dict[str, object] = {"epoch": outcome.epoch}
    if outcome.line:
        extra["line"] = outcome.line
    if outcome.progress is not None:
        extra["progress"] = str(outcome.progress)
    match outcome.refusal:
        case Refusal.CONFLICT:
            return conflict(outcome.detail, extra)
        case Refusal.EPOCH:
            return Problem(410, "gone", outcome.detail, extra)
        case Refusal.LIMIT:
            return Problem(429, "limit", outcome.detail, {**extra, "limit": outcome.limit, "max": outcome.most})
