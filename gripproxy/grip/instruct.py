"""What a backend tells the proxy to do with a request: ``Grip-*`` headers or an ``application/grip-instruct`` body.

docs/grip.md §3. :func:`is_grip` says whether a response carries an instruct at all, :func:`parse_instruct` reads it.
Headers are read first, whatever the form; in the JSON form the values of the body then override them.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import orjson

from gripproxy.grip.bounds import BOUNDS, Bounds
from gripproxy.grip.headers import Headers, ParamsError, param, parse_all_params, parse_params, split_list
from gripproxy.grip.links import LinkError, NextLink, check_uri
from gripproxy.grip.response import FINAL_MAX, FINAL_MIN, Response, phrase

__all__ = [
    "HOLD_TIMEOUT",
    "HOLD_TIMEOUT_MIN",
    "INSTRUCT_TYPE",
    "KEEP_ALIVE_TIMEOUT",
    "MAX_FILTERS",
    "ChannelSpec",
    "Instruct",
    "InstructError",
    "KeepAlive",
    "Mode",
    "is_grip",
    "parse_instruct",
    "unescape_cstring",
]

Mode: TypeAlias = Literal["response", "stream"]

INSTRUCT_TYPE: Final = b"application/grip-instruct"
HOLD_TIMEOUT: Final = 55
"""Seconds a response hold lasts if the backend names no timeout."""
HOLD_TIMEOUT_MIN: Final = 5
"""A shorter hold timeout is raised to this: the client would otherwise poll in a tight loop."""
KEEP_ALIVE_TIMEOUT: Final = 55
MAX_FILTERS: Final = 5
"""Filters allowed on one channel; each costs time on every item of it."""

_HYPHEN: Final = ord("-")
_INSTRUCT_TYPE_LENGTH: Final = len(INSTRUCT_TYPE)
_MAX_INT: Final = 2**31 - 1
_INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,10}")
_STATUS: Final = re.compile(rb"[0-9]{3}")
_CSTRING_ESCAPE: Final = re.compile(rb"\\(x[0-9A-Fa-f]{2}|[^x]|\Z|x)", re.DOTALL)
_CSTRING_LETTERS: Final = {b"\\": b"\\", b"n": b"\n", b"r": b"\r"}
_BASE64_JUNK: Final = re.compile(rb"[^A-Za-z0-9+/]")
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# How a message is framed, and over which connection, is decided by who sends it (RFC 9112 §6, RFC 9110 §7.6.1).
_FRAMING: Final = frozenset((b"content-length", b"connection", b"keep-alive", b"transfer-encoding"))
# Parsed header values kept for backends that say the same to many clients: it saves time, and equal holds then share
# one object instead of keeping one each. A longer value is parsed every time, so that this cannot grow large.
_SHARED: Final = 1024
_SHARED_LENGTH: Final = 256


class InstructError(ValueError):
    """The backend's instruct cannot be obeyed.

    :param detail: what is wrong, in the words of docs/grip.md §3.7; shown to the client in debug mode.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """A channel a hold asks for.

    :param name: as the backend says it, without the route's prefix.
    :param prev_id: id of the last item the backend has already given to this client, ``None`` if it keeps no ids. Only
        the JSON form can name an empty id; an empty ``prev-id`` of a header is none.
    :param filters: filter names in order, unknown ones too, at most ``MAX_FILTERS``.
    """

    name: bytes
    prev_id: bytes | None = None
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """What to send on a quiet stream.

    :param data: never empty: an empty chunk would end the response.
    :param mode: ``idle`` counts from the last write, ``interval`` from the last keep-alive.
    :param timeout: seconds, at least 1.
    """

    data: bytes
    mode: Literal["idle", "interval"] = "idle"
    timeout: int = KEEP_ALIVE_TIMEOUT


@dataclass(slots=True)
class Instruct:
    """An instruct as parsed.

    :param mode: kind of hold, ``None`` for no hold.
    :param channels: in order; a hold may have none.
    :param timeout: seconds a response hold lasts, at least ``HOLD_TIMEOUT_MIN``.
    :param keep_alive: for streams, ``None`` if the stream sends nothing by itself.
    :param meta: connection meta for filters.
    :param next: where the next data is, ``None`` if the backend named no next link.
    :param gone: the URI to tell when the session ends (perhaps relative), or ``None``.
    :param response: what the client gets now (stream) or at the timeout (response): ``Grip-*`` and framing headers
        are gone, ``Grip-Status`` and ``Grip-Expose-Headers`` applied.
    """

    mode: Mode | None
    channels: tuple[ChannelSpec, ...]
    timeout: int
    keep_alive: KeepAlive | None
    meta: dict[bytes, bytes]
    next: NextLink | None
    gone: bytes | None
    response: Response


