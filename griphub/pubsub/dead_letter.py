"""Dead letter: the message that takes the place of one whose attempts have all failed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from griphub.pubsub.message import ORDERING_KEY, Message

__all__ = ["dead_letter_attributes"]

_PREFIX: Final = "CloudPubSubDeadLetterSource"


def dead_letter_attributes(message: Message, project: str, subscription: str, attempts: int) -> Mapping[str, str]:
    """Return the attributes of the event that is the dead letter of a message.

    They are those of the message, its ordering key among them, and the four that name where it comes from. A message
    that was a dead letter before names its latest source.

    Args:
        message: the message.
        project: project of the subscription that gives it up.
        subscription: id of the subscription in its project.
        attempts: deliveries of the message.
    """
    published = datetime.fromtimestamp(message.time / 1_000_000, UTC).isoformat(timespec="milliseconds")
    found = {
        **message.attributes,
        f"{_PREFIX}DeliveryCount": str(attempts),
        f"{_PREFIX}Subscription": subscription,
        f"{_PREFIX}SubscriptionProject": project,
        f"{_PREFIX}TopicPublishTime": published,
    }
    if message.ordering_key:
        found[ORDERING_KEY] = message.ordering_key
    return found
