"""Items: docs/grip.md §5.1 (schema), §5.2 (every error text), §0.2 (conversions)."""

from __future__ import annotations

import base64
import marshal
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip import item_json
from gripproxy.grip.item import Item, ItemError, MessageFormat, ResponseFormat, StreamFormat, parse_tnet
from gripproxy.grip.item_json import parse_json
from gripproxy.grip.item_pack import pack_item, unpack_item
from gripproxy.grip.tnetstring import MAX_DEPTH, dumps, loads

STREAM = {"http-stream": {"content": "x"}}


def to_tnet(value: Any) -> Any:
    """The same data as a publisher would send it in a tnetstring."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [to_tnet(v) for v in value]
    if isinstance(value, dict):
        return {to_tnet(k): to_tnet(v) for k, v in value.items()}
    return value


def both(value: Any) -> Item:
    """Parse both forms, through real encoders; they must agree."""
    a = parse_json(orjson.loads(orjson.dumps(value)))
    b = parse_tnet(loads(dumps(to_tnet(value))))
    assert a == b
    return a


def item(**fields: Any) -> dict[str, Any]:
    return {"channel": "c", "formats": STREAM, **{k.replace("_", "-"): v for k, v in fields.items()}}


def formats(**each: Any) -> dict[str, Any]:
    return {"channel": "c", "formats": {k.replace("_", "-"): v for k, v in each.items()}}


def json_error(value: Any) -> str:
    with pytest.raises(ItemError) as e:
        parse_json(value)
    return str(e.value)


def tnet_error(value: Any) -> str:
    with pytest.raises(ItemError) as e:
        parse_tnet(to_tnet(value))
    return str(e.value)


def both_errors(value: Any) -> str:
    text = json_error(value)
    assert tnet_error(value) == text
    return text


class TestItemFields:
    def test_all(self) -> None:
        it = both(item(id="2", prev_id="1", meta={"user": "ü"}, size=7, no_seq=True))
        assert it == Item(
            b"c", b"2", b"1", stream=StreamFormat("send", b"x"), meta={b"user": "ü".encode()}, size=7, no_seq=True
        )

    def test_only_the_required(self) -> None:
        it = both(item())
        assert it == Item(b"c", stream=StreamFormat("send", b"x"))
        assert (it.id, it.prev_id, it.meta, it.size, it.no_seq) == (None, None, {}, None, False)

    def test_items_without_meta_share_one(self) -> None:
        assert both(item()).meta is both(item()).meta

    def test_channel_may_be_empty(self) -> None:
        assert both(item(channel="")).channel == b""

    def test_unknown_fields_are_ignored(self) -> None:
        assert both(item(tag="t", user_agent={"a": [1]})) == both(item())

    @pytest.mark.parametrize("name", ["id", "prev-id", "formats", "meta"])
    def test_null_is_absent(self, name: str) -> None:
        both({**item(), "http-stream": {"content": "x"}, name: None})

    def test_formats_at_item_level(self) -> None:
        it = both({"channel": "c", **STREAM, "ws-message": {"content": "m"}, "http-response": {"body": "r"}})
        assert it.stream is not None
        assert it.message is not None
        assert it.response is not None

    def test_item_level_formats_are_ignored_beside_formats(self) -> None:
        assert both({**item(), "ws-message": {"content": "m"}}).message is None

    def test_only_unknown_formats_do_nothing(self) -> None:
        it = both(formats(other={"content": "x"}))
        assert (it.response, it.stream, it.message) == (None, None, None)

    def test_topic_replaces_channel(self) -> None:
        assert parse_tnet(to_tnet(item()), b"topic").channel == b"topic"
        assert parse_tnet(to_tnet({"formats": STREAM}), b"topic").channel == b"topic"
        assert parse_tnet(to_tnet(item(channel=5)), b"").channel == b""

    @pytest.mark.parametrize(
        ("size", "expected"),
        [(0, 0), ("12", 12), (" 12 ", 12), ("zz", 0), ("1.5", 0), ("", 0), (1.4, 1), (1.5, 2), (True, 1), (-0.2, 0)],
    )
    def test_integers_are_converted(self, size: Any, expected: int) -> None:
        assert both(item(size=size)).size == expected

    @pytest.mark.parametrize("size", [float("nan"), float("inf"), float("-inf")])
    def test_integers_that_are_no_numbers(self, size: float) -> None:
        assert parse_tnet(to_tnet(item(size=size))).size == 0


class TestItemErrors:
    @pytest.mark.parametrize("value", [None, 1, [], "x", True])
    def test_not_an_object(self, value: Any) -> None:
        assert both_errors(value) == "publish item object is not an object"

    def test_no_channel(self) -> None:
        assert both_errors({"formats": STREAM}) == "publish item object does not contain 'channel'"

    @pytest.mark.parametrize("name", ["channel", "id", "prev-id", "formats", "meta", "size", "no-seq"])
    @pytest.mark.parametrize("value", [[], [1]])
    def test_wrong_type(self, name: str, value: Any) -> None:
        assert both_errors({**item(), name: value}) == f"publish item object contains '{name}' with wrong type"

    @pytest.mark.parametrize("name", ["channel", "id", "prev-id"])
    @pytest.mark.parametrize("value", [1, 1.5, True, {}])
    def test_numbers_are_not_strings(self, name: str, value: Any) -> None:
        assert both_errors({**item(), name: value}) == f"publish item object contains '{name}' with wrong type"

    @pytest.mark.parametrize(("name", "value"), [("channel", None), ("size", None), ("no-seq", None), ("no-seq", "1")])
    def test_other_wrong_types(self, name: str, value: Any) -> None:
        assert both_errors({**item(), name: value}) == f"publish item object contains '{name}' with wrong type"

    @pytest.mark.parametrize("size", [-1, "-1", 2**31, -1.5, 10**30])
    def test_size(self, size: Any) -> None:
        assert both_errors(item(size=size)) == "publish item object contains 'size' with invalid value"

    def test_no_formats(self) -> None:
        assert both_errors({"channel": "c"}) == "no formats specified"
        assert both_errors({"channel": "c", "formats": {}}) == "no formats specified"
        assert both_errors({"channel": "c", "formats": {}, **STREAM}) == "no formats specified"

    def test_meta_value(self) -> None:
        assert both_errors(item(meta={"a": "b", "k": 1})) == "'meta' contains 'k' with wrong type"

    def test_meta_key_of_a_tnetstring(self) -> None:
        assert tnet_error(item(meta={7: "x"})) == "'meta' contains '7' with wrong type"

    def test_too_deep(self) -> None:
        value: Any = []
        for _ in range(MAX_DEPTH):
            value = [value]
        assert json_error(item(other=value)) == "publish item object is nested deeper than 100 levels"
        patch = formats(http_response={"body-patch": value})
        assert both_errors(patch) == "publish item object is nested deeper than 100 levels"
        for _ in range(100_000):
            value = [value]
        assert "nested deeper" in json_error(item(other=value))


@pytest.mark.parametrize("name", ["http-response", "http-stream", "ws-message"])
class TestEveryFormat:
    @pytest.mark.parametrize("value", [None, 1, [], "x"])
    def test_not_an_object(self, name: str, value: Any) -> None:
        assert both_errors(formats(**{name: value})) == f"'{name}' is not an object"

    def test_action_type(self, name: str) -> None:
        assert both_errors(formats(**{name: {"action": 1}})) == f"'{name}' contains 'action' with wrong type"

    @pytest.mark.parametrize("action", ["zap", "", "Send", "send "])
    def test_unknown_action_has_no_text(self, name: str, action: str) -> None:
        assert both_errors(formats(**{name: {"action": action}})) == ""

    def test_send_is_the_default(self, name: str) -> None:
        fields = {"content": "x", "body": "x"}
        default = both(formats(**{name: fields}))
        assert default == both(formats(**{name: {**fields, "action": "send"}}))
        assert default == both(formats(**{name: {**fields, "action": None}}))

    def test_content_filters(self, name: str) -> None:
        it = both(formats(**{name: {"content": "x", "body": "x", "content-filters": ["b", "a"]}}))
        fmt = it.response or it.stream or it.message
        assert fmt is not None
        assert fmt.content_filters == ("b", "a")

    def test_no_content_filters_differ_from_none_named(self, name: str) -> None:
        it = both(formats(**{name: {"content": "x", "body": "x", "content-filters": []}}))
        fmt = it.response or it.stream or it.message
        assert fmt is not None
        assert fmt.content_filters == ()

    @pytest.mark.parametrize("value", [None, "a", {}])
    def test_content_filters_type(self, name: str, value: Any) -> None:
        fields = {"content": "x", "body": "x", "content-filters": value}
        assert both_errors(formats(**{name: fields})) == f"'{name}' contains 'content-filters' with wrong type"

    def test_content_filters_element(self, name: str) -> None:
        fields = {"content": "x", "body": "x", "content-filters": ["a", 1]}
        assert both_errors(formats(**{name: fields})) == "content-filters contains element with wrong type"


class TestHttpResponse:
    def parse(self, **fields: Any) -> ResponseFormat:
        response = both(formats(http_response={k.replace("_", "-"): v for k, v in fields.items()})).response
        assert response is not None
        return response

    def error(self, **fields: Any) -> str:
        return both_errors(formats(http_response={k.replace("_", "-"): v for k, v in fields.items()}))

    def test_defaults(self) -> None:
        assert self.parse(body="ü") == ResponseFormat("send", 200, b"OK", [], "ü".encode())

    @pytest.mark.parametrize("action", ["hint", "close", "refresh"])
    def test_actions_without_content(self, action: str) -> None:
        assert self.parse(action=action, code=[], body=1).action == action

    @pytest.mark.parametrize(
        ("code", "number", "reason"),
        [
            (404, 404, b"Not Found"),
            ("404", 404, b"Not Found"),
            (200, 200, b"OK"),
            (999, 999, b"Undefined Reason"),
            (201.2, 201, b"Created"),
        ],
    )
    def test_code(self, code: Any, number: int, reason: bytes) -> None:
        response = self.parse(code=code, body="")
        assert (response.code, response.reason) == (number, reason)

    @pytest.mark.parametrize(("code", "number"), [(0, 0), ("zz", 0), (1, 1), (103, 103), ("199", 199), (199.4, 199)])
    def test_code_that_is_no_final_status(self, code: Any, number: int) -> None:
        assert self.error(code=code, body="") == (
            f"'http-response' contains 'code' with invalid value: {number}, expected a final status, 200 to 999"
        )

    @pytest.mark.parametrize("code", [-1, 1000, 10**12])
    def test_code_without_three_digits(self, code: int) -> None:
        assert self.error(code=code, body="") == "'http-response' contains 'code' with invalid value"

    @pytest.mark.parametrize("code", [*range(9), *range(10, 32), 127])
    def test_control_characters(self, code: int) -> None:
        text = f"a{chr(code)}b"
        assert self.error(reason=text, body="") == "'http-response' contains 'reason' with invalid value"
        assert self.error(headers=[["A", text]], body="") == "'http-response' contains 'headers' with invalid value"

    def test_tab_and_obs_text_pass(self) -> None:
        it = parse_tnet({b"channel": b"c", b"http-response": {b"reason": b"\x80\t\xff", b"body": b""}})
        assert it.response is not None
        assert it.response.reason == b"\x80\t\xff"

    def test_reason(self) -> None:
        assert self.parse(code=201, reason="Made", body="").reason == b"Made"
        assert self.parse(code=201, reason="", body="").reason == b"Created"
        assert self.parse(code=201, reason="é", body="").reason == "é".encode()

    def test_headers(self) -> None:
        expected = [(b"X-A", b"1"), (b"x-b", b"")]
        it = parse_tnet(to_tnet(formats(http_response={"headers": {"X-A": "1", "x-b": ""}, "body": ""})))
        assert it.response is not None
        assert it.response.headers == expected
        assert self.parse(headers=[["X-A", "1"], ["x-b", ""]], body="").headers == expected
        assert self.parse(headers=[["A", "1"], ["A", "2"]], body="").headers == [(b"A", b"1"), (b"A", b"2")]

    def test_body_forms_take_precedence(self) -> None:
        fields = {"body-bin": base64.b64encode(b"\xff\x00").decode(), "body": "text", "body-patch": []}
        response = parse_json(formats(http_response=fields)).response
        assert response is not None
        assert (response.body, response.patch) == (b"\xff\x00", None)
        response = parse_tnet(to_tnet(formats(http_response=fields))).response
        assert response is not None
        assert (response.body, response.patch) == (b"text", None)
        response = self.parse(body="text", body_patch=[])
        assert (response.body, response.patch) == (b"text", None)

    def test_body_patch(self) -> None:
        ops = [{"op": "add", "path": "/ü", "value": [1, None, True, {"a": "b"}, 1.5]}]
        response = self.parse(body_patch=ops)
        assert (response.body, response.patch) == (None, ops)

    def test_body_patch_with_bytes_that_are_not_utf8(self) -> None:
        response = parse_tnet({b"channel": b"c", b"http-response": {b"body-patch": [{b"\xff": b"\xfe"}]}}).response
        assert response is not None
        assert response.patch == [{"�": "�"}]

    @pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
    def test_body_patch_with_a_number_that_json_cannot_carry(self, number: int) -> None:
        def of(number: int) -> dict[bytes, Any]:
            return {b"channel": b"c", b"http-response": {b"body-patch": [{b"value": {b"a": [number]}}]}}

        assert tnet_error(of(number)) == "'http-response' contains 'body-patch' with invalid value"
        response = parse_tnet(of(number - 1 if number > 0 else number + 1)).response
        assert response is not None
        assert orjson.dumps(response.patch)

    def test_code_errors(self) -> None:
        assert self.error(code=[], body="") == "'http-response' contains 'code' with wrong type"
        assert self.error(code=None, body="") == "'http-response' contains 'code' with wrong type"
        for code in (-1, 1000, "1000", 2**40):
            assert self.error(code=code, body="") == "'http-response' contains 'code' with invalid value"

    def test_reason_errors(self) -> None:
        assert self.error(reason=1, body="") == "'http-response' contains 'reason' with wrong type"

    def test_header_errors(self) -> None:
        assert self.error(headers="x", body="") == "'http-response' contains 'headers' with wrong type"
        assert self.error(headers=None, body="") == "'http-response' contains 'headers' with wrong type"
        assert self.error(headers={"A": "1", "k": 1}, body="") == "headers contains 'k' with wrong type"
        assert self.error(headers=[["A", "1"], {}], body="") == "headers contains element with wrong type"
        for element in ([], ["A"], ["A", "1", "2"]):
            text = "headers contains list with wrong number of elements"
            assert self.error(headers=[element], body="") == text
        assert self.error(headers=[[1, "x"]], body="") == "header contains name element with wrong type"
        assert self.error(headers=[["A", 1]], body="") == "header contains value element with wrong type"

    def test_body_errors(self) -> None:
        assert self.error(body=1) == "'http-response' contains 'body' with wrong type"
        assert self.error(body=None) == "'http-response' contains 'body' with wrong type"
        assert self.error(body_patch={}) == "'http-response' contains 'body-patch' with wrong type"
        value = formats(http_response={"body-bin": 1})
        assert json_error(value) == "'http-response' contains 'body-bin' with wrong type"

    def test_body_missing(self) -> None:
        value = formats(http_response={})
        assert json_error(value) == "'http-response' does not contain 'body', 'body-bin', or 'body-patch'"
        assert tnet_error(value) == "'http-response' does not contain 'body' or 'body-patch'"
        assert tnet_error(formats(http_response={"body-bin": "eA=="})) == tnet_error(value)


class TestResponseSplitting:
    """A published header or reason cannot begin another header or response (Pushpin writes it unchecked)."""

    @pytest.mark.parametrize("bad", ["a\r\nSet-Cookie: x", "a\nb", "a\rb", "a\0b", "\r\n", "a\n"])
    def test_reason_and_value(self, bad: str) -> None:
        for fields in ({"reason": bad}, {"headers": {"A": bad}}, {"headers": [["A", bad]]}):
            name = next(iter(fields))
            value = formats(http_response={**fields, "body": ""})
            assert both_errors(value) == f"'http-response' contains '{name}' with invalid value"

    @pytest.mark.parametrize("bad", ["", "a b", "a:", "a\r\nb", "a\n", "ü", "a\0", "(a)", " a", "a "])
    def test_name(self, bad: str) -> None:
        for headers in ({bad: "1"}, [[bad, "1"]]):
            value = formats(http_response={"headers": headers, "body": ""})
            assert both_errors(value) == "'http-response' contains 'headers' with invalid value"


class TestHttpStream:
    def parse(self, fields: dict[str, Any]) -> StreamFormat | None:
        return both(formats(http_stream=fields)).stream

    def test_content(self) -> None:
        assert self.parse({"content": "ü\n"}) == StreamFormat("send", "ü\n".encode())
        assert self.parse({"content": ""}) == StreamFormat("send", b"")

    @pytest.mark.parametrize("action", ["hint", "close"])
    def test_actions(self, action: Any) -> None:
        assert self.parse({"action": action, "content": 1}) == StreamFormat(action)

    def test_refresh_is_no_action_of_streams(self) -> None:
        with pytest.raises(ItemError) as caught:
            self.parse({"action": "refresh"})
        assert str(caught.value) == ""

    def test_binary_wins_in_json_and_does_not_exist_otherwise(self) -> None:
        value = formats(http_stream={"content": "x", "content-bin": base64.b64encode(b"\xff").decode()})
        assert parse_json(value).stream == StreamFormat("send", b"\xff")
        assert parse_tnet(to_tnet(value)).stream == StreamFormat("send", b"x")

    def test_raw_bytes_in_a_tnetstring(self) -> None:
        it = parse_tnet({b"channel": b"\xff", b"http-stream": {b"content": b"\x00\xff"}})
        assert (it.channel, it.stream) == (b"\xff", StreamFormat("send", b"\x00\xff"))

    def test_errors(self) -> None:
        value = formats(http_stream={})
        assert json_error(value) == "'http-stream' does not contain 'content' or 'content-bin'"
        assert tnet_error(value) == "'http-stream' does not contain 'content'"
        assert both_errors(formats(http_stream={"content": 1})) == "'http-stream' contains 'content' with wrong type"
        text = "'http-stream' contains 'content-bin' with wrong type"
        assert json_error(formats(http_stream={"content-bin": 1})) == text


class TestWsMessage:
    def parse(self, **fields: Any) -> MessageFormat:
        message = both(formats(ws_message=fields)).message
        assert message is not None
        return message

    def error(self, **fields: Any) -> str:
        return both_errors(formats(ws_message=fields))

    def test_text_is_the_default(self) -> None:
        assert self.parse(content="ü") == MessageFormat("send", "text", "ü".encode())

    @pytest.mark.parametrize("kind", ["text", "binary", "ping", "pong"])
    def test_types(self, kind: Any) -> None:
        assert self.parse(type=kind, content="x") == MessageFormat("send", kind, b"x")

    def test_binary_content(self) -> None:
        raw = b"\xff\x00"
        value = formats(ws_message={"content-bin": base64.b64encode(raw).decode(), "content": "x"})
        assert parse_json(value).message == MessageFormat("send", "binary", raw)
        it = parse_tnet({b"channel": b"c", b"ws-message": {b"content-bin": raw}})
        assert it.message == MessageFormat("send", "binary", raw)
        it = parse_tnet({b"channel": b"c", b"ws-message": {b"content-bin": b"x", b"type": b"text"}})
        assert it.message == MessageFormat("send", "text", b"x")

    @pytest.mark.parametrize("kind", ["ping", "pong"])
    def test_ping_content_is_optional(self, kind: Any) -> None:
        assert self.parse(type=kind) == MessageFormat("send", kind, None)
        assert self.parse(type=kind, content="") == MessageFormat("send", kind, b"")
        assert self.parse(type=kind, content="x" * 125).content == b"x" * 125

    def test_close(self) -> None:
        assert self.parse(action="close") == MessageFormat("close")
        assert self.parse(action="close", code=4001, reason="bye") == MessageFormat("close", code=4001, reason=b"bye")
        assert self.parse(action="close", code="zz").code == 0
        assert self.parse(action="close", code=65535, reason="x" * 123).code == 65535

    @pytest.mark.parametrize("action", ["refresh", "hint"])
    def test_actions_without_content(self, action: Any) -> None:
        assert self.parse(action=action) == MessageFormat(action)

    def test_errors(self) -> None:
        missing = "'ws-message' does not contain 'content' or 'content-bin'"
        assert self.error() == missing
        assert self.error(type="text") == missing
        assert self.error(type="binary") == missing
        for kind in ("zap", "", "Text"):
            assert self.error(type=kind, content="x") == "'ws-message' contains 'type' with unknown value"
        assert self.error(type=1, content="x") == "'ws-message' contains 'type' with wrong type"
        assert self.error(content=1) == "'ws-message' contains 'content' with wrong type"
        value = formats(ws_message={"content-bin": 1})
        assert both_errors(value) == "'ws-message' contains 'content-bin' with wrong type"

    def test_close_errors(self) -> None:
        for code in (-1, 65536):
            assert self.error(action="close", code=code) == "'ws-message' contains 'code' with invalid value"
        assert self.error(action="close", code=[]) == "'ws-message' contains 'code' with wrong type"
        assert self.error(action="close", reason=1) == "'ws-message' contains 'reason' with wrong type"
        assert self.error(action="close", reason="x" * 124) == "'ws-message' contains 'reason' with invalid value"

    def test_what_no_client_may_accept(self) -> None:
        """RFC 6455: such frames would end the connection of every subscriber."""
        invalid = "'ws-message' contains 'content' with invalid value"
        assert self.error(type="ping", content="x" * 126) == invalid
        for fields in ({b"content": b"\xff"}, {b"type": b"text", b"content": b"\xed\xa0\x80"}):
            assert tnet_error({b"channel": b"c", b"ws-message": fields}) == invalid
        value = {b"channel": b"c", b"ws-message": {b"action": b"close", b"reason": b"\xff"}}
        assert tnet_error(value) == "'ws-message' contains 'reason' with invalid value"


class TestBase64:
    def decode(self, text: str) -> bytes:
        stream = parse_json(formats(http_stream={"content-bin": text})).stream
        assert stream is not None
        return stream.content

    @given(st.binary(max_size=100))
    def test_any_bytes(self, raw: bytes) -> None:
        assert self.decode(base64.b64encode(raw).decode()) == raw
        assert self.decode(base64.encodebytes(raw).decode()) == raw
        assert self.decode(base64.b64encode(raw).decode().rstrip("=")) == raw

    @pytest.mark.parametrize("text", ["a", "!!!!", "aG-_", "aGk=aGk=", "ü", "a===", "YWJj=YQ"])
    def test_invalid(self, text: str) -> None:
        value = formats(http_stream={"content-bin": text})
        assert json_error(value) == "'http-stream' contains 'content-bin' with invalid value"


class TestPack:
    ITEMS = (
        item(),
        item(id="2", prev_id="1", meta={"a": "b"}, size=0, no_seq=True),
        formats(http_response={"code": 404, "headers": [["A", "1"]], "body": "", "content-filters": []}),
        formats(http_response={"body-patch": [{"op": "add", "path": "/a", "value": {"b": [1.5, None]}}]}),
        formats(http_response={"action": "hint"}),
        formats(http_stream={"action": "close"}, ws_message={"action": "close", "code": 4000, "reason": "r"}),
        formats(http_stream={"content": "", "content-filters": ["var-subst"]}, ws_message={"type": "ping"}),
        formats(ws_message={"type": "binary", "content": "x"}),
        formats(other={}),
    )

    @pytest.mark.parametrize("value", ITEMS)
    def test_through_marshal(self, value: Any) -> None:
        it = both(value)
        it.unknown = ()
        assert unpack_item(marshal.loads(marshal.dumps(pack_item(it)))) == it

    def test_unpacked_items_share_the_empty_meta(self) -> None:
        it = both(item())
        assert unpack_item(marshal.loads(marshal.dumps(pack_item(it)))).meta is it.meta

    def test_deepest_patch_fits_marshal(self) -> None:
        value: Any = 1
        for _ in range(MAX_DEPTH - 1):
            value = [value]
        it = parse_tnet(to_tnet(formats(http_response={"body-patch": value})))
        assert unpack_item(marshal.loads(marshal.dumps(pack_item(it)))) == it


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
TEXT = st.sampled_from(["send", "hint", "close", "refresh", "zap", "text", "ping", "x", "", "\r\n", "404", "eA=="])
FIELD = TEXT | JSON | st.lists(st.lists(TEXT, max_size=3), max_size=2) | st.dictionaries(TEXT, TEXT, max_size=2)
FIELD_NAMES = (
    "action",
    "code",
    "reason",
    "headers",
    "body",
    "body-bin",
    "body-patch",
    "content",
    "content-bin",
    "type",
)
FORMAT = FIELD | st.dictionaries(st.sampled_from((*FIELD_NAMES, "content-filters")), FIELD, max_size=5)
FORMATS = st.dictionaries(st.sampled_from(["http-response", "http-stream", "ws-message", "x"]), FORMAT, max_size=3)
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "channel": st.text(max_size=5) | FIELD,
        "id": FIELD,
        "prev-id": FIELD,
        "formats": FORMATS | FIELD,
        "http-stream": FORMAT,
        "meta": FIELD,
        "size": FIELD,
        "no-seq": FIELD,
    },
)


class TestFuzz:
    """Only ItemError may escape; whatever parses survives the way to the workers."""

    @given(ITEM | JSON)
    def test_json(self, value: Any) -> None:
        try:
            it = parse_json(value)
        except ItemError:
            return
        self.check(it)

    @given(ITEM | JSON)
    def test_tnetstring(self, value: Any) -> None:
        try:
            it = parse_tnet(loads(dumps(to_tnet(value))))
        except ItemError:
            return
        self.check(it)

    @given(st.dictionaries(st.integers() | st.binary(max_size=3) | st.booleans(), st.floats() | st.none(), max_size=3))
    def test_strange_keys(self, value: Any) -> None:
        for v in (value, {b"channel": b"c", b"meta": value, b"http-stream": value}):
            with pytest.raises(ItemError):
                parse_tnet(v)
        try:
            parse_tnet({b"channel": b"c", b"http-response": {b"headers": value, b"body-patch": [value]}})
        except ItemError:
            pass

    def check(self, it: Item) -> None:
        assert type(it.channel) is bytes
        assert unpack_item(marshal.loads(marshal.dumps(pack_item(it)))) == it
        if it.response is not None:
            head = it.response.reason + b"".join(k + v for k, v in it.response.headers)
            assert not any(c in head for c in b"\r\n\0")


COMMON = {"channel": "c", "formats": {"http-stream": {"content": "\u00e4"}}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"id": "1"},
        {"id": "1", "prev-id": "0"},
        {"id": ""},
        {"prev-id": "0"},
        {"id": None},
        {"id": 1},
        {"prev-id": []},
        {"no-seq": True},
        {"meta": {"a": "b"}},
        {"size": 3},
        {"unknown": {}},
        {"channel": None},
        {"channel": 1},
        {"formats": None},
        {"formats": {}},
        {"formats": []},
        {"formats": {"http-stream": None}},
        {"formats": {"http-stream": {"content": 1}}},
        {"formats": {"http-stream": {"content-bin": "AA=="}}},
        {"formats": {"http-stream": {"action": "close"}}},
        {"formats": {"http-stream": {"content": "x", "action": "hint"}}},
        {"formats": {"http-stream": {"content": "x", "content-filters": ["a"]}}},
        {"formats": {"http-stream": {"content": "x"}, "ws-message": {"content": "y"}}},
        {"formats": {"ws-message": {"content": "y"}}},
        {"formats": {"other": {"content": "y"}}},
        {"formats": None, "http-stream": {"content": "x"}},
    ],
    ids=str,
)
def test_the_short_ways_of_common_items_are_the_long_one(
    changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    obj = COMMON | changes

    def outcome(parse: Callable[[object], Item], value: object) -> Item | str:
        try:
            return parse(value)
        except ItemError as error:
            return f"error: {error}"

    short = outcome(parse_json, obj)
    tnet = item_json._to_bytes(obj, 10)
    short_tnet = outcome(parse_tnet, tnet)
    monkeypatch.setattr(item_json, "common_json", lambda obj: None)
    # With a field that nothing looks at there is no short way for a tnetstring either.
    assert short == outcome(parse_json, obj | {"looked at by nobody": 1})
    assert short_tnet == outcome(parse_tnet, tnet | {b"looked at by nobody": 1})  # type: ignore[operator]
