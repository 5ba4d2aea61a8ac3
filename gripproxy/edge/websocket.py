"""A client's connection once it is a WebSocket: frames in, frames out; the session decides (RFC 6455)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from gripproxy.grip.deflate import Inflater
from gripproxy.grip.frames import Assembler, Close, Data, FrameParser, Ping, ProtocolError
from gripproxy.pipe import SOCKET
from gripproxy.sessions.websocket import CLOSE_TIMEOUT, WebSocketSession
from gripproxy.sessions.wheel import Alarm

if TYPE_CHECKING:
    from gripproxy.worker import Worker

__all__ = ["WebSocketClient"]

ACTIVE: Final = 60
"""Seconds in which a WebSocket that relays messages counts as active once (docs/grip.md §9)."""


class WebSocketClient(asyncio.Protocol):
    """One client. Implements ``gripproxy.sessions.sides.SocketOutlet``.

    Parser and assembler exist while something partial is open; a quiet WebSocket keeps neither. ``max_message`` is the
    most bytes a message of the client may have.
    """

    __slots__ = (
        "_assembler",
        "_failed",
        "_inflater",
        "_max",
        "_parser",
        "_worker",
        "peer",
        "session",
        "spoke",
        "transport",
    )

    def __init__(self, worker: Worker, transport: asyncio.Transport, max_message: int) -> None:
        self._worker = worker
        self.transport: Any = transport
        self._max = max_message
        self._parser: FrameParser | None = None
        self._assembler: Assembler | None = None
        self._inflater: Inflater | None = None
        self._failed = False
        """The client broke the protocol, and may not have read yet that it is told so."""
        self.session: WebSocketSession | None = None
        self.peer = b""
        """Address it is known by in the statistics, if that is another than its own."""
        self.spoke = worker.tally.second
        """Second of the worker's clock at which it last counted as active. All of one second share one object."""

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        session = self.session
        if session is None or session.over or session.peer_closed:
            return
        self.relayed()
        parser = self._parser
        if parser is None:
            # In pieces: bad text is noticed at once, and a large frame is not kept whole.
            parser = FrameParser(True, self._max, session.deflate is not None, piece=1)
        assembler = self._assembler
        if assembler is None:
            if session.deflate is not None and self._inflater is None:
                self._inflater = Inflater(session.deflate)
            assembler = Assembler(self._max, self._inflater)
        error: ProtocolError | None = None
        try:
            frames = parser.feed(data)
        except ProtocolError as problem:
            error, frames = problem, problem.frames
        try:
            for frame in frames:
                event = assembler.feed(frame)
                if isinstance(event, Data):
                    session.client_data(event.opcode, event.data, event.first, event.fin)
                elif isinstance(event, Ping):
                    session.client_ping(event.data)
                elif isinstance(event, Close):
                    session.client_close(event.code, event.reason)
                elif event is not None:
                    session.client_pong(event.data)
                if session.over:
                    return
        except ProtocolError as problem:
            error = problem
        if error is not None:
            self._failed = True
            self._worker.bad_socket(self, str(error))
            session.client_failed(error.code, str(error))
            return
        self._parser = None if parser.idle else parser
        self._assembler = None if assembler.idle else assembler
        if self._inflater is not None and self._inflater.idle:
            self._inflater = None

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        session, self.session = self.session, None
        self._worker.socket_ended(session)
        if session is not None:
            session.client_lost()

    def pause_writing(self) -> None:
        if self.session is not None:
            self.session.on_blocked()

    def resume_writing(self) -> None:
        if self.session is not None:
            self.session.on_writable()

    # SocketOutlet

    def relayed(self) -> None:
        second = self._worker.tally.second
        if second - self.spoke >= ACTIVE and self.session is not None:
            self.spoke = second
            self.session.terms.figures.activity += 1

    def read(self, go: bool) -> None:
        transport = cast("asyncio.Transport", self.transport)
        if transport.is_closing() or transport.is_reading() == go:
            return
        if go:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def end(self) -> None:
        transport, worker = self.transport, self._worker
        unread = transport.get_write_buffer_size()
        if self._failed and transport.get_extra_info("sslcontext") is None and transport.can_write_eof():
            # It may still be sending. Unread input would turn the close into a reset that overtakes the close frame
            # (RFC 6455 §7.1.1, RFC 9112 §9.6), so the rest is read and thrown away until it has closed too.
            transport.write_eof()
            if not transport.is_reading():
                transport.resume_reading()
            unread = 1
        else:
            transport.close()
        if unread:
            # Closing waits until it is written, and a client that does not read may take for ever.
            worker.wheel.set(Alarm(lambda now: transport.abort()), worker.clock() + CLOSE_TIMEOUT)

    def drop(self, why: str) -> None:
        self._worker.dropped_socket(self, why)
        self.transport.abort()

    def cut(self, why: str) -> None:
        self._worker.slow_client(self, why)
        if self.session is not None:
            self._worker.tally.slow(self.session.rate_key, SOCKET)
        self.transport.abort()

    def note(self, text: str) -> None:
        self._worker.log.debug("WebSocket: %s", text)
