"""Topics: named sequences of events, and with keys tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

__all__ = ["KEEP_ALL", "Retention", "Topic", "TopicSettings"]


@dataclass(frozen=True, slots=True)
class Retention:
    """Bounds of a topic; events beyond one of them are deleted, the oldest first. None: no bound.

    Attributes:
        age: greatest age of an event, in seconds.
        events: greatest number of events.
        bytes: greatest size of all events, in bytes.
        compact: of each key the last event is kept beyond the bounds.
    """

    age: float | None = None
    events: int | None = None
    bytes: int | None = None
    compact: bool = False


KEEP_ALL: Final = Retention()
"""No bound at all."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of a topic, chosen by its owner.

    Attributes:
        retention: its bounds.
        store: ``disk``; or ``none`` for a soft topic, whose events are kept by another store.
        message_retention: seconds for which acknowledged messages can be delivered again by the push API; 0 for as long
            as subscriptions ask for.
        snapshot_url: URL at which that store gives snapshots; empty for none.
        progress: seconds between two reports of progress to its watchers.
        labels: names and values for people.
    """

    retention: Retention = KEEP_ALL
    store: Literal["disk", "none"] = "disk"
    progress: float = 10.0
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    snapshot_url: str = ""
    message_retention: float = 0.0

    @property
    def soft(self) -> bool:
        """True for a soft topic."""
        return self.store == "none"


@dataclass(frozen=True, slots=True)
class Topic:
    """Topic as it is at one moment.

    Attributes:
        number: never used for another topic, also not for a later one of the same name.
        name: of at most 255 bytes.
        birth: the store's newest id when it was made, which is no place of an earlier topic. A cursor from 1 to below
            it is gone.
        floor: all events above it are retained.
        floor_time: time of the last event at or below the floor, in microseconds since 1970; 0 if there was none.
        last: id of its last event; 0 if there was none.
        count: events that it has.
        bytes: size of these events.
        access: its access number, which a revocation raises.
        settings: those of its owner.
        owner: text that names the owner that made it.
    """

    number: int
    name: str
    birth: int
    floor: int
    floor_time: int
    last: int
    count: int
    bytes: int
    access: int
    settings: TopicSettings
    owner: str = ""
