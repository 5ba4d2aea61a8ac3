"""Commands of the writer about subscriptions of the push API, each with its arguments and its result."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, cast

from griphub.store.plain_pubsub import plain_pubsub, pubsub_of, pubsub_settings_json
from griphub.store.plain_records import PlainProgress
from griphub.store.pubsub_subscription import PubsubBound, PubsubSubscription

__all__ = ["PubsubCommands"]


class PubsubCommands(abc.ABC):
    """Part of a writer as its callers see it; ``call`` is the way to its process."""

    @abc.abstractmethod
    async def call(self, method: str, *arguments: Any, owner: str = "") -> Any:
        """Have the writer carry out a command, in the turn of an owner; an owner has one under way at a time.

        Args:
            method: name of the command.
            arguments: plain values.
            owner: text that names the owner whose command it is.

        Returns:
            The plain result.

        Raises:
            StoreError: the store cannot do it now.
        """

    async def make_pubsub(
        self, draft: PubsubSubscription, project_max: int | None, topic_max: int | None, *, owner: str = ""
    ) -> PubsubSubscription | PubsubBound | None:
        """Make a subscription; see ``PubsubWriter.make``.

        Args:
            draft: the subscription, its number 0.
            project_max: greatest number of subscriptions of its project; None for no bound.
            topic_max: greatest number of subscriptions of its topic.
            owner: text that names the owner whose command it is.

        Returns:
            The stored subscription; the reason why there is none; None if the topic does not exist.

        Raises:
            StoreError: the store cannot do it now.
        """
        made = await self.call("make_pubsub", plain_pubsub(draft), project_max, topic_max, owner=owner)
        return cast(PubsubBound, made) if isinstance(made, str) else _subscription(made)

    async def change_pubsub(
        self, number: int, settings: Mapping[str, Any], used: int, *, owner: str = ""
    ) -> PubsubSubscription | None:
        """Replace the settings of a subscription; see ``PubsubWriter.change``.

        Args:
            number: of the subscription.
            settings: all fields.
            used: time of this use, in microseconds since 1970.
            owner: text that names the owner whose command it is.

        Returns:
            The subscription then; None if there is none.

        Raises:
            StoreError: the store cannot do it now.
        """
        return _subscription(
            await self.call("change_pubsub", number, pubsub_settings_json(settings), used, owner=owner)
        )

    async def seek_pubsub(
        self, number: int, position: int, acked: bytes, used: int, *, owner: str = ""
    ) -> PubsubSubscription | None:
        """Move a subscription to another place; see ``PubsubWriter.seek``.

        Args:
            number: of the subscription.
            position: id up to which all messages are acknowledged then.
            acked: intervals above, encoded.
            used: time of this use, in microseconds since 1970.
            owner: text that names the owner whose command it is.

        Returns:
            The subscription then; None if there is none.

        Raises:
            StoreError: the store cannot do it now.
        """
        return _subscription(await self.call("seek_pubsub", number, position, acked, used, owner=owner))

    async def delete_pubsub(self, number: int, *, owner: str = "") -> bool:
        """Delete a subscription.

        Args:
            number: of the subscription.
            owner: text that names the owner whose command it is.

        Returns:
            Whether there was one.

        Raises:
            StoreError: the store cannot do it now.
        """
        return bool(await self.call("delete_pubsub", number, owner=owner))

    async def save_backlogs(self, progress: Sequence[PlainProgress]) -> None:
        """Store the states of deliveries in one commit; see ``PubsubWriter.save``.

        Args:
            progress: in their plain form.

        Raises:
            StoreError: the store cannot do it now.
        """
        await self.call("save_backlogs", list(progress))


def _subscription(row: Any) -> PubsubSubscription | None:
    return None if row is None else pubsub_of(row)
