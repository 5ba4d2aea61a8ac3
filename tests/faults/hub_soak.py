"""Run of a hub as real processes, with watchers, readers, caches, publishers and faults: ``make soak``.

    python -m tests.faults.hub_soak --minutes 10 --watchers 300

Exit status 1 if a promise was broken; the findings are printed, and the histories are kept in a file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import pathlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from griphub import WatchReportKind
from tests.e2e.crowd import room_for_files
from tests.faults import hub_callback, hub_faults
from tests.faults.hub_callback import Callback
from tests.faults.hub_crowd import AWAY, FORMS, KEYS, PAUSE, Publisher, Reader, Topic
from tests.faults.hub_faults import HubFaults
from tests.faults.hub_sharder import Sharder
from tests.faults.hub_watchers import WATCH_FORMS, Watcher
from tests.support.hub import HubSite, hub_site
from tests.support.hub_history import Finding, judge
from tests.support.hub_recorder import Recorder
from tests.support.hub_records import WHOLE, History, Measured

__all__ = ["CONFIG", "Report", "Scale", "main", "run"]

# All clients are of one owner.
CONFIG: Final = {**hub_callback.CONFIG, **hub_faults.CONFIG, "hub.ranges_per_owner_max": "2000"}
"""Changes of the config of ``hub_site``."""

TOPICS: Final[Mapping[str, Mapping[str, Any]]] = {
    "kept": {},
    "trimmed": {},
    "compacted": {"retention": {"events": 30, "compact": True}},
    "reborn": {},
}
"""Settings of the topics by name: one without retention, two whose retention changes, one that is deleted and made
again."""

RETAINED: Final[Mapping[str, tuple[int | None, ...]]] = {
    "trimmed": (None, 10, 30, 100, 300),
    "compacted": (5, 10, 30, 100),
}
"""Numbers of retained events, by topic."""

SHARDED: Final = ("compacted", "trimmed", "reborn")
"""Topics that have caches."""

MEMORY_MAX: Final = 400_000
"""Greatest resident size of a process of the hub in kB: the bounds of its queues, and the interpreter."""

CONVERGE: Final = 60.0
"""Seconds that readers have at the end to receive everything."""


@dataclass(frozen=True)
class Scale:
    """Size of a run.

    Attributes:
        readers: number of readers.
        watchers: number of watchers.
        publishers: number of publishers.
        gap: greatest number of seconds between two requests of a publisher.
        seconds: for which there are faults.
        pause: seconds between two faults.
    """

    readers: int = 60
    watchers: int = 60
    publishers: int = 3
    gap: float = 0.2
    seconds: float = 60.0
    pause: float = 3.0


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
        return f"hub, seed {self.seed}: {counts}; findings: {len(self.findings)}"


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
        self._over = False
        self.topics = {name: Topic(name, f"{site.url}/topics/{name}", Recorder(name)) for name in TOPICS}
        self.readers: list[Reader] = []
        self.watchers: list[Watcher] = []
        self.sharders = [
            Sharder(site.url, self.topics[name], random.Random(f"{report.seed} {name}")) for name in SHARDED
        ]
        self.callback = Callback(self.topics["kept"])
        self._large = Publisher(session, "large", self._chance)
        self.faults = HubFaults(site, self._serving, self.topics, self._large, self._chance)

    async def ask(self, method: str, url: str, body: Any = None) -> tuple[int, Any]:
        """Send a request until it is answered; return status and JSON."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                async with self._session.request(method, url, json=body) as response:
                    if response.status not in AWAY:
                        return response.status, await response.json() if response.status < 204 else None
            await asyncio.sleep(PAUSE)

    async def _serving(self) -> None:
        status, _ = await self.ask("GET", self.topics["kept"].url)
        assert status == 200, status

    async def make(self, topic: Topic) -> None:
        """Make a topic."""
        status, answer = await self.ask("PUT", topic.url, {"progress": 1, **TOPICS[topic.name]})
        assert status in (200, 201), status
        topic.recorder.made(answer)
        topic.last.clear()

    # --- the run

    async def play(self) -> None:
        """Carry out the run."""
        for topic in self.topics.values():
            await self.make(topic)
        async with contextlib.AsyncExitStack() as stack:
            runner = await self.callback.open(self._session)
            stack.push_async_callback(runner.cleanup)
            reading = await stack.enter_async_context(_tasks())
            working = await stack.enter_async_context(_tasks())
            reading += [asyncio.ensure_future(sharder.run()) for sharder in self.sharders]
            working += [asyncio.ensure_future(self._publish(number)) for number in range(self._scale.publishers)]
            working += [asyncio.ensure_future(work()) for work in (self._retain, self._make_again)]
            working.append(asyncio.ensure_future(self._hurt()))
            crowd: list[Callable[[int], Reader | Watcher]] = [
                self._reader,
                *[self._watcher] * round(self._scale.watchers / self._scale.readers),
            ]
            for number in range(self._scale.readers):
                reading += [asyncio.ensure_future(member(number).run()) for member in crowd]
                await asyncio.sleep(self._scale.seconds / 2 / self._scale.readers)
                _check(reading + working)
            await asyncio.gather(*working)
            await self._converge(reading)
            self._measure()
        for topic in self.topics.values():
            history = topic.recorder.history
            followers: list[Reader | Watcher | Sharder] = [*self.readers, *self.watchers, *self.sharders]
            history.complete = {follower.name for follower in followers if follower.topic is topic}
            self._report.histories[topic.name] = topic.recorder.finish(self._site.directory / "hub.db")
        self._count()

    async def _converge(self, reading: list[asyncio.Future[None]]) -> None:
        """Publish events of all keys, and wait until everybody has all."""
        publisher = Publisher(self._session, "last", self._chance)
        for topic in self.topics.values():
            await publisher.publish(topic, [None, *KEYS])
        for sharder in self.sharders:
            sharder.moving = False
        deadline = time.monotonic() + CONVERGE
        newest = max(topic.last_in(WHOLE) for topic in self.topics.values())
        while time.monotonic() < deadline and not (
            all(reader.place >= reader.topic.last_in(reader.keys) for reader in self.readers)
            and all(watcher.place >= newest for watcher in self.watchers)
            and all(sharder.version >= newest for sharder in self.sharders)
            and self.callback.place >= self.callback.topic.last_in(WHOLE)
        ):
            _check(reading)
            await asyncio.sleep(PAUSE)
        self.callback.topic.recorder.history.pushed[self.callback.name] = self.callback.ids

    # --- the crowd

    def _reader(self, number: int) -> Reader:
        form = FORMS[number % len(FORMS)]
        topic = self.topics[self._chance.choice(list(TOPICS))]
        key = self._chance.choice(["", "", *KEYS])
        truncated = self._chance.random() < 0.3
        reader = Reader(
            self._session, topic, f"{form}-{number}{'-' if key else ''}{key}", form, key, truncated=truncated
        )
        self.readers.append(reader)
        return reader

    def _watcher(self, number: int) -> Watcher:
        form = WATCH_FORMS[self._chance.randrange(len(WATCH_FORMS))]
        topic = self.topics[self._chance.choice(list(TOPICS))]
        name = f"{form}-{len(self.watchers)}"
        watcher = Watcher(self._session, topic, name, form, random.Random(f"{self._report.seed} {name} {number}"))
        self.watchers.append(watcher)
        return watcher

    # --- faults and writers

    async def _hurt(self) -> None:
        await self.faults.run(time.monotonic() + self._scale.seconds, self._scale.pause)
        self._over = True

    async def _publish(self, number: int) -> None:
        chance = random.Random(self._report.seed * 1000 + number)
        publisher = Publisher(self._session, f"publisher-{number}", chance)
        while not self._over:
            await publisher.publish(self.topics[chance.choice(list(TOPICS))])
            await asyncio.sleep(chance.random() * self._scale.gap)
        self._report.counts["published"] += publisher.events
        self._report.counts["deleted"] += publisher.deletions
        self._report.counts["replayed"] += publisher.repeated

    async def _retain(self) -> None:
        """Change the retention of topics."""
        while not self._over:
            await asyncio.sleep(self._chance.random() * 2)
            name = self._chance.choice(list(RETAINED))
            events = self._chance.choice(RETAINED[name])
            status, _ = await self.ask("PATCH", self.topics[name].url, {"retention": {"events": events}})
            assert status == 200, status
            self._report.counts["retentions"] += 1

    async def _make_again(self) -> None:
        """Delete a topic and make it again."""
        topic = self.topics["reborn"]
        while not self._over:
            await asyncio.sleep(self._scale.seconds / 6 * (0.5 + self._chance.random()))
            async with topic.lock:
                status, _ = await self.ask("DELETE", topic.url)
                # 404: an attempt that was not answered has deleted it.
                assert status in (204, 404), status
                await asyncio.sleep(self._chance.random() * 0.5)
                await self.make(topic)
            self._report.counts["deletions of topics"] += 1

    # --- the end

    def _count(self) -> None:
        counts = self._report.counts
        counts.update(self.faults.counts)
        for reader in self.readers:
            counts["received"] += reader.got
            counts["reports"] += reader.told
        for watcher in self.watchers:
            counts["watched"] += watcher.got
            counts["progress"] += watcher.progress
            counts["resyncs"] += watcher.told
            counts["snapshots"] += watcher.snapshots
            counts["earlier snapshots"] += watcher.earlier
        for sharder in self.sharders:
            counts["handovers"] += sharder.moves
            counts["region reads"] += sharder.reads
            counts["unknown regions"] += sharder.unknown
            counts["resyncs of caches"] += sharder.reports[WatchReportKind.RESYNC]
            disorder = Measured(f"disorder at {sharder.name}", sharder.reports[WatchReportKind.DISORDER], 0)
            sharder.topic.recorder.history.measured.append(disorder)
        for history in self._report.histories.values():
            counts["lost"] += sum(len(restored.events or ()) for restored in history.restores)
            if history.compact:
                answered = {id for answer in history.answers for id in answer.ids if id <= history.floor}
                counts["compacted"] += len(answered - {event.id for event in history.store})
                counts["kept below the floor"] += sum(event.id <= history.floor for event in history.store)
        counts["pushed"] = len(self.callback.ids)
        counts["readers"] = len(self.readers)
        counts["watchers"] = len(self.watchers)

    def _measure(self) -> None:
        for kind in ("hub", "writer_process", "reader_process"):
            status = pathlib.Path(f"/proc/{self._site.pid(kind)}/status").read_text()
            [peak] = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
            measured = Measured(f"memory of {kind} in kB", peak, MEMORY_MAX)
            self.topics["kept"].recorder.history.measured.append(measured)


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


