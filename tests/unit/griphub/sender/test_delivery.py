"""One subscription: calls in, orders out."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from griphub.sender.delivery import READ_PAUSE, Delivery, UnexpectedOutcome
from griphub.sender.delivery_actions import DeliveryLimits, Queue, Read, SendChallenge, SendEvent, Sleep
from griphub.sender.delivery_states import RestReason, State
from griphub.sender.failure_class import SUCCESS, FailureClass, Verdict, failed
from griphub.sender.window import WindowBudget

TIMEOUT = failed(FailureClass.TIMEOUT)
MIDDLE = 0.5  # the chance that neither shortens nor lengthens a pause
LIMITS = DeliveryLimits(tries=4, challenge_tries=2, events_max=3, bytes_max=100, save_events=2)


@dataclass(frozen=True)
class Event:
    id: int
    prev_id: int
    size: int = 10


E11, E12, E13, E14, E15 = (Event(id, id - 1) for id in range(11, 16))


def sending(event: Event, attempt: int = 1) -> SendEvent[Event]:
    return SendEvent(event, attempt)


def delivery(*, confirmed: bool = True, budget: int = 1000, limits: DeliveryLimits = LIMITS) -> Delivery[Event]:
    """Return the delivery of a subscription to all above 10."""
    return Delivery(10, limits, WindowBudget(budget), lambda: MIDDLE, confirmed=confirmed)


@pytest.fixture
def live() -> Delivery[Event]:
    """All was delivered, up to 10."""
    one = delivery()
    assert one.start() == Queue()
    assert one.admitted() == Read(10, 3)
    assert one.page([], 10, False, 0.0) is None
    assert one.state is State.LIVE
    return one


@pytest.fixture
def in_flight(live: Delivery[Event]) -> Delivery[Event]:
    """The event 11 is under way."""
    assert live.live(E11) == Queue()
    assert live.admitted() == sending(E11)
    return live


# --- challenge


def test_a_challenge_is_first() -> None:
    one = delivery(confirmed=False)
    assert (one.start(), one.state) == (Queue(), State.CHALLENGING)
    assert one.live(E11) is None
    assert one.admitted() == SendChallenge(1)
    assert one.answered(SUCCESS, 0.0) == Queue()
    assert (one.confirmed, one.state) == (True, State.REPLAYING)
    assert one.admitted() == Read(10, 3)
    assert one.page([E11], 11, False, 0.0) == sending(E11)


def test_a_challenge_has_few_tries() -> None:
    one = delivery(confirmed=False)
    one.start()
    assert one.admitted() == SendChallenge(1)
    assert one.answered(failed(FailureClass.MALFORMED), 100.0) == Sleep(101.0)
    assert one.wake(101.0) == Queue()
    assert one.admitted() == SendChallenge(2)
    assert one.answered(failed(FailureClass.MALFORMED), 102.0) is None
    assert (one.state, one.rest_reason, one.failure) == (
        State.RESTING,
        RestReason.CALLBACK,
        FailureClass.MALFORMED,
    )
    assert one.renew() == Queue()
    assert one.admitted() == SendChallenge(1)


# --- in order, from the store and live


def test_history_then_live() -> None:
    one = delivery()
    one.start()
    assert one.admitted() == Read(10, 3)
    assert one.admitted() is None
    assert one.page([E11, E12], 12, True, 0.0) == sending(E11)
    assert one.answered(SUCCESS, 0.0) == Queue()
    assert (one.position.id, one.admitted()) == (11, sending(E12))
    assert one.answered(SUCCESS, 0.0) == Queue()
    assert one.admitted() == Read(12, 3)
    assert one.page([E13], 13, False, 0.0) == sending(E13)
    assert one.live(E14) is None
    assert one.answered(SUCCESS, 0.0) == Queue()
    assert one.admitted() == sending(E14)
    assert one.answered(SUCCESS, 0.0) is None
    assert (one.state, one.position.id) == (State.LIVE, 14)


def test_an_event_committed_while_a_page_is_read_is_in_the_next() -> None:
    one = delivery()
    one.start()
    one.admitted()
    assert one.live(E11) is None
    assert one.page([], 10, False, 0.0) == Sleep(READ_PAUSE)  # of a reader that does not see the commit yet
    assert one.wake(READ_PAUSE) == Queue()
    assert one.admitted() == Read(10, 3)
    assert one.page([E11], 11, False, 6.0) == sending(E11)


def test_an_event_that_the_page_has_already_is_sent_once() -> None:
    one = delivery()
    one.start()
    one.admitted()
    one.live(E11)
    assert one.page([E11], 11, False, 0.0) == sending(E11)
    assert one.live(E11) is None
    assert one.answered(SUCCESS, 0.0) is None
    assert (one.state, one.live(E11)) == (State.LIVE, None)


def test_a_place_between_events(live: Delivery[Event]) -> None:
    assert live.live(Event(20, 7)) == Queue()
    assert live.admitted() == sending(Event(20, 7))


def test_a_lost_event_is_read(live: Delivery[Event]) -> None:
    assert live.live(E12) == Queue()
    assert live.state is State.REPLAYING
    assert live.admitted() == Read(10, 3)
    assert live.page([E11, E12], 12, False, 0.0) == sending(E11)


def test_a_hint_is_as_good_as_an_event(live: Delivery[Event]) -> None:
    assert live.hint(10) is None
    assert live.hint(12) == Queue()
    assert live.admitted() == Read(10, 3)


def test_a_page_without_events_moves_the_position() -> None:
    one = delivery()
    one.start()
    one.admitted()
    assert one.page([], 500, False, 7.0) is None
    assert (one.state, one.position.id, one.position.save_due(12.0)) == (State.LIVE, 500, True)


def test_a_page_that_overlaps_the_one_before() -> None:
    one = delivery()
    one.start()
    one.admitted()
    assert one.page([Event(10, 9), E11], 11, False, 0.0) == sending(E11)


def test_a_reader_that_lags_behind_delivered_events() -> None:
    one = delivery()
    one.start()
    one.admitted()
    one.page([E11, E12], 12, False, 0.0)
    one.answered(TIMEOUT, 0.0)
    one.wake(1.0)
    one.admitted()
    assert one.page([E11], 11, False, 1.0) == sending(E11, 2)
    assert one.answered(SUCCESS, 1.0) == Queue()
    assert one.admitted() == Read(11, 3)


def test_a_page_without_events_and_more_to_read() -> None:
    one = delivery()
    one.start()
    one.admitted()
    assert one.page([], 500, True, 7.0) == Queue()
    assert one.admitted() == Read(500, 3)


# --- bounded


def test_events_beyond_the_window_are_read_again(in_flight: Delivery[Event]) -> None:
    for event in (E12, E13, E14, E15):
        assert in_flight.live(event) is None
    for event in (E12, E13):
        assert in_flight.answered(SUCCESS, 0.0) == Queue()
        assert in_flight.admitted() == sending(event)
    assert in_flight.answered(SUCCESS, 0.0) == Queue()
    assert in_flight.admitted() == Read(13, 3)
    assert in_flight.page([E14, E15], 15, False, 0.0) == sending(E14)


def test_an_event_that_is_larger_than_the_window(live: Delivery[Event]) -> None:
    large = Event(11, 10, 5000)
    assert live.live(large) == Queue()
    assert live.admitted() == Read(10, 3)
    assert live.page([large, E12], 12, False, 0.0) == sending(large)
    assert live.answered(SUCCESS, 0.0) == Queue()
    assert live.admitted() == Read(11, 3)


def test_without_budget_events_are_read() -> None:
    one = delivery(budget=0)
    one.start()
    one.admitted()
    assert one.page([], 10, False, 0.0) is None
    assert one.live(E11) == Queue()
    assert one.admitted() == Read(10, 3)


# --- failures


def test_pauses_grow_and_end_in_rest(in_flight: Delivery[Event]) -> None:
    now = 100.0
    for attempt, pause in ((1, 1.0), (2, 2.0), (3, 4.0)):
        assert in_flight.answered(TIMEOUT, now) == Sleep(now + pause)
        assert in_flight.state is State.PAUSING
        now += pause
        assert in_flight.wake(now) == Queue()
        assert in_flight.admitted() == Read(10, 1)
        assert in_flight.page([E11], 11, True, now) == sending(E11, attempt + 1)
    assert in_flight.answered(TIMEOUT, now) is None
    assert (in_flight.state, in_flight.rest_reason, in_flight.failure, in_flight.position.id) == (
        State.RESTING,
        RestReason.CALLBACK,
        FailureClass.TIMEOUT,
        10,
    )
    assert (in_flight.wake(now + 1e6), in_flight.live(E12), in_flight.admitted()) == (None, None, None)


def test_a_success_forgives(in_flight: Delivery[Event]) -> None:
    in_flight.answered(TIMEOUT, 0.0)
    in_flight.wake(1.0)
    in_flight.admitted()
    in_flight.page([E11], 11, True, 1.0)
    assert in_flight.failure is FailureClass.TIMEOUT
    assert in_flight.answered(SUCCESS, 1.0) == Queue()
    assert in_flight.failure is None
    assert in_flight.admitted() == Read(11, 3)
    assert in_flight.page([E12], 12, False, 1.0) == sending(E12)
    assert in_flight.answered(TIMEOUT, 2.0) == Sleep(3.0)


def test_a_callback_that_asks_for_a_pause(in_flight: Delivery[Event]) -> None:
    assert in_flight.answered(Verdict(FailureClass.SERVER_ERROR, 60.0), 100.0) == Sleep(160.0)
    assert in_flight.wake(159.9) == Sleep(160.0)
    assert in_flight.wake(160.0) == Queue()


def test_a_callback_that_is_gone_rests(in_flight: Delivery[Event]) -> None:
    assert in_flight.answered(failed(FailureClass.GONE), 0.0) is None
    assert (in_flight.state, in_flight.failure) == (State.RESTING, FailureClass.GONE)


def test_events_during_a_pause_take_no_memory() -> None:
    budget = WindowBudget(1000)
    one: Delivery[Event] = Delivery(10, LIMITS, budget, lambda: MIDDLE, confirmed=True)
    one.start()
    one.admitted()
    one.page([E11, E12], 12, False, 0.0)
    assert budget.used == 20
    one.answered(TIMEOUT, 0.0)
    one.live(E13)
    assert budget.used == 0


def test_a_store_that_is_away_does_not_count_as_a_try() -> None:
    one = delivery()
    one.start()
    now = 0.0
    for pause in (READ_PAUSE, 2 * READ_PAUSE, 4 * READ_PAUSE, 8 * READ_PAUSE, 16 * READ_PAUSE):
        assert one.admitted() == Read(10, 3)
        assert one.not_read(now) == Sleep(now + pause)
        now += pause
        assert one.wake(now) == Queue()
    assert one.failure is None


def test_a_postponed_page_is_read_again_with_its_next_place() -> None:
    one = delivery()
    one.start()
    for _ in range(3):
        assert one.admitted() == Read(10, 3)
        assert one.postponed() == Queue()
    assert one.admitted() == Read(10, 3)
    one.cancel()
    assert one.postponed() is None


def test_a_fault_forgets_the_request_and_begins_anew_at_the_position(in_flight: Delivery[Event]) -> None:
    assert in_flight.live(E12) is None
    assert in_flight.fault(100.0) == Sleep(101.0)
    assert (in_flight.state, in_flight.in_flight) == (State.PAUSING, False)
    assert in_flight.wake(100.5) == Sleep(101.0)
    assert in_flight.wake(101.0) == Queue()
    assert in_flight.admitted() == Read(10, 3)
    assert in_flight.fault(101.0) == Sleep(103.0), "while a page is read"
    assert in_flight.wake(103.0) == Queue()
    assert in_flight.admitted() == Read(10, 3)
    assert in_flight.page([E11, E12], 12, False, 103.0) == sending(E11)


def test_faults_in_sequence_are_a_rest_and_a_success_forgives(live: Delivery[Event]) -> None:
    for number in range(6):
        assert isinstance(live.fault(0.0), Sleep)
        assert live.wake(100.0) == Queue()
        assert live.admitted() == Read(10 + number, 3)
        event = Event(11 + number, 10 + number)
        assert live.page([event], event.id, False, 0.0) == sending(event)
        assert live.answered(SUCCESS, 0.0) is None
    for number in range(4):
        action = live.fault(0.0)
        assert (action is None) == (number == 3)
    assert (live.state, live.rest_reason) == (State.RESTING, RestReason.FAULT)
    assert live.fault(0.0) is None
    assert live.renew() == Queue()
    assert isinstance(live.fault(0.0), Sleep)
    live.cancel()
    assert live.fault(0.0) is None
    assert live.state is State.CANCELLED


def test_a_fault_during_a_challenge() -> None:
    one = delivery(confirmed=False)
    assert one.start() == Queue()
    assert one.admitted() == SendChallenge(1)
    assert isinstance(one.fault(0.0), Sleep)
    assert one.wake(100.0) == Queue()
    assert one.admitted() == SendChallenge(1)


def test_outcomes_without_a_request_are_defects(live: Delivery[Event]) -> None:
    with pytest.raises(UnexpectedOutcome, match="no request is under way"):
        live.answered(SUCCESS, 0.0)
    with pytest.raises(UnexpectedOutcome, match="none was being read"):
        live.page([], 10, False, 0.0)
    with pytest.raises(UnexpectedOutcome, match="none was being read"):
        live.not_read(0.0)
    with pytest.raises(UnexpectedOutcome, match="none was being read"):
        live.postponed()


# --- rest


@pytest.mark.parametrize("reason", [RestReason.RIGHTS_ENDED, RestReason.REVOKED])
def test_rest_during_a_request(in_flight: Delivery[Event], reason: RestReason) -> None:
    in_flight.live(E12)
    in_flight.rest(reason)
    assert (in_flight.state, in_flight.rest_reason, in_flight.in_flight) == (State.RESTING, reason, True)
    assert in_flight.answered(SUCCESS, 0.0) is None
    assert (in_flight.position.id, in_flight.admitted()) == (11, None)
    assert in_flight.renew() == Queue()
    assert in_flight.admitted() == Read(11, 3)


def test_a_failure_after_the_rest_began_keeps_its_reason(in_flight: Delivery[Event]) -> None:
    in_flight.rest(RestReason.REVOKED)
    assert in_flight.answered(TIMEOUT, 0.0) is None
    assert in_flight.rest_reason is RestReason.REVOKED


@pytest.mark.parametrize("verdict", [SUCCESS, TIMEOUT])
def test_renewed_while_an_older_request_is_under_way(in_flight: Delivery[Event], verdict: Verdict) -> None:
    in_flight.rest(RestReason.RIGHTS_ENDED)
    assert in_flight.renew() is None
    assert in_flight.admitted() is None
    if verdict is SUCCESS:
        assert in_flight.answered(SUCCESS, 0.0) == Queue()
        assert in_flight.admitted() == Read(11, 3)
    else:
        assert in_flight.answered(TIMEOUT, 0.0) == Sleep(1.0)
        assert in_flight.wake(1.0) == Queue()
        assert in_flight.admitted() == Read(10, 1)


def test_renewed_while_an_older_challenge_is_under_way() -> None:
    one = delivery(confirmed=False)
    one.start()
    one.admitted()
    one.rest(RestReason.RIGHTS_ENDED)
    assert (one.renew(), one.state) == (None, State.CHALLENGING)
    assert one.admitted() is None
    assert one.answered(SUCCESS, 0.0) == Queue()
    assert one.admitted() == Read(10, 3)


def test_confirmed_while_it_rests() -> None:
    one = delivery(confirmed=False)
    one.start()
    one.admitted()
    one.rest(RestReason.RIGHTS_ENDED)
    assert one.answered(SUCCESS, 0.0) is None
    assert (one.confirmed, one.renew(), one.state) == (True, Queue(), State.REPLAYING)


def test_rest_while_a_page_is_read() -> None:
    one = delivery()
    one.start()
    one.admitted()
    one.rest(RestReason.BEHIND)
    assert one.page([E11], 11, False, 0.0) is None
    assert (one.state, one.position.id) == (State.RESTING, 10)


def test_a_pause_is_not_shortened_by_making_it_again(in_flight: Delivery[Event]) -> None:
    assert in_flight.renew() is None
    in_flight.answered(TIMEOUT, 0.0)
    assert (in_flight.renew(), in_flight.state) == (None, State.PAUSING)


def test_a_subscription_that_rested_when_the_hub_ended() -> None:
    one: Delivery[Event] = Delivery(
        10,
        LIMITS,
        WindowBudget(),
        lambda: MIDDLE,
        confirmed=True,
        rest=RestReason.CALLBACK,
        failure=FailureClass.TLS,
    )
    assert (one.start(), one.state, one.failure) == (None, State.RESTING, FailureClass.TLS)
    assert one.renew() == Queue()


# --- cancelled


def test_cancelled_while_a_retry_sleeps(in_flight: Delivery[Event]) -> None:
    in_flight.answered(TIMEOUT, 0.0)
    assert not in_flight.cancel()
    assert in_flight.wake(1e9) is None
    assert (in_flight.admitted(), in_flight.renew(), in_flight.live(E12), in_flight.hint(99)) == (None,) * 4


@pytest.mark.parametrize("verdict", [SUCCESS, TIMEOUT])
def test_cancelled_during_a_request(in_flight: Delivery[Event], verdict: Verdict) -> None:
    assert in_flight.cancel()
    assert in_flight.cancel()
    assert in_flight.answered(verdict, 0.0) is None
    assert (in_flight.in_flight, in_flight.state, in_flight.admitted()) == (False, State.CANCELLED, None)


def test_cancelled_while_a_page_is_read() -> None:
    one = delivery()
    one.start()
    one.admitted()
    assert not one.cancel()
    assert one.page([E11], 11, False, 0.0) is None
    other = delivery()
    other.start()
    other.admitted()
    other.cancel()
    assert other.not_read(0.0) is None


def test_a_rest_does_not_undo_the_end(live: Delivery[Event]) -> None:
    live.cancel()
    live.rest(RestReason.REVOKED)
    assert (live.state, live.rest_reason) == (State.CANCELLED, None)
