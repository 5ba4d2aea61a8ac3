"""The JSON form of instructs, docs/grip.md §3.2; the header form and the rest is in test_instruct.py."""

import base64
import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gripproxy.grip.instruct import ChannelSpec, Instruct, InstructError, KeepAlive
from gripproxy.grip.instruct_parser import parse_instruct
from gripproxy.grip.links import NextLink
from gripproxy.grip.response import Response

STREAM = (b"Grip-Hold", b"stream")
RESPONSE = (b"Grip-Hold", b"response")
INSTRUCT = (b"Content-Type", b"application/grip-instruct")


def parse(*headers: tuple[bytes, bytes], code: int = 200, reason: bytes = b"Fine", body: bytes = b"body") -> Instruct:
    return parse_instruct(Response(code, reason, list(headers), body))


def parse_json(document: object, *headers: tuple[bytes, bytes], code: int = 200) -> Instruct:
    return parse(INSTRUCT, *headers, code=code, body=json.dumps(document).encode())


def parse_hold(**values: Any) -> Instruct:
    return parse_json({"hold": {"mode": "stream", "channels": [], **values}})


def detail_of(*headers: tuple[bytes, bytes], code: int = 200, body: bytes = b"") -> str:
    with pytest.raises(InstructError) as caught:
        parse(*headers, code=code, body=body)
    assert str(caught.value) == caught.value.detail
    return caught.value.detail


def json_detail_of(document: object, *headers: tuple[bytes, bytes]) -> str:
    return detail_of(INSTRUCT, *headers, body=json.dumps(document).encode())