def _check(tasks: list[asyncio.Future[None]]) -> None:
    """Raise the error of a task that has ended with one."""
    for task in tasks:
        if task.done():
            task.result()


async def run(site: HubSite, seed: int, scale: Scale) -> Report:
    """Carry out one run.

    Args:
        site: a running service with a hub.
        seed: of the chance that decides readers, publications and faults.
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
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--watchers", type=int, default=300)
    parser.add_argument("--pause", type=float, default=6.0, help="seconds between two faults, on average")
    parser.add_argument("--gap", type=float, default=0.8, help="greatest number of seconds between two publications")
    options = parser.parse_args(arguments)
    scale = Scale(options.readers, options.watchers, gap=options.gap, seconds=options.minutes * 60, pause=options.pause)
    note(f"hub, seed {options.seed}: {scale}")
    with room_for_files(4 * (options.readers + options.watchers) + 1000), hub_site(CONFIG) as site:
        report = asyncio.run(run(site, options.seed, scale))
        log = site.log
    if report.findings:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="hub-history-"))
        for name, history in report.histories.items():
            records = [*history.answers, *history.steps, *history.store]
            (folder / f"{name}.txt").write_text("".join(f"{record}\n" for record in records))
        (folder / "log.txt").write_text(log)
        for finding in report.findings:
            note(str(finding))
        note(f"the whole history is in {folder}")
    note(str(report))
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
