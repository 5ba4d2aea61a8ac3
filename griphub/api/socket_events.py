"""Events of WebSockets, which the proxy turns into requests (docs/grip.md §8.3): openings, subscriptions, and ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from griphub.api.problem import Problem, too_large
from griphub.api.request import Answer, Request
from gripproxy.grip.websocket_events import Event, EventError, close_content, decode_some, encode

__all__ = [
    "EVENTS_MAX",
    "EVENTS_TYPE",
    "EXPIRED",
    "FEATURES",
    "GONE",
    "resync_events",
    "socket_answer",
    "socket_close",
    "socket_opening",
    "subscription",
]

EVENTS_TYPE: Final = "application/websocket-events"

EVENTS_MAX: Final = 10_000
"""Greatest number of events of a WebSocket in one request: reading them takes a hundredth of a second."""

GONE: Final = 4410
EXPIRED: Final = 4401
"""Close codes of the hub: the place is not retained; the rights have ended."""

FEATURES: Final = (b"ws:prev-id", b"ws:more-events")


def socket_opening(request: Request) -> bool | Answer:
    """Read the events of a WebSocket that only receives.

    Args:
        request: the request.

    Returns:
        Whether it is opened; or the answer, if the events leave no other.

    Raises:
        Problem: 400, they are no events; 413, there are too many; 501, the proxy cannot repair a WebSocket.
    """
    try:
        events, end = decode_some(request.body, 0, EVENTS_MAX)
    except EventError as error:
        raise Problem(400, "bad-request", str(error)) from error
    if end < len(request.body):
        raise too_large(f"the body has more than {EVENTS_MAX} events of the WebSocket", "events", EVENTS_MAX)
    kinds = {event.type for event in events}
    if b"OPEN" in kinds:
        features = request.header(b"grip-feature") or b""
        if not all(feature in features for feature in FEATURES):
            raise Problem(501, "unsupported", "this proxy cannot repair a WebSocket: follow by an event stream")
    if b"DISCONNECT" in kinds:
        return socket_answer([])
    for event in events:
        if event.type == b"CLOSE":
            return socket_answer([Event(b"CLOSE", event.content)])
        if event.type in (b"TEXT", b"BINARY"):
            return socket_answer([socket_close(1008, b"this WebSocket takes no messages: publish over HTTP")])
    return b"OPEN" in kinds


def resync_events(text: bytes, *, opening: bool) -> list[Event]:
    """Return the events that end a WebSocket whose place is gone.

    Args:
        text: the resync.
        opening: whether the WebSocket is being opened.
    """
    start = [Event(b"OPEN")] if opening else []
    return [*start, Event(b"TEXT", text), socket_close(GONE, b"resync")]


def subscription(channel: str, position: str) -> Event:
    """Return the control message that subscribes a WebSocket, at the end of its replay.

    Args:
        channel: name of the channel.
        position: that of the channel.
    """
    control = {"type": "subscribe", "channel": channel, "prev-id": position}
    return Event(b"TEXT", b"c:" + orjson.dumps(control))


def socket_close(code: int, reason: bytes) -> Event:
    """Return the event that closes a WebSocket.

    Args:
        code: of the close frame.
        reason: its text.
    """
    return Event(b"CLOSE", close_content(code, reason))


def socket_answer(events: Sequence[Event], headers: list[tuple[str, str]] | None = None) -> Answer:
    """Return the answer with events for a WebSocket.

    Args:
        events: the events.
        headers: further headers, names and values.
    """
    return Answer(200, encode([*events]), EVENTS_TYPE, headers or [])
