"""Posts the events of one WebSocket to its backend (docs/grip.md §8.3), over the pool of backend connections."""

from __future__ import annotations

from typing import Final, Protocol

from gripproxy.edge.backend import BackendConnection, kind_of
from gripproxy.edge.forwarding import grip_last
from gripproxy.edge.pattern import Pattern, Share
from gripproxy.grip.headers import Headers, head_size
from gripproxy.grip.response import Response
from gripproxy.outages import BAD_ANSWER, LATE, RESET, TOO_LARGE
from gripproxy.sessions.over_http import LastIds

__all__ = ["ANSWERS_MAX", "RESPONSE_MAX", "EventPoster", "Posting"]

RESPONSE_MAX: Final = 1_000_000
"""Bytes of an answer's body (docs/grip.md §10)."""

ANSWERS_MAX: Final = 32 * 1024 * 1024
"""Bytes of all answers of a worker that have begun and are not complete. Beyond it the largest is given up, as one is
that is too large by itself: a thousand WebSockets whose backend stops in the middle would keep a gigabyte."""

PIECE_COST: Final = 64
"""Bytes that each piece of an answer counts for besides its content: pieces may have one byte each."""

NEVER: Final = float("inf")

_REQUEST: Final = (
    b"%b%b%b%b%bAccept: application/websocket-events\r\nConnection-Id: %b\r\n"
    b"Content-Type: application/websocket-events\r\n%bContent-Length: %d\r\n\r\n%b"
)
"""The head in three pieces, GRIP lines, what forwarding adds; id; further lines; body with its length."""


class PosterOwner(Protocol):
    """Who posts: the opening, then the leg."""

    def on_answer(self, response: Response) -> None: ...
    def on_post_failed(self, retry: bool, why: str, kind: str = RESET) -> None:
        """``retry``: the backend cannot have taken the request; ``kind``: see gripproxy.outages."""


class _Flight:
    """A request that is under way: its bytes, and what has come of the answer."""

    __slots__ = ("backend", "complete", "counted", "deadline", "fresh", "parts", "request", "response", "size")

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.backend: BackendConnection | None = None
        self.response: Response | None = None
        self.parts: list[bytes] = []
        self.size = 0
        self.counted = 0
        """Bytes that ``Posting.size`` has of it."""
        self.complete = False
        self.fresh = False
        self.deadline = NEVER


