"""A subscriber: pushes, pages and failures in, events in order and requests out.

The first part goes through the table of states row by row. The second is a simulated publisher behind a network that
loses, repeats and overtakes: after any run, once the network is healthy, the queue is the history, or the loss was
reported.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from griphub.client.countdown import Countdown
from griphub.client.errors import BadAnswer
from griphub.client.received import ReceivedEvent
from griphub.client.subscription_actions import (
    Action,
    AnswerPush,
    Cancel,
    Enqueue,
    OnGone,
    Poll,
    PushClass,
    Report,
    ReportKind,
    Strategy,
    Subscribe,
)
from griphub.client.subscription_places import Place
from griphub.client.subscription_standing import NEVER, RecentPushes, Standing
from griphub.client.subscription_state import DROPPED_MAX, EPOCHS_MAX, State, SubscriptionState
from griphub.store.cursor import EpochInterval, is_known, parse_cursor

AHEAD: Final = 3600.0
"""Seconds by which the publisher's clock is ahead of the subscriber's."""

OK: Final = AnswerPush(204)
BUSY: Final = AnswerPush(503)


def event(number: int, prev: int | None = None, epoch: str = "e", time: float = 0.0) -> ReceivedEvent:
    """An event stored at a time of the publisher's clock; it follows the number before if no other is given."""
    return ReceivedEvent.of(
        {
            "id": str(number),
            "cursor": f"{epoch}.{number}",
            "prev_id": str(number - 1 if prev is None else prev),
            "version_cursor": f"{epoch}.{number}",
            "time": datetime.fromtimestamp(time, UTC).isoformat(timespec="microseconds"),
            "content_type": "text/plain",
        }
    )


def numbers(actions: Sequence[Action]) -> list[int]:
    return [int(action.event.id) for action in actions if isinstance(action, Enqueue)]


class Bench:
    """A subscriber at ``e.6``, whose chance is a half and whose ids are s1, s2, …; the countdown is 1 s at first."""

    def __init__(self, after: str = "e.6", strategy: Strategy = Strategy.PUSH_AND_POLL, **options: Any) -> None:
        names = (f"s{number}" for number in itertools.count(1))
        self.state = SubscriptionState(after, lambda: next(names), lambda: 0.5, strategy=strategy, **options)
        self.now = 0.0

    def push(self, pushed: ReceivedEvent, id: str | None = None) -> list[Action]:
        return self.state.push(id or self.state.subscription_id or "s1", pushed, self.now)

    def page(self, *events: ReceivedEvent, end: str | None = None, **options: Any) -> list[Action]:
        end = end or (events[-1].cursor if events else self.state.cursor)
        return self.state.page(events, end, self.now, **{"server_time": self.now + AHEAD, **options})

    def timer(self) -> list[Action]:
        return self.state.timer(self.now)

    def stored(self, number: int, age: float, prev: int | None = None) -> ReceivedEvent:
        """An event that is so old by the publisher's clock."""
        return event(number, prev, time=self.now + AHEAD - age)

    def subscribed(self) -> Bench:
        """Go to a minute after the first subscription."""
        self.timer()
        if self.state.strategy.polls:
            self.page()
        self.state.subscribed(self.now)
        self.now = 60.0
        return self


@pytest.fixture
def bench() -> Bench:
    return Bench().subscribed()


@pytest.fixture
def polling(bench: Bench) -> Bench:
    assert bench.timer() == [Poll("e.6")]
    return bench


# --- start


def test_from_one_cursor_to_a_subscription() -> None:
    bench = Bench()
    assert bench.state.deadline is not None
    assert bench.state.deadline <= bench.now
    assert bench.timer() == [Poll("e.6")]
    seven, eight = event(7), event(8)
    assert bench.page(seven, more=True) == [Enqueue(seven), Poll("e.7")]
    assert bench.page(eight) == [Enqueue(eight), Subscribe("s1", "e.8")]
    assert bench.state.state is State.SUBSCRIBING
    assert bench.state.subscribed(0.0) == []
    assert (bench.state.state, bench.state.cursor, bench.state.subscription_id) == (State.IDLE, "e.8", "s1")


def test_from_the_beginning() -> None:
    bench = Bench("0")
    assert bench.timer() == [Poll("0")]
    assert numbers(bench.page(event(3, 0), event(9, 3))) == [3, 9]


def test_the_first_event_of_a_topic_is_a_push() -> None:
    bench = Bench("0").subscribed()
    first = event(3, 0)
    assert bench.push(first) == [Enqueue(first), OK]


@pytest.mark.parametrize("cursor", ["", "7", "e.", "e.x", "E.7", "e.7 ", "e.-1", "e." + "1" * 20, "e.\u0667"])
def test_a_cursor_that_is_none(cursor: str) -> None:
    with pytest.raises(BadAnswer, match="no cursor"):
        Bench(cursor)


# --- any state: pushes


def test_another_subscription_is_dropped_with_success_and_counted(bench: Bench) -> None:
    assert bench.push(event(7), "s0") == [OK]
    assert bench.push(event(9), "s0") == [OK], "and no poll"
    assert bench.state.cursor == "e.6"
    assert bench.state.counts == {PushClass.OTHER_SUBSCRIPTION: 2}


def test_before_a_subscription_each_push_is_of_another_one() -> None:
    assert Bench().push(event(7), "s1") == [OK]


def test_a_direct_follower_is_enqueued_and_restarts_the_countdown(bench: Bench) -> None:
    seven, eight = event(7), event(8)
    assert bench.push(seven) == [Enqueue(seven), OK]
    assert bench.state.deadline == 61.0
    bench.now = 70.0
    assert bench.push(eight) == [Enqueue(eight), OK]
    assert bench.state.deadline == 70.0 + 30.0
    assert bench.state.cursor == "e.8"


def test_a_repetition_is_dropped_with_success(bench: Bench) -> None:
    bench.push(event(7))
    deadline, bench.now = bench.state.deadline, 60.5
    assert [bench.push(event(number)) for number in (7, 6, 1)] == [[OK]] * 3
    assert bench.state.counts[PushClass.REPEATED] == 3
    assert bench.state.deadline == deadline


def test_a_place_that_is_no_event_of_the_topic() -> None:
    """Pages end at the store's newest id, and the next event names one before it."""
    bench = Bench()
    bench.timer()
    bench.page(end="e.20")
    assert bench.state.cursor == "e.20"
    assert numbers(bench.push(event(23, 6))) == [23]


@pytest.mark.parametrize(
    "broken",
    [
        replace(event(7), cursor="7"),
        replace(event(7), cursor="0"),
        replace(event(7), prev_id="e.6"),
        replace(event(7), prev_id="7"),
        replace(event(7), prev_id="8"),
        replace(event(7), prev_id="9" * 5000),
    ],
)
def test_a_push_that_is_none_is_an_error_of_the_publisher(bench: Bench, broken: ReceivedEvent) -> None:
    assert bench.push(broken) == [AnswerPush(400)]
    assert bench.state.counts == {PushClass.MALFORMED: 1}


