"""Backlog of a subscription: a transcript of messages, deliveries and answers."""

from __future__ import annotations

import random

import pytest

from griphub.backlog.backlog import AHEAD, AHEAD_ORDERED, Backlog, Policy
from griphub.backlog.intervals import Intervals


class Subscription:
    """A backlog, the message ids of which are multiples of ten."""

    def __init__(self, policy: Policy | None = None, position: int = 0) -> None:
        self.backlog = Backlog(policy or Policy(), Intervals(position))
        self.now = 100.0
        self.leases: dict[int, int] = {}
        self.last = position

    def publish(self, number: int = 1, key: str = "", *, passes: bool = True) -> list[int]:
        found = []
        for _ in range(number):
            self.backlog.take_read([(self.last + 10, self.last, self.last, key, passes)], self.last + 10)
            self.last += 10
            found.append(self.last)
        return found

    def lease(self, most: int = 1000) -> list[int]:
        entries = self.backlog.lease(self.now, most)
        self.leases |= {entry.id: entry.lease for entry in entries}
        return [entry.id for entry in entries]

    def ack(self, id: int) -> bool:
        return self.backlog.ack(id, self.leases[id])

    def nack(self, id: int) -> bool:
        return self.backlog.nack(id, self.leases[id], self.now)

    def wait(self, seconds: float) -> list[int]:
        self.now += seconds
        return [entry.id for entry in self.backlog.pass_time(self.now)]

    @property
    def attempts(self) -> dict[int, int]:
        return self.backlog.attempted()

    @property
    def position(self) -> int:
        return self.backlog.acked.position


class TestDeliveries:
    def test_the_oldest_comes_first_and_each_once(self) -> None:
        one = Subscription()
        one.publish(3)
        assert one.lease(2) == [10, 20]
        assert one.lease() == [30]
        assert one.lease() == []
        assert one.backlog.leased == 3

    def test_acknowledged_messages_are_done_with(self) -> None:
        one = Subscription()
        one.publish(3)
        one.lease()
        assert one.ack(20)
        assert (one.position, [*one.backlog.acked]) == (0, [(10, 20)])
        assert one.ack(10)
        assert one.position == 20
        assert one.ack(30)
        assert (one.position, len(one.backlog), one.wait(1000), one.lease()) == (30, 0, [], [])

    def test_a_refused_message_is_delivered_at_once_without_a_policy(self) -> None:
        one = Subscription()
        one.publish(2)
        one.lease()
        assert one.nack(10)
        assert one.lease() == [10]
        assert one.attempts == {10: 2, 20: 1}

    def test_after_its_deadline_it_is_delivered_again(self) -> None:
        one = Subscription(Policy(ack_deadline=10))
        one.publish()
        one.lease()
        assert one.wait(9.9) == []
        assert one.backlog.next_time == 110
        assert one.wait(0.1) == [10]
        assert one.lease() == [10]

    def test_an_old_lease_has_no_effect(self) -> None:
        one = Subscription()
        one.publish()
        one.lease()
        old = one.leases[10]
        one.wait(10)
        one.lease()
        assert not one.backlog.ack(10, old)
        assert not one.backlog.nack(10, old, one.now)
        assert not one.backlog.extend(10, old, one.now, 60)
        assert one.ack(10)
        assert not one.ack(10)

    def test_an_answer_after_the_deadline_has_no_effect_even_before_the_next_delivery(self) -> None:
        one = Subscription()
        one.publish()
        one.lease()
        one.wait(10)
        assert not one.ack(10)

    def test_a_deadline_can_be_moved_either_way(self) -> None:
        one = Subscription(Policy(ack_deadline=10))
        one.publish(2)
        one.lease()
        assert one.backlog.extend(10, one.leases[10], one.now, 60)
        assert one.backlog.extend(20, one.leases[20], one.now, 2)
        assert one.wait(2) == [20]
        assert one.wait(57) == []
        assert one.wait(1) == [10]

    def test_a_delivery_that_has_not_begun_does_not_count(self) -> None:
        one = Subscription(Policy(attempts_max=1))
        one.publish(2)
        one.lease()
        assert one.backlog.give_back(10, one.leases[10])
        assert not one.backlog.give_back(10, one.leases[10])
        assert (one.attempts, one.backlog.leased) == ({20: 1}, 1)
        assert one.lease() == [10]

    def test_the_next_time_is_that_of_something_that_happens(self) -> None:
        one = Subscription(Policy(ack_deadline=10))
        one.publish(2)
        assert one.backlog.next_time == float("inf")
        one.lease(1)
        one.now += 1
        one.lease(1)
        one.ack(10)
        assert one.backlog.next_time == 111
        one.ack(20)
        assert one.backlog.next_time == float("inf")

    def test_is_ready_tells_whether_there_is_one(self) -> None:
        one = Subscription(Policy(backoff=(5, 60)))
        assert not one.backlog.ready
        one.publish()
        assert one.backlog.ready
        one.lease()
        assert not one.backlog.ready
        one.nack(10)
        assert not one.backlog.ready
        one.wait(5)
        assert one.backlog.ready


