"""Backend's side of a WebSocket whose target speaks WebSocket (docs/grip.md §8.2)."""

from __future__ import annotations

import asyncio
from typing import Final

from gripproxy.backend.context import BackendContext
from gripproxy.backend.frame_reader import FrameReader
from gripproxy.backend.outages import BAD_ANSWER, RESET, TOO_LARGE
from gripproxy.grip.assembler import Close, Data, Event, Ping
from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.frames import CLOSE, CONT, PING, PONG, ProtocolError, serialise
from gripproxy.sessions.timer_wheel import Alarm
from gripproxy.sessions.websocket import WebSocketSession

__all__ = ["WebSocketLeg"]

TOO_BIG: Final = 1009
"""Close code for a message that is too long (RFC 6455 §7.4.1)."""

CLOSE_TIMEOUT: Final = 10.0
"""Seconds the backend has to answer a close before its connection is dropped."""


class WebSocketLeg(FrameReader):
    """One backend WebSocket. Implements ``gripproxy.sessions.websocket_interfaces.BackendLeg``.

    Args:
        context: The backend context.
        session: The session.
        transport: Connection to the backend, after its 101.
        max_message: Bytes a message may have.
    """

    __slots__ = ("_alarm", "_full", "_heard", "_said", "_session")

    from_client = False
    answers = False

    def __init__(
        self, context: BackendContext, session: WebSocketSession, transport: asyncio.Transport, max_message: int
    ) -> None:
        super().__init__(context, transport, max_message)
        self._session: WebSocketSession | None = session
        self._said = False  # a close frame was sent
        self._heard = False  # a close frame was received
        self._full = False  # the write buffer is full; the client is not read until the backend reads or closes
        self._alarm: Alarm | None = None

    # BackendLeg

    def data(self, opcode: int, data: bytes, first: bool, fin: bool) -> None:
        """Send a piece of a client's message as a frame of its own."""
        self._write(serialise(opcode if first else CONT, data, fin=fin, mask=True))

    def ping(self, data: bytes) -> None:
        """Send a client's ping."""
        self._write(serialise(PING, data, mask=True))

    def pong(self, data: bytes) -> None:
        """Send a client's pong."""
        self._write(serialise(PONG, data, mask=True))

    def close(self, code: int | None, reason: bytes) -> None:
        """Send the client's close, or its answer to the backend's close."""
        self._say_close(close_payload(code, reason))

    def end(self) -> None:
        """Leave the session and send a close without a code: a publisher has closed the WebSocket."""
        self._let_go()
        self._say_close(b"")

    def detach(self) -> None:
        """Leave the session and send a close without a code: the backend has detached."""
        self.end()

    def refresh(self) -> None:
        """Do nothing: a direct backend sends on its own."""

    def recover(self) -> None:
        """Do nothing: a direct backend cannot be queried."""

    def client_lost(self) -> None:
        """Abort the connection: the client has disconnected without a close frame (docs/grip.md §8.2)."""
        self._session = None
        if self.transport is not None:
            self.transport.abort()

    def flow(self, go: bool) -> None:
        """Start or stop reading from the backend, which is read only as fast as the client reads."""
        self.read(go)

    def buffered(self) -> int:
        """Return the bytes that wait for the backend, or were read from it and wait for the client."""
        return self.held + (self.transport.get_write_buffer_size() if self.transport is not None else 0)

    def _let_go(self) -> WebSocketSession | None:
        """Leave the session and return it. Its client is read again if this side had stopped that."""
        session, self._session = self._session, None
        if session is not None and self._full:
            session.outlet.read(True)
        return session

    def _write(self, data: bytes) -> None:
        # A backend that has sent a close frame and does not read any more gets no more data, and the client is still
        # read: its answer to the close frame is behind that data.
        if self.transport is not None and not self._said and not (self._heard and self._full):
            self.transport.write(data)

    def _say_close(self, payload: bytes) -> None:
        if self._said or self.transport is None:
            return
        self.transport.write(serialise(CLOSE, payload, mask=True))
        self._said = True
        self.flow(True)
        # Set even if both sides have closed: the backend may never read the bytes written before.
        self._alarm = Alarm(self._expired)
        self._context.wheel.set(self._alarm, self._context.clock() + CLOSE_TIMEOUT)
        if self._heard:
            self.transport.close()

    def _expired(self, now: float) -> None:
        if self.transport is not None:
            self.transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    # FrameReader

    def _event(self, event: Event | None) -> bool:
        session = self._session
        if isinstance(event, Close):
            self._heard = True
            if session is not None:
                session.backend_close(event.code, event.reason)
                if self._full:
                    session.outlet.read(True)
            if self._said and self.transport is not None:
                self.transport.close()
        elif session is None or self._heard:
            return True
        elif isinstance(event, Data):
            session.backend_data(event.opcode, event.data, event.first, event.fin)
        elif isinstance(event, Ping):
            session.backend_ping(event.data)
        elif event is not None:
            session.backend_pong(event.data)
        return True

    def _wrong(self, error: ProtocolError) -> None:
        """End both sides: the backend gets a close frame with the protocol error, the client's connection is dropped.

        A close frame with that code would accuse the client (docs/guarantees.md "What happens when"). A message that
        is only too long closes both sides with 1009 (docs/websockets.md).
        """
        session = self._let_go()
        if session is not None:
            session.terms.failed(TOO_LARGE if error.code == TOO_BIG else BAD_ANSWER, f"WebSocket: {error}", "dropped")
        self._say_close(close_payload(error.code, str(error).encode()))
        if self.transport is not None:
            self.transport.close()
        if session is not None:
            if error.code == TOO_BIG:
                session.backend_close(error.code, str(error).encode()[:123])
            session.backend_lost(f"the backend broke the protocol: {error}")

    def eof_received(self) -> bool:
        return False

    # asyncio.Protocol

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._take_rest()
        if self._alarm is not None:
            self._context.wheel.cancel(self._alarm)
        session = self._let_go()
        if session is not None and not self._heard:
            if not session.over:
                session.terms.failed(RESET, f"WebSocket ended without a close{f': {exc}' if exc else ''}", "dropped")
            session.backend_lost("the backend's connection is gone")

    def pause_writing(self) -> None:
        self._full = True
        if self._session is not None and not self._heard:
            self._session.outlet.read(False)

    def resume_writing(self) -> None:
        if self._heard:
            return  # a message whose middle was dropped cannot be continued
        self._full = False
        if self._session is not None:
            self._session.outlet.read(True)
