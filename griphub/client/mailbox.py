"""Mailbox: events of many topics and keys, each once and in order, over one poll after the other."""

from __future__ import annotations

import asyncio
import enum
import json
import random
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from griphub.client.batch import Answer
from griphub.client.connection import HubConnection, Token
from griphub.client.errors import Closed, HubError, RequestFailed, problem_of
from griphub.client.mailbox_actions import (
    Action,
    Cause,
    CommandsAnswer,
    Deliver,
    Pair,
    Poll,
    ReadHistory,
    Report,
    SendCommands,
)
from griphub.client.mailbox_answers import MailboxEvent, commands_answer_of, place_of, poll_answer_of
from griphub.client.mailbox_history import HistoryReader, failure_of
from griphub.client.mailbox_state import FAILURE_AFTER, MailboxState

__all__ = ["Mailbox", "MailboxEvent"]

POLL_WAIT: Final = 60
"""Seconds for which a poll without messages is held."""

POLL_TIMEOUT: Final = POLL_WAIT + 30.0
"""Seconds after which a poll counts as lost."""

CLOSE_TIMEOUT: Final = 2.0
"""Seconds for the removal of the mailbox at the end; the hub removes one that is left after some minutes."""


class _Phase(enum.Enum):
    """Phase of a mailbox."""

    OPEN = enum.auto()
    FAILED = enum.auto()
    """A callback or the token's function has raised an exception, which the iteration has to raise."""
    CLOSED = enum.auto()


