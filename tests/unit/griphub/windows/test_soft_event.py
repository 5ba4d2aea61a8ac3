"""Events of soft topics: order and size."""

from __future__ import annotations

import sys

import pytest

from griphub.windows.bounds import EVENT_COST
from griphub.windows.soft_event import SoftEvent, complete


def made(version: int, stamp: int, attributes: dict[str, str] | None = None) -> SoftEvent:
    return SoftEvent(version, stamp, "k", "put", b"123", "application/json", attributes or {})


def test_the_order_is_that_of_versions_then_of_arrival() -> None:
    assert sorted([made(2, 1), made(1, 9), made(1, 3)]) == [made(1, 3), made(1, 9), made(2, 1)]
    assert made(1, 9).place < complete(1) < made(2, 1).place


def test_an_event_counts_for_more_than_its_content() -> None:
    assert made(1, 1).size == EVENT_COST + 4


@pytest.mark.parametrize("number", [1, 6, 11, 100])
@pytest.mark.parametrize("text", ["", "x" * 100, "\u20ac" * 100, "\U0001f600" * 100])
def test_attributes_count_for_the_memory_that_they_take(number: int, text: str) -> None:
    attributes = {f"{text}{each}": f"{each}{text}" for each in range(number)}
    texts = sum(sys.getsizeof(each) for pair in attributes.items() for each in pair)
    assert made(1, 1, attributes).size - made(1, 1).size >= sys.getsizeof(attributes) + texts
