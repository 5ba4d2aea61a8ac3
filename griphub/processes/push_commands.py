"""Frames between the hub and the sender about subscriptions of the push API."""

from __future__ import annotations

from typing import Any, Final

from griphub.store.plain_records import PlainProgress, Row

__all__ = [
    "ACKNOWLEDGE",
    "ACKNOWLEDGED",
    "BACKLOGS",
    "BURIED",
    "BURY",
    "IDENTITY",
    "MODIFIED",
    "MODIFY",
    "PULL",
    "PULLED",
    "PUSH_ADD",
    "PUSH_CHANGE",
    "PUSH_FIGURES",
    "PUSH_MOVE",
    "PUSH_READY",
    "PUSH_REMOVE",
    "PUSH_REMOVED",
    "TOPIC_GONE",
    "PlainAcks",
    "PlainFigures",
    "PlainIdentity",
    "PlainLeased",
    "PlainPushed",
]

PUSH_ADD: Final = 20
PUSH_CHANGE: Final = 21
PUSH_MOVE: Final = 22
PUSH_REMOVE: Final = 23
TOPIC_GONE: Final = 24
PULL: Final = 25
ACKNOWLEDGE: Final = 26
MODIFY: Final = 27
BURIED: Final = 28
IDENTITY: Final = 29
"""Kinds of orders: ``(PUSH_ADD, subscriptions, newest)`` with the id up to which the hub knows the store;
``(PUSH_CHANGE, number, settings)``; ``(PUSH_MOVE, number, generation, position, intervals)``;
``(PUSH_REMOVE, numbers)``; ``(TOPIC_GONE, topic)``; ``(PULL, call, number, most)``;
``(ACKNOWLEDGE, call, number, acks)``; ``(MODIFY, call, number, acks, seconds)``;
``(BURIED, number, id, published)``; ``(IDENTITY, issuer, kid, pem, signing keys)``, before all others."""

PULLED: Final = 20
ACKNOWLEDGED: Final = 21
MODIFIED: Final = 22
PUSH_READY: Final = 23
BURY: Final = 24
BACKLOGS: Final = 25
PUSH_REMOVED: Final = 26
PUSH_FIGURES: Final = 27
"""Kinds of answers: ``(PULLED, call, messages)``; ``(ACKNOWLEDGED, call, progress or None)``; ``(MODIFIED, call)``;
``(PUSH_READY, number)``; ``(BURY, number, name of the topic, row, attempts, progress)``; ``(BACKLOGS, progress)``;
``(PUSH_REMOVED, numbers)``; ``(PUSH_FIGURES, figures)``."""

PlainPushed = tuple[int, int, str, dict[str, Any], int, bytes, dict[int, int], int]
"""Number, number of the topic (0 for none), owner, settings, position, intervals, attempts by id, generation."""

PlainAcks = list[tuple[int, int]]
"""Ids of messages, and numbers of their leases."""

PlainLeased = tuple[int, int, int, Row]
"""Id of a message, number of its lease, number of the delivery, row of its event."""

PlainFigures = tuple[int, int, int, int, int, float, dict[str, int], float, int, int, str]
"""Number of a subscription; known messages; those under way; time of the oldest one (microseconds since 1970; 0 for
none); window; pause in seconds; answers by class; sum of the seconds to them; attributes that were no headers; id up
to which messages are known; why nothing is sent, empty for no reason."""

PlainIdentity = tuple[str, str, str, dict[str, str]]
"""Issuer of tokens; name of the key that signs them, and the key (PKCS #8); texts of signing keys by name."""

PlainBacklogs = list[PlainProgress]
"""States of deliveries."""
