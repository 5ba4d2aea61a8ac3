"""Commands of the writer, each with its arguments and its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from griphub.processes.pubsub_commands import PubsubCommands
from griphub.store.interface import StoreState
from griphub.store.plain_records import (
    keys_json,
    plain_subscription,
    settings_json,
    state_of,
    subscription_of,
    topic_of,
)
from griphub.store.subscription import Bound, Keys, Subscription, SubscriptionProgress
from griphub.store.topic import Topic, TopicSettings

__all__ = ["WriterCommands"]


class WriterCommands(PubsubCommands):
    """Writer of a store as its callers see it; ``call`` is the way to its process."""

    # --- topics

    async def put_topic(
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

        Raises:
            StoreError: the store cannot do it now.
        """
        made = await self.call("put_topic", name, settings_json(settings), owner, owner_max, owner=owner)
        return None if made is None else (topic_of(made[0]), made[1])

    async def delete_topic(self, name: str, *, owner: str = "") -> Topic | None:
        """Delete a topic.

        Args:
            name: of the topic.
            owner: text that names the owner whose command it is.

        Returns:
            The topic as it was; None if there is none.

        Raises:
            StoreError: the store cannot do it now.
        """
        return _topic(await self.call("delete_topic", name, owner=owner))

    async def raise_access(self, name: str, *, owner: str = "") -> Topic | None:
        """Raise the access number of a topic: earlier capabilities end.

        Args:
            name: of the topic.
            owner: text that names the owner whose command it is.

        Returns:
            The topic then; None if there is none.

        Raises:
            StoreError: the store cannot do it now.
        """
        return _topic(await self.call("raise_access", name, owner=owner))

    async def reserve_stamps(self, until: int) -> int:
        """Keep a number above all stamps of progress that are given.

        Args:
            until: greatest stamp that is given before the next call, in microseconds since 1970.

        Returns:
            The number that was kept before; 0 for none.

        Raises:
            StoreError: the store cannot do it now.
        """
        return int(await self.call("reserve_stamps", until))

    async def wanted_floor(self, number: int) -> int:
        """Return the floor that the retention of a topic demands.

        Args:
            number: of the topic.

        Raises:
            StoreError: the store cannot do it now.
        """
        return int(await self.call("wanted_floor", number))

    async def raise_floor(self, number: int, floor: int) -> Topic | None:
        """Raise the floor of a topic, so that events up to there may be deleted.

        Args:
            number: of the topic.
            floor: id up to which nothing is retained, or only the last event of each key.

        Returns:
            The topic then, its floor committed; None if there is none.

        Raises:
            StoreError: the store cannot do it now.
        """
        return _topic(await self.call("raise_floor", number, floor))

    async def delete_slice(self, number: int) -> bool:
        """Delete some events of a topic that are not retained, or of a deleted topic.

        Args:
            number: of the topic.

        Returns:
            True if more remains to be deleted.

        Raises:
            StoreError: the store cannot do it now.
        """
        return bool(await self.call("delete_slice", number))

    async def gone_topics(self) -> list[int]:
        """Return the numbers of deleted topics that still have events.

        Raises:
            StoreError: the store cannot do it now.
        """
        return list(await self.call("gone_topics"))

    async def forget_names(self) -> bool:
        """Delete some of the names of requests that have expired.

        Returns:
            True if more have.

        Raises:
            StoreError: the store cannot do it now.
        """
        return bool(await self.call("forget_names"))

    async def make_room(self) -> None:
        """Release the space kept for the retention of a full disk; deletions do so by themselves.

        Raises:
            StoreError: the store cannot do it now.
        """
        await self.call("make_room")

    async def state(self) -> StoreState:
        """Return the state of the store.

        Raises:
            StoreError: the store cannot do it now.
        """
        return state_of(await self.call("state"))

    # --- subscriptions

    async def make_subscription(
        self,
        draft: Subscription,
        topic_max: int | None,
        owner_max: int | None,
        total_max: int | None,
        *,
        owner: str = "",
    ) -> Subscription | Bound | None:
        """Make a subscription; see ``SubscriptionWriter.make``.

        Args:
            draft: the subscription, its number 0.
            topic_max: greatest number of subscriptions of its topic; None for no bound.
            owner_max: greatest number of subscriptions of its owner.
            total_max: greatest number of subscriptions of all owners.
            owner: text that names the owner whose command it is.

        Returns:
            The stored subscription of that name; the bound that there are as many as; None if the topic does not exist.

        Raises:
            StoreError: the store cannot do it now.
        """
        plain = plain_subscription(draft)
        made = await self.call("make_subscription", plain, topic_max, owner_max, total_max, owner=owner)
        return cast(Bound, made) if isinstance(made, str) else _subscription(made)

    async def renew_subscription(self, number: int, rights_end: int, *, owner: str = "") -> Subscription | None:
        """Prolong the rights of a subscription; its rest and its failure end.

        Args:
            number: of the subscription.
            rights_end: time at which they end, in microseconds since 1970.
            owner: text that names the owner whose command it is.

        Returns:
            The subscription then; None if there is none.

        Raises:
            StoreError: the store cannot do it now.
        """
        return _subscription(await self.call("renew_subscription", number, rights_end, owner=owner))

    async def set_subscription_keys(self, number: int, keys: Keys, *, owner: str = "") -> Subscription | None:
        """Replace the signing keys of a subscription.

        Args:
            number: of the subscription.
            keys: the newest first.
            owner: text that names the owner whose command it is.

        Returns:
            The subscription then; None if there is none.

        Raises:
            StoreError: the store cannot do it now.
        """
        return _subscription(await self.call("set_subscription_keys", number, keys_json(keys), owner=owner))

    async def delete_subscription(self, topic: int, subscriber: str, id: str, *, owner: str = "") -> int | None:
        """Delete a subscription.

        Args:
            topic: number of its topic.
            subscriber: text that names its owner.
            id: chosen by the subscriber.
            owner: text that names the owner whose command it is.

        Returns:
            Its number; None if there is none.

        Raises:
            StoreError: the store cannot do it now.
        """
        deleted: int | None = await self.call("delete_subscription", topic, subscriber, id, owner=owner)
        return deleted

    async def save_progress(self, progress: Sequence[SubscriptionProgress]) -> None:
        """Store the states of deliveries in one commit; see ``SubscriptionWriter.save``.

        Args:
            progress: in order.

        Raises:
            StoreError: the store cannot do it now.
        """
        rows = [(each.number, each.position, each.confirmed, each.rest, each.failure) for each in progress]
        await self.call("save_progress", rows)


def _topic(row: Any) -> Topic | None:
    return None if row is None else topic_of(row)


def _subscription(row: Any) -> Subscription | None:
    return None if row is None else subscription_of(row)
