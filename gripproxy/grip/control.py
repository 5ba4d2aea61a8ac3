"""Control messages: orders of a backend to the proxy inside a WebSocket (docs/grip.md §8.5).

A text message ``c:`` and a JSON object. :func:`parse_control` makes one of the dataclasses below of it.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

import orjson

from gripproxy.grip.bounds import BOUNDS, RESERVED_FAULT, Bounds
from gripproxy.grip.errors import BackendError
from gripproxy.grip.frames import MAX_CONTROL

__all__ = [
    "CONTROL_PREFIX",
    "KEEP_ALIVE_TIMEOUT",
    "SEND_DELAYED_TIMEOUT",
    "Control",
    "ControlError",
    "Detach",
    "FlushDelayed",
    "KeepAliveControl",
    "MessageType",
    "SendDelayed",
    "SessionControl",
    "SetMeta",
    "Subscribe",
    "Unsubscribe",
    "changed_meta",
    "parse_control",
]

MessageType: TypeAlias = Literal["text", "binary", "ping", "pong"]

CONTROL_PREFIX: Final = b"c:"
KEEP_ALIVE_TIMEOUT: Final = 55
"""Seconds between keep-alives if the backend names no timeout."""
SEND_DELAYED_TIMEOUT: Final = 1
"""Seconds until a delayed message is sent if the backend names no timeout."""

_TYPES: Final[tuple[MessageType, ...]] = ("text", "binary", "ping", "pong")
_MAX_SECONDS: Final = 2**31 - 1
_NUMBER: Final = re.compile(r"\s*([+-]?[0-9]{1,10})\s*")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")


class ControlError(BackendError, ValueError):
    """The backend's control message has no meaning; it is ignored (docs/grip.md §8.5). The text is for the log."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Subscribe, or replace the filters of a subscription.

    Attributes:
        channel: Not empty, without the route's prefix.
        filters: In order, unknown ones too; how many are allowed is the caller's rule (close code 1011).
        prev_id: Id of the last item the client already has, ``None`` if the backend keeps no ids. An addition of this
            proxy: with it the subscription is reliable.
    """

    channel: bytes
    filters: tuple[str, ...] = ()
    prev_id: bytes | None = None


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """End a subscription, unless the route made it."""

    channel: bytes


@dataclass(frozen=True, slots=True)
class SetMeta:
    """Set connection meta; ``None`` removes."""

    name: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class KeepAliveControl:
    """Send a message to the client periodically.

    Attributes:
        data: ``None`` turns it off.
        type: Kind of message.
        timeout: Seconds, at least 1.
        mode: ``idle`` counts from the last message to the client, ``interval`` from the last keep-alive.
    """

    data: bytes | None
    type: MessageType = "text"
    timeout: int = KEEP_ALIVE_TIMEOUT
    mode: Literal["idle", "interval"] = "idle"


@dataclass(frozen=True, slots=True)
class SendDelayed:
    """Send one message after a while; a pending one is sent first.

    Attributes:
        timeout: Seconds, 0 or more.
    """

    data: bytes
    type: MessageType = "text"
    timeout: int = SEND_DELAYED_TIMEOUT


@dataclass(frozen=True, slots=True)
class FlushDelayed:
    """Send the pending delayed message now."""


@dataclass(frozen=True, slots=True)
class Detach:
    """End the backend's leg and keep the client."""


@dataclass(frozen=True, slots=True)
class SessionControl:
    """Join a session, or leave it (``None``)."""

    id: bytes | None


Control: TypeAlias = (
    Subscribe | Unsubscribe | SetMeta | KeepAliveControl | SendDelayed | FlushDelayed | Detach | SessionControl
)


def parse_control(data: bytes, bounds: Bounds = BOUNDS) -> Control:
    """Read a control message.

    Args:
        data: The message; the leading ``c:`` may be there or not (no JSON begins with it).
        bounds: Of channels and ids, with the channels that this backend may not use.

    Returns:
        The order. Fields that mean nothing are ignored.

    Raises:
        ControlError: It is not JSON, not an object, of unknown type, a field is missing, wrong or too long, or the
            channel is reserved.
    """
    data = data.removeprefix(CONTROL_PREFIX)
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as e:
        raise ControlError(f"control message is not JSON: {e}") from e
    if type(fields) is not dict:
        raise ControlError(f"control message is {type(fields).__name__} instead of an object")
    kind = fields.get("type")
    parse = _PARSERS.get(kind) if type(kind) is str else None
    if parse is None:
        raise ControlError(f"control message has the type {_shown(kind)}; expected one of {', '.join(_PARSERS)}")
    parsed = parse(fields)
    if isinstance(parsed, Subscribe):
        if fault := bounds.of_channel(parsed.channel):
            raise ControlError(f"subscribe has a channel of {fault}")
        if fault := bounds.of_id(parsed.prev_id):
            raise ControlError(f"subscribe has a prev-id of {fault}")
        if bounds.reserves(parsed.channel):
            raise ControlError(f"channel {_shown(parsed.channel.decode())} {RESERVED_FAULT}")
    return parsed


