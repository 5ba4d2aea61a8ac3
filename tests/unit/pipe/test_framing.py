"""Frames of the pipe."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy import pipe
from gripproxy.pipe import Decoder, Message, PipeError, encode

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary() | st.text() | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.binary(), inner, max_size=3)
    ),
    max_leaves=8,
)


messages = st.lists(st.tuples(st.integers(0, 30), values), max_size=5)


class TestFrames:
    @given(st.lists(messages, max_size=5), st.data())
    def test_what_is_encoded_comes_out_however_it_is_cut(
        self, frames: list[list[Message]], data: st.DataObject
    ) -> None:
        stream = b"".join(encode(frame) for frame in frames)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
        decoder = Decoder()
        found: list[Message] = []
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            found += decoder.feed(stream[start:end])
        assert found == [message for frame in frames for message in frame]

    def test_the_length_is_four_bytes_big_endian(self) -> None:
        frame = encode([(pipe.LOST,)])
        assert struct.unpack(">I", frame[:4]) == (len(frame) - 4,)

    def test_a_frame_that_is_too_long(self) -> None:
        with pytest.raises(PipeError, match="frame of 268435457 bytes, at most 268435456 are allowed"):
            Decoder().feed(struct.pack(">I", pipe.MAX_FRAME + 1))

    def test_the_longest_frame_is_waited_for(self) -> None:
        assert Decoder().feed(struct.pack(">I", pipe.MAX_FRAME)) == []

    def test_a_long_frame_in_very_many_pieces_costs_what_it_is_and_not_its_square(self) -> None:
        # Its square would take minutes.
        frame = encode([(pipe.ITEM, b"x" * (32 << 20))]) + encode([(pipe.LOST,)])[:3]
        decoder = Decoder()
        found: list[Message] = []
        for start in range(0, len(frame), 1024):
            found += decoder.feed(frame[start : start + 1024])
        assert [message[0] for message in found] == [pipe.ITEM]
        assert decoder.feed(encode([(pipe.LOST,)])[3:]) == [(pipe.LOST,)]

    @pytest.mark.parametrize("body", [b"", b"\xff", b"[\x05\x00\x00\x00", b"("])
    def test_bytes_that_are_no_frame(self, body: bytes) -> None:
        with pytest.raises(PipeError, match="cannot be decoded"):
            Decoder().feed(struct.pack(">I", len(body)) + body)

    def test_a_frame_that_holds_no_list(self) -> None:
        frame = encode((1, 2))  # type: ignore[arg-type]
        with pytest.raises(PipeError, match="holds a tuple, expected a list"):
            Decoder().feed(frame)
