"""Watcher: the changes of a range of keys, whole transactions in order, over as many streams as it takes."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Self

from griphub.client.connection import HubConnection, StreamResponse, Token
from griphub.client.errors import BadAnswer, Closed, ConnectionLost, Gone, HubError, RequestFailed
from griphub.client.key_range import KeyRange
from griphub.client.retry import REPEATED
from griphub.client.snapshot import SnapshotLines, SnapshotVersion, read_snapshot
from griphub.client.source_snapshot import BEGINNING, SourceSnapshots
from griphub.client.watch_actions import (
    AskApplication,
    Deliver,
    Fail,
    OpenStream,
    Request,
    TakeSnapshot,
    WatchAction,
    WatchReport,
    WatchReportKind,
)
from griphub.client.watch_lines import WatchLines
from griphub.client.watch_messages import Change, Progress, Resync, Snapshot, Version, WatchMessage
from griphub.client.watch_silence import INTERVAL, WatchSilence
from griphub.client.watch_state import SNAPSHOT_MAX, WatchPhase, WatchState

__all__ = ["Watcher"]

LINES: Final = "application/x-ndjson"

QUEUE_BYTES: Final = 1024 * 1024
"""Bytes of messages that wait for the application. From there on the stream is not read, until half are taken."""

QUEUE_MESSAGES: Final = 1_000
"""Number of messages that wait for the application. From there on the stream is not read, until half are taken."""

MESSAGE_SIZE: Final = 200
"""Bytes of a message without events."""

TURN: Final = 500
"""Lines after which other tasks have their turn."""

ELSEWHERE: Final = (
    "the snapshots of this topic are elsewhere, and are not read with the hub's token: give snapshots=, a function that"
    " reads them"
)
"""Text of the error if the hub redirects the request for a snapshot."""


class Watcher:
    """Changes of a range of keys of a topic. Iteration yields ``Change``, ``Progress`` and ``Snapshot``.

    A ``Change`` is a transaction, as far as it is in the range: each one is given once, in order, and whole.
    ``Progress`` promises that all changes up to a version were given; it arrives also when nothing happens. A
    ``Snapshot`` takes the place of all that was given before, and the changes behind exactly its version follow.
    It is the first message, unless ``cursor`` names a place to begin at, and it follows a resync: if the hub does
    not retain the changes from the place that was reached, as after a long absence or a restore.

    Lost connections, 429, 502, 503 and 504 are followed by another attempt after a growing pause, without end.
    Iteration raises ``RequestFailed`` where the hub refuses it. A wait for a message may be cancelled without loss;
    only one task at a time may wait. While the application does not iterate, the stream is read up to a bound, and
    then left alone.

    Callbacks are called from the event loop, and have to return soon. An exception raised by one, or by the token's
    function, ends the iteration with it.

    Args:
        url: of the hub with the prefix of its route.
        topic: name of the topic.
        low: least key; None for no bound. With a bound, events without key are not among them.
        high: key below which the others are; None for no bound.
        cursor: place behind which changes are wanted, ``0`` for the beginning; None to begin with a snapshot.
        token: bearer token, or a function that returns one for each request; None for none.
        on_resync: receives the hub's answer when changes are missing, takes a snapshot itself, and returns the cursor
            of its version, from which the watch goes on; or None for a snapshot by the watcher. None if that takes all.
        snapshots: reads a snapshot of a range, at its newest version, from the source of a soft topic, whose snapshots
            the hub does not have. It returns None if there is none at the moment. After that, and after an ``OSError``
            or ``ConnectionLost`` that it raises, it is called again after a growing pause. None for snapshots of the
            hub.
        on_report: receives reports of lost streams, resyncs and faults of the hub. The watch goes on by itself.
        interval: seconds between progress, a setting of the topic: a stream without a line for three times as long is
            lost. A longer interval is learned.
        snapshot_max: bytes of a snapshot.

    Raises:
        ValueError: the URL is not one of HTTP, no key is in the range, or both ``on_resync`` and ``snapshots`` are
            given.
        BadAnswer: ``cursor`` is no cursor.
    """

    def __init__(
        self,
        url: str,
        topic: str,
        low: str | None = None,
        high: str | None = None,
        *,
        cursor: str | None = None,
        token: Token = None,
        on_resync: Callable[[Resync], Awaitable[str | None]] | None = None,
        snapshots: SourceSnapshots | None = None,
        on_report: Callable[[WatchReport], object] | None = None,
        interval: float = INTERVAL,
        snapshot_max: int = SNAPSHOT_MAX,
    ) -> None:
        if on_resync is not None and snapshots is not None:
            raise ValueError("on_resync and snapshots exclude each other: both take snapshots")
        self._connection = HubConnection(url, token)
        self._topic = topic
        self._range = KeyRange.of(low, high)
        self._on_resync = on_resync
        self._snapshots = snapshots
        self._floor = Version.of("0")
        """Version of the source behind which the hub has all changes, as the last resync has named it."""
        self._floor_cursor = "0"
        self._ahead = False
        """True while nothing has followed the last snapshot."""
        self._behind = False
        """True if the last snapshot of a source was that of a version below the floor."""
        self._begun = snapshots is None or cursor is not None
        """False until the resync that only names the floor."""
        self._on_report = on_report
        self._state = WatchState(
            self._range,
            BEGINNING if cursor is None and snapshots is not None else cursor,
            random.random,
            handed=on_resync is not None or snapshots is not None,
            silence=WatchSilence(interval),
            snapshot_max=snapshot_max,
        )
        self._cursor = cursor
        self._request: Request | None = None
        self._queue: deque[tuple[WatchMessage, int]] = deque()
        self._size = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._closed = False
        self.streams = 0
        """Number of streams that were opened."""

    @property
    def range(self) -> KeyRange:
        """Watched range."""
        return self._range

    @property
    def cursor(self) -> str | None:
        """Place up to which all changes were yielded, to begin another watcher at; None before the first message."""
        return self._cursor

    # --- the application

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[WatchMessage]:
        return self

    async def __anext__(self) -> WatchMessage:
        if self._closed:
            raise Closed("the watcher is closed: make another one, with cursor= to go on")
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        while not self._queue:
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
            if self._closed:
                raise StopAsyncIteration
        message, size = self._queue.popleft()
        self._size -= size
        if 2 * self._size <= QUEUE_BYTES and 2 * len(self._queue) <= QUEUE_MESSAGES:
            self._room.set()
        if not isinstance(message, Progress) or message.whole:
            self._cursor = message.cursor
        return message

    async def close(self) -> None:
        """End all requests. The iteration ends."""
        self._closed = True
        self._state.stop()
        self._arrived.set()
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])
        finally:
            await self._connection.close()

    # --- actions

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _apply(self, actions: Sequence[WatchAction]) -> None:
        for action in actions:
            match action:
                case Deliver(message):
                    self._deliver(message)
                case WatchReport():
                    self._request = None
                    self._report(action)
                case Fail(reason):
                    self._request = None
                    raise HubError(reason)
                case OpenStream() | TakeSnapshot() | AskApplication():
                    self._request = action

    def _report(self, report: WatchReport) -> None:
        expected = not self._begun and report.kind is WatchReportKind.RESYNC
        self._begun = self._begun or expected
        if self._on_report is not None and not expected:
            self._on_report(report)

    def _deliver(self, message: WatchMessage) -> None:
        self._ahead = isinstance(message, Snapshot)
        size = MESSAGE_SIZE + (message.size if isinstance(message, Change | Snapshot) else 0)
        self._queue.append((message, size))
        self._size += size
        if self._size >= QUEUE_BYTES or len(self._queue) >= QUEUE_MESSAGES:
            self._room.clear()
        self._arrived.set()

    # --- requests

    async def _run(self) -> None:
        try:
            self._apply(self._state.begin(self._now()))
            while self._state.phase is not WatchPhase.STOPPED:
                match self._request:
                    case None:
                        await self._pause()
                    case OpenStream() as request:
                        await self._attempt(request, self._watch(request))
                    case TakeSnapshot() as request:
                        take = self._take if self._snapshots is None else self._take_source
                        await self._attempt(request, take(request))
                    case AskApplication() as request:
                        await self._ask(request)
        except Exception as error:  # noqa: BLE001 - the iteration raises it
            self._error = error
            self._state.stop()
        finally:
            self._arrived.set()

    async def _pause(self) -> None:
        deadline = self._state.deadline
        assert deadline is not None
        await asyncio.sleep(deadline - self._now())
        # A timer may be called somewhat early, by the resolution of the clock.
        self._apply(self._state.timer(max(self._now(), deadline)))

    async def _attempt(self, request: OpenStream | TakeSnapshot, work: Awaitable[None]) -> None:
        """Carry out a request; only its end is judged here."""
        number = request.number
        try:
            await work
        except Gone as error:
            if isinstance(request, OpenStream):
                self._apply(self._state.gone(number, _resync_of(error), self._now()))
            elif error.floor_cursor is None:
                raise
            else:
                # The version was forgotten while it was read.
                self._apply(self._state.ended(number, str(error), self._now()))
        except RequestFailed as error:
            if isinstance(request, TakeSnapshot) and 300 <= error.status < 400:
                raise HubError(ELSEWHERE) from error
            if error.status not in REPEATED:
                raise
            self._apply(self._state.ended(number, str(error), self._now(), error.retry_after))
        except ConnectionLost as error:
            self._apply(self._state.ended(number, str(error), self._now()))

    async def _watch(self, request: OpenStream) -> None:
        path, query = ("topics", self._topic, "watch"), [*self._range.query(), ("version", request.cursor)]
        headers = [("Accept", LINES), ("Cache-Control", "no-store")]
        async with self._connection.stream(path, query, headers) as response:
            if response.content_type != LINES:
                raise BadAnswer(f"{response.content_type or 'no type'} in place of a watch")
            self.streams += 1
            self._apply(self._state.opened(request.number, self._now()))
            await self._read(request, response)
        if self._request is request:
            self._apply(self._state.ended(request.number, "the stream ended", self._now()))

    async def _read(self, request: OpenStream, response: StreamResponse) -> None:
        """Read a stream until its end, or until another request takes its place."""
        lines = WatchLines()
        chunks = response.chunks()
        while self._request is request:
            if not self._room.is_set():
                await self._room.wait()
                self._state.waiting(self._now())
            chunk = await self._chunk(chunks)
            if chunk is None:
                return
            for index, line in enumerate(lines.feed(chunk), 1):
                if line is not None:
                    self._apply(self._state.line(request.number, line, self._now()))
                if self._request is not request:
                    return
                if index % TURN == 0:
                    await asyncio.sleep(0)

    async def _chunk(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """Return the next part of the stream; None at its end, or after too long a silence."""
        deadline = self._state.deadline
        try:
            if deadline is not None and self._now() >= deadline:
                # A part that has arrived is returned without a wait, and no timeout passes.
                raise TimeoutError
            async with asyncio.timeout_at(deadline):
                return await anext(chunks, None)
        except TimeoutError:
            self._apply(self._state.timer(max(self._now(), deadline or 0.0)))
            return None

    async def _take(self, request: TakeSnapshot) -> None:
        low, high = self._range.low or None, self._range.high
        lines = SnapshotLines()
        snapshot = read_snapshot(self._connection, self._topic, low, high, lines=lines)
        number, count = request.number, 0
        async for message in snapshot:
            if isinstance(message, SnapshotVersion):
                self._apply(self._state.versioned(number, message.cursor, self._now()))
            else:
                self._apply(self._state.taken(number, message, lines.size + MESSAGE_SIZE, self._now()))
            if self._request is not request:
                return
            count += 1
            if count % TURN == 0:
                await asyncio.sleep(0)
        self._apply(self._state.complete(number, self._now()))

    async def _take_source(self, request: TakeSnapshot) -> None:
        assert self._snapshots is not None
        number, floor = request.number, self._floor
        try:
            snapshot = await self._snapshots(self._range)
        except OSError as error:
            raise ConnectionLost(str(error) or type(error).__name__, maybe_stored=False) from error
        if snapshot is None:
            raise ConnectionLost("the source has no snapshot now", maybe_stored=False)
        if snapshot.version < floor.number:
            # The source lags; or it was restored, and the hub has another floor since.
            self._behind = True
            text = f"the snapshot of the source is that of version {snapshot.version}, and changes up to {floor.number}"
            raise ConnectionLost(f"{text} are not retained", maybe_stored=False)
        # A snapshot that the hub has not reached yet may be refused as a place, and each later one too if the source
        # goes on: then the watch begins at the floor, and drops the changes that the snapshot has. The version of the
        # floor alone may be a place of before a reset.
        begin = self._floor_cursor if self._ahead or snapshot.version == floor.number else None
        self._apply(self._state.versioned(number, str(snapshot.place(floor)), self._now(), begin))
        for count, event in enumerate(snapshot.events(floor), 1):
            size = len(str(event.data)) + len(event.key or "") + MESSAGE_SIZE
            self._apply(self._state.taken(number, event, size, self._now()))
            if self._request is not request:
                return
            if count % TURN == 0:
                await asyncio.sleep(0)
        self._apply(self._state.complete(number, self._now()))

    async def _ask(self, request: AskApplication) -> None:
        cursor = None
        if self._on_resync is not None:
            cursor = await self._on_resync(request.resync)
        elif request.resync.floor_cursor is None or self._behind:
            # The hub does not know yet how far the source is, or its answer was out of order: it is asked again.
            cursor, self._behind = BEGINNING, False
        else:
            self._floor, self._floor_cursor = Version.of(request.resync.floor_cursor), request.resync.floor_cursor
        self._apply(self._state.placed(request.number, cursor, self._now()))


def _resync_of(error: Gone) -> Resync:
    snapshot = error.problem.members.get("snapshot")
    return Resync(error.problem.detail, error.floor_cursor, snapshot if isinstance(snapshot, str) else None)
