"""JSON form of an instruct: the body of an ``application/grip-instruct`` response (docs/grip.md §3.2)."""

from __future__ import annotations

from typing import Any, TypeAlias

import orjson

from gripproxy.grip.headers import Headers
from gripproxy.grip.instruct import (
    CONTROL,
    FRAMING,
    HOLD_TIMEOUT_MIN,
    INT_MAX,
    KEEP_ALIVE_TIMEOUT,
    TOKEN,
    ChannelSpec,
    Instruct,
    InstructError,
    KeepAlive,
    check_filters,
    decode_base64,
    to_int,
)
from gripproxy.grip.response import FINAL_MAX, FINAL_MIN, Response, phrase

# --- the JSON form

_Object: TypeAlias = dict[str, Any]


def parse_document(body: bytes, instruct: Instruct) -> None:
    """Read the body of an ``application/grip-instruct`` response (docs/grip.md §3).

    Args:
        body: The body as received.
        instruct: Instruct of the response's headers; values of the body override its own.

    Raises:
        InstructError: The body is not an instruct in JSON.
    """
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InstructError("failed to parse application/grip-instruct content as JSON") from error
    if not isinstance(document, dict):
        if isinstance(document, list):
            raise InstructError("instruct must be an object")
        # docs/grip.md §0.2: a bare scalar does not count as JSON.
        raise InstructError("failed to parse application/grip-instruct content as JSON")
    if "hold" in document:
        _parse_hold(_object(document["hold"], "instruct contains 'hold' with wrong type"), instruct)
    if "response" in document:
        _parse_client_response(_object(document["response"], ""), instruct.response)


def _parse_hold(hold: _Object, instruct: Instruct) -> None:
    mode = hold.get("mode", "response")
    if not isinstance(mode, str):
        raise InstructError("hold contains 'mode' with wrong type")
    if mode == "response":
        instruct.mode = "response"
    elif mode == "stream":
        instruct.mode = "stream"
    else:
        raise InstructError("hold 'mode' must be set to either 'response' or 'stream'")

    if "channels" not in hold:
        raise InstructError("hold does not contain 'channels'")
    channels = _list(hold["channels"], "hold contains 'channels' with wrong type")
    # Channels add up over both forms; everything else in the body replaces the value of a header.
    instruct.channels += tuple(_parse_json_channel(channel) for channel in channels)

    if "timeout" in hold:
        timeout = _json_seconds(hold["timeout"], "hold contains 'timeout'")
        instruct.timeout = max(timeout, HOLD_TIMEOUT_MIN)

    if "keep-alive" in hold:
        keep_alive = _object(hold["keep-alive"], "hold contains 'keep-alive' with wrong type")
        data = _content(keep_alive, "keep-alive", "content")
        timeout = KEEP_ALIVE_TIMEOUT
        if "timeout" in keep_alive:
            timeout = _json_seconds(keep_alive["timeout"], "keep-alive contains 'timeout'")
        instruct.keep_alive = KeepAlive(data, "interval", max(timeout, 1)) if data else None

    if "meta" in hold:
        meta = _object(hold["meta"], "hold contains 'meta' with wrong type")
        for key, value in meta.items():
            if not isinstance(value, str):
                raise InstructError(f"'meta' contains '{key}' with wrong type")
            instruct.meta[key.encode()] = value.encode()


def _parse_json_channel(value: object) -> ChannelSpec:
    channel = _object(value, "channel is not an object")
    if "name" not in channel:
        raise InstructError("channel does not contain 'name'")
    name = _string(channel["name"], "channel contains 'name'")
    prev_id = _string(channel["prev-id"], "channel contains 'prev-id'") if "prev-id" in channel else None
    for key, text in (("name", name), ("prev-id", prev_id)):
        # As in _parse_channel: both come back in request headers.
        if text is not None and CONTROL.search(text):
            raise InstructError(f"channel contains '{key}' with invalid value")
    filters: list[str] = []
    if "filters" in channel:
        for name_of_filter in _list(channel["filters"], "channel contains 'filters' with wrong type"):
            if not isinstance(name_of_filter, str):
                raise InstructError("filters contains value with wrong type")
            filters.append(name_of_filter)
    return check_filters(ChannelSpec(name, prev_id, tuple(filters)))


def _parse_client_response(wanted: _Object, response: Response) -> None:
    if "code" in wanted:
        code = _json_int(wanted["code"], "response contains 'code' with wrong type")
        if not FINAL_MIN <= code <= FINAL_MAX:
            raise InstructError("response contains 'code' with invalid value")
        response.code = code
        response.reason = phrase(code)
    if "reason" in wanted:
        reason = _string(wanted["reason"], "response contains 'reason'")
        if CONTROL.search(reason):
            raise InstructError("response contains 'reason' with invalid value")
        response.reason = reason
    if "headers" in wanted:
        response.headers = _parse_json_headers(wanted["headers"])
    response.body = _content(wanted, "response", "body") or b""


def _parse_json_headers(value: object) -> Headers:
    pairs: list[tuple[object, object]]
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = []
        for element in value:
            if not isinstance(element, list):
                raise InstructError("headers contains element with wrong type")
            if len(element) != 2:
                raise InstructError("headers contains list with wrong number of elements")
            pairs.append((element[0], element[1]))
    else:
        raise InstructError("response contains 'headers' with wrong type")
    headers: Headers = []
    for key, content in pairs:
        if not isinstance(key, str):
            raise InstructError("header contains name element with wrong type")
        if not isinstance(content, str):
            if isinstance(value, list):
                raise InstructError("header contains value element with wrong type")
            raise InstructError(f"headers contains '{key}' with wrong type")
        name, text = key.encode(), content.strip().encode()
        # A line break here would let the author of the value write headers, or a whole second response.
        if not TOKEN.fullmatch(name) or CONTROL.search(text):
            raise InstructError(f"headers contains '{key}' with invalid value")
        lower = name.lower()
        if lower not in FRAMING and not lower.startswith(b"grip-"):
            headers.append((name, text))
    return headers


def _content(holder: _Object, holder_name: str, key: str) -> bytes | None:
    """``key`` as text or ``key``-bin as base64; the binary form wins, ``None`` if there is neither."""
    binary_key = key + "-bin"
    if binary_key in holder:
        return decode_base64(_string(holder[binary_key], f"{holder_name} contains '{binary_key}'"))
    if key in holder:
        return _string(holder[key], f"{holder_name} contains '{key}'")
    return None


def _object(value: object, detail: str) -> _Object:
    if not isinstance(value, dict):
        raise InstructError(detail)
    return value


def _list(value: object, detail: str) -> list[object]:
    if not isinstance(value, list):
        raise InstructError(detail)
    return value


def _string(value: object, what: str) -> bytes:
    if not isinstance(value, str):
        raise InstructError(f"{what} with wrong type")
    return value.encode()


def _json_int(value: object, detail: str) -> int:
    """An integer as docs/grip.md §0.2 takes it: numbers are rounded, text that is no number is 0."""
    if isinstance(value, str):
        return to_int(value.encode()) or 0
    if isinstance(value, (int, float)):
        bounded = min(max(value, -INT_MAX), INT_MAX)
        return int(bounded + 0.5) if bounded >= 0 else -int(0.5 - bounded)
    raise InstructError(detail)


def _json_seconds(value: object, what: str) -> int:
    seconds = _json_int(value, f"{what} with wrong type")
    if seconds < 0:
        raise InstructError(f"{what} with invalid value")
    return seconds
