"""WebSocket frames, by section of RFC 6455."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, pairwise, zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame as PeerFrame
from websockets.frames import Opcode

from gripproxy.grip.assembler import Assembler
from gripproxy.grip.frames import BINARY, CLOSE, CONT, PING, PONG, TEXT, Frame, FrameParser, ProtocolError, serialise

MAX = 100_000
OPCODES = (CONT, TEXT, BINARY, CLOSE, PING, PONG)
LENGTHS = (0, 1, 125, 126, 127, 65535, 65536)


def refused(parser: FrameParser, data: bytes) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        list(parser.feed(data))
    return caught.value


def cut(data: bytes, points: Iterable[int]) -> list[bytes]:
    bounds = [0, *sorted(p % (len(data) + 1) for p in points), len(data)]
    return [data[a:b] for a, b in pairwise(bounds)]


class TestFraming:
    """§5.2, §5.3."""

    @pytest.mark.parametrize("masked", [True, False])
    @pytest.mark.parametrize("length", LENGTHS)
    @pytest.mark.parametrize("fin", [True, False])
    @pytest.mark.parametrize("opcode", [CONT, TEXT, BINARY])
    def test_every_length_form(self, opcode: int, fin: bool, length: int, masked: bool) -> None:
        payload = bytes(i & 0xFF for i in range(length))
        data = serialise(opcode, payload, fin=fin, mask=masked)
        assert list(FrameParser(masked, MAX).feed(data)) == [Frame(opcode, fin, payload)]

    @pytest.mark.parametrize("masked", [True, False])
    @pytest.mark.parametrize("length", [0, 1, 124, 125])
    @pytest.mark.parametrize("opcode", [CLOSE, PING, PONG])
    def test_control(self, opcode: int, length: int, masked: bool) -> None:
        payload = b"\x03\xe8" + b"x" * (length - 2) if length > 1 else b"x" * length
        assert list(FrameParser(masked, MAX).feed(serialise(opcode, payload, mask=masked))) == [
            Frame(opcode, True, payload)
        ]

    @pytest.mark.parametrize("length", LENGTHS)
    @pytest.mark.parametrize("opcode", OPCODES)
    def test_the_bytes_are_those_of_another_implementation(self, opcode: int, length: int) -> None:
        if opcode >= CLOSE and length > 125:
            return
        payload = b"\xa5" * length
        for fin in (True,) if opcode >= CLOSE else (True, False):
            expected = PeerFrame(Opcode(opcode), payload, fin).serialize(mask=False)
            assert serialise(opcode, payload, fin=fin) == expected

    def test_examples_of_the_rfc(self) -> None:
        """§5.7."""
        assert serialise(TEXT, b"Hello") == bytes.fromhex("810548656c6c6f")
        assert list(FrameParser(True, MAX).feed(bytes.fromhex("818537fa213d7f9f4d5158"))) == [
            Frame(TEXT, True, b"Hello")
        ]
        fragments = list(FrameParser(False, MAX).feed(bytes.fromhex("010348656c80026c6f")))
        assert fragments == [Frame(TEXT, False, b"Hel"), Frame(CONT, True, b"lo")]
        assert serialise(BINARY, bytes(256)) == bytes.fromhex("827e0100") + bytes(256)
        assert serialise(BINARY, bytes(65536)) == bytes.fromhex("827f0000000000010000") + bytes(65536)

    def test_masks_are_fresh(self) -> None:
        """§5.3: unpredictable, so never the same twice in a row."""
        assert len({serialise(TEXT, bytes(16), mask=True) for _ in range(20)}) == 20

    def test_rsv1_and_no_fin(self) -> None:
        assert serialise(TEXT, b"x", rsv1=True) == b"\xc1\x01x"
        assert serialise(TEXT, b"x", fin=False, rsv1=True) == b"\x41\x01x"
        assert list(FrameParser(False, MAX, allow_rsv1=True).feed(b"\xc1\x01x")) == [Frame(TEXT, True, b"x", True)]

    @pytest.mark.parametrize("masked", [True, False])
    def test_many_frames_at_once(self, masked: bool) -> None:
        frames = [Frame(TEXT, True, b"%d" % i * i) for i in range(200)]
        data = b"".join(serialise(f.opcode, f.payload, mask=masked) for f in frames)
        assert list(FrameParser(masked, MAX).feed(data)) == frames

    def test_byte_by_byte(self) -> None:
        data = (
            serialise(TEXT, b"a" * 300, mask=True)
            + serialise(PING, b"p", mask=True)
            + serialise(BINARY, b"", mask=True)
        )
        parser = FrameParser(True, MAX)
        frames = [frame for i in range(len(data)) for frame in parser.feed(data[i : i + 1])]
        assert frames == [Frame(TEXT, True, b"a" * 300), Frame(PING, True, b"p"), Frame(BINARY, True, b"")]
        assert parser.idle

    def test_nothing(self) -> None:
        parser = FrameParser(True, MAX)
        assert list(parser.feed(b"")) == []
        assert parser.idle

    def test_a_small_frame_behind_a_partial_one(self) -> None:
        parser = FrameParser(False, MAX)
        assert list(parser.feed(b"\x81\x05He")) == []
        assert not parser.idle
        assert list(parser.feed(b"llo\x81\x01x")) == [Frame(TEXT, True, b"Hello"), Frame(TEXT, True, b"x")]
        assert parser.idle


class TestBadFrames:
    @pytest.mark.parametrize("bits", [0x10, 0x20, 0x40, 0x50, 0x70])
    @pytest.mark.parametrize("opcode", OPCODES)
    def test_reserved_bits(self, opcode: int, bits: int) -> None:
        """§5.2."""
        error = refused(FrameParser(True, MAX), bytes((0x80 | bits | opcode, 0x80)))
        assert error.code == 1002
        assert "reserved bits" in error.text

    @pytest.mark.parametrize("opcode", OPCODES)
    def test_rsv1_only_where_a_compressed_message_begins(self, opcode: int) -> None:
        """RFC 7692 §6.1."""
        parser = FrameParser(True, MAX, allow_rsv1=True)
        data = bytes((0xC0 | opcode, 0x80, 0, 0, 0, 0))
        if opcode in (TEXT, BINARY):
            assert list(parser.feed(data)) == [Frame(opcode, True, b"", True)]
        else:
            assert refused(parser, data).code == 1002

    @pytest.mark.parametrize("bits", [0x10, 0x20])
    def test_compression_frees_one_bit_only(self, bits: int) -> None:
        assert refused(FrameParser(False, MAX, allow_rsv1=True), bytes((0x81 | bits, 0))).code == 1002

    @pytest.mark.parametrize("opcode", [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
    @pytest.mark.parametrize("first", [0x80, 0])
    def test_opcodes(self, opcode: int, first: int) -> None:
        """§5.2, §11.8."""
        error = refused(FrameParser(False, MAX), bytes((first | opcode, 0)))
        assert (error.code, error.text) == (1002, f"opcode {opcode} is not defined")

    @pytest.mark.parametrize("length", [0, 5, 126, 127])
    def test_masking(self, length: int) -> None:
        """§5.1: a client masks, a server does not."""
        error = refused(FrameParser(True, MAX), bytes((0x81, length)))
        assert (error.code, error.text) == (1002, "frame is not masked")
        error = refused(FrameParser(False, MAX), bytes((0x81, 0x80 | length)))
        assert (error.code, error.text) == (1002, "frame is masked")

    @pytest.mark.parametrize("opcode", [CLOSE, PING, PONG])
    def test_control_frames_are_short_and_whole(self, opcode: int) -> None:
        """§5.5."""
        assert refused(FrameParser(False, MAX), bytes((opcode, 0))).code == 1002
        assert refused(FrameParser(False, MAX), bytes((0x80 | opcode, 126))).code == 1002
        assert refused(FrameParser(False, MAX), bytes((0x80 | opcode, 127))).code == 1002
        assert list(FrameParser(False, MAX).feed(bytes((0x80 | opcode, 125)) + bytes(124))) == []

    @pytest.mark.parametrize(
        ("length", "size", "shortest"),
        [
            *[(0, 2, False), (125, 2, False), (126, 2, True), (65535, 2, True)],
            *[(0, 8, False), (126, 8, False), (65535, 8, False), (65536, 8, True)],
        ],
    )
    def test_length_in_its_shortest_form(self, length: int, size: int, shortest: bool) -> None:
        """§5.2: the minimal number of bytes must be used."""
        data = bytes((0x82, 126 if size == 2 else 127)) + length.to_bytes(size, "big") + bytes(length)
        if shortest:
            assert list(FrameParser(False, MAX).feed(data)) == [Frame(BINARY, True, bytes(length))]
        else:
            assert refused(FrameParser(False, MAX), data).code == 1002

    def test_highest_bit_of_the_length(self) -> None:
        """§5.2."""
        error = refused(FrameParser(False, 2**64), b"\x82\x7f\x80" + bytes(7))
        assert (error.code, error.text) == (1002, "frame length has its highest bit set")
        assert list(FrameParser(False, 2**64).feed(b"\x82\x7f\x7f" + bytes(7))) == []

    @pytest.mark.parametrize("masked", [True, False])
    @pytest.mark.parametrize("limit", [0, 1, 125, 126, 1000, 65535, 65536])
    def test_oversize(self, limit: int, masked: bool) -> None:
        """§10.4; 1009 is §7.4.1."""
        assert len(list(FrameParser(masked, limit).feed(serialise(BINARY, bytes(limit), mask=masked)))) == 1
        error = refused(FrameParser(masked, limit), serialise(BINARY, bytes(limit + 1), mask=masked))
        assert (error.code, error.text) == (1009, f"frame of {limit + 1} bytes, at most {limit} are allowed")

    def test_the_head_decides_already(self) -> None:
        """Nothing of an oversize frame is waited for or kept."""
        assert refused(FrameParser(False, 100_000), b"\x82\x7f" + (2**40).to_bytes(8, "big")).code == 1009

    def test_what_came_before_is_kept(self) -> None:
        parser = FrameParser(False, MAX)
        parser.feed(serialise(TEXT, b"good") + b"\x83\x00" + serialise(TEXT, b"never"))
        assert next(parser) == Frame(TEXT, True, b"good")
        with pytest.raises(ProtocolError):
            next(parser)
        assert list(parser) == []
        assert not parser.held

    def test_nothing_comes_after_an_error(self) -> None:
        """§7.1.7."""
        parser = FrameParser(False, MAX)
        refused(parser, b"\x83\x00")
        assert list(parser.feed(serialise(TEXT, b"x"))) == []
        assert parser.finished
        assert not parser.idle

    @pytest.mark.parametrize("masked", [True, False])
    @pytest.mark.parametrize("together", [True, False])
    def test_nothing_comes_after_a_close(self, masked: bool, together: bool) -> None:
        """§1.4, §5.5.1."""
        parser = FrameParser(masked, MAX)
        close, more = serialise(CLOSE, b"", mask=masked), serialise(TEXT, b"x", mask=masked) + b"\xff\xff"
        frames = list(parser.feed(close + more)) if together else list(parser.feed(close)) + list(parser.feed(more))
        assert frames == [Frame(CLOSE, True, b"")]
        assert parser.finished

    @given(st.lists(st.binary(max_size=40), max_size=10), st.booleans(), st.booleans(), st.none() | st.integers(1, 9))
    def test_only_protocol_errors_escape(
        self, pieces: list[bytes], masked: bool, compressed: bool, piece: int | None
    ) -> None:
        parser, assembler = FrameParser(masked, 200, compressed, piece), Assembler(300)
        error: ProtocolError | None = None
        try:
            for data in pieces:
                for frame in parser.feed(data):
                    assembler.feed(frame)
        except ProtocolError as e:
            error = e
        assert error is None or (error.code in (1002, 1007, 1009) and 0 < len(error.text) <= 123)

    @given(st.binary(max_size=300), st.booleans(), st.lists(st.integers(0, 300), max_size=8))
    def test_how_bytes_are_split_makes_no_difference(self, data: bytes, masked: bool, points: list[int]) -> None:
        def outcome(pieces: list[bytes]) -> tuple[list[Frame], int | None]:
            parser = FrameParser(masked, 100, True)
            frames: list[Frame] = []
            try:
                for piece in pieces:
                    # One by one: frames before an error count.
                    for frame in parser.feed(piece):
                        frames.append(frame)  # noqa: PERF402
            except ProtocolError as e:
                return frames, e.code
            return frames, None

        assert outcome([data]) == outcome(cut(data, points))


FRAMES = st.lists(
    st.builds(Frame, st.sampled_from((CONT, TEXT, BINARY)), st.booleans(), st.binary(max_size=300))
    | st.builds(Frame, st.sampled_from((PING, PONG)), st.just(True), st.binary(max_size=125)),
    max_size=8,
)


class TestSplits:
    @given(FRAMES, st.booleans(), st.lists(st.integers(0, 3000), max_size=12))
    def test_whole_frames_whatever_the_splits(self, frames: list[Frame], masked: bool, points: list[int]) -> None:
        data = b"".join(serialise(f.opcode, f.payload, fin=f.fin, mask=masked) for f in frames)
        parser = FrameParser(masked, MAX)
        assert [frame for part in cut(data, points) for frame in parser.feed(part)] == frames
        assert parser.idle

    @given(FRAMES, st.booleans(), st.lists(st.integers(0, 3000), max_size=12), st.lists(st.integers(0, 5), max_size=12))
    def test_whole_frames_however_many_are_taken_at_a_time(
        self, frames: list[Frame], masked: bool, points: list[int], takes: list[int]
    ) -> None:
        """What is not taken stays as bytes, also when more is received behind it."""
        data = b"".join(serialise(f.opcode, f.payload, fin=f.fin, mask=masked) for f in frames)
        parser = FrameParser(masked, MAX)
        got: list[Frame] = []
        for part, most in zip_longest(cut(data, points), takes, fillvalue=None):
            parser.feed(part or b"")
            got += islice(parser, most)
        got += parser
        assert got == frames
        assert parser.idle
        assert not parser.held

    def test_what_is_not_taken_is_held_as_it_came(self) -> None:
        data = serialise(TEXT, b"x", mask=True) * 1000
        parser = FrameParser(True, MAX)
        next(parser.feed(data))
        assert parser.waiting
        assert not parser.idle
        assert parser.held == len(data)

    @given(FRAMES, st.booleans(), st.lists(st.integers(0, 3000), max_size=12), st.integers(1, 40))
    def test_pieces_add_up(self, frames: list[Frame], masked: bool, points: list[int], piece: int) -> None:
        """§5.4: fragments may be cut anew, control frames may not."""
        data = b"".join(serialise(f.opcode, f.payload, fin=f.fin, mask=masked) for f in frames)
        parser = FrameParser(masked, MAX, piece=piece)
        got = [frame for part in cut(data, points) for frame in parser.feed(part)]
        assert parser.idle
        at = 0
        for frame in frames:
            parts = [got[at]]
            while len(b"".join(p.payload for p in parts)) < len(frame.payload):
                at += 1
                parts.append(got[at])
            at += 1
            assert b"".join(p.payload for p in parts) == frame.payload
            assert [p.opcode for p in parts] == [frame.opcode] + [CONT] * (len(parts) - 1)
            assert [p.fin for p in parts] == [False] * (len(parts) - 1) + [frame.fin]
            assert all(len(p.payload) >= piece for p in parts[:-1])
        assert at == len(got)

    def test_a_piece_is_given_out_as_soon_as_it_is_there(self) -> None:
        parser = FrameParser(True, MAX, piece=4)
        data = serialise(TEXT, b"0123456789", mask=True)
        assert list(parser.feed(data[:9])) == []
        assert list(parser.feed(data[9:10])) == [Frame(TEXT, False, b"0123")]
        assert not parser.idle
        assert list(parser.feed(data[10:13])) == []
        assert list(parser.feed(data[13:15])) == [Frame(CONT, False, b"45678")]
        assert list(parser.feed(data[15:])) == [Frame(CONT, True, b"9")]
        assert parser.idle

    def test_a_frame_of_the_size_of_a_piece_is_whole(self) -> None:
        parser = FrameParser(False, MAX, piece=4)
        assert list(parser.feed(b"\x81\x04012")) == []
        assert list(parser.feed(b"3")) == [Frame(TEXT, True, b"0123")]
        assert list(parser.feed(b"\x81\x050123")) == [Frame(TEXT, False, b"0123")]

    def test_a_compressed_frame_in_pieces_has_rsv1_once(self) -> None:
        parser = FrameParser(False, MAX, allow_rsv1=True, piece=1)
        assert list(parser.feed(b"\xc1\x02x")) == [Frame(TEXT, False, b"x", True)]
        assert list(parser.feed(b"y")) == [Frame(CONT, True, b"y")]
