"""Interface of a store: the duties of an engine, in two parts for two kinds of processes.

Both are synchronous: a writer and each reader have a process of their own. All ids are numbers of this store; cursors
are resolved by the caller (``cursor``). Ranges are ``low <= key < high`` in UTF-8 bytes; a range with an open end has
None there, and None at both ends with ``keyed`` false is the whole topic, events without key included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from griphub.store.cursor import EpochInterval
from griphub.store.event import Event
from griphub.store.publication import Outcome, Publication
from griphub.store.pubsub_subscription import BacklogProgress, PubsubBound, PubsubSubscription
from griphub.store.subscription import Bound, Keys, Subscription, SubscriptionProgress
from griphub.store.topic import Topic, TopicSettings

__all__ = [
    "WHOLE",
    "KeyRange",
    "Page",
    "PubsubWriter",
    "SnapshotPage",
    "StampWriter",
    "StorePage",
    "StoreReader",
    "StoreState",
    "StoreWriter",
    "SubscriptionWriter",
]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Range of keys, which selects events of a topic.

    Attributes:
        low: least key, None for no bound.
        high: first key beyond, None for no bound.
        keyed: events without key are left out.
    """

    low: str | None = None
    high: str | None = None
    keyed: bool = True

    def contains(self, key: str | None) -> bool:
        """Return whether an event with ``key`` lies in the range; None is that of an event without one."""
        if key is None:
            return not self.keyed
        return (self.low is None or self.low <= key) and (self.high is None or key < self.high)


WHOLE = KeyRange(keyed=False)
"""The whole topic, events without key included."""


