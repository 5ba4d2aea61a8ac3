"""The backend's side of a WebSocket as a WebSocket of its own (docs/grip.md §8.2)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from gripproxy.grip.frames import (
    CLOSE,
    CONT,
    PING,
    PONG,
    Assembler,
    Close,
    Data,
    FrameParser,
    Ping,
    ProtocolError,
    close_payload,
    serialise,
)
from gripproxy.sessions.websocket import WebSocketSession
from gripproxy.sessions.wheel import Alarm

if TYPE_CHECKING:
    from gripproxy.worker import Worker

__all__ = ["DirectLeg"]

TOO_BIG: Final = 1009
"""Close code for a message that is too long (RFC 6455 §7.4.1)."""

CLOSE_TIMEOUT: Final = 10.0
"""Seconds the backend has to answer a close before its connection is dropped."""


class DirectLeg(asyncio.Protocol):
    """One backend WebSocket. Implements ``gripproxy.sessions.sides.BackendLeg``."""

    __slots__ = (
        "_alarm",
        "_assembler",
        "_full",
        "_heard",
        "_max",
        "_parser",
        "_said",
        "_session",
        "_transport",
        "_worker",
    )

    answers = False

    def __init__(
        self, worker: Worker, session: WebSocketSession, transport: asyncio.Transport, max_message: int
    ) -> None:
        self._worker = worker
        self._session: WebSocketSession | None = session
        self._transport: asyncio.Transport | None = transport
        self._max = max_message
        self._parser: FrameParser | None = None
        self._assembler: Assembler | None = None
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
        if self._transport is not None:
            self._transport.abort()

    def flow(self, go: bool) -> None:
        """Read from the backend only as fast as the client takes it."""
        transport = self._transport
        if transport is None or transport.is_closing() or transport.is_reading() == go:
            return
        if go:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _let_go(self) -> WebSocketSession | None:
        """Have no more to do with the session; it is returned. Its client may not stay unread because of us."""
        session, self._session = self._session, None
        if session is not None and self._full:
            session.outlet.read(True)
        return session

    def _write(self, data: bytes) -> None:
        # A backend that has closed and does not read any more gets no more data, and the client is read on: its answer
        # to the close is behind that data.
        if self._transport is not None and not self._said and not (self._heard and self._full):
            self._transport.write(data)

    def _say_close(self, payload: bytes) -> None:
        if self._said or self._transport is None:
            return
        self._transport.write(serialise(CLOSE, payload, mask=True))
        self._said = True
        self.flow(True)
        # Also if both have closed: what is written before may never be read.
        self._alarm = Alarm(self._expired)
        self._worker.wheel.set(self._alarm, self._worker.clock() + CLOSE_TIMEOUT)
        if self._heard:
            self._transport.close()

    def _expired(self, now: float) -> None:
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        parser = self._parser if self._parser is not None else FrameParser(False, self._max)
        assembler = self._assembler if self._assembler is not None else Assembler(self._max)
        error: ProtocolError | None = None
        try:
            frames = parser.feed(data)
        except ProtocolError as problem:
            error, frames = problem, problem.frames
        try:
            for frame in frames:
                session = self._session
                event = assembler.feed(frame)
                if isinstance(event, Close):
                    self._heard = True
                    if session is not None:
                        session.backend_close(event.code, event.reason)
                        if self._full:
                            session.outlet.read(True)
                    if self._said and self._transport is not None:
                        self._transport.close()
                elif session is None or self._heard:
                    continue
                elif isinstance(event, Data):
                    session.backend_data(event.opcode, event.data, event.first, event.fin)
                elif isinstance(event, Ping):
                    session.backend_ping(event.data)
                elif event is not None:
                    session.backend_pong(event.data)
        except ProtocolError as problem:
            error = problem
        if error is not None:
            self._failed(error)
            return
        self._parser = None if parser.idle else parser
        self._assembler = None if assembler.idle else assembler

    def _failed(self, error: ProtocolError) -> None:
        """The backend broke the protocol: it gets a close frame that says how, its client's connection is dropped.

        A close frame with the same code would accuse the client (docs/guarantees.md, what happens when). A message
        that is only too long closes both sides with 1009 (docs/websockets.md).
        """
        session = self._let_go()
        self._worker.log.warning("WebSocket backend: %s", error)
        self._say_close(close_payload(error.code, str(error).encode()))
        if self._transport is not None:
            self._transport.close()
        if session is not None:
            if error.code == TOO_BIG:
                session.backend_close(error.code, str(error).encode()[:123])
            session.backend_lost(f"the backend broke the protocol: {error}")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._alarm is not None:
            self._worker.wheel.cancel(self._alarm)
        session = self._let_go()
        if session is not None and not self._heard:
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
