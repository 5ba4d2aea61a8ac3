"""Items that the hub publishes to the handler, as JSON of the control port (docs/grip.md §5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from griphub.topics.event_text import Representation, empty_text

__all__ = ["hint_item", "move_item", "page_body", "page_item", "stream_item"]

_FORMATS: Final = {
    Representation.SSE: b"http-stream",
    Representation.LINES: b"http-stream",
    Representation.WS: b"ws-message",
    Representation.POLL: b"http-response",
    Representation.WATCH_SSE: b"http-stream",
    Representation.WATCH_LINES: b"http-stream",
    Representation.WATCH_WS: b"ws-message",
}


def _item(channel: str, id: str, previous: str, representation: Representation, content: bytes) -> bytes:
    ids = b"" if not id else b'"id":"%b",' % id.encode()
    if previous:
        ids += b'"prev-id":"%b",' % previous.encode()
    return b'{"channel":%b,%b"formats":{"%b":%b}}' % (orjson.dumps(channel), ids, _FORMATS[representation], content)


def stream_item(channel: str, id: str, previous: str, representation: Representation, text: bytes) -> bytes:
    """Return an item that gives one event, or progress, to streams or WebSockets.

    Args:
        channel: name of the channel.
        id: its cursor.
        previous: position of the channel before.
        representation: form of the contents, not ``POLL``.
        text: the event, or progress, in that representation, UTF-8.
    """
    content = orjson.dumps(text.decode())
    return _item(channel, id, previous, representation, b'{"content":%b}' % content)


def page_body(events: Sequence[bytes] | bytes, cursor: str, *, more: bool, truncated: bytes = b"") -> bytes:
    """Return a page of events as JSON.

    Args:
        events: their JSON texts, or these joined by commas.
        cursor: place up to which the page is complete.
        more: whether further events follow.
        truncated: JSON object that reports events left out because they are not retained; empty for none.
    """
    joined = events if isinstance(events, bytes) else b",".join(events)
    lost = b',"truncated":%b' % truncated if truncated else b""
    return b'{"events":[%b],"cursor":"%b","more":%b%b}\n' % (
        joined,
        cursor.encode(),
        b"true" if more else b"false",
        lost,
    )


def page_item(channel: str, id: str, previous: str, events: Sequence[bytes], link: str) -> bytes:
    """Return an item that answers long-polls with the events of one transaction.

    Args:
        channel: name of the channel.
        id: cursor of the last event.
        previous: position of the channel before.
        events: JSON texts of the events.
        link: relative URI of the page behind.
    """
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store", "Link": f'<{link}>; rel="next"'}
    body = page_body(events, id, more=False).decode()
    return _item(channel, id, previous, Representation.POLL, orjson.dumps({"headers": headers, "body": body}))


def hint_item(channel: str, representation: Representation, id: str = "", previous: str = "") -> bytes:
    """Return an item at which followers ask the hub again.

    Args:
        channel: name of the channel.
        representation: form of its contents.
        id: cursor of the last event that the hint stands for; empty if it stands for none in particular.
        previous: position of the channel before; empty with an empty ``id``.
    """
    return _item(channel, id, previous, representation, b'{"action":"hint"}')


def move_item(channel: str, representation: Representation, id: str, previous: str) -> bytes:
    """Return an item without an event, which moves the position of a channel.

    Args:
        channel: name of the channel.
        representation: form of its contents.
        id: cursor of the position.
        previous: position of the channel before.
    """
    if representation is Representation.POLL:
        # A long-poll would be answered by an item; asked again, it is held at the new position.
        return hint_item(channel, representation, id, previous)
    # A WebSocket counts an item without its format as had; an empty message would reach the client.
    form = Representation.LINES if representation.frame is Representation.WS else representation
    text = empty_text(id, form)
    return _item(channel, id, previous, form, b'{"content":%b}' % orjson.dumps(text.decode()))
