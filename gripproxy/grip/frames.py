"""WebSocket frames and messages (RFC 6455), sans-I/O, for both legs of the relay.

Bytes become :class:`Frame` objects in a :class:`FrameParser`, frames become events in an :class:`Assembler`; the other
way :func:`serialise` makes one frame. Nothing here answers by itself: a ping or a close is an event, since a relay
passes it on. The opening handshake's checks are in :mod:`gripproxy.grip.handshake`.

Errors: :class:`ProtocolError` is always the fault of the peer whose bytes were fed, and carries the close code that
the peer deserves.
"""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

try:
    from websockets.speedups import apply_mask
except ImportError:  # the library was built without its C part
    from websockets.utils import apply_mask

__all__ = [
    "BINARY",
    "CLOSE",
    "CONT",
    "MAX_CONTROL",
    "PIECE",
    "PING",
    "PONG",
    "TEXT",
    "Assembler",
    "Close",
    "Data",
    "Event",
    "Frame",
    "FrameParser",
    "Inflates",
    "Ping",
    "Pong",
    "ProtocolError",
    "close_payload",
    "is_close_code",
    "parse_close",
    "serialise",
    "whole_event",
]

CONT: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

MAX_CONTROL: Final = 125
"""Bytes a control frame may carry (RFC 6455 §5.5)."""

_OPCODES: Final = frozenset((CONT, TEXT, BINARY, CLOSE, PING, PONG))
# First bytes of frames that are whole by themselves: FIN set, no reserved bit.
_WHOLE: Final = {0x80 | opcode: opcode for opcode in (TEXT, BINARY, CLOSE, PING, PONG)}
# Heads of unmasked final frames by opcode and length: what is sent 50,000 times a second is looked up, not packed.
_HEADS: Final = {opcode: tuple(bytes((0x80 | opcode, n)) for n in range(126)) for opcode in sorted(_OPCODES)}

# RFC 6455 §7.4.1 and the IANA registry (1012 to 1014). 1004, 1005, 1006 and 1015 are reserved and never on the wire.
_CLOSE_CODES: Final = frozenset((*range(1000, 1004), *range(1007, 1015)))


