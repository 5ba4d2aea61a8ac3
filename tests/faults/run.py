"""A randomised run: clients of all kinds, publishers, faults; then everything heals, and the validators look at it."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.faults.crew import Crew
from tests.faults.faults import KINDS, Faults
from tests.faults.history import History
from tests.faults.stage import STREAM_BUFFER, Plan, Stage
from tests.faults.validators import ANSWERED, Case, Finding, Terms, judge, windows

__all__ = ["Report", "Scale", "run"]

FORMS: Final = ("stream", "stream", "stream", "poll", "poll", "socket", "socket", "plain", "ask", "chat", "direct")
"""Kinds of clients, in their proportions."""


QUIET: Final = 1.5
"""Seconds in which publishers go on when everything has healed: so that the last items are not all lost ones."""

CONVERGE: Final = 60.0
"""Seconds that clients may take to get what they lack, on a machine that does much else."""


@dataclass(frozen=True)
class Scale:
    """How large a run is.

    ``clients`` in all, ``channels``, ``rate`` of items per second of each publisher, ``seconds`` with faults,
    ``pause`` between two of them. ``faults`` are the kinds, each at least once; None: all. ``link``: seconds after
    which quiet clients' backends are asked; so many that it never happens show what comes without.
    """

    clients: int = 80
    channels: int = 10
    rate: float = 15.0
    seconds: float = 10.0
    pause: float = 0.7
    faults: tuple[str, ...] | None = None
    link: float = 3.0


@dataclass
class Report:
    """What a run did and found."""

    seed: int
    findings: list[Finding]
    faults: Counter[str]
    trouble: list[str]
    counts: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(self.faults.items()))
        counts = ", ".join(f"{number} {name}" for name, number in self.counts.items())
        return f"seed {self.seed}: {counts}; faults: {kinds}; findings: {len(self.findings)}"


async def run(
    folder: pathlib.Path, seed: int, scale: Scale, progress: Callable[[str], None] = lambda line: None
) -> tuple[Report, Case]:
    """Run it. ``progress`` gets a line every ten seconds."""
    history = History()
    stage = Stage(folder, Plan(seed, link=scale.link), history)
    chance = random.Random(seed)
    settled: dict[str, int] = {}
    try:
        await asyncio.to_thread(stage.start)
        crew = Crew(stage.ports["client"], history, seed)
        faults = Faults(stage, crew, history, seed)
        channels, calm = _channels(scale, stage.plan.backends)
        try:
            await asyncio.to_thread(stage.sample_memory)
            base = max(record.values[1] for record in history.select("memory"))
            _enrol(crew, chance, scale, channels, calm)
            await _begin(stage, crew, chance, scale, channels, calm)
            await _hurt(stage, crew, faults, chance, scale, progress)
            settled = await _settle(stage, crew, faults, history, channels + calm, progress)
        finally:
            await crew.leave()
            with contextlib.suppress(asyncio.CancelledError):
                await faults.heal()
    finally:
        await asyncio.to_thread(stage.close)
    history.merge(stage.diaries())
    slow = sum(facts.slow for facts in crew.facts.values())
    # What each client may cost, what may wait for the slow ones, what is on its way: see docs/guarantees.md.
    room = scale.clients * 32 + slow * 4 * STREAM_BUFFER // 1024 + 48 * 1024
    terms = Terms(memory_kb={"worker": base + room, "handler": base + room, "runner": base + room})
    case = Case(history, settled, crew.facts, terms)
    findings = [finding for found in judge(case).values() for finding in found]
    report = Report(seed, findings, faults.counts, stage.trouble, _counts(case, crew))
    return report, case


def _channels(scale: Scale, backends: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the channels that faults are aimed at, and those of the control group."""
    names = []
    for number in range(scale.channels):
        # Of every ten channels one is wide; those of slow readers are heavy and there are two.
        end = "-heavy" if number in (1, 2) else "-wide" if number % 10 == 5 else ""
        names.append(f"{backends[number % (len(backends) - 1)]}-{number}{end}")
    return names, [f"{backends[-1]}-{number}" for number in range(2)]


