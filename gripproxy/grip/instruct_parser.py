"""Parser of instructs (docs/grip.md §3): ``Grip-*`` headers, and the JSON body that overrides them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal

from gripproxy.grip.bounds import BOUNDS, RESERVED_FAULT, Bounds
from gripproxy.grip.headers import Headers, ParamsError, param, parse_all_params, parse_params, split_list
from gripproxy.grip.instruct import (
    CONTROL,
    FRAMING,
    HOLD_TIMEOUT,
    HOLD_TIMEOUT_MIN,
    INSTRUCT_TYPE_LENGTH,
    KEEP_ALIVE_TIMEOUT,
    ChannelSpec,
    Instruct,
    InstructError,
    KeepAlive,
    Mode,
    check_filters,
    decode_base64,
    is_instruct_type,
    shown,
    to_int,
)
from gripproxy.grip.instruct_json import parse_document
from gripproxy.grip.links import LinkError, NextLink, check_uri
from gripproxy.grip.response import FINAL_MAX, FINAL_MIN, Response, phrase

__all__ = ["parse_instruct", "unescape_cstring"]


_STATUS: Final = re.compile(rb"[0-9]{3}")


_CSTRING_ESCAPE: Final = re.compile(rb"\\(x[0-9A-Fa-f]{2}|[^x]|\Z|x)", re.DOTALL)


_CSTRING_LETTERS: Final = {b"\\": b"\\", b"n": b"\n", b"r": b"\r"}


# Parsed header values kept for backends that send equal values to many clients: it saves time, and equal holds share
# one object instead of keeping one each. A longer value is parsed every time, so that this cannot grow large.
_SHARED: Final = 1024


_SHARED_LENGTH: Final = 256


def parse_instruct(response: Response, bounds: Bounds = BOUNDS) -> Instruct:
    """Read the instruct of a backend's complete response (docs/grip.md §3.1 to §3.3).

    Args:
        response: As the backend sent it; not changed.
        bounds: Of channels, ids and meta, with the channels that this backend may not use.

    Returns:
        The instruct, all values checked and defaults filled in.

    Raises:
        InstructError: Something in it has no meaning (docs/grip.md §3.7), exceeds a bound, or is reserved.
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
        elif name not in FRAMING:
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

    if content_type is not None and len(content_type) >= INSTRUCT_TYPE_LENGTH and is_instruct_type(content_type):
        # Only the response in the body goes to the client, so the headers of this response stop here.
        instruct.response = Response(code, reason)
        if response.code != 200:
            raise InstructError("response code for application/grip-instruct content must be 200")
        parse_document(response.body, instruct)
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

    Args:
        text: With the escapes ``\\``, ``\r``, ``\n`` and ``\xHH``.

    Returns:
        The bytes meant, ``None`` if a ``\`` is the last byte or ``\x`` lacks its two hex digits. Any other escape is
        dropped whole.
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
            if len(item) > bounds.least or bounds.reserved is not None:
                _check((channel,), {}, bounds)
            channels.append(channel)
    return tuple(channels)


def _check(channels: tuple[ChannelSpec, ...], meta: Mapping[bytes, bytes], bounds: Bounds) -> None:
    for channel in channels:
        if len(channel.name) > bounds.channel:
            raise InstructError(f"channel has a name of {bounds.of_channel(channel.name)}")
        if channel.prev_id is not None and len(channel.prev_id) > bounds.id:
            raise InstructError(f"channel has a prev-id of {bounds.of_id(channel.prev_id)}")
        if bounds.reserves(channel.name):
            raise InstructError(f"channel '{shown(channel.name)}' {RESERVED_FAULT}")
    if meta and (fault := bounds.of_meta(meta)):
        raise InstructError(f"connection has meta of {fault}")


@lru_cache(_SHARED)
def _parse_channel(item: bytes) -> ChannelSpec | None:
    try:
        name, params = parse_params(item)
    except ParamsError:
        return None  # docs/grip.md §0.1: such an item is skipped, not an error
    if CONTROL.search(item):
        # The name and the id come back in Grip-Last request headers, where a line break would begin a header.
        raise InstructError("failed to parse Grip-Channel")
    if not params:
        return ChannelSpec(name)
    # Unlike the other names, `filter` is known in lower case only.
    filters = tuple(shown(value) for key, value in params if key == b"filter")
    return check_filters(ChannelSpec(name, param(params, b"prev-id") or None, filters))


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
        raise InstructError(f"no such Grip-Keep-Alive mode '{shown(mode_name)}'")
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
        data = decode_base64(text)
    else:
        raise InstructError(f"no such Grip-Keep-Alive format '{shown(format_name)}'")
    # Base64 of nothing is no error in Pushpin either, and nothing will be sent.
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
    if CONTROL.search(reason):
        raise InstructError("Grip-Status contains invalid reason")
    return code, reason or phrase(code)


def _parse_seconds(value: bytes, not_a_number: str, out_of_range: str) -> int:
    seconds = to_int(value)
    if seconds is None:
        raise InstructError(not_a_number)
    if seconds < 0:
        raise InstructError(out_of_range)
    return seconds
