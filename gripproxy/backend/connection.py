"""Connection to a backend: writes one request at a time and passes its response to a ``Sink`` by plain calls."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

from gripproxy.backend.outages import BAD_ANSWER, RESET, Troubled
from gripproxy.http1.head_cache import ResponseHead
from gripproxy.http1.response_parser import BadResponse, ResponseParser
from gripproxy.routing.route import Target

__all__ = ["BackendConnection", "Sink", "TargetPool", "WholeSink"]


HIGH_WATER: Final = 128 * 1024
"""Bytes of request body that a backend connection may buffer; beyond it reading from the client stops."""


class Sink(Protocol):
    """Receiver of a response: the request that a backend connection carries.

    Order of the calls: ``on_connected`` or ``on_connect_failed``; any number of ``on_interim``; ``on_head``; any number
    of ``on_body``; ``on_complete``. ``on_batch`` follows the calls for each read of the socket. ``on_failed`` may
    replace any call after ``on_connected`` and is the last one. A sink may abort the connection in any call.
    """

    @property
    def changing(self) -> bool:
        """True if the request may change something at the backend: such ones do not wait behind all others."""

    def on_connected(self, connection: BackendConnection) -> None:
        """Send the request on ``connection``."""

    def on_connect_failed(self, error: Exception) -> None:
        """Take a failure to connect; ``error``: refused, timed out, TLS failed, barred by policy."""

    def on_head(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Take the head of the final response.

        Args:
            code: Status code.
            reason: Reason phrase.
            headers: Names and values in order.
        """

    def on_interim(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Take the head of an interim response (RFC 9110 §15.2).

        Args:
            code: Status code, below 200.
            reason: Reason phrase.
            headers: Names and values in order.
        """

    def on_body(self, data: bytes) -> None:
        """Take ``data``, the next bytes of the body, without transfer coding."""

    def on_complete(self) -> None:
        """Note the end of the response."""

    def on_batch(self) -> None:
        """Act on the calls for one read of the socket: write gathered bytes, end the request."""

    def on_failed(self, why: str, stale: bool, clean: bool = True, kind: str = RESET) -> None:
        """Take the end of the connection before the response was complete.

        Args:
            why: The reason, for the log.
            stale: True if the connection was reused and received nothing after the request.
            clean: True if the connection was closed, false if it was reset.
            kind: One of ``gripproxy.grip.stats_format.FAILURES``.
        """

    def on_request_blocked(self, blocked: bool) -> None:
        """Pause the request body if ``blocked`` (the write buffer is above HIGH_WATER), else resume it."""


class WholeSink(Sink, Protocol):
    """A sink that may get a whole response in one call."""

    def on_whole(self, head: ResponseHead, data: bytes) -> None:
        """Relay a response, in place of the calls for head, body and end.

        Args:
            head: Head of the response, cached from an earlier one.
            data: Bytes of the response, head included.
        """


class TargetPool(Troubled, Protocol):
    """Connections to one target."""

    @property
    def target(self) -> Target:
        """The target."""

    def acquire(self, sink: Sink, fresh: bool = False) -> None:
        """Call ``sink.on_connected`` with a connection, or ``sink.on_connect_failed``, now or later.

        Args:
            sink: The request.
            fresh: True to get a new connection, not an idle one.
        """

    def forget(self, sink: Sink) -> None:
        """Stop opening a connection for ``sink``; no further call to it follows."""

    def put(self, connection: BackendConnection) -> None:
        """Keep ``connection``, which is idle, for another request."""

    def discard(self, connection: BackendConnection) -> None:
        """Remove ``connection``, which is closing or handed over, from the pool; it may be called again."""


class BackendConnection(asyncio.Protocol):
    """One connection to a backend, with at most one request at a time.

    Args:
        pool: Pool of the connection's target.
    """

    __slots__ = ("_parser", "_paused", "_pool", "_transport", "_whole", "answered", "idle_since", "reused", "sink")

    def __init__(self, pool: TargetPool) -> None:
        self._pool = pool
        self._parser = ResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._whole: WholeSink | None = None
        self.sink: Sink | None = None
        self.reused = False
        self.answered = False
        self.idle_since = 0.0

    @property
    def head_size(self) -> int:
        """Bytes of the header lines of the response."""
        return self._parser.head_size

    def send(self, data: bytes, head: bool, upgrade: bool = False, whole: WholeSink | None = None) -> None:
        """Send the head of a request, and the first bytes of its body.

        Args:
            data: The bytes.
            head: True if the method is HEAD: the response has no body.
            upgrade: True if the request is a WebSocket handshake: 101 is a valid response.
            whole: The sink, if a response that needs no processing may be passed to ``on_whole``; else None.
        """
        self.answered = False
        self._whole = whole
        self._parser.expect(head, upgrade)
        if self._transport is not None:
            self._transport.write(data)

    def write(self, data: bytes) -> None:
        """Send ``data``, the next bytes of the request body, with any transfer coding applied."""
        if self._transport is not None:
            self._transport.write(data)

    def buffered(self) -> int:
        """Return the number of bytes in the write buffer."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def pause(self) -> None:
        """Stop reading the response until ``resume``."""
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read the response again after ``pause``."""
        if self._transport is not None and self._paused:
            self._paused = False
            self._transport.resume_reading()

    def release(self) -> None:
        """Return the connection to its pool after a complete response, or close it if it is not reusable."""
        self.sink = self._whole = None
        pool = self._pool
        if pool.outage is not None:
            pool.outage.answered = True
        transport = self._transport
        if transport is None:
            return
        if not self._parser.reusable or self._parser.asked or transport.is_closing():
            transport.close()
            return
        if self._paused:
            self._paused = False
            transport.resume_reading()
        self.reused = True
        pool.put(self)

    def detach(self) -> tuple[asyncio.Transport, bytes]:
        """Hand over the transport after a 101; this object must not be used again.

        Returns:
            The transport, and the bytes received after the head of the 101.
        """
        outage = self._pool.outage
        if outage is not None:
            outage.answered = True
        transport, self._transport = self._transport, None
        self.sink = self._whole = None
        assert transport is not None
        self._pool.discard(self)
        rest = self._parser.rest
        self._parser.close()
        return transport, rest

    def abort(self) -> None:
        """Abort the transport; the sink is not called."""
        self.sink = self._whole = None
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep ``transport`` and limit its write buffer to HIGH_WATER bytes."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        """Parse ``data``, one read of the socket; without a sink discard and abort the connection."""
        sink, whole = self.sink, self._whole
        self.answered = True
        try:
            head = self._parser.feed(data, whole is not None)
        except BadResponse as error:
            self._break(f"bad response: {error}", True, BAD_ANSWER)
            return
        if head is not None and whole is not None:
            whole.on_whole(head, data)
        elif sink is not None:
            sink.on_batch()
        else:
            self._pool.discard(self)
            self.abort()

    def eof_received(self) -> bool:
        """Return False: the transport closes once the backend has closed its side."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Complete a response that ends with the connection, else fail the request; ``exc``: error of the socket."""
        self._transport = None
        self._pool.discard(self)
        sink = self.sink
        if sink is not None and self._parser.eof():
            sink.on_batch()
        self._parser.close()
        if self.sink is not None:
            why = f"connection closed{f': {exc}' if exc else ' before the response was complete'}"
            self._break(why, exc is None)

    def pause_writing(self) -> None:
        """Pause the request body: the write buffer is above HIGH_WATER."""
        if self.sink is not None:
            self.sink.on_request_blocked(True)

    def resume_writing(self) -> None:
        """Resume the request body: the write buffer has drained."""
        if self.sink is not None:
            self.sink.on_request_blocked(False)

    def _break(self, why: str, clean: bool, kind: str = RESET) -> None:
        """Abort the transport and fail the request, with the arguments of ``Sink.on_failed``."""
        sink, self.sink = self.sink, None
        self._whole = None
        self._pool.discard(self)
        if self._transport is not None:
            self._transport.abort()
        if sink is not None:
            sink.on_failed(why, self.reused and not self.answered, clean, kind)

    # ResponseOwner

    def response_begun(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Pass the head of the final response to the sink.

        Args:
            code: Status code.
            reason: Reason phrase.
            headers: Names and values in order.
        """
        self.answered = True
        if self.sink is not None:
            self.sink.on_head(code, reason, headers)

    def interim_response(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Pass the head of an interim response to the sink.

        Args:
            code: Status code, below 200.
            reason: Reason phrase.
            headers: Names and values in order.
        """
        if self.sink is not None:
            self.sink.on_interim(code, reason, headers)

    def response_body(self, data: bytes) -> None:
        """Pass ``data``, the next bytes of the response body, to the sink."""
        if self.sink is not None:
            self.sink.on_body(data)

    def response_complete(self) -> None:
        """Report the end of the response to the sink."""
        if self.sink is not None:
            self.sink.on_complete()
