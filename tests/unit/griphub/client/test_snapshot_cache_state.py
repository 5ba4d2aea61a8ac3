"""Cache of ranges: feeds, handovers, history, and its bound in bytes."""

from __future__ import annotations

from typing import Any

import pytest

from griphub.client import snapshot_cache_state
from griphub.client.cached_value import mutation_of
from griphub.client.key_range import WHOLE, KeyRange
from griphub.client.snapshot_cache_state import (
    CacheAction,
    FeedEnded,
    FeedPhase,
    SnapshotCacheState,
    StartFeed,
    StopFeed,
)
from griphub.client.stitched import NotKnown
from griphub.client.watch_lines import checked_event
from griphub.client.watch_messages import Change, Progress, Version

LEFT, RIGHT = KeyRange("", "m"), KeyRange("m")


def event(number: int, key: str, data: Any, epoch: str = "e") -> Any:
    op = "delete" if data is None else "put"
    return checked_event({"key": key, "op": op, "version_cursor": f"{epoch}.{number}", "data": data})


def change(number: int, epoch: str = "e", **values: Any) -> Change:
    events = tuple(event(number, key, data, epoch) for key, data in values.items())
    return Change(Version(epoch, number), f"{epoch}.{number}", events)


def progress(number: int, range: KeyRange = WHOLE, epoch: str = "e") -> Progress:
    return Progress(range, Version(epoch, number), f"{epoch}.{number}.99", range == WHOLE)


def snapshot(cache: SnapshotCacheState, feed: int, number: int, **values: Any) -> list[CacheAction]:
    builder = cache.builder(feed, Version("e", number))
    assert builder is not None
    found = [mutation_of(event(number, key, data)) for key, data in values.items()]
    builder.add([mutation for mutation in found if mutation is not None])
    return cache.replaced(feed, builder.region())


def started(actions: list[CacheAction]) -> list[tuple[str, str | None, str | None]]:
    """Return bounds and version of the feeds that begin."""
    feeds = [each for each in actions if isinstance(each, StartFeed)]
    return [
        (each.range.low, each.range.high, None if each.cursor is None else str(Version.of(each.cursor)))
        for each in feeds
    ]


def numbers(actions: list[CacheAction]) -> list[int]:
    return [action.number for action in actions if isinstance(action, StartFeed)]


def values(cache: SnapshotCacheState, *ranges: KeyRange, **options: Any) -> dict[str, Any] | None:
    view = cache.read(ranges or [WHOLE], **options)
    return None if isinstance(view, NotKnown) else {key: value.data for key, value in view.items()}


def test_a_range_is_known_with_its_snapshot_and_kept_up_to_date() -> None:
    cache = SnapshotCacheState()
    assert cache.add(WHOLE) == [StartFeed(1, WHOLE, None)]
    assert cache.ranges == [(WHOLE, FeedPhase.STARTING)]
    assert cache.taken(1, change(4, a=1), 0.0) == [], "without a snapshot it is of no use"
    assert values(cache) is None
    snapshot(cache, 1, 5, a=1, b=2)
    assert cache.ranges == [(WHOLE, FeedPhase.KNOWN)]
    assert cache.taken(1, change(7, a=None, c=3), 1.0) == []
    assert cache.taken(1, progress(9), 2.0) == []
    assert values(cache) == {"b": 2, "c": 3}
    assert values(cache, at=Version("e", 6)) == {"a": 1, "b": 2}
    assert values(cache, at_least=Version("e", 10)) is None


def test_ranges_do_not_overlap_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = SnapshotCacheState()
    cache.add(KeyRange("b", "d"))
    for range in (WHOLE, KeyRange("a", "c"), KeyRange("c", "cc"), KeyRange("c")):
        with pytest.raises(ValueError, match="overlaps"):
            cache.add(range)
    cache.add(KeyRange("a", "b"))
    cache.add(KeyRange("d"))
    monkeypatch.setattr(snapshot_cache_state, "RANGES_MAX", 3)
    with pytest.raises(ValueError, match="more than 3 ranges"):
        cache.add(KeyRange("", "a"))
    with pytest.raises(ValueError, match="at most 3"):
        cache.assign([KeyRange(key, key + "\0") for key in "abcd"])
    with pytest.raises(ValueError, match="one owner"):
        cache.assign([LEFT, WHOLE])


