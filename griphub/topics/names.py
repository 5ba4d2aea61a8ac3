"""Names that clients choose: of topics, keys, labels, attributes and requests, and their bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from griphub.store.event import NO_ATTRIBUTES
from gripproxy.grip.errors import ClientError

__all__ = [
    "ATTRIBUTES_BYTES",
    "ATTRIBUTES_MAX",
    "CONTENT_TYPE_MAX",
    "IDEMPOTENCY_KEY_MAX",
    "KEY_MAX",
    "LABELS_MAX",
    "NAME_MAX",
    "PAIR_NAME_MAX",
    "PAIR_VALUE_MAX",
    "PROJECT_NAME_MAX",
    "BadName",
    "check_attributes",
    "check_content_type",
    "check_idempotency_key",
    "check_key",
    "check_labels",
    "check_topic_name",
]

NAME_MAX: Final = 255
"""Greatest length of a topic's name without a project, in bytes of UTF-8."""

PROJECT_NAME_MAX: Final = 320
"""Greatest length of a topic's name of the form ``PROJECT/TOPIC``, in bytes of UTF-8."""

KEY_MAX: Final = 1024
"""Greatest length of a key, in bytes of UTF-8."""

ATTRIBUTES_MAX: Final = 100
"""Greatest number of attributes of an event."""

ATTRIBUTES_BYTES: Final = 65_536
"""Greatest size of all attributes of an event, in bytes of UTF-8."""

LABELS_MAX: Final = 64
"""Greatest number of labels of a topic."""

PAIR_NAME_MAX: Final = 256
"""Greatest length of the name of an attribute or label, in bytes of UTF-8."""

PAIR_VALUE_MAX: Final = 4096
"""Greatest length of the value of an attribute or label, in bytes of UTF-8."""

IDEMPOTENCY_KEY_MAX: Final = 255
"""Greatest length of an ``Idempotency-Key``, in bytes."""

CONTENT_TYPE_MAX: Final = 255
"""Greatest length of a media type with its parameters, in bytes."""

SHOWN: Final = 80
"""Characters of a refused value that a message shows."""

# Control characters, and the two separators that many programs take for the end of a line.
_CONTROL: Final = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029]")
_VISIBLE: Final = re.compile(r"[!-~]+")
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_CONTENT_TYPE: Final = re.compile(
    rf'{_TOKEN}/{_TOKEN}(?:[ \t]*+;(?:[ \t]*+{_TOKEN}=(?:{_TOKEN}|"(?:[ !#-\[\]-~\t]|\\[ -~\t])*+"))?)*+[ \t]*'
)


class BadName(ClientError, ValueError):
    """Name, key, label or attribute that breaks its bound or form."""


