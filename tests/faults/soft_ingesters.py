"""Ingesters of a soft topic in a run: parts of the keys that change hands, and requests that are repeated unchanged.

An ingester does as docs/soft-topics.md says: it gives its part of each version, and progress; it repeats a request
whose outcome is not known, gives all above its last progress to another epoch, resets its part after a conflict, and
gives progress for wider ranges when there are too many pieces. It may crash at any moment. What survives is the version
up to which progress was answered, for each elementary part.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from tests.faults.soft_source import CUTS, Source
from tests.support.hub_records import Keys
from tests.support.soft_records import Commit

__all__ = ["Ingesters"]

NDJSON: Final = {"Content-Type": "application/x-ndjson"}

PARTS: Final = [Keys(low, high) for low, high in zip([None, *CUTS], [*CUTS, None], strict=True)]
"""Elementary parts of the keys, in order."""

AWAY: Final = (502, 503)
"""Statuses while a part of the service is being started again."""

PAUSE: Final = 0.02
"""Seconds before a request is repeated, and between two looks at the source."""

BEAT: Final = 0.5
"""Seconds after which progress is given again, since the hub may have started anew."""

IMPATIENT: Final = 0.04
"""Share of requests of which an ingester does not await the answer."""

NO_EPOCH: Final = "0"
"""Name that no epoch has: the refusal names the window's own."""


def _span(first: int, last: int) -> dict[str, str | None]:
    """Return the bounds of the elementary parts from one to another."""
    return {"low": PARTS[first].low, "high": PARTS[last].high}


def _append(version: int, key: str, value: str | None) -> dict[str, Any]:
    event = {"op": "delete"} if value is None else {"data": value}
    return {"append": {"key": key, "version": str(version), **event}}


