"""Scenarios of short runs of a hub with watchers, each at a place where progress or a resync is easily wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from griphub import service
from griphub.processes.progress_loop import ProgressLoop
from griphub.processes.readers import ReaderPool
from griphub.store.event import Event
from griphub.topics.fanout import FanOut
from tests.faults.hub_scenarios import A_ONLY, Scenario, restored_with
from tests.faults.hub_stage import PATIENCE, TOPIC, Stage
from tests.support.hub import until
from tests.support.hub_records import WHOLE, Keys, Progressed

__all__ = ["SCENARIOS"]


def _watch(stage: Stage) -> None:
    """Begin watchers of the whole topic and of ranges, in both representations."""
    stage.follow("whole", "watch-sse")
    stage.follow("whole lines", "watch-lines")
    stage.follow("range", "watch-sse", A_ONLY)
    stage.follow("single", "watch-lines", Keys("b", "b!"))


async def _end(stage: Stage) -> None:
    """Settle, with progress at the end."""
    await stage.settle()
    stage.progress()
    await stage.settle()


async def watched(stage: Stage) -> None:
    """Events and progress take turns, in replay and live."""
    for number in range(3):
        await stage.publish(*(f"{number}.{place}" for place in range(4)), keys=("a", "b", None, "a"))
    _watch(stage)
    await stage.settle()
    for number in range(3, 6):
        stage.progress()
        await stage.publish(*(f"{number}.{place}" for place in range(4)), keys=("b", "a", "z", "b"))
        stage.progress()
        await stage.publish(f"{number}.only", keys=("z",))
    await _end(stage)


async def waiting(stage: Stage) -> None:
    """Progress is given while events wait for their items."""
    _watch(stage)
    await stage.settle()
    add = FanOut.add

    def then_progress(self: FanOut, number: int, events: Sequence[Event]) -> bool:
        more = add(self, number, events)
        stage.progress()
        return more

    stage.patch.setattr(FanOut, "add", then_progress)
    for number in range(3):
        await stage.publish(f"{number}.0", f"{number}.1", keys=("a", "b"))
    await _end(stage)


async def lost(stage: Stage) -> None:
    """An item is lost between the handler and a worker, and progress comes behind it."""
    stage.follow("range", "watch-lines", A_ONLY)
    await stage.settle()
    stage.handler.losses = 1
    await stage.publish("one", keys=("a",))
    await until(lambda: not stage.handler.losses, "the loss")
    stage.progress()
    await _end(stage)


async def seam(stage: Stage) -> None:
    """An event, and progress, come between the answer that holds a watcher and the hold."""
    await stage.publish("first", keys=("a",))
    for name, keys in (("whole", WHOLE), ("range", A_ONLY)):

        async def meanwhile(name: str = name) -> None:
            items = stage.handler.items
            stage.progress()
            await stage.publish(f"meanwhile {name}", keys=("a",))
            await until(lambda: stage.handler.items > items, "the item of the event")
            stage.progress()

        stage.at_next_hold(meanwhile)
        stage.follow(name, "watch-sse", keys)
        await stage.settle()
    await _end(stage)


async def in_parts(stage: Stage) -> None:
    """A version is read from the store in parts, behind the death of the writer, with progress behind each."""
    _watch(stage)
    await stage.settle()
    work = FanOut.work

    def then_progress(self: FanOut, *arguments: int) -> bool:
        more = work(self, *arguments)
        stage.progress()
        return more

    stage.patch.setattr(FanOut, "work", then_progress)
    stage.patch.setattr(service, "STORED_PAGE", 2)
    read = ReaderPool.events_after

    async def after_a_turn(self: ReaderPool, *arguments: Any, **owner: Any) -> Any:
        # The fan-out has its turn first.
        for _ in range(3):
            await asyncio.sleep(0)
        return await read(self, *arguments, **owner)

    stage.patch.setattr(ReaderPool, "events_after", after_a_turn)
    await stage.publish(*(f"part {number}" for number in range(7)), keys=("a",) * 7)
    await _end(stage)


async def trimmed(stage: Stage) -> None:
    """The floor passes the place of a watcher between its request and its first read."""
    for number in range(8):
        await stage.publish(f"event {number}", keys=("a",))
    render = ReaderPool.render_page

    async def behind_retention(self: ReaderPool, *arguments: Any, **owner: Any) -> Any:
        stage.patch.setattr(ReaderPool, "render_page", render)
        response = await stage.api.request("PATCH", f"/topics/{TOPIC}", {"retention": {"events": 3}})
        assert response.status == 200, response
        await stage.api.wait_for_count(TOPIC, 3)
        return await render(self, *arguments, **owner)

    stage.patch.setattr(ReaderPool, "render_page", behind_retention)
    stage.follow("late", "watch-lines", A_ONLY)
    await stage.settle()
    assert stage.readers["late"].ended or stage.history.steps


async def clock_back(stage: Stage) -> None:
    """The hub restarts, and its clock goes back meanwhile; nothing is published."""
    clock = [1_800_000_000_000_000]

    def now(self: ProgressLoop) -> int:
        return clock[0]

    stage.patch.setattr(ProgressLoop, "_now", now)
    await stage.restart_hub()
    await stage.publish("one", keys=("a",))
    stage.follow("whole", "watch-sse")
    await stage.settle()
    for _ in range(3):
        stage.progress()
        await stage.settle()
    clock[0] -= 1
    await stage.restart_hub()
    await stage.settle()
    for _ in range(3):
        stage.progress()
        await stage.settle()


async def restarted(stage: Stage) -> None:
    """The hub restarts under its watchers; then an event is published."""
    _watch(stage)
    await stage.publish("one", "two", keys=("a", "b"))
    await _end(stage)
    await stage.restart_hub()
    await stage.settle()
    await stage.publish("three", "four", keys=("a", "b"))
    await _end(stage)


async def quiet(stage: Stage) -> None:
    """A watcher of a range in which nothing happens; the hub's own schedule gives it progress."""
    stage.follow("quiet", "watch-lines", Keys("y", "z"))
    await stage.settle()
    await stage.publish("elsewhere", keys=("a",))
    steps, newest = stage.history.steps, stage.history.answers[-1].version

    def known() -> bool:
        return any(isinstance(step, Progressed) and step.cursor >= newest for step in steps)

    # It is overdue after one second; the validator tells of a watcher that does not know.
    with contextlib.suppress(AssertionError):
        await until(known, "progress", PATIENCE / 2)
    await stage.settle()