# --- idle


def test_a_gap_is_dropped_and_polled_for(bench: Bench) -> None:
    assert bench.push(event(8)) == [OK, Poll("e.6")]
    assert numbers(bench.page(event(7), event(8))) == [7, 8]
    assert bench.state.counts == {PushClass.GAP: 1}


def test_another_epoch_is_no_repetition_and_polled_for(bench: Bench) -> None:
    assert bench.push(event(3, epoch="f")) == [OK, Poll("e.6")]
    assert numbers(bench.page(event(99, 6, epoch="f", time=60 + AHEAD))) == [99]
    assert bench.state.cursor == "f.99"
    assert bench.push(event(7, epoch="f")) == [OK], "compared within its epoch"
    assert bench.state.counts == {PushClass.OTHER_EPOCH: 1, PushClass.REPEATED: 1}


def test_a_follower_by_number_of_another_epoch_proves_nothing(bench: Bench) -> None:
    assert bench.push(event(7, 6, epoch="f")) == [OK, Poll("e.6")]


def test_the_countdown_is_over(bench: Bench) -> None:
    bench.push(event(7))
    bench.now = 60.9
    assert bench.timer() == []
    bench.now = 61.0
    assert bench.timer() == [Poll("e.7")]
    assert bench.state.deadline is None
    assert bench.timer() == [], "one poll at a time"


def test_wake_from_sleep(bench: Bench) -> None:
    bench.push(event(7))
    assert bench.state.wake(bench.now) == [Poll("e.7")]
    assert bench.state.wake(bench.now) == [], "it is under way"
    assert bench.page() == [Poll("e.7")], "the answer may be older than the order"


# --- polling


def test_nothing_found_and_the_countdown_grows(bench: Bench) -> None:
    lengths = []
    for _ in range(3):
        assert bench.state.deadline is not None
        bench.now = max(bench.now, bench.state.deadline)
        assert bench.timer() == [Poll("e.6")]
        assert bench.page() == []
        lengths.append(bench.state.deadline - bench.now)
    assert lengths == [4.0, 8.0, 16.0]
    assert bench.state.subscription_id == "s1"


def test_old_events_found_renew_the_subscription(polling: Bench) -> None:
    seven, eight = polling.stored(7, 5.0), polling.stored(8, 0.1)
    assert polling.page(seven, eight) == [
        Enqueue(seven),
        Enqueue(eight),
        Report(ReportKind.RENEWED, "e.6", "e.8"),
        Cancel("s1"),
    ]
    assert polling.state.state is State.RESUBSCRIBING
    assert polling.push(event(9), "s1") == [OK]
    assert polling.state.cancelled(polling.now) == [Subscribe("s2", "e.8")]
    nine = event(9)
    assert polling.push(nine, "s2") == [Enqueue(nine), OK], "also before the answer"
    assert polling.state.subscribed(polling.now) == []
    assert polling.push(event(10), "s1") == [OK]
    assert polling.state.counts[PushClass.OTHER_SUBSCRIPTION] == 2
    assert polling.state.deadline == polling.now + 1.0


def test_the_subscription_is_renewed_behind_the_last_page(polling: Bench) -> None:
    actions = polling.page(polling.stored(7, 5.0), more=True)
    assert actions[1:] == [Report(ReportKind.RENEWED, "e.6", "e.7"), Poll("e.7")]
    assert polling.page(polling.stored(8, 4.0))[1:] == [Cancel("s1")], "one report"
    assert polling.state.cancelled(polling.now) == [Subscribe("s2", "e.8")]


@pytest.mark.parametrize(
    ("age", "round_trip", "renewed"),
    [(0.9, 0.0, False), (1.0, 0.0, False), (1.1, 0.0, True), (5.9, 2.0, False), (6.1, 2.0, True)],
)
def test_young_events_may_be_under_way(bench: Bench, age: float, round_trip: float, renewed: bool) -> None:
    bench.timer()
    bench.now += round_trip
    assert (Cancel("s1") in bench.page(bench.stored(7, age))) is renewed


def test_the_age_is_by_the_publishers_clock_alone(polling: Bench) -> None:
    """Neither clock is near the other: the age is a difference of two times of the publisher."""
    assert Cancel("s1") not in polling.page(event(7, time=1e9), server_time=1e9 + 0.5)
    polling.now += 60
    polling.timer()
    assert Cancel("s1") in polling.page(event(8, time=1e9), server_time=1e9 + 1.5)


def test_without_a_date_the_newest_event_is_the_clock(polling: Bench) -> None:
    assert Cancel("s1") not in polling.page(event(7, time=10.0), server_time=None)
    polling.now += 60
    polling.timer()
    assert Cancel("s1") in polling.page(event(8, time=20.0), event(9, time=21.1), server_time=None)


@pytest.mark.parametrize("time", ["", "yesterday", "2026-11-24T01:00:00", "10000-01-01T00:00:00Z"])
def test_a_time_that_is_none_proves_nothing(polling: Bench, time: str) -> None:
    assert Cancel("s1") not in polling.page(replace(event(7), time=time))


def test_a_clock_set_back_proves_nothing(polling: Bench) -> None:
    assert Cancel("s1") not in polling.page(polling.stored(7, -3600.0))


def test_an_event_that_was_pushed_and_dropped_proves_nothing(bench: Bench) -> None:
    """8 overtook 7, and the poll failed until both were old."""
    assert bench.push(event(8)) == [OK, Poll("e.6")]
    bench.state.failed(bench.now, "reset")
    assert numbers(bench.push(event(7))) == [7]
    bench.now += 30.0
    assert bench.timer() == [Poll("e.7")]
    assert bench.page(bench.stored(8, 30.0)) == [Enqueue(bench.stored(8, 30.0))]


def test_dropped_pushes_are_remembered_up_to_a_bound(bench: Bench) -> None:
    last = 8 + DROPPED_MAX
    for number in range(8, last + 1):
        bench.push(event(number))
    events = [bench.stored(number, 0.0 if number == 7 else 30.0) for number in range(7, last + 1)]
    assert len(bench.state._dropped) == DROPPED_MAX
    assert Cancel("s1") in bench.page(*events), "8 is forgotten"


def test_an_event_from_before_the_subscription_proves_nothing(bench: Bench) -> None:
    """Its push is part of the replay."""
    bench = Bench()
    bench.timer()
    bench.page()
    bench.now = 50.0
    bench.state.subscribed(50.0)
    bench.state.wake(50.5)
    bench.now = 50.5
    assert Cancel("s1") not in bench.page(bench.stored(7, 40.0))


