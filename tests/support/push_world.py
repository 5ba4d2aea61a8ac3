"""World of push subscriptions in virtual time: the sender's orders as they are, a store, a hub and receivers of memory.

Each run has a seed. It writes a history, which ``tests/support/push_validators.py`` judges.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from griphub.backlog.intervals import Intervals
from griphub.callbacks.desk_subscription import EventPage
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.pushed_event import PushedEvent
from griphub.processes.push_commands import (
    BACKLOGS,
    BURIED,
    BURY,
    PUSH_ADD,
    PUSH_CHANGE,
    PUSH_MOVE,
    PUSH_REMOVE,
    PUSH_REMOVED,
)
from griphub.processes.push_orders import PushOrders
from griphub.pubsub.message import ORDERING_KEY
from griphub.pubsub.names import check_resource
from griphub.pubsub.proto_json import read_message
from griphub.pubsub.subscription_resource import SUBSCRIPTION, check_subscription
from griphub.sender.failure_class import FailureClass
from griphub.store.plain_pubsub import attempts_of

__all__ = ["CAP", "NEVER", "Begun", "History", "PushWorld", "Subscription"]

NEVER = float("inf")
_decode = Intervals.decode
"""As it is without a mutant."""
CAP = 50
"""Window that the hub allows."""

TOPIC, DEAD = 1, 2
REPORT, STORING = 0.2, 0.05
"""Seconds between two reports of the sender, and from a report to its place in the store."""

Answer = tuple[float, Outcome]
"""Seconds until the outcome of a request, and the outcome."""

Receiver = Callable[["Begun", random.Random], Answer]


@dataclass(slots=True)
class Begun:
    """Request that has begun.

    Attributes:
        subscription: its number.
        id: of the message; 0 for a question.
        at: time, in seconds.
        headers: of the request.
        attempt: number of the delivery as the request has it; 0 without one.
        life: number of the sender's process.
        generation: of the subscription.
        ended: time of the end; infinite while it is under way.
        end: ``ack``, ``nack``, ``late``, ``aborted`` or ``killed``.
        status: of the answer.
        interim: statuses before it.
    """

    subscription: int
    id: int
    at: float
    headers: dict[str, str]
    attempt: int
    life: int
    generation: int
    ended: float = NEVER
    end: str = ""
    status: int = 0
    interim: tuple[int, ...] = ()


@dataclass(slots=True)
class Subscription:
    """Subscription of the world.

    Attributes:
        number: its number.
        settings: fields of the API.
        receiver: answers its requests.
        position: stored state.
        acked: stored intervals.
        attempts: stored attempts.
        generation: number of moves.
        removed: time from which it is deleted.
        changed: times of changes of its receiver.
    """

    number: int
    settings: dict[str, Any]
    receiver: Receiver
    position: int = 0
    acked: bytes = b""
    attempts: dict[int, int] = field(default_factory=dict)
    generation: int = 0
    removed: float = NEVER
    changed: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """All that happened.

    Attributes:
        published: id, ordering key and attributes of each message.
        begun: requests, in order.
        recorded: subscription and id of messages whose acknowledgement is stored, and since when.
        buried: subscription and id of messages in the dead letter topic.
        kills: times at which the sender died.
        subscriptions: those of the run.
        quiet: whether the run ended without anything to do.
    """

    published: list[tuple[int, str, dict[str, str]]] = field(default_factory=list)
    begun: list[Begun] = field(default_factory=list)
    recorded: dict[tuple[int, int, int], float] = field(default_factory=dict)
    buried: list[tuple[int, int]] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    subscriptions: dict[int, Subscription] = field(default_factory=dict)
    end: float = 0.0


class _Request:
    """Request of the sender's client, which ends it at its deadline."""

    def __init__(self, world: PushWorld, begun: Begun, done: Callable[[Outcome], None]) -> None:
        self._world, self._begun, self._done = world, begun, done
        self._over = False
        self.number = next(world.numbers)

    def abort(self) -> None:
        self.end("aborted")

    def end(self, end: str, outcome: Outcome | None = None) -> None:
        if self._over:
            return
        self._over = True
        begun = self._begun
        begun.ended, begun.end = self._world.now, end
        self._world.requests.pop(self.number, None)
        if outcome is not None:
            begun.status, begun.interim = outcome.status, outcome.interim
            self._done(outcome)


