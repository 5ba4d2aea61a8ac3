"""Whatever fails, a callback gets every event in order, at least once, and none after the end.

The topic is a list of events; beside it stand a reader that may lag, a network that loses live events (a hint follows
later), a callback that fails, an owner that lets the subscription rest and makes it again, and a hub that dies and
continues at the position written last. A run takes steps in a random order; now and then nothing fails for a while, and
the callback must have everything then.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from griphub.sender.delivery import Delivery
from griphub.sender.delivery_actions import Action, DeliveryLimits, Queue, Read, SendChallenge, SendEvent, Sleep
from griphub.sender.delivery_states import RestReason, State
from griphub.sender.failure_class import SUCCESS, FailureClass, failed
from griphub.sender.window import WindowBudget

LIMITS = DeliveryLimits(tries=3, challenge_tries=3, events_max=3, bytes_max=50, save_events=2)
BUDGET = 60
FAILURES = [FailureClass.TIMEOUT, FailureClass.REDIRECT, FailureClass.UNREACHABLE]

fixed = settings(max_examples=500, derandomize=True, deadline=None, database=None)
"""The same runs every time and everywhere."""


@dataclass(frozen=True)
class Event:
    id: int
    prev_id: int
    size: int


@dataclass
class World:
    """A topic, its subscription from ``start`` on, and everything between them."""

    start: int
    topic: list[Event] = field(default_factory=list)
    newest: int = 5
    untold: list[Event] = field(default_factory=list)
    """Events that were committed and not passed to the delivery yet."""
    now: float = 0.0
    written: int = 0
    confirmed: bool = False
    received: list[int] = field(default_factory=list)
    acknowledged: int = 0
    """Greatest id that was answered with 2xx."""
    crashed: bool = False
    cancelled: bool = False
    waiting: bool = False
    """Whether the delivery waits for a place."""
    held: Action[Event] | None = None
    """Order that is carried out with the place."""
    snapshot: int = 0
    """Newest id in the page that is read."""
    timer: float | None = None

    def __post_init__(self) -> None:
        self.written = self.start
        self.live_hub()

    def live_hub(self) -> None:
        self.budget = WindowBudget(BUDGET)
        self.delivery: Delivery[Event] = Delivery(
            self.written, LIMITS, self.budget, lambda: 0.5, confirmed=self.confirmed
        )
        self.untold.clear()
        self.waiting, self.held, self.timer = False, None, None
        self.do(self.delivery.start())

    def do(self, action: Action[Event] | None) -> None:
        """Carry out an order; a place is kept for a page or a request only."""
        self.held = None
        assert not self.cancelled or action is None
        match action:
            case Queue():
                self.waiting = True
            case Sleep(until):
                self.timer = until
            case Read():
                self.held, self.snapshot = action, self.newest
            case SendChallenge():
                assert not self.delivery.confirmed
                self.held = action
            case SendEvent(event, _):
                assert self.delivery.confirmed
                self.receive(event)
                self.held = action
            case None:
                pass

    def receive(self, event: Event) -> None:
        """The callback has the request: the next event, or one that it had before."""
        expected = [one.id for one in self.topic if one.id > self.start]
        known = max(self.received, default=self.start)
        assert event.id <= known or event.id == next(id for id in expected if id > known)
        if not self.crashed:
            assert event.id > self.acknowledged
        self.received.append(event.id)

    # steps

    def publish(self, choice: int) -> None:
        self.newest += 1 + choice % 3
        event = Event(self.newest, self.topic[-1].id if self.topic else 0, 1 + choice % 70)
        self.topic.append(event)
        self.untold.append(event)

    def other_topic(self) -> None:
        self.newest += 1

    def tell(self, choice: int) -> None:
        """Pass an event, in any order, or its id."""
        if self.untold:
            event = self.untold.pop(choice % len(self.untold) if choice % 5 == 0 else 0)
            action = self.delivery.hint(event.id) if choice % 7 == 0 else self.delivery.live(event)
            assert action in {None, Queue()}
            assert not (self.cancelled and action)
            self.waiting |= action is not None

    def admit(self) -> None:
        if self.waiting and self.held is None:
            self.waiting = False
            self.do(self.delivery.admitted())

    def finish(self, choice: int) -> None:
        """End the page or the request under way."""
        match self.held:
            case Read(after, limit):
                if choice % 6 == 0:
                    self.do(self.delivery.not_read(self.now))
                    return
                if choice % 6 == 5:
                    self.do(self.delivery.postponed())
                    return
                above = [event for event in self.topic if after < event.id <= self.snapshot]
                page = above[: min(limit, 1 + choice % 4)]
                more = len(page) < len(above)
                self.do(self.delivery.page(page, page[-1].id if more else self.snapshot, more, self.now))
            case SendChallenge() | SendEvent() as request:
                if choice % 3 == 0:
                    self.do(self.delivery.answered(failed(FAILURES[choice % 2]), self.now))
                    return
                if isinstance(request, SendEvent):
                    self.acknowledged = max(self.acknowledged, request.event.id)
                self.do(self.delivery.answered(SUCCESS, self.now))
                if not self.cancelled:
                    self.confirmed = True
            case _:
                pass

    def sleep(self) -> None:
        if self.timer is not None:
            self.now, self.timer = max(self.now, self.timer), None
            action = self.delivery.wake(self.now)
            assert not (self.cancelled and action)
            self.waiting |= isinstance(action, Queue)

    def old_timer(self) -> None:
        """A timer of an earlier pause fires."""
        match self.delivery.wake(self.now):
            case Queue():
                self.waiting = True
            case Sleep(until):
                self.timer = until

    def rest(self) -> None:
        self.delivery.rest(RestReason.RIGHTS_ENDED)

    def renew(self) -> None:
        action = self.delivery.renew()
        assert not (self.cancelled and action)
        self.waiting |= action is not None

    def save(self, choice: int) -> None:
        if self.delivery.position.save_due(self.now) or choice % 2:
            position = self.delivery.position.saving()
            assert position >= self.written
            self.written = position
            assert not self.delivery.position.save_due(self.now)

    def crash(self) -> None:
        if not self.cancelled:
            self.crashed = True
            self.live_hub()

    def cancel(self) -> None:
        request = isinstance(self.held, SendChallenge | SendEvent)
        assert self.delivery.cancel() == request
        self.cancelled = True

    def step(self, name: str, choice: int) -> None:
        match name:
            case "publish" | "tell" | "finish" | "save":
                getattr(self, name)(choice)
            case _:
                getattr(self, name)()
        # In memory: nothing without a place but what the budget has; a single event beyond it, with a place.
        holds = 1 if self.delivery.state is State.SENDING else 0
        assert self.budget.used <= max(BUDGET, BUDGET + holds * 70)
        if self.delivery.state not in {State.LIVE, State.SENDING}:
            assert self.budget.used == 0

    def quiet(self) -> None:
        """Nothing fails any more, and all that is under way ends."""
        self.renew()
        while self.untold:
            self.tell(1)
        turns = 0
        while self.waiting or self.held is not None or self.timer is not None:
            turns += 1
            assert turns < 1000, "no end"
            self.admit()
            self.finish(1)
            self.sleep()
            self.renew()


NAMES = [
    *["publish"] * 4,
    *["tell"] * 6,
    *["admit"] * 6,
    *["finish"] * 6,
    *["sleep"] * 3,
    *["renew"] * 4,
    *("other_topic", "old_timer", "rest", "save"),
]

ROUNDS = 12
"""Times that all becomes quiet in a run."""

SEEDS = st.integers(0, 2**64)


def take_steps(world: World, choose: random.Random, names: list[str]) -> None:
    for _ in range(choose.randrange(40)):
        world.step(choose.choice(names), choose.randrange(1000))


def begun(choose: random.Random) -> World:
    """Return a world in which events were published before and after the place at which the subscription begins."""
    world = World(choose.randrange(12))
    for _ in range(choose.randrange(6)):
        world.publish(choose.randrange(1000))
    world.untold.clear()
    return world


def check_all_received(world: World) -> None:
    expected = [event.id for event in world.topic if event.id > world.start]
    assert sorted(set(world.received)) == expected
    assert world.delivery.state is State.LIVE
    assert world.delivery.position.id >= max(expected, default=world.start)
    assert world.budget.used == 0


@fixed
@given(SEEDS)
def test_each_event_once_and_in_order_at_the_seam(seed: int) -> None:
    """Without a crash, only events whose request failed are sent again: ``World.receive`` compares."""
    choose = random.Random(seed)
    world = begun(choose)
    for _ in range(ROUNDS):
        take_steps(world, choose, NAMES)
        world.quiet()
        check_all_received(world)


@fixed
@given(SEEDS)
def test_at_least_once_over_crashes(seed: int) -> None:
    choose = random.Random(seed)
    world = begun(choose)
    for _ in range(ROUNDS):
        take_steps(world, choose, [*NAMES, "crash", "crash"])
        world.quiet()
        check_all_received(world)


@fixed
@given(SEEDS)
def test_nothing_after_the_end(seed: int) -> None:
    """Timers, places, pages, answers and events that are late start nothing: ``World.do`` compares."""
    choose = random.Random(seed)
    world = begun(choose)
    take_steps(world, choose, NAMES)
    world.cancel()
    assert world.budget.used == 0
    received = list(world.received)
    take_steps(world, choose, NAMES)
    world.quiet()
    assert world.received == received
    assert (world.delivery.state, world.delivery.in_flight, world.budget.used) == (State.CANCELLED, False, 0)
