"""gripproxy.cli.hub_text: objects of the API in, lines out; amounts of options."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from gripproxy.cli.hub_text import amount_bytes, amount_seconds, event_line, printable, topic_lines, topic_table

EVENT = {"type": "event", "cursor": "e.5", "time": "T", "content_type": "application/json"}


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"data": {"a": [1, "é"]}}, '{"a":[1,"é"]}'),
        ({"data": "text"}, '"text"'),
        ({"data": "text", "content_type": "text/plain"}, "text"),
        ({"data": None}, "null"),
        ({"key": "k", "op": "put", "data": 1}, "[k]  1"),
        ({"key": "k", "op": "delete"}, "[k] delete"),
        ({"attributes": {"n": "v"}, "data": 1}, '{"n": "v"}  1'),
        ({"data_base64": "/w==", "content_type": "image/png"}, "image/png base64:/w=="),
    ],
)
def test_event(members: dict[str, Any], text: str) -> None:
    assert event_line({**EVENT, **members}) == f"T  e.5  {text}"


def test_an_event_of_a_soft_topic_has_no_time() -> None:
    assert event_line({"type": "event", "cursor": "e.5.7", "key": "k", "op": "put", "data": 1}) == "e.5.7  [k]  1"


def test_signs_that_move_the_cursor_of_a_terminal_are_escaped() -> None:
    line = event_line(
        {**EVENT, "key": "k\x1b[2J", "op": "put", "content_type": "text/plain", "data": "a\nb\x9b1m\u202e"}
    )
    assert line == "T  e.5  [k\\x1b[2J]  a\\nb\\x9b1m\\u202e"
    assert printable("ä b") == "ä b"


def test_topics() -> None:
    topics = [
        {"name": "a", "count": 5, "bytes": 100, "last_cursor": "e.5", "oldest_time": None},
        {"name": "longer\n", "count": 12345, "bytes": 7, "last_cursor": "e.123", "oldest_time": "T"},
    ]
    assert topic_table(topics) == (
        "NAME      EVENTS  BYTES  LAST   OLDEST\n"
        "a              5    100  e.5    -\n"
        "longer\\n   12345      7  e.123  T\n"
    )
    assert topic_table([]) == "NAME  EVENTS  BYTES  LAST  OLDEST\n"


def test_one_topic() -> None:
    assert topic_lines({"name": "a", "retention": {"age": None, "compact": True}, "labels": {}, "count": 5}) == (
        "name               a\n"
        "retention.age      -\n"
        "retention.compact  yes\n"
        "count              5\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("5s", 5), ("30m", 1800), ("12h", 43200), ("7d", 604800), ("1w", 604800)]
)
def test_times(text: str, seconds: int) -> None:
    assert amount_seconds(text) == seconds


@pytest.mark.parametrize(("text", "size"), [("500", 500), ("64K", 65536), ("2G", 2**31), ("1T", 2**40)])
def test_sizes(text: str, size: int) -> None:
    assert amount_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5h", "5 m", "5M", "h", "1e3", "9" * 16, "\u0665"])
def test_times_without_meaning(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="number of seconds above 0"):
        amount_seconds(text)


@pytest.mark.parametrize("text", ["0K", "5k", "5d", "K"])
def test_sizes_without_meaning(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="number of bytes above 0, or one with K, M, G, T, not"):
        amount_bytes(text)
