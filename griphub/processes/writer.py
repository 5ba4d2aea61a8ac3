"""Writer of the store as the hub sees it: publications in, outcomes out, over a child process.

A publication makes no task and no future: those of one turn of the loop are sent together, and outcomes arrive in their
order. While much is under way, further publications and commands wait here, and each owner has its turn. A large
publication and most commands are commits of their own, so the child has few of them at a time: small publications of
others are stored between them, and sent between the parts of a large one. The child is started again after each end;
publications without an answer then have an unknown outcome.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from griphub.processes.child import child_arguments
from griphub.processes.child_process import ChildProcess, pause_before
from griphub.processes.fair_queue import FairQueue
from griphub.processes.frames import frame
from griphub.processes.large_share import LargeShare
from griphub.processes.large_transfer import LargeTransfer
from griphub.processes.writer_commands import WriterCommands
from griphub.processes.writer_options import CALLS_MAX, FAIL_SLICE, OVERHEAD, SEND_BYTES, WriterOptions
from griphub.processes.writer_process import (
    ANSWER,
    APPEND,
    CALL,
    FAILED,
    INVALID,
    LARGE,
    OUTCOMES,
    PART,
    READY,
    REFUSED,
    UNUSABLE,
)
from griphub.store.errors import OwnerBusy, StoreBroken, StoreBusy, StoreError, StoreFull, StoreInUse, StoreProblem
from griphub.store.interface import StoreState
from griphub.store.plain_records import (
    PlainOutcome,
    PlainPublication,
    outcome_of,
    plain_publication,
    state_of,
)
from griphub.store.publication import Outcome, Publication
from gripproxy.process.log import log

__all__ = ["PlainDone", "WriterProcess"]

MODULE: Final = "griphub.processes.writer_process"

Done = Callable[[Outcome | StoreError], None]
PlainDone = Callable[[PlainOutcome | StoreError], None]


@dataclass(eq=False, slots=True)
class _Append:
    """Publication that waits for its owner's turn."""

    plain: PlainPublication
    done: PlainDone
    size: int
    """Bytes that it counts for."""


@dataclass(eq=False, slots=True)
class _Call:
    """Command that waits for its owner's turn, or that the process has."""

    request: bytes
    owner: str
    result: asyncio.Future[Any]


