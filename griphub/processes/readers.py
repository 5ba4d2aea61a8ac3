"""Readers of the store as the hub sees them: calls in, results out, over some child processes.

A reader has one call at a time. The calls that wait have a turn for each owner, so that one with many long calls delays
the others by one call only; and no owner has all readers at a time.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from griphub.processes.child import ChildLog, child_arguments
from griphub.processes.child_process import ChildProcess, pause_before
from griphub.processes.fair_queue import FairQueue
from griphub.processes.frames import frame
from griphub.processes.reader_process import ANSWER, FAILED, PIECE, READY, RENDERED, UNUSABLE
from griphub.processes.rendered import RenderedPage, RenderedSnapshot
from griphub.store.errors import OwnerBusy, StoreBroken, StoreBusy, StoreError, StoreProblem
from griphub.store.event import Event
from griphub.store.interface import KeyRange, Page, SnapshotPage, StorePage, StoreState
from griphub.store.plain_pubsub import pubsub_of
from griphub.store.plain_records import (
    event_of,
    page_of,
    snapshot_page_of,
    state_of,
    store_page_of,
    subscription_of,
    topic_of,
)
from griphub.store.pubsub_subscription import PubsubSubscription
from griphub.store.subscription import Subscription
from griphub.store.topic import Topic
from griphub.topics.event_text import Representation
from gripproxy.process.log import log

__all__ = ["ReaderOptions", "ReaderPool"]

T = TypeVar("T")

MODULE: Final = "griphub.processes.reader_process"

WAITING_MAX: Final = 1000
"""Number of calls that wait, of all owners; a further one is refused."""

OWNER_MAX: Final = 100
"""Number of calls that wait for one owner."""

DEADLINE: Final = 30.0
"""Seconds for a call, its wait included; a reader that takes longer is replaced."""


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """Options of the readers.

    Attributes:
        waiting_max: greatest number of calls that wait.
        owner_max: greatest number of calls that wait for one owner.
        deadline: seconds for a call.
        log: log of the processes.
        module: dotted name of the module that the processes run; its calls are those of ``reader_process``.
    """

    waiting_max: int = WAITING_MAX
    owner_max: int = OWNER_MAX
    deadline: float = DEADLINE
    log: ChildLog = field(default_factory=ChildLog)
    module: str = MODULE


@dataclass(eq=False, slots=True)
class _Call:
    """One call, from its beginning to its result."""

    owner: str
    request: bytes
    result: asyncio.Future[Any]
    deadline: asyncio.TimerHandle | None = None
    tries: int = 0
    reader: _Reader | None = None


class ReaderPool:
    """Readers of a store, each in a process of its own. Used from the loop only.

    Args:
        path: of the store.
        count: number of processes.
        options: of the readers.
    """

    def __init__(self, path: pathlib.Path, count: int = 2, options: ReaderOptions | None = None) -> None:
        self._options = options or ReaderOptions()
        self._loop = asyncio.get_running_loop()
        self._queue: FairQueue[_Call] = FairQueue(self._options.waiting_max, self._options.owner_max, max(1, count - 1))
        arguments = child_arguments(path, self._options.log)
        self._readers = [_Reader(self._options.module, arguments, self._dispatch, self._lost) for _ in range(count)]
        self._stopped = False

    @property
    def waiting(self) -> int:
        """Number of calls that wait for a reader."""
        return len(self._queue)

    @property
    def pids(self) -> list[int]:
        """Numbers of the processes; 0 for one that is being started."""
        return [reader.pid for reader in self._readers]

    async def start(self) -> None:
        """Start the processes.

        Raises:
            StoreProblem: the store cannot be read.
        """
        try:
            for reader in self._readers:
                await reader.start()
        except StoreProblem:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the processes; calls without a result fail."""
        self._stopped = True
        for reader in self._readers:
            await reader.stop()
        while (taken := self._queue.take()) is not None:
            self._fail(taken[1], StoreBusy("the hub is ending"))
            self._queue.finished(taken[0])

    # --- calls

    async def call(self, method: str, *arguments: Any, owner: str = "") -> Any:
        """Have a reader carry out a method of ``RowReader`` or ``PageRenderer``.

        Args:
            method: name of the method.
            arguments: plain values.
            owner: text that names the owner whose call it is.

        Returns:
            The plain result; of a rendering, its fields and the bytes.

        Raises:
            OwnerBusy: too many calls of the owner wait.
            StoreBusy: too many calls wait, or no result was there in time.
            StoreError: the store could not be read.
        """
        queue = self._queue
        if self._stopped or len(queue) >= queue.waiting_max:
            raise StoreBusy(f"{len(queue)} calls wait for the readers of the store: repeat the request later")
        if queue.waiting(owner) >= queue.owner_max:
            raise OwnerBusy(f"{queue.owner_max} reads of this owner wait already")
        call = _Call(owner, frame((method, arguments)), self._loop.create_future())
        call.deadline = self._loop.call_later(self._options.deadline, self._late, call)
        queue.add(owner, call)
        self._dispatch()
        try:
            return await call.result
        finally:
            call.deadline.cancel()
            # Of a caller that was cancelled. A call that a reader has begun is carried out, its result dropped.
            queue.remove(owner, call)

    def _dispatch(self) -> None:
        """Give waiting calls to free readers."""
        for reader in self._readers:
            if reader.free and not self._stopped:
                taken = self._queue.take()
                if taken is None:
                    return
                reader.begin(taken[1], self._finished)

    def _finished(self, call: _Call, result: Any, error: StoreError | None) -> None:
        self._queue.finished(call.owner)
        call.reader = None
        if error is not None:
            self._fail(call, error)
        elif not call.result.done():
            call.result.set_result(result)

    def _lost(self, call: _Call) -> None:
        """Repeat a call whose reader has ended, once."""
        self._queue.finished(call.owner)
        call.reader = None
        if call.result.done():
            return
        if call.tries > 1 or self._stopped:
            self._fail(call, StoreBusy("the reader of the store ended during the call"))
        else:
            self._queue.add(call.owner, call, first=True)
            self._dispatch()

    def _late(self, call: _Call) -> None:
        self._fail(call, StoreBusy(f"the store was not read within {self._options.deadline:g} s"))
        if call.reader is not None:
            log.warning("reader killed", pid=call.reader.pid, reason="deadline")
            call.reader.kill()

    def _fail(self, call: _Call, error: StoreError) -> None:
        if not call.result.done():
            call.result.set_exception(error)

    # --- methods

    async def state(self, *, owner: str = "") -> StoreState:
        """Return the state of the store; ``owner`` names the caller. Raises as ``call``."""
        return state_of(await self.call("state", owner=owner))

    async def topic(self, name: str, *, owner: str = "") -> Topic | None:
        """Return a topic; raises as ``call``.

        Args:
            name: of the topic.
            owner: owner whose call it is.

        Returns:
            The topic; None if there is none.
        """
        return _made(topic_of, await self.call("topic", name, owner=owner))

    async def topics(self, after: str = "", limit: int = 1000, *, owner: str = "") -> list[Topic]:
        """Return topics in the order of their names; raises as ``call``.

        Args:
            after: name behind which the list begins.
            limit: greatest number of topics.
            owner: owner whose call it is.
        """
        return list(map(topic_of, await self.call("topics", after, limit, owner=owner)))

    async def page(
        self,
        number: int,
        after: int,
        keys: KeyRange,
        limit: int,
        size: int,
        until: int | None = None,
        *,
        owner: str = "",
    ) -> Page | None:
        """Return events of a topic above an id; see ``StoreReader.page``; raises as ``call``.

        Args:
            number: of the topic.
            after: id below the first event.
            keys: range of keys.
            limit: greatest number of events.
            size: bytes of content after which the page ends.
            until: greatest id; None for the newest.
            owner: owner whose call it is.
        """
        return _made(page_of, await self.call("page", number, after, _plain(keys), limit, size, until, owner=owner))

    async def render_page(
        self,
        number: int,
        after: int,
        keys: KeyRange,
        limit: int,
        size: int,
        until: int | None,
        representation: Representation,
        *,
        owner: str = "",
    ) -> RenderedPage | None:
        """Return events of a topic above an id, rendered; see ``StoreReader.page``; raises as ``call``.

        Args:
            number: of the topic.
            after: id below the first event.
            keys: range of keys.
            limit: greatest number of events.
            size: bytes of content after which the page ends.
            until: greatest id; None for the newest.
            representation: form of the contents.
            owner: owner whose call it is.
        """
        arguments = (number, after, _plain(keys), limit, size, until, representation.value)
        fields, body = await self.call("render_page", *arguments, owner=owner)
        return None if fields is None else RenderedPage(topic_of(fields[0]), body, *fields[1:])

    async def snapshot(
        self,
        number: int,
        keys: KeyRange,
        version: int,
        after_key: str | None,
        limit: int,
        size: int,
        *,
        owner: str = "",
    ) -> SnapshotPage | None:
        """Return the last event of each key at a version; see ``StoreReader.snapshot``; raises as ``call``.

        Args:
            number: of the topic.
            keys: range of keys.
            version: id up to which events count.
            after_key: key behind which the page begins; None for the first page.
            limit: greatest number of events.
            size: bytes of content after which the page ends.
            owner: owner whose call it is.
        """
        arguments = (number, _plain(keys), version, after_key, limit, size)
        return _made(snapshot_page_of, await self.call("snapshot", *arguments, owner=owner))

    async def render_snapshot(
        self,
        number: int,
        keys: KeyRange,
        version: int,
        after_key: str | None,
        limit: int,
        size: int,
        *,
        owner: str = "",
    ) -> RenderedSnapshot | None:
        """Return the last event of each key at a version as NDJSON; see ``StoreReader.snapshot``; raises as ``call``.

        Args:
            number: of the topic.
            keys: range of keys.
            version: id up to which events count.
            after_key: key behind which the page begins; None for the first page.
            limit: greatest number of events.
            size: bytes of content after which the page ends.
            owner: owner whose call it is.
        """
        arguments = (number, _plain(keys), version, after_key, limit, size)
        fields, body = await self.call("render_snapshot", *arguments, owner=owner)
        return None if fields is None else RenderedSnapshot(topic_of(fields[0]), body, *fields[1:])

    async def events_after(self, after: int, limit: int, size: int, *, owner: str = "") -> StorePage:
        """Return events of all topics above an id; raises as ``call``.

        Args:
            after: id below the first event.
            limit: greatest number of events.
            size: bytes of content after which the page ends.
            owner: owner whose call it is.
        """
        return store_page_of(await self.call("events_after", after, limit, size, owner=owner))

    async def event_at(self, number: int, id: int, *, owner: str = "") -> Event | None:
        """Return the event of a topic with an id, or None; raises as ``call``.

        Args:
            number: of the topic.
            id: of the event.
            owner: owner whose call it is.
        """
        return _made(event_of, await self.call("event_at", number, id, owner=owner))

    async def id_at(self, number: int, time: int, *, owner: str = "") -> int:
        """Return the id of the last event of a topic that is not later than a time, or 0; raises as ``call``.

        Args:
            number: of the topic.
            time: in microseconds since 1970.
            owner: owner whose call it is.
        """
        return int(await self.call("id_at", number, time, owner=owner))

    async def count_after(self, number: int, after: int, most: int, *, owner: str = "") -> tuple[int, int]:
        """Return the number of events of a topic above an id, and the id of the last one counted; raises as ``call``.

        Args:
            number: of the topic.
            after: id below the first event.
            most: greatest number.
            owner: owner whose call it is.
        """
        count, last = await self.call("count_after", number, after, most, owner=owner)
        return count, last

    async def last_of(self, number: int, key: str, *, owner: str = "") -> Event | None:
        """Return the last event of a key, a deletion too, or None; raises as ``call``.

        Args:
            number: of the topic.
            key: the key.
            owner: owner whose call it is.
        """
        return _made(event_of, await self.call("last_of", number, key, owner=owner))

    async def last_in(self, number: int, keys: KeyRange, until: int, *, owner: str = "") -> int:
        """Return the id of the last event of a range at or below an id, or 0; raises as ``call``.

        Args:
            number: of the topic.
            keys: range of keys.
            until: greatest id.
            owner: owner whose call it is.
        """
        return int(await self.call("last_in", number, _plain(keys), until, owner=owner))

    async def subscriptions(self, after: int = 0, limit: int = 1000, *, owner: str = "") -> list[Subscription]:
        """Return subscriptions in the order of their numbers; raises as ``call``.

        Args:
            after: number behind which the list begins.
            limit: greatest number of subscriptions.
            owner: owner whose call it is.
        """
        return list(map(subscription_of, await self.call("subscriptions", after, limit, owner=owner)))

    async def pubsub(self, after: int = 0, limit: int = 1000, *, owner: str = "") -> list[PubsubSubscription]:
        """Return subscriptions of the push API in the order of their numbers; raises as ``call``.

        Args:
            after: number behind which the list begins.
            limit: greatest number of subscriptions.
            owner: owner whose call it is.
        """
        return list(map(pubsub_of, await self.call("pubsub", after, limit, owner=owner)))


