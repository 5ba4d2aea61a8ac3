"""no-window: an item published after the backend read its data and before the hold began is delivered or repaired.

A whole house (tests/support/model.py) is taken through every order in which a publication can fall between the
steps of a client that is about to be held, and each time, when all is quiet, the client has every number once and in
order. The tests of the test show that it can fail. The number of orders is printed (pytest -s).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from gripproxy.delivery.channel_table import ChannelTable
from gripproxy.process.log import log
from gripproxy.worker.commands import RemoteCommands
from handler.dispatch.recent import RecentIds
from tests.support.model import (
    MESSAGE_WAIT,
    Client,
    House,
    Live,
    PlainPoll,
    Poll,
    Script,
    Step,
    Stream,
    commit,
    every_order,
    joins,
    jumps,
    leaves,
    numbers,
    overflow,
    publish,
    restart,
    subscriptions,
)

RELIABLE = (Poll, Live)

Scripts = dict[str, Script]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "level", -1)
    monkeypatch.setattr(log, "error", lambda *_, **__: None)


# --- states at the beginning


def nobody(**terms: object) -> House:
    """A fresh channel; the first number was published without subscribers."""
    house = House(**terms)  # type: ignore[arg-type]
    publish(1).act(house)
    return house


def subscribed(**terms: object) -> House:
    """Another client is subscribed on the same worker; the first number was delivered."""
    house = House(**terms)  # type: ignore[arg-type]
    joins(Stream).act(house)
    house.settle(2)
    publish(1).act(house)
    house.settle(0)
    return house


def polling(**terms: object) -> House:
    """A long-poll is there."""
    house = House(**terms)  # type: ignore[arg-type]
    joins(Poll).act(house)
    house.settle(2)
    publish(1).act(house)
    house.settle(0)
    return house


def lingering(**terms: object) -> House:
    """A long-poll was there and has gone."""
    house = polling(**terms)
    house.clients[0].leave()
    house.settle(0)
    house.rooms[0].clients.clear()
    return house


def elsewhere(**terms: object) -> House:
    """Another client is subscribed on another worker."""
    house = House(workers=2, **terms)  # type: ignore[arg-type]
    joins(Stream, 2).act(house)
    house.settle(2)
    publish(1).act(house)
    house.settle(0)
    house.bystanders = {2}
    return house


BEFORE = (nobody, subscribed, lingering, elsewhere)


# --- checks at the end


def complete(house: House) -> None:
    """Every reliable client has every number, once and in order; the others those of their subscriptions."""
    reads = house.reads
    house.settle(2)
    assert house.reads == reads, "the backend is asked without end"
    for client in house.clients:
        name = type(client).__name__
        if client.gone:
            continue
        if type(client) is Stream:
            got = client.has[client.since :]
            assert got == sorted(set(got)), f"{name} got {got}"
            heard = {number for number, workers in house.taken[client.taken :] if client.room.number in workers}
            assert house.lost or heard <= set(got), f"{name} has {client.has} and was subscribed for {heard}"
        elif type(client) is PlainPoll:
            assert set(client.has) == set(range(1, house.truth + 1)), f"{name} has {client.has} of {house.truth}"
        else:
            assert client.has == list(range(1, house.truth + 1)), f"{name} has {client.has} of {house.truth}"


def check(
    before: Callable[..., House],
    scripts: Callable[[House], Scripts],
    *,
    judge: Callable[[House], None] = complete,
    nameless: tuple[int, ...] = (),
    **terms: object,
) -> int:
    """Take houses through every order of the scripts' steps and their own; return how many orders there were."""

    def make() -> House:
        house = before(**terms)
        house.nameless = set(nameless)
        house.scripts = {name: deque(steps) for name, steps in scripts(house).items()}
        return house

    orders = every_order(make, judge)
    print(f"{orders} interleavings", end=" ")
    return orders


