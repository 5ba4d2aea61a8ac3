"""Subscriptions of the push API as they are stored: settings, and the messages that are acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

__all__ = ["NO_ATTEMPTS", "BacklogProgress", "PubsubBound", "PubsubSubscription"]

NO_ATTEMPTS: Final[Mapping[int, int]] = MappingProxyType({})

PubsubBound = Literal["exists", "project", "topic"]
"""Reason why a subscription is not made: there is one of the name; its project, or its topic, has as many as it may."""


@dataclass(frozen=True, slots=True)
class PubsubSubscription:
    """Subscription of the push API as it is at one moment.

    Attributes:
        number: never used for another subscription, also not for a later one of the same name; 0 before it is stored.
        project: project of its name.
        id: of it in its project.
        topic: number of its topic; 0 once that was deleted.
        owner: text that names its owner.
        settings: fields of the API by name, as JSON values.
        position: id up to which all messages are acknowledged, as of the last commit.
        acked: intervals of ids above that are acknowledged as well, encoded.
        attempts: deliveries so far of messages that are not, by id.
        generation: number of times that it was moved to another place: earlier deliveries count no more.
        created: time at which it was made, in microseconds since 1970.
        used: time of its last use, in microseconds since 1970.
    """

    number: int
    project: str
    id: str
    topic: int
    owner: str
    settings: Mapping[str, Any]
    position: int
    acked: bytes = b""
    attempts: Mapping[int, int] = field(default_factory=lambda: NO_ATTEMPTS)
    generation: int = 0
    created: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True)
class BacklogProgress:
    """State of the deliveries of a subscription, to be stored.

    Attributes:
        number: of the subscription.
        generation: of the deliveries; those of an earlier one are not stored.
        position: id up to which all messages are acknowledged; a stored position never moves back.
        acked: intervals above, encoded.
        attempts: deliveries so far of messages that are not acknowledged, by id.
        used: time of its last use, in microseconds since 1970.
    """

    number: int
    generation: int
    position: int
    acked: bytes
    attempts: Mapping[int, int]
    used: int
