"""Watchers and caches against a hub whose connections tear: any steps keep the promises, broken clients do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from griphub.client import (
    key_range,
    region,
    snapshot,
    snapshot_cache_state,
    stitched,
    version_tree,
    watch_lines,
    watch_sequence,
)
from griphub.client.cells import cell_at
from griphub.client.key_range import KeyRange
from griphub.client.region import Region
from griphub.client.watch_messages import Progress
from tests.support.watch_validators import judge_watches
from tests.support.watch_world import STEPS_OF_CACHES, Step, World, random_steps, run

STEPS_MAX = 300
"""Steps of a run by a seed."""

numbers = st.integers(0, 999)
steps = st.lists(st.tuples(st.sampled_from(STEPS_OF_CACHES), numbers, numbers), max_size=60)


def findings(world: World) -> list[str]:
    return world.findings + judge_watches(world)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_any_steps_keep_the_promises(steps: list[Step]) -> None:
    assert findings(run(steps)) == []


def test_long_runs_keep_the_promises_and_meet_all_that_can_happen() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(60):
        world = run(random_steps(seed, STEPS_MAX))
        assert findings(world) == [], f"seed {seed}"
        for client in [*world.clients, *world.ended]:
            kinds.update(type(message).__name__ for message in client.messages)
            kinds.update(report.kind.value for report in client.reports)
            kinds["part"] += sum(isinstance(each, Progress) and not each.whole for each in client.messages)
            kinds["failed"] += client.failure is not None
        kinds.update({"known": world.reads - world.unknown, "unknown": world.unknown})
    print(dict(kinds), end=" ")
    assert kinds["failed"] == kinds["disorder"] == 0
    expected = ("Change", "Progress", "Snapshot", "part", "lost", "resync", "epoch", "known", "unknown")
    assert all(kinds[each] > 20 for each in expected)


# --- broken clients


def clipped_range(patch: pytest.MonkeyPatch) -> None:
    """The least key of a range is taken for one that is not in it."""
    patch.setattr(KeyRange, "__contains__", lambda self, key: self.low < key and (not self.high or key < self.high))


def clipped_knowledge(patch: pytest.MonkeyPatch) -> None:
    """A part of a region that is handed over lacks its greatest keys."""
    divide: Callable[..., Any] = version_tree.divide
    patch.setattr(region, "divide", lambda tree, key: divide(tree, key[:-1] if len(key) > 1 else "c"))


def handover_without_overlap(patch: pytest.MonkeyPatch) -> None:
    """The new owner watches from a version above its knowledge."""
    make = snapshot_cache_state._Feed.__init__

    def init(self: Any, number: int, range: KeyRange, regions: Sequence[Region[Any]]) -> None:
        make(self, number, range, regions)
        self.reached = max((region.top for region in regions), default=0) + (3 if regions else 0)

    patch.setattr(snapshot_cache_state._Feed, "__init__", init)
    patch.setattr(Region, "_check", lambda self, since: None)


def handover_from_the_greatest_top(patch: pytest.MonkeyPatch) -> None:
    """The new owner of two regions watches from the greater top."""
    make = snapshot_cache_state._Feed.__init__

    def init(self: Any, number: int, range: KeyRange, regions: Sequence[Region[Any]]) -> None:
        make(self, number, range, regions)
        self.reached = max((region.top for region in regions), default=0)

    patch.setattr(snapshot_cache_state._Feed, "__init__", init)
    patch.setattr(Region, "_check", lambda self, since: None)


def eviction_lowers_the_bottom(patch: pytest.MonkeyPatch) -> None:
    """Values are forgotten, and the bottom is as low as before."""
    evict = Region.evict
    patch.setattr(Region, "evict", lambda self, bottom: replace(evict(self, bottom), bottom=self.bottom))


def eviction_forgets_tombstones_of_the_future(patch: pytest.MonkeyPatch) -> None:
    """Deletions above the bottom are forgotten."""
    forget: Callable[..., Any] = version_tree.forget
    patch.setattr(region, "forget", lambda tree, bottom: forget(tree, bottom + 3))


def progress_outside_its_range(patch: pytest.MonkeyPatch) -> None:
    """Progress of a part raises the top of the whole range."""
    progress = snapshot_cache_state._Feed.progress
    whole: Callable[..., None] = lambda self, each, now: progress(self, replace(each, range=self.range), now)  # noqa: E731
    patch.setattr(snapshot_cache_state._Feed, "progress", whole)


def mixture_of_two_versions(patch: pytest.MonkeyPatch) -> None:
    """Each region is read at its own top."""
    items = Region.items

    def newest(self: Region[Any], range: KeyRange, version: int) -> Iterator[tuple[str, Any]]:
        return items(self, range, self.top)

    patch.setattr(Region, "items", newest)


def guessed_versions(patch: pytest.MonkeyPatch) -> None:
    """The newest version of a read is the greatest of the tops, and bottoms are of no interest."""
    patch.setattr(stitched._Segment, "best", lambda self, version: version)
    patch.setattr(stitched._Segment, "region", lambda self, version: self.regions[0])
    patch.setattr(Region, "items", lambda self, range, version: _any_version(self, range, version))


def _any_version(self: Region[Any], range: KeyRange, version: int) -> Iterator[tuple[str, Any]]:
    for key, cells in version_tree.walk(self.tree, range.low, range.high):
        cell = cell_at(cells, version)
        if cell is not None and cell.value is not None:
            yield key, cell.value


def torn_transactions(patch: pytest.MonkeyPatch) -> None:
    """An event is given without those of its transaction that follow."""
    patch.setattr(watch_lines.EventLine, "last", property(lambda self: True))


def torn_snapshots(patch: pytest.MonkeyPatch) -> None:
    """A snapshot counts without its last line."""
    whole = property(lambda self: self._first is not None, lambda self, value: None)
    patch.setattr(snapshot.SnapshotLines, "complete", whole, raising=False)


def a_part_of_a_transaction_survives_its_stream(patch: pytest.MonkeyPatch) -> None:
    """Events of a version that was not whole are kept over the end of a stream, and the place moves with each event."""
    event = watch_sequence.WatchSequence.event

    def early(self: Any, line: watch_lines.EventLine) -> Any:
        found = event(self, line)
        self._version, self._cursor = line.version, line.event.version_cursor
        return found

    patch.setattr(watch_sequence.WatchSequence, "event", early)
    patch.setattr(watch_sequence.WatchSequence, "_repeat", lambda self, line: None)


def repetitions_are_given(patch: pytest.MonkeyPatch) -> None:
    """An event that is repeated within its version is taken again."""
    patch.setattr(watch_sequence, "_name", lambda event: (str(id(event)), event.key))


def any_epoch(patch: pytest.MonkeyPatch) -> None:
    """Regions of two histories are read together."""
    patch.setattr(stitched._Segment, "of", lambda self, epoch: self)
    patch.setattr(snapshot_cache_state, "_adopted", _adopted_of_any_epoch(snapshot_cache_state._adopted))


def _adopted_of_any_epoch(adopted: Callable[..., Any]) -> Callable[..., Any]:
    return lambda range, regions: adopted(range, [replace(each, epoch=regions[0].epoch) for each in regions])


def progress_overtakes(patch: pytest.MonkeyPatch) -> None:
    """Progress is given before the events of a version that is not whole."""
    progress = watch_sequence.WatchSequence.progress
    patch.setattr(watch_sequence.WatchSequence, "progress", lambda self, line: progress(self, line)[::-1])


def last_key_of_the_other_range(patch: pytest.MonkeyPatch) -> None:
    """The end of a range belongs to it."""
    patch.setattr(
        key_range.KeyRange, "__contains__", lambda self, key: self.low <= key and (not self.high or key <= self.high)
    )


MUTANTS = [
    clipped_range,
    clipped_knowledge,
    handover_without_overlap,
    handover_from_the_greatest_top,
    eviction_lowers_the_bottom,
    eviction_forgets_tombstones_of_the_future,
    progress_outside_its_range,
    mixture_of_two_versions,
    guessed_versions,
    torn_transactions,
    torn_snapshots,
    a_part_of_a_transaction_survives_its_stream,
    repetitions_are_given,
    any_epoch,
    progress_overtakes,
    last_key_of_the_other_range,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_client_is_noticed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert any(findings(run(random_steps(seed, STEPS_MAX))) for seed in range(100))
