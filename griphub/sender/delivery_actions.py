"""Actions that a delivery orders from its caller, and the bounds that they keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from griphub.sender.pauses import Pauses
from griphub.sender.window import EVENTS_MAX, WINDOW_BYTES, Deliverable

__all__ = ["Action", "DeliveryLimits", "Queue", "Read", "SendChallenge", "SendEvent", "Sleep"]

E = TypeVar("E", bound=Deliverable)


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """Bounds of a delivery.

    Attributes:
        tries: attempts to deliver one event, after which the subscription rests.
        challenge_tries: attempts to confirm a callback.
        pauses: between attempts.
        events_max: greatest number of events in the window.
        bytes_max: greatest number of bytes in the window.
        save_events: delivered events after which the position is to be written.
        save_after: seconds after which a changed position is to be written.
    """

    tries: int = 10
    challenge_tries: int = 3
    pauses: Pauses = field(default_factory=Pauses)
    events_max: int = EVENTS_MAX
    bytes_max: int = WINDOW_BYTES
    save_events: int = 100
    save_after: float = 5.0


@dataclass(frozen=True, slots=True)
class Queue:
    """Order to ask for a place; one that waits already is not asked for again."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Order to call ``wake`` at a time.

    Attributes:
        until: monotonic time in seconds.
    """

    until: float


@dataclass(frozen=True, slots=True)
class Read:
    """Order to read a page, with the place.

    Attributes:
        after: id behind which it begins.
        limit: greatest number of events.
    """

    after: int
    limit: int


@dataclass(frozen=True, slots=True)
class SendChallenge:
    """Order to send a challenge with a new token, with the place.

    Attributes:
        attempt: number of the attempt, from 1.
    """

    attempt: int


@dataclass(frozen=True, slots=True)
class SendEvent(Generic[E]):
    """Order to send an event, with the place.

    Attributes:
        event: the event.
        attempt: number of the attempt, from 1; a repetition after a restart of the hub is a first one.
    """

    event: E
    attempt: int


Action = Queue | Sleep | Read | SendChallenge | SendEvent[E]
"""Order to the caller of a delivery."""