def test_a_push_while_polling_wins_if_it_is_first(polling: Bench) -> None:
    seven, eight = polling.stored(7, 5.0), polling.stored(8, 0.0)
    assert polling.push(seven) == [Enqueue(seven), OK]
    assert polling.page(seven, eight) == [Enqueue(eight)]
    assert polling.push(eight) == [OK]
    assert polling.state.counts == {PushClass.ACCEPTED: 1, PushClass.REPEATED: 1}


def test_a_gap_while_polling_is_polled_for_behind_it(polling: Bench) -> None:
    """The page was made before 8, and the push of 8 is dropped with success: it is not repeated."""
    assert polling.push(event(8)) == [OK]
    assert polling.page(event(7, time=AHEAD + polling.now)) == [
        Enqueue(event(7, time=AHEAD + polling.now)),
        Poll("e.7"),
    ]


def test_an_epoch_is_entered_from_the_place_that_was_asked_for(polling: Bench) -> None:
    """The page proves that the new epoch has 6; about 7, which was pushed by the old one, it proves nothing."""
    assert numbers(polling.push(event(7))) == [7]
    assert polling.page(event(99, 6, epoch="f")) == [Poll("e.7")]
    actions = polling.state.gone("e.2", polling.now)
    assert actions == [Report(ReportKind.GONE, "e.7", "e.2")]


def test_an_epoch_is_entered_behind_a_push_that_the_page_has(polling: Bench) -> None:
    polling.push(event(7))
    assert numbers(polling.page(event(7), event(99, 7, epoch="f"))) == [99]


def test_the_end_of_a_page_in_another_epoch_says_nothing_about_pushes_of_the_old_one(polling: Bench) -> None:
    polling.push(event(7))
    polling.page(end="f.99")
    assert polling.state.cursor == "e.7"


def test_a_hole_within_a_page_is_reported(polling: Bench) -> None:
    assert polling.page(event(8, time=60 + AHEAD))[0] == Report(ReportKind.GAP, "e.6", "e.8")


@pytest.mark.parametrize("broken", [replace(event(7), cursor="7"), replace(event(7), prev_id="x")])
def test_a_page_that_is_none_is_a_failure(polling: Bench, broken: ReceivedEvent) -> None:
    [report] = polling.page(event(7), broken, end="e.7")
    assert isinstance(report, Report)
    assert (report.kind, report.after) == (ReportKind.FAILED, "e.6")
    assert polling.state.state is State.BACKING_OFF


def test_pages_without_end_and_without_events_are_a_failure(polling: Bench) -> None:
    [report] = polling.page(more=True)
    assert report == Report(ReportKind.FAILED, "e.6", reason="the page after e.6 is empty, and more follows")
    assert polling.state.state is State.BACKING_OFF


def test_events_of_a_page_divide_the_gap_before_them(bench: Bench) -> None:
    bench.push(event(7))
    bench.now += 20.0
    bench.timer()
    bench.page(*[bench.stored(number, 0.0) for number in range(8, 18)])
    assert bench.state.deadline == bench.now + 6.0


# --- polling: 410


def test_gone_is_told_and_goes_on_at_the_floor_with_a_new_subscription(polling: Bench) -> None:
    gone = polling.state.gone("e.50", polling.now, newest="e.90", snapshot="/snapshot")
    assert gone == [Report(ReportKind.GONE, "e.6", "e.50", "/snapshot")]
    assert polling.state.deadline == pytest.approx(60.075), "a pause, since the floor moves"
    polling.now = 60.1
    assert polling.timer() == [Cancel("s1")]
    assert polling.state.cancelled(polling.now) == [Poll("e.50")]
    fifty_one = event(51, 44)
    assert polling.page(fifty_one) == [Enqueue(fifty_one), Subscribe("s2", "e.51")]


def test_gone_and_on_at_the_newest() -> None:
    bench = Bench(on_gone=OnGone.LATEST)
    bench.timer()
    assert bench.state.gone("e.50", 0.0, newest="e.90") == [Report(ReportKind.GONE, "e.6", "e.90")]
    bench.now = 0.1
    assert bench.timer() == [Poll("e.90")]


def test_gone_and_the_newest_is_not_known() -> None:
    bench = Bench(on_gone=OnGone.LATEST)
    bench.timer()
    assert bench.state.gone("e.50", 0.0) == [Report(ReportKind.GONE, "e.6", "e.50")]


def test_gone_and_the_end() -> None:
    bench = Bench(on_gone=OnGone.STOP).subscribed()
    bench.timer()
    assert bench.state.gone("e.50", 60.0) == [Report(ReportKind.GONE, "e.6"), Cancel("s1")]
    assert bench.state.state is State.STOPPED


def test_gone_with_the_topic(polling: Bench) -> None:
    assert polling.state.gone(None, polling.now) == [Report(ReportKind.GONE, "e.6"), Cancel("s1")]
    assert polling.state.state is State.STOPPED


def test_gone_while_subscribing_is_polled_for() -> None:
    bench = Bench()
    bench.timer()
    assert bench.page(more=False) == [Subscribe("s1", "e.6")]
    assert bench.state.gone("e.50", 0.0) == [Report(ReportKind.GONE, "e.6", "e.50")]
    bench.now = 0.1
    assert bench.timer() == [Poll("e.50")]


def test_gone_to_a_place_that_is_none(polling: Bench) -> None:
    [report] = polling.state.gone("50", polling.now)
    assert isinstance(report, Report)
    assert report.kind is ReportKind.FAILED
    assert polling.state.cursor == "e.6"


def test_gone_again_and_again_is_asked_with_growing_pauses(polling: Bench) -> None:
    pauses = []
    polling.state.switch(Strategy.POLL_ONLY, polling.now)
    for _ in range(8):
        polling.state.gone("e.50", polling.now)
        assert polling.state.deadline is not None
        pauses.append(polling.state.deadline - polling.now)
        polling.now = polling.state.deadline
        polling.timer()
        if polling.state.state is State.RESUBSCRIBING:
            polling.state.cancelled(polling.now)
    assert pauses == pytest.approx([0.075, 0.15, 0.3, 0.6, 1.2, 2.4, 3.75, 3.75])


def test_a_restored_store_repeats_no_event() -> None:
    """The subscriber has 1 to 6. The backup ends at 4; it is restored as epoch f, and retains all from 2 on."""
    bench = Bench()
    bench.timer()
    assert bench.state.gone("e.2", 0.0) == [Report(ReportKind.GONE, "e.6", "e.2")]
    bench.now = 1.0
    assert bench.timer() == [Poll("e.2")]
    assert bench.page(event(3), event(4), more=True) == [Poll("e.4")]
    new = event(1000, 4, epoch="f")
    assert bench.page(new) == [Enqueue(new), Subscribe("s1", "f.1000")]
    assert bench.push(event(4), "s1") == [OK], "4 is a repetition in every epoch"


