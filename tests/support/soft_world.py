"""World of one soft topic: a source, ingesters with partitions of their own, a window and its followers.

``play`` lets chance decide, and returns everything that breaks a promise. The source is the truth: versions that put
and delete keys, each version a state. Ingesters repeat requests, are late, change their partitions and reset; followers
have ranges of all kinds, start at versions of snapshots, and read pages up to where live events begin.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from griphub.windows.bounds import WindowBounds
from griphub.windows.decisions import Accepted, Refused, Release, Resync, Settled, StartKind
from griphub.windows.ingest_lines import IngestLine, Progress, Reset
from griphub.windows.positions import Position
from griphub.windows.soft_event import SoftEvent, complete
from griphub.windows.span import ALL, TOP, Span
from griphub.windows.window import Window

__all__ = ["SoftWorld", "event", "play", "settle"]

KEYS = "abcdefghij"


def event(key: str, version: int, data: str = "1", op: str = "put") -> SoftEvent:
    """Return an event that was not taken in yet."""
    return SoftEvent(version, 0, key, "delete" if op == "delete" else "put", data.encode(), "application/json", {})


def settle(window: Window, *lines: IngestLine, epoch: str | None = None, now: int = 0) -> Accepted | Refused:
    """Hand in one request and return its outcome; decisions about followers are dropped."""
    number = window.submit(lines, epoch)
    outcomes = {}
    while window.busy:
        for decision in window.turn(now):
            if isinstance(decision, Settled):
                outcomes[decision.number] = decision.outcome
    return outcomes[number]


@dataclass
class _Follower:
    """Follower with its own table, which must be the source's at each progress."""

    span: Span
    table: dict[str, str]
    version: int
    position: Position | None = None
    open: bool = False
    seen: set[tuple[int, str]] = field(default_factory=set)


