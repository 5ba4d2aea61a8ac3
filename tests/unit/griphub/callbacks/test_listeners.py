"""Listeners: events are given to subscriptions that take them as they are stored; the others cost nothing."""

from __future__ import annotations

from griphub.callbacks.courier import Courier
from griphub.callbacks.listeners import INBOX_BYTES, LARGE, SLICE, Listeners
from griphub.callbacks.push_event import PushEvent
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import parse_callback
from griphub.sender.delivery import Delivery
from griphub.sender.delivery_actions import Action, DeliveryLimits, Queue
from griphub.sender.delivery_states import State
from griphub.sender.signature import Signer, SigningKey
from griphub.sender.window import WindowBudget

URL = parse_callback("https://receiver.example/", AddressPolicy())
SIGNER = Signer([SigningKey(b"k" * 32)])


class House:
    """Listeners, at a time that goes on with each look at it."""

    def __init__(self, step: float = 0.0) -> None:
        self.time = 0.0
        self.step = step
        self.budget = WindowBudget()
        self.actions: list[tuple[int, Action[PushEvent]]] = []
        self.failed: list[int] = []
        self.broken: int | None = None
        """Subscription whose actions fail."""
        self.listeners = Listeners(self._now, self._take, lambda courier: self.failed.append(courier.number))

    def _take(self, courier: Courier, action: Action[PushEvent]) -> None:
        if courier.number == self.broken:
            raise LookupError("of an action")
        self.actions.append((courier.number, action))

    def _now(self) -> float:
        self.time += self.step
        return self.time

    def courier(self, number: int, topic: int = 1, *, live: bool = True) -> Courier:
        """Add a subscription, one that has delivered all events unless it is not ``live``."""
        delivery: Delivery[PushEvent] = Delivery(0, DeliveryLimits(), self.budget, lambda: 0.5, confirmed=True)
        delivery.start()
        courier = Courier(number, topic, "news", f"s{number}", "o", URL, SIGNER, delivery)
        self.listeners.add(courier)
        if live:
            delivery.admitted()
            delivery.page([], 0, False, 0.0)
        self.listeners.update(courier)
        return courier

    def work(self, seconds: float = 1000.0) -> bool:
        """Give it a turn."""
        return self.listeners.work(self.time + seconds)


def test_an_error_at_one_listener_is_not_one_of_the_others() -> None:
    house = House()
    for number in (1, 2, 3):
        house.courier(number)
    house.broken = 2
    house.listeners.stored(1, [event(1)])
    assert not house.work()
    assert house.failed == [2]
    assert house.actions == [(1, Queue()), (3, Queue())]


def event(id: int, size: int = 10) -> PushEvent:
    return PushEvent(id, id - 1, 0, b"x" * size)


def test_events_are_given_to_those_that_listen() -> None:
    house = House()
    house.courier(1)
    replaying = house.courier(2, live=False)
    house.courier(3, topic=2)
    assert [house.listeners.of(topic) for topic in (1, 2, 3)] == [1, 1, 0]
    house.listeners.stored(1, [event(1), event(2)])
    assert not house.actions
    assert not house.work()
    # The second event waits behind the first.
    assert [number for number, _ in house.actions] == [1]
    assert replaying.delivery.state is State.REPLAYING
    assert [house.listeners.newest(topic) for topic in (1, 2, 3)] == [2, 0, 0]


def test_a_subscription_that_ends_or_does_not_follow_any_more_takes_none() -> None:
    house = House()
    first, second = house.courier(1), house.courier(2)
    house.listeners.remove(first)
    second.delivery.cancel()
    house.listeners.update(second)
    assert house.listeners.of(1) == 0
    house.listeners.stored(1, [event(1)])
    assert not house.work()
    assert not house.actions
    house.listeners.remove(second)
    assert house.listeners.newest(1) == 0


def test_one_that_ends_between_its_event_and_its_turn_takes_none() -> None:
    house = House()
    first = house.courier(1)
    house.listeners.stored(1, [event(1)])
    house.listeners.hint(1, 2)
    first.delivery.cancel()
    house.listeners.remove(first)
    assert not house.work()
    assert not house.actions


def test_hints_and_large_events_are_to_be_read() -> None:
    for large in (True, False):
        house = House()
        courier = house.courier(1)
        if large:
            house.listeners.stored(1, [event(1, LARGE + 1)])
        else:
            house.listeners.hint(1, 1)
        house.work()
        assert len(house.actions) == 1
        assert courier.delivery.state is State.REPLAYING
        assert house.budget.used == 0


def test_events_beyond_the_bound_are_to_be_read() -> None:
    house = House()
    courier = house.courier(1)
    number = 0
    size = event(1, 200_000).size
    while number * size <= 2 * INBOX_BYTES:
        number += 1
        house.listeners.stored(1, [event(number, 200_000)])
    house.work()
    # Five fit in its window, the others wait in the store.
    assert courier.delivery.state is State.SENDING
    assert house.listeners.newest(1) == number
    courier.delivery.cancel()
    assert house.budget.used == 0


def test_a_turn_is_bounded_and_goes_on_where_it_ended() -> None:
    house = House(step=1.0)
    for number in range(3 * SLICE):
        house.courier(number)
    house.listeners.stored(1, [event(1)])
    house.listeners.hint(1, 1)
    turns = 1
    while house.work(0.5):
        turns += 1
    assert turns == 7
    assert [number for number, _ in house.actions] == list(range(3 * SLICE))
