"""A short run without chance that touches every guarantee once, for telling mutants from the real thing.

Streams on two channels, items that overtake each other, one sent twice and one never, a hold with a window, one slow
reader and a control group beside it.
"""

from __future__ import annotations

import asyncio
import pathlib
import time
from typing import Final

import zmq

from tests.faults.crew import Crew
from tests.faults.history import History
from tests.faults.mutants import TARGET
from tests.faults.publisher import by_socket, item, open_socket
from tests.faults.stage import Plan, Stage
from tests.faults.truth import ChannelLog
from tests.faults.validators import Case, Terms

__all__ = ["drill"]

BURST: Final = 1500
"""Items of 20 kB for a client that does not read: 30 MB."""

ROOM_KB: Final = 14 * 1024
"""What the worker may use beyond its start: some buffers of 64 KB, and what is on its way."""


async def drill(folder: pathlib.Path, mutant: str, patience: float) -> Case:
    """Run it and return what has come of it. ``patience`` in seconds for what should come but may not."""
    history = History()
    # Neither links that are fetched in time nor updates after first subscriptions may repair what should not break.
    plan = Plan(1, workers=1, backends=("a", "calm"), link=100, window=0, mutant=mutant, update=False)
    stage = Stage(folder, plan, history)
    try:
        await asyncio.to_thread(stage.start)
        crew = Crew(stage.ports["client"], history, 1)
        try:
            await _play(stage, crew, history, patience)
        finally:
            await crew.leave()
        channels = sorted({channel for facts in crew.facts.values() for channel in facts.channels})
        truth = stage.lengths(channels)
    finally:
        await asyncio.to_thread(stage.close)
    assert not stage.trouble, stage.trouble[0]
    base = next(record.values[1] for record in history.select("memory") if record.values[0] == "worker 1")
    history.merge(stage.diaries())
    return Case(history, truth, crew.facts, Terms(deadline=patience, memory_kb={"worker": base + ROOM_KB}))


async def _play(stage: Stage, crew: Crew, history: History, patience: float) -> None:
    await asyncio.to_thread(stage.sample_memory)
    streams = [crew.add("stream", ["a-1"]) for _ in range(2)]
    crew.add("stream", ["a-2"])
    plain = crew.add("plain", ["a-1"])
    sleeper = crew.add("plain", ["a-4-heavy"], slow=True)
    crew.add("stream", ["calm-0"], control=True)
    crew.add("plain", ["calm-0"], control=True)
    assert await crew.until("opened", 7), crew.complaints()
    publish = stage.publish
    for channel in ("a-1", "a-2"):
        for _ in range(TARGET + 2):
            await asyncio.to_thread(publish, channel)
    await crew.until("got", TARGET + 2, patience, plain)
    log = ChannelLog(stage.truth, "a-1")
    log.refresh()
    written = [log.append() for _ in range(3)]
    log.close()
    await asyncio.to_thread(stage.publish_again, "a-1", written[1])  # overtakes
    await asyncio.to_thread(stage.publish_again, "a-1", written[0])
    await asyncio.to_thread(stage.publish_again, "a-1", written[0])  # twice
    # The third is never published; what follows shows the gap.
    await asyncio.to_thread(publish, "a-1")
    await crew.converge(stage.lengths(["a-1", "a-2"]) | {"calm-0": 0}, patience)
    await _window(stage, crew, history, patience)
    await _slow(stage, crew, sleeper.name, patience)
    assert streams[0].connection == streams[1].connection == 1


async def _window(stage: Stage, crew: Crew, history: History, patience: float) -> None:
    """An item is published while the backend, which has not seen it, takes its time to answer."""
    await asyncio.to_thread(stage.command_backend, "a", "think", 10.0)
    late = crew.add("stream", ["a-2"])
    before = stage.lengths(["a-2"])["a-2"]
    deadline = time.monotonic() + 20
    while not any(r.what == "asked" and r.values[0].startswith(late.name) for r in stage.diaries()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    await asyncio.to_thread(stage.publish, "a-2")
    await asyncio.to_thread(stage.command_backend, "a", "", 0.0)
    await crew.until("got", before + 1, patience, late)


async def _slow(stage: Stage, crew: Crew, sleeper: str, patience: float) -> None:
    """One client stops reading while very much comes for it; the others do not notice."""
    crew.clients[sleeper].pause()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    log = ChannelLog(stage.truth, "a-4-heavy")

    def burst() -> None:
        sock = open_socket(context, "pull", stage.ports["pull"])
        send = by_socket(sock, "pull")
        for _ in range(BURST):
            one = item("a-4-heavy", log.append())
            del one["formats"]["ws-message"], one["formats"]["http-response"]
            send(one)
        sock.close(5000)

    sending = asyncio.create_task(asyncio.to_thread(burst))
    while not sending.done():
        await asyncio.to_thread(stage.sample_memory)
        await asyncio.sleep(0.1)
    await sending
    log.close()
    for _ in range(3):
        await asyncio.to_thread(stage.publish, "calm-0")
    await asyncio.to_thread(context.term)
    await crew.converge(stage.lengths(["a-1", "a-2", "calm-0"]), patience)
    for client in crew.clients.values():
        if client.control:
            await crew.until("got", 3, patience, client)
    await asyncio.to_thread(stage.sample_memory)
    crew.clients[sleeper].go_on()
