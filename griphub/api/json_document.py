"""JSON documents of requests: strict, in UTF-8, of bounded depth, with known members only."""

from __future__ import annotations

import gc
import json
import re
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import orjson

from griphub.api.problem import bad_request, too_large
from griphub.api.query import nearest

__all__ = [
    "COMMAS_MAX",
    "CONTAINERS_MAX",
    "DEPTH_MAX",
    "EXACT_VALUES_MAX",
    "check_members",
    "exact_json",
    "is_deeper",
    "load_json",
    "load_object",
    "type_name",
]

DEPTH_MAX: Final = 64
"""Greatest depth of arrays and objects within each other."""

CONTAINERS_MAX: Final = 200_000
"""Greatest number of arrays and objects in a text: building more of them would stall the process for too long."""

COMMAS_MAX: Final = 1_000_000
"""Greatest number of commas in a text outside of its strings, for the same reason: there are about as many values."""

EXACT_VALUES_MAX: Final = 200_000
"""Greatest number of values in a text whose numbers are kept as they are written."""

LARGE: Final = 65_536
"""Bytes of a text from which on the collector of garbage pauses for the parser: it would look at each object anew."""

SHOWN: Final = 80
"""Characters of a refused value that a message shows."""

_LONG_NUMBER: Final = re.compile(rb"[0-9][0-9.]{15}|[0-9][eE][+-]?[0-9]")
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_STEP: Final = bytes(each for each in range(256) if each not in b"[{]}")


def is_deeper(text: bytes, most: int = DEPTH_MAX) -> bool:
    """Return whether arrays and objects of a valid JSON text lie deeper within each other than a bound.

    Args:
        text: valid JSON.
        most: greatest depth.
    """
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    steps = _outside_strings(text).translate(_STEPS, _NO_STEP)
    return max(accumulate(array("b", steps)), default=0) > most


def _outside_strings(text: bytes) -> bytes:
    """Return a JSON text without the contents of its strings."""
    # Backslashes are in strings only, where each begins an escape.
    return b'""'.join(text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])


def load_json(text: bytes, noun: str) -> Any:
    """Return the value of a JSON text.

    Args:
        text: UTF-8.
        noun: name of the text, for the message.

    Raises:
        Problem: 400, it is no JSON (RFC 8259), no UTF-8, or too deep; 413, it has too many arrays, objects or values.
    """
    if len(text) < LARGE:
        value = _parsed(text, noun)
    else:
        containers = text.count(b"[") + text.count(b"{")
        if containers > CONTAINERS_MAX:
            detail = f"{noun} has {containers} brackets: at most {CONTAINERS_MAX} arrays and objects are allowed"
            raise too_large(detail, "containers", CONTAINERS_MAX)
        if text.count(b",") > COMMAS_MAX and (commas := _outside_strings(text).count(b",")) > COMMAS_MAX:
            detail = f"{noun} has {commas} commas outside of strings: at most {COMMAS_MAX} are allowed"
            raise too_large(detail, "values", COMMAS_MAX)
        collected = gc.isenabled()
        gc.disable()
        try:
            value = _parsed(text, noun)
        finally:
            if collected:
                gc.enable()
    if is_deeper(text):
        raise bad_request(f"{noun} has arrays or objects more than {DEPTH_MAX} deep: flatten it")
    return value


def _parsed(text: bytes, noun: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"{noun} is no JSON: {error}") from error


def exact_json(value: Any, text: bytes, noun: str) -> Any:
    """Return the value of a JSON text with long numbers as they are written, for values that are serialised again.

    Args:
        value: result of ``load_json``.
        text: the JSON text.
        noun: name of the text, for the message.

    Returns:
        ``value`` if a double or an integer of 64 bits holds each of its numbers; else one whose numbers are fragments.

    Raises:
        Problem: 413, it has too many values.
    """
    if _LONG_NUMBER.search(_outside_strings(text)) is None:
        return value
    if text.count(b",") > EXACT_VALUES_MAX:
        detail = f"{noun} has long numbers and more than {EXACT_VALUES_MAX} values: publish parts of it"
        raise too_large(detail, "values", EXACT_VALUES_MAX)
    fragment = orjson.Fragment
    return json.loads(text, parse_int=fragment, parse_float=fragment)


def load_object(text: bytes, noun: str) -> dict[str, Any]:
    """Return the members of a JSON text that is an object.

    Args:
        text: UTF-8.
        noun: name of the text, for the message.

    Raises:
        Problem: 400, it is no JSON object.
    """
    value = load_json(text, noun)
    if not isinstance(value, dict):
        raise bad_request(f"{noun} is {type_name(value)}: expected an object")
    return value


def check_members(value: Mapping[str, object], known: Sequence[str], noun: str) -> None:
    """Check that an object has known members only.

    Args:
        value: the object.
        known: names of its members.
        noun: name of the object, for the message.

    Raises:
        Problem: 400, it has another one.
    """
    for name in value:
        if name not in known:
            raise bad_request(
                f"{noun} has the unknown member {name[:SHOWN]!r}: {nearest(name, known)}"
                f"expected one of {', '.join(known)}"
            )


def type_name(value: object) -> str:
    """Return the name of the type of a JSON ``value``, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return _TYPES.get(type(value), "an object")


_TYPES: Final = {str: "a string", int: "a number", float: "a number", orjson.Fragment: "a number", list: "an array"}
