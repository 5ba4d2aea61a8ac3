"""WebSocket-over-HTTP events, outbox and headers: docs/grip.md §8.3, §8.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip.websocket_events import Event, EventError, close_content, decode, encode, parse_close_content
from tests.unit.grip.test_event_outbox import text


class TestEncode:
    @pytest.mark.parametrize(
        ("event", "expected"),
        [
            (Event(b"OPEN"), b"OPEN\r\n"),
            (text(b"hello"), b"TEXT 5\r\nhello\r\n"),
            (text(b""), b"TEXT\r\n"),
            (Event(b"TEXT"), b"TEXT\r\n"),
            (Event(b"BINARY", b"\r\n"), b"BINARY 2\r\n\r\n\r\n"),
            (Event(b"PING", b""), b"PING\r\n"),
            (Event(b"PONG", b"x"), b"PONG 1\r\nx\r\n"),
            (Event(b"CLOSE"), b"CLOSE\r\n"),
            (Event(b"CLOSE", b"\x0f\xa1bye"), b"CLOSE 5\r\n\x0f\xa1bye\r\n"),
            (Event(b"DISCONNECT"), b"DISCONNECT\r\n"),
            (text(b"x" * 15), b"TEXT f\r\n" + b"x" * 15 + b"\r\n"),
            (text(b"x" * 16), b"TEXT 10\r\n" + b"x" * 16 + b"\r\n"),
        ],
    )
    def test_one(self, event: Event, expected: bytes) -> None:
        assert encode([event]) == expected

    def test_several(self) -> None:
        assert encode([text(b"a"), Event(b"PING"), text(b"b")]) == b"TEXT 1\r\na\r\nPING\r\nTEXT 1\r\nb\r\n"
        assert encode([]) == b""


class TestDecode:
    @pytest.mark.parametrize(
        ("body", "events"),
        [
            (b"", []),
            (b"OPEN\r\n", [Event(b"OPEN")]),
            (b"OPEN\r\nTEXT 5\r\nhello\r\n", [Event(b"OPEN"), text(b"hello")]),
            (b"TEXT\r\n", [Event(b"TEXT")]),
            (b"TEXT 0\r\n\r\n", [text(b"")]),
            (b"TEXT 000a\r\n0123456789\r\n", [text(b"0123456789")]),
            (b"BINARY A\r\n\r\n\r\n\r\n\r\n\r\n\r\n", [Event(b"BINARY", b"\r\n" * 5)]),
            (b"BINARY 1\r\n\xff\r\n", [Event(b"BINARY", b"\xff")]),
            (b"TEXT 2\r\n\xc3\xbc\r\n", [text("ü".encode())]),
            (b"SOMETHING 1\r\nx\r\nNEW\r\n", [Event(b"SOMETHING", b"x"), Event(b"NEW")]),
            (b"CLOSE\r\nTEXT 1\r\nx\r\n", [Event(b"CLOSE"), text(b"x")]),
        ],
    )
    def test_good(self, body: bytes, events: list[Event]) -> None:
        assert decode(body) == events

    @pytest.mark.parametrize(
        "tail",
        [
            b"T",
            b"TEXT",
            b"TEXT 5",
            b"TEXT 5\r",
            b"TEXT 5\r\n",
            b"TEXT 5\r\nhell",
            b"TEXT 5\r\nhello",
            b"TEXT 5\r\nhello\r",
            b"TEXT ffffffffffffffff\r\nx",
        ],
    )
    def test_cut_off_by_the_end(self, tail: bytes) -> None:
        """[obs 1.36] delivered as far as it is there."""
        with pytest.raises(EventError):
            decode(b"OPEN\r\n" + tail)

    @pytest.mark.parametrize(
        "body",
        [
            b"\r\n",
            b" 5\r\nhello\r\n",
            b"TEXT \r\nhello\r\n",
            b"TEXT x\r\nhello\r\n",
            b"TEXT -1\r\nhello\r\n",
            b"TEXT +5\r\nhello\r\n",
            b"TEXT 0x5\r\nhello\r\n",
            b"TEXT 5 \r\nhello\r\n",
            b"TEXT  5\r\nhello\r\n",
            b"TEXT 1_0\r\n0123456789abcdef\r\n",
            b"TEXT 4\r\nhello\r\n",
            b"TEXT 6\r\nhello\r\n",
            b"TEXT 5\r\nhello\n\nOPEN\r\n",
            b"TEXT 5\r\nhellox",
            b"TEXT 00000000000000005\r\nhello\r\n",
            b"TE\tXT 5\r\nhello\r\n",
            b"T\xc3\x8bXT\r\n",
            b"<html>" * 20,
        ],
    )
    def test_malformed(self, body: bytes) -> None:
        with pytest.raises(EventError):
            decode(body)

    @pytest.mark.parametrize("content", [b"\xff", b"\xed\xa0\x80", b"\xc3"])
    def test_text_is_utf8(self, content: bytes) -> None:
        """RFC 6455 §8.1: the client would fail the connection."""
        with pytest.raises(EventError, match="not UTF-8"):
            decode(b"OPEN\r\n" + encode([text(content)]))

    @pytest.mark.parametrize("kind", [b"PING", b"PONG"])
    def test_what_no_control_frame_carries(self, kind: bytes) -> None:
        assert decode(encode([Event(kind, b"x" * 125)])) == [Event(kind, b"x" * 125)]
        with pytest.raises(EventError, match="has 126 bytes; a frame of it carries at most 125"):
            decode(encode([Event(kind, b"x" * 126)]))

    def test_a_line_that_never_ends(self) -> None:
        with pytest.raises(EventError, match="no line end in the 101 bytes"):
            decode(b"x" * 101)

    @given(
        st.lists(
            st.builds(
                Event,
                st.sampled_from((b"BINARY", b"PING", b"CLOSE", b"X")),
                st.none() | st.binary(min_size=1, max_size=125),
            )
            | st.builds(text, st.text(min_size=1).map(str.encode)),
            max_size=6,
        ),
        st.integers(0, 300),
    )
    def test_back_and_cut(self, events: list[Event], end: int) -> None:
        body = encode(events)
        assert decode(body) == events
        try:
            some = decode(body[:end])
        except EventError:
            return
        assert some == events[: len(some)]

    @given(st.binary(max_size=60) | st.text(alphabet="TEX 0123f\r\n", max_size=30).map(str.encode))
    def test_only_event_errors_escape(self, body: bytes) -> None:
        try:
            decode(body)
        except EventError as e:
            text_of_error = str(e)
        else:
            text_of_error = "fine"
        assert len(text_of_error) < 500


class TestCloseContent:
    @pytest.mark.parametrize(
        ("code", "reason", "content"),
        [(None, b"", None), (1000, b"", b"\x03\xe8"), (4001, b"bye", b"\x0f\xa1bye"), (1005, b"", None)],
    )
    def test_write(self, code: int | None, reason: bytes, content: bytes | None) -> None:
        assert close_content(code, reason) == content

    @pytest.mark.parametrize(
        ("content", "code", "reason"),
        [
            (None, None, b""),
            (b"", None, b""),
            (b"\x03", None, b""),
            (b"\x03\xe8", 1000, b""),
            (b"\x0f\xa1bye", 4001, b"bye"),
            (b"\x00\x00", None, b""),
            (b"\x03\xedwhy", None, b""),
            (b"\x03\xe8a\xff", 1000, "a\ufffd".encode()),
            (b"\x03\xe8" + b"x" * 124, 1000, b"x" * 123),
        ],
    )
    def test_read(self, content: bytes | None, code: int | None, reason: bytes) -> None:
        assert parse_close_content(content) == (code, reason)

    @given(st.binary(max_size=200))
    def test_what_was_read_fits_a_frame(self, content: bytes) -> None:
        assert len(close_content(*parse_close_content(content)) or b"") <= 125
