"""Subscriptions between store and sender: orders, events, reports, rights that end. Both ends are the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from griphub.access.quota import LimitReached
from griphub.api import subscription_feed
from griphub.api.subscription_feed import EVENT_BYTES, RESTS_MAX, SAVE_MAX, SubscriptionBounds, SubscriptionFeed
from griphub.callbacks.courier import Report
from griphub.processes.sender import SenderProcess
from griphub.processes.sender_commands import PlainSubscription
from griphub.processes.writer import WriterProcess
from griphub.store.errors import StoreBroken, StoreBusy, StoreFull
from griphub.store.event import NO_ATTRIBUTES, Event
from griphub.store.subscription import Subscription, SubscriptionProgress
from griphub.store.topic import Topic, TopicSettings
from griphub.topics.topic_table import TopicTable

PATIENCE = 10.0
HOUR = 3_600_000_000
"""Microseconds."""

TOPIC = Topic(1, "t", 0, 0, 0, 9, 9, 100, 0, TopicSettings())
KEYS = (("whsec_k", None),)
DRAFT = Subscription(0, 1, "s", "o", "https://example.com/", "after=0", 5, KEYS, HOUR, 0)
PLAIN: PlainSubscription = (1, 1, "t", "s", "o", "https://example.com/", KEYS, 5, False, "", "")


class Store:
    """Writer of the store; carries out orders while ``open``, and notes them."""

    def __init__(self) -> None:
        self.rows: dict[int, Subscription] = {}
        self.numbers = 0
        self.orders: list[str] = []
        self.saves: list[list[SubscriptionProgress]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.saving = asyncio.Event()
        self.saving.set()
        self.failures: list[Exception] = []
        """Of the next orders."""
        self.lost_answer = False
        """Whether the writer ends between the next commit and its answer."""
        self.full: str | None = None
        """Bound that there are as many subscriptions as."""

    async def _order(self, text: str) -> None:
        await self.open.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.orders.append(text)

    async def make_subscription(self, draft: Subscription, *bounds: int, owner: str) -> Subscription | str | None:
        await self._order(f"make {draft.id} {bounds} {owner}")
        for row in self.rows.values():
            if (row.topic, row.owner, row.id) == (draft.topic, draft.owner, draft.id):
                return row
        if self.full:
            return self.full
        if draft.topic != 1:
            return None
        self.numbers += 1
        made = self.rows[self.numbers] = replace(draft, number=self.numbers)
        if self.lost_answer:
            self.lost_answer = False
            raise StoreBroken("the writer ended")
        return made

    async def renew_subscription(self, number: int, rights_end: int, *, owner: str) -> Subscription | None:
        await self._order(f"renew {number} {owner}")
        row = self.rows.get(number)
        if row is not None:
            row = self.rows[number] = replace(row, rights_end=rights_end, rest="", failure="")
        return row

    async def set_subscription_keys(self, number: int, keys: Any, *, owner: str) -> Subscription | None:
        await self._order(f"sign {number} {owner}")
        row = self.rows.get(number)
        if row is not None:
            row = self.rows[number] = replace(row, keys=keys)
        return row

    async def delete_subscription(self, topic: int, subscriber: str, id: str, *, owner: str) -> int | None:
        await self._order(f"delete {id} {owner}")
        for number, row in self.rows.items():
            if (row.topic, row.owner, row.id) == (topic, subscriber, id):
                del self.rows[number]
                return number
        return None

    async def save_progress(self, progress: Sequence[SubscriptionProgress]) -> None:
        self.saves.append(list(progress))
        await self.saving.wait()
        await self._order(f"save {len(progress)}")
        for each in progress:
            if each.number in self.rows:
                row = self.rows[each.number]
                self.rows[each.number] = replace(
                    row,
                    position=max(row.position, each.position),
                    confirmed=each.confirmed,
                    rest=each.rest,
                    failure=each.failure,
                )


class Sender:
    """Process of the sender; a request of each subscription is under way until the test ends it."""

    def __init__(
        self,
        numbers: Callable[[], Iterable[int]],
        plain: Callable[[int], PlainSubscription | None],
        on_reports: Callable[[Sequence[Report]], None],
    ) -> None:
        self.numbers, self.plain, self.reports = numbers, plain, on_reports
        self.working = True
        self.orders: list[Any] = []
        self.last: list[Report] = []
        """Reports of its end."""
        self.cancels: dict[int, asyncio.Future[None]] = {}
        self.succession: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.succession.set_result(None)

    def open(self) -> None:
        self.orders.append(("open", [self.plain(number) for number in self.numbers()]))

    async def stop(self) -> None:
        self.reports(self.last)

    def kill(self, reason: str) -> None:
        self.orders.append(("kill", reason))

    def add(self, subscription: PlainSubscription) -> None:
        self.orders.append(("add", subscription))

    def renew(self, number: int) -> None:
        self.orders.append(("renew", number))

    def rest(self, numbers: Sequence[int], reason: str) -> None:
        self.orders.append(("rest", list(numbers), reason))

    def sign(self, number: int, keys: Any) -> None:
        self.orders.append(("sign", number, keys))

    def drop(self, numbers: Sequence[int]) -> None:
        self.orders.append(("drop", list(numbers)))

    def cancel(self, number: int) -> asyncio.Future[None]:
        self.orders.append(("cancel", number))
        return self.cancels.setdefault(number, asyncio.get_running_loop().create_future())

    def events(self, topic: int, rows: list[Any], size: int) -> None:
        self.orders.append(("events", topic, rows, size))

    def hint(self, topic: int, newest: int) -> None:
        self.orders.append(("hint", topic, newest))


class House:
    """A feed with its ends."""

    def __init__(self) -> None:
        self.store = Store()
        self.topics = TopicTable()
        self.topics.set(TOPIC)
        self.seconds = 0.0
        self.feed = SubscriptionFeed(
            self.topics,
            cast(WriterProcess, self.store),
            lambda *parts: cast(SenderProcess, Sender(*parts)),
            SubscriptionBounds(2, 3, 4),
            lambda: self.seconds,
        )
        self.sender = cast(Sender, self.feed.sender)

    async def made(self, id: str = "s", rights_end: int = HOUR) -> Subscription:
        return await self.feed.make(replace(DRAFT, id=id, rights_end=rights_end))

    def took(self) -> list[Any]:
        """Return the orders of the sender since the last call."""
        taken, self.sender.orders = self.sender.orders, []
        return taken

    def report(self, number: int = 1, position: int = 7, **changes: Any) -> None:
        self.sender.reports([report(number, position, **changes)])

    async def until(self, true: Callable[[], object]) -> None:
        for _ in range(1000):
            if true():
                return
            await asyncio.sleep(0)
        raise AssertionError("it does not happen")


def report(
    number: int = 1,
    position: int = 7,
    *,
    rest: str = "",
    failure: str = "",
    state: str = "live",
    oldest: int = 0,
    write: bool = True,
) -> Report:
    return (number, position, True, rest, failure, state, False, 3, oldest, {"timeout": 2}, write)


def run(case: Callable[[House], Awaitable[None]]) -> None:
    """Run a case with a house, and close it."""

    async def in_house() -> None:
        async with asyncio.timeout(PATIENCE):
            house = House()
            await case(house)
            for ended in house.sender.cancels.values():
                if not ended.done():
                    ended.set_result(None)
            await house.feed.close()

    asyncio.run(in_house())


# --- making


def test_a_subscription_is_stored_then_sent_for() -> None:
    async def case(house: House) -> None:
        house.store.open.clear()
        making = asyncio.create_task(house.made())
        await asyncio.sleep(0)
        assert (len(house.feed.table), house.took()) == (0, [])
        house.store.open.set()
        made = await making
        assert made == replace(DRAFT, number=1) == house.feed.table.numbered(1)
        assert house.store.orders == ["make s (2, 3, 4) o"]
        assert house.took() == [("add", PLAIN)]

    run(case)


@pytest.mark.parametrize(("bound", "limit"), [("topic", 2), ("owner", 3), ("total", 4)])
def test_a_bound_is_named(bound: str, limit: int) -> None:
    async def case(house: House) -> None:
        house.store.full = bound
        with pytest.raises(LimitReached) as caught:
            await house.made()
        assert (caught.value.whose, caught.value.limit) == (bound, limit)
        assert (len(house.feed.table), house.took()) == (0, [])

    run(case)


def test_a_topic_that_is_deleted_meanwhile_has_none() -> None:
    async def case(house: House) -> None:
        with pytest.raises(LookupError):
            await house.feed.make(replace(DRAFT, topic=2))
        house.store.open.clear()
        making = asyncio.create_task(house.made())
        await asyncio.sleep(0)
        house.topics.remove(1)
        house.feed.end(1)
        house.store.open.set()
        with pytest.raises(LookupError):
            await making
        assert (len(house.feed.table), house.took()) == (0, [("drop", [])])

    run(case)


def test_one_whose_answer_was_lost_is_begun_when_it_is_made_again() -> None:
    async def case(house: House) -> None:
        house.store.lost_answer = True
        with pytest.raises(StoreBroken):
            await house.made()
        assert len(house.feed.table) == 0
        assert await house.made() == replace(DRAFT, number=1)
        assert house.took() == [("add", PLAIN)]
        # One that is there is not begun again.
        assert await house.made() == replace(DRAFT, number=1)
        assert house.took() == []

    run(case)


# --- deletions


def test_a_deletion_is_over_when_no_request_is_under_way() -> None:
    async def case(house: House) -> None:
        await house.made()
        house.took()
        deleting = asyncio.create_task(house.feed.delete(1, "o", "s"))
        await house.until(lambda: house.sender.orders)
        assert (house.took(), house.store.rows, len(house.feed.table)) == ([("cancel", 1)], {}, 0)
        assert not deleting.done()
        house.sender.cancels[1].set_result(None)
        assert await deleting is True
        assert await house.feed.delete(1, "o", "s") is False
        assert house.feed._ending == {}

    run(case)


def test_one_that_only_the_store_has_is_deleted() -> None:
    async def case(house: House) -> None:
        house.store.lost_answer = True
        with pytest.raises(StoreBroken):
            await house.made()
        assert len(house.store.rows) == 1
        assert await house.feed.delete(1, "o", "s") is True
        assert house.store.rows == {}

    run(case)


def test_an_unknown_one_is_no_work_of_the_store() -> None:
    async def case(house: House) -> None:
        assert await house.feed.delete(1, "o", "s") is False
        assert house.store.orders == []

    run(case)


def test_a_deletion_that_the_store_refuses_deletes_nothing() -> None:
    async def case(house: House) -> None:
        made = await house.made()
        house.took()
        house.store.failures = [StoreBusy("again")]
        with pytest.raises(StoreBusy):
            await house.feed.delete(1, "o", "s")
        assert (list(house.feed.table), house.took()) == ([made], [])

    run(case)


def test_a_repeated_deletion_waits_for_the_request_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(house: House) -> None:
        await house.made()
        monkeypatch.setattr(subscription_feed, "CANCEL_MAX", 0.01)
        house.took()
        for _ in range(2):
            with pytest.raises(StoreBusy, match="has not answered"):
                await house.feed.delete(1, "o", "s")
        assert house.took() == [("cancel", 1), *[("kill", "a cancellation was not answered")] * 2]
        # A hub that ends a request meanwhile, and a client that does not ask again, leave nothing behind.
        monkeypatch.setattr(subscription_feed, "CANCEL_MAX", 10.0)
        third = asyncio.create_task(house.feed.delete(1, "o", "s"))
        await asyncio.sleep(0)
        house.sender.cancels[1].set_result(None)
        assert await third is False
        assert house.feed._ending == {}

    run(case)


def test_a_deletion_waits_for_the_sender_of_an_earlier_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(house: House) -> None:
        monkeypatch.setattr(subscription_feed, "CANCEL_MAX", 0.01)
        house.sender.succession = asyncio.get_running_loop().create_future()
        house.sender.working = False
        with pytest.raises(StoreBusy):
            await house.feed.delete(1, "o", "s")
        house.sender.succession.set_result(None)
        assert await house.feed.delete(1, "o", "s") is False
        assert house.took() == []

    run(case)


# --- renewals


def test_a_renewal_ends_a_rest() -> None:
    async def case(house: House) -> None:
        made = await house.made()
        house.report(position=8, rest="callback", failure="timeout")
        assert house.feed.status(made).state == "live"
        await house.until(lambda: house.store.rows[1].rest)
        house.took()
        renewed = await house.feed.renew(made, 2 * HOUR)
        assert renewed == replace(made, position=8, confirmed=True, rights_end=2 * HOUR)
        assert house.store.rows[1] == renewed == house.feed.table.numbered(1)
        assert house.took() == [("renew", 1)]
        assert house.feed.status(renewed).rest == ""

    run(case)


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_rest_that_is_written_about_a_renewal_is_not_the_last_that_the_store_knows(when: str) -> None:
    async def case(house: House) -> None:
        made = await house.made()
        other = await house.made("other")
        house.store.saving.clear()
        if when == "before":
            house.report(position=8, rest="callback")
            await house.until(lambda: house.store.saves)
        else:
            house.store.open.clear()
        renewing = asyncio.create_task(house.feed.renew(made, 2 * HOUR))
        await asyncio.sleep(0)
        if when == "during":
            house.report(position=8, rest="callback")
            house.report(other.number, 6)
            await house.until(lambda: house.store.saves)
            assert [each.number for each in house.store.saves[0]] == [other.number]
        house.store.saving.set()
        house.store.open.set()
        await renewing
        await house.until(lambda: not house.feed._unsaved and house.feed._saving is None)
        assert house.store.rows[1] == replace(made, position=8, confirmed=True, rights_end=2 * HOUR)
        if when == "during":
            assert house.store.rows[2].position == 6
        assert (house.feed._renewing, house.feed.table.numbered(1)) == (set(), house.store.rows[1])

    run(case)


def test_one_that_is_deleted_meanwhile_is_not_renewed() -> None:
    async def case(house: House) -> None:
        made = await house.made()
        house.store.rows.clear()
        for change in (house.feed.renew(made, 1), house.feed.set_keys(made, KEYS)):
            with pytest.raises(LookupError):
                await change
        house.store.rows[1] = made
        house.store.open.clear()
        renewing = asyncio.create_task(house.feed.renew(made, 1))
        await asyncio.sleep(0)
        house.feed.end(1)
        house.store.open.set()
        with pytest.raises(LookupError):
            await renewing
        assert house.feed._renewing == set()

    run(case)


def test_keys_are_stored_then_signed_with() -> None:
    async def case(house: House) -> None:
        made = await house.made()
        house.report(position=8)
        house.took()
        keys = (("whsec_n", None), ("whsec_k", 7.5))
        changed = await house.feed.set_keys(made, keys)
        assert changed == replace(made, keys=keys, position=8, confirmed=True)
        assert house.took() == [("sign", 1, keys)]

    run(case)


# --- rights


def test_a_subscription_rests_when_its_rights_end() -> None:
    async def case(house: House) -> None:
        await house.made("s", HOUR)
        await house.made("longer", 2 * HOUR)
        house.took()
        house.feed.check()
        assert house.took() == []
        house.seconds = 3600.0
        house.feed.check()
        assert house.took() == [("rest", [1], "rights-ended")]
        await house.until(lambda: house.store.rows[1].rest == "rights-ended")
        house.feed.check()
        assert (house.took(), house.store.rows[2].rest) == ([], "")

    run(case)


def test_renewed_rights_end_later() -> None:
    async def case(house: House) -> None:
        made = await house.made()
        await house.feed.renew(made, 3 * HOUR)
        house.took()
        house.seconds = 3600.0
        house.feed.check()
        assert house.took() == []
        house.seconds = 3 * 3600.0
        house.feed.check()
        assert house.took() == [("rest", [1], "rights-ended")]

    run(case)


def test_ends_of_rights_that_are_out_of_date_are_not_collected_without_end() -> None:
    async def case(house: House) -> None:
        made = await house.made()
        for count in range(3000):
            made = await house.feed.renew(made, HOUR + count)
        assert len(house.feed._rights) < 1100
        house.took()
        house.seconds = 3601.0
        house.feed.check()
        await house.until(lambda: house.sender.orders)
        assert house.took() == [("rest", [1], "rights-ended")]

    run(case)


def test_many_rest_in_some_turns() -> None:
    async def case(house: House) -> None:
        for number in range(1, 2 * RESTS_MAX + 2):
            house.feed._set(replace(DRAFT, number=number, id=str(number)))
        house.seconds = 3600.0
        house.feed.check()
        assert [len(numbers) for _, numbers, _ in house.took()] == [RESTS_MAX]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [len(numbers) for _, numbers, _ in house.took()] == [RESTS_MAX, 1]

    run(case)


def test_stored_subscriptions_whose_rights_have_ended_rest_before_the_sender_begins() -> None:
    async def case(house: House) -> None:
        house.seconds = 7200.0
        ended, going_on = replace(DRAFT, number=1), replace(DRAFT, number=2, id="b", rights_end=3 * HOUR)
        house.feed.open([ended, going_on])
        assert house.took() == [
            ("rest", [1], "rights-ended"),
            ("open", [(*PLAIN[:9], "rights-ended", ""), (2, 1, "t", "b", *PLAIN[4:])]),
        ]

    run(case)


def test_a_revocation_lets_the_subscriptions_of_a_topic_rest() -> None:
    async def case(house: House) -> None:
        await house.made()
        house.feed.table.set(replace(DRAFT, number=9, topic=2))
        house.took()
        house.feed.revoke(1)
        assert house.took() == [("rest", [1], "revoked")]
        await house.until(lambda: house.store.rows[1].rest == "revoked")
        assert house.feed.states() == {"resting": 1, "challenging": 1}

    run(case)


def test_a_deleted_topic_ends_its_subscriptions() -> None:
    async def case(house: House) -> None:
        await house.made()
        house.took()
        assert house.feed.wants(1)
        house.report()
        house.feed.end(1)
        assert (house.took(), len(house.feed.table), house.feed.wants(1)) == ([("drop", [1])], 0, False)
        # A late report is about none.
        house.report()
        assert (house.feed._unsaved, house.feed._reports) == ({}, {})

    run(case)


# --- events


def event(id: int, data: bytes = b"x", **attributes: str) -> Event:
    return Event(id, id - 1, id, id * 10, data, "text/plain", None, "put", attributes or NO_ATTRIBUTES)


def test_events_are_passed_on_as_rows_and_large_ones_as_hints() -> None:
    async def case(house: House) -> None:
        await house.made()
        house.took()
        house.feed.take(1, [event(6), event(7, b"yy", a="ü")])
        house.feed.take(1, [event(8), event(9, b"x" * (EVENT_BYTES + 1))])
        assert house.took() == [
            (
                *("events", 1),
                [
                    (6, 5, 6, 60, b"x", "text/plain", None, 0, None, event(6).size),
                    (7, 6, 7, 70, b"yy", "text/plain", None, 0, '{"a":"ü"}', event(7, b"yy", a="ü").size),
                ],
                3,
            ),
            ("hint", 1, 9),
        ]
        house.sender.working = False
        house.feed.take(1, [event(10)])
        assert house.took() == []

    run(case)


# --- reports


def test_positions_are_written_when_the_sender_asks_for_it() -> None:
    async def case(house: House) -> None:
        made = await house.made()
        house.report(position=6, write=False, oldest=2_000_000, state="sending")
        house.seconds = 5.0
        status = house.feed.status(made)
        assert (status.state, status.position, status.lag, status.delivered) == ("sending", 6, 3.0, 3)
        assert dict(status.failures) == {"timeout": 2}
        await asyncio.sleep(0)
        assert house.store.saves == []
        house.report(position=7)
        await house.until(lambda: house.store.rows[1].position == 7)
        assert house.store.saves == [[SubscriptionProgress(1, 7, True, "", "")]]
        # Without a process the state is that of the table.
        house.sender.working = False
        assert house.feed.status(house.store.rows[1]).state == "replaying"

    run(case)


def test_positions_are_written_together_and_in_slices() -> None:
    async def case(house: House) -> None:
        count = SAVE_MAX + 10
        for number in range(1, count + 1):
            house.feed.table.set(replace(DRAFT, number=number, id=str(number)))
        house.sender.reports([report(number) for number in range(1, count + 1)])
        await house.until(lambda: not house.feed._unsaved and house.feed._saving is None)
        assert [len(save) for save in house.store.saves] == [SAVE_MAX, 10]

    run(case)


def test_positions_that_cannot_be_written_are_written_later(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def case(house: House) -> None:
        monkeypatch.setattr(subscription_feed, "SAVE_PAUSE", 0.0)
        await house.made()
        deleted = await house.made("b")
        house.store.failures = [StoreFull("the disk is full"), StoreBusy("again")]
        house.store.saving.clear()
        house.sender.reports([report(1, 6), report(2, 6)])
        await house.until(lambda: house.store.saves)
        # While it is tried, one moves on, and the other is deleted.
        house.report(1, 7)
        house.feed._remove(deleted.number)
        house.store.saving.set()
        await house.until(lambda: house.store.rows[1].position == 7)
        assert [[each.position for each in save] for save in house.store.saves] == [[6, 6], [7], [7]]

    run(case)
    assert "".join(capfd.readouterr()).count("positions of subscriptions not written") == 1


def test_the_last_positions_are_written_at_the_end() -> None:
    async def case(house: House) -> None:
        await house.made()
        house.store.saving.clear()
        house.report(1, 6)
        await house.until(lambda: house.store.saves)
        house.sender.last = [report(1, 8)]
        closing = asyncio.create_task(house.feed.close())
        await asyncio.sleep(0)
        house.store.saving.set()
        await closing
        assert house.store.rows[1].position == 8

    run(case)


def test_positions_that_cannot_be_written_at_the_end_are_repeated(capfd: pytest.CaptureFixture[str]) -> None:
    async def case(house: House) -> None:
        await house.made()
        house.sender.last = [report(1, 8)]
        house.store.failures = [StoreFull("the disk is full")]
        await house.feed.close()
        assert house.store.rows[1].position == 5

    run(case)
    assert "events are delivered again" in "".join(capfd.readouterr())