def test_a_part_that_is_removed_is_not_known_and_the_rests_are_watched_from_their_version() -> None:
    cache = SnapshotCacheState()
    cache.add(WHOLE)
    snapshot(cache, 1, 5, a=1, m=2, z=3)
    cache.taken(1, change(7, a=4), 0.0)
    actions = cache.remove(KeyRange("m", "n"))
    assert actions[0] == StopFeed(1)
    assert started(actions) == [("", "m", "e.7"), ("n", None, "e.7")]
    assert values(cache) is None
    assert values(cache, KeyRange("", "m"), KeyRange("n")) == {"a": 4, "z": 3}
    assert cache.taken(1, change(8, a=5), 0.0) == [], "of a feed that was stopped"
    left, right = numbers(actions)
    cache.taken(left, change(8, a=5), 0.0)
    cache.taken(right, progress(8, KeyRange("n")), 0.0)
    assert values(cache, KeyRange("", "m"), KeyRange("n")) == {"a": 5, "z": 3}


def test_knowledge_is_handed_over_without_a_gap() -> None:
    old, new = SnapshotCacheState(), SnapshotCacheState()
    old.add(WHOLE)
    snapshot(old, 1, 5, a=1, x=2)
    old.taken(1, change(7, x=3), 0.0)
    regions = old.regions(RIGHT)
    (action,) = new.add(RIGHT, regions)
    assert action == StartFeed(1, RIGHT, "e.7.9223372036854775807")
    assert values(new, RIGHT) == {"x": 3}
    old.taken(1, change(8, x=4), 0.0)
    assert values(new, RIGHT) == {"x": 3}, "what is handed over does not change"
    new.taken(1, change(8, x=4), 0.0)
    assert values(new, RIGHT) == {"x": 4}


def test_knowledge_of_several_regions_is_watched_from_the_least_top() -> None:
    old = SnapshotCacheState()
    old.assign([LEFT, RIGHT])
    snapshot(old, 1, 5, a=1)
    snapshot(old, 2, 9, x=2)
    new = SnapshotCacheState()
    assert started(new.add(WHOLE, old.regions())) == [("", None, "e.5")]
    assert values(new) is None, "no version is known of both"
    new.taken(1, change(7, a=3), 0.0)
    new.taken(1, change(9, x=2), 0.0)
    assert values(new) == {"a": 3, "x": 2}


@pytest.mark.parametrize("reason", ["a hole", "two epochs", "none"])
def test_knowledge_that_is_not_of_all_keys_in_one_epoch_is_replaced_by_a_snapshot(reason: str) -> None:
    old = SnapshotCacheState()
    old.assign([KeyRange("", "l"), RIGHT] if reason == "a hole" else [LEFT, RIGHT])
    snapshot(old, 1, 5, a=1)
    snapshot(old, 2, 5, x=2)
    if reason == "two epochs":
        old.taken(2, change(100, "f", x=3), 0.0)
    new = SnapshotCacheState()
    assert started(new.add(WHOLE, [] if reason == "none" else old.regions())) == [("", None, None)]


def test_an_assignment_moves_bounds_and_keeps_knowledge() -> None:
    cache = SnapshotCacheState()
    assert started(cache.assign([LEFT, RIGHT])) == [("", "m", None), ("m", None, None)]
    snapshot(cache, 1, 5, a=1, h=2)
    snapshot(cache, 2, 6, x=3)
    cache.taken(1, progress(6, LEFT), 0.0)
    assert cache.assign([LEFT, RIGHT]) == []
    actions = cache.assign([KeyRange("", "g"), KeyRange("g", "z")])
    assert [each for each in actions if isinstance(each, StopFeed)] == [StopFeed(1), StopFeed(2)]
    assert started(actions) == [("", "g", "e.6"), ("g", "z", "e.6")]
    assert values(cache, KeyRange("", "z")) == {"a": 1, "h": 2, "x": 3}
    assert [range for range, _ in cache.ranges] == [KeyRange("", "g"), KeyRange("g", "z")]


def test_progress_of_a_part_raises_the_top_where_it_applies() -> None:
    cache = SnapshotCacheState()
    cache.add(WHOLE)
    snapshot(cache, 1, 5, a=1, x=2)
    cache.taken(1, progress(9, KeyRange("b", "n")), 0.0)
    assert [(each.range.low, each.top) for each in cache.regions()] == [("", 5), ("b", 9), ("n", 5)]
    assert values(cache, KeyRange("b", "n"), at=Version("e", 9)) == {}
    assert values(cache, at=Version("e", 6)) is None
    cache.taken(1, change(7, x=3), 0.0)
    assert [each.top for each in cache.regions()] == [7, 9, 7]
    cache.taken(1, progress(9), 0.0)
    assert [(each.range, each.top) for each in cache.regions()] == [(WHOLE, 9)]


