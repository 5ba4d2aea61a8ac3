"""Connection of the pipe. The transport is only memory."""

from __future__ import annotations

import asyncio
from typing import Any

from gripproxy import pipe
from gripproxy.pipe import Decoder, Message, PipeConnection, encode
from gripproxy.pipe.connection import FRAME_MESSAGES


def test_the_socket_is_in_the_run_directory() -> None:
    class Globals:
        rundir, ipc_prefix = "/run/x", "one-"

    class Settings:
        globals = Globals

    assert pipe.socket_path(Settings()) == "/run/x/one-pipe"


class Wire(asyncio.Transport):
    """A connection that keeps what is written, and blocks the writer when it is told to."""

    def __init__(self, link: PipeConnection) -> None:
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
        self.link = PipeConnection(
            lambda link, messages: self.got.extend(messages), self._on_lost, bound, self._on_overflow
        )

    def connect(self) -> Wire:
        return Wire(self.link)

    def _on_lost(self, link: PipeConnection) -> None:
        self.lost += 1

    def _on_overflow(self, link: PipeConnection) -> None:
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
        for messages in ([(1,), (2,)], [(number,) for number in range(FRAME_MESSAGES)]):
            for message in messages:
                ends.link.send(message)
            await turn()
            counted.append(ends.link.written)
        assert counted == [2, 2 + FRAME_MESSAGES]
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
        for n in range(FRAME_MESSAGES * 3 + 1):
            ends.link.send((n,))
        await turn()
        assert [len(frame) for frame in wire.frames] == [FRAME_MESSAGES] * 2
        assert ends.link.queued == FRAME_MESSAGES + 1
        ends.link.resume_writing()
        await turn()
        assert [message for frame in wire.frames for message in frame] == [(n,) for n in range(FRAME_MESSAGES * 3 + 1)]

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