def _enrol(crew: Crew, chance: random.Random, scale: Scale, channels: list[str], calm: list[str]) -> None:
    for form in ("stream", "poll", "socket", "plain", "chat", "direct"):
        crew.add(form, [calm[len(crew.clients) % 2]], control=True)
    for channel in [name for name in channels if name.endswith("heavy")]:
        for form in ("stream", "plain", "stream"):
            crew.add(form, [channel], slow=True)
    for _ in range(max(2, scale.clients // 100)):
        crew.add("hostile", [channels[0]])
    light = [name for name in channels if not name.endswith("heavy")]
    # Every kind at least once, then by their proportions.
    forms = [*dict.fromkeys(FORMS), *(chance.choice(FORMS) for _ in range(scale.clients))]
    for form in forms[: max(len(set(FORMS)), scale.clients - len(crew.clients))]:
        wanted = [chance.choice(light)]
        if chance.random() < 0.15:
            # A second channel of the same backend.
            other = [name for name in light if name[0] == wanted[0][0] and name != wanted[0]]
            wanted += chance.sample(other, min(1, len(other)))
        crew.add(form, wanted)


async def _begin(
    stage: Stage, crew: Crew, chance: random.Random, scale: Scale, channels: list[str], calm: list[str]
) -> None:
    """Start the publishers, and wait until clients have got something."""
    ways = ("http", "pull", "sub", "rep")
    for number, way in enumerate(ways):
        stage.start_publisher(way, way, channels[number :: len(ways)], scale.rate, mischief=0.1)
    stage.start_publisher("calm", "http", calm, 2.0)
    assert await crew.until("got", scale.clients), crew.complaints()


async def _hurt(
    stage: Stage,
    crew: Crew,
    faults: Faults,
    chance: random.Random,
    scale: Scale,
    progress: Callable[[str], None],
) -> None:
    kinds = list(scale.faults if scale.faults is not None else KINDS)
    queue: list[str] = []
    begun = told = time.monotonic()
    while time.monotonic() < begun + scale.seconds:
        if not queue:
            queue = chance.sample(kinds, len(kinds))
        faults.begin(queue.pop())
        await asyncio.sleep(scale.pause * chance.uniform(0.5, 1.5))
        crew.check()
        faults.check()
        await faults.supervise()
        await asyncio.to_thread(stage.sample_memory)
        if time.monotonic() > told + 10:
            told = time.monotonic()
            progress(
                f"{told - begun:5.0f} s: {sum(faults.counts.values())} faults, {len(crew.history)} records,"
                f" {len(crew.behind(stage.lengths(crew.channels)))} reliable clients behind"
            )


async def _settle(
    stage: Stage,
    crew: Crew,
    faults: Faults,
    history: History,
    channels: list[str],
    progress: Callable[[str], None],
) -> dict[str, int]:
    """Let everything heal, publish one item more on each channel, and wait until the reliable clients have it."""
    await faults.heal()
    await faults.supervise()
    await asyncio.to_thread(stage.wait_for_intake)
    await asyncio.sleep(QUIET)
    await asyncio.to_thread(stage.stop_publishers)
    given = _given(stage, channels)
    begun = time.monotonic()
    alone = await crew.converge(given, CONVERGE)
    progress(f"{len(given)} of {len(channels)} channels need no help; {time.monotonic() - begun:.1f} s")
    if not alone:
        for name, channel in crew.lacking(given):
            history.add("stage", "behind", name, channel, given[channel])
    # For those who cannot know that they miss the last ones.
    for channel in channels:
        await asyncio.to_thread(stage.publish, channel)
    history.add("stage", "phase", "settling")
    truth = stage.lengths(channels)
    begun = time.monotonic()
    await crew.converge(truth, CONVERGE)
    progress(f"converged {time.monotonic() - begun:.1f} s after the last item, {len(crew.behind(truth))} did not")
    await asyncio.to_thread(stage.sample_memory)
    history.add("stage", "phase", "stop")
    return truth


def _given(stage: Stage, channels: list[str]) -> dict[str, int]:
    """Return the number of items of those channels whose last one was given to the service.

    By a publisher that waits for the answer. The others' clients cannot know of it.
    """
    truth = stage.lengths(channels)
    last = {(channel, number) for channel, number in truth.items()}
    return {
        record.values[0]: record.values[1]
        for record in stage.diaries()
        if record.what == "published"
        and record.values[:2] in last
        and record.values[2] not in ("lost", "failed")
        and record.who in ANSWERED
    }


def _counts(case: Case, crew: Crew) -> dict[str, int]:
    """What happened, in numbers: none of them may be nought."""
    history = case.history
    return {
        "clients": len(crew.clients),
        "items": sum(case.truth.values()),
        "expected": sum(
            case.truth[channel] for facts in case.clients.values() if facts.reliable for channel in facts.channels
        ),
        "delivered": sum(1 for record in history.select("got") if case.clients[record.who].reliable),
        "delivered without ids": sum(1 for record in history.select("got") if not case.clients[record.who].reliable),
        "recoveries": sum(1 for record in history.select("asked") if record.values[4]),
        "windows": sum(1 for _ in windows(case)),
        "reconnects": crew.reconnects,
    }
