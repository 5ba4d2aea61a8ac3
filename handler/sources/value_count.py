"""Value count of an encoded message, checked before it is decoded: each value becomes an object.

A message of 16 MB may be five million empty lists. Decoding and converting these blocks the handler for seconds, and
takes half a gigabyte.
"""

from __future__ import annotations

import re
from typing import Final

from gripproxy.grip.item import ItemError

__all__ = ["COUNTED", "VALUES_MAX", "check_json", "check_tnet"]

VALUES_MAX: Final = 50_000
"""Greatest number of values of a message or request, nested ones included, containers of JSON counted twice: a
microsecond each. With more, the publisher gets an error, or the item is skipped."""

COUNTED: Final = 100_000
"""Bytes of a message up to which values are not counted: a value has at least two."""

# Whole strings, whose content does not count, and the beginnings of containers and separators of values.
_MARK: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[,\[{]', re.DOTALL)
_QUOTE: Final = ord('"')
_CONTAINERS: Final = frozenset(b"]}")


def check_json(data: bytes) -> None:
    """Check the number of values of a JSON document, whose syntax is not checked.

    Args:
        data: the document.

    Raises:
        ItemError: it has more than VALUES_MAX values.
    """
    if len(data) <= COUNTED or data.count(b",") + data.count(b"[") + data.count(b"{") <= VALUES_MAX:
        return
    count = 0
    for mark in _MARK.finditer(data):
        if data[mark.start()] != _QUOTE:
            count += 1
            if count > VALUES_MAX:
                raise _too_many()


def check_tnet(data: bytes, start: int = 0) -> None:
    """Check the number of values of a tnetstring, whose syntax is not checked.

    Args:
        data: the message.
        start: offset of the tnetstring, in bytes.

    Raises:
        ItemError: it has more than VALUES_MAX values.
    """
    if len(data) <= COUNTED or data.count(b":") <= VALUES_MAX:
        return
    count = 0
    position = start
    ends: list[int] = []
    while True:
        while ends and position >= ends[-1]:
            # After the type byte of the container.
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