class TestJsonForm:
    """docs/grip.md §3.2."""

    def test_everything(self) -> None:
        instruct = parse_json(
            {
                "hold": {
                    "mode": "stream",
                    "channels": [{"name": "ä", "prev-id": "3", "filters": ["skip-self", "?"]}, {"name": "b"}],
                    "timeout": 30,
                    "keep-alive": {"content": "ka\n", "timeout": 20},
                    "meta": {"user": "älice"},
                },
                "response": {"code": 404, "headers": {"X-A": "1"}, "body": "hi ä"},
            }
        )
        assert instruct == Instruct(
            "stream",
            (ChannelSpec("ä".encode(), b"3", ("skip-self", "?")), ChannelSpec(b"b")),
            30,
            KeepAlive(b"ka\n", "interval", 20),
            {b"user": "älice".encode()},
            None,
            None,
            Response(404, b"Not Found", [(b"X-A", b"1")], "hi ä".encode()),
        )

    @pytest.mark.parametrize("document", [{}, {"response": {}}, {"response": {"body": ""}}])
    def test_no_hold_and_no_body_is_an_ordinary_empty_response(self, document: object) -> None:
        instruct = parse_json(document, (b"X-Own", b"1"))
        assert instruct.mode is None
        assert instruct.response == Response(200, b"Fine", [], b"")

    def test_media_type_parameters_and_letter_case(self) -> None:
        header = (b"content-type", b"Application/grip-instruct ; charset=utf-8")
        assert parse(header, body=b'{"response":{"body":"x"}}').response.body == b"x"

    def test_mode_defaults_to_response(self) -> None:
        assert parse_json({"hold": {"channels": []}}).mode == "response"

    def test_headers_are_read_first_and_the_body_overrides(self) -> None:
        headers = (
            RESPONSE,
            (b"Grip-Channel", b"a"),
            (b"Grip-Timeout", b"9"),
            (b"Grip-Keep-Alive", b"h"),
            (b"Grip-Set-Meta", b"a=1, b=2"),
            (b"Grip-Link", b"</n>; rel=next"),
            (b"Grip-Status", b"201"),
            (b"Grip-Expose-Headers", b"X-A"),
        )
        instruct = parse_json({"response": {"headers": {"X-B": "1"}}}, *headers)
        assert instruct == Instruct(
            "response",
            (ChannelSpec(b"a"),),
            9,
            KeepAlive(b"h"),
            {b"a": b"1", b"b": b"2"},
            NextLink(b"/n"),
            None,
            Response(201, b"Created", [(b"X-B", b"1")], b""),
        )
        hold = {
            "mode": "stream",
            "channels": [{"name": "b"}],
            "timeout": 8,
            "keep-alive": {"content": "j"},
            "meta": {"b": "3"},
        }
        instruct = parse_json({"hold": hold, "response": {"code": 202}}, *headers)
        assert instruct.mode == "stream"
        assert instruct.channels == (ChannelSpec(b"a"), ChannelSpec(b"b"))
        assert instruct.timeout == 8
        assert instruct.keep_alive == KeepAlive(b"j", "interval", 55)
        assert instruct.meta == {b"a": b"1", b"b": b"3"}
        assert (instruct.response.code, instruct.response.reason) == (202, b"Accepted")

    @pytest.mark.parametrize(
        ("timeout", "seconds"),
        [
            (0, 5),
            (60, 60),
            ("60", 60),
            ("zz", 5),
            ("60s", 5),
            (59.6, 60),
            (True, 5),
            (1e300, 2**31 - 1),
            (2**70, 2**31 - 1),
        ],
    )
    def test_timeout(self, timeout: object, seconds: int) -> None:
        assert parse_hold(timeout=timeout).timeout == seconds

    @pytest.mark.parametrize(
        ("value", "keep_alive"),
        [
            ({"content": "x"}, KeepAlive(b"x", "interval", 55)),
            ({"content-bin": "a2EK", "content": "x", "timeout": 0}, KeepAlive(b"ka\n", "interval", 1)),
            ({"content": "\\n", "timeout": "3"}, KeepAlive(b"\\n", "interval", 3)),
            ({}, None),
            ({"content": ""}, None),
            ({"content-bin": "!"}, None),
        ],
    )
    def test_keep_alive(self, value: object, keep_alive: KeepAlive | None) -> None:
        assert parse_hold(**{"keep-alive": value}).keep_alive == keep_alive

    @pytest.mark.parametrize(
        ("response", "expected"),
        [
            ({"code": 999}, Response(999, b"Undefined Reason")),
            ({"code": 201.6}, Response(202, b"Accepted")),
            ({"code": "404", "reason": "R"}, Response(404, b"R")),
            ({"code": 404, "reason": ""}, Response(404, b"")),
            ({"reason": "R"}, Response(200, b"R")),
            ({"body": "t", "body-bin": "AGI="}, Response(200, b"Fine", [], b"\0b")),
            ({"headers": [["A", "1"], ["a", " 2\t"]]}, Response(200, b"Fine", [(b"A", b"1"), (b"a", b"2")])),
            (
                {"headers": {"Content-Length": "9", "Transfer-Encoding": "x", "Grip-Hold": "stream"}},
                Response(200, b"Fine"),
            ),
        ],
    )
    def test_response(self, response: object, expected: Response) -> None:
        assert parse_json({"response": response}).response == expected

    def test_an_empty_prev_id_is_an_id(self) -> None:
        assert parse_hold(channels=[{"name": "a", "prev-id": ""}]).channels == (ChannelSpec(b"a", b""),)

    def test_status_must_be_200(self) -> None:
        expected = "response code for application/grip-instruct content must be 200"
        assert detail_of(INSTRUCT, code=201, body=b"{}") == expected

    @pytest.mark.parametrize(
        "body", [b"", b"{", b"3", b'"x"', b"null", b"true", b"{}x", b'{"a":"\xff"}', b"[" * 50000, b'{"a":NaN}']
    )
    def test_not_json(self, body: bytes) -> None:
        assert detail_of(INSTRUCT, body=body) == "failed to parse application/grip-instruct content as JSON"

    @pytest.mark.parametrize(
        ("document", "detail"),
        [
            ([], "instruct must be an object"),
            ({"hold": "x"}, "instruct contains 'hold' with wrong type"),
            ({"hold": None}, "instruct contains 'hold' with wrong type"),
            ({"hold": {"mode": 1, "channels": []}}, "hold contains 'mode' with wrong type"),
            ({"hold": {"mode": "x", "channels": []}}, "hold 'mode' must be set to either 'response' or 'stream'"),
            ({"hold": {}}, "hold does not contain 'channels'"),
            ({"hold": {"channels": {}}}, "hold contains 'channels' with wrong type"),
            ({"response": "x"}, ""),
            ({"response": {"code": []}}, "response contains 'code' with wrong type"),
            ({"response": {"code": None}}, "response contains 'code' with wrong type"),
            ({"response": {"code": 1000}}, "response contains 'code' with invalid value"),
            ({"response": {"code": -1}}, "response contains 'code' with invalid value"),
            ({"response": {"reason": 1}}, "response contains 'reason' with wrong type"),
            ({"response": {"reason": "a\r\nX: y"}}, "response contains 'reason' with invalid value"),
            ({"response": {"headers": "x"}}, "response contains 'headers' with wrong type"),
            ({"response": {"headers": {"k": 1}}}, "headers contains 'k' with wrong type"),
            ({"response": {"headers": [1]}}, "headers contains element with wrong type"),
            ({"response": {"headers": [["a"]]}}, "headers contains list with wrong number of elements"),
            ({"response": {"headers": [[1, "a"]]}}, "header contains name element with wrong type"),
            ({"response": {"headers": [["a", 1]]}}, "header contains value element with wrong type"),
            ({"response": {"headers": {"k": "a\r\nX: y"}}}, "headers contains 'k' with invalid value"),
            ({"response": {"headers": {"k": "a\x00"}}}, "headers contains 'k' with invalid value"),
            ({"response": {"headers": {"k ": "a"}}}, "headers contains 'k ' with invalid value"),
            ({"response": {"headers": {"": "a"}}}, "headers contains '' with invalid value"),
            ({"response": {"body": 1}}, "response contains 'body' with wrong type"),
            ({"response": {"body-bin": 1}}, "response contains 'body-bin' with wrong type"),
        ],
    )
    def test_errors(self, document: object, detail: str) -> None:
        assert json_detail_of(document) == detail

    @pytest.mark.parametrize(
        ("values", "detail"),
        [
            ({"channels": ["x"]}, "channel is not an object"),
            ({"channels": [{}]}, "channel does not contain 'name'"),
            ({"channels": [{"name": 1}]}, "channel contains 'name' with wrong type"),
            ({"channels": [{"name": "a\nb"}]}, "channel contains 'name' with invalid value"),
            ({"channels": [{"name": "a", "prev-id": 1}]}, "channel contains 'prev-id' with wrong type"),
            ({"channels": [{"name": "a", "prev-id": None}]}, "channel contains 'prev-id' with wrong type"),
            ({"channels": [{"name": "a", "prev-id": "\r"}]}, "channel contains 'prev-id' with invalid value"),
            ({"channels": [{"name": "a", "filters": "x"}]}, "channel contains 'filters' with wrong type"),
            ({"channels": [{"name": "a", "filters": [1]}]}, "filters contains value with wrong type"),
            ({"channels": [{"name": "c", "filters": ["x"] * 6}]}, "too many filters for channel 'c'"),
            ({"timeout": None}, "hold contains 'timeout' with wrong type"),
            ({"timeout": -1}, "hold contains 'timeout' with invalid value"),
            ({"keep-alive": "x"}, "hold contains 'keep-alive' with wrong type"),
            ({"keep-alive": {"content": 1}}, "keep-alive contains 'content' with wrong type"),
            ({"keep-alive": {"content-bin": 1}}, "keep-alive contains 'content-bin' with wrong type"),
            ({"keep-alive": {"content": "x", "timeout": -1}}, "keep-alive contains 'timeout' with invalid value"),
            ({"keep-alive": {"content": "x", "timeout": []}}, "keep-alive contains 'timeout' with wrong type"),
            ({"meta": "x"}, "hold contains 'meta' with wrong type"),
            ({"meta": {"k": 1}}, "'meta' contains 'k' with wrong type"),
        ],
    )
    def test_hold_errors(self, values: dict[str, object], detail: str) -> None:
        assert json_detail_of({"hold": {"channels": [], **values}}) == detail


