"""Log event: a name and fields, as a line of text or an object of JSON. Sans-I/O.

Text is ``event: key=value key="two words"; sentence``: readable, and parsed by anything that reads logfmt. JSON is one
object with the members ``time``, ``level``, ``process``, ``event``, the fields, and ``message`` with the sentence for
people: the consequence, or the way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

__all__ = ["RESERVED", "escape", "json_of", "quoted", "text_of"]

RESERVED: Final = frozenset({"time", "level", "process", "event", "message", "traceback"})
"""Names that no field has: each object of JSON has them already."""

CUTS: Final = (400, 100, 25, 8)
"""Characters of a value, tried in turn, with which an object of JSON that is too long is written again."""


class _Escapes(dict[int, str]):
    """Translation table: unprintable characters become escapes, computed at first use (bounded by Unicode)."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character.isprintable():
            self[code] = character
        else:
            self[code] = repr(character)[1:-1] if code < 0xD800 or code > 0xDFFF else f"\\u{code:04x}"
        return self[code]


_ESCAPES: Final = _Escapes()


def escape(text: str) -> str:
    """Return ``text`` with unprintable characters as backslash escapes; printable ones, backslashes too, are unchanged.

    Args:
        text: control characters, line separators and lone surrogates in it are unprintable.
    """
    return text if text.isprintable() else text.translate(_ESCAPES)


def quoted(value: object) -> str:
    """Return a value as text has it: in quotes if it is empty, begins with a quote, or has white space in it.

    Args:
        value: bytes are text in UTF-8, lists are joined with commas, floats have six digits.
    """
    if type(value) is bytes:
        text = value.decode("utf-8", "backslashreplace")
    elif type(value) is str:
        text = value
    elif type(value) is bool:
        return "true" if value else "false"
    elif type(value) is float:
        return f"{value:g}"
    elif type(value) is list or type(value) is tuple:
        return quoted(",".join([str(_plain(each)) for each in value]))
    else:
        text = str(value)
    if not text or text[0] == '"' or len(text.split(None, 1)) > 1 or text != text.strip():
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


def text_of(event: str, fields: Mapping[str, object], sentence: str = "") -> str:
    """Return an event as a line of text has it, without unprintable characters.

    Args:
        event: its name, a few words.
        fields: values by name; those that are None are left out.
        sentence: for people; may be empty.
    """
    pairs = " ".join([f"{name}={quoted(value)}" for name, value in fields.items() if value is not None])
    return escape(": ".join(filter(None, (event, "; ".join(filter(None, (pairs, sentence)))))))


def json_of(
    start: Mapping[str, object], fields: Mapping[str, object], sentence: str, trace: str | None, most: int
) -> bytes:
    """Return an event as an object of JSON, without line end; its values are cut if it would be too long.

    Args:
        start: the members before the fields.
        fields: values by name; those that are None are left out.
        sentence: for people; may be empty.
        trace: traceback, whose end is kept.
        most: bytes of the object; the members of ``start`` fit in a quarter of it.
    """
    members: dict[str, Any] = {**start}
    for name, value in fields.items():
        if value is not None:
            members[name] = _plain(value)
    if sentence:
        members["message"] = sentence
    if trace is not None:
        members["traceback"] = trace
    line = _dumps(members)
    for cut in CUTS:
        if len(line) <= most:
            break
        for name, value in members.items():
            if name == "traceback":
                members[name] = value[-2 * cut :]
            elif isinstance(value, list):
                members[name] = value[: cut // 8]
            elif isinstance(value, str) and len(value) > cut:
                members[name] = value[:cut] + "..."
        line = _dumps(members)
    return line


def _plain(value: object) -> object:
    if type(value) is bytes:
        return value.decode("utf-8", "backslashreplace")
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value)


def _dumps(members: Mapping[str, object]) -> bytes:
    try:
        return orjson.dumps(members)
    except TypeError:
        # Lone surrogates, and numbers above 64 bits, which JSON readers would not take either.
        return orjson.dumps({name: _tame(value) for name, value in members.items()})


def _tame(value: object) -> object:
    if isinstance(value, list):
        return [_tame(each) for each in value]
    if type(value) is str:
        return value.encode("utf-8", "backslashreplace").decode()
    return str(value) if type(value) is int and value.bit_length() > 63 else value
