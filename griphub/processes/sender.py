"""Sender of callbacks as the hub sees it: orders in, reports out, over a child process.

There is no process before the first subscription, unless that of an earlier hub may still be at work. It is started
again after each end, and is given all subscriptions then.
"""

from __future__ import annotations

import asyncio
import enum
import pathlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from griphub.callbacks.courier import Report
from griphub.processes.child import ChildLog, child_arguments
from griphub.processes.child_process import ChildProcess, pause_before
from griphub.processes.frames import frame
from griphub.processes.push_link import PushLink
from griphub.processes.sender_commands import (
    ADD,
    CANCEL,
    CANCELLED,
    EVENTS,
    FIGURES,
    HINT,
    LOCK_SUFFIX,
    READY,
    RENEW,
    REPORTS,
    REST,
    SIGN,
    UNUSABLE,
    PlainEvents,
    PlainKeys,
    PlainSubscription,
    SenderOptions,
)
from griphub.store.errors import StoreProblem
from griphub.store.file_lock import FileLock
from griphub.store.plain_records import Row
from gripproxy.process.log import log

__all__ = ["SenderProcess"]

MODULE: Final = "griphub.processes.sender_process"

SLICE: Final = 100
"""Subscriptions of one frame, which is made in one turn of the loop."""

EVENTS_BYTES: Final = 2_000_000
"""Bytes of events that wait for the next frame; beyond, the sender reads them from the store."""

ROW_BYTES: Final = 500
"""Bytes that a row counts for beside its content."""


class _State(enum.Enum):
    """State of the process."""

    NONE = "not needed yet"
    STARTING = "being started, or waiting for the end of an earlier one"
    WORKING = "takes orders"
    STOPPED = "the hub ends"


