"""Texts of events of soft topics: one JSON object in one line, with the members of a stored event that they have.

There is no ``id`` and no ``time``: the truth, and its order, are in another store. ``cursor`` names the place.
"""

from __future__ import annotations

import binascii
from typing import Final

import orjson

from griphub.topics.event_text import ContentKind, content_kind
from griphub.windows.positions import Position
from griphub.windows.soft_event import SoftEvent

__all__ = ["event_text", "position_of", "reference_text"]

_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")


def position_of(event: SoftEvent, epoch: str) -> Position:
    """Return the position of an event.

    Args:
        event: the event.
        epoch: of its window.
    """
    return Position(epoch, event.version, event.stamp)


def event_text(event: SoftEvent, epoch: str) -> bytes:
    """Return the JSON object of an event in one line.

    Args:
        event: the event.
        epoch: of its window.
    """
    return _head(event, epoch) + _data(event) + b"}"


def reference_text(event: SoftEvent, epoch: str, size: int) -> bytes:
    """Return the JSON object of an event without its data, which is too large for a message.

    Args:
        event: the event.
        epoch: of its window.
        size: of its whole text, in bytes.
    """
    return b'%b,"size":%d}' % (_head(event, epoch), size)


def _head(event: SoftEvent, epoch: str) -> bytes:
    attributes = b',"attributes":%b' % orjson.dumps(dict(event.attributes)) if event.attributes else b""
    return b'{"type":"event","cursor":"%b","version":"%d","key":%b,"op":"%b","content_type":%b%b' % (
        str(position_of(event, epoch)).encode(),
        event.version,
        orjson.dumps(event.key),
        event.op.encode(),
        orjson.dumps(event.content_type),
        attributes,
    )


def _data(event: SoftEvent) -> bytes:
    """Return the member of the content; nothing for none."""
    data = event.data
    kind = content_kind(event.content_type)
    if not data and (event.op == "delete" or kind is ContentKind.JSON):
        return b""
    if kind is ContentKind.JSON:
        if b"\n" in data or b"\r" in data:
            # In valid JSON these are white space between tokens.
            data = data.translate(_ONE_LINE)
        return b',"data":%b' % data
    if kind is ContentKind.TEXT:
        try:
            return b',"data":%b' % orjson.dumps(data.decode())
        except UnicodeDecodeError:
            # Text that is no UTF-8 is given as it was appended.
            pass
    return b',"data_base64":"%b"' % binascii.b2a_base64(data, newline=False)
