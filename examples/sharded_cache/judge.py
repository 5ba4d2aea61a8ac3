"""Judgement of the values that caches have shown, by the log of the store."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf


class StoreLog:
    """All writes of the store, in order.

    Args:
        writes: version, key and value of each write. No value of a key is written twice.
    """

    def __init__(self, writes: Iterable[tuple[int, str, int]]) -> None:
        self._writes: dict[str, list[tuple[int, int]]] = {}
        self._lives: dict[tuple[str, int], tuple[float, float]] = {}
        """Version of each value, and that of the next one of its key."""
        for version, key, value in writes:
            written = self._writes.setdefault(key, [])
            if written:
                begin, before = written[-1]
                self._lives[key, before] = (begin, version)
            self._lives[key, value] = (version, inf)
            written.append((version, value))

    def at(self, version: float = inf) -> dict[str, int]:
        """Return the state of the store.

        Args:
            version: number of the version; the newest by default.
        """
        counts = {key: bisect_right(writes, version, key=lambda one: one[0]) for key, writes in self._writes.items()}
        return {key: self._writes[key][count - 1][1] for key, count in counts.items() if count}

    def existed(self, values: Mapping[str, int]) -> bool:
        """Return whether the store ever had these values, all of them at one version.

        Each value was there from its own version until the next one of its key. All of them were there together if
        the last of these beginnings is before the first of these ends.

        Args:
            values: by key.
        """
        lives = [self._lives.get(item, (inf, 0.0)) for item in values.items()]
        return max((begin for begin, _ in lives), default=0.0) < min((end for _, end in lives), default=inf)


@dataclass
class Shown:
    """Values that one kind of cache has shown.

    Attributes:
        answers: number of answers to reads of one key.
        together: values of all keys read together, and the version that the cache gives for them, or None.
        unknown: number of reads of all keys that were answered as not known.
        quiet: values of all keys when everything is quiet. Those that have to be read again are not among them.
    """

    answers: int = 0
    together: list[tuple[int | None, dict[str, int]]] = field(default_factory=list)
    unknown: int = 0
    quiet: dict[str, int] = field(default_factory=dict)

    def answer(self, value: int | None) -> None:
        """Take the answer to a read of one key: its ``value``, or None if it is not known."""
        self.answers += value is not None

    def show(self, values: dict[str, int] | None, version: int | None = None) -> None:
        """Take the answer to a read of all keys.

        Args:
            values: by key; None if they are not known.
            version: number of the version that the cache gives for them; None if it gives none.
        """
        if values is None:
            self.unknown += 1
        else:
            self.together.append((version, values))

    def stale(self, log: StoreLog) -> list[str]:
        """Return the keys that have another value in the store, although everything is quiet, by the ``log``."""
        truth = log.at()
        return [key for key, value in self.quiet.items() if truth.get(key) != value]

    def impossible(self, log: StoreLog) -> int:
        """Return the number of states that the store never had, or had at another version, by the ``log``."""
        return sum(
            not log.existed(values) if version is None else values != log.at(version)
            for version, values in self.together
        )


@dataclass(frozen=True)
class Verdict:
    """Figures of both kinds, and their meaning."""

    pubsub: Shown
    watch: Shown
    log: StoreLog

    @property
    def table(self) -> str:
        """The figures as text."""
        both = (self.pubsub, self.watch)
        rows = [
            ("answers to reads of one key", [each.answers for each in both]),
            ("reads of all keys together", [len(each.together) + each.unknown for each in both]),
            ("  of which: not known, and said so", [each.unknown for each in both]),
            ("  of which: a state that never was", [each.impossible(self.log) for each in both]),
            ("stale keys when it is quiet", [len(each.stale(self.log)) for each in both]),
        ]
        lines = [f"{'':40}{'pubsub':>10}{'watch':>10}"]
        return "\n".join([*lines, *(f"{name:40}{pubsub:10,}{watch:10,}" for name, (pubsub, watch) in rows)])

    @property
    def text(self) -> str:
        """The verdict as a sentence."""
        if not self.holds:
            return "NOT AS PROMISED: the watching caches were wrong."
        if not self.shows:
            return "NOTHING SHOWN: pubsub was lucky this time. Try a longer run: ARGS='--seconds 60'"
        return "As promised: pubsub has lost invalidations, and its keys stay stale. Watching has no such keys."

    @property
    def holds(self) -> bool:
        """True if the watching caches were right in all."""
        complete = len(self.watch.quiet) == len(self.log.at()) and bool(self.watch.together)
        return complete and not self.watch.stale(self.log) and not self.watch.impossible(self.log)

    @property
    def shows(self) -> bool:
        """True if the caches with pubsub have stale keys."""
        return bool(self.pubsub.stale(self.log))