def changed_meta(meta: Mapping[bytes, bytes], change: SetMeta, bounds: Bounds) -> dict[bytes, bytes]:
    """Return the connection's meta with one value set or removed.

    Args:
        meta: So far; not changed.
        change: The control message.
        bounds: Of all meta of a connection.

    Raises:
        ControlError: There would be more than is allowed.
    """
    changed = {name: value for name, value in meta.items() if name != change.name}
    if change.value is not None:
        changed[change.name] = change.value
        if fault := bounds.of_meta(changed):
            raise ControlError(f"set-meta makes meta of {fault}")
    return changed


Fields: TypeAlias = dict[str, Any]


def _subscribe(fields: Fields) -> Subscribe:
    filters = fields.get("filters")
    if filters is None:
        filters = []
    if type(filters) is not list or not all(type(name) is str for name in filters):
        raise ControlError(f"subscribe has filters {_shown(filters)}; expected a list of names")
    return Subscribe(_required(fields, "channel"), tuple(filters), _text(fields, "prev-id"))


def _unsubscribe(fields: Fields) -> Unsubscribe:
    return Unsubscribe(_required(fields, "channel"))


def _set_meta(fields: Fields) -> SetMeta:
    return SetMeta(_required(fields, "name"), _text(fields, "value"))


def _keep_alive(fields: Fields) -> KeepAliveControl:
    mode = fields.get("mode", "idle")
    if mode != "idle" and mode != "interval":
        raise ControlError(f"keep-alive has the mode {_shown(mode)}; expected idle or interval")
    kind = _message_type(fields)
    timeout = _seconds(fields, KEEP_ALIVE_TIMEOUT, 1)
    return KeepAliveControl(_content(fields, kind), kind, timeout, cast('Literal["idle", "interval"]', mode))


def _send_delayed(fields: Fields) -> SendDelayed:
    kind = _message_type(fields)
    content = _content(fields, kind)
    if content is None:
        raise ControlError("send-delayed has neither content nor content-bin")
    return SendDelayed(content, kind, _seconds(fields, SEND_DELAYED_TIMEOUT, 0))


def _session(fields: Fields) -> SessionControl:
    return SessionControl(_text(fields, "id") or None)


_PARSERS: Final[dict[str, Callable[[Fields], Control]]] = {
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
    "set-meta": _set_meta,
    "keep-alive": _keep_alive,
    "send-delayed": _send_delayed,
    "flush-delayed": lambda fields: FlushDelayed(),
    "detach": lambda fields: Detach(),
    "session": _session,
}


def _text(fields: Fields, name: str) -> bytes | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not str:
        raise ControlError(f"{fields['type']} has {name} {_shown(value)}; expected a string")
    return value.encode()


def _required(fields: Fields, name: str) -> bytes:
    value = _text(fields, name)
    if not value:
        raise ControlError(f"{fields['type']} has no {name}, or an empty one")
    return value


def _message_type(fields: Fields) -> MessageType:
    kind = fields.get("message-type", "text")
    for known in _TYPES:
        if kind == known:
            return known
    raise ControlError(f"{fields['type']} has the message-type {_shown(kind)}; expected one of {', '.join(_TYPES)}")


def _content(fields: Fields, kind: MessageType) -> bytes | None:
    """Return the content to send, checked to be something that a client may get in a frame of that type."""
    if fields.get("content-bin") is not None:
        content = _base64(fields)
        if kind == "text":
            try:
                content.decode()
            except UnicodeDecodeError as e:
                raise ControlError(f"{fields['type']} has text in content-bin that is not UTF-8") from e
    else:
        text = _text(fields, "content")
        if text is None:
            return None
        content = text
    if kind in ("ping", "pong") and len(content) > MAX_CONTROL:
        raise ControlError(f"{fields['type']} has a {kind} of {len(content)} bytes; at most {MAX_CONTROL} are allowed")
    return content


def _base64(fields: Fields) -> bytes:
    text = fields["content-bin"]
    if type(text) is not str or not _BASE64.fullmatch(text):
        raise ControlError(f"{fields['type']} has content-bin {_shown(text)}; expected base64")
    text = text.rstrip("=")
    try:
        return binascii.a2b_base64(text + "=" * (-len(text) % 4))
    except binascii.Error as e:
        raise ControlError(f"{fields['type']} has content-bin {_shown(text)}; expected base64") from e


def _seconds(fields: Fields, default: int, least: int) -> int:
    """Convert by docs/grip.md §0.2: text that is not a number counts as 0."""
    value = fields.get("timeout")
    if value is None:
        return default
    if type(value) is str:
        match = _NUMBER.fullmatch(value)
        value = int(match[1]) if match else 0
    elif type(value) is float and math.isfinite(value):
        value = math.floor(value + 0.5)
    if type(value) is not int or not least <= value <= _MAX_SECONDS:
        raise ControlError(f"{fields['type']} has the timeout {_shown(fields['timeout'])}; expected {least} s or more")
    return value


def _shown(value: object) -> str:
    return repr(value)[:100]
