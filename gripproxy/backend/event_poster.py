"""Event poster: sends the events of one WebSocket to its backend in HTTP requests (docs/grip.md §8.3)."""

from __future__ import annotations

from typing import Final, Protocol

from gripproxy.backend.connection import BackendConnection
from gripproxy.backend.forwarder import grip_last
from gripproxy.backend.header_template import Delta, HeaderTemplate
from gripproxy.backend.outages import BAD_ANSWER, LATE, RESET, TOO_LARGE
from gripproxy.backend.posting import Posted
from gripproxy.backend.retries import EVENTS, OPEN, RetryRule
from gripproxy.backend.upstream_request import BufferedRequest
from gripproxy.grip.headers import Headers, head_size
from gripproxy.grip.response import Response
from gripproxy.routing.route import Target
from gripproxy.sessions.websocket_over_http import LastIds

__all__ = ["ANSWERS_MAX", "RESPONSE_MAX", "EventPoster", "Post"]

RESPONSE_MAX: Final = 1_000_000
"""Bytes that the body of a response may have (docs/grip.md §10)."""

ANSWERS_MAX: Final = 32 * 1024 * 1024
"""Bytes that all incomplete responses of one worker may have together; beyond it the request with the largest one
fails. Without this limit a thousand WebSockets whose backend stops in mid-response would hold a gigabyte."""

PIECE_COST: Final = 64
"""Bytes added to the size of a response for each of its pieces, whose objects cost memory: one may have one byte."""

NEVER: Final = float("inf")

_REQUEST: Final = (
    b"%b%b%b%b%bAccept: application/websocket-events\r\nConnection-Id: %b\r\n"
    b"Content-Type: application/websocket-events\r\n%bContent-Length: %d\r\n\r\n%b"
)
"""Format of a request: head in three pieces, GRIP lines, X-Forwarded lines; id; further lines; length and body."""


class PosterOwner(Protocol):
    """Receiver of the outcomes: the handshake at first, the WebSocket's backend leg after it."""

    def on_answer(self, response: Response) -> None:
        """Take ``response``, complete, with any status and content type."""

    def on_post_failed(self, retry: bool, why: str, kind: str = RESET) -> None:
        """Take the failure of a request.

        Args:
            retry: True if the backend cannot have received the request.
            why: The reason, for the log.
            kind: One of ``gripproxy.grip.stats_format.FAILURES``.
        """


class Post(BufferedRequest):
    """One request of a poster, while it is in flight.

    Args:
        poster: The poster, which gets the outcome.
        pattern: Template of the head, with the pool and the counters.
        request: Bytes of head and body.
    """

    __slots__ = ("_counted", "_deadline", "_figures", "_poster", "_request")

    _limit = RESPONSE_MAX
    _targets: tuple[Target, ...] = ()

    def __init__(self, poster: EventPoster, pattern: HeaderTemplate, request: bytes) -> None:
        context = self._context = pattern.context
        self._poster = poster
        self._figures = pattern.figures
        self._request = request
        self.target_index = 0
        self._fresh = False
        self._backend = None
        self._response = None
        self._parts = []
        self._size = 0
        self._complete = False
        self._counted = 0
        self._deadline = NEVER
        context.posting[self] = None
        self._pool = pattern.pool

    @property
    def _rule(self) -> RetryRule:
        return self._poster.rule

    def _acquire(self) -> None:
        assert self._pool is not None
        self._pool.acquire(self, self._fresh)

    def on_connected(self, connection: BackendConnection) -> None:
        context = self._context
        self._backend = connection
        self._deadline = context.clock() + context.proxy.response_timeout
        connection.send(self._request, False)

    def on_head(self, code: int, reason: bytes, headers: Headers) -> None:
        self._figures.server_header_bytes_received += head_size(headers)
        self._response = Response(code, reason, headers)

    def on_batch(self) -> None:
        if self._complete or self._size > RESPONSE_MAX:
            BufferedRequest.on_batch(self)
        else:
            self._weigh()

    def _weigh(self) -> None:
        """Update the size of this incomplete response; if all together exceed ANSWERS_MAX, fail the largest one."""
        posting = self._context.posting
        size = self._size + PIECE_COST * len(self._parts)
        posting.size += size - self._counted
        self._counted = size
        if posting.size > ANSWERS_MAX:
            max(posting, key=_weight).give_up()

    def weight(self) -> int:
        """Return the bytes that the incomplete response counts for."""
        return self._counted

    def give_up(self) -> None:
        """Fail the request: its response is the largest while all together exceed ANSWERS_MAX."""
        self._broken(f"answers to events have more than {ANSWERS_MAX} bytes in all, this one most", TOO_LARGE)

    def sweep(self, now: float) -> None:
        """Fail the request if its response is late. Called about once a second.

        Args:
            now: Time in seconds of the loop's clock.
        """
        if self._deadline < now:
            self._broken("the backend did not answer events in time", LATE)

    def _answered(self, response: Response) -> None:
        backend = self._backend
        if backend is not None:
            backend.release()
        posting = self._context.posting
        posting.pop(self, None)
        posting.size -= self._counted
        self._poster.answered(response)

    def _too_large(self) -> None:
        self._broken(f"the backend answered events with more than {RESPONSE_MAX} bytes", TOO_LARGE)

    def _unconnected(self, kind: str, why: object) -> None:
        self._end()
        self._poster.failed(True, f"no connection to the backend: {why}", kind)

    def _broken(self, why: str, kind: str) -> None:
        self.abandon()
        self._poster.failed(False, why, kind)

    def on_failed(self, why: str, stale: bool, clean: bool = True, kind: str = RESET) -> None:
        super().on_failed(f"backend: {why}", stale, clean, kind)

    def abandon(self) -> None:
        """Cancel the request; the poster is not called."""
        self._drop()
        self._end()

    def _end(self) -> None:
        """Remove the request from those in flight, and its bytes from their total."""
        posting = self._context.posting
        posting.pop(self, None)
        posting.size -= self._counted
        self._counted = 0


