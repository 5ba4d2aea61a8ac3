"""Times of the API: RFC 3339 in, microseconds since 1970 out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.topics.times import BadTime, parse_time, second_text, time_text

FIRST, LAST = parse_time("0001-01-01T00:00:00Z"), parse_time("9999-12-31T23:59:59.999999Z")


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01 00:00:00Z", 0),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00.1Z", 100_000),
        ("1970-01-01T00:00:00.1234567899Z", 123_456),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T18:30:00-05:30", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("2024-02-29T12:00:00Z", 1_709_208_000_000_000),
        ("2026-11-23T19:00:00.123456Z", 1_795_460_400_123_456),
    ],
)
def test_a_time_is_read(text: str, microseconds: int) -> None:
    assert parse_time(text) == microseconds


@given(st.integers(FIRST, LAST))
def test_a_time_that_was_written_is_read_again(microseconds: int) -> None:
    assert parse_time(time_text(microseconds)) == microseconds


def test_texts_have_six_digits_and_utc() -> None:
    assert time_text(1_795_460_400_000_007) == "2026-11-23T19:00:00.000007Z"
    assert time_text(FIRST) == "0001-01-01T00:00:00.000000Z"
    assert time_text(LAST) == "9999-12-31T23:59:59.999999Z"
    assert time_text(-1) == "1969-12-31T23:59:59.999999Z"
    assert second_text(0) == b"1970-01-01T00:00:00"


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("2026-11-23T19:00:00", "no zone: expected RFC 3339 with a zone"),
        ("2026-11-23T19:00:00.5", "write Z for UTC"),
        ("2016-12-31T23:59:60Z", "leap second"),
        ("0000-01-01T00:00:00Z", "from year 0001 to 9999"),
        ("10000-01-01T00:00:00Z", "is no time"),
        ("+10000-01-01T00:00:00Z", "is no time"),
        ("-0001-01-01T00:00:00Z", "is no time"),
        ("0001-01-01T00:00:00+00:01", "outside of the years"),
        ("9999-12-31T23:59:59-00:01", "outside of the years"),
        ("2026-02-29T00:00:00Z", "no day of the calendar"),
        ("2026-13-01T00:00:00Z", "no day of the calendar"),
        ("2026-00-01T00:00:00Z", "no day of the calendar"),
        ("2026-11-23T24:00:00Z", "no time of the day"),
        ("2026-11-23T19:60:00Z", "no time of the day"),
        ("2026-11-23T19:00:61Z", "no time of the day"),
        ("2026-11-23T19:00:00+24:00", "no time of the day"),
        ("2026-11-23T19:00:00+00:60", "no time of the day"),
        ("2026-11-23T19:00:00 02:00", "%2B"),
        ("2026-11-23T19:00:00+0200", "is no time"),
        ("2026-11-23T19:00:00.Z", "is no time"),
        ("2026-11-23T19:00:00,5Z", "is no time"),
        ("2026-11-23T19:00Z", "is no time"),
        ("2026-11-23", "is no time"),
        ("20261123T190000Z", "is no time"),
        ("1795460400", "is no time"),
        ("now", "is no time"),
        ("", "is no time"),
        ("2026-11-23T19:00:00Z\0", "is no time"),
        ("2026-11-23T19:00:00Z\n", "is no time"),
        (" 2026-11-23T19:00:00Z", "is no time"),
        ("\uff12026-11-23T19:00:00Z", "is no time"),
        ("2026-11-23T19:00:0٣Z", "is no time"),
        ("2026-11-23T19:00:00." + "1" * 31 + "Z", "is no time"),
        ("2026-11-23T19:00:00." + "1" * 100_000 + "Z", "is no time"),
    ],
)
def test_anything_else_is_refused(text: str, cure: str) -> None:
    with pytest.raises(BadTime) as caught:
        parse_time(text, "since")
    assert str(caught.value).startswith("since=")
    assert cure in str(caught.value)
    assert len(str(caught.value)) < 300
