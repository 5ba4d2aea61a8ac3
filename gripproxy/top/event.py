"""One message of a stats socket as an event: its type and its fields as text, numbers and truth values.

Both forms are read, ``T`` and a tnetstring and ``J`` and JSON. Whoever publishes there may be anybody: what does not
fit is :class:`Malformed`, with a reason that has nothing of the message in it.

Source: docs/grip.md §9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gripproxy.grip import tnet

__all__ = ["MAX_NAME", "Malformed", "flag", "name", "number", "read", "word"]

MAX_KIND: Final = 32
"""Bytes of a type; those known have at most 8."""
MAX_NAME: Final = 256
"""Characters of a name (channel, route, instance) that are kept; longer ones that begin alike become one."""

_INT64: Final = 1 << 63

Fields = dict[str, Any]


class Malformed(ValueError):
    """The message is no event; the text says why."""


def read(message: bytes) -> tuple[str, Fields]:
    """Decode one message.

    Returns:
        The type and the fields. Bytes of tnetstrings are text, with escapes for what is not UTF-8.

    Raises:
        Malformed: it is not a type, a space, and a map in one of both forms.
    """
    kind, space, body = message.partition(b" ")
    if not space or not 0 < len(kind) <= MAX_KIND or not kind.isascii():
        raise Malformed("no type and a space at its beginning")
    form = body[:1]
    if form != b"T" and form != b"J":
        raise Malformed("neither T nor J behind its type")
    try:
        fields = tnet.decode_payload(body)[1]
    except tnet.FrameError as e:
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
    """Return a text that must be there, cut to MAX_NAME characters. Raises Malformed."""
    value = fields.get(key)
    if type(value) is not str:
        raise Malformed(f"no text '{key}' in it")
    return value if len(value) <= MAX_NAME else value[: MAX_NAME - 1] + "…"


def word(fields: Mapping[str, Any], key: str) -> str:
    """The same of a text that may be absent; empty if it is."""
    return name(fields, key) if key in fields else ""


def number(fields: Mapping[str, Any], key: str, absent: int | None = None) -> int:
    """Return a whole number, from 0 to what 64 bits hold; ``absent`` if it is not there. Raises Malformed."""
    value = fields.get(key, absent)
    if type(value) is not int or not 0 <= value < _INT64:
        raise Malformed(f"no number '{key}' in it")
    return value


def flag(fields: Mapping[str, Any], key: str) -> bool:
    """Return whether something is said to be so: true; absent is false. Raises Malformed for another value."""
    value = fields.get(key, False)
    if type(value) is not bool:
        raise Malformed(f"'{key}' in it is neither true nor false")
    return value
