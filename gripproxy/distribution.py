"""The distribution of routes: the runner reads the file, and all workers get the same routes at the same time.

Workers read no routes file: they inherit the routes when they start, as a file in memory, and get each new generation
the same way. So a file system that stalls, or a FIFO in the place of the file, stops no worker, and a worker that is
started again has the routes of the others, whatever has become of the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
from collections.abc import Callable, Iterable
from typing import Final

from gripproxy.background import Call
from gripproxy.children import Process
from gripproxy.config import Config, ConfigError
from gripproxy.life import State
from gripproxy.log import log
from gripproxy.process import PREPARED, REFUSED, use_order
from gripproxy.rollout import Rollout
from gripproxy.routes_file import Routes, RoutesFile
from gripproxy.routes_watch import STALL, Reading, RoutesWatch, log_problems

__all__ = ["READ_TIME", "Distribution", "read_first"]

READ_TIME: Final = 10.0
"""Seconds for reading configuration and routes at the start and at a reload, which fails if it takes longer."""

AGAIN: Final = 1.0
"""Seconds after which routes are offered again that a worker refused for want of a descriptor."""

_SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def read_first(config: Config) -> Reading:
    """Return the routes that the service starts with.

    Raises:
        ConfigError: they cannot be read within READ_TIME, or a line of ``--route`` cannot be used.
    """
    source = RoutesFile.of(config)

    def read() -> Reading:
        data = source.read()
        return Reading(data, source.parse(data))

    call = Call(read, lambda: None, "routes file")
    if not call.wait(READ_TIME):
        raise ConfigError(source.path, None, f"routes file cannot be read: no answer within {READ_TIME:g} s")
    reading = call.result()
    assert reading.routes is not None
    for error in source.refused_lines(reading.routes):
        raise error
    return reading


class Distribution:
    """The routes in force, and the rollout of new ones.

    Call ``turn`` whenever ``wake`` was called (in another thread) or a child was heard, and at ``dues``.

    Args:
        source: where the routes are read from.
        reading: the routes the service starts with.
        wake: wakes the runner's loop; it is called in another thread.
    """

    def __init__(self, source: RoutesFile, reading: Reading, wake: Callable[[], None]) -> None:
        self.generation = 0
        """Number of the newest routes that were found good; the first are 1."""
        self._wake = wake
        self._readings: queue.SimpleQueue[Reading] = queue.SimpleQueue()
        self._descriptor = -1
        self._count = 0
        self._digest = b""
        self._rollout: Rollout[Process] | None = None
        self._offer_at: float | None = None
        """When the newest generation is to be offered to workers that have not got it."""
        self._stalled = False
        self._source = source
        self._watch = RoutesWatch(source, source.stamp(), self._found)
        assert reading.routes is not None
        self._accept(reading, reading.routes)
        log.info("routes loaded: generation=%d routes=%d", self.generation, self._count)
        if not self._count:
            log.error("%s: there is no usable route: every request gets an error", source.path or "--route")

    @property
    def inherited(self) -> tuple[int, int]:
        """Descriptor and generation of the routes that a new worker starts with."""
        return self._descriptor, self.generation

    @property
    def dues(self) -> list[float]:
        """When ``turn`` has to be called, on the monotonic clock in seconds."""
        times = [self._offer_at] if self._offer_at is not None and self._rollout is None else []
        return times + ([self._rollout.due] if self._rollout is not None else [])

    def close(self) -> None:
        """Read no more."""
        self._watch.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self) -> None:
        """Have the file read again, changed or not (SIGHUP)."""
        self._watch.read()

    def fault(self, reading: Reading) -> str:
        """Return why a reading does not replace the routes in force, empty if it does."""
        if reading.routes is None:
            return reading.error
        return "" if not self._count and not reading.routes.table.routes else reading.routes.damage

    def change(self, source: RoutesFile, reading: Reading, now: float) -> None:
        """Use what a reload has read, from this source on. Only if there is no ``fault``."""
        if source.path != self._source.path:
            self._watch.close()
            self._watch = RoutesWatch(source, source.stamp(), self._found)
            self._stalled = False
        self._source = source
        if reading.routes is not None:
            self._accept(reading, reading.routes)
            self._offer_at = now

    def heard(self, process: Process, data: bytes) -> None:
        """Take in what a worker has answered."""
        refused = data.count(REFUSED)
        answers = data.count(PREPARED) + refused
        if not answers:
            return
        process.unanswered = max(0, process.unanswered - answers)
        if refused:
            process.generation = 0
        if self._rollout is not None and not process.unanswered:
            self._rollout.answered(process)

    def turn(self, processes: Iterable[Process], now: float) -> None:
        """Take in what was read, and go on with the rollout."""
        workers = [process for process in processes if process.kind == "worker" and process.alive]
        with contextlib.suppress(queue.Empty):
            while True:
                self._take(self._readings.get_nowait(), now)
        self._tell_stall(now)
        if self._rollout is not None:
            self._go_on(self._rollout, workers, now)
        if self._rollout is None and self._offer_at is not None and now >= self._offer_at:
            self._offer(workers, now)

    def _found(self, reading: Reading) -> None:
        self._readings.put(reading)
        self._wake()

    def _take(self, reading: Reading, now: float) -> None:
        fault = self.fault(reading)
        if fault:
            log.error("%s; the routes stay as they were: generation=%d", fault, self.generation)
        elif reading.routes is not None and (reading.asked or reading.digest != self._digest):
            self._accept(reading, reading.routes)
            self._offer_at = now

    def _accept(self, reading: Reading, routes: Routes) -> None:
        log_problems(routes.problems)
        descriptor = os.memfd_create("gripproxy-routes", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(reading.data)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._count = len(routes.table.routes)
        self._digest = reading.digest
        self.generation += 1

    def _tell_stall(self, now: float) -> None:
        stalled = self._watch.stalled(now)
        if stalled and not self._stalled:
            log.error(
                "%s: no answer from its file system for %g s; the routes stay as they were: generation=%d",
                self._source.path,
                STALL,
                self.generation,
            )
        elif self._stalled and not stalled:
            log.info("%s: its file system answers again", self._source.path)
        self._stalled = stalled

    def _offer(self, workers: list[Process], now: float) -> None:
        self._offer_at = None
        offered = []
        for process in workers:
            if process.generation == self.generation:
                continue
            if not process.offer(self.generation, self._descriptor):
                log.warning("%s: new routes could not be sent to it: generation=%d", process.name, self.generation)
                continue
            process.generation = self.generation
            process.unanswered += 1
            # One that starts answers when it can, and uses them then; the others do not wait for it.
            if process.life.state in (State.SERVING, State.RETIRING):
                offered.append(process)
        self._rollout = Rollout(self.generation, offered, now)
        self._go_on(self._rollout, workers, now)

    def _go_on(self, rollout: Rollout[Process], workers: list[Process], now: float) -> None:
        for process in rollout.late():
            if process not in workers:
                rollout.answered(process)
        if not rollout.complete(now):
            return
        for process in rollout.late():
            log.warning("%s has not prepared new routes yet: generation=%d", process.name, rollout.generation)
        order = use_order(rollout.generation)
        for process in workers:
            process.tell(order)
        self._rollout = None
        log.info("routes loaded: generation=%d routes=%d workers=%d", rollout.generation, self._count, len(workers))
        if any(process.generation == 0 for process in workers):
            self._offer_at = now + AGAIN
