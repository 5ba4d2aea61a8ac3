"""Work queues: releases are brought to machines, by workers with bad luck, in three ways at the same time.

    HUB_URL=http://localhost:7999/hub python examples/work_queues/run.py [--seconds N] [--without-if-match]

An operator publishes which release each machine ought to have. Two crews take these events for steps of a queue: one
acknowledges a step before it carries it out, one afterwards. The third crew takes them for the desired state, and
watches. All have the same operator, sharder and faults, and write the actual state to a topic of their own, whose
history shows in the end how they did.

Exit status: 0 if the watching crew has no anomaly and the queues have some.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from crew import Crew, now
from faults import Fault
from judge import Write, judge
from machines import MACHINES, RANGES
from queue_worker import QueueWorker
from reconciler import Reconciler
from report import complaints, ours, story, table
from worker import Worker

from griphub import Publisher, ReceivedEvent, Selection
from griphub.client.connection import HubConnection
from griphub.client.history import read_history
from griphub.client.snapshot import read_snapshot

DESIRED = "desired"
WORKERS = [f"worker {number}" for number in range(1, 5)]

PACE = 0.1
"""Seconds between two machines of a release: a range has twice the time that its actions take."""

HURRY = 0.02
"""Seconds between two machines of each third release, which repairs a bad one: less time than the actions take."""

RELEASES_MIN = 7
"""Least number of releases: each fault is met."""

MISFORTUNES = (Fault.STOP, Fault.DIE_BEFORE, Fault.DIE_AFTER)
"""Faults, one during each second release, from the last but one backwards."""

PATIENCE = 60.0
"""Seconds for the crews to end their work."""


async def operate(publisher: Publisher, crews: Sequence[Crew], releases: int, note: Callable[[str], None]) -> list[str]:
    """Roll out all releases, machine by machine, and arm faults.

    Args:
        publisher: of the desired state.
        crews: those that meet the faults.
        releases: number of releases.
        note: prints a line.

    Returns:
        Cursors of the last release by machine, as in ``MACHINES``.
    """
    cursors: list[str] = []
    for release in range(1, releases + 1):
        rest = releases - release
        fault = MISFORTUNES[rest // 2 % len(MISFORTUNES)] if rest % 2 else None
        note(f"release {release} for all machines" + (f"; {fault.value}" if fault else ""))
        for crew in crews:
            if fault:
                crew.faults.arm(fault, MACHINES[5 * release % len(MACHINES)], release)
        cursors = []
        for machine in MACHINES:
            cursors.append((await publisher.publish({"version": release}, key=machine)).cursor)
            await asyncio.sleep(HURRY if release % 3 == 0 else PACE)
    return cursors


async def finish(crew: Crew, done: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a crew has nothing left to do; the judge finds out if it never has.

    Args:
        crew: the crew.
        done: returns true when no work is known that is not begun.
    """
    end = now() + PATIENCE
    while crew.under_way or not await done():
        if now() > end:
            crew.note(f"has not finished within {PATIENCE:.0f} s")
            return
        await asyncio.sleep(0.05)


async def releases_of(connection: HubConnection, topic: str) -> dict[str, int]:
    """Return the release of each machine, from a snapshot of a topic.

    Args:
        connection: to the hub.
        topic: name of the topic.
    """
    events = read_snapshot(connection, topic)
    return {str(event.key): event.data["version"] async for event in events if isinstance(event, ReceivedEvent)}


async def history(connection: HubConnection, topic: str) -> list[Write]:
    """Return all events of a topic, for the judge.

    Args:
        connection: to the hub.
        topic: name of the topic.
    """
    events = read_history(connection, topic, Selection(after="0"))
    return [Write.of(event) async for event in events if isinstance(event, ReceivedEvent)]


async def play(url: str, seconds: float, conditional: bool) -> bool:
    """Make topics, let the crews work, and judge them.

    Args:
        url: of the hub.
        seconds: time of the operator's work, in seconds.
        conditional: whether the watching crew's writes have conditions.

    Returns:
        Whether the watching crew has no anomaly, and each of the queues has some.
    """
    begin, clock = now(), datetime.now(UTC)

    def note(text: str) -> None:
        print(f"{now() - begin:5.1f} s  {text}", flush=True)

    releases = max(RELEASES_MIN, round(3 * seconds / ((2 * PACE + HURRY) * len(MACHINES))))
    names = ("ack first", "ack last", "watch")
    first, last, watch = crews = [Crew(name, f"actual-{name.replace(' ', '-')}", url, releases, note) for name in names]
    workers: list[Worker] = [
        QueueWorker(crew, name, DESIRED, crew is first) for crew in (first, last) for name in WORKERS
    ]
    workers += [Reconciler(watch, name, DESIRED, conditional) for name in WORKERS]
    async with HubConnection(url) as connection:
        for topic in (DESIRED, *(crew.topic for crew in crews)):
            await connection.request("DELETE", ("topics", topic))
            await connection.request("PUT", ("topics", topic), body=b'{"progress":1}')
        async with Publisher(url, DESIRED) as operator, asyncio.TaskGroup() as group:
            tasks = [group.create_task(worker.live()) for worker in workers]
            cursors = await operate(operator, crews, releases, note)
            goals = {range: [c for m, c in zip(MACHINES, cursors, strict=True) if m in range][-1] for range in RANGES}

            async def acknowledged(crew: Crew) -> bool:
                return crew.offsets == goals

            async def in_place() -> bool:
                return await releases_of(connection, watch.topic) == dict.fromkeys(MACHINES, releases)

            await finish(first, lambda: acknowledged(first))
            await finish(last, lambda: acknowledged(last))
            await finish(watch, in_place)
            for task in tasks:
                task.cancel()
        desired = await history(connection, DESIRED)
        verdicts = {crew.title: judge(desired, await history(connection, crew.topic)) for crew in crews}
    print("\n" + table(verdicts, watch.counts) + "\n")
    print("\n".join([*story(last.title, verdicts[last.title], clock), *ours(watch.title, watch.counts)]), flush=True)
    found = complaints(verdicts)
    print("".join(f"\n{text}\n" for text in found), end="", flush=True)
    return not found


def main() -> int:
    """Return the exit status, after playing with the options of the command line."""
    parser = argparse.ArgumentParser(description="A queue of steps and a watch of the desired state, side by side.")
    parser.add_argument("--seconds", type=float, default=12.0, help="of the operator's work (default %(default)s)")
    parser.add_argument(
        "--without-if-match",
        action="store_true",
        help="leave the condition out of the watching crew's writes, to see that it is needed",
    )
    options = parser.parse_args()
    good = asyncio.run(play(os.environ["HUB_URL"], options.seconds, not options.without_if_match))
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
