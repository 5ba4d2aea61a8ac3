"""One direction of a WebSocket at the edge: bytes of a peer become events, as fast as the other side takes them.

A read of the socket may be hundreds of frames, and a compressed one a thousand times its size. So frames are taken out
one by one, and a compressed message piece by piece, until the other side takes no more or the turn of the loop is over.
What is left stays as it came, at most one read, and the peer is not read from meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gripproxy.edge.turns import FRAME_COST, SHARE
from gripproxy.grip.deflate import Inflater, Parameters
from gripproxy.grip.frames import Assembler, Data, Event, FrameParser, ProtocolError, whole_event

if TYPE_CHECKING:
    from gripproxy.worker import Worker

__all__ = ["FrameReader"]

# Why a peer is not read from: the other side takes no more; what it has sent waits for its turn.
STOPPED, WAITING = 1, 2


class FrameReader(asyncio.Protocol):
    """The receiving side of one WebSocket, for both legs.

    Parser and assembler exist while something partial is open; a quiet WebSocket keeps neither. ``max_message`` is the
    most bytes a message may have; ``transport`` is read from, None once it is gone.
    """

    __slots__ = ("_assembler", "_holds", "_inflater", "_max", "_parser", "_queued", "_worker", "transport")

    from_client: bool

    def __init__(self, worker: Worker, transport: asyncio.Transport | None, max_message: int) -> None:
        self._worker = worker
        self.transport: Any = transport
        self._max = max_message
        self._parser: FrameParser | None = None
        self._assembler: Assembler | None = None
        self._inflater: Inflater | None = None
        self._holds = 0
        self._queued = False

    # For subclasses

    def _agreed(self) -> Parameters | None:
        """Return what was agreed on compression with the peer."""
        return None

    def _event(self, event: Event | None) -> bool:
        """Pass an event on. Returns False if nothing behind it matters."""
        raise NotImplementedError

    def _wrong(self, error: ProtocolError) -> None:
        """Deal with a peer that broke the protocol; nothing behind it matters."""
        raise NotImplementedError

    # Reading

    @property
    def held(self) -> int:
        """Bytes of the peer that were read and are not passed on."""
        return self._parser.held if self._parser is not None else 0

    @property
    def stopped(self) -> bool:
        """Whether the other side takes no more."""
        return bool(self._holds & STOPPED)

    def read(self, go: bool) -> None:
        """Take, or do not take, more from the peer: the other side says so."""
        if not go:
            self._hold(STOPPED)
        elif self._holds & STOPPED:
            if self._has_rest:
                # First what was received already, in a turn of its own: the caller is in the middle of something.
                self._holds = WAITING
                self._queue()
            else:
                self._release()

    def _receive(self, data: bytes) -> None:
        """Pass on what the peer has sent, as far as it is taken."""
        parser = self._parser
        if parser is None and self._assembler is None and not self._holds:
            whole = whole_event(data, self.from_client, self._max)
            if whole is not None:
                self._event(whole)
                return
        agreed = self._agreed()
        if parser is None:
            # A client's frames in pieces: bad text is noticed at once, and a large frame is not kept whole.
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
        if (agreed is not None and self._worker.turns.spent) or self._work(parser, self._assembler):
            self._wait()

    def _work(self, parser: FrameParser, assembler: Assembler) -> bool:
        """Pass on a share of what is there. Returns whether there is more that the other side would take."""
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
                    if (not self._worker.turns.spend(cost) or share <= 0) and rest:
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

    # Member of the worker's turns

    def work(self) -> bool:
        """Go on with what waits; returns whether there is more for another turn."""
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
        parser, assembler = self._parser, self._assembler
        return (parser is not None and parser.waiting) or (assembler is not None and assembler.waiting)

    def _take_rest(self) -> None:
        """The peer is gone: pass on what it had sent, which is at most one read, at once."""
        while self._parser is not None and self._assembler is not None and self._has_rest:
            self._holds = 0
            self._work(self._parser, self._assembler)
        self._forget()

    def _wait(self) -> None:
        self._hold(WAITING)
        self._queue()

    def _queue(self) -> None:
        if not self._queued:
            self._queued = True
            self._worker.turns.wait(self)

    def _hold(self, why: int) -> None:
        self._holds |= why
        transport = self.transport
        if transport is not None and not transport.is_closing() and transport.is_reading():
            transport.pause_reading()

    def _release(self) -> None:
        self._holds = 0
        transport = self.transport
        if transport is not None and not transport.is_closing() and not transport.is_reading():
            transport.resume_reading()

    def _forget(self) -> None:
        """Drop the bytes received and not parsed yet."""
        self._parser = self._assembler = self._inflater = None
