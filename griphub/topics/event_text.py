"""Texts of events: one JSON object, equal in every representation but for its frame.

An event is written once for each follower and each page of history, so this is the hottest text of the hub: one
formatting of bytes, with the text of each second and of each content type remembered. Contents in JSON are embedded as
they were published; they were validated then.
"""

from __future__ import annotations

import binascii
import enum
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import orjson

from griphub.store.cursor import EpochInterval
from griphub.store.event import Event, Operation
from griphub.topics.times import second_text

__all__ = [
    "ContentKind",
    "Epochs",
    "Representation",
    "content_kind",
    "control_text",
    "empty_text",
    "event_json",
    "event_json_of",
    "progress_text",
    "render",
    "render_events",
    "render_text",
]


class Representation(enum.Enum):
    """Form in which a follower gets events."""

    SSE = "sse"
    """Event stream: a block for each event."""
    LINES = "lines"
    """NDJSON: a line for each event."""
    WS = "ws"
    """A text message for each event."""
    POLL = "poll"
    """JSON page: members of an array."""
    WATCH_SSE = "wsse"
    """Event stream of a watcher: progress too."""
    WATCH_LINES = "wlines"
    """NDJSON of a watcher."""
    WATCH_WS = "wws"
    """Text messages of a watcher."""

    @property
    def watches(self) -> bool:
        """True for a watcher, which gets progress as well."""
        return self in _FRAMES

    @property
    def frame(self) -> Representation:
        """Form of the contents: that of a follower without progress."""
        return _FRAMES.get(self, self)

    @property
    def watching(self) -> Representation:
        """Form of a watcher with these contents; none watches by ``POLL``."""
        return next(watch for watch, frame in _FRAMES.items() if frame is self.frame)


_FRAMES: Final = {
    Representation.WATCH_SSE: Representation.SSE,
    Representation.WATCH_LINES: Representation.LINES,
    Representation.WATCH_WS: Representation.WS,
}
"""Form of the contents of each form of watching."""


class ContentKind(enum.Enum):
    """Way in which a content lies in the JSON of its event."""

    JSON = "json"
    """As a JSON value, ``data``."""
    TEXT = "text"
    """As a JSON string, ``data``, if it is UTF-8; else as ``data_base64``."""
    BINARY = "binary"
    """As a JSON string in base64, ``data_base64``."""


class Epochs:
    """Epochs of a store, which make a cursor of an id.

    Args:
        intervals: of all epochs, the oldest first; at least one.
    """

    __slots__ = ("_intervals", "current", "first")

    def __init__(self, intervals: Sequence[EpochInterval]) -> None:
        self._intervals = tuple(intervals)
        self.current: Final = self._intervals[-1].epoch.encode()
        """Name of the current epoch."""
        self.first: Final = self._intervals[-1].first
        """Least id of the current epoch."""

    def cursor(self, id: int) -> str:
        """Return the cursor of an ``id``; ``0`` for the beginning."""
        if id >= self.first:
            return f"{self.current.decode()}.{id}"
        return f"{self.name(id).decode()}.{id}" if id else "0"

    def name(self, id: int) -> bytes:
        """Return the name of the epoch in which an ``id`` was issued.

        The place before the first id of an epoch belongs to it, unless the epoch before issued that id.
        """
        if id >= self.first:
            return self.current
        for interval in self._intervals:
            if interval.last is not None and interval.first <= id <= interval.last:
                return interval.epoch.encode()
        for interval in reversed(self._intervals):
            if interval.first - 1 <= id:
                return interval.epoch.encode()
        return self._intervals[0].epoch.encode()


@lru_cache(maxsize=1024)
def content_kind(content_type: str) -> ContentKind:
    """Return the way in which contents of a media type are embedded.

    Args:
        content_type: media type with its parameters. A text in another charset than UTF-8 is binary.
    """
    essence, _, parameters = content_type.partition(";")
    essence = essence.strip().lower()
    if essence == "application/json" or essence.endswith("+json"):
        return ContentKind.JSON
    if not essence.startswith("text/"):
        return ContentKind.BINARY
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        charset = value.strip().strip('"').lower()
        if name.strip().lower() == "charset" and charset not in ("utf-8", "utf8", "us-ascii", "ascii"):
            return ContentKind.BINARY
    return ContentKind.TEXT


@lru_cache(maxsize=1024)
def _content_member(content_type: str) -> tuple[bytes, bool]:
    """Return the member of a media type, and whether its contents are JSON."""
    return b'"content_type":' + orjson.dumps(content_type), content_kind(content_type) is ContentKind.JSON


def event_json_of(
    id: int,
    prev_id: int,
    version: int,
    time: int,
    data: bytes,
    content_type: str,
    key: str | None,
    op: Operation,
    attributes: str | None,
    epochs: Epochs,
) -> bytes:
    """Return the JSON object of an event in one line, from plain values.

    Args:
        id: its id.
        prev_id: id of the event before it in the range that is read; 0 for none.
        version: id of the last event of its publication.
        time: of storing, in microseconds since 1970.
        data: content in bytes; valid JSON if its media type is one of JSON.
        content_type: media type of the content.
        key: its key; None for none.
        op: effect on the key.
        attributes: names and values, as a JSON object in one line; None or empty for none.
        epochs: those of the store.
    """
    second, micro = divmod(time, 1_000_000)
    if id >= epochs.first:
        epoch = epochs.current
        version_epoch = epoch
    else:
        epoch = epochs.name(id)
        version_epoch = epochs.name(version)
    member, is_json = _content_member(content_type)
    if key is not None:
        member = b'"key":%b,"op":"%b",%b' % (orjson.dumps(key), op.encode(), member)
    if attributes:
        member = b'%b,"attributes":%b' % (member, attributes.encode())
    if is_json and data:
        if b"\n" in data or b"\r" in data:
            # In valid JSON these are white space between tokens.
            data = data.translate(_ONE_LINE)
        return (
            b'{"type":"event","id":"%d","cursor":"%b.%d","prev_id":"%d","version":"%d","version_cursor":"%b.%d",'
            b'"time":"%b.%06dZ",%b,"data":%b}'
        ) % (id, epoch, id, prev_id, version, version_epoch, version, second_text(second), micro, member, data)
    return (
        b'{"type":"event","id":"%d","cursor":"%b.%d","prev_id":"%d","version":"%d","version_cursor":"%b.%d",'
        b'"time":"%b.%06dZ",%b%b}'
    ) % (
        *(id, epoch, id, prev_id, version, version_epoch, version, second_text(second), micro, member),
        # A content of JSON is empty only if there is none, as in a CloudEvent without data.
        b"" if not data and (is_json or op == "delete") else _data_member(data, content_type),
    )


