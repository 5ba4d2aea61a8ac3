"""WebSocket-over-HTTP events (docs/grip.md §8.3): :func:`encode` and :func:`decode` of request and response bodies.

A WebSocket becomes a series of requests. ``event_outbox`` keeps events until the backend accepts them,
``event_headers`` reads the headers around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gripproxy.grip.close_frame import close_payload, is_close_code
from gripproxy.grip.errors import BackendError
from gripproxy.grip.frames import MAX_CONTROL

__all__ = ["Event", "EventError", "close_content", "decode", "decode_some", "encode", "parse_close_content"]


_MAX_LINE: Final = 100


_HEX: Final = re.compile(rb"[0-9A-Fa-f]{1,16}")


_TYPE: Final = re.compile(rb"[!-~]+")


_CONTROL: Final = frozenset((b"PING", b"PONG"))


class EventError(BackendError, ValueError):
    """The backend's response does not follow docs/grip.md §8.3; the text has the place and the expectation."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        type: ``OPEN``, ``TEXT``, ``BINARY``, ``PING``, ``PONG``, ``CLOSE`` or ``DISCONNECT``; others are kept for the
            caller to ignore.
        content: ``None`` if the event has no length; of a text as for a message of no bytes.
    """

    type: bytes
    content: bytes | None = None


def encode(events: Iterable[Event]) -> bytes:
    """The body for some events.

    Args:
        events: In order.

    Returns:
        The body. An event without content, or with an empty one, has no length, as Pushpin writes it.
    """
    return b"".join(
        [
            b"%b %x\r\n%b\r\n" % (event.type, len(event.content), event.content)
            if event.content
            else event.type + b"\r\n"
            for event in events
        ]
    )


def decode(body: bytes) -> list[Event]:
    """Read the body of a backend's response.

    Args:
        body: The whole body.

    Returns:
        The events in order. Events behind ``CLOSE`` or ``DISCONNECT``, and types that mean nothing, are there: the
        caller ignores them.

    Raises:
        EventError: The body ends inside an event, a length is not hexadecimal, a content does not end with CRLF where
            its length ends, a line has no type, a ``TEXT`` is not UTF-8, or a ``PING`` or ``PONG`` has more than 125
            bytes (either would make the client fail the connection, RFC 6455 §8.1 and §5.5).
    """
    return decode_some(body, 0, len(body))[0]


def decode_some(body: bytes, position: int, most: int) -> tuple[list[Event], int]:
    """Read a part of the events of a body: a megabyte may have a hundred thousand.

    Args:
        body: The whole body.
        position: Offset of the first event, in bytes.
        most: Greatest number of events.

    Returns:
        The events in order, and the offset of the next one: the length of the body after the last.

    Raises:
        EventError: As :func:`decode`.
    """
    events: list[Event] = []
    end = len(body)
    while position < end and most:
        most -= 1
        stop = body.find(b"\r\n", position)
        if stop < 0:
            raise EventError(f"no line end in the {end - position} bytes from byte {position} on")
        kind, space, length_text = body[position:stop].partition(b" ")
        if not _TYPE.fullmatch(kind):
            raise EventError(f"event at byte {position} has the type {kind[:_MAX_LINE]!r}; expected a word")
        start = stop + 2
        if not space:
            events.append(Event(kind))
            position = start
            continue
        if not _HEX.fullmatch(length_text):
            raise EventError(
                f"{kind[:_MAX_LINE].decode()} at byte {position} has the length {length_text[:_MAX_LINE]!r}; "
                "expected a hexadecimal number"
            )
        stop = start + int(length_text, 16)
        position = stop + 2
        if position > end:
            raise EventError(
                f"{kind[:_MAX_LINE].decode()} at byte {start} should end at byte {position}; the body ends at {end}"
            )
        if body[stop:position] != b"\r\n":
            raise _no_end(kind, stop, body)
        content = body[start:stop]
        if kind == b"TEXT" and not content.isascii():
            try:
                content.decode()
            except UnicodeDecodeError as e:
                raise EventError(f"TEXT at byte {start} is not UTF-8: {e.reason} at its byte {e.start}") from e
        elif len(content) > MAX_CONTROL and kind in _CONTROL:
            raise EventError(
                f"{kind.decode()} at byte {start} has {len(content)} bytes; a frame of it carries at most {MAX_CONTROL}"
            )
        events.append(Event(kind, content))
    return events, position


def _no_end(kind: bytes, stop: int, body: bytes) -> EventError:
    return EventError(
        f"{kind[:_MAX_LINE].decode()} does not end at byte {stop} as its length says: "
        f"{body[stop : stop + 2]!r} instead of CRLF"
    )


def close_content(code: int | None, reason: bytes = b"") -> bytes | None:
    """The content of a ``CLOSE`` event.

    Args:
        code: ``None`` for none.
        reason: UTF-8.

    Returns:
        Two bytes of code and the reason, or ``None`` without a code.
    """
    return close_payload(code, reason) or None


def parse_close_content(content: bytes | None) -> tuple[int | None, bytes]:
    """Read the content of a backend's ``CLOSE`` event.

    Args:
        content: Of the event.

    Returns:
        Code and reason, fit for a close frame. Less than two bytes, and a code that must not be on the wire (backends
        do write 0 for "none"), mean no code and no reason. A reason that is not UTF-8 is repaired with U+FFFD, one over
        123 bytes is cut.
    """
    if content is None or len(content) < 2:
        return None, b""
    code = content[0] << 8 | content[1]
    if not is_close_code(code):
        return None, b""
    return code, close_payload(code, content[2:])[2:]
