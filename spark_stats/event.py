"""One event of the stats socket: ``<type> T`` and a tnetstring map, or ``<type> J`` and a JSON object.

Source: docs/grip.md §9.
"""

from __future__ import annotations

from typing import Any, Final

import orjson
import tnetstring

from spark_stats.errors import SenderError

__all__ = ["MAX_DEPTH", "Malformed", "parse", "plain"]

MAX_TYPE: Final = 64
"""Longest type, in bytes; those known have at most 8."""
MAX_DEPTH: Final = 16
"""Depth of nested containers that is kept of an unknown field. Known fields have none."""

_KNOWN: Final = frozenset([b"conn", b"sub", b"message", b"activity", b"counts", b"report"])
_INT64: Final = 1 << 63


class Malformed(SenderError):
    """Message that is no event. The text is the reason, without content of the message, so that it can be counted."""


def parse(message: bytes) -> tuple[bytes, dict[Any, Any], bool]:
    """Decode one message.

    Args:
        message: the whole message, of any content.

    Returns:
        The type (1 to 64 bytes of printable ASCII), the fields, and True for JSON. JSON has ``str`` for
        strings and keys, a tnetstring ``bytes``; the keys of a tnetstring may be of any type that can be hashed.

    Raises:
        Malformed: the message is something else.
    """
    name, space, body = message.partition(b" ")
    if not space:
        raise Malformed("no space behind a type")
    if not name or len(name) > MAX_TYPE:
        raise Malformed(f"no type of 1 to {MAX_TYPE} bytes")
    if body[:1] == b"T":
        try:
            fields, rest = tnetstring.pop(body[1:])
        # TypeError: a list or map as key of a map. RecursionError: the library's own guard against deep nesting.
        except (ValueError, TypeError, RecursionError, OverflowError) as e:
            raise Malformed("not a tnetstring behind T") from e
        if rest:
            raise Malformed("bytes behind the tnetstring")
        if type(fields) is not dict:
            raise Malformed("a tnetstring that is not a map")
        json = False
    elif body[:1] == b"J":
        try:
            fields = orjson.loads(body[1:])
        except orjson.JSONDecodeError as e:
            raise Malformed("not JSON behind J") from e
        if type(fields) is not dict:
            raise Malformed("JSON that is not an object")
        json = True
    else:
        raise Malformed("neither T nor J behind the type")
    if name not in _KNOWN and not (name.isascii() and name.decode("ascii").isprintable()):
        raise Malformed("a type that is not printable ASCII")
    return name, fields, json


def plain(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a decoded value in a form that JSON can hold.

    Bytes become text, with escapes where they are not UTF-8; whole numbers beyond 64 bits, NaN and infinities become
    text; containers nested deeper than ``depth`` become the text ``(nested too deep)``.

    Args:
        value: value of a tnetstring or of JSON.
        depth: levels of containers to keep.
    """
    kind = type(value)
    if kind is bytes:
        return value.decode("utf-8", "backslashreplace")
    if kind is int and not -_INT64 <= value < _INT64:
        return str(value)
    if kind is float and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if kind is dict:
        if not depth:
            return "(nested too deep)"
        return {name(key): plain(inner, depth - 1) for key, inner in value.items()}
    if kind is list:
        return [plain(inner, depth - 1) for inner in value] if depth else "(nested too deep)"
    return value


def name(key: Any) -> str:
    """Return the key of a map as text."""
    return key.decode("utf-8", "backslashreplace") if type(key) is bytes else str(key)
