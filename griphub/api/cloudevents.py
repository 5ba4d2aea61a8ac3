"""CloudEvents 1.0 as events: structured, batched and binary mode of the HTTP protocol binding, with the JSON format.

The context attributes become attributes of the event with the prefix ``ce-``; ``datacontenttype`` is its content type.
Nothing is guessed: an event that breaks the specification is refused with the attribute at fault.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import orjson

from griphub.api.json_document import load_json, type_name
from griphub.api.problem import bad_request
from griphub.store.event import Draft
from griphub.topics.event_text import ContentKind, content_kind
from griphub.topics.names import check_attributes, check_content_type, check_key
from griphub.topics.times import parse_time
from gripproxy.grip.errors import ClientError

__all__ = ["BATCHED_TYPE", "PREFIX", "STRUCTURED_TYPE", "binary_draft", "decoded_base64", "structured_draft"]

PREFIX: Final = "ce-"
"""First part of the names of attributes that a CloudEvent has brought, and of the headers of binary mode."""

STRUCTURED_TYPE: Final = "application/cloudevents+json"
BATCHED_TYPE: Final = "application/cloudevents-batch+json"

SHOWN: Final = 80
"""Characters of a refused value that a message shows."""

REQUIRED: Final = ("specversion", "id", "source", "type")
"""Attributes that every CloudEvent has."""

STRINGS: Final = frozenset({*REQUIRED, "datacontenttype", "dataschema", "subject", "time"})
"""Attributes of the specification; extensions may also be booleans and integers."""

_NAME: Final = re.compile(r"[a-z0-9]+")
# Characters of a URI reference (RFC 3986), percent signs only before two hexadecimal digits.
_URI: Final = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CONTROL: Final = re.compile("[\0-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")
_BAD_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_INTEGER_MAX: Final = 2**31


def structured_draft(event: object, noun: str, key_attribute: str | None) -> Draft:
    """Return the event of a CloudEvent in the JSON format.

    Args:
        event: a JSON value that should be a CloudEvent, with long numbers as fragments.
        noun: name of the value, for messages.
        key_attribute: attribute whose value is the event's key; None for none.

    Raises:
        Problem: 400, it breaks the specification or a bound.
    """
    if not isinstance(event, dict):
        raise bad_request(f"{noun} is {type_name(event)}: expected a CloudEvent, a JSON object")
    attributes: dict[str, str] = {}
    for name, value in event.items():
        if name not in ("data", "data_base64") and value is not None:
            attributes[name] = _attribute_text(name, value, noun)
    content_type = attributes.pop("datacontenttype", None)
    if content_type is not None:
        content_type = _media_type(content_type, noun)
    data, content_type = _json_content(event, content_type, noun)
    return _draft(attributes, content_type, data, noun, key_attribute)


def binary_draft(
    headers: Sequence[tuple[bytes, bytes]], content_type: str | None, body: bytes, key_attribute: str | None
) -> Draft:
    """Return the event of a CloudEvent in binary mode.

    Args:
        headers: lower-case names and values of the request.
        content_type: media type of the request, checked; None for none.
        body: content.
        key_attribute: attribute whose value is the event's key; None for none.

    Raises:
        Problem: 400, it breaks the specification or a bound.
    """
    attributes: dict[str, str] = {}
    for name, value in headers:
        if name.startswith(b"ce-"):
            text = name[3:].decode("latin-1")
            if text in attributes:
                raise bad_request(f"the header ce-{text[:SHOWN]} is given several times: give it once")
            if text in ("data", "datacontenttype", "data_base64"):
                raise bad_request(f"the header ce-{text} is not allowed: Content-Type and the body have its value")
            attributes[text] = _decoded_header(value, text)
    if body and content_type is not None and content_kind(content_type) is ContentKind.JSON:
        load_json(body, "the body")
    return _draft(attributes, content_type, body, "the request", key_attribute)


def _draft(
    attributes: Mapping[str, str], content_type: str | None, data: bytes, noun: str, key_attribute: str | None
) -> Draft:
    for name in REQUIRED:
        if not attributes.get(name):
            fault = "is empty" if name in attributes else "is missing"
            raise bad_request(f"{noun}: the CloudEvents attribute {name} {fault}: it is required")
    try:
        for name, value in attributes.items():
            _check_attribute(name, value)
        key = attributes.get(key_attribute) if key_attribute is not None else None
        return Draft(
            data,
            content_type or "application/octet-stream",
            key if key is None else check_key(key),
            "put",
            check_attributes({PREFIX + name: value for name, value in attributes.items()}),
        )
    except ClientError as error:
        raise bad_request(f"{noun}: {error}") from error


def _media_type(content_type: str, noun: str) -> str:
    try:
        return check_content_type(content_type)
    except ClientError as error:
        raise bad_request(f"{noun}: {error}") from error


class _BadAttribute(ClientError):
    """Attribute that breaks the specification."""


def _check_attribute(name: str, value: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise _BadAttribute(
            f"the CloudEvents attribute name {name[:SHOWN]!r} must have lower-case letters and digits only"
        )
    control = _CONTROL.search(value)
    if control is not None:
        raise _BadAttribute(
            f"the CloudEvents attribute {name[:SHOWN]} has the character U+{ord(control[0]):04X}: remove it"
        )
    match name:
        case "specversion" if value != "1.0":
            raise _BadAttribute(f"specversion={value[:SHOWN]!r} is not supported: expected '1.0'")
        case "source" if _URI.fullmatch(value) is None:
            raise _BadAttribute(f"source={value[:SHOWN]!r} is no URI reference (RFC 3986)")
        case "dataschema" if _URI.fullmatch(value) is None or _SCHEME.match(value) is None:
            raise _BadAttribute(f"dataschema={value[:SHOWN]!r} is no absolute URI (RFC 3986)")
        case "subject" if not value:
            raise _BadAttribute("subject='' is empty: leave it out")
        case "time":
            parse_time(value)


def _attribute_text(name: str, value: object, noun: str) -> str:
    """Return the canonical string of an attribute's value (CloudEvents §3.2)."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) and name not in STRINGS:
        return "true" if value else "false"
    if isinstance(value, int) and -_INTEGER_MAX <= value < _INTEGER_MAX and name not in STRINGS:
        return str(value)
    raise bad_request(
        f"{noun}: the CloudEvents attribute {name[:SHOWN]!r} is {type_name(value)}: expected a string"
        + ("" if name in STRINGS else ", a boolean or an integer of 32 bits")
    )