def is_grip(headers: Headers) -> bool:
    """Whether a response carries GRIP data (docs/grip.md §2.5).

    :param headers: the headers of a backend's response.
    :returns: whether any name begins with ``Grip-`` or the media type is ``application/grip-instruct``.
    """
    for name, value in headers:
        # Runs for every header of every response: two tests of a byte come before anything that makes an object.
        if len(name) > 4:
            if name[4] == _HYPHEN:
                if name[:4].lower() == b"grip":
                    return True
            elif (
                len(name) == 12
                and len(value) >= _INSTRUCT_TYPE_LENGTH
                and name.lower() == b"content-type"
                and _is_instruct_type(value)
            ):
                return True
    return False


def parse_instruct(response: Response, bounds: Bounds = BOUNDS) -> Instruct:
    """Read the instruct of a backend's complete response (docs/grip.md §3.1 to §3.3).

    :param response: as the backend sent it; not changed.
    :param bounds: of channels, ids and meta.
    :returns: the instruct, all values checked and defaults filled in.
    :raises InstructError: something in it has no meaning (docs/grip.md §3.7), or exceeds a bound.
    """
    grip: dict[bytes, list[bytes]] = {}
    kept: Headers = []
    content_type: bytes | None = None
    for header in response.headers:
        name = header[0].lower()
        if name[:5] == b"grip-":
            if name in grip:
                grip[name].append(header[1])
            else:
                grip[name] = [header[1]]
        elif name not in _FRAMING:
            kept.append(header)
            if content_type is None and name == b"content-type":
                content_type = header[1]

    instruct = Instruct(None, (), HOLD_TIMEOUT, None, {}, None, None, response)
    get = grip.get
    if (values := get(b"grip-hold")) is not None:
        instruct.mode = _parse_mode(values[0])
    if (values := get(b"grip-channel")) is not None:
        instruct.channels = _parse_channels(values, bounds)
    if (values := get(b"grip-timeout")) is not None:
        timeout = _parse_seconds(values[0], "failed to parse Grip-Timeout", "Grip-Timeout has invalid value")
        instruct.timeout = max(timeout, HOLD_TIMEOUT_MIN)
    if (values := get(b"grip-keep-alive")) is not None:
        value = values[0]
        short = len(value) <= _SHARED_LENGTH
        instruct.keep_alive = _parse_keep_alive(value) if short else _parse_keep_alive.__wrapped__(value)
    if (values := get(b"grip-set-meta")) is not None:
        instruct.meta = _parse_meta(values)
        _check((), instruct.meta, bounds)
    if (values := get(b"grip-link")) is not None:
        _parse_links(values, instruct)
    code, reason = response.code, response.reason
    if (values := get(b"grip-status")) is not None and values[0].strip():
        code, reason = _parse_status(values[0])
    elif not FINAL_MIN <= code <= FINAL_MAX:
        raise InstructError(f"the response has the status {code}; expected a final one, {FINAL_MIN} to {FINAL_MAX}")

    if content_type is not None and len(content_type) >= _INSTRUCT_TYPE_LENGTH and _is_instruct_type(content_type):
        # Only what the body says goes to the client, so the headers of this response stop here.
        instruct.response = Response(code, reason)
        if response.code != 200:
            raise InstructError("response code for application/grip-instruct content must be 200")
        _parse_document(response.body, instruct)
        _check(instruct.channels, instruct.meta, bounds)
        return instruct
    if (values := get(b"grip-expose-headers")) is not None:
        exposed = {name.lower() for name in split_list(values)}
        if exposed:
            kept = [header for header in kept if header[0].lower() in exposed]
    instruct.response = Response(code, reason, kept, response.body)
    return instruct


def unescape_cstring(text: bytes) -> bytes | None:
    r"""Undo the ``cstring`` escapes of a keep-alive (docs/grip.md §3.1).

    :param text: with the escapes ``\\``, ``\r``, ``\n`` and ``\xHH``.
    :returns: the bytes meant, ``None`` if a ``\`` is the last byte or ``\x`` lacks its two hex digits. Any other
        escape is dropped whole.
    """
    if b"\\" not in text:
        return text
    broken = False

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal broken
        escape = match[1]
        if len(escape) == 3:
            return bytes((int(escape[1:], 16),))
        if escape in (b"", b"x"):
            broken = True
        return _CSTRING_LETTERS.get(escape, b"")

    result = _CSTRING_ESCAPE.sub(replace, text)
    return None if broken else result


# --- the header form


