"""Items: data that a publisher sends to a channel, with one format per transport (docs/grip.md §5.1, §5.2).

The handler parses an item once, from JSON (``item_json``) or from a tnetstring (:func:`parse_tnet`), and sends it to
workers as plain data (``item_pack``). All forms become one record: text is ``bytes``, base64 is decoded. JSON is first
converted to the shape of a tnetstring, so there is one parser, made for the form that arrives by the ten thousand per
second.
"""

from __future__ import annotations

import binascii
import math
import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from gripproxy.grip.errors import PublisherError
from gripproxy.grip.nearest_name import nearest
from gripproxy.grip.response import FINAL_MAX, FINAL_MIN, phrase
from gripproxy.grip.tnetstring import MAX_DEPTH
from gripproxy.grip.utf8 import is_utf8

__all__ = ["Item", "ItemError", "MessageFormat", "ResponseFormat", "StreamFormat", "fault_of", "parse_tnet"]


Header = tuple[bytes, bytes]


ResponseAction = Literal["send", "hint", "close", "refresh"]


StreamAction = Literal["send", "hint", "close"]


MessageAction = Literal["send", "close", "refresh", "hint"]


MessageType = Literal["text", "binary", "ping", "pong"]


ITEM: Final = "publish item object"


_RESPONSE: Final = "'http-response'"


_STREAM: Final = "'http-stream'"


_MESSAGE: Final = "'ws-message'"


_MAX_INT: Final = 2**31 - 1  # `size` goes into counters that Pushpin's consumers read as 32-bit integers


_JSON_INT_MIN: Final = -(2**63)


_JSON_INT_MAX: Final = 2**64 - 1


_MAX_CLOSE_CODE: Final = 0xFFFF  # two bytes on the wire, RFC 6455 §5.5.1


_MAX_CONTROL: Final = 125  # payload of a control frame, RFC 6455 §5.5


_NUMBER: Final = re.compile(rb"\s*([+-]?[0-9]{1,18})\s*\Z")


_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")  # a header name, RFC 9110 §5.6.2


