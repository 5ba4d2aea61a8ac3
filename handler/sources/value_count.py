"""Value count of an encoded message, checked before it is decoded: each value becomes an object.

A message of 16 MB may be five million empty lists. Decoding and converting these blocks the handler for seconds, and
takes half a gigabyte.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from gripproxy.grip.item import ItemError

__all__ = ["COUNTED", "VALUES_MAX", "check_json", "check_tnet"]

VALUES_MAX: Final = 50_000
"""Greatest number of values of a message or request, nested ones included, containers of JSON counted twice: a
microsecond each. With more, the publisher gets an error, or the item is skipped."""

COUNTED: Final = 100_000
"""Bytes of a message up to which values are not counted: a value has at least two."""

# The length of a value, and the type bytes of the containers that end before it.
_LENGTH: Final = re.compile(rb"[\]}]*+([0-9]{1,9}):")
_CONTAINERS: Final = frozenset(b"]}")


@cache
def _more_than(number: int) -> re.Pattern[bytes]:
    """Return a pattern of more beginnings of containers and separators than ``number``, outside of strings.

    One match takes no step of the interpreter for each of them.
    """
    return re.compile(rb'(?:[^"\[{,]*+(?:"(?:[^"\\]++|\\.)*+"[^"\[{,]*+)*+[,\[{]){%d}+' % (number + 1), re.DOTALL)


def check_json(data: bytes) -> None:
    """Check the number of values of a JSON document, whose syntax is not checked.

    Args:
        data: the document.

    Raises:
        ItemError: it has more than VALUES_MAX values.
    """
    if len(data) <= COUNTED or data.count(b",") + data.count(b"[") + data.count(b"{") <= VALUES_MAX:
        return
    if _more_than(VALUES_MAX).match(data):
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
    size = len(data)
    match = _LENGTH.match
    while length := match(data, position):
        position = length.end()
        end = position + int(length[1])
        if end >= size:
            return
        count += 1
        if count > VALUES_MAX:
            raise _too_many()
        if data[end] not in _CONTAINERS:
            position = end + 1


def _too_many() -> ItemError:
    return ItemError(f"publish item object has more than {VALUES_MAX} values")
