"""Parameters of requests about soft topics."""

from __future__ import annotations

import pytest

from griphub.api.problem import Problem
from griphub.api.soft_query import (
    SoftQuery,
    check_ingest_headers,
    ingest_query,
    snapshot_location,
    soft_place,
    soft_query,
)
from griphub.windows.bounds import VERSION_MAX
from griphub.windows.positions import Position
from griphub.windows.span import ALL, Span


def test_a_place_is_a_version_of_the_source_or_a_cursor() -> None:
    assert soft_place("0") == 0
    assert soft_place("17") == 17
    assert soft_place("ab.17.5") == Position("ab", 17, 5)
    assert soft_place("ab.17") == Position("ab", 17, VERSION_MAX), "behind all events of the version"


@pytest.mark.parametrize("text", ["", "-1", "017", "1.5.6.7", "AB.1.2", str(2**63), f"ab.{2**63}", "ab.1.x", "²"])
def test_others_are_refused_and_the_refusal_says_what_is_right(text: str) -> None:
    with pytest.raises(Problem, match="expected a version of the source") as caught:
        soft_place(text)
    assert caught.value.status == 400


def test_a_watch_has_a_range_and_a_place() -> None:
    assert soft_query({}) == SoftQuery(ALL, None)
    assert soft_query({"low": ["a"], "version": ["3"]}) == SoftQuery(Span("a"), 3)
    with pytest.raises(Problem, match="did you mean 'version'"):
        soft_query({"versoin": ["3"]})
    with pytest.raises(Problem, match="given 2 times"):
        soft_query({"low": ["a", "b"]})
    with pytest.raises(Problem, match="no key is between"):
        soft_query({"low": ["b"], "high": ["a"]})


def test_an_ingester_may_name_an_epoch() -> None:
    assert ingest_query({}) is None
    assert ingest_query({"epoch": ["ab"], "access_token": ["t"]}) == "ab"
    with pytest.raises(Problem, match="unknown parameter"):
        ingest_query({"version": ["1"]})


def test_ingest_takes_lines_only() -> None:
    check_ingest_headers([(b"content-type", b"application/x-ndjson; charset=utf-8")])
    for headers in (
        [],
        [(b"content-type", b"application/x-www-form-urlencoded")],
        [(b"content-type", b"application/x-ndjson"), (b"content-encoding", b"gzip")],
    ):
        with pytest.raises(Problem) as caught:
            check_ingest_headers(headers)
        assert caught.value.status == 415


def test_the_uri_of_a_snapshot_has_range_and_version_and_no_token() -> None:
    query = soft_query({"low": ["a&b"], "high": ["c"], "version": ["ab.9.1"], "access_token": ["secret"]})
    assert snapshot_location("https://x/s", query) == "https://x/s?low=a%26b&high=c&version=9"
    assert snapshot_location("https://x/s?t=1", soft_query({"version": ["9"]})) == "https://x/s?t=1&version=9"
    assert snapshot_location("https://x/s", soft_query({})) == "https://x/s"
