"""WebSocket messages: frames of one direction become events (RFC 6455 §5.4 to §5.6, §8.1). Sans-I/O.

Nothing here answers by itself: a ping or a close is an event, since a relay passes it on.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from gripproxy.grip.utf8 import is_utf8

try:
    from websockets.speedups import apply_mask
except ImportError:  # the library was built without its C part
    from websockets.utils import apply_mask
from gripproxy.grip.close_frame import parse_close
from gripproxy.grip.frames import BINARY, CLOSE, CONT, PING, PONG, TEXT, Frame, ProtocolError

__all__ = ["PIECE", "Assembler", "Close", "Data", "Event", "Inflates", "Ping", "Pong", "whole_event"]


# First bytes of frames that are whole by themselves: FIN set, no reserved bit.
_WHOLE: Final = {0x80 | opcode: opcode for opcode in (TEXT, BINARY, CLOSE, PING, PONG)}


@dataclass(slots=True)
class Data:
    """A piece of a message.

    Attributes:
        opcode: ``TEXT`` or ``BINARY``, of the message also on its later pieces.
        data: May end inside a character of a text; may be empty.
        first: The message begins here.
        fin: The message ends here.
    """

    opcode: int
    data: bytes
    first: bool
    fin: bool


@dataclass(slots=True)
class Ping:
    """A ping, to be relayed or answered."""

    data: bytes


@dataclass(slots=True)
class Pong:
    """A pong."""

    data: bytes


@dataclass(slots=True)
class Close:
    """The peer closes; nothing follows.

    Attributes:
        code: ``None`` if it named none.
        reason: UTF-8.
    """

    code: int | None
    reason: bytes


Event: TypeAlias = Data | Ping | Pong | Close


class Inflates(Protocol):
    """Decompressor of one direction, as an :class:`Assembler` uses it."""

    @property
    def waiting(self) -> bool:
        """True while ``take`` has to be called again for bytes put in."""
        ...

    def put(self, data: bytes, fin: bool) -> None:
        """Take in ``data``, the payload of a frame; ``fin``: it ends the message."""
        ...

    def take(self, most: int, limit: int) -> bytes:
        """Return at most ``most`` further bytes; raises :class:`ProtocolError` for more than ``limit`` of them."""
        ...


PIECE: Final = 64 * 1024
"""Bytes of a compressed message that are made at a time: a frame can grow to a thousand times its size."""


class Assembler:
    """Turns the frames of one direction into events (RFC 6455 §5.4, §5.5, §8.1).

    Pieces of a message are handed on as they come, so it holds at most three bytes of an unfinished character. A frame
    of a compressed message may be several pieces: while one is ``waiting``, ``more`` has to be called before the next
    frame is fed. Between messages it holds nothing at all (``idle``) and may be dropped. After a
    :class:`ProtocolError` it must not be used again.

    Args:
        max_message: Bytes allowed in a message, after decompression.
        inflater: Decompressor of this direction, ``None`` without permessage-deflate; outlives the assembler.
    """

    __slots__ = ("_compressed", "_decoder", "_fin", "_first", "_inflater", "_max", "_opcode", "_size")

    def __init__(self, max_message: int, inflater: Inflates | None = None) -> None:
        self._max = max_message
        self._inflater = inflater
        self._opcode = 0  # of the open message, 0 if none is open
        self._size = 0
        self._compressed = False
        self._first = False  # nothing of the open message was handed on yet
        self._fin = False  # the frame that is decompressed is the last of its message
        self._decoder: codecs.IncrementalDecoder | None = None

    @property
    def idle(self) -> bool:
        """True if no message is open."""
        return not self._opcode

    @property
    def waiting(self) -> bool:
        """True if the last frame has more pieces."""
        return self._compressed and self._inflater is not None and self._inflater.waiting

    def feed(self, frame: Frame) -> Event | None:
        """Take in one frame; nothing may be ``waiting``.

        Args:
            frame: As the parser gave it out.

        Returns:
            Its meaning, or its first piece; ``None`` for an empty fragment in the middle of a message.

        Raises:
            ProtocolError: 1002 for a continuation without a beginning, a new message inside a message, or compression
                that was not agreed on; 1007 for text that is not UTF-8 (as early as it can be known) or that does not
                decompress; 1009 for a message over ``max_message``.
        """
        opcode = frame.opcode
        if opcode >= CLOSE:
            if opcode == PING:
                return Ping(frame.payload)
            if opcode == PONG:
                return Pong(frame.payload)
            return Close(*parse_close(frame.payload))
        data, fin = frame.payload, frame.fin
        if opcode == CONT:
            if not self._opcode:
                raise ProtocolError(1002, "continuation frame without a message to continue")
        else:
            if self._opcode:
                raise ProtocolError(1002, "new message begins before the last one ended")
            if fin and not frame.rsv1:
                # A message in one frame leaves no state behind.
                if len(data) > self._max:
                    raise self._too_big()
                if opcode == TEXT and not is_utf8(data):
                    raise ProtocolError(1007, "text message is not UTF-8")
                return Data(opcode, data, True, True)
            if frame.rsv1 and self._inflater is None:
                raise ProtocolError(1002, "compressed message, but no compression was agreed on")
            self._first = True
            self._opcode = opcode
            self._compressed = frame.rsv1
        if self._compressed:
            assert self._inflater is not None  # checked where the message began
            self._inflater.put(data, fin)
            self._fin = fin
            return self.more()
        return self._piece(data, fin)

    def more(self) -> Event | None:
        """Return the next piece of the frame that is ``waiting``.

        Returns:
            And raises: see ``feed``.
        """
        inflater = self._inflater
        assert inflater is not None
        data = inflater.take(PIECE, self._max - self._size)
        return self._piece(data, self._fin and not inflater.waiting)

    def _piece(self, data: bytes, fin: bool) -> Event | None:
        self._size += len(data)
        if self._size > self._max:
            raise self._too_big()
        if self._opcode == TEXT:
            self._check_text(data, fin)
        first = self._first
        event = Data(self._opcode, data, first, fin) if data or first or fin else None
        self._first = False
        if fin:
            self._opcode = self._size = 0
            self._compressed = False
            self._decoder = None
        return event

    def _check_text(self, data: bytes, fin: bool) -> None:
        decoder = self._decoder
        if decoder is None:
            decoder = self._decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            decoder.decode(data, fin)
        except UnicodeDecodeError as e:
            raise ProtocolError(1007, "text message is not UTF-8") from e
        # Python waits for the third byte of an encoded surrogate; the second already decides.
        pending = decoder.getstate()[0]
        if len(pending) > 1 and pending[0] == 0xED and pending[1] >= 0xA0:
            raise ProtocolError(1007, "text message is not UTF-8: it has a surrogate")

    def _too_big(self) -> ProtocolError:
        return ProtocolError(1009, f"message is longer than {self._max} bytes")


def whole_event(data: bytes, masked: bool, most: int) -> Event | None:
    """Look whether a read is exactly one small, whole, faultless frame, as nearly every read is.

    Args:
        data: Bytes received, with nothing in front of it and no message open.
        masked: See :class:`FrameParser`.
        most: Bytes allowed in a message.

    Returns:
        Its event. ``None`` for a close, and for all bytes that need a parser.
    """
    size = len(data)
    opcode = _WHOLE.get(data[0]) if size > 1 else None
    if opcode is None or opcode == CLOSE:
        return None
    if masked:
        length = data[1] - 0x80
        if size != length + 6 or not 0 <= length < 126 or length > most:
            return None
        payload = apply_mask(data[6:], data[2:6])
    else:
        length = data[1]
        if size != length + 2 or length >= 126 or length > most:
            return None
        payload = data[2:]
    if opcode == TEXT:
        return Data(TEXT, payload, True, True) if is_utf8(payload) else None
    if opcode == BINARY:
        return Data(BINARY, payload, True, True)
    return Ping(payload) if opcode == PING else Pong(payload)
