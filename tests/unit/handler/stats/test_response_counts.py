"""Responses by route, class and reason: added up, taken once, bounded."""

from __future__ import annotations

from typing import Any

import pytest

from handler.stats.response_counts import OTHERS, ROUTES_MAX, ResponseCounts, class_name


def test_they_add_up_and_reasons_of_newer_workers_are_others() -> None:
    responses = ResponseCounts()
    responses.add([(b"r", 2, "backend", 3), (b"r", 5, "of the future", 1)])
    assert list(responses.take()) == [(b"r", 2, "backend", 3), (b"r", 5, "other", 1)]
    responses.add([(b"r", 2, "backend", 1), (b"r", 5, "of the far future", 1)])
    assert responses.totals == {b"r": {(2, "backend"): 4, (5, "other"): 2}}
    assert list(responses.take()) == [(b"r", 2, "backend", 1), (b"r", 5, "other", 1)]
    assert list(responses.take()) == []


def test_routes_beyond_the_bound_are_one() -> None:
    responses = ResponseCounts()
    responses.add([(b"%d" % number, 2, "backend", 1) for number in range(ROUTES_MAX + 5)])
    assert len(responses.totals) == ROUTES_MAX + 1
    assert responses.totals[OTHERS] == {(2, "backend"): 5}
    assert len(list(responses.take())) == ROUTES_MAX + 1


@pytest.mark.parametrize("news", [[(b"r", 10, "backend", 1)], [(b"r", 2, "backend")], [1]])
def test_the_wrong_shape_is_refused(news: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        ResponseCounts().add(news)


def test_names_of_classes() -> None:
    assert [class_name(kind) for kind in (0, 2, 5)] == ["none", "2xx", "5xx"]