_JSON: st.SearchStrategy[object] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.sampled_from(["stream", "a\r\n", "12", "AGI="]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "hold",
                    "response",
                    "mode",
                    "channels",
                    "name",
                    "prev-id",
                    "filters",
                    "timeout",
                    "keep-alive",
                    "content",
                    "content-bin",
                    "meta",
                    "code",
                    "reason",
                    "headers",
                    "body",
                    "body-bin",
                    "X-A",
                    "",
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


def check_promises(instruct: Instruct) -> None:
    """What the docstrings of Instruct and its parts promise about values that come from a body."""
    assert instruct.mode in (None, "response", "stream")
    assert instruct.timeout >= 5
    for channel in instruct.channels:
        assert len(channel.filters) <= 5
        assert not set(channel.name + (channel.prev_id or b"")) & set(b"\r\n\0")
    assert instruct.keep_alive is None or (instruct.keep_alive.data and instruct.keep_alive.timeout >= 1)
    response = instruct.response
    assert 0 <= response.code <= 999
    assert not set(response.reason) & set(b"\r\n\0")
    for name, value in response.headers:
        assert not name.lower().startswith(b"grip-")
        assert name.lower() != b"content-length"
        assert not set(name + value) & set(b"\r\n\0")


# Whatever a backend sends, only InstructError may escape.


@settings(deadline=None)
@given(
    st.one_of(
        _JSON,
        st.fixed_dictionaries(
            {
                "hold": st.fixed_dictionaries(
                    {"channels": st.lists(_JSON, max_size=2)},
                    optional={"mode": _JSON, "timeout": _JSON, "keep-alive": _JSON, "meta": _JSON},
                )
            }
        ),
        st.fixed_dictionaries(
            {
                "response": st.fixed_dictionaries(
                    {}, optional={"code": _JSON, "reason": _JSON, "headers": _JSON, "body": _JSON, "body-bin": _JSON}
                )
            }
        ),
    )
)
def test_any_document(document: object) -> None:
    try:
        instruct = parse_instruct(Response(200, b"OK", [INSTRUCT], orjson.dumps(document)))
    except InstructError:
        return
    check_promises(instruct)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_body(body: bytes) -> None:
    try:
        parse_instruct(Response(200, b"OK", [INSTRUCT], body))
    except InstructError:
        return


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_binary_content_survives_json(data: bytes) -> None:
    encoded = base64.b64encode(data).decode()
    assert parse_json({"response": {"body-bin": encoded}}).response.body == data
