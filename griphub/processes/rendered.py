"""Rendered pages: the events of a page as the bytes that a follower gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from griphub.store.plain_records import OPERATIONS, Row
from griphub.store.topic import Topic
from griphub.topics.event_text import ContentKind, Epochs, Representation, content_kind, event_json_of
from griphub.topics.times import second_text

__all__ = ["RenderedPage", "RenderedSnapshot", "render_rows"]


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """Part of a topic's history, rendered, from one read transaction.

    Attributes:
        topic: the topic then.
        body: texts of the events, as one follower gets them: objects of ``POLL`` are joined by commas, messages of
            ``WS`` by line feeds.
        count: number of events.
        first_id: id of the first event; 0 without events.
        last_event: id of the last event; 0 without events.
        last: id up to which the page is complete.
        more: true if further events follow.
    """

    topic: Topic
    body: bytes
    count: int
    first_id: int
    last_event: int
    last: int
    more: bool


@dataclass(frozen=True, slots=True)
class RenderedSnapshot:
    """Part of a snapshot, rendered as NDJSON, from one read transaction.

    Attributes:
        topic: the topic then.
        body: a line for each event.
        count: number of events.
        next_key: key behind which the next page begins; None after the last.
    """

    topic: Topic
    body: bytes
    count: int
    next_key: str | None


_JOINTS: Final = {Representation.POLL: b",", Representation.WS: b"\n", Representation.LINES: b"\n"}

_FRONT: Final = (
    b'{"type":"event","id":"%d","cursor":"%b.%d","prev_id":"%d","version":"%d","version_cursor":"%b.%d",'
    b'"time":"%b.%06dZ",%b"content_type":%b,"data":%b}'
)
"""Text of an event in JSON of the current epoch without attributes, as ``event_json_of`` makes it."""

_SECOND: Final = 1_000_000
"""Microseconds."""


def render_rows(rows: Sequence[Row], first_prev: int | None, epochs: Epochs, representation: Representation) -> bytes:
    """Return the events of a page as one follower gets them.

    Args:
        rows: with ``EVENT_COLUMNS``, in order.
        first_prev: id of the range's event before the first; None: the events' own, those of the whole topic.
        epochs: those of the store.
        representation: form of the contents.
    """
    texts = _texts(rows, first_prev, epochs)
    if representation is Representation.SSE:
        name = epochs.name
        ids = [row[0] for row in rows]
        return b"".join(
            [b"id: %b.%d\ndata: %b\n\n" % (name(id), id, text) for id, text in zip(ids, texts, strict=True)]
        )
    if representation is Representation.LINES and texts:
        texts.append(b"")
    return _JOINTS[representation].join(texts)


def _texts(rows: Sequence[Row], first_prev: int | None, epochs: Epochs) -> list[bytes]:
    """Return the JSON of events.

    Most are in JSON and of one content type: these are formatted here, since a call for each costs more than its text.
    """
    texts: list[bytes] = []
    add, current, first = texts.append, epochs.current, epochs.first
    begin, second = 0, b""
    members: dict[str, bytes | None] = {}
    before = first_prev
    for id, previous, version, time, data, content_type, key, op, attributes, _ in rows:
        if before is not None:
            previous, before = before, id
        member = members.get(content_type, b"")
        if member == b"":
            is_json = content_kind(content_type) is ContentKind.JSON
            member = members[content_type] = orjson.dumps(content_type) if is_json else None
        if member is None or attributes or not data or id < first or b"\n" in data or b"\r" in data:
            fields = (id, previous, version, time, data, content_type, key, OPERATIONS[op], attributes)
            add(event_json_of(*fields, epochs))
            continue
        micro = time - begin
        if not 0 <= micro < _SECOND:
            micro = time % _SECOND
            begin = time - micro
            second = second_text(begin // _SECOND)
        keyed = b"" if key is None else b'"key":%b,"op":"%b",' % (orjson.dumps(key), OPERATIONS[op].encode())
        add(_FRONT % (id, current, id, previous, version, current, version, second, micro, keyed, member, data))
    return texts
