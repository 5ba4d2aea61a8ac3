"""Reader of a topic in virtual time: the real ``SubscriptionState`` and ``SubscriptionRequests``, and an application.

Its process can be killed: it begins again with the cursor that its application has stored, and the ids of the
subscriptions that may stand.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Final, Literal, cast

import orjson

from griphub.client.batch import Answer
from griphub.client.connection import HubConnection
from griphub.client.errors import ConnectionLost
from griphub.client.received import ReceivedEvent
from griphub.client.subscription_actions import (
    Action,
    AnswerPush,
    Cancel,
    Enqueue,
    Poll,
    Report,
    ReportKind,
    Strategy,
    Subscribe,
)
from griphub.client.subscription_requests import Failed, GoneAnswer, Page, Refused, Subscribed, SubscriptionRequests
from griphub.client.subscription_standing import NEVER, RecentPushes
from griphub.client.subscription_state import State, SubscriptionState
from griphub.sender.signature import TOLERANCE
from tests.support.p3sub_history import BEGINNING, History, Started, Told, Took
from tests.support.p3sub_network import Clock, Network, Timer
from tests.support.p3sub_publisher import Publisher, Reply

__all__ = ["QUEUE_MAX", "REQUEST_LIMIT", "Reader"]

REQUEST_LIMIT: Final = 30.0
"""Seconds for the answer to a request."""

QUEUE_MAX: Final = 8
"""Events that wait for the application; beyond, pushes are refused."""

REMAKE: Final = 300.0
"""Seconds after which a subscription is made again without polls, as the subscriber does."""

REMAKE_FAILED: Final = 60.0
"""Seconds after which that is tried again."""

PAGE: Final = 5
"""Greatest number of events of a page, so that a history has several."""

_TOLD: Final[dict[ReportKind, Literal["gone", "gap", "renewed"]]] = {
    ReportKind.GONE: "gone",
    ReportKind.GAP: "gap",
    ReportKind.RENEWED: "renewed",
}


class _Asked:
    """Request whose answer a coroutine waits for."""

    def __init__(self, method: str, path: Sequence[str], query: dict[str, str], body: bytes) -> None:
        self.method: Final = method
        self.path: Final = path
        self.query: Final = query
        self.body: Final = body

    def __await__(self) -> Generator[_Asked, Answer, Answer]:
        return (yield self)


class _Connection:
    """Connection to the publisher, as the requests of a subscriber use it."""

    def url(self, path: Sequence[str]) -> str:
        """Return the URL of a path; a part of the interface."""
        return "/".join(path)

    async def request(
        self,
        method: str,
        path: Sequence[str],
        query: Sequence[tuple[str, str]] = (),
        headers: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
    ) -> Answer:
        """Send a request.

        Args:
            method: of HTTP.
            path: segments.
            query: parameters.
            headers: names and values.
            body: content; None for none.

        Returns:
            The answer.
        """
        return await _Asked(method, path, dict(query), body or b"")


class Reader:
    """Application with a subscriber.

    Args:
        name: of the host of its callback, too.
        clock: virtual time.
        network: between it and the publisher.
        history: takes records.
        publisher: the publisher.
        rng: chance.
        strategy: ways by which events arrive.

    Attributes:
        name: that of the arguments.
        pace: seconds that the application takes for an event; 0 for none.
        arrived: time at which each event was taken first, in seconds, by cursor.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        network: Network,
        history: History,
        publisher: Publisher,
        rng: random.Random,
        strategy: Strategy = Strategy.PUSH_AND_POLL,
    ) -> None:
        self.name: Final = name
        self.pace = 0.0
        self.arrived: dict[str, float] = {}
        self._clock = clock
        self._network = network
        self._history = history
        self._publisher = publisher
        self._rng = rng
        self._strategy = strategy
        self._requests = SubscriptionRequests(cast(HubConnection, _Connection()), "news", PAGE)
        self._saved = BEGINNING
        self._ids: dict[str, None] = {}
        self._state: SubscriptionState | None = None
        self._life = 0
        self._recent = RecentPushes()
        self._queue: deque[ReceivedEvent | Report] = deque()
        self._working = False
        self._timer: Timer | None = None
        self._coroutines: set[Coroutine[_Asked, Answer, None]] = set()

    @property
    def up(self) -> bool:
        """True while its process is there."""
        return self._state is not None

    def start(self) -> None:
        """Start its process."""
        self._history.add(Started(self._clock.now, self.name, self._saved))
        self._state = SubscriptionState(self._saved, self._new_id, self._rng.random, strategy=self._strategy)
        for id in list(self._ids):
            self._begin(self._cancel_left(id))
        self._settle()

    def kill(self) -> None:
        """Kill its process: its queue and its requests are lost."""
        self._state = None
        self._life += 1
        self._queue.clear()
        self._working = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for coroutine in self._coroutines:
            coroutine.close()
        self._coroutines.clear()

    def slow(self, pace: float) -> None:
        """Change the pace of the application.

        Args:
            pace: seconds for an event; 0 for none.
        """
        self.pace = pace

    def wake(self) -> None:
        """Look for events without waiting."""
        if self._state is not None:
            self._apply(self._state.wake(self._clock.now))

    def _new_id(self) -> str:
        return f"{self.name}-{self._rng.randrange(2**64):x}"

    # --- its callback

    def callback(self, body: bytes, reply: Reply) -> None:
        """Take a request to the callback.

        Args:
            body: its content.
            reply: sends the answer.
        """
        if self._state is None:
            reply(None)
            return
        if abs(self._publisher.wall) > TOLERANCE:
            # The time in the signature is not near that of the reader's own clock.
            reply(Answer(401))
            return
        document = orjson.loads(body)
        id = document.pop("subscription_id")
        if document["type"] == "challenge":
            known = id == self._state.subscription_id
            reply(Answer(200, "text/plain", document["challenge"].encode()) if known else Answer(410))
            return
        document.pop("topic")
        event = ReceivedEvent.of(document)
        if id == self._state.subscription_id:
            self._recent.add(event.cursor)
        actions = self._state.push(id, event, self._clock.now)
        [status] = [action.status for action in actions if isinstance(action, AnswerPush)]
        reply(Answer(status, retry_after=1.0 if status == 503 else None))
        self._apply(actions)

    # --- actions

    def _apply(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Enqueue(event):
                    self._queue.append(event)
                case Report(kind) if kind in _TOLD:
                    self._queue.append(action)
                case Poll(after):
                    self._begin(self._poll(after))
                case Subscribe():
                    self._begin(self._subscribe(action))
                case Cancel(id):
                    self._begin(self._cancel(id))
        assert self._state is not None
        if len(self._queue) >= QUEUE_MAX:
            self._state.pause()
        self._settle()
        self._work()

    def _settle(self) -> None:
        """Set the timer of the state."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = None if self._state is None else self._state.deadline
        if deadline is not None:
            self._timer = self._clock.at(deadline, self._tick)

    def _tick(self) -> None:
        if self._state is not None:
            self._apply(self._state.timer(self._clock.now))

    # --- the application

    def _work(self) -> None:
        """Take the next event from the queue, unless one is being worked at."""
        if self._working:
            return
        while self._queue and not self.pace:
            self._take()
        if self._queue:
            life, self._working = self._life, True
            self._clock.after(self.pace, lambda: self._worked() if self._life == life else None)
        elif self._state is not None:
            self._saved = self._state.cursor

    def _worked(self) -> None:
        self._working = False
        self._take()
        self._work()

    def _take(self) -> None:
        full = len(self._queue) >= QUEUE_MAX
        entry = self._queue.popleft()
        if isinstance(entry, Report):
            kind = _TOLD[entry.kind]
            self._history.add(Told(self._clock.now, self.name, kind, entry.after, entry.until))
            if entry.kind is ReportKind.GONE and entry.until is not None:
                self._saved = entry.until
        else:
            self._history.add(Took(self._clock.now, self.name, entry.cursor))
            self.arrived.setdefault(entry.cursor, self._clock.now)
            self._saved = entry.cursor
        if full and len(self._queue) < QUEUE_MAX and self._state is not None:
            self._apply(self._state.resume(self._clock.now))

    # --- requests

    def _begin(self, coroutine: Coroutine[_Asked, Answer, None]) -> None:
        self._coroutines.add(coroutine)
        self._go_on(coroutine, lambda: coroutine.send(None))  # type: ignore[arg-type]

    def _go_on(self, coroutine: Coroutine[_Asked, Answer, None], step: Callable[[], _Asked]) -> None:
        try:
            asked = step()
        except StopIteration:
            self._coroutines.discard(coroutine)
            return

        def answered(answer: Answer | None) -> None:
            if coroutine in self._coroutines:
                if answer is None:
                    lost = ConnectionLost("no answer", maybe_stored=True)
                    self._go_on(coroutine, lambda: coroutine.throw(lost))
                else:
                    self._go_on(coroutine, lambda: coroutine.send(answer))

        def arrived(reply: Reply) -> None:
            self._publisher.request(asked.method, asked.path, asked.query, asked.body, reply)

        self._network.send(arrived, answered, REQUEST_LIMIT)

    async def _poll(self, after: str) -> None:
        assert self._state is not None
        outcome = await self._requests.poll(after, self._state.subscription_id)
        state, now = self._state, self._clock.now
        match outcome:
            case Page(events, cursor, more, _, standing):
                missing = self._recent.missing(events, state.cursor)
                time = NEVER if standing is None else standing.time(missing)
                self._apply(state.page(events, cursor, now, more=more, server_time=time))
            case GoneAnswer(error):
                self._apply(state.gone(error.floor_cursor, now))
            case Failed(reason, asked):
                self._apply(state.failed(now, reason, asked))
            case Refused(error):
                raise AssertionError(f"{self.name}: the history was refused: {error}")

    def _remake_later(self, order: Subscribe, seconds: float) -> None:
        if self._strategy is Strategy.PUSH_ONLY:
            life = self._life
            self._clock.after(seconds, lambda: self._begin(self._remake(order)) if self._life == life else None)

    async def _remake(self, order: Subscribe) -> None:
        """Make a subscription again, which ends its rest: nothing else would notice that."""
        state = self._state
        if state is None or state.subscription_id != order.id:
            return
        outcome = await self._requests.subscribe(order.id, order.after, f"http://{self.name}/hook", "whsec_x")
        if state.subscription_id != order.id:
            return
        if isinstance(outcome, Subscribed | Failed):
            self._remake_later(order, REMAKE if isinstance(outcome, Subscribed) else REMAKE_FAILED)
        else:
            self._apply(state.wake(self._clock.now))

    async def _subscribe(self, order: Subscribe) -> None:
        self._ids[order.id] = None
        callback = f"http://{self.name}/hook"
        outcome = await self._requests.subscribe(order.id, order.after, callback, "whsec_x")
        state, now = self._state, self._clock.now
        assert state is not None
        match outcome:
            case Subscribed():
                self._remake_later(order, REMAKE)
                self._apply(state.subscribed(now))
            case GoneAnswer(error):
                self._apply(state.gone(error.floor_cursor, now))
            case Refused(error):
                self._apply(state.refused(now, str(error)))
            case Failed(reason, asked):
                # It may have been made, and a push is as good as an answer.
                self._remake_later(order, REMAKE_FAILED)
                self._apply(state.failed(now, reason, asked))

    async def _cancel(self, id: str) -> None:
        done = await self._requests.cancel(id)
        if done:
            self._ids.pop(id, None)
        state, now = self._state, self._clock.now
        if state is not None and state.state is not State.STOPPED:
            self._apply(state.cancelled(now) if done else state.failed(now, "not cancelled"))

    async def _cancel_left(self, id: str) -> None:
        if await self._requests.cancel(id):
            self._ids.pop(id, None)
