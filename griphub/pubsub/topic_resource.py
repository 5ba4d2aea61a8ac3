"""Topics as the API has them, and the settings of the hub's topics that they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from griphub.pubsub.durations import DAY, MINUTE, spoken
from griphub.pubsub.field_mask import Updatable
from griphub.pubsub.names import ResourceName, check_labels
from griphub.pubsub.proto_json import Field, Kind, MessageType, Values
from griphub.pubsub.status import invalid

__all__ = ["RETENTION_MAX", "RETENTION_MIN", "TOPIC", "TOPIC_UPDATE", "UPDATE_TOPIC", "check_retention", "check_topic"]

RETENTION_MIN: Final = 10 * MINUTE
RETENTION_MAX: Final = 31 * DAY
"""Bounds of a retention, in nanoseconds."""

TOPIC: Final = MessageType(
    "Topic",
    (
        Field("name", Kind.STRING),
        Field("labels", Kind.STRINGS),
        Field("messageRetentionDuration", Kind.DURATION),
        Field("state", Kind.OUTPUT),
        Field("satisfiesPzs", Kind.OUTPUT),
        Field("schemaSettings", Kind.STRING, reason="the hub has no schemas"),
        Field("kmsKeyName", Kind.STRING, reason="the hub encrypts no stored data"),
        Field("messageStoragePolicy", Kind.STRING, reason="the hub has one place of storage"),
        Field("ingestionDataSourceSettings", Kind.STRING, reason="the hub reads no other services"),
        Field("messageTransforms", Kind.STRING, reason="the hub does not transform messages"),
        Field("tags", Kind.STRINGS, reason="the hub has no tags: use labels"),
    ),
)
"""Topic."""

TOPIC_UPDATE: Final = MessageType(
    "UpdateTopicRequest", (Field("topic", Kind.MESSAGE, TOPIC), Field("updateMask", Kind.STRING))
)
"""Body of an update."""

UPDATE_TOPIC: Final = Updatable(TOPIC, "UpdateTopicRequest", frozenset(("labels", "messageRetentionDuration")))
"""Fields of a topic that can be changed."""


def check_retention(value: int) -> int:
    """Check a retention.

    Args:
        value: nanoseconds.

    Returns:
        The value.

    Raises:
        ApiError: INVALID_ARGUMENT, it is out of bounds.
    """
    if not RETENTION_MIN <= value <= RETENTION_MAX:
        raise invalid(
            f"The value for message retention duration is out of bounds. You passed {spoken(value)} in the request,"
            f" but the value must be between {spoken(RETENTION_MIN)} and {spoken(RETENTION_MAX)}."
        )
    return value


def check_topic(name: ResourceName, values: Mapping[str, Any]) -> Values:
    """Return the fields of a topic, checked.

    Args:
        name: of the topic; that in the fields is ignored.
        values: of its fields.

    Raises:
        ApiError: INVALID_ARGUMENT, one is not allowed.
    """
    found: Values = {"name": str(name)}
    if labels := values.get("labels"):
        found["labels"] = check_labels(labels)
    if (retention := values.get("messageRetentionDuration")) is not None:
        found["messageRetentionDuration"] = check_retention(retention)
    return found