async def snapshots(stage: Stage) -> None:
    """Snapshots are read at the newest version and at earlier ones."""
    cursors = []
    for number in range(4):
        await stage.publish(f"{number}.a", f"{number}.z", f"{number}.key", keys=("a", "z", f"b{number}"))
        page = await stage.ask(f"/topics/{TOPIC}/events?limit=1000", {})
        cursors.append(page.json["cursor"])
    for number, cursor in enumerate(cursors):
        await stage.snapshot("whole", cursor)
        await stage.snapshot(f"range {number}", cursor, Keys("b", "c"))
    await stage.snapshot("whole")


async def compacted(stage: Stage) -> None:
    """A key is deleted above the floor to which a topic is compacted."""
    await stage.publish("one", keys=("a",))
    await stage.publish("two", "three", "four", keys=("b", "b", "c"))
    cursor = (await stage.ask(f"/topics/{TOPIC}/events", {})).json["cursor"]
    await stage.publish("gone", keys=("a",), deletions=("gone",))
    await stage.publish("five", "six", keys=("d", "e"))
    response = await stage.api.request("PATCH", f"/topics/{TOPIC}", {"retention": {"events": 4, "compact": True}})
    assert response.status == 200, response
    await stage.api.wait_for_count(TOPIC, 6)
    await stage.snapshot("whole")
    await stage.snapshot("whole", cursor)
    await stage.snapshot("range", keys=A_ONLY)


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "watched": Scenario(watched),
    "waiting": Scenario(waiting),
    "lost": Scenario(lost, learned=True),
    "seam": Scenario(seam, learned=True),
    "in-parts": Scenario(in_parts, children=("dies-behind-a-commit",)),
    "trimmed": Scenario(trimmed),
    "clock-back": Scenario(clock_back),
    "restarted": Scenario(restarted),
    "quiet": Scenario(quiet, topic={"progress": 1}),
    "restored": Scenario(partial(restored_with, forms=("watch-sse", "watch-lines", "poll"))),
    "snapshots": Scenario(snapshots),
    "compacted": Scenario(compacted),
}
"""All scenarios by name."""
