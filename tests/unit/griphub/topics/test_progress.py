"""Progress of watchers: spread over the interval, the first within one of the start; stamps are never used twice."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.store.interface import WHOLE, KeyRange
from griphub.topics.channel_index import HeldRange
from griphub.topics.progress import LOOK, MOMENT, RESERVE, ProgressSchedule, ProgressStamps


def held_of(keys: KeyRange = WHOLE, number: int = 7) -> HeldRange:
    return HeldRange(number, keys, 0, 0, 0, "")


class TestSchedule:
    def run(
        self, schedule: ProgressSchedule, interval: float, begin: float, end: float, step: float = 0.05
    ) -> list[tuple[float, HeldRange]]:
        """Take what is due from one time to another; return the times of progress and its ranges."""
        found = []
        steps = round((end - begin) / step)
        for number in range(steps + 1):
            now = begin + number * step
            while (taken := schedule.take(now)) is not None:
                held, due = taken
                if due:
                    found.append((now, held))
                schedule.again(held, interval, now)
        return found

    @given(st.floats(1.0, 3600.0), st.floats(0.0, 1e6), st.text("abc", max_size=3))
    def test_scenario_9_the_first_comes_within_an_interval_of_the_start(
        self, interval: float, now: float, low: str
    ) -> None:
        schedule = ProgressSchedule()
        schedule.add(held_of(KeyRange(low or None, None)), interval, now)
        waits, at = 0.0, now
        for _ in range(100):
            taken = schedule.take(at)
            if taken is not None:
                if taken[1]:
                    break
                schedule.again(taken[0], interval, at)
            waits += interval / 50
            at = now + waits
        assert 0 < waits <= interval * 1.03

    def test_it_comes_once_in_each_interval(self) -> None:
        schedule = ProgressSchedule()
        schedule.add(held_of(), 2.0, 1000.0)
        times = [at for at, _ in self.run(schedule, 2.0, 1000.0, 1020.0)]
        assert len(times) == 10
        assert all(later - earlier == pytest.approx(2.0, abs=0.06) for earlier, later in itertools.pairwise(times))

    def test_ten_thousand_ranges_are_spread_evenly(self) -> None:
        schedule = ProgressSchedule()
        for number in range(10_000):
            schedule.add(held_of(KeyRange(f"key {number}", f"key {number}\0")), 10.0, 0.0)
        counts = Counter(int(at) for at, _ in self.run(schedule, 10.0, 0.0, 19.99))
        assert all(800 < counts[second] < 1200 for second in range(1, 19)), counts

    def test_a_range_is_scheduled_once(self) -> None:
        schedule, held = ProgressSchedule(), held_of()
        schedule.add(held, 1.0, 0.0)
        schedule.add(held, 1.0, 0.5)
        assert len(schedule) == 1
        assert schedule.take(1.0) == (held, True)
        schedule.end(held)
        assert schedule.take(100.0) is None
        schedule.add(held, 1.0, 100.0)
        assert len(schedule) == 1

    def test_a_shorter_interval_counts_after_a_while(self) -> None:
        schedule = ProgressSchedule()
        schedule.add(held_of(), 3600.0, 0.0)
        found = self.run(schedule, 2.0, 0.0, LOOK + 10)
        assert len(found) == 5
        assert found[0][0] > LOOK

    def test_what_comes_late_is_not_made_up_for(self) -> None:
        schedule = ProgressSchedule()
        schedule.add(held_of(), 1.0, 0.0)
        assert schedule.lag(0.0) == 0.0
        assert 8.9 < schedule.lag(10.0) <= 10.0
        assert [at for at, _ in self.run(schedule, 1.0, 10.0, 10.0)] == [10.0]
        assert schedule.lag(10.0) == 0.0
        assert ProgressSchedule().lag(10.0) == 0.0

    def test_what_could_not_be_made_comes_a_moment_later(self) -> None:
        schedule = ProgressSchedule()
        schedule.add(held_of(), 10.0, 0.0)
        held, due = schedule.take(10.0) or (None, False)
        assert held is not None
        assert due
        schedule.soon(held, 10.0)
        assert schedule.take(10.0 + MOMENT / 2) is None
        assert schedule.take(10.0 + MOMENT) == (held, True)


class TestStamps:
    def test_they_are_the_clock_and_strictly_increase_also_when_it_goes_back(self) -> None:
        stamps = ProgressStamps()
        assert [stamps.next(now) for now in (100, 100, 50, 101, 200)] == [100, 101, 102, 103, 200]

    def test_a_later_start_gives_others_whatever_its_clock_says(self) -> None:
        kept, given_stamps = 0, set[int]()
        for now in (1_000 * RESERVE, 999 * RESERVE, 5 * RESERVE, 1_000 * RESERVE):
            stamps = ProgressStamps()
            until = stamps.wanted(now)
            assert until is not None
            stamps.begin(kept)
            kept = max(kept, until)
            stamps.reserved(until)
            for step in range(200):
                moment = now + step * RESERVE // 50
                if (more := stamps.wanted(moment)) is not None:
                    kept = max(kept, more)
                    stamps.reserved(more)
                stamp = stamps.next(moment)
                assert stamp not in given_stamps
                given_stamps.add(stamp)

    def test_they_are_reserved_ahead_a_minute_at_a_time(self) -> None:
        stamps = ProgressStamps()
        assert stamps.wanted(1000) == 1000 + RESERVE
        assert stamps.wanted(1001) is None, "it was asked for"
        assert stamps.wanted(1001 + RESERVE // 2) == 1001 + RESERVE // 2 + RESERVE

    def test_a_failed_reservation_is_asked_for_again(self) -> None:
        stamps = ProgressStamps()
        stamps.wanted(1000)
        stamps.failed()
        assert stamps.wanted(1000) == 1000 + RESERVE
        stamps.reserved(1000 + RESERVE)
        stamps.failed()
        assert stamps.wanted(1001) is None
