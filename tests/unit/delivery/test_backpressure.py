"""Pressure: when most clients do not keep up, the intake waits for them; for one it never does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from gripproxy.delivery.backpressure import AGAIN, BEHIND, FEW, LOOK, PATIENCE, REST, Backpressure
from gripproxy.pipe import Message, PipeConnection

LINK, OTHER = cast(PipeConnection, "a link"), cast(PipeConnection, "another")


class Session:
    """One that items are written to."""

    def __init__(self) -> None:
        self.transport = self
        self.waiting = 0

    def get_write_buffer_size(self) -> int:
        return self.waiting


class House:
    """A worker with sessions, and a loop whose time is moved by hand."""

    def __init__(self, streams: int, polls: int = 0) -> None:
        self.now = 0.0
        self.sessions = [Session() for _ in range(streams)]
        self.delivered: list[int] = []
        self.links: list[PipeConnection] = []
        self.paused: list[bool] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        others: dict[Any, object] = {-number: object() for number in range(polls)}
        self.pressure = Backpressure(self.deliver, (dict(enumerate(self.sessions)), others), self.paused.append, self)

    def call_later(self, delay: float, callback: Callable[[], None], /) -> None:
        self.timers.append((self.now + delay, callback))

    def time(self) -> float:
        return self.now

    def deliver(self, link: PipeConnection, messages: list[Message]) -> None:
        self.links.append(link)
        self.delivered += [message[0] for message in messages]

    def take(self, *numbers: int, link: PipeConnection = LINK) -> None:
        self.pressure.take(link, [(number,) for number in numbers])

    def behind(self, number: int, waiting: int = BEHIND + 1) -> None:
        for session in self.sessions[:number]:
            session.waiting = waiting

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.timers and self.timers[0][0] <= end:
            self.now, callback = self.timers.pop(0)
            callback()
        self.now = end


@pytest.fixture
def house() -> House:
    house = House(20)
    house.take(1)
    house.now = 1.0
    return house


def test_items_pass_at_once(house: House) -> None:
    house.take(2, 3)
    assert house.delivered == [1, 2, 3]
    assert house.paused == []


def test_when_most_are_behind_the_next_ones_wait_until_they_have_caught_up(house: House) -> None:
    house.behind(11)
    house.take(2)
    assert house.paused == [True]
    house.take(3)
    assert house.delivered == [1, 2]
    house.behind(11, 0)
    house.wait(AGAIN)
    assert house.delivered == [1, 2, 3]
    assert house.paused == [True, True, False]


def test_half_of_them_are_not_waited_for(house: House) -> None:
    house.behind(10)
    house.take(2)
    house.behind(20, BEHIND)
    house.now += LOOK
    house.take(3)
    assert house.paused == []


def test_a_few_are_not_waited_for() -> None:
    house = House(FEW - 1)
    house.behind(FEW)
    house.take(1)
    house.take(2)
    assert house.paused == []


def test_who_has_nothing_written_to_does_not_count() -> None:
    house = House(FEW, polls=FEW * 3)
    house.behind(FEW)
    house.take(1)
    assert house.paused == [True]


def test_it_is_looked_at_now_and_then_only(house: House) -> None:
    house.take(2)
    house.behind(20)
    house.now += LOOK / 2
    house.take(3)
    assert house.paused == []
    house.now += LOOK
    house.take(4)
    assert house.paused == [True]


def test_who_does_not_read_at_all_is_not_waited_for_long(house: House) -> None:
    house.behind(20)
    house.take(2)
    numbers = range(3, 200_003)
    house.take(*numbers)
    house.wait(PATIENCE + 2 * AGAIN)
    first = len(house.delivered)
    assert 2 < first < 50_000, "a part of them"
    house.wait(PATIENCE + 2 * AGAIN)
    second = len(house.delivered) - first
    assert second > 1.5 * first, "more each time"
    house.wait(10 * PATIENCE)
    assert house.delivered == [1, 2, *numbers]


def test_few_items_and_clients_that_never_read_delay_the_others_ever_more_seldom(house: House) -> None:
    house.behind(20)
    waits = []
    for number in range(2, 602):
        house.now += 0.1
        began = house.now
        house.take(number)
        while house.delivered[-1] != number:
            house.wait(AGAIN)
        if house.now > began:
            waits.append(house.now - began)
    assert max(waits) <= PATIENCE + 2 * AGAIN
    assert 1 < len(waits) < 15, "of 600"


def test_who_waited_in_vain_waits_again_when_clients_have_caught_up_meanwhile(house: House) -> None:
    house.behind(20)
    house.take(2)
    for _ in range(20):
        house.wait(PATIENCE + 2 * AGAIN)
        house.take(3)
    house.behind(20, 0)
    house.now += REST
    house.take(4)
    house.behind(20)
    house.now += LOOK
    house.take(5, 6)
    house.take(7)
    assert house.delivered[-1] == 6, "it waits"


def test_a_long_batch_goes_on_as_it_came(house: House) -> None:
    house.take(*range(2, 100_000))
    assert house.links == [LINK, LINK]


def test_when_clients_were_waited_for_its_rest_may_wait(house: House) -> None:
    house.behind(20)
    house.take(2)
    house.behind(20, 0)
    house.wait(AGAIN)
    house.behind(20)
    house.now += LOOK
    house.take(*range(3, 100_000))
    assert 2 < len(house.delivered) < 50_000
    house.behind(20, 0)
    house.wait(AGAIN)
    assert house.delivered == list(range(1, 100_000))


def test_what_an_old_handler_said_comes_before_a_new_one_is_greeted(house: House) -> None:
    house.behind(20)
    house.take(2)
    house.take(3)
    house.pressure.flush()
    assert house.delivered == [1, 2, 3]
    house.take(4, link=OTHER)
    assert house.paused == [True, True, True], "the new link too"
    house.behind(20, 0)
    house.wait(AGAIN)
    assert house.delivered == [1, 2, 3, 4]
    assert house.links == [LINK, LINK, LINK, OTHER]


def test_there_may_be_nothing_of_an_old_handler(house: House) -> None:
    house.pressure.flush()
    assert house.delivered == [1]