def slow(house: House, kind: type[Client]) -> Scripts:
    """The handler restarts, and a number is published without subscribers, while a backend may be answering."""
    steps = restart(house)
    die, live = steps["handler"]
    return {"all": [joins(kind), die, *numbers(2), live, *steps["again 1"], *jumps(1.5)]}


class TestOneItem:
    @pytest.mark.parametrize("update", [True, False])
    @pytest.mark.parametrize("before", BEFORE)
    @pytest.mark.parametrize("kind", RELIABLE)
    async def test_at_every_point(self, kind: type[Client], before: Callable[..., House], update: bool) -> None:
        orders = check(before, lambda house: {"publisher": numbers(2), "client": [joins(kind)]}, update=update)
        assert orders >= 4

    @pytest.mark.parametrize("before", BEFORE)
    @pytest.mark.parametrize("kind", RELIABLE)
    async def test_with_time_between(self, kind: type[Client], before: Callable[..., House]) -> None:
        """The updates, which wait for their turn, come between as well; and so may a backend be slow."""
        times = (0.2, 1) if kind is Live else (0.2,) if before is elsewhere else (1.2,)
        check(before, lambda house: {"publisher": numbers(2), "client": [joins(kind)], "clock": jumps(*times)})

    @pytest.mark.parametrize("kind", RELIABLE)
    async def test_published_before_it_is_committed(self, kind: type[Client]) -> None:
        """An uncommitted number cannot be fetched from the backend, but queries for it end."""

        def judge(house: House) -> None:
            assert house.reads < 10

        check(subscribed, lambda house: {"publisher": [publish(2), commit()], "client": [joins(kind)]}, judge=judge)


class TestTwoItems:
    @pytest.mark.parametrize("before", BEFORE)
    @pytest.mark.parametrize("kind", RELIABLE)
    async def test_at_every_two_points(self, kind: type[Client], before: Callable[..., House]) -> None:
        assert check(before, lambda house: {"publisher": numbers(2, 3), "client": [joins(kind)]}) >= 8

    async def test_with_time_between(self) -> None:
        check(nobody, lambda house: {"publisher": numbers(2, 3), "client": [joins(Live)], "clock": jumps(0.2)})

    @pytest.mark.parametrize("kind", RELIABLE)
    async def test_that_overtake_each_other(self, kind: type[Client]) -> None:
        def scripts(house: House) -> Scripts:
            return {"publisher": [commit(), commit(), publish(3), publish(2)], "client": [joins(kind)]}

        check(subscribed, scripts, patience=MESSAGE_WAIT)

    @pytest.mark.parametrize("kind", RELIABLE)
    async def test_of_which_the_first_is_never_published(self, kind: type[Client]) -> None:
        def scripts(house: House) -> Scripts:
            return {"publisher": [commit(), commit(), publish(3)], "client": [joins(kind)]}

        check(subscribed, scripts, patience=MESSAGE_WAIT)

    @pytest.mark.parametrize("kind", RELIABLE)
    async def test_one_waits_when_the_last_subscriber_leaves(self, kind: type[Client]) -> None:
        """The waiting item has no subscriber then, and still the next hold must not miss it."""

        def scripts(house: House) -> Scripts:
            return {"publisher": [commit(), commit(), publish(3)], "client": [leaves(0), joins(kind)]}

        check(subscribed, scripts, linger=0, update=False)

    @pytest.mark.parametrize("before", [elsewhere, subscribed])
    @pytest.mark.parametrize("kind", RELIABLE)
    async def test_an_item_without_id_hides_none_before_it(
        self, kind: type[Client], before: Callable[..., House]
    ) -> None:
        def judge(house: House) -> None:
            (client,) = [client for client in house.clients if type(client) is kind]
            assert client.has[:2] == [1, 2], f"{client.has}"

        check(before, lambda h: {"publisher": numbers(2, 3), "client": [joins(kind)]}, nameless=(3,), judge=judge)


