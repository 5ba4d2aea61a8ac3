"""Items that are refused, and with what words (docs/grip.md §5.1, §5.2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.wire.wirekit import Publisher, Setup, Site, covers, expect

SETUP = Setup()

LENIENT = Setup(config={"handler.publish_strict": False})

STREAM = {"http-stream": {"content": "x"}}


def item(**fields: Any) -> dict[str, Any]:
    """Return an item for the streams of channel "a" with more fields, ``_`` standing for ``-``."""
    return {"channel": "a", **STREAM, **{name.replace("_", "-"): value for name, value in fields.items()}}


def with_format(name: str, **fields: Any) -> dict[str, Any]:
    """Return an item for channel "a" with one format."""
    return {"channel": "a", name: {key.replace("_", "-"): value for key, value in fields.items()}}


def answer(**fields: Any) -> dict[str, Any]:
    """Return an item with an http-response format that is complete but for the given fields."""
    return with_format("http-response", body="x", **fields)


def socket(**fields: Any) -> dict[str, Any]:
    """Return an item with a ws-message format."""
    return with_format("ws-message", **fields)


WRONG = "publish item object contains '{}' with wrong type"
FORMATS = {
    "http-response": ("body", "'http-response' does not contain 'body', 'body-bin', or 'body-patch'"),
    "http-stream": ("content", "'http-stream' does not contain 'content' or 'content-bin'"),
    "ws-message": ("content", "'ws-message' does not contain 'content' or 'content-bin'"),
}

ITEMS: list[tuple[object, str]] = [
    (1, "publish item object is not an object"),
    ({}, "publish item object does not contain 'channel'"),
    ({**STREAM, "channel": 1}, WRONG.format("channel")),
    (item(id=1), WRONG.format("id")),
    (item(prev_id=1), WRONG.format("prev-id")),
    (item(formats=1), WRONG.format("formats")),
    (item(meta=1), WRONG.format("meta")),
    (item(meta={"a": 1}), "'meta' contains 'a' with wrong type"),
    (item(size=[]), WRONG.format("size")),
    (item(size=-1), "publish item object contains 'size' with invalid value"),
    (item(no_seq=1), WRONG.format("no-seq")),
    (item(size=None), WRONG.format("size")),
    (item(no_seq=None), WRONG.format("no-seq")),
    ({**STREAM, "channel": None}, WRONG.format("channel")),
    ({"channel": "a"}, "no formats specified"),
    ({"channel": "a", "formats": {}}, "no formats specified"),
    ({"channel": "a", "unknown": {}}, "no formats specified"),
]

HTTP_RESPONSE: list[tuple[object, str]] = [
    (answer(code=[]), "'http-response' contains 'code' with wrong type"),
    (answer(code=1000), "'http-response' contains 'code' with invalid value"),
    (answer(code=-1), "'http-response' contains 'code' with invalid value"),
    (answer(reason=1), "'http-response' contains 'reason' with wrong type"),
    (answer(headers=None), "'http-response' contains 'headers' with wrong type"),
    (answer(code=None), "'http-response' contains 'code' with wrong type"),
    (answer(headers=1), "'http-response' contains 'headers' with wrong type"),
    (answer(headers={"k": 1}), "headers contains 'k' with wrong type"),
    (answer(headers=[1]), "headers contains element with wrong type"),
    (answer(headers=[["a"]]), "headers contains list with wrong number of elements"),
    (answer(headers=[["a", 1]]), "header contains value element with wrong type"),
    (answer(headers=[[1, "a"]]), "header contains name element with wrong type"),
    (with_format("http-response", body_patch=1), "'http-response' contains 'body-patch' with wrong type"),
]

WS_MESSAGE: list[tuple[object, str]] = [
    (socket(content="x", type=1), "'ws-message' contains 'type' with wrong type"),
    (socket(content="x", type="zz"), "'ws-message' contains 'type' with unknown value"),
    (socket(action="close", code=-1), "'ws-message' contains 'code' with invalid value"),
    (socket(action="close", code=[]), "'ws-message' contains 'code' with wrong type"),
    (socket(action="close", reason=1), "'ws-message' contains 'reason' with wrong type"),
]


def refused(publisher: Publisher, bad: object, detail: str) -> None:
    """Publish one item and compare the error."""
    reply = publisher.post("/publish/", json.dumps({"items": [bad]}))
    assert reply.line == "400 Bad Request"
    assert reply["content-type"] == "text/plain"
    assert reply.body.decode() == f"Invalid format: {detail}\n"


@covers("5.2 item", "5.2 formats", "5.1 channel", "5.1 formats empty", "5.1 meta", "5.1 size", "5.5 bad item")
@pytest.mark.parametrize(("bad", "detail"), ITEMS, ids=[json.dumps(bad) for bad, _ in ITEMS])
def test_item(publisher: Publisher, bad: object, detail: str) -> None:
    refused(publisher, bad, detail)


@covers("5.2 http-response", "5.2 headers")
@pytest.mark.parametrize(("bad", "detail"), HTTP_RESPONSE, ids=[json.dumps(bad) for bad, _ in HTTP_RESPONSE])
def test_http_response(publisher: Publisher, bad: object, detail: str) -> None:
    refused(publisher, bad, detail)


@covers("5.2 ws-message", "5.1 ws-message")
@pytest.mark.parametrize(("bad", "detail"), WS_MESSAGE, ids=[json.dumps(bad) for bad, _ in WS_MESSAGE])
def test_ws_message(publisher: Publisher, bad: object, detail: str) -> None:
    refused(publisher, bad, detail)


@covers("5.2 http-response", "5.2 http-stream", "5.2 ws-message", "5.2 content-filters", "5.2 unknown action")
@pytest.mark.parametrize("name", FORMATS)
def test_what_all_formats_share(publisher: Publisher, name: str) -> None:
    field, missing = FORMATS[name]
    binary = f"{field}-bin"
    refused(publisher, {"channel": "a", name: 1}, f"'{name}' is not an object")
    refused(publisher, {"channel": "a", name: {}}, missing)
    refused(publisher, {"channel": "a", name: {"action": 1}}, f"'{name}' contains 'action' with wrong type")
    refused(publisher, {"channel": "a", name: {field: 1}}, f"'{name}' contains '{field}' with wrong type")
    refused(publisher, {"channel": "a", name: {binary: 1}}, f"'{name}' contains '{binary}' with wrong type")
    filters = {field: "x", "content-filters": 1}
    refused(publisher, {"channel": "a", name: filters}, f"'{name}' contains 'content-filters' with wrong type")
    filters = {field: "x", "content-filters": [1]}
    refused(publisher, {"channel": "a", name: filters}, "content-filters contains element with wrong type")


@covers("5.1 formats", "5.1 formats empty", "5.1 channel", "5.1 http-stream", "5.1 ws-message", "5.1 http-response")
@pytest.mark.parametrize(
    "good",
    [
        {"channel": "a", "formats": {**STREAM, "unknown": 1}},
        with_format("http-stream", content="x", contents=1),
        {"channel": "a", "formats": STREAM, "http-response": 1},
        item(tag="ignored", unknown=1),
        item(id="", prev_id=""),
        item(size="zz"),
        item(size=0, meta={"a": "b"}, no_seq=True),
        answer(code="404"),
        answer(code=200),
        answer(code=999),
        with_format("http-response", action="hint"),
        with_format("http-response", action="close"),
        with_format("http-response", body_patch=[]),
        with_format("http-stream", action="hint"),
        with_format("http-stream", action="close"),
        with_format("http-stream", content_bin="AGI"),
        socket(action="hint"),
        socket(action="close", code=4000, reason="bye"),
        socket(type="ping"),
        socket(type="binary", content="text"),
        socket(content_bin="AGI="),
    ],
    ids=json.dumps,
)
def test_accepted(publisher: Publisher, good: dict[str, Any]) -> None:
    assert publisher.publish(good).body == b"Published\n"


@covers("5.1 id", "5.1 prev-id", "5.1 meta", "5.1 formats", "5.1 http-response")
@pytest.mark.parametrize(
    ("null", "detail"),
    [
        (item(id=None), WRONG.format("id")),
        (item(prev_id=None), WRONG.format("prev-id")),
        (item(formats=None), WRONG.format("formats")),
        (item(meta=None), WRONG.format("meta")),
        (answer(reason=None), "'http-response' contains 'reason' with wrong type"),
        (answer(action=None), "'http-response' contains 'action' with wrong type"),
    ],
    ids=json.dumps,
)
def test_null(publisher: Publisher, null: dict[str, Any], detail: str) -> None:
    reply = publisher.post("/publish/", json.dumps({"items": [null]}))
    refusal = f"Invalid format: {detail}\n"
    body = expect(
        pushpin=refusal,
        ours="Published\n",
        pushpin_does="Returns 400 for an item whose id, prev-id, formats, meta, reason or action is null.",
        ours_does="Takes an id, prev-id, formats, meta, reason or action that is null as absent.",
        because="Some JSON encoders write absent values as null.",
    )
    assert reply.body.decode() == body


@covers("5.1 http-response close", "5.1 ws-message")
@pytest.mark.parametrize("name", ["http-response", "ws-message"])
def test_refresh(publisher: Publisher, name: str) -> None:
    reply = publisher.post("/publish/", json.dumps({"items": [with_format(name, action="refresh")]}))
    body = expect(
        pushpin=b"Invalid format: \n",
        ours=b"Published\n",
        pushpin_does="Returns 400 for the action `refresh`.",
        ours_does="Accepts the action `refresh`.",
        because="Pushpin knows it from 1.38 on.",
    )
    assert reply.body == body


@covers("5.1 http-stream", "5.1 http-response")
@pytest.mark.parametrize("name", ["http-stream", "http-response", "ws-message"])
def test_binary_content_that_is_not_base64(publisher: Publisher, name: str) -> None:
    field = "body-bin" if name == "http-response" else "content-bin"
    reply = publisher.post("/publish/", json.dumps({"items": [{"channel": "a", name: {field: "AGI!*"}}]}))
    refusal = f"Invalid format: '{name}' contains '{field}' with invalid value\n"
    body = expect(
        pushpin="Published\n",
        ours=refusal,
        pushpin_does="Publishes an item whose `body-bin` or `content-bin` is not base64, without the foreign "
        "characters.",
        ours_does="Returns 400 for an item whose `body-bin` or `content-bin` is not base64.",
        because="The publisher learns of its mistake.",
    )
    assert reply.body.decode() == body


@covers("5.2 unknown action")
@pytest.mark.parametrize(
    ("name", "action", "detail"),
    [
        ("http-response", "sned", "the unknown value 'sned': did you mean 'send'?"),
        ("http-stream", "zz", "the unknown value 'zz'"),
        ("ws-message", "clos", "the unknown value 'clos': did you mean 'close'?"),
        ("http-stream", "refresh", "the value 'refresh', which streams do not have"),
    ],
)
def test_unknown_action(publisher: Publisher, name: str, action: str, detail: str) -> None:
    wanted = expect(
        pushpin="",
        ours=f"'{name}' contains 'action' with {detail}",
        pushpin_does="Returns 400 without a reason for an unknown action.",
        ours_does="Returns 400 with the unknown action and the one that may have been meant.",
        because="The publisher learns of its mistake. `publish_strict=false` leaves it out.",
    )
    refused(publisher, with_format(name, action=action), wanted)


NO_CLIENT: list[tuple[dict[str, Any], str]] = [
    (
        {"channel": "a", "formats": {"http-stram": {"content": "x"}}},
        "unknown format 'http-stram': did you mean 'http-stream'?",
    ),
    (
        {"channel": "a", "formats": {"mqtt": {}}},
        "unknown format 'mqtt': expected http-response, http-stream, ws-message",
    ),
    (
        {"channel": "", **STREAM},
        "publish item object contains 'channel' with an empty value: no client can be on it",
    ),
]


@covers("5.1 formats", "5.1 channel", "5.2 formats")
@pytest.mark.parametrize(("item", "detail"), NO_CLIENT, ids=[json.dumps(item) for item, _ in NO_CLIENT])
@pytest.mark.parametrize("place", [None, 2])
def test_items_that_no_client_can_get(
    publisher: Publisher, item: dict[str, Any], detail: str, place: int | None
) -> None:
    good = {"channel": "a", **STREAM}
    items = [item] if place is None else [good, good, item]
    reply = publisher.post("/publish/", json.dumps({"items": items}))
    body = expect(
        pushpin="Published\n",
        ours=f"Invalid format: {'' if place is None else f'items[{place}]: '}{detail}\n",
        pushpin_does="Publishes an item whose formats are all unknown, and one for the empty channel.",
        ours_does="Returns 400 for an item whose formats are all unknown, or whose channel is empty, with the nearest "
        "format and the index in a batch; by ZeroMQ such an item is skipped, counted and logged. A further "
        "unknown format beside a known one, and unknown keys of a format, are counted and logged.",
        because="No client can get such an item: it is a mistake of the publisher. `publish_strict=false` publishes it "
        "to nobody.",
    )
    assert reply.body.decode() == body


@covers("5.1 formats", "5.1 channel", "5.2 unknown action", "5.5 bad item")
def test_without_strictness(start: Callable[[Setup], Site]) -> None:
    publisher = start(LENIENT).publisher
    for item, _ in NO_CLIENT:
        assert publisher.publish(item).body == b"Published\n"
    refused(publisher, with_format("http-stream", action="zz"), "")
    reply = publisher.post("/publish/", json.dumps({"items": [{"channel": "a", **STREAM}, {}]}))
    assert reply.body == b"Invalid format: publish item object does not contain 'channel'\n"


@covers("5.2 formats")
def test_a_misspelt_format_beside_the_channel(publisher: Publisher) -> None:
    hint = expect(
        pushpin="",
        ours=", but there is 'http_stream': did you mean 'http-stream'?",
        pushpin_does="Does not propose a format for a key that is like one.",
        ours_does="Proposes the nearest format when an item has none.",
        because="The publisher learns of its mistake. `publish_strict=false` leaves it out.",
    )
    refused(publisher, {"channel": "a", "http_stream": {"content": "x"}}, f"no formats specified{hint}")


@covers("15 21 splitting")
@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"reason": "OK\r\nX-Injected: 1"}, "'http-response' contains 'reason' with invalid value"),
        ({"reason": "OK\nX-Injected: 1"}, "'http-response' contains 'reason' with invalid value"),
        ({"headers": {"X-A": "1\r\nX-Injected: 1"}}, "'http-response' contains 'headers' with invalid value"),
        ({"headers": [["X-A\r\nX-Injected", "1"]]}, "'http-response' contains 'headers' with invalid value"),
        ({"headers": [["X A", "1"]]}, "'http-response' contains 'headers' with invalid value"),
        ({"headers": {"X-A": "1\u00002"}}, "'http-response' contains 'headers' with invalid value"),
    ],
)
def test_response_splitting(publisher: Publisher, fields: dict[str, Any], detail: str) -> None:
    reply = publisher.post("/publish/", json.dumps({"items": [answer(**fields)]}))
    refusal = f"Invalid format: {detail}\n"
    body = expect(
        pushpin="Published\n",
        ours=refusal,
        pushpin_does="Publishes an item with CR, LF or NUL in a reason or header, or with an invalid header name.",
        ours_does="Returns 400 for an item with CR, LF or NUL in a reason or header, or with an invalid header name.",
        because="They would let a publisher write header lines of its own (response splitting).",
    )
    assert reply.body.decode() == body


@covers("5.5 bad json", "5.5 bad item")
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("[" * 100_000, "Body is not valid JSON."),
        ('{"items":' + "[" * 5000 + "]" * 5000 + "}", "Body is not valid JSON."),
        ('{"items":[],}', "Body is not valid JSON."),
        ('{"items":[]} more', "Body is not valid JSON."),
        ('{"items":[{"channel":"a","size":NaN,"http-stream":{"content":"x"}}]}', "Body is not valid JSON."),
    ],
    ids=["endless", "deep", "comma", "more", "NaN"],
)
def test_hostile_bodies(publisher: Publisher, body: str, text: str) -> None:
    reply = publisher.post("/publish/", body)
    assert reply.line == "400 Bad Request"
    assert reply.body.decode() == f"{text}\n"
    assert publisher.publish(item()).body == b"Published\n"
