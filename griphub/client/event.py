"""Events as a publisher hands them in, in the two forms that the hub reads, and the receipts of stored ones."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import quote

from griphub.client.errors import BadAnswer

__all__ = ["BATCH_TYPE", "JSON_TYPE", "NewEvent", "Operation", "Receipt", "receipts_of"]

Operation = Literal["put", "delete"]

JSON_TYPE: Final = "application/json"
BINARY_TYPE: Final = "application/octet-stream"

BATCH_TYPE: Final = "application/vnd.griphub.events+json"
"""Content type of a batch; ``application/json`` would leave open whether the object is an event."""

_Json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _is_json(content_type: str) -> bool:
    bare = content_type.partition(";")[0].strip().lower()
    return bare == JSON_TYPE or bare.endswith("+json")


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Event to be published.

    Attributes:
        data: content. ``bytes`` are taken as they are. Anything else is written as JSON, but a ``str`` whose
            ``content_type`` is not JSON is the text itself, in UTF-8.
        key: key; None for an event of the whole topic only.
        op: ``put`` or ``delete``; None for the hub's default, ``put`` if there is a key.
        attributes: texts by name.
        content_type: media type of the data; None for ``application/octet-stream`` for bytes and
            ``application/json`` for anything else.
    """

    data: Any = None
    key: str | None = None
    op: Operation | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None

    def __post_init__(self) -> None:
        if self.op not in (None, "put", "delete"):
            raise ValueError(f"op must be 'put' or 'delete', not {self.op!r}")
        if self.op is not None and self.key is None:
            raise ValueError(f"op {self.op!r} needs a key: it is about the value of one")
        as_json = not isinstance(self.data, (bytes, str)) and not self._empty
        if as_json and self.content_type is not None and not _is_json(self.content_type):
            kind = type(self.data).__name__
            raise ValueError(f"data of type {kind} is written as JSON: it cannot be {self.content_type!r}")

    @property
    def _empty(self) -> bool:
        """True if there is no content: a deletion needs none."""
        return self.op == "delete" and self.data is None

    def member(self) -> bytes:
        """Return the event as member of a batch.

        Returns:
            JSON in UTF-8.

        Raises:
            ValueError: the data cannot be written as JSON, or a text is not Unicode.
        """
        members: dict[str, Any] = {}
        kind = self.content_type
        if self._empty:
            pass
        elif isinstance(self.data, bytes):
            members["data_base64"] = base64.b64encode(self.data).decode()
        elif isinstance(self.data, str) and kind is not None and not _is_json(kind) and not kind.startswith("text/"):
            members["data_base64"] = base64.b64encode(self.data.encode()).decode()
        else:
            members["data"] = self.data
        if kind is not None:
            members["content_type"] = kind
        if self.key is not None:
            members["key"] = self.key
        if self.op is not None:
            members["op"] = self.op
        if self.attributes:
            members["attributes"] = dict(self.attributes)
        return _encoded(members)

    def content(self) -> bytes:
        """Return the content by itself, as the body of a request with one event.

        Returns:
            The bytes of the data.

        Raises:
            ValueError: the data cannot be written as JSON, or a text is not Unicode.
        """
        if self._empty:
            return b""
        if isinstance(self.data, bytes):
            return self.data
        if isinstance(self.data, str) and self.content_type is not None and not _is_json(self.content_type):
            return self.data.encode()
        return _encoded(self.data)

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers of a request with one event.

        Returns:
            Names and values; the key is percent-encoded, the attributes are JSON in ASCII.
        """
        default = BINARY_TYPE if isinstance(self.data, bytes) else JSON_TYPE
        headers = [("Content-Type", self.content_type or default)]
        if self.key is not None:
            headers.append(("Event-Key", quote(self.key, safe="")))
        if self.op is not None:
            headers.append(("Event-Op", self.op))
        if self.attributes:
            headers.append(("Event-Attributes", json.dumps(dict(self.attributes))))
        return headers


def _encoded(value: Any) -> bytes:
    try:
        return _Json.encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"data that is no JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class Receipt:
    """Place and time of a stored event.

    Attributes:
        id: decimal id in the store.
        cursor: place behind the event, to go on from.
        time: time of storing, RFC 3339, UTC, with microseconds.
        version_cursor: place behind the last event of the transaction.
        repeated: whether an earlier attempt had stored it, and this is its answer again.
    """

    id: str
    cursor: str
    time: str
    version_cursor: str
    repeated: bool = False


def receipts_of(body: bytes, number: int, *, repeated: bool = False) -> list[Receipt]:
    """Return the receipts of a request that was answered with 201.

    Args:
        body: of the answer.
        number: of events in the request.
        repeated: whether the answer has ``Idempotency-Replayed: true``.

    Returns:
        One for each event, in the order of the request.

    Raises:
        BadAnswer: the body is not that of a hub, or has another number of events.
    """
    try:
        document = json.loads(body)
        version = str(document["version_cursor"])
        receipts = [
            Receipt(str(entry["id"]), str(entry["cursor"]), str(entry["time"]), version, repeated)
            for entry in document["events"]
        ]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise BadAnswer("the answer does not name the stored events") from error
    if len(receipts) != number:
        raise BadAnswer(f"the answer names {len(receipts)} events, {number} were published")
    return receipts
