"""Run of soft topics in the whole service: ``python -m tests.faults.soft_soak --minutes 2``.

Each topic has a source in this process, ingesters whose parts of the keys change, and watchers in all forms. Windows
are so small that they trim; hub, handler and workers are killed, ingesters crash, and sources are truncated and
restored. At the end the table of each watcher must be that of the source.

Exit status 1 if a promise was broken; the findings are printed, and the histories are kept in a file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import pathlib
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from tests.e2e.crowd import room_for_files
from tests.faults.soft_ingesters import Ingesters
from tests.faults.soft_source import Source
from tests.faults.soft_watchers import FORMS, Follower, LibraryWatcher, RawWatcher
from tests.support.hub import HubSite, hub_site
from tests.support.hub_history import Finding
from tests.support.hub_records import Measured
from tests.support.soft_records import History
from tests.support.soft_validators import judge

__all__ = ["SETTINGS", "Report", "Scale", "main", "run"]

TOPICS: Final = ("north", "south")

SETTINGS: Final = {
    "hub.soft_events_per_topic_max": "200",
    "hub.soft_bytes_per_owner_max": "180000",
    "hub.soft_pieces_per_topic_max": "5",
    "hub.prometheus_port": "127.0.0.1:{metrics}",
}
"""Bounds that the windows reach: two topics of one owner, with 200 events in two seconds."""

FAULTS: Final = ("hub", "handler", "worker")
"""Processes that are killed."""

REST: Final = 12.0
"""Seconds between two kills of one process: the runner gives up one whose starts fail five times within 30 s."""

MEMORY_MAX: Final = 300_000
"""Greatest resident size of the hub in kB."""

CONVERGE: Final = 60.0
"""Seconds that watchers have at the end to know everything."""

PAUSE: Final = 0.05

RESYNCS: Final = re.compile(r'^gripproxy_hub_window_resyncs_total\{reason="(\w+)"\} ([0-9.]+)$', re.MULTILINE)


@dataclass(frozen=True)
class Scale:
    """Size of a run.

    Attributes:
        watchers: number of watchers.
        seconds: for which there are faults.
        pause: seconds between two faults of processes.
        rate: transactions of a source in a second.
        wanted: names of counts; while one is nought there are faults for up to twice as long.
    """

    watchers: int = 80
    seconds: float = 60.0
    pause: float = 3.0
    rate: float = 15.0
    wanted: tuple[str, ...] = ()


@dataclass
class Report:
    """Result of a run.

    Attributes:
        seed: of its chance.
        histories: of the topics, by name.
        counts: of what happened.
    """

    seed: int
    histories: dict[str, History] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def findings(self) -> list[Finding]:
        """Findings about all topics."""
        return [
            Finding(finding.promise, f"topic {name}: {finding.text}")
            for name, history in self.histories.items()
            for found in judge(history).values()
            for finding in found
        ]

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        return f"soft topics, seed {self.seed}: {counts}; findings: {len(self.findings)}"


class _Run:
    """One run.

    Args:
        site: the service.
        session: of HTTP.
        report: of the run.
        scale: of the run.
    """

    def __init__(self, site: HubSite, session: aiohttp.ClientSession, report: Report, scale: Scale) -> None:
        self._site = site
        self._session = session
        self._report = report
        self._scale = scale
        self._chance = random.Random(report.seed)
        self._end = time.monotonic() + scale.seconds
        self._sources: dict[str, Source] = {}
        self._ingesters: dict[str, Ingesters] = {}
        self._watchers: dict[str, list[Follower]] = {}

    async def play(self) -> None:
        """Carry out the run."""
        async with contextlib.AsyncExitStack() as stack:
            for name in TOPICS:
                await self._make(name, stack)
            watching = await stack.enter_async_context(_tasks())
            for ingesters in self._ingesters.values():
                stack.push_async_callback(ingesters.stop)
                ingesters.start()
            working = await stack.enter_async_context(_tasks())
            for name in TOPICS:
                working += [asyncio.ensure_future(work(name)) for work in (self._commit, self._hurt_source)]
            working += [asyncio.ensure_future(work()) for work in (self._hurt, self._count)]
            for number in range(self._scale.watchers):
                watching.append(asyncio.ensure_future(self._watcher(number).run()))
                await asyncio.sleep(self._scale.seconds / 3 / self._scale.watchers)
                self._check(watching)
            while not all(task.done() for task in working):
                self._check([*watching, *[task for task in working if task.done()]])
                await asyncio.sleep(PAUSE)
            await self._converge(watching)
            self._measure()
        for name, source in self._sources.items():
            self._report.histories[name] = source.history
            self._report.counts["timelines"] += len(source.history.timelines)
            self._report.counts["commits"] += len(source.history.source.commits)
            self._report.counts["epochs"] += len(source.history.epochs)
        self._report.counts["watchers"] = self._scale.watchers

    def _check(self, tasks: list[asyncio.Future[None]]) -> None:
        """Raise the error of a task that has ended with one."""
        for task in tasks:
            if task.done():
                task.result()
        for ingesters in self._ingesters.values():
            ingesters.check()

    async def _make(self, name: str, stack: contextlib.AsyncExitStack) -> None:
        """Make a topic with its source."""
        chance, counts = random.Random(f"{self._report.seed} {name}"), self._report.counts
        source = await stack.enter_async_context(Source(History(), chance))
        source.commit()
        url = f"{self._site.url}/topics/{name}"
        settings = {"store": "none", "progress": 1, "snapshot_url": source.url}
        async with self._session.put(url, json=settings) as response:
            assert response.status == 201, await response.text()
        self._sources[name] = source
        self._ingesters[name] = Ingesters(self._session, url, source, chance, counts)
        self._watchers[name] = []

    def _watcher(self, number: int) -> Follower:
        topic, form = TOPICS[number % len(TOPICS)], FORMS[number // len(TOPICS) % len(FORMS)]
        name, url = f"{form}-{number}", f"{self._site.url}/topics/{topic}"
        chance, counts = random.Random(f"{self._report.seed} {name}"), self._report.counts
        if form == "library":
            watcher: Follower = LibraryWatcher(self._session, url, self._sources[topic], name, chance, counts)
        else:
            watcher = RawWatcher(self._session, url, self._sources[topic], name, chance, counts, form)
        self._watchers[topic].append(watcher)
        return watcher

    def _over(self) -> bool:
        """Return whether the faults are over."""
        late = time.monotonic() - self._end
        return late >= self._scale.seconds or (
            late >= 0.0 and all(self._report.counts[name] for name in self._scale.wanted)
        )

    # --- faults

    async def _commit(self, name: str) -> None:
        source = self._sources[name]
        while not self._over():
            await asyncio.sleep(self._chance.random() * 2 / self._scale.rate)
            if source.serving:
                source.commit()

    async def _hurt_source(self, name: str) -> None:
        """Have ingesters crash, lag, and hand over their parts; have the source truncated, and restored."""
        source, ingesters = self._sources[name], self._ingesters[name]
        acts: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            *[("crashes", ingesters.crash)] * 3,
            *[("handovers", ingesters.change_hands)] * 3,
            ("restores", lambda: ingesters.reset(restore=True)),
            ("full resets", lambda: ingesters.reset(restore=False)),
        ]
        await asyncio.sleep(1)
        for number in range(10**6):
            if self._over():
                break
            # Each kind once, then by chance.
            count, act = acts[number * 3 % len(acts)] if number < len(acts) else self._chance.choice(acts)
            await act()
            self._report.counts[count] += 1
            if self._chance.random() < 0.5:
                source.truncate()
                self._report.counts["truncations"] += 1
            if (roll := self._chance.random()) < 0.6:
                ingesters.lazy |= {self._chance.randrange(8)} if roll < 0.3 else set(range(8))
            await asyncio.sleep(self._chance.random() * 2)
            if self._chance.random() < 0.5:
                ingesters.lazy.clear()
        ingesters.lazy.clear()

    async def _hurt(self) -> None:
        """Kill processes."""
        killed: dict[str, float] = {}
        while not self._over():
            await asyncio.sleep(self._scale.pause * (0.5 + self._chance.random()))
            now = time.monotonic()
            rested = [kind for kind in FAULTS if now - killed.get(kind, 0.0) >= REST]
            if not rested:
                continue
            kind = self._chance.choice(rested)
            killed[kind] = now
            await self._answering()
            await asyncio.to_thread(self._site.kill, kind)
            self._report.counts[f"kills of {kind}"] += 1
        await self._answering()

    async def _answering(self) -> None:
        """Wait until the hub answers: a child that is killed while it starts counts as a failed start too."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                async with self._session.get(f"{self._site.url}/topics/{TOPICS[0]}") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(PAUSE)

    async def _count(self) -> None:
        """Add up the hub's own counts of resyncs, which begin anew with each start."""
        before: dict[str, float] = {}
        while not self._over():
            await asyncio.sleep(0.2)
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                async with self._session.get(f"http://127.0.0.1:{self._site.metrics}/metrics") as response:
                    found = {reason: float(value) for reason, value in RESYNCS.findall(await response.text())}
                for reason, value in found.items():
                    last = before.get(reason, 0.0)
                    self._report.counts[f"ranges: {reason}"] += int(value - last if value >= last else value)
                before = found

    # --- the end

    async def _converge(self, watching: list[asyncio.Future[None]]) -> None:
        """Wait until all watchers know the newest version of their source."""
        for source in self._sources.values():
            source.commit(50)
        deadline = time.monotonic() + CONVERGE
        while time.monotonic() < deadline and not all(self._complete(name) for name in TOPICS):
            self._check(watching)
            await asyncio.sleep(PAUSE)
        for source in self._sources.values():
            source.history.complete = set(source.history.watchers)

    def _complete(self, name: str) -> bool:
        version = self._sources[name].version
        return all(watcher.place >= version for watcher in self._watchers[name])

    def _measure(self) -> None:
        status = pathlib.Path(f"/proc/{self._site.pid('hub')}/status").read_text()
        [peak] = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
        self._sources[TOPICS[0]].history.measured.append(Measured("memory of the hub in kB", peak, MEMORY_MAX))