def test_gone_twice_repeats_no_event_either() -> None:
    bench = Bench()
    bench.timer()
    bench.state.gone("e.2", 0.0)
    bench.now = 1.0
    bench.timer()
    assert bench.page(event(3), more=True) == [Poll("e.3")]
    bench.state.gone("e.4", bench.now)
    bench.now = 2.0
    bench.timer()
    assert numbers(bench.page(event(5), event(6), event(1000, 6, epoch="f"))) == [1000]


def test_epochs_are_remembered_up_to_a_bound() -> None:
    bench = Bench("e0.1")
    for number in range(EPOCHS_MAX + 5):
        bench.now += 10.0
        assert bench.timer() == [Poll(f"e{number}.1")]
        bench.state.gone(f"e{number + 1}.1", bench.now)
    assert len(bench.state._left) == EPOCHS_MAX


# --- network errors


def test_a_failed_poll_keeps_the_subscription_and_is_repeated_after_growing_pauses(polling: Bench) -> None:
    pauses = []
    for _ in range(3):
        assert polling.state.failed(polling.now, "reset") == [Report(ReportKind.FAILED, "e.6", reason="reset")]
        assert polling.state.state is State.BACKING_OFF
        assert polling.state.deadline is not None
        pauses.append(polling.state.deadline - polling.now)
        polling.now = polling.state.deadline
        assert polling.timer() == [Poll("e.6")]
    assert pauses == pytest.approx([0.075, 0.15, 0.3])
    assert polling.state.subscription_id == "s1"
    assert polling.page() == []
    polling.now += 10.0
    polling.timer()
    polling.state.failed(polling.now, "reset")
    assert polling.state.deadline == pytest.approx(polling.now + 0.075), "short again after a success"


def test_a_poll_for_a_gap_is_repeated_before_the_countdown_is_over(bench: Bench) -> None:
    bench.push(event(7))
    assert bench.push(event(9)) == [OK, Poll("e.7")]
    bench.state.failed(bench.now, "reset")
    bench.now += 0.1
    assert bench.timer() == [Poll("e.7")]


def test_the_publisher_may_ask_for_a_longer_pause(polling: Bench) -> None:
    polling.state.failed(polling.now, "503", asked=30.0)
    assert polling.state.deadline == 90.0


def test_pushes_go_on_while_polls_fail(polling: Bench) -> None:
    polling.state.failed(polling.now, "reset")
    assert numbers(polling.push(event(7))) == [7]
    assert polling.push(event(9)) == [OK], "no poll before the pause is over"
    polling.now += 1.0
    assert polling.timer() == [Poll("e.7")]


def test_wake_ends_the_pause(polling: Bench) -> None:
    for _ in range(5):
        polling.state.failed(polling.now, "reset", asked=30.0)
        assert polling.state.wake(polling.now) == [Poll("e.6")]
    polling.state.failed(polling.now, "reset")
    assert polling.state.deadline == pytest.approx(polling.now + 0.075), "and the next one is short"


# --- subscribing, resubscribing


def test_a_cancellation_that_fails_is_no_reason_to_wait(polling: Bench) -> None:
    polling.page(polling.stored(7, 5.0))
    assert polling.state.failed(polling.now, "reset") == [Subscribe("s2", "e.7")]
    assert polling.push(event(8), "s1") == [OK]
    assert polling.state.cursor == "e.7"


def test_a_subscription_without_answer_is_cancelled_before_the_next() -> None:
    bench = Bench()
    bench.timer()
    assert bench.page() == [Subscribe("s1", "e.6")]
    assert bench.state.failed(0.0, "timeout") == [Report(ReportKind.FAILED, "e.6", reason="timeout")]
    bench.now = 0.1
    assert bench.timer() == [Cancel("s1")]
    assert bench.state.cancelled(0.1) == [Subscribe("s2", "e.6")]


def test_a_push_is_as_good_as_an_answer() -> None:
    bench = Bench()
    bench.timer()
    bench.page()
    bench.state.failed(0.0, "timeout")
    assert numbers(bench.push(event(7), "s1")) == [7]
    bench.now = 0.1
    assert bench.timer() == []
    assert (bench.state.state, bench.state.subscription_id) == (State.IDLE, "s1")


def test_after_a_push_as_answer_the_replay_may_be_under_way() -> None:
    bench = Bench()
    bench.timer()
    bench.page()
    bench.state.failed(0.0, "timeout", asked=100.0)
    bench.now = 50.0
    bench.push(event(7), "s1")
    bench.now = 50.5
    assert bench.state.wake(50.5) == [Poll("e.7")]
    assert Cancel("s1") not in bench.page(bench.stored(8, 40.0))


def test_a_push_before_an_answer_that_is_lost() -> None:
    bench = Bench()
    bench.timer()
    bench.page()
    assert numbers(bench.push(event(7), "s1")) == [7]
    bench.state.failed(0.0, "timeout")
    bench.now = 0.1
    assert bench.timer() == []
    assert bench.state.subscription_id == "s1"


def test_a_refused_subscription_is_tried_again_behind_a_poll() -> None:
    bench = Bench()
    bench.timer()
    bench.page()
    assert bench.state.refused(0.0, "callback") == [Report(ReportKind.REFUSED, "e.6", reason="callback")]
    assert bench.state.subscription_id is None
    bench.now = bench.state.deadline or 0.0
    assert bench.timer() == [Subscribe("s2", "e.6")]
    bench.state.refused(bench.now, "callback")
    bench.now = 3.0
    assert bench.timer() == [Poll("e.6")]
    assert bench.page(event(7))[1:] == [Subscribe("s3", "e.7")]


def test_pauses_after_refusals_grow_up_to_a_bound() -> None:
    bench, pauses = Bench(strategy=Strategy.PUSH_ONLY), []
    for _ in range(12):
        assert isinstance(bench.timer()[0], Subscribe)
        bench.state.refused(bench.now, "callback")
        assert bench.state.deadline is not None
        pauses.append(bench.state.deadline - bench.now)
        bench.now = bench.state.deadline
    assert pauses == pytest.approx([0.75 * 2**number for number in range(9)] + [225.0] * 3)


def test_pauses_after_refusals_are_short_again_after_a_success() -> None:
    bench = Bench(strategy=Strategy.PUSH_ONLY)
    for _ in range(3):
        bench.timer()
        bench.state.refused(bench.now, "callback")
        bench.now += 10.0
    bench.timer()
    bench.state.subscribed(bench.now)
    bench.state.wake(bench.now)
    bench.state.cancelled(bench.now)
    bench.state.refused(bench.now, "callback")
    assert bench.state.deadline == bench.now + 0.75


def test_a_subscription_that_is_gone() -> None:
    bench = Bench(strategy=Strategy.PUSH_ONLY)
    assert bench.timer() == [Subscribe("s1", "e.6")]
    assert bench.state.gone("e.50", 0.0) == [Report(ReportKind.GONE, "e.6", "e.50")]
    bench.now = 0.1
    assert bench.timer() == [Subscribe("s2", "e.50")], "none was made, so none is cancelled"


