"""griphub.client.event_stream: bytes in, blocks out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.client.errors import BadAnswer
from griphub.client.event_stream import Block, EventStreamParser


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        (b"id: e.1\ndata: a\n\n", [Block("", "a", "e.1")]),
        (b"data: a\ndata: b\n\n", [Block("", "a\nb", None)]),
        (b"data:a\ndata:  b\ndata\n\n", [Block("", "a\n b\n", None)]),
        (b"id: e.1\n\n", [Block("", None, "e.1")]),
        (b"id: e.1\ndata: a\n\ndata: b\n\n", [Block("", "a", "e.1"), Block("", "b", "e.1")]),
        (b"event: resync\nid: resync\ndata: {}\n\n", [Block("resync", "{}", "resync")]),
        (b"event: x\n\ndata: a\n\n", [Block("", "a", None)]),
        (b":\n\n: keep-alive\n\n\n\nretry: 5\n\n", []),
        (b"id: e\0.1\ndata: a\n\n", [Block("", "a", None)]),
        (b"\xef\xbb\xbfdata: a\n\n", [Block("", "a", None)]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\r\n", [Block("", text, None) for text in "abc"]),
        (b"data: \xff\n\n", [Block("", "\ufffd", None)]),
        (b"data: not ended\n", []),
    ],
)
def test_blocks(text: bytes, blocks: list[Block]) -> None:
    assert EventStreamParser().feed(text) == blocks


@given(st.lists(st.sampled_from([b"data: a", b"id: e.1", b"\n", b"\r", b"\r\n", b"event: x", b": c"]), max_size=20))
def test_bytes_one_by_one_give_equal_blocks(parts: list[bytes]) -> None:
    # A last line feed decides whether a carriage return before stands alone.
    text = b"".join(parts) + b"\n"
    whole, single = EventStreamParser(), EventStreamParser()
    expected = whole.feed(text)
    assert [block for byte in text for block in single.feed(bytes([byte]))] == expected


@pytest.mark.parametrize("text", [b"data: " + b"x" * 100, b"data: xxxxxxxxxx\n" * 10])
def test_a_block_beyond_the_limit(text: bytes) -> None:
    parser = EventStreamParser(limit=50)
    pieces = [text[begin : begin + 10] for begin in range(0, len(text), 10)]
    for piece in pieces[:3]:
        assert parser.feed(piece) == []
    with pytest.raises(BadAnswer, match="more than 50 bytes"):
        [parser.feed(piece) for piece in pieces[3:]]


def test_the_limit_is_one_of_a_block_not_of_the_stream() -> None:
    parser = EventStreamParser(limit=50)
    assert len(parser.feed(b"data: xxxxxxxxxx\n\n: comment\n" * 3)) == 3
    for _ in range(10):
        assert parser.feed(b": a comment of some length\n") == []


def test_a_block_that_is_torn_anywhere_has_no_effect() -> None:
    """Also within a character: a block counts at its blank line."""
    whole = "id: e.1\ndata: caf\u00e9 \U0001f600\n\n".encode()
    for cut in range(len(whole)):
        assert list(EventStreamParser().feed(whole[:cut])) == []
    [block] = EventStreamParser().feed(whole)
    assert "caf\u00e9 \U0001f600" in str(block)
