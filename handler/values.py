"""Values in an encoded message, counted before it is decoded: each becomes an object, and takes its time.

A message of 16 MB may be five million empty lists. To decode and convert these takes seconds, in which the handler does
nothing else, and half a gigabyte.
"""

from __future__ import annotations

import re
from typing import Final

from gripproxy.grip.item import ItemError

__all__ = ["COUNTED", "VALUES_MAX", "check_json", "check_tnet"]

VALUES_MAX: Final = 50_000
"""Values that a message or request may have, those in values counted, in JSON a container twice: a microsecond each.
With more, the publisher gets an error, or the item is skipped."""

COUNTED: Final = 100_000
"""Bytes of a message up to which nothing is counted: there are two for each value."""

# Strings as wholes, so that what is in them does not count; and what begins a container or separates two values.
_MARK: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[,\[{]', re.DOTALL)
_QUOTE: Final = ord('"')
_CONTAINERS: Final = frozenset(b"]}")


def check_json(data: bytes) -> None:
    """Raise ItemError if JSON has more than VALUES_MAX values; whether it is JSON is not checked."""
    if len(data) <= COUNTED or data.count(b",") + data.count(b"[") + data.count(b"{") <= VALUES_MAX:
        return
    count = 0
    for mark in _MARK.finditer(data):
        if data[mark.start()] != _QUOTE:
            count += 1
            if count > VALUES_MAX:
                raise _too_many()


def check_tnet(data: bytes, start: int = 0) -> None:
    """Raise ItemError if a tnetstring has more than VALUES_MAX values; whether it is one is not checked.

    Args:
        data: the message.
        start: where the tnetstring begins.
    """
    if len(data) <= COUNTED or data.count(b":") <= VALUES_MAX:
        return
    count = 0
    position = start
    ends: list[int] = []
    while True:
        while ends and position >= ends[-1]:
            # Behind the letter of the container.
            position = ends.pop() + 1
        colon = data.find(b":", position, position + 10)
        if colon < 0 or not data[position:colon].isdigit():
            return
        end = colon + 1 + int(data[position:colon])
        if end >= len(data):
            return
        count += 1
        if count > VALUES_MAX:
            raise _too_many()
        if data[end] in _CONTAINERS:
            ends.append(end)
            position = colon + 1
        else:
            position = end + 1


def _too_many() -> ItemError:
    return ItemError(f"publish item object has more than {VALUES_MAX} values")
