"""Interval algebra, against the same done second by second."""

from __future__ import annotations

import datetime
import itertools

from hypothesis import given
from hypothesis import strategies as st

from spark_stats.reports.intervals import Interval, clipped, merged, missing

ZERO = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)


def interval(since: int, until: int) -> Interval:
    return Interval(ZERO + datetime.timedelta(seconds=since), ZERO + datetime.timedelta(seconds=until))


def seconds(intervals: list[Interval]) -> list[int]:
    """All seconds in the intervals, each as often as it is in one."""
    found: list[int] = []
    for each in intervals:
        begin, end = ((time - ZERO) // datetime.timedelta(seconds=1) for time in (each.since, each.until))
        found.extend(range(begin, end))
    return sorted(found)


SOME = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)).map(lambda pair: interval(pair[0], sum(pair))))


@given(SOME)
def test_merged_intervals_are_the_same_time_once(some: list[Interval]) -> None:
    made = merged(some)
    assert seconds(made) == sorted(set(seconds(some)))
    assert all(first.until < second.since for first, second in itertools.pairwise(made))


@given(SOME, st.integers(0, 30), st.integers(1, 20))
def test_clipped_and_missing_make_up_the_reach(some: list[Interval], since: int, length: int) -> None:
    reach = interval(since, since + length)
    inside, outside = clipped(merged(some), reach), missing(some, reach)
    assert sorted(seconds(inside) + seconds(outside)) == seconds([reach])
    assert set(seconds(inside)) <= set(seconds(some))