class TestFilters:
    def test_what_does_not_pass_is_acknowledged_at_once(self) -> None:
        one = Subscription()
        one.publish(5, passes=False)
        assert (one.position, len(one.backlog)) == (50, 0)
        one.publish()
        one.publish(1000, passes=False)
        assert one.lease() == [60]
        assert len(one.backlog.acked) == 1
        one.ack(60)
        assert one.position == one.last

    def test_a_topic_without_messages_moves_the_position(self) -> None:
        one = Subscription()
        one.backlog.take_read([], 5000)
        assert (one.position, one.backlog.read) == (5000, 5000)


class TestRetryPolicy:
    def test_scenario_40_pauses_double_up_to_the_longest(self) -> None:
        one = Subscription(Policy(backoff=(1, 8)))
        one.publish()
        pauses = []
        for _ in range(5):
            assert one.lease() == [10]
            one.nack(10)
            pauses.append(one.backlog.next_time - one.now)
            one.wait(pauses[-1] - 0.001)
            assert one.lease() == []
            one.wait(0.001)
        assert pauses == pytest.approx([1, 2, 4, 8, 8])

    def test_an_expired_deadline_counts_as_well(self) -> None:
        one = Subscription(Policy(ack_deadline=10, backoff=(1, 8)))
        one.publish()
        one.lease()
        assert one.wait(10) == [10]
        assert one.lease() == []
        one.wait(1)
        assert one.lease() == [10]

    def test_a_thousand_attempts_are_no_overflow(self) -> None:
        assert Policy(backoff=(1, 600)).pause(5000) == 600
        assert Policy(backoff=(0, 600)).pause(5000) == 0


class TestOrder:
    def test_one_of_a_key_is_under_way(self) -> None:
        one = Subscription(Policy(ordered=True))
        one.publish(2, "a")
        one.publish(2, "b")
        one.publish(2)
        assert one.lease() == [10, 30, 50, 60]
        one.ack(10)
        assert one.lease() == [20]
        assert one.lease() == []

    def test_scenario_41_a_refused_one_holds_up_its_key_and_no_other(self) -> None:
        one = Subscription(Policy(ordered=True, backoff=(5, 60)))
        one.publish(3, "a")
        one.publish(3, "b")
        one.publish(3, "c")
        assert one.lease() == [10, 40, 70]
        one.nack(10)
        for id in (40, 70):
            one.ack(id)
        assert one.lease() == [50, 80]
        for id in (50, 80):
            one.ack(id)
        assert one.lease() == [60, 90]
        one.wait(5)
        assert one.lease() == [10]
        one.ack(10)
        assert one.lease() == [20]

    def test_without_the_flag_keys_make_no_difference(self) -> None:
        one = Subscription()
        one.publish(3, "a")
        assert one.lease() == [10, 20, 30]

    def test_a_dead_one_frees_its_key(self) -> None:
        one = Subscription(Policy(ordered=True, attempts_max=1))
        one.publish(2, "a")
        one.lease()
        one.nack(10)
        assert one.lease() == []
        one.backlog.buried(10)
        assert one.lease() == [20]

    def test_messages_of_a_key_that_come_later_wait(self) -> None:
        one = Subscription(Policy(ordered=True))
        one.publish(1, "a")
        assert one.lease() == [10]
        one.publish(1, "a")
        assert one.lease() == []
        one.ack(10)
        assert one.lease() == [20]


class TestDeadLetters:
    def test_after_the_last_attempt_a_message_waits_for_its_topic(self) -> None:
        one = Subscription(Policy(attempts_max=5))
        one.publish(2)
        for attempt in range(1, 6):
            assert 10 in one.lease()
            assert one.attempts[10] == attempt
            one.nack(10)
        assert one.lease() == []
        assert [entry.id for entry in one.backlog.dead] == [10]
        one.backlog.buried(10)
        assert (one.position, one.backlog.dead, one.backlog.counts.dead) == (10, [], 1)

    def test_expired_deadlines_count(self) -> None:
        one = Subscription(Policy(attempts_max=2))
        one.publish()
        for _ in range(2):
            one.lease()
            assert one.wait(10) == [10]
        assert [entry.id for entry in one.backlog.dead] == [10]

    def test_without_its_topic_attempts_go_on(self) -> None:
        one = Subscription(Policy(attempts_max=1, backoff=(1, 8)))
        one.publish()
        one.lease()
        one.nack(10)
        one.backlog.not_buried(10, one.now)
        assert (one.backlog.dead, one.lease()) == ([], [])
        one.wait(1)
        assert one.lease() == [10]
        assert one.attempts == {10: 2}

    def test_attempts_are_counted_over_a_restart(self) -> None:
        one = Subscription(Policy(attempts_max=2))
        one.backlog = Backlog(one.backlog.policy, Intervals(0), {10: 1})
        one.publish(2)
        one.lease()
        assert one.attempts == {10: 2, 20: 1}
        one.nack(10)
        one.nack(20)
        assert [entry.id for entry in one.backlog.dead] == [10]


