"""Headers around WebSocket-over-HTTP events."""

from __future__ import annotations

import pytest

from gripproxy.grip.event_headers import (
    MAX_META,
    bytes_accepted,
    event_fields,
    grip_extension,
    is_events,
    keep_alive_interval,
    public_headers,
    set_meta,
    update_meta,
)
from gripproxy.grip.websocket_events import EventError

Headers = list[tuple[bytes, bytes]]


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
        assert bytes_accepted(value) == count
        assert bytes_accepted(None) is None

    def test_fields_are_read_in_one_pass(self) -> None:
        assert event_fields([]) == (None, None, None, False)
        headers = [
            (b"Content-Type", b"application/websocket-events"),
            (b"keep-alive-INTERVAL", b"20"),
            (b"Keep-Alive-Interval", b"30"),
            (b"Content-Bytes-Accepted", b"7"),
            (b"More-events", b"true"),
            (b"SET-meta-A", b"1"),
        ]
        assert event_fields(headers) == (b"20", b"7", b"true", True)
        others = [
            (b"Keep-Alive-Intervam", b"1"),
            (b"More-Eventz", b"true"),
            (b"Set-Cookie", b"a"),
            (b"Sot-meta-a", b"1"),
        ]
        assert event_fields(others) == (None, None, None, False)

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