class _Reader:
    """One reader: its process, started again after each end, and its call."""

    def __init__(
        self, module: str, arguments: list[str], on_free: Callable[[], None], on_lost: Callable[[_Call], None]
    ) -> None:
        self._module = module
        self._arguments = arguments
        self._on_free = on_free
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._child: ChildProcess | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._working = False
        self._stopped = False
        self._reason = ""
        self._starts = 0
        self._useful = False
        """True once the process has answered: its end is then the first one of a row."""
        self._call: _Call | None = None
        self._pieces: list[bytes] = []
        """Text of the page so far, of at most ``FRAME_MAX`` bytes: the process sends no longer one."""
        self._finished: Callable[[_Call, Any, StoreError | None], None] | None = None
        self._again: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return 0 if self._child is None else self._child.pid

    @property
    def free(self) -> bool:
        return self._working and self._call is None

    async def start(self) -> None:
        self._ready = self._loop.create_future()
        self._reason = ""
        self._child = ChildProcess(self._module, self._arguments, self._received, self._ended)
        self._useful = False
        try:
            await self._child.start()
        except OSError as error:
            self._child = None
            raise StoreProblem(f"a reader of the store cannot be started: {error.strerror}") from error
        await self._ready

    async def stop(self) -> None:
        self._stopped = True
        if self._again is not None:
            self._again.cancel()
        if self._child is not None:
            await self._child.stop()

    def kill(self) -> None:
        self._working = False
        if self._child is not None:
            self._child.kill()

    def begin(self, call: _Call, finished: Callable[[_Call, Any, StoreError | None], None]) -> None:
        assert self._child is not None
        call.reader, call.tries = self, call.tries + 1
        self._call, self._finished = call, finished
        self._child.write(call.request)

    def _received(self, value: Any) -> None:
        kind = value[0]
        if kind == PIECE:
            self._pieces.append(value[1])
        elif kind in (ANSWER, RENDERED, FAILED) and self._call is not None and self._finished is not None:
            self._useful = True
            call, self._call = self._call, None
            pieces, self._pieces = self._pieces, []
            error = StoreBroken(f"the store could not be read: {value[1]}") if kind == FAILED else None
            self._finished(call, (value[1], b"".join(pieces)) if kind == RENDERED else value[1], error)
            self._on_free()
        elif kind == READY:
            self._working = True
            if not self._ready.done():
                self._ready.set_result(None)
            self._on_free()
        elif kind == UNUSABLE:
            self._reason = value[1]

    def _ended(self, reason: str) -> None:
        self._working = False
        self._child = None
        call, self._call = self._call, None
        self._pieces.clear()
        if not self._ready.done():
            self._ready.set_exception(StoreProblem(self._reason or f"a reader of the store ended: {reason}"))
        elif not self._stopped:
            log.warning("reader ended", reason=reason)
            if self._again is None or self._again.done():
                self._again = self._loop.create_task(self._start_again())
        if call is not None:
            self._on_lost(call)

    async def _start_again(self) -> None:
        if self._useful:
            self._starts = 0
        while not self._stopped and self._child is None:
            await asyncio.sleep(pause_before(self._starts))
            self._starts += 1
            try:
                await self.start()
            except StoreProblem as error:
                log.error("reader not started", reason=error)


def _plain(keys: KeyRange) -> tuple[str | None, str | None, bool]:
    return keys.low, keys.high, keys.keyed


def _made(make: Callable[[Any], T], plain: Any) -> T | None:
    return None if plain is None else make(plain)
