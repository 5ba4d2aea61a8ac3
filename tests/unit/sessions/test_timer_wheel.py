"""Timers of very many sessions. Time is a number."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from gripproxy.sessions.timer_wheel import TICK, Alarm, Wheel


class Member:
    """Notes when it was called, and may do something then."""

    def __init__(self, act: Callable[[float], None] | None = None) -> None:
        self.tick = -1
        self.called: list[float] = []
        self.act = act

    def on_timer(self, now: float) -> None:
        self.called.append(now)
        if self.act is not None:
            self.act(now)


def run(wheel: Wheel, start: float, end: float) -> None:
    now = start
    while now < end:
        now += TICK
        wheel.advance(now)


class TestWheel:
    def test_a_member_is_called_once_at_its_time(self) -> None:
        wheel, member = Wheel(0), Member()
        wheel.set(member, 1.0)
        assert len(wheel) == 1
        wheel.advance(0.99)
        assert member.called == []
        wheel.advance(1.0 + TICK)
        wheel.advance(9)
        assert member.called == [1.0 + TICK]
        assert (len(wheel), member.tick) == (0, -1)

    def test_setting_again_moves_it(self) -> None:
        wheel, member = Wheel(0), Member()
        wheel.set(member, 1.0)
        wheel.set(member, 3.0)
        run(wheel, 0, 2)
        assert member.called == []
        wheel.set(member, 2.5)
        run(wheel, 2, 4)
        assert len(member.called) == 1

    def test_cancel(self) -> None:
        wheel, member = Wheel(0), Member()
        wheel.cancel(member)
        wheel.set(member, 1.0)
        wheel.cancel(member)
        assert (len(wheel), member.tick) == (0, -1)
        wheel.advance(5)
        assert member.called == []

    def test_a_time_that_has_passed_is_the_next_tick(self) -> None:
        wheel, member = Wheel(100), Member()
        wheel.set(member, 3)
        wheel.advance(100 + 2 * TICK)
        assert len(member.called) == 1

    def test_a_member_may_set_itself_again(self) -> None:
        wheel = Wheel(0)
        member = Member(lambda now: wheel.set(member, now + 1))
        wheel.set(member, 1)
        run(wheel, 0, 5)
        assert len(member.called) == 4

    def test_setting_itself_to_the_past_does_not_spin(self) -> None:
        wheel = Wheel(0)
        member = Member(lambda now: wheel.set(member, 0))
        wheel.set(member, 1)
        wheel.advance(2)
        assert len(member.called) == 1
        wheel.advance(2 + 2 * TICK)
        assert len(member.called) == 2

    def test_one_that_is_due_with_another_may_be_ended_by_it(self) -> None:
        wheel = Wheel(0)
        members: list[Member] = []

        def end_all(now: float) -> None:
            for other in members:
                wheel.cancel(other)

        members += [Member(end_all) for _ in range(2)]
        for member in members:
            wheel.set(member, 1)
        wheel.advance(2)
        assert sum(len(member.called) for member in members) == 1

    def test_one_that_is_due_with_another_may_be_put_off_by_it(self) -> None:
        wheel = Wheel(0)

        def put_off(now: float) -> None:
            for other in members:
                if not other.called:
                    wheel.set(other, now + 5)

        members = [Member(put_off) for _ in range(2)]
        for member in members:
            wheel.set(member, 1)
        wheel.advance(2)
        assert sum(len(member.called) for member in members) == 1
        wheel.advance(8)
        assert sum(len(member.called) for member in members) == 2

    def test_a_long_pause_calls_everybody_in_the_order_of_their_times(self) -> None:
        """A clock that jumps, as after a suspended machine."""
        wheel = Wheel(0)
        order: list[int] = []
        for n in (30, 10, 20):
            wheel.set(Member(lambda now, n=n: order.append(n)), n)  # type: ignore[misc]
        wheel.advance(1e6)
        assert order == [10, 20, 30]

    @given(st.lists(st.floats(0, 50), max_size=30), st.lists(st.floats(0.001, 7), min_size=1, max_size=40))
    def test_nobody_is_early_and_nobody_later_than_a_tick(self, times: list[float], steps: list[float]) -> None:
        wheel = Wheel(0)
        members = [(due, Member()) for due in times]
        for due, member in members:
            wheel.set(member, due)
        now = 0.0
        for step in steps:
            before, now = now, now + step
            wheel.advance(now)
            for due, member in members:
                assert len(member.called) <= 1
                if due > now:
                    assert not member.called
                if due + 2 * TICK < now:
                    assert member.called
                if member.called == [now]:
                    assert due + 2 * TICK >= before


def test_an_alarm_calls() -> None:
    called: list[float] = []
    wheel = Wheel(0)
    wheel.set(Alarm(called.append), 1)
    wheel.advance(2)
    assert called == [2]