class PushWorld:
    """World of one run.

    Args:
        seed: of its chances.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1000.0
        self.history = History()
        self.requests: dict[int, _Request] = {}
        self.numbers = itertools.count()
        self._events: list[PushedEvent] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._life = 0
        self._orders: PushOrders | None = None
        self._begin()

    # --- the store

    def page(self, topic: int, after: int, limit: int) -> EventPage | None:
        found = [event for event in self._events if event.id > after][:limit]
        full = len(found) == limit
        return EventPage(found, found[-1].id if full else self._newest, 0)

    def event(self, topic: int, id: int) -> PushedEvent | None:
        return next((event for event in self._events if event.id == id), None)

    @property
    def _newest(self) -> int:
        return self._events[-1].id if self._events else 0

    # --- what a test does

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something some seconds later."""
        heapq.heappush(self._heap, (self.now + seconds, next(self._order), act))

    def subscribe(self, receiver: Receiver, **given: Any) -> Subscription:
        """Make a subscription of the topic."""
        number = len(self.history.subscriptions) + 1
        name = check_resource("p", "subscriptions", f"ss-{number}")
        push = {"pushEndpoint": f"https://host{number}.example/", **given.pop("pushConfig", {})}
        values = read_message(SUBSCRIPTION, {"topic": "projects/p/topics/tt-1", "pushConfig": push, **given})
        settings = dict(orjson.loads(orjson.dumps(check_subscription(name, values))))
        found = self.history.subscriptions[number] = Subscription(number, settings, receiver, self._newest)
        self._add(found)
        return found

    def publish(self, key: str = "", **attributes: str) -> int:
        """Publish a message; return its id."""
        id = self._newest + 10
        every = {**attributes, **({ORDERING_KEY: key} if key else {})}
        text = orjson.dumps(every).decode() if every else None
        prev = self._newest
        event = PushedEvent((id, prev, id, round(self.now * 1e6), b"x", "text/plain", None, 0, text, 1))
        self._events.append(event)
        self.history.published.append((id, key, attributes))
        if self._orders is not None:
            if self.random.random() < 0.8:
                self._orders.stored(TOPIC, [event])
            else:
                self._orders.hint(TOPIC, id)
        return id

    def kill(self, pause: float = 0.5) -> None:
        """Kill the sender's process; another one begins after a pause with the stored states."""
        self.history.kills.append(self.now)
        self._orders = None
        for request in [*self.requests.values()]:
            request.end("killed")
        self.at(pause, self._begin)

    def move(self, subscription: Subscription, position: int) -> None:
        """Seek."""
        subscription.generation += 1
        subscription.position, subscription.acked, subscription.attempts = position, b"", {}
        subscription.moved.append(self.now)
        self._say(PUSH_MOVE, subscription.number, subscription.generation, position, b"")

    def redirect(self, subscription: Subscription, receiver: Receiver) -> None:
        """Have another receiver called."""
        subscription.changed.append(self.now)
        subscription.receiver = receiver
        count = len(subscription.changed)
        endpoint = f"https://other{count}-{subscription.number}.example/"
        subscription.settings = {
            **subscription.settings,
            "pushConfig": {**subscription.settings["pushConfig"], "pushEndpoint": endpoint},
        }
        self._say(PUSH_CHANGE, subscription.number, subscription.settings)

    def remove(self, subscription: Subscription) -> None:
        """Delete; the time of the answer counts."""
        self._say(PUSH_REMOVE, [subscription.number])
        if self._orders is None:
            subscription.removed = self.now

    def run(self, seconds: float) -> History:
        """Let time pass; return the history."""
        end = self.now + seconds
        while True:
            orders = self._orders
            while orders is not None and orders.work():
                pass
            deadline = orders.deadline if orders is not None else None
            following = min(self._heap[0][0] if self._heap else NEVER, NEVER if deadline is None else deadline)
            if following > end:
                self.now = end
                self.history.end = end
                return self.history
            self.now = max(self.now, following)
            while self._heap and self._heap[0][0] <= self.now:
                _, _, act = heapq.heappop(self._heap)
                act()

    # --- the hub

    def _begin(self) -> None:
        self._life += 1
        life = self._life
        self._orders = PushOrders(
            lambda answer: self._answered(life, answer), self, self._send, lambda: self.now, lambda: self.now,
            "hub.example", CAP, (10_000, 10_000, 10_000),
        )  # fmt: skip
        for subscription in self.history.subscriptions.values():
            if subscription.removed == NEVER:
                self._add(subscription)
        self.at(REPORT, lambda: self._report(life))

    def _add(self, subscription: Subscription) -> None:
        plain = (
            *(subscription.number, TOPIC, "owner", subscription.settings, subscription.position, subscription.acked),
            *(dict(subscription.attempts), subscription.generation),
        )
        self._say(PUSH_ADD, [plain], self._newest)

    def _say(self, kind: int, *arguments: Any) -> None:
        if self._orders is not None:
            self._orders.orders[kind](*arguments)

    def _report(self, life: int) -> None:
        if life == self._life and self._orders is not None:
            while self._orders.report():
                pass
            self.at(REPORT, lambda: self._report(life))

    def _answered(self, life: int, answer: tuple[Any, ...]) -> None:
        kind, *arguments = answer
        if kind == BACKLOGS:
            states = arguments[0]
            # A report on its way arrives, also if the sender dies behind it.
            self.at(STORING, lambda: self._store_all(states))
        elif kind == BURY:
            number, _, row, _, state = arguments
            self.at(STORING, lambda: self._bury(life, number, row[0], state))
        elif kind == PUSH_REMOVED:
            for number in arguments[0]:
                self.history.subscriptions[number].removed = self.now

    def _store_all(self, states: Sequence[Any]) -> None:
        for state in states:
            self._store(state)

    def _store(self, state: Any) -> None:
        number, generation, position, acked, attempts, _ = state
        subscription = self.history.subscriptions[number]
        if subscription.generation != generation or position < subscription.position:
            return
        subscription.position, subscription.acked = position, acked
        subscription.attempts = dict(attempts_of(attempts))
        ids = _decode(position, acked)
        for id, _, _ in self.history.published:
            if id in ids:
                self.history.recorded.setdefault((number, generation, id), self.now)

    def _bury(self, life: int, number: int, id: int, state: Any) -> None:
        subscription = self.history.subscriptions[number]
        if subscription.generation == state[1]:
            self.history.buried.append((number, id))
            self._store(state)
        if life == self._life:
            self._say(BURIED, number, id, True)

    # --- the network

    def _send(
        self,
        url: object,
        owner: str,
        headers: Any,
        body: bytes,
        answer_max: int,
        done: Callable[[Outcome], None],
        *,
        deadline: float | None = None,
        content_type: str | None = None,
        method: str = "POST",
        keep: object = (),
    ) -> _Request:
        number = int(str(url).partition("host")[2].partition(".")[0] or str(url).partition("-")[2].partition(".")[0])
        subscription = self.history.subscriptions[number]
        document = orjson.loads(body) if body else {}
        id = int(document["message"]["messageId"]) if document else 0
        begun = Begun(
            *(number, id, self.now, dict(headers), document.get("deliveryAttempt", 0), self._life),
            subscription.generation,
        )
        self.history.begun.append(begun)
        request = _Request(self, begun, done)
        self.requests[request.number] = request
        seconds, outcome = subscription.receiver(begun, self.random)
        if deadline is not None and seconds >= deadline:
            seconds, outcome = deadline, Outcome(failure=FailureClass.TIMEOUT, interim=outcome.interim)
        if seconds < NEVER:
            self.at(seconds, lambda: request.end(_end_of(outcome), outcome))
        return request


def _end_of(outcome: Outcome) -> str:
    if outcome.failure is FailureClass.TIMEOUT and 102 not in outcome.interim:
        return "late"
    final = outcome.status in (200, 201, 202, 204)
    return "ack" if final or (outcome.failure is not None and 102 in outcome.interim) else "nack"
