"""Lines of a watch as they arrive: events, progress, and the end. Sans-I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from griphub.client.errors import BadAnswer
from griphub.client.key_range import KeyRange
from griphub.client.received import ReceivedEvent, document_of
from griphub.client.watch_messages import Resync, Version

__all__ = ["EventLine", "Expired", "ProgressLine", "WatchLine", "WatchLines", "checked_event"]

LINE_MAX: Final = 32 * 1024 * 1024
"""Bytes of one line: an event of 10 MB fits, in base64 too. A longer one ends the stream."""


@dataclass(frozen=True, slots=True)
class EventLine:
    """Event of a watch.

    Attributes:
        event: the event.
        version: of its transaction.
        size: bytes of the line.
    """

    event: ReceivedEvent
    version: Version
    size: int

    @property
    def last(self) -> bool:
        """True if it is certainly the last one of its transaction. Of a soft topic that is not known."""
        return self.event.cursor == self.event.version_cursor == str(self.version)


@dataclass(frozen=True, slots=True)
class ProgressLine:
    """Progress of a watch.

    Attributes:
        range: keys of which all events were given.
        version: version up to which they were.
        cursor: place of the progress.
    """

    range: KeyRange
    version: Version
    cursor: str


@dataclass(frozen=True, slots=True)
class Expired:
    """End of the rights of the stream: a new one is opened with a token."""


WatchLine = EventLine | ProgressLine | Resync | Expired


class WatchLines:
    """Lines of one stream. A line counts at its end, so a torn one has no effect.

    Args:
        limit: bytes of one line.
    """

    def __init__(self, limit: int = LINE_MAX) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[WatchLine | None]:
        """Yield the lines that a part of the stream completes.

        Args:
            data: the part.

        Yields:
            Events, progress, and the end; None for an empty line, and for one of another type, which have no meaning.

        Raises:
            BadAnswer: a line is not one of a watch, or has more bytes than the limit.
        """
        self._rest += data
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
            for text in lines:
                yield _line(bytes(text)) if text.strip() else None
        if len(self._rest) > self._limit:
            raise BadAnswer(f"a line has more than {self._limit} bytes")


def _line(text: bytes) -> WatchLine | None:
    document = document_of(text)
    match document.get("type"):
        case "event":
            event = checked_event(document)
            return EventLine(event, Version.of(event.version_cursor), len(text))
        case "progress":
            cursor = document.get("cursor")
            if not isinstance(cursor, str):
                raise BadAnswer(f"no progress: {str(document)[:200]}")
            return ProgressLine(_range(document), Version.of(cursor), cursor)
        case "resync":
            reason = str(document.get("reason") or "the events that follow are not retained")
            return Resync(reason, _text(document, "floor_cursor"), _text(document, "snapshot"))
        case "expired":
            return Expired()
    return None


def checked_event(document: Mapping[str, Any]) -> ReceivedEvent:
    """Return the event of an object, with a key that is one. An event of a soft topic needs a place only.

    Args:
        document: the object.

    Returns:
        The event; texts that a watch may leave out are empty.

    Raises:
        BadAnswer: a member is missing, or has another type.
    """
    optional = {"id": "", "prev_id": "", "time": "", "cursor": "", "content_type": "application/json"}
    if "version_cursor" not in document:
        optional["version_cursor"] = Version.of(str(document.get("cursor"))).end
    event = ReceivedEvent.of({**optional, **document})
    if not event.id:
        event = replace(event, document=document)
    key, op = event.key, event.op
    if key is None:
        if op is not None:
            raise BadAnswer(f"an event has op {op!r:.80} and no key")
        return event
    try:
        valid = op in ("put", "delete") and bool(key.encode())
    except (AttributeError, UnicodeEncodeError):
        valid = False
    if not valid:
        raise BadAnswer(f"no event: key {key!r:.80}, op {op!r:.80}")
    return event


def _range(document: Mapping[str, Any]) -> KeyRange:
    low, high = document.get("low"), document.get("high")
    try:
        return KeyRange.of(low, high)
    except (TypeError, ValueError, AttributeError) as error:
        raise BadAnswer(f"progress of no range: {str(document)[:200]}") from error


def _text(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) else None
