"""permessage-deflate (RFC 7692), sans-I/O, for the leg between client and proxy.

The proxy always answers with ``server_no_context_takeover``: the bytes of a message then do not depend on earlier
ones, so that a published item is compressed once for all connections of equal parameters (:func:`compress_shared`),
and no connection keeps a compressor. ``client_no_context_takeover`` is asked for too unless the caller wants otherwise:
an idle connection then costs no window (32 KB and more) either.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from gripproxy.grip.frames import ProtocolError, serialise
from gripproxy.grip.headers import ParamsError, parse_params, split_list

__all__ = ["EXTENSION", "Deflater", "Inflater", "Parameters", "compress_shared", "frame_shared", "negotiate"]

EXTENSION: Final = b"permessage-deflate"

_MIN_BITS: Final = 9
"""zlib makes no window of 256 bytes: an offer that asks for one (8 bits) is declined."""
_MAX_BITS: Final = 15
_BITS: Final = {b"%d" % bits: bits for bits in range(8, 16)}
"""Values as RFC 7692 §7.1.2 allows them: no leading zeros."""
_TAIL: Final = b"\x00\x00\xff\xff"
"""End of a sync flush, left out on the wire (RFC 7692 §7.2.1)."""
_PROBE: Final = b"\x03\x00"
"""An empty last block: the stream ends with it only if the part before is complete."""
_MAX_STREAMS: Final = 8
"""Deflate streams in one message. A last block is allowed (RFC 7692 §7.2.3.4), but few suffice, and a message
made of nothing else would cost a decompressor for every two bytes."""
_MAX_OFFERS: Final = 16


@dataclass(frozen=True, slots=True)
class Parameters:
    """Agreed parameters; equal for all connections that can share compressed messages.

    Attributes:
        window_bits: Window of the sender, 9 to 15 bits.
        client_keeps_context: Whether the client's messages refer to earlier ones, so that the connection's
            :class:`Inflater` must be kept between messages.
    """

    window_bits: int = _MAX_BITS
    client_keeps_context: bool = False


def negotiate(offer: bytes, client_context: bool = False) -> tuple[bytes, Parameters] | None:
    """Answer a client's offer (RFC 7692 §5, §7.1).

    Args:
        offer: ``Sec-WebSocket-Extensions`` of the request, several occurrences joined with commas.
        client_context: Let the client keep its context if it likes: its messages become smaller, the connection larger.

    Returns:
        The value for the response's header and the parameters of the first offer that can be met; ``None`` if none can.
        Offers with unknown, repeated or wrong parameters are declined, as §7.1 demands.
    """
    for item in split_list([offer])[:_MAX_OFFERS]:
        try:
            name, params = parse_params(item)
        except ParamsError:
            continue
        if name.lower() != EXTENSION:
            continue
        answer = _answer(params, client_context)
        if answer is not None:
            return answer
    return None


def _answer(params: list[tuple[bytes, bytes]], client_context: bool) -> tuple[bytes, Parameters] | None:
    seen: dict[bytes, bytes] = {}
    for name, value in params:
        if name in seen:
            return None
        seen[name] = value
    response = EXTENSION + b"; server_no_context_takeover"
    bits = _MAX_BITS
    keeps = client_context
    for name, value in seen.items():
        if name == b"server_no_context_takeover":
            if value:
                return None
        elif name == b"client_no_context_takeover":
            if value:
                return None
            # A hint that it will not use its context anyway (§7.1.1.2).
            keeps = False
        elif name == b"server_max_window_bits":
            bits = _BITS.get(value, 0)
            if bits < _MIN_BITS:
                return None
            response += b"; server_max_window_bits=" + value
        elif name == b"client_max_window_bits":
            # Only a hint (§7.1.2.2): any window up to 15 bits can be decompressed.
            if value and value not in _BITS:
                return None
        else:
            return None
    if not keeps:
        response += b"; client_no_context_takeover"
    return response, Parameters(bits, keeps)


def compress_shared(payload: bytes, parameters: Parameters) -> bytes:
    """Compress a whole message without context (RFC 7692 §7.2.1).

    Args:
        payload: The message.
        parameters: Of the connections it is for.

    Returns:
        The payload of a frame with RSV1.
    """
    # A window that reaches over the whole message (zlib uses 262 bytes less than it has) is as good as a larger one.
    needed = (len(payload) + 262).bit_length()
    compressor = _compressor(min(parameters.window_bits, max(_MIN_BITS, needed)))
    return (compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH))[: -len(_TAIL)]


def frame_shared(opcode: int, payload: bytes, parameters: Parameters | None) -> bytes:
    """One unmasked frame with a whole message, compressed if that makes it smaller (RFC 7692 §6.1 leaves the choice).

    Args:
        opcode: ``TEXT`` or ``BINARY``; control frames are never compressed.
        payload: The message.
        parameters: ``None`` for connections without compression.

    Returns:
        The bytes for the wire.
    """
    if parameters is not None:
        compressed = compress_shared(payload, parameters)
        if len(compressed) < len(payload):
            return serialise(opcode, compressed, rsv1=True)
    return serialise(opcode, payload)


class Deflater:
    """Compresses messages that come in pieces. Between messages it holds nothing.

    Args:
        parameters: Agreed parameters.
    """

    __slots__ = ("_bits", "_compressor")

    def __init__(self, parameters: Parameters) -> None:
        self._bits = parameters.window_bits
        self._compressor: zlib._Compress | None = None

    @property
    def idle(self) -> bool:
        """True if no message is open, so that the object may be dropped."""
        return self._compressor is None

    def deflate(self, data: bytes, fin: bool) -> bytes:
        """Compress the next piece of a message.

        Args:
            data: Of the message.
            fin: Whether the message ends with it.

        Returns:
            The payload of the next fragment, of which the first has RSV1. May be empty unless ``fin``: small data
            stays in the compressor until more follows.
        """
        compressor = self._compressor
        if compressor is None:
            compressor = self._compressor = _compressor(self._bits)
        compressed = compressor.compress(data)
        if not fin:
            return compressed
        self._compressor = None
        # The flush ends with the tail in any case: nothing was flushed in this message yet.
        return compressed + compressor.flush(zlib.Z_SYNC_FLUSH)[: -len(_TAIL)]


class Inflater:
    """Decompresses the messages of one client (RFC 7692 §7.2.2); for :class:`~gripproxy.grip.assembler.Assembler`.

    The payload of one frame is put in, and its content taken out in pieces as large as the caller wants: a bomb costs
    no more memory and no more time than one piece. After a :class:`~gripproxy.grip.frames.ProtocolError` it must not be
    used again.

    Args:
        parameters: Agreed parameters.
    """

    __slots__ = ("_decompressor", "_fin", "_full", "_input", "_keeps", "_open", "_streams", "_tail")

    def __init__(self, parameters: Parameters) -> None:
        self._keeps = parameters.client_keeps_context
        self._decompressor: zlib._Decompress | None = None
        self._open = False
        self._streams = 0
        self._input = b""
        self._full = False  # the last piece was as large as allowed: zlib may have more output for its input
        self._fin = False  # the frame that was put in is the last of its message, which is not complete yet
        self._tail = False  # the end of its data was put in too

    @property
    def idle(self) -> bool:
        """True if the object may be dropped and made anew: no message is open, and no context is kept."""
        return self._decompressor is None and not self._open

    @property
    def waiting(self) -> bool:
        """True while ``take`` has to be called again for bytes put in."""
        return bool(self._input) or self._full or self._fin

    def put(self, data: bytes, fin: bool) -> None:
        """Take in the payload of a frame; nothing may be ``waiting``.

        Args:
            data: The payload.
            fin: Whether the message ends with it.
        """
        assert not self.waiting
        if not self._open:
            self._open = True
            self._streams = 0
        self._input = data
        self._fin = fin
        self._tail = False

    def take(self, most: int, limit: int) -> bytes:
        """Decompress the next piece.

        Args:
            most: Bytes of output at a time, 1 or more.
            limit: Bytes of output that are allowed, 0 or more.

        Returns:
            All there is while nothing is ``waiting`` any more, else up to ``most`` bytes.

        Raises:
            ProtocolError: 1009 for output beyond ``limit``, 1007 for data that is not deflate or is cut off at the end
                of the message, 1002 for more than 8 deflate streams in a message.
        """
        # One byte more than allowed, to see that there is more.
        left = most = min(most, limit + 1)
        pieces: list[bytes] = []
        try:
            while left and self.waiting:
                piece = self._step(left)
                left -= len(piece)
                pieces.append(piece)
        except zlib.error as e:
            raise ProtocolError(1007, "compressed message is not valid deflate data") from e
        if most - left > limit:
            raise ProtocolError(1009, "message is too big when decompressed")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _step(self, most: int) -> bytes:
        """Do the next thing there is to be done; returns its output, at most so many bytes."""
        decompressor = self._decompressor
        if self._input or self._full:
            if decompressor is None or decompressor.eof:
                self._streams += 1
                if self._streams > _MAX_STREAMS:
                    raise ProtocolError(1002, f"compressed message has more than {_MAX_STREAMS} deflate streams")
                decompressor = self._decompressor = zlib.decompressobj(-_MAX_BITS)
            piece = decompressor.decompress(self._input, most)
            if decompressor.eof:
                self._input, self._full = decompressor.unused_data, False
            else:
                self._input, self._full = decompressor.unconsumed_tail, len(piece) == most
            return piece
        # A peer whose last block ends the stream should send one more byte (§7.2.3.4); some do not.
        if not self._tail and (decompressor is None or not decompressor.eof):
            self._tail = True
            self._input = _TAIL
            return b""
        if decompressor is not None and not decompressor.eof:
            # The end of the stream must be possible here, or the peer left something out.
            probe = decompressor.copy() if self._keeps else decompressor
            probe.decompress(_PROBE, 1)
            if not probe.eof:
                raise ProtocolError(1007, "compressed message is cut off")
        if not self._keeps:
            self._decompressor = None
        self._open = self._fin = False
        return b""


def _compressor(bits: int) -> zlib._Compress:
    # Less memory for small windows: setting it up is most of the cost of a small message.
    return zlib.compressobj(wbits=-bits, memLevel=5 if bits <= 12 else 8)
