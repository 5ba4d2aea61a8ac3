"""Verdict about the first act: the tables of consumers, compared with that of the store. Sans-I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AbsenceVerdict:
    """Outcome for the consumers of one system.

    Attributes:
        place: id of the last event that the consumer had when it went away.
        first: id of the first event that was retained when it was there again.
        resyncs: times that it learned of such a hole.
        wrong: articles whose number it has wrong, or does not have.
        withdrawn: articles that it still has although they are withdrawn.
        wrong_stayed: articles that are wrong in the table of the consumer that stayed.
    """

    place: int
    first: int
    resyncs: int
    wrong: tuple[str, ...]
    withdrawn: tuple[str, ...]
    wrong_stayed: tuple[str, ...]

    @property
    def missed(self) -> int:
        """Number of events that were trimmed before the consumer could read them."""
        return max(0, self.first - self.place - 1)

    @property
    def anomalies(self) -> int:
        """Number of articles that are wrong."""
        return len(self.wrong) + len(self.withdrawn) + len(self.wrong_stayed)


def judged(
    store: Mapping[str, int],
    away: Mapping[str, int],
    stayed: Mapping[str, int],
    hole: tuple[int, int],
    resyncs: int,
) -> AbsenceVerdict:
    """Return the verdict about the consumers of one system.

    Args:
        store: table of the store.
        away: table of the consumer that was away.
        stayed: table of the one that stayed.
        hole: ids of the last event before it and of the first one behind it.
        resyncs: times that the one that was away learned of a hole.
    """
    return AbsenceVerdict(
        *hole,
        resyncs,
        tuple(key for key in store if store[key] != away.get(key)),
        tuple(sorted(away.keys() - store.keys())),
        tuple(sorted(key for key in store.keys() | stayed.keys() if store.get(key) != stayed.get(key))),
    )
