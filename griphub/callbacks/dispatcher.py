"""Dispatcher of the sender: carries out the orders of all deliveries. Sans-I/O: pages and requests by its ``Port``.

Subscriptions that are new to their callback, or whose last request failed, wait for the places of ``retries``; the
others have places of their own, so that dead callbacks take none of theirs. Large events have few places in both, since
each is in memory as often as it is under way. Work is done in turns, in which each part has ``TURN`` seconds.

An unexpected error in a step of one subscription is logged and is a fault of that one, which begins anew at its
position; an error in the handling of it leaves the dispatcher, and is the end of its process.
"""

from __future__ import annotations

import heapq
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final, Protocol

from griphub.callbacks.courier import Abortable, Courier, Report
from griphub.callbacks.lane import Lane
from griphub.callbacks.listeners import LARGE, Listeners
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.push_event import PushEvent
from griphub.sender.callback import CallbackUrl
from griphub.sender.challenge import ANSWER_MAX, new_challenge
from griphub.sender.delivery import Delivery
from griphub.sender.delivery_actions import Action, DeliveryLimits, Queue, Read, SendChallenge, SendEvent, Sleep
from griphub.sender.delivery_states import RestReason, State
from griphub.sender.failure_class import FailureClass, Verdict, failed, judge
from griphub.sender.host_shares import HostShares
from griphub.sender.signature import Signer
from griphub.sender.window import WindowBudget
from gripproxy.process.log import log

__all__ = ["CANCEL_WAIT", "RETRY_INTERVAL", "TURN", "Dispatcher", "DispatcherLimits", "Figures", "PageRead", "Port"]

TURN: Final = 0.005
"""Seconds of a part of a turn, after which other work of the loop is done."""

CANCEL_WAIT: Final = 2.0
"""Seconds that a request under way has for its end once its subscription is cancelled; then it is aborted."""

OURS_PAUSE: Final = 1.0
"""Seconds before a request is repeated that failed by a fault of this machine, which does not count."""

RETRY_INTERVAL: Final = 0.002
"""Seconds between two requests to callbacks that are new, or failed last."""

LARGE_PART: Final = 0.5
"""Part of the time that reading and writing large events may take."""

LARGE_KEPT: Final = 1000
"""Places in topics that are known to be followed by a large event, and are not read without a place for one."""

REPORTS_MAX: Final = 2000
"""Reports of one turn; the others are those of the next."""

ANSWER_KEPT: Final = 4096
"""Greatest number of bytes of an answer to an event: its content has no meaning."""


@dataclass(frozen=True, slots=True)
class PageRead:
    """Page of a topic.

    Attributes:
        events: in order.
        last: id up to which it is complete.
        more: whether further events follow.
        floor: of the topic, from the same read transaction.
    """

    events: Sequence[PushEvent]
    last: int
    more: bool
    floor: int


class Port(Protocol):
    """Store and network, as the dispatcher uses them."""

    def read(self, topic: int, after: int, limit: int) -> PageRead | None:
        """Return events of a topic; None if they cannot be read now.

        Args:
            topic: its number.
            after: id below the first event.
            limit: greatest number of events.
        """

    def post(
        self,
        url: CallbackUrl,
        owner: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        answer_max: int,
        done: Callable[[Outcome], None],
    ) -> Abortable:
        """Begin a request.

        Args:
            url: of the callback.
            owner: key of the owner.
            headers: names and values beside those of every request.
            body: its content, JSON.
            answer_max: greatest number of bytes of the answer's content.
            done: called once with its outcome, unless it is aborted; never within this call.

        Returns:
            The request, to be aborted.
        """


@dataclass(frozen=True, slots=True)
class DispatcherLimits:
    """Bounds of the dispatcher.

    Attributes:
        delivery: of each delivery.
        total: requests under way.
        per_host: requests under way to one host.
        per_owner: requests under way of one owner.
        retries: requests under way to callbacks that are new, or failed last.
        retries_per_host: the same to one host.
        retries_per_owner: the same of one owner.
        large: large events under way, beside the others; half as many to one host, or of one owner, and for callbacks
            that are new, or failed last.
        budget: bytes of events in memory, but for the first one of each subscription that has a place.
    """

    delivery: DeliveryLimits = field(default_factory=DeliveryLimits)
    total: int = 200
    per_host: int = 40
    per_owner: int = 40
    retries: int = 100
    retries_per_host: int = 4
    retries_per_owner: int = 20
    large: int = 4
    budget: int = 64_000_000


@dataclass(slots=True)
class Figures:
    """Figures since the start.

    Attributes:
        delivered: events that were acknowledged.
        challenges: challenges that were sent.
        failures: failed requests by class.
        aborted: requests that were aborted since their subscription was cancelled.
        ours: requests that failed by a fault of this machine.
        faults: steps of subscriptions that ended with an unexpected error.
    """

    delivered: int = 0
    challenges: int = 0
    failures: Counter[FailureClass] = field(default_factory=Counter)
    aborted: int = 0
    ours: int = 0
    faults: int = 0


