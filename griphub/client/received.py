"""Events and reports as a hub gives them: objects of its JSON, checked and decoded."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from griphub.client.errors import BadAnswer, Gone, Problem

__all__ = ["ReceivedEvent", "Truncated", "document_of", "gone_of"]


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """Event of a topic.

    Attributes:
        id: decimal id in the store.
        cursor: place behind the event, to go on from.
        prev_id: id of the event before, of the whole topic or of the range that is read; ``0`` for none.
        version_cursor: place behind the last event of the transaction.
        time: time of storing, RFC 3339, UTC, with microseconds.
        key: key; None for none.
        op: ``put`` or ``delete``; None without a key.
        content_type: media type of the data.
        attributes: texts by name.
        data: JSON value, text, or bytes, by the content type; None for a deletion without content.
        document: the object as it was received.
    """

    id: str
    cursor: str
    prev_id: str
    version_cursor: str
    time: str
    key: str | None
    op: str | None
    content_type: str
    attributes: Mapping[str, str]
    data: Any
    document: Mapping[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return the event of an object of the API.

        Args:
            document: the object.

        Raises:
            BadAnswer: a member is missing, or has another type.
        """
        try:
            texts = [document[name] for name in ("id", "cursor", "prev_id", "version_cursor", "time", "content_type")]
            if not all(isinstance(text, str) for text in texts):
                raise TypeError
            data = document.get("data")
            if "data_base64" in document:
                data = base64.b64decode(document["data_base64"], validate=True)
            id, cursor, prev_id, version_cursor, time, content_type = texts
            return cls(
                id,
                cursor,
                prev_id,
                version_cursor,
                time,
                document.get("key"),
                document.get("op"),
                content_type,
                document.get("attributes", {}),
                data,
                document,
            )
        except (LookupError, TypeError, ValueError) as error:
            raise BadAnswer(f"no event: {str(document)[:200]}") from error


@dataclass(frozen=True, slots=True)
class Truncated:
    """Report that the reading begins at the floor, since the events before are not retained.

    Attributes:
        floor_cursor: place from which all events are retained.
        oldest_time: earliest time from which all events are retained, RFC 3339; None if there is none.
    """

    floor_cursor: str
    oldest_time: str | None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return the report of an object of the API.

        Args:
            document: the object.
        """
        oldest = document.get("oldest_time")
        return cls(str(document.get("floor_cursor")), oldest if isinstance(oldest, str) else None)


def document_of(text: bytes | str) -> dict[str, Any]:
    """Return the JSON object of an answer.

    Args:
        text: JSON.

    Raises:
        BadAnswer: it is no JSON object.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"no JSON: {text[:200]!r}") from error
    if not isinstance(document, dict):
        raise BadAnswer(f"no JSON object: {text[:200]!r}")
    return document


def gone_of(document: Mapping[str, Any]) -> Gone:
    """Return the error of a block ``resync``, which ends a stream.

    Args:
        document: its object.
    """
    members = {name: value for name, value in document.items() if name not in ("type", "reason")}
    reason = str(document.get("reason") or "the events that follow are not retained")
    return Gone(Problem(410, "gone", "", reason, members))
