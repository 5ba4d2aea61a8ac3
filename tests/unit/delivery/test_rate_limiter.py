"""Deliveries at a limited rate (docs/grip.md §10): batches of ceil(rate/40) each 25 ms, one queue per route id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gripproxy.delivery import rate_limiter
from gripproxy.delivery.rate_limiter import DELIVERY, INTERVAL, DeliveryRateLimiter
from gripproxy.delivery.turns import TURN_TIME
from gripproxy.grip.item import Item
from tests.support.session_doubles import House, Listener, text


class Timer:
    """``call_later``: one callback at a time, called when the test says that its time has come."""

    def __init__(self) -> None:
        self.armed: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, seconds: float, callback: Callable[[], None]) -> None:
        assert not self.armed, "two timers at once"
        self.armed.append((seconds, callback))

    def fire(self) -> float:
        ((seconds, callback),) = self.armed
        self.armed.clear()
        callback()
        return seconds


class Paced:
    """A pacer with its timer, and listeners behind it."""

    def __init__(self, rate: int, hwm: int = 0) -> None:
        self.timer = Timer()
        self.dropped: list[int] = []
        self.house = House()
        self.pacer = DeliveryRateLimiter(
            rate, hwm, self.timer, self.dropped.append, self.house.clock, self.house.table.failed
        )
        self.order: list[bytes] = []

    def listener(self) -> Listener:
        paced = self

        class Ordered(Listener):
            def deliver(self, subscription: Any, item: Item) -> bool:
                assert item.stream is not None
                paced.order.append(item.stream.content)
                return super().deliver(subscription, item)

        session = Ordered(self.house.table).join()
        self.house.confirm()
        return session

    def put(self, session: Listener, content: bytes, key: bytes = b"", weight: int = 1) -> bool:
        return self.pacer.put(key, session.subscriptions[0], text(content), weight)

    def take(self) -> bytes:
        order = b"".join(self.order)
        self.order.clear()
        return order


class TestRate:
    @pytest.mark.parametrize(("rate", "batch"), [(2500, 63), (40, 1), (41, 2), (80, 2), (1, 1)])
    def test_a_batch_is_a_fortieth_of_the_rate_rounded_up(self, rate: int, batch: int) -> None:
        paced = Paced(rate)
        session = paced.listener()
        for _ in range(batch * 2 + 1):
            paced.put(session, b"x")
        assert paced.take() == b""
        pauses = []
        for expected in (batch, batch, 1):
            pauses.append(paced.timer.fire())
            assert len(paced.take()) == expected
        assert pauses == [0, INTERVAL, INTERVAL]
        assert paced.pacer.delivered == batch * 2 + 1

    def test_single_items_do_not_pass_faster_than_the_rate(self) -> None:
        paced = Paced(40)
        session = paced.listener()
        paced.put(session, b"a")
        paced.timer.fire()
        paced.put(session, b"b")
        assert paced.take() == b"a"
        assert paced.timer.fire() == INTERVAL
        assert paced.take() == b"b"
        paced.timer.fire()
        assert not paced.timer.armed
        paced.put(session, b"c")
        assert paced.timer.fire() == 0
        assert paced.take() == b"c"

    def test_a_delivery_weighs_its_blocks(self) -> None:
        paced = Paced(400)
        session = paced.listener()
        for content, weight in ((b"a", 7), (b"b", 7), (b"c", 1)):
            paced.put(session, content, weight=weight)
        paced.timer.fire()
        assert paced.take() == b"ab"
        paced.timer.fire()
        assert paced.take() == b"c"

    def test_a_batch_that_takes_long_goes_on_in_the_next_turn(self) -> None:
        paced = Paced(400)
        session = paced.listener()

        def takes_time() -> None:
            paced.house.clock.now += TURN_TIME / 2

        session.on_delivery = takes_time
        for letter in b"abcdefghijkl":
            paced.put(session, bytes([letter]))
        taken = []
        for pause in (0, 0, 0, 0, 0):
            assert paced.timer.fire() == pause
            taken.append(paced.take())
        assert taken == [b"ab", b"cd", b"ef", b"gh", b"ij"]
        assert paced.timer.fire() == INTERVAL
        assert paced.take() == b"kl"


class TestFairness:
    def test_routes_are_served_in_turn_and_each_in_order(self) -> None:
        paced = Paced(240)
        session = paced.listener()
        for n in range(10):
            paced.put(session, b"%d" % n, b"busy")
        for letter in b"xy":
            paced.put(session, bytes([letter]), b"calm")
        paced.timer.fire()
        assert paced.take() == b"0x1y23"
        paced.timer.fire()
        assert paced.take() == b"456789"

    def test_no_queue_is_left_behind_for_long(self) -> None:
        """One item a batch, three queues: after six batches every queue has had its turn."""
        paced = Paced(40)
        session = paced.listener()
        for key in (b"a", b"b", b"c"):
            for _ in range(4):
                paced.put(session, key, key)
        for _ in range(6):
            paced.timer.fire()
        assert set(paced.take()) == set(b"abc")


class TestBound:
    def test_more_than_the_high_water_mark_is_dropped_and_told(self) -> None:
        paced = Paced(40, hwm=3)
        session = paced.listener()
        assert [paced.put(session, b"x") for _ in range(4)] == [True, True, True, False]
        assert paced.dropped == [1]
        assert paced.put(session, b"y", b"another queue")

    def test_the_mark_counts_blocks(self) -> None:
        paced = Paced(40, hwm=3)
        session = paced.listener()
        assert paced.put(session, b"x", weight=2)
        assert not paced.put(session, b"x", weight=2)
        assert paced.put(session, b"x", weight=1)

    def test_what_was_delivered_makes_room(self) -> None:
        paced = Paced(40, hwm=1)
        session = paced.listener()
        assert paced.put(session, b"a")
        paced.timer.fire()
        assert paced.put(session, b"b")

    def test_no_mark_is_no_bound(self) -> None:
        paced = Paced(40)
        session = paced.listener()
        assert all(paced.put(session, b"x") for _ in range(1000))


class TestBytes:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rate_limiter, "WAITING_BYTES", 1000)

    def test_are_bounded_over_all_queues(self) -> None:
        paced = Paced(40)
        session = paced.listener()
        taken = [paced.put(session, b"x" * 400, key) for key in (b"a", b"b", b"c", b"d")]
        assert taken == [True, True, True, False]
        assert paced.dropped == [1]

    def test_as_many_as_the_bound_leave_room(self) -> None:
        paced = Paced(40)
        session = paced.listener()
        assert paced.put(session, b"x" * (1000 - DELIVERY))
        assert paced.put(session, b"y")
        assert not paced.put(session, b"z")

    def test_an_item_counts_once_for_all_sessions(self) -> None:
        paced = Paced(40)
        session = paced.listener()
        item = text(b"x" * 800)
        taken = [paced.pacer.put(b"", session.subscriptions[0], item, 1) for _ in range(4)]
        assert taken == [True, True, True, False]
        # It is there until the last of its deliveries.
        paced.timer.fire()
        assert paced.pacer.put(b"", session.subscriptions[0], item, 1)
        assert not paced.put(session, b"y")

    def test_what_was_delivered_makes_room(self) -> None:
        paced = Paced(40)
        session = paced.listener()
        for _ in range(5):
            assert paced.put(session, b"x" * 2000)
            assert not paced.put(session, b"y")
            paced.timer.fire()

    def test_deliveries_count_too(self) -> None:
        paced = Paced(40)
        session = paced.listener()
        assert sum(paced.put(session, b"") for _ in range(100)) == 1000 // DELIVERY + 1


class TestSessions:
    def test_one_that_has_left_is_passed_over(self) -> None:
        paced = Paced(400)
        leaves, stays = paced.listener(), paced.listener()
        paced.put(leaves, b"a")
        paced.put(stays, b"b")
        leaves.leave()
        paced.timer.fire()
        assert paced.take() == b"b"
        assert paced.pacer.delivered == 1