class TestBounds:
    @pytest.mark.parametrize(("ordered", "most"), [(False, AHEAD), (True, AHEAD_ORDERED)])
    def test_few_messages_are_known_ahead(self, ordered: bool, most: int) -> None:
        one = Subscription(Policy(ordered=ordered))
        assert one.backlog.wanted == most
        one.publish(100, "a")
        assert one.backlog.wanted == most - 100

    def test_old_messages_are_forgotten(self) -> None:
        one = Subscription(Policy(ordered=True))
        one.publish(4, "a")
        one.lease()
        # The times of the messages are 0, 10, 20 and 30; the first one is under way.
        assert one.backlog.drop(0, 20) == 1
        assert one.ack(10)
        assert one.lease() == [30]
        assert one.backlog.drop(1000, 0) == 1
        assert one.ack(30)
        assert one.position == 40

    def test_a_long_delivery_does_not_add_up(self) -> None:
        one = Subscription()
        one.publish(2)
        for _ in range(1000):
            one.lease()
            one.nack(10)
        assert len(one.backlog._ready) <= 2

    def test_deadlines_that_are_moved_again_and_again_take_no_space(self) -> None:
        one = Subscription()
        one.publish(2)
        one.lease()
        for number in range(10_000):
            one.backlog.extend(10, one.leases[10], one.now, 600 - number / 1000)
        assert len(one.backlog._due) < 2000
        assert one.wait(10) == [20]
        assert one.wait(581) == [10]


def test_chance_loses_no_message_and_delivers_none_after_its_acknowledgement() -> None:  # noqa: C901 - kinds of steps
    for seed in range(60):
        chance = random.Random(seed)
        ordered = chance.random() < 0.5
        policy = Policy(10, ordered, chance.choice([None, (0, 0), (1, 8)]), chance.choice([0, 3]))
        one = Subscription(policy)
        published: dict[int, str] = {}
        acked, dead, under_way = set[int](), set[int](), dict[int, float]()
        for _ in range(400):
            match chance.randrange(8):
                case 0 | 1:
                    key = chance.choice(["", "a", "b"])
                    passes = chance.random() < 0.8
                    [id] = one.publish(1, key, passes=passes)
                    if passes:
                        published[id] = key
                case 2 | 3:
                    for id in one.lease(chance.randrange(1, 4)):
                        assert id not in acked | dead | set(under_way)
                        if ordered and (key := published[id]):
                            assert all(published[other] != key for other in under_way)
                            earlier = {other for other in published if other < id and published[other] == key}
                            assert earlier <= acked | dead
                        under_way[id] = one.now
                case 4 if under_way:
                    id = chance.choice([*under_way])
                    assert one.ack(id)
                    acked.add(id)
                    del under_way[id]
                case 5 if under_way:
                    id = chance.choice([*under_way])
                    assert one.nack(id)
                    del under_way[id]
                case 6:
                    for id in one.wait(chance.choice([0.5, 5, 12])):
                        assert one.now - under_way.pop(id) >= 10
                    assert all(one.now - begun < 10 for begun in under_way.values())
                case 7:
                    for entry in one.backlog.dead:
                        if chance.random() < 0.5:
                            one.backlog.buried(entry.id)
                            dead.add(entry.id)
                        else:
                            one.backlog.not_buried(entry.id, one.now)
            left = set(published) - acked - dead
            assert len(one.backlog) == len(left)
            assert one.backlog.leased == len(under_way)
            assert all((id in one.backlog.acked) == (id not in left) for id in range(10, one.last + 1, 10))
        for _ in range(100_000):
            one.wait(20)
            under_way.clear()
            for entry in one.backlog.dead:
                one.backlog.buried(entry.id)
                dead.add(entry.id)
            for id in one.lease(1):
                assert one.ack(id)
                acked.add(id)
            if not len(one.backlog):
                break
        assert acked | dead == set(published)
        assert one.position == one.last
