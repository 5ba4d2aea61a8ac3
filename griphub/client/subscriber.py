"""Subscriber: events of a topic, pushed to a callback that it serves, and polled for wherever a push is missing."""

from __future__ import annotations

import asyncio
import os
import pathlib
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final, Self

from aiohttp import web

from griphub.client.connection import HubConnection, Token
from griphub.client.errors import BadAnswer, HubError
from griphub.client.pending_events import PendingEvents
from griphub.client.push_receiver import PushReceiver
from griphub.client.push_server import PushServer, path_of
from griphub.client.received import ReceivedEvent
from griphub.client.subscriber_counts import SubscriberCounts
from griphub.client.subscriber_file import SUBSCRIPTIONS_MAX, PlaceFile, SavedPlace, load_place
from griphub.client.subscription_actions import (
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
from griphub.client.subscription_requests import (
    Failed,
    GoneAnswer,
    Page,
    Refused,
    Subscribed,
    SubscriptionRequests,
)
from griphub.client.subscription_standing import NEVER, RecentPushes, Standing
from griphub.client.subscription_state import State, SubscriptionState
from griphub.client.webhook_signature import WebhookKey

__all__ = ["OnGone", "Report", "ReportKind", "Strategy", "Subscriber", "SubscriberCounts"]

EVENTS_MAX: Final = 1000
"""Events that wait for the application. Then pushes are answered 503, and polls wait; a page under way still enters."""

BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of the events that wait, as they were received. Beyond, as for their number."""

CLOSE_TIMEOUT: Final = 2.0
"""Seconds for the cancellation of subscriptions at the end; those that are left rest by themselves."""

SAVE_AFTER: Final = 1.0
"""Seconds after which a processed event is in the file; those processed meanwhile are repeated after a crash."""

REMAKE_PUSH_ONLY: Final = 300.0
"""Seconds after which a subscription is made again without polls: nothing else would notice that it rests."""

REMAKE_FAILED: Final = 60.0
"""Seconds after which that is tried again."""


_AFTER_PLACE: Final = (PushClass.ACCEPTED, PushClass.GAP, PushClass.OTHER_EPOCH)


class _Phase(Enum):
    """Phase of a subscriber."""

    NEW = auto()
    OPEN = auto()
    ENDED = auto()
    """No event follows those that wait; then the iteration raises the reason."""
    FAILED = auto()
    """A callback or the token's function has raised an exception, which the iteration has to raise."""
    CLOSED = auto()


class Subscriber:
    """Events of a topic, in order and without repetition: pushed to a callback, and polled for where a push is missing.

    ``async with`` starts it, and cancels its subscription at the end. Iteration yields events until ``close``. It
    raises ``Gone`` where the events that follow are not retained and ``on_gone`` is to stop, and ``RequestFailed``
    where the hub refuses the history; everything else is reported and tried again.

    An event counts as processed when the next one is asked for: ``cursor`` is the place behind it. A wait for an event
    may be cancelled without loss; only one task at a time may wait.

    The callback is served on a port of its own, or by ``handle`` as a handler of an application of aiohttp::

        application.router.add_post("/callback", subscriber.handle)

    Args:
        url: of the hub with the prefix of its route.
        topic: name of the topic.
        token: bearer token, or a function that returns one for each request; None for no token.
        callback_url: URL by which the hub reaches the callback; None for that of ``host`` and ``port``, if there is a
            port.
        host: address to listen on.
        port: to listen on, 0 for a free one; None if an application serves ``handle``.
        path: of the callback on that port; None for the one in ``callback_url``.
        after: cursor behind which to begin, ``0`` for the beginning; None for ``since``, or the beginning.
        since: time behind which to begin, RFC 3339 with a zone, as an answer of the hub gave it; None for ``after``.
        state_path: file that has the cursor, and goes before ``after`` and ``since`` if it is there; None for no file.
        strategy: ways by which events arrive.
        on_gone: place to go on from when the next events are not retained.
        on_report: receives reports, from the event loop; it has to return soon. Its exception ends the iteration.
        events_max: events that may wait for the application.
        bytes_max: bytes of these.

    Raises:
        ValueError: a URL is not one of HTTP, ``after`` and ``since`` are both given, pushes have no callback, or the
            file is not one of this topic.
        BadAnswer: ``after`` is no cursor.
        OSError: the file cannot be read.
    """

    def __init__(
        self,
        url: str,
        topic: str,
        *,
        token: Token = None,
        callback_url: str | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        path: str | None = None,
        after: str | None = None,
        since: str | None = None,
        state_path: str | os.PathLike[str] | None = None,
        strategy: Strategy = Strategy.PUSH_AND_POLL,
        on_gone: OnGone = OnGone.EARLIEST,
        on_report: Callable[[Report], object] | None = None,
        events_max: int = EVENTS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        if after is not None and since is not None:
            raise ValueError("after and since exclude each other: both name the beginning")
        callback_path = path_of(callback_url)
        self._callback_url = callback_url
        self._topic = topic
        saved = None if state_path is None else load_place(pathlib.Path(state_path), topic)
        self._file = None if state_path is None else PlaceFile(pathlib.Path(state_path))
        self._since = since if saved is None else None
        self._strategy = strategy
        self._connection = HubConnection(url, token)
        self._requests = SubscriptionRequests(self._connection, topic, events_max)
        self._key = WebhookKey.generate(secrets.token_bytes)
        self._receiver = PushReceiver(self._key, time.time, self._is_current, self._push)
        self._server = None if port is None else PushServer(self.handle, host, port, path or callback_path)
        self._check(strategy)
        self._state = SubscriptionState(
            saved.cursor if saved is not None else after or "0",
            lambda: secrets.token_urlsafe(16),
            random.random,
            # Only a poll finds the place that belongs to a time.
            strategy=strategy if self._since is None else Strategy.PUSH_AND_POLL,
            on_gone=on_gone,
        )
        self._wants_newest = on_gone is OnGone.LATEST
        self._on_report = on_report
        self._pending = PendingEvents(events_max, bytes_max, self._state.cursor)
        self._ids: dict[str, None] = dict.fromkeys(saved.subscriptions if saved is not None else ())
        """Subscriptions that may stand, the oldest first; not more than ``SUBSCRIPTIONS_MAX``."""
        self._made: Subscribe | None = None
        """Subscription that the hub has answered last."""
        self._rights: float | None = None
        self._recent = RecentPushes()
        self._counts: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._remake_timer: asyncio.TimerHandle | None = None
        self._save_timer: asyncio.TimerHandle | None = None
        self._phase = _Phase.NEW
        self._error: BaseException | None = None

    # --- the application

    async def __aenter__(self) -> Self:
        if self._server is not None:
            await self._server.start()
        self._phase = _Phase.OPEN
        if self._ids:
            self._spawn(self._cancel_left(list(self._ids)))
        self._apply([])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[ReceivedEvent]:
        return self

    async def __anext__(self) -> ReceivedEvent:
        if self._pending.processed():
            self._save_soon()
        while self._phase in (_Phase.OPEN, _Phase.ENDED):
            if len(self._pending):
                return self._take()
            if self._phase is _Phase.ENDED:
                break
            self._changed.clear()
            await self._changed.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopAsyncIteration

    @property
    def cursor(self) -> str:
        """Place up to which all events were processed, or reported as lost: ``after`` of the next start."""
        return self._pending.cursor(self._state.cursor)

    @property
    def callback_url(self) -> str | None:
        """URL by which the hub reaches the callback; None for none, or before the start on a free port."""
        if self._callback_url is not None or self._server is None:
            return self._callback_url
        return self._server.url if self._server.port else None

    @property
    def port(self) -> int | None:
        """Port of its own that is listened on; None for none."""
        return None if self._server is None else self._server.port

    @property
    def strategy(self) -> Strategy:
        """Ways by which events arrive."""
        return self._strategy

    @property
    def subscription_id(self) -> str | None:
        """Id of the subscription that pushes are accepted from; None for none at this time."""
        return self._state.subscription_id

    @property
    def counts(self) -> SubscriberCounts:
        """Figures since the start."""
        pushes, own = self._state.counts, self._counts
        return SubscriberCounts(
            pushed=own["pushed"],
            polled=own["polled"],
            repeated=pushes[PushClass.REPEATED],
            overtaken=sum(pushes[kind] for kind in _AFTER_PLACE) - own["pushed"],
            others=pushes[PushClass.OTHER_SUBSCRIPTION],
            busy=pushes[PushClass.FULL],
            refused=sum(self._receiver.refused.values()),
            renewed=own[ReportKind.RENEWED.name],
            failed=own[ReportKind.FAILED.name] + own[ReportKind.REFUSED.name],
            waiting=len(self._pending),
        )

    def switch(self, strategy: Strategy) -> None:
        """Change the strategy. A subscription that is not wanted is cancelled, one that is wanted is made.

        Args:
            strategy: the new one.

        Raises:
            ValueError: it needs pushes, and there is no callback.
        """
        self._check(strategy)
        self._strategy = strategy
        if self._since is None and self._phase is _Phase.OPEN:
            self._apply(self._state.switch(strategy, self._now()))
            self._set_remake_timer()

    def wake(self) -> None:
        """Look for events without waiting, as after sleep or when a network is there again."""
        if self._phase is _Phase.OPEN:
            self._apply(self._state.wake(self._now()))

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request to the callback: a handler of an application of aiohttp, for ``POST``.

        Args:
            request: its content was not read.

        Returns:
            The answer.
        """
        return await self._receiver.handle(request)

    async def close(self) -> None:
        """Cancel the subscription, if the hub answers soon, and end. The iteration ends.

        Raises:
            OSError: the file could not be written.
        """
        if self._phase is _Phase.CLOSED:
            return
        self._stop(_Phase.CLOSED)
        self._state.stop()
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
            # Best effort: subscriptions that are left find no callback, and rest.
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self._cancel_left(list(self._ids))
        finally:
            try:
                # Behind the cancellation: a push under way is answered before.
                if self._server is not None:
                    await self._server.close()
            finally:
                await self._connection.close()
        await self._save()

    # --- actions

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _check(self, strategy: Strategy) -> None:
        if strategy.pushes and self._callback_url is None and self._server is None:
            raise ValueError("pushes need callback_url or port; Strategy.POLL_ONLY needs neither")

    def _apply(self, actions: Sequence[Action], size: int = 0) -> None:
        """Carry out actions; ``size``: bytes of each event."""
        for action in actions:
            match action:
                case Enqueue(event):
                    self._pending.add(event, size)
                case Report():
                    self._report(action)
                case Poll(after):
                    self._spawn(self._poll(after))
                case Subscribe():
                    self._spawn(self._subscribe(action))
                case Cancel(id):
                    self._spawn(self._cancel(id))
        if self._pending.full:
            self._state.pause()
        self._changed.set()
        self._set_timer()

    def _take(self) -> ReceivedEvent:
        full = self._pending.full
        event = self._pending.take()
        if full and not self._pending.full and self._phase is _Phase.OPEN:
            self._apply(self._state.resume(self._now()))
        return event

    def _report(self, report: Report) -> None:
        self._counts[report.kind.name] += 1
        if self._on_report is None or self._phase is not _Phase.OPEN:
            return
        try:
            self._on_report(report)
        except Exception as error:  # noqa: BLE001 - the iteration raises it
            self._fail(error)

    def _is_current(self, id: str) -> bool:
        return self._phase is _Phase.OPEN and id == self._state.subscription_id

    def _push(self, id: str, event: ReceivedEvent, size: int) -> int:
        """Take a push; return the status of its answer."""
        if self._phase is not _Phase.OPEN:
            # A deliberate answer, after which the subscription rests.
            return 410
        actions = self._state.push(id, event, self._now())
        status = next(action.status for action in actions if isinstance(action, AnswerPush))
        self._counts["pushed"] += sum(isinstance(action, Enqueue) for action in actions)
        if status < 300:
            self._recent.add(event.cursor)
        self._apply(actions, size)
        return status

    # --- requests

    async def _poll(self, after: str) -> None:
        since, outcome = self._since, None
        if since is not None:
            outcome = await self._requests.place(since)
        else:
            outcome = await self._requests.poll(after, self._state.subscription_id)
        newest = await self._requests.newest() if isinstance(outcome, GoneAnswer) and self._wants_newest else None
        now, state = self._now(), self._state
        if self._phase is not _Phase.OPEN:
            return
        match outcome:
            case Page(events, cursor, more, size, standing):
                if since is not None:
                    self._since = None
                    self._apply(state.switch(self._strategy, now))
                    # The next page begins there, without a countdown.
                    self._apply(state.wake(now))
                time = self._time(events, standing)
                actions = state.page(events, cursor, now, more=more, server_time=time)
                self._counts["polled"] += sum(isinstance(action, Enqueue) for action in actions)
                self._apply(actions, size // max(1, len(events)))
            case GoneAnswer():
                self._gone(outcome, newest)
            case Refused(error) if error.status == 404:
                self._end(error, state.gone(None, now))
            case Refused(error):
                self._end(error, [Report(ReportKind.FAILED, state.cursor, reason=str(error)), *state.stop()])
            case Failed(reason, asked):
                self._apply(state.failed(now, reason, asked))

    def _time(self, events: Sequence[ReceivedEvent], standing: Standing | None) -> float:
        try:
            return NEVER if standing is None else standing.time(self._recent.missing(events, self._state.cursor))
        except BadAnswer:
            # The state reports such a page.
            return NEVER

    def _gone(self, outcome: GoneAnswer, newest: str | None) -> None:
        error, now, state = outcome.error, self._now(), self._state
        if self._since is not None:
            self._since = None
            self._apply(state.switch(self._strategy, now))
        named = error.problem.members.get("snapshot")
        snapshot = self._connection.url(("topics", self._topic, "snapshot")) if named is not None else None
        actions = state.gone(error.floor_cursor, now, newest=newest, snapshot=snapshot)
        if state.state is State.STOPPED:
            self._end(error, actions)
        else:
            self._apply(actions)

    async def _subscribe(self, order: Subscribe) -> None:
        self._ids[order.id] = None
        if len(self._ids) > SUBSCRIPTIONS_MAX:
            del self._ids[next(iter(self._ids))]
        # Before the request: it may be carried out although this process ends.
        await self._save_or_report()
        outcome = await self._make(order)
        newest = await self._requests.newest() if isinstance(outcome, GoneAnswer) and self._wants_newest else None
        now, state = self._now(), self._state
        if not isinstance(outcome, Subscribed | Failed):
            self._ids.pop(order.id, None)
        if self._phase is not _Phase.OPEN:
            return
        match outcome:
            case Subscribed(rights):
                self._made, self._rights = order, rights
                self._set_remake_timer()
                self._apply(state.subscribed(now))
            case GoneAnswer():
                self._gone(outcome, newest)
            case Refused(error):
                self._apply(state.refused(now, str(error)))
            case Failed(reason, asked):
                # The hub may have made it, so it is renewed as one that was answered: a push that arrives now counts
                # as the answer, and without polls nothing else would find that it rests.
                self._made = order
                self._set_remake_timer(REMAKE_FAILED)
                self._apply(state.failed(now, reason, asked))

    async def _make(self, order: Subscribe) -> Subscribed | GoneAnswer | Refused | Failed:
        url = self.callback_url
        assert url is not None, "it was checked, and the server has started"
        return await self._requests.subscribe(order.id, order.after, url, str(self._key))

    async def _cancel(self, id: str) -> None:
        done = await self._requests.cancel(id)
        if done:
            self._ids.pop(id, None)
        now = self._now()
        if self._phase is _Phase.OPEN:
            self._apply(self._state.cancelled(now) if done else self._state.failed(now, "not cancelled"))

    async def _cancel_left(self, ids: Sequence[str]) -> None:
        """Cancel subscriptions of an earlier life, or all at the end."""
        for id, done in zip(ids, await asyncio.gather(*map(self._requests.cancel, ids)), strict=True):
            if done:
                self._ids.pop(id, None)

    async def _remake(self, order: Subscribe) -> None:
        """Make the subscription again with equal parameters, which prolongs it and ends its rest."""
        outcome = await self._make(order)
        if self._phase is not _Phase.OPEN or self._state.subscription_id != order.id:
            return
        if isinstance(outcome, Subscribed):
            self._rights = outcome.rights
        elif not isinstance(outcome, Failed):
            # A subscription that rests cannot begin again here: a poll finds that, or without polls a new subscription.
            self._apply(self._state.wake(self._now()))
            return
        self._set_remake_timer(None if isinstance(outcome, Subscribed) else REMAKE_FAILED)

    # --- timers

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._state.deadline
        if deadline is not None and self._phase is _Phase.OPEN:
            self._timer = asyncio.get_running_loop().call_at(max(deadline, self._now()), self._tick)

    def _tick(self) -> None:
        # A timer may be called somewhat early, by the resolution of the clock.
        self._apply(self._state.timer(max(self._now(), self._state.deadline or 0.0)))

    def _set_remake_timer(self, seconds: float | None = None) -> None:
        if self._remake_timer is not None:
            self._remake_timer.cancel()
            self._remake_timer = None
        if seconds is None:
            seconds = None if self._rights is None else self._rights / 2
            if not self._strategy.polls:
                seconds = min(REMAKE_PUSH_ONLY, seconds or REMAKE_PUSH_ONLY)
        if seconds is not None and self._phase is _Phase.OPEN:
            self._remake_timer = asyncio.get_running_loop().call_later(seconds, self._remake_now)

    def _remake_now(self) -> None:
        order = self._made
        if self._phase is _Phase.OPEN and order is not None and order.id == self._state.subscription_id:
            self._spawn(self._remake(order))

    # --- the file

    def _save_soon(self) -> None:
        if self._file is not None and self._save_timer is None and self._phase is _Phase.OPEN:
            self._save_timer = asyncio.get_running_loop().call_later(SAVE_AFTER, self._save_now)

    def _save_now(self) -> None:
        self._save_timer = None
        if self._phase is _Phase.OPEN:
            self._spawn(self._save_or_report())

    async def _save_or_report(self) -> None:
        try:
            await self._save()
        except OSError as error:
            self._report(Report(ReportKind.FAILED, self.cursor, reason=f"the file was not written: {error}"))

    async def _save(self) -> None:
        if self._file is not None:
            await self._file.save(lambda: SavedPlace(self._topic, self.cursor, tuple(self._ids)))

    # --- tasks and their ends

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _end(self, error: HubError, actions: Sequence[Action]) -> None:
        """End with a reason: the events that wait are given before it is raised."""
        self._apply(actions)
        if self._phase is _Phase.OPEN:
            self._error, self._phase = error, _Phase.ENDED
            self._set_timer()
            self._set_remake_timer()
            self._changed.set()

    def _fail(self, error: BaseException) -> None:
        if self._phase is _Phase.OPEN:
            self._error = error
            self._stop(_Phase.FAILED)

    def _stop(self, phase: _Phase) -> None:
        self._phase = phase
        self._set_timer()
        self._set_remake_timer()
        if self._save_timer is not None:
            self._save_timer.cancel()
            self._save_timer = None
        for task in self._tasks:
            task.cancel()
        self._changed.set()
