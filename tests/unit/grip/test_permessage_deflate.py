"""permessage-deflate, by section of RFC 7692."""

from __future__ import annotations

import tracemalloc
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame as PeerFrame
from websockets.frames import Opcode

from gripproxy.grip.assembler import PIECE, Assembler, Data
from gripproxy.grip.frames import BINARY, CONT, TEXT, Frame, FrameParser, ProtocolError, serialise
from gripproxy.grip.permessage_deflate import Deflater, Inflater, Parameters, compress_shared, frame_shared, negotiate

PLAIN = Parameters()
KEEPING = Parameters(client_keeps_context=True)
EXT = b"permessage-deflate"
OURS = b"permessage-deflate; server_no_context_takeover"
BOTH = OURS + b"; client_no_context_takeover"


def refused(inflater: Inflater, data: bytes, fin: bool = True, limit: int = 1000) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        inflate(inflater, data, fin, limit)
    return caught.value


def inflate(inflater: Inflater, data: bytes, fin: bool, limit: int, most: int = 10_000) -> bytes:
    """Put one payload in, and take out all it gives, in pieces of at most ``most`` bytes."""
    inflater.put(data, fin)
    output = inflater.take(most, limit)
    while inflater.waiting:
        piece = inflater.take(most, limit - len(output))
        assert len(piece) <= most
        output += piece
    return output


def deflate(data: bytes, bits: int = 15) -> bytes:
    compressor = zlib.compressobj(wbits=-bits)
    return (compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


class TestNegotiation:
    """§5, §7.1."""

    @pytest.mark.parametrize(
        ("offer", "response", "bits"),
        [
            (EXT, BOTH, 15),
            (b"Permessage-Deflate", BOTH, 15),
            (EXT + b"; client_max_window_bits", BOTH, 15),
            (EXT + b"; client_max_window_bits=8", BOTH, 15),
            (EXT + b"; client_max_window_bits=15", BOTH, 15),
            (EXT + b"; server_no_context_takeover", BOTH, 15),
            (EXT + b"; client_no_context_takeover; server_no_context_takeover", BOTH, 15),
            (EXT + b"; server_max_window_bits=9", OURS + b"; server_max_window_bits=9; client_no_context_takeover", 9),
            (
                EXT + b'; server_max_window_bits="10"',
                OURS + b"; server_max_window_bits=10; client_no_context_takeover",
                10,
            ),
            (
                EXT + b"; server_max_window_bits=15",
                OURS + b"; server_max_window_bits=15; client_no_context_takeover",
                15,
            ),
            (b"x-webkit-deflate-frame, permessage-deflate", BOTH, 15),
            (EXT + b"; server_max_window_bits=8, permessage-deflate", BOTH, 15),
            (EXT + b"; unknown, permessage-deflate; client_max_window_bits, foo", BOTH, 15),
        ],
    )
    def test_accepted(self, offer: bytes, response: bytes, bits: int) -> None:
        assert negotiate(offer) == (response, Parameters(bits))

    @pytest.mark.parametrize(
        "params",
        [
            b"unknown",
            b"server_no_context_takeover; server_no_context_takeover",
            b"server_no_context_takeover=1",
            b"client_no_context_takeover=true",
            b"server_max_window_bits",
            b"server_max_window_bits=7",
            b"server_max_window_bits=8",
            b"server_max_window_bits=16",
            b"server_max_window_bits=09",
            b"server_max_window_bits=x",
            b"client_max_window_bits=7",
            b"client_max_window_bits=16",
            b"client_max_window_bits=09",
            b"client_max_window_bits; client_max_window_bits=10",
            b'server_max_window_bits="10',
        ],
    )
    def test_declined(self, params: bytes) -> None:
        """§7.1: an offer with anything wrong in it; 8 bits because zlib has no such window."""
        assert negotiate(EXT + b"; " + params) is None
        # The next one is looked at all the same (an open quote swallows it).
        if b'"' not in params:
            assert negotiate(EXT + b"; " + params + b", " + EXT) == (BOTH, PLAIN)

    @pytest.mark.parametrize("offer", [b"", b",", b"foo", b"permessage-bzip2", b"grip"])
    def test_nothing_offered(self, offer: bytes) -> None:
        assert negotiate(offer) is None

    def test_client_context(self) -> None:
        assert negotiate(EXT, client_context=True) == (OURS, KEEPING)
        assert negotiate(EXT + b"; client_no_context_takeover", client_context=True) == (BOTH, PLAIN)

    def test_offers_are_bounded(self) -> None:
        assert negotiate(b"x," * 15 + EXT) is not None
        assert negotiate(b"x," * 16 + EXT) is None

    @given(st.binary(max_size=80))
    def test_any_offer(self, tail: bytes) -> None:
        negotiate(tail)
        negotiate(EXT + b"; " + tail)


class TestCompression:
    """§7.2.1."""

    @pytest.mark.parametrize("bits", range(9, 16))
    @pytest.mark.parametrize("length", [0, 1, 100, 249, 250, 251, 511, 512, 5000, 70000])
    def test_windows(self, length: int, bits: int) -> None:
        """§7.1.2.1: whoever has a window as small as agreed on can decompress it."""
        data = bytes(i * i % 251 for i in range(length))
        compressed = compress_shared(data, Parameters(bits))
        decompressor = zlib.decompressobj(-bits)
        assert decompressor.decompress(compressed + b"\x00\x00\xff\xff") == data

    def test_examples(self) -> None:
        """§7.2.3.1, §7.2.3.6."""
        assert compress_shared(b"Hello", PLAIN) == bytes.fromhex("f248cdc9c90700")
        assert compress_shared(b"", PLAIN) == b"\x00"

    def test_same_for_all(self) -> None:
        assert compress_shared(b"abc" * 50, PLAIN) == compress_shared(b"abc" * 50, PLAIN)

    def test_frame(self) -> None:
        data = b"abcdefgh" * 40
        assert frame_shared(TEXT, data, None) == serialise(TEXT, data)
        frame = frame_shared(TEXT, data, PLAIN)
        assert frame == serialise(TEXT, compress_shared(data, PLAIN), rsv1=True)
        assert len(frame) < 40

    @pytest.mark.parametrize("data", [b"", b"a", b"abc", bytes(range(256))])
    def test_not_compressed_if_that_is_no_gain(self, data: bytes) -> None:
        """§6.1."""
        assert frame_shared(BINARY, data, PLAIN) == serialise(BINARY, data)

    @given(st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=5), max_size=4), st.integers(9, 15))
    def test_pieces(self, messages: list[list[bytes]], bits: int) -> None:
        deflater, inflater = Deflater(Parameters(bits)), Inflater(PLAIN)
        for pieces in messages:
            fragments = [deflater.deflate(piece, i == len(pieces) - 1) for i, piece in enumerate(pieces)]
            assert deflater.idle
            assert fragments[-1]
            assert inflate(inflater, b"".join(fragments), True, 2000) == b"".join(pieces)

    def test_idle(self) -> None:
        deflater = Deflater(PLAIN)
        assert deflater.idle
        deflater.deflate(b"x", False)
        assert not deflater.idle
        deflater.deflate(b"", True)
        assert deflater.idle