class SoftWorld:
    """World whose course is decided by a seed.

    Args:
        seed: of chance.
        bounds: bounds of the window.
    """

    def __init__(self, seed: int, bounds: WindowBounds) -> None:
        self.chance = random.Random(seed)
        self.findings: list[str] = []
        self.resyncs = 0
        self.releases = 0
        self.conflicts = 0
        self._numbers = count(1)
        self.window = Window(lambda: f"e{next(self._numbers)}", bounds)
        self._restarts = bounds
        self.states: list[dict[str, str]] = [{}]
        """State of the source at each version."""
        self.log: list[list[SoftEvent]] = [[]]
        """Events of each version."""
        self.resets: list[tuple[int, Span]] = []
        """Versions without events, and their ranges."""
        self.appended: dict[Span, tuple[str, int]] = {}
        """Epoch and version up to which each partition has appended: some ingesters do not append that again."""
        self.partitions = [ALL]
        self.sent = {ALL: 0}
        """Version up to which each partition has given progress."""
        self.followers: list[_Follower] = []
        self.now = 0

    # --- the source and its ingesters

    def write(self) -> None:
        """Commit a version with several keys."""
        state = dict(self.states[-1])
        version = len(self.states)
        events = []
        for key in self.chance.sample(KEYS, self.chance.randint(1, 4)):
            if key in state and self.chance.random() < 0.3:
                del state[key]
                events.append(event(key, version, "", "delete"))
            else:
                state[key] = str(version)
                events.append(event(key, version, str(version)))
        self.states.append(state)
        self.log.append(events)

    def ingest(self) -> None:
        """Let an ingester send the next versions of its partition, sometimes twice, sometimes without progress."""
        span = self.chance.choice(self.partitions)
        known, newest = self.sent[span], len(self.log) - 1
        if known == newest and self.chance.random() < 0.7:
            return
        if any(version > known and span.overlaps(old) for version, old in self.resets):
            self.again(span)
            return
        version = self.chance.randint(known, newest)
        ahead = self.chance.randint(version, newest)
        epoch, appended = self.appended.get(span, ("", 0))
        whole = epoch != self.window.epoch or self.chance.random() < 0.5
        first = known + 1 if whole else max(known, appended) + 1
        self.appended[span] = (self.window.epoch, max(ahead, appended if not whole else 0))
        within = [each for events in self.log[first : ahead + 1] for each in events if span.low <= each.key < span.high]
        self.chance.shuffle(within)
        lines: list[IngestLine] = [*within]
        kept = self.chance.random() < 0.8
        if kept:
            lines.append(Progress(span, version))
        for _ in range(self.chance.randint(1, 2)):
            refused = self.submit(lines, self.window.epoch)
            if refused is None and self.chance.random() < 0.3:
                refused = self.submit(within, self.window.epoch)
            if refused is not None:
                # Parts of its events were released under another partition, and dropped since.
                self.again(span)
                return
        if kept:
            self.sent[span] = version

    def again(self, span: Span) -> None:
        """Reset a range: it is complete up to the newest version by a snapshot only."""
        version = len(self.log) - 1
        self.submit([Reset(span), Progress(span, version)], None)
        self.sent[span] = version
        self.appended = {}

    def submit(self, lines: Sequence[IngestLine], epoch: str | None) -> Refused | None:
        """Send a request, carry out the decisions, and return its refusal."""
        self.window.submit(lines, epoch)
        refused = None
        while self.window.busy:
            refused = self.turn() or refused
        return refused

    def turn(self) -> Refused | None:
        """Let the window do a slice, and return the refusal of a request."""
        refused = None
        self.now += self.chance.randint(-2, 5)
        for decision in self.window.turn(self.now):
            if isinstance(decision, Release):
                self.released(decision)
            elif isinstance(decision, Resync):
                self.resync(decision.span)
            elif isinstance(decision.outcome, Refused):
                self.conflicts += 1
                refused = decision.outcome
                # Repeats of events that were dropped meanwhile are refused; a new event never is.
                if decision.outcome.progress is None and decision.outcome.line:
                    self.findings.append(f"refused: {decision.outcome.detail}")
        return refused

    def repartition(self) -> None:
        """Cut the keys anew: each part begins at the least progress of the old ones that it overlaps."""
        cuts = sorted(self.chance.sample(KEYS[1:], self.chance.randint(0, 3)))
        lows, highs = ["", *cuts], [*cuts, TOP]
        spans = [Span(low, high) for low, high in zip(lows, highs, strict=True)]
        self.sent = {span: min(version for old, version in self.sent.items() if old.overlaps(span)) for span in spans}
        self.partitions = spans
        self.appended = {}

    def reset(self) -> None:
        """Reset a range: the source has a state of its own choice there, in a new version."""
        span = self.chance.choice([*self.partitions, ALL])
        version = len(self.states)
        kept = {key: value for key, value in self.states[-1].items() if not span.low <= key < span.high}
        inside = {key: f"{version}r" for key in KEYS if span.low <= key < span.high and self.chance.random() < 0.5}
        self.states.append(kept | inside)
        # The version has no events: a snapshot is the only way to it.
        self.log.append([])
        self.resets.append((version, span))
        self.submit([Reset(span), Progress(span, version)], None)
        self.appended = {}
        for old in self.partitions:
            if span.low <= old.low and old.high <= span.high:
                self.sent[old] = version

    def restart(self) -> None:
        """Lose the window, as a restart of the hub does; ingesters append again all above their last progress."""
        self.window = Window(lambda: f"e{next(self._numbers)}", self._restarts)
        for follower in self.followers:
            follower.open = False

    # --- followers

    def follow(self) -> None:
        """Let a new follower read a snapshot and start, or one that was cut off continue."""
        closed = [follower for follower in self.followers if not follower.open]
        if closed and self.chance.random() < 0.7:
            follower = self.chance.choice(closed)
        else:
            low, high = sorted(self.chance.sample([*KEYS, "", TOP], 2))
            follower = _Follower(Span(low, high), {}, -1)
            self.followers.append(follower)
        span = follower.span
        if follower.position is None or self.window.resume(span, follower.position).kind is not StartKind.KNOWN:
            follower.position = None
            self.snapshot(follower)
        if follower.version < 0 or self.window.start(span, follower.version).kind is not StartKind.KNOWN:
            follower.version = -1
            return
        if not self.window.follow(span):
            return
        while self.window.busy:
            self.turn()
        if self.window.released(span) is None:
            return
        after = complete(follower.version) if follower.position is None else follower.position.place
        upto = self.window.released(span)
        assert upto is not None
        while True:
            page = self.window.read(span, after, upto, self.chance.randint(1, 5))
            if not page:
                break
            for each in page:
                self.give(follower, each)
            after = page[-1].place
        tail = self.window.tail(span, self.now)
        assert tail is not None
        follower.open = True
        self.progress(follower, tail)

    def snapshot(self, follower: _Follower) -> None:
        """Read the source at a version that the hub has progress for."""
        progress = self.window.progress(follower.span)
        if progress is None or progress >= len(self.states):
            follower.version = -1
            return
        version = max(0, progress - self.chance.randint(0, 2))
        state = self.states[version]
        follower.table = {k: v for k, v in state.items() if follower.span.low <= k < follower.span.high}
        follower.version = version
        follower.seen = set()

    def cut(self) -> None:
        """Cut off a follower; it keeps its position."""
        if self.followers:
            self.chance.choice(self.followers).open = False

    def released(self, release: Release) -> None:
        """Carry out a release."""
        self.releases += 1
        for follower in self.followers:
            if follower.open and follower.span == release.span:
                if release.many:
                    follower.open = False
                    continue
                for each in release.events:
                    self.give(follower, each)
                self.progress(follower, release.progress)

    def give(self, follower: _Follower, each: SoftEvent) -> None:
        """Check one event, and apply it."""
        if each.version < follower.version:
            self.findings.append(f"ordered: {each.version} after {follower.version}")
        if (each.version, each.key) in follower.seen:
            self.findings.append(f"unique: {each.key} of {each.version} twice")
        if not follower.span.low <= each.key < follower.span.high:
            self.findings.append(f"clipped: {each.key} outside of {follower.span}")
        follower.seen.add((each.version, each.key))
        follower.version = each.version
        follower.position = Position(self.window.epoch, each.version, each.stamp)
        if each.op == "delete":
            follower.table.pop(each.key, None)
        else:
            follower.table[each.key] = each.data.decode()

    def progress(self, follower: _Follower, position: Position) -> None:
        """Check that a follower's table is the source's at a version."""
        if position.version < follower.version:
            self.findings.append(f"bookmarkable: progress {position.version} below {follower.version}")
        follower.version = position.version
        follower.position = position
        state = self.states[position.version]
        expected = {k: v for k, v in state.items() if follower.span.low <= k < follower.span.high}
        if follower.table != expected:
            self.findings.append(f"state: {follower.span} at {position.version} is {follower.table}, not {expected}")

    def resync(self, span: Span) -> None:
        """Cut off the followers of a range; their positions are void."""
        self.resyncs += 1
        for follower in self.followers:
            if follower.span == span:
                follower.open = False
                follower.position = None
                follower.version = -1


def play(seed: int, bounds: WindowBounds | None = None, steps: int = 120, *, resets: bool = True) -> SoftWorld:
    """Return a world after a number of steps.

    Args:
        seed: of chance.
        bounds: bounds of the window; None for small ones.
        steps: number of steps.
        resets: whether resets and restarts are among them.
    """
    world = SoftWorld(seed, bounds or WindowBounds(events=6 + seed % 25, pieces=20))
    rare = [world.repartition, world.cut] + ([world.reset, world.restart] if resets else [])
    for _ in range(steps):
        roll = world.chance.random()
        if roll < 0.3:
            world.write()
        elif roll < 0.65:
            world.ingest()
        elif roll < 0.9:
            world.follow()
        else:
            world.chance.choice(rare)()
        if world.chance.random() < 0.1:
            for follower in world.followers:
                world.window.beat(follower.span)
            world.turn()
    return world
