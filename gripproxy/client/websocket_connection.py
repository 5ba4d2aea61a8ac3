"""A client's connection once it is a WebSocket: frames in, frames out; the session decides (RFC 6455)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from gripproxy.backend.frame_reader import FrameReader
from gripproxy.backend.websocket_leg import WebSocketLeg
from gripproxy.client.context import ClientContext
from gripproxy.client.peer import GONE, HALF, address, descriptor, taken
from gripproxy.delivery.send_buffers import Stall, own_share
from gripproxy.grip.assembler import Close, Data, Event, Ping
from gripproxy.grip.frames import ProtocolError
from gripproxy.grip.permessage_deflate import Parameters
from gripproxy.pipe import SOCKET
from gripproxy.sessions.timer_wheel import Alarm
from gripproxy.sessions.websocket import CLOSE_TIMEOUT, WebSocketSession
from gripproxy.sessions.websocket_interfaces import SocketOutlet

__all__ = ["WebSocketConnection"]

ACTIVE: Final = 60
"""Seconds in which a WebSocket that relays messages counts as active once (docs/grip.md §9)."""

LEFT: Final = 1.5
"""Seconds without a byte taken by its backend after which a client that has closed its sending side has left."""


class WebSocketConnection(FrameReader):
    """One client that is a WebSocket. Implements ``gripproxy.sessions.websocket_interfaces.SocketOutlet``.

    Args:
        context: The client context.
        transport: The client's transport.
        max_message: Bytes that a message of the client may have.
        peer: Address by which the statistics know the client; empty: its own.
        session: Makes the session, whose outlet this is.
    """

    __slots__ = ("_failed", "_stalls", "peer", "session", "spoke")

    from_client = True
    _context: ClientContext

    def __init__(
        self,
        context: ClientContext,
        transport: asyncio.Transport,
        max_message: int,
        peer: bytes,
        session: Callable[[SocketOutlet], WebSocketSession],
    ) -> None:
        super().__init__(context, transport, max_message)
        self._failed = False
        """The client broke the protocol, and may not have read the close frame yet."""
        self._stalls: tuple[Stall, Stall] | None = None
        """Of the client and of its backend, from when something waits for one of them."""
        self.peer = peer
        self.session: WebSocketSession | None = session(self)
        self.spoke = context.stats.second
        """Second of the worker's clock at which it last counted as active. All of one second share one object."""

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        session = self.session
        if session is None or session.over or session.peer_closed:
            return
        self.relayed()
        self._receive(data)

    def logical(self) -> tuple[bytes, bool]:
        """Return the address by which the statistics know the client, and whether it has TLS."""
        return self.peer or address(self.transport), self.session is not None and self.session.uri.startswith(b"wss:")

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
        self._context.events.bad_socket(self, str(error))
        if self.session is not None:
            self.session.client_failed(error.code, str(error))

    # asyncio.Protocol

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        session, self.session = self.session, None
        self._forget()
        self._context.buffers.forget(self)
        self._context.registry.socket_ended(session)
        if session is not None:
            session.client_lost()

    def pause_writing(self) -> None:
        if self.session is not None:
            self.session.on_blocked()
            self._context.buffers.watch(self)

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
        session, transport, context = self.session, self.transport, self._context
        if session is None or session.over:
            return
        if self._stalls is None:
            self._stalls = (Stall(), Stall())
        leg = session.leg
        behind = leg.transport if isinstance(leg, WebSocketLeg) else None
        timeout = context.proxy.ws_stall_timeout
        quiet = 0.0
        for side, pipe, stall in (("client", transport, self._stalls[0]), ("backend", behind, self._stalls[1])):
            waiting = pipe.get_write_buffer_size() if pipe is not None else 0
            quiet = stall.look(waiting > 0, taken(pipe) if waiting else 0, now)
            if timeout and quiet >= timeout:
                session.abort_both(partial(self._stalled, side, waiting), f"{quiet:.0f}")
                return
        # Bytes sent before the close may still be taken, as long as the backend takes any.
        if closed & GONE or (closed & HALF and quiet >= LEFT):
            self.note("the client left while it was not read from")
            transport.abort()

    def _stalled(self, side: str, waiting: int, quiet: str) -> None:
        self._context.events.stalled(self, side, waiting, quiet)
        self.transport.abort()

    def overfull(self, size: int, total: int) -> None:
        if self.session is not None:
            self.session.abort_both(partial(self._context.events.overfull, self, size, total), "")
        self.transport.abort()

    # SocketOutlet

    def read(self, go: bool) -> None:
        super().read(go)
        if not go:
            self._context.buffers.watch(self)

    def relayed(self) -> None:
        second = self._context.stats.second
        if second - self.spoke >= ACTIVE and self.session is not None:
            self.spoke = second
            self.session.terms.figures.activity += 1

    def close(self) -> None:
        transport, context = self.transport, self._context
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
            # Closing waits until it is written, which may never happen if the client does not read.
            context.wheel.set(Alarm(lambda now: transport.abort()), context.clock() + CLOSE_TIMEOUT)

    def abort(self, why: str) -> None:
        self._context.events.dropped_socket(self, why)
        self.transport.abort()

    def abort_slow(self, why: str) -> None:
        self._context.events.slow_client(self, why)
        if self.session is not None:
            self._context.stats.slow(self.session.rate_key, SOCKET)
        self.transport.abort()

    def note(self, text: str) -> None:
        self._context.events.ignored(self, text)
