"""Contents of ingested events: bounds of their JSON, and base64."""

from __future__ import annotations

import binascii
from array import array
from itertools import accumulate
from typing import Final

import orjson

from gripproxy.grip.errors import ClientError

__all__ = ["CONTAINERS_MAX", "DEPTH_MAX", "BadPayload", "base64_data", "check_json", "outside_strings", "type_name"]

DEPTH_MAX: Final = 66
"""Greatest depth of arrays and objects within each other: 64 of a content, and two around it."""

CONTAINERS_MAX: Final = 50_000
"""Greatest number of arrays and objects in a line: building more of them would stall the process for too long."""

_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_STEP: Final = bytes(each for each in range(256) if each not in b"[{]}")


class BadPayload(ClientError):
    """Content that breaks a rule or a bound."""


def check_json(text: bytes) -> None:
    """Check how many arrays and objects a JSON text has, and how deep they are, before it is parsed.

    Args:
        text: the text.

    Raises:
        BadPayload: there are too many of them, or they are too deep.
    """
    brackets = text.count(b"[") + text.count(b"{")
    if brackets <= DEPTH_MAX:
        return
    steps = outside_strings(text).translate(_STEPS, _NO_STEP)
    if len(steps) > 2 * CONTAINERS_MAX:
        raise BadPayload(f"it has {len(steps)} brackets: at most {CONTAINERS_MAX} arrays and objects are allowed")
    if max(accumulate(array("b", steps)), default=0) > DEPTH_MAX:
        raise BadPayload(f"it has arrays or objects more than {DEPTH_MAX} deep: flatten the data")


def outside_strings(text: bytes) -> bytes:
    """Return a JSON text without the contents of its strings.

    Args:
        text: valid JSON; of another text the result has no meaning.
    """
    # Backslashes are in strings only, where each begins an escape.
    return b'""'.join(text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])


def base64_data(text: object) -> bytes:
    """Return the bytes of a content in base64 (RFC 4648 section 4, with padding).

    Args:
        text: a JSON value that should be a string in base64.

    Raises:
        BadPayload: it is none.
    """
    if not isinstance(text, str):
        raise BadPayload(f"data_base64 is {type_name(text)}: expected a string")
    try:
        return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError as error:
        raise BadPayload(f"data_base64 is no base64: {error}") from error


def type_name(value: object) -> str:
    """Return the name of the type of a JSON ``value``, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return _TYPES.get(type(value), "an object")


_TYPES: Final = {str: "a string", int: "a number", float: "a number", orjson.Fragment: "a number", list: "an array"}
