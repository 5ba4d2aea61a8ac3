"""States of a delivery: every one has its ends, none is left behind."""

from __future__ import annotations

import pytest

from griphub.sender.delivery_states import TRANSITIONS, Cause, State, UnexpectedCause, following


@pytest.mark.parametrize("state", State)
def test_each_state_can_be_cancelled(state: State) -> None:
    assert following(state, Cause.CANCEL) is State.CANCELLED


@pytest.mark.parametrize("state", [state for state in State if state is not State.CANCELLED])
def test_each_state_can_rest(state: State) -> None:
    assert following(state, Cause.REST) is State.RESTING


@pytest.mark.parametrize("state", [state for state in State if state not in (State.RESTING, State.CANCELLED)])
def test_each_state_can_begin_anew_after_a_fault(state: State) -> None:
    assert following(state, Cause.FAULT) is State.PAUSING


def test_nothing_follows_the_end() -> None:
    assert set(TRANSITIONS[State.CANCELLED].values()) == {State.CANCELLED}


def test_no_event_is_sent_before_a_page_confirmed_the_place() -> None:
    """SENDING is entered from states that know the events up to the window."""
    before = {state for state, causes in TRANSITIONS.items() if State.SENDING in causes.values()}
    assert before == {State.REPLAYING, State.LIVE, State.SENDING}


@pytest.mark.parametrize(
    ("state", "cause"),
    [(State.LIVE, Cause.PAUSE), (State.CHALLENGING, Cause.EVENTS), (State.CANCELLED, Cause.MORE)],
)
def test_other_causes_are_defects(state: State, cause: Cause) -> None:
    with pytest.raises(UnexpectedCause, match=f"{cause.name} in the state {state.name}: expected"):
        following(state, cause)
