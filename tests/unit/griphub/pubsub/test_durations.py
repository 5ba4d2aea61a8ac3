"""Durations and times in JSON (scenario 8)."""

from __future__ import annotations

import pytest

from griphub.pubsub.durations import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    duration_text,
    parse_duration,
    parse_time,
    spoken,
    time_text,
)


@pytest.mark.parametrize(
    ("text", "value", "written"),
    [
        ("600s", 600 * 10**9, "600s"),
        ("600.5s", 600_500_000_000, "600.500s"),
        ("0s", 0, "0s"),
        ("-600s", -600 * 10**9, "-600s"),
        ("599.999999999s", 599_999_999_999, "599.999999999s"),
        ("2678400.000000001s", 2_678_400_000_000_001, "2678400.000000001s"),
        ("1.0000010s", 1_000_001_000, "1.000001s"),
        ("-0.5s", -500_000_000, "-0.500s"),
    ],
)
def test_durations(text: str, value: int, written: str) -> None:
    assert parse_duration(text) == value
    assert duration_text(value) == written


@pytest.mark.parametrize(
    "text",
    ["600", "", "s", "1.s", ".5s", "1.1234567890s", "1e3s", "1 s", "+1s", "1S", "315576000001s", "\u0661s", "1s\n"],
)
def test_other_texts_are_none(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2024-01-02T03:04:05.678Z", "2024-01-02T03:04:05.678Z"),
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05.6789Z", "2024-01-02T03:04:05.678900Z"),
        ("2024-01-02T03:04:05.123456789Z", "2024-01-02T03:04:05.123456789Z"),
        ("2024-01-02T03:04:05+02:30", "2024-01-02T00:34:05Z"),
        ("2024-01-01T23:04:05-02:00", "2024-01-02T01:04:05Z"),
        ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.500Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"),
    ],
)
def test_times(text: str, written: str) -> None:
    value = parse_time(text)
    assert value is not None
    assert time_text(value) == written


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-02",
        "2024-01-02T03:04:05",
        "2024-02-30T00:00:00Z",
        "2024-01-02T25:00:00Z",
        "2024-01-02T03:04:05.Z",
        "2024-01-02T03:04:05+24:00",
        "2024-01-02T03:04:05+02:60",
        "2024-01-02 03:04:05Z",
        "0000-01-01T00:00:00Z",
        "1704164645",
    ],
)
def test_other_texts_are_no_times(text: str) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(599, "9m59s"), (600, "10m"), (744 * 3600, "744h"), (3600, "1h"), (0, "0s"), (86_461, "24h1m1s"), (-5, "-5s")],
)
def test_durations_in_messages(value: int, text: str) -> None:
    assert spoken(value * 10**9) == text


def test_the_units_are_nanoseconds() -> None:
    assert (SECOND, MINUTE, HOUR, DAY) == (10**9, 60 * 10**9, 3600 * 10**9, 86_400 * 10**9)
