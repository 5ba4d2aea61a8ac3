"""Desk of the push API: subscriptions, their messages, and the order of deliveries; in turns of bounded time.

Messages are read from the store ahead of their delivery, or taken from the last events of their topic, which all of its
subscriptions share. A pull is answered immediately; while there is nothing for it, the hub is called when there is.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from griphub.backlog.backlog import Backlog
from griphub.backlog.intervals import Intervals
from griphub.backlog.push_flow import Sent
from griphub.callbacks.desk_port import DeskPort, Reply
from griphub.callbacks.desk_subscription import DeskSubscription, EventSource, Unreadable, desk_settings
from griphub.callbacks.pushed_event import EventMemory, PushedEvent, TailBudget, TopicTail
from griphub.sender.consent import Consent, ConsentState
from griphub.store.plain_records import PlainProgress, Row, attempts_json

__all__ = ["TURN", "Leased", "PushDesk"]

TURN: Final = 0.005
"""Seconds of a turn."""

PULL_BYTES: Final = 4_000_000
"""Bytes of events after which the answer to a pull ends; it has one message at least."""

UNREADABLE_PAUSE: Final = 1.0
"""Seconds before a store is read again that could not be read."""

Leased = tuple[int, int, int, Row]
"""Message of an answer to a pull: id, number of its lease, number of the delivery, row of its event."""


@dataclass(slots=True)
class _Topic:
    """Topic with subscriptions."""

    tail: TopicTail
    subscriptions: dict[int, DeskSubscription]


class PushDesk:
    """Subscriptions of the push API in the sender.

    Args:
        source: the store.
        port: of requests and calls.
        now: returns the monotonic time, in seconds.
        wall: returns the time in seconds since 1970.
        origin: name of the hub, for CloudEvents.
        window_max: greatest number of requests under way of one subscription.
    """

    def __init__(
        self,
        source: EventSource,
        port: DeskPort,
        now: Callable[[], float],
        wall: Callable[[], float],
        origin: str,
        window_max: int,
    ) -> None:
        self._source = source
        self._port = port
        self._now = now
        self._wall = wall
        self._origin = origin
        self._window_max = window_max
        self._all: dict[int, DeskSubscription] = {}
        self._topics: dict[int, _Topic] = {}
        self._memory = EventMemory()
        self._tails = TailBudget()
        self._active: dict[DeskSubscription, None] = {}
        """Subscriptions to be looked at, in order."""
        self._changed: dict[DeskSubscription, None] = {}
        """Those with a state that was not reported."""
        self._measured: dict[DeskSubscription, None] = {}
        """Those with figures that were not reported."""
        self._timers: list[tuple[float, int, DeskSubscription]] = []
        self._times: dict[DeskSubscription, float] = {}
        """Time at which each is to be looked at, as of its last timer."""
        self._timer_number = 0
        self._burying: dict[DeskSubscription, dict[int, PushedEvent]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def subscription(self, number: int) -> DeskSubscription | None:
        """Return the subscription with a ``number``; None if there is none."""
        return self._all.get(number)

    def signing_keys(self) -> set[str]:
        """Return the names of keys that subscriptions are signed with, separated by commas, of each once."""
        return {",".join(each.settings.signing_keys) for each in self._all.values()}

    # --- orders of the hub

    def add(self, plain: Sequence[Any], newest: int, blocked: str = "") -> None:
        """Begin with a subscription.

        Args:
            plain: number, topic, owner, settings, position, intervals, attempts by id, generation.
            newest: id up to which the hub knows the events of the store.
            blocked: why nothing can be sent to its receiver; empty for no reason.

        Raises:
            ValueError: the settings or the intervals are none that the hub has made.
        """
        number, topic, owner, settings, position, acked, attempts, generation = plain
        found = desk_settings(settings, self._origin)
        backlog = Backlog(found.policy, Intervals.decode(position, acked), dict(attempts))
        subscription = DeskSubscription(number, generation, topic, owner, found, backlog, self._window_max)
        subscription.blocked = blocked or found.problem
        self._all[number] = subscription
        self._note(subscription)
        if topic:
            self._topic(topic).subscriptions[number] = subscription
            self._topics[topic].tail.announce(newest)
        self._look(subscription)

    def change(self, number: int, settings: Mapping[str, Any], blocked: str = "") -> None:
        """Go on with other settings. No request to an earlier endpoint begins; answers to those under way count.

        Args:
            number: of the subscription.
            settings: fields of the API by name.
            blocked: why nothing can be sent to its receiver; empty for no reason.
        """
        subscription = self._all.get(number)
        if subscription is None:
            return
        used = desk_settings(settings, self._origin)
        subscription.blocked = blocked or used.problem
        self._note(subscription)
        if subscription.use(used):
            flow = subscription.flow
            for sent in [*flow.sent.values()]:
                if self._port.withdraw(subscription, sent):
                    flow.given_back(sent.id, sent.lease)
            flow.begin_anew()
        self._look(subscription)

    def move(self, number: int, generation: int, position: int, acked: bytes) -> None:
        """Begin anew at another place; requests under way end, and their answers count no more.

        Args:
            number: of the subscription.
            generation: number of times that it was moved.
            position: id up to which all messages are acknowledged.
            acked: intervals above, encoded.
        """
        subscription = self._all.get(number)
        if subscription is not None:
            self._abort(subscription)
            subscription.move(generation, Intervals.decode(position, acked))
            self._look(subscription)

    def remove(self, number: int) -> None:
        """End a subscription, and its requests; ``number``: of the subscription."""
        subscription = self._all.pop(number, None)
        if subscription is None:
            return
        self._abort(subscription)
        self._leave_topic(subscription)
        self._active.pop(subscription, None)
        self._changed.pop(subscription, None)
        self._measured.pop(subscription, None)
        self._times.pop(subscription, None)

    def topic_deleted(self, topic: int) -> None:
        """Forget the messages of a topic; ``topic``: its number."""
        found = self._topics.pop(topic, None)
        if found is None:
            return
        found.tail.clear()
        for subscription in found.subscriptions.values():
            self._abort(subscription)
            subscription.topic = 0
            subscription.move(subscription.generation + 1, Intervals(subscription.backlog.acked.position))

    def stored(self, topic: int, events: Sequence[PushedEvent]) -> None:
        """Take events that were stored.

        Args:
            topic: number of their topic.
            events: in order.
        """
        found = self._topics.get(topic)
        if found is not None:
            found.tail.add(events)
            self._look_all(found.subscriptions.values())

    def follows(self, topic: int) -> bool:
        """Return whether a topic has subscriptions; ``topic``: its number."""
        return topic in self._topics

    def hint(self, topic: int, newest: int) -> None:
        """Note that a topic has events.

        Args:
            topic: its number.
            newest: id of the last one.
        """
        found = self._topics.get(topic)
        if found is not None:
            found.tail.announce(newest)
            self._look_all(found.subscriptions.values())

    # --- pulls

    def pull(self, number: int, most: int) -> list[Leased]:
        """Lease messages to a client.

        Args:
            number: of the subscription.
            most: greatest number.

        Returns:
            The messages. If there are none, ``DeskPort.ready`` is called when there is one.
        """
        subscription = self._all.get(number)
        if subscription is None:
            return []
        subscription.used = True
        self._note(subscription)
        self._pass_time(subscription)
        if len(subscription.backlog) - subscription.backlog.leased < most:
            self._read(subscription, most)
        found: list[Leased] = []
        now, size = self._now(), 0
        while len(found) < most and size < PULL_BYTES and (entries := subscription.backlog.lease(now, 1)):
            [entry] = entries
            try:
                event = self.event(subscription, entry.id)
            except Unreadable:
                subscription.backlog.give_back(entry.id, entry.lease)
                self._timer(subscription, now + UNREADABLE_PAUSE)
                subscription.waiting = not found
                return found
            if event is None:
                subscription.backlog.ack(entry.id, entry.lease)
            else:
                found.append((event.id, entry.lease, entry.attempts, event.row))
                size += event.size
        subscription.waiting = not found
        self._schedule(subscription)
        return found

    def acknowledge(self, number: int, acks: Iterable[tuple[int, int]]) -> PlainProgress | None:
        """Acknowledge messages.

        Args:
            number: of the subscription.
            acks: ids, and numbers of their leases; those that have ended have no effect.

        Returns:
            The state to be stored before the client is answered; None if nothing has changed.
        """
        subscription = self._all.get(number)
        if subscription is None:
            return None
        subscription.used = True
        changed = [subscription.backlog.ack(id, lease) for id, lease in acks]
        self._measured[subscription] = None
        self._look(subscription)
        return self._progress(subscription) if any(changed) else None

    def modify(self, number: int, acks: Iterable[tuple[int, int]], seconds: float) -> None:
        """Move the ends of leases.

        Args:
            number: of the subscription.
            acks: ids, and numbers of their leases.
            seconds: number of seconds from now to the new end; 0 ends them.
        """
        subscription, now = self._all.get(number), self._now()
        if subscription is None:
            return
        subscription.used = True
        for id, lease in acks:
            if seconds > 0:
                subscription.backlog.extend(id, lease, now, seconds)
            else:
                subscription.backlog.nack(id, lease, now)
        self._measured[subscription] = None
        self._look(subscription)

    # --- pushes

    def answered(
        self, subscription: DeskSubscription, sent: Sent, *, acked: bool, asked: float = 0.0, withdrawn: bool = False
    ) -> None:
        """Take the end of a request.

        Args:
            subscription: whose message it was.
            sent: the delivery.
            acked: whether it was acknowledged.
            asked: seconds that the receiver asks for before the next request.
            withdrawn: whether the receiver has withdrawn its consent.
        """
        if subscription.number not in self._all:
            return
        consent = subscription.consent
        if withdrawn and consent is not None and consent.state is ConsentState.GIVEN:
            consent.refused(self._now(), "it has answered 410: it has withdrawn its consent")
        subscription.flow.answered(sent.id, sent.lease, self._now(), acked=acked, asked=asked)
        subscription.used |= acked
        self._note(subscription)
        self._look(subscription)

    def gone(self, subscription: DeskSubscription, sent: Sent) -> None:
        """Take the end of a request that did not begin: its message is not there any more.

        Args:
            subscription: whose message it was.
            sent: the delivery.
        """
        if subscription.number not in self._all:
            return
        subscription.flow.sent.pop((sent.id, sent.lease), None)
        subscription.backlog.ack(sent.id, sent.lease)
        self._note(subscription)
        self._look(subscription)

    def replied(self, subscription: DeskSubscription, consent: Consent, reply: Reply) -> None:
        """Take the answer to a question.

        Args:
            subscription: whose receiver it is of.
            consent: that was asked for; an answer to an earlier question counts no more.
            reply: answer.
        """
        if subscription.number not in self._all or subscription.consent is not consent:
            return
        now = self._now()
        if reply is None:
            consent.not_asked(now)
        elif isinstance(reply, str):
            consent.refused(now, reply)
        else:
            consent.answered(now, reply)
        self._note(subscription)
        self._look(subscription)

    def buried(self, number: int, id: int, *, published: bool) -> None:
        """Take the outcome of ``DeskPort.bury``.

        Args:
            number: of the subscription.
            id: of the message.
            published: whether it is in the dead letter topic.
        """
        subscription = self._all.get(number)
        if subscription is None or self._burying.get(subscription, {}).pop(id, None) is None:
            return
        if published:
            subscription.backlog.buried(id)
        else:
            subscription.backlog.not_buried(id, self._now())
        self._note(subscription)
        self._look(subscription)

    # --- turns

    def work(self) -> bool:
        """Look at subscriptions for some milliseconds.

        Returns:
            True if there is more to do now.
        """
        now = self._now()
        end = now + TURN
        while self._timers and self._timers[0][0] <= now:
            at, _, subscription = heapq.heappop(self._timers)
            if self._times.get(subscription) == at:
                del self._times[subscription]
                self._look(subscription)
        while self._active and self._now() < end:
            subscription = next(iter(self._active))
            del self._active[subscription]
            self._serve(subscription)
        return bool(self._active)

    @property
    def deadline(self) -> float | None:
        """Monotonic time in seconds at which ``work`` is due without another reason; None for none."""
        return self._timers[0][0] if self._timers else None

    def reports(self, most: int = 1000) -> list[PlainProgress]:
        """Return the states of deliveries that have changed, to be stored.

        Args:
            most: greatest number.
        """
        found: list[PlainProgress] = []
        while self._changed and len(found) < most:
            subscription = next(iter(self._changed))
            found.append(self._progress(subscription))
        return found

    def measured(self, most: int = 1000) -> list[DeskSubscription]:
        """Return subscriptions whose figures have changed since they were returned last.

        Args:
            most: greatest number.
        """
        found = [*itertools.islice(self._measured, most)]
        for subscription in found:
            del self._measured[subscription]
        return found

    def _note(self, subscription: DeskSubscription) -> None:
        """Note that a subscription has another state, and other figures."""
        self._changed[subscription] = None
        self._measured[subscription] = None

    def _serve(self, subscription: DeskSubscription) -> None:
        self._pass_time(subscription)
        if subscription.pushes:
            self._read(subscription, 0)
            if not subscription.blocked:
                self._push(subscription)
        elif subscription.waiting:
            self._read(subscription, 1)
            if subscription.backlog.ready:
                subscription.waiting = False
                self._port.ready(subscription.number)
        self._bury(subscription)
        self._schedule(subscription)

    def _pass_time(self, subscription: DeskSubscription) -> None:
        ended = subscription.flow.pass_time(self._now())
        for sent in ended:
            self._port.abort(subscription, sent)
        if ended:
            self._note(subscription)

    def _read(self, subscription: DeskSubscription, most: int) -> None:
        """Read events ahead."""
        topic, backlog = self._topics.get(subscription.topic), subscription.backlog
        if topic is None or backlog.read >= topic.tail.newest:
            return
        wanted = subscription.wanted(most)
        if not wanted:
            return
        events = topic.tail.after(backlog.read, wanted)
        if events is not None:
            last, floor = events[-1].id if events else topic.tail.newest, 0
        else:
            page = self._source.page(subscription.topic, backlog.read, wanted)
            if page is None:
                return
            events, last, floor = page.events, page.last, page.floor
        before = backlog.read
        for event in events:
            self._memory.put(event)
        if floor > backlog.acked.position:
            backlog.acked.add(backlog.acked.position, floor)
        subscription.take(events, last)
        too_old = round((self._wall() - subscription.settings.retention) * 1_000_000)
        oldest = backlog.oldest
        if oldest is not None and (oldest.time < too_old or oldest.id <= floor):
            backlog.drop(floor, too_old)
        self._note(subscription)
        if before < backlog.read < topic.tail.newest:
            # The next page is read in another turn. Without progress the store lags, and a hint follows.
            self._look(subscription)

    def _push(self, subscription: DeskSubscription) -> None:
        flow, now, consent = subscription.flow, self._now(), subscription.consent
        if consent is not None and consent.due(now):
            consent.ask()
            self._port.ask(subscription, consent)
        while entries := flow.begin(now, 1):
            [entry] = entries
            self._port.push(subscription, flow.sent[entry.id, entry.lease])
            self._note(subscription)

    def event(self, subscription: DeskSubscription, id: int) -> PushedEvent | None:
        """Return the event of a message; None if there is none any more.

        Args:
            subscription: whose message it is.
            id: of the message.

        Raises:
            Unreadable: the store cannot be read now.
        """
        event = self._memory.get(id)
        if event is None:
            event = self._source.event(subscription.topic, id)
            if event is not None:
                self._memory.put(event)
        return event

    def _bury(self, subscription: DeskSubscription) -> None:
        """Hand over messages that had their last attempt."""
        backlog = subscription.backlog
        if not backlog.dead:
            return
        burying = self._burying.setdefault(subscription, {})
        # One after the other: each is stored with the state behind it.
        for entry in backlog.dead:
            if burying:
                return
            try:
                event = self.event(subscription, entry.id)
            except Unreadable:
                self._timer(subscription, self._now() + UNREADABLE_PAUSE)
                return
            if event is None or not subscription.settings.dead_letter_topic:
                backlog.not_buried(entry.id, self._now())
                continue
            burying[entry.id] = event
            acked = backlog.acked.copy()
            acked.add(entry.prev, entry.id)
            attempts = {id: number for id, number in backlog.attempted().items() if id != entry.id}
            self._port.bury(subscription, event, self._state(subscription, acked, attempts))

    def _progress(self, subscription: DeskSubscription) -> PlainProgress:
        self._changed.pop(subscription, None)
        backlog = subscription.backlog
        return self._state(subscription, backlog.acked, backlog.attempted())

    def _state(self, subscription: DeskSubscription, acked: Intervals, attempts: Mapping[int, int]) -> PlainProgress:
        used = round(self._wall() * 1_000_000) if subscription.used else 0
        subscription.used = False
        kept = attempts if subscription.settings.policy.attempts_max or subscription.settings.policy.backoff else {}
        return (
            *(subscription.number, subscription.generation, acked.position, acked.encode()),
            *(attempts_json(kept), used),
        )

    def _look(self, subscription: DeskSubscription) -> None:
        self._active[subscription] = None

    def _look_all(self, subscriptions: Iterable[DeskSubscription]) -> None:
        for subscription in subscriptions:
            if subscription.pushes or subscription.waiting:
                self._active[subscription] = None

    def _schedule(self, subscription: DeskSubscription) -> None:
        """Have a subscription looked at when time alone changes something."""
        now = self._now()
        at = subscription.flow.next_time(now)
        consent = subscription.consent
        if consent is not None and consent.state is not ConsentState.GIVEN:
            at = min(at, consent.next_time(now))
        if at != float("inf"):
            self._timer(subscription, at)

    def _timer(self, subscription: DeskSubscription, at: float) -> None:
        """Have a subscription looked at, at a time in seconds."""
        if self._times.get(subscription, float("inf")) <= at:
            return
        self._times[subscription] = at
        self._timer_number += 1
        heapq.heappush(self._timers, (at, self._timer_number, subscription))

    def _abort(self, subscription: DeskSubscription) -> None:
        for sent in subscription.flow.aborted():
            self._port.abort(subscription, sent)
        self._burying.pop(subscription, None)

    def _topic(self, number: int) -> _Topic:
        found = self._topics.get(number)
        if found is None:
            found = self._topics[number] = _Topic(TopicTail(self._tails), {})
        return found

    def _leave_topic(self, subscription: DeskSubscription) -> None:
        found = self._topics.get(subscription.topic)
        if found is not None:
            found.subscriptions.pop(subscription.number, None)
            if not found.subscriptions:
                del self._topics[subscription.topic]
                found.tail.clear()
