"""The routes of a worker: from the runner, generation by generation, or read by itself if there is no runner.

Parsing, and reading the keys that routes name, is done in a thread: a long file, or a key on a file system that stalls,
does not stop the worker's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from gripproxy.backend.router import Signers, load_signers
from gripproxy.config import Config
from gripproxy.process.background import Call
from gripproxy.process.handover import InheritedRoutes
from gripproxy.process.log import log
from gripproxy.process.supervised import Child
from gripproxy.routing.routes_file import Routes, RoutesFile, Stamp
from gripproxy.routing.routes_watch import Reading, RoutesWatch, log_problems
from gripproxy.routing.table import RouteTable

__all__ = ["WorkerRoutes"]

SETTLE_TIME: Final = 5.0
"""Seconds for which a worker that starts waits for newer routes than it began with, before it serves."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    generation: int
    routes: Routes
    signers: Signers


class WorkerRoutes:
    """Where a worker's routes come from.

    Args:
        config: of the worker.
        number: of the worker; only worker 1 logs problems of a file that each worker reads for itself.
        loop: the worker's.
        use: called with routes, their generation and their signers, when they count.
        given: routes that the worker inherited from the runner; None without a runner.
    """

    def __init__(
        self,
        config: Config,
        number: int,
        loop: asyncio.AbstractEventLoop,
        use: Callable[[RouteTable, int, Signers], None],
        given: InheritedRoutes | None = None,
    ) -> None:
        self.source = RoutesFile.of(config)
        self.generation = 0
        """Of the routes in use; 0 before the first."""
        self._config = config
        self._number = number
        self._loop = loop
        self._use = use
        self._given = given
        self._child: Child | None = None
        self._watch: RoutesWatch | None = None
        self._stamp: Stamp | None = None
        """Of the file as it was read first."""
        self._digest = b""
        """Of the bytes of the file that are in use, once it was read again."""
        self._supervised = False
        self._call: Call[_Prepared] | None = None
        self._waiting: tuple[int, int] | None = None
        """Generation and descriptor of routes offered while others are being prepared."""
        self._prepared: _Prepared | None = None
        self._settled: asyncio.Future[None] | None = None
        self._wanted = 0
        """The generation that is to be used as soon as it is prepared."""

    def load(self) -> None:
        """Take the routes that the worker starts with, from the runner or from their source.

        Raises:
            ConfigError: they cannot be read or used.
            OSError: the inherited descriptor is not open.
        """
        if self._given is not None:
            self._supervised = True
            self._take(self._prepare(self._given.generation, self._given.descriptor))
            return
        stamp = self.source.stamp()
        routes = self.source.load()
        self._log(routes)
        self._take(_Prepared(self.generation + 1, routes, load_signers(routes.table, self._config)))
        self._stamp = stamp

    def watch(self, child: Child) -> None:
        """Take new routes from now on: those the runner offers through ``child``, or those of the file."""
        self._child = child
        if not self._supervised:
            self._watch = RoutesWatch(self.source, self._stamp, self._found)

    async def settle(self) -> None:
        """Wait until routes that were offered are prepared, for SETTLE_TIME seconds at most."""
        if self._call is not None:
            self._settled = self._loop.create_future()
            await asyncio.wait((self._settled,), timeout=SETTLE_TIME)

    def hangup(self) -> None:
        """SIGHUP: read the file again; the runner does it if there is one."""
        if self._watch is not None:
            self._watch.read()

    def offered(self, generation: int, descriptor: int) -> None:
        """Prepare routes of the runner: of a ``generation``, in the file of a ``descriptor``."""
        if self._call is None:
            self._begin(generation, descriptor)
            return
        if self._waiting is not None:
            os.close(self._waiting[1])
            self._answer()
        self._waiting = (generation, descriptor)

    def use(self, generation: int) -> None:
        """Use the runner's routes of ``generation`` from now on, or as soon as they are prepared."""
        self._wanted = generation
        self._use_wanted()

    def _begin(self, generation: int, descriptor: int) -> None:
        work = partial(self._prepare, generation, descriptor)
        self._call = Call(work, partial(self._later, self._over), "new routes")

    def _prepare(self, generation: int, descriptor: int) -> _Prepared:
        try:
            # All workers share the descriptor's position, so it is not used.
            data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        finally:
            os.close(descriptor)
        routes = self.source.parse(data)
        return _Prepared(generation, routes, load_signers(routes.table, self._config))

    def _over(self) -> None:
        call, self._call = self._call, None
        assert call is not None
        try:
            self._prepared = call.result()
        except OSError as error:
            log.error("new routes not prepared", reason=error)
        self._answer()
        self._use_wanted()
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._begin(*waiting)
        elif self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    def _answer(self) -> None:
        if self._child is not None:
            self._child.prepared()

    def _use_wanted(self) -> None:
        prepared = self._prepared
        if prepared is not None and prepared.generation == self._wanted:
            self._prepared = None
            self._take(prepared)

    def _take(self, prepared: _Prepared) -> None:
        self.generation = prepared.generation
        self._use(prepared.routes.table, prepared.generation, prepared.signers)
        log.debug("routes in use", generation=prepared.generation, routes=len(prepared.routes.table.routes))

    # --- without a runner

    def _later(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call back on the loop, from another thread; not at all if the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _found(self, reading: Reading) -> None:
        """Prepare a reading of the watch, in its thread."""
        signers = load_signers(reading.routes.table, self._config) if reading.routes is not None else {}
        self._later(self._read, reading, signers)

    def _read(self, reading: Reading, signers: Signers) -> None:
        routes = reading.routes
        fault = reading.error if routes is None else routes.damage
        if routes is None or fault:
            log.error("new routes not used", "the routes stay as they were", reason=fault, generation=self.generation)
            return
        if reading.asked or reading.digest != self._digest:
            self._digest = reading.digest
            self._log(routes)
            self._take(_Prepared(self.generation + 1, routes, signers))

    def _log(self, routes: Routes) -> None:
        # Every worker reads them; one logs.
        if self._number == 1:
            log_problems(routes.problems)
            log.info("routes loaded", generation=self.generation + 1, routes=len(routes.table.routes))