_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")


def _data_member(data: bytes, content_type: str) -> bytes:
    """Return the member of a content that is no JSON."""
    if content_kind(content_type) is ContentKind.TEXT:
        try:
            return b',"data":%b' % orjson.dumps(data.decode())
        except UnicodeDecodeError:
            # Text that is no UTF-8 is given as it was published.
            pass
    return b',"data_base64":"%b"' % binascii.b2a_base64(data, newline=False)


def event_json(event: Event, prev_id: int, epochs: Epochs) -> bytes:
    """Return the JSON object of an event in one line.

    Args:
        event: the event.
        prev_id: id of the event before it in the range that is read; 0 for none.
        epochs: those of the store.
    """
    attributes = orjson.dumps(dict(event.attributes)).decode() if event.attributes else None
    return event_json_of(
        event.id,
        prev_id,
        event.version,
        event.time,
        event.data,
        event.content_type,
        event.key,
        event.op,
        attributes,
        epochs,
    )


def render_text(text: bytes, cursor: str, representation: Representation) -> bytes:
    """Return the JSON of an event in the frame of a representation.

    Args:
        text: JSON object of the event, in one line.
        cursor: of the event.
        representation: form of the contents; in ``WS`` and ``POLL`` there is no frame.
    """
    if representation is Representation.SSE:
        return b"id: %b\ndata: %b\n\n" % (cursor.encode(), text)
    return text + b"\n" if representation is Representation.LINES else text


def render(event: Event, prev_id: int, epochs: Epochs, representation: Representation) -> bytes:
    """Return one event as a follower gets it.

    Args:
        event: the event.
        prev_id: id of the event before it in the range that is read; 0 for none.
        epochs: those of the store.
        representation: form of the contents.
    """
    text = event_json(event, prev_id, epochs)
    if representation is Representation.SSE:
        return b"id: %b.%d\ndata: %b\n\n" % (epochs.name(event.id), event.id, text)
    return text + b"\n" if representation is Representation.LINES else text


def render_events(
    events: Iterable[Event], first_prev: int | None, epochs: Epochs, representation: Representation
) -> bytes:
    """Return events in order, as one follower gets them.

    Args:
        events: of one range, in order, none of the range left out between them.
        first_prev: id of the range's event before the first; None: the events' own, those of the whole topic.
        epochs: those of the store.
        representation: form of the contents; the objects of ``POLL`` are joined by commas, messages of ``WS`` by
            line feeds.
    """
    texts = []
    prev_id, representation = first_prev, representation.frame
    for event in events:
        texts.append(render(event, event.prev_id if prev_id is None else prev_id, epochs, representation))
        if prev_id is not None:
            prev_id = event.id
    return _JOINTS[representation].join(texts)


_JOINTS: Final = {
    Representation.SSE: b"",
    Representation.LINES: b"",
    Representation.WS: b"\n",
    Representation.POLL: b",",
}

_CONTROL_IDS: Final = {"resync": b"id: resync\n"}
"""Lines of control events that have an id in event streams: a client that reconnects sends it back."""


def control_text(kind: str, members: bytes, representation: Representation) -> bytes:
    """Return a report to a follower, which is no event of the topic.

    Args:
        kind: ``resync``, ``truncated`` or ``expired``. Only ``resync`` becomes the last id of an event stream.
        members: JSON object of the report in one line, its ``type`` included.
        representation: form of the contents.
    """
    representation = representation.frame
    if representation is Representation.SSE:
        return b"event: %b\n%bdata: %b\n\n" % (kind.encode(), _CONTROL_IDS.get(kind, b""), members)
    return members + b"\n" if representation is Representation.LINES else members


def empty_text(cursor: str, representation: Representation) -> bytes:
    """Return a content without an event, which moves the position of a follower.

    Args:
        cursor: the position.
        representation: form of the contents; only event streams have such a content, others get no bytes.
    """
    return b"id: %b\n\n" % cursor.encode() if representation.frame is Representation.SSE else b""


def progress_text(
    version: int, cursor: str, low: str | None, high: str | None, representation: Representation
) -> bytes:
    """Return progress: all events of a range up to a version were given.

    Args:
        version: the version.
        cursor: of the progress. In an event stream it becomes the last id.
        low: least key of the range; None for no bound.
        high: first key beyond; None for no bound.
        representation: form of the contents.
    """
    members = b'{"type":"progress","low":%b,"high":%b,"version":"%d","cursor":"%b"}' % (
        orjson.dumps(low),
        orjson.dumps(high),
        version,
        cursor.encode(),
    )
    if representation.frame is Representation.SSE:
        return b"event: progress\nid: %b\ndata: %b\n\n" % (cursor.encode(), members)
    return members + b"\n" if representation.frame is Representation.LINES else members