def _is_instruct_type(content_type: bytes) -> bool:
    # Media types are compared without regard to letter case (RFC 9110 §8.3.1).
    return content_type.partition(b";")[0].strip().lower() == INSTRUCT_TYPE


def _parse_mode(value: bytes) -> Mode:
    value = value.strip()
    if value == b"response":
        return "response"
    if value == b"stream":
        return "stream"
    raise InstructError("Grip-Hold must be set to either 'response' or 'stream'")


def _parse_channels(values: list[bytes], bounds: Bounds) -> tuple[ChannelSpec, ...]:
    channels = []
    for item in split_list(values):
        channel = _parse_channel(item) if len(item) <= _SHARED_LENGTH else _parse_channel.__wrapped__(item)
        if channel is not None:
            # Names and ids are not longer than the item they are in.
            if len(item) > bounds.least:
                _check((channel,), {}, bounds)
            channels.append(channel)
    return tuple(channels)


def _check(channels: tuple[ChannelSpec, ...], meta: Mapping[bytes, bytes], bounds: Bounds) -> None:
    for channel in channels:
        if len(channel.name) > bounds.channel:
            raise InstructError(f"channel has a name of {bounds.of_channel(channel.name)}")
        if channel.prev_id is not None and len(channel.prev_id) > bounds.id:
            raise InstructError(f"channel has a prev-id of {bounds.of_id(channel.prev_id)}")
    if meta and (fault := bounds.of_meta(meta)):
        raise InstructError(f"connection has meta of {fault}")


@lru_cache(_SHARED)
def _parse_channel(item: bytes) -> ChannelSpec | None:
    try:
        name, params = parse_params(item)
    except ParamsError:
        return None  # docs/grip.md §0.1: such an item is skipped, not an error
    if _CONTROL.search(item):
        # The name and the id come back in Grip-Last request headers, where a line break would begin a header.
        raise InstructError("failed to parse Grip-Channel")
    if not params:
        return ChannelSpec(name)
    # Unlike the other names, `filter` is known in lower case only.
    filters = tuple(_text(value) for key, value in params if key == b"filter")
    return _check_filters(ChannelSpec(name, param(params, b"prev-id") or None, filters))


@lru_cache(_SHARED)
def _parse_keep_alive(value: bytes) -> KeepAlive | None:
    if not value.strip():
        return None
    try:
        text, params = parse_params(value)
    except ParamsError:
        return None  # as in _parse_channel
    if not text:
        raise InstructError("Grip-Keep-Alive cannot be empty")
    mode_name = param(params, b"mode") or b"idle"
    mode: Literal["idle", "interval"]
    if mode_name == b"idle":
        mode = "idle"
    elif mode_name == b"interval":
        mode = "interval"
    else:
        raise InstructError(f"no such Grip-Keep-Alive mode '{_text(mode_name)}'")
    timeout = KEEP_ALIVE_TIMEOUT
    timeout_text = param(params, b"timeout")
    if timeout_text is not None:
        timeout = _parse_seconds(
            timeout_text, "failed to parse Grip-Keep-Alive timeout value", "Grip-Keep-Alive timeout has invalid value"
        )
    format_name = param(params, b"format") or b"raw"
    if format_name == b"raw":
        data: bytes | None = text
    elif format_name == b"cstring":
        data = unescape_cstring(text)
        if not data:
            raise InstructError("failed to parse Grip-Keep-Alive cstring format")
    elif format_name == b"base64":
        data = _decode_base64(text)
    else:
        raise InstructError(f"no such Grip-Keep-Alive format '{_text(format_name)}'")
    # Base64 of nothing is no error in Pushpin either, and nothing is what will be sent.
    return KeepAlive(data, mode, max(timeout, 1)) if data else None


def _parse_meta(values: list[bytes]) -> dict[bytes, bytes]:
    meta: dict[bytes, bytes] = {}
    for item in split_list(values):
        try:
            params = parse_all_params(item)
        except ParamsError:
            continue  # as in _parse_channel
        if params:
            meta[params[0][0]] = params[0][1]
    return meta


def _parse_links(values: list[bytes], instruct: Instruct) -> None:
    for item in split_list(values):
        link = _parse_link(item) if len(item) <= _SHARED_LENGTH else _parse_link.__wrapped__(item)
        if isinstance(link, NextLink):
            instruct.next = link
        elif link is not None:
            instruct.gone = link


