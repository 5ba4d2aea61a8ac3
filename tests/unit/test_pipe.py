"""Frames and the link of the pipe. The transport is only memory."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy import pipe
from gripproxy.pipe import Decoder, Link, Message, PipeError, encode

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


def test_the_socket_is_in_the_run_directory() -> None:
    class Globals:
        rundir, ipc_prefix = "/run/x", "one-"

    class Settings:
        globals = Globals

    assert pipe.socket_path(Settings()) == "/run/x/one-pipe"


class Wire(asyncio.Transport):
    """A connection that keeps what is written, and blocks the writer when it is told to."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.link = link
        self.frames: list[list[Message]] = []
        self.reading = True
        self.closed = self.aborted = False
        self.block_after: int | None = None
        link.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def write(self, data: Any) -> None:
        self.frames.append(Decoder().feed(bytes(data)))
        if self.block_after is not None and len(self.frames) >= self.block_after:
            self.block_after = None
            self.link.pause_writing()

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class Ends:
    """A link and what it told its owner."""

    def __init__(self, bound: int = pipe.MAX_QUEUE) -> None:
        self.got: list[Message] = []
        self.lost = 0
        self.overflows = 0
        self.link = Link(lambda link, messages: self.got.extend(messages), self._on_lost, bound)
        self.link.overflow = self._on_overflow

    def connect(self) -> Wire:
        return Wire(self.link)

    def _on_lost(self, link: Link) -> None:
        self.lost += 1

    def _on_overflow(self, link: Link) -> None:
        self.overflows += 1
        link.send((pipe.LOST,))


async def turn() -> None:
    await asyncio.sleep(0)


