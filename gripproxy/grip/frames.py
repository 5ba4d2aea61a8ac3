"""WebSocket frames (RFC 6455 §5.2), sans-I/O, for both legs of the relay.

Bytes become :class:`Frame` objects in a :class:`FrameParser`; the other way :func:`serialise` makes one frame. Messages
are put together in ``assembler``, close frames are in ``close_frame``, the opening handshake has a module of its own.

Errors: :class:`ProtocolError` is always the fault of the peer whose bytes were fed, and carries the close code that
the peer deserves.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from gripproxy.grip.errors import GripproxyError

try:
    from websockets.speedups import apply_mask
except ImportError:  # the library was built without its C part
    from websockets.utils import apply_mask

__all__ = [
    "BINARY",
    "CLOSE",
    "CONT",
    "MAX_CONTROL",
    "PING",
    "PONG",
    "TEXT",
    "Frame",
    "FrameParser",
    "ProtocolError",
    "serialise",
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


# Heads of unmasked final frames by opcode and length: heads sent 50,000 times a second are looked up, not packed.
_HEADS: Final = {opcode: tuple(bytes((0x80 | opcode, n)) for n in range(126)) for opcode in sorted(_OPCODES)}


class ProtocolError(GripproxyError, ValueError):
    """The peer broke RFC 6455 (or RFC 7692); the connection must be failed (RFC 6455 §7.1.7).

    Args:
        code: The close code it deserves: 1002 protocol, 1007 bad text, 1009 too big.
        text: The fault, with the wrong value; short enough to be a close reason.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(slots=True)
class Frame:
    """One frame.

    Attributes:
        opcode: ``CONT`` … ``PONG``.
        fin: Whether the message ends here.
        payload: Unmasked.
        rsv1: The message is compressed (RFC 7692 §6); only on its first frame.
    """

    opcode: int
    fin: bool
    payload: bytes
    rsv1: bool = False


class FrameParser:
    """Cuts the bytes of one direction into frames (RFC 6455 §5.2).

    An iterator over the frames that are complete: the caller takes one after the other, and frames not taken stay
    here as bytes. Beside these, at most one incomplete frame is held back: ``max_frame`` bytes and a head, or ``piece``
    bytes and a head where frames may be given out in pieces. Bytes behind a close frame are discarded (RFC 6455 §1.4),
    and so is everything after an error (§7.1.7).

    Args:
        masked: Whether frames must be masked: true for frames of a client, false for frames of a backend (§5.1).
        max_frame: Bytes of payload allowed in a frame; a longer one is error 1009 as soon as its head is there.
        allow_rsv1: Permessage-deflate is in use.
        piece: If given, a data frame longer than this is handed out before it is complete, as fragments of at least
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
        """True if no bytes are held, so that a new parser could take over from here."""
        return not self._data and not self._buffer and not self._left and not self._dead

    @property
    def waiting(self) -> bool:
        """True while bytes wait that the caller has not taken."""
        return bool(self._data)

    @property
    def held(self) -> int:
        """Bytes kept here."""
        return len(self._data) + (len(self._buffer) if self._buffer is not None else 0)

    @property
    def finished(self) -> bool:
        """True after a close frame or an error: no further frame follows."""
        return self._dead

    def feed(self, data: bytes) -> FrameParser:
        """Take in received bytes.

        Args:
            data: Any number of bytes.

        Returns:
            Itself: its iteration gives the frames that are complete, in order. It may be left and begun again.

        Raises:
            ProtocolError: Not here but by the iteration, behind the frames in front of the bad one.
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
            # The first fragment carries the opcode, so it is made here even if only the head is complete.
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
            # §5.1; masking protects caches from unmasked clients (§10.3).
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
        # §5.2: the minimal number of bytes must be used. Other endpoints may refuse a relayed frame, and two
        # spellings of one frame are a way past inspection of the traffic.
        if length < 126 or (marker == 127 and length < 0x10000):
            raise ProtocolError(1002, f"frame length {length} is not in its shortest form")
        return length


def _turn(mask: bytes, by: int) -> bytes:
    by &= 3
    return mask[by:] + mask[:by] if by else mask


def serialise(opcode: int, payload: bytes, *, fin: bool = True, mask: bool = False, rsv1: bool = False) -> bytes:
    """Make one frame (RFC 6455 §5.2).

    Args:
        opcode: ``CONT`` … ``PONG``.
        payload: Unmasked; of a control frame at most 125 bytes, the caller's promise.
        fin: Whether the message ends here.
        mask: Mask it with a fresh unpredictable key (§5.3): true towards a backend, false towards a client.
        rsv1: The payload begins a compressed message.

    Returns:
        The bytes for the wire.
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
