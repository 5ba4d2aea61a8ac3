"""Flow of a push subscription against receivers of many kinds, in simulated time (scenarios 38, 39, 43, 45)."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

import pytest

from griphub.backlog.backlog import Backlog, Policy
from griphub.backlog.intervals import Intervals
from griphub.backlog.push_flow import PushFlow

Answer = tuple[float, bool]
"""Seconds until an answer, and whether it acknowledges."""


class Receiver:
    """A flow whose requests are answered by a function, on a clock of its own."""

    def __init__(self, answer: Callable[[int], Answer], policy: Policy | None = None, window_max: int = 10_000) -> None:
        self.flow = PushFlow(Backlog(policy or Policy(), Intervals(0)), window_max)
        self.answer = answer
        self.now = 0.0
        self.last = 0
        self.begun: list[tuple[float, int]] = []
        """Time and message of each request."""
        self.most: list[int] = []
        """Greatest number under way in each tenth of a second."""
        self._answers: list[tuple[float, int, int, bool]] = []

    def publish(self, number: int) -> None:
        messages = [(self.last + 1 + n, self.last + n, 0, "", True) for n in range(number)]
        self.last += number
        self.flow.backlog.take_read(messages, self.last)

    def run(self, until: float) -> None:
        """Let time pass."""
        while True:
            for entry in self.flow.begin(self.now, 10_000):
                self.begun.append((self.now, entry.id))
                seconds, acked = self.answer(len(self.begun) - 1)
                heapq.heappush(self._answers, (self.now + seconds, entry.id, entry.lease, acked))
            following = min(self.flow.next_time(self.now), self._answers[0][0] if self._answers else float("inf"))
            if following > until:
                self.now = until
                return
            self.now = max(self.now, following)
            self.flow.pass_time(self.now)
            while self._answers and self._answers[0][0] <= self.now:
                _, id, lease, acked = heapq.heappop(self._answers)
                self.flow.answered(id, lease, self.now, acked=acked)

    def gaps(self, after: float = 0.0) -> list[float]:
        times = [at for at, _ in self.begun if at >= after]
        return [later - before for before, later in itertools.pairwise(times)]


def test_a_fast_receiver_is_sent_as_much_as_it_takes_within_twelve_round_trips() -> None:
    receiver = Receiver(lambda _: (0.05, True))
    receiver.publish(4000)
    receiver.run(0.05 * 12)
    in_the_last_trip = sum(at >= 0.05 * 11 for at, _ in receiver.begun)
    assert in_the_last_trip >= 1000 or len(receiver.begun) == 4000


def test_the_window_is_never_exceeded() -> None:
    receiver = Receiver(lambda _: (0.05, True), window_max=7)
    receiver.publish(500)
    receiver.run(3.0)
    times = [at for at, _ in receiver.begun]
    assert max(sum(begin <= at < begin + 0.05 for at in times) for begin in times) <= 7


@pytest.mark.parametrize(("share", "low", "high"), [(0.2, 0.4, 0.6), (1.0, 47, 60)])
def test_scenario_38_the_mean_pause_is_that_of_the_table(share: float, low: float, high: float) -> None:
    chance = random.Random(4)
    every = round(1 / share)
    receiver = Receiver(lambda number: (0.001 * chance.random(), bool(number % every)))
    receiver.publish(2000)
    receiver.run(600.0 if share < 1 else 3600.0)
    gaps = receiver.gaps(after=60.0)
    assert low <= sum(gaps) / len(gaps) <= high


def test_scenario_38_it_recovers_within_minutes() -> None:
    well = [False]
    receiver = Receiver(lambda _: (0.001, well[0]))
    receiver.publish(4000)
    receiver.run(600.0)
    well[0] = True
    receiver.run(800.0)
    assert receiver.flow.backoff.pause == 0
    assert len(receiver.flow.backlog) == 0


def test_one_request_is_under_way_while_it_fails() -> None:
    receiver = Receiver(lambda _: (0.001, False))
    receiver.publish(100)
    receiver.run(300.0)
    assert min(receiver.gaps(after=10.0)) > 1.0


def test_no_answer_is_a_failure_at_the_deadline() -> None:
    receiver = Receiver(lambda _: (1e9, True), Policy(ack_deadline=10))
    receiver.publish(3)
    receiver.run(9.9)
    assert [id for _, id in receiver.begun] == [1, 2, 3]
    receiver.run(11.0)
    assert receiver.flow.backoff.share > 0.3
    assert receiver.flow.backlog.counts.expired == 3


def test_an_answer_after_the_deadline_acknowledges_nothing() -> None:
    receiver = Receiver(lambda number: (10.2 if number == 0 else 0.1, True), Policy(ack_deadline=10))
    receiver.publish(1)
    receiver.run(10.3)
    assert receiver.flow.backlog.counts.acked in (0, 1)
    receiver.run(100.0)
    assert [id for _, id in receiver.begun] == [1, 1]
    assert (receiver.flow.backlog.counts.expired, receiver.flow.backlog.counts.acked) == (1, 1)


def test_an_aborted_request_may_be_answered_no_more() -> None:
    receiver = Receiver(lambda _: (1.0, True))
    receiver.publish(3)
    receiver.run(0.5)
    aborted = receiver.flow.aborted()
    assert [sent.id for sent in aborted] == [1, 2, 3]
    assert not receiver.flow.answered(1, aborted[0].lease, 1.0, acked=True)
    assert (receiver.flow.window.size, receiver.flow.backoff.share) == (3, 0)


def test_a_receiver_that_asks_for_a_pause_gets_it() -> None:
    receiver = Receiver(lambda _: (1.0, True))
    receiver.publish(1)
    [entry] = receiver.flow.begin(0.0, 10)
    receiver.flow.answered(entry.id, entry.lease, 0.0, acked=False, asked=20.0)
    assert receiver.flow.allowed(19.9) == 0
    assert receiver.flow.allowed(20.0) == 1
    assert receiver.flow.next_time(0.0) == 20.0


def test_chance_sends_nothing_after_its_acknowledgement() -> None:
    for seed in range(20):
        chance = random.Random(seed)

        def answer(_: int, chance: random.Random = chance) -> Answer:
            return chance.random() * 12, chance.random() < 0.7

        receiver = Receiver(answer, Policy(ack_deadline=10))
        receiver.publish(200)
        receiver.run(40_000.0)
        assert len(receiver.flow.backlog) == 0
        counts = receiver.flow.backlog.counts
        assert counts.acked == 200
        assert len(receiver.begun) == counts.acked + counts.nacked + counts.expired