class ProtocolError(ValueError):
    """The peer broke RFC 6455 (or RFC 7692); the connection must be failed (RFC 6455 §7.1.7).

    :param code: the close code it deserves: 1002 protocol, 1007 bad text, 1009 too big.
    :param text: what is wrong, with the wrong value; short enough to be a close reason.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(slots=True)
class Frame:
    """One frame.

    :param opcode: ``CONT`` … ``PONG``.
    :param fin: whether the message ends here.
    :param payload: unmasked.
    :param rsv1: the message is compressed (RFC 7692 §6); only on its first frame.
    """

    opcode: int
    fin: bool
    payload: bytes
    rsv1: bool = False


class FrameParser:
    """Cuts the bytes of one direction into frames (RFC 6455 §5.2).

    An iterator over the frames that are complete: the caller takes one after the other, and what it does not take stays
    here as bytes. Beside these, at most one incomplete frame is held back: ``max_frame`` bytes and a head, or ``piece``
    bytes and a head where frames may be given out in pieces. Bytes behind a close frame are discarded (RFC 6455 §1.4),
    and so is everything after an error (§7.1.7).

    :param masked: whether frames must be masked: true for what a client sends, false for what a backend sends (§5.1).
    :param max_frame: bytes of payload allowed in a frame; a longer one is error 1009 as soon as its head is there.
    :param allow_rsv1: permessage-deflate is in use.
    :param piece: if given, a data frame longer than this is handed out before it is complete, as fragments of at least
        ``piece`` bytes (the last may be shorter). An intermediary may do that (§5.4); it saves memory, and with
        ``piece=1`` bad UTF-8 is seen in the middle of a frame. ``None``: frames come out as they were sent.
    """

    __slots__ = (
        "_at",
        "_buffer",
        "_data",
        "_dead",
        "_left",
        "_mask",
        "_masked",
        "_max",
        "_need",
        "_piece",
        "_rsv",
        "_tail_fin",
    )

    def __init__(self, masked: bool, max_frame: int, allow_rsv1: bool = False, piece: int | None = None) -> None:
        self._masked = masked
        self._max = max_frame
        self._rsv = 0x30 if allow_rsv1 else 0x70  # the bits that must be zero
        self._piece = piece
        self._data = b""  # received, and not cut into frames before the position
        self._at = 0
        self._buffer: bytearray | None = None  # made when needed: most connections never do
        self._need = 2  # bytes without which parsing on is pointless
        self._dead = False
        # A frame that is given out in pieces: bytes not given out yet, its FIN bit, its mask turned to the position.
        self._left = 0
        self._tail_fin = False
        self._mask = b""

    @property
    def idle(self) -> bool:
        """Whether nothing is held, so that a new parser could take over from here."""
        return not self._data and not self._buffer and not self._left and not self._dead

    @property
    def waiting(self) -> bool:
        """Whether bytes were received that the caller did not ask for yet."""
        return bool(self._data)

    @property
    def held(self) -> int:
        """Bytes kept here."""
        return len(self._data) + (len(self._buffer) if self._buffer is not None else 0)

    @property
    def finished(self) -> bool:
        """Whether nothing more will come out: there was a close frame or an error."""
        return self._dead

    def feed(self, data: bytes) -> FrameParser:
        """Take in what was received.

        :param data: any number of bytes.
        :returns: itself: its iteration gives the frames that are complete, in order. It may be left and begun again.
        :raises ProtocolError: not here but by the iteration, behind the frames in front of the bad one.
        """
        if self._dead:
            return self
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._need:
                return self
            data = bytes(self._buffer)
            self._buffer = None
        elif self._data:
            data = self._data[self._at :] + data
        self._data = data
        self._at = 0
        return self

    def __iter__(self) -> FrameParser:
        return self

    def __next__(self) -> Frame:
        data = self._data
        if not data:
            raise StopIteration
        try:
            frame = self._parse(data, self._at)
        except ProtocolError:
            self._dead = True
            self._data = b""
            raise
        if frame is None:
            if self._at < len(data):
                self._buffer = bytearray(memoryview(data)[self._at :])
            self._data = b""
            raise StopIteration
        if self._dead or self._at == len(data):
            self._data = b""
        return frame

    def _parse(self, data: bytes, position: int) -> Frame | None:
        """Return the next frame, None if it is not complete; ``_at`` is the first byte behind it, or to be kept."""
        end = len(data)
        if self._left:
            return self._next_piece(data, position)
        self._need = 2
        if end - position < 2:
            return None
        first, second = data[position], data[position + 1]
        opcode, length = first & 0x0F, second & 0x7F
        self._check(first, second, opcode, length)
        start = position + 2
        if length >= 126:
            start += 2 if length == 126 else 8
            if start > end:
                self._need = start - position
                return None
            length = self._long(length, data[position + 2 : start])
        if length > self._max:
            raise ProtocolError(1009, f"frame of {length} bytes, at most {self._max} are allowed")
        mask = b""
        if self._masked:
            start += 4
            if start > end:
                self._need = start - position
                return None
            mask = data[start - 4 : start]
        stop = start + length
        if stop > end:
            if self._piece is None or length <= self._piece or opcode >= CLOSE:
                self._need = stop - position
                return None
            # The first fragment carries the opcode, so it is made here even if only the head has come.
            if end - start < self._piece:
                self._need = start - position + self._piece
                return None
            payload = data[start:end]
            self._left = stop - end
            self._tail_fin = first >= 0x80
            if mask:
                payload = apply_mask(payload, mask)
                self._mask = _turn(mask, end - start)
            self._need = min(self._piece, self._left)
            self._at = end
            return Frame(opcode, False, payload, bool(first & 0x40))
        payload = data[start:stop]
        if mask:
            payload = apply_mask(payload, mask)
        self._at = stop
        self._dead = opcode == CLOSE
        return Frame(opcode, first >= 0x80, payload, bool(first & 0x40))

    def _next_piece(self, data: bytes, position: int) -> Frame | None:
        """Go on with a frame that is given out in pieces."""
        assert self._piece is not None  # only then is anything left
        there = min(len(data) - position, self._left)
        self._need = min(self._piece, self._left)
        if there < self._need:
            return None
        payload = data[position : position + there]
        self._left -= there
        self._at = position + there
        if self._masked:
            payload = apply_mask(payload, self._mask)
            self._mask = _turn(self._mask, there)
        self._need = min(self._piece, self._left)
        return Frame(CONT, self._tail_fin and not self._left, payload, False)

    def _check(self, first: int, second: int, opcode: int, length: int) -> None:
        if first & self._rsv:
            raise ProtocolError(1002, f"reserved bits {(first >> 4) & 7:03b} are set")  # §5.2
        if opcode not in _OPCODES:
            raise ProtocolError(1002, f"opcode {opcode} is not defined")  # §5.2
        if bool(second & 0x80) is not self._masked:
            # §5.1; an unmasked client is what masking protects caches from (§10.3).
            raise ProtocolError(1002, "frame is not masked" if self._masked else "frame is masked")
        if opcode >= CLOSE:
            if first < 0x80:
                raise ProtocolError(1002, f"control frame (opcode {opcode}) is fragmented")  # §5.5
            if length > MAX_CONTROL:
                raise ProtocolError(1002, f"control frame (opcode {opcode}) is longer than {MAX_CONTROL} bytes")  # §5.5
        if first & 0x40 and (opcode >= CLOSE or opcode == CONT):
            raise ProtocolError(1002, "RSV1 is set on a frame that does not begin a message")  # RFC 7692 §6.1

    def _long(self, marker: int, field: bytes) -> int:
        length = int.from_bytes(field, "big")
        if length >> 63:
            raise ProtocolError(1002, "frame length has its highest bit set")  # §5.2
        # §5.2: the minimal number of bytes must be used. Other endpoints may refuse what we would relay, and two
        # spellings of one frame are a way past whoever inspects the traffic.
        if length < 126 or (marker == 127 and length < 0x10000):
            raise ProtocolError(1002, f"frame length {length} is not in its shortest form")
        return length


def _turn(mask: bytes, by: int) -> bytes:
    by &= 3
    return mask[by:] + mask[:by] if by else mask


def serialise(opcode: int, payload: bytes, *, fin: bool = True, mask: bool = False, rsv1: bool = False) -> bytes:
    """Make one frame (RFC 6455 §5.2).

    :param opcode: ``CONT`` … ``PONG``.
    :param payload: unmasked; of a control frame at most 125 bytes, the caller's promise.
    :param fin: whether the message ends here.
    :param mask: mask it with a fresh unpredictable key (§5.3): true towards a backend, false towards a client.
    :param rsv1: the payload begins a compressed message.
    :returns: the bytes for the wire.
    """
    length = len(payload)
    if length < 126 and fin and not mask and not rsv1:
        return _HEADS[opcode][length] + payload
    first = opcode | 0x80 if fin else opcode
    if rsv1:
        first |= 0x40
    second = 0x80 if mask else 0
    if length < 126:
        head = bytes((first, second | length))
    elif length < 0x10000:
        head = bytes((first, second | 126)) + length.to_bytes(2, "big")
    else:
        head = bytes((first, second | 127)) + length.to_bytes(8, "big")
    if not mask:
        return head + payload
    key = os.urandom(4)
    return b"".join((head, key, apply_mask(payload, key)))


def is_close_code(code: int) -> bool:
    """Whether a close code may be on the wire (RFC 6455 §7.4): registered by IANA, or 3000 to 4999."""
    return code in _CLOSE_CODES or 3000 <= code <= 4999


def close_payload(code: int | None, reason: bytes = b"") -> bytes:
    """The payload of a close frame (RFC 6455 §5.5.1).

    :param code: ``None`` for none. A code that must not be on the wire (§7.4: 1005, 1006, 1015, unassigned ones, 0)
        counts as none, since the receiver would have to answer it with an error instead of closing.
    :param reason: UTF-8; cut to 123 bytes at a character, and left out without a code. Bytes that are not UTF-8 are
        replaced (U+FFFD).
    :returns: at most 125 bytes.
    """
    if code is None or not is_close_code(code):
        return b""
    if not reason.isascii():
        reason = reason.decode("utf-8", "replace").encode()
    if len(reason) > MAX_CONTROL - 2:
        reason = reason[: MAX_CONTROL - 2].decode("utf-8", "ignore").encode()
    return code.to_bytes(2, "big") + reason


def parse_close(payload: bytes) -> tuple[int | None, bytes]:
    """Read the payload of a close frame (RFC 6455 §5.5.1, §7.4).

    :param payload: unmasked.
    :returns: the code (``None`` if there is none, which an API shows as 1005) and the reason in UTF-8.
    :raises ProtocolError: 1002 for one byte or a code that must not be on the wire, 1007 for a reason that is not
        UTF-8.
    """
    if not payload:
        return None, b""
    if len(payload) == 1:
        raise ProtocolError(1002, "close frame with 1 byte; expected none, or a code of 2 bytes")
    code = payload[0] << 8 | payload[1]
    if not is_close_code(code):
        raise ProtocolError(1002, f"close code {code} must not be used")
    reason = payload[2:]
    if not _is_utf8(reason):
        raise ProtocolError(1007, "close reason is not UTF-8")
    return code, reason


@dataclass(slots=True)
class Data:
    """A piece of a message.

    :param opcode: ``TEXT`` or ``BINARY``, of the message also on its later pieces.
    :param data: may end inside a character of a text; may be empty.
    :param first: the message begins here.
    :param fin: the message ends here.
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

    :param code: ``None`` if it named none.
    :param reason: UTF-8.
    """

    code: int | None
    reason: bytes


Event: TypeAlias = Data | Ping | Pong | Close


class Inflates(Protocol):
    """What an :class:`Assembler` needs of a decompressor."""

    @property
    def waiting(self) -> bool:
        """Whether ``take`` has to be called again for what was put in."""
        ...

    def put(self, data: bytes, fin: bool) -> None:
        """Take in the payload of a frame."""
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

    :param max_message: bytes allowed in a message, after decompression.
    :param inflater: decompressor of this direction, ``None`` without permessage-deflate; outlives the assembler.
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
        """Whether no message is open."""
        return not self._opcode

    @property
    def waiting(self) -> bool:
        """Whether the last frame has more pieces."""
        return self._compressed and self._inflater is not None and self._inflater.waiting

    def feed(self, frame: Frame) -> Event | None:
        """Take in one frame; nothing may be ``waiting``.

        :param frame: as the parser gave it out.
        :returns: what it means, or its first piece; ``None`` for an empty fragment in the middle of a message.
        :raises ProtocolError: 1002 for a continuation without a beginning, a new message inside a message, or
            compression that was not agreed on; 1007 for text that is not UTF-8 (as early as it can be known) or that
            does not decompress; 1009 for a message over ``max_message``.
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
                if opcode == TEXT and not _is_utf8(data):
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

        :returns: and raises: see ``feed``.
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

    :param data: what was received, with nothing in front of it and no message open.
    :param masked: see :class:`FrameParser`.
    :param most: bytes allowed in a message.
    :returns: its event. ``None`` for a close, and for all that takes a parser to tell.
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
        return Data(TEXT, payload, True, True) if _is_utf8(payload) else None
    if opcode == BINARY:
        return Data(BINARY, payload, True, True)
    return Ping(payload) if opcode == PING else Pong(payload)


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
