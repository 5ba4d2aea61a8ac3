"""gripproxy.top.keys: what a terminal sends, in one piece or in many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.top.keys import Keys

TYPED = "qj\x1b[A\x1bOB\x1b[5~\x1b[6~ü\t\x1b[Z\r\x7f\x1b[1;5C\x1b[99~x\x01".encode()
NAMES = ["q", "j", "up", "down", "page up", "page down", "ü", "tab", "backtab", "enter", "backspace", "x"]


def test_keys() -> None:
    assert Keys().feed(TYPED) == NAMES


@given(st.lists(st.integers(0, len(TYPED)), max_size=6).map(sorted))
def test_pieces_make_no_difference(cuts: list[int]) -> None:
    keys, found = Keys(), []
    for start, end in zip([0, *cuts], [*cuts, len(TYPED)], strict=True):
        found += keys.feed(TYPED[start:end])
    assert found == NAMES


def test_escape_is_a_key_when_nothing_follows() -> None:
    keys = Keys()
    assert keys.feed(b"\x1b") == []
    assert keys.unfinished
    assert keys.flush() == ["escape"]
    assert not keys.unfinished
    assert keys.flush() == []
    assert keys.feed(b"\x1bq") == ["escape", "q"]
    assert keys.feed(b"\x1b\x1b[A") == ["escape", "up"]


def test_a_sequence_that_does_not_end_is_none() -> None:
    keys = Keys()
    assert keys.feed(b"\x1b[1") == []
    assert keys.flush() == []
    assert keys.feed(b"\x1b[" + b"1" * 14 + b"q") == ["q"]


@given(st.binary(max_size=40))
def test_anything_may_come(data: bytes) -> None:
    keys = Keys()
    assert all(key.isprintable() for key in keys.feed(data) + keys.flush())


@pytest.mark.parametrize("data", [b"\x03", b"\x04"])
def test_ends(data: bytes) -> None:
    assert Keys().feed(data) == ["quit"]
