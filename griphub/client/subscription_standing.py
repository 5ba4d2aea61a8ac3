"""Standing of a subscription: the hub's word on it, which proves a loss without any clock. Sans-I/O.

The hub knows whether a subscription is there and makes requests, and up to which place it has an answer to each push.
An event up to there whose push was not received is lost. One behind it is under way, or was tried already and waits for
its repetition: then its age by the hub's own clock decides, as for a publisher that gives the time of its answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from griphub.client.received import ReceivedEvent
from griphub.client.subscription_places import Place, seconds_of

__all__ = ["CERTAIN", "NEVER", "RecentPushes", "Standing"]

CERTAIN: Final = float("inf")
"""Time of the publisher by which each event is old enough to prove a loss."""

NEVER: Final = float("-inf")
"""Time of the publisher by which no event proves a loss."""


PUSHES_MAX: Final = 256
"""Pushes that are remembered. The oldest is forgotten; at worst a subscription is renewed without need."""


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a subscription in the hub.

    Attributes:
        dead: whether it makes no requests: it rests, or is not there.
        pausing: whether its last request failed, and is repeated after a pause.
        position: place up to which each push was answered with success; None if it is not known.
        lag: seconds since the event under delivery was stored, by the hub's clock.
    """

    dead: bool
    pausing: bool = False
    position: Place | None = None
    lag: float = 0.0

    @classmethod
    def missing(cls) -> Standing:
        """Return the standing of a subscription that the hub does not know."""
        return cls(dead=True)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Standing:
        """Return the standing of an object of the API.

        Args:
            document: the object.

        Raises:
            BadAnswer: its position is no cursor.
        """
        state, position, lag = document.get("state"), document.get("position"), document.get("lag")
        place = Place.of(position) if isinstance(position, str) else None
        seconds = float(lag) if isinstance(lag, int | float) and 0 <= lag < CERTAIN else 0.0
        return cls(state == "resting", state == "pausing", place, seconds)

    def time(self, missing: Sequence[ReceivedEvent]) -> float:
        """Return the time of the publisher by which missing events prove a loss.

        Args:
            missing: events that a poll has found, and whose pushes were not received until the hub has answered.

        Returns:
            Seconds since 1970 for ``SubscriptionState.page``; ``CERTAIN`` or ``NEVER`` where no age matters.
        """
        if not missing:
            return NEVER
        if self.dead or (self.position is not None and self.position.covers(Place.of(missing[0].cursor))):
            return CERTAIN
        oldest = seconds_of(missing[0].time)
        return oldest + self.lag if self.pausing and oldest is not None else NEVER


class RecentPushes:
    """Pushes that were received last, whether they were accepted or dropped for a gap: none of them is lost."""

    def __init__(self) -> None:
        self._cursors: dict[str, None] = {}

    def add(self, cursor: str) -> None:
        """Remember a push.

        Args:
            cursor: of its event.
        """
        self._cursors[cursor] = None
        if len(self._cursors) > PUSHES_MAX:
            del self._cursors[next(iter(self._cursors))]

    def missing(self, events: Sequence[ReceivedEvent], reached: str) -> list[ReceivedEvent]:
        """Return the events of a page whose pushes were not received.

        Args:
            events: those of the page.
            reached: cursor of the last accepted event.

        Raises:
            BadAnswer: one has no cursor.
        """
        last = Place.of(reached)
        found = [each for each in events if each.cursor not in self._cursors]
        return [each for each in found if not last.covers(Place.of(each.cursor))]
