"""States of a session's recovery and the transitions between them; docs/recovery.md has them as a drawing.

A session with ids is in exactly one ``State``. ``TRANSITIONS`` has the events that each state expects, and the state
that follows; any other event is a defect and raises ``UnexpectedEvent``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from gripproxy.grip.errors import InternalError

__all__ = ["TRANSITIONS", "Event", "State", "UnexpectedEvent", "following"]


class State(Enum):
    """State of a session's recovery.

    Args:
        meaning: for the documentation.
        keeps_items: items that arrive are kept until the response to a query.
    """

    def __init__(self, meaning: str, keeps_items: bool) -> None:
        self.meaning = meaning
        self.keeps_items = keeps_items

    # By identity: that of Enum is a function of Python, and a call for every look-up in the table.
    __hash__ = object.__hash__

    STARTING = "the stream has not begun: a channel is not confirmed yet", False
    STARTING_DUE = "the stream has not begun, and a query is due as soon as it has", False
    IDLE = "items that follow are delivered; a timer counts down to the next query", False
    QUEUED = "a query waits for its turn in the scheduler", False
    GRANTED = "a query has its turn, and is sent when no other request of the WebSocket is under way", False
    FLUSHING = "a query is sent when the filters have passed the items before it", True
    READY = "a query can be sent: the filters have passed the items before it", True
    QUERYING = "a query is under way", True
    PAGING = "the next page is requested when the client has read the one before", True
    RETRY_WAIT = "the query of a stream failed, and is repeated after a pause", True
    RETRY_QUEUED = "the query of a stream is to be repeated, and waits for its turn in the scheduler", True
    CATCHING_UP = "the response is complete: items that were kept are delivered as far as they follow it", False
    BACKING_OFF = "the query of a WebSocket failed: another is due after a pause", False
    BEHIND = "the client does not read and has missed an item: a query is due when it reads again", False
    CLOSED = "the session is over, or its backend has detached", False


class Event(Enum):
    """Cause of a change of state; the value describes it."""

    __hash__ = object.__hash__

    BEGUN = "all channels of the stream are confirmed"
    DUE = "a query is due: a gap, a loss, an item published meanwhile, or a quiet time"
    URGENT = "a query is due now: a hint, or the first page"
    MISSED = "an item was left out because the client does not read"
    WRITABLE = "the client reads again"
    GRANTED = "the scheduler gives the query its turn"
    UNREAD = "the query is not sent because the client does not read"
    NO_IDS = "the query is not sent because no channel has an id"
    FILTERING = "a filter works on an earlier item"
    FILTERED = "the filters have passed the earlier items"
    SENT = "the query is sent"
    PAGE = "the response names a next page, which is requested"
    PAGE_DEFERRED = "the response names a next page, but the client does not read"
    ANSWERED = "the response is complete, or no more is expected"
    CAUGHT_UP = "the kept items are dealt with"
    RETRY = "the query of a stream failed"
    BACK_OFF = "the query of a WebSocket failed, or its response lacks what is missing"
    PAUSE_OVER = "the pause after a failure is over"


_S, _E = State, Event

TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    _S.STARTING: {_E.DUE: _S.STARTING_DUE, _E.BEGUN: _S.IDLE},
    _S.STARTING_DUE: {_E.DUE: _S.STARTING_DUE, _E.BEGUN: _S.QUEUED},
    _S.IDLE: {
        _E.DUE: _S.QUEUED,
        _E.URGENT: _S.QUEUED,
        _E.MISSED: _S.BEHIND,
        # The response just dealt with lacked the missing items; so in QUEUED and BEHIND.
        _E.BACK_OFF: _S.BACKING_OFF,
    },
    _S.QUEUED: {
        _E.DUE: _S.QUEUED,
        _E.URGENT: _S.QUEUED,
        _E.MISSED: _S.QUEUED,
        _E.GRANTED: _S.GRANTED,
        _E.BACK_OFF: _S.BACKING_OFF,
    },
    _S.GRANTED: {
        _E.DUE: _S.GRANTED,
        _E.URGENT: _S.GRANTED,
        _E.MISSED: _S.GRANTED,
        _E.UNREAD: _S.BEHIND,
        _E.NO_IDS: _S.IDLE,
        _E.FILTERING: _S.FLUSHING,
        _E.SENT: _S.QUERYING,
    },
    _S.FLUSHING: {_E.DUE: _S.FLUSHING, _E.FILTERED: _S.READY},
    _S.READY: {_E.DUE: _S.READY, _E.FILTERING: _S.FLUSHING, _E.NO_IDS: _S.CATCHING_UP, _E.SENT: _S.QUERYING},
    _S.QUERYING: {
        _E.DUE: _S.QUERYING,
        _E.PAGE: _S.QUERYING,
        _E.PAGE_DEFERRED: _S.PAGING,
        _E.ANSWERED: _S.CATCHING_UP,
        _E.RETRY: _S.RETRY_WAIT,
        _E.BACK_OFF: _S.BACKING_OFF,
    },
    _S.PAGING: {_E.DUE: _S.PAGING, _E.WRITABLE: _S.QUERYING},
    _S.RETRY_WAIT: {_E.DUE: _S.RETRY_WAIT, _E.PAUSE_OVER: _S.RETRY_QUEUED},
    _S.RETRY_QUEUED: {_E.DUE: _S.RETRY_QUEUED, _E.GRANTED: _S.READY},
    _S.CATCHING_UP: {
        _E.DUE: _S.CATCHING_UP,
        _E.URGENT: _S.QUEUED,
        _E.MISSED: _S.BEHIND,
        _E.CAUGHT_UP: _S.IDLE,
    },
    _S.BACKING_OFF: {
        _E.DUE: _S.BACKING_OFF,
        _E.URGENT: _S.BACKING_OFF,
        _E.MISSED: _S.BACKING_OFF,
        _E.PAUSE_OVER: _S.QUEUED,
    },
    _S.BEHIND: {
        _E.DUE: _S.QUEUED,
        _E.URGENT: _S.QUEUED,
        _E.MISSED: _S.BEHIND,
        _E.WRITABLE: _S.QUEUED,
        _E.BACK_OFF: _S.BACKING_OFF,
    },
    _S.CLOSED: {},
}
"""The state after an event, by state and event. The end of the session leads from every state to ``CLOSED``."""


class UnexpectedEvent(InternalError):
    """An event that the state does not expect: a defect of gripproxy."""


def following(state: State, event: Event) -> State:
    """Return the state that follows.

    Args:
        state: the state before the event.
        event: the cause of the change.

    Raises:
        UnexpectedEvent: the state does not expect the event.
    """
    found = TRANSITIONS[state].get(event)
    if found is None:
        raise UnexpectedEvent(f"recovery: {event.name} in state {state.name}")
    return found
