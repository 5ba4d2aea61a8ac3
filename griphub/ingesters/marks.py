"""Marks of an ingester by snapshots: the version that was answered, and the one that is being given. Sans-I/O.

Both are stored with the source before a version is given. So after a crash the version can be given again, equal in
all: the hub accepts it as a repetition. A mark of another source, or none, begins with a reset.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Begin", "Mark", "Step", "after_answer", "begin", "reset_version"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Versions of a view.

    Attributes:
        source: text that names the source and the definition of the view.
        version: last version that the hub has answered; None for none.
        snapshot: snapshot of the source at that version; None for none.
        next_version: version that is being given, or the answered one.
        next_snapshot: snapshot at that version.
    """

    source: str
    version: int | None
    snapshot: str | None
    next_version: int
    next_snapshot: str

    def answered(self) -> Mark:
        """Return the mark after the answer to the version that was being given."""
        return Mark(self.source, self.next_version, self.next_snapshot, self.next_version, self.next_snapshot)

    def following(self, snapshot: str) -> Mark:
        """Return the mark of the next poll, after ``answered``.

        Args:
            snapshot: of the source now.
        """
        return Mark(self.source, self.version, self.snapshot, self.next_version + 1, snapshot)


class Begin(enum.Enum):
    """First step of an ingester that has connected to its source."""

    RESET = "reset"
    """Followers need a snapshot: all before is void."""
    REPEAT = "repeat"
    """The version that was being given is given again."""


@dataclass(frozen=True, slots=True)
class Step:
    """Step with its reason, a few words for the log."""

    begin: Begin
    reason: str


def begin(mark: Mark | None, source: str) -> Step:
    """Return the first step.

    Args:
        mark: as it is stored with the source; None for none.
        source: text that names the source and the definition of the view now.
    """
    if mark is None:
        return Step(Begin.RESET, "first start")
    if mark.source != source:
        return Step(Begin.RESET, f"the source was {mark.source} and is {source}")
    if mark.version is None:
        return Step(Begin.RESET, "the last reset was not answered")
    return Step(Begin.REPEAT, "restart")


def after_answer(mark: Mark, progress: int | None) -> Step | None:
    """Return the step that an answer of the hub asks for; None to continue.

    Args:
        mark: of the version that was answered.
        progress: version up to which the hub has the topic complete; None while that is unknown.
    """
    if progress is not None and progress > mark.next_version:
        reason = f"the hub has version {progress} already: the source went back, as after a restore"
        return Step(Begin.RESET, reason)
    return None


def reset_version(given: int, progress: int | None) -> int:
    """Return the version of a reset: above all that were given, also by a source that went back.

    Args:
        given: version that was given last, answered or not; 0 for none.
        progress: version that the hub has, as far as it is known.
    """
    return max(given, progress or 0) + 1
