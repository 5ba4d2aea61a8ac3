"""Knowledge regions: figure 5 of the paper, one operation after the other, and as the history that they know."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.client.key_range import WHOLE, KeyRange
from griphub.client.region import REGION_SIZE, Mutation, Region, RegionBuilder
from griphub.client.watch_messages import Version


def at(number: int, epoch: str = "e") -> Version:
    return Version(epoch, number)


def snapshot(number: int, range: KeyRange = WHOLE, /, **values: int) -> Region[int]:
    builder: RegionBuilder[int] = RegionBuilder(range, at(number))
    builder.add([Mutation(key, value, 1) for key, value in values.items()])
    return builder.region()


def changes(**values: int | None) -> list[Mutation[int]]:
    return [Mutation(key, value, 1) for key, value in values.items()]


def state(region: Region[Any], version: int) -> dict[str, Any]:
    return dict(region.items(region.range, version))


def test_a_snapshot_knows_one_version() -> None:
    region = snapshot(5, KeyRange("a", "m"), a=1, c=3, z=9)
    assert (region.bottom, region.top, len(region)) == (5, 5, 2)
    assert state(region, 5) == {"a": 1, "c": 3}
    assert (region.get("a", 5), region.get("b", 5)) == (1, None)
    assert region.knows(at(5))
    assert not region.knows(at(5, "f"))
    for key, version in (("a", 4), ("a", 6), ("m", 5), ("z", 5)):
        with pytest.raises(LookupError, match="not known"):
            region.get(key, version)
    with pytest.raises(LookupError, match="not known"):
        list(region.items(WHOLE, 5))


def test_changes_and_progress_raise_the_top_and_earlier_versions_stay() -> None:
    first = snapshot(5, a=1, b=2)
    second = first.extend(5, at(7), changes(a=None, c=3))
    third = second.raised(7, at(9))
    assert (third.bottom, third.top) == (5, 9)
    assert [state(third, version) for version in (5, 6, 7, 9)] == [{"a": 1, "b": 2}] * 2 + [{"b": 2, "c": 3}] * 2
    assert third.get("a", 9) is None
    assert (state(first, 5), first.top) == ({"a": 1, "b": 2}, 5), "a region does not change"


def test_a_key_that_changes_twice_in_a_transaction_has_its_last_value() -> None:
    twice = [*changes(a=1), *changes(a=2), *changes(b=1), *changes(b=None)]
    region = snapshot(5).extend(5, at(7), twice)
    assert state(region, 7) == {"a": 2}
    assert state(region, 6) == {}


def test_knowledge_with_a_gap_is_none() -> None:
    region = snapshot(5, a=1)
    with pytest.raises(ValueError, match="behind 6 do not join"):
        region.extend(6, at(7), changes(a=2))
    with pytest.raises(ValueError, match="a snapshot is needed"):
        region.raised(6, at(7))
    assert region.extend(3, at(7), changes(a=2)).top == 7, "more than the gap"
    assert region.extend(3, at(5), changes(a=2)) is region, "known before"
    assert region.raised(3, at(4)) is region


def test_changes_outside_the_range_are_passed_over() -> None:
    region = snapshot(5, KeyRange("b", "d")).extend(5, at(6), changes(a=1, b=2, d=3))
    assert state(region, 6) == {"b": 2}


def test_eviction_raises_the_bottom_and_never_lowers_it() -> None:
    region = snapshot(5, a=1, b=2).extend(5, at(7), changes(a=3)).extend(7, at(9), changes(a=None))
    size = region.size
    later = region.evict(8)
    assert (later.bottom, later.top) == (8, 9)
    assert (state(later, 8), state(later, 9)) == ({"a": 3, "b": 2}, {"b": 2})
    with pytest.raises(LookupError):
        later.get("a", 7)
    assert later.evict(6) is later
    with pytest.raises(ValueError, match="above the top"):
        later.evict(10)
    assert later.evict(9).size < later.size < size
    assert len(later.evict(9)) == 1, "a deletion that no version needs is forgotten"
    assert state(region, 5) == {"a": 1, "b": 2}


def test_parts_and_their_sum() -> None:
    region = snapshot(5, KeyRange("a", "z"), a=1, m=2, y=3).extend(5, at(6), changes(b=4))
    left, right = region.split("m")
    assert (state(left, 6), state(right, 6)) == ({"a": 1, "b": 4}, {"m": 2, "y": 3})
    assert (left.range, right.range) == (KeyRange("a", "m"), KeyRange("m", "z"))
    both = left.join(right)
    assert both is not None
    assert (both.range, state(both, 6), state(both, 5)) == (region.range, state(region, 6), state(region, 5))
    assert state(region.clip(KeyRange("b", "n")), 6) == {"b": 4, "m": 2}
    with pytest.raises(ValueError, match="no part"):
        region.clip(WHOLE)
    with pytest.raises(ValueError, match="no key"):
        region.split("a")


def test_regions_join_when_they_touch_on_one_axis_and_coincide_on_the_other() -> None:
    left, right = snapshot(5, KeyRange("a", "m"), a=1), snapshot(5, KeyRange("m", "z"), m=2)
    assert left.join(right.raised(5, at(6))) is None
    assert right.join(left) is None
    assert left.join(snapshot(5, KeyRange("n", "z"))) is None
    old = snapshot(5, a=1, b=2).extend(5, at(7), changes(a=3))
    new = snapshot(6, a=1, b=2).extend(6, at(7), changes(a=3)).extend(7, at(9), changes(b=None, c=4))
    both = old.join(new)
    assert both is not None
    assert (both.bottom, both.top) == (5, 9)
    assert [state(both, version) for version in (5, 7, 9)] == [{"a": 1, "b": 2}, {"a": 3, "b": 2}, {"a": 3, "c": 4}]
    assert old.join(snapshot(8)) is None
    assert new.join(old) is None
    assert old.join(old) == old


def test_the_top_may_be_lowered() -> None:
    region = snapshot(5, a=1).extend(5, at(7), changes(a=2, b=3))
    lower = region.lower(6)
    assert (lower.top, state(lower, 6), len(lower)) == (6, {"a": 1}, 1)
    assert region.lower(7) is region
    with pytest.raises(ValueError, match="below the bottom"):
        region.lower(4)


def test_a_new_epoch_begins_with_its_first_version_and_without_changes_that_a_restore_has_lost() -> None:
    region = snapshot(5, a=1).extend(5, at(7), changes(a=2, b=3))
    restored = region.extend(6, at(100, "f"), changes(c=4))
    assert (restored.epoch, restored.bottom, restored.top) == ("f", 100, 100)
    assert state(restored, 100) == {"a": 1, "c": 4}, "the changes at 7 are not in the history that has 6 and f.100"
    assert state(region.extend(7, at(100, "f"), []), 100) == {"a": 2, "b": 3}
    with pytest.raises(ValueError, match="below the bottom"):
        region.extend(4, at(100, "f"), [])
    with pytest.raises(ValueError, match="do not join"):
        region.extend(8, at(100, "f"), [])
    assert region.join(restored) is None


def test_a_snapshot_may_arrive_in_parts_and_in_any_order() -> None:
    builder: RegionBuilder[int] = RegionBuilder(KeyRange("a", "x"), at(5))
    for part in (changes(c=1, b=2), changes(e=3, f=4, z=5), changes(d=6, c=7, a=None)):
        builder.add(part)
    assert state(builder.region(), 5) == {"b": 2, "c": 7, "d": 6, "e": 3, "f": 4}


def test_size() -> None:
    assert snapshot(5).size == REGION_SIZE
    assert snapshot(5, a=1).size > REGION_SIZE


keys = st.sampled_from([*"abcdef", "é", "\U0001f600"])
history = st.lists(st.lists(st.tuples(keys, st.none() | st.integers(0, 9)), max_size=4), max_size=12)


@given(history, st.data())
def test_a_region_is_the_history_that_it_knows(
    history: list[list[tuple[str, int | None]]], data: st.DataObject
) -> None:
    states: list[dict[str, int]] = [{"a": 1, "é": 2}]
    region = snapshot(0, **states[0])
    for number, mutations in enumerate(history, 1):
        region = region.extend(number - 1, at(number), [Mutation(key, value, 1) for key, value in mutations])
        state = dict(states[-1])
        for key, value in mutations:
            state.pop(key, None)
            if value is not None:
                state[key] = value
        states.append(state)
        region = region.evict(data.draw(st.integers(0, number)))
        low = data.draw(keys)
        parts = [part for half in region.split(low) for part in [half]]
        for version in range(region.bottom, number + 1):
            assert dict(region.items(WHOLE, version)) == states[version]
            for part in parts:
                real = {key: value for key, value in states[version].items() if key in part.range}
                assert dict(part.items(part.range, version)) == real
