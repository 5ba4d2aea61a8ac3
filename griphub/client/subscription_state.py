"""State of a subscriber: pushes and polls in, events in order and requests out. Sans-I/O; times are handed in.

A push is an optimisation of a poll, so both enter one queue by one rule: an event is accepted if it follows the last
accepted one directly. A repetition is dropped, a gap is closed by a poll.

    IDLE            nothing under way: a gap, the countdown or ``wake`` begins a poll
    POLLING         a page was asked for; pushes go on, the first of both wins
    SUBSCRIBING     a subscription with a new id was asked for
    RESUBSCRIBING   the subscription that failed, or is not wanted, is being cancelled; its id counts no more
    BACKING_OFF     a request failed; the subscription stands
    STOPPED         the end

One request is under way at a time, and each has one answer: ``page``, ``gone``, ``subscribed``, ``refused``,
``cancelled`` or ``failed``, the last one also after the caller's time limit. Before ``deadline`` has passed, ``timer``
does nothing. An epoch's ids are issued once: that is the publisher's part of the agreement.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from griphub.client.countdown import Countdown
from griphub.client.errors import BadAnswer
from griphub.client.received import ReceivedEvent
from griphub.client.retry import Backoff
from griphub.client.subscription_actions import (
    ANSWERS,
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
from griphub.client.subscription_places import Link, Place, seconds_of

__all__ = ["State", "SubscriptionState"]

LOSS_AGE: Final = 1.0
"""Seconds after which an event without push proves a loss: a younger one may be under way."""

LOSS_ROUND_TRIPS: Final = 3
"""Times that the poll took, after which an event without push proves a loss."""

DROPPED_MAX: Final = 256
"""Pushes dropped for a gap that are remembered: they were received, so the poll that has them proves no loss. The
oldest is forgotten; at worst the subscription is renewed without need."""

EPOCHS_MAX: Final = 8
"""Epochs left behind whose last place is remembered. The oldest is forgotten: events may then be repeated."""

REFUSED_MAX: Final = 300.0
"""Seconds of the longest pause after a refused subscription; the first is 1 s, and each is twice the one before."""


class State(enum.Enum):
    """State of the subscriber, by the request under way."""

    IDLE = "idle"
    POLLING = "polling"
    SUBSCRIBING = "subscribing"
    RESUBSCRIBING = "resubscribing"
    BACKING_OFF = "backing off"
    STOPPED = "stopped"


class _Standing(enum.Enum):
    """Knowledge about the subscription with the current id."""

    NONE = "none"
    ASKED = "asked"
    UNSURE = "unsure"
    """Asked for, and not answered: the publisher may have it."""
    LIVE = "live"
    FAILED = "failed"


class SubscriptionState:
    """Decisions of a subscriber.

    Args:
        after: cursor of the last event that was processed, or ``0`` for the beginning: all that a restart needs.
        new_id: makes the id of a subscription, which must be random: pushes with it are data.
        chance: makes random numbers from 0 up to 1, for pauses.
        strategy: ways by which events arrive.
        on_gone: place to go on from when events are not retained.
        countdown: to the next poll; None for the usual bounds.

    Raises:
        BadAnswer: ``after`` is no cursor.
    """

    def __init__(
        self,
        after: str,
        new_id: Callable[[], str],
        chance: Callable[[], float],
        *,
        strategy: Strategy = Strategy.PUSH_AND_POLL,
        on_gone: OnGone = OnGone.EARLIEST,
        countdown: Countdown | None = None,
    ) -> None:
        self._last = Place.of(after)
        self._new_id = new_id
        self._chance = chance
        self._strategy = strategy
        self._on_gone = on_gone
        self._countdown = countdown or Countdown(chance)
        self._state = State.IDLE
        self._paused = False
        self._left: dict[str, int] = {}
        """Number reached in each epoch that was left."""
        self._dropped: dict[Place, None] = {}
        """Pushes dropped for a gap, the oldest first."""
        self._behind = strategy.polls
        """True if a poll is due before the countdown is over."""
        self._asked = (self._last, 0.0)
        """Place and time of the poll under way."""
        self._id: str | None = None
        self._standing = _Standing.NONE
        self._subscribed_after = self._last
        """Place that the publisher knew when it made the subscription, so that each push follows it."""
        self._live_from = 0.0
        """Time from which on pushes may be expected."""
        self._subscribe_at = float("-inf")
        self._refusals = 0
        self._backoff = Backoff()
        self._retry_at = 0.0
        self.counts: Counter[PushClass] = Counter()
        """Number of pushes by class."""

    @property
    def state(self) -> State:
        """Current state."""
        return self._state

    @property
    def strategy(self) -> Strategy:
        """Current strategy."""
        return self._strategy

    @property
    def cursor(self) -> str:
        """Place up to which all events were enqueued or reported as lost."""
        return str(self._last)

    @property
    def subscription_id(self) -> str | None:
        """Id with which pushes are accepted; None for none."""
        return self._id

    @property
    def deadline(self) -> float | None:
        """Monotonic time in seconds at which ``timer`` is due, perhaps in the past; None for none."""
        if self._state is State.BACKING_OFF:
            return self._retry_at
        if self._state is not State.IDLE or self._paused:
            return None
        times = []
        if self._strategy.polls:
            times.append(float("-inf") if self._behind else self._countdown.deadline)
        if self._strategy.pushes and self._standing is _Standing.NONE:
            times.append(self._subscribe_at)
        return min(times, default=None)

    # --- pushes

    def push(self, subscription_id: str, event: ReceivedEvent, now: float) -> list[Action]:
        """Take a push.

        Args:
            subscription_id: id that the request names.
            event: its event.
            now: monotonic time in seconds.

        Returns:
            Actions, in order; one of them is the answer to the push.
        """
        kind, link = self._classify(subscription_id, event)
        self.counts[kind] += 1
        actions: list[Action] = [AnswerPush(ANSWERS.get(kind, 204))]
        if kind is not PushClass.OTHER_SUBSCRIPTION and self._standing in (_Standing.ASKED, _Standing.UNSURE):
            # A push is as good as an answer to the subscription.
            self._standing, self._live_from = _Standing.LIVE, now
        match kind:
            case PushClass.FULL:
                self._owe()
            case PushClass.ACCEPTED if link is not None:
                self._countdown.event(now)
                return [self._accept(link), *actions]
            case PushClass.GAP | PushClass.OTHER_EPOCH if link is not None:
                if self._strategy.polls:
                    self._drop(link.place)
                elif kind is PushClass.OTHER_EPOCH and self._last != self._subscribed_after:
                    # It may have been overtaken by this epoch. A subscription from here on shows it, or is gone.
                    self._owe()
                else:
                    self._countdown.event(now)
                    lost = Report(ReportKind.GAP, str(self._last), str(link.place))
                    reports = [lost] if link.previous > self._last.number else []
                    return [*reports, self._accept(link), *actions]
                return actions + (self._settle(now) if self._state is State.IDLE else [])
        return actions

    def _classify(self, subscription_id: str, event: ReceivedEvent) -> tuple[PushClass, Link | None]:
        if self._id is None or subscription_id != self._id:
            return PushClass.OTHER_SUBSCRIPTION, None
        try:
            link = Link.of(event)
        except BadAnswer:
            return PushClass.MALFORMED, None
        if self._last.covers(link.place) or self._was_left(link.place):
            return PushClass.REPEATED, None
        if self._paused:
            return PushClass.FULL, None
        if self._last.epoch not in ("", link.place.epoch):
            # Its numbers are no measure of this place: history decides.
            return PushClass.OTHER_EPOCH, link
        return (PushClass.ACCEPTED if link.previous <= self._last.number else PushClass.GAP), link

    def _drop(self, place: Place) -> None:
        self._behind = True
        self._dropped[place] = None
        if len(self._dropped) > DROPPED_MAX:
            del self._dropped[next(iter(self._dropped))]

    def _accept(self, link: Link) -> Enqueue:
        self._move(link.place)
        return Enqueue(link.event)

    def _move(self, place: Place) -> None:
        if self._last.epoch != place.epoch:
            self._leave()
        self._last = place

    def _leave(self) -> None:
        """Remember the last place, as one up to which the events of its epoch are repetitions."""
        epoch, number = self._last.epoch, self._last.number
        if epoch:
            self._left[epoch] = max(number, self._left.pop(epoch, 0))
        if len(self._left) > EPOCHS_MAX:
            del self._left[next(iter(self._left))]

    def _was_left(self, place: Place) -> bool:
        return place.number <= self._left.get(place.epoch, -1)

    # --- answers to polls

    def page(
        self,
        events: Sequence[ReceivedEvent],
        cursor: str,
        now: float,
        *,
        more: bool = False,
        server_time: float | None = None,
    ) -> list[Action]:
        """Take a page of history, the answer to ``Poll``.

        While paused a page is enqueued nevertheless: the queue needs room for one beyond its bound.

        Args:
            events: its events, in order.
            cursor: place up to which they are all.
            now: monotonic time in seconds.
            more: whether another page follows.
            server_time: seconds since 1970 by the publisher's clock when it made the page (``Date``); None for the
                time of the newest event. The subscriber's own clock may differ, so it is no measure of an event's age.

        Returns:
            Actions, in order.
        """
        if not self._expect(State.POLLING):
            return []
        try:
            links, end = [Link.of(event) for event in events], Place.of(cursor)
        except BadAnswer as error:
            return self.failed(now, str(error))
        asked, since = self._asked
        actions, found = self._read(links, end, asked)
        if more and self._last == asked:
            return actions + self.failed(now, f"the page after {asked} is empty, and more follows")
        self._backoff.reset()
        if found:
            self._countdown.event(now, len(found))
        else:
            self._countdown.empty(now)
        if self._standing is _Standing.LIVE and self._proves_loss(found, now, now - since, server_time):
            self._standing = _Standing.FAILED
            actions.append(Report(ReportKind.RENEWED, str(asked), str(self._last)))
        if more and self._strategy.polls:
            self._behind = True
            if not self._paused:
                return actions + self._poll(now)
        return actions + self._settle(now)

    def _read(self, links: Sequence[Link], end: Place, asked: Place) -> tuple[list[Action], list[Link]]:
        """Accept the events of a page that are new.

        Returns:
            Actions, and the accepted events.
        """
        actions: list[Action] = []
        found: list[Link] = []
        chained = self._last == asked
        for link in links:
            if self._last.covers(link.place):
                # Its push was first.
                chained = chained or self._last == link.place
                continue
            if link.place.epoch != self._last.epoch and not chained:
                # Pushes of the old epoch went past ``asked``: only a poll from there shows whether they still exist.
                self._behind = True
                return actions, found
            chained = True
            if self._was_left(link.place):
                self._move(link.place)
                continue
            if link.previous > self._last.number:
                actions.append(Report(ReportKind.GAP, str(self._last), str(link.place)))
            actions.append(self._accept(link))
            found.append(link)
        if end.number > self._last.number and (chained or end.epoch == self._last.epoch):
            self._move(end)
        return actions, found

    def _proves_loss(self, found: Sequence[Link], now: float, round_trip: float, server_time: float | None) -> bool:
        """Return whether an event is there whose push should have been received."""
        margin = max(LOSS_AGE, LOSS_ROUND_TRIPS * round_trip)
        times = [seconds_of(each.event.time) for each in found if each.place not in self._dropped]
        missing = [time for time in times if time is not None]
        if server_time is None and found:
            server_time = seconds_of(found[-1].event.time)
        if not missing or server_time is None or now - self._live_from <= margin:
            return False
        return server_time - min(missing) > margin

    def gone(
        self, floor: str | None, now: float, *, newest: str | None = None, snapshot: str | None = None
    ) -> list[Action]:
        """Take the answer 410 to ``Poll`` or ``Subscribe``: the events that follow are not retained.

        Args:
            floor: cursor from which events are retained; None if the topic does not exist any more, which is the end.
            now: monotonic time in seconds.
            newest: cursor of the newest event, which ``OnGone.LATEST`` needs; None for the floor in its place.
            snapshot: URL of a snapshot; None for none.

        Returns:
            Actions, in order.
        """
        if not self._expect(State.POLLING, State.SUBSCRIBING):
            return []
        until = newest if newest is not None and self._on_gone is OnGone.LATEST else floor
        if self._on_gone is OnGone.STOP:
            until = None
        try:
            place = None if until is None else Place.of(until)
        except BadAnswer as error:
            return self.failed(now, str(error))
        report = Report(ReportKind.GONE, str(self._last), until, snapshot or "")
        if self._state is State.SUBSCRIBING:
            # It was refused, so there is nothing to cancel.
            self._id, self._standing = None, _Standing.NONE
        if place is None:
            return [report, *self.stop()]
        if self._standing is _Standing.LIVE:
            self._standing = _Standing.FAILED
        # Also within one epoch: the new place may lie before the last one, whose events are not to be repeated.
        self._leave()
        self._last = place
        self._behind = True
        # A pause, since the floor may be gone again when it is asked for.
        return [report, *self._back_off(now)]

    # --- answers to subscriptions, and failures

    def subscribed(self, now: float) -> list[Action]:
        """Take the success of ``Subscribe``.

        Args:
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        if not self._expect(State.SUBSCRIBING):
            return []
        self._standing, self._live_from = _Standing.LIVE, now
        self._refusals = 0
        self._backoff.reset()
        return self._settle(now)

    def refused(self, now: float, reason: str) -> list[Action]:
        """Take an answer to ``Subscribe`` that no immediate repetition cures. Polls go on; it is tried again later.

        Args:
            now: monotonic time in seconds.
            reason: text.

        Returns:
            Actions, in order.
        """
        if not self._expect(State.SUBSCRIBING):
            return []
        self._id, self._standing = None, _Standing.NONE
        self._subscribe_at = now + min(2.0**self._refusals, REFUSED_MAX) * (0.5 + self._chance() / 2)
        self._refusals = min(self._refusals + 1, 10)
        return [Report(ReportKind.REFUSED, str(self._last), reason=reason), *self._settle(now)]

    def cancelled(self, now: float) -> list[Action]:
        """Take the success of ``Cancel``.

        Args:
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        return self._settle(now) if self._expect(State.RESUBSCRIBING) else []

    def failed(self, now: float, reason: str, asked: float | None = None) -> list[Action]:
        """Take the failure of the request under way: no answer, or one that asks for a repetition.

        Args:
            now: monotonic time in seconds.
            reason: text.
            asked: seconds that the publisher asks to wait; None if it names none.

        Returns:
            Actions, in order.
        """
        if not self._expect(State.POLLING, State.SUBSCRIBING, State.RESUBSCRIBING):
            return []
        if self._state is State.RESUBSCRIBING:
            # The old id is refused from now on, whether the publisher uses it or not.
            return self._settle(now)
        if self._state is State.POLLING:
            self._behind = True
        elif self._standing is _Standing.ASKED:
            self._standing = _Standing.UNSURE
        return [Report(ReportKind.FAILED, str(self._last), reason=reason), *self._back_off(now, asked)]

    # --- orders

    def timer(self, now: float) -> list[Action]:
        """Begin the request that is due; nothing before ``deadline``.

        Args:
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        deadline = self.deadline
        return self._settle(now) if deadline is not None and deadline <= now else []

    def wake(self, now: float) -> list[Action]:
        """Look for events without waiting, as after sleep or when a network is there again.

        Args:
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        self._owe()
        self._backoff.reset()
        return self._settle(now) if self._state in (State.IDLE, State.BACKING_OFF) else []

    def switch(self, strategy: Strategy, now: float) -> list[Action]:
        """Change the strategy; a request under way is not aborted.

        Args:
            strategy: the new one.
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        if strategy.polls and not self._strategy.polls:
            # A poll right after is no judgement about pushes that replay a long history.
            self._behind, self._live_from = True, now
        self._strategy = strategy
        return self._settle(now) if self._state is State.IDLE else []

    def pause(self) -> None:
        """Refuse events, since the queue is full: the publisher is to repeat its pushes, and polls wait."""
        self._paused = True

    def resume(self, now: float) -> list[Action]:
        """Accept events again.

        Args:
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        # Events of the pause are found by the next poll, which proves nothing about the subscription.
        self._paused, self._live_from = False, now
        return self._settle(now) if self._state is State.IDLE else []

    def stop(self) -> list[Action]:
        """End. All later inputs are without effect, and the answer to ``Cancel`` need not be given.

        Returns:
            Actions, in order.
        """
        actions: list[Action] = [] if self._id is None else [Cancel(self._id)]
        self._state, self._id, self._standing = State.STOPPED, None, _Standing.NONE
        return actions

    # --- transitions

    def _expect(self, *states: State) -> bool:
        """Return whether the answer counts: after the end none does.

        Raises:
            RuntimeError: no such request is under way, a fault of the caller.
        """
        if self._state is State.STOPPED:
            return False
        if self._state not in states:
            expected = " or ".join(state.value for state in states)
            raise RuntimeError(f"answer without request: the subscriber is {self._state.value}, not {expected}")
        return True

    def _owe(self) -> None:
        """Note that events may be missing: a poll finds them, or without polls the replay of a new subscription."""
        self._behind = True
        if not self._strategy.polls and self._standing is _Standing.LIVE:
            self._standing = _Standing.FAILED

    def _settle(self, now: float) -> list[Action]:
        """Begin the request that is due, if any. None is under way."""
        self._state = State.IDLE
        strategy, standing = self._strategy, self._standing
        if self._id is not None and not strategy.pushes:
            return self._cancel()
        if self._paused:
            return []
        if standing is _Standing.FAILED:
            return self._cancel()
        if strategy.polls and (self._behind or self._countdown.deadline <= now):
            return self._poll(now)
        if standing is _Standing.UNSURE:
            return self._cancel()
        if strategy.pushes and standing is _Standing.NONE and self._subscribe_at <= now:
            self._state, self._standing = State.SUBSCRIBING, _Standing.ASKED
            self._id, self._subscribed_after = self._new_id(), self._last
            return [Subscribe(self._id, str(self._last))]
        return []

    def _poll(self, now: float) -> list[Action]:
        self._state, self._behind = State.POLLING, False
        self._asked = (self._last, now)
        return [Poll(str(self._last))]

    def _cancel(self) -> list[Action]:
        assert self._id is not None
        action = Cancel(self._id)
        self._state, self._id, self._standing = State.RESUBSCRIBING, None, _Standing.NONE
        return [action]

    def _back_off(self, now: float, asked: float | None = None) -> list[Action]:
        self._state = State.BACKING_OFF
        self._retry_at = now + self._backoff.pause(self._chance(), asked)
        return []
