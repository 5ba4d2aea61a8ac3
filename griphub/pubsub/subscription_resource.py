"""Subscriptions as the API has them: fields, defaults and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from griphub.pubsub.durations import DAY, SECOND, spoken
from griphub.pubsub.field_mask import Updatable
from griphub.pubsub.filter import parse_filter
from griphub.pubsub.names import DELETED_TOPIC, ResourceName, check_labels, parse_name
from griphub.pubsub.proto_json import Field, Kind, MessageType, Values
from griphub.pubsub.push_config import PUSH_CONFIG, check_push_config
from griphub.pubsub.status import invalid, out_of_range
from griphub.pubsub.topic_resource import check_retention

__all__ = [
    "ATTEMPTS_DEFAULT",
    "MODIFY_PUSH_CONFIG",
    "SUBSCRIPTION",
    "SUBSCRIPTION_UPDATE",
    "UPDATE_SUBSCRIPTION",
    "check_subscription",
]

ACK_DEADLINE_DEFAULT: Final = 10
ACK_DEADLINE_MIN: Final = 10
ACK_DEADLINE_MAX: Final = 600
"""Seconds for an acknowledgement."""

RETENTION_DEFAULT: Final = 7 * DAY
TTL_DEFAULT: Final = 31 * DAY
TTL_MIN: Final = DAY
BACKOFF_MIN_DEFAULT: Final = 10 * SECOND
BACKOFF_MAX: Final = 600 * SECOND
"""Nanoseconds of retention, of the life of an unused subscription, and of pauses before a repetition."""

ATTEMPTS_DEFAULT: Final = 5
ATTEMPTS_MIN: Final = 5
ATTEMPTS_MAX: Final = 100
"""Deliveries of a message before it goes to the dead letter topic."""

EXPIRATION: Final = MessageType("ExpirationPolicy", (Field("ttl", Kind.DURATION),))
DEAD_LETTER: Final = MessageType(
    "DeadLetterPolicy", (Field("deadLetterTopic", Kind.STRING), Field("maxDeliveryAttempts", Kind.INT32))
)
RETRY: Final = MessageType(
    "RetryPolicy", (Field("minimumBackoff", Kind.DURATION), Field("maximumBackoff", Kind.DURATION))
)
SUBSCRIPTION: Final = MessageType(
    "Subscription",
    (
        Field("name", Kind.STRING),
        Field("topic", Kind.STRING),
        Field("pushConfig", Kind.MESSAGE, PUSH_CONFIG),
        Field("ackDeadlineSeconds", Kind.INT32),
        Field("retainAckedMessages", Kind.BOOL),
        Field("messageRetentionDuration", Kind.DURATION),
        Field("labels", Kind.STRINGS),
        Field("enableMessageOrdering", Kind.BOOL),
        Field("expirationPolicy", Kind.MESSAGE, EXPIRATION),
        Field("filter", Kind.STRING),
        Field("deadLetterPolicy", Kind.MESSAGE, DEAD_LETTER),
        Field("retryPolicy", Kind.MESSAGE, RETRY),
        Field("detached", Kind.OUTPUT),
        Field("topicMessageRetentionDuration", Kind.OUTPUT),
        Field("state", Kind.OUTPUT),
        Field("analyticsHubSubscriptionInfo", Kind.OUTPUT),
        Field("enableExactlyOnceDelivery", Kind.BOOL, reason="exactly-once delivery is not served"),
        Field("bigqueryConfig", Kind.STRING, reason="the hub writes to no other services"),
        Field("cloudStorageConfig", Kind.STRING, reason="the hub writes to no other services"),
        Field("bigtableConfig", Kind.STRING, reason="the hub writes to no other services"),
        Field("messageTransforms", Kind.STRING, reason="the hub does not transform messages"),
        Field("tags", Kind.STRINGS, reason="the hub has no tags: use labels"),
    ),
)
"""Subscription."""

SUBSCRIPTION_UPDATE: Final = MessageType(
    "UpdateSubscriptionRequest", (Field("subscription", Kind.MESSAGE, SUBSCRIPTION), Field("updateMask", Kind.STRING))
)
"""Body of an update."""

MODIFY_PUSH_CONFIG: Final = MessageType("ModifyPushConfigRequest", (Field("pushConfig", Kind.MESSAGE, PUSH_CONFIG),))
"""Body of a change of the push config."""

UPDATE_SUBSCRIPTION: Final = Updatable(
    SUBSCRIPTION,
    "UpdateSubscriptionRequest",
    frozenset(
        (
            *("ackDeadlineSeconds", "pushConfig", "labels", "expirationPolicy", "retainAckedMessages"),
            *("messageRetentionDuration", "retryPolicy", "deadLetterPolicy", "enableExactlyOnceDelivery"),
        )
    ),
)
"""Fields of a subscription that can be changed."""


def check_subscription(name: ResourceName, values: Mapping[str, Any], *, plain: bool = False) -> Values:
    """Return the fields of a subscription, checked, with their defaults.

    Args:
        name: of the subscription; that in the fields is ignored.
        values: of its fields.
        plain: whether an endpoint may be an http URL.

    Raises:
        ApiError: INVALID_ARGUMENT or OUT_OF_RANGE, one is not allowed.
    """
    found: Values = {"name": str(name)}
    topic = values.get("topic", "")
    found["topic"] = topic if topic == DELETED_TOPIC else str(parse_name(topic, "topics"))
    found["pushConfig"] = check_push_config(values.get("pushConfig") or {}, plain=plain)
    found["ackDeadlineSeconds"] = _ack_deadline(values.get("ackDeadlineSeconds") or ACK_DEADLINE_DEFAULT)
    for flag in ("retainAckedMessages", "enableMessageOrdering"):
        if values.get(flag):
            found[flag] = True
    ttl = found["expirationPolicy"] = _expiration(values.get("expirationPolicy"))
    # A subscription that expires sooner has no use for older messages.
    longest = min(RETENTION_DEFAULT, ttl.get("ttl", RETENTION_DEFAULT))
    found["messageRetentionDuration"] = check_retention(values.get("messageRetentionDuration", longest))
    if labels := values.get("labels"):
        found["labels"] = check_labels(labels)
    if text := values.get("filter"):
        parse_filter(text)
        found["filter"] = text
    if policy := values.get("deadLetterPolicy"):
        found["deadLetterPolicy"] = _dead_letter(policy)
    if (retry := values.get("retryPolicy")) is not None:
        found["retryPolicy"] = _retry(retry)
    return found


def _ack_deadline(seconds: int) -> int:
    if not ACK_DEADLINE_MIN <= seconds <= ACK_DEADLINE_MAX:
        least = 0 if seconds > ACK_DEADLINE_MAX else ACK_DEADLINE_MIN
        raise invalid(
            f"Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be between {least} and"
            f" {ACK_DEADLINE_MAX} seconds."
        )
    return seconds


def _expiration(policy: Mapping[str, Any] | None) -> Values:
    if policy is None:
        return {"ttl": TTL_DEFAULT}
    ttl = policy.get("ttl")
    if ttl is None:
        return {}
    if ttl < TTL_MIN:
        raise invalid(
            f"The value for expiration duration is too small. You passed {spoken(ttl)} in the request,"
            f" but the minimum value is {spoken(TTL_MIN)}."
        )
    return {"ttl": ttl}


def _dead_letter(policy: Mapping[str, Any]) -> Values:
    topic = parse_name(policy.get("deadLetterTopic", ""), "topics")
    attempts = policy.get("maxDeliveryAttempts") or ATTEMPTS_DEFAULT
    if not ATTEMPTS_MIN <= attempts <= ATTEMPTS_MAX:
        size = "small" if attempts < ATTEMPTS_MIN else "large"
        raise out_of_range(
            f"The value for max_delivery_attempts is too {size}. You passed {attempts} in the request,"
            f" but the value must be between {ATTEMPTS_MIN} and {ATTEMPTS_MAX}."
        )
    return {"deadLetterTopic": str(topic), "maxDeliveryAttempts": attempts}


def _retry(policy: Mapping[str, Any]) -> Values:
    least = policy.get("minimumBackoff", BACKOFF_MIN_DEFAULT)
    most = policy.get("maximumBackoff", max(BACKOFF_MAX, least))
    for noun, value in (("minimum_backoff", least), ("maximum_backoff", most)):
        if not 0 <= value <= BACKOFF_MAX:
            raise invalid(
                f"The value for {noun} is out of bounds. You passed {spoken(value)} in the request,"
                f" but the value must be between 0s and {spoken(BACKOFF_MAX)}."
            )
    if most < least:
        raise invalid(
            f"The value for maximum_backoff is too small. You passed {spoken(most)} in the request, but it must not"
            f" be less than minimum_backoff, which is {spoken(least)}."
        )
    return {"minimumBackoff": least, "maximumBackoff": most}
