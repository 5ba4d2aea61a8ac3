"""The backend's side of a WebSocket as a WebSocket of its own (docs/grip.md §8.2)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gripproxy.edge.framereader import FrameReader
from gripproxy.grip.frames import (
    CLOSE,
    CONT,
    PING,
    PONG,
    Close,
    Data,
    Event,
    Ping,
    ProtocolError,
    close_payload,
    serialise,
)
from gripproxy.outages import BAD_ANSWER, RESET, TOO_LARGE
from gripproxy.sessions.websocket import WebSocketSession
from gripproxy.sessions.wheel import Alarm

if TYPE_CHECKING:
    from gripproxy.worker import Worker

__all__ = ["DirectLeg"]

TOO_BIG: Final = 1009
"""Close code for a message that is too long (RFC 6455 §7.4.1)."""

CLOSE_TIMEOUT: Final = 10.0
"""Seconds the backend has to answer a close before its connection is dropped."""


class DirectLeg(FrameReader):
    """One backend WebSocket. Implements ``gripproxy.sessions.sides.BackendLeg``."""

    __slots__ = ("_alarm", "_full", "_heard", "_said", "_session")

    from_client = False
    answers = False

    def __init__(
        self, worker: Worker, session: WebSocketSession, transport: asyncio.Transport, max_message: int
    ) -> None:
        super().__init__(worker, transport, max_message)
        self._session: WebSocketSession | None = session
        self._said = False
        self._heard = False
        self._full = False  # the backend does not take what is written; the client is not read from
        self._alarm: Alarm | None = None

    # BackendLeg

    def data(self, opcode: int, data: bytes, first: bool, fin: bool) -> None:
        """A piece of a client's message, passed on as it came."""
        self._write(serialise(opcode if first else CONT, data, fin=fin, mask=True))

    def ping(self, data: bytes) -> None:
        """A client's ping."""
        self._write(serialise(PING, data, mask=True))

    def pong(self, data: bytes) -> None:
        """A client's pong."""
        self._write(serialise(PONG, data, mask=True))

    def close(self, code: int | None, reason: bytes) -> None:
        """The client closes, or answers the backend's close."""
        self._say_close(close_payload(code, reason))

    def end(self) -> None:
        """A publisher has closed the client: a close without a code."""
        self._let_go()
        self._say_close(b"")

    def detach(self) -> None:
        """The backend wants out."""
        self.end()

    def refresh(self) -> None:
        """Nothing to ask a backend that speaks by itself."""

    def recover(self) -> None:
        """Nothing either: there are no questions."""

    def client_lost(self) -> None:
        """The client is gone without a close: so is this side (docs/grip.md §8.2)."""
        self._session = None
        if self.transport is not None:
            self.transport.abort()

    def flow(self, go: bool) -> None:
        """Read from the backend only as fast as the client takes it."""
        self.read(go)

    def buffered(self) -> int:
        """Bytes that wait for the backend, or of it for the client."""
        return self.held + (self.transport.get_write_buffer_size() if self.transport is not None else 0)

    def _let_go(self) -> WebSocketSession | None:
        """Have no more to do with the session; it is returned. Its client may not stay unread because of us."""
        session, self._session = self._session, None
        if session is not None and self._full:
            session.outlet.read(True)
        return session

    def _write(self, data: bytes) -> None:
        # A backend that has closed and does not read any more gets no more data, and the client is read on: its answer
        # to the close is behind that data.
        if self.transport is not None and not self._said and not (self._heard and self._full):
            self.transport.write(data)

    def _say_close(self, payload: bytes) -> None:
        if self._said or self.transport is None:
            return
        self.transport.write(serialise(CLOSE, payload, mask=True))
        self._said = True
        self.flow(True)
        # Also if both have closed: what is written before may never be read.
        self._alarm = Alarm(self._expired)
        self._worker.wheel.set(self._alarm, self._worker.clock() + CLOSE_TIMEOUT)
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
        """The backend broke the protocol: it gets a close frame that says how, its client's connection is dropped.

        A close frame with the same code would accuse the client (docs/guarantees.md, what happens when). A message
        that is only too long closes both sides with 1009 (docs/websockets.md).
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
            self._worker.wheel.cancel(self._alarm)
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
            return  # the message whose middle was left out cannot be gone on with
        self._full = False
        if self._session is not None:
            self._session.outlet.read(True)
