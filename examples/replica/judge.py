"""Judgement of the states that readers of a replica have seen, by the log of the store."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

State = Mapping[str, list[str]]


class StoreLog:
    """All writes of the store, in order.

    Args:
        writes: version, key and value of each write.
    """

    def __init__(self, writes: Iterable[tuple[int, str, list[str]]]) -> None:
        self._writes: dict[str, list[tuple[int, list[str]]]] = {}
        for version, key, value in writes:
            self._writes.setdefault(key, []).append((version, value))

    def at(self, version: float = inf) -> State:
        """Return the state of the store.

        Args:
            version: number of the version; the newest by default.
        """
        counts = {key: bisect_right(writes, version, key=lambda one: one[0]) for key, writes in self._writes.items()}
        return {key: self._writes[key][count - 1][1] for key, count in counts.items() if count}

    def next_version(self, key: str, version: int) -> int:
        """Return the version of the next write of a ``key`` behind a ``version``."""
        return next(at for at, _ in self._writes[key] if at > version)


@dataclass
class Seen:
    """States that the readers of one replica have seen.

    Attributes:
        reads: number of reads of the whole table.
        unknown: number of those that were answered as not known.
        leaking: number of those in which the consultant can read a document.
        states: states by the versions that the replica gives for them.
        changed: versions that had another state when they were read before.
        quiet: state when everything is quiet.
    """

    reads: int = 0
    unknown: int = 0
    leaking: int = 0
    states: dict[int, State] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    quiet: dict[str, list[str]] = field(default_factory=dict)

    def miss(self) -> None:
        """Take the answer that the state is not known."""
        self.reads += 1
        self.unknown += 1

    def see(self, state: State, leaking: bool, version: int | None = None) -> None:
        """Take a state.

        Args:
            state: the state.
            leaking: whether the consultant can read a document in it.
            version: number of the version that the replica gives for it; None if it gives none.
        """
        self.reads += 1
        self.leaking += leaking
        if version is not None and self.states.setdefault(version, state) != state:
            self.changed.add(version)

    def wrong(self, log: StoreLog) -> int:
        """Return the number of versions that had another state in the store, by the ``log``."""
        return len(self.changed | {version for version, state in self.states.items() if state != log.at(version)})


@dataclass(frozen=True)
class Verdict:
    """Figures of both replicas, and their meaning."""

    pubsub: Seen
    watch: Seen
    log: StoreLog

    @property
    def table(self) -> str:
        """The figures as text."""
        both, truth = (self.pubsub, self.watch), self.log.at()
        rows = [
            ("reads of the whole replica", [f"{each.reads:,}" for each in both]),
            ("  of which: not known, and said so", [f"{each.unknown:,}" for each in both]),
            ("  of which: the consultant can read", [f"{each.leaking:,}" for each in both]),
            ("versions shown", [f"{len(each.states):,}" for each in both]),
            ("  of which: not as in the store", [f"{each.wrong(self.log):,}" for each in both]),
            ("right when it is quiet", ["yes" if each.quiet == truth else "NO" for each in both]),
        ]
        lines = [f"{'':40}{'pubsub':>10}{'watch':>10}"]
        return "\n".join([*lines, *(f"{name:40}{pubsub:>10}{watch:>10}" for name, (pubsub, watch) in rows)])

    @property
    def text(self) -> str:
        """The verdict as a sentence."""
        if not self.holds:
            return "NOT AS PROMISED: the watching replica was wrong."
        if not self.shows:
            return "NOTHING SHOWN: pubsub was lucky this time. Try a longer run: ARGS='--seconds 60'"
        return "As promised: pubsub has shown states that never were. Watching has shown states of the store only."

    @property
    def holds(self) -> bool:
        """True if the watching replica was right in all."""
        watch = self.watch
        return bool(watch.states) and not watch.leaking and not watch.wrong(self.log) and watch.quiet == self.log.at()

    @property
    def shows(self) -> bool:
        """True if the replica with pubsub has shown a state that never was."""
        return self.pubsub.leaking > 0
