"""WebSocket messages put together from frames (RFC 6455 §5.4 to §5.6, §8.1)."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gripproxy.grip.assembler import Assembler, Close, Data, Event, Ping, Pong
from gripproxy.grip.frames import BINARY, CLOSE, CONT, PING, PONG, TEXT, Frame, FrameParser, ProtocolError, serialise

MAX = 100_000


def cut(data: bytes, points: Iterable[int]) -> list[bytes]:
    bounds = [0, *sorted(p % (len(data) + 1) for p in points), len(data)]
    return [data[a:b] for a, b in pairwise(bounds)]


def events(frames: Iterable[Frame], max_message: int = MAX) -> list[Event]:
    assembler = Assembler(max_message)
    return [event for frame in frames if (event := assembler.feed(frame)) is not None]


def breaks(frames: Iterable[Frame], max_message: int = MAX) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        events(frames, max_message)
    return caught.value


class TestFragments:
    """§5.4."""

    def test_pieces_come_as_they_are(self) -> None:
        frames = [
            Frame(TEXT, False, b"a"),
            Frame(CONT, False, b"b"),
            Frame(CONT, True, b"c"),
            Frame(BINARY, True, b"\xff"),
        ]
        assert events(frames) == [
            Data(TEXT, b"a", True, False),
            Data(TEXT, b"b", False, False),
            Data(TEXT, b"c", False, True),
            Data(BINARY, b"\xff", True, True),
        ]

    def test_empty_fragments(self) -> None:
        """Those at the ends matter; one in the middle says nothing."""
        frames = [Frame(BINARY, False, b""), Frame(CONT, False, b""), Frame(CONT, False, b"x"), Frame(CONT, True, b"")]
        assert events(frames) == [
            Data(BINARY, b"", True, False),
            Data(BINARY, b"x", False, False),
            Data(BINARY, b"", False, True),
        ]

    def test_control_frames_between_fragments(self) -> None:
        frames = [Frame(TEXT, False, b"a"), Frame(PING, True, b"p"), Frame(PONG, True, b""), Frame(CONT, True, b"b")]
        assert events(frames) == [Data(TEXT, b"a", True, False), Ping(b"p"), Pong(b""), Data(TEXT, b"b", False, True)]

    def test_close_between_fragments(self) -> None:
        assert events([Frame(TEXT, False, b"a"), Frame(CLOSE, True, b"\x03\xe8bye")])[1:] == [Close(1000, b"bye")]

    @pytest.mark.parametrize("fin", [True, False])
    def test_continuation_without_a_message(self, fin: bool) -> None:
        assert breaks([Frame(CONT, fin, b"x")]).code == 1002
        assert breaks([Frame(TEXT, True, b"x"), Frame(CONT, fin, b"x")]).code == 1002
        assert breaks([Frame(TEXT, False, b"x"), Frame(CONT, True, b"x"), Frame(CONT, fin, b"x")]).code == 1002

    @pytest.mark.parametrize("fin", [True, False])
    @pytest.mark.parametrize("opcode", [TEXT, BINARY])
    def test_message_inside_a_message(self, opcode: int, fin: bool) -> None:
        assert breaks([Frame(TEXT, False, b"x"), Frame(opcode, fin, b"x")]).code == 1002

    def test_compression_that_was_not_agreed_on(self) -> None:
        assert breaks([Frame(TEXT, True, b"x", True)]).code == 1002
        assert breaks([Frame(TEXT, False, b"x", True)]).code == 1002

    def test_idle(self) -> None:
        assembler = Assembler(MAX)
        for frame, idle in [
            (Frame(TEXT, True, b"x"), True),
            (Frame(TEXT, False, b"x"), False),
            (Frame(PING, True, b""), False),
            (Frame(CONT, False, b"x"), False),
            (Frame(CONT, True, b""), True),
        ]:
            assembler.feed(frame)
            assert assembler.idle is idle

    @pytest.mark.parametrize("limit", [0, 1, 5])
    @pytest.mark.parametrize("opcode", [TEXT, BINARY])
    def test_message_size(self, opcode: int, limit: int) -> None:
        assert len(events([Frame(opcode, True, b"x" * limit)], limit)) == 1
        error = breaks([Frame(opcode, True, b"x" * (limit + 1))], limit)
        assert (error.code, error.text) == (1009, f"message is longer than {limit} bytes")

    @pytest.mark.parametrize("limit", [2, 5])
    def test_message_size_over_fragments(self, limit: int) -> None:
        frames = [Frame(BINARY, False, b"x"), *[Frame(CONT, False, b"x")] * (limit - 1)]
        assert len(events([*frames, Frame(CONT, True, b"")], limit)) == limit + 1
        assert breaks([*frames, Frame(CONT, True, b"x")], limit).code == 1009
        assert len(events([*frames, Frame(CONT, True, b""), *frames], limit)) == 2 * limit + 1


BAD_TEXT = [
    b"\x80",
    b"\xc0\x80",
    b"\xc1\xbf",
    b"\xe0\x80\x80",
    b"\xe0\x9f\xbf",
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf",
    b"\xf0\x80\x80\x80",
    b"\xf0\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xf5\x80\x80\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\xfe",
    b"\xff",
    b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
]


CUT_OFF = [b"\xc2", b"\xe1\xbd", b"\xf0\x9f\x98", b"\xed\x9f", b"ok\xf4\x8f"]
GOOD_TEXT = ["", "Hello", "κόσμε", "\x00\x7f\x80\u07ff\u0800\ud7ff\ue000\ufffd\uffff\U00010000\U0010ffff", "é" * 40000]


def can_go_on(data: bytes) -> bool:
    """Whether bytes are the beginning of some valid text, by trying every possible rest of a character."""
    lows = (0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF)
    rests = [b""]
    for _ in range(4):
        for rest in rests:
            try:
                (data + rest).decode()
            except UnicodeDecodeError:
                continue
            return True
        rests = [rest + bytes((low,)) for rest in rests for low in lows]
    return False


class TestText:
    """§8.1."""

    @pytest.mark.parametrize("text", GOOD_TEXT)
    def test_good(self, text: str) -> None:
        data = text.encode()
        assert events([Frame(TEXT, True, data)]) == [Data(TEXT, data, True, True)]

    @pytest.mark.parametrize("text", GOOD_TEXT[:4])
    def test_good_byte_by_byte(self, text: str) -> None:
        """§5.4: a fragment may end inside a character."""
        data = text.encode()
        frames = [Frame(TEXT, False, b""), *[Frame(CONT, False, bytes((b,))) for b in data], Frame(CONT, True, b"")]
        assert b"".join(event.data for event in events(frames) if isinstance(event, Data)) == data

    @pytest.mark.parametrize("data", BAD_TEXT + CUT_OFF)
    def test_bad(self, data: bytes) -> None:
        assert breaks([Frame(TEXT, True, data)]).code == 1007
        assert breaks([Frame(TEXT, False, b"ok"), Frame(CONT, True, data)]).code == 1007
        assert events([Frame(BINARY, True, data)]) == [Data(BINARY, data, True, True)]

    @pytest.mark.parametrize("data", BAD_TEXT)
    def test_bad_is_seen_at_the_first_byte_that_cannot_be_right(self, data: bytes) -> None:
        assembler = Assembler(MAX)
        assembler.feed(Frame(TEXT, False, b""))
        good = 0
        while can_go_on(data[: good + 1]):
            assembler.feed(Frame(CONT, False, data[good : good + 1]))
            good += 1
        with pytest.raises(ProtocolError) as caught:
            assembler.feed(Frame(CONT, False, data[good : good + 1]))
        assert caught.value.code == 1007

    @pytest.mark.parametrize("data", CUT_OFF)
    def test_cut_off_is_seen_at_the_end(self, data: bytes) -> None:
        assert len(events([Frame(TEXT, False, data)])) == 1
        assert breaks([Frame(TEXT, False, data), Frame(CONT, True, b"")]).code == 1007
        assert breaks([Frame(TEXT, False, data), Frame(CONT, False, b"x")]).code == 1007

    def test_in_the_middle_of_a_frame(self) -> None:
        """With pieces, a frame need not be complete to be refused."""
        parser, assembler = FrameParser(True, MAX, piece=1), Assembler(MAX)
        data = serialise(TEXT, b"abc\xff" + b"d" * 1000, mask=True)
        (frame,) = list(parser.feed(data[: 8 + 4]))
        with pytest.raises(ProtocolError) as caught:
            assembler.feed(frame)
        assert caught.value.code == 1007

    @given(st.binary(max_size=30) | st.text(max_size=12).map(str.encode), st.lists(st.integers(0, 40), max_size=6))
    @example(b"\xed\xa0", [1])
    @example(b"\xf4\x90", [1])
    def test_fragments_decide_like_the_whole(self, data: bytes, points: list[int]) -> None:
        parts = cut(data, points)
        frames = [Frame(CONT if i else TEXT, i == len(parts) - 1, part) for i, part in enumerate(parts)]
        try:
            codecs.decode(data, "utf-8")
        except UnicodeDecodeError:
            assert breaks(frames).code == 1007
            assert breaks([Frame(TEXT, True, data)]).code == 1007
        else:
            got = events(frames)
            assert b"".join(event.data for event in got if isinstance(event, Data)) == data

    @given(st.binary(max_size=8))
    def test_fail_fast(self, data: bytes) -> None:
        assembler = Assembler(MAX)
        try:
            assembler.feed(Frame(TEXT, False, data))
        except ProtocolError:
            assert not can_go_on(data)
        else:
            assert can_go_on(data)
