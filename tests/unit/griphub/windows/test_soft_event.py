"""Events of soft topics: order and size."""

from __future__ import annotations

from griphub.windows.bounds import EVENT_COST
from griphub.windows.soft_event import SoftEvent, complete


def made(version: int, stamp: int, attributes: dict[str, str] | None = None) -> SoftEvent:
    return SoftEvent(version, stamp, "k", "put", b"123", "application/json", attributes or {})


def test_the_order_is_that_of_versions_then_of_arrival() -> None:
    assert sorted([made(2, 1), made(1, 9), made(1, 3)]) == [made(1, 3), made(1, 9), made(2, 1)]
    assert made(1, 9).place < complete(1) < made(2, 1).place


def test_an_event_counts_for_more_than_its_content() -> None:
    assert made(1, 1).size == EVENT_COST + 4
    assert made(1, 1, {"a": "bc"}).size == EVENT_COST + 4 + 6