class TestDecompression:
    """§7.2.2, §7.2.3."""

    @pytest.mark.parametrize("parameters", [PLAIN, KEEPING])
    @pytest.mark.parametrize(
        "data",
        [
            "f248cdc9c90700",  # §7.2.3.1: one block
            "000500faff48656c6c6f00",  # §7.2.3.3: without compression
            "f348cdc9c9070000",  # §7.2.3.4: a last block
            "f348cdc9c90700",  # the same from someone who forgot the byte behind it
            "f248050000 00ffff cac9c90700",  # §7.2.3.5: two blocks
        ],
    )
    def test_examples(self, data: str, parameters: Parameters) -> None:
        inflater = Inflater(parameters)
        for _ in range(3):
            assert inflate(inflater, bytes.fromhex(data), True, 5) == b"Hello"

    def test_context(self) -> None:
        """§7.2.3.2: the second message refers to the first."""
        inflater = Inflater(KEEPING)
        assert inflate(inflater, bytes.fromhex("f248cdc9c90700"), True, 5) == b"Hello"
        assert not inflater.idle
        assert inflate(inflater, bytes.fromhex("f200110000"), True, 5) == b"Hello"

    def test_no_context(self) -> None:
        inflater = Inflater(PLAIN)
        assert inflate(inflater, bytes.fromhex("f248cdc9c90700"), True, 5) == b"Hello"
        assert inflater.idle
        assert refused(inflater, bytes.fromhex("f200110000")).code == 1007

    @pytest.mark.parametrize("parameters", [PLAIN, KEEPING])
    @pytest.mark.parametrize("fragment", [b"", b"\xf2"])
    def test_not_idle_while_a_message_is_open(self, fragment: bytes, parameters: Parameters) -> None:
        """Also if its first fragment was empty: dropped there, a kept context would be lost."""
        inflater = Inflater(parameters)
        assert inflater.idle
        assert inflate(inflater, fragment, False, 5) == b""
        assert not inflater.idle
        assert inflate(inflater, bytes.fromhex("f248cdc9c90700")[len(fragment) :], True, 5) == b"Hello"
        assert inflater.idle is (parameters is PLAIN)

    @pytest.mark.parametrize("parameters", [PLAIN, KEEPING])
    def test_empty(self, parameters: Parameters) -> None:
        """§7.2.3.6."""
        inflater = Inflater(parameters)
        assert inflate(inflater, b"\x00", True, 0) == b""
        assert inflate(inflater, bytes.fromhex("f248cdc9c90700"), True, 5) == b"Hello"

    @pytest.mark.parametrize("parameters", [PLAIN, KEEPING])
    def test_not_deflate(self, parameters: Parameters) -> None:
        assert refused(Inflater(parameters), b"\xff\xff\xff").code == 1007
        assert refused(Inflater(parameters), b"Hello").code == 1007

    @pytest.mark.parametrize("parameters", [PLAIN, KEEPING])
    def test_cut_off(self, parameters: Parameters) -> None:
        """Wherever it is cut: less than the whole never passes for the whole."""
        whole = deflate(bytes(range(200)) * 3)
        for end in range(1, len(whole)):
            assert refused(Inflater(parameters), whole[:end]).code == 1007

    @pytest.mark.parametrize("parameters", [PLAIN, KEEPING])
    @pytest.mark.parametrize("limit", [0, 1, 4, 5, 6])
    def test_limit(self, limit: int, parameters: Parameters) -> None:
        data = deflate(b"a" * limit)
        assert inflate(Inflater(parameters), data, True, limit) == b"a" * limit
        assert refused(Inflater(parameters), deflate(b"a" * (limit + 1)), limit=limit).code == 1009

    def test_bomb(self) -> None:
        """1 GB in 1 MB is refused after what the limit allows."""
        compressor = zlib.compressobj(9, wbits=-15)
        part = bytes(2**20)
        bomb = b"".join(compressor.compress(part) for _ in range(100))
        inflater = Inflater(PLAIN)
        tracemalloc.start()
        try:
            assert refused(inflater, bomb, False, 100_000).code == 1009
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("parameters", [PLAIN, KEEPING])
    @pytest.mark.parametrize("most", [1, 7, 100, 258, 4096])
    @pytest.mark.parametrize("length", [0, 1, 99, 100, 101, 4096])
    def test_comes_in_pieces(self, length: int, most: int, parameters: Parameters) -> None:
        """Wherever a piece ends: also where zlib has read all of the input and has still output to give."""
        data = b"a" * length
        inflater = Inflater(parameters)
        for _ in range(2):
            assert inflate(inflater, deflate(data), True, length, most) == data
            assert not inflater.waiting
        if length:
            with pytest.raises(ProtocolError) as caught:
                inflate(inflater, deflate(data), True, length - 1, most)
            assert caught.value.code == 1009

    def test_a_piece_costs_what_it_is(self) -> None:
        """Of a frame that is 16 MB when decompressed, no more exists at a time than was asked for."""
        inflater = Inflater(PLAIN)
        inflater.put(deflate(bytes(2**24)), True)
        total = 0
        tracemalloc.start()
        try:
            while inflater.waiting:
                total += len(inflater.take(65536, 2**24 - total))
            assert tracemalloc.get_traced_memory()[1] < 500_000
        finally:
            tracemalloc.stop()
        assert total == 2**24

    @pytest.mark.parametrize("parameters", [PLAIN, KEEPING])
    def test_streams_are_bounded(self, parameters: Parameters) -> None:
        """A message of nothing but last blocks would cost a decompressor for every two bytes."""
        inflater = Inflater(parameters)
        assert inflate(inflater, b"\x03\x00" * 7 + b"\x00", True, 10) == b""
        assert inflate(inflater, b"\x03\x00" * 7 + b"\x00", True, 10) == b""
        assert refused(inflater, b"\x03\x00" * 10).code == 1002
        inflater = Inflater(parameters)
        for _ in range(8):
            inflate(inflater, b"\x03\x00", False, 10)
        assert refused(inflater, b"\x03\x00", False).code == 1002

    @pytest.mark.parametrize("parameters", [PLAIN, KEEPING])
    @pytest.mark.parametrize("size", [1, 2, 3, 7])
    def test_fragments(self, size: int, parameters: Parameters) -> None:
        """§6.1: a message is cut after it was compressed."""
        data = bytes(range(256)) * 8
        compressed = deflate(data)
        pieces = [compressed[i : i + size] for i in range(0, len(compressed), size)]
        inflater = Inflater(parameters)
        for _ in range(2):
            left = len(data)
            got = b""
            for piece in pieces:
                got += inflate(inflater, piece, False, left)
                left = len(data) - len(got)
            assert got + inflate(inflater, b"", True, left) == data

    @given(st.lists(st.tuples(st.binary(max_size=50), st.booleans()), max_size=6), st.booleans())
    def test_only_protocol_errors_escape(self, pieces: list[tuple[bytes, bool]], keeps: bool) -> None:
        inflater = Inflater(Parameters(client_keeps_context=keeps))
        codes = [0]
        try:
            for piece, fin in pieces:
                assert len(inflate(inflater, piece, fin, 100)) <= 100
        except ProtocolError as e:
            codes.append(e.code)
        assert codes[-1] in (0, 1002, 1007, 1009)

    @given(
        st.lists(st.binary(max_size=200) | st.text(max_size=60).map(str.encode), max_size=5),
        st.lists(st.integers(0, 500), max_size=8),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    )
    def test_against_another_implementation(
        self, messages: list[bytes], points: list[int], keeps: bool, masked: bool, pieces: bool
    ) -> None:
        peer = PerMessageDeflate(True, not keeps, 15, 15)
        frames = [peer.encode(PeerFrame(Opcode.BINARY, message)) for message in messages]
        data = b"".join(serialise(frame.opcode, bytes(frame.data), mask=masked, rsv1=frame.rsv1) for frame in frames)
        parser = FrameParser(masked, 1000, True, 1 if pieces else None)
        inflater = Inflater(Parameters(client_keeps_context=keeps))
        assembler = Assembler(1000, inflater)
        got = [b""]
        bounds = [0, *sorted(p % (len(data) + 1) for p in points), len(data)]
        for a, b in pairwise(bounds):
            for frame in parser.feed(data[a:b]):
                event = assembler.feed(frame)
                if isinstance(event, Data):
                    got[-1] += event.data
                    if event.fin:
                        got.append(b"")
        assert got == [*messages, b""]
        assert parser.idle
        assert assembler.idle
        assert inflater.idle or keeps

    @given(st.binary(max_size=400), st.integers(9, 15))
    def test_another_implementation_reads_ours(self, data: bytes, bits: int) -> None:
        peer = PerMessageDeflate(True, True, bits, 15)
        frame = PeerFrame(Opcode.BINARY, compress_shared(data, Parameters(bits)), True, True)
        assert peer.decode(frame).data == data


