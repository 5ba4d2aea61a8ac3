"""The table of states: complete, without a dead end, and drawn in the documentation as it is."""

from __future__ import annotations

import pytest

from gripproxy.sessions.recovery_states import TRANSITIONS, Event, State, UnexpectedEvent, following
from tests.support.recovery_drawing import PAGE, page

BEGINNINGS = (State.STARTING, State.IDLE)
OPEN = [state for state in State if state is not State.CLOSED]


def reached(state: State) -> set[State]:
    """All states that a session can get to, itself included."""
    found, new = set(), {state}
    while new:
        found |= new
        new = {target for one in new for target in TRANSITIONS[one].values()} - found
    return found


def test_every_state_has_its_transitions() -> None:
    assert set(TRANSITIONS) == set(State)


def test_every_state_can_be_reached() -> None:
    assert set().union(*map(reached, BEGINNINGS)) == set(OPEN)


@pytest.mark.parametrize("state", OPEN)
def test_from_every_state_a_session_gets_back_to_delivering(state: State) -> None:
    assert State.IDLE in reached(state)


def test_every_event_is_expected_somewhere() -> None:
    expected = {event for events in TRANSITIONS.values() for event in events}
    assert expected == set(Event)


@pytest.mark.parametrize("state", State)
def test_an_event_that_is_not_expected_is_an_error(state: State) -> None:
    for event in set(Event) - set(TRANSITIONS[state]):
        with pytest.raises(UnexpectedEvent, match=f"{event.name} in state {state.name}"):
            following(state, event)


@pytest.mark.parametrize("state", OPEN[2:])
def test_while_items_are_kept_none_is_missed_or_a_hint(state: State) -> None:
    """Both are noticed when the item is checked."""
    if state.keeps_items:
        assert not {Event.MISSED, Event.URGENT} & set(TRANSITIONS[state])
    else:
        assert {Event.MISSED, Event.URGENT} <= set(TRANSITIONS[state])


def test_a_query_that_becomes_due_is_forgotten_in_no_state() -> None:
    for state in OPEN:
        assert TRANSITIONS[state][Event.DUE] in {state, State.QUEUED, State.STARTING_DUE}


def test_the_page_of_the_documentation_is_made_from_the_table() -> None:
    assert PAGE.read_text() == page(), "python -m tests.support.recovery_drawing writes it anew"