# --- strategies


def test_poll_only() -> None:
    bench = Bench(strategy=Strategy.POLL_ONLY)
    assert bench.timer() == [Poll("e.6")]
    seven = event(7)
    assert bench.page(seven) == [Enqueue(seven)]
    assert bench.state.deadline == 1.0
    bench.now = 1.0
    assert bench.timer() == [Poll("e.7")]


def test_push_only_reports_gaps_and_goes_on() -> None:
    bench = Bench(strategy=Strategy.PUSH_ONLY)
    assert bench.timer() == [Subscribe("s1", "e.6")]
    bench.state.subscribed(0.0)
    assert bench.state.deadline is None
    nine, ten = event(9), event(10)
    assert bench.push(nine) == [Report(ReportKind.GAP, "e.6", "e.9"), Enqueue(nine), OK]
    assert bench.push(ten) == [Enqueue(ten), OK]
    assert bench.push(event(8)) == [OK]


def test_push_only_enters_an_epoch_behind_the_place_of_the_subscription() -> None:
    bench = Bench(strategy=Strategy.PUSH_ONLY).subscribed()
    assert numbers(bench.push(event(7))) == [7]
    new = event(99, 7, epoch="f")
    assert bench.push(new) == [OK, Cancel("s1")], "does the new epoch have 7?"
    assert bench.state.cancelled(bench.now) == [Subscribe("s2", "e.7")]
    bench.state.subscribed(bench.now)
    assert bench.push(new) == [Enqueue(new), OK], "it has: else the subscription would be gone"
    assert bench.push(event(8)) == [OK, Cancel("s2")], "overtaken"


def test_push_only_loses_events_between_epochs() -> None:
    bench = Bench(strategy=Strategy.PUSH_ONLY).subscribed()
    new = event(99, 98, epoch="f")
    assert bench.push(new) == [Report(ReportKind.GAP, "e.6", "f.99"), Enqueue(new), OK]


def test_push_only_wakes_by_a_new_subscription() -> None:
    bench = Bench(strategy=Strategy.PUSH_ONLY).subscribed()
    assert bench.state.wake(bench.now) == [Cancel("s1")]
    assert bench.state.cancelled(bench.now) == [Subscribe("s2", "e.6")]


def test_from_push_and_poll_to_poll_only_and_back(bench: Bench) -> None:
    assert bench.state.switch(Strategy.POLL_ONLY, bench.now) == [Cancel("s1")]
    assert bench.state.cancelled(bench.now) == [Poll("e.6")]
    assert bench.page() == []
    assert bench.state.switch(Strategy.PUSH_AND_POLL, bench.now) == [Subscribe("s2", "e.6")]


def test_from_push_only_to_polls(bench: Bench) -> None:
    bench.push(event(7))
    assert bench.state.switch(Strategy.PUSH_ONLY, bench.now) == []
    assert bench.state.deadline is None
    bench.now += 1.0
    assert bench.state.switch(Strategy.PUSH_AND_POLL, bench.now) == [Poll("e.7")]
    assert Cancel("s1") not in bench.page(bench.stored(8, 50.0)), "the replay of a long history may be under way"


def test_a_switch_lets_the_request_under_way_end(polling: Bench) -> None:
    assert polling.state.switch(Strategy.PUSH_ONLY, polling.now) == []
    assert numbers(polling.page(event(7, time=60 + AHEAD), more=True)) == [7]
    assert polling.state.state is State.IDLE, "and no further page"


def test_a_switch_while_subscribing() -> None:
    bench = Bench()
    bench.timer()
    bench.page()
    assert bench.state.switch(Strategy.POLL_ONLY, 0.0) == []
    assert bench.state.subscribed(0.0) == [Cancel("s1")]


# --- a full queue


def test_while_paused_pushes_are_to_be_repeated_and_polls_wait(bench: Bench) -> None:
    bench.state.pause()
    assert [bench.push(event(number)) for number in (7, 9, 6)] == [[BUSY], [BUSY], [OK]]
    assert bench.push(event(7), "s0") == [OK]
    assert bench.state.deadline is None
    assert bench.timer() == []
    assert bench.state.wake(bench.now) == []
    assert bench.state.counts[PushClass.FULL] == 2
    bench.now = 90.0
    assert bench.state.resume(90.0) == [Poll("e.6")]
    assert bench.page(bench.stored(7, 30.0)) == [Enqueue(bench.stored(7, 30.0))], "no proof: it was refused"


def test_a_short_pause_without_pushes_is_without_effect(bench: Bench) -> None:
    bench.push(event(7))
    bench.state.pause()
    assert bench.state.resume(60.5) == []
    assert bench.state.deadline == 61.0


def test_a_page_under_way_is_taken_and_the_next_waits(polling: Bench) -> None:
    polling.state.pause()
    seven = event(7, time=60 + AHEAD)
    assert polling.page(seven, more=True) == [Enqueue(seven)]
    assert polling.state.resume(61.0) == [Poll("e.7")]


def test_push_only_replays_a_pause_by_a_new_subscription() -> None:
    """The publisher may have ended its attempts."""
    bench = Bench(strategy=Strategy.PUSH_ONLY).subscribed()
    bench.state.pause()
    assert bench.push(event(7)) == [BUSY]
    assert bench.state.resume(61.0) == [Cancel("s1")]
    assert bench.state.cancelled(61.0) == [Subscribe("s2", "e.6")]


def test_an_unwanted_subscription_is_cancelled_also_while_paused(bench: Bench) -> None:
    bench.state.pause()
    assert bench.state.switch(Strategy.POLL_ONLY, bench.now) == [Cancel("s1")]
    assert bench.state.cancelled(bench.now) == []


# --- the end, and faults of the caller


def test_the_end(polling: Bench) -> None:
    assert polling.state.stop() == [Cancel("s1")]
    assert polling.page(event(7)) == []
    assert polling.push(event(7), "s1") == [OK]
    assert polling.state.cancelled(60.0) == polling.state.failed(60.0, "") == polling.state.wake(60.0) == []
    assert polling.state.switch(Strategy.PUSH_ONLY, 60.0) == polling.state.resume(60.0) == polling.timer() == []
    assert polling.state.stop() == []
    assert (polling.state.deadline, polling.state.cursor) == (None, "e.6")


@pytest.mark.parametrize(
    "answer",
    [
        lambda state: state.page([], "e.6", 0.0),
        lambda state: state.gone("e.6", 0.0),
        lambda state: state.subscribed(0.0),
        lambda state: state.refused(0.0, ""),
        lambda state: state.cancelled(0.0),
        lambda state: state.failed(0.0, ""),
    ],
)
def test_an_answer_without_request(bench: Bench, answer: Callable[[SubscriptionState], object]) -> None:
    with pytest.raises(RuntimeError, match="answer without request: the subscriber is idle"):
        answer(bench.state)


