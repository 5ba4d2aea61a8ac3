"""Soft topics broken on purpose, one promise at a time, so that the validators can be seen to notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import orjson
import pytest

from griphub.api import soft_feed
from griphub.api.soft_feed import SoftFeed
from griphub.api.soft_watch import SoftWatching
from griphub.topics.event_text import Representation
from griphub.windows.batch import Checker
from griphub.windows.decisions import Decision, Release, Resync, Start
from griphub.windows.event_blocks import EventBlocks
from griphub.windows.pieces import Pieces
from griphub.windows.positions import Position
from griphub.windows.release_items import release_items
from griphub.windows.soft_event import Place, SoftEvent
from griphub.windows.span import Span
from griphub.windows.window import Window

__all__ = ["MUTANTS", "Mutant"]

Patch = pytest.MonkeyPatch


def _versions(pieces: Pieces, span: Span) -> list[int]:
    return [piece.progress for other, piece in pieces.each() if other.overlaps(span) and piece.progress is not None]


def greatest_of_the_pieces(patch: Patch) -> None:
    """A range has the greatest progress of its pieces."""
    patch.setattr(Pieces, "progress", lambda self, span: max(_versions(self, span), default=None))


def first_of_the_pieces(patch: Patch) -> None:
    """A range is released when its first piece is complete."""

    def first(self: Pieces, span: Span) -> int | None:
        return next(piece.progress for other, piece in self.each() if other.overlaps(span))

    patch.setattr(Pieces, "progress", first)


def unknown_ones_do_not_count(patch: Patch) -> None:
    """A piece without progress is no part of a range."""
    patch.setattr(Pieces, "progress", lambda self, span: min(_versions(self, span), default=None))


def parts_begin_with_now(patch: Patch) -> None:
    """All parts of a piece that is cut have the progress of the part that was given."""
    raise_to = Pieces.raise_to

    def wider(self: Pieces, span: Span, version: int, stamp: int) -> Any:
        low, high = self.span_at(span.low).low, self.span_at(span.low).high
        return raise_to(self, Span(low, max(high, span.high)), version, stamp)

    patch.setattr(Pieces, "raise_to", wider)


def in_the_order_of_arrival(patch: Patch) -> None:
    """Events are read in the order in which they were appended."""
    read = EventBlocks.read

    def arrived(self: EventBlocks, span: Span, after: Place, upto: Place, limit: int) -> list[SoftEvent]:
        return sorted(read(self, span, after, upto, limit), key=lambda event: event.stamp)

    patch.setattr(EventBlocks, "read", arrived)


def ends_within_a_version(patch: Patch) -> None:
    """A release has as many events as it may, and progress as if these were all."""
    read = EventBlocks.read

    def shorter(self: EventBlocks, span: Span, after: Place, upto: Place, limit: int) -> list[SoftEvent]:
        return read(self, span, after, upto, limit - 1)

    patch.setattr(EventBlocks, "read", shorter)


def gives_repeats_again(patch: Patch) -> None:
    """An event that repeats another one is a new one."""
    patch.setattr(Checker, "_was_reset", lambda self, key: True)


def takes_late_events(patch: Patch) -> None:
    """Events at and below progress are taken in."""
    append = Checker._append

    def unlimited(self: Checker, index: int, event: SoftEvent) -> Any:
        pieces, self._pieces = self._pieces, Pieces()
        try:
            return append(self, index, event)
        finally:
            self._pieces = pieces

    patch.setattr(Checker, "_append", unlimited)


def leaves_the_floor(patch: Patch) -> None:
    """Events that are dropped do not raise the floor."""
    patch.setattr(Pieces, "raise_floor", lambda self, key, floor: self.span_at(key))


def grows(patch: Patch) -> None:
    """A full window drops nothing."""
    patch.setattr(Window, "_make_room", lambda self, events, size: list[Resync]())


def forgets_what_it_dropped(patch: Patch) -> None:
    """Any progress is the first one behind events that were dropped."""
    patch.setattr(Pieces, "forget", lambda self, span, dropped: self.reset(span))


def tells_no_one(patch: Patch) -> None:
    """Watchers of a range that was reset are not asked to come back."""
    patch.setattr(SoftFeed, "_resync", lambda self, number, resync: None)


def takes_truncations_for_nothing(patch: Patch) -> None:
    """A reset is not carried out."""
    patch.setattr(Window, "_reset", lambda self, span: list[Decision]())


def keeps_its_epoch(patch: Patch) -> None:
    """Places of before a reset of everything count."""
    reset = Window._reset

    def kept(self: Window, span: Span) -> list[Resync]:
        epoch, resyncs = self.epoch, reset(self, span)
        self.epoch = epoch
        return resyncs

    patch.setattr(Window, "_reset", kept)


def knows_any_epoch(patch: Patch) -> None:
    """Places of before a restart count."""

    def resume(self: Window, span: Span, position: Position) -> Start:
        return self._start(span, position.place)

    patch.setattr(Window, "resume", resume)


def progress_before_its_events(patch: Patch) -> None:
    """The progress of a release is given before its events."""

    def reversed_(
        release: Release,
        texts: Sequence[bytes],
        name: str,
        form: Representation,
        previous: str,
        content_max: int,
        **named: Any,
    ) -> list[bytes]:
        alone = replace(release, events=())
        items = release_items(alone, (), name, form, previous, content_max, **named)
        if release.events:
            later = replace(release, progress=release.progress._replace(stamp=release.progress.stamp + 1))
            items += release_items(later, texts, name, form, str(release.progress), content_max, **named)
        return items

    patch.setattr(soft_feed, "release_items", reversed_)


def outside_the_chain(patch: Patch) -> None:
    """Items name no predecessor, so that they overtake what was lost."""

    def unchained(
        release: Release,
        texts: Sequence[bytes],
        name: str,
        form: Representation,
        previous: str,
        size: int,
        **named: Any,
    ) -> list[bytes]:
        items = release_items(release, texts, name, form, previous, size, **named)
        return [_without_previous(item) for item in items]

    patch.setattr(soft_feed, "release_items", unchained)


def _without_previous(item: bytes) -> bytes:
    value = orjson.loads(item)
    value.pop("prev-id", None)
    return orjson.dumps(value)


def holds_anywhere(patch: Patch) -> None:
    """A watcher is held without the place that it has reached."""
    hold = SoftWatching._hold

    def anywhere(self: SoftWatching, page: Any, follower: Any) -> list[tuple[str, str]]:
        return [
            (name, value.partition(";")[0] if name == "Grip-Channel" else value)
            for name, value in hold(self, page, follower)
        ]

    patch.setattr(SoftWatching, "_hold", anywhere)


class Mutant(NamedTuple):
    """One promise broken.

    Attributes:
        promise: that is broken.
        scenario: in which it is noticed.
        patch: breaks it in the hub.
    """

    promise: str
    scenario: str
    patch: Callable[[Patch], None]


MUTANTS: Final[dict[str, Mutant]] = {
    "greatest-of-the-pieces": Mutant("atomic", "parts", greatest_of_the_pieces),
    "first-of-the-pieces": Mutant("atomic", "parts", first_of_the_pieces),
    "unknown-ones-do-not-count": Mutant("atomic", "begun", unknown_ones_do_not_count),
    "parts-begin-with-now": Mutant("gap-free", "cut", parts_begin_with_now),
    "in-the-order-of-arrival": Mutant("ordered", "parts", in_the_order_of_arrival),
    "ends-within-a-version": Mutant("atomic", "divided", ends_within_a_version),
    "gives-repeats-again": Mutant("unique", "repeated", gives_repeats_again),
    "takes-late-events": Mutant("true", "late", takes_late_events),
    "leaves-the-floor": Mutant("gap-free", "trimmed", leaves_the_floor),
    "grows": Mutant("bounded", "trimmed", grows),
    "forgets-what-it-dropped": Mutant("gap-free", "lagging", forgets_what_it_dropped),
    "forgets-what-a-reset-dropped": Mutant("gap-free", "reset-late", forgets_what_it_dropped),
    "tells-no-one": Mutant("told", "truncated", tells_no_one),
    "takes-truncations-for-nothing": Mutant("told", "truncated", takes_truncations_for_nothing),
    "keeps-its-epoch": Mutant("table", "restored", keeps_its_epoch),
    "knows-any-epoch": Mutant("told", "restarted", knows_any_epoch),
    "progress-before-its-events": Mutant("bookmarkable", "parts", progress_before_its_events),
    "outside-the-chain": Mutant("gap-free", "lost", outside_the_chain),
    "holds-anywhere": Mutant("gap-free", "seam", holds_anywhere),
}
"""All mutants by name."""
