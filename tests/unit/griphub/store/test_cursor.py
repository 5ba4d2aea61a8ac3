"""Cursors, and which of them are gone."""

from __future__ import annotations

import pytest

from griphub.store.cursor import BEGINNING, Cursor, EpochInterval, is_known, parse_cursor
from griphub.store.errors import BadCursor

INTERVALS = (EpochInterval("old", 1, 10), EpochInterval("new", 1000, None))
NEWEST = 1005


@pytest.mark.parametrize("text", ["0", "abc123.1", "0.0", "a.9999999999999999999"])
def test_a_cursor_is_read_and_written(text: str) -> None:
    assert str(parse_cursor(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "12",
        "00",
        "a",
        "a.",
        ".1",
        "a.-1",
        "a.1.",
        "a.1.2.3",
        "a.1.-2",
        "A.1",
        "a.1 ",
        " a.1",
        "a.1\n",
        "a.٣",
        "a" * 33 + ".1",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadCursor, match="is no cursor: expected"):
        parse_cursor(text)


def test_the_cursor_of_progress_is_the_place_of_its_version() -> None:
    assert parse_cursor("abc123.7.1765000000000000") == Cursor("abc123", 7)


@pytest.mark.parametrize(
    ("cursor", "known"),
    [
        (BEGINNING, True),
        (Cursor("", 5), False),
        (Cursor("old", 0), True),
        (Cursor("old", 10), True),
        (Cursor("old", 11), False),
        (Cursor("old", 1001), False),
        (Cursor("new", 998), False),
        (Cursor("new", 999), True),
        (Cursor("new", 1005), True),
        (Cursor("new", 1006), False),
        (Cursor("other", 5), False),
    ],
)
def test_a_place_that_was_never_given_is_gone(cursor: Cursor, known: bool) -> None:
    assert is_known(cursor, INTERVALS, NEWEST) is known