class TestFirstSubscription:
    """The update a second after it repairs losses that ids cannot show."""

    @pytest.mark.parametrize("kind", [Poll, PlainPoll, Live])
    async def test_items_without_id(self, kind: type[Client]) -> None:
        check(nobody, lambda house: {"publisher": numbers(2), "client": [joins(kind)]}, nameless=(2,))

    @pytest.mark.parametrize("kind", [Poll, PlainPoll, Live])
    async def test_items_that_come_by_sub(self, kind: type[Client]) -> None:
        """Publishers send nothing before a subscription has reached them."""

        def scripts(house: House) -> Scripts:
            house.wishes.clear()
            return {
                "publisher": numbers(2, sub=True),
                "client": [joins(kind)],
                "subscriptions": subscriptions(1),
            }

        assert check(nobody, scripts) >= 4

    async def test_a_poll_without_ids(self) -> None:
        assert check(nobody, lambda house: {"publisher": numbers(2), "client": [joins(PlainPoll)]}) >= 4

    async def test_it_comes_once_even_if_nothing_lingers(self) -> None:
        """A poll that is updated leaves its channel and comes back, which is no first subscription."""
        check(nobody, lambda house: {"publisher": numbers(2), "client": [joins(Poll)]}, linger=0)


class TestComingAndGoing:
    @pytest.mark.parametrize("kind", [Live, Stream])
    async def test_subscribe_unsubscribe_subscribe(self, kind: type[Client]) -> None:
        def scripts(house: House) -> Scripts:
            return {"publisher": numbers(2), "client": [joins(kind), leaves(0), joins(kind)]}

        check(nobody, scripts)

    async def test_a_poll_goes_and_another_comes(self) -> None:
        check(polling, lambda house: {"publisher": numbers(2), "client": [leaves(0), joins(Poll)]})

    @pytest.mark.parametrize(("one", "other"), [(Live, Live), (Stream, Live)])
    async def test_two_clients(self, one: type[Client], other: type[Client]) -> None:
        check(nobody, lambda house: {"publisher": numbers(2), "one": [joins(one)], "other": [joins(other)]})

    @pytest.mark.parametrize(("one", "other"), [(Live, Live), (Poll, Stream)])
    async def test_two_workers(self, one: type[Client], other: type[Client]) -> None:
        scripts = {"publisher": numbers(2), "one": [joins(one)], "other": [joins(other, 2)]}
        check(lambda **terms: House(workers=2, **terms), lambda house: scripts)


class TestTrouble:
    @pytest.mark.parametrize("before", [nobody, subscribed, lingering])
    @pytest.mark.parametrize("kind", RELIABLE)
    async def test_the_handler_restarts(self, kind: type[Client], before: Callable[..., House]) -> None:
        """At every point; items refused meanwhile are repaired without waiting for a timeout of the client."""
        scripts = {"publisher": numbers(2), "client": [joins(kind)]}
        assert check(before, lambda house: scripts | restart(house)) > 40

    @pytest.mark.parametrize("kind", RELIABLE)
    async def test_the_handler_restarts_while_a_backend_takes_its_time(self, kind: type[Client]) -> None:
        """The backend answers when all others have recovered long ago, and no id shows the missing item."""
        assert check(subscribed, lambda house: slow(house, kind)) >= 4

    async def test_the_handler_restarts_with_two_items(self) -> None:
        check(subscribed, lambda house: {"publisher": numbers(2, 3), "client": [joins(Live)]} | restart(house))

    async def test_the_handler_restarts_and_has_two_workers(self) -> None:
        """Each announces the item that it received last; these may differ."""

        def scripts(house: House) -> Scripts:
            house.bystanders = set()
            return {"client": [joins(Live)]} | restart(house, publisher=numbers(2))

        check(elsewhere, scripts)

    @pytest.mark.parametrize("kind", RELIABLE)
    async def test_one_worker_is_late_to_come_back(self, kind: type[Client]) -> None:
        """Until then publishers are refused; a recovery before that is too early."""

        def scripts(house: House) -> Scripts:
            house.bystanders = set()
            steps = restart(house)
            return {
                "all": [
                    joins(kind),
                    Step(lambda house: house.settle(2)),
                    *steps["handler"],
                    *steps["again 1"],
                    *jumps(0.2),
                    *numbers(2),
                    *steps["again 2"],
                ]
            }

        check(elsewhere, scripts)

    @pytest.mark.parametrize(("kind", "items"), [(Poll, (2,)), (Live, (2,)), (Live, (2, 3))])
    async def test_the_queue_of_a_worker_overflows(self, kind: type[Client], items: tuple[int, ...]) -> None:
        scripts = {"publisher": numbers(*items), "client": [joins(kind)], "trouble": [overflow()]}
        check(subscribed, lambda house: scripts)