def _size(text: str, noun: str) -> int:
    """Return the bytes of a text in UTF-8; refuse halves of surrogate pairs, which have none."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise BadName(f"{noun} {text[:SHOWN]!r} has half of a surrogate pair: expected valid Unicode") from error


def check_topic_name(name: str) -> str:
    """Check the name of a topic.

    Args:
        name: percent-decoded once. One slash separates a project from the topic.

    Returns:
        The name.

    Raises:
        BadName: it is empty, too long, or has a form that a path could not carry.
    """
    size = _size(name, "topic name")
    parts = name.split("/")
    most = NAME_MAX if len(parts) == 1 else PROJECT_NAME_MAX
    if size > most:
        raise BadName(f"topic name {name[:SHOWN]!r}… has {size} bytes: at most {most} are allowed")
    if len(parts) > 2:
        raise BadName(f"topic name {name!r} has {len(parts) - 1} slashes: at most one is allowed, as in PROJECT/TOPIC")
    if "" in parts:
        where = "it is empty" if not name else "a part beside a slash is empty"
        raise BadName(f"topic name {name!r} is not allowed: {where}")
    if "." in parts or ".." in parts:
        raise BadName(f"topic name {name!r} is not allowed: '.' and '..' are steps of a path")
    control = _CONTROL.search(name)
    if control is not None:
        raise BadName(f"topic name {name!r} has the control character U+{ord(control[0]):04X}: remove it")
    return name


def check_key(key: str) -> str:
    """Check the key of an event.

    Args:
        key: the key.

    Returns:
        The key.

    Raises:
        BadName: it is empty, too long, or has a NUL.
    """
    size = _size(key, "key")
    if not 1 <= size <= KEY_MAX:
        raise BadName(f"key {key[:SHOWN]!r} has {size} bytes: expected 1 to {KEY_MAX}")
    if "\0" in key:
        raise BadName(f"key {key[:SHOWN]!r} has a NUL: remove it")
    return key


def check_attributes(attributes: object) -> Mapping[str, str]:
    """Check the attributes of an event.

    Args:
        attributes: a JSON value that should be an object of strings.

    Returns:
        The names and values.

    Raises:
        BadName: it is none, or beyond a bound.
    """
    if attributes == {}:
        return NO_ATTRIBUTES
    return MappingProxyType(_pairs(attributes, "attribute", ATTRIBUTES_MAX))


def check_labels(labels: object) -> Mapping[str, str]:
    """Check the labels of a topic.

    Args:
        labels: a JSON value that should be an object of strings.

    Returns:
        The names and values.

    Raises:
        BadName: it is none, or beyond a bound.
    """
    return MappingProxyType(_pairs(labels, "label", LABELS_MAX))


def _pairs(value: object, noun: str, most: int) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadName(f"{noun}s are {_kind(value)}: expected an object of strings")
    if len(value) > most:
        raise BadName(f"there are {len(value)} {noun}s: at most {most} are allowed")
    whole = 0
    for name, text in value.items():
        if not isinstance(text, str):
            raise BadName(f"{noun} {name[:SHOWN]!r} is {_kind(text)}: expected a string")
        name_size, size = _size(name, f"name of a {noun}"), _size(text, f"value of the {noun} {name[:SHOWN]!r}")
        if not 1 <= name_size <= PAIR_NAME_MAX:
            raise BadName(f"the {noun} name {name[:SHOWN]!r} has {name_size} bytes: expected 1 to {PAIR_NAME_MAX}")
        if size > PAIR_VALUE_MAX:
            raise BadName(f"{noun} {name[:SHOWN]!r} has a value of {size} bytes: at most {PAIR_VALUE_MAX} are allowed")
        if "\0" in name or "\0" in text:
            raise BadName(f"{noun} {name[:SHOWN]!r} has a NUL: remove it")
        whole += name_size + size
    if whole > ATTRIBUTES_BYTES:
        raise BadName(f"the {noun}s have {whole} bytes: at most {ATTRIBUTES_BYTES} are allowed")
    return value


def _kind(value: object) -> str:
    """Return the name of a JSON value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return {str: "a string", int: "a number", float: "a number", list: "an array"}.get(type(value), "an object")


def check_idempotency_key(text: str) -> str:
    """Check the name of a request that may be repeated.

    Args:
        text: ``Idempotency-Key`` without its quotes.

    Returns:
        The name.

    Raises:
        BadName: it is empty, too long, or has other characters than visible ones of ASCII.
    """
    if not text or len(text) > IDEMPOTENCY_KEY_MAX or _VISIBLE.fullmatch(text) is None:
        raise BadName(
            f"Idempotency-Key {text[:SHOWN]!r} of {len(text)} characters: expected 1 to {IDEMPOTENCY_KEY_MAX}"
            " visible ASCII characters without spaces"
        )
    return text


def check_content_type(text: str) -> str:
    """Check the media type of a content (RFC 9110 §8.3.1).

    Args:
        text: type, subtype and parameters.

    Returns:
        The media type.

    Raises:
        BadName: it is none, or too long.
    """
    if len(text) > CONTENT_TYPE_MAX or _CONTENT_TYPE.fullmatch(text) is None:
        raise BadName(
            f"content type {text[:SHOWN]!r} of {len(text)} characters is none: expected TYPE/SUBTYPE, as"
            f" application/json, of at most {CONTENT_TYPE_MAX} characters"
        )
    return text
