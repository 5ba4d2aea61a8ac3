"""Event: a message of a stats socket, decoded into its type and its fields (text, numbers, truth values).

Both forms are read, ``T`` with a tnetstring and ``J`` with JSON. Publishers are not trusted: an invalid message is
:class:`Malformed`, with a reason that contains no part of the message.

Source: docs/grip.md §9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gripproxy.grip import tnetstring
from gripproxy.grip.errors import PublisherError

__all__ = ["MAX_NAME", "Malformed", "flag", "name", "number", "read", "word"]

MAX_KIND: Final = 32
"""Greatest length of a type in bytes; known ones have 8 at most."""
MAX_NAME: Final = 256
"""Characters to which a name (channel, route, instance) is cut; longer ones with an equal beginning become one."""

_INT64: Final = 1 << 63

Fields = dict[str, Any]


class Malformed(PublisherError, ValueError):
    """The message is not an event: the publisher's fault. The text is the reason."""


def read(message: bytes) -> tuple[str, Fields]:
    """Decode a message.

    Args:
        message: of a stats socket.

    Returns:
        The type and the fields. Bytes of tnetstrings become text, with escapes for invalid UTF-8.

    Raises:
        Malformed: the message is not a type, a space, and a map in one of both forms.
    """
    kind, space, body = message.partition(b" ")
    if not space or not 0 < len(kind) <= MAX_KIND or not kind.isascii():
        raise Malformed("no type and a space at its beginning")
    form = body[:1]
    if form != b"T" and form != b"J":
        raise Malformed("neither T nor J behind its type")
    try:
        fields = tnetstring.decode_payload(body)[1]
    except tnetstring.FrameError as e:
        raise Malformed("not a tnetstring behind T" if form == b"T" else "not JSON behind J") from e
    if type(fields) is not dict:
        raise Malformed("its fields are not a map")
    if form == b"T":
        fields = {
            key.decode("utf-8", "backslashreplace") if type(key) is bytes else str(key): value.decode(
                "utf-8", "backslashreplace"
            )
            if type(value) is bytes
            else value
            for key, value in fields.items()
        }
    return kind.decode("ascii"), fields


def name(fields: Mapping[str, Any], key: str) -> str:
    """Return a required text, cut to MAX_NAME characters.

    Args:
        fields: of the event.
        key: name of the field.

    Raises:
        Malformed: the field is missing or not text.
    """
    value = fields.get(key)
    if type(value) is not str:
        raise Malformed(f"no text '{key}' in it")
    return value if len(value) <= MAX_NAME else value[: MAX_NAME - 1] + "…"


def word(fields: Mapping[str, Any], key: str) -> str:
    """Return an optional text, cut to MAX_NAME characters; empty if it is missing.

    Args:
        fields: of the event.
        key: name of the field.

    Raises:
        Malformed: the field is not text.
    """
    return name(fields, key) if key in fields else ""


def number(fields: Mapping[str, Any], key: str, absent: int | None = None) -> int:
    """Return a whole number from 0 to 2**63 - 1.

    Args:
        fields: of the event.
        key: name of the field.
        absent: result for a missing field; None if it is required.

    Raises:
        Malformed: the field is missing or not such a number.
    """
    value = fields.get(key, absent)
    if type(value) is not int or not 0 <= value < _INT64:
        raise Malformed(f"no number '{key}' in it")
    return value


def flag(fields: Mapping[str, Any], key: str) -> bool:
    """Return an optional truth value; False if it is missing.

    Args:
        fields: of the event.
        key: name of the field.

    Raises:
        Malformed: the field is not a truth value.
    """
    value = fields.get(key, False)
    if type(value) is not bool:
        raise Malformed(f"'{key}' in it is neither true nor false")
    return value
