"""A link whose other end is gone while this end writes: what the other end had written before arrives all the same."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from gripproxy import pipe

PATIENCE = 20.0


def frames(*messages: pipe.Message) -> bytes:
    """The messages, each in a frame of its own, as the pipe carries them."""
    return b"".join(pipe.encode([message]) for message in messages)


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("rest", [b"", b"\0"], ids=["whole", "torn frame"])
def test_what_was_written_before_the_end_arrives(new_loop: object, rest: bytes) -> None:
    """As when a handler ends, or is killed, right when a worker has something to tell it."""
    said = [(n, f"item {n}", "x" * 1_000) for n in range(100)]
    got: list[pipe.Message] = []

    async def run() -> None:
        lost = asyncio.Event()
        ours, theirs = socket.socketpair()
        link = pipe.PipeConnection(lambda link, messages: got.extend(messages), lambda link: lost.set())
        with theirs:
            await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=ours)
            link.send(("never read",))
            await asyncio.sleep(0)  # the turn in which it leaves
            theirs.sendall(frames(*said) + rest)
        link.send(("to nobody",))
        await asyncio.wait_for(lost.wait(), PATIENCE)

    with asyncio.Runner(loop_factory=new_loop) as runner:  # type: ignore[arg-type]
        runner.run(run())
    assert got == said
