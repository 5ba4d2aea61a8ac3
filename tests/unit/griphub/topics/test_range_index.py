"""Index of ranges: the same answers as a scan of all ranges, the narrowest first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.store.interface import WHOLE, KeyRange
from griphub.topics.range_index import RangeIndex
from griphub.topics.ranges import contains

# Letters whose order by code points, by UTF-16 and by UTF-8 bytes differ, and the byte that single keys end with.
LETTERS = "\0ab~\x7f\u0080é\ud7ff\ue000\uffff\U00010000\U0010ffff"

keys = st.text(st.sampled_from(LETTERS), min_size=1, max_size=3)


@st.composite
def ranges(draw: st.DrawFn) -> KeyRange:
    kind = draw(st.sampled_from(["whole", "single", "low", "high", "open", "both", "both"]))
    if kind == "whole":
        return WHOLE
    if kind == "open":
        return KeyRange()
    low = draw(keys)
    if kind == "single":
        return KeyRange(low, low + "\0")
    if kind == "low":
        return KeyRange(low, None)
    if kind == "high":
        return KeyRange(None, low)
    high = draw(keys.filter(lambda text: text != low))
    low, high = sorted((low, high), key=str.encode)
    return KeyRange(low, high)


def scan(held: set[KeyRange], key: str | None) -> set[KeyRange]:
    """Return the ranges that contain a key, by the bytes of all bounds."""
    if key is None:
        return held & {WHOLE}
    place = key.encode()
    return {
        each
        for each in held
        if (each.low is None or each.low.encode() <= place) and (each.high is None or place < each.high.encode())
    }


def lies_in(inner: KeyRange, outer: KeyRange) -> bool:
    """Return whether all keys of one range are in another."""
    if not outer.keyed:
        return True
    low = outer.low is None or (inner.low is not None and outer.low.encode() <= inner.low.encode())
    high = outer.high is None or (inner.high is not None and inner.high.encode() <= outer.high.encode())
    return inner.keyed and low and high


@given(st.lists(st.tuples(st.booleans(), ranges()), max_size=40), st.lists(keys, min_size=1, max_size=10))
def test_a_look_up_finds_what_a_scan_finds(steps: list[tuple[bool, KeyRange]], wanted: list[str]) -> None:
    index: RangeIndex[KeyRange] = RangeIndex()
    held: set[KeyRange] = set()
    for adds, each in steps:
        if adds and each not in held:
            index.add(each, each)
            held.add(each)
        elif not adds and each in held:
            index.remove(each)
            held.remove(each)
        for key in [*wanted[:2], None]:
            assert set(index.matching(key)) == scan(held, key)
    bounds = [bound for each in held for bound in (each.low, each.high) if bound]
    for key in [*wanted, *bounds, None]:
        found = index.matching(key)
        assert len(found) == len(set(found))
        assert set(found) == scan(held, key)
        assert {each for each in held if contains(each, key)} == scan(held, key)
    assert len(index) == len(held)
    assert set(index) == held
    assert all(index.get(each) == each for each in held)


@given(st.sets(ranges(), max_size=30), keys)
def test_narrower_ranges_precede_those_that_they_lie_in(held: set[KeyRange], key: str) -> None:
    index: RangeIndex[KeyRange] = RangeIndex()
    for each in held:
        index.add(each, each)
    found = index.matching(key)
    for place, wider in enumerate(found):
        for narrower in found[place + 1 :]:
            assert not (lies_in(narrower, wider) and narrower != wider), f"{wider} precedes {narrower}"


@pytest.mark.parametrize(
    ("keys", "inside", "outside"),
    [
        (KeyRange("a", "a\0"), ["a"], ["a\0", "aa", "b", None]),
        (KeyRange("a", "c"), ["a", "b", "bzzz"], ["c", "A", None]),
        (KeyRange("\uffff", None), ["\uffff", "\U00010000"], ["\ue000", None]),
        (KeyRange(None, "\U00010000"), ["\uffff", "a"], ["\U00010000", "\U0010ffff", None]),
        (KeyRange(), ["\0", "\U0010ffff" * 3], [None]),
        (WHOLE, ["a", None], []),
    ],
)
def test_ends_of_ranges(keys: KeyRange, inside: list[str | None], outside: list[str | None]) -> None:
    index: RangeIndex[str] = RangeIndex()
    index.add(keys, "value")
    assert [index.matching(key) for key in inside] == [["value"]] * len(inside)
    assert [index.matching(key) for key in outside] == [[]] * len(outside)
    index.remove(keys)
    assert index.get(keys) is None
    assert [index.matching(key) for key in inside] == [[]] * len(inside)


def test_a_range_that_is_not_there_cannot_be_removed() -> None:
    index: RangeIndex[str] = RangeIndex()
    with pytest.raises(KeyError):
        index.remove(KeyRange("a", "b"))
