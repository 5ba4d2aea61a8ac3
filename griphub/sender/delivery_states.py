"""States of a subscription's delivery, and the transitions between them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from gripproxy.grip.errors import InternalError

__all__ = ["TRANSITIONS", "Cause", "RestReason", "State", "UnexpectedCause", "following"]


class State(enum.Enum):
    """State of a delivery; the value describes it."""

    # By identity: that of Enum is a function of Python, and a call for every look-up in the table.
    __hash__ = object.__hash__

    CHALLENGING = "the challenge waits for its place, or for its answer"
    REPLAYING = "a page of the store waits for its place, is being read, or waits for a request older than a rest"
    LIVE = "all events were delivered: the next one is published"
    SENDING = "the first event of the window waits for its place, or for its answer"
    PAUSING = "an attempt failed: another is made after a pause"
    RESTING = "no request is made until the subscription is made again"
    CANCELLED = "no request is made any more"


class Cause(enum.Enum):
    """Cause of a change of state; the value describes it."""

    __hash__ = object.__hash__

    UNCONFIRMED = "the callback is to be challenged"
    EVENTS = "the window has an event"
    MORE = "the store has, or may have, further events"
    CAUGHT_UP = "all events were delivered"
    PAUSE = "an attempt failed, or the store did"
    FAULT = "an unexpected error of the sender: it is begun anew after a pause"
    REST = "attempts failed too often, or the subscription has no rights any more"
    CANCEL = "the subscription is deleted"


class RestReason(enum.StrEnum):
    """Reason why a subscription rests; the value is that of the API."""

    CALLBACK = "callback"
    """Failed attempts; their last class is that of the delivery."""
    BEHIND = "behind"
    """The next event is not retained any more."""
    RIGHTS_ENDED = "rights-ended"
    """The time for which the rights of the subscription were granted is over."""
    REVOKED = "revoked"
    """The owner has no rights any more."""
    FAULT = "fault"
    """Unexpected errors of the sender, which its log has."""


_S, _C = State, Cause
_ENDS: Final = {_C.REST: _S.RESTING, _C.CANCEL: _S.CANCELLED}
_BREAKS: Final = {_C.FAULT: _S.PAUSING, **_ENDS}

TRANSITIONS: Final[Mapping[State, Mapping[Cause, State]]] = {
    # The challenge of a callback that is confirmed is followed by a page: its window is empty.
    _S.CHALLENGING: {_C.MORE: _S.REPLAYING, _C.PAUSE: _S.PAUSING, **_BREAKS},
    _S.REPLAYING: {
        _C.EVENTS: _S.SENDING,
        _C.MORE: _S.REPLAYING,
        _C.CAUGHT_UP: _S.LIVE,
        _C.PAUSE: _S.PAUSING,
        **_BREAKS,
    },
    _S.LIVE: {_C.EVENTS: _S.SENDING, _C.MORE: _S.REPLAYING, **_BREAKS},
    _S.SENDING: {
        _C.EVENTS: _S.SENDING,
        _C.MORE: _S.REPLAYING,
        _C.CAUGHT_UP: _S.LIVE,
        _C.PAUSE: _S.PAUSING,
        **_BREAKS,
    },
    _S.PAUSING: {_C.UNCONFIRMED: _S.CHALLENGING, _C.MORE: _S.REPLAYING, **_BREAKS},
    _S.RESTING: {_C.UNCONFIRMED: _S.CHALLENGING, _C.MORE: _S.REPLAYING, **_ENDS},
    _S.CANCELLED: {_C.CANCEL: _S.CANCELLED},
}
"""The state after a cause, by state and cause."""


class UnexpectedCause(InternalError):
    """Cause that the state of a delivery does not expect."""


def following(state: State, cause: Cause) -> State:
    """Return the state after a cause.

    Args:
        state: the current one.
        cause: of the change.

    Raises:
        UnexpectedCause: the state does not expect it.
    """
    try:
        return TRANSITIONS[state][cause]
    except KeyError:
        expected = ", ".join(one.name for one in TRANSITIONS[state])
        raise UnexpectedCause(f"{cause.name} in the state {state.name}: expected {expected}") from None
