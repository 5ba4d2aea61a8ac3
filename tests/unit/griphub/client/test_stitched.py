"""Stitched reads: one version over all pieces, the newest that is known, or none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.client.key_range import WHOLE, KeyRange
from griphub.client.region import Mutation, Region, RegionBuilder
from griphub.client.stitched import NotKnown, View, stitch
from griphub.client.watch_messages import Version

KEYS = "abcdefgh"


def region(low: str | None, high: str | None, bottom: int, top: int, epoch: str = "e") -> Region[int]:
    """Return a region of a history in which each key has the number of the version as its value."""
    builder: RegionBuilder[int] = RegionBuilder(KeyRange.of(low, high), Version(epoch, bottom))
    builder.add([Mutation(key, bottom) for key in KEYS])
    found = builder.region()
    for number in range(bottom + 1, top + 1):
        found = found.extend(number - 1, Version(epoch, number), [Mutation(key, number) for key in KEYS])
    return found


def read(ranges: list[KeyRange], *regions: Region[int], **options: Any) -> dict[str, int]:
    view = stitch(ranges, regions, **options)
    assert isinstance(view, View), view
    found = dict(view.items())
    assert set(found.values()) <= {view.version.number}
    assert found == {key: view.get(key) for key in found}
    return found


def test_the_newest_version_is_the_least_of_the_tops() -> None:
    left, right = region(None, "d", 3, 9), region("d", None, 5, 7)
    assert read([WHOLE], left, right) == dict.fromkeys(KEYS, 7)
    assert read([KeyRange("a", "c")], left, right) == {"a": 9, "b": 9}
    assert read([KeyRange("a", "b"), KeyRange("g")], right, left) == {"a": 7, "g": 7, "h": 7}


def test_versions_that_do_not_meet_are_never_mixed() -> None:
    found = stitch([WHOLE], [region(None, "d", 3, 5), region("d", None, 6, 9)])
    assert found == NotKnown((), Version("e", 6), Version("e", 5))
    assert not found
    assert str(found) == "no version is known of all: some begin at e.6, others end at e.5"


def test_keys_that_are_missing_are_named() -> None:
    regions = [region("b", "d", 1, 5), region("f", None, 1, 5)]
    found = stitch([WHOLE], regions)
    assert isinstance(found, NotKnown)
    assert found.missing == (KeyRange("", "b"), KeyRange("d", "f"))
    assert str(found) == "not known: ['', 'b'), ['d', 'f')"
    assert stitch([WHOLE], []) == NotKnown((WHOLE,))


def test_regions_of_several_caches_may_overlap() -> None:
    old, new, rest = region(None, "f", 1, 5), region("c", None, 4, 9), region("f", None, 1, 3)
    assert read([WHOLE], old, new, rest) == dict.fromkeys(KEYS, 5)
    assert read([KeyRange("c")], old, new) == dict.fromkeys("cdefgh", 9)
    behind = [region(None, "d", 1, 2), region(None, "d", 7, 9), region("d", None, 1, 5)]
    assert read([WHOLE], *behind) == dict.fromkeys(KEYS, 2)


def test_a_version_may_be_asked_for() -> None:
    regions = [region(None, "d", 3, 9), region("d", None, 5, 7)]
    assert read([WHOLE], *regions, at=Version("e", 6)) == dict.fromkeys(KEYS, 6)
    assert read([WHOLE], *regions, at_least=Version("e", 7)) == dict.fromkeys(KEYS, 7)
    for options in ({"at": 4}, {"at": 8}, {"at_least": 8}):
        found = stitch([WHOLE], regions, **{name: Version("e", number) for name, number in options.items()})
        assert isinstance(found, NotKnown)
    assert isinstance(stitch([WHOLE], regions, at=Version("f", 6)), NotKnown)


def test_epochs_are_not_mixed() -> None:
    one, other = region(None, "d", 3, 9), region("d", None, 3, 9, "f")
    assert isinstance(stitch([WHOLE], [one, other]), NotKnown)
    assert read([WHOLE], one, other, region(None, "d", 4, 5, "f")) == dict.fromkeys(KEYS, 5)


def test_a_view_knows_its_ranges_only() -> None:
    view = stitch([KeyRange("b", "c"), KeyRange("e", "f")], [region(None, None, 1, 2)])
    assert isinstance(view, View)
    assert view.ranges == [KeyRange("b", "c"), KeyRange("e", "f")]
    assert view.version == Version("e", 2)
    assert view.get("b") == 2
    for key in "acdf":
        with pytest.raises(LookupError, match="not among the ranges"):
            view.get(key)


bounds = st.sampled_from(["", *KEYS])
pieces = st.lists(st.tuples(bounds, bounds, st.integers(0, 6), st.integers(0, 4)), max_size=6)


@given(pieces, bounds, bounds, st.none() | st.integers(0, 10))
def test_the_answer_is_the_greatest_version_that_all_keys_know(
    pieces: list[tuple[str, str, int, int]], low: str, high: str, limit: int | None
) -> None:
    def span(one: str, other: str) -> KeyRange:
        return KeyRange(min(one, other), max(one, other) if one != other else None)

    regions = [
        region(span(one, other).low, span(one, other).high, bottom, bottom + length)
        for one, other, bottom, length in pieces
    ]
    asked = span(low, high)
    points = [key for key in ["", *KEYS] if key in asked]
    versions = [
        number
        for number in range(12)
        if all(any(key in each.range and each.knows(Version("e", number)) for each in regions) for key in points)
    ]
    at = None if limit is None else Version("e", limit)
    found = stitch([asked], regions, at=at)
    if limit is None and versions:
        assert isinstance(found, View)
        assert found.version.number == max(versions)
    elif limit is not None and limit in versions:
        assert isinstance(found, View)
        assert dict(found.items()) == {key: limit for key in points if key}
    else:
        assert isinstance(found, NotKnown)
