"""Control messages: docs/grip.md §8.5."""

from __future__ import annotations

import base64

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip.bounds import Bounds
from gripproxy.grip.control import (
    Control,
    ControlError,
    Detach,
    FlushDelayed,
    KeepAliveControl,
    SendDelayed,
    SessionControl,
    SetMeta,
    Subscribe,
    Unsubscribe,
    changed_meta,
    parse_control,
)


def control(kind: str, **fields: object) -> bytes:
    return orjson.dumps({"type": kind, **{name.replace("_", "-"): value for name, value in fields.items()}})


def refused(data: bytes) -> str:
    with pytest.raises(ControlError) as caught:
        parse_control(data)
    return str(caught.value)


class TestMessages:
    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (control("subscribe", channel="a"), Subscribe(b"a")),
            (control("subscribe", channel="ü"), Subscribe("ü".encode())),
            (control("subscribe", channel="a", filters=["x", "y"]), Subscribe(b"a", ("x", "y"))),
            (control("subscribe", channel="a", filters=[]), Subscribe(b"a")),
            (control("subscribe", channel="a", filters=None), Subscribe(b"a")),
            (control("subscribe", channel="a", filters=["f"] * 6), Subscribe(b"a", ("f",) * 6)),
            (control("subscribe", channel="a", prev_id="7"), Subscribe(b"a", (), b"7")),
            (control("subscribe", channel="a", prev_id=""), Subscribe(b"a", (), b"")),
            (control("subscribe", channel="a", prev_id=None, more=1), Subscribe(b"a")),
            (control("unsubscribe", channel="a"), Unsubscribe(b"a")),
            (control("set-meta", name="user", value="alice"), SetMeta(b"user", b"alice")),
            (control("set-meta", name="user", value=""), SetMeta(b"user", b"")),
            (control("set-meta", name="user"), SetMeta(b"user", None)),
            (control("set-meta", name="user", value=None), SetMeta(b"user", None)),
            (control("flush-delayed"), FlushDelayed()),
            (control("detach"), Detach()),
            (control("session", id="s"), SessionControl(b"s")),
            (control("session", id=""), SessionControl(None)),
            (control("session"), SessionControl(None)),
            (control("keep-alive"), KeepAliveControl(None)),
            (control("keep-alive", content="{}"), KeepAliveControl(b"{}", "text", 55, "idle")),
            (control("keep-alive", content=""), KeepAliveControl(b"")),
            (
                control("keep-alive", content="x", message_type="ping", timeout=2, mode="interval"),
                KeepAliveControl(b"x", "ping", 2, "interval"),
            ),
            (control("send-delayed", content="x"), SendDelayed(b"x", "text", 1)),
            (control("send-delayed", content="x", timeout=0), SendDelayed(b"x", "text", 0)),
            (control("send-delayed", content="x", message_type="pong", timeout=9), SendDelayed(b"x", "pong", 9)),
        ],
    )
    def test_good(self, data: bytes, expected: Control) -> None:
        assert parse_control(data) == expected
        assert parse_control(b"c:" + data) == expected
        assert parse_control(b"c: \n" + data) == expected

    @pytest.mark.parametrize(
        "data", [b"", b"{", b"[1]", b"null", b'"x"', b"7", b"c:", b"c:c:{}", b"\xff", b"{}", b'{"type":1}']
    )
    def test_no_control_message(self, data: bytes) -> None:
        refused(data)

    def test_errors_name_what_is_wrong(self) -> None:
        assert refused(b"[1]") == "control message is list instead of an object"
        assert refused(control("subscribed")).startswith(
            "control message has the type 'subscribed'; expected one of sub"
        )
        assert refused(control("subscribe", channel=5)) == "subscribe has channel 5; expected a string"
        assert refused(control("unsubscribe")) == "unsubscribe has no channel, or an empty one"

    @pytest.mark.parametrize(
        "data",
        [
            control("subscribe"),
            control("subscribe", channel=""),
            control("subscribe", channel=None),
            control("subscribe", channel=["a"]),
            control("subscribe", channel="a", filters="x"),
            control("subscribe", channel="a", filters=[1]),
            control("subscribe", channel="a", filters={}),
            control("subscribe", channel="a", prev_id=7),
            control("unsubscribe", channel=""),
            control("set-meta"),
            control("set-meta", name=""),
            control("set-meta", name="a", value=1),
            control("session", id=1),
            control("keep-alive", content=1),
            control("keep-alive", content="x", mode="often"),
            control("keep-alive", content="x", mode=None),
            control("send-delayed"),
            control("send-delayed", timeout=1),
            control("Subscribe", channel="a"),
            control(""),
        ],
    )
    def test_bad_fields(self, data: bytes) -> None:
        refused(data)

    @given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5), st.lists))
    def test_only_control_errors_escape(self, value: object) -> None:
        names = ("channel", "filters", "prev-id", "name", "value", "id", "content", "content-bin", "timeout", "mode")
        for kind in ("subscribe", "unsubscribe", "set-meta", "keep-alive", "send-delayed", "session"):
            for name in (*names, "message-type"):
                fields = {"type": kind, "channel": "c", "name": "n", "content": "x", name: value}
                try:
                    parse_control(orjson.dumps(fields))
                except ControlError as e:
                    message = str(e)
                else:
                    message = ""
                assert len(message) < 300

    @given(st.binary(max_size=60))
    def test_any_bytes(self, data: bytes) -> None:
        refused(data)


