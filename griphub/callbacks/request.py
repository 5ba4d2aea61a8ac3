"""Request to a callback, from the name of its host to its outcome.

Its steps are calls of the resolver, of the turns at its address, and of a connection; ``Step`` has them. The deadline
counts while this machine or the callback works for it, not while it waits for others. ``expire`` enforces it, called a
few times a second for all requests: a timer for each would cost more than its bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, cast

from griphub.callbacks.address_turns import AddressTurns
from griphub.callbacks.connections import CallbackConnection, Connections
from griphub.callbacks.idle_connections import Place
from griphub.callbacks.outcome import Outcome, class_of
from griphub.callbacks.request_limits import RequestLimits
from griphub.callbacks.resolutions import Resolution
from griphub.callbacks.resolver import Resolver
from griphub.sender.callback import CallbackUrl
from griphub.sender.failure_class import FailureClass
from gripproxy.backend.connection import BackendConnection
from gripproxy.backend.outages import LATE, RESET
from gripproxy.backend.pool import kind_of
from gripproxy.http1.head_cache import ResponseHead
from gripproxy.process.log import DEBUG, log

__all__ = ["APART", "CallbackRequest", "Means", "Step"]

APART: Final = 65_536
"""Bytes of a content from which on it is written apart from the head: a copy would cost more than the write."""

HEADER_MAX: Final = 256
"""Characters of the value of a header that are kept."""

_NEVER: Final = float("inf")

Headers = list[tuple[bytes, bytes]]


class Step(enum.Enum):
    """Step of a request; the value describes it."""

    # By identity: that of Enum is a function of Python.
    __hash__ = object.__hash__

    BEGUN = "nothing is done yet"
    WAITING_FOR_THREAD = "its host waits for a thread that resolves it"
    RESOLVING = "a thread resolves its host"
    WAITING_FOR_TURN = "its address has enough requests under way"
    CONNECTING = "a connection is being opened"
    SENT = "it is written; the answer is awaited"
    ENDING = "its outcome is known, and reported in the next turn of the loop"
    OVER = "its outcome was reported, or it was aborted"


@dataclass(frozen=True, slots=True)
class Means:
    """Means of all requests.

    Attributes:
        limits: bounds.
        resolver: resolves hosts.
        turns: at addresses.
        connections: to callbacks.
        now: monotonic time in seconds.
        soon: calls a function in the next turn of the loop.
        ended: called once with each request that is over, before its outcome is reported.
    """

    limits: RequestLimits
    resolver: Resolver
    turns: AddressTurns[CallbackRequest]
    connections: Connections
    now: Callable[[], float]
    soon: Callable[[Callable[[], None]], object]
    ended: Callable[[CallbackRequest], None]


class CallbackRequest:
    """Request under way, the sink of its connection.

    Args:
        means: of all requests.
        url: of the callback.
        owner: key of the owner of the subscription.
        head: of the request, blank line included.
        body: its content.
        answer_max: bytes of the answer's content; beyond, the answer is complete, and the connection is closed.
        done: called once with the outcome, unless the request is aborted; never within ``begin``.
        deadline: seconds for resolution, connection and answer.
        keep: names of headers of the answer that the outcome has, in lower case.
    """

    __slots__ = (
        "_address",
        "_allowed",
        "_answer_max",
        "_began",
        "_body",
        "_complete",
        "_connection",
        "_deadline",
        "_done",
        "_fresh",
        "_head",
        "_interim",
        "_keep",
        "_kept",
        "_left",
        "_means",
        "_outcome",
        "_owner",
        "_parts",
        "_retry_after",
        "_size",
        "_status",
        "_step",
        "_turn",
        "_url",
    )

    @property
    def changing(self) -> bool:
        """True if the request may change something at the backend; see ``Sink``."""
        return True

    def __init__(
        self,
        means: Means,
        url: CallbackUrl,
        owner: str,
        head: bytes,
        body: bytes,
        answer_max: int,
        done: Callable[[Outcome], None],
        deadline: float,
        keep: Collection[bytes] = (),
    ) -> None:
        self._means = means
        self._url = url
        self._owner = owner
        self._head = head
        self._body = body
        self._answer_max = answer_max
        self._done = done
        self._step = Step.BEGUN
        self._began = means.now()
        self._deadline = _NEVER
        """Monotonic time in seconds at which it fails; infinite while it waits for others."""
        self._allowed = deadline
        self._left = deadline
        """Seconds of the deadline that are left, while it does not count."""
        self._address = ""
        self._turn = False
        """True while it has a turn at its address."""
        self._fresh = False
        """True once it is repeated: on a new connection, and not again."""
        self._connection: CallbackConnection | None = None
        self._outcome: Outcome | None = None
        """Outcome that is reported in the next turn of the loop."""
        self._status = 0
        self._retry_after: str | None = None
        self._keep = keep
        self._kept: dict[bytes, str] | None = None
        self._interim: tuple[int, ...] = ()
        self._parts: list[bytes] = []
        self._size = 0
        self._complete = False

    @property
    def step(self) -> Step:
        """The current step."""
        return self._step

    # --- orders

    def begin(self) -> None:
        """Begin, after construction."""
        resolution = self._means.resolver.known(self._url)
        if resolution is not None:
            self.on_resolved(resolution)
        else:
            self._step = Step.WAITING_FOR_THREAD
            self._means.resolver.ask(self, self._owner, self._url.host)

    def refuse(self) -> None:
        """End, in place of a beginning, since there are too many requests."""
        self._end_soon(self._failure(None))

    def abort(self) -> None:
        """Close the connection, or stop waiting for one; the outcome is not reported."""
        if self._step is not Step.OVER:
            self._leave()
            self._means.ended(self)

    def expire(self, now: float) -> None:
        """End if the time is over.

        Args:
            now: monotonic time in seconds.
        """
        if self._deadline <= now:
            self._fail(class_of(LATE), f"no answer within {self._allowed:g} s ({self._step.value})")

    # --- resolution and turn

    def on_lookup(self) -> None:
        """Note that the resolution has begun: a thread was free."""
        self._step = Step.RESOLVING
        self._deadline = self._means.now() + self._left

    def on_resolved(self, resolution: Resolution) -> None:
        """Go on with a ``resolution``."""
        if self._step is Step.RESOLVING:
            self._left = self._deadline - self._means.now()
            self._deadline = _NEVER
        if not resolution.address:
            self._explain(resolution.reason)
            self._end_soon(self._failure(resolution.failure))
            return
        self._step = Step.WAITING_FOR_TURN
        self._address = resolution.address
        if self._means.turns.add(self, self._owner, self._address):
            self.on_turn()

    def on_turn(self) -> None:
        """Get a connection: the request has a turn at its address."""
        self._turn = True
        self._deadline = self._means.now() + self._left
        try:
            self._connect()
        except Exception:  # noqa: BLE001 - it is logged; the caller is mostly the end of another request
            log.exception("unexpected error of a request to a callback", address=self._address)
            self._end_soon(self._failure(None))

    def _connect(self) -> None:
        self._step = Step.CONNECTING
        url = self._url
        place = Place(url.host, self._address, url.port, url.scheme == "https")
        self._means.connections.acquire(place, self, fresh=self._fresh)

    # --- Sink

    def on_connected(self, connection: BackendConnection) -> None:
        """Send the request on ``connection``."""
        self._step = Step.SENT
        self._connection = cast(CallbackConnection, connection)
        if len(self._body) < APART:
            connection.send(self._head + self._body, False, whole=self)
        else:
            connection.send(self._head, False, whole=self)
            connection.write(self._body)

    def on_connect_failed(self, error: Exception) -> None:
        """End the request; ``error``: the failure to connect."""
        self._fail(class_of(kind_of(error), error), error)

    def on_whole(self, head: ResponseHead, data: bytes) -> None:
        """Take a complete answer.

        Args:
            head: of the answer, known from an earlier one.
            data: bytes of the answer, head included.
        """
        self.on_head(head.code, head.reason, list(head.headers))
        if self._outcome is None:
            self.on_body(data[head.end :])
            self._complete = True
        self.on_batch()

    def on_interim(self, code: int, reason: bytes, headers: Headers) -> None:
        """Note an interim answer.

        Args:
            code: status code, below 200.
            reason: reason phrase.
            headers: names and values in order.
        """
        self._interim += (code,)
        if len(self._interim) > self._means.limits.interim_max:
            self._outcome = self._failure(FailureClass.MALFORMED)

    def on_head(self, code: int, reason: bytes, headers: Headers) -> None:
        """Take the head of the final answer.

        Args:
            code: status code.
            reason: reason phrase.
            headers: names and values in order.
        """
        self._status = code
        if code >= 300:
            for name, value in headers:
                if name.lower() == b"retry-after":
                    self._retry_after = value[:HEADER_MAX].decode("latin-1")
        if self._keep:
            self._kept = {
                name.lower(): value[:HEADER_MAX].decode("latin-1")
                for name, value in headers
                if name.lower() in self._keep
            }
        connection = self._connection
        if connection is not None and connection.head_size > self._means.limits.head_max:
            self._outcome = self._failure(FailureClass.TOO_LARGE)

    def on_body(self, data: bytes) -> None:
        """Take ``data``, the next bytes of the content, up to one more than allowed: it shows that there are more."""
        space = self._answer_max + 1 - self._size
        if space > 0 and data:
            self._parts.append(data[:space])
            self._size += min(len(data), space)

    def on_complete(self) -> None:
        """Note the end of the answer."""
        self._complete = True

    def on_batch(self) -> None:
        """End the request if its outcome is known."""
        connection = self._connection
        if self._step is not Step.SENT or connection is None:
            return
        if self._outcome is not None:
            self._finish(self._outcome)
        elif self._complete:
            self._connection = None
            self._means.connections.release(connection)
            self._finish(self._answer())
        elif self._size > self._answer_max:
            # The remainder may have no end.
            self._finish(self._answer())
        elif not self._status and connection.received > self._means.limits.head_max:
            self._fail(FailureClass.TOO_LARGE, f"no head within {self._means.limits.head_max} bytes")

    def on_failed(self, why: str, stale: bool, clean: bool = True, kind: str = RESET) -> None:
        """Repeat the request, or end it.

        Args:
            why: the reason, for the log.
            stale: whether the connection was reused, and has received nothing for this request.
            clean: whether it was closed, not reset. Either way the request may be sent again: callbacks are called at
                least once.
            kind: of the failure, as backends' are named.
        """
        self._connection = None
        if stale and not self._fresh:
            self._fresh = True
            self._connect()
        else:
            self._fail(class_of(kind), why)

    def on_request_blocked(self, blocked: bool) -> None:
        """Ignore back-pressure, ``blocked``: the whole request has been written."""

    # --- end

    def _answer(self) -> Outcome:
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        seconds = self._means.now() - self._began
        return Outcome(self._status, body, self._retry_after, None, self._interim, seconds, headers=self._kept)

    def _failure(self, failure: FailureClass | None) -> Outcome:
        seconds = self._means.now() - self._began
        return Outcome(failure=failure, interim=self._interim, seconds=seconds, ours=failure is None)

    def _fail(self, failure: FailureClass | None, why: object) -> None:
        self._explain(why)
        self._finish(self._failure(failure))

    def _explain(self, why: object) -> None:
        if log.level >= DEBUG:
            log.debug("callback failed", url=self._url, address=self._address, reason=why)

    def _end_soon(self, outcome: Outcome) -> None:
        self._step = Step.ENDING
        self._outcome = outcome
        self._means.soon(self._report)

    def _report(self) -> None:
        if self._step is Step.ENDING and self._outcome is not None:
            self._finish(self._outcome)

    def _finish(self, outcome: Outcome) -> None:
        try:
            self._leave()
        finally:
            # Without an outcome its subscription would wait without end.
            self._means.ended(self)
            self._done(outcome)

    def _leave(self) -> None:
        """Give back all that the request has, whichever step it has reached."""
        step, self._step = self._step, Step.OVER
        self._deadline = _NEVER
        means = self._means
        if step is Step.WAITING_FOR_THREAD or step is Step.RESOLVING:
            means.resolver.forget(self)
        elif step is Step.WAITING_FOR_TURN:
            means.turns.remove(self, self._owner, self._address)
        elif step is Step.CONNECTING:
            means.connections.forget(self)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        if self._turn:
            self._turn = False
            following = means.turns.finished(self._owner, self._address)
            if following is not None:
                following.on_turn()