def test_an_answer_to_another_request(polling: Bench) -> None:
    with pytest.raises(RuntimeError, match="the subscriber is polling, not subscribing"):
        polling.state.subscribed(0.0)


# --- any publisher, any network

SKIP: Final = 10_000
"""Ids that a restore skips."""

LOSS: Final = "loss"
"""Entry of the queue's log: a loss was reported to the application."""


@dataclass
class Store:
    """Publisher's store: events of a topic among others, whose ids are numbers of the same counter."""

    events: list[ReceivedEvent] = field(default_factory=list)
    intervals: list[EpochInterval] = field(default_factory=lambda: [EpochInterval("e0", 1, None)])
    newest: int = 0
    floor: int = 0
    time: float = 0.0
    positions: dict[str, int] = field(default_factory=dict)
    """Id up to which events were pushed, by subscription."""

    def copy(self) -> Store:
        return replace(self, events=list(self.events), intervals=list(self.intervals), positions=dict(self.positions))

    def cursor(self, number: int) -> str:
        epochs = [each.epoch for each in self.intervals if each.first <= number]
        return f"{epochs[-1]}.{number}" if epochs and number else "0"

    def after(self, number: int) -> list[ReceivedEvent]:
        return [each for each in self.events if int(each.id) > number]

    def is_gone(self, cursor: str) -> bool:
        place = parse_cursor(cursor)
        return not is_known(place, self.intervals, self.newest) or place.id < self.floor


class World:
    """Publisher, network and subscriber in virtual time; ``chance`` is the fate of each message."""

    def __init__(self, seed: int, on_gone: OnGone = OnGone.EARLIEST, delay: float = 0.2) -> None:
        self.chance = random.Random(seed)
        self.on_gone = on_gone
        self.now = 1000.0
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.serial = itertools.count()
        self.store = Store()
        self.backup = self.store.copy()
        self.epochs = 1
        self.up = True
        self.offset = AHEAD
        self.parents: dict[str, str] = {}
        """Cursor of the event before, by cursor."""
        self.loss = self.repetition = 0.0
        self.delay = delay
        self.page_size = 3
        self.log: list[str] = []
        self.told = False
        """Whether a loss may have been reported."""
        self.cancelled: list[str] = []
        self.subscribed: list[str] = []
        self.strategy = Strategy.PUSH_AND_POLL
        self.subscriber: SubscriptionState | None = None
        self.start("0")

    # time

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (self.now + seconds, next(self.serial), act))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        for _ in range(20_000):
            deadline = self.subscriber.deadline if self.subscriber else None
            due = self.agenda[0][0] if self.agenda else end
            if deadline is not None and deadline <= min(due, end):
                self.now = max(self.now, deadline)
                assert self.subscriber
                self.act(self.subscriber.timer(self.now))
            elif self.agenda and due <= end:
                self.now, _, act = heapq.heappop(self.agenda)
                act()
            else:
                self.now = end
                return
        raise AssertionError("the subscriber does not rest")

    def a_delay(self) -> float:
        return self.chance.random() * self.delay

    # publisher

    def publish(self, number: int = 1) -> None:
        for _ in range(number if self.up else 0):
            store = self.store
            prev = int(store.events[-1].id) if store.events else store.floor
            first = store.intervals[-1].first
            store.newest = max(store.newest, first - 1) + self.chance.choice([1, 1, 2])
            store.time = max(self.now + self.offset, store.time + 1e-6)
            stored = event(store.newest, prev, store.intervals[-1].epoch, store.time)
            self.parents[stored.cursor] = store.cursor(prev)
            store.events.append(stored)
            self.push_all()
            store.newest += self.chance.choice([0, 0, 1])

    def push_all(self) -> None:
        for id, position in self.store.positions.items():
            for each in self.store.after(position):
                copies = 0 if self.chance.random() < self.loss else 1 + (self.chance.random() < self.repetition)
                for _ in range(copies):
                    self.send(id, each)
            self.store.positions[id] = self.store.newest

    def send(self, id: str, each: ReceivedEvent) -> None:
        self.later(self.a_delay(), lambda: self.pushed(id, each))

    def pushed(self, id: str, each: ReceivedEvent) -> None:
        if self.subscriber:
            actions = self.subscriber.push(id, each, self.now)
            assert [action.status for action in actions if isinstance(action, AnswerPush)] in ([204], [503])
            self.act(actions)

    def restore(self, skip: int = SKIP) -> None:
        """Replace the store by the backup, in a new epoch; ``skip``: first id above, 1 to issue the same ids again."""
        if self.epochs < EPOCHS_MAX:
            store = self.store = self.backup.copy()
            last = store.intervals.pop()
            store.intervals.append(replace(last, last=store.newest))
            store.intervals.append(EpochInterval(f"e{self.epochs}", store.newest + skip, None))
            self.epochs += 1
            self.told = True

    def trim(self, number: int) -> None:
        if self.store.events:
            removed = self.store.events[:number]
            self.store.events = self.store.events[number:]
            self.store.floor = int(removed[-1].id)
            self.told = True

    # requests

    def request(self, handle: Callable[[], Callable[[SubscriptionState], list[Action]]]) -> None:
        asker = self.subscriber

        def answer(give: Callable[[SubscriptionState], list[Action]]) -> None:
            if self.subscriber is asker and asker is not None:
                self.act(give(asker))

        def arrive() -> None:
            give = handle() if self.up else None
            if give is None or self.chance.random() < self.loss:
                self.later(2.0, lambda: answer(lambda each: each.failed(self.now, "lost")))
            else:
                self.later(self.a_delay(), lambda: answer(give))

        if self.chance.random() < self.loss:
            self.later(2.0, lambda: answer(lambda each: each.failed(self.now, "lost")))
        else:
            self.later(self.a_delay(), arrive)

    def gone(self) -> Callable[[SubscriptionState], list[Action]]:
        floor = self.store.cursor(self.store.floor)
        newest = self.store.events[-1].cursor if self.store.events else floor
        return lambda each: each.gone(floor, self.now, newest=newest)

    def poll(self, cursor: str) -> Callable[[SubscriptionState], list[Action]]:
        store = self.store
        if store.is_gone(cursor):
            return self.gone()
        found = store.after(parse_cursor(cursor).id)
        page, more = found[: self.page_size], len(found) > self.page_size
        end = page[-1].cursor if more else store.cursor(store.newest)
        date = float(int(self.now + self.offset))
        return lambda each: each.page(page, end, self.now, more=more, server_time=date)

    def subscribe(self, id: str, cursor: str) -> Callable[[SubscriptionState], list[Action]]:
        if self.store.is_gone(cursor):
            return self.gone()
        self.store.positions[id] = parse_cursor(cursor).id
        self.push_all()
        return lambda each: each.subscribed(self.now)

    def cancel(self, id: str) -> Callable[[SubscriptionState], list[Action]]:
        self.store.positions.pop(id, None)
        return lambda each: each.cancelled(self.now)

    # subscriber

    def start(self, cursor: str) -> None:
        """Begin a new life of the subscriber."""
        self.beginning, self.own, self.own_losses = Place.of(cursor), set[str](), 0
        self.subscriber = SubscriptionState(
            cursor,
            lambda: f"s{next(self.serial)}",
            self.chance.random,
            strategy=self.strategy,
            on_gone=self.on_gone,
            countdown=Countdown(self.chance.random),
        )

    def restart(self, back: int) -> None:
        """Begin again at an older cursor: the application's state is that of a backup."""
        places = [index for index, entry in enumerate(self.log) if entry != LOSS]
        keep = places[-1 - back] + 1 if back < len(places) else 0
        self.log = self.log[:keep]
        self.start(self.log[-1] if self.log else "0")

    def switch(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.told |= strategy is Strategy.PUSH_ONLY
        if self.subscriber:
            self.act(self.subscriber.switch(strategy, self.now))

    def act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Enqueue(each):
                    self.enqueue(each.cursor)
                case Report(kind) if kind in (ReportKind.GONE, ReportKind.GAP):
                    assert self.told, "a loss is reported, and there was none"
                    self.log.append(LOSS)
                    self.own_losses += 1
                case Poll(after):
                    self.request(lambda after=after: self.poll(after))  # type: ignore[misc]
                case Subscribe(id, after):
                    self.subscribed.append(id)
                    self.request(lambda id=id, after=after: self.subscribe(id, after))  # type: ignore[misc]
                case Cancel(id):
                    self.cancelled.append(id)
                    self.request(lambda id=id: self.cancel(id))  # type: ignore[misc]

    def enqueue(self, cursor: str) -> None:
        """Check one event: it is the next one, or a loss was reported; and it is new to this life and its beginning."""
        before, expected = self.log[-1] if self.log else "0", self.parents[cursor]
        while expected not in (before, "0") and self.is_behind(expected):
            expected = self.parents[expected]
        assert before in (LOSS, expected), f"{cursor} behind {before}"
        assert cursor not in self.own, f"{cursor} again"
        if cursor in self.log:
            # Of earlier epochs, only their cursors would know.
            assert self.own_losses, f"{cursor} again"
            assert Place.of(cursor).epoch != self.beginning.epoch, f"{cursor} again"
        self.own.add(cursor)
        self.log.append(cursor)

    def is_behind(self, cursor: str) -> bool:
        """Return whether this life has passed an event before: then it has it, or the loss was reported."""
        return any(Place.of(passed).covers(Place.of(cursor)) for passed in {str(self.beginning), *self.own})

    # the end

    def heal(self, strategy: Strategy) -> None:
        self.loss = self.repetition = 0.0
        self.delay = 0.2
        self.up = True
        if self.subscriber is None:
            self.restart(0)
        assert self.subscriber
        self.act(self.subscriber.resume(self.now))
        self.switch(strategy)
        self.run(700.0)

    def check_the_end(self) -> None:
        """The queue ends where the history does, or a loss was reported behind its last event."""
        assert self.subscriber
        reached = self.subscriber.cursor
        assert not self.store.is_gone(reached), f"{reached} is gone, and it was not told"
        assert self.store.after(parse_cursor(reached).id) == []
        if self.store.events and (not self.log or self.log[-1] != LOSS):
            assert self.log, "nothing arrived"
            newest = self.store.events[-1].cursor
            assert newest in self.log or (self.told and self.is_behind(newest))
        if not self.told:
            assert self.log == [each.cursor for each in self.store.events]


seconds = st.sampled_from([0.05, 0.3, 1.5, 10.0, 400.0])
step = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 5)),
    st.tuples(st.just("run"), seconds),
    st.tuples(st.just("net"), st.tuples(st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([0.2, 3.0, 30.0]))),
    st.tuples(st.just("clock"), st.sampled_from([-3600.0, 3600.0, -3e7, 3e7])),
    st.tuples(st.just("publisher"), st.booleans()),
    st.tuples(st.just("off"), st.none()),
    st.tuples(st.just("on"), st.integers(0, 8)),
    st.tuples(st.just("wake"), st.none()),
    st.tuples(st.just("paused"), st.booleans()),
    st.tuples(st.just("poll or both"), st.sampled_from([Strategy.POLL_ONLY, Strategy.PUSH_AND_POLL])),
)
disaster = st.one_of(
    st.tuples(st.just("backup"), st.none()),
    st.tuples(st.just("restore"), st.sampled_from([1, 2, SKIP])),
    st.tuples(st.just("trim"), st.integers(1, 5)),
    st.tuples(st.just("push only"), st.none()),
)


