"""Subrequests: requests of the proxy's own with a small response, for filters and gone links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gripproxy.backend.connection import BackendConnection
from gripproxy.backend.context import BackendContext
from gripproxy.backend.destination import Destination, DestinationRequest
from gripproxy.backend.outages import LATE, TOO_LARGE
from gripproxy.backend.retries import SUBREQUEST
from gripproxy.backend.upstream_request import BufferedRequest
from gripproxy.grip.headers import Headers, head_size
from gripproxy.grip.links import LinkError
from gripproxy.grip.response import Response
from gripproxy.process.log import log
from gripproxy.routing.route import Route

__all__ = ["FETCH_MAX", "Subrequest"]

FETCH_MAX: Final = 100_000
"""Bytes a response's body may have; a longer one counts as a failure."""


class Subrequest(DestinationRequest, BufferedRequest):
    """One subrequest: a POST.

    Args:
        context: The backend context.
        route: The route of the session.
        base: URI of the session's request.
        link: Reference to the destination.
        headers: Headers besides Host, Content-Length and those of GRIP.
        body: The body.
        timeout: Seconds until the request counts as failed.
        done: Called once, with None for a failure of any kind.
        untrusted: An untrusted target gave the link, or had a part in the response that has it.
        got: Outcome of a failure for clients, in one word, for the log.
    """

    __slots__ = ("_body", "_destination", "_done", "_figures", "_got", "_headers", "_timer")

    _rule = SUBREQUEST
    _method = b"POST"
    _limit = FETCH_MAX

    def __init__(
        self,
        context: BackendContext,
        route: Route,
        base: bytes,
        link: bytes,
        headers: Headers,
        body: bytes,
        timeout: float,
        done: Callable[[Response | None], None],
        untrusted: bool = False,
        got: str = "nothing",
    ) -> None:
        self._context = context
        self._done: Callable[[Response | None], None] | None = done
        self._figures = context.stats.of(route.rate_key)
        self._headers = headers
        self._body = body
        self._got = got
        self._backend = None
        self._pool = None
        self.target_index = 0
        self._fresh = False
        self._response = None
        self._parts = []
        self._size = 0
        self._complete = False
        self._timer = context.loop.call_later(timeout, self._expire)
        try:
            self._destination = Destination(route, base, link, untrusted, context.proxy.sign_foreign_links)
        except LinkError as error:
            log.info("link failed", link=link, reason=error)
            context.loop.call_soon(self._finish, None)
            return
        self._acquire()

    def _fail(self, kind: str, why: object) -> None:
        self._report(kind, why, self._got)
        self._finish(None)

    _unconnected = _fail

    def _broken(self, why: str, kind: str) -> None:
        self._fail(kind, why)

    def _too_large(self) -> None:
        self._fail(TOO_LARGE, f"the answer has more than {FETCH_MAX} bytes")

    def _expire(self) -> None:
        self._fail(LATE, "no answer in time")

    def on_connected(self, connection: BackendConnection) -> None:
        self._send(connection, self._headers, self._body)

    def on_head(self, code: int, reason: bytes, headers: Headers) -> None:
        self._figures.server_header_bytes_received += head_size(headers)
        super().on_head(code, reason, headers)

    def on_body(self, data: bytes) -> None:
        self._figures.server_content_bytes_received += len(data)
        super().on_body(data)

    def _answered(self, response: Response) -> None:
        self._finish(response)

    def _finish(self, response: Response | None) -> None:
        done, self._done = self._done, None
        if done is None:
            return
        self._timer.cancel()
        if self._complete and self._backend is not None:
            self._backend.release()
            self._backend = None
        else:
            self._drop()
        done(response)