def _json_content(event: Mapping[str, Any], content_type: str | None, noun: str) -> tuple[bytes, str | None]:
    """Return the content of a CloudEvent in the JSON format, and its media type (JSON format §3.1)."""
    if "data_base64" in event and event["data_base64"] is not None:
        if event.get("data") is not None:
            raise bad_request(f"{noun} has data and data_base64: only one of them is allowed")
        content = decoded_base64(event["data_base64"], noun)
        if content and content_type is not None and content_kind(content_type) is ContentKind.JSON:
            load_json(content, f"{noun}: data_base64")
        return content, content_type
    if "data" not in event:
        return b"", content_type or "application/json"
    data = event["data"]
    if content_type is None or content_kind(content_type) is ContentKind.JSON:
        return orjson.dumps(data), content_type or "application/json"
    if data is None:
        return b"", content_type
    if not isinstance(data, str):
        raise bad_request(
            f"{noun}: data of the content type {content_type[:SHOWN]!r} is {type_name(data)}: expected a string, or"
            " data_base64"
        )
    return data.encode(), content_type


def decoded_base64(text: object, noun: str) -> bytes:
    """Return the bytes of a content in base64 (RFC 4648 §4, with padding).

    Args:
        text: a JSON value that should be a string in base64.
        noun: name of the event, for messages.

    Raises:
        Problem: 400, it is none.
    """
    if not isinstance(text, str):
        raise bad_request(f"{noun}: data_base64 is {type_name(text)}: expected a string")
    try:
        return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError as error:
        raise bad_request(f"{noun}: data_base64 is no base64: {error}") from error


def _decoded_header(value: bytes, name: str) -> str:
    """Return the value of a header in binary mode, unquoted and percent-decoded (HTTP binding §3.1.3.2)."""
    value = value.strip(b" \t")
    if len(value) >= 2 and value[:1] == value[-1:] == b'"':
        value = _ESCAPED.sub(rb"\1", value[1:-1])
    if _BAD_PERCENT.search(value) is not None:
        raise bad_request(f"the header ce-{name[:SHOWN]} has a percent sign without two hexadecimal digits: write %25")
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError as error:
        raise bad_request(f"the header ce-{name[:SHOWN]} is no UTF-8 after percent-decoding: {error}") from error
