"""What publishers send: items as JSON and as tnetstrings.

Contract: only FrameError and ItemError escape; a value that was decoded is encoded to a tnetstring with an equal value;
an item that was packed for a worker is unpacked to an equal item, and can be measured; JSON and the tnetstring of the
same fields are equal items or both refused.
"""

from __future__ import annotations

import marshal
from collections.abc import Hashable
from dataclasses import replace
from typing import Final

from gripproxy.grip import bounds, item, item_json, item_pack, tnetstring
from gripproxy.grip.bounds import Bounds, memory_of_item, size_of_item
from gripproxy.grip.item import Item, ItemError, parse_tnet
from gripproxy.grip.item_json import parse_json
from gripproxy.grip.item_pack import pack_item, unpack_item
from gripproxy.grip.tnetstring import FrameError, decode_payload, dumps, loads
from tests.fuzz.plan import Plan
from tests.fuzz.target import Target, gist, require_equal

__all__ = ["ITEM_JSON", "TNETSTRING"]

_BOUNDS: Final = Bounds(channel=20, id=20, meta=60, item=200)
"""Bounds so small that inputs reach them."""


def _item(value: object, size: int, json: bool) -> tuple[Item | None, str]:
    try:
        parsed = parse_json(value) if json else parse_tnet(value)
    except ItemError as error:
        return None, gist(error)
    again = unpack_item(marshal.loads(marshal.dumps(pack_item(parsed))))
    # Unknown names are for the handler, and do not travel.
    require_equal("packed item", replace(parsed, unknown=()), again)
    if memory_of_item(parsed) < 0 or size_of_item(parsed) < len(parsed.channel):
        raise AssertionError("an item smaller than its channel")
    try:
        _BOUNDS.check_message(size)
        _BOUNDS.check_item(parsed, size)
    except ItemError as error:
        return parsed, gist(error)
    return parsed, ""


_NAMES: Final = (
    b"channel", b"formats", b"http-response", b"http-stream", b"ws-message", b"content", b"content-bin", b"body",
    b"body-patch", b"id", b"prev-id", b"meta", b"size", b"no-seq", b"action", b"code", b"reason", b"headers", b"type",
    b"content-filters", b"a",
)  # fmt: skip


def _check_tnetstring(data: bytes) -> Hashable:
    if data[:1] == b"=":
        # A channel and a format, all else by choice: lengths that fit are rare by chance.
        plan = Plan(data[1:], _NAMES)
        chosen = {_NAMES[plan.number(len(_NAMES))]: plan.value(False) for _ in range(plan.number(5))}
        fields = {b"body": b"", **chosen} if plan.number(2) else chosen
        other = _NAMES[plan.number(len(_NAMES))]
        data = dumps({b"channel": b"c", _NAMES[2 + plan.number(3)]: fields, other: plan.value(False)})
    try:
        value = loads(data)
    except FrameError:
        # The text repeats single bytes of the message.
        return FrameError
    require_equal("encoded value", value, loads(dumps(value)))
    parsed, outcome = _item(value, len(data), json=False)
    return parsed is None, outcome


def _check_json(data: bytes) -> Hashable:
    try:
        kind, value = decode_payload(b"J" + data)
    except FrameError as error:
        return gist(error)
    assert kind == "json"
    parsed, outcome = _item(value, len(data), json=True)
    # Base64 exists in JSON only, and each form names its own fields as missing.
    if b"-bin" not in data:
        twin, _ = _item(loads(dumps(_as_tnetstring(value))), len(data), json=False)
        require_equal("JSON, tnetstring", parsed, twin)
    return parsed is None, outcome


def _as_tnetstring(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, list):
        return [_as_tnetstring(element) for element in value]
    if isinstance(value, dict):
        # The library writes the last member of a dictionary first, and headers have an order.
        return {_as_tnetstring(name): _as_tnetstring(element) for name, element in reversed(value.items())}
    return value


TNETSTRING: Final = Target(
    "tnetstring",
    _check_tnetstring,
    (tnetstring, item, item_pack, bounds),
    (
        b"=\x01\x08\x06\x01\x08\x02\x14\x02\x01\x05\x01\x00",
        b"=\x01\x05\x01\x03abc\x00\x00\x09\x01\x02ab",
        dumps({b"channel": b"a", b"formats": {b"http-stream": {b"content": b"x"}}}),
        dumps({b"channel": b"a", b"id": b"2", b"prev-id": b"1", b"http-response": {b"code": 200, b"body": b""}}),
        dumps([0, -1, 1.5, True, False, None, b"", [], {}]),
        dumps({b"channel": b"a", b"ws-message": {b"content-bin": b"x", b"type": b"text"}, b"no-seq": True}),
        dumps({b"channel": b"a", b"http-response": {b"body-patch": [{b"op": b"add", b"path": b"/", b"value": 1.0}]}}),
    ),
    (b"0:~", b"4:true!", b"5:false!", b"1:1#", b"3:1.5^", b"1:a,", b"0:]", b"0:}", b"0:,", b"3:nan^", b"3:inf^",
     b"7:channel,",
     b"11:http-stream,", b"13:http-response,", b"10:ws-message,", b"7:content,", b"4:body,", b"10:body-patch,",
     b"2:id,",
     b"7:prev-id,", b"4:meta,", b"4:size,", b"6:no-seq,", b"6:action,", b"4:hint,", b"5:close,", b"7:refresh,",
     b"7:formats,"),
)  # fmt: skip

ITEM_JSON: Final = Target(
    "item_json",
    _check_json,
    (item, item_json, tnetstring, bounds),
    (
        b'{"channel":"a","formats":{"http-stream":{"content":"x"}}}',
        b'{"channel":"a","id":"2","prev-id":"1","http-response":{"code":200,"reason":"OK","headers":{"A":"b"},"body":"x"}}',
        b'{"channel":"a","http-response":{"headers":[["A","b"]],"body-bin":"eA=="},"meta":{"a":"b"},"size":5,"no-seq":true}',
        b'{"channel":"a","formats":{"ws-message":{"type":"ping","content":"x","content-filters":["skip-self"]}}}',
        b'{"channel":"a","formats":{"ws-message":{"action":"close","code":1000,"reason":"bye"}}}',
        b'{"channel":"a","http-response":{"body-patch":[{"op":"add","path":"/-","value":1.5}]},'
        b'"http-stream":{"action":"close"}}',
    ),
    (b'"channel":', b'"formats":', b'"http-stream":', b'"http-response":', b'"ws-message":', b'"content":',
     b'"content-bin":',
     b'"body":', b'"body-bin":', b'"body-patch":', b'"id":', b'"prev-id":', b'"meta":', b'"size":', b'"no-seq":',
     b'"action":',
     b'"hint"', b'"close"', b'"refresh"', b'"send"', b'"code":', b'"reason":', b'"headers":', b'"type":', b'"text"',
     b'"binary"',
     b'"ping"', b'"pong"', b'"content-filters":', b"null", b"true", b"false", b"1e999", b"-0", b"1.5", b"[]", b"{}",
     b",", b'"\\ud800"',
     b'"\\u0000"', b'"a"', b'"b",'),
)  # fmt: skip