@dataclass(frozen=True, slots=True)
class StoreState:
    """State of a whole store.

    Attributes:
        epoch: the current one.
        intervals: of all epochs, the oldest first.
        newest: id of the newest event; 0 if there was none.
        newest_time: its time, in microseconds since 1970.
        secret: 32 random bytes, made with the store, to sign with.
    """

    epoch: str
    intervals: tuple[EpochInterval, ...]
    newest: int
    newest_time: int
    secret: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a topic's history, and the topic at that moment, from one read transaction.

    A page ends between two versions, unless a single version exceeds its limits: then the next page begins within it.

    Attributes:
        topic: the topic then.
        events: in the order of their ids.
        last: id up to which the page is complete: of its last event, or the store's newest if it is the last page.
        more: true if further events follow.
    """

    topic: Topic
    events: tuple[Event, ...]
    last: int
    more: bool


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """Part of a snapshot, from one read transaction.

    Attributes:
        topic: the topic then.
        events: the last event of each key at the version, in the order of the keys' bytes; deleted keys are left out.
        next_key: key behind which the next page begins; None after the last.
    """

    topic: Topic
    events: tuple[Event, ...]
    next_key: str | None


@dataclass(frozen=True, slots=True)
class StorePage:
    """Part of the history of all topics, from one read transaction.

    Attributes:
        events: in the order of their ids, each with the number of its topic; versions are whole, as in ``Page``.
        last: id up to which the page is complete.
        more: true if further events follow.
    """

    events: tuple[tuple[int, Event], ...]
    last: int
    more: bool


class SubscriptionWriter(Protocol):
    """Part of a writer for subscriptions. Each change is a commit; all but deletions are refused on a full disk."""

    def make(
        self,
        draft: Subscription,
        topic_max: int | None = None,
        owner_max: int | None = None,
        total_max: int | None = None,
    ) -> Subscription | Bound | None:
        """Make a subscription; one of the same name is left as it is.

        Args:
            draft: the subscription, its number 0. A position above the newest id is that of the newest.
            topic_max: greatest number of subscriptions of its topic; None for no bound.
            owner_max: greatest number of subscriptions of its owner.
            total_max: greatest number of subscriptions of all owners.

        Returns:
            The stored subscription of that name; the bound that there are as many as; None if the topic does not exist.

        Raises:
            StoreFull: there is no space.
            StoreBroken: a write failed; whether it is stored is not known.
        """

    def renew(self, number: int, rights_end: int) -> Subscription | None:
        """Prolong the rights of a subscription; its rest and its failure end.

        Args:
            number: of the subscription.
            rights_end: time at which they end, in microseconds since 1970.

        Returns:
            The subscription then; None if there is none.
        """

    def set_keys(self, number: int, keys: Keys) -> Subscription | None:
        """Replace the signing keys of a subscription.

        Args:
            number: of the subscription.
            keys: the newest first.

        Returns:
            The subscription then; None if there is none.
        """

    def delete(self, topic: int, owner: str, id: str) -> int | None:
        """Delete a subscription; its number is not used again.

        Args:
            topic: number of its topic.
            owner: text that names its owner.
            id: chosen by the subscriber.

        Returns:
            Its number; None if there is none.
        """

    def save(self, progress: Sequence[SubscriptionProgress]) -> None:
        """Store the states of deliveries in one commit; those of unknown subscriptions are left out.

        Args:
            progress: in order. A position below the stored one, or above the newest id, moves to that one only.
        """


class PubsubWriter(Protocol):
    """Part of a writer for subscriptions of the push API.

    Each change is a commit; all but deletions are refused on a full disk.
    """

    def make(
        self, draft: PubsubSubscription, project_max: int | None = None, topic_max: int | None = None
    ) -> PubsubSubscription | PubsubBound | None:
        """Make a subscription.

        Args:
            draft: the subscription, its number 0. A position above the newest id is that of the newest.
            project_max: greatest number of subscriptions of its project; None for no bound.
            topic_max: greatest number of subscriptions of its topic.

        Returns:
            The stored subscription; the reason why there is none; None if the topic does not exist.

        Raises:
            StoreFull: there is no space.
            StoreBroken: a write failed; whether it is stored is not known.
        """

    def change(self, number: int, settings: Mapping[str, Any], used: int) -> PubsubSubscription | None:
        """Replace the settings of a subscription.

        Args:
            number: of the subscription.
            settings: all fields.
            used: time of this use, in microseconds since 1970.

        Returns:
            The subscription then; None if there is none.
        """

    def seek(self, number: int, position: int, acked: bytes, used: int) -> PubsubSubscription | None:
        """Move a subscription to another place; states of earlier deliveries are not stored any more.

        Args:
            number: of the subscription.
            position: id up to which all messages are acknowledged then.
            acked: intervals above, encoded.
            used: time of this use, in microseconds since 1970.

        Returns:
            The subscription then; None if there is none.
        """

    def delete(self, number: int) -> bool:
        """Delete a subscription; its number is not used again.

        Args:
            number: of the subscription.

        Returns:
            Whether there was one.
        """

    def save(self, progress: Sequence[BacklogProgress]) -> None:
        """Store the states of deliveries in one commit; those of unknown subscriptions, and late ones, are left out.

        Args:
            progress: in order.
        """


class StampWriter(Protocol):
    """Part of a writer for the stamps of progress."""

    def reserve(self, until: int) -> int:
        """Keep a number above all stamps that are given; it never falls.

        Args:
            until: greatest stamp that is given before the next call, in microseconds since 1970.

        Returns:
            The number that was kept before; 0 for none.

        Raises:
            StoreFull: there is no space.
            StoreBroken: a write failed.
        """


class StoreWriter(Protocol):
    """Writing part of an engine; a store has one writer at a time."""

    @property
    def subscriptions(self) -> SubscriptionWriter:
        """Return the part for subscriptions."""

    @property
    def pubsub(self) -> PubsubWriter:
        """Return the part for subscriptions of the push API."""

    @property
    def stamps(self) -> StampWriter:
        """Return the part for stamps."""

    def state(self) -> StoreState:
        """Return the state of the store."""

    def append(self, publications: Sequence[Publication]) -> list[Outcome]:
        """Store publications in one commit, in order; each is atomic, and fails alone.

        Args:
            publications: in the order of their arrival.

        Returns:
            The outcome of each, in order. All that are ``Published`` are durable as the engine was configured.

        Raises:
            StoreFull: there is no space; none is stored.
            StoreBroken: a write failed; none may be answered before the store was opened again.
        """

    def put_topic(
        self, name: str, settings: TopicSettings, owner: str = "", owner_max: int | None = None
    ) -> tuple[Topic, bool] | None:
        """Make a topic, or change its settings. One whose events are kept by another store stays as it is.

        Args:
            name: of the topic.
            settings: all of its settings.
            owner: text that names its owner, if it is made.
            owner_max: greatest number of topics of that owner; None for no bound.

        Returns:
            The topic, and whether it was made; None if the owner has too many.
        """

    def delete_topic(self, name: str) -> Topic | None:
        """Delete a topic and its subscriptions; its number is not used again. ``delete_slice`` deletes its events.

        Subscriptions of the push API stay, without a topic.

        Args:
            name: of the topic.

        Returns:
            The topic as it was; None if there is none.
        """

    def raise_access(self, name: str) -> Topic | None:
        """Raise the access number of a topic: earlier capabilities end.

        Args:
            name: of the topic.

        Returns:
            The topic then; None if there is none.
        """

    def wanted_floor(self, number: int) -> int:
        """Return the floor that the retention of a topic demands; the work is bounded, so that it may demand more.

        Args:
            number: of the topic.

        Returns:
            An id, not below its floor; 0 if there is no such topic.
        """

    def raise_floor(self, number: int, floor: int) -> Topic | None:
        """Raise the floor of a topic, so that events up to there may be deleted; it never falls.

        Args:
            number: of the topic.
            floor: id up to which nothing is retained, or only the last event of each key.

        Returns:
            The topic then, its floor committed; None if there is none.
        """

    def delete_slice(self, number: int) -> bool:
        """Delete some events of a topic that are not retained, or of a deleted topic.

        Args:
            number: of the topic.

        Returns:
            True if more remains to be deleted.
        """

    def gone_topics(self) -> list[int]:
        """Return the numbers of deleted topics that still have events."""

    def forget_names(self) -> bool:
        """Delete some of the names of requests that have expired.

        Returns:
            True if more have.
        """

    def make_room(self) -> None:
        """Release the space kept for the retention of a full disk."""

    def close(self) -> None:
        """Close the store; nothing is lost."""


class StoreReader(Protocol):
    """Reading part of an engine; a store has any number of readers."""

    def state(self) -> StoreState:
        """Return the state of the store."""

    def topic(self, name: str) -> Topic | None:
        """Return a topic by its ``name``; None if there is none."""

    def topics(self, after: str = "", limit: int = 1000) -> list[Topic]:
        """Return topics in the order of their names.

        Args:
            after: name behind which the list begins.
            limit: greatest number of topics.
        """

    def page(
        self, number: int, after: int, keys: KeyRange, limit: int, size: int, until: int | None = None
    ) -> Page | None:
        """Return events of a topic above an id, whole versions apart from the limits.

        Args:
            number: of the topic.
            after: id below the first event; the caller compares it with the floor of the page.
            keys: range of keys.
            limit: greatest number of events.
            size: bytes of content after which the page ends; it has at least one event if there is one.
            until: greatest id; None for the newest.

        Returns:
            The page; None if the topic does not exist.
        """

    def events_after(self, after: int, limit: int, size: int) -> StorePage:
        """Return events of all topics above an id.

        Args:
            after: id below the first event.
            limit: greatest number of events.
            size: bytes of content after which the page ends; it has at least one event if there is one.
        """

    def event_at(self, number: int, id: int) -> Event | None:
        """Return the event of a topic with an id; None if it has none.

        Args:
            number: of the topic.
            id: of the event.
        """

    def last_in(self, number: int, keys: KeyRange, until: int) -> int:
        """Return the id of the last event of a range at or below an id; 0 for none.

        Args:
            number: of the topic.
            keys: range of keys.
            until: greatest id.
        """

    def id_at(self, number: int, time: int) -> int:
        """Return the id of the last event of a topic that is not later than a time; 0 if all are later.

        Args:
            number: of the topic.
            time: in microseconds since 1970.
        """

    def count_after(self, number: int, after: int, most: int) -> tuple[int, int]:
        """Return the number of events of a topic above an id, and the id of the last one that was counted.

        Args:
            number: of the topic.
            after: id below the first event, which is returned if there is none.
            most: greatest number.
        """

    def last_of(self, number: int, key: str) -> Event | None:
        """Return the last event of a key, a deletion too; None if the topic has none of it.

        Args:
            number: of the topic.
            key: the key.
        """

    def snapshot(
        self, number: int, keys: KeyRange, version: int, after_key: str | None, limit: int, size: int
    ) -> SnapshotPage | None:
        """Return the last event of each key at a version, which must not be below the floor of the page's topic.

        Args:
            number: of the topic.
            keys: range of keys.
            version: id up to which events count.
            after_key: key behind which the page begins; None for the first page.
            limit: greatest number of events.
            size: bytes of content after which the page ends.

        Returns:
            The page; None if the topic does not exist.
        """

    def subscriptions(self, after: int = 0, limit: int = 1000) -> list[Subscription]:
        """Return subscriptions in the order of their numbers, with positions of which none is above the newest id.

        Args:
            after: number behind which the list begins.
            limit: greatest number of subscriptions.
        """

    def pubsub(self, after: int = 0, limit: int = 1000) -> list[PubsubSubscription]:
        """Return subscriptions of the push API in the order of their numbers.

        Args:
            after: number behind which the list begins.
            limit: greatest number of subscriptions.
        """

    def close(self) -> None:
        """Close the connection to the store."""
