"""An item's way through the handler, and the messages of the pipe. Time is a number, workers are lists."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy import pipe
from gripproxy.grip.item import Item, MessageFormat, ResponseFormat, StreamFormat
from handler.exchange import Exchange


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
        items = [Item.unpack(message[1]) for message in self.take() if message[0] == pipe.ITEM]
        return [each.stream.content for each in items if each.stream is not None]


def item(content: bytes, item_id: bytes | None = None, prev_id: bytes | None = None, **more: Any) -> Item:
    return Item(b"ch", item_id, prev_id, stream=StreamFormat("send", content), **more)


@pytest.fixture
def followed() -> list[tuple[bytes, bool]]:
    return []


@pytest.fixture
def exchange(followed: list[tuple[bytes, bool]]) -> Exchange:
    return Exchange(follow=lambda channel, wanted: followed.append((channel, wanted)))


@pytest.fixture
def worker(exchange: Exchange) -> Worker:
    return join(exchange)


def join(exchange: Exchange, *channels: tuple[bytes, int, int, int, bytes | None]) -> Worker:
    worker = Worker()
    exchange.joined(worker, channels, 0)
    return worker


def subscribe(exchange: Exchange, worker: Worker, number: int = 1, now: float = 0) -> pipe.Message:
    exchange.told(worker, (pipe.SUBSCRIBE, b"ch", number), now)
    return worker.got.pop()


class TestDelivery:
    def test_an_item_goes_to_the_workers_that_have_subscribers(self, exchange: Exchange, worker: Worker) -> None:
        other = join(exchange)
        third = join(exchange)
        subscribe(exchange, worker)
        subscribe(exchange, other)
        exchange.accept(item(b"x"), 0)
        assert (worker.items(), other.items(), third.items()) == ([b"x"], [b"x"], [])
        assert (exchange.counters.received, exchange.counters.passed) == (1, 2)

    def test_an_item_for_nobody_is_counted(self, exchange: Exchange, worker: Worker) -> None:
        exchange.accept(item(b"x"), 0)
        assert (worker.got, exchange.counters.unheard) == ([], 1)

    def test_a_duplicate_is_dropped_with_or_without_subscribers(self, exchange: Exchange, worker: Worker) -> None:
        assert exchange.accept(item(b"before", b"1"), 0)
        subscribe(exchange, worker)
        assert not exchange.accept(item(b"again", b"1"), 1)
        assert not exchange.accept(item(b"again", b"1", no_seq=True), 1)
        assert worker.items() == []
        assert exchange.counters.duplicates == 2

    def test_items_arrive_in_order(self, exchange: Exchange, worker: Worker) -> None:
        subscribe(exchange, worker)
        for content, item_id, prev_id in ((b"a", b"1", b"0"), (b"c", b"3", b"2"), (b"b", b"2", b"1")):
            exchange.accept(item(content, item_id, prev_id), 0)
        assert worker.items() == [b"a", b"b", b"c"]

    def test_no_seq_passes_waiting_items_and_leaves_the_order_alone(self, exchange: Exchange, worker: Worker) -> None:
        subscribe(exchange, worker)
        exchange.accept(item(b"a", b"1"), 0)
        exchange.accept(item(b"c", b"3", b"2"), 0)
        exchange.accept(item(b"now", b"9", b"8", no_seq=True), 0)
        assert worker.items() == [b"a", b"now"]
        exchange.accept(item(b"b", b"2", b"1"), 0)
        assert worker.items() == [b"b", b"c"]

    def test_without_subscriber_nothing_is_sequenced(self, exchange: Exchange, worker: Worker) -> None:
        exchange.accept(item(b"a", b"1"), 0)
        subscribe(exchange, worker)
        exchange.accept(item(b"c", b"3", b"2"), 0)
        assert worker.items() == [b"c"]

    def test_an_item_that_waited_long_enough_is_delivered_by_the_tick(self, exchange: Exchange, worker: Worker) -> None:
        subscribe(exchange, worker)
        exchange.accept(item(b"a", b"1"), 0)
        exchange.accept(item(b"c", b"3", b"2"), 0)
        exchange.tick(4)
        assert worker.items() == [b"a"]
        exchange.tick(5)
        assert worker.items() == [b"c"]

    def test_the_audience_is_counted_by_the_formats_of_the_item(self, exchange: Exchange) -> None:
        join(exchange, (b"ch", 1, 10, 100, None))
        assert exchange.audience(item(b"x")) == 10
        assert exchange.audience(Item(b"ch", response=ResponseFormat(), message=MessageFormat())) == 101
        assert exchange.audience(Item(b"ch")) == 0


class TestNoWindow:
    """The id that SUBSCRIBED carries tells a worker what its hold missed."""

    def test_what_was_published_before_the_subscription_is_told(self, exchange: Exchange, worker: Worker) -> None:
        exchange.accept(item(b"x", b"5"), 0)
        assert subscribe(exchange, worker, 7) == (pipe.SUBSCRIBED, b"ch", 7, b"5")

    def test_an_item_that_waited_when_the_subscription_ended_was_published_too(self) -> None:
        exchange = Exchange(linger=0, update=False)
        worker = join(exchange)
        subscribe(exchange, worker)
        exchange.accept(item(b"x", b"1"), 0)
        exchange.accept(item(b"z", b"3", b"2"), 0)
        exchange.told(worker, (pipe.UNSUBSCRIBE, b"ch", False), 0)
        assert worker.items() == [b"x"]
        assert subscribe(exchange, worker, 2)[3] == b"3"

    def test_nothing_known_is_none(self, exchange: Exchange, worker: Worker) -> None:
        assert subscribe(exchange, worker) == (pipe.SUBSCRIBED, b"ch", 1, None)

    def test_waiting_items_do_not_count_and_no_seq_does(self, exchange: Exchange, worker: Worker) -> None:
        subscribe(exchange, worker)
        exchange.accept(item(b"a", b"1"), 0)
        exchange.accept(item(b"c", b"3", b"2"), 0)
        other = join(exchange)
        assert subscribe(exchange, other)[3] == b"1"
        exchange.accept(item(b"n", b"9", no_seq=True), 0)
        assert subscribe(exchange, other)[3] == b"9"

    def test_it_is_remembered_without_subscribers_for_the_time_of_the_duplicate_cache(
        self, exchange: Exchange, worker: Worker
    ) -> None:
        exchange.accept(item(b"x", b"5"), 0)
        exchange.tick(59)
        assert subscribe(exchange, worker)[3] == b"5"
        exchange.told(worker, (pipe.UNSUBSCRIBE, b"ch", False), 59)
        exchange.tick(60)
        assert subscribe(exchange, worker)[3] is None

    def test_switching_off_the_duplicate_check_keeps_it(self) -> None:
        exchange = Exchange(id_cache_ttl=0)
        exchange.accept(item(b"x", b"5"), 0)
        exchange.tick(30)
        assert subscribe(exchange, join(exchange))[3] == b"5"

    def test_what_a_backend_insists_on_is_believed_if_no_other_item_came(
        self, exchange: Exchange, worker: Worker
    ) -> None:
        subscribe(exchange, worker)
        exchange.accept(item(b"a", b"1"), 0)
        exchange.told(worker, (pipe.CONFLICT, b"ch", b"0", b"7"), 0)
        assert exchange.accept(item(b"waits", b"4", b"3"), 0)
        assert worker.items() == [b"a"]
        exchange.told(worker, (pipe.CONFLICT, b"ch", b"1", b"7"), 0)
        assert subscribe(exchange, worker)[3] is None
        exchange.accept(item(b"any", b"8", b"7"), 0)
        exchange.tick(1)
        # Nor is it overtaken by what follows.
        assert worker.items() == [b"waits", b"any"]

    def test_subscribe_unsubscribe_subscribe_while_publishing_loses_nothing(
        self, exchange: Exchange, worker: Worker
    ) -> None:
        """Every item published after the newest subscribe reaches the worker behind its confirmation; every item
        before it is named by the confirmation."""
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
                exchange.accept(step, 0)
            else:
                exchange.told(worker, step, 0)
        shown = [message[1:] if message[0] == pipe.SUBSCRIBED else Item.unpack(message[1]).id for message in worker.got]
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
        self, exchange: Exchange, worker: Worker, followed: list[tuple[bytes, bool]]
    ) -> None:
        other = join(exchange)
        subscribe(exchange, worker)
        subscribe(exchange, other)
        exchange.told(worker, (pipe.UNSUBSCRIBE, b"ch", False), 0)
        assert followed == [(b"ch", True)]
        exchange.told(other, (pipe.UNSUBSCRIBE, b"ch", False), 0)
        assert followed == [(b"ch", True), (b"ch", False)]

    def test_linger_delays_the_end_and_keeps_the_order(
        self, exchange: Exchange, worker: Worker, followed: list[tuple[bytes, bool]]
    ) -> None:
        subscribe(exchange, worker)
        exchange.accept(item(b"a", b"1"), 0)
        exchange.told(worker, (pipe.UNSUBSCRIBE, b"ch", True), 1)
        exchange.accept(item(b"lingering", b"2", b"1"), 2)
        subscribe(exchange, worker, now=3)
        exchange.accept(item(b"waits", b"4", b"3"), 3)
        exchange.accept(item(b"b", b"3", b"2"), 3)
        assert worker.items() == [b"a", b"b", b"waits"]
        exchange.told(worker, (pipe.UNSUBSCRIBE, b"ch", True), 4)
        assert exchange.next_due() is not None
        exchange.due(64)
        assert followed == [(b"ch", True), (b"ch", False)]

    def test_the_update_after_the_first_subscription_goes_to_all_its_workers(
        self, exchange: Exchange, worker: Worker
    ) -> None:
        other = join(exchange)
        third = join(exchange)
        subscribe(exchange, worker)
        subscribe(exchange, other, now=0.5)
        exchange.due(1)
        update = (pipe.COMMAND, 0, "update", {"channel": b"ch"})
        assert (worker.take(), other.take(), third.take()) == ([update], [update], [])

    def test_a_dead_worker_ends_its_subscriptions(
        self, exchange: Exchange, worker: Worker, followed: list[tuple[bytes, bool]]
    ) -> None:
        subscribe(exchange, worker)
        exchange.left(worker, 0)
        assert followed == [(b"ch", True), (b"ch", False)]
        exchange.accept(item(b"x"), 0)
        assert worker.items() == []


class TestRestartedHandler:
    def test_announced_channels_are_served_and_not_updated(
        self, exchange: Exchange, followed: list[tuple[bytes, bool]]
    ) -> None:
        worker = join(exchange, (b"ch", 0, 3, 0, b"7"))
        assert followed == [(b"ch", True)]
        assert exchange.next_due() is None
        exchange.accept(item(b"x"), 0)
        assert worker.items() == [b"x"]

    def test_the_id_received_last_is_known_again(self, exchange: Exchange) -> None:
        join(exchange, (b"ch", 0, 3, 0, b"7"))
        assert subscribe(exchange, join(exchange))[3] == b"7"

    def test_sessions_ask_for_what_was_published_while_nobody_took_it(self, exchange: Exchange) -> None:
        """Publishers were refused from the end of the old handler to the start of the new one."""
        worker = join(exchange, (b"ch", 0, 3, 0, b"7"))
        exchange.opened(10)
        assert exchange.next_due() == 11
        exchange.due(10.9)
        assert worker.take() == []
        exchange.due(11)
        assert worker.take() == [(pipe.COMMAND, 0, "recover", {"missed": True})]
        assert exchange.next_due() is None

    def test_a_worker_that_comes_late_is_told_at_once(self, exchange: Exchange) -> None:
        exchange.opened(10)
        assert join(exchange, (b"ch", 0, 3, 0, b"7")).take() == [(pipe.COMMAND, 0, "recover", {"missed": True})]
        assert join(exchange).take() == []

    def test_at_the_first_start_there_is_nothing_to_ask_for(self, exchange: Exchange) -> None:
        join(exchange)
        exchange.opened(10)
        assert exchange.next_due() is None

    def test_the_order_starts_anew(self, exchange: Exchange) -> None:
        """What was published while no handler ran is lost: waiting for it would only delay the recovery."""
        worker = join(exchange, (b"ch", 0, 3, 0, b"7"))
        exchange.accept(item(b"x", b"12", b"11"), 0)
        assert worker.items() == [b"x"]


class TestMessages:
    def test_counts_and_stats_are_taken(self, exchange: Exchange, worker: Worker) -> None:
        subscribe(exchange, worker)
        exchange.told(worker, (pipe.COUNT, b"ch", pipe.STREAM, 4), 0)
        news = {"sent": 2, "slow-clients": 1, "recovery": [(b"r", pipe.STREAM, (1, 1, 1, 1))]}
        exchange.told(worker, (pipe.STATS, news, {"queue": 3}), 0)
        assert exchange.audience(item(b"x")) == 4
        assert exchange.counters.workers == {"sent": 2, "slow-clients": 1}
        assert exchange.delivery()["slow-clients"] == 1
        assert exchange.gauges == {worker: {"queue": 3}}
        exchange.left(worker, 0)
        assert exchange.gauges == {}

    @pytest.mark.parametrize(
        "message", [(pipe.HELLO, 1, 1, "1", []), (99,), (pipe.SUBSCRIBE,), (pipe.COUNT, b"ch"), (pipe.STATS,)]
    )
    def test_what_does_not_belong_here_is_an_error(
        self, exchange: Exchange, worker: Worker, message: pipe.Message
    ) -> None:
        with pytest.raises((ValueError, IndexError)):
            exchange.told(worker, message, 0)

    def test_recover_is_sent_to_all(self, exchange: Exchange, worker: Worker) -> None:
        subscribe(exchange, worker)
        exchange.accept(item(b"a", b"1"), 0)
        worker.take()
        exchange.recover()
        assert worker.take() == [(pipe.COMMAND, 0, "recover", {})]
        exchange.accept(item(b"c", b"3", b"2"), 0)
        assert worker.items() == [b"c"]

    def test_questions_are_answered_over_the_pipe(self, exchange: Exchange, worker: Worker) -> None:
        got: list[Any] = []
        exchange.ask("conncheck", {"ids": [b"x"]}, 0, got.append)
        ((kind, number, name, args),) = worker.take()
        assert (kind, name, args) == (pipe.COMMAND, "conncheck", {"ids": [b"x"]})
        exchange.told(worker, (pipe.ANSWER, number, [b"x"]), 0)
        assert got == [[[b"x"]]]

    def test_a_question_is_given_up_by_the_tick(self, exchange: Exchange, worker: Worker) -> None:
        got: list[Any] = []
        exchange.ask("conncheck", {"ids": []}, 0, got.append)
        exchange.tick(10)
        assert got == [None]
