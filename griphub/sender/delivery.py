"""Delivery of one subscription: its next request, and its position after an answer. Sans-I/O.

The caller carries out the ``Action`` that a method returns, if it returns one. A delivery that has a request or a page
to get returns ``Queue``, and its caller gives it a place among the requests of all (``host_shares``). With the place,
``admitted`` returns ``Read``, ``SendChallenge`` or ``SendEvent``, and the outcome is given to ``page``, ``postponed``,
``not_read`` or ``answered``. The place is kept while these are returned, and given back after any other result, also
None::

    action = delivery.admitted()
    if isinstance(action, Read):
        action = delivery.page(…)
    if isinstance(action, SendChallenge | SendEvent):
        action = delivery.answered(…)

So one request is under way at a time, and only deliveries with a place have pages of history in memory. Events are
delivered in order, each at least once: the position moves when one was answered with 2xx, and is written later.

Every event that is committed must be given to ``live``, or its id to ``hint``, also while a page is read: an event that
is committed after the page's transaction, and does not follow the delivered ones, is the reason for another page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from griphub.sender.delivery_actions import Action, DeliveryLimits, Queue, Read, SendChallenge, SendEvent, Sleep
from griphub.sender.delivery_states import Cause, RestReason, State, following
from griphub.sender.failure_class import FailureClass, Verdict
from griphub.sender.pauses import Pauses
from griphub.sender.position import Position
from griphub.sender.window import Deliverable, Window, WindowBudget
from gripproxy.grip.errors import InternalError

__all__ = ["READ_PAUSE", "Delivery", "UnexpectedOutcome"]

E = TypeVar("E", bound=Deliverable)

READ_PAUSE: Final = 5.0
"""Seconds of the first pause after a page that could not be read, or that lacks an event known to be stored."""


class UnexpectedOutcome(InternalError):
    """Answer without a request, or page that was not read."""


class Delivery(Generic[E]):
    """Delivery of a topic's events to one callback.

    Args:
        position: id behind which the first event is; that of the last delivered one after a restart of the hub.
        limits: bounds.
        budget: bytes of all windows.
        chance: makes random numbers from 0 up to 1, for pauses.
        confirmed: whether the callback has answered its challenge already.
        rest: reason why the subscription rested when the hub ended; None if it did not.
        failure: class of the failure that was the reason.

    Attributes:
        state: the current one.
        position: id up to which every event of the topic was delivered, and whether it is to be written.
        confirmed: whether the callback has answered its challenge.
        rest_reason: reason why the subscription rests; None if it does not.
        failure: class of the last failure, None after a success.
    """

    __slots__ = (
        "_chance",
        "_failures",
        "_faults",
        "_flight",
        "_limits",
        "_misses",
        "_reading",
        "_seen",
        "_tail",
        "_until",
        "_window",
        "confirmed",
        "failure",
        "position",
        "rest_reason",
        "state",
    )

    def __init__(
        self,
        position: int,
        limits: DeliveryLimits,
        budget: WindowBudget,
        chance: Callable[[], float],
        *,
        confirmed: bool = False,
        rest: RestReason | None = None,
        failure: FailureClass | None = None,
    ) -> None:
        self._limits = limits
        self._chance = chance
        self.position = Position(position, limits.save_events, limits.save_after)
        self.confirmed = confirmed
        self.failure = failure
        self.rest_reason = rest
        self.state = State.RESTING if rest else State.REPLAYING if confirmed else State.CHALLENGING
        self._window: Window[E] = Window(budget, limits.events_max, limits.bytes_max)
        self._tail = position
        """Id up to which the window is complete: the next event of the topic is above it."""
        self._seen = 0
        """Greatest id known to be stored."""
        self._flight: SendChallenge | SendEvent[E] | None = None
        """Request under way, also while resting or cancelled."""
        self._reading = False
        self._failures = 0
        self._misses = 0
        """Pages in sequence that could not be read, or lacked an event."""
        self._faults = 0
        """Unexpected errors since the last success."""
        self._until = 0.0

    # --- orders of the owner

    def start(self) -> Action[E] | None:
        """Begin, after construction.

        Returns:
            ``Queue``, or None for a subscription that rests.
        """
        return None if self.state is State.RESTING else Queue()

    def cancel(self) -> bool:
        """End the delivery; no request begins any more, whichever timer or page is still to arrive.

        Returns:
            Whether a request is under way: its end, or its abortion, is before the answer to the owner.
        """
        self._go(Cause.CANCEL)
        self._forget()
        return self.in_flight

    def rest(self, reason: RestReason) -> None:
        """Make no requests until ``renew``; one that is under way ends by itself, and its success counts.

        Args:
            reason: why it rests.
        """
        if self.state is not State.CANCELLED:
            self._go(Cause.REST)
            self.rest_reason = reason
            self._forget()

    def renew(self) -> Action[E] | None:
        """Begin again at the position after a rest; without effect in any other state, also on a pause.

        Returns:
            ``Queue``, or None if there is no rest, or a request is still under way.
        """
        if self.state is not State.RESTING:
            return None
        self.rest_reason = None
        self._failures = self._misses = self._faults = 0
        # The caller need not pass events to a subscription that rests: a page is needed in any case, also behind the
        # event of a request that is still under way.
        self._go(Cause.MORE if self.confirmed else Cause.UNCONFIRMED)
        return None if self.in_flight else Queue()

    @property
    def in_flight(self) -> bool:
        """True if a request is under way."""
        return self._flight is not None

    # --- events of the topic

    def live(self, event: E) -> Action[E] | None:
        """Take an event that was committed.

        Args:
            event: an event of the topic.

        Returns:
            ``Queue`` if it is the next to be delivered; None if others are before it.
        """
        follows = event.prev_id <= self._tail < event.id
        if self._joined and follows and self._window.add(event):
            self._seen = self._tail = event.id
            return self._begin(Cause.EVENTS) if self.state is State.LIVE else None
        return self.hint(event.id)

    def hint(self, newest: int) -> Action[E] | None:
        """Note that an event is stored, without its content.

        Args:
            newest: its id.

        Returns:
            ``Queue`` if a page is to be read; None if others are before it.
        """
        self._seen = max(self._seen, newest)
        return self._begin(Cause.MORE) if self.state is State.LIVE and self._seen > self._tail else None

    # --- requests

    def admitted(self) -> Action[E] | None:
        """Begin the request or the page that the place was asked for.

        Returns:
            ``Read``, ``SendChallenge`` or ``SendEvent``; None if there is none any more.
        """
        if self.in_flight or self._reading:
            return None
        match self.state:
            case State.CHALLENGING:
                self._flight = SendChallenge(self._failures + 1)
                return self._flight
            case State.REPLAYING:
                self._reading = True
                # After a failure, all but the first event would be read for nothing.
                return Read(self._tail, 1 if self._failures else self._limits.events_max)
            case State.SENDING:
                return self._send()
            case _:
                return None

    def page(self, events: Sequence[E], last: int, more: bool, now: float) -> Action[E] | None:
        """Take a page.

        Args:
            events: of the topic, above ``Read.after``, in order and without a gap.
            last: id up to which the page is complete.
            more: whether the store had further events.
            now: monotonic time in seconds.

        Returns:
            ``SendEvent`` for the first of them, ``Queue`` for another page, ``Sleep``, or None.

        Raises:
            UnexpectedOutcome: no page was being read.
        """
        self._read_ended()
        if self.state is not State.REPLAYING:
            return None
        before = self._tail
        fresh = [event for event in events if event.id > before]
        taken = self._window.fill(fresh)
        whole = taken == len(fresh)
        self._tail = max(before, last) if whole else fresh[taken - 1].id
        if more or not whole:
            self._seen = max(self._seen, self._tail + 1)
        if taken:
            self._misses = 0
            self._go(Cause.EVENTS)
            return self._send()
        self.position.move(self._tail, 0, now)
        if self._seen <= self._tail:
            self._misses = 0
            self._go(Cause.CAUGHT_UP)
            return None
        if self._tail > before:
            return self._begin(Cause.MORE)
        # The reader lags behind the commit: another page right away would find no more.
        return self._pause_reading(now)

    def postponed(self) -> Action[E] | None:
        """Give up a page: its first event needs a place of another kind, with which it is read again.

        Returns:
            ``Queue``, or None.

        Raises:
            UnexpectedOutcome: no page was being read.
        """
        self._read_ended()
        return self._begin(Cause.MORE) if self.state is State.REPLAYING else None

    def not_read(self, now: float) -> Action[E] | None:
        """Note that the store did not give a page; a position below the floor is ``rest(RestReason.BEHIND)`` instead.

        Args:
            now: monotonic time in seconds.

        Returns:
            ``Sleep``, or None.

        Raises:
            UnexpectedOutcome: no page was being read.
        """
        self._read_ended()
        return self._pause_reading(now) if self.state is State.REPLAYING else None

    def answered(self, verdict: Verdict, now: float) -> Action[E] | None:
        """Take the outcome of the request under way.

        Args:
            verdict: success, or a class of failure.
            now: monotonic time in seconds.

        Returns:
            ``Queue`` for the next request, ``Sleep`` before the next attempt, or None.

        Raises:
            UnexpectedOutcome: no request is under way.
        """
        flight, self._flight = self._flight, None
        if flight is None:
            raise UnexpectedOutcome(f"an answer in the state {self.state.name}, and no request is under way")
        if self.state is State.CANCELLED:
            return None
        if verdict.failure is None:
            return self._succeeded(flight, now)
        if self.state is State.RESTING:
            return None
        return self._failed(verdict.failure, verdict.wait, now)

    def wake(self, now: float) -> Action[E] | None:
        """Continue after a pause.

        Args:
            now: monotonic time in seconds.

        Returns:
            ``Queue``; ``Sleep`` if the pause is not over; None if there is no pause: the timer is an old one.
        """
        if self.state is not State.PAUSING:
            return None
        if now < self._until:
            return Sleep(self._until)
        return self._begin(Cause.MORE if self.confirmed else Cause.UNCONFIRMED)

    def fault(self, now: float) -> Action[E] | None:
        """Begin anew at the position after an unexpected error, in any state.

        A request or a page under way is forgotten; the caller has ended it. After ``tries`` errors without a success
        between the subscription rests.

        Args:
            now: monotonic time in seconds.

        Returns:
            ``Sleep``, or None.
        """
        self._flight, self._reading = None, False
        if self.state is State.RESTING or self.state is State.CANCELLED:
            return None
        self._faults += 1
        if self._faults >= self._limits.tries:
            self.rest(RestReason.FAULT)
            return None
        return self._pause(self._limits.pauses.after(self._faults, self._chance()), now, Cause.FAULT)

    # --- the parts of a change

    @property
    def _joined(self) -> bool:
        """True if the window ends at the newest event that is known: the store has none between it and the next."""
        return self.state in {State.LIVE, State.SENDING} and self._seen <= self._tail

    def _go(self, cause: Cause) -> None:
        self.state = following(self.state, cause)

    def _begin(self, cause: Cause) -> Queue:
        self._go(cause)
        return Queue()

    def _forget(self) -> None:
        """Remove the window: its events are read again from the position."""
        self._window.clear()
        self._seen = max(self._seen, self._tail)
        self._tail = self.position.id

    def _send(self) -> SendEvent[E]:
        self._flight = sending = SendEvent(self._window.first, self._failures + 1)
        return sending

    def _read_ended(self) -> None:
        if not self._reading:
            raise UnexpectedOutcome(f"a page in the state {self.state.name}, and none was being read")
        self._reading = False

    def _succeeded(self, flight: SendChallenge | SendEvent[E], now: float) -> Action[E] | None:
        self._failures = self._faults = 0
        self.failure = self.failure if self.state is State.RESTING else None
        if isinstance(flight, SendChallenge):
            self.confirmed = True
        else:
            self.position.move(flight.event.id, 1, now)
            self._window.drop_until(flight.event.id)
            self._tail = max(self._tail, self.position.id)
        if self.state is State.RESTING:
            return None
        if self._window:
            return self._begin(Cause.EVENTS)
        if isinstance(flight, SendEvent) and self._joined:
            self.position.move(self._tail, 0, now)
            self._go(Cause.CAUGHT_UP)
            return None
        return self._begin(Cause.MORE)

    def _failed(self, failure: FailureClass, wait: float | None, now: float) -> Action[E] | None:
        self.failure = failure
        self._failures += 1
        tries = self._limits.tries if self.confirmed else self._limits.challenge_tries
        if self._failures >= tries or not failure.retryable:
            self.rest(RestReason.CALLBACK)
            return None
        return self._pause(self._limits.pauses.after(self._failures, self._chance(), wait), now)

    def _pause_reading(self, now: float) -> Sleep:
        self._misses += 1
        pauses = Pauses(READ_PAUSE, self._limits.pauses.longest)
        return self._pause(pauses.after(self._misses, self._chance()), now)

    def _pause(self, seconds: float, now: float, cause: Cause = Cause.PAUSE) -> Sleep:
        self._go(cause)
        # A subscription that pauses has no event in memory.
        self._forget()
        self._until = now + seconds
        return Sleep(self._until)
