"""Distribution of routes: the runner reads the file, and all workers use one generation of routes from one moment on.

Workers read no routes file: they inherit the routes when they start, as a file in memory, and receive each new
generation as such a file. So a file system that stalls, or a FIFO in place of the routes file, stops no worker, and a
restarted worker has the routes of the others even if the file has changed or is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
from collections.abc import Callable, Iterable
from typing import Final

from gripproxy.config import Config, ConfigError
from gripproxy.process.background import Call
from gripproxy.process.handover import InheritedRoutes
from gripproxy.process.log import log
from gripproxy.process.runner_messages import UseRoutes
from gripproxy.process.supervised import PREPARED, REFUSED
from gripproxy.routing.routes_file import Routes, RoutesFile
from gripproxy.routing.routes_watch import STALL, Reading, RoutesWatch, log_problems
from gripproxy.runner.child_process import ChildProcess
from gripproxy.runner.lifecycle import State
from gripproxy.runner.rollout import Rollout

__all__ = ["READ_TIME", "RouteDistribution", "read_first"]

READ_TIME: Final = 10.0
"""Seconds for reading configuration and routes at the start and at a reload, which fails if it takes longer."""

AGAIN: Final = 1.0
"""Seconds until routes are offered again to a worker that refused them for lack of a descriptor."""

_SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def read_first(config: Config) -> Reading:
    """Return the routes that the service starts with.

    Args:
        config: names their source.

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


class RouteDistribution:
    """Routes in force, and the rollout of new ones.

    Call ``turn`` after each call of ``wake``, after each message of a child, and at ``dues``.

    Args:
        source: of the routes.
        reading: the routes the service starts with.
        wake: wakes the runner's loop; called in another thread.
    """

    def __init__(self, source: RoutesFile, reading: Reading, wake: Callable[[], None]) -> None:
        self.generation = 0
        """Number of the newest valid routes; the first are 1."""
        self._wake = wake
        self._readings: queue.SimpleQueue[Reading] = queue.SimpleQueue()
        self._descriptor = -1
        self._count = 0
        self._digest = b""
        self._rollout: Rollout[ChildProcess] | None = None
        self._offer_at: float | None = None
        """Time of the next offer of the newest generation to workers that lack it, monotonic clock in seconds."""
        self._stalled = False
        self._source = source
        self._watch = RoutesWatch(source, source.stamp(), self._found)
        assert reading.routes is not None
        self._accept(reading, reading.routes)
        log.info("routes loaded", generation=self.generation, routes=self._count)
        if not self._count:
            log.error(
                "no usable route",
                "every request gets an error: gripproxy check says what is wrong",
                source=source.path or "--route",
            )

    @property
    def inherited(self) -> InheritedRoutes:
        """Routes that a new process starts with."""
        return InheritedRoutes(self._descriptor, self.generation)

    @property
    def dues(self) -> list[float]:
        """Times at which ``turn`` has to be called, monotonic clock in seconds."""
        times = [self._offer_at] if self._offer_at is not None and self._rollout is None else []
        return times + ([self._rollout.due] if self._rollout is not None else [])

    def close(self) -> None:
        """Stop reading the routes."""
        self._watch.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self) -> None:
        """Read the file again, changed or not (SIGHUP)."""
        self._watch.read()

    def fault(self, reading: Reading) -> str:
        """Return the reason why ``reading`` does not replace the routes in force, empty if it does."""
        if reading.routes is None:
            return reading.error
        return "" if not self._count and not reading.routes.table.routes else reading.routes.damage

    def change(self, source: RoutesFile, reading: Reading, now: float) -> None:
        """Use the routes of a reload, and their source from now on. Only without a ``fault``.

        Args:
            source: of the routes.
            reading: the routes.
            now: monotonic clock in seconds.
        """
        if source.path != self._source.path:
            self._watch.close()
            self._watch = RoutesWatch(source, source.stamp(), self._found)
            self._stalled = False
        self._source = source
        if reading.routes is not None:
            self._accept(reading, reading.routes)
            self._offer_at = now

    def heard(self, process: ChildProcess, data: bytes) -> None:
        """Take the answers to PrepareRoutes out of the bytes that a worker has sent.

        Args:
            process: the worker.
            data: all bytes of one read.
        """
        prepared, refused = data.count(PREPARED), data.count(REFUSED)
        if not prepared and not refused:
            return
        process.answered(prepared, refused)
        if self._rollout is not None and not process.unanswered:
            self._rollout.answered(process)

    def turn(self, processes: Iterable[ChildProcess], now: float) -> None:
        """Accept new readings, and advance the rollout.

        Args:
            processes: all of the service.
            now: monotonic clock in seconds.
        """
        workers = [process for process in processes if process.service.routes and process.alive]
        with contextlib.suppress(queue.Empty):
            while True:
                self._take(self._readings.get_nowait(), now)
        self._log_stall(now)
        if self._rollout is not None:
            self._advance(self._rollout, workers, now)
        if self._rollout is None and self._offer_at is not None and now >= self._offer_at:
            self._offer(workers, now)

    def _found(self, reading: Reading) -> None:
        self._readings.put(reading)
        self._wake()

    def _take(self, reading: Reading, now: float) -> None:
        fault = self.fault(reading)
        if fault:
            log.error("new routes not used", "the routes stay as they were", reason=fault, generation=self.generation)
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

    def _log_stall(self, now: float) -> None:
        stalled = self._watch.stalled(now)
        if stalled and not self._stalled:
            log.error(
                "routes file not read, its file system does not answer",
                "the routes stay as they were",
                file=self._source.path,
                seconds=STALL,
                generation=self.generation,
            )
        elif self._stalled and not stalled:
            log.info("routes file read again", file=self._source.path)
        self._stalled = stalled

    def _offer(self, workers: list[ChildProcess], now: float) -> None:
        self._offer_at = None
        offered = []
        for process in workers:
            if process.generation == self.generation:
                continue
            if not process.offer(self.generation, self._descriptor):
                log.warning("new routes not sent", worker=process.name, generation=self.generation)
                continue
            # A worker that is starting answers when it serves, and uses them then; the others do not wait for it.
            if process.lifecycle.state in (State.SERVING, State.RETIRING):
                offered.append(process)
        self._rollout = Rollout(self.generation, offered, now)
        self._advance(self._rollout, workers, now)

    def _advance(self, rollout: Rollout[ChildProcess], workers: list[ChildProcess], now: float) -> None:
        for process in rollout.late():
            if process not in workers:
                rollout.answered(process)
        if not rollout.complete(now):
            return
        for process in rollout.late():
            log.warning("new routes not prepared yet", worker=process.name, generation=rollout.generation)
        message = UseRoutes(rollout.generation)
        for process in workers:
            process.send(message)
        self._rollout = None
        log.info("routes loaded", generation=rollout.generation, routes=self._count, workers=len(workers))
        if any(process.generation == 0 for process in workers):
            self._offer_at = now + AGAIN