class TestAssembled:
    """A compressed message through the assembler."""

    def test_text(self) -> None:
        """RFC 6455 §8.1 holds for what comes out."""
        good, bad = deflate("ü".encode()), deflate(b"\xff")
        assembler = Assembler(10, Inflater(PLAIN))
        assert assembler.feed(Frame(TEXT, True, good, True)) == Data(TEXT, "ü".encode(), True, True)
        with pytest.raises(ProtocolError) as caught:
            assembler.feed(Frame(TEXT, True, bad, True))
        assert caught.value.code == 1007

    @pytest.mark.parametrize("limit", [5, 10])
    def test_size_over_fragments(self, limit: int) -> None:
        compressed = deflate(b"x" * limit)
        frames = [Frame(BINARY, False, compressed[:1], True), Frame(CONT, True, compressed[1:])]
        assembler = Assembler(limit, Inflater(PLAIN))
        assert b"".join(e.data for f in frames if isinstance(e := assembler.feed(f), Data)) == b"x" * limit
        assembler = Assembler(limit - 1, Inflater(PLAIN))
        assembler.feed(frames[0])
        with pytest.raises(ProtocolError) as caught:
            assembler.feed(frames[1])
        assert caught.value.code == 1009

    @pytest.mark.parametrize("opcode", [TEXT, BINARY])
    @pytest.mark.parametrize("size", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 1])
    def test_a_long_message_comes_in_pieces(self, size: int, opcode: int) -> None:
        data = "ü".encode() * size
        data = data[:size] if opcode == BINARY else data[: size & ~1]
        assembler = Assembler(size, Inflater(PLAIN))
        events = [assembler.feed(Frame(opcode, True, deflate(data), True))]
        while assembler.waiting:
            assert not assembler.idle
            events.append(assembler.more())
        pieces = [event for event in events if isinstance(event, Data)]
        assert b"".join(piece.data for piece in pieces) == data
        assert [piece.first for piece in pieces] == [True] + [False] * (len(pieces) - 1)
        assert [piece.fin for piece in pieces] == [False] * (len(pieces) - 1) + [True]
        assert all(len(piece.data) <= PIECE for piece in pieces)
        assert assembler.idle
        # The next one is another message.
        assert assembler.feed(Frame(TEXT, True, b"a")) == Data(TEXT, b"a", True, True)

    def test_uncompressed_messages_in_between(self) -> None:
        """§6: the sender chooses for every message."""
        assembler = Assembler(10, Inflater(PLAIN))
        assert assembler.feed(Frame(TEXT, True, b"a")) == Data(TEXT, b"a", True, True)
        assert assembler.feed(Frame(TEXT, True, deflate(b"b"), True)) == Data(TEXT, b"b", True, True)
        assembler.feed(Frame(TEXT, False, b"c"))
        assert assembler.feed(Frame(CONT, True, b"d")) == Data(TEXT, b"d", False, True)
