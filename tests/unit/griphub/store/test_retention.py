"""The part of a topic that is beyond its bounds, and the row at which it ends."""

from __future__ import annotations

import pytest

from griphub.store.retention import excess_of
from griphub.store.topic import Retention

ROWS = [(id, 100) for id in range(1, 51)]
"""Fifty events of 100 bytes."""


@pytest.mark.parametrize(
    ("retention", "floor"),
    [
        (Retention(), 0),
        (Retention(events=50, bytes=5000), 0),
        (Retention(events=49), 1),
        (Retention(events=20), 30),
        (Retention(events=0), 50),
        (Retention(bytes=4999), 1),
        (Retention(bytes=1000), 40),
        (Retention(bytes=0), 50),
        (Retention(events=20, bytes=1000), 40),
        (Retention(events=5, bytes=1000), 45),
    ],
)
def test_excess(retention: Retention, floor: int) -> None:
    excess = excess_of(retention, 50, 5000)
    assert bool(excess) == (floor > 0)
    assert excess.passed(ROWS) == floor


def test_too_few_rows() -> None:
    excess = excess_of(Retention(events=1), 50, 5000)
    assert excess.passed(ROWS[:10]) == 10
    assert excess.passed([]) == 0