_UNSAFE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Control characters but HTAB: each could end or change the header for some reader (RFC 9110 §5.5)."""


_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]*={0,2}\Z")


_SPACE: Final = re.compile(rb"[ \t\r\n]+")


_ACTIONS: Final[dict[bytes, MessageAction]] = {
    b"send": "send",
    b"hint": "hint",
    b"close": "close",
    b"refresh": "refresh",
}


_TYPES: Final[dict[bytes, MessageType]] = {b"text": "text", b"binary": "binary", b"ping": "ping", b"pong": "pong"}


NO_META: Final[dict[bytes, bytes]] = {}
"""The meta of every item without one: shared, not to be written to."""


FORMATS: Final = frozenset((b"http-response", b"http-stream", b"ws-message"))
"""Formats that there are."""


_COMMON_KEYS: Final = frozenset((b"action", b"content-filters"))


_KEYS: Final = {
    b"http-response": _COMMON_KEYS | {b"code", b"reason", b"headers", b"body", b"body-patch"},
    b"http-stream": _COMMON_KEYS | {b"content"},
    b"ws-message": _COMMON_KEYS | {b"type", b"content", b"content-bin", b"code", b"reason"},
}
"""Keys of each format in a tnetstring."""


_JSON_KEYS: Final = {
    b"http-response": _KEYS[b"http-response"] | {b"body-bin"},
    b"http-stream": _KEYS[b"http-stream"] | {b"content-bin"},
    b"ws-message": _KEYS[b"ws-message"],
}
"""Keys of each format in JSON, where content may be base64."""


UNKNOWN_MAX: Final = 3
"""Unknown names that are kept of an item."""


NAME_SHOWN: Final = 40
"""Bytes of an unknown name that are kept."""


class ItemError(PublisherError, ValueError):
    """The publisher's item cannot be used; the text is the one a publisher gets to see (docs/grip.md §5.2).

    It is empty for an unknown ``action``, as Pushpin's is; ``reason`` is never empty.

    Args:
        text: for the publisher.
        reason: the fault, if ``text`` is empty or leaves out a part.
    """

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason or text


@dataclass(slots=True)
class ResponseFormat:
    """Format that ends a response hold. ``body`` or ``patch`` is set if and only if the action is ``send``."""

    action: ResponseAction = "send"
    code: int = 200
    reason: bytes = b"OK"
    headers: list[Header] = field(default_factory=list)
    body: bytes | None = None
    patch: list[Any] | None = None
    """JSON Patch operations, as decoded JSON."""
    content_filters: tuple[str, ...] | None = None


@dataclass(slots=True)
class StreamFormat:
    """Format that is written to a stream hold, or ends it."""

    action: StreamAction = "send"
    content: bytes = b""
    content_filters: tuple[str, ...] | None = None


@dataclass(slots=True)
class MessageFormat:
    """Format that is sent to a WebSocket.

    ``content`` is ``None`` for a ping or pong published without content, which is accepted and not sent
    (docs/grip.md §5.1). ``code`` and ``reason`` belong to the action ``close``.
    """

    action: MessageAction = "send"
    type: MessageType = "text"
    content: bytes | None = None
    code: int | None = None
    reason: bytes = b""
    content_filters: tuple[str, ...] | None = None


@dataclass(slots=True)
class Item:
    """One published message."""

    channel: bytes
    id: bytes | None = None
    prev_id: bytes | None = None
    response: ResponseFormat | None = None
    stream: StreamFormat | None = None
    message: MessageFormat | None = None
    meta: dict[bytes, bytes] = field(default_factory=lambda: NO_META)
    size: int | None = None
    """Bytes for block accounting instead of the size of the content."""
    no_seq: bool = False
    unknown: tuple[str, ...] = ()
    """Names that the item has and the protocol has not: formats, and keys of formats as ``http-stream.contents``."""


def parse_tnet(obj: object, channel: bytes | None = None) -> Item:
    """Return the item in a decoded tnetstring.

    Args:
        obj: result of :func:`~gripproxy.grip.tnetstring.loads`.
        channel: the topic of the item over SUB; the item's own ``channel`` is ignored then.

    Raises:
        ItemError: the item cannot be used.

    Source: docs/grip.md §5.1, §5.2, §5.7.
    """
    return parse_fields(obj, channel, False)


def parse_fields(obj: object, channel: object, json: bool) -> Item:
    """Return the item in a decoded tnetstring, or in JSON of that shape.

    Args:
        obj: The decoded value, strings as ``bytes``.
        channel: Channel that goes before that of the item, or None.
        json: Whether the publisher sent JSON, which has fields in base64.

    Raises:
        ItemError: The item cannot be used.
    """
    if type(obj) is not dict:
        raise ItemError(f"{ITEM} is not an object")
    get = obj.get
    if channel is None:
        channel = get(b"channel")
        if type(channel) is not bytes:
            if b"channel" not in obj:
                raise ItemError(f"{ITEM} does not contain 'channel'")
            raise _wrong(ITEM, "channel")
    id_ = get(b"id")
    if id_ is not None and type(id_) is not bytes:
        raise _wrong(ITEM, "id")
    prev_id = get(b"prev-id")
    if prev_id is not None and type(prev_id) is not bytes:
        raise _wrong(ITEM, "prev-id")

    formats = get(b"formats")
    if type(formats) is dict and len(formats) == 1 and len(obj) == 2 + (id_ is not None) + (prev_id is not None):
        # Nearly every item: one format, and nothing besides it.
        value = formats.get(b"http-stream")
        if type(value) is dict and len(value) == 1 and type(content := value.get(b"content")) is bytes:
            only = StreamFormat("send", content)
            return Item(channel, id_, prev_id, None, only, None, NO_META)  # type: ignore[arg-type]
    if formats is None:
        formats = obj
        if b"http-response" not in obj and b"http-stream" not in obj and b"ws-message" not in obj:
            raise ItemError("no formats specified", "no formats specified" + _meant(obj))
    elif type(formats) is not dict:
        raise _wrong(ITEM, "formats")
    elif not formats:
        raise ItemError("no formats specified")
    response = _response(formats[b"http-response"], json) if b"http-response" in formats else None
    stream = _stream(formats[b"http-stream"], json) if b"http-stream" in formats else None
    message = _message(formats[b"ws-message"], json) if b"ws-message" in formats else None

    meta = get(b"meta")
    meta = NO_META if meta is None else _meta(meta)
    size = _size(get(b"size")) if b"size" in obj else None
    no_seq = get(b"no-seq", False)
    if type(no_seq) is not bool:
        raise _wrong(ITEM, "no-seq")
    unknown = _unknown(formats, formats is not obj, _JSON_KEYS if json else _KEYS)
    return Item(cast(bytes, channel), id_, prev_id, response, stream, message, meta, size, no_seq, unknown)


def _meant(item: dict[bytes, object]) -> str:
    """Return a proposal if a key of the item, which has no format, is like the name of one."""
    for name in item:
        if near := nearest(_shown(name), (known.decode() for known in FORMATS)):
            return f", but there is '{_shown(name)[:NAME_SHOWN]}'{near}"
    return ""


def _unknown(formats: dict[bytes, Any], only: bool, known: dict[bytes, frozenset[bytes]]) -> tuple[str, ...]:
    """Return the unknown names in the formats, UNKNOWN_MAX at most.

    Args:
        formats: by name, checked.
        only: whether they have a dictionary of their own; else they are keys of the item, and others are ignored.
        known: keys by format.
    """
    found: list[str] = []
    for name, value in formats.items():
        keys = known.get(name)
        if keys is None:
            if only:
                found.append(_shown(name)[:NAME_SHOWN])
        elif not value.keys() <= keys:
            found += [f"{name.decode()}.{_shown(key)[:NAME_SHOWN]}" for key in value if key not in keys][:UNKNOWN_MAX]
    return tuple(found[:UNKNOWN_MAX])


def fault_of(item: Item) -> str:
    """Return why an item can reach no client, although Pushpin accepts it; empty if it can.

    Args:
        item: as parsed.
    """
    if not item.channel:
        return f"{ITEM} contains 'channel' with an empty value: no client can be on it"
    if item.response is None and item.stream is None and item.message is None and item.unknown:
        names = sorted(name.decode() for name in FORMATS)
        given = item.unknown[0]
        return f"unknown format '{given}'{nearest(given, names) or ': expected ' + ', '.join(names)}"
    return ""


def _response(value: object, json: bool) -> ResponseFormat:
    action = _action(value, _RESPONSE)
    fields = cast("dict[bytes, object]", value)
    if action != "send":
        return ResponseFormat(action)
    code = 200
    if b"code" in fields:
        number = _integer(fields[b"code"], _RESPONSE, "code")
        if not FINAL_MIN <= number <= FINAL_MAX:
            raise _not_final(number)
        code = number
    reason = _text(fields, b"reason", _RESPONSE)
    if reason and _UNSAFE.search(reason):
        raise _invalid(_RESPONSE, "reason")
    headers = _headers(fields[b"headers"]) if b"headers" in fields else []
    filters = _filters(fields, _RESPONSE)
    body: bytes | None = None
    patch: list[Any] | None = None
    if json and b"body-bin" in fields:
        body = _base64(fields[b"body-bin"], _RESPONSE, "body-bin")
    elif b"body" in fields:
        body = _bytes(fields[b"body"], _RESPONSE, "body")
    elif b"body-patch" in fields:
        ops = fields[b"body-patch"]
        if type(ops) is not list:
            raise _wrong(_RESPONSE, "body-patch")
        patch = ops if json else cast("list[Any]", _to_text(ops, MAX_DEPTH))
    elif json:
        raise ItemError(f"{_RESPONSE} does not contain 'body', 'body-bin', or 'body-patch'")
    else:
        raise ItemError(f"{_RESPONSE} does not contain 'body' or 'body-patch'")
    return ResponseFormat("send", code, reason or phrase(code), headers, body, patch, filters)


def _stream(value: object, json: bool) -> StreamFormat | None:
    action = _action(value, _STREAM)
    fields = cast("dict[bytes, object]", value)
    if action == "refresh":
        raise ItemError("", f"{_STREAM} contains 'action' with the value 'refresh', which streams do not have")
    if action != "send":
        return StreamFormat(action)
    filters = _filters(fields, _STREAM)
    if json and b"content-bin" in fields:
        return StreamFormat("send", _base64(fields[b"content-bin"], _STREAM, "content-bin"), filters)
    if b"content" in fields:
        return StreamFormat("send", _bytes(fields[b"content"], _STREAM, "content"), filters)
    if json:
        raise ItemError(f"{_STREAM} does not contain 'content' or 'content-bin'")
    raise ItemError(f"{_STREAM} does not contain 'content'")


def _message(value: object, json: bool) -> MessageFormat:
    action = _action(value, _MESSAGE)
    fields = cast("dict[bytes, object]", value)
    if action == "close":
        code = None
        if b"code" in fields:
            code = _integer(fields[b"code"], _MESSAGE, "code")
            if not 0 <= code <= _MAX_CLOSE_CODE:
                raise _invalid(_MESSAGE, "code")
        reason = _text(fields, b"reason", _MESSAGE) or b""
        if len(reason) > _MAX_CONTROL - 2 or not is_utf8(reason):
            raise _invalid(_MESSAGE, "reason")
        return MessageFormat("close", code=code, reason=reason)
    if action != "send":
        return MessageFormat(action)

    name = _text(fields, b"type", _MESSAGE)
    kind = None if name is None else _TYPES.get(name)
    if name is not None and kind is None:
        raise ItemError(f"{_MESSAGE} contains 'type' with unknown value")
    filters = _filters(fields, _MESSAGE)
    content: bytes | None = None
    used = "content"
    if b"content-bin" in fields:
        used = "content-bin"
        raw = fields[b"content-bin"]
        content = _base64(raw, _MESSAGE, used) if json else _bytes(raw, _MESSAGE, used)
        kind = kind or "binary"
    elif b"content" in fields:
        content = _bytes(fields[b"content"], _MESSAGE, used)
        kind = kind or "text"
    elif kind not in ("ping", "pong"):
        raise ItemError(f"{_MESSAGE} does not contain 'content' or 'content-bin'")
    assert kind is not None  # every branch above set it or raised
    # Content that no client may accept (RFC 6455 §5.5, §8.1) would cost every subscriber its connection.
    if content is not None and (
        (kind == "text" and not is_utf8(content)) or (kind in ("ping", "pong") and len(content) > _MAX_CONTROL)
    ):
        raise _invalid(_MESSAGE, used)
    return MessageFormat("send", kind, content, content_filters=filters)


def _action(value: object, owner: str) -> MessageAction:
    if type(value) is not dict:
        raise ItemError(f"{owner} is not an object")
    action = value.get(b"action")
    if action is None:
        return "send"
    if type(action) is not bytes:
        raise _wrong(owner, "action")
    known = _ACTIONS.get(action)
    if known is None:
        near = nearest(_shown(action), (name.decode() for name in _ACTIONS))
        raise ItemError("", f"{owner} contains 'action' with the unknown value '{_shown(action)[:NAME_SHOWN]}'{near}")
    return known


def _headers(value: object) -> list[Header]:
    headers: list[Header] = []
    if type(value) is dict:
        for name, v in value.items():
            if type(name) is not bytes or type(v) is not bytes:
                raise ItemError(f"headers contains '{_shown(name)}' with wrong type")
            headers.append((name, v))
    elif type(value) is list:
        for element in value:
            if type(element) is not list:
                raise ItemError("headers contains element with wrong type")
            if len(element) != 2:
                raise ItemError("headers contains list with wrong number of elements")
            if type(element[0]) is not bytes:
                raise ItemError("header contains name element with wrong type")
            if type(element[1]) is not bytes:
                raise ItemError("header contains value element with wrong type")
            headers.append((element[0], element[1]))
    else:
        raise _wrong(_RESPONSE, "headers")
    for name, v in headers:
        # Written as they are, these would let a publisher forge headers or whole responses.
        if not _TOKEN.match(name) or _UNSAFE.search(v):
            raise _invalid(_RESPONSE, "headers")
    return headers


def _filters(fields: dict[bytes, object], owner: str) -> tuple[str, ...] | None:
    if b"content-filters" not in fields:
        return None
    value = fields[b"content-filters"]
    if type(value) is not list:
        raise _wrong(owner, "content-filters")
    for name in value:
        if type(name) is not bytes:
            raise ItemError("content-filters contains element with wrong type")
    return tuple(_shown(name) for name in value)


def _meta(value: object) -> dict[bytes, bytes]:
    if type(value) is not dict:
        raise _wrong(ITEM, "meta")
    for k, v in value.items():
        if type(k) is not bytes or type(v) is not bytes:
            raise ItemError(f"'meta' contains '{_shown(k)}' with wrong type")
    return value


def _size(value: object) -> int:
    number = _integer(value, ITEM, "size")
    if not 0 <= number <= _MAX_INT:
        raise _invalid(ITEM, "size")
    return number


def _integer(value: object, owner: str, name: str) -> int:
    """Convert by docs/grip.md §0.2: text that is not a number counts as 0."""
    if isinstance(value, int):  # bool too
        return int(value)
    if type(value) is float:
        return math.floor(value + 0.5) if math.isfinite(value) else 0
    if type(value) is bytes:
        match = _NUMBER.match(value)
        return int(match[1]) if match else 0
    raise _wrong(owner, name)


def _text(fields: dict[bytes, object], key: bytes, owner: str) -> bytes | None:
    value = fields.get(key)
    if value is None or type(value) is bytes:
        return value
    raise _wrong(owner, key.decode())


def _bytes(value: object, owner: str, name: str) -> bytes:
    if type(value) is bytes:
        return value
    raise _wrong(owner, name)


def _base64(value: object, owner: str, name: str) -> bytes:
    """Decode standard base64; line breaks are skipped and missing padding is supplied, since publishers send both."""
    if type(value) is not bytes:
        raise _wrong(owner, name)
    text = _SPACE.sub(b"", value)
    if not _BASE64.match(text):
        raise _invalid(owner, name)
    text = text.rstrip(b"=")
    try:
        return binascii.a2b_base64(text + b"=" * (-len(text) % 4))
    except binascii.Error as e:
        raise _invalid(owner, name) from e


def _to_text(value: object, depth: int) -> object:
    """Convert the value of a ``body-patch`` to JSON data; a tnetstring has integers that JSON cannot carry."""
    if type(value) is bytes:
        return value.decode("utf-8", "replace")
    if type(value) is int and not _JSON_INT_MIN <= value <= _JSON_INT_MAX:
        raise _invalid(_RESPONSE, "body-patch")
    if not depth:
        raise ItemError(f"{ITEM} is nested deeper than {MAX_DEPTH} levels")
    if type(value) is list:
        return [_to_text(v, depth - 1) for v in value]
    if type(value) is dict:
        return {_shown(k): _to_text(v, depth - 1) for k, v in value.items()}
    return value


def _shown(key: object) -> str:
    return key.decode("utf-8", "replace") if type(key) is bytes else str(key)


def _wrong(owner: str, field: str) -> ItemError:
    return ItemError(f"{owner} contains '{field}' with wrong type")


def _invalid(owner: str, field: str) -> ItemError:
    return ItemError(f"{owner} contains '{field}' with invalid value")


def _not_final(number: int) -> ItemError:
    error = _invalid(_RESPONSE, "code")
    # Pushpin refuses numbers that have not three digits, in these words; the others it sends.
    if 0 <= number <= FINAL_MAX:
        return ItemError(f"{error}: {number}, expected a final status, {FINAL_MIN} to {FINAL_MAX}")
    return error
