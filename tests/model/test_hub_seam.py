"""The seam: replay and live events are one sequence, in whatever order things happen.

A hub, its store, the handler and clients (tests/support/hub_model.py) take steps in a random order: publications of one
or many events, turns of the fan-out, requests in their parts, items that are late, lost or come twice, ranges that
leave the index and enter again, floors that rise, topics that are deleted, and deaths of the hub and of the handler. At
each event a client checks that it is the next one of its range; when all is quiet it has every event, or it was told.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.access.capability import Capability
from griphub.api.follow import Follower, Following
from griphub.api.reading import Reading
from griphub.api.request import Request
from griphub.notify.outbox import Outbox, OutboxState
from griphub.store.interface import WHOLE, KeyRange
from griphub.store.topic import Topic
from griphub.topics.channel_index import ChannelIndex, HeldRange
from griphub.topics.event_text import Representation
from griphub.topics.fanout import FanOut
from tests.support.hub_model import CONTENT_MAX, FORMS, KEYS, Client, House, Hub, Store

CLIENTS_MAX = 4

SEEDS = 400
"""Random orders of a test."""

STEPS = 250
"""Steps of a random order."""

Choose = Callable[[int], int]
"""Returns a number below its argument."""

Step = tuple[str, Callable[[], object]]

PUBLICATIONS: tuple[tuple[tuple[str | None, ...], int], ...] = (
    (("a",), 1),
    (("b",), 1),
    ((None,), 1),
    (("x",), 1),
    (("a", "x", "b"), 1),
    (("a", None, "a", "b", "a"), 1),
    (("b",), CONTENT_MAX),
    (("a", "b"), CONTENT_MAX // 2),
    (("a",) * 51, 1),
    (("x", "a") * 30, 1),
)


def steps_of(house: House, choose: Choose, *, early: bool = True) -> list[Step]:  # noqa: C901 - a table of steps
    """Return the steps that are possible now; those that should be frequent are there several times.

    Args:
        house: the house.
        choose: selects details.
        early: whether clients begin at events whose items are still to be made.
    """
    hub, store = house.hub, house.store
    names = sorted(store.topics)
    steps: list[Step] = []

    def add(name: str, act: Callable[[], object], times: int = 1) -> None:
        steps.extend([(name, act)] * times)

    if hub is None:
        add("the hub lives", house.live_hub, 3)
    else:
        if names:
            name = names[choose(len(names))]
            keys, size = PUBLICATIONS[choose(len(PUBLICATIONS))]
            add(f"{len(keys)} events of {size} bytes in {name}", lambda: house.publish(name, keys, size), 4)
            events = store.truth[store.topics[name].number]
            if events and store.topics[name].last > store.topics[name].floor:
                floor = events[choose(len(events))].id
                if floor > store.topics[name].floor:
                    add(f"floor {floor} in {name}", lambda: house.move(name, floor))
            if len(house.clients) < CLIENTS_MAX:
                keys_of, form = KEYS[choose(len(KEYS))], FORMS[choose(len(FORMS))]
                # A cursor of the answer to a publication may be ahead of the fan-out.
                newest = hub.fanout.stored if early else hub.fanout.newest
                places = [0, *(event.id for event in events if event.id <= newest)]
                after = places[choose(len(places))]
                add("a client", lambda: house.join(name, keys_of, form, after), 6)
            if choose(20) == 0:
                add(f"{name} is deleted", lambda: house.delete(name))
        for missing in {"one", "two"} - set(names):
            add(f"{missing} is made", partial(house.make, missing))
        if hub.outcomes:
            add("outcome", house.outcome, 4)
        if hub.changes:
            add("subscription reported", hub.change, 3)
        add("a turn", lambda: hub.fanout.work(1), 4)
        if hub.progress.ranges:
            held = hub.progress.ranges[choose(len(hub.progress.ranges))]
            add("progress", lambda: hub.progress.give(held), 3)
        if house.alive and not house.wire:
            add("send", house.send, 3)
        if house.wire:
            add("deliver", house.deliver, 4)
            add("deliver, answer lost", lambda: house.deliver(answered=False))
            add("lose", lambda: house.refuse(lost=True))
            add("refuse", house.refuse)
        if choose(30) == 0:
            add("the hub dies", house.die_hub)
    if house.floors:
        add("floor committed", house.floor, 2)
    if house.alive:
        if choose(20) == 0:
            add("the handler dies", house.die_handler)
    else:
        add("the handler lives", house.live_handler, 2)
    add("30 s", lambda: house.tick(30.0))
    for client in house.clients:
        for name_of, step in house.can(client):
            add(f"{client.name} {name_of}", step, 2)
        if client.held and client.kept and choose(8) == 0:
            add(f"{client.name} loses an item", client.kept.popleft)
            add(f"{client.name} gets an item twice", partial(client.kept.append, client.kept[0]))
            add(f"{client.name} gets items in another order", partial(client.kept.rotate, 1))
        if not client.told and choose(25) == 0:
            if client.form is not Representation.POLL:
                add(f"{client.name} connects again", partial(house.connect_again, client))
            add(f"{client.name} is quiet", partial(_quiet, client))
            add(f"{client.name} goes", partial(house.go, client))
        elif client.told:
            add(f"{client.name} goes", partial(house.go, client))
    return steps


def _quiet(client: Client) -> None:
    client.due = client.due or client.held


def run(choose: Choose, steps: int, counts: Counter[str] | None = None, *, early: bool = True) -> House:
    """Take a house through steps that ``choose`` selects, and let it settle."""
    house = House()
    try:
        for _ in range(steps):
            possible = steps_of(house, choose, early=early)
            name, step = possible[choose(len(possible))]
            house.trace.append(name)
            step()
        house.settle()
    except AssertionError as error:
        raise AssertionError(f"{error}\nafter {'; '.join(house.trace)}") from error
    finally:
        for client in house.clients:
            if client.work is not None:
                client.work.close()
    if counts is not None:
        counts["clients"] += house.names
        counts["answers"] += house.answers
        counts["told"] += sum(1 for client in house.clients if client.told)
        counts["complete"] += sum(1 for client in house.clients if not client.told and client.got)
        counts["events"] += sum(len(client.got) for client in house.clients)
    return house


def seeded(seeds: range, steps: int = STEPS, *, early: bool = True) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            run(random.Random(seed).randrange, steps, counts, early=early)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return counts


@pytest.mark.parametrize("part", range(4))
def test_any_order(part: int) -> None:
    number = SEEDS // 4
    counts = seeded(range(part * number, part * number + number))
    print(dict(counts), end=" ")
    assert counts["complete"] > number // 2
    assert counts["told"] > number // 10
    assert counts["events"] > 20 * number


@given(st.lists(st.integers(0, 2**16), min_size=50, max_size=600))
def test_an_order_that_can_be_shortened(choices: list[int]) -> None:
    left = iter(choices)
    run(lambda number: next(left, 0) % number, len(choices) // 4)


class TestDirectly:
    """Orders that once went wrong, or that are rare."""

    def house(self, *clients: tuple[KeyRange, Representation, int]) -> House:
        """Return a house whose clients are held at the newest of five events."""
        house = House()
        for _ in range(5):
            house.publish("one", ["a"])
            house.outcome()
        for keys, form, after in clients:
            house.join("one", keys, form, after)
        house.settle()
        return house

    def hub(self, house: House) -> Hub:
        assert house.hub is not None
        return house.hub

    def test_a_page_is_read_while_something_is_published(self) -> None:
        house = self.house()
        client = house.join("one", WHOLE, Representation.SSE, 3)
        house.ask(client)
        house.go_on(client)
        house.publish("one", ["a", "b"])
        house.outcome()
        self.hub(house).fanout.work()
        house.go_on(client)
        house.go_on(client)
        assert (client.got, client.position) == ([4, 5], "e.5")
        house.subscribe(client)
        house.settle()
        assert client.got == [4, 5, 6, 7]

    def test_a_restart_of_the_hub_is_noticed_by_hints_alone(self) -> None:
        forms = (Representation.SSE, Representation.LINES, Representation.POLL)
        house = self.house(*[(WHOLE, form, 5) for form in forms])
        house.die_hub()
        house.live_hub()
        hub = self.hub(house)
        house.publish("one", ["a"])
        house.outcome()
        assert not any(client.due for client in house.clients)
        while hub.changes:
            hub.change()
        house.send()
        assert house.wire
        house.deliver()
        for client in house.clients:
            house.take(client)
            assert client.due
        house.settle()
        assert [client.got for client in house.clients] == [[6]] * 3

    def test_a_handler_that_was_away_is_told_by_hints_alone(self) -> None:
        house = self.house((WHOLE, Representation.SSE, 5))
        [client] = house.clients
        hub = self.hub(house)
        hub.outbox.lost()
        house.publish("one", ["a"])
        house.outcome()
        hub.fanout.work()
        house.send()
        assert house.wire
        house.deliver()
        house.take(client)
        assert client.due
        house.settle()
        assert client.got == [6]

    def test_a_client_with_everything_survives_a_floor_above_its_last_event(self) -> None:
        house = self.house((KeyRange("a", "c"), Representation.SSE, 5), (KeyRange("a", "c"), Representation.POLL, 5))
        for _ in range(3):
            house.publish("one", ["x"])
            house.outcome()
        self.hub(house).fanout.work()
        house.move("one", 8)
        house.floor()
        house.settle()
        house.publish("one", ["a"])
        house.outcome()
        house.settle()
        assert [(client.got, client.told) for client in house.clients] == [([9], ""), ([9], "")]

    def test_a_client_that_lacks_deleted_events_is_told(self) -> None:
        house = self.house((WHOLE, Representation.SSE, 5), (WHOLE, Representation.LINES, 5))
        house.die_handler()
        house.publish("one", ["a"])
        house.outcome()
        self.hub(house).fanout.work()
        house.move("one", 6)
        house.floor()
        house.settle()
        assert all(client.got == [] and "not retained" in client.told for client in house.clients)

    def test_a_deleted_topic_ends_its_followers(self) -> None:
        house = self.house((WHOLE, Representation.SSE, 5), (WHOLE, Representation.POLL, 5))
        house.delete("one")
        house.make("one")
        house.publish("one", ["a"])
        house.outcome()
        house.settle()
        assert all(client.got == [] and client.told for client in house.clients)

    def test_a_client_begins_behind_an_event_whose_item_is_still_to_be_made(self) -> None:
        house = self.house((WHOLE, Representation.SSE, 5))
        house.publish("one", ["a"])
        house.outcome()
        client = house.join("one", WHOLE, Representation.SSE, 6)
        house.ask(client)
        for _ in range(2):
            house.go_on(client)
        house.go_on(client)
        house.subscribe(client)
        house.settle()
        assert client.got == []

    def test_a_range_enters_while_items_of_a_publication_are_made(self) -> None:
        house = self.house((WHOLE, Representation.SSE, 5), (KeyRange("a", "c"), Representation.SSE, 5))
        house.publish("one", ["a", "b"])
        house.outcome()
        assert self.hub(house).fanout.work(1)
        for keys, form in ((KeyRange("a", "a\0"), Representation.SSE), (KeyRange("b", None), Representation.LINES)):
            client = house.join("one", keys, form, 5)
            house.ask(client)
            for _ in range(5):
                if client.work is not None:
                    house.go_on(client)
            assert (client.got, client.position) == ([], "e.5")
            house.subscribe(client)
            client.due = False
        self.hub(house).fanout.work()
        house.send()
        house.deliver()
        house.publish("one", ["a", "b"])
        house.settle()
        assert [client.got for client in house.clients] == [[6, 7, 8, 9], [6, 7, 8, 9], [6, 8], [7, 9]]


class TestTheTest:
    """Each thing that makes the seam is left out in turn, and is missed."""

    def caught(self, expected: str = " got | has ") -> None:
        with pytest.raises(AssertionError, match=expected):
            seeded(range(SEEDS))

    def test_a_hold_at_the_position_behind_the_page(self, monkeypatch: pytest.MonkeyPatch) -> None:
        hold = Following._hold

        def late(following: Following, follower: Follower, topic: Topic, position: str) -> object:
            held = following._context.index.range(topic.number, follower.keys)
            watching = follower.representation.watches
            now = position if held is None else following._context.fanout.position(held, watching=watching)
            return hold(following, follower, topic, now)

        monkeypatch.setattr(Following, "_hold", late)
        self.caught()

    def test_pages_that_end_at_the_newest_event_of_the_store(self, monkeypatch: pytest.MonkeyPatch) -> None:
        render_page = Store.render_page

        async def further(store: Store, *arguments: Any, **owner: Any) -> object:
            number, after, keys, limit, size, _, representation = arguments
            return await render_page(store, number, after, keys, limit, size, None, representation, **owner)

        monkeypatch.setattr(Store, "render_page", further)
        self.caught()

    def test_ranges_that_enter_at_the_newest_event_of_the_store(self, monkeypatch: pytest.MonkeyPatch) -> None:
        enter = FanOut.enter

        def ahead(fanout: FanOut, *arguments: Any) -> HeldRange:
            held = enter(fanout, *arguments)
            held.tail = fanout.stored
            return held

        monkeypatch.setattr(FanOut, "enter", ahead)
        self.caught()

    def test_ranges_that_enter_between_two_turns_and_miss_the_publication(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def without(fanout: FanOut, number: int, keys: KeyRange, last_event: int, owner: str) -> HeldRange:
            return fanout._index.enter(number, keys, fanout.newest, last_event, owner)

        monkeypatch.setattr(FanOut, "enter", without)
        with pytest.raises(AssertionError, match=r" got | has "):
            TestDirectly().test_a_range_enters_while_items_of_a_publication_are_made()

    def test_ranges_whose_last_event_is_taken_for_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        enter = ChannelIndex.enter

        def unknowing(
            index: ChannelIndex, number: int, keys: KeyRange, newest: int, last: int, owner: str
        ) -> HeldRange:
            return enter(index, number, keys, newest, 0, owner)

        monkeypatch.setattr(ChannelIndex, "enter", unknowing)
        self.caught("with prev_id 0")

    def test_publications_without_followers_that_overtake_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def hasty(fanout: FanOut, number: int, last: int, *, whole: bool = True) -> bool:
            if fanout._index.ranges(number):
                return False
            fanout.newest = last
            return True

        monkeypatch.setattr(FanOut, "skip", hasty)
        self.caught()

    def test_positions_that_move_past_waiting_events(self, monkeypatch: pytest.MonkeyPatch) -> None:
        move = FanOut.move

        def far(fanout: FanOut, held: HeldRange) -> None:
            newest, fanout.newest = fanout.newest, fanout.stored
            move(fanout, held)
            fanout.newest = newest

        monkeypatch.setattr(FanOut, "move", far)
        self.caught()

    def test_progress_up_to_the_newest_event_of_the_store(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(FanOut, "version", lambda fanout, held: fanout.stored)
        self.caught("at progress")

    def test_progress_that_overtakes_events_on_their_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        position = FanOut.position

        def any_position(fanout: FanOut, held: HeldRange, *, watching: bool) -> str:
            # Progress and events have chains of their own, and each reader is at the place of the last item.
            return position(fanout, held, watching=False)

        monkeypatch.setattr(FanOut, "position", any_position)
        take = House.take

        def unchecked(house: House, client: Client) -> None:
            item = client.kept[0]
            if item.stream is not None and b'"type":"progress"' in item.stream.content:
                client.position = item.prev_id.decode() if item.prev_id else client.position
            take(house, client)

        monkeypatch.setattr(House, "take", unchecked)
        self.caught("at progress")

    def test_a_watch_that_begins_with_progress_of_the_store(self, monkeypatch: pytest.MonkeyPatch) -> None:
        announcement = Following.announcement

        def newest(following: Following, follower: Follower, version: int | None) -> bytes:
            return announcement(following, follower, following._context.fanout.stored)

        monkeypatch.setattr(Following, "announcement", newest)
        self.caught("at progress")

    def test_places_below_the_floor_that_are_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Following, "_below", lambda *_: False)
        self.caught()

    def test_page_links_that_begin_at_the_position_of_the_hold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        place = Reading._link_place

        def held(reading: Reading, request: Request, capability: Capability, topic: Topic) -> tuple[int, bool]:
            if request.headers:
                capability = replace(capability, position=None)
            return place(reading, request, capability, topic)

        monkeypatch.setattr(Reading, "_link_place", held)
        self.caught(" got | has |without end")

    def test_an_outbox_that_forgets_what_it_could_not_deliver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add = Outbox.add

        def forgetful(outbox: Outbox, channel: str, item: bytes) -> None:
            if outbox.state is not OutboxState.AWAY:
                add(outbox, channel, item)

        monkeypatch.setattr(Outbox, "add", forgetful)
        with pytest.raises(AssertionError):
            TestDirectly().test_a_handler_that_was_away_is_told_by_hints_alone()

    def test_subscriptions_after_a_restart_that_get_no_hint(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ChannelIndex, "subscribed", lambda *_: True)
        with pytest.raises(AssertionError):
            TestDirectly().test_a_restart_of_the_hub_is_noticed_by_hints_alone()