def carry_out(world: World, kind: str, value: Any) -> None:  # noqa: C901
    subscriber = world.subscriber
    match kind:
        case "publish":
            world.publish(value)
        case "run":
            world.run(value)
        case "net":
            world.loss, world.delay = value
            world.repetition = 0.3
        case "clock":
            world.offset += value
        case "publisher":
            world.up = value
        case "off":
            world.subscriber = None
        case "on":
            world.restart(value)
        case "backup":
            world.backup = world.store.copy()
        case "restore":
            world.restore(value)
        case "trim":
            world.trim(value)
        case "push only":
            world.switch(Strategy.PUSH_ONLY)
        case "poll or both":
            world.switch(value)
        case "wake" if subscriber:
            world.act(subscriber.wake(world.now))
        case "paused" if subscriber and value:
            subscriber.pause()
        case "paused" if subscriber:
            world.act(subscriber.resume(world.now))


fixed = settings(
    max_examples=300,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""Equal runs every time and everywhere."""

last_strategy = st.sampled_from([Strategy.PUSH_AND_POLL, Strategy.POLL_ONLY])


@fixed
@given(st.integers(0, 2**16), st.lists(step, max_size=30), last_strategy)
def test_the_queue_is_the_history(seed: int, steps: list[tuple[str, Any]], strategy: Strategy) -> None:
    world = World(seed)
    for kind, value in steps:
        carry_out(world, kind, value)
    world.heal(strategy)
    world.check_the_end()


@fixed
@example(
    1,
    [("publish", 5), ("run", 10.0), ("backup", None), ("publish", 5), ("run", 10.0), ("restore", SKIP)],
    Strategy.PUSH_AND_POLL,
    OnGone.EARLIEST,
)
@given(
    st.integers(0, 2**16),
    st.lists(st.one_of(step, disaster), max_size=30),
    last_strategy,
    st.sampled_from([OnGone.EARLIEST, OnGone.LATEST]),
)
def test_the_queue_is_the_history_or_the_loss_was_reported(
    seed: int, steps: list[tuple[str, Any]], strategy: Strategy, on_gone: OnGone
) -> None:
    world = World(seed, on_gone)
    for kind, value in steps:
        carry_out(world, kind, value)
    world.heal(strategy)
    world.check_the_end()


@fixed
@given(st.integers(0, 2**16), st.sampled_from([0.02, 0.3, 3.0]), st.floats(0.0, 0.5), st.sampled_from([-1e6, 0.0, 1e6]))
def test_a_healthy_subscription_is_never_renewed(seed: int, gap: float, wakes: float, offset: float) -> None:
    """Pushes and answers take up to 0.9 and 0.45 s each way, and overtake each other."""
    world = World(seed)
    world.offset, world.repetition, world.page_size = offset + 2e6, 0.2, 1000
    chance = random.Random(seed)
    world.run(3.0)
    for _ in range(60):
        world.delay = 0.9
        world.publish()
        world.delay = 0.45
        world.run(chance.expovariate(1 / gap))
        if chance.random() < wakes and world.subscriber:
            world.act(world.subscriber.wake(world.now))
    world.run(1.0)
    assert len(world.subscribed) == 1
    assert world.cancelled == []
    world.heal(Strategy.PUSH_AND_POLL)
    assert len(world.subscribed) == 1
    world.check_the_end()


@fixed
@given(st.integers(0, 2**16))
def test_a_dead_subscription_is_renewed_and_pushes_again(seed: int) -> None:
    world = World(seed)
    for _ in range(20):
        world.publish()
        world.run(1.0)
    world.store.positions.clear()
    for _ in range(20):
        world.publish()
        world.run(1.0)
    assert world.cancelled == world.subscribed[:1]
    assert len(world.subscribed) == 2
    assert world.subscriber
    assert world.log == [each.cursor for each in world.store.events]
    assert world.subscriber.counts[PushClass.ACCEPTED] > 20, "most events arrived by pushes"


# --- the hub's own word on a loss


class AnsweringWorld(World):
    """World whose publisher gives no time of its own, and knows which pushes were answered: so does a hub.

    Attributes:
        in_order: whether it sends one push at a time, each behind the answer to the one before.
    """

    in_order = False

    def __init__(self, seed: int, on_gone: OnGone = OnGone.EARLIEST, delay: float = 0.2) -> None:
        self.under_way: dict[str, list[ReceivedEvent]] = {}
        """Pushes that are not answered, by subscription."""
        self.recent = RecentPushes()
        super().__init__(seed, on_gone, delay)

    def send(self, id: str, each: ReceivedEvent) -> None:
        waiting = self.under_way.setdefault(id, [])
        waiting.append(each)
        if len(waiting) == 1 or not self.in_order:
            super().send(id, each)

    def pushed(self, id: str, each: ReceivedEvent) -> None:
        waiting = self.under_way[id]
        if each in waiting:
            waiting.remove(each)
            if waiting and self.in_order:
                super().send(id, waiting[0])
        self.recent.add(each.cursor)
        super().pushed(id, each)

    def standing(self, id: str) -> Standing:
        if id not in self.store.positions:
            return Standing.missing()
        waiting = [int(each.id) - 1 for each in self.under_way.get(id, [])]
        position = min([*waiting, self.store.positions[id]])
        return Standing.of({"state": "live", "position": self.store.cursor(position)})

    def poll(self, cursor: str) -> Callable[[SubscriptionState], list[Action]]:
        store = self.store
        if store.is_gone(cursor):
            return self.gone()
        found = store.after(parse_cursor(cursor).id)
        page, more = found[: self.page_size], len(found) > self.page_size
        end = page[-1].cursor if more else store.cursor(store.newest)

        def give(each: SubscriptionState) -> list[Action]:
            # The subscription is asked for behind the page.
            id = each.subscription_id
            standing = None if id is None or more or not page else self.standing(id)
            missing = self.recent.missing(page, each.cursor)
            time = NEVER if standing is None else standing.time(missing)
            return each.page(page, end, self.now, more=more, server_time=time)

        return give


@fixed
@given(
    st.integers(0, 2**16),
    st.lists(st.one_of(step, disaster), max_size=30),
    last_strategy,
    st.sampled_from([OnGone.EARLIEST, OnGone.LATEST]),
)
def test_the_queue_is_the_history_by_the_word_of_the_hub(
    seed: int, steps: list[tuple[str, Any]], strategy: Strategy, on_gone: OnGone
) -> None:
    world = AnsweringWorld(seed, on_gone)
    for kind, value in steps:
        carry_out(world, kind, value)
    world.heal(strategy)
    world.check_the_end()


@pytest.mark.parametrize(("gap", "delay"), [(0.1, 0.15), (0.3, 0.5), (1.0, 0.9), (20.0, 0.9)])
def test_a_busy_and_healthy_topic_renews_nothing_for_ten_minutes(gap: float, delay: float) -> None:
    """Each push takes up to ``delay`` seconds and waits for the one before; polls beside the countdown, each 3 s."""
    world = AnsweringWorld(11)
    world.in_order = True
    chance = random.Random(11)
    world.page_size = 1000
    world.run(3.0)
    begun, woken = world.now, world.now
    while world.now < begun + 600.0:
        world.delay = delay
        world.publish()
        world.run(chance.expovariate(1 / gap))
        if world.subscriber and world.now > woken + 3.0:
            woken = world.now
            world.act(world.subscriber.wake(world.now))
    world.run(10.0)
    assert world.cancelled == []
    assert len(world.subscribed) == 1, "0 renewals"
    assert world.subscriber
    assert world.log == [each.cursor for each in world.store.events]
    assert world.subscriber.counts[PushClass.ACCEPTED] > len(world.log) / 2


@pytest.mark.parametrize("delay", [0.3, 0.9])
def test_overtaking_pushes_renew_nothing_for_ten_minutes(delay: float) -> None:
    """The publisher gives the time of its answers; a push is dropped if one before it is late, and polled for."""
    world = World(11)
    chance = random.Random(11)
    world.page_size = 1000
    world.run(3.0)
    begun = world.now
    while world.now < begun + 600.0:
        world.delay = delay
        world.publish()
        world.delay = delay / 3
        world.run(chance.expovariate(1 / 0.1))
    world.run(10.0)
    assert (len(world.subscribed), world.cancelled) == (1, [])
    assert world.log == [each.cursor for each in world.store.events]


@fixed
@given(st.integers(0, 2**16))
def test_a_loss_that_the_hub_knows_of_renews_at_the_next_poll(seed: int) -> None:
    world = AnsweringWorld(seed)
    for _ in range(10):
        world.publish()
        world.run(1.0)
    world.run(30.0)
    assert len(world.subscribed) == 1
    world.loss = 1.0
    world.publish()
    world.loss = 0.0
    world.run(310.0)
    assert world.cancelled == world.subscribed[:1]
    assert len(world.subscribed) == 2
    world.check_the_end()
