"""Keys: decoding of the bytes of a terminal into names of keys."""

from __future__ import annotations

import codecs
from typing import Final

__all__ = ["Keys"]

MAX_SEQUENCE: Final = 16
"""Greatest length of an escape sequence in bytes."""

_CONTROL: Final = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x03": "quit",
    "\x04": "quit",
    "\x0c": "redraw",
    "\x15": "clear",
}
_SEQUENCES: Final = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "H": "home",
    "F": "end",
    "Z": "backtab",
    "1~": "home",
    "7~": "home",
    "4~": "end",
    "8~": "end",
    "5~": "page up",
    "6~": "page down",
    "3~": "backspace",
}


class Keys:
    """Splits the input of a terminal into keys: characters themselves, other keys as names like ``page down``."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""

    @property
    def unfinished(self) -> bool:
        """True if the last bytes are the escape key or the beginning of a sequence; ``flush`` decides after a time."""
        return bool(self._waiting)

    def feed(self, data: bytes) -> list[str]:
        """Return the keys completed by further bytes.

        Args:
            data: as read from the terminal.
        """
        text = self._waiting + self._decoder.decode(data)
        self._waiting = ""
        keys: list[str] = []
        at = 0
        while at < len(text):
            char = text[at]
            if char != "\x1b":
                at += 1
                if char in _CONTROL:
                    keys.append(_CONTROL[char])
                elif char.isprintable():
                    keys.append(char)
                continue
            end = _end(text, at)
            if end is None:
                self._waiting = text[at:]
                break
            if end == at + 1:
                keys.append("escape")
            else:
                key = _SEQUENCES.get(text[at + 2 : end])
                keys += [key] if key else []
            at = end
        return keys

    def flush(self) -> list[str]:
        """Return the key that an unfinished sequence is, if no bytes follow it: escape, or none."""
        waiting, self._waiting = self._waiting, ""
        return ["escape"] if waiting == "\x1b" else []


def _end(text: str, start: int) -> int | None:
    """Return the end of the escape sequence at ``start``; None if it is unfinished."""
    if start + 1 == len(text):
        return None
    if text[start + 1] not in "[O":
        return start + 1
    for end in range(start + 2, min(len(text), start + MAX_SEQUENCE)):
        if "@" <= text[end] <= "~":
            return end + 1
    return None if len(text) < start + MAX_SEQUENCE else start + MAX_SEQUENCE
