"""Saver of backlogs: states of deliveries to the store, many in a commit, and the wait for them.

A message goes to its dead letter topic in one transaction with the state behind it. No older state may be written
after that: while it is under way, those of its subscription wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from griphub.backlog.intervals import Intervals
from griphub.processes.pubsub_commands import PubsubCommands
from griphub.store.errors import StoreBusy, StoreError
from griphub.store.plain_records import PlainProgress
from gripproxy.process.log import log

__all__ = ["BacklogSaver", "with_message"]

SAVE_MAX: Final = 1000
"""Greatest number of states in one commit."""

ENDS: Final = "the hub ends"

SAVE_PAUSE: Final = 1.0
"""Seconds before states are written again that could not be."""


class BacklogSaver:
    """States of deliveries on their way to the store.

    Args:
        writer: writing process of the store.
        exists: returns whether there is a subscription with a number.
    """

    def __init__(self, writer: PubsubCommands, exists: Callable[[int], bool]) -> None:
        self._writer = writer
        self._exists = exists
        self._loop = asyncio.get_running_loop()
        self._unsaved: dict[int, PlainProgress] = {}
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        """Ends of the writing of the latest states, by number of the subscription."""
        self._batch: tuple[frozenset[int], asyncio.Future[None]] = (frozenset(), self._loop.create_future())
        """Subscriptions whose states are being written, and the end of that."""
        self._held: set[int] = set()
        """Subscriptions whose states wait for a dead letter."""
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def save(self, states: Sequence[PlainProgress]) -> None:
        """Write states of deliveries soon.

        Args:
            states: each in place of an earlier one of its subscription.
        """
        for state in states:
            if self._exists(state[0]):
                self._unsaved[state[0]] = state
        self._begin()

    async def saved(self, number: int) -> None:
        """Wait until the latest state of a subscription is in the store.

        Args:
            number: of the subscription.

        Raises:
            StoreError: it could not be written now; it will be.
        """
        if number in self._unsaved:
            future = self._loop.create_future()
            self._waiting.setdefault(number, []).append(future)
            await future
            return
        numbers, written = self._batch
        if number in numbers:
            await asyncio.shield(written)

    async def hold(self, number: int) -> None:
        """Write no states of a subscription until ``release``, those under way apart, which are waited for.

        Args:
            number: of the subscription.
        """
        self._held.add(number)
        numbers, written = self._batch
        if number in numbers:
            await asyncio.wait([written])

    def release(self, number: int, buried: tuple[int, int] | None) -> None:
        """Write the states of a subscription again.

        Args:
            number: of the subscription.
            buried: id of the message before, and id of a message that was acknowledged meanwhile, which the states do
                not know yet; None for none.
        """
        self._held.discard(number)
        if buried is not None and number in self._unsaved:
            self._unsaved[number] = with_message(self._unsaved[number], *buried)
        self._begin()

    def forget(self, number: int) -> None:
        """Forget a subscription, which was deleted; ``number``: of it."""
        self._unsaved.pop(number, None)
        self._held.discard(number)
        for future in self._waiting.pop(number, ()):
            if not future.done():
                future.set_result(None)

    async def close(self) -> None:
        """Write the last states."""
        self._closed = True
        self._held.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        try:
            while batch := self._slice():
                await self._write(batch)
        except StoreError as error:
            log.warning("states of deliveries not written", "messages are delivered again", reason=error)
        for future in [each for waiting in self._waiting.values() for each in waiting if not each.done()]:
            future.set_exception(StoreBusy(ENDS))
            # Its caller may have left.
            future.exception()

    def _begin(self) -> None:
        if self._task is None and not self._closed and any(number not in self._held for number in self._unsaved):
            self._task = self._loop.create_task(self._work(), name="save backlogs")
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            task.result()
            self._begin()

    async def _work(self) -> None:
        failed = False
        while batch := self._slice():
            try:
                await self._write(batch)
                failed = False
            except StoreError as error:
                if not failed:
                    log.warning("states of deliveries wait", reason=error)
                failed = True
                await asyncio.sleep(SAVE_PAUSE)

    def _slice(self) -> list[PlainProgress]:
        numbers = [number for number in self._unsaved if number not in self._held][:SAVE_MAX]
        return [self._unsaved.pop(number) for number in numbers]

    async def _write(self, batch: list[PlainProgress]) -> None:
        written = self._loop.create_future()
        self._batch = frozenset([state[0] for state in batch]), written
        waiting = [future for state in batch for future in self._waiting.pop(state[0], ())]
        problem: StoreError | None = None
        try:
            await self._writer.save_backlogs(batch)
        except (StoreError, asyncio.CancelledError) as error:
            for state in batch:
                if self._exists(state[0]):
                    # A newer one stands.
                    self._unsaved.setdefault(state[0], state)
            problem = error if isinstance(error, StoreError) else StoreBusy(ENDS)
            raise
        finally:
            self._batch = (frozenset(), written)
            for future in (written, *waiting):
                if future.done():
                    continue
                if problem is None:
                    future.set_result(None)
                else:
                    future.set_exception(problem)
                    # Its caller may have left.
                    future.exception()


def with_message(state: PlainProgress, prev: int, id: int) -> PlainProgress:
    """Return a state in which a further message is acknowledged.

    Args:
        state: the state.
        prev: id of the message before it in its topic; 0 for none.
        id: of the message.
    """
    number, generation, position, acked, attempts, used = state
    intervals = Intervals.decode(position, acked)
    intervals.add(prev, id)
    known = orjson.loads(attempts)
    known.pop(str(id), None)
    return number, generation, intervals.position, intervals.encode(), orjson.dumps(known).decode(), used