class TestContent:
    @pytest.mark.parametrize("kind", ["keep-alive", "send-delayed"])
    @pytest.mark.parametrize("binary", [b"", b"x", b"\x00\xff", b"abc", bytes(range(256))])
    def test_bin(self, kind: str, binary: bytes) -> None:
        """The message-type is text unless something else is named, with content-bin too."""
        encoded = base64.b64encode(binary).decode()
        for value in (encoded, encoded.rstrip("=")):
            got = parse_control(control(kind, content_bin=value, message_type="binary"))
            assert isinstance(got, KeepAliveControl | SendDelayed)
            assert (got.data, got.type) == (binary, "binary")
        if binary.isascii():
            got = parse_control(control(kind, content_bin=encoded))
            assert isinstance(got, KeepAliveControl | SendDelayed)
            assert (got.data, got.type) == (binary, "text")

    def test_bin_goes_before_content(self) -> None:
        assert parse_control(control("send-delayed", content="x", content_bin="eQ==")) == SendDelayed(b"y")

    @pytest.mark.parametrize("value", ["!", "a", "eQ==x", "e Q", "eQ===", 1, ["eQ=="], "é"])
    def test_bad_base64(self, value: object) -> None:
        assert "expected base64" in refused(control("keep-alive", content_bin=value))

    def test_text_is_utf8(self) -> None:
        """RFC 6455 §8.1: the client would fail the connection."""
        assert "not UTF-8" in refused(control("send-delayed", content_bin="/w=="))

    @pytest.mark.parametrize("kind", ["ping", "pong"])
    def test_control_frames_are_short(self, kind: str) -> None:
        """RFC 6455 §5.5."""
        assert parse_control(control("send-delayed", content="x" * 125, message_type=kind))
        assert "at most 125" in refused(control("send-delayed", content="x" * 126, message_type=kind))

    @pytest.mark.parametrize("value", ["TEXT", "close", "", None, 1, ["text"]])
    def test_message_type(self, value: object) -> None:
        assert "message-type" in refused(control("send-delayed", content="x", message_type=value))


class TestTimeout:
    @pytest.mark.parametrize(
        ("value", "seconds"), [(None, 55), (1, 1), (2**31 - 1, 2**31 - 1), ("7", 7), (" 7 ", 7), (1.5, 2), (2.0, 2)]
    )
    def test_good(self, value: object, seconds: int) -> None:
        got = parse_control(control("keep-alive", content="x", timeout=value))
        assert got == KeepAliveControl(b"x", timeout=seconds)

    @pytest.mark.parametrize("value", [0, -1, 2**31, "", "zz", "7s", "0", 0.4, [], {}, True, 1e300])
    def test_bad(self, value: object) -> None:
        """docs/grip.md §0.2: text that is no number is 0, and 0 is not allowed here."""
        assert "expected 1 s or more" in refused(control("keep-alive", content="x", timeout=value))

    @pytest.mark.parametrize(("value", "fine"), [(0, True), (-1, False), ("zz", True)])
    def test_delay_may_be_none(self, value: object, fine: bool) -> None:
        data = control("send-delayed", content="x", timeout=value)
        if fine:
            assert parse_control(data) == SendDelayed(b"x", timeout=0)
        else:
            assert "expected 0 s or more" in refused(data)


class TestBounds:
    SMALL = Bounds(channel=4, id=3, meta=10)

    def refused(self, data: bytes) -> str:
        with pytest.raises(ControlError) as caught:
            parse_control(data, self.SMALL)
        return str(caught.value)

    def test_subscribe(self) -> None:
        data = control("subscribe", channel="chan", prev_id="123")
        assert parse_control(data, self.SMALL) == Subscribe(b"chan", (), b"123")
        assert self.refused(control("subscribe", channel="chann")) == (
            "subscribe has a channel of 5 bytes, at most 4 are allowed (channel_max)"
        )
        assert self.refused(control("subscribe", channel="c", prev_id="1234")) == (
            "subscribe has a prev-id of 4 bytes, at most 3 are allowed (id_max)"
        )

    def test_set_meta(self) -> None:
        meta = changed_meta({b"a": b"1234"}, SetMeta(b"b", b"5678"), self.SMALL)
        assert meta == {b"a": b"1234", b"b": b"5678"}
        assert changed_meta(meta, SetMeta(b"a", b"9"), self.SMALL) == {b"a": b"9", b"b": b"5678"}
        assert changed_meta(meta, SetMeta(b"a", None), self.SMALL) == {b"b": b"5678"}
        with pytest.raises(ControlError, match="set-meta makes meta of 11 bytes, at most 10 are allowed"):
            changed_meta(meta, SetMeta(b"c", b""), self.SMALL)

    def test_a_reserved_channel(self) -> None:
        bounds = Bounds().with_reserved(b"hub/", b"")
        assert parse_control(control("subscribe", channel="hub"), bounds) == Subscribe(b"hub")
        with pytest.raises(ControlError, match="channel 'hub/1' is reserved: only routes with the property 'reserved'"):
            parse_control(control("subscribe", channel="hub/1"), bounds)