class Mailbox:
    """Events of many topics and keys over one long-poll. Iteration yields ``MailboxEvent`` until ``close``.

    Each subscription has its events once and in order, over lost connections and restarts of the hub: events that the
    hub's mailbox has lost are read from the history, before any later one. Where a topic and one of its keys are both
    followed, an event may be repeated after a failure.

    An event counts as processed when the next one is asked for: only then is it acknowledged. The hub is polled when
    all events of the last reply were processed, so no more than those are in memory. A wait for an event may be
    cancelled without loss; only one task at a time may wait.

    Callbacks are called from the event loop, and have to return soon. An exception raised by one, or by the token's
    function, ends the iteration with it.

    Args:
        url: of the hub with the prefix of its route.
        token: bearer token, or a function that returns one for each request; None for none.
        on_subscribed: receives topic, key and the cursor behind which events are delivered by the mailbox, when the hub
            has answered a subscribe, also one after a failure; None as the cursor if it has refused it.
        on_ended: receives topic and key of a subscription that the hub has ended: the topic was deleted, or the right
            to it has ended.
        on_failure: receives the reason when the hub was away for ``failure_after``, has lost the mailbox, or does not
            retain events that were to be read. Attempts go on.
        on_lost: receives topic, key and the cursor of the last message that the mailbox has lost; those up to there
            are delivered next.
        failure_after: seconds of failed attempts after which they are reported.

    Raises:
        ValueError: the URL is not one of HTTP.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Token = None,
        on_subscribed: Callable[[str, str | None, str | None], object] | None = None,
        on_ended: Callable[[str, str | None], object] | None = None,
        on_failure: Callable[[str], object] | None = None,
        on_lost: Callable[[str, str | None, str], object] | None = None,
        failure_after: float = FAILURE_AFTER,
    ) -> None:
        self._connection = HubConnection(url, token)
        self._polling = HubConnection(url, token, POLL_TIMEOUT)
        self._on_subscribed = on_subscribed
        self._on_ended = on_ended
        self._on_failure = on_failure
        self._on_lost = on_lost
        self._state = MailboxState(lambda: secrets.token_hex(16), random.random, failure_after)
        self._work: deque[Deliver | ReadHistory | Poll] = deque()
        """Actions that wait for the application to process the events before: of one reply, and a history each."""
        self._history = HistoryReader(self._connection, failure_after, self._failed, self._arrived)
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._commands_task: asyncio.Task[None] | None = None
        self._poll_task: asyncio.Task[None] | None = None
        self._read_pairs: frozenset[Pair] = frozenset()
        """Subscriptions whose histories were begun last: their events may wait."""
        self._reading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._begun = False
        """True when commands were sent: there may be a mailbox to be removed."""
        self._phase = _Phase.OPEN
        self._error: BaseException | None = None

    # --- the application

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def subscribe(self, topic: str, key: str | None = None, after: str | None = None) -> None:
        """Add a subscription. It does not wait for the hub: ``on_subscribed`` is called with the answer.

        Args:
            topic: name of the topic.
            key: key; None for the whole topic.
            after: cursor behind which it begins, with events of the history; ``0`` for the beginning. None to begin
                with the next event; a subscription that is there goes on.

        Raises:
            ValueError: there are too many subscriptions, ``after`` is no cursor, or a name has no UTF-8.
            Closed: the mailbox is closed.
        """
        self._check_open()
        # A text that is none would spoil the batch of other commands.
        f"{topic}{key or ''}".encode()
        place = None if after is None else place_of(after)
        pair = Pair(topic, key)
        if place is not None:
            self._drop(pair)
        self._apply(self._state.subscribe(pair, self._now(), place))

    async def unsubscribe(self, topic: str, key: str | None = None) -> None:
        """Remove a subscription: none of its events is delivered any more.

        Args:
            topic: name of the topic.
            key: key; None for the whole topic.

        Raises:
            Closed: the mailbox is closed.
        """
        self._check_open()
        pair = Pair(topic, key)
        actions = self._state.unsubscribe(pair, self._now())
        self._drop(pair)
        self._apply(actions)

    def __aiter__(self) -> AsyncIterator[MailboxEvent]:
        return self

    async def __anext__(self) -> MailboxEvent:
        while self._phase is _Phase.OPEN:
            event = self._next()
            if event is not None:
                return event
            self._changed.clear()
            await self._changed.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopAsyncIteration

    async def close(self) -> None:
        """End all requests, and remove the mailbox if the hub answers soon. The iteration ends."""
        if self._phase is _Phase.CLOSED:
            return
        self._stop(_Phase.CLOSED)
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
            if self._begun:
                # Best effort: the hub removes a mailbox without polls itself.
                with suppress(Exception):
                    async with asyncio.timeout(CLOSE_TIMEOUT):
                        await self._connection.request("DELETE", ("subscribers", self._state.subscriber))
        finally:
            try:
                await self._polling.close()
            finally:
                await self._connection.close()

    # --- actions

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _check_open(self) -> None:
        if self._phase is not _Phase.OPEN:
            raise Closed("the mailbox is closed: make another one")

    def _apply(self, actions: Sequence[Action]) -> None:
        """Carry out actions: those that follow the order of events wait for the application."""
        lost: Pair | None = None
        for action in actions:
            if self._phase is not _Phase.OPEN:
                return
            match action:
                case SendCommands():
                    self._begun = True
                    if self._commands_task is not None:
                        # Of an earlier life of the mailbox.
                        self._commands_task.cancel()
                    self._commands_task = self._spawn(self._send(action))
                case Report(Cause.LOST, pair):
                    lost = pair
                case ReadHistory(pair, _, until):
                    if pair == lost:
                        self._call(self._on_lost, pair.topic, pair.key, until.cursor)
                    lost = None
                    self._work.append(action)
                case Deliver() | Poll():
                    self._work.append(action)
                case Report():
                    self._report(action)
        self._changed.set()
        self._set_timer()

    def _report(self, report: Report) -> None:
        pair = report.pair
        if pair is None:
            text = f"{report.cause.value}: {report.detail}" if report.detail else report.cause.value
            self._failed(text)
        elif report.cause is Cause.REFUSED:
            self._call(self._on_subscribed, pair.topic, pair.key, None)
        else:
            self._call(self._on_ended, pair.topic, pair.key)

    def _failed(self, reason: str) -> None:
        self._call(self._on_failure, reason)

    def _arrived(self) -> None:
        self._changed.set()

    def _next(self) -> MailboxEvent | None:
        """Return the next event, which makes the one before processed; None if it has not arrived."""
        while True:
            read = self._history.take()
            if read is not None:
                return read
            if self._reading is not None or not self._work:
                return None
            match self._work.popleft():
                case Deliver(message):
                    event: MailboxEvent = message.payload
                    return event
                case ReadHistory() as first:
                    histories = self._side_by_side(first)
                    self._read_pairs = frozenset(history.pair for history in histories)
                    self._reading = self._spawn(self._read_all(histories))
                case Poll() as poll:
                    if self._state.poll_begun(poll, self._now()):
                        if self._poll_task is not None:
                            self._poll_task.cancel()
                        self._poll_task = self._spawn(self._ask(poll))

    def _side_by_side(self, first: ReadHistory) -> list[ReadHistory]:
        """Return a history, and those behind it of other keys of its topic that begin at the same place."""
        histories = [first]
        if first.pair.key is None:
            return histories
        keys = {first.pair.key}
        while self._work:
            following = self._work[0]
            if not isinstance(following, ReadHistory) or following.pair.key is None or following.pair.key in keys:
                break
            if following.pair.topic != first.pair.topic or following.after != first.after:
                break
            self._work.popleft()
            keys.add(following.pair.key)
            histories.append(following)
        return histories

    def _drop(self, pair: Pair) -> None:
        """Remove the events of a subscription that wait, unless another one has them too."""
        if pair in self._read_pairs and not self._history.drop(pair.key) and self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._work = deque(action for action in self._work if not self._is_of(action, pair))
        self._changed.set()

    def _is_of(self, action: Deliver | ReadHistory | Poll, pair: Pair) -> bool:
        match action:
            case Deliver(message):
                topic, subject = Pair(message.topic), Pair(message.topic, message.key)
                others = {topic, subject} - {pair}
                return pair in (topic, subject) and not any(self._state.follows(other) for other in others)
            case ReadHistory():
                return action.pair == pair
            case Poll():
                return False

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._state.deadline
        if deadline is not None and self._phase is _Phase.OPEN:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)

    def _tick(self) -> None:
        # A timer may be called somewhat early, by the resolution of the clock.
        self._apply(self._state.tick(max(self._now(), self._state.deadline or 0.0)))

    # --- requests

    async def _send(self, batch: SendCommands) -> None:
        path = ("subscribers", batch.subscriber, "commands")
        headers = [("Content-Type", "application/json")]
        body = json.dumps(batch.document(), ensure_ascii=False).encode()
        actions: list[Action]
        try:
            answer = commands_answer_of(await _success(self._connection.request("POST", path, (), headers, body)))
            actions = self._state.commands_answered(batch, answer, self._now())
        except HubError as error:
            actions = self._state.commands_failed(batch, failure_of(error), self._now())
        else:
            if not any(isinstance(action, Report) and action.cause is Cause.RESTARTED for action in actions):
                self._report_subscribed(batch, answer)
        # Ended as far as the next batch is concerned, which begins now.
        self._commands_task = None
        self._apply(actions)

    def _report_subscribed(self, batch: SendCommands, answer: CommandsAnswer) -> None:
        pairs = [pair for subscribe, pair in batch.commands if subscribe]
        for pair, last in zip(pairs, answer.last, strict=True):
            if last is not None and self._state.follows(pair):
                self._call(self._on_subscribed, pair.topic, pair.key, last.cursor)

    async def _ask(self, poll: Poll) -> None:
        query = [("max_processed_sequence_id", str(poll.max_processed)), ("wait", str(POLL_WAIT))]
        if poll.publisher_id is not None:
            query.append(("publisher_id", poll.publisher_id))
        try:
            body = await _success(self._polling.request("GET", ("subscribers", poll.subscriber, "poll"), query))
            actions = self._state.poll_answered(poll, poll_answer_of(body), self._now())
        except HubError as error:
            actions = self._state.poll_failed(poll, failure_of(error), self._now())
        self._poll_task = None
        self._apply(actions)

    async def _read_all(self, histories: Sequence[ReadHistory]) -> None:
        await self._history.read(histories)
        self._reading = None
        self._changed.set()

    # --- tasks and their ends

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _call(self, callback: Callable[..., object] | None, *values: object) -> None:
        if callback is None or self._phase is not _Phase.OPEN:
            return
        try:
            callback(*values)
        except Exception as error:  # noqa: BLE001 - the iteration raises it
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._phase is _Phase.OPEN:
            self._error = error
            self._stop(_Phase.FAILED)

    def _stop(self, phase: _Phase) -> None:
        self._phase = phase
        self._set_timer()
        for task in self._tasks:
            task.cancel()
        self._changed.set()


async def _success(request: Coroutine[Any, Any, Answer]) -> bytes:
    """Return the content of an answer; raise ``RequestFailed`` if it has another status than 200."""
    answer = await request
    if answer.status != 200:
        raise RequestFailed(problem_of(answer.status, answer.content_type, answer.body), answer.retry_after)
    return answer.body
