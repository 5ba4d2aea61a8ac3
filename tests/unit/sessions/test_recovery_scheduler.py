"""Who asks again and when: batches (docs/grip.md §6.4), a rate, so many under way at a time, pauses while it fails."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from itertools import pairwise
from typing import Any

import pytest

from gripproxy.delivery.turns import TURN_TIME, Turns
from gripproxy.sessions.recovery_scheduler import (
    INTERVAL,
    MOST,
    PAUSE,
    RATE,
    STEP,
    Asked,
    RecoveryScheduler,
    backend_of,
    failing,
)
from tests.support.session_doubles import Clock


class House:
    """Updates with a clock set by hand, and what it armed."""

    def __init__(self, rate: float = RATE, most: int = 1_000_000, chance: float = 0.0) -> None:
        self.clock = Clock()
        self.due: list[float] = []
        self.log: list[Session] = []
        self.soon: deque[Callable[[], None]] = deque()
        turns = Turns(self.soon.append, self.clock)
        self.scheduler = RecoveryScheduler(self.arm, self.clock, turns, rate, most, lambda: chance)

    def arm(self, seconds: float) -> None:
        self.due.append(self.clock.now + seconds)

    @property
    def armed(self) -> list[float]:
        """Seconds until what was armed."""
        return [round(when - self.clock.now, 6) for when in self.due]

    def session(self, key: str | None = None, lane: str = "lane", asks: bool = False) -> Session:
        return Session(self, key, lane, asks)

    def add(self, count: int = 1, **more: Any) -> list[Session]:
        sessions = [self.session(**more) for _ in range(count)]
        for session in sessions:
            self.scheduler.add(session)
        return sessions

    def run(self, seconds: float = INTERVAL) -> list[Session]:
        """So much time passes, and everything armed until then happens, as in a loop; returns who was updated."""
        end = self.clock.now + seconds
        while self.due and min(self.due) <= end + 1e-9:
            when = min(self.due)
            self.due.remove(when)
            self.clock.now = max(self.clock.now, when)
            self.scheduler.run()
            self.turn()
        self.turn()
        self.clock.now = end
        return self.take()

    def turn(self) -> None:
        """Run what later turns of the loop were asked for."""
        while self.soon:
            self.soon.popleft()()

    def take(self) -> list[Session]:
        log, self.log = self.log, []
        return log


class Session:
    """Notes that it was updated; ``asks``: and has a request under way from then on."""

    def __init__(self, house: House, key: str | None, lane: str, asks: bool) -> None:
        self.house = house
        self.request_key: Hashable = key
        self.backend_key: Hashable = lane
        self.asks = asks
        self.asked: Asked | None = None
        self.act: Callable[[], None] | None = None

    def update(self) -> None:
        self.house.log.append(self)
        if self.asks:
            self.asked = self.house.scheduler.begin(self.backend_key)
        if self.act is not None:
            self.act()

    def answered(self, failed: bool | None = False) -> None:
        assert self.asked is not None
        self.asked.end(failed)


@pytest.fixture
def house() -> House:
    return House()


def test_the_numbers() -> None:
    assert (RATE, INTERVAL, MOST) == (1000, 0.1, 32)


class TestBatches:
    def test_a_hundred_at_a_time_in_order(self, house: House) -> None:
        sessions = house.add(250)
        assert (house.armed, house.log, len(house.scheduler)) == ([0.1], [], 250)
        assert [house.run() for _ in range(4)] == [sessions[:100], sessions[100:200], sessions[200:], []]
        assert house.armed == []

    @pytest.mark.parametrize(("count", "batches"), [(99, 1), (100, 1), (101, 2)])
    def test_the_bound_on_both_sides(self, house: House, count: int, batches: int) -> None:
        house.add(count)
        for _ in range(batches):
            assert len(house.scheduler)
            house.run()
        assert len(house.scheduler) == 0
        assert house.armed == []

    def test_the_first_comes_a_little_later_at_random(self) -> None:
        house = House(chance=0.5)
        house.add()
        assert house.armed == [pytest.approx(0.125)]

    def test_sessions_that_share_a_request_count_once(self, house: House) -> None:
        shared = house.add(250, key="one")
        alone = house.add(100)
        shared += house.add(250, key="one")
        assert house.run() == shared + alone[:99]
        assert house.run() == alone[99:]

    def test_a_session_is_in_it_once_and_keeps_its_place(self, house: House) -> None:
        first, second = house.add(2)
        house.scheduler.add(first)
        assert house.run() == [first, second]

    def test_one_that_is_over_is_forgotten(self, house: House) -> None:
        gone, stays = house.add(2)
        house.scheduler.discard(gone)
        house.scheduler.discard(gone)
        assert house.run() == [stays]

    def test_one_that_is_added_during_a_batch_waits_for_the_next(self, house: House) -> None:
        [session] = house.add()
        session.act = lambda: house.scheduler.add(session)
        assert house.run() == [session]
        assert len(house.scheduler) == 1
        assert house.run() == [session]

    def test_one_may_end_another_of_its_batch(self, house: House) -> None:
        first, second = house.add(2, key="x")
        first.act = lambda: house.scheduler.discard(second)
        assert house.run() == [first]

    def test_it_starts_again_after_it_was_empty(self, house: House) -> None:
        house.add()
        house.run()
        assert house.armed == []
        [session] = house.add()
        assert house.run() == [session]


class TestRate:
    def test_is_kept_over_all_lanes(self) -> None:
        house = House(rate=50)
        house.add(20, lane="a")
        house.add(20, lane="b")
        assert [len(house.run()) for _ in range(9)] == [5] * 8 + [0]

    def test_may_be_low(self) -> None:
        house = House(rate=2)
        house.add(3)
        assert [len(house.run()) for _ in range(12)] == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]

    def test_is_that_of_batches_however_fast_the_backend_is(self) -> None:
        house = House(most=50)
        sessions = house.add(300, asks=True)
        assert len(house.run()) == 50
        for session in sessions[:99]:
            session.answered()
            house.run(0.0005)
        assert house.scheduler.asking == 1
        assert house.run(0.05) == []
        assert len(house.run(0.001)) == 49

    def test_is_not_saved_up(self) -> None:
        house = House(rate=50)
        house.run(100)
        house.add(20)
        assert len(house.run()) == 5

    def test_lanes_take_turns(self) -> None:
        house = House(rate=60)
        many = house.add(100, lane="a")
        few = house.add(3, lane="b")
        assert house.run() == [many[0], few[0], many[1], few[1], many[2], few[2]]


class TestUnderWay:
    def test_only_so_many_and_the_next_when_one_has_ended(self) -> None:
        house = House(most=3)
        sessions = house.add(5, asks=True)
        assert house.run() == sessions[:3]
        assert house.scheduler.asking == 3
        assert house.run(60) == []
        sessions[1].answered()
        assert 0 in house.armed
        assert house.run(0) == [sessions[3]]
        sessions[0].answered()
        sessions[2].answered()
        assert house.run(0) == [sessions[4]]
        for session in sessions[3:]:
            session.answered()
        house.run()
        assert (house.scheduler.asking, house.armed) == (0, [])

    def test_an_end_counts_once(self) -> None:
        house = House(most=1)
        first, second, _ = house.add(3, asks=True)
        house.run()
        first.answered()
        first.answered()
        assert house.run(0) == [second]
        assert house.scheduler.asking == 1

    def test_a_backend_that_hangs_delays_no_other(self) -> None:
        house = House(most=2)
        house.add(10, asks=True, lane="hangs")
        house.run()
        others = house.add(2, lane="fine")
        assert house.run() == others
        assert len(house.scheduler) == 8

    def test_those_whose_batch_has_not_come_wait_for_it(self) -> None:
        house = House(most=1)
        [first] = house.add(asks=True)
        house.run()
        [second] = house.add()
        first.answered()
        assert house.run(0) == []
        assert house.run() == [second]

    def test_the_rate_holds_for_those_that_follow(self) -> None:
        house = House(rate=20, most=2)
        sessions = house.add(10, asks=True)
        assert house.run() == sessions[:2]
        for session in sessions[:2]:
            session.answered()
        assert house.run(0) == []
        assert house.run() == sessions[2:4]

    def test_what_others_have_under_way_counts_too(self) -> None:
        house = House(most=2)
        other = house.scheduler.begin("lane")
        first, second = house.add(2, asks=True)
        assert house.run() == [first]
        other.end(False)
        assert house.run(0) == [second]


class TestAtOnce:
    def test_goes_at_once(self, house: House) -> None:
        session = house.session()
        house.scheduler.add_urgent(session)
        assert house.log == [session]
        assert (len(house.scheduler), house.armed) == (0, [])

    def test_one_that_waits_does_not_wait_any_more(self, house: House) -> None:
        [session] = house.add()
        house.scheduler.add_urgent(session)
        assert len(house.scheduler) == 0
        assert house.run() == [session]

    def test_goes_before_all_others_when_there_is_room(self) -> None:
        house = House(rate=10, most=1)
        [first] = house.add(asks=True)
        house.run()
        waiting = house.add(2)
        urgent = house.session(asks=True)
        house.scheduler.add_urgent(urgent)
        assert house.log == []
        house.scheduler.discard(waiting[0])
        first.answered()
        # The rate is used up, which is nothing to it.
        assert house.run(0) == [urgent]

    def test_of_a_backend_that_fails_waits_for_the_pause(self, house: House) -> None:
        house.scheduler.begin("lane").end(True)
        session = house.session()
        house.scheduler.add_urgent(session)
        assert house.log == []
        assert house.run(PAUSE[0]) == [session]

    def test_may_be_forgotten(self) -> None:
        house = House(most=1)
        house.scheduler.begin("lane")
        session = house.session()
        house.scheduler.add_urgent(session)
        house.scheduler.discard(session)
        assert len(house.scheduler) == 0

    def test_of_many_keep_their_order_and_go_before_all_others(self) -> None:
        house = House(rate=1, most=1)
        house.scheduler.begin("lane").end(None)
        urgent = [house.session(asks=True) for _ in range(3)]
        for session in urgent:
            house.scheduler.add_urgent(session)
        sessions = house.add(1)
        for number in range(3):
            assert house.take() == [urgent[number]]
            urgent[number].answered()
            if number < 2:
                house.scheduler.run()
        assert house.run() == sessions

    def test_equal_ones_share_a_request(self) -> None:
        house = House(most=1)
        request = house.scheduler.begin("lane")
        urgent = [house.session(key="x", asks=number == 0) for number in range(3)]
        for session in urgent:
            house.scheduler.add_urgent(session)
        request.end(False)
        assert house.run(0) == urgent


class TestManySessionsOfOneRequest:
    """Each turn of the loop ends by time; the clock moves with each query."""

    @pytest.fixture
    def many(self, house: House) -> list[Session]:
        sessions = house.add(3 * STEP, key="x")
        for session in sessions:
            session.act = self.costs(house)
        return sessions

    def costs(self, house: House) -> Callable[[], None]:
        def act() -> None:
            self.since.append(house.scheduler.since)
            house.clock.now += 1.01 * TURN_TIME / STEP

        self.since: list[float] = []
        return act

    def begin(self, house: House) -> None:
        """Let the time of the batch come, and none of the turns after it."""
        house.clock.now = max(house.due)
        house.due.clear()
        house.scheduler.run()

    def test_have_their_turn_in_several_turns_of_the_loop(self, house: House, many: list[Session]) -> None:
        self.begin(house)
        assert house.take() == many[:STEP]
        assert len(house.scheduler) == 2 * STEP
        house.turn()
        assert house.take() == many[STEP:]
        assert len(house.scheduler) == 0

    def test_need_no_newer_request_than_the_first_of_them(self, house: House, many: list[Session]) -> None:
        self.begin(house)
        begun = max(house.due, default=0) or min(self.since)
        house.turn()
        assert set(self.since) == {begun}
        assert house.scheduler.since == house.clock.now > begun

    def test_their_request_is_sent_when_the_last_of_them_has_joined_it(self, house: House, many: list[Session]) -> None:
        sent: list[int] = []
        first, *_ = many

        def act() -> None:
            house.scheduler.when_served(lambda: sent.append(len(house.log)))

        first.act = act
        house.scheduler.when_served(lambda: sent.append(0))
        self.begin(house)
        assert sent == [0]
        house.turn()
        assert sent == [0, len(many)]

    def test_one_that_queries_for_an_urgent_reason_meanwhile_does_so_once(
        self, house: House, many: list[Session]
    ) -> None:
        self.begin(house)
        house.scheduler.add_urgent(many[-1])
        house.turn()
        assert house.take() == [*many[:STEP], many[-1], *many[STEP:-1]]

    def test_one_that_is_added_meanwhile_has_its_turn_with_them_if_it_has_not_had_it(
        self, house: House, many: list[Session]
    ) -> None:
        self.begin(house)
        house.take()
        house.scheduler.add(many[-1])
        house.scheduler.add(many[0])
        house.turn()
        assert house.take() == many[STEP:]
        assert house.run() == [many[0]]

    def test_the_failure_of_one_is_its_own(self, house: House, many: list[Session]) -> None:
        def fail() -> None:
            raise ArithmeticError

        many[1].act = fail
        with pytest.raises(ArithmeticError):
            self.begin(house)
        house.turn()
        assert house.take() == many

    def test_the_failure_of_one_keeps_no_other_group_from_its_turn(self, house: House) -> None:
        def fail() -> None:
            raise ArithmeticError

        [first] = house.add(1, key="x")
        others = house.add(2, key="y") + house.add(1, key="z")
        first.act = fail
        with pytest.raises(ArithmeticError):
            self.begin(house)
        house.turn()
        assert house.take() == [first, *others]
        assert len(house.scheduler) == 0

    def test_urgent_ones_of_one_turn_of_the_loop_share_a_request(self, house: House) -> None:
        begun = house.clock.now
        sessions = [house.session(key="x") for _ in range(3)]
        for session in sessions:
            session.act = self.costs(house)
        for session in sessions[:2]:
            house.scheduler.add_urgent(session)
        assert house.scheduler.since == begun
        house.turn()
        assert house.scheduler.since == house.clock.now > begun


class TestBackendThatFails:
    def fail_one(self, house: House) -> None:
        house.scheduler.begin("lane").end(True)

    def test_is_asked_by_one_after_growing_pauses(self, house: House) -> None:
        self.fail_one(house)
        sessions = house.add(50, asks=True)
        times: list[float] = []
        for _ in range(8):
            got: list[Session] = []
            while not got:
                got = house.run(0.1)
            [session] = got
            times.append(house.clock.now)
            session.answered(True)
        gaps = [after - before for before, after in pairwise(times)]
        wanted = [0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
        assert all(pause - 0.01 <= gap <= pause + 0.21 for gap, pause in zip(gaps, wanted, strict=True)), gaps
        assert len(house.scheduler) == len(sessions) - 8

    def test_is_asked_as_ever_when_it_answers_again(self, house: House) -> None:
        for _ in range(5):
            self.fail_one(house)
        sessions = house.add(50, asks=True)
        [first] = house.run(2)
        first.answered()
        assert house.run() == sessions[1:]

    def test_many_that_fail_together_say_no_more_than_one(self, house: House) -> None:
        asked = [house.scheduler.begin("lane") for _ in range(30)]
        for one in asked:
            one.end(True)
            house.clock.now += 0.001
        [session] = house.add()
        assert house.run(PAUSE[0] + 0.1) == [session]

    def test_one_that_does_not_end_does_not_stop_the_next(self, house: House) -> None:
        self.fail_one(house)
        house.add(3, asks=True)
        assert len(house.run(0.2)) == 2

    def test_is_no_matter_of_other_lanes(self, house: House) -> None:
        for _ in range(10):
            self.fail_one(house)
        house.add(5)
        others = house.add(5, lane="other")
        assert house.run() == others

    def test_a_client_that_left_says_nothing(self, house: House) -> None:
        house.scheduler.begin("lane").end(None)
        sessions = house.add(5)
        assert house.run() == sessions

    def test_nothing_is_kept_of_many_lanes(self, house: House) -> None:
        for number in range(5000):
            house.scheduler.begin(number).end(number % 2 == 0)
        assert len(house.scheduler._backends) <= 1024


@pytest.mark.parametrize(("code", "fails"), [(200, False), (404, False), (302, False), (429, True), (503, True)])
def test_what_a_backend_says_of_itself(code: int, fails: bool) -> None:
    assert failing(code) == fails


def test_lanes_are_of_routes_and_of_other_hosts() -> None:
    assert backend_of("r", b"/next?uri=http://x/") == backend_of("r") == backend_of("r", b"next//a")
    assert backend_of("r", b"http://x:80/next") == backend_of("r", b"//X:80?a") != backend_of("r")
    assert backend_of("r", b"http://x/") != backend_of("s", b"http://x/")
