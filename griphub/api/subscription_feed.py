"""Subscriptions of the hub: stored events to the sender, its reports to the store, and the changes that owners make."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Final

import orjson

from griphub.access.quota import LimitReached
from griphub.callbacks.courier import Report
from griphub.processes.sender import SenderProcess
from griphub.processes.sender_commands import PlainKeys, PlainSubscription
from griphub.processes.writer import WriterProcess
from griphub.store.errors import StoreBroken, StoreBusy, StoreError
from griphub.store.event import Event
from griphub.store.plain_records import OPERATIONS, Row
from griphub.store.subscription import Subscription, SubscriptionProgress
from griphub.topics.subscription_table import SubscriptionTable
from griphub.topics.topic_table import TopicTable
from gripproxy.process.log import log

__all__ = ["DeliveryStatus", "SubscriptionBounds", "SubscriptionFeed"]

EVENT_BYTES: Final = 64_000
"""Bytes of an event's content beyond which the sender reads it from the store."""

SAVE_MAX: Final = 1000
"""Greatest number of positions in one commit."""

SAVE_PAUSE: Final = 1.0
"""Seconds before positions are written again that could not be."""

RESTS_MAX: Final = 1000
"""Subscriptions that rest in one turn of the loop since their rights have ended."""

RIGHTS_SPARE: Final = 1000
"""Ends of rights that are out of date before all are looked at: some, and as many as there are subscriptions."""

CANCEL_MAX: Final = 30.0
"""Seconds that a deletion waits for the sender, which aborts a request after two; it is started again then."""

Name = tuple[int, str, str]
"""Number of a topic, key of an owner, and id of a subscription."""

MakeSender = Callable[
    [Callable[[], Iterable[int]], Callable[[int], PlainSubscription | None], Callable[[Sequence[Report]], None]],
    SenderProcess,
]
"""Makes the process of the sender, of the numbers of all subscriptions, the subscription of a number, and a receiver of
reports."""

NO_FAILURES: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SubscriptionBounds:
    """Greatest numbers of subscriptions.

    Attributes:
        topic: of one topic.
        owner: of one owner.
        total: of all owners.
    """

    topic: int = 1000
    owner: int = 1000
    total: int = 20_000


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """State of a delivery, as the sender has reported it.

    Attributes:
        state: name of its ``State`` in lower case.
        position: id up to which events were delivered.
        rest: reason of its rest; empty if it does not rest.
        failure: class of its last failure; empty after a success.
        in_flight: whether a request is under way.
        delivered: events acknowledged since the sender started.
        lag: seconds since the event under delivery was stored; 0 if all were delivered.
        failures: failed requests by class since the sender started.
    """

    state: str
    position: int
    rest: str = ""
    failure: str = ""
    in_flight: bool = False
    delivered: int = 0
    lag: float = 0.0
    failures: Mapping[str, int] = field(default_factory=lambda: NO_FAILURES)


