"""Subscriptions of the push API in the hub: changes of their owners, orders to the sender, its reports to the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from griphub.api.backlog_saver import BacklogSaver, with_message
from griphub.api.pubsub_figures import PubsubFigures
from griphub.api.pull_channels import PullChannels
from griphub.api.push_identity import PushIdentity
from griphub.processes.push_commands import PlainAcks, PlainFigures, PlainLeased, PlainPushed
from griphub.processes.push_link import PushLink
from griphub.processes.sender import SenderProcess
from griphub.processes.writer import WriterProcess
from griphub.pubsub.ack_id import AckIds
from griphub.pubsub.dead_letter import dead_letter_attributes
from griphub.pubsub.message import Message
from griphub.pubsub.push_config import HANDSHAKE
from griphub.sender.consent import ConsentState
from griphub.store.errors import OwnerBusy, StoreBroken, StoreBusy, StoreError
from griphub.store.event import Draft
from griphub.store.plain_pubsub import attempts_of
from griphub.store.plain_records import PlainProgress, Row, attempts_json, event_of
from griphub.store.publication import Idempotency, Outcome, Publication, Published, Refused
from griphub.store.pubsub_subscription import BacklogProgress, PubsubBound, PubsubSubscription
from griphub.topics.pubsub_table import PubsubTable
from gripproxy.process.log import log

__all__ = ["PubsubBounds", "PubsubFeed"]

REMOVAL_MAX: Final = 30.0
"""Seconds that a deletion waits for the sender; it is started again then."""

BURY_PAUSE: Final = 1.0
"""Seconds before a dead letter is published again that the store did not take."""

USE_INTERVAL: Final = 3600.0
"""Seconds after which a further use of a subscription is written."""

EXPIRY_INTERVAL: Final = 60.0
"""Seconds between two looks for subscriptions that have expired."""

EXPIRED_MAX: Final = 100
"""Greatest number of subscriptions that are deleted after one look."""

Read = Callable[[int], Awaitable[Sequence[PubsubSubscription]]]
"""Returns stored subscriptions behind a number, in order; none at the end."""


@dataclass(frozen=True, slots=True)
class PubsubBounds:
    """Greatest numbers of subscriptions.

    Attributes:
        project: of one project.
        topic: of one topic.
    """

    project: int = 10_000
    topic: int = 10_000


class PubsubFeed:
    """All subscriptions of the push API. Implements ``griphub.processes.push_link.PushListener``.

    Args:
        writer: writing process of the store.
        read: reads the stored subscriptions.
        sender: returns the process of the sender.
        newest: returns the id up to which the hub knows the events of the store.
        stored: called with the outcome of a dead letter's publication, and its event.
        identity: keys of tokens and signatures.
        channels: channels of held pulls.
        ack_ids: texts of ack ids.
        bounds: greatest numbers.
        now: monotonic time in seconds.
        wall: seconds since 1970.

    Attributes:
        table: the subscriptions.
        link: to the sender.
        channels: that of the arguments, as are ``ack_ids`` and ``identity``.
        figures: of the subscriptions.
    """

    def __init__(
        self,
        writer: WriterProcess,
        read: Read,
        sender: Callable[[], SenderProcess],
        newest: Callable[[], int],
        stored: Callable[[Published, Sequence[Draft]], None],
        identity: PushIdentity,
        channels: PullChannels,
        ack_ids: AckIds,
        bounds: PubsubBounds,
        now: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.table: Final = PubsubTable()
        self.link: Final = PushLink(self, newest, identity.plain)
        self.identity: Final = identity
        self.channels: Final = channels
        self.ack_ids: Final = ack_ids
        self.figures: Final = PubsubFigures()
        self._writer = writer
        self._read = read
        self._sender = sender
        self._stored = stored
        self._bounds = bounds
        self._now = now
        self._wall = wall
        self._loop = asyncio.get_running_loop()
        self._saver = BacklogSaver(writer, lambda number: self.table.numbered(number) is not None)
        self._doubtful = False
        """True if the store may differ from the table: the writer has ended before an answer."""
        self._reload = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._look = now() + EXPIRY_INTERVAL

    async def open(self) -> None:
        """Begin with the stored subscriptions."""
        async for subscription in self._all():
            self.table.set(subscription)
        if self.table:
            await self.prepare()

    async def prepare(self) -> None:
        """Have the keys of tokens ready: the first one is made when it is needed.

        Raises:
            OperatorError: they cannot be read or written.
        """
        if await self.identity.open():
            self.link.identify()

    async def close(self) -> None:
        """Write the last states; called when the sender has ended."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.identity.close()
        await self._saver.close()

    async def _all(self) -> Any:
        after = 0
        while page := await self._read(after):
            for subscription in page:
                yield subscription
            after = page[-1].number

    # --- changes of owners

    async def refresh(self) -> None:
        """Take the subscriptions as they are in the store, if a change has failed with an unknown outcome.

        Raises:
            StoreError: they cannot be read now.
        """
        if not self._doubtful:
            return
        async with self._reload:
            if not self._doubtful:
                return
            found = set()
            async for stored in self._all():
                found.add(stored.number)
                known = self.table.numbered(stored.number)
                if known is None:
                    self._begin(stored)
                elif known.generation != stored.generation:
                    self._moved(stored)
                elif known.settings != stored.settings:
                    self._changed(known, stored.settings)
            for number in {each.number for each in self.table} - found:
                self._forget(number)
            self._doubtful = False

    async def make(self, draft: PubsubSubscription) -> PubsubSubscription | PubsubBound:
        """Make a subscription, and begin with it.

        Args:
            draft: the subscription, without a number.

        Returns:
            The subscription, or the reason why there is none.

        Raises:
            LookupError: the topic was deleted meanwhile.
            OperatorError: the keys of tokens cannot be read or written.
            StoreError: the store cannot do it now.
        """
        await self.prepare()
        made: PubsubSubscription | PubsubBound | None = await self._change(
            self._writer.make_pubsub(draft, self._bounds.project, self._bounds.topic, owner=draft.owner)
        )
        if made is None:
            raise LookupError(draft.topic)
        if isinstance(made, PubsubSubscription) and self.table.numbered(made.number) is None:
            self._begin(made)
        return made

    async def change(self, subscription: PubsubSubscription, settings: Mapping[str, Any]) -> PubsubSubscription:
        """Go on with other settings.

        Args:
            subscription: the subscription.
            settings: all fields.

        Returns:
            The subscription then.

        Raises:
            LookupError: it was deleted meanwhile.
            StoreError: the store cannot do it now.
        """
        number = subscription.number
        stored = await self._change(
            self._writer.change_pubsub(number, settings, self._micros(), owner=subscription.owner)
        )
        known = self.table.numbered(number)
        if stored is None or known is None:
            raise LookupError(number)
        return self._changed(known, stored.settings)

    async def seek(self, subscription: PubsubSubscription, position: int, acked: bytes) -> None:
        """Move a subscription to another place.

        Args:
            subscription: the subscription.
            position: id up to which all messages are acknowledged then.
            acked: intervals above, encoded.

        Raises:
            LookupError: it was deleted meanwhile.
            StoreError: the store cannot do it now.
        """
        number = subscription.number
        stored = await self._change(
            self._writer.seek_pubsub(number, position, acked, self._micros(), owner=subscription.owner)
        )
        if stored is None or self.table.numbered(number) is None:
            raise LookupError(number)
        self._moved(stored)

    async def delete(self, subscription: PubsubSubscription) -> bool:
        """Delete a subscription; no request of it begins afterwards, nor is one under way.

        Args:
            subscription: the subscription.

        Returns:
            Whether there was one.

        Raises:
            StoreError: the store or the sender cannot do it now.
        """
        number = subscription.number
        deleted = await self._change(self._writer.delete_pubsub(number, owner=subscription.owner))
        known = self.table.numbered(number) is not None
        ended = self._forget(number)
        sender = self._sender()
        waiting = [each for each in (sender.succession, ended) if not each.done()]
        if waiting:
            _, pending = await asyncio.wait(waiting, timeout=REMOVAL_MAX)
            if pending:
                if sender.working:
                    sender.kill("a deletion was not answered")
                raise StoreBusy("the sender of messages has not answered: repeat the request")
        return deleted or known

    def end(self, topic: int) -> None:
        """Let the subscriptions of a topic be ones of a deleted topic, as the store has.

        Args:
            topic: its number.
        """
        subscriptions = self.table.of_topic(topic)
        for each in subscriptions:
            self.table.set(replace(each, topic=0, generation=each.generation + 1))
        if subscriptions:
            self.link.topic_gone(topic)

    async def _change(self, work: Awaitable[Any]) -> Any:
        try:
            return await work
        except (StoreBroken, asyncio.CancelledError):
            self._doubtful = True
            raise

    def _begin(self, subscription: PubsubSubscription) -> None:
        self.table.set(subscription)
        self._sender().need()
        self.link.add(subscription.number)

    def _changed(self, known: PubsubSubscription, settings: Mapping[str, Any]) -> PubsubSubscription:
        if settings["pushConfig"] != known.settings["pushConfig"]:
            self.figures.moved(known.number, _first_stop(settings))
        changed = replace(known, settings=settings, used=self._micros())
        self.table.set(changed)
        self.link.change(changed.number, settings)
        # Pulls of a push subscription are refused when they are repeated.
        self.channels.wake(changed.number)
        return changed

    def _moved(self, stored: PubsubSubscription) -> None:
        self.table.set(stored)
        self.link.move(stored.number, stored.generation, stored.position, stored.acked)
        self.channels.wake(stored.number)

    def _forget(self, number: int) -> asyncio.Future[None]:
        self.table.remove(number)
        self._saver.forget(number)
        self.figures.forget(number)
        self.channels.wake(number)
        return self.link.remove(number, self._sender().succession)

    # --- messages of pulls

    async def pull(self, subscription: PubsubSubscription, most: int) -> Sequence[PlainLeased]:
        """Lease messages to a client; see ``PushLink.pull``.

        Args:
            subscription: the subscription.
            most: greatest number.

        Returns:
            The messages.
        """
        return await self.link.pull(subscription.number, most)

    async def acknowledge(self, subscription: PubsubSubscription, acks: PlainAcks) -> None:
        """Acknowledge messages, and wait until that is stored.

        Args:
            subscription: the subscription.
            acks: ids of messages, and numbers of their leases.

        Raises:
            StoreError: the store or the sender cannot do it now.
        """
        progress = await self.link.acknowledge(subscription.number, acks)
        if progress is not None:
            self.reported([progress])
        # A repeated request changes nothing, and waits for the state with its messages.
        await self._saver.saved(subscription.number)

    def stop_of(self, subscription: PubsubSubscription) -> str:
        """Return why nothing is sent to the receiver of a subscription; empty if messages are.

        Args:
            subscription: the subscription.
        """
        figures = self.figures.of(subscription.number)
        if figures is not None:
            return figures.stop
        return _first_stop(subscription.settings)

    def touch(self, subscription: PubsubSubscription) -> None:
        """Note that a subscription is used.

        Args:
            subscription: the subscription.
        """
        now = self._micros()
        if now - subscription.used > USE_INTERVAL * 1_000_000:
            self._saver.save([_progress_of(self._use(subscription, now))])

    def _use(self, subscription: PubsubSubscription, now: int) -> PubsubSubscription:
        used = replace(subscription, used=now)
        self.table.set(used)
        return used

    # --- turns

    def check(self) -> None:
        """Forget pulls whose time is over, and delete subscriptions that were not used for long; called each second."""
        now = self._now()
        self.channels.expire(now)
        self.identity.check(self.link.identify)
        if now < self._look:
            return
        self._look = now + EXPIRY_INTERVAL
        if expired := [each for each in self.table if self._is_expired(each)][:EXPIRED_MAX]:
            self._do(self._delete_all(expired), "delete expired subscriptions")

    def _is_expired(self, subscription: PubsubSubscription) -> bool:
        ttl = subscription.settings["expirationPolicy"].get("ttl")
        return ttl is not None and self._micros() - subscription.used > ttl // 1000

    async def _delete_all(self, expired: Iterable[PubsubSubscription]) -> None:
        for each in expired:
            try:
                await self.delete(each)
            except StoreError as error:
                log.warning("expired subscription not deleted", project=each.project, id=each.id, reason=error)
                return
            log.info("subscription expired", project=each.project, id=each.id)

    def _do(self, work: Any, name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()

    # --- the sender; see PushListener

    def numbers(self) -> Iterable[int]:
        """Return the numbers of all subscriptions."""
        return [subscription.number for subscription in self.table]

    def plain(self, number: int) -> PlainPushed | None:
        """Return the subscription with a ``number``, as the sender takes it; None if there is none any more."""
        each = self.table.numbered(number)
        if each is None:
            return None
        return (
            *(each.number, each.topic, each.owner, dict(each.settings), each.position, each.acked),
            *(dict(each.attempts), each.generation),
        )

    def ready(self, number: int) -> None:
        """Have the held pulls of a subscription repeated.

        Args:
            number: of the subscription.
        """
        self.channels.wake(number)

    def returned(self) -> None:
        """Have all held pulls repeated: another process of the sender is at work."""
        self.figures.restart()
        self.channels.wake_all()

    def measured(self, figures: Sequence[PlainFigures]) -> None:
        """Take figures of subscriptions.

        Args:
            figures: the latest ones.
        """
        self.figures.take(figures, lambda number: self.table.numbered(number) is not None)

    def reported(self, progress: Sequence[PlainProgress]) -> None:
        """Take states of deliveries, and store them.

        Args:
            progress: in their plain form.
        """
        for each in progress:
            self._take(each)
        self._saver.save(progress)

    def _take(self, progress: PlainProgress) -> None:
        number, generation, position, acked, attempts, used = progress
        known = self.table.numbered(number)
        # A sender that starts again begins with the latest state; one of before a seek is none.
        if known is not None and known.generation == generation and position >= known.position:
            latest = replace(
                known, position=position, acked=acked, attempts=attempts_of(attempts), used=max(used, known.used)
            )
            self.table.set(latest)

    def bury(self, number: int, topic: str, row: Row, attempts: int, progress: PlainProgress) -> None:
        """Publish a message to a dead letter topic, in one transaction with its acknowledgement.

        Args:
            number: of the subscription.
            topic: name of the dead letter topic.
            row: of the event of the message.
            attempts: deliveries of the message.
            progress: state of the deliveries with it.
        """
        self._do(self._bury(number, topic, row, attempts, progress), "dead letter")

    async def _bury(self, number: int, topic: str, row: Row, attempts: int, progress: PlainProgress) -> None:
        subscription = self.table.numbered(number)
        if subscription is None:
            return
        event = event_of(row)
        message = Message.of_event(event.id, event.time, event.data, event.attributes, event.key)
        given = dead_letter_attributes(message, subscription.project, subscription.id, attempts)
        draft = Draft(event.data, event.content_type, None, "put", given)
        # The writer may end before its answer: a repetition under this name is no second copy.
        name = Idempotency(f"dead letters of {number}", f"{progress[1]}.{event.id}", b"")
        _, generation, position, acked, counts, used = progress
        behind = BacklogProgress(number, generation, position, acked, attempts_of(counts), used)
        publication = Publication(topic, (draft,), None, name, behind)
        await self._saver.hold(number)
        published = False
        try:
            outcome = await self._publish(publication, subscription.owner)
            published = not isinstance(outcome, Refused)
            if isinstance(outcome, Published):
                self._stored(outcome, (draft,))
        finally:
            if published and (known := self.table.numbered(number)) is not None and known.generation == generation:
                self._take(with_message(_progress_of(known), event.prev_id, event.id))
            self._saver.release(number, (event.prev_id, event.id) if published else None)
            self.link.buried(number, event.id, published=published)

    async def _publish(self, publication: Publication, owner: str) -> Outcome:
        while True:
            future: asyncio.Future[Outcome | StoreError] = self._loop.create_future()
            try:
                self._writer.append(publication, partial(_settle, future), owner)
            except (OwnerBusy, StoreBusy):
                await asyncio.sleep(BURY_PAUSE)
                continue
            outcome = await future
            if not isinstance(outcome, StoreError):
                return outcome
            await asyncio.sleep(BURY_PAUSE)

    def _micros(self) -> int:
        return round(self._wall() * 1_000_000)


def _first_stop(settings: Mapping[str, Any]) -> str:
    """Return why nothing is sent to a receiver at first; empty for no reason."""
    attributes: Mapping[str, str] = settings["pushConfig"].get("attributes", {})
    return ConsentState.WANTED.value if HANDSHAKE in attributes else ""


def _settle(future: asyncio.Future[Outcome | StoreError], outcome: Outcome | StoreError) -> None:
    # The hub may have ended the wait.
    if not future.done():
        future.set_result(outcome)


def _progress_of(subscription: PubsubSubscription) -> PlainProgress:
    return (
        *(subscription.number, subscription.generation, subscription.position, subscription.acked),
        *(attempts_json(subscription.attempts), subscription.used),
    )
