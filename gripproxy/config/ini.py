"""Pushpin's INI dialect: logical lines and values (docs/grip.md §1.8).

It is the dialect of Qt's settings files: comments stand on lines of their own, a backslash at the end of a line joins
the next one, values are lists separated by commas, and a quoted piece is one string with escapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gripproxy.grip.errors import OperatorError

__all__ = ["ConfigError", "Raw", "logical_lines", "split_value"]


class ConfigError(OperatorError):
    """The configuration cannot be used: the operator's fault. str() is ``file:line: text``.

    Attributes: ``file`` (or None if no file is to blame), ``line`` (from 1, or None), ``text``.
    """

    def __init__(self, file: str | None, line: int | None, text: str) -> None:
        self.file, self.line, self.text = file, line, text
        place = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        super().__init__(place + text)


@dataclass(frozen=True, slots=True)
class Raw:
    """A value as a file has it, before variables are replaced."""

    text: str
    file: str
    line: int | None

    def error(self, text: str) -> ConfigError:
        """Return the error ``text`` with file and line of the value."""
        return ConfigError(self.file, self.line, text)


def logical_lines(text: str) -> list[tuple[int, str]]:
    """Return (line number, line) of ``text`` without comments and blank lines; a final backslash joins the next one."""
    lines: list[tuple[int, str]] = []
    pending = ""
    start = 0
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not pending:
            start = number
            if not line or line[0] in "#;":
                continue
        if line.endswith("\\") and not line.endswith("\\\\"):
            pending += line[:-1]
            continue
        lines.append((start, pending + line))
        pending = ""
    if pending:
        lines.append((start, pending))
    return lines


_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", ";": ";", ",": ","}


def split_value(raw: Raw) -> list[str]:
    """Return the pieces of ``raw``, split at commas outside quotes, trimmed, without quotes and escapes."""
    pieces: list[str] = []
    current: list[str] = []
    kept = 0  # characters from quotes, which are not trimmed
    quoted = False
    text, position = raw.text, 0
    while position < len(text):
        char = text[position]
        if char == '"':
            quoted = not quoted
            if not quoted:
                kept = len(current)
            elif not "".join(current).strip():
                current.clear()
        elif char == "\\" and position + 1 < len(text) and text[position + 1] in _ESCAPES:
            position += 1
            current.append(_ESCAPES[text[position]])
            kept = len(current)
        elif char == "," and not quoted:
            pieces.append(_trim(current, kept))
            current, kept = [], 0
        else:
            if quoted or current or not char.isspace():
                current.append(char)
        position += 1
    if quoted:
        raise raw.error("a quoted value has no closing '\"'")
    pieces.append(_trim(current, kept))
    return pieces


def _trim(chars: list[str], kept: int) -> str:
    return "".join(chars[:kept]) + "".join(chars[kept:]).rstrip()
