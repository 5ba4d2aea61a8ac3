"""Messages of the API: publishing requests, and events as messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from griphub.pubsub.durations import MICROSECOND, time_text
from griphub.pubsub.proto_json import Field, Kind, MessageType, encode_bytes, read_message
from griphub.pubsub.status import bad_fields, failed_precondition, invalid

__all__ = [
    "ATTRIBUTES_MAX",
    "MESSAGES_MAX",
    "ORDERING_KEY",
    "PUBLISH",
    "PUBSUB_MESSAGE",
    "Message",
    "PublishedMessage",
    "message_json",
    "read_publish",
]

MESSAGES_MAX: Final = 1000
"""Greatest number of messages of a request."""

SIZE_MAX: Final = 10_000_000
"""Greatest size of the messages of a request, in bytes."""

ATTRIBUTES_MAX: Final = 100
"""Greatest number of attributes of a message."""

ATTRIBUTE_KEY_MAX: Final = 256
"""Greatest length of the key of an attribute, in bytes of UTF-8."""

ATTRIBUTE_VALUE_MAX: Final = 1024
"""Greatest length of the value of an attribute, in bytes of UTF-8."""

ORDERING_KEY_MAX: Final = 1024
"""Greatest length of an ordering key, in bytes of UTF-8."""

ORDERING_KEY: Final = "goog-ordering-key"
"""Attribute of an event that is the ordering key of the message: clients cannot set attributes of that name."""

PUBSUB_MESSAGE: Final = MessageType(
    "PubsubMessage",
    (
        Field("data", Kind.BYTES),
        Field("attributes", Kind.STRINGS),
        Field("messageId", Kind.OUTPUT),
        Field("publishTime", Kind.OUTPUT),
        Field("orderingKey", Kind.STRING),
    ),
)
"""Message."""

PUBLISH: Final = MessageType("PublishRequest", (Field("messages", Kind.MESSAGE, PUBSUB_MESSAGE, repeated=True),))
"""Body of a publishing request."""


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """Message of a publishing request.

    Attributes:
        data: its content.
        attributes: names and values, the ordering key left out.
        ordering_key: key of messages that are delivered in order; empty for none.
    """

    data: bytes
    attributes: Mapping[str, str]
    ordering_key: str

    @property
    def event_attributes(self) -> Mapping[str, str]:
        """Attributes of the event that it becomes."""
        if not self.ordering_key:
            return self.attributes
        return {**self.attributes, ORDERING_KEY: self.ordering_key}


@dataclass(frozen=True, slots=True)
class Message:
    """Stored message.

    Attributes:
        id: of the event.
        time: of its publication, in microseconds since 1970.
        data: its content.
        attributes: names and values, without the ordering key.
        ordering_key: empty for none.
    """

    id: int
    time: int
    data: bytes
    attributes: Mapping[str, str]
    ordering_key: str

    @classmethod
    def of_event(cls, id: int, time: int, data: bytes, attributes: Mapping[str, str], key: str | None) -> Message:
        """Return the message that an event is.

        Args:
            id: of the event.
            time: of its publication, in microseconds since 1970.
            data: its content.
            attributes: its attributes.
            key: its key, which is the ordering key of an event without another one; None for none.
        """
        ordering_key = attributes.get(ORDERING_KEY)
        if ordering_key is None:
            return cls(id, time, data, attributes, key or "")
        return cls(
            id, time, data, {name: text for name, text in attributes.items() if name != ORDERING_KEY}, ordering_key
        )


def message_json(message: Message) -> dict[str, Any]:
    """Return the JSON value of a stored message, without fields that are empty.

    Args:
        message: the message.
    """
    found: dict[str, Any] = {}
    if message.data:
        found["data"] = encode_bytes(message.data)
    if message.attributes:
        found["attributes"] = dict(message.attributes)
    found["messageId"] = str(message.id)
    found["publishTime"] = time_text(message.time * MICROSECOND)
    if message.ordering_key:
        found["orderingKey"] = message.ordering_key
    return found


def read_publish(value: object) -> list[PublishedMessage]:
    """Return the messages of a publishing request.

    Args:
        value: JSON value of its body.

    Raises:
        ApiError: INVALID_ARGUMENT, a bound is exceeded, or a message is empty or malformed; FAILED_PRECONDITION, the
            messages have different ordering keys. No message is to be stored then.
    """
    given = value.get("messages") if isinstance(value, dict) else None
    if isinstance(given, list) and len(given) > MESSAGES_MAX:
        # Before each of them is read.
        raise _count(len(given))
    messages = read_message(PUBLISH, value).get("messages", [])
    if not messages:
        raise _count(0)
    found = [_message(each, f"messages[{number}]") for number, each in enumerate(messages)]
    size = sum([_size(each) for each in found])
    if size > SIZE_MAX:
        raise invalid(
            f"The value for request_size is too large. You passed {size} in the request,"
            f" but the maximum value is {SIZE_MAX}."
        )
    if len({each.ordering_key for each in found}) > 1:
        raise failed_precondition(
            "In a single publish request, all messages must have no ordering key or they must all have the same"
            " ordering key. Publish those of each key by requests of their own."
        )
    return found


def _count(number: int) -> Exception:
    if not number:
        return invalid(
            "The value for message_count is too small. You passed 0 in the request, but the minimum value is 1."
        )
    return invalid(
        f"The value for message_count is too large. You passed {number} in the request,"
        f" but the maximum value is {MESSAGES_MAX}."
    )


def _message(values: Mapping[str, Any], path: str) -> PublishedMessage:
    data, attributes, key = values.get("data", b""), values.get("attributes", {}), values.get("orderingKey", "")
    if not data and not attributes:
        raise invalid(f"{path}: a message needs data or at least one attribute.")
    if len(attributes) > ATTRIBUTES_MAX:
        raise invalid(
            f"{path}: The value for attributes is too large. You passed {len(attributes)} in the request,"
            f" but the maximum value is {ATTRIBUTES_MAX}."
        )
    for name, text in attributes.items():
        if not name or _bytes(name) > ATTRIBUTE_KEY_MAX:
            raise invalid(
                f"{path}: an attribute key has {_bytes(name)} bytes, expected 1 to {ATTRIBUTE_KEY_MAX}: {name[:80]!r}."
            )
        if name.startswith("goog"):
            raise invalid(f"{path}: the attribute key {name[:80]!r} begins with goog, which is reserved.")
        if _bytes(text) > ATTRIBUTE_VALUE_MAX:
            raise invalid(
                f"{path}: the value of the attribute {name[:80]!r} has {_bytes(text)} bytes,"
                f" but the maximum value is {ATTRIBUTE_VALUE_MAX}."
            )
    if _bytes(key) > ORDERING_KEY_MAX:
        raise invalid(f"{path}: the ordering key has {_bytes(key)} bytes, but the maximum value is {ORDERING_KEY_MAX}.")
    return PublishedMessage(data, attributes, key)


def _bytes(text: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise bad_fields([f"Invalid text {text[:80]!r}: half of a surrogate pair"]) from error


def _size(message: PublishedMessage) -> int:
    texts: Sequence[str] = [message.ordering_key, *message.attributes, *message.attributes.values()]
    return len(message.data) + sum(map(_bytes, texts))