class SenderProcess:
    """The only sender of a store, in a process of its own. Used from the loop only.

    Args:
        path: of the store.
        options: of the sender.
        newest: returns the id up to which the hub knows the events of the store.
        numbers: returns the numbers of all subscriptions, for a process that has started.
        plain: returns the subscription with a number; None if there is none any more.
        on_reports: called with reports.
        push: link about subscriptions of the push API; None without the API.
        log_settings: of the log of the process.

    Attributes:
        succession: done when no sender of an earlier hub is at work any more.
        figures: of the process, by name.
        restarts: processes started after the first.
    """

    def __init__(
        self,
        path: pathlib.Path,
        options: SenderOptions,
        newest: Callable[[], int],
        numbers: Callable[[], Iterable[int]],
        plain: Callable[[int], PlainSubscription | None],
        on_reports: Callable[[Sequence[Report]], None],
        push: PushLink | None = None,
        log_settings: ChildLog | None = None,
    ) -> None:
        self._path = path
        self._arguments = [*child_arguments(path, log_settings or ChildLog()), "--options", options.text]
        self._newest = newest
        self._numbers = numbers
        self._plain = plain
        self._on_reports = on_reports
        self._push = push
        self._loop = asyncio.get_running_loop()
        self._state = _State.NONE
        self._child: ChildProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._end = asyncio.Event()
        self._reason = ""
        self._failures = 0
        """Processes in sequence that ended before their first report."""
        self._adding: deque[int] = deque()
        """Numbers of subscriptions that the process is still to be given."""
        self._adding_pushed: deque[int] = deque()
        """Those of the push API."""
        self._cancels: dict[int, asyncio.Future[None]] = {}
        self._events: list[PlainEvents] = []
        self._events_size = 0
        self._hints: dict[int, int] = {}
        self._turn: asyncio.Handle | None = None
        self.succession: Final[asyncio.Future[None]] = self._loop.create_future()
        self.figures: dict[str, int] = {}
        self.restarts = 0

    @property
    def pid(self) -> int:
        """Number of the process; 0 while there is none."""
        return 0 if self._child is None else self._child.pid

    @property
    def working(self) -> bool:
        """True while the process takes orders."""
        return self._state is _State.WORKING

    def open(self) -> None:
        """Start the process if there are subscriptions, or if that of an earlier hub may be at work."""
        if self._state is not _State.NONE:
            return
        self._look_for_earlier()
        pushed = () if self._push is None else self._push.numbers()
        if not self.succession.done() or any(True for numbers in (self._numbers(), pushed) for _ in numbers):
            self._begin()

    def need(self) -> None:
        """Start the process if it was not needed yet."""
        if self._state is _State.NONE:
            self._begin()

    def _look_for_earlier(self) -> None:
        """Find out whether the sender of an earlier hub is at work, while there is none of this hub."""
        try:
            FileLock(self._path.with_name(self._path.name + LOCK_SUFFIX)).release()
        except StoreProblem:
            # In use; or it cannot be made, which the process reports.
            return
        self._succeed()

    def _succeed(self) -> None:
        if not self.succession.done():
            self.succession.set_result(None)

    def _begin(self) -> None:
        self._state = _State.STARTING
        self._task = self._loop.create_task(self._supervise(), name="sender")

    async def stop(self) -> None:
        """End the process after its last reports."""
        self._state = _State.STOPPED
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._child is not None:
            await self._child.stop()
        self._release()

    def kill(self, reason: str) -> None:
        """Kill a process that does not do its work; another one follows.

        Args:
            reason: work that it has not done.
        """
        if self._child is not None:
            log.error("sender killed", pid=self.pid, reason=reason)
            self._child.kill()

    # --- orders

    def add(self, subscription: PlainSubscription) -> None:
        """Begin with a subscription, which is among all of them from now on.

        Args:
            subscription: the subscription.
        """
        self.need()
        self._order((ADD, [subscription], self._newest()))

    def renew(self, number: int) -> None:
        """Begin again with a subscription that rests.

        Args:
            number: of the subscription.
        """
        self._order((RENEW, number))

    def rest(self, numbers: Sequence[int], reason: str) -> None:
        """Make no requests for some subscriptions until they are renewed.

        Args:
            numbers: of the subscriptions.
            reason: why, a value of ``RestReason``.
        """
        self._order((REST, list(numbers), reason))

    def sign(self, number: int, keys: PlainKeys) -> None:
        """Sign the further requests of a subscription with other keys.

        Args:
            number: of the subscription.
            keys: the newest first.
        """
        self._order((SIGN, number, keys))

    def drop(self, numbers: Sequence[int]) -> None:
        """End subscriptions, which are not among all of them any more, without waiting for their requests.

        Args:
            numbers: of the subscriptions.
        """
        self._order((CANCEL, list(numbers)))

    def cancel(self, number: int) -> asyncio.Future[None]:
        """End a subscription, which is not among all of them any more.

        Args:
            number: of the subscription.

        Returns:
            A future that is done when no request of it is under way.
        """
        ended = self._cancels.get(number)
        if ended is not None:
            # A second order would be answered while the request of the first is under way.
            return ended
        ended = self._cancels[number] = self._loop.create_future()
        if self._state is _State.WORKING:
            self._order((CANCEL, [number]))
        elif self.succession.done() and (self._state is not _State.STOPPED or self._child is None):
            # No process is at work that has subscriptions, and the next one is not given this one.
            self._cancelled(number)
        return ended

    def events(self, topic: int, rows: list[Row], size: int) -> None:
        """Pass on events that were committed.

        Args:
            topic: number of their topic.
            rows: the events.
            size: bytes of their contents.
        """
        if self._state is not _State.WORKING:
            # The sender reads the store when it begins.
            return
        size += ROW_BYTES * len(rows)
        if self._events_size + size > EVENTS_BYTES:
            self.hint(topic, rows[-1][0])
            return
        self._events.append((topic, rows))
        self._events_size += size
        self._turn_soon()

    def hint(self, topic: int, newest: int) -> None:
        """Pass on that a topic has events.

        Args:
            topic: number of the topic.
            newest: id of the last of them.
        """
        if self._state is _State.WORKING:
            self._hints[topic] = newest
            self._turn_soon()

    def _turn_soon(self) -> None:
        if self._turn is None:
            self._turn = self._loop.call_soon(self._work)

    def _work(self) -> None:
        """Send a slice of the subscriptions, and the events that wait, if the socket takes them."""
        self._turn = None
        child = self._child
        if child is None or not child.writable or self._state is not _State.WORKING:
            return
        if self._adding:
            numbers = [self._adding.popleft() for _ in range(min(SLICE, len(self._adding)))]
            found = [plain for plain in map(self._plain, numbers) if plain is not None]
            if found:
                child.write(frame((ADD, found, self._newest())))
        elif self._adding_pushed and self._push is not None:
            numbers = [self._adding_pushed.popleft() for _ in range(min(SLICE, len(self._adding_pushed)))]
            if (order := self._push.additions(numbers)) is not None:
                child.write(frame(order))
        if self._adding or self._adding_pushed:
            self._turn_soon()
        events, self._events, self._events_size = self._events, [], 0
        hints, self._hints = self._hints, {}
        if events:
            child.write(frame((EVENTS, events)))
        if hints:
            child.write(frame((HINT, list(hints.items()))))

    def _order(self, order: tuple[Any, ...]) -> None:
        if self._state is _State.WORKING and self._child is not None:
            self._child.write(frame(order))

    # --- reports

    def _received(self, value: Any) -> None:
        kind = value[0]
        if self._push is not None and self._push.received(kind, value[1:]):
            self._failures = 0
        elif kind == REPORTS:
            self._failures = 0
            self._on_reports(value[1])
        elif kind == CANCELLED:
            for number in value[1]:
                self._cancelled(number)
        elif kind == FIGURES:
            self.figures = value[1]
        elif kind == READY:
            self._ready()
        elif kind == UNUSABLE:
            self._reason = value[1]

    def _ready(self) -> None:
        if self._state is not _State.STARTING or self._child is None:
            return
        self._state = _State.WORKING
        # It has the lock, and was not given the cancelled ones.
        self._release()
        self._adding = deque(self._numbers())
        if self._push is not None:
            self._push.began(self._order)
            self._adding_pushed = deque(self._push.numbers())
        self._turn_soon()

    def _cancelled(self, number: int) -> None:
        ended = self._cancels.pop(number, None)
        if ended is not None:
            ended.set_result(None)

    def _release(self) -> None:
        """End all cancellations: no process is at work that has subscriptions."""
        self._succeed()
        for number in list(self._cancels):
            self._cancelled(number)
        if self._push is not None:
            self._push.released()

    # --- end and return

    def _ended(self, reason: str) -> None:
        self._child = None
        if self._state is not _State.STOPPED:
            self._state = _State.STARTING
            log.error("sender ended", reason=f"{reason}, {self._reason}" if self._reason else reason)
        if not self.succession.done():
            self._look_for_earlier()
        if self.succession.done():
            # The kernel has closed its connections.
            self._release()
        if self._push is not None:
            self._push.ended()
        self._adding.clear()
        self._adding_pushed.clear()
        self._events, self._events_size, self._hints = [], 0, {}
        self._end.set()

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(pause_before(self._failures))
            self._failures += 1
            self._end.clear()
            self._reason = ""
            self._child = ChildProcess(MODULE, self._arguments, self._received, self._ended, self._turn_soon)
            try:
                await self._child.start()
            except OSError as error:
                log.error("sender not started", reason=error.strerror)
                self._child = None
                continue
            await self._end.wait()
            self.restarts += 1