@contextlib.asynccontextmanager
async def _tasks() -> AsyncIterator[list[asyncio.Future[None]]]:
    """Tasks that are cancelled at the end."""
    tasks: list[asyncio.Future[None]] = []
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run(site: HubSite, seed: int, scale: Scale) -> Report:
    """Carry out one run.

    Args:
        site: a running service with ``SETTINGS``.
        seed: of the chance that decides transactions, watchers and faults.
        scale: of the run.
    """
    report = Report(seed)
    timeout = aiohttp.ClientTimeout(total=CONVERGE)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await _Run(site, session, report, scale).play()
    return report


def main(arguments: list[str] | None = None, note: Callable[[str], object] = print) -> int:
    """Run once.

    Args:
        arguments: of the command line; None for those of the process.
        note: called with each line of the result.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--watchers", type=int, default=80)
    parser.add_argument("--rate", type=float, default=15.0, help="transactions of a source in a second")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between two faults of processes")
    options = parser.parse_args(arguments)
    scale = Scale(options.watchers, options.minutes * 60, options.pause, options.rate)
    note(f"soft topics, seed {options.seed}: {scale}")
    with room_for_files(4 * options.watchers + 1000), hub_site(SETTINGS) as site:
        report = asyncio.run(run(site, options.seed, scale))
        log = site.log
    if report.findings:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="soft-history-"))
        for name, history in report.histories.items():
            commits = [commit for timeline in history.timelines for commit in (timeline.number, *timeline.commits)]
            records = [*history.epochs.items(), *commits, *history.steps]
            (folder / f"{name}.txt").write_text("".join(f"{record}\n" for record in records))
        (folder / "log.txt").write_text(log)
        for finding in report.findings:
            note(str(finding))
        note(f"the whole history is in {folder}")
    note(str(report))
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