class TestTheTest:
    """Each thing that closes the window is left out in turn, and is missed."""

    def caught(self, before: Callable[..., House], scripts: Callable[[House], Scripts], **terms: object) -> None:
        with pytest.raises(AssertionError, match=r"(?s) has \[1.*\nafter "):
            check(before, scripts, **terms)  # type: ignore[arg-type]

    def one(self, kind: type[Client] = Poll) -> Callable[[House], Scripts]:
        return lambda house: {"publisher": numbers(2), "client": [joins(kind)]}

    @pytest.mark.parametrize("kind", RELIABLE)
    async def test_a_table_that_sees_no_conflict(self, kind: type[Client], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ChannelTable, "conflict", lambda table, subscription: None)
        self.caught(subscribed, self.one(kind))

    @pytest.mark.parametrize("kind", RELIABLE)
    async def test_a_handler_that_forgets_recent_ids(self, kind: type[Client], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(RecentIds, "get", lambda recent, channel: None)
        self.caught(elsewhere, self.one(kind))

    async def test_a_handler_that_forgets_them_when_an_item_has_no_id(self, monkeypatch: pytest.MonkeyPatch) -> None:
        released = RecentIds.released

        def forgetful(recent: RecentIds, channel: bytes, item_id: bytes | None, now: float) -> None:
            if item_id is None:
                recent._ids.pop(channel, None)
            released(recent, channel, item_id, now)

        monkeypatch.setattr(RecentIds, "released", forgetful)
        with pytest.raises(AssertionError):
            await TestTwoItems().test_an_item_without_id_hides_none_before_it(Live, elsewhere)

    async def test_a_worker_that_does_not_take_items_for_recent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ChannelTable, "received", lambda table, channel, item: None)
        self.caught(subscribed, self.one())

    async def test_a_table_that_confirms_before_it_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ask = ChannelTable._ask

        def hasty(table: ChannelTable, channel: object) -> None:
            ask(table, channel)  # type: ignore[arg-type]
            channel.confirmed, channel.waiting = True, None  # type: ignore[attr-defined]

        monkeypatch.setattr(ChannelTable, "_ask", hasty)
        with pytest.raises((AssertionError, AttributeError)):
            check(nobody, self.one())

    async def test_no_update_after_the_first_subscription(self) -> None:
        self.caught(nobody, self.one(PlainPoll), update=False)

    async def test_no_recovery_after_an_overflow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(RemoteCommands, "recover", lambda commands: None)
        self.caught(subscribed, lambda house: self.one()(house) | {"trouble": [overflow()]})

    async def test_a_request_under_way_that_does_not_count_at_a_restart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        recover = RemoteCommands.recover

        def forgetful(commands: RemoteCommands) -> None:
            recover(commands)
            commands._sessions.recovered = float("-inf")

        monkeypatch.setattr(RemoteCommands, "recover", forgetful)
        self.caught(subscribed, lambda house: slow(house, Poll))

    async def test_an_item_that_is_delivered_twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        down = House._down

        def twice(house: House, room: object) -> None:
            down(house, room)  # type: ignore[arg-type]
            for client in house.clients:
                if isinstance(client, Live) and len(client.has) > 1:
                    client.has.append(client.has[-1])

        monkeypatch.setattr(House, "_down", twice)
        self.caught(nobody, self.one(Live))
