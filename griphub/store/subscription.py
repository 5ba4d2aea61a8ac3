"""Subscriptions: standing requests for a topic's events by callback, as they are stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Bound", "Keys", "Subscription", "SubscriptionProgress"]

Keys = tuple[tuple[str, float | None], ...]
"""Signing keys, the newest first, each with the wall time of its end in seconds since 1970; None for no end."""

Bound = Literal["topic", "owner", "total"]
"""Name of a bound of the number of subscriptions: of one topic, of one owner, of all owners."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Subscription as it is at one moment. Its topic, owner and id together are its name: no other one has it.

    Attributes:
        number: never used for another subscription, also not for a later one of the same name; 0 before it is stored.
        topic: number of its topic.
        id: chosen by the subscriber.
        owner: text that names its owner.
        callback: URL that events are sent to.
        start: text of the place that was asked for, to be compared with that of a repeated request.
        position: id up to which events were delivered, as of the last commit.
        keys: signing keys, the newest first, each with the wall time of its end in seconds since 1970, or None.
        rights_end: time at which the rights of its owner end, in microseconds since 1970.
        created: time at which it was made, in microseconds since 1970.
        confirmed: whether the callback has answered its challenge.
        rest: reason why it rests; empty if it does not.
        failure: class of its last failure; empty after a success.
    """

    number: int
    topic: int
    id: str
    owner: str
    callback: str
    start: str
    position: int
    keys: Keys = field(repr=False)
    rights_end: int
    created: int
    confirmed: bool = False
    rest: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class SubscriptionProgress:
    """State of a delivery, to be stored.

    Attributes:
        number: of the subscription.
        position: id up to which events were delivered; a stored position never moves back.
        confirmed: whether the callback has answered its challenge.
        rest: reason why it rests; empty if it does not.
        failure: class of its last failure; empty after a success.
    """

    number: int
    position: int
    confirmed: bool
    rest: str
    failure: str