class SubscriptionFeed:
    """All subscriptions, and their part of the stored events. Implements ``feed.Listener``.

    The caller makes the changes of one name one after the other.

    Args:
        topics: all topics.
        writer: writing process of the store.
        sender: makes the process of the sender.
        bounds: greatest numbers.
        wall: seconds since 1970.
        pushed: returns whether a topic has subscriptions of the push API, by its number: the sender has them too.
    """

    def __init__(
        self,
        topics: TopicTable,
        writer: WriterProcess,
        sender: MakeSender,
        bounds: SubscriptionBounds,
        wall: Callable[[], float],
        pushed: Callable[[int], bool] = lambda number: False,
    ) -> None:
        self.table: Final = SubscriptionTable()
        self._topics = topics
        self._writer = writer
        self._bounds = bounds
        self._wall = wall
        self._pushed = pushed
        self._loop = asyncio.get_running_loop()
        self.sender: Final = sender(self._numbers, self._plain, self._reported)
        self._reports: dict[int, Report] = {}
        self._unsaved: dict[int, SubscriptionProgress] = {}
        self._saving: asyncio.Task[None] | None = None
        self._closed = False
        self._doubtful = False
        """True if the store may have a subscription that the table has not: its writer ended before the answer."""
        self._batch: tuple[frozenset[int], asyncio.Future[None]] = (frozenset(), self._loop.create_future())
        """Subscriptions whose states are being written, and the end of that."""
        self._renewing: set[int] = set()
        """Subscriptions whose states are not written until they are renewed."""
        self._ending: dict[Name, dict[int, asyncio.Future[None]]] = {}
        """Deleted subscriptions that may still have a request under way, and the end of that."""
        self._rights: list[tuple[int, int]] = []
        """Ends of rights in microseconds since 1970, and numbers of subscriptions; some are out of date."""

    def open(self, subscriptions: Sequence[Subscription]) -> None:
        """Begin with stored subscriptions.

        Args:
            subscriptions: all of them.
        """
        for subscription in subscriptions:
            self._set(subscription)
        while self._end_rights():
            # Subscriptions without rights rest before the sender begins.
            pass
        self.sender.open()

    async def close(self) -> None:
        """End the sender, and write its last positions."""
        await self.sender.stop()
        self._closed = True
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.wait([self._saving])
        try:
            while batch := self._slice():
                await self._writer.save_progress(batch)
        except StoreError as error:
            log.warning("positions of subscriptions not written", "events are delivered again", reason=error)

    # --- orders of owners

    async def make(self, draft: Subscription) -> Subscription:
        """Make a subscription, and begin with it.

        Args:
            draft: the subscription, without a number.

        Returns:
            The subscription; an earlier one of the same name as it is.

        Raises:
            LimitReached: there are as many as a bound allows.
            LookupError: the topic was deleted meanwhile.
            StoreError: the store cannot do it now.
        """
        bounds = self._bounds
        limits = bounds.topic, bounds.owner, bounds.total
        try:
            made = await self._writer.make_subscription(draft, *limits, owner=draft.owner)
        except (StoreBroken, asyncio.CancelledError):
            self._doubtful = True
            raise
        if made is None or self._topics.numbered(draft.topic) is None:
            raise LookupError(draft.topic)
        if not isinstance(made, Subscription):
            raise LimitReached("subscriptions", getattr(bounds, made), made)
        if (known := self.table.numbered(made.number)) is not None:
            return known
        self._set(made)
        if (plain := self._plain(made.number)) is not None:
            self.sender.add(plain)
        return made

    async def renew(self, subscription: Subscription, rights_end: int) -> Subscription:
        """Prolong the rights of a subscription, and begin again with it if it rests.

        Args:
            subscription: the subscription.
            rights_end: time at which it rests, in microseconds since 1970.

        Returns:
            The subscription then.

        Raises:
            LookupError: it was deleted meanwhile.
            StoreError: the store cannot do it now.
        """
        number = subscription.number
        self._renewing.add(number)
        try:
            numbers, written = self._batch
            if number in numbers:
                # A rest that is being written would be the last that the store knows.
                await asyncio.wait([written])
            stored = await self._writer.renew_subscription(number, rights_end, owner=subscription.owner)
            known = self.table.numbered(number)
            if stored is None or known is None:
                raise LookupError(number)
            renewed = replace(known, rights_end=rights_end, rest="", failure="")
            self._set(renewed)
            self._reports.pop(number, None)
            if number in self._unsaved:
                self._progress(renewed)
            self.sender.renew(number)
            return renewed
        finally:
            self._renewing.discard(number)
            self._save_soon()

    async def set_keys(self, subscription: Subscription, keys: PlainKeys) -> Subscription:
        """Sign further requests with other keys.

        Args:
            subscription: the subscription.
            keys: the newest first.

        Returns:
            The subscription then.

        Raises:
            LookupError: it was deleted meanwhile.
            StoreError: the store cannot do it now.
        """
        number = subscription.number
        stored = await self._writer.set_subscription_keys(number, keys, owner=subscription.owner)
        known = self.table.numbered(number)
        if stored is None or known is None:
            raise LookupError(number)
        changed = replace(known, keys=keys)
        self.table.set(changed)
        self.sender.sign(number, keys)
        return changed

    async def delete(self, topic: int, owner: str, id: str) -> bool:
        """Delete a subscription; no request with its id begins afterwards, nor is one under way.

        Args:
            topic: number of its topic.
            owner: key of its owner.
            id: chosen by the subscriber.

        Returns:
            Whether there was one.

        Raises:
            StoreError: the store or the sender cannot do it now.
        """
        name = (topic, owner, id)
        deleted: int | None = None
        if self._doubtful or self.table.find(*name) is not None:
            deleted = await self._writer.delete_subscription(topic, owner, id, owner=owner)
        known = self.table.find(*name)
        if known is not None:
            self._remove(known.number)
            self._cancel(name, known.number)
        await self._ended(name)
        return known is not None or deleted is not None

    def _cancel(self, name: Name, number: int) -> None:
        ending = self._ending.setdefault(name, {})
        ended = ending[number] = self.sender.cancel(number)

        def forget(_: asyncio.Future[None]) -> None:
            del ending[number]
            if not ending and self._ending.get(name) is ending:
                del self._ending[name]

        ended.add_done_callback(forget)

    async def _ended(self, name: Name) -> None:
        """Wait until no request of a deleted subscription is under way, also of one deleted by an earlier request."""
        waiting = [
            ended for ended in (self.sender.succession, *self._ending.get(name, {}).values()) if not ended.done()
        ]
        if not waiting:
            return
        _, pending = await asyncio.wait(waiting, timeout=CANCEL_MAX)
        if pending:
            if self.sender.working:
                self.sender.kill("a cancellation was not answered")
            raise StoreBusy("the sender of callbacks has not answered: repeat the request")

    # --- orders of the hub

    def end(self, topic: int) -> None:
        """End all subscriptions of a topic that was deleted, as the store has.

        Args:
            topic: its number.
        """
        numbers = [subscription.number for subscription in self.table.of_topic(topic)]
        for number in numbers:
            self._remove(number)
        self.sender.drop(numbers)

    def revoke(self, topic: int) -> None:
        """Let all subscriptions of a topic rest until they are made again: their owners' rights are checked then.

        Args:
            topic: its number.
        """
        self._rest([subscription.number for subscription in self.table.of_topic(topic)], "revoked")

    def check(self) -> None:
        """Let the subscriptions rest whose rights have ended; called each second."""
        if self._end_rights():
            self._loop.call_soon(self.check)

    def _end_rights(self) -> bool:
        """Let some of the subscriptions rest whose rights have ended; return True if there may be more."""
        now, rights = self._wall() * 1e6, self._rights
        ended: list[int] = []
        for _ in range(RESTS_MAX):
            if not rights or rights[0][0] > now:
                break
            end, number = heapq.heappop(rights)
            subscription = self.table.numbered(number)
            if subscription is not None and subscription.rights_end == end and not subscription.rest:
                ended.append(number)
        self._rest(ended, "rights-ended")
        return bool(rights) and rights[0][0] <= now

    def _rest(self, numbers: Sequence[int], reason: str) -> None:
        for number in numbers:
            subscription = self.table.numbered(number)
            assert subscription is not None
            self._progress(replace(subscription, rest=reason))
        if numbers:
            self.sender.rest(numbers, reason)
            self._save_soon()

    # --- feed.Listener

    def wants(self, number: int) -> bool:
        """Return whether the topic with a ``number`` has subscriptions."""
        return self.table.follows(number) or self._pushed(number)

    def take(self, number: int, events: Sequence[Event]) -> None:
        """Give the events of one publication to the sender.

        Args:
            number: of their topic.
            events: all of them, in order.
        """
        if not self.sender.working:
            # The sender reads the store when it begins.
            return
        sizes = [len(event.data) for event in events]
        if max(sizes) > EVENT_BYTES:
            self.sender.hint(number, events[-1].id)
        else:
            self.sender.events(number, [_row(event) for event in events], sum(sizes))

    # --- state

    def status(self, subscription: Subscription) -> DeliveryStatus:
        """Return the state of a delivery.

        Args:
            subscription: its subscription.
        """
        report = self._report_of(subscription)
        if report is None:
            state = _state_without_report(subscription)
            return DeliveryStatus(state, subscription.position, subscription.rest, subscription.failure)
        _, position, _, rest, failure, state, in_flight, delivered, oldest, failures, _ = report
        lag = max(0.0, self._wall() - oldest / 1e6) if oldest else 0.0
        return DeliveryStatus(state, position, rest, failure, in_flight, delivered, lag, failures)

    def states(self) -> Counter[str]:
        """Return the number of subscriptions by state."""
        states: Counter[str] = Counter()
        for subscription in self.table:
            report = self._report_of(subscription)
            states[_state_without_report(subscription) if report is None else report[5]] += 1
        return states

    def _report_of(self, subscription: Subscription) -> Report | None:
        return self._reports.get(subscription.number) if self.sender.working else None

    def _set(self, subscription: Subscription) -> None:
        self.table.set(subscription)
        heapq.heappush(self._rights, (subscription.rights_end, subscription.number))
        if len(self._rights) > 2 * len(self.table) + RIGHTS_SPARE:
            self._rights = [(each.rights_end, each.number) for each in self.table]
            heapq.heapify(self._rights)

    def _remove(self, number: int) -> None:
        self.table.remove(number)
        self._reports.pop(number, None)
        self._unsaved.pop(number, None)

    def _numbers(self) -> list[int]:
        return [subscription.number for subscription in self.table]

    def _plain(self, number: int) -> PlainSubscription | None:
        each = self.table.numbered(number)
        topic = None if each is None else self._topics.numbered(each.topic)
        if each is None or topic is None:
            return None
        return (
            *(each.number, each.topic, topic.name, each.id, each.owner, each.callback, each.keys),
            *(each.position, each.confirmed, each.rest, each.failure),
        )

    # --- reports

    def _reported(self, reports: Sequence[Report]) -> None:
        for report in reports:
            number, position, confirmed, rest, failure, *_, write = report
            subscription = self.table.numbered(number)
            if subscription is None:
                continue
            self._reports[number] = report
            if write:
                self._progress(
                    replace(subscription, position=position, confirmed=confirmed, rest=rest, failure=failure)
                )
        self._save_soon()

    def _progress(self, subscription: Subscription) -> None:
        self.table.set(subscription)
        self._unsaved[subscription.number] = SubscriptionProgress(
            subscription.number,
            subscription.position,
            subscription.confirmed,
            subscription.rest,
            subscription.failure,
        )

    def _save_soon(self) -> None:
        if self._saving is not None or self._closed:
            return
        if any(number not in self._renewing for number in self._unsaved):
            self._saving = self._loop.create_task(self._save(), name="save positions")
            self._saving.add_done_callback(self._saved)

    def _saved(self, task: asyncio.Task[None]) -> None:
        self._saving = None
        if not task.cancelled():
            task.result()
            self._save_soon()

    async def _save(self) -> None:
        failed = False
        while batch := self._slice():
            written = self._loop.create_future()
            self._batch = frozenset([progress.number for progress in batch]), written
            try:
                await self._writer.save_progress(batch)
                failed = False
            except StoreError as error:
                for progress in batch:
                    if self.table.numbered(progress.number) is not None:
                        self._unsaved.setdefault(progress.number, progress)
                if not failed:
                    log.warning(
                        "positions of subscriptions not written",
                        "it is tried each second",
                        count=len(batch),
                        reason=error,
                    )
                failed = True
            finally:
                self._batch = frozenset(), written
                written.set_result(None)
            if failed:
                await asyncio.sleep(SAVE_PAUSE)

    def _slice(self) -> list[SubscriptionProgress]:
        numbers = list(islice((number for number in self._unsaved if number not in self._renewing), SAVE_MAX))
        return [self._unsaved.pop(number) for number in numbers]


def _state_without_report(subscription: Subscription) -> str:
    return "resting" if subscription.rest else "replaying" if subscription.confirmed else "challenging"


def _row(event: Event) -> Row:
    """Return an event as a row with the columns of the store."""
    attributes = orjson.dumps(dict(event.attributes)).decode() if event.attributes else None
    return (
        *(event.id, event.prev_id, event.version, event.time, event.data, event.content_type, event.key),
        *(OPERATIONS.index(event.op), attributes, event.size),
    )
