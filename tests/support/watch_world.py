"""World of watching clients: a store, its hub, connections that tear, and caches that hand ranges over, step by step.

The watchers and caches are the real ones, without sockets and clock. A step is a name and two numbers, which choose
among the things that there are, so that any list of steps is a run.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from griphub.client.cached_value import CachedValue, mutation_of
from griphub.client.errors import BadAnswer
from griphub.client.key_range import WHOLE, KeyRange
from griphub.client.snapshot import SnapshotLines, SnapshotVersion
from griphub.client.snapshot_cache_state import CacheAction, FeedEnded, SnapshotCacheState, StartFeed, StopFeed
from griphub.client.stitched import NotKnown, View
from griphub.client.watch_actions import (
    AskApplication,
    Deliver,
    Fail,
    OpenStream,
    TakeSnapshot,
    WatchAction,
    WatchReport,
)
from griphub.client.watch_lines import WatchLines
from griphub.client.watch_messages import Snapshot, Version, WatchMessage
from griphub.client.watch_state import WatchState

__all__ = ["STEPS_OF_CACHES", "Client", "Step", "Store", "World", "random_steps", "run"]

KEYS: Final = [*"abcdefghij", "é", "\U0001f600", "zz"]
BOUNDS: Final = [*"abcdefghij", "zz", "\U0001f600\0"]
RESTORE_GAP: Final = 2**32

Step = tuple[str, int, int]
State = dict[str, int]


@dataclass
class Store:
    """Truth: transactions by epoch, as a restore copies and continues them."""

    epoch: str = "e1"
    floor: int = 0
    next: int = 1
    lines: dict[str, list[tuple[int, tuple[tuple[str, int | None], ...]]]] = field(default_factory=lambda: {"e1": []})
    last: dict[str, int] = field(default_factory=dict)
    """Last number of each earlier epoch that is still one of this history."""

    @property
    def version(self) -> int:
        """Number of the newest version."""
        line = self.lines[self.epoch]
        return max(line[-1][0] if line else 0, self.floor)

    def commit(self, *events: tuple[str, int | None]) -> None:
        """Store a transaction.

        Args:
            events: keys and values, in order; None for a deletion.
        """
        number = self.next + len(events) - 1
        self.next = number + 1
        self.lines[self.epoch].append((number, events))

    def restore(self, transactions: int) -> None:
        """Restore a backup that lacks the last transactions."""
        line = self.lines[self.epoch]
        kept = line[: max(0, len(line) - transactions)]
        backup = kept[-1][0] if kept else 0
        self.last = {epoch: min(last, backup) for epoch, last in {**self.last, self.epoch: backup}.items()}
        self.epoch = f"e{len(self.lines) + 1}"
        self.lines[self.epoch] = list(kept)
        self.next = max(self.next, backup) + RESTORE_GAP
        self.floor = min(self.floor, backup)

    def trim(self, number: int) -> None:
        """Raise the floor to the version with a ``number``."""
        self.floor = max(self.floor, number)

    def has(self, version: Version) -> bool:
        """Return whether all behind a version is retained."""
        if not version.epoch:
            return self.floor == 0
        last = self.version if version.epoch == self.epoch else self.last.get(version.epoch, -1)
        return self.floor <= version.number <= last

    def behind(self, number: int) -> list[tuple[int, tuple[tuple[str, int | None], ...]]]:
        """Return the transactions behind the version with a ``number``, of this history."""
        return [each for each in self.lines[self.epoch] if each[0] > number]

    def state(self, version: Version, range: KeyRange) -> State:
        """Return the values of a range at a version."""
        state: State = {}
        for number, events in self.lines.get(version.epoch, []) if version.epoch else []:
            for key, value in events if number <= version.number else ():
                if key in range:
                    state.pop(key, None)
                    if value is not None:
                        state[key] = value
        return state

    def event(self, number: int, index: int) -> dict[str, Any]:
        """Return an event as the hub gives it.

        Args:
            number: of the version of its transaction.
            index: of the event among those of the transaction.
        """
        events = dict(self.lines[self.epoch])[number]
        key, value = events[index]
        id = number - len(events) + 1 + index
        return {
            "type": "event",
            "id": str(id),
            "cursor": f"{self.epoch}.{id}",
            "prev_id": "0",
            "version": str(number),
            "version_cursor": f"{self.epoch}.{number}",
            "time": "2026-01-01T00:00:00.000001Z",
            "key": key,
            "op": "delete" if value is None else "put",
            "content_type": "application/json",
            "data": value,
        }


def _text(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


class Stream:
    """Answer under way: bytes that the hub has written and the client has not read.

    Args:
        store: truth.
        range: keys that were asked for.
        cursor: place that the watch begins at; None for a snapshot.
    """

    def __init__(self, store: Store, range: KeyRange, cursor: str | None) -> None:
        self.store = store
        self.range = range
        self.written = bytearray()
        self.recent: list[bytes] = []
        self.ended = False
        self.place = Version.of(cursor or "0")
        self.parts: dict[str, int] = {}
        if cursor is None:
            self._snapshot()

    def _write(self, document: dict[str, Any]) -> None:
        text = _text(document)
        self.written += text
        self.recent = [*self.recent[-5:], text]

    def _snapshot(self) -> None:
        store = self.store
        version, cursor = str(store.version), f"{store.epoch}.{store.version}"
        self._write({"type": "snapshot", "version": version, "cursor": cursor})
        newest: dict[str, dict[str, Any]] = {}
        for number, events in store.lines[store.epoch]:
            for index, (key, _) in enumerate(events):
                if key in self.range:
                    newest[key] = store.event(number, index)
        for _, event in sorted(newest.items()):
            if event["op"] == "put":
                self._write(event)
        self._write({"complete": version, "cursor": cursor})
        self.ended = True

    def pump(self, transactions: int) -> None:
        """Write the events of the next transactions, or a resync."""
        if self.ended:
            return
        store = self.store
        if not store.has(self.place):
            floor = f"{store.epoch}.{store.floor}"
            self._write({"type": "resync", "floor_cursor": floor, "snapshot": "snapshot", "reason": "not retained"})
            self.ended = True
            return
        for number, events in store.behind(self.place.number)[:transactions]:
            for index, (key, _) in enumerate(events):
                if key in self.range:
                    self._write(store.event(number, index))
            self.place = Version(store.epoch, number)

    def progress(self, part: KeyRange) -> None:
        """Write progress of the range, or of a part of it, up to the newest version that was written."""
        if self.ended or not self.store.has(self.place):
            return
        self._progress(self.range.overlap(part) or self.range, self.place)

    def ahead(self, part: KeyRange) -> None:
        """Write progress of a part of the range in which nothing has happened since, up to the newest version."""
        common = self.range.overlap(part)
        if self.ended or common is None or not self.store.has(self.place) or self.place.epoch != self.store.epoch:
            return
        later = self.store.behind(self.place.number)
        if any(key in common for _, events in later for key, _ in events):
            return
        self._progress(common, Version(self.store.epoch, max([self.place.number, *(number for number, _ in later)])))

    def _progress(self, range: KeyRange, version: Version) -> None:
        epoch = version.epoch or self.store.epoch
        cursor = f"{epoch}.{version.number}.123456"
        document = {"type": "progress", "low": range.low or None, "high": range.high, "cursor": cursor}
        self._write({**document, "version": str(version.number)})

    def repeat(self) -> None:
        """Write the last lines again, as after a publication that was repeated."""
        if not self.ended:
            self.written += b"".join(line for line in self.recent if b'"event"' in line)


class Client:
    """Watcher with its connection.

    Args:
        world: it lives in.
        range: watched range.
        cursor: place that it begins at; None for a snapshot.
        receive: receives its messages.
    """

    def __init__(
        self,
        world: World,
        range: KeyRange,
        cursor: str | None,
        receive: Callable[[WatchMessage], None] | None = None,
    ) -> None:
        self.world = world
        self.range = range
        self.start = cursor
        self.messages: list[WatchMessage] = []
        self.reports: list[WatchReport] = []
        self.failure: str | None = None
        self.receive = receive
        self.state = WatchState(range, cursor, lambda: 0.5)
        self.stream: Stream | None = None
        self._request: OpenStream | TakeSnapshot | AskApplication | None = None
        self._lines: WatchLines | SnapshotLines = WatchLines()
        self.apply(self.state.begin(world.now))

    def apply(self, actions: Sequence[WatchAction]) -> None:
        """Carry out actions."""
        for action in actions:
            match action:
                case Deliver(message):
                    self.messages.append(message)
                    if self.receive is not None:
                        self.receive(message)
                case WatchReport():
                    self.reports.append(action)
                    self.stream = None
                case Fail(reason):
                    self.failure, self.stream = reason, None
                case OpenStream(_, cursor):
                    self._request, self._lines = action, WatchLines()
                    self.stream = Stream(self.world.store, self.range, cursor)
                case TakeSnapshot():
                    self._request, self._lines = action, SnapshotLines()
                    self.stream = Stream(self.world.store, self.range, None)

    def read(self, size: int) -> None:
        """Read bytes that the hub has written; at the end of the answer also its end."""
        stream, request = self.stream, self._request
        if stream is None or request is None:
            return
        data = bytes(stream.written[:size])
        del stream.written[:size]
        for actions in self._fed(request.number, data):
            self.apply(actions)
            if self.stream is not stream:
                return
        if stream.ended and not stream.written:
            self._end()

    def _fed(self, number: int, data: bytes) -> Iterator[list[WatchAction]]:
        now = self.world.now
        if isinstance(self._lines, WatchLines):
            for line in self._lines.feed(data):
                if line is not None:
                    yield self.state.line(number, line, now)
            return
        for message in self._lines.feed(data):
            if isinstance(message, SnapshotVersion):
                yield self.state.versioned(number, message.cursor, now)
            else:
                yield self.state.taken(number, message, 1, now)

    def cut(self) -> None:
        """Cut the connection."""
        if self.stream is not None:
            self._end()

    def _end(self) -> None:
        assert self._request is not None
        number, now = self._request.number, self.world.now
        self.stream = None
        if isinstance(self._lines, SnapshotLines) and self._lines.complete:
            self.apply(self.state.complete(number, now))
        else:
            self.apply(self.state.ended(number, "cut", now))

    def timer(self) -> None:
        """Call the timer."""
        self.apply(self.state.timer(self.world.now))


class World:
    """Run of steps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.store = Store()
        self.caches = [SnapshotCacheState(history=5.0), SnapshotCacheState(history=5.0)]
        self.feeds: list[dict[int, Client]] = [{}, {}]
        self.watchers: list[Client] = []
        self.ended: list[Client] = []
        self.findings: list[str] = []
        self.reads = 0
        self.unknown = 0
        self.value = 0

    @property
    def clients(self) -> list[Client]:
        """Watchers of the application and of caches that are at work."""
        return [*self.watchers, *self.feeds[0].values(), *self.feeds[1].values()]

    def step(self, step: Step) -> None:
        """Do a step."""
        name, one, other = step
        getattr(self, f"_{name}")(one, other)

    # --- steps

    def _commit(self, one: int, other: int) -> None:
        chosen = random.Random(one)
        events: list[tuple[str, int | None]] = []
        for _ in range(1 + other % 4):
            self.value += 1
            events.append((chosen.choice(KEYS), None if chosen.random() < 0.3 else self.value))
        self.store.commit(*events)

    def _pump(self, one: int, other: int) -> None:
        client = self._client(one)
        if client is not None and client.stream is not None:
            client.stream.pump(1 + other % 5)
            client.read((1 + other % 7) * 100)

    def _read(self, one: int, other: int) -> None:
        client = self._client(one)
        if client is not None:
            client.read(1 + other)

    def _progress(self, one: int, other: int) -> None:
        client = self._client(one)
        if client is not None and client.stream is not None:
            client.stream.progress(WHOLE if other % 2 else self._range(other))

    def _ahead(self, one: int, other: int) -> None:
        client = self._client(one)
        if client is not None and client.stream is not None:
            client.stream.ahead(self._range(other))

    def _repeat(self, one: int, other: int) -> None:
        client = self._client(one)
        if client is not None and client.stream is not None:
            client.stream.repeat()

    def _cut(self, one: int, other: int) -> None:
        client = self._client(one)
        if client is not None:
            client.cut()

    def _trim(self, one: int, other: int) -> None:
        numbers = [number for number, _ in self.store.lines[self.store.epoch]]
        if numbers and other % 4 == 0:
            self.store.trim(numbers[-1 - one % min(len(numbers), 8)])

    def _restore(self, one: int, other: int) -> None:
        if one % 4 == 0:
            self.store.restore(other % 4)

    def _wait(self, one: int, other: int) -> None:
        self.now += 0.5 * (1 + one % 12)
        for client in self.clients:
            client.timer()

    def _watch(self, one: int, other: int) -> None:
        cursor = "0" if one % 3 else None
        given = [message.cursor for client in self.watchers for message in client.messages[-1:]]
        if given and one % 3 == 1:
            cursor = given[other % len(given)]
        if len(self.watchers) < 6:
            self.watchers.append(Client(self, self._range(other), cursor))

    def _assign(self, one: int, other: int) -> None:
        """Move ranges between the caches, as a sharder does: the new owner may know first, or last."""
        bounds = sorted({BOUNDS[(one >> shift) % len(BOUNDS)] for shift in (0, 3, 6)})
        ranges = [KeyRange.of(low, high) for low, high in zip([None, *bounds], [*bounds, None], strict=True)]
        owners = [[each for index, each in enumerate(ranges) if (other >> index) % 2 == cache] for cache in (0, 1)]
        for cache in (0, 1) if other % 3 else (1, 0):
            known = self.caches[1 - cache].regions() if other % 5 else []
            self._apply(cache, self.caches[cache].assign(owners[cache], known))

    def _look(self, one: int, other: int) -> None:
        ranges = [self._range(one), self._range(other)]
        both = self.caches[1].regions() if other % 8 else []
        found = self.caches[0].read(ranges, both)
        self.judge(found, ranges)
        if isinstance(found, View):
            for back in range(one % 12):
                earlier = Version(found.version.epoch, found.version.number - back)
                self.judge(self.caches[0].read(ranges, both, at=earlier), ranges)

    def judge(self, found: View[CachedValue] | NotKnown, ranges: Sequence[KeyRange]) -> None:
        """Compare a read with the history.

        Args:
            found: answer.
            ranges: that were asked for.
        """
        self.reads += 1
        if isinstance(found, NotKnown):
            self.unknown += 1
            return
        real = {key: data for each in ranges for key, data in self.store.state(found.version, each).items()}
        seen = {key: value.data for key, value in found.items()}
        if seen != real:
            self.findings.append(f"read at {found.version} of {list(map(str, ranges))}: {seen}, it was {real}")
        elif any((value.data if (value := found.get(key)) else None) != real.get(key) for key in real):
            self.findings.append(f"single keys at {found.version} differ")

    # --- parts

    def _client(self, one: int) -> Client | None:
        clients = self.clients
        return clients[one % len(clients)] if clients else None

    def _range(self, other: int) -> KeyRange:
        low, high = sorted((BOUNDS[other % len(BOUNDS)], BOUNDS[(other >> 4) % len(BOUNDS)]))
        if low == high:
            return WHOLE if other % 2 else KeyRange(low, None)
        return KeyRange(low, high)

    def _apply(self, cache: int, actions: Sequence[CacheAction]) -> None:
        for action in actions:
            match action:
                case StartFeed(number, range, cursor):
                    self.feeds[cache][number] = Client(self, range, cursor, self._receiver(cache, number))
                case StopFeed(number):
                    client = self.feeds[cache].pop(number)
                    client.state.stop()
                    self.ended.append(client)
                case FeedEnded():
                    pass

    def _receiver(self, cache: int, number: int) -> Callable[[WatchMessage], None]:
        state = self.caches[cache]

        def receive(message: WatchMessage) -> None:
            if not isinstance(message, Snapshot):
                self._apply(cache, state.taken(number, message, self.now))
                return
            builder = state.builder(number, message.version)
            if builder is not None:
                half = len(message.events) // 2
                for part in (message.events[:half], message.events[half:]):
                    builder.add([found for event in part if (found := mutation_of(event)) is not None])
                self._apply(cache, state.replaced(number, builder.region()))

        return receive

    def heal(self) -> None:
        """Bring all watchers to the newest version."""
        for _ in range(200):
            for client in self.clients:
                client.timer()
                if client.stream is not None:
                    client.stream.pump(1_000_000)
                    if client.stream is not None and not client.stream.ended:
                        client.stream.progress(WHOLE)
                    client.read(1_000_000)
            newest = Version(self.store.epoch, self.store.version)
            if all(client.messages and client.messages[-1].version == newest for client in self.clients):
                return
            self.now += 6.0
        self.findings.append("watchers do not reach the newest version")

    def finish(self) -> list[str]:
        """Heal, read all, and return the findings of reads."""
        self._commit(1, 1)
        self.heal()
        ranges = [range for cache in self.caches for range, _ in cache.ranges]
        if ranges and not self.findings:
            found = self.caches[0].read(ranges, self.caches[1].regions())
            self.judge(found, ranges)
            if isinstance(found, NotKnown):
                self.findings.append(f"after all has healed: {found}")
        return self.findings


_STEPS: Final = ("commit", "pump", "read", "progress", "ahead", "repeat", "cut", "trim", "restore", "wait", "watch")
STEPS_OF_CACHES: Final = (*_STEPS, "assign", "look")
WEIGHTS: Final = (8, 20, 6, 8, 3, 3, 2, 1, 1, 4, 2, 2, 12)


def random_steps(seed: int, number: int) -> list[Step]:
    """Return the steps of a run.

    Args:
        seed: of the choice.
        number: of steps.
    """
    chosen = random.Random(seed)
    names = chosen.choices(STEPS_OF_CACHES, WEIGHTS, k=number)
    begin: list[Step] = [("assign", chosen.randrange(512), chosen.randrange(64)), ("watch", 0, chosen.randrange(256))]
    return [*begin, *((name, chosen.randrange(1000), chosen.randrange(1000)) for name in names)]


def run(steps: Sequence[Step]) -> World:
    """Return the world after steps, healed.

    Args:
        steps: the steps.
    """
    world = World()
    try:
        for step in steps:
            world.step(step)
        world.finish()
    except (ValueError, LookupError, BadAnswer) as error:
        world.findings.append(f"{type(error).__name__}: {error}")
    return world
