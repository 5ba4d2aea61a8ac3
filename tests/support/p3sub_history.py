"""History of one topic with its subscriptions by callback, in virtual time.

A history has the records of a simulated run (tests/support/p3sub_world.py) in the order of their times: of the store,
of the publisher's requests to callbacks, and of the events that the applications of the readers took. Places are
cursors; a restore of the store from a backup begins a branch of the chain of events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

__all__ = [
    "BEGINNING",
    "Answered",
    "Calm",
    "Committed",
    "Deleted",
    "Ended",
    "History",
    "Made",
    "Pushed",
    "Record",
    "Restored",
    "Started",
    "Stopped",
    "Told",
    "Took",
    "Trimmed",
]

BEGINNING: Final = "0"
"""Cursor of the place before the first event."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Event in the store.

    Attributes:
        at: time in seconds.
        cursor: of the event.
        parent: cursor of the topic's event before it; ``0`` for none.
        time: of storing, in microseconds since 1970.
    """

    at: float
    cursor: str
    parent: str
    time: int


@dataclass(frozen=True, slots=True)
class Restored:
    """Restore of the store from a backup: later events of the topic are lost.

    Attributes:
        at: time in seconds.
        newest: cursor of the topic's last event in the backup; ``0`` for none.
        epoch: of the events from now on.
    """

    at: float
    newest: str
    epoch: str


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Floor of the topic: events up to it are not retained.

    Attributes:
        at: time in seconds.
        floor: cursor.
    """

    at: float
    floor: str


@dataclass(frozen=True, slots=True)
class Started:
    """Start of a reader, with a state that has its cursor alone.

    Attributes:
        at: time in seconds.
        reader: name of the reader.
        after: the cursor.
    """

    at: float
    reader: str
    after: str


@dataclass(frozen=True, slots=True)
class Took:
    """Event that the application of a reader took from its queue.

    Attributes:
        at: time in seconds.
        reader: name of the reader.
        cursor: of the event.
    """

    at: float
    reader: str
    cursor: str


@dataclass(frozen=True, slots=True)
class Told:
    """Report to the application of a reader, between the events of its queue.

    Attributes:
        at: time in seconds.
        reader: name of the reader.
        kind: ``gone``: the reader goes on behind ``until``; ``gap``: events before ``until`` are lost; ``renewed``: the
            subscription is made anew.
        after: cursor of the place reached before.
        until: cursor; None for the end of the reading.
    """

    at: float
    reader: str
    kind: Literal["gone", "gap", "renewed"]
    after: str
    until: str | None


@dataclass(frozen=True, slots=True)
class Made:
    """Subscription that the publisher has made, or has back from a backup.

    Attributes:
        at: time in seconds.
        id: chosen by the reader.
        number: of the subscription, of this one only.
        after: cursor behind which it begins.
        confirmed: whether its callback has answered a challenge before.
        host: of its callback.
        owner: key of its owner.
    """

    at: float
    id: str
    number: int
    after: str
    confirmed: bool = False
    host: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Deleted:
    """Answer to the deletion of a subscription.

    Attributes:
        at: time in seconds.
        id: of the subscription.
    """

    at: float
    id: str


@dataclass(frozen=True, slots=True)
class Pushed:
    """Beginning of a request to a callback.

    Attributes:
        at: time in seconds.
        id: of the subscription, as the request names it.
        number: of the subscription.
        cursor: of the event; empty for a challenge.
    """

    at: float
    id: str
    number: int
    cursor: str


@dataclass(frozen=True, slots=True)
class Answered:
    """Outcome of a request to a callback, as the publisher sees it.

    Attributes:
        at: time in seconds.
        number: of the subscription.
        cursor: of the event; empty for a challenge.
        success: whether the callback has acknowledged it.
    """

    at: float
    number: int
    cursor: str
    success: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """Abortion of a request to a callback by the publisher.

    Attributes:
        at: time in seconds.
        number: of the subscription.
    """

    at: float
    number: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """End of the publisher's sender, and of its requests.

    Attributes:
        at: time in seconds.
    """

    at: float


@dataclass(frozen=True, slots=True)
class Calm:
    """End of all faults.

    Attributes:
        at: time in seconds.
    """

    at: float


Record = (
    Committed | Restored | Trimmed | Started | Took | Told | Made | Deleted | Pushed | Answered | Ended | Stopped | Calm
)


@dataclass
class History:
    """All records of one topic.

    Attributes:
        records: in the order of their times.
        complete: readers that were on at the end, and had the time to receive all events.
        healthy: readers without any fault between them and the publisher.
        live: numbers of the subscriptions that had all events at the end, by the word of the publisher.
        places: greatest number of requests to callbacks at the same time: of all, to one ``host``, of one ``owner``.
        alone: delays of events in seconds, by name of the readers, in a run without the others.
        beside: the same beside others.
        end: time of the end in seconds.
    """

    records: list[Record] = field(default_factory=list)
    complete: set[str] = field(default_factory=set)
    healthy: set[str] = field(default_factory=set)
    live: set[int] = field(default_factory=set)
    places: dict[Literal["all", "host", "owner"], int] = field(default_factory=dict)
    alone: dict[str, list[float]] = field(default_factory=dict)
    beside: dict[str, list[float]] = field(default_factory=dict)
    end: float = 0.0

    def add(self, record: Record) -> None:
        """Add the record of something that has happened now.

        Args:
            record: the record.
        """
        self.records.append(record)

    def close(self, end: float, readers: Iterable[str] = (), live: Iterable[int] = ()) -> None:
        """End the history.

        Args:
            end: time in seconds.
            readers: complete ones.
            live: numbers of the subscriptions that had all events, by the word of the publisher.
        """
        self.end = end
        self.complete.update(readers)
        self.live.update(live)

    def readers(self) -> dict[str, list[Started | Took | Told]]:
        """Return the records of each reader, in order."""
        found: dict[str, list[Started | Took | Told]] = {}
        for record in self.records:
            if isinstance(record, Started | Took | Told):
                found.setdefault(record.reader, []).append(record)
        return found
