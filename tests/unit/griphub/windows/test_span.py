"""Spans: half-open, open ends, bounds in the order of UTF-8."""

from __future__ import annotations

import pytest

from griphub.topics.names import KEY_MAX
from griphub.topics.ranges import BadRange
from griphub.windows.span import ALL, TOP, Span, span_of


def test_bounds_are_read_and_given_back() -> None:
    assert span_of(None, None) == ALL
    assert span_of("b", None) == Span("b", TOP)
    assert span_of("b", None).bounds == ("b", None)
    assert span_of(None, "m").bounds == (None, "m")
    assert ALL.bounds == (None, None)
    assert str(Span("b", "m")) == "['b', 'm')"


def test_no_key_lies_above_the_top() -> None:
    assert "\U0010ffff" * (KEY_MAX // 4) < TOP


def test_spans_that_touch_do_not_overlap() -> None:
    assert not Span("a", "m").overlaps(Span("m", "z"))
    assert Span("a", "m").overlaps(Span("l", "z"))
    assert Span("a", "z").overlaps(Span("l", "m"))


@pytest.mark.parametrize(("low", "high"), [("m", "a"), ("a", "a"), ("", "a"), (1, None), ("a", []), ("\ud800", None)])
def test_bounds_that_make_no_range_are_refused(low: object, high: object) -> None:
    with pytest.raises(BadRange):
        span_of(low, high)
