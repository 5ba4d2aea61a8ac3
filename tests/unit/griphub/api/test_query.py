"""Parameters and headers: which are read, and how others are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from griphub.api.problem import Problem
from griphub.api.query import (
    PublishQuery,
    ReadQuery,
    SnapshotQuery,
    TopicListQuery,
    accepted_representation,
    idempotency_key,
    if_match,
    last_event_id,
    nothing_else,
    publish_query,
    read_query,
    snapshot_query,
    topic_list_query,
    watch_query,
)
from griphub.store.interface import KeyRange
from griphub.topics.event_text import Representation
from griphub.topics.times import parse_time


def query(**values: str) -> dict[str, list[str]]:
    return {name: [value] for name, value in values.items()}


def refusal(act: Callable[[Any], object], value: object, status: int = 400) -> str:
    with pytest.raises(Problem) as caught:
        act(value)
    assert caught.value.status == status
    assert len(caught.value.detail) < 800
    return caught.value.detail


T1, T2 = "2026-11-23T19:00:00Z", "2026-11-23T20:00:00+00:00"


def test_a_read_has_defaults() -> None:
    assert read_query({}) == ReadQuery()
    assert read_query(query(access_token="secret")) == ReadQuery()


def test_each_parameter_of_a_read_is_read() -> None:
    found = read_query(query(since=T1, until=T2, limit="7", low="a", high="b", truncated="allow", follow="false"))
    assert (found.since, found.until) == (parse_time(T1), parse_time(T2))
    assert (found.limit, found.keys, found.truncated, found.follow) == (7, KeyRange("a", "b"), True, False)
    found = read_query(query(after="e.5", wait="30"))
    assert (found.after, found.wait) == ("e.5", 30)
    assert read_query(query(after="0", follow="true")).follow is True


def test_the_following_page_keeps_range_and_end_but_no_token() -> None:
    found = read_query(query(since=T1, until=T2, limit="7", low="a&b=é", access_token="x", truncated="allow"))
    assert found.following("e.9") == "after=e.9&until=2026-11-23T20%3A00%3A00%2B00%3A00&limit=7&low=a%26b%3D%C3%A9"
    assert read_query({}).following("e.9") == "after=e.9"


@pytest.mark.parametrize(("text", "seconds"), [("0", 5), ("4", 5), ("5", 5), ("6", 6), ("600", 600)])
def test_a_wait_has_a_least_time(text: str, seconds: int) -> None:
    assert read_query(query(wait=text)).wait == seconds


@pytest.mark.parametrize(
    ("values", "cure"),
    [
        ({"sicne": T1}, "unknown parameter 'sicne': did you mean 'since'?"),
        ({"Since": T1}, "did you mean 'since'?"),
        ({"x" * 10**5: "1"}, "expected one of since, after"),
        ({"zzz": ""}, "unknown parameter 'zzz': expected one of since, after, until"),
        ({"": ""}, "unknown parameter ''"),
        ({"limit": "0"}, "expected an integer from 1 to 1000000"),
        ({"limit": "1000000000"}, "expected an integer from 1 to 1000000"),
        ({"limit": "9" * 10**5}, "expected an integer"),
        ({"limit": "-1"}, "expected an integer"),
        ({"limit": "1.0"}, "expected an integer"),
        ({"limit": " 1"}, "expected an integer"),
        ({"limit": "+1"}, "expected an integer"),
        ({"limit": "1_0"}, "expected an integer"),
        ({"limit": "\u0667"}, "expected an integer"),
        ({"limit": ""}, "expected an integer"),
        ({"wait": "601"}, "from 0 to 600"),
        ({"wait": "1000000000"}, "from 0 to 600"),
        ({"wait": "5s"}, "from 0 to 600"),
        ({"follow": "yes"}, "expected true or false"),
        ({"follow": ""}, "expected true or false"),
        ({"truncated": "true"}, "expected allow"),
        ({"truncated": ""}, "expected allow"),
        ({"after": "5"}, "is no cursor: expected EPOCH.ID"),
        ({"after": ""}, "is no cursor"),
        ({"after": "e.5\0"}, "is no cursor"),
        ({"since": "yesterday"}, "since='yesterday' is no time"),
        ({"since": "0000-01-01T00:00:00Z"}, "since="),
        ({"since": "2026-11-23T19:00:00 00:00"}, "%2B"),
        ({"until": "10000-01-01T00:00:00Z"}, "until="),
        ({"low": ""}, "leave low out"),
        ({"high": ""}, "leave high out"),
        ({"low": "b", "high": "a"}, "low must be below high"),
        ({"low": "a", "high": "a"}, "low must be below high"),
        ({"low": "a" * 256}, "at most 255"),
        ({"low": "a\0"}, "NUL"),
        ({"low": "\ud800"}, "surrogate"),
        ({"since": T1, "after": "0"}, "since and after contradict"),
        ({"until": T1, "wait": "9"}, "until and wait contradict"),
        ({"follow": "true", "wait": "9"}, "follow and wait contradict"),
        ({"follow": "true", "until": T1}, "give one of them"),
        ({"since": T2, "until": T1}, "is before since"),
    ],
)
def test_other_reads_are_refused(values: dict[str, str], cure: str) -> None:
    assert cure in refusal(read_query, query(**values))


def test_a_repeated_parameter_is_refused() -> None:
    assert "limit is given 2 times" in refusal(read_query, {"limit": ["1", "1"]})
    assert "access_token is given 2 times" in refusal(nothing_else, {"access_token": ["a", "b"]})


def test_snapshots_have_a_range_and_a_version() -> None:
    assert snapshot_query({}) == SnapshotQuery()
    assert snapshot_query(query(low="a", version="e.7")) == SnapshotQuery(KeyRange("a", None), "e.7")
    assert "is no cursor" in refusal(snapshot_query, query(version="7"))
    assert "low must be below" in refusal(snapshot_query, query(low="b", high="a"))
    assert "did you mean 'version'?" in refusal(snapshot_query, query(verson="e.7"))
    assert "unknown parameter 'since'" in refusal(snapshot_query, query(since=T1))


def test_watches_have_a_range_and_a_version_and_begin_now() -> None:
    assert watch_query({}) == ReadQuery(follow=True, newest=True)
    assert watch_query(query(low="a", version="e.7.99")) == ReadQuery(
        after="e.7.99", keys=KeyRange("a", None), follow=True, newest=True
    )
    assert "is no cursor" in refusal(watch_query, query(version="7"))
    assert "low must be below" in refusal(watch_query, query(low="b", high="a"))
    assert "unknown parameter 'after'" in refusal(watch_query, query(after="0"))


def test_lists_of_topics_have_a_limit() -> None:
    assert topic_list_query({}) == TopicListQuery("", 100)
    assert topic_list_query(query(after="p/t", limit="1000")) == TopicListQuery("p/t", 1000)
    assert "from 1 to 1000" in refusal(topic_list_query, query(limit="1001"))
    assert "from 1 to 1000" in refusal(topic_list_query, query(limit="0"))
    assert "more than 320 bytes" in refusal(topic_list_query, query(after="a" * 321))


def test_publications_name_an_attribute_for_the_key() -> None:
    assert publish_query({}) == PublishQuery()
    assert publish_query(query(batch="false", key="partitionkey")) == PublishQuery(False, "partitionkey")
    assert publish_query(query(batch="true")).batch is True
    for text in ("", "Key", "a-b", "é", "a" * 101):
        assert "no attribute of a CloudEvent" in refusal(publish_query, query(key=text))
    assert "expected true or false" in refusal(publish_query, query(batch="1"))


def test_requests_without_parameters_may_have_a_token() -> None:
    nothing_else({})
    nothing_else(query(access_token="x"))
    assert "unknown parameter 'limit'" in refusal(nothing_else, query(limit="1"))


@pytest.mark.parametrize(
    ("value", "cursor"), [(b'"e.5"', "e.5"), (b"e.5", "e.5"), (b'"0"', "0"), (b" 0 ", "0"), (b'"0.0"', "0.0")]
)
def test_a_condition_names_a_cursor(value: bytes, cursor: str) -> None:
    assert if_match([(b"host", b"x"), (b"if-match", value)]) == cursor


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        (b"*", "not supported"),
        (b'W/"e.5"', "not supported"),
        (b'"e.5", "e.6"', "not supported"),
        (b"", "is no cursor"),
        (b'""', "is no cursor"),
        (b'"5"', "is no cursor"),
        (b'"e.5', "is no cursor"),
        (b"\xff", "is no cursor"),
        (b"e.5\0", "is no cursor"),
        (b'"e.5.99"', "is the cursor of progress"),
        (b"x" * 10**5, "is no cursor"),
    ],
)
def test_other_conditions_are_refused(value: bytes, cure: str) -> None:
    assert cure in refusal(if_match, [(b"if-match", value)])


def test_headers_that_name_one_thing_are_given_once() -> None:
    for name, act in (
        (b"if-match", if_match),
        (b"idempotency-key", idempotency_key),
        (b"last-event-id", last_event_id),
    ):
        assert act([(b"host", b"x")]) is None
        assert "several times" in refusal(act, [(name, b"e.5"), (name, b"e.5")])


def test_the_name_of_a_request_is_quoted_or_bare() -> None:
    assert idempotency_key([(b"idempotency-key", b'"a-1"')]) == "a-1"
    assert idempotency_key([(b"idempotency-key", b"a-1")]) == "a-1"
    assert idempotency_key([(b"idempotency-key", b"x" * 255)]) == "x" * 255
    for value in (b"", b'""', b'" "', b"a b", b"\xc3\xa9", b"a\0", b"x" * 256):
        assert "visible ASCII" in refusal(idempotency_key, [(b"idempotency-key", value)])


def test_the_last_event_is_a_cursor_or_a_resync() -> None:
    assert last_event_id([(b"last-event-id", b"e.5")]) == "e.5"
    assert last_event_id([(b"last-event-id", b"resync")]) == "resync"
    assert last_event_id([(b"last-event-id", b"")]) is None
    assert "Last-Event-ID: '5' is no cursor" in refusal(last_event_id, [(b"last-event-id", b"5")])


JSON, SSE, LINES = Representation.POLL, Representation.SSE, Representation.LINES


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, JSON),
        ("", JSON),
        (",", JSON),
        ("*/*", JSON),
        ("application/json", JSON),
        ("application/*", JSON),
        ("text/event-stream", SSE),
        ("Text/Event-Stream;charset=utf-8", SSE),
        ("text/*", SSE),
        ("application/x-ndjson", LINES),
        ("application/json;q=0.5, application/x-ndjson", LINES),
        ("application/x-ndjson;q=0.8, text/event-stream;q=0.9", SSE),
        ("application/json;q=0, */*", SSE),
        ("application/json; q=0.001, text/html", JSON),
        ("text/html, application/xhtml+xml, */*;q=0.8", JSON),
        ("application/json;q=abc, application/x-ndjson;q=0.1", LINES),
    ],
)
def test_the_preferred_media_type_is_chosen(accept: str | None, expected: Representation) -> None:
    headers = [] if accept is None else [(b"accept", accept.encode())]
    assert accepted_representation(headers) is expected


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, Representation.WATCH_LINES),
        ("*/*", Representation.WATCH_LINES),
        ("application/*", Representation.WATCH_LINES),
        ("text/event-stream", Representation.WATCH_SSE),
        ("application/json, text/*;q=0.1", Representation.WATCH_SSE),
    ],
)
def test_watchers_choose_between_lines_and_event_streams(accept: str | None, expected: Representation) -> None:
    headers = [] if accept is None else [(b"accept", accept.encode())]
    assert accepted_representation(headers, watching=True) is expected


def test_several_lines_are_one_list() -> None:
    headers = [(b"accept", b"application/json;q=0.1"), (b"accept", b"application/x-ndjson")]
    assert accepted_representation(headers) is LINES


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "*/*;q=0", "a/b\xff", "json", "x" * 10**5])
def test_no_acceptable_media_type_is_406(accept: str) -> None:
    detail = refusal(accepted_representation, [(b"accept", accept.encode("latin-1"))], 406)
    assert "application/json, text/event-stream, application/x-ndjson" in detail
