"""The desk of the push API: orders and answers in; requests, calls and states out. The store is a list."""

from __future__ import annotations

from typing import Any, ClassVar

import orjson
import pytest

from griphub.backlog.push_flow import Sent
from griphub.callbacks.desk_subscription import PUSH_MARGIN, DeskSubscription, EventPage, Unreadable
from griphub.callbacks.push_desk import PushDesk
from griphub.callbacks.pushed_event import EventMemory, PushedEvent
from griphub.pubsub.names import check_resource
from griphub.pubsub.proto_json import read_message
from griphub.pubsub.subscription_resource import SUBSCRIPTION, check_subscription
from griphub.sender.consent import ALLOWED, Consent
from griphub.store.plain_records import PlainProgress

NAME = check_resource("p", "subscriptions", "ss-1")
PUSH = {"pushEndpoint": "https://example.com/"}
TOPIC = 3
DEAD = {"deadLetterTopic": "projects/p/topics/dead", "maxDeliveryAttempts": 5}


class House:
    """A desk with a store, receivers and a hub of memory; ids of events are multiples of ten."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.events: list[PushedEvent] = []
        self.pages = 0
        self.broken = False
        self.floor = 0
        self.pushed: list[tuple[DeskSubscription, int, Sent]] = []
        self.aborted: list[int] = []
        self.queued: set[int] = set()
        """Messages whose requests have no place yet."""
        self.called: list[int] = []
        self.asked: list[tuple[DeskSubscription, Consent]] = []
        self.burying: list[tuple[int, PlainProgress]] = []
        self.desk = PushDesk(self, self, lambda: self.time, lambda: self.time, "hub.example", 1000)
        self.states: dict[int, PlainProgress] = {}
        """Stored states, by number."""

    # --- store

    def page(self, topic: int, after: int, limit: int) -> EventPage | None:
        self.pages += 1
        if self.broken:
            return None
        found = [event for event in self.events if event.id > max(after, self.floor)]
        last = found[limit - 1].id if len(found) > limit else self.newest
        return EventPage(found[:limit], last, self.floor)

    def event(self, topic: int, id: int) -> PushedEvent | None:
        if self.broken:
            raise Unreadable("locked")
        return next((event for event in self.events if event.id == id and id > self.floor), None)

    @property
    def newest(self) -> int:
        return self.events[-1].id if self.events else 0

    # --- port

    def push(self, subscription: DeskSubscription, sent: Sent) -> None:
        if self.desk.event(subscription, sent.id) is None:
            self.desk.gone(subscription, sent)
        else:
            self.pushed.append((subscription, sent.id, sent))

    def ask(self, subscription: DeskSubscription, consent: Consent) -> None:
        self.asked.append((subscription, consent))

    def abort(self, subscription: DeskSubscription, sent: Sent) -> None:
        self.aborted.append(sent.id)

    def withdraw(self, subscription: DeskSubscription, sent: Sent) -> bool:
        if sent.id not in self.queued:
            return False
        self.pushed = [each for each in self.pushed if each[2] is not sent]
        return True

    def ready(self, number: int) -> None:
        self.called.append(number)

    def bury(self, subscription: DeskSubscription, event: PushedEvent, progress: PlainProgress) -> None:
        self.burying.append((event.id, progress))

    # --- the test's part

    def publish(
        self, number: int = 1, *, live: bool = True, attributes: str | None = None, key: str | None = None
    ) -> None:
        new = []
        for _ in range(number):
            id = self.newest + 10
            row = (
                id,
                id - 10 if self.events else 0,
                id,
                round(self.time * 1e6),
                b"x",
                "text/plain",
                key,
                0,
                attributes,
                1,
            )
            new.append(PushedEvent(row))
            self.events.append(new[-1])
        if live:
            self.desk.stored(TOPIC, new)
        else:
            self.desk.hint(TOPIC, self.newest)
        self.work()

    def subscribe(self, number: int = 1, position: int = 0, **given: Any) -> None:
        self.desk.add((number, TOPIC, "owner", settings(**given), position, b"", {}, 0), self.newest)
        self.work()

    def work(self) -> None:
        for _ in range(10_000):
            if not self.desk.work():
                return
        raise AssertionError("the desk does not come to an end")

    def pass_time(self, seconds: float) -> None:
        end = self.time + seconds
        while (deadline := self.desk.deadline) is not None and deadline <= end:
            self.time = max(self.time, deadline)
            self.work()
        self.time = end
        self.work()

    def pull(self, number: int = 1, most: int = 100) -> list[tuple[int, int]]:
        found = [(id, lease) for id, lease, _, _ in self.desk.pull(number, most)]
        self.work()
        return found

    def answer(self, *, acked: bool = True, asked: float = 0.0) -> list[int]:
        """Answer all requests under way; return the ids of their messages."""
        pushed, self.pushed = self.pushed, []
        for subscription, _, sent in pushed:
            self.desk.answered(subscription, sent, acked=acked, asked=asked)
        self.work()
        return [id for _, id, _ in pushed]

    def store(self) -> dict[int, PlainProgress]:
        for state in self.desk.reports():
            self.states[state[0]] = state
        return self.states

    @property
    def position(self) -> int:
        return self.store()[1][2]


def settings(**given: Any) -> dict[str, Any]:
    values = read_message(SUBSCRIPTION, {"topic": "projects/p/topics/tt-1", **given})
    return dict(orjson.loads(orjson.dumps(check_subscription(NAME, values, plain=True))))


@pytest.fixture
def house() -> House:
    return House()


class TestPush:
    def test_stored_messages_then_live_ones(self, house: House) -> None:
        house.publish(3)
        house.subscribe(pushConfig=PUSH)
        assert house.answer() == [10, 20, 30]
        house.publish(2)
        assert house.answer() == [40, 50]
        assert house.position == 50
        assert house.pages == 1, "live messages are not read again"

    def test_messages_before_the_position_are_not_sent(self, house: House) -> None:
        house.publish(3)
        house.subscribe(position=20, pushConfig=PUSH)
        assert house.answer() == [30]

    def test_a_long_backlog_is_read_in_pages(self, house: House) -> None:
        house.publish(3000)
        house.subscribe(pushConfig=PUSH)
        sent: list[int] = []
        while got := house.answer():
            sent += got
        assert sent == list(range(10, 30_010, 10))
        assert house.position == 30_000

    def test_a_refused_message_is_sent_again(self, house: House) -> None:
        house.subscribe(pushConfig=PUSH)
        house.publish()
        assert house.answer(acked=False) == [10]
        assert house.pushed == []
        house.pass_time(1)
        assert house.answer() == [10]
        assert house.position == 10

    def test_a_request_that_never_ends_is_aborted(self, house: House) -> None:
        house.subscribe(pushConfig=PUSH, ackDeadlineSeconds=20, messageRetentionDuration="2678400s")
        house.publish()
        [(subscription, _, sent)] = house.pushed
        house.pushed = []
        house.pass_time(PUSH_MARGIN + 19)
        assert house.aborted == []
        house.pass_time(2)
        assert house.aborted == [10]
        house.desk.answered(subscription, sent, acked=True)
        house.work()
        assert house.answer() == [10], "the late answer has no effect"

    def test_a_filter_leaves_messages_out(self, house: House) -> None:
        house.subscribe(pushConfig=PUSH, filter="attributes:a")
        house.publish(2)
        house.publish(1, attributes='{"a":"b"}')
        house.publish(2)
        assert house.answer() == [30]
        assert house.position == 50

    def test_ordering_keys(self, house: House) -> None:
        house.subscribe(pushConfig=PUSH, enableMessageOrdering=True)
        house.publish(2, key="a")
        house.publish(1, key="b")
        assert house.answer() == [10, 30]
        assert house.answer() == [20]

    def test_each_subscription_of_a_topic_gets_all(self, house: House) -> None:
        for number in range(1, 6):
            house.subscribe(number, pushConfig=PUSH)
        house.publish(2)
        assert sorted(house.answer()) == [10] * 5 + [20] * 5
        assert {state[2] for state in house.store().values()} == {20}
        assert house.pages <= 5, "they share the events"

    def test_a_store_that_cannot_be_read_is_read_later(self, house: House) -> None:
        house.broken = True
        house.publish(2)
        house.subscribe(pushConfig=PUSH)
        assert house.pushed == []
        house.broken = False
        house.publish(live=False)
        assert house.answer() == [10, 20, 30]

    def test_messages_beyond_the_retention_are_dropped(self, house: House) -> None:
        house.publish(2)
        house.time += 700
        house.publish(1)
        house.subscribe(pushConfig=PUSH, messageRetentionDuration="600s")
        assert house.answer() == [30]
        assert house.position == 30

    def test_messages_below_the_floor_are_no_more(self, house: House) -> None:
        house.publish(5)
        house.floor = 30
        house.subscribe(pushConfig=PUSH)
        assert house.answer() == [40, 50]
        assert house.position == 50


class TestChanges:
    def test_another_endpoint_begins_at_a_small_window(self, house: House) -> None:
        house.publish(100)
        house.subscribe(pushConfig=PUSH)
        for _ in range(3):
            house.answer()
        assert len(house.pushed) > 6
        under_way = len(house.pushed)
        house.desk.change(1, settings(pushConfig={"pushEndpoint": "https://other/"}))
        house.work()
        assert len(house.pushed) == under_way + 3
        house.pushed, new = house.pushed[:under_way], house.pushed[under_way:]
        house.answer()
        assert house.pushed == [], "answers of the endpoint of before do not widen the window"
        house.pushed = new
        house.answer()
        assert len(house.pushed) == 6

    def test_without_an_endpoint_no_request_begins(self, house: House) -> None:
        house.publish(10)
        house.subscribe(pushConfig=PUSH)
        house.desk.change(1, settings())
        house.work()
        assert house.answer() == [10, 20, 30], "those under way count"
        house.publish()
        assert house.pushed == []
        assert [id for id, _ in house.pull()] == [40, 50, 60, 70, 80, 90, 100, 110]

    def test_requests_that_have_not_begun_are_taken_back(self, house: House) -> None:
        house.publish(3)
        house.subscribe(pushConfig=PUSH, deadLetterPolicy=DEAD)
        house.queued = {20, 30}
        house.desk.change(1, settings(deadLetterPolicy=DEAD))
        house.work()
        assert [id for _, id, _ in house.pushed] == [10]
        assert [(id, attempt) for id, _, attempt, _ in house.desk.pull(1, 10)] == [(20, 1), (30, 1)]

    def test_and_back(self, house: House) -> None:
        house.publish(3)
        house.subscribe()
        house.desk.change(1, settings(pushConfig=PUSH))
        house.work()
        assert house.answer() == [10, 20, 30]

    def test_a_move_sends_acknowledged_messages_again(self, house: House) -> None:
        house.publish(5)
        house.subscribe(pushConfig=PUSH)
        house.answer()
        house.desk.move(1, 1, 10, b"")
        assert house.aborted == [40, 50]
        house.pushed = []
        house.work()
        assert house.answer() == [20, 30, 40]
        assert house.store()[1][1] == 1, "of the new generation"

    def test_after_its_removal_no_request_begins_and_all_end(self, house: House) -> None:
        house.publish(5)
        house.subscribe(pushConfig=PUSH)
        house.desk.remove(1)
        assert house.aborted == [10, 20, 30]
        house.answer()
        house.publish()
        house.pass_time(1000)
        assert (house.pushed, house.desk.reports(), len(house.desk)) == ([], [], 0)

    def test_without_its_topic_it_has_no_messages(self, house: House) -> None:
        house.publish(5)
        house.subscribe(pushConfig=PUSH)
        house.desk.topic_deleted(TOPIC)
        assert house.aborted == [10, 20, 30]
        house.answer()
        house.pass_time(100)
        assert house.pushed == []
        assert house.pull() == []


class TestPull:
    def test_messages_are_leased_until_they_are_acknowledged(self, house: House) -> None:
        house.publish(3)
        house.subscribe()
        found = house.pull()
        assert [id for id, _ in found] == [10, 20, 30]
        assert house.pull() == []
        state = house.desk.acknowledge(1, found[:2])
        assert state is not None
        assert state[2] == 20
        house.pass_time(10)
        assert [id for id, _ in house.pull()] == [30]

    def test_not_more_than_asked_for(self, house: House) -> None:
        house.publish(2000)
        house.subscribe()
        assert [len(house.pull(most=most)) for most in (1, 5, 1000)] == [1, 5, 500]

    def test_large_messages_end_an_answer(self, house: House) -> None:
        for id in (10, 20, 30):
            house.events.append(PushedEvent((id, id - 10, id, 10**9, b"", "", None, 0, None, 3_000_000)))
        house.subscribe()
        assert [[id for id, _ in house.pull()] for _ in range(3)] == [[10, 20], [30], []]

    def test_the_hub_is_called_when_there_is_a_message(self, house: House) -> None:
        house.subscribe()
        house.publish()
        assert house.called == [], "no pull waits"
        assert [id for id, _ in house.pull()] == [10]
        assert house.pull() == []
        house.publish()
        house.publish()
        assert house.called == [1]
        assert [id for id, _ in house.pull()] == [20, 30]

    def test_also_when_a_lease_ends(self, house: House) -> None:
        house.publish()
        house.subscribe()
        house.pull()
        assert house.pull() == []
        house.pass_time(9)
        assert house.called == []
        house.pass_time(2)
        assert house.called == [1]

    def test_leases_can_be_longer_and_end(self, house: House) -> None:
        house.publish(2)
        house.subscribe()
        one, two = house.pull()
        house.desk.modify(1, [one], 60)
        house.desk.modify(1, [two], 0)
        assert [id for id, _ in house.pull()] == [20]
        house.pass_time(9)
        state = house.desk.acknowledge(1, [one])
        assert state is not None
        assert state[2] == 10

    def test_acknowledgements_that_are_too_late_have_no_effect(self, house: House) -> None:
        house.publish()
        house.subscribe()
        found = house.pull()
        house.pass_time(11)
        assert house.desk.acknowledge(1, found) is None
        assert [id for id, _ in house.pull()] == [10]

    def test_a_subscription_that_does_not_exist_has_nothing(self, house: House) -> None:
        assert (house.pull(9), house.desk.acknowledge(9, [(1, 1)])) == ([], None)
        house.desk.modify(9, [(1, 1)], 5)
        house.desk.change(9, settings())
        house.desk.move(9, 1, 0, b"")
        house.desk.remove(9)
        house.desk.buried(9, 1, published=True)

    def test_attempts_are_counted_and_kept_with_a_policy(self, house: House) -> None:
        house.publish()
        house.subscribe(retryPolicy={"minimumBackoff": "0s"})
        for number in (1, 2, 3):
            [(_, _, attempt, _)] = house.desk.pull(1, 10)
            assert attempt == number
            house.pass_time(11)
        assert house.store()[1][4] == '{"10":3}'


class TestDeadLetters:
    def refused(self, house: House) -> None:
        for _ in range(5):
            found = house.pull(most=1)
            house.desk.modify(1, found, 0)
        house.work()

    def test_a_message_is_handed_over_with_the_state_behind_it(self, house: House) -> None:
        house.publish(2)
        house.subscribe(deadLetterPolicy=DEAD)
        self.refused(house)
        [(id, state)] = house.burying
        assert (id, state[2], state[4]) == (10, 10, "{}")
        assert house.store()[1][2] == 0, "not before it is there"
        house.desk.buried(1, 10, published=True)
        house.work()
        assert house.position == 10
        assert [id for id, _ in house.pull()] == [20]

    def test_without_the_topic_attempts_go_on(self, house: House) -> None:
        house.publish()
        house.subscribe(deadLetterPolicy=DEAD)
        self.refused(house)
        house.desk.buried(1, 10, published=False)
        house.work()
        [(id, _, attempt, _)] = house.desk.pull(1, 1)
        assert (id, attempt) == (10, 6)

    def test_one_after_the_other(self, house: House) -> None:
        house.publish(3)
        house.subscribe(deadLetterPolicy=DEAD)
        for _ in range(5):
            house.desk.modify(1, house.pull(), 0)
        house.work()
        buried = []
        while house.burying:
            [(id, state)] = house.burying
            house.burying = []
            buried.append((id, state[2]))
            house.desk.buried(1, id, published=True)
            house.work()
        assert buried == [(10, 10), (20, 20), (30, 30)]


class TestBounds:
    def test_a_turn_ends_after_some_milliseconds(self, house: House) -> None:
        for number in range(1, 301):
            house.subscribe(number, pushConfig=PUSH)

        def late(subscription: DeskSubscription, sent: Sent) -> None:
            house.time += 0.001

        house.push = late  # type: ignore[method-assign]
        house.desk.hint(TOPIC, 10)
        house.events.append(PushedEvent((10, 0, 10, 0, b"x", "", None, 0, None, 1)))
        begun = house.time
        assert house.desk.work()
        assert house.time - begun < 0.02

    def test_reports_are_in_parts(self, house: House) -> None:
        for number in range(1, 11):
            house.subscribe(number, pushConfig=PUSH)
        house.publish()
        assert [len(house.desk.reports(4)) for _ in range(4)] == [4, 4, 2, 0]


def test_a_state_is_that_of_what_was_stored(house: House) -> None:
    house.publish(5)
    house.desk.add((1, TOPIC, "owner", settings(), 10, b"\x0a\x0a", {40: 3}, 2), house.newest)
    house.work()
    found = house.desk.pull(1, 10)
    assert [(id, attempt) for id, _, attempt, _ in found] == [(20, 1), (40, 4), (50, 1)]


def test_damaged_states_are_refused(house: House) -> None:
    with pytest.raises(ValueError, match="intervals"):
        house.desk.add((1, TOPIC, "owner", settings(), 10, b"\x80", {}, 0), 0)


class TestReports:
    @pytest.mark.parametrize("acked", [True, False])
    def test_an_answer_is_reported_also_if_its_request_was(self, house: House, acked: bool) -> None:
        house.subscribe(pushConfig=PUSH)
        house.publish()
        assert house.position == 0
        house.answer(acked=acked)
        [state] = house.desk.reports()
        assert state[2] == (10 if acked else 0)

    def test_a_refused_message_of_a_pull_is_reported(self, house: House) -> None:
        house.subscribe(deadLetterPolicy=DEAD)
        house.publish()
        leased = house.pull()
        house.store()
        house.desk.modify(1, leased, 0)
        assert [each.number for each in house.desk.measured()] == [1]


class TestFigures:
    def test_they_change_with_acknowledgements_whose_state_is_reported_at_once(self, house: House) -> None:
        house.subscribe()
        house.publish(2)
        leased = house.pull()
        assert [each.number for each in house.desk.measured()] == [1]
        assert house.desk.measured() == []
        house.desk.acknowledge(1, leased)
        [subscription] = house.desk.measured()
        assert len(subscription.backlog) == 0


class TestConsent:
    """Messages wait until the receiver consents (scenario 49)."""

    CONFIG: ClassVar[dict[str, Any]] = {
        **PUSH,
        "attributes": {"x-hub-webhook-origin": "hub.example", "x-hub-webhook-rate": "60"},
    }
    ORIGIN, RATE = sorted(ALLOWED)

    def reply(self, house: House, reply: Any) -> None:
        [(subscription, consent)] = house.asked
        house.asked = []
        house.desk.replied(subscription, consent, reply)
        house.work()

    def stop(self, house: House) -> str:
        found = house.desk.subscription(1)
        assert found is not None
        return found.stop

    def test_a_receiver_is_asked_once(self, house: House) -> None:
        house.subscribe(pushConfig=self.CONFIG)
        assert len(house.asked) == 1
        assert self.stop(house) == "its answer is awaited"
        house.publish(3)
        house.pass_time(1000)
        assert (len(house.asked), house.pushed) == (1, [])
        self.reply(house, {self.ORIGIN: "*", self.RATE: "*"})
        assert self.stop(house) == ""
        assert [id for _, id, _ in house.pushed] == [10, 20, 30]

    def test_it_is_asked_again_also_without_messages(self, house: House) -> None:
        house.subscribe(pushConfig=self.CONFIG)
        self.reply(house, {})
        assert self.stop(house) == "its answer to OPTIONS has no WebHook-Allowed-Origin"
        house.pass_time(59)
        assert house.asked == []
        house.pass_time(2)
        self.reply(house, "it did not answer OPTIONS: timeout")
        house.pass_time(121)
        self.reply(house, None)
        house.pass_time(1.5)
        self.reply(house, {self.ORIGIN: "hub.example"})
        house.publish()
        assert len(house.pushed) == 1

    def test_the_rate_is_a_bound(self, house: House) -> None:
        house.subscribe(pushConfig=self.CONFIG)
        self.reply(house, {self.ORIGIN: "*", self.RATE: "30"})
        house.publish(10)
        times = []
        for _ in range(10):
            while not house.pushed:
                house.pass_time(0.25)
            times.append(house.time)
            house.answer()
        assert 17 <= times[-1] - times[0] <= 19

    def test_a_change_of_the_receiver_asks_anew(self, house: House) -> None:
        house.subscribe(pushConfig=self.CONFIG)
        [(subscription, former)] = house.asked
        other = {**self.CONFIG, "pushEndpoint": "https://other.example/"}
        house.desk.change(1, settings(pushConfig=other))
        house.work()
        assert len(house.asked) == 2
        # An answer of the receiver of before counts no more.
        house.desk.replied(subscription, former, {self.ORIGIN: "*"})
        house.publish()
        assert house.pushed == []
        house.asked = house.asked[1:]
        self.reply(house, {self.ORIGIN: "*"})
        assert len(house.pushed) == 1

    def test_consent_that_is_withdrawn(self, house: House) -> None:
        house.subscribe(pushConfig=self.CONFIG)
        self.reply(house, {self.ORIGIN: "*", self.RATE: "*"})
        house.publish()
        [(subscription, _, sent)] = house.pushed
        house.pushed = []
        house.desk.answered(subscription, sent, acked=False, withdrawn=True)
        house.work()
        house.pass_time(50)
        assert house.pushed == []
        assert "410" in self.stop(house)
        house.pass_time(11)
        self.reply(house, {self.ORIGIN: "*", self.RATE: "*"})
        assert [id for _, id, _ in house.pushed] == [10]


class TestBlocked:
    def test_nothing_is_sent_until_the_cause_is_gone(self, house: House) -> None:
        house.desk.add((1, TOPIC, "owner", settings(pushConfig=PUSH), 0, b"", {}, 0), 0, "there is no key")
        house.publish()
        assert house.pushed == []
        found = house.desk.subscription(1)
        assert found is not None
        assert found.stop == "there is no key"
        house.desk.change(1, settings(pushConfig=PUSH))
        house.work()
        assert (found.stop, len(house.pushed)) == ("", 1)

    def test_an_endpoint_that_may_not_be_called_any_more(self, house: House) -> None:
        stored = settings(pushConfig=PUSH)
        stored["pushConfig"]["pushEndpoint"] = "https://example.com:9/"
        house.desk.add((1, TOPIC, "owner", stored, 0, b"", {}, 0), 0)
        house.publish()
        found = house.desk.subscription(1)
        assert found is not None
        assert "port of the callback '9'" in found.stop
        assert house.pushed == []
        house.desk.change(1, settings(pushConfig=PUSH))
        house.work()
        assert (found.stop, len(house.pushed)) == ("", 1)


class TestUnreadableStore:
    def test_no_message_is_lost(self, house: House) -> None:
        house.subscribe()
        house.publish(2)
        house.desk._memory = EventMemory(0)
        house.broken = True
        assert house.pull() == []
        assert house.called == []
        house.pass_time(0.5)
        assert house.called == []
        house.broken = False
        house.pass_time(1)
        assert house.called == [1]
        assert [id for id, _ in house.pull()] == [10, 20]

    def test_dead_letters_wait(self, house: House) -> None:
        house.subscribe(deadLetterPolicy=DEAD)
        house.publish()
        house.desk._memory = EventMemory(0)
        for attempt in range(5):
            leased = house.pull()
            house.broken = attempt == 4
            house.desk.modify(1, leased, 0)
            house.work()
        house.pass_time(10)
        assert house.burying == []
        house.broken = False
        house.pass_time(2)
        assert [id for id, _ in house.burying] == [10]
