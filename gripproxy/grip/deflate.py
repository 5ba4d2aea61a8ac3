"""permessage-deflate (RFC 7692), sans-I/O, for the leg between client and proxy.

The proxy always answers with ``server_no_context_takeover``: the bytes of a message then do not depend on what was sent
before, so that a published item is compressed once for all connections of equal parameters (:func:`compress_shared`),
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
"""What a sync flush ends with, left out on the wire (RFC 7692 §7.2.1)."""
_PROBE: Final = b"\x03\x00"
"""An empty last block: the stream ends with it only if what came before is complete."""
_MAX_STREAMS: Final = 8
"""Deflate streams in one message. A last block is allowed (RFC 7692 §7.2.3.4), but nobody needs many, and a message
made of nothing else would cost a decompressor for every two bytes."""
_MAX_OFFERS: Final = 16


@dataclass(frozen=True, slots=True)
class Parameters:
    """What was agreed on; equal for all connections that can share compressed messages.

    :param window_bits: of what we send, 9 to 15.
    :param client_keeps_context: whether the client's messages refer to earlier ones, so that the connection's
        :class:`Inflater` must be kept between messages.
    """

    window_bits: int = _MAX_BITS
    client_keeps_context: bool = False


def negotiate(offer: bytes, client_context: bool = False) -> tuple[bytes, Parameters] | None:
    """Answer a client's offer (RFC 7692 §5, §7.1).

    :param offer: ``Sec-WebSocket-Extensions`` of the request, several occurrences joined with commas.
    :param client_context: let the client keep its context if it likes: its messages become smaller, the connection
        larger.
    :returns: the value for the response's header and the parameters of the first offer that can be met; ``None`` if
        none can. Offers with unknown, repeated or wrong parameters are declined, as §7.1 demands.
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

    :param payload: the message.
    :param parameters: of the connections it is for.
    :returns: the payload of a frame with RSV1.
    """
    # A window that reaches over the whole message (zlib uses 262 bytes less than it has) is as good as a larger one.
    needed = (len(payload) + 262).bit_length()
    compressor = _compressor(min(parameters.window_bits, max(_MIN_BITS, needed)))
    return (compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH))[: -len(_TAIL)]


def frame_shared(opcode: int, payload: bytes, parameters: Parameters | None) -> bytes:
    """One unmasked frame with a whole message, compressed if that makes it smaller (RFC 7692 §6.1 leaves the choice).

    :param opcode: ``TEXT`` or ``BINARY``; control frames are never compressed.
    :param payload: the message.
    :param parameters: ``None`` for connections without compression.
    :returns: the bytes for the wire.
    """
    if parameters is not None:
        compressed = compress_shared(payload, parameters)
        if len(compressed) < len(payload):
            return serialise(opcode, compressed, rsv1=True)
    return serialise(opcode, payload)


class Deflater:
    """Compresses messages that come in pieces. Between messages it holds nothing.

    :param parameters: what was agreed on.
    """

    __slots__ = ("_bits", "_compressor")

    def __init__(self, parameters: Parameters) -> None:
        self._bits = parameters.window_bits
        self._compressor: zlib._Compress | None = None

    @property
    def idle(self) -> bool:
        """Whether no message is open, so that the object may be dropped."""
        return self._compressor is None

    def deflate(self, data: bytes, fin: bool) -> bytes:
        """Compress the next piece of a message.

        :param data: of the message.
        :param fin: whether the message ends with it.
        :returns: the payload of the next fragment, of which the first has RSV1. May be empty unless ``fin``: what is
            small stays in the compressor until more comes.
        """
        compressor = self._compressor
        if compressor is None:
            compressor = self._compressor = _compressor(self._bits)
        compressed = compressor.compress(data)
        if not fin:
            return compressed
        self._compressor = None
        # The flush ends with the tail whatever came before: nothing was flushed in this message yet.
        return compressed + compressor.flush(zlib.Z_SYNC_FLUSH)[: -len(_TAIL)]


class Inflater:
    """Decompresses the messages of one client (RFC 7692 §7.2.2); for :class:`~gripproxy.grip.frames.Assembler`.

    Output is bounded by the caller's limit before it is made, so a bomb costs no memory. After a
    :class:`~gripproxy.grip.frames.ProtocolError` it must not be used again.

    :param parameters: what was agreed on.
    """

    __slots__ = ("_decompressor", "_keeps", "_open", "_streams")

    def __init__(self, parameters: Parameters) -> None:
        self._keeps = parameters.client_keeps_context
        self._decompressor: zlib._Decompress | None = None
        self._open = False
        self._streams = 0

    @property
    def idle(self) -> bool:
        """Whether the object may be dropped and made anew: no message is open, and no context is kept."""
        return self._decompressor is None and not self._open

    def inflate(self, data: bytes, fin: bool, limit: int) -> bytes:
        """Decompress the next piece of a message.

        :param data: payload of a frame.
        :param fin: whether the message ends with it.
        :param limit: bytes of output that are allowed, 0 or more.
        :returns: what could be decompressed so far, perhaps nothing.
        :raises ProtocolError: 1009 for output beyond ``limit``, 1007 for data that is not deflate or is cut off at the
            end of the message, 1002 for more than 8 deflate streams in a message.
        """
        if not self._open:
            self._open = True
            self._streams = 0
        try:
            output = self._feed(data, limit)
            if fin:
                output += self._finish(limit - len(output))
        except zlib.error as e:
            raise ProtocolError(1007, "compressed message is not valid deflate data") from e
        return output

    def _feed(self, data: bytes, limit: int) -> bytes:
        pieces: list[bytes] = []
        while data:
            decompressor = self._decompressor
            if decompressor is None or decompressor.eof:
                self._streams += 1
                if self._streams > _MAX_STREAMS:
                    raise ProtocolError(1002, f"compressed message has more than {_MAX_STREAMS} deflate streams")
                decompressor = self._decompressor = zlib.decompressobj(-_MAX_BITS)
            # One byte more than allowed, since 0 would mean without limit, and to see that there is more.
            piece = decompressor.decompress(data, limit + 1)
            if len(piece) > limit:
                raise ProtocolError(1009, "message is too big when decompressed")
            limit -= len(piece)
            pieces.append(piece)
            data = decompressor.unused_data
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _finish(self, limit: int) -> bytes:
        output = b""
        # A peer whose last block ends the stream should send one more byte (§7.2.3.4); some do not.
        if self._decompressor is None or not self._decompressor.eof:
            output = self._feed(_TAIL, limit)
        decompressor = self._decompressor
        if decompressor is not None and not decompressor.eof:
            # The end of the stream must be possible here, or the peer left something out.
            probe = decompressor.copy() if self._keeps else decompressor
            probe.decompress(_PROBE, 1)
            if not probe.eof:
                raise ProtocolError(1007, "compressed message is cut off")
        if not self._keeps:
            self._decompressor = None
        self._open = False
        return output


def _compressor(bits: int) -> zlib._Compress:
    # Less memory for small windows: setting it up is most of what a small message costs.
    return zlib.compressobj(wbits=-bits, memLevel=5 if bits <= 12 else 8)
