"""One message: both formats, and everything that is neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_stats.event import MAX_DEPTH, Malformed, parse, plain
from tests.support.spark_doubles import json, tnet


def test_both_formats() -> None:
    # The line of docs/grip.md §13.11.
    line = (
        b"conn T128:3:ttl,2:16#4:type,2:ws,2:id,36:2e5420a4-9e92-49a0-9d03-374c5b567d78,12:peer-address,9:127.0.0.1,"
        b"4:from,21:pushpin-handler_11961,}"
    )
    assert parse(line) == (
        b"conn",
        {
            b"ttl": 16,
            b"type": b"ws",
            b"id": b"2e5420a4-9e92-49a0-9d03-374c5b567d78",
            b"peer-address": b"127.0.0.1",
            b"from": b"pushpin-handler_11961",
        },
        False,
    )
    assert parse(json("counts", requests_received=1)) == (b"counts", {"requests-received": 1}, True)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "no space behind a type"),
        (b"conn", "no space behind a type"),
        (b" T0:}", "no type of 1 to 64 bytes"),
        (b"x" * 65 + b" T0:}", "no type of 1 to 64 bytes"),
        ("é T0:}".encode(), "a type that is not printable ASCII"),
        (b"a\nb T0:}", "a type that is not printable ASCII"),
        (b"conn ", "neither T nor J behind the type"),
        (b"conn X0:}", "neither T nor J behind the type"),
        (b"conn T", "not a tnetstring behind T"),
        (b"conn T5:abc", "not a tnetstring behind T"),
        (b"conn T9:0:]3:abc,}", "not a tnetstring behind T"),  # a list as key
        (b"conn T0:}x", "bytes behind the tnetstring"),
        (b"conn T0:]", "a tnetstring that is not a map"),
        (b"conn J", "not JSON behind J"),
        (b"conn J{", "not JSON behind J"),
        (b'conn J{"a":1} {', "not JSON behind J"),
        (b"conn J\xff", "not JSON behind J"),
        (b"conn J[]", "JSON that is not an object"),
    ],
)
def test_malformed(message: bytes, reason: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse(message)
    assert str(caught.value) == reason


def test_deep_nesting_ends_in_an_error_and_not_in_a_crash() -> None:
    data = b"0:]"
    for _ in range(20_000):
        data = b"%d:%b]" % (len(data), data)
    for message in (b"conn T" + data, b"conn J" + b"[" * 100_000):
        with pytest.raises(Malformed):
            parse(message)


@given(st.binary(max_size=200) | st.builds(lambda tail: b"conn T" + tail, st.binary(max_size=60)))
def test_any_bytes_are_an_event_or_malformed(message: bytes) -> None:
    try:
        name, fields, _ = parse(message)
    except Malformed:
        return
    assert 1 <= len(name) <= 64
    assert type(fields) is dict


def test_a_truncated_event_is_malformed_at_every_length() -> None:
    message = tnet("conn", from_="a", id="1", ttl=3)
    for length in range(len(message)):
        with pytest.raises(Malformed):
            parse(message[:length])


def test_plain_is_what_json_can_hold() -> None:
    assert plain({b"a": [b"\xff", 1 << 70, float("nan"), None, True, 1.5], 3: b"x"}) == {
        "a": ["\\xff", str(1 << 70), "nan", None, True, 1.5],
        "3": "x",
    }


def test_plain_cuts_what_is_nested_too_deep() -> None:
    deep: object = b"bottom"
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    text = str(plain(deep))
    assert "bottom" not in text
    assert "(nested too deep)" in text
