"""Intervals of time: union, intersection and difference."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Interval", "clipped", "merged", "missing"]


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """From ``since`` to before ``until``."""

    since: datetime.datetime
    until: datetime.datetime


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same time as intervals that are apart from each other, in order."""
    made: list[Interval] = []
    for interval in sorted(intervals):
        if made and interval.since <= made[-1].until:
            if interval.until > made[-1].until:
                made[-1] = Interval(made[-1].since, interval.until)
        else:
            made.append(interval)
    return made


def clipped(intervals: Iterable[Interval], reach: Interval) -> list[Interval]:
    """Return the parts of the intervals that are within ``reach``."""
    return [
        Interval(max(interval.since, reach.since), min(interval.until, reach.until))
        for interval in intervals
        if interval.since < reach.until and interval.until > reach.since
    ]


def missing(intervals: Iterable[Interval], reach: Interval) -> list[Interval]:
    """Return the time of ``reach`` that is in none of the intervals."""
    made = []
    since = reach.since
    for interval in clipped(merged(intervals), reach):
        if interval.since > since:
            made.append(Interval(since, interval.since))
        since = interval.until
    if since < reach.until:
        made.append(Interval(since, reach.until))
    return made
