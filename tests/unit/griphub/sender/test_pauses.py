"""Pauses grow to a bound, and are spread."""

from __future__ import annotations

import pytest

from griphub.sender.pauses import Pauses

MIDDLE = 0.5  # the chance that neither shortens nor lengthens


def test_twice_as_long_each_time() -> None:
    lengths = [Pauses().after(failures, MIDDLE) for failures in range(1, 12)]
    assert lengths == pytest.approx([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300])


def test_no_number_of_failures_is_too_large() -> None:
    assert Pauses().after(10**9, MIDDLE) == pytest.approx(300)


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 8.0), (MIDDLE, 10.0), (1.0, 12.0)])
def test_a_fifth_shorter_or_longer_by_chance(chance: float, seconds: float) -> None:
    assert Pauses(first=10.0).after(1, chance) == pytest.approx(seconds)


def test_a_pause_asked_for_is_not_shortened() -> None:
    assert Pauses().after(1, 0.0, 60.0) == 60.0
    assert Pauses().after(9, MIDDLE, 60.0) == pytest.approx(256)