class EventPoster:
    """Sender of one WebSocket's requests, one at a time. Implements ``gripproxy.sessions.websocket_over_http.Poster``.

    Between two requests no state besides the attributes is kept.

    Args:
        pattern: Template of the head, up to the GRIP lines.
        share: Difference between the template and this WebSocket's head.
        tail: Header lines that follow the GRIP lines.
        cid: Value of Connection-Id.
        owner: Receiver of each outcome.
        traced: The client has sent ids of its own, which the head has.
    """

    __slots__ = ("_first", "_flight", "_last", "_own", "_owner", "_pattern", "_tail", "_traced", "cid", "rule")

    def __init__(
        self,
        pattern: HeaderTemplate,
        share: Delta,
        tail: bytes,
        cid: bytes,
        owner: PosterOwner,
        traced: bool = False,
    ) -> None:
        self._traced = traced
        self._pattern = pattern
        self._first, self._last, self._own = share
        # Equal tails (those without a client address) share one bytes object.
        if pattern.tail != tail:
            pattern.tail = tail
        self._tail = pattern.tail
        self.cid = cid
        self.rule = OPEN
        """Row of the retry table: OPEN during the handshake, then EVENTS."""
        self._owner = owner
        self._flight: Post | None = None

    def serve(self, leg: PosterOwner) -> None:
        """Switch from the handshake to the open WebSocket.

        Args:
            leg: Backend leg, the owner from now on.
        """
        self._owner = leg
        self.rule = EVENTS

    def post(self, body: bytes, replayed: int, meta: Headers, last_ids: LastIds = ()) -> None:
        """Send a request; the owner's ``on_answer`` or ``on_post_failed`` follows.

        Args:
            body: Encoded events.
            replayed: Number of bytes of the body that an earlier request had.
            meta: Headers to send with the prefix ``Meta-``.
            last_ids: Pairs of channel and last id, for ``Grip-Last``.
        """
        pattern = self._pattern
        lines = b"".join([b"Meta-%b: %b\r\n" % header for header in meta]) if meta else b""
        if replayed:
            lines += b"Content-Bytes-Replayed: %d\r\n" % replayed
        grip = b"" if pattern.trusted else pattern.forwarder.grip_headers()
        if last_ids:
            grip += grip_last(last_ids)
        if not self._traced:
            lines += pattern.context.trace.fresh()
        request = _REQUEST % (
            *pattern.restored(self._first, self._last, self._own), grip, self._tail, self.cid, lines, len(body), body
        )  # fmt: skip
        pattern.figures.server_header_bytes_sent += len(request) - len(body)
        flight = self._flight = Post(self, pattern, request)
        pattern.pool.acquire(flight)

    def abandon(self) -> None:
        """Cancel the request in flight; the owner is not called."""
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.abandon()

    def answered(self, response: Response) -> None:
        """Pass ``response`` to the owner; called by the request."""
        self._flight = None
        self._owner.on_answer(response)

    def failed(self, retry: bool, why: str, kind: str) -> None:
        """Pass a failure to the owner; called by the request.

        Args:
            retry: True if the backend cannot have received the request.
            why: The reason, for the log.
            kind: One of ``gripproxy.grip.stats_format.FAILURES``.
        """
        self._flight = None
        if self.rule is EVENTS:
            # The handshake reports its failures itself: their outcome depends on further targets.
            self._report(kind, why, "events-later" if retry else "dropped")
        self._owner.on_post_failed(retry, why, kind)

    def _report(self, kind: str, why: str, got: object) -> None:
        """Log and count a failure of the target (``Outages.report``); ``got``: its outcome for the client."""
        pool = self._pattern.pool
        what = f"WebSocket {self.cid.decode()}"
        self._pattern.context.outages.report(pool, pool.target, kind, what, why, got)

    def spoiled(self, why: str, question: bool) -> None:
        """Report a response that the owner cannot use.

        Args:
            why: The reason, for the log.
            question: True if the request was a query, which may be repeated.
        """
        self._report(BAD_ANSWER, why, "events-later" if question else "dropped")


def _weight(posted: Posted) -> int:
    return posted.weight()