def test_progress_of_too_many_parts_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_cache_state, "PIECES_MAX", 3)
    cache = SnapshotCacheState()
    cache.add(WHOLE)
    snapshot(cache, 1, 5)
    cache.taken(1, progress(6, KeyRange("b", "c")), 0.0)
    cache.taken(1, progress(7, KeyRange("e", "f")), 0.0)
    assert len(cache.regions()) == 3


def test_versions_are_forgotten_after_their_time() -> None:
    cache = SnapshotCacheState(history=10.0)
    cache.add(WHOLE)
    snapshot(cache, 1, 5, a=0)
    for second in range(30):
        cache.taken(1, change(6 + second, a=second), float(second))
    (region,) = cache.regions()
    assert (region.bottom, region.top) == (6 + 19, 6 + 29)
    assert values(cache, at=Version("e", 25)) == {"a": 19}
    assert values(cache, at=Version("e", 24)) is None


def test_a_full_cache_forgets_versions_first_and_then_its_largest_range() -> None:
    cache = SnapshotCacheState(bytes_max=20_000)
    cache.assign([LEFT, RIGHT])
    snapshot(cache, 1, 1, a="x" * 1000)
    snapshot(cache, 2, 1, x="y" * 1000)
    for number in range(2, 40):
        assert cache.taken(1, change(number, a="x" * 1000), 0.0) == []
        assert cache.size <= 20_000
    assert cache.regions(LEFT)[0].bottom > 1
    assert cache.regions(RIGHT)[0].bottom == 1
    actions = cache.taken(1, change(40, a="x" * 30_000), 0.0)
    assert isinstance(actions[1], FeedEnded)
    assert actions[0] == StopFeed(1)
    assert (actions[1].range, actions[1].reason) == (
        LEFT,
        "the cache has more than 20000 bytes: give it more, or fewer keys",
    )
    assert cache.ranges == [(LEFT, FeedPhase.ENDED), (RIGHT, FeedPhase.KNOWN)]
    assert values(cache, LEFT) is None
    assert values(cache, RIGHT) == {"x": "y" * 1000}
    assert started(cache.add(LEFT)) == [("", "m", None)]
    assert cache.size == sum(region.size for region in cache.regions())


def test_a_feed_that_fails_takes_its_range_only() -> None:
    cache = SnapshotCacheState()
    cache.assign([LEFT, RIGHT])
    snapshot(cache, 1, 1, a=1)
    snapshot(cache, 2, 1, x=1)
    assert cache.failed(1, "no right") == [StopFeed(1), FeedEnded(LEFT, "no right")]
    assert cache.failed(1, "no right") == []
    assert cache.builder(1, Version("e", 3)) is None
    assert values(cache, RIGHT) == {"x": 1}
    assert cache.remove(WHOLE) == [StopFeed(2)]
    assert (cache.ranges, cache.size) == ([], 0)


def test_a_restore_keeps_knowledge_up_to_the_place_that_the_new_history_has() -> None:
    cache = SnapshotCacheState()
    cache.add(WHOLE)
    snapshot(cache, 1, 5, a=1)
    cache.taken(1, progress(9, KeyRange("m")), 0.0)
    cache.taken(1, change(100, "f", x=2), 0.0)
    assert values(cache) == {"a": 1, "x": 2}
    assert values(cache, at=Version("e", 5)) is None


def test_a_restore_below_the_knowledge_of_a_part_needs_a_snapshot() -> None:
    old = SnapshotCacheState()
    old.assign([LEFT, RIGHT])
    snapshot(old, 1, 5, a=1)
    snapshot(old, 2, 9, x=2)
    cache = SnapshotCacheState()
    cache.add(WHOLE, old.regions())
    actions = cache.taken(1, change(100, "f", a=2), 0.0)
    assert actions == [StopFeed(1), StartFeed(2, WHOLE, None)]
    assert values(cache) is None, "x may have its value from a change that the restored store lacks"


def test_a_snapshot_takes_the_place_of_all() -> None:
    cache = SnapshotCacheState()
    cache.add(WHOLE)
    snapshot(cache, 1, 5, a=1)
    snapshot(cache, 1, 50, b=2)
    assert values(cache) == {"b": 2}
    assert values(cache, at=Version("e", 5)) is None


@pytest.mark.parametrize("options", [{"bytes_max": 0}, {"history": 0.0}])
def test_bounds_are_above_0(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        SnapshotCacheState(**options)
