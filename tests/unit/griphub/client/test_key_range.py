"""Ranges of keys: half-open over bytes of UTF-8, with open ends."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.client.key_range import WHOLE, KeyRange, least_end, merged

KEYS = ["", "a", "a\0", "b", "c", "é", "￿", "\U0001f600"]
"""Keys in the order of their bytes; UTF-16 has the last two in another one."""

bounds = st.tuples(st.integers(0, 7), st.integers(0, 8)).filter(lambda pair: pair[0] < pair[1])
ranges = bounds.map(lambda pair: KeyRange(KEYS[pair[0]], KEYS[pair[1]] if pair[1] < 8 else None))


def keys(*ranges: KeyRange) -> list[str]:
    return [key for key in KEYS if any(key in range for range in ranges)]


def test_the_low_end_belongs_to_it_and_the_high_end_does_not() -> None:
    assert keys(KeyRange("a", "b")) == ["a", "a\0"]
    assert keys(KeyRange("b")) == KEYS[3:]
    assert keys(KeyRange.of(None, "a\0")) == ["", "a"]
    assert keys(WHOLE) == KEYS


@pytest.mark.parametrize(("low", "high"), [("a", "a"), ("b", "a"), ("", ""), ("\U0001f600", "￿")])
def test_a_range_without_keys_is_refused(low: str, high: str) -> None:
    with pytest.raises(ValueError, match="low must be below high"):
        KeyRange(low, high)


@pytest.mark.parametrize(("low", "high"), [("\ud800", None), ("a", "b\udfff")])
def test_halves_of_surrogate_pairs_have_no_bytes(low: str, high: str | None) -> None:
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        KeyRange.of(low, high)


def test_parameters_and_text() -> None:
    assert WHOLE.query() == []
    assert WHOLE.whole
    assert KeyRange("a", "é").query() == [("low", "a"), ("high", "é")]
    assert not KeyRange("a").whole
    assert str(KeyRange("a", "b")) == "['a', 'b')"
    assert str(KeyRange("a")) == "['a', end)"
    assert least_end(None, "a") == least_end("a", None) == least_end("b", "a") == "a"
    assert least_end(None, None) is None


@given(ranges, ranges)
def test_two_ranges_are_as_their_keys(one: KeyRange, other: KeyRange) -> None:
    both = [key for key in keys(one) if key in other]
    part = one.overlap(other)
    assert part == other.overlap(one)
    assert (keys(part) if part else []) == both
    assert keys(*one.without(other)) == [key for key in keys(one) if key not in other]
    assert one.covers(other) == (both == keys(other))


@given(st.lists(ranges, max_size=6))
def test_merged_ranges_have_the_same_keys_and_do_not_touch(found: list[KeyRange]) -> None:
    result = merged(found)
    assert keys(*result) == keys(*found)
    for one, following in itertools.pairwise(result):
        assert one.high is not None
        assert one.high < following.low