@dataclass
class Ingesters:
    """All ingesters of a topic, and what survives their ends.

    Args:
        session: of HTTP.
        url: of the topic.
        source: the source.
        chance: decides what they do.
        counts: of what happened.

    Attributes:
        given: version up to which progress was answered, for each elementary part.
        lazy: numbers of the parts whose progress is held back.
        wide: whether each ingester gives progress for all of its part only.
    """

    session: aiohttp.ClientSession
    url: str
    source: Source
    chance: random.Random
    counts: Counter[str]
    given: list[int] = field(default_factory=lambda: [0] * len(PARTS))
    lazy: set[int] = field(default_factory=set)
    wide: bool = False
    _tasks: dict[tuple[int, int], asyncio.Task[None]] = field(default_factory=dict)

    # --- beginnings and ends

    def start(self) -> None:
        """Cut the keys anew, and start an ingester for each part."""
        cuts = sorted(self.chance.sample(range(1, len(PARTS)), self.chance.randint(1, 3)))
        for first, end in zip([0, *cuts], [*cuts, len(PARTS)], strict=True):
            self._begin(first, end - 1)

    def _begin(self, first: int, last: int) -> None:
        self._tasks[first, last] = asyncio.ensure_future(_Ingester(self, first, last).run())

    async def stop(self) -> None:
        """End all ingesters at once, with their requests under way."""
        for part in list(self._tasks):
            await self._end(part)

    async def _end(self, part: tuple[int, int]) -> None:
        task = self._tasks.pop(part)
        task.cancel()
        for result in await asyncio.gather(task, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def crash(self) -> None:
        """End one ingester, with its request under way, and start it again, now and then with an older record."""
        first, last = self.chance.choice(list(self._tasks))
        await self._end((first, last))
        if self.chance.random() < 0.7:
            commits = self.source.history.source.commits[-80:-30] or [Commit(0)]
            older = self.chance.choice(commits).version
            for index in range(first, last + 1):
                self.given[index] = min(self.given[index], older)
        self._begin(first, last)

    async def change_hands(self) -> None:
        """End all ingesters, and start others with other parts."""
        await self.stop()
        self.lazy.clear()
        self.start()

    def check(self) -> None:
        """Raise the error of an ingester that has ended with one."""
        for task in self._tasks.values():
            if task.done():
                task.result()

    async def reset(self, *, restore: bool) -> None:
        """Reset everything: the source is another one than before.

        Args:
            restore: whether it is restored to an earlier version before.
        """
        await self.stop()
        self.source.serving = False
        if restore:
            self.source.restore()
        version = self.source.version
        lines = [{"reset": {}}, {"progress": {"version": str(version)}}]
        body, answer = "".join(json.dumps(line) + "\n" for line in lines), None
        while answer is None or answer["status"] != 200:
            # If an answer was lost, it is not known which epoch the window has now.
            window = await self.send(NO_EPOCH, [{"progress": {"version": "0"}}])
            answer = await self._attempt(window["epoch"], body)
        self.note(answer)
        self.given = [version] * len(PARTS)
        self.source.reached = version
        self.source.serving = True
        self.lazy.clear()
        self.start()

    # --- requests

    def note(self, answer: dict[str, Any]) -> None:
        """Note an answer 200."""
        self.source.history.answered(answer["epoch"], self.source.history.source.number)
        self.counts["ingested"] += answer["events"]
        self.counts["repeated"] += answer["repeated"]

    def answered(self, first: int, last: int, version: int) -> None:
        """Note the progress that was answered for the elementary parts from one to another."""
        for index in range(first, last + 1):
            self.given[index] = max(self.given[index], version)
        self.source.reached = max(self.source.reached, min(self.given))

    async def send(self, epoch: str, lines: Sequence[dict[str, Any]], *, impatient: bool = False) -> dict[str, Any]:
        """Send a request until it is answered.

        Args:
            epoch: that it names.
            lines: of the request.
            impatient: whether the first attempt is given up early.

        Returns:
            The answer with its status.
        """
        body = "".join(json.dumps(line) + "\n" for line in lines)
        patience = self.chance.random() * 0.02 if impatient else None
        while (answer := await self._attempt(epoch, body, patience)) is None:
            patience = None
            self.counts["again"] += 1
            await asyncio.sleep(PAUSE)
        return answer

    async def _attempt(self, epoch: str, body: str, patience: float | None = None) -> dict[str, Any] | None:
        """Send a request once; return the answer with its status, or None for an unknown outcome."""
        self.counts["requests"] += 1
        with contextlib.suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
            async with (
                asyncio.timeout(patience),
                self.session.post(f"{self.url}/ingest", params={"epoch": epoch}, data=body, headers=NDJSON) as response,
            ):
                if response.status not in AWAY:
                    return {**await response.json(content_type=None), "status": response.status}
        return None


class _Ingester:
    """One ingester, from its start to its end.

    Args:
        all: the ingesters.
        first: number of its first elementary part.
        last: number of its last one.
    """

    def __init__(self, all: Ingesters, first: int, last: int) -> None:
        self._all = all
        self._source = all.source
        self._chance = all.chance
        self._first = first
        self._last = last
        self._epoch = NO_EPOCH
        self._appended = 0
        """Version up to which it has appended its part to the window of its epoch."""
        self._beat = 0.0
        """Time in seconds from which on progress is given though nothing has happened."""
        self._conflict = False
        """Whether the part is to be reset."""

    async def run(self) -> None:
        """Give the changes of the part until cancelled."""
        while True:
            await self._turn()
            await asyncio.sleep(PAUSE * self._chance.random() * 4)

    def _part(self) -> range:
        return range(self._first, self._last + 1)

    async def _turn(self) -> None:
        """Send one request, and act as its answer says."""
        all, newest = self._all, self._source.version
        lazy = any(index in all.lazy for index in self._part())
        known = self._appended if lazy else min([all.given[index] for index in self._part()])
        if newest <= known and time.monotonic() < self._beat:
            return
        resets, events = self._lines(newest)
        # A reset is given with progress up to now: an earlier request that is late must not claim what it has dropped.
        whole = [(self._first, self._last, newest)]
        marks = whole if resets else [] if lazy else self._progress(newest)
        progress = [{"progress": {**_span(first, last), "version": str(version)}} for first, last, version in marks]
        if lines := [*resets, *events, *progress]:
            self._take(await all.send(self._epoch, lines, impatient=self._chance.random() < IMPATIENT), newest, marks)
        if self._conflict:
            await self._reset()

    def _take(self, answer: dict[str, Any], newest: int, marks: Sequence[tuple[int, int, int]]) -> None:
        """Act as an answer says."""
        all = self._all
        match answer["status"]:
            case 200:
                all.note(answer)
                self._epoch, self._appended, self._conflict = answer["epoch"], newest, False
                self._beat = time.monotonic() + BEAT
                for mark in marks:
                    all.answered(*mark)
            case 409:
                all.counts["conflicts"] += 1
                self._conflict = True
            case 410:
                # Events without progress are lost with the window: all above the last progress is given again.
                all.counts["other epochs"] += 1
                self._epoch, self._appended, self._beat = answer["epoch"], 0, 0.0
            case 429:
                assert answer["limit"] == "pieces", answer
                all.counts["limits"] += 1
                all.wide = True
            case _:
                raise AssertionError(answer)

    def _lines(self, newest: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return resets of the part up to a version, and its events in any order."""
        resets, events = list[dict[str, Any]](), list[dict[str, Any]]()
        # Now and then all above the last progress is given again, which is taken for once.
        appended = self._appended if self._chance.random() < 0.9 else 0
        for index in self._part():
            part = PARTS[index]
            commits = self._source.history.source.between(self._all.given[index], newest)
            truncated = max([each.version for each in commits if _truncates(each, part)], default=0)
            if truncated:
                resets.append({"reset": {"low": part.low, "high": part.high}})
                self._all.counts["truncated parts"] += 1
            for commit in commits:
                # A reset drops all before it.
                if commit.version > (truncated or appended):
                    within = [(key, value) for key, value in commit.changes.items() if part.has(key)]
                    events += [_append(commit.version, key, value) for key, value in within]
        if resets and self._all.wide:
            # Too many pieces: one that is wider.
            return [{"reset": _span(self._first, self._last)}], []
        self._chance.shuffle(events)
        return resets, events

    def _progress(self, newest: int) -> list[tuple[int, int, int]]:
        """Return first and last elementary part, and version, of each line of progress."""
        all, chance = self._all, self._chance
        roll = chance.random()
        if all.wide or roll < 0.15 or self._first == self._last:
            all.wide = all.wide and chance.random() < 0.7
            return [(self._first, self._last, newest)]
        if roll < 0.25:
            return []
        cut = chance.randint(self._first, self._last - 1)
        commits = self._source.history.source.between(max([all.given[index] for index in self._part()]), newest)
        earlier = chance.choice([each.version for each in commits] or [newest])
        marks = [(self._first, cut, newest), (cut + 1, self._last, earlier)]
        return [marks[1]] if roll < 0.4 else marks

    async def _reset(self) -> None:
        """Reset the part: it is complete up to now by a snapshot only."""
        span, newest = _span(self._first, self._last), self._source.version
        lines: list[dict[str, Any]] = [{"reset": span}, {"progress": {**span, "version": str(newest)}}]
        self._take(await self._all.send(self._epoch, lines), newest, [(self._first, self._last, newest)])


def _truncates(commit: Commit, part: Keys) -> bool:
    """Return whether a commit has removed the keys of an elementary part, whose bounds truncations share."""
    truncated = commit.truncated
    return (
        truncated is not None
        and (truncated.low or "") <= (part.low or "")
        and (truncated.high is None or (part.high is not None and part.high <= truncated.high))
    )