class WriterProcess(WriterCommands):
    """The only writer of a store, in a process of its own. Used from the loop only.

    Args:
        path: of the store, made if there is none.
        options: of the writer.
        on_end: called with the reason when the process has ended without ``stop``; all publications that it had not
            answered have failed by then.
        on_return: called with the state of the store when a further process works: there may be events that were
            stored and never answered.
    """

    def __init__(
        self,
        path: pathlib.Path,
        options: WriterOptions | None = None,
        on_end: Callable[[str], None] = lambda reason: None,
        on_return: Callable[[StoreState], None] = lambda state: None,
    ) -> None:
        self._path = path
        self._options = options or WriterOptions()
        self._on_end = on_end
        self._on_return = on_return
        self._loop = asyncio.get_running_loop()
        self._child: ChildProcess | None = None
        self._ready: asyncio.Future[StoreState] = self._loop.create_future()
        self._working = False
        self._starts = 0
        self._useful = False
        """True once the process has answered: its end is then the first one of a row."""
        self._unusable: tuple[str, str] | None = None
        """Class and text of the last error of the process."""
        self._reason = ""
        self._end = asyncio.Event()
        """Set when a process that worked has ended."""
        self._stopped = False
        self._supervision: asyncio.Task[None] | None = None
        self._batch: list[PlainPublication] = []
        self._batch_size = 0
        self._appends: deque[tuple[PlainDone, int, str]] = deque()
        """Publications that the process has: receiver, bytes and owner of each."""
        self._queue: FairQueue[_Append | _Call] = FairQueue(0, 0, 1)
        """Publications and commands that wait for their owner's turn: those bounded by their bytes, these by the quota
        of changes. None that is ready waits."""
        self._sent = 0
        """Bytes of the small publications that the process has."""
        self._large = LargeShare()
        self._transfer: tuple[LargeTransfer, str, _Append] | None = None
        """Large publication on its way to the process, and its owner, whose other works wait for the last part."""
        self._owners: dict[str, int] = {}
        """Bytes of publications without an answer, by owner."""
        self._calls: deque[_Call] = deque()
        """Commands that the process has."""
        self._callers: set[str] = set()
        """Owners of these."""
        self._waiting = 0
        self.restarts = 0
        """Processes started after the first."""

    @property
    def waiting(self) -> int:
        """Bytes of publications without an answer."""
        return self._waiting

    @property
    def pid(self) -> int:
        """Number of the process; 0 while there is none."""
        return 0 if self._child is None else self._child.pid

    @property
    def working(self) -> bool:
        """True while the process takes publications."""
        return self._working

    async def start(self) -> StoreState:
        """Start the process and open the store.

        Returns:
            The state of the store.

        Raises:
            StoreProblem: the store cannot be used; ``StoreInUse``: another hub has it open.
        """
        state = await self._start_child()
        self._supervision = self._loop.create_task(self._supervise())
        return state

    async def _start_child(self) -> StoreState:
        self._ready = self._loop.create_future()
        self._unusable = None
        options = self._options
        arguments = child_arguments(self._path, options.log)
        arguments += ["--sync", options.sync, "--ballast", str(options.ballast), "--names-max", str(options.names_max)]
        arguments += ["--lock-wait", str(options.lock_wait)]
        self._child = ChildProcess(MODULE, arguments, self._received, self._ended, self._send_parts)
        self._useful = False
        try:
            await self._child.start()
        except OSError as error:
            self._child = None
            raise StoreProblem(f"the writer of the store cannot be started: {error.strerror}") from error
        return await self._ready

    async def stop(self) -> None:
        """End the process after the publications that it has; these are answered."""
        self._stopped = True
        worked, self._working = self._working, False
        if self._supervision is not None and not worked:
            self._supervision.cancel()
        if self._child is not None:
            self._send_parts(all_of_it=True)
            self._refill(None)
            self._flush()
            await self._child.stop()
        if self._supervision is not None:
            await asyncio.wait([self._supervision])

    # --- publishing

    def append(self, publication: Publication, done: Done, owner: str = "") -> None:
        """Store a publication; those of an owner are stored in the order of the calls.

        Args:
            publication: the publication.
            done: called once, in a later turn of the loop: with the outcome after its commit, or with the failure.
            owner: text that names the owner whose publication it is.

        Raises:
            OwnerBusy: too much of the owner is waiting. ``done`` is not called.
            StoreBusy: the process is being started again, or has too much waiting. ``done`` is not called.
            ValueError: a text of the publication has no UTF-8.
        """
        plain = plain_publication(publication)
        drafts = plain[1]
        size = OVERHEAD * len(drafts)
        for draft in drafts:
            size += draft[5]

        def record(outcome: PlainOutcome | StoreError) -> None:
            done(outcome if isinstance(outcome, StoreError) else outcome_of(outcome))

        self.append_plain(plain, size, record, owner)

    def append_plain(self, plain: PlainPublication, size: int, done: PlainDone, owner: str) -> None:
        """Store a publication in its plain form; see ``append``.

        Args:
            plain: the publication.
            size: bytes that it counts for: its events, and ``OVERHEAD`` for each.
            done: called once, in a later turn of the loop: with the outcome after its commit, or with the failure.
            owner: text that names the owner whose publication it is.

        Raises:
            OwnerBusy: too much of the owner is waiting. ``done`` is not called.
            StoreBusy: the process is being started again, or has too much waiting. ``done`` is not called.
        """
        if not self._working:
            raise StoreBusy("the writer of the store is being started again: repeat the request")
        if self._waiting and self._waiting + size > self._options.waiting_max:
            raise StoreBusy(f"{self._waiting} bytes wait for the store: repeat the request later")
        held = self._owners.get(owner, 0)
        if held and held + size > self._options.owner_max:
            raise OwnerBusy(f"{held} bytes of this owner wait for the store: repeat the request later")
        self._waiting += size
        self._owners[owner] = held + size
        if self._fits(size, owner) and (not self._queue or not self._queue.waiting(owner)):
            if size < LARGE:
                self._send(plain, done, size, owner)
            else:
                self._transmit(owner, _Append(plain, done, size))
        else:
            self._queue.add(owner, _Append(plain, done, size))

    def _fits(self, size: int, owner: str) -> bool:
        if size >= LARGE:
            return self._large.ready(self._loop.time())
        return self._sent < self._options.window and (self._transfer is None or self._transfer[1] != owner)

    def _is_ready(self, owner: str, work: _Append | _Call) -> bool:
        """Return whether the process may have a publication or a command now."""
        if isinstance(work, _Append):
            return self._fits(work.size, owner)
        if self._transfer is not None and self._transfer[1] == owner:
            return False
        return len(self._calls) < CALLS_MAX and owner not in self._callers

    def _transmit(self, owner: str, work: _Append) -> None:
        """Send a large publication in parts: others are sent between these."""
        self._large.begin()
        self._transfer = (LargeTransfer(PART, work.plain), owner, work)
        self._send_parts()

    def _send_parts(self, *, all_of_it: bool = False) -> None:
        """Send parts of the large publication while the socket takes them, or ``all_of_it``."""
        if self._transfer is None:
            return
        transfer, owner, work = self._transfer
        child = self._child
        while child is not None and not transfer.complete and (child.writable or all_of_it):
            part = transfer.part()
            if transfer.complete:
                # Outcomes are in the order in which the process has the publications.
                self._flush()
            child.write(part)
        if child is None or transfer.complete:
            self._transfer = None
            self._large.sent(self._loop.time())
            self._appends.append((work.done, work.size, owner))
            if not all_of_it:
                self._refill(self._is_ready)

    def _send(self, plain: PlainPublication, done: PlainDone, size: int, owner: str) -> None:
        now = self._loop.time()
        if size < LARGE:
            self._sent += size
            self._large.small(now)
        else:
            # The writer is being stopped.
            self._large.begin()
            self._large.sent(now)
        self._appends.append((done, size, owner))
        if not self._batch:
            self._loop.call_soon(self._flush)
        self._batch.append(plain)
        self._batch_size += size
        if self._batch_size >= SEND_BYTES:
            self._flush()

    def _refill(self, ready: Callable[[str, _Append | _Call], bool] | None) -> None:
        """Send waiting publications and commands that are ready, one of each owner in turn; None: all of them are."""
        while (taken := self._queue.take(ready)) is not None:
            owner, work = taken
            self._queue.finished(owner)
            if not isinstance(work, _Append):
                self._begin(work)
            elif work.size < LARGE or ready is None:
                self._send(work.plain, work.done, work.size, owner)
            else:
                self._transmit(owner, work)

    def _flush(self) -> None:
        batch = self._batch
        if batch and self._child is not None:
            self._batch, self._batch_size = [], 0
            self._child.write(frame((APPEND, batch)))

    # --- other commands

    async def call(self, method: str, *arguments: Any, owner: str = "") -> Any:
        """Have the process carry out a command, in the turn of an owner; see ``WriterCommands.call``.

        Args:
            method: name of the command.
            arguments: plain values.
            owner: text that names the owner whose command it is.

        Returns:
            The plain result.

        Raises:
            StoreError: the store cannot do it now.
        """
        if not self._working or self._child is None:
            raise StoreBusy("the writer of the store is being started again: repeat the request")
        call = _Call(frame((CALL, method, arguments)), owner, self._loop.create_future())
        if self._is_ready(owner, call) and not self._queue.waiting(owner):
            self._begin(call)
        else:
            self._queue.add(owner, call)
        return await call.result

    def _begin(self, call: _Call) -> None:
        # In order with the publications.
        self._flush()
        self._calls.append(call)
        self._callers.add(call.owner)
        if self._child is not None:
            self._child.write(call.request)

    # --- answers

    def _received(self, value: Any) -> None:
        kind = value[0]
        if kind == OUTCOMES:
            self._useful = True
            self._answered(value[1])
        elif kind == ANSWER:
            self._useful = True
            self._finish(value[1], None)
        elif kind == FAILED:
            for _ in range(value[1]):
                self._done(StoreFull(value[2]))
            self._refill(self._is_ready)
        elif kind == REFUSED:
            self._finish(None, StoreFull(value[1]))
        elif kind == INVALID:
            self._finish(None, StoreError(value[1]))
        elif kind == READY:
            self._working = True
            if not self._ready.done():
                self._ready.set_result(state_of(value[1]))
        elif kind == UNUSABLE:
            self._working = False
            self._unusable = (value[1], value[2])

    def _answered(self, outcomes: Iterable[PlainOutcome]) -> None:
        for outcome in outcomes:
            self._done(outcome)
        self._refill(self._is_ready)

    def _done(self, outcome: PlainOutcome | StoreError) -> None:
        done, size, owner = self._appends.popleft()
        self._waiting -= size
        if size < LARGE:
            self._sent -= size
        else:
            self._loop.call_later(self._large.end(self._loop.time()), self._refill, self._is_ready)
        left = self._owners[owner] - size
        if left:
            self._owners[owner] = left
        else:
            del self._owners[owner]
        try:
            done(outcome)
        except Exception:  # noqa: BLE001 - a fault of one receiver keeps no outcome from the others
            log.exception("outcome not taken", outcome=type(outcome).__name__)

    def _finish(self, result: Any, error: StoreError | None) -> None:
        call = self._calls.popleft()
        self._callers.discard(call.owner)
        if not call.result.done():
            if error is None:
                call.result.set_result(result)
            else:
                call.result.set_exception(error)
        self._refill(self._is_ready)

    # --- end and return

    def _ended(self, reason: str) -> None:
        self._working = False
        self._child = None
        # Publications that wait, or are on their way, fail with those that the process had.
        self._send_parts(all_of_it=True)
        self._refill(None)
        self._batch, self._batch_size = [], 0
        name, text = self._unusable or ("", "")
        if not self._ready.done():
            if self._stopped:
                self._ready.cancel()
                return
            if name:
                error = (StoreInUse if name == "StoreInUse" else StoreProblem)(text)
            else:
                error = StoreProblem(f"the writer of the store ended at its start: {reason}")
            self._ready.set_exception(error)
            return
        self._reason = f"{reason}, {text}" if text else reason
        self._end.set()

    async def _supervise(self) -> None:
        """Report each end, and start further processes until one works."""
        while True:
            await self._end.wait()
            self._end.clear()
            await self._fail(self._reason)
            if self._stopped:
                return
            log.error("writer ended", reason=self._reason)
            self._on_end(self._reason)
            if self._useful:
                self._starts = 0
            self._on_return(await self._start_again())

    async def _fail(self, reason: str) -> None:
        """Report the outcome of all that was not answered."""
        text = f"the writer of the store ended ({reason}): whether it is stored is not known"
        while self._appends:
            for _ in range(min(FAIL_SLICE, len(self._appends))):
                self._done(StoreBroken(text))
            await asyncio.sleep(0)
        while self._calls:
            self._finish(None, StoreBroken(text))

    async def _start_again(self) -> StoreState:
        while True:
            await asyncio.sleep(pause_before(self._starts))
            self._starts += 1
            try:
                state = await self._start_child()
            except StoreProblem as error:
                log.error("writer not started", reason=error)
                continue
            self.restarts += 1
            return state
