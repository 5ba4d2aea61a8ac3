"""Posts the events of one WebSocket to its backend (docs/grip.md §8.3), over the pool of backend connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from gripproxy.edge.backend import BackendConnection, HostPool
from gripproxy.edge.forwarding import Forwarder, grip_last
from gripproxy.grip.headers import Headers, head_size
from gripproxy.grip.response import Response
from gripproxy.sessions.figures import Figures
from gripproxy.sessions.over_http import LastIds

if TYPE_CHECKING:
    from gripproxy.worker import Worker

__all__ = ["RESPONSE_MAX", "EventPoster"]

RESPONSE_MAX: Final = 1_000_000
"""Bytes of an answer's body (docs/grip.md §10)."""

NEVER: Final = float("inf")


class PosterOwner(Protocol):
    """Who posts: the opening, then the leg."""

    def on_answer(self, response: Response) -> None: ...
    def on_post_failed(self, retry: bool, why: str) -> None:
        """``retry``: the backend cannot have taken the request."""


class EventPoster:
    """Requests of one WebSocket, one at a time. Implements ``Sink`` and ``gripproxy.sessions.over_http.Poster``.

    ``before`` and ``after`` are the constant parts of the requests' heads, around the GRIP lines; ``figures`` are those
    of the route.
    """

    __slots__ = (
        "_after",
        "_backend",
        "_before",
        "_body",
        "_complete",
        "_deadline",
        "_figures",
        "_forwarder",
        "_fresh",
        "_parts",
        "_pool",
        "_response",
        "_size",
        "_worker",
        "owner",
        "read_client",
        "repeats",
        "trusted",
    )

    def __init__(
        self,
        worker: Worker,
        forwarder: Forwarder,
        pool: HostPool,
        before: bytes,
        after: bytes,
        trusted: bool,
        figures: Figures,
    ) -> None:
        self._worker = worker
        self._figures = figures
        self._forwarder = forwarder
        self._pool = pool
        self._before = before
        self._after = after
        self.trusted = trusted
        self.repeats = False
        """Events are sent again if a reused connection ends without a word; an OPEN is not."""
        self.owner: PosterOwner | None = None
        self.read_client: Callable[[bool], None] = _nobody
        self._backend: BackendConnection | None = None
        self._body: bytes = b""
        self._response: Response | None = None
        self._parts: list[bytes] | None = None
        self._size = 0
        self._complete = False
        self._fresh = False
        self._deadline = NEVER

    def post(self, body: bytes, replayed: int, meta: Headers, last_ids: LastIds = ()) -> None:
        """Send a request; the owner's ``on_answer`` or ``on_post_failed`` follows. ``last_ids``: see ``grip_last``."""
        lines = b"".join([b"Meta-%b: %b\r\n" % header for header in meta]) if meta else b""
        if replayed:
            lines += b"Content-Bytes-Replayed: %d\r\n" % replayed
        grip = b"" if self.trusted else self._forwarder.grip_headers()
        if last_ids:
            grip += grip_last(last_ids)
        self._body = b"".join((self._before, grip, self._after, lines, b"Content-Length: %d\r\n\r\n" % len(body), body))
        self._figures.server_header_bytes_sent += len(self._body) - len(body)
        self._fresh = False
        self._deadline = NEVER
        self._worker.posting[self] = None
        self._pool.acquire(self)

    def abandon(self) -> None:
        """Forget the request in flight."""
        self._worker.posting.pop(self, None)
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.abort()
        else:
            self._pool.forget(self)
        self._clear()

    def sweep(self, now: float) -> None:
        """Called about once a second while a request is in flight; ``now`` in loop seconds."""
        if self._deadline < now:
            backend, self._backend = self._backend, None
            if backend is not None:
                backend.abort()
            self._failed(False, "the backend did not answer events in time")

    # Sink

    def on_connected(self, connection: BackendConnection) -> None:
        self._backend = connection
        self._deadline = self._worker.clock() + self._worker.config.proxy.response_timeout
        connection.send(self._body, False)

    def on_connect_failed(self, error: Exception) -> None:
        self._failed(True, f"no connection to the backend: {error}")

    def on_head(self, code: int, reason: bytes, headers: Headers) -> None:
        self._figures.server_header_bytes_received += head_size(headers)
        self._response = Response(code, reason, headers)
        self._complete = False

    def on_interim(self, code: int, reason: bytes, headers: Headers) -> None:
        """Nothing to do: nobody waits for interim responses."""

    def on_body(self, data: bytes) -> None:
        if self._parts is None:
            self._parts = [data]
        else:
            self._parts.append(data)
        self._size += len(data)

    def on_complete(self) -> None:
        self._complete = True

    def on_batch(self) -> None:
        backend, response = self._backend, self._response
        if self._size > RESPONSE_MAX:
            self._backend = None
            if backend is not None:
                backend.abort()
            self._failed(False, f"the backend answered events with more than {RESPONSE_MAX} bytes")
            return
        if not self._complete or response is None:
            return
        parts = self._parts
        if parts is not None:
            response.body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._backend = None
        self._clear()
        self._worker.posting.pop(self, None)
        if backend is not None:
            backend.release()
        if self.owner is not None:
            self.owner.on_answer(response)

    def on_failed(self, why: str, stale: bool, clean: bool = True) -> None:
        self._backend = None
        if self.repeats and stale and clean and not self._fresh:
            # An idle connection was closed just as it was used again (RFC 9112 §9.3.1): dropping the client for that
            # would be worse than a backend that crashed without a word seeing the same events twice.
            self._fresh = True
            self._pool.acquire(self, fresh=True)
            return
        self._failed(False, f"backend: {why}")

    def on_request_blocked(self, blocked: bool) -> None:
        """Nothing to do: the whole request has been handed over, and only one is in flight."""

    def _failed(self, retry: bool, why: str) -> None:
        self._worker.posting.pop(self, None)
        self._clear()
        if self.owner is not None:
            self.owner.on_post_failed(retry, why)

    def _clear(self) -> None:
        self._response = None
        self._parts = None
        self._size = 0
        self._complete = False
        self._body = b""
        self._deadline = NEVER


def _nobody(go: bool) -> None:
    """Stands in until there is a client to read from."""