@lru_cache(_SHARED)
def _parse_link(item: bytes) -> NextLink | bytes | None:
    """A next link, the URI of a gone link, or ``None`` for a link that means nothing here."""
    try:
        value, params = parse_params(item)
    except ParamsError:
        return None  # as in _parse_channel
    rel = param(params, b"rel")
    if rel not in (b"next", b"gone"):
        return None
    if len(value) <= 2 or not value.startswith(b"<") or not value.endswith(b">"):
        raise InstructError("failed to parse Grip-Link value")
    try:
        uri = check_uri(value[1:-1])
    except LinkError as error:
        raise InstructError("Grip-Link contains invalid link") from error
    if rel == b"gone":
        return uri
    timeout_text = param(params, b"timeout")
    if timeout_text is None:
        return NextLink(uri)
    timeout = _parse_seconds(
        timeout_text, "failed to parse Grip-Link timeout value", "Grip-Link timeout has invalid value"
    )
    return NextLink(uri, timeout)


def _parse_status(value: bytes) -> tuple[int, bytes]:
    code_text, _, reason = value.strip().partition(b" ")
    if not _STATUS.fullmatch(code_text) or (code := int(code_text)) < FINAL_MIN:
        raise InstructError("Grip-Status contains invalid status code")
    reason = reason.strip()
    if _CONTROL.search(reason):
        raise InstructError("Grip-Status contains invalid reason")
    return code, reason or phrase(code)


def _parse_seconds(value: bytes, not_a_number: str, out_of_range: str) -> int:
    seconds = _to_int(value)
    if seconds is None:
        raise InstructError(not_a_number)
    if seconds < 0:
        raise InstructError(out_of_range)
    return seconds


def _to_int(value: bytes) -> int | None:
    value = value.strip()
    # int() alone would take underscores, and any number of digits.
    if not _INTEGER.fullmatch(value):
        return None
    number = int(value)
    return number if -_MAX_INT <= number <= _MAX_INT else None


def _check_filters(channel: ChannelSpec) -> ChannelSpec:
    if len(channel.filters) > MAX_FILTERS:
        raise InstructError(f"too many filters for channel '{_text(channel.name)}'")
    return channel


def _decode_base64(text: bytes) -> bytes:
    """Decode what can be decoded, as Pushpin does: foreign characters are skipped, a cut-off end is dropped."""
    digits = _BASE64_JUNK.sub(b"", text)
    if len(digits) % 4 == 1:
        digits = digits[:-1]
    return binascii.a2b_base64(digits + b"=" * (-len(digits) % 4))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


# --- the JSON form

_Object: TypeAlias = dict[str, Any]


def _parse_document(body: bytes, instruct: Instruct) -> None:
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
    # Channels add up over both forms; everything else in the body replaces what a header said.
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
        if text is not None and _CONTROL.search(text):
            raise InstructError(f"channel contains '{key}' with invalid value")
    filters: list[str] = []
    if "filters" in channel:
        for name_of_filter in _list(channel["filters"], "channel contains 'filters' with wrong type"):
            if not isinstance(name_of_filter, str):
                raise InstructError("filters contains value with wrong type")
            filters.append(name_of_filter)
    return _check_filters(ChannelSpec(name, prev_id, tuple(filters)))


def _parse_client_response(wanted: _Object, response: Response) -> None:
    if "code" in wanted:
        code = _json_int(wanted["code"], "response contains 'code' with wrong type")
        if not FINAL_MIN <= code <= FINAL_MAX:
            raise InstructError("response contains 'code' with invalid value")
        response.code = code
        response.reason = phrase(code)
    if "reason" in wanted:
        reason = _string(wanted["reason"], "response contains 'reason'")
        if _CONTROL.search(reason):
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
        # A line break here would let whoever filled in the value write headers, or a whole second response.
        if not _TOKEN.fullmatch(name) or _CONTROL.search(text):
            raise InstructError(f"headers contains '{key}' with invalid value")
        lower = name.lower()
        if lower not in _FRAMING and not lower.startswith(b"grip-"):
            headers.append((name, text))
    return headers


def _content(holder: _Object, holder_name: str, key: str) -> bytes | None:
    """``key`` as text or ``key``-bin as base64; the binary form wins, ``None`` if there is neither."""
    binary_key = key + "-bin"
    if binary_key in holder:
        return _decode_base64(_string(holder[binary_key], f"{holder_name} contains '{binary_key}'"))
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
        return _to_int(value.encode()) or 0
    if isinstance(value, (int, float)):
        bounded = min(max(value, -_MAX_INT), _MAX_INT)
        return int(bounded + 0.5) if bounded >= 0 else -int(0.5 - bounded)
    raise InstructError(detail)


def _json_seconds(value: object, what: str) -> int:
    seconds = _json_int(value, f"{what} with wrong type")
    if seconds < 0:
        raise InstructError(f"{what} with invalid value")
    return seconds
