"""WebSocket-over-HTTP events, outbox and headers: docs/grip.md §8.3, §8.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip.wsevents import (
    BATCH,
    MAX_META,
    AcceptError,
    Event,
    EventError,
    Outbox,
    OutboxFull,
    bytes_accepted,
    close_content,
    decode,
    encode,
    grip_extension,
    is_events,
    keep_alive_interval,
    parse_close_content,
    public_headers,
    set_meta,
    update_meta,
)

Headers = list[tuple[bytes, bytes]]


def text(content: bytes) -> Event:
    return Event(b"TEXT", content)


def outbox(*events: Event) -> Outbox:
    box = Outbox()
    for event in events:
        box.add(event)
    return box


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


class TestOutbox:
    def test_nothing(self) -> None:
        box = Outbox()
        assert box.empty
        assert not box.fresh
        assert not box.full
        assert box.take() == ([], 0)
        assert box.accepted() is False
        with pytest.raises(RuntimeError):
            box.accepted()

    def test_all_accepted(self) -> None:
        box = outbox(text(b"one"), Event(b"BINARY", b"\x01"), Event(b"PING"))
        assert (box.size, len(box), box.fresh) == (4, 3, True)
        assert box.take() == ([text(b"one"), Event(b"BINARY", b"\x01"), Event(b"PING")], 0)
        assert box.accepted() is False
        assert (box.size, box.empty, box.fresh) == (0, True, False)

    def test_what_is_added_meanwhile_stays(self) -> None:
        box = outbox(text(b"one"))
        box.take()
        box.add(text(b""))
        box.add(text(b"two"))
        box.accepted()
        assert box.fresh
        assert box.take() == ([text(b""), text(b"two")], 0)

    def test_partly_accepted(self) -> None:
        """What is left is offered again in front of newer data, and counted as replayed."""
        box = outbox(text(b"[foo][hello"))
        box.take()
        box.accepted(5)
        assert (box.size, box.fresh, box.empty) == (6, False, False)
        box.add(text(b" world]"))
        assert box.fresh
        assert box.take() == ([text(b"[hello"), text(b" world]")], 6)
        box.accepted()
        assert box.empty

    @pytest.mark.parametrize(
        ("count", "left", "replayed"),
        [
            (0, [b"abc", b"", b"de"], 5),
            (1, [b"bc", b"", b"de"], 5 - 1),
            (2, [b"c", b"", b"de"], 5 - 2),
            (3, [b"de"], 2),
            (4, [b"e"], 1),
            (5, [], 0),
        ],
    )
    def test_counts(self, count: int, left: list[bytes], replayed: int) -> None:
        box = outbox(text(b"abc"), text(b""), text(b"de"))
        box.take()
        assert box.accepted(count) is False
        assert box.size == replayed
        assert not box.fresh
        assert box.take() == ([text(content) for content in left], replayed)

    def test_newer_bytes_are_not_replayed(self) -> None:
        box = outbox(text(b"abc"))
        box.take()
        box.add(text(b"def"))
        box.accepted(0)
        assert box.take() == ([text(b"abc"), text(b"def")], 3)
        box.accepted(1)
        assert box.take() == ([text(b"bc"), text(b"def")], 5)
        box.accepted(5)
        box.add(text(b"x"))
        assert box.take() == ([text(b"x")], 0)

    def test_nothing_accepted_of_an_empty_message(self) -> None:
        """It has no content that could be kept back."""
        box = outbox(Event(b"PING"))
        box.take()
        box.accepted(0)
        assert box.empty

    @pytest.mark.parametrize("count", [-1, 4, 1000])
    def test_more_than_offered(self, count: int) -> None:
        box = outbox(text(b"abc"))
        box.take()
        box.add(text(b"more"))
        with pytest.raises(AcceptError, match="but 3 offered"):
            box.accepted(count)

    def test_no_progress_although_more_waits(self) -> None:
        box = outbox(text(b"abc"), text(b"def"))
        box.take(limit=3)
        with pytest.raises(AcceptError, match="nothing was accepted"):
            box.accepted(0)

    def test_no_progress_while_all_was_offered(self) -> None:
        """What came in meanwhile could not have been offered."""
        box = outbox(text(b"abc"))
        box.take(limit=3)
        box.add(text(b"def"))
        box.accepted(0)
        assert box.fresh

    def test_little_progress_is_enough(self) -> None:
        box = outbox(text(b"abc"), text(b"def"))
        box.take(limit=3)
        box.accepted(1)
        assert box.take() == ([text(b"bc"), text(b"def")], 2)

    @pytest.mark.parametrize(("limit", "events"), [(1, 1), (3, 1), (4, 2), (6, 2), (7, 3), (9, 3)])
    def test_limit(self, limit: int, events: int) -> None:
        """Whole messages until the limit is reached; the first always."""
        box = outbox(text(b"abc"), text(b"def"), text(b"ghi"), text(b"jkl"))
        assert len(box.take(limit)[0]) == events
        box.accepted()
        assert len(box) == 4 - events
        assert box.fresh

    @pytest.mark.parametrize(("first", "events"), [(BATCH - 1, 2), (BATCH, 1), (BATCH + 1, 1)])
    def test_default_limit(self, first: int, events: int) -> None:
        assert len(outbox(text(b"x" * first), text(b"y")).take()[0]) == events

    def test_one_event(self) -> None:
        box = outbox(text(b"one"), Event(b"PING"), text(b"two"))
        for expected in (text(b"one"), Event(b"PING"), text(b"two")):
            assert box.fresh
            assert box.take(one_event=True) == ([expected], 0)
            box.accepted()
        assert box.empty

    def test_taking_again(self) -> None:
        box = outbox(text(b"a"))
        box.take()
        box.add(text(b"b"))
        assert box.take() == ([text(b"a"), text(b"b")], 0)
        box.accepted(2)
        assert box.empty

    def test_no_event_of_another_kind(self) -> None:
        for kind in (b"OPEN", b"DISCONNECT", b"X"):
            with pytest.raises(ValueError, match="an outbox holds"):
                Outbox().add(Event(kind))

    def test_what_the_backend_did_not_accept_does_not_stop_the_client(self) -> None:
        """The backend wants more first, so more must be read."""
        box = Outbox(high=100)
        box.add(text(b"x" * 80))
        assert box.full
        box.take(limit=80)
        assert box.full
        box.accepted(0)
        assert not box.full
        box.add(text(b"y" * 80))
        assert box.full

    def test_full(self) -> None:
        box = Outbox(high=100)
        box.add(text(b"x" * 67))
        assert not box.full
        box.add(Event(b"PING"))
        assert box.full

    def test_empty_messages_are_not_free(self) -> None:
        box = Outbox(high=100, bound=320)
        for _ in range(10):
            box.add(Event(b"PING"))
        with pytest.raises(OutboxFull):
            box.add(Event(b"PING"))
        assert len(box) == 10

    @pytest.mark.parametrize(("size", "fits"), [(167, True), (168, False)])
    def test_bound(self, size: int, fits: bool) -> None:
        box = Outbox(bound=200)
        box.add(text(b"x" * size))
        if fits:
            box.add(text(b"a message of any size" * 1000))
        else:
            with pytest.raises(OutboxFull, match="168 bytes in 1 messages wait for the backend; the bound is 200"):
                box.add(text(b""))
        assert len(box) == 1 + fits
        box.add(Event(b"CLOSE", b"\x03\xe8" + b"x" * 123))

    @given(
        st.lists(st.binary(max_size=5), max_size=8),
        st.lists(st.tuples(st.integers(1, 10), st.booleans(), st.integers(0, 40), st.integers(0, 2)), max_size=20),
    )
    def test_every_byte_arrives_once_and_in_order(
        self, messages: list[bytes], steps: list[tuple[int, bool, int, int]]
    ) -> None:
        box, waiting, arrived, was_offered = Outbox(), list(messages), b"", 0
        for limit, one, count, add in steps:
            for _ in range(add):
                if waiting:
                    box.add(Event(b"BINARY", waiting.pop(0)))
            events, replayed = box.take(limit, one)
            offered = b"".join(event.content or b"" for event in events)
            assert replayed == min(was_offered, len(offered))
            count = min(count, len(offered))
            try:
                box.accepted(count)
            except AcceptError:
                assert count == 0
                return
            arrived += offered[:count]
            was_offered = len(offered) - count
            assert box.size == len(b"".join(messages)) - len(b"".join(waiting)) - len(arrived)
        assert b"".join(messages).startswith(arrived)


class TestOutboxClose:
    CLOSE = Event(b"CLOSE", b"\x03\xe8bye")

    def test_nothing_follows(self) -> None:
        box = outbox(self.CLOSE)
        with pytest.raises(ValueError, match="nothing follows"):
            box.add(text(b"x"))
        with pytest.raises(ValueError, match="nothing follows"):
            box.add(self.CLOSE)

    @pytest.mark.parametrize("count", [None, 8])
    def test_accepted(self, count: int | None) -> None:
        box = outbox(text(b"abc"), self.CLOSE)
        assert box.size == 8
        assert box.take() == ([text(b"abc"), self.CLOSE], 0)
        assert box.accepted(count) is True
        assert (box.empty, box.size, box.fresh) == (True, 0, False)

    @pytest.mark.parametrize("count", [3, 4, 7])
    def test_partly_accepted_though_everything_else_was(self, count: int) -> None:
        box = outbox(text(b"abc"), self.CLOSE)
        box.take()
        with pytest.raises(AcceptError, match="the CLOSE must be accepted"):
            box.accepted(count)

    def test_alone(self) -> None:
        box = outbox(self.CLOSE)
        box.take()
        with pytest.raises(AcceptError, match="the CLOSE must be accepted"):
            box.accepted(0)

    @pytest.mark.parametrize("count", [0, 2])
    def test_not_reached_yet(self, count: int) -> None:
        """The backend wants more before it takes the rest; the CLOSE is offered again, its bytes are no replay."""
        box = outbox(text(b"abc"), self.CLOSE)
        box.take()
        assert box.accepted(count) is False
        assert not box.fresh
        assert box.take() == ([text(b"abc"[count:]), self.CLOSE], 3 - count)
        assert box.accepted() is True

    @pytest.mark.parametrize("count", [None, 3])
    def test_without_content(self, count: int | None) -> None:
        box = outbox(text(b"abc"), Event(b"CLOSE"))
        box.take()
        assert box.accepted(count) is True
        assert box.empty

    def test_without_content_not_reached_yet(self) -> None:
        box = outbox(text(b"abc"), Event(b"CLOSE"))
        box.take()
        assert box.accepted(2) is False
        assert box.take() == ([text(b"c"), Event(b"CLOSE")], 1)

    def test_more_than_offered(self) -> None:
        box = outbox(text(b"abc"), self.CLOSE)
        box.take()
        with pytest.raises(AcceptError, match="9 content bytes were accepted, but 8 offered"):
            box.accepted(9)

    def test_one_event(self) -> None:
        box = outbox(text(b"abc"), self.CLOSE)
        assert box.take(one_event=True)[0] == [text(b"abc")]
        assert box.accepted() is False
        assert box.fresh
        assert box.take(one_event=True)[0] == [self.CLOSE]
        assert box.accepted() is True

    def test_behind_the_limit(self) -> None:
        box = outbox(text(b"abc"), self.CLOSE)
        assert box.take(limit=3)[0] == [text(b"abc")]
        assert box.accepted() is False
        assert box.take() == ([self.CLOSE], 0)


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


class TestHeaders:
    @pytest.mark.parametrize(
        ("value", "right"),
        [
            *[(b"application/websocket-events", True), (b"application/websocket-events; charset=utf-8", False)],
            *[(b"Application/WebSocket-Events", False), (b"text/plain", False), (b"", False)],
        ],
    )
    def test_type(self, value: bytes, right: bool) -> None:
        """Exactly, without parameters."""
        assert is_events([(b"content-TYPE", value)]) is right
        assert not is_events([])

    @pytest.mark.parametrize(
        ("value", "seconds"),
        [
            *[(b"1", 20), (b"19", 20), (b"20", 20), (b"21", 21), (b" 120 ", 120), (b"0", 0), (b"-5", 0), (b"x", 0)],
            *[(b"", 0), (b"30s", 0), (b"1.5", 0), (b"2147483647", 2147483647), (b"2147483648", 0), (b"9" * 11, 0)],
        ],
    )
    def test_keep_alive_interval(self, value: bytes, seconds: int) -> None:
        assert keep_alive_interval([(b"Keep-Alive-Interval", value)]) == seconds

    def test_no_keep_alive_interval(self) -> None:
        assert keep_alive_interval([]) is None

    @pytest.mark.parametrize(
        ("value", "count"), [(b"0", 0), (b"12", 12), (b"-1", None), (b"x", None), (b"", None), (b"1 2", None)]
    )
    def test_bytes_accepted(self, value: bytes, count: int | None) -> None:
        assert bytes_accepted([(b"Content-Bytes-Accepted", value)]) == count
        assert bytes_accepted([]) is None

    def test_set_meta(self) -> None:
        headers = [(b"Set-Meta-User", b"alice"), (b"set-meta-x", b""), (b"Set-Meta-", b"no name"), (b"Set-Metal", b"1")]
        assert set_meta(headers) == [(b"User", b"alice"), (b"x", b"")]

    def test_update_meta(self) -> None:
        meta: Headers = []
        assert update_meta(meta, [(b"X", b"1")]) is meta
        meta = update_meta(meta, [(b"Set-Meta-User", b"alice"), (b"Set-Meta-A", b"1")])
        assert meta == [(b"User", b"alice"), (b"A", b"1")]
        assert update_meta(meta, [(b"set-meta-user", b"bob")]) == [(b"A", b"1"), (b"user", b"bob")]
        assert update_meta(meta, [(b"Set-Meta-USER", b"")]) == [(b"A", b"1")]
        assert update_meta(meta, [(b"Set-Meta-Nobody", b"")]) == meta
        assert meta == [(b"User", b"alice"), (b"A", b"1")]

    def test_meta_is_bounded(self) -> None:
        headers = [(b"Set-Meta-%d" % i, b"x") for i in range(MAX_META)]
        meta = update_meta([], headers)
        assert len(meta) == MAX_META
        assert len(update_meta(meta, [(b"Set-Meta-0", b"y")])) == MAX_META
        with pytest.raises(EventError, match="101 names of meta"):
            update_meta(meta, [(b"Set-Meta-New", b"y")])

    def test_meta_is_bounded_in_bytes(self) -> None:
        meta = update_meta([], [(b"Set-Meta-A", b"x" * 9)], 10)
        assert update_meta(meta, [(b"Set-Meta-a", b"y" * 9)], 10) == [(b"a", b"y" * 9)]
        with pytest.raises(EventError, match=r"Set-Meta-\* makes 12 bytes of meta; at most 10 are allowed"):
            update_meta(meta, [(b"Set-Meta-B", b"y")], 10)

    def test_public(self) -> None:
        kept = [(b"X-Extra", b"1"), (b"Set-Cookie", b"a=b"), (b"Sec-WebSocket-Protocol", b"p1"), (b"Set-Meta-", b"x")]
        private = [
            *[
                (b"Content-Length", b"6"),
                (b"Content-TYPE", b"x"),
                (b"Keep-Alive-Interval", b"20"),
                (b"Set-Meta-X", b"1"),
            ],
            *[(b"Sec-WebSocket-Extensions", b"grip"), (b"Sec-WebSocket-Accept", b"x"), (b"Upgrade", b"websocket")],
            *[(b"Connection", b"close"), (b"Transfer-Encoding", b"chunked"), (b"Content-Bytes-Accepted", b"0")],
        ]
        assert public_headers([*kept, *private]) == kept

    @pytest.mark.parametrize(
        ("values", "prefix"),
        [
            ([], None),
            ([b""], None),
            ([b"permessage-deflate"], None),
            ([b"grip2; message-prefix=x"], None),
            ([b"grip"], b"m:"),
            ([b"GRIP"], b"m:"),
            ([b"grip; foo=bar"], b"m:"),
            ([b'grip; message-prefix="p:"'], b"p:"),
            ([b"grip; message-prefix=p"], b"p"),
            ([b"grip; Message-Prefix=p"], b"p"),
            ([b'grip; message-prefix=""'], b""),
            ([b"grip; message-prefix"], b""),
            ([b'grip; message-prefix="a,b"'], b"a,b"),
            ([b"permessage-deflate; x=1, grip; message-prefix=q"], b"q"),
            ([b"foo", b"grip"], b"m:"),
            ([b'grip; message-prefix="open'], None),
        ],
    )
    def test_grip_extension(self, values: list[bytes], prefix: bytes | None) -> None:
        assert grip_extension([(b"sec-websocket-EXTENSIONS", value) for value in values]) == prefix