class TestLink:
    async def test_messages_of_a_turn_are_one_frame(self) -> None:
        ends = Ends()
        wire = ends.connect()
        ends.link.send((1,))
        ends.link.send((2,))
        assert (wire.frames, ends.link.queued) == ([], 2)
        await turn()
        ends.link.send((3,))
        await turn()
        assert wire.frames == [[(1,), (2,)], [(3,)]]

    async def test_what_is_written_is_counted_whole_or_in_parts(self) -> None:
        ends = Ends()
        wire = ends.connect()
        counted = []
        for messages in ([(1,), (2,)], [(number,) for number in range(pipe.FRAME_MESSAGES)]):
            for message in messages:
                ends.link.send(message)
            await turn()
            counted.append(ends.link.written)
        assert counted == [2, 2 + pipe.FRAME_MESSAGES]
        assert sum(map(len, wire.frames)) == ends.link.written

    async def test_nothing_is_kept_while_it_is_down(self) -> None:
        ends = Ends()
        ends.link.send((1,))
        assert not ends.link.connected
        wire = ends.connect()
        await turn()
        assert wire.frames == []

    async def test_nothing_survives_its_end(self) -> None:
        ends = Ends()
        wire = ends.connect()
        ends.link.send((1,))
        ends.link.connection_lost(None)
        await turn()
        ends.link.send((2,))
        await turn()
        assert (wire.frames, ends.lost, ends.link.queued, ends.link.connected) == ([], 1, 0, False)

    async def test_a_full_pipe_makes_messages_wait_in_order(self) -> None:
        ends = Ends()
        wire = ends.connect()
        ends.link.pause_writing()
        for n in range(3):
            ends.link.send((n,))
        await turn()
        assert (wire.frames, ends.link.queued) == ([], 3)
        ends.link.resume_writing()
        ends.link.send((3,))
        await turn()
        assert wire.frames == [[(0,), (1,), (2,), (3,)]]

    async def test_a_long_queue_is_many_frames_and_stops_when_the_pipe_is_full(self) -> None:
        ends = Ends()
        wire = ends.connect()
        wire.block_after = 2
        for n in range(pipe.FRAME_MESSAGES * 3 + 1):
            ends.link.send((n,))
        await turn()
        assert [len(frame) for frame in wire.frames] == [pipe.FRAME_MESSAGES] * 2
        assert ends.link.queued == pipe.FRAME_MESSAGES + 1
        ends.link.resume_writing()
        await turn()
        assert [message for frame in wire.frames for message in frame] == [
            (n,) for n in range(pipe.FRAME_MESSAGES * 3 + 1)
        ]

    async def test_large_messages_are_frames_of_bounded_length(self) -> None:
        ends = Ends()
        wire = ends.connect()
        large = [(n, b"x" * 50_000) for n in range(200)]
        for message in [*large, (200, b"x" * (2 * pipe.FRAME_BYTES)), (201,)]:
            ends.link.send(message)
        await turn()
        assert [message[0] for frame in wire.frames for message in frame] == list(range(202))
        assert max(len(frame) for frame in wire.frames) * 50_000 <= pipe.FRAME_BYTES
        # Small ones travel together again.
        wire.frames.clear()
        for _ in range(12):
            ends.link.send((1,))
            await turn()
        for n in range(1000):
            ends.link.send((n,))
        await turn()
        assert wire.frames[-1] == [(n,) for n in range(1000)]

    async def test_closing_a_full_pipe_still_sends_what_waits(self) -> None:
        ends = Ends()
        wire = ends.connect()
        ends.link.pause_writing()
        for n in range(3):
            ends.link.send((n,))
        ends.link.close()
        assert wire.frames == [[(0,), (1,), (2,)]]
        assert wire.closed

    async def test_over_the_bound_all_is_dropped_and_told(self) -> None:
        ends = Ends(bound=3)
        wire = ends.connect()
        ends.link.pause_writing()
        for n in range(3):
            ends.link.send((n,))
        assert (ends.link.queued, ends.overflows) == (3, 0)
        ends.link.send((3,))
        assert (ends.link.queued, ends.overflows) == (1, 1)
        ends.link.send((4,))
        ends.link.resume_writing()
        await turn()
        assert wire.frames == [[(pipe.LOST,), (4,)]]

    async def test_large_messages_count_as_several(self) -> None:
        ends = Ends(bound=30)
        wire = ends.connect()
        large = (pipe.ITEM, ("ch", {"body": b"x" * pipe.LOAD_BYTES * 9}))
        assert pipe.load_of(large) == 10
        ends.link.send(large)
        assert ends.link.load == 1, "nothing waits yet"
        ends.link.pause_writing()
        await turn()
        ends.link.send(large)
        ends.link.send(large)
        assert (ends.link.load, ends.link.queued, ends.overflows) == (30, 3, 0)
        ends.link.resume_writing()
        await turn()
        assert (ends.link.load, ends.link.queued, len(wire.frames)) == (0, 0, 1)
        ends.link.pause_writing()
        for _ in range(4):
            ends.link.send(large)
        assert (ends.link.queued, ends.overflows) == (1, 1)

    async def test_a_turn_of_large_messages_is_over_the_bound_when_the_peer_stops(self) -> None:
        ends = Ends(bound=30)
        wire = ends.connect()
        for _ in range(40):
            ends.link.send((pipe.ITEM, b"x" * pipe.FRAME_BYTES))
        wire.block_after = 1
        await turn()
        assert (len(wire.frames), ends.link.queued, ends.overflows) == (1, 1, 1)

    async def test_what_arrives_together_is_told_together(self) -> None:
        ends = Ends()
        ends.connect()
        data = encode([(1,), (2,)]) + encode([(3,)])
        ends.link.data_received(data[:7])
        assert ends.got == []
        ends.link.data_received(data[7:])
        assert ends.got == [(1,), (2,), (3,)]

    async def test_a_peer_that_speaks_something_else_is_left(self) -> None:
        ends = Ends()
        wire = ends.connect()
        ends.link.data_received(b"GET / HTTP/1.1\r\n\r\n")
        assert wire.aborted
        assert "at most" in str(ends.link.error)

    async def test_reading_is_paused_and_resumed_once(self) -> None:
        ends = Ends()
        ends.link.pause_reading()
        ends.link.resume_reading()
        wire = ends.connect()
        ends.link.resume_reading()
        ends.link.pause_reading()
        ends.link.pause_reading()
        assert not wire.reading
        ends.link.resume_reading()
        assert wire.reading

    async def test_close_sends_what_waits(self) -> None:
        ends = Ends()
        ends.link.close()
        wire = ends.connect()
        ends.link.send((1,))
        ends.link.close()
        assert wire.frames == [[(1,)]]
        assert wire.closed
        await turn()
        assert wire.frames == [[(1,)]]
