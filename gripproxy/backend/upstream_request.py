"""Requests to backends: the base of all kinds of them.

``UpstreamRequest`` asks one target after the other for a connection and applies the rule of ``retries`` to failures.
``BufferedRequest`` also collects the response, up to a limit. Each is the sink of one backend connection at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from gripproxy.backend.connection import BackendConnection, TargetPool
from gripproxy.backend.context import BackendContext
from gripproxy.backend.outages import RESET
from gripproxy.backend.pool import kind_of
from gripproxy.backend.retries import RetryRule, Step
from gripproxy.grip.headers import Headers
from gripproxy.grip.response import Response
from gripproxy.routing.route import Target

__all__ = ["BufferedRequest", "UpstreamRequest"]


class UpstreamRequest(ABC):
    """One request to one of several targets. Implements the failure callbacks of ``Sink``.

    A subclass sets the slots in its own constructor, which saves a call per request.
    """

    __slots__ = ("_backend", "_context", "_fresh", "_pool", "target_index")

    _context: BackendContext
    _backend: BackendConnection | None
    """The connection that carries the request; None before and after."""
    _pool: TargetPool | None
    """The pool of the current target; None before the first one."""
    target_index: int
    """Position of the current target."""
    _fresh: bool
    """The request was repeated: it gets a new connection, and is not repeated again."""

    @property
    def changing(self) -> bool:
        """True if the request may change something at the backend; see ``Sink``."""
        return False

    # Defined by subclasses

    @property
    @abstractmethod
    def _rule(self) -> RetryRule:
        """The row of the retry table."""

    @property
    @abstractmethod
    def _targets(self) -> Sequence[Target]:
        """The targets, in the order in which they are tried."""

    @abstractmethod
    def _acquire(self) -> None:
        """Acquire a connection to the current target, a new one if ``_fresh``."""

    def _report(self, kind: str, why: object, got: object) -> None:  # noqa: B027 - not called without further targets
        """Log and count a failure of the current target before the next one is tried: see ``Outages.report``."""

    @abstractmethod
    def _unconnected(self, kind: str, why: object) -> None:
        """End the request: no target could be connected to, or the last one may not be."""

    @abstractmethod
    def _broken(self, why: str, kind: str) -> None:
        """End the request: its connection broke, or its response is malformed."""

    # Sink

    @abstractmethod
    def on_connected(self, connection: BackendConnection) -> None:
        """Send the request on ``connection``."""

    @abstractmethod
    def on_head(self, code: int, reason: bytes, headers: Headers) -> None:
        """Take the response's head: status and fields.

        Args:
            code: The status code.
            reason: The reason phrase.
            headers: Names and values, in their order.
        """

    @abstractmethod
    def on_body(self, data: bytes) -> None:
        """Take ``data``, a piece of the response's body."""

    @abstractmethod
    def on_complete(self) -> None:
        """Note that the response is complete."""

    @abstractmethod
    def on_batch(self) -> None:
        """Act on the calls for one read of the socket."""

    def on_interim(self, code: int, reason: bytes, headers: Headers) -> None:  # noqa: B027 - optional
        """Ignore an interim response: only clients of plain requests may use it (RFC 9110 §15.2).

        Args:
            code: The status code.
            reason: The reason phrase.
            headers: Names and values, in their order.
        """

    def on_request_blocked(self, blocked: bool) -> None:  # noqa: B027 - optional
        """Ignore back-pressure (``blocked``: the connection takes no more): the whole request has been written."""

    def on_connect_failed(self, error: Exception) -> None:
        """Go on to the next target, if the rule has it and there is one; ``error``: the failure to connect."""
        self._connect_failed(kind_of(error), error)

    def _connect_failed(self, kind: str, why: object) -> None:
        step = self._rule.after_connect_failure(kind)
        if step is Step.NEXT_TARGET and self.target_index + 1 < len(self._targets):
            self._report(kind, why, step.value.replace(" ", "-"))
            self.target_index += 1
            self._fresh = False
            self._acquire()
        else:
            self._unconnected(kind, why)

    def on_failed(self, why: str, stale: bool, clean: bool = True, kind: str = RESET) -> None:
        """Repeat the request if the rule has it: a reused connection may close just as it is used again.

        Args:
            why: The reason, for the log.
            stale: True if the connection served a request before and has sent nothing for this one.
            clean: True if it was closed, not reset.
            kind: One of ``gripproxy.grip.stats_format.FAILURES``.
        """
        self._backend = None
        if stale and not self._fresh and self._rule.after_stale(clean) is Step.REPEAT:
            self._fresh = True
            self._acquire()
        else:
            self._broken(why, kind)

    def _tried(self) -> str:
        """Return the text for debugging when no target could be connected to."""
        tried = ", ".join([target.address for target in self._targets])
        return f"Unable to connect to any targets. Tried: {tried}"

    def _drop(self) -> None:
        """Close the connection, or stop waiting for one."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.abort()
        elif self._pool is not None:
            self._pool.forget(self)


class BufferedRequest(UpstreamRequest):
    """A request whose response is collected before it is used."""

    __slots__ = ("_complete", "_parts", "_response", "_size")

    _limit: int
    """Bytes a response's body may have."""
    _response: Response | None
    _parts: list[bytes]
    _size: int
    """Bytes of the body received so far."""
    _complete: bool

    # Defined by subclasses

    @abstractmethod
    def _too_large(self) -> None:
        """End the request: its response has more than the limit."""

    @abstractmethod
    def _answered(self, response: Response) -> None:
        """Take the whole response."""

    # Sink

    def on_head(self, code: int, reason: bytes, headers: Headers) -> None:
        self._response = Response(code, reason, headers)

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= self._limit:
            self._parts.append(data)

    def on_complete(self) -> None:
        self._complete = True

    def on_batch(self) -> None:
        response = self._response
        if self._size > self._limit:
            self._too_large()
        elif self._complete and response is not None:
            parts = self._parts
            response.body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._answered(response)
