"""Positions and stamps."""

from __future__ import annotations

import pytest

from griphub.windows.positions import BadPosition, Position, Stamps, parse_position


def test_a_position_is_read_as_it_was_written() -> None:
    position = Position("e1", 17, 1700000000000000)
    assert str(position) == "e1.17.1700000000000000"
    assert parse_position(str(position)) == position
    assert position.place == (17, 1700000000000000)


@pytest.mark.parametrize("text", ["", "e.1", "e.1.2.3", "E.1.2", "e.01.2", "e.-1.2", "e.9223372036854775808.1"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadPosition, match="is no position"):
        parse_position(text)


def test_stamps_increase_also_when_the_clock_goes_back() -> None:
    stamps = Stamps()
    assert [stamps.next(now) for now in (5, 5, 3, 9)] == [5, 6, 7, 9]
