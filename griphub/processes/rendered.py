"""Rendered pages: the events of a page as the bytes that a follower gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import orjson

from griphub.store.plain_records import OPERATIONS, Row
from griphub.store.topic import Topic
from griphub.topics.event_text import ContentKind, Epochs, Representation, content_kind, event_json_of
from griphub.topics.times import second_text

__all__ = ["PageText", "RenderedPage", "RenderedSnapshot"]


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


PIECE: Final = 256
"""Events rendered at a time: few enough to stay in the processor's cache."""

_ENDS: Final = {
    Representation.SSE: b"}\n\n",
    Representation.LINES: b"}\n",
    Representation.WS: b"}\n",
    Representation.POLL: b"},",
}
"""End of an object, with the frame or the separator behind it."""

_SEPARATORS: Final = {Representation.WS: b"\n", Representation.POLL: b","}
"""Separators, in forms in which nothing is behind the last object."""

_SECOND: Final = 1_000_000
"""Microseconds."""

_NEXT: Final = "\0"
"""Separator of heads, which are JSON in part: it has no control characters."""


class PageText:
    """Text of a page, made piece by piece.

    Most of an event's text is made by calls for a whole piece, since a call for each event costs more than its text.
    Small pieces use the same memory again and again, which large ones would have the system clear each time.

    Args:
        epochs: those of the store.
        representation: form of the contents.
        first_prev: id of the range's event before the first; None: the events' own, those of the whole topic.
    """

    def __init__(self, epochs: Epochs, representation: Representation, first_prev: int | None = None) -> None:
        self._epochs = epochs
        self._representation = representation.frame
        self._before = first_prev
        self._begun = False

    def pieces(self, rows: Sequence[Row]) -> Iterator[bytes]:
        """Yield the text of further events, to be joined with that of the earlier ones.

        Args:
            rows: with ``EVENT_COLUMNS``, in order.
        """
        end = _ENDS[self._representation]
        separator = _SEPARATORS.get(self._representation, b"")
        for begin in range(0, len(rows), PIECE):
            heads, values = self._heads_and_values(rows[begin : begin + PIECE])
            parts = [end] * (3 * len(heads))
            parts[0::3] = _NEXT.join(heads).encode().split(_NEXT.encode())
            parts[1::3] = values
            if separator:
                parts[-1] = end[:1]
                if self._begun:
                    parts.insert(0, separator)
            self._begun = True
            yield b"".join(parts)

    def _heads_and_values(self, rows: Sequence[Row]) -> tuple[list[str], list[bytes]]:
        """Return for each event the text before its content, and its content.

        The text of an event with anything unusual is its content, but for the closing brace.
        """
        epochs, before = self._epochs, self._before
        current, first = epochs.current.decode(), epochs.first
        sse = self._representation is Representation.SSE
        heads: list[str] = []
        values: list[bytes] = []
        texts: list[str] = []
        places: list[int] = []
        # Texts of numbers that are equal in many events, or equal to another of the same event.
        known, member, kind = None, "", ContentKind.BINARY
        number, versions, moment, begin = -1, "", "", -_SECOND
        previous_id, previous_text = -1, ""
        for id, previous, version, time, data, content_type, key, op, attributes, _ in rows:
            if before is not None:
                previous, before = before, id
            if content_type != known:
                known = content_type
                member, kind = _member(content_type)
            usual = data and not attributes and id >= first
            if usual and kind is ContentKind.TEXT and (text := _decoded(data)) is not None:
                places.append(len(values))
                values.append(b"")
                texts.append(text)
            elif usual and kind is ContentKind.JSON and 10 not in data and 13 not in data:
                values.append(data)
            else:
                fields = (id, previous, version, time, data, content_type, key, OPERATIONS[op], attributes)
                heads.append(f"id: {epochs.name(id).decode()}.{id}\ndata: " if sse else "")
                values.append(event_json_of(*fields, epochs)[:-1])
                continue
            micro = time - begin
            if not 0 <= micro < _SECOND:
                micro = time % _SECOND
                begin = time - micro
                moment = f',"time":"{second_text(begin // _SECOND).decode()}.'
            if version != number:
                number = version
                versions = f'","version":"{version}","version_cursor":"{current}.{version}"'
            if previous != previous_id:
                previous_text = str(previous)
            text_id = str(id)
            front = f"id: {current}.{text_id}\ndata: " if sse else ""
            keyed = "" if key is None else _keyed(key, op)
            heads.append(
                f'{front}{{"type":"event","id":"{text_id}","cursor":"{current}.{text_id}","prev_id":"{previous_text}'
                f'{versions}{moment}{str(micro + _SECOND)[1:]}Z",{keyed}{member}'
            )
            previous_id, previous_text = id, text_id
        self._before = before
        for place, quoted in zip(places, _quoted(texts), strict=True):
            values[place] = quoted
        return heads, values


@lru_cache(maxsize=1024)
def _member(content_type: str) -> tuple[str, ContentKind]:
    """Return the members between time and content, and the way in which contents of a media type are embedded."""
    return f'"content_type":{orjson.dumps(content_type).decode()},"data":', content_kind(content_type)


def _keyed(key: str, op: int) -> str:
    return f'"key":{orjson.dumps(key).decode()},"op":"{OPERATIONS[op]}",'


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _quoted(texts: list[str]) -> list[bytes]:
    """Return texts as JSON strings, by one call: a line for each, since a JSON string has no line feed."""
    if not texts:
        return []
    return orjson.dumps(texts, option=orjson.OPT_INDENT_2)[_OPEN:-_CLOSE].split(b",\n  ")


_OPEN: Final = len(b"[\n  ")
_CLOSE: Final = len(b"\n]")