class Dispatcher:
    """All subscriptions of the sender.

    Args:
        port: store and network.
        epoch: name of the store's epoch, for the ids of requests.
        limits: bounds.
        now: monotonic time in seconds.
        wall: seconds since 1970.
        chance: makes random numbers from 0 up to 1, for pauses.
        cancelled: called with the number of a cancelled subscription that no request begins for any more, nor is under
            way.
    """

    def __init__(
        self,
        port: Port,
        epoch: str,
        limits: DispatcherLimits,
        now: Callable[[], float],
        wall: Callable[[], float],
        chance: Callable[[], float],
        cancelled: Callable[[int], None],
    ) -> None:
        self._port = port
        self._epoch = epoch
        self._limits = limits
        self._now = now
        self._wall = wall
        self._chance = chance
        self._cancelled = cancelled
        self._budget = WindowBudget(limits.budget)
        half = max(1, limits.large // 2)
        pace = RETRY_INTERVAL
        self._ordinary: Lane[Courier] = Lane(HostShares(limits.total, limits.per_host, limits.per_owner))
        self._retries: Lane[Courier] = Lane(
            HostShares(limits.retries, limits.retries_per_host, limits.retries_per_owner), pace
        )
        self._large: Lane[Courier] = Lane(HostShares(limits.large, half, half), part=LARGE_PART)
        self._large_retries: Lane[Courier] = Lane(HostShares(half, 1, 1), pace, LARGE_PART)
        self._lanes = (self._ordinary, self._retries, self._large, self._large_retries)
        self._before_large: dict[tuple[int, int], None] = {}
        """Topics and ids that a large event follows, those found first at the beginning."""
        self._couriers: dict[int, Courier] = {}
        self._listeners = Listeners(now, self._carry_out, self._fault)
        self._timers: list[tuple[float, int, Courier]] = []
        self._timer_number = 0
        self._dirty: dict[Courier, None] = {}
        """Subscriptions to be reported, each once."""
        self.figures = Figures()

    def __len__(self) -> int:
        return len(self._couriers)

    @property
    def running(self) -> int:
        """Number of places in use."""
        return sum([lane.shares.running for lane in self._lanes])

    @property
    def waiting(self) -> int:
        """Number of subscriptions that wait for a place."""
        return sum([len(lane.shares) for lane in self._lanes])

    @property
    def memory(self) -> int:
        """Bytes of the events in all windows."""
        return self._budget.used

    def add(
        self,
        number: int,
        topic: int,
        topic_name: str,
        id: str,
        owner: str,
        url: CallbackUrl,
        signer: Signer,
        position: int,
        *,
        confirmed: bool = False,
        rest: RestReason | None = None,
        failure: FailureClass | None = None,
    ) -> None:
        """Begin with a subscription; one that has begun is left as it is.

        Args:
            number: of the subscription.
            topic: number of its topic.
            topic_name: name of its topic.
            id: chosen by the subscriber.
            owner: key of its owner.
            url: of its callback.
            signer: signs its requests.
            position: id up to which its events were delivered.
            confirmed: whether the callback has answered its challenge.
            rest: reason why it rests.
            failure: class of its last failure.
        """
        if number in self._couriers:
            return
        limits = self._limits.delivery
        delivery: Delivery[PushEvent] = Delivery(
            position, limits, self._budget, self._chance, confirmed=confirmed, rest=rest, failure=failure
        )
        courier = Courier(number, topic, topic_name, id, owner, url, signer, delivery)
        self._couriers[number] = courier
        self._listeners.add(courier)
        try:
            self._carry_out(courier, delivery.start())
        except Exception:  # noqa: BLE001 - it is logged
            self._fault(courier)

    def renew(self, number: int) -> None:
        """Begin again with a subscription that rests.

        Args:
            number: of the subscription.
        """
        courier = self._couriers.get(number)
        if courier is not None:
            try:
                self._carry_out(courier, courier.delivery.renew())
            except Exception:  # noqa: BLE001 - it is logged
                self._fault(courier)

    def rest(self, number: int, reason: RestReason) -> None:
        """Make no requests for a subscription until it is renewed.

        Args:
            number: of the subscription.
            reason: why.
        """
        courier = self._couriers.get(number)
        if courier is not None:
            courier.delivery.rest(reason)
            self._dirty[courier] = None

    def sign(self, number: int, signer: Signer) -> None:
        """Sign the further requests of a subscription in another way.

        Args:
            number: of the subscription.
            signer: the new one.
        """
        courier = self._couriers.get(number)
        if courier is not None:
            courier.signer = signer

    def cancel(self, number: int) -> None:
        """End a subscription; ``cancelled`` is called when no request of it is under way.

        Args:
            number: of the subscription; an unknown one is cancelled already.
        """
        courier = self._couriers.pop(number, None)
        if courier is None:
            self._cancelled(number)
            return
        self._listeners.remove(courier)
        self._dirty.pop(courier, None)
        courier.delivery.cancel()
        if courier.order is not None:
            if courier.request is None:
                # The request waits for its repetition.
                self._end(courier)
            else:
                self._sleep(courier, self._now() + CANCEL_WAIT)
            return
        for lane in self._lanes:
            lane.shares.remove(courier)
        self._cancelled(number)

    # --- events of topics

    def follows(self, topic: int) -> bool:
        """Return whether a ``topic`` has subscriptions that take events as they are stored."""
        return self._listeners.of(topic) > 0

    def stored(self, topic: int, events: Sequence[PushEvent]) -> None:
        """Take events that were committed; they are delivered by ``work``.

        Args:
            topic: number of their topic.
            events: in order.
        """
        self._listeners.stored(topic, events)

    def hint(self, topic: int, newest: int) -> None:
        """Note that a topic has events, without them; they are read by ``work``.

        Args:
            topic: its number.
            newest: id of the last of them.
        """
        self._listeners.hint(topic, newest)

    # --- turns

    def work(self) -> bool:
        """Do all that is due: timers, events, requests, each for ``TURN`` seconds at most.

        Returns:
            True if there is more to do now.
        """
        # Each has its own time: none starves, however much there is of another.
        more = self._wake(self._now() + TURN)
        more |= self._listeners.work(self._now() + TURN)
        return self._admit() or more

    @property
    def deadline(self) -> float | None:
        """Monotonic time in seconds at which ``work`` is due without another reason; None for none."""
        times = [lane.at for lane in self._lanes if lane.waits]
        if self._timers:
            times.append(self._timers[0][0])
        return min(times, default=None)

    def reports(self, *, final: bool = False) -> list[Report]:
        """Return the states of subscriptions that have changed, some of them if they are many.

        Args:
            final: whether every changed position is to be written: the sender ends.
        """
        now = self._now()
        found: list[Report] = []
        for courier in list(islice(self._dirty, REPORTS_MAX)):
            del self._dirty[courier]
            try:
                found.append(courier.report(now, final=final))
            except Exception:  # noqa: BLE001 - it is logged; the next change is reported
                log.exception("fault of the sender at a report", number=courier.number)
                continue
            if courier.delivery.position.changed:
                # To be written later, at the end of the turns.
                self._dirty[courier] = None
        return found

    def _admit(self) -> bool:
        """Begin requests for which there are places, each kind for its part of the turn; return True if some wait."""
        more = False
        for lane in self._lanes:
            end = self._now() + TURN / len(self._lanes)
            while (courier := lane.take(began := self._now())) is not None:
                courier.shares = lane.shares
                try:
                    self._carry_out(courier, courier.delivery.admitted())
                except Exception:  # noqa: BLE001 - it is logged
                    self._fault(courier)
                ended = self._now()
                lane.taken(began, ended)
                if ended >= end:
                    more = True
                    break
        return more

    def _wake(self, end: float) -> bool:
        """Carry out the timers that are due; return True if the turn is over before."""
        now = self._now()
        while self._timers and self._timers[0][0] <= now:
            _, _, courier = heapq.heappop(self._timers)
            try:
                self._timer(courier, now)
            except Exception:  # noqa: BLE001 - it is logged
                self._fault(courier)
            now = self._now()
            if now >= end:
                return True
        return False

    def _timer(self, courier: Courier, now: float) -> None:
        if courier.delivery.state is State.CANCELLED:
            request, courier.request = courier.request, None
            if request is not None:
                self.figures.aborted += 1
                request.abort()
                self._end(courier)
        elif courier.order is not None:
            if courier.request is None:
                self._repeat(courier, courier.order)
        else:
            self._carry_out(courier, courier.delivery.wake(now))

    # --- orders

    def _carry_out(self, courier: Courier, action: Action[PushEvent] | None) -> None:
        while isinstance(action, Read):
            action = self._page(courier, action)
        if isinstance(action, SendChallenge | SendEvent):
            self._send(courier, action)
        else:
            self._give_place(courier)
            if isinstance(action, Queue):
                self._lane(courier).shares.add(courier, courier.owner, courier.url.host)
            elif isinstance(action, Sleep):
                self._sleep(courier, action.until)
        if courier.number in self._couriers:
            self._dirty[courier] = None
            self._listeners.update(courier)

    def _lane(self, courier: Courier) -> Lane[Courier]:
        """Return the lane in which a subscription waits for a place."""
        delivery = courier.delivery
        if delivery.confirmed and delivery.failure is None:
            return self._large if courier.large else self._ordinary
        return self._large_retries if courier.large else self._retries

    def _sleep(self, courier: Courier, until: float) -> None:
        # The number decides between equal times: couriers have no order.
        self._timer_number += 1
        heapq.heappush(self._timers, (until, self._timer_number, courier))

    def _give_place(self, courier: Courier) -> None:
        shares, courier.shares = courier.shares, None
        if shares is not None:
            shares.finished(courier)

    def _page(self, courier: Courier, order: Read) -> Action[PushEvent] | None:
        delivery, now = courier.delivery, self._now()
        place = (courier.topic, order.after)
        if place in self._before_large and not courier.large:
            courier.large = True
            return delivery.postponed()
        # Before its first success, all but the first event would be read for nothing.
        page = self._port.read(courier.topic, order.after, order.limit if courier.delivered else 1)
        if page is None:
            return delivery.not_read(now)
        if order.after < page.floor:
            delivery.not_read(now)
            delivery.rest(RestReason.BEHIND)
            return None
        delivery.hint(self._listeners.newest(courier.topic))
        events = page.events
        if events and events[0].size > LARGE and not courier.large:
            courier.large = True
            self._before_large[place] = None
            if len(self._before_large) > LARGE_KEPT:
                del self._before_large[next(iter(self._before_large))]
            return delivery.postponed()
        for number, event in enumerate(events):
            if number and event.size > LARGE:
                return delivery.page(events[:number], events[number - 1].id, True, now)
        return delivery.page(events, page.last, page.more, now)

    def _send(self, courier: Courier, order: SendChallenge | SendEvent[PushEvent]) -> None:
        courier.order = order
        if isinstance(order, SendEvent):
            courier.challenge, courier.event_time = None, order.event.time
            body, most = courier.body(order.event), ANSWER_KEPT
            name = f"{courier.number}-{self._epoch}-{order.event.id}"
        else:
            courier.challenge = new_challenge(secrets.token_bytes, self._now())
            self.figures.challenges += 1
            body, most = courier.challenge.body(courier.id), ANSWER_MAX
            name = f"{courier.number}-{self._epoch}-challenge-{secrets.token_hex(8)}"
        headers = courier.signer.headers(name, self._wall(), body)
        courier.request = self._port.post(
            courier.url, courier.owner, headers, body, most, partial(self._answered, courier)
        )

    def _repeat(self, courier: Courier, order: SendChallenge | SendEvent[PushEvent]) -> None:
        if courier.delivery.state is State.RESTING:
            courier.order = None
            # Without effect on the delivery but that no request is under way.
            self._carry_out(courier, courier.delivery.answered(failed(FailureClass.UNREACHABLE), self._now()))
        else:
            self._send(courier, order)

    def _answered(self, courier: Courier, outcome: Outcome) -> None:
        try:
            self._judge(courier, outcome)
        except Exception:  # noqa: BLE001 - it is logged
            self._fault(courier)

    def _judge(self, courier: Courier, outcome: Outcome) -> None:
        courier.request = None
        if courier.delivery.state is State.CANCELLED:
            self._end(courier)
            return
        if outcome.ours:
            self.figures.ours += 1
            self._sleep(courier, self._now() + OURS_PAUSE)
            return
        order, courier.order = courier.order, None
        verdict = self._verdict(courier, outcome)
        if verdict.failure is not None:
            self.figures.failures[verdict.failure] += 1
            courier.failures[verdict.failure] += 1
        elif isinstance(order, SendEvent):
            self.figures.delivered += 1
            courier.delivered += 1
            courier.large = False
        self._carry_out(courier, courier.delivery.answered(verdict, self._now()))

    def _verdict(self, courier: Courier, outcome: Outcome) -> Verdict:
        if outcome.failure is not None:
            return failed(outcome.failure)
        if courier.challenge is not None:
            return courier.challenge.judge(outcome.status, outcome.body, self._now(), outcome.retry_after, self._wall())
        return judge(outcome.status, outcome.retry_after, self._wall())

    def _fault(self, courier: Courier) -> None:
        """Log the error that is being handled, and have the subscription of its step begin anew."""
        log.exception("fault of the sender at a subscription", number=courier.number, topic=courier.topic)
        self.figures.faults += 1
        request, courier.request = courier.request, None
        courier.order = courier.challenge = None
        if request is not None:
            request.abort()
        if courier.delivery.state is State.CANCELLED:
            self._end(courier)
        else:
            self._carry_out(courier, courier.delivery.fault(self._now()))

    def _end(self, courier: Courier) -> None:
        """End a cancelled subscription whose request is over."""
        courier.order = courier.request = None
        self._give_place(courier)
        self._cancelled(courier.number)
