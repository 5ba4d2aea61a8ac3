"""A client's connection once it is a WebSocket: frames in, frames out; the session decides (RFC 6455)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from gripproxy.buffers import Stall, own_share
from gripproxy.edge.directleg import DirectLeg
from gripproxy.edge.framereader import FrameReader
from gripproxy.edge.peer import GONE, HALF, descriptor, taken
from gripproxy.grip.deflate import Parameters
from gripproxy.grip.frames import Close, Data, Event, Ping, ProtocolError
from gripproxy.pipe import SOCKET
from gripproxy.sessions.websocket import CLOSE_TIMEOUT, WebSocketSession
from gripproxy.sessions.wheel import Alarm

if TYPE_CHECKING:
    from gripproxy.worker import Worker

__all__ = ["WebSocketClient"]

ACTIVE: Final = 60
"""Seconds in which a WebSocket that relays messages counts as active once (docs/grip.md §9)."""

LEFT: Final = 1.5
"""Seconds without a byte taken by its backend after which a client that has closed its sending side has left."""


class WebSocketClient(FrameReader):
    """One client. Implements ``gripproxy.sessions.sides.SocketOutlet``.

    ``max_message`` is the most bytes a message of the client may have.
    """

    __slots__ = ("_failed", "_stalls", "peer", "session", "spoke")

    from_client = True

    def __init__(self, worker: Worker, transport: asyncio.Transport, max_message: int) -> None:
        super().__init__(worker, transport, max_message)
        self._failed = False
        """The client broke the protocol, and may not have read yet that it is told so."""
        self._stalls: tuple[Stall, Stall] | None = None
        """Of the client and of its backend, from when something waits for one of them."""
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
        self._receive(data)

    # FrameReader

    def _agreed(self) -> Parameters | None:
        return self.session.deflate if self.session is not None else None

    def _event(self, event: Event | None) -> bool:
        session = self.session
        if session is None or session.over:
            return False
        if isinstance(event, Data):
            session.client_data(event.opcode, event.data, event.first, event.fin)
        elif isinstance(event, Ping):
            session.client_ping(event.data)
        elif isinstance(event, Close):
            session.client_close(event.code, event.reason)
        elif event is not None:
            session.client_pong(event.data)
        return not session.over

    def _wrong(self, error: ProtocolError) -> None:
        self._failed = True
        self._worker.bad_socket(self, str(error))
        if self.session is not None:
            self.session.client_failed(error.code, str(error))

    # asyncio.Protocol

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        session, self.session = self.session, None
        self._forget()
        self._worker.buffers.forget(self)
        self._worker.socket_ended(session)
        if session is not None:
            session.client_lost()

    def pause_writing(self) -> None:
        if self.session is not None:
            self.session.on_blocked()
            self._worker.buffers.watch(self)

    def resume_writing(self) -> None:
        if self.session is not None:
            self.session.on_writable()

    # Peer

    def buffered(self) -> int:
        session = self.session
        if session is None:
            return 0
        size: int = self.transport.get_write_buffer_size()
        extras, leg = session.extras, session.leg
        if extras is not None:
            if extras.blocked and session.deflate is None and not session.uri.startswith(b"wss:"):
                size = own_share(size, extras.sharers)
            size += extras.size + extras.after_size
        size += self.held
        return size + leg.buffered() if leg is not None else size

    def unread(self) -> int:
        return descriptor(self.transport) if self.stopped else -1

    def attend(self, now: float, closed: int) -> None:
        session, transport, worker = self.session, self.transport, self._worker
        if session is None or session.over:
            return
        if self._stalls is None:
            self._stalls = (Stall(), Stall())
        leg = session.leg
        behind = leg.transport if isinstance(leg, DirectLeg) else None
        timeout = worker.config.proxy.ws_stall_timeout
        quiet = 0.0
        for side, pipe, stall in (("client", transport, self._stalls[0]), ("backend", behind, self._stalls[1])):
            waiting = pipe.get_write_buffer_size() if pipe is not None else 0
            quiet = stall.look(waiting > 0, taken(pipe) if waiting else 0, now)
            if timeout and quiet >= timeout:
                session.break_off(partial(self._stalled, side, waiting), f"{quiet:.0f}")
                return
        # What it has sent before it closed may still be taken, as long as the backend takes anything.
        if closed & GONE or (closed & HALF and quiet >= LEFT):
            self.note("the client left while it was not read from")
            transport.abort()

    def _stalled(self, side: str, waiting: int, quiet: str) -> None:
        self._worker.stalled(self, side, waiting, quiet)
        self.transport.abort()

    def overfull(self, size: int, total: int) -> None:
        if self.session is not None:
            self.session.break_off(partial(self._worker.overfull, self, size, total), "")
        self.transport.abort()

    # SocketOutlet

    def read(self, go: bool) -> None:
        super().read(go)
        if not go:
            self._worker.buffers.watch(self)

    def relayed(self) -> None:
        second = self._worker.tally.second
        if second - self.spoke >= ACTIVE and self.session is not None:
            self.spoke = second
            self.session.terms.figures.activity += 1

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
        self._worker.ignored(self, text)
