"""gripproxy.live.event: messages of both forms, and what is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip.stats_format import encode
from gripproxy.live.event import MAX_NAME, Malformed, flag, name, number, read, word

FIELDS: dict[str, Any] = {"from": b"a", "channel": "ü".encode(), "count": 3, "unavailable": True}


@pytest.mark.parametrize("json", [False, True])
def test_both_forms_say_the_same(json: bool) -> None:
    kind, fields = read(encode("message", FIELDS, json))
    assert (kind, fields) == ("message", {"from": "a", "channel": "ü", "count": 3, "unavailable": True})


def test_what_is_not_utf_8_is_escaped() -> None:
    assert read(encode("sub", {"channel": b"a\xff"}, False))[1] == {"channel": "a\\xff"}


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "no type and a space"),
        (b"conn", "no type and a space"),
        (b" T0:}", "no type and a space"),
        (b"c" * 33 + b" T0:}", "no type and a space"),
        (b"c\xff T0:}", "no type and a space"),
        (b"conn X{}", "neither T nor J"),
        (b"conn ", "neither T nor J"),
        (b"conn T0:", "not a tnetstring"),
        (b"conn T3:abc,", "not a map"),
        (b"conn J{", "not JSON"),
        (b"conn J[]", "not a map"),
        (b"conn J" + b"[" * 2000, "not JSON"),
    ],
)
def test_malformed(message: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        read(message)


@given(st.binary(max_size=80) | st.binary(max_size=60).map(lambda data: b"conn T" + data))
def test_any_bytes_are_an_event_or_malformed(message: bytes) -> None:
    try:
        kind, fields = read(message)
    except Malformed:
        return
    assert kind
    assert all(type(key) is str for key in fields)


def test_fields() -> None:
    fields = {"text": "a", "number": 1, "flag": True, "low": -1, "high": 1 << 63, "long": "x" * 1000}
    assert (name(fields, "text"), word(fields, "text"), word(fields, "none")) == ("a", "a", "")
    assert (number(fields, "number"), number(fields, "none", 7)) == (1, 7)
    assert (flag(fields, "flag"), flag(fields, "none")) == (True, False)
    assert name(fields, "long") == "x" * (MAX_NAME - 1) + "…"
    for key in ("number", "none"):
        with pytest.raises(Malformed, match=f"no text '{key}'"):
            name(fields, key)
    with pytest.raises(Malformed, match="no text 'number'"):
        word(fields, "number")
    # True is an int for Python, not for us.
    for key in ("text", "flag", "none", "low", "high"):
        with pytest.raises(Malformed, match=f"no number '{key}'"):
            number(fields, key)
    with pytest.raises(Malformed, match="'number' in it is neither true nor false"):
        flag(fields, "number")
