"""gripproxy.top.format: amounts as text."""

from __future__ import annotations

import pytest

from gripproxy.top.format import age, bytes_rate, count, known, rate, shown, spark


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999, "999"),
        (12_345, "12,345"),
        (99_999_999, "99,999,999"),
        (100_000_000, "100.0M"),
        (2_500_000_000, "2.5G"),
        ((1 << 63) - 1, "9.2E"),
    ],
)
def test_count(value: int, text: str) -> None:
    assert count(value) == known(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.001, "0.1"), (0.25, "0.2"), (12.34, "12.3"), (99.94, "99.9"), (99.95, "100"), (12_345.6, "12,346")],
)
def test_rate(value: float, text: str) -> None:
    assert rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B/s"),
        (999, "999 B/s"),
        (999.6, "1.0 kB/s"),
        (12_345, "12.3 kB/s"),
        (123_456, "123 kB/s"),
        (5e6, "5.0 MB/s"),
    ],
)
def test_bytes(value: float, text: str) -> None:
    assert bytes_rate(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "now"), (1, "1 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (7200, "2 h"), (90_000, "1 d")],
)
def test_age(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_what_is_unknown_is_a_dash() -> None:
    assert [known(None), rate(None), bytes_rate(None), age(None)] == ["-"] * 4


def test_bars_are_relative_to_the_highest() -> None:
    assert spark([0, 1, 4, 8, 2], 10) == "·▂▅█▃"
    assert spark([100, 1, 2], 2) == "▅█"
    assert spark([0, 0], 5) == "··"
    assert spark([], 5) == spark([1.0], 0) == ""


def test_names_cannot_do_anything_to_a_terminal() -> None:
    assert shown("Räume/日本") == "Räume/日本"
    assert shown("a\x1b[2Jb\nc\x9b\u202ed") == "a\\x1b[2Jb\\nc\\x9b\\u202ed"
