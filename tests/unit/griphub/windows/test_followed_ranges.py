"""Followed ranges: which of them wait for a release, and whose turn it is."""

from __future__ import annotations

from griphub.windows.followed_ranges import Due, FollowedRanges
from griphub.windows.span import ALL, Span

AM, MZ = Span("a", "m"), Span("m", "z")


def test_only_ranges_with_waiting_events_get_a_turn() -> None:
    ranges = FollowedRanges()
    one = ranges.add(AM, 1, behind=False)
    ranges.add(MZ, 1, behind=False)
    whole = ranges.add(ALL, 1, behind=False)
    assert ranges.added("b") == 2
    ranges.raised([MZ])
    assert ranges.next() == Due(whole, beat=False), "its least piece may be there"
    ranges.raised([AM])
    assert [ranges.next(), ranges.next(), ranges.next()] == [Due(one, beat=False), Due(whole, beat=False), None]
    ranges.released(one, 5, behind=False)
    ranges.raised([AM])
    assert ranges.next() == Due(whole, beat=False)
    assert (one.released, ranges.waiting, len(ranges)) == (5, False, 3)


def test_a_beat_is_not_lost_by_a_second_reason() -> None:
    ranges = FollowedRanges()
    one = ranges.add(AM, 1, behind=True)
    ranges.due(one, beat=True)
    ranges.raised([AM])
    assert ranges.next() == Due(one, beat=True)


def test_of_very_many_raised_ranges_each_waiting_one_gets_a_turn() -> None:
    ranges = FollowedRanges()
    one = ranges.add(AM, 1, behind=True)
    ranges.raised([MZ] * 100)
    assert ranges.next() == Due(one, beat=False)


def test_a_removed_range_has_no_turn() -> None:
    ranges = FollowedRanges()
    one = ranges.add(AM, 1, behind=True)
    ranges.raised([AM])
    assert ranges.overlapping([Span("l", "n")]) == [one]
    assert ranges.remove(AM)
    assert not ranges.remove(AM)
    assert ranges.next() is None
    assert ranges.get(AM) is None
    assert ranges.added("b") == 0
    assert list(ranges) == []


def test_ranges_that_touch_some_spans_are_found_once() -> None:
    ranges = FollowedRanges()
    one, two = ranges.add(AM, 1, behind=False), ranges.add(MZ, 1, behind=False)
    three = ranges.add(Span("b", "p"), 1, behind=False)
    assert ranges.overlapping([Span("b", "c"), Span("d", "e"), Span("z", "zz")]) == [one, three]
    assert ranges.overlapping([Span("", "a"), Span("y", "z")]) == [two]
    assert ranges.overlapping([Span("", "A"), Span("zz", "zzz")]) == []
