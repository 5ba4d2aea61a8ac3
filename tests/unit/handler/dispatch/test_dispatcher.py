"""An item's way through the handler, and the messages of the pipe. Time is a number, workers are lists."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy import pipe
from gripproxy.grip.item import Item, MessageFormat, ResponseFormat, StreamFormat
from gripproxy.grip.item_pack import unpack_item
from handler.dispatch.dispatcher import Dispatcher


class Worker:
    """Records what it is sent."""

    def __init__(self) -> None:
        self.got: list[pipe.Message] = []

    def send(self, message: pipe.Message) -> None:
        self.got.append(message)

    def take(self) -> list[pipe.Message]:
        got, self.got = self.got, []
        return got

    def items(self) -> list[bytes]:
        """The contents received so far."""
        items = [unpack_item(message[1]) for message in self.take() if message[0] == pipe.ITEM]
        return [each.stream.content for each in items if each.stream is not None]


def item(content: bytes, item_id: bytes | None = None, prev_id: bytes | None = None, **more: Any) -> Item:
    return Item(b"ch", item_id, prev_id, stream=StreamFormat("send", content), **more)


@pytest.fixture
def followed() -> list[tuple[bytes, bool]]:
    return []


@pytest.fixture
def dispatcher(followed: list[tuple[bytes, bool]]) -> Dispatcher:
    return Dispatcher(follow=lambda channel, wanted: followed.append((channel, wanted)))


@pytest.fixture
def worker(dispatcher: Dispatcher) -> Worker:
    return join(dispatcher)


def join(dispatcher: Dispatcher, *channels: tuple[bytes, int, int, int, bytes | None]) -> Worker:
    worker = Worker()
    dispatcher.joined(worker, channels, 0)
    return worker


def subscribe(dispatcher: Dispatcher, worker: Worker, number: int = 1, now: float = 0) -> pipe.Message:
    dispatcher.received(worker, (pipe.SUBSCRIBE, b"ch", number), now)
    return worker.got.pop()


class TestDelivery:
    def test_an_item_goes_to_the_workers_that_have_subscribers(self, dispatcher: Dispatcher, worker: Worker) -> None:
        other = join(dispatcher)
        third = join(dispatcher)
        subscribe(dispatcher, worker)
        subscribe(dispatcher, other)
        dispatcher.accept(item(b"x"), 0)
        assert (worker.items(), other.items(), third.items()) == ([b"x"], [b"x"], [])
        assert (dispatcher.counters.received, dispatcher.counters.passed) == (1, 2)

    def test_an_item_for_nobody_is_counted(self, dispatcher: Dispatcher, worker: Worker) -> None:
        dispatcher.accept(item(b"x"), 0)
        assert (worker.got, dispatcher.counters.unheard) == ([], 1)

    def test_a_duplicate_is_dropped_with_or_without_subscribers(self, dispatcher: Dispatcher, worker: Worker) -> None:
        assert dispatcher.accept(item(b"before", b"1"), 0)
        subscribe(dispatcher, worker)
        assert not dispatcher.accept(item(b"again", b"1"), 1)
        assert not dispatcher.accept(item(b"again", b"1", no_seq=True), 1)
        assert worker.items() == []
        assert dispatcher.counters.duplicates == 2

    def test_items_arrive_in_order(self, dispatcher: Dispatcher, worker: Worker) -> None:
        subscribe(dispatcher, worker)
        for content, item_id, prev_id in ((b"a", b"1", b"0"), (b"c", b"3", b"2"), (b"b", b"2", b"1")):
            dispatcher.accept(item(content, item_id, prev_id), 0)
        assert worker.items() == [b"a", b"b", b"c"]

    def test_no_seq_passes_waiting_items_and_leaves_the_order_alone(
        self, dispatcher: Dispatcher, worker: Worker
    ) -> None:
        subscribe(dispatcher, worker)
        dispatcher.accept(item(b"a", b"1"), 0)
        dispatcher.accept(item(b"c", b"3", b"2"), 0)
        dispatcher.accept(item(b"now", b"9", b"8", no_seq=True), 0)
        assert worker.items() == [b"a", b"now"]
        dispatcher.accept(item(b"b", b"2", b"1"), 0)
        assert worker.items() == [b"b", b"c"]

    def test_without_subscriber_nothing_is_sequenced(self, dispatcher: Dispatcher, worker: Worker) -> None:
        dispatcher.accept(item(b"a", b"1"), 0)
        subscribe(dispatcher, worker)
        dispatcher.accept(item(b"c", b"3", b"2"), 0)
        assert worker.items() == [b"c"]

    def test_an_item_that_waited_long_enough_is_delivered_by_the_tick(
        self, dispatcher: Dispatcher, worker: Worker
    ) -> None:
        subscribe(dispatcher, worker)
        dispatcher.accept(item(b"a", b"1"), 0)
        dispatcher.accept(item(b"c", b"3", b"2"), 0)
        dispatcher.tick(4)
        assert worker.items() == [b"a"]
        dispatcher.tick(5)
        assert worker.items() == [b"c"]

    def test_the_audience_is_counted_by_the_formats_of_the_item(self, dispatcher: Dispatcher) -> None:
        join(dispatcher, (b"ch", 1, 10, 100, None))
        assert dispatcher.audience(item(b"x")) == 10
        assert dispatcher.audience(Item(b"ch", response=ResponseFormat(), message=MessageFormat())) == 101
        assert dispatcher.audience(Item(b"ch")) == 0


class TestNoWindow:
    """The id that SUBSCRIBED carries tells a worker what its hold missed."""

    def test_what_was_published_before_the_subscription_is_told(self, dispatcher: Dispatcher, worker: Worker) -> None:
        dispatcher.accept(item(b"x", b"5"), 0)
        assert subscribe(dispatcher, worker, 7) == (pipe.SUBSCRIBED, b"ch", 7, b"5")

    def test_an_item_that_waited_when_the_subscription_ended_was_published_too(self) -> None:
        dispatcher = Dispatcher(linger=0, update=False)
        worker = join(dispatcher)
        subscribe(dispatcher, worker)
        dispatcher.accept(item(b"x", b"1"), 0)
        dispatcher.accept(item(b"z", b"3", b"2"), 0)
        dispatcher.received(worker, (pipe.UNSUBSCRIBE, b"ch", False), 0)
        assert worker.items() == [b"x"]
        assert subscribe(dispatcher, worker, 2)[3] == b"3"

    def test_nothing_known_is_none(self, dispatcher: Dispatcher, worker: Worker) -> None:
        assert subscribe(dispatcher, worker) == (pipe.SUBSCRIBED, b"ch", 1, None)

    def test_waiting_items_do_not_count_and_no_seq_does(self, dispatcher: Dispatcher, worker: Worker) -> None:
        subscribe(dispatcher, worker)
        dispatcher.accept(item(b"a", b"1"), 0)
        dispatcher.accept(item(b"c", b"3", b"2"), 0)
        other = join(dispatcher)
        assert subscribe(dispatcher, other)[3] == b"1"
        dispatcher.accept(item(b"n", b"9", no_seq=True), 0)
        assert subscribe(dispatcher, other)[3] == b"9"

    def test_it_is_remembered_without_subscribers_for_the_time_of_the_duplicate_cache(
        self, dispatcher: Dispatcher, worker: Worker
    ) -> None:
        dispatcher.accept(item(b"x", b"5"), 0)
        dispatcher.tick(59)
        assert subscribe(dispatcher, worker)[3] == b"5"
        dispatcher.received(worker, (pipe.UNSUBSCRIBE, b"ch", False), 59)
        dispatcher.tick(60)
        assert subscribe(dispatcher, worker)[3] is None

    def test_switching_off_the_duplicate_check_keeps_it(self) -> None:
        dispatcher = Dispatcher(id_cache_ttl=0)
        dispatcher.accept(item(b"x", b"5"), 0)
        dispatcher.tick(30)
        assert subscribe(dispatcher, join(dispatcher))[3] == b"5"

    def test_what_a_backend_insists_on_is_believed_if_no_other_item_came(
        self, dispatcher: Dispatcher, worker: Worker
    ) -> None:
        subscribe(dispatcher, worker)
        dispatcher.accept(item(b"a", b"1"), 0)
        dispatcher.received(worker, (pipe.CONFLICT, b"ch", b"0", b"7"), 0)
        assert dispatcher.accept(item(b"waits", b"4", b"3"), 0)
        assert worker.items() == [b"a"]
        dispatcher.received(worker, (pipe.CONFLICT, b"ch", b"1", b"7"), 0)
        assert subscribe(dispatcher, worker)[3] is None
        dispatcher.accept(item(b"any", b"8", b"7"), 0)
        dispatcher.tick(1)
        # Nor is it overtaken by what follows.
        assert worker.items() == [b"waits", b"any"]

    def test_subscribe_unsubscribe_subscribe_while_publishing_loses_nothing(
        self, dispatcher: Dispatcher, worker: Worker
    ) -> None:
        """Every item published after the newest subscribe reaches the worker behind its confirmation.

        Every item before it is named by the confirmation.
        """
        script: list[pipe.Message | Item] = [
            item(b"0", b"0"),
            (pipe.SUBSCRIBE, b"ch", 1),
            item(b"1", b"1", b"0"),
            (pipe.UNSUBSCRIBE, b"ch", False),
            item(b"2", b"2", b"1"),
            (pipe.SUBSCRIBE, b"ch", 2),
            (pipe.UNSUBSCRIBE, b"ch", False),
            (pipe.SUBSCRIBE, b"ch", 3),
            item(b"3", b"3", b"2"),
            item(b"4", b"4", b"3"),
        ]
        for step in script:
            if isinstance(step, Item):
                dispatcher.accept(step, 0)
            else:
                dispatcher.received(worker, step, 0)
        shown = [message[1:] if message[0] == pipe.SUBSCRIBED else unpack_item(message[1]).id for message in worker.got]
        assert shown == [
            (b"ch", 1, b"0"),
            b"1",
            (b"ch", 2, b"2"),
            (b"ch", 3, b"2"),
            b"3",
            b"4",
        ]


class TestSubscriptions:
    def test_sub_forwarding_follows_first_and_last_over_all_workers(
        self, dispatcher: Dispatcher, worker: Worker, followed: list[tuple[bytes, bool]]
    ) -> None:
        other = join(dispatcher)
        subscribe(dispatcher, worker)
        subscribe(dispatcher, other)
        dispatcher.received(worker, (pipe.UNSUBSCRIBE, b"ch", False), 0)
        assert followed == [(b"ch", True)]
        dispatcher.received(other, (pipe.UNSUBSCRIBE, b"ch", False), 0)
        assert followed == [(b"ch", True), (b"ch", False)]

    def test_linger_delays_the_end_and_keeps_the_order(
        self, dispatcher: Dispatcher, worker: Worker, followed: list[tuple[bytes, bool]]
    ) -> None:
        subscribe(dispatcher, worker)
        dispatcher.accept(item(b"a", b"1"), 0)
        dispatcher.received(worker, (pipe.UNSUBSCRIBE, b"ch", True), 1)
        dispatcher.accept(item(b"lingering", b"2", b"1"), 2)
        subscribe(dispatcher, worker, now=3)
        dispatcher.accept(item(b"waits", b"4", b"3"), 3)
        dispatcher.accept(item(b"b", b"3", b"2"), 3)
        assert worker.items() == [b"a", b"b", b"waits"]
        dispatcher.received(worker, (pipe.UNSUBSCRIBE, b"ch", True), 4)
        assert dispatcher.next_due() is not None
        dispatcher.due(64)
        assert followed == [(b"ch", True), (b"ch", False)]

    def test_the_update_after_the_first_subscription_goes_to_all_its_workers(
        self, dispatcher: Dispatcher, worker: Worker
    ) -> None:
        other = join(dispatcher)
        third = join(dispatcher)
        subscribe(dispatcher, worker)
        subscribe(dispatcher, other, now=0.5)
        dispatcher.due(1)
        update = (pipe.COMMAND, 0, "update", {"channel": b"ch"})
        assert (worker.take(), other.take(), third.take()) == ([update], [update], [])

    def test_a_dead_worker_ends_its_subscriptions(
        self, dispatcher: Dispatcher, worker: Worker, followed: list[tuple[bytes, bool]]
    ) -> None:
        subscribe(dispatcher, worker)
        dispatcher.left(worker, 0)
        assert followed == [(b"ch", True), (b"ch", False)]
        dispatcher.accept(item(b"x"), 0)
        assert worker.items() == []


class TestRestartedHandler:
    def test_announced_channels_are_served_and_not_updated(
        self, dispatcher: Dispatcher, followed: list[tuple[bytes, bool]]
    ) -> None:
        worker = join(dispatcher, (b"ch", 0, 3, 0, b"7"))
        assert followed == [(b"ch", True)]
        assert dispatcher.next_due() is None
        dispatcher.accept(item(b"x"), 0)
        assert worker.items() == [b"x"]

    def test_the_id_received_last_is_known_again(self, dispatcher: Dispatcher) -> None:
        join(dispatcher, (b"ch", 0, 3, 0, b"7"))
        assert subscribe(dispatcher, join(dispatcher))[3] == b"7"

    def test_sessions_ask_for_what_was_published_while_nobody_took_it(self, dispatcher: Dispatcher) -> None:
        """Publishers were refused from the end of the old handler to the start of the new one."""
        worker = join(dispatcher, (b"ch", 0, 3, 0, b"7"))
        dispatcher.opened(10)
        assert dispatcher.next_due() == 11
        dispatcher.due(10.9)
        assert worker.take() == []
        dispatcher.due(11)
        assert worker.take() == [(pipe.COMMAND, 0, "recover", {"missed": True})]
        assert dispatcher.next_due() is None

    def test_a_worker_that_comes_late_is_told_at_once(self, dispatcher: Dispatcher) -> None:
        dispatcher.opened(10)
        assert join(dispatcher, (b"ch", 0, 3, 0, b"7")).take() == [(pipe.COMMAND, 0, "recover", {"missed": True})]
        assert join(dispatcher).take() == []

    def test_at_the_first_start_there_is_nothing_to_ask_for(self, dispatcher: Dispatcher) -> None:
        join(dispatcher)
        dispatcher.opened(10)
        assert dispatcher.next_due() is None

    def test_the_order_starts_anew(self, dispatcher: Dispatcher) -> None:
        """What was published while no handler ran is lost: waiting for it would only delay the recovery."""
        worker = join(dispatcher, (b"ch", 0, 3, 0, b"7"))
        dispatcher.accept(item(b"x", b"12", b"11"), 0)
        assert worker.items() == [b"x"]


class TestMessages:
    def test_counts_and_stats_are_taken(self, dispatcher: Dispatcher, worker: Worker) -> None:
        subscribe(dispatcher, worker)
        dispatcher.received(worker, (pipe.COUNT, b"ch", pipe.STREAM, 4), 0)
        news = {"sent": 2, "slow-clients": 1, "recovery": [(b"r", pipe.STREAM, (1, 1, 1, 1))]}
        dispatcher.received(worker, (pipe.STATS, news, {"queue": 3}), 0)
        assert dispatcher.audience(item(b"x")) == 4
        assert dispatcher.counters.workers == {"sent": 2, "slow-clients": 1}
        assert dispatcher.delivery()["slow-clients"] == 1
        assert dispatcher.gauges == {worker: {"queue": 3}}
        dispatcher.left(worker, 0)
        assert dispatcher.gauges == {}

    @pytest.mark.parametrize(
        "message", [(pipe.HELLO, 1, 1, "1", []), (99,), (pipe.SUBSCRIBE,), (pipe.COUNT, b"ch"), (pipe.STATS,)]
    )
    def test_what_does_not_belong_here_is_an_error(
        self, dispatcher: Dispatcher, worker: Worker, message: pipe.Message
    ) -> None:
        with pytest.raises((ValueError, IndexError)):
            dispatcher.received(worker, message, 0)

    def test_recover_is_sent_to_all(self, dispatcher: Dispatcher, worker: Worker) -> None:
        subscribe(dispatcher, worker)
        dispatcher.accept(item(b"a", b"1"), 0)
        worker.take()
        dispatcher.recover()
        assert worker.take() == [(pipe.COMMAND, 0, "recover", {})]
        dispatcher.accept(item(b"c", b"3", b"2"), 0)
        assert worker.items() == [b"c"]

    def test_questions_are_answered_over_the_pipe(self, dispatcher: Dispatcher, worker: Worker) -> None:
        got: list[Any] = []
        dispatcher.ask("conncheck", {"ids": [b"x"]}, 0, got.append)
        ((kind, number, name, args),) = worker.take()
        assert (kind, name, args) == (pipe.COMMAND, "conncheck", {"ids": [b"x"]})
        dispatcher.received(worker, (pipe.ANSWER, number, [b"x"]), 0)
        assert got == [[[b"x"]]]

    def test_a_question_is_given_up_by_the_tick(self, dispatcher: Dispatcher, worker: Worker) -> None:
        got: list[Any] = []
        dispatcher.ask("conncheck", {"ids": []}, 0, got.append)
        dispatcher.tick(10)
        assert got == [None]
