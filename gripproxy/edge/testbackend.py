"""The built-in test target: answers like a small GRIP backend, to try a proxy without one (docs/grip.md §1.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from gripproxy.grip.response import Response, phrase

if TYPE_CHECKING:
    from gripproxy.edge.backend import Sink
    from gripproxy.edge.forwarding import Forwarder
    from gripproxy.edge.parser import Request

__all__ = ["answer_test", "test_response"]

BODY_MAX: Final = 100_000
"""Request body in bytes that the test target takes."""

_TEXT: Final = (b"Content-Type", b"text/plain")


def _answer(code: int, body: bytes, *headers: tuple[bytes, bytes]) -> Response:
    return Response(code, phrase(code), [_TEXT, *headers, (b"Content-Length", b"%d" % len(body))], body)


def test_response(target: bytes, path_beg: bytes | None, body_size: int) -> Response:
    """Return what the test target answers.

    ``target`` is path and query, ``path_beg`` the route's prefix (stripped without its trailing slash), ``body_size``
    the request body's length in bytes.
    """
    path, _, query = target.partition(b"?")
    if path_beg:
        prefix = path_beg.rstrip(b"/")
        if path.startswith(prefix):
            path = path[len(prefix) :]
    if body_size > BODY_MAX:
        return _answer(413, b"request body too large\n")
    if path == b"/":
        return _answer(200, b"Hello from the gripproxy test handler!\n")
    channels = parse_qs(query).get(b"channel") or [b"test"]
    # A channel name with a comma, quote or line break would become something else in a header.
    named = b", ".join(c for c in channels if not set(c) & set(b'",;\r\n')) or b"test"
    if path == b"/response":
        return _answer(200, b"nothing for now\n", (b"Grip-Hold", b"response"), (b"Grip-Channel", named))
    if path == b"/stream":
        return _answer(200, b"[stream opened]\n", (b"Grip-Hold", b"stream"), (b"Grip-Channel", named))
    return _answer(404, b"no such test resource\n")


def answer_test(sink: Sink, request: Request, forwarder: Forwarder, received: int) -> None:
    """Give a sink the test target's answer as a backend connection would: when the body is there, or is too long.

    Args:
        sink: Gets head, body and end at once.
        request: The client's.
        forwarder: Of the route, which may rewrite the path.
        received: Bytes of the request's body so far.
    """
    size = max(received, request.length)
    if not request.complete and size <= BODY_MAX:
        return
    answer = test_response(forwarder.path(request.target), forwarder.route.path_beg, size)
    sink.on_head(answer.code, answer.reason, answer.headers)
    sink.on_body(answer.body)
    sink.on_complete()
    sink.on_batch()


test_response.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever pytest makes of its name
