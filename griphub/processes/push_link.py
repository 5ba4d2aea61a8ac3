"""Link to the sender about subscriptions of the push API, on the hub's side: orders, calls, and their answers.

It has no process of its own: ``SenderProcess`` reports to it the beginning, the answers and the end of each process.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from griphub.processes.push_commands import (
    ACKNOWLEDGE,
    ACKNOWLEDGED,
    BACKLOGS,
    BURIED,
    BURY,
    IDENTITY,
    MODIFIED,
    MODIFY,
    PULL,
    PULLED,
    PUSH_ADD,
    PUSH_CHANGE,
    PUSH_FIGURES,
    PUSH_MOVE,
    PUSH_READY,
    PUSH_REMOVE,
    PUSH_REMOVED,
    TOPIC_GONE,
    PlainAcks,
    PlainFigures,
    PlainIdentity,
    PlainLeased,
    PlainPushed,
)
from griphub.store.errors import StoreBusy
from griphub.store.plain_records import PlainProgress, Row

__all__ = ["PushLink", "PushListener"]

AWAY: Final = "the sender of messages is being started: repeat the request"


class PushListener(Protocol):
    """Subscriptions of the push API in the hub."""

    def numbers(self) -> Iterable[int]:
        """Return the numbers of all subscriptions, for a process that has started."""

    def plain(self, number: int) -> PlainPushed | None:
        """Return the subscription with a ``number``; None if there is none any more."""

    def ready(self, number: int) -> None:
        """Have the held pulls of a subscription repeated.

        Args:
            number: of the subscription; there is a message for them.
        """

    def bury(self, number: int, topic: str, row: Row, attempts: int, progress: PlainProgress) -> None:
        """Publish a message to a dead letter topic; ``PushLink.buried`` follows.

        Args:
            number: of the subscription.
            topic: name of the dead letter topic.
            row: of the event of the message.
            attempts: deliveries of the message.
            progress: state of the deliveries with it, to be stored together.
        """

    def reported(self, progress: Sequence[PlainProgress]) -> None:
        """Take states of deliveries, to be stored.

        Args:
            progress: in their plain form.
        """

    def measured(self, figures: Sequence[PlainFigures]) -> None:
        """Take figures of subscriptions.

        Args:
            figures: the latest ones.
        """

    def returned(self) -> None:
        """Have all held pulls repeated: another process is at work, which knows of none."""


class PushLink:
    """Orders about subscriptions of the push API, and the answers to them. Used from the loop only.

    Args:
        listener: subscriptions in the hub.
        newest: returns the id up to which the hub knows the events of the store.
        identity: returns the keys of tokens and signatures; None while they are not needed.

    Attributes:
        life: number of the process that is at work, in the names of its leases; another one for each.
    """

    def __init__(
        self, listener: PushListener, newest: Callable[[], int], identity: Callable[[], PlainIdentity | None]
    ) -> None:
        self._listener = listener
        self._newest = newest
        self._identity = identity
        self._loop = asyncio.get_running_loop()
        self._order: Callable[[tuple[Any, ...]], None] | None = None
        """Sends an order; None while no process takes them."""
        self._call = 0
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._removals: dict[int, asyncio.Future[None]] = {}
        self.life = 0
        self._answers: Final[Mapping[int, Callable[..., None]]] = {
            PULLED: self._answered,
            ACKNOWLEDGED: self._answered,
            MODIFIED: self._answered,
            PUSH_READY: listener.ready,
            BURY: listener.bury,
            BACKLOGS: listener.reported,
            PUSH_REMOVED: self._removed,
            PUSH_FIGURES: listener.measured,
        }

    @property
    def working(self) -> bool:
        """True while a process takes orders."""
        return self._order is not None

    # --- the process

    def numbers(self) -> Iterable[int]:
        """Return the numbers of all subscriptions."""
        return self._listener.numbers()

    def began(self, order: Callable[[tuple[Any, ...]], None]) -> None:
        """Note that a process takes orders; the additions of all subscriptions follow.

        Args:
            order: sends one.
        """
        self._order = order
        self.life = secrets.randbits(32)
        self.identify()
        self._listener.returned()

    def additions(self, numbers: Iterable[int]) -> tuple[Any, ...] | None:
        """Return the order that adds some subscriptions; None if there are none of them any more.

        Args:
            numbers: of the subscriptions.
        """
        found = [plain for plain in map(self._listener.plain, numbers) if plain is not None]
        return (PUSH_ADD, found, self._newest()) if found else None

    def received(self, kind: int, arguments: Sequence[Any]) -> bool:
        """Take an answer of the process.

        Args:
            kind: of the answer.
            arguments: those of the kind.

        Returns:
            Whether it is one about these subscriptions.
        """
        take = self._answers.get(kind)
        if take is None:
            return False
        take(*arguments)
        return True

    def ended(self) -> None:
        """Note that the process has ended: its calls fail, and the removals are done, since it has no connection."""
        self._order = None
        calls, self._calls = self._calls, {}
        for future in calls.values():
            if not future.done():
                future.set_exception(StoreBusy(AWAY))
                # Its caller may have left.
                future.exception()
        self.released()

    def released(self) -> None:
        """Note that no process is at work that has subscriptions: all removals are done."""
        self._removed(list(self._removals))

    # --- calls

    async def pull(self, number: int, most: int) -> Sequence[PlainLeased]:
        """Lease messages to a client.

        Args:
            number: of the subscription.
            most: greatest number.

        Returns:
            The messages; if there are none, ``PushListener.ready`` is called when there is one.

        Raises:
            StoreBusy: no process takes orders now.
        """
        found: Sequence[PlainLeased] = await self._ask(PULL, number, most)
        return found

    async def acknowledge(self, number: int, acks: PlainAcks) -> PlainProgress | None:
        """Acknowledge messages.

        Args:
            number: of the subscription.
            acks: ids of messages, and numbers of their leases.

        Returns:
            The state to be stored before the client is answered; None if nothing has changed.

        Raises:
            StoreBusy: no process takes orders now.
        """
        progress: PlainProgress | None = await self._ask(ACKNOWLEDGE, number, acks)
        return progress

    async def modify(self, number: int, acks: PlainAcks, seconds: float) -> None:
        """Move the ends of leases.

        Args:
            number: of the subscription.
            acks: ids of messages, and numbers of their leases.
            seconds: number of seconds from now to the new end; 0 ends them.

        Raises:
            StoreBusy: no process takes orders now.
        """
        await self._ask(MODIFY, number, acks, seconds)

    async def _ask(self, kind: int, *arguments: Any) -> Any:
        if self._order is None:
            raise StoreBusy(AWAY)
        self._call += 1
        call, future = self._call, self._loop.create_future()
        self._calls[call] = future
        self._order((kind, call, *arguments))
        try:
            return await future
        finally:
            self._calls.pop(call, None)

    def _answered(self, call: int, result: Any = None) -> None:
        future = self._calls.get(call)
        if future is not None and not future.done():
            future.set_result(result)

    # --- orders without an answer; a process that starts later is given the subscriptions as they are then

    def identify(self) -> None:
        """Send the keys of tokens and signatures, if there are some."""
        if (keys := self._identity()) is not None:
            self._say(IDENTITY, *keys)

    def add(self, number: int) -> None:
        """Begin with a subscription; ``number``: its number."""
        if (order := self.additions((number,))) is not None:
            self._say(*order)

    def change(self, number: int, settings: Mapping[str, Any]) -> None:
        """Go on with other settings.

        Args:
            number: of the subscription.
            settings: fields of the API by name.
        """
        self._say(PUSH_CHANGE, number, dict(settings))

    def move(self, number: int, generation: int, position: int, acked: bytes) -> None:
        """Begin anew at another place.

        Args:
            number: of the subscription.
            generation: number of times that it was moved.
            position: id up to which all messages are acknowledged.
            acked: intervals above, encoded.
        """
        self._say(PUSH_MOVE, number, generation, position, acked)

    def topic_gone(self, topic: int) -> None:
        """Forget the messages of a topic; ``topic``: its number."""
        self._say(TOPIC_GONE, topic)

    def buried(self, number: int, id: int, *, published: bool) -> None:
        """Report the outcome of ``PushListener.bury``.

        Args:
            number: of the subscription.
            id: of the message.
            published: whether it is in the dead letter topic.
        """
        self._say(BURIED, number, id, published)

    def remove(self, number: int, succession: asyncio.Future[None]) -> asyncio.Future[None]:
        """End a subscription, which is not among all of them any more.

        Args:
            number: of the subscription.
            succession: done when no process of an earlier hub is at work any more.

        Returns:
            A future that is done when no request of it is under way.
        """
        ended = self._removals.get(number)
        if ended is not None:
            return ended
        ended = self._loop.create_future()
        if self._order is None and succession.done():
            # No process is at work that has subscriptions, and the next one is not given this one.
            ended.set_result(None)
            return ended
        self._removals[number] = ended
        self._say(PUSH_REMOVE, [number])
        return ended

    def _removed(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            ended = self._removals.pop(number, None)
            if ended is not None and not ended.done():
                ended.set_result(None)

    def _say(self, *order: Any) -> None:
        if self._order is not None:
            self._order(order)