class Posting(dict["EventPoster", None]):
    """Posters of a worker that have a request in flight; ``size`` is what their incomplete answers have, in bytes."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        super().__init__()
        self.size = 0


class EventPoster:
    """Requests of one WebSocket, one at a time. Implements ``Sink`` and ``gripproxy.sessions.over_http.Poster``.

    ``pattern`` and ``share`` are the head, up to the GRIP lines; ``tail`` is what forwarding puts behind these; ``cid``
    the WebSocket's id. Between requests it keeps no more than that.
    """

    __slots__ = ("_first", "_flight", "_last", "_own", "_pattern", "_tail", "cid", "owner", "repeats")

    def __init__(self, pattern: Pattern, share: Share, tail: bytes, cid: bytes) -> None:
        self._pattern = pattern
        self._first, self._last, self._own = share
        # Without an address of the client in it, it is the same for all.
        if pattern.tail != tail:
            pattern.tail = tail
        self._tail = pattern.tail
        self.cid = cid
        self.repeats = False
        """Events are sent again if a reused connection ends without a word; an OPEN is not."""
        self.owner: PosterOwner | None = None
        self._flight: _Flight | None = None

    def post(self, body: bytes, replayed: int, meta: Headers, last_ids: LastIds = ()) -> None:
        """Send a request; the owner's ``on_answer`` or ``on_post_failed`` follows. ``last_ids``: see ``grip_last``."""
        pattern = self._pattern
        lines = b"".join([b"Meta-%b: %b\r\n" % header for header in meta]) if meta else b""
        if replayed:
            lines += b"Content-Bytes-Replayed: %d\r\n" % replayed
        grip = b"" if pattern.trusted else pattern.forwarder.grip_headers()
        if last_ids:
            grip += grip_last(last_ids)
        request = _REQUEST % (
            *pattern.restored(self._first, self._last, self._own), grip, self._tail, self.cid, lines, len(body), body
        )  # fmt: skip
        pattern.figures.server_header_bytes_sent += len(request) - len(body)
        self._flight = _Flight(request)
        pattern.worker.posting[self] = None
        pattern.pool.acquire(self)

    def abandon(self) -> None:
        """Forget the request in flight."""
        flight = self._end()
        if flight is not None and flight.backend is not None:
            flight.backend.abort()
        else:
            self._pattern.pool.forget(self)

    def sweep(self, now: float) -> None:
        """Called about once a second while a request is in flight; ``now`` in loop seconds."""
        flight = self._flight
        if flight is not None and flight.deadline < now:
            if flight.backend is not None:
                flight.backend.abort()
            self._failed(False, "the backend did not answer events in time", LATE)

    # Sink

    def on_connected(self, connection: BackendConnection) -> None:
        flight, worker = self._flight, self._pattern.worker
        assert flight is not None
        flight.backend = connection
        flight.deadline = worker.clock() + worker.config.proxy.response_timeout
        connection.send(flight.request, False)

    def on_connect_failed(self, error: Exception) -> None:
        self._failed(True, f"no connection to the backend: {error}", kind_of(error))

    def on_head(self, code: int, reason: bytes, headers: Headers) -> None:
        self._pattern.figures.server_header_bytes_received += head_size(headers)
        flight = self._flight
        if flight is not None:
            flight.response = Response(code, reason, headers)
            flight.complete = False

    def on_interim(self, code: int, reason: bytes, headers: Headers) -> None:
        """Nothing to do: nobody waits for interim responses."""

    def on_body(self, data: bytes) -> None:
        flight = self._flight
        if flight is not None:
            flight.parts.append(data)
            flight.size += len(data)

    def on_complete(self) -> None:
        if self._flight is not None:
            self._flight.complete = True

    def on_batch(self) -> None:
        flight = self._flight
        if flight is None:
            return
        backend, response = flight.backend, flight.response
        if flight.size > RESPONSE_MAX:
            if backend is not None:
                backend.abort()
            self._failed(False, f"the backend answered events with more than {RESPONSE_MAX} bytes", TOO_LARGE)
            return
        if not flight.complete or response is None:
            self._weigh(flight)
            return
        parts = flight.parts
        if parts:
            response.body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._end()
        if backend is not None:
            backend.release()
        if self.owner is not None:
            self.owner.on_answer(response)

    def _weigh(self, flight: _Flight) -> None:
        """Count an answer that is not complete; if all are too much, give up the largest."""
        posting = self._pattern.worker.posting
        size = flight.size + PIECE_COST * len(flight.parts)
        posting.size += size - flight.counted
        flight.counted = size
        if posting.size > ANSWERS_MAX:
            max(posting, key=EventPoster.weight).give_up()

    def weight(self) -> int:
        """Return what the answer in flight counts for, in bytes."""
        return self._flight.counted if self._flight is not None else 0

    def give_up(self) -> None:
        """Fail the request in flight: its answer is the largest, and all are too much."""
        flight = self._flight
        if flight is not None and flight.backend is not None:
            flight.backend.abort()
        self._failed(False, f"answers to events have more than {ANSWERS_MAX} bytes in all, this one most", TOO_LARGE)

    def on_failed(self, why: str, stale: bool, clean: bool = True, kind: str = RESET) -> None:
        flight = self._flight
        if flight is not None:
            flight.backend = None
            if self.repeats and stale and clean and not flight.fresh:
                # An idle connection was closed just as it was used again (RFC 9112 §9.3.1): dropping the client for
                # that would be worse than a backend that crashed without a word seeing the same events twice.
                flight.fresh = True
                self._pattern.pool.acquire(self, fresh=True)
                return
        self._failed(False, f"backend: {why}", kind)

    def on_request_blocked(self, blocked: bool) -> None:
        """Nothing to do: the whole request has been handed over, and only one is in flight."""

    def _failed(self, retry: bool, why: str, kind: str) -> None:
        self._end()
        if self.repeats:
            # The opening tells of its own failures, since it knows whether there is another target.
            self.tell(kind, why, "events-later" if retry else "dropped")
        if self.owner is not None:
            self.owner.on_post_failed(retry, why, kind)

    def tell(self, kind: str, why: str, got: object) -> None:
        """The target has failed; see Tally.failed."""
        pattern = self._pattern
        what = f"WebSocket {self.cid.decode()}"
        pattern.worker.tally.failed(pattern.pool, pattern.pool.target, kind, what, why, got)

    def spoiled(self, why: str, question: bool) -> None:
        """The answer that the owner was given is of no use to it; a ``question`` may be repeated."""
        self.tell(BAD_ANSWER, why, "events-later" if question else "dropped")

    def _end(self) -> _Flight | None:
        posting = self._pattern.worker.posting
        posting.pop(self, None)
        flight, self._flight = self._flight, None
        if flight is not None:
            posting.size -= flight.counted
        return flight
