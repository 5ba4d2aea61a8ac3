"""One direction of a WebSocket: parses the bytes of a peer into events, as fast as the other side accepts them.

A read of the socket may have hundreds of frames, and a compressed frame may inflate to a thousand times its size.
Frames are therefore parsed one by one, and compressed messages inflated piece by piece, until the other side is blocked
or the share of this turn of the loop is used up. Bytes left over, at most one read, stay unparsed; meanwhile reading
from the peer is paused.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from gripproxy.backend.context import BackendContext
from gripproxy.backend.frame_turns import FRAME_COST, SHARE
from gripproxy.grip.assembler import Assembler, Data, Event, whole_event
from gripproxy.grip.frames import FrameParser, ProtocolError
from gripproxy.grip.permessage_deflate import Inflater, Parameters

__all__ = ["FrameReader"]

# Reasons to pause reading from a peer: the other side is blocked; bytes received before wait for a turn.
STOPPED, WAITING = 1, 2


class FrameReader(asyncio.Protocol, ABC):
    """Receiving side of one WebSocket connection, of a client or a backend.

    Parser and assembler exist while a frame or message is incomplete; an idle WebSocket keeps neither.

    Args:
        context: Parts of the worker, of which the turns are used.
        transport: Transport of the peer; None without a connection.
        max_message: Bytes that a message may have.
    """

    __slots__ = ("_assembler", "_context", "_holds", "_inflater", "_max", "_parser", "_queued", "transport")

    from_client: bool

    def __init__(self, context: BackendContext, transport: asyncio.Transport | None, max_message: int) -> None:
        self._context = context
        self.transport: Any = transport
        self._max = max_message
        self._parser: FrameParser | None = None
        self._assembler: Assembler | None = None
        self._inflater: Inflater | None = None
        self._holds = 0
        self._queued = False

    # For subclasses

    def _agreed(self) -> Parameters | None:
        """Return the parameters of permessage-deflate agreed with the peer; None without compression."""
        return None

    @abstractmethod
    def _event(self, event: Event | None) -> bool:
        """Pass ``event`` to the session, or nothing if None. Returns False if the bytes after it are to be dropped."""

    @abstractmethod
    def _wrong(self, error: ProtocolError) -> None:
        """Close the WebSocket after a protocol error of the peer; the bytes after it have been dropped."""

    # Reading

    @property
    def held(self) -> int:
        """Bytes read from the peer and not passed on yet."""
        return self._parser.held if self._parser is not None else 0

    @property
    def stopped(self) -> bool:
        """True while the other side is blocked."""
        return bool(self._holds & STOPPED)

    def read(self, go: bool) -> None:
        """Resume or stop reading from the peer; called by the other side.

        Args:
            go: True to resume, which passes on bytes received before first; false to stop.
        """
        if not go:
            self._hold(STOPPED)
        elif self._holds & STOPPED:
            if self._has_rest:
                # Bytes received before precede, in a turn of their own: the caller must not be re-entered.
                self._holds = WAITING
                self._queue()
            else:
                self._release()

    def _receive(self, data: bytes) -> None:
        """Parse ``data``, one read of the socket, and pass on its events until the other side or the turn blocks."""
        parser = self._parser
        if parser is None and self._assembler is None and not self._holds:
            whole = whole_event(data, self.from_client, self._max)
            if whole is not None:
                self._event(whole)
                return
        agreed = self._agreed()
        if parser is None:
            # Frames of a client in pieces: invalid UTF-8 fails without delay, and a large frame is not buffered whole.
            parser = self._parser = FrameParser(
                self.from_client, self._max, agreed is not None, 1 if self.from_client else None
            )
        if self._assembler is None:
            if agreed is not None and self._inflater is None:
                self._inflater = Inflater(agreed)
            self._assembler = Assembler(self._max, self._inflater)
        parser.feed(data)
        if self._holds:
            return
        if (agreed is not None and self._context.turns.spent) or self._work(parser, self._assembler):
            self._wait()

    def _work(self, parser: FrameParser, assembler: Assembler) -> bool:
        """Pass on events up to SHARE bytes of work. Returns whether more are there that the other side accepts."""
        share = SHARE
        try:
            while True:
                if assembler.waiting:
                    event = assembler.more()
                else:
                    frame = next(parser, None)
                    if frame is None:
                        break
                    event = assembler.feed(frame)
                if not self._event(event):
                    self._forget()
                    return False
                if self._holds & STOPPED:
                    return False
                rest = parser.waiting or assembler.waiting
                if rest or self._inflater is not None:
                    cost = FRAME_COST + (len(event.data) if isinstance(event, Data) else 0)
                    share -= cost
                    if (not self._context.turns.spend(cost) or share <= 0) and rest:
                        return True
        except ProtocolError as error:
            self._forget()
            self._wrong(error)
            return False
        if parser.idle:
            self._parser = None
        if assembler.idle:
            self._assembler = None
        if self._inflater is not None and self._inflater.idle:
            self._inflater = None
        return False

    # Member of FrameTurns

    def work(self) -> bool:
        """Return whether another turn is needed, after passing on a share of the events that wait."""
        self._queued = False
        parser, assembler = self._parser, self._assembler
        if self._holds & STOPPED:
            return False
        if parser is not None and assembler is not None and self._work(parser, assembler):
            self._queued = True
            return True
        if not self._holds & STOPPED:
            self._release()
        return False

    @property
    def _has_rest(self) -> bool:
        """True if bytes received before can yield further events."""
        parser, assembler = self._parser, self._assembler
        return (parser is not None and parser.waiting) or (assembler is not None and assembler.waiting)

    def _take_rest(self) -> None:
        """Pass on all remaining events, of at most one read, without waiting for turns: the peer has disconnected."""
        while self._parser is not None and self._assembler is not None and self._has_rest:
            self._holds = 0
            self._work(self._parser, self._assembler)
        self._forget()

    def _wait(self) -> None:
        """Pause reading and queue for a turn."""
        self._hold(WAITING)
        self._queue()

    def _queue(self) -> None:
        """Queue for a turn, unless queued already."""
        if not self._queued:
            self._queued = True
            self._context.turns.wait(self)

    def _hold(self, why: int) -> None:
        """Pause reading from the peer; ``why``: STOPPED or WAITING."""
        self._holds |= why
        transport = self.transport
        if transport is not None and not transport.is_closing() and transport.is_reading():
            transport.pause_reading()

    def _release(self) -> None:
        """Resume reading from the peer: no reason to pause is left."""
        self._holds = 0
        transport = self.transport
        if transport is not None and not transport.is_closing() and not transport.is_reading():
            transport.resume_reading()

    def _forget(self) -> None:
        """Drop parser, assembler and inflater, with the bytes received and not passed on yet."""
        self._parser = self._assembler = self._inflater = None
