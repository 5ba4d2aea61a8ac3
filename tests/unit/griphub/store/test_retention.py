"""How far a floor may rise: the greatest of what each bound demands, not past a lease, and never back."""

from __future__ import annotations

import pytest

from griphub.store.retention import floor_of
from griphub.store.topic import Retention, Topic, TopicSettings

NOW = 100_000_000


def topic(floor: int, retention: Retention) -> Topic:
    return Topic(1, "t", 0, floor, 0, 50, 50, 5000, 0, TopicSettings(retention))


@pytest.mark.parametrize(
    ("floor", "retention", "keep", "wanted"),
    [
        (0, Retention(), None, 0),
        (7, Retention(), None, 7),
        (0, Retention(age=10.0), None, 30),
        (0, Retention(events=20), None, 20),
        (0, Retention(bytes=1000), None, 10),
        (0, Retention(10.0, 20, 1000), None, 30),
        (40, Retention(10.0, 20, 1000), None, 40),
        # Within its bounds.
        (0, Retention(events=50, bytes=5000), None, 0),
        (0, Retention(age=10.0), 25, 25),
        (0, Retention(age=10.0), 35, 30),
        (28, Retention(age=10.0), 25, 28),
    ],
)
def test_floor(floor: int, retention: Retention, keep: int | None, wanted: int) -> None:
    asked: list[int] = []

    def before(moment: int) -> int:
        asked.append(moment)
        return 30

    assert floor_of(topic(floor, retention), NOW, before, lambda most: 20, lambda most: 10, keep) == wanted
    assert asked == ([NOW - 10_000_000] if retention.age else [])
