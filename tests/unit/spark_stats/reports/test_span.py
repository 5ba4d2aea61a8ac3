"""Ranges of time, as they are given on the command line."""

from __future__ import annotations

import datetime

import pytest

from spark_stats.reports.span import Span, moment

NOW = datetime.datetime(2026, 11, 20, 16, 30, 15, 999, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-11-20T16:30:15+00:00"),
        ("90m", "2026-11-20T15:00:15+00:00"),
        ("36h", "2026-11-19T04:30:15+00:00"),
        ("7d", "2026-11-13T16:30:15+00:00"),
        ("2026-11-20", "2026-11-20T00:00:00+00:00"),
        ("2026-11-20T16:00", "2026-11-20T16:00:00+00:00"),
        ("2026-11-20T16:00:01.5+02:00", "2026-11-20T14:00:01+00:00"),
    ],
)
def test_times(text: str, expected: str) -> None:
    assert moment(text, NOW).isoformat() == expected


@pytest.mark.parametrize("text", ["", "yesterday", "5", "-1h", "9999999999d", "2026-13-01"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected now|no years"):
        moment(text, NOW)


def test_a_range_has_an_order_and_whole_seconds() -> None:
    begin, end = moment("2h", NOW), moment("now", NOW)
    assert str(Span(begin, end)) == "2026-11-20 14:30:15 to 2026-11-20 16:30:15 UTC"
    assert Span(begin, end).read_since == begin - datetime.timedelta(hours=1)
    for wrong in ((end, begin), (end, end)):
        with pytest.raises(ValueError, match="before it has begun"):
            Span(*wrong)
    with pytest.raises(ValueError, match="whole second of UTC"):
        Span(begin, NOW)
