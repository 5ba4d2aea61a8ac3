"""Plain forms of subscriptions of the push API: rows, as they cross between processes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson

from griphub.store.plain_records import Row, attempts_json
from griphub.store.pubsub_subscription import NO_ATTEMPTS, PubsubSubscription

__all__ = [
    "PUBSUB_COLUMNS",
    "attempts_of",
    "plain_pubsub",
    "pubsub_of",
    "pubsub_settings_json",
]

PUBSUB_COLUMNS: Final = "n, project, id, t, owner, settings, position, acked, attempts, generation, created, used"


def pubsub_settings_json(settings: Mapping[str, Any]) -> str:
    """Return the ``settings`` of a subscription as the table has them."""
    return orjson.dumps(dict(settings)).decode()


def attempts_of(text: str) -> Mapping[int, int]:
    """Return the numbers of deliveries by id of the message.

    Args:
        text: as the table has them.
    """
    if text == "{}":
        return NO_ATTEMPTS
    return MappingProxyType({int(id): number for id, number in orjson.loads(text).items()})


def pubsub_of(row: Row) -> PubsubSubscription:
    """Return the subscription of a ``row`` with ``PUBSUB_COLUMNS``."""
    number, project, id, topic, owner, settings, position, acked, attempts, generation, created, used = row
    return PubsubSubscription(
        *(number, project, id, topic, owner, MappingProxyType(orjson.loads(settings)), position, acked),
        *(attempts_of(attempts), generation, created, used),
    )


def plain_pubsub(subscription: PubsubSubscription) -> Row:
    """Return the plain form of a ``subscription``: a row with ``PUBSUB_COLUMNS``."""
    return (
        *(subscription.number, subscription.project, subscription.id, subscription.topic, subscription.owner),
        *(pubsub_settings_json(subscription.settings), subscription.position, subscription.acked),
        *(attempts_json(subscription.attempts), subscription.generation, subscription.created, subscription.used),
    )
