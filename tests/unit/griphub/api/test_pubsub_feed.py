"""Subscriptions of the push API in the hub: changes of their owners, orders to the sender, its reports to the store."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from griphub.api import pubsub_feed
from griphub.api.identity_keys import IdentityKeys
from griphub.api.pubsub_feed import EXPIRY_INTERVAL, PubsubBounds, PubsubFeed
from griphub.api.pull_channels import PullChannels
from griphub.api.push_identity import PushIdentity
from griphub.processes.push_commands import (
    BURIED,
    IDENTITY,
    PUSH_ADD,
    PUSH_CHANGE,
    PUSH_MOVE,
    PUSH_REMOVE,
    PUSH_REMOVED,
    TOPIC_GONE,
)
from griphub.processes.sender import SenderProcess
from griphub.processes.writer import WriterProcess
from griphub.pubsub.ack_id import AckIds
from griphub.store.errors import StoreBroken, StoreBusy
from griphub.store.plain_pubsub import pubsub_of
from griphub.store.plain_records import plain_progress
from griphub.store.pubsub_subscription import BacklogProgress, PubsubSubscription
from griphub.store.sqlite_reader import RowReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.topic import TopicSettings
from tests.support.store_conformance import published

DAY = 86_400
SETTINGS = {"pushConfig": {}, "expirationPolicy": {"ttl": DAY * 10**9}}


class Writer:
    """Writing process: carries its calls out at once."""

    def __init__(self, path: pathlib.Path) -> None:
        self.store = SqliteWriter(path, "off")
        self.breaks = False
        """Whether the process ends behind a change, before its answer."""
        self.busy = 0
        """Publications that are refused before one is taken."""

    def _answer(self, result: Any) -> Any:
        if self.breaks:
            raise StoreBroken("the writer has ended")
        return result

    async def make_pubsub(self, draft: PubsubSubscription, project: int, topic: int, *, owner: str) -> Any:
        return self._answer(self.store.pubsub.make(draft, project, topic))

    async def change_pubsub(self, number: int, settings: Any, used: int, *, owner: str) -> Any:
        return self._answer(self.store.pubsub.change(number, settings, used))

    async def seek_pubsub(self, number: int, position: int, acked: bytes, used: int, *, owner: str) -> Any:
        return self._answer(self.store.pubsub.seek(number, position, acked, used))

    async def delete_pubsub(self, number: int, *, owner: str) -> Any:
        return self._answer(self.store.pubsub.delete(number))

    async def save_backlogs(self, progress: Sequence[Any]) -> None:
        self.store.pubsub.save_all(progress)

    def append(self, publication: Any, done: Any, owner: str) -> None:
        if self.busy:
            self.busy -= 1
            raise StoreBusy("away")
        [outcome] = self.store.append([publication])
        asyncio.get_running_loop().call_soon(done, outcome)


class Sender:
    """Process of the sender, which the test is."""

    def __init__(self) -> None:
        self.succession: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.succession.set_result(None)
        self.needed = 0
        self.working = True
        self.killed = ""

    def need(self) -> None:
        self.needed += 1

    def kill(self, reason: str) -> None:
        self.killed = reason


class House:
    """Feed with a store, and the orders that it gives."""

    def __init__(self, path: pathlib.Path) -> None:
        self.writer = Writer(path)
        self.writer.store.put_topic("p/tt-1", TopicSettings())
        self.writer.store.put_topic("p/dead", TopicSettings())
        self.rows = RowReader(path)
        self.sender = Sender()
        self.time = 1_000_000.0
        self.items: list[str] = []
        self.dead: list[Any] = []
        self.orders: list[tuple[Any, ...]] = []
        self.feed = PubsubFeed(
            cast(WriterProcess, self.writer),
            self._read,
            lambda: cast(SenderProcess, self.sender),
            lambda: 9,
            lambda outcome, drafts: self.dead.append((outcome, drafts)),
            PushIdentity(IdentityKeys(path, lambda: self.time), "iss", {}, lambda: self.time),
            PullChannels("hub/", lambda channel, item: self.items.append(channel), "p1", 10),
            AckIds(b"secret"),
            PubsubBounds(2, 10),
            lambda: self.time,
            lambda: self.time,
        )

    async def _read(self, after: int) -> list[PubsubSubscription]:
        return list(map(pubsub_of, self.rows.pubsub(after, 1)))

    def work(self) -> None:
        """Have the sender take orders."""
        self.feed.link.began(self.orders.append)
        self.orders.clear()

    async def make(self, id: str = "ss-1") -> PubsubSubscription:
        draft = PubsubSubscription(0, "p", id, 1, "o", SETTINGS, 0, used=round(self.time * 1e6))
        made = await self.feed.make(draft)
        assert isinstance(made, PubsubSubscription)
        return made

    def stored(self, number: int = 1) -> PubsubSubscription:
        return {each.number: each for each in map(pubsub_of, self.rows.pubsub(0, 100))}[number]


@contextlib.asynccontextmanager
async def opened(path: pathlib.Path) -> AsyncIterator[House]:
    house = House(path / "hub.db")
    await house.feed.open()
    try:
        yield house
    finally:
        await house.feed.close()
        house.rows.close()
        house.writer.store.close()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pubsub_feed, "BURY_PAUSE", 0.0)


async def test_a_subscription_is_made_changed_moved_and_deleted(tmp_path: pathlib.Path) -> None:
    async with opened(tmp_path) as house:
        house.work()
        made = await house.make()
        assert house.sender.needed == 1
        assert house.orders.pop(0)[0] == IDENTITY
        assert house.orders == [(PUSH_ADD, [(1, 1, "o", SETTINGS, 0, b"", {}, 0)], 9)]
        held = house.feed.channels.hold(1, [], 0.0)
        changed = await house.feed.change(made, {**SETTINGS, "ackDeadlineSeconds": 20})
        assert changed.settings["ackDeadlineSeconds"] == 20
        await house.feed.seek(changed, 0, b"")
        assert house.orders[1:] == [(PUSH_CHANGE, 1, changed.settings), (PUSH_MOVE, 1, 1, 0, b"")]
        # Held pulls see each change.
        assert house.items == [held.channel, held.channel]
        deleting = asyncio.create_task(house.feed.delete(changed))
        await turns()
        assert house.orders[3:] == [(PUSH_REMOVE, [1])]
        assert house.feed.table.numbered(1) is None
        assert not deleting.done()
        house.feed.link.received(PUSH_REMOVED, ([1],))
        assert await deleting
        assert house.rows.pubsub(0, 10) == []


async def test_stored_subscriptions_are_those_of_the_next_hub(tmp_path: pathlib.Path) -> None:
    async with opened(tmp_path) as house:
        for id in ("ss-1", "ss-2"):
            await house.make(id)
        assert await house.feed.make(PubsubSubscription(0, "p", "ss-3", 1, "o", SETTINGS, 0)) == "project"
        assert await house.feed.make(PubsubSubscription(0, "p", "ss-1", 1, "o", SETTINGS, 0)) == "exists"
        with pytest.raises(LookupError):
            await house.feed.make(PubsubSubscription(0, "q", "ss-1", 99, "o", SETTINGS, 0))
    async with opened(tmp_path) as house:
        assert [each.id for each in house.feed.table] == ["ss-1", "ss-2"]
        assert list(house.feed.numbers()) == [1, 2]


async def test_a_deletion_that_the_sender_does_not_answer_starts_it_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsub_feed, "REMOVAL_MAX", 0.01)
    async with opened(tmp_path) as house:
        house.work()
        made = await house.make()
        with pytest.raises(StoreBusy):
            await house.feed.delete(made)
        assert house.sender.killed
        house.feed.link.ended()


async def test_the_outcome_of_a_change_that_was_not_seen_is_read(tmp_path: pathlib.Path) -> None:
    async with opened(tmp_path) as house:
        house.work()
        await house.feed.refresh()
        house.writer.breaks = True
        with pytest.raises(StoreBroken):
            await house.make()
        house.writer.breaks = False
        assert house.feed.table.named("p", "ss-1") is None
        await house.feed.refresh()
        one = house.feed.table.named("p", "ss-1")
        assert one is not None
        for change in (
            house.feed.change(one, {**SETTINGS, "ackDeadlineSeconds": 30}),
            house.feed.seek(one, 0, b""),
            house.feed.delete(one),
        ):
            house.writer.breaks = True
            with pytest.raises(StoreBroken):
                await change
            house.writer.breaks = False
            await house.feed.refresh()
        assert [order[0] for order in house.orders] == [IDENTITY, PUSH_ADD, PUSH_CHANGE, PUSH_MOVE, PUSH_REMOVE]
        assert len(house.feed.table) == 0


async def test_reports_are_stored_and_given_to_the_next_process_of_the_sender(tmp_path: pathlib.Path) -> None:
    async with opened(tmp_path) as house:
        published(house.writer.store, "p/tt-1", "a", "b", "c")
        await house.make()
        house.feed.reported([plain_progress(BacklogProgress(1, 0, 2, b"", {3: 4}, 5))])
        plain = house.feed.plain(1)
        assert plain is not None
        assert (plain[4], plain[6]) == (2, {3: 4})
        await turns()
        assert (house.stored().position, house.stored().attempts) == (2, {3: 4})
        # One of before a seek, and one of a deleted subscription.
        house.feed.reported([plain_progress(BacklogProgress(1, 7, 3, b"", {}, 5))])
        house.feed.reported([plain_progress(BacklogProgress(9, 0, 3, b"", {}, 5))])
        await turns()
        assert house.feed.plain(1) == plain
        assert house.feed.plain(9) is None


async def test_an_acknowledgement_is_answered_when_it_is_stored(tmp_path: pathlib.Path) -> None:
    async with opened(tmp_path) as house:
        published(house.writer.store, "p/tt-1", "a")
        house.work()
        made = await house.make()
        acknowledging = asyncio.create_task(house.feed.acknowledge(made, [(1, 1)]))
        await turns()
        [_kind, call, *_] = house.orders[-1]
        assert not acknowledging.done()
        house.feed.link.received(21, (call, plain_progress(BacklogProgress(1, 0, 1, b"", {}, 5))))
        await acknowledging
        assert house.stored().position == 1


async def test_a_dead_letter_is_published_and_acknowledged_together(tmp_path: pathlib.Path) -> None:
    async with opened(tmp_path) as house:
        published(house.writer.store, "p/tt-1", "a", "b")
        house.work()
        await house.make()
        row = house.rows.event_at(1, 1)
        assert row is not None
        house.writer.busy = 2
        held = plain_progress(BacklogProgress(1, 0, 1, b"", {}, 5))
        house.feed.bury(1, "p/dead", row, 5, held)
        await turns()
        [(_outcome, [draft])] = house.dead
        assert draft.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
        assert house.orders[-1] == (BURIED, 1, 1, True)
        assert house.stored().position == 1
        # The sender has ended before it knew: a further attempt is no second copy.
        house.feed.bury(1, "p/dead", row, 5, held)
        await turns()
        assert house.orders[-1] == (BURIED, 1, 1, True)
        assert len(house.dead) == 1
        house.feed.bury(9, "p/dead", row, 5, held)
        await turns()


async def test_a_dead_letter_topic_that_is_gone_lets_the_attempts_go_on(tmp_path: pathlib.Path) -> None:
    async with opened(tmp_path) as house:
        published(house.writer.store, "p/tt-1", "a")
        house.work()
        await house.make()
        row = house.rows.event_at(1, 1)
        assert row is not None
        house.feed.bury(1, "p/gone", row, 5, plain_progress(BacklogProgress(1, 0, 1, b"", {}, 5)))
        await turns()
        assert house.orders[-1] == (BURIED, 1, 1, False)
        assert (house.dead, house.stored().position) == ([], 0)


async def test_a_deleted_topic_leaves_its_subscriptions(tmp_path: pathlib.Path) -> None:
    async with opened(tmp_path) as house:
        house.work()
        await house.make()
        house.feed.end(1)
        house.feed.end(2)
        [left] = house.feed.table
        assert (left.topic, left.generation) == (0, 1)
        assert house.orders[-1] == (TOPIC_GONE, 1)


async def test_a_subscription_expires_when_it_is_not_used(tmp_path: pathlib.Path) -> None:
    async with opened(tmp_path) as house:
        one, two = await house.make("ss-1"), await house.make("ss-2")
        house.time += DAY - 10
        house.feed.check()
        await turns()
        house.feed.touch(two)
        await turns()
        assert house.stored(2).used > house.stored(1).used
        house.time += EXPIRY_INTERVAL
        house.feed.check()
        await turns()
        assert [each.id for each in house.feed.table] == ["ss-2"]
        assert one.id == "ss-1"


async def test_the_keys_are_made_when_the_first_subscription_needs_them(tmp_path: pathlib.Path) -> None:
    async with opened(tmp_path) as house:
        house.work()
        assert (house.feed.identity.plain(), house.orders) == (None, [])
        await asyncio.gather(house.make("ss-1"), house.make("ss-2"))
        assert [order[0] for order in house.orders] == [IDENTITY, PUSH_ADD, PUSH_ADD]
        identity = house.feed.identity.plain()
    async with opened(tmp_path) as house:
        assert house.feed.identity.plain() == identity


async def test_figures_are_those_of_subscriptions_that_are_there(tmp_path: pathlib.Path) -> None:
    async with opened(tmp_path) as house:
        one = await house.make()
        figures: Any = (1, 2, 0, 0, 3, 0.0, {}, 0.0, 0, 0, "no key")
        house.feed.measured([figures, (9, *figures[1:])])
        assert [*house.feed.figures] == [1]
        assert house.feed.stop_of(one) == "no key"


async def test_held_pulls_are_repeated_when_there_is_a_message(tmp_path: pathlib.Path) -> None:
    async with opened(tmp_path) as house:
        house.feed.channels.hold(1, [], 0.0)
        house.feed.ready(1)
        house.feed.returned()
        assert house.items == ["hub/pull/p1/1"] * 2
        house.feed.check()
        assert replace(PubsubBounds(), project=1).topic == 10_000
