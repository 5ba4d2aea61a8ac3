"""The worker: one process that accepts clients, proxies, and holds every session it accepted.

This is the composition root: the parts are made in the order of their layers, each gets its collaborators. One tick
drives all timeouts.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Any, Final

import uvloop

from gripproxy.backend.context import BackendContext
from gripproxy.backend.descriptor_shortage import DescriptorShortage
from gripproxy.backend.filter_requests import FilterRequests
from gripproxy.backend.frame_turns import FrameTurns
from gripproxy.backend.link_fetcher import LinkFetcher
from gripproxy.backend.outages import Outages
from gripproxy.backend.pool import BackendPool
from gripproxy.backend.router import Router
from gripproxy.backend.target_tls import target_context
from gripproxy.backend.trace_headers import TraceHeaders
from gripproxy.client.acceptor import Acceptor, files_in_use, open_files_max
from gripproxy.client.access_log import AccessLog, ClientEvents
from gripproxy.client.context import ClientContext
from gripproxy.client.gone_requests import GoneRequests
from gripproxy.client.http_connection import HttpConnection
from gripproxy.client.peer import closed_sides
from gripproxy.client.registry import Registry
from gripproxy.config import Config, ConfigError
from gripproxy.delivery.channel_table import ChannelTable
from gripproxy.delivery.fanout import Fanout
from gripproxy.delivery.rate_limiter import DeliveryRateLimiter
from gripproxy.delivery.send_buffers import SendBuffers
from gripproxy.delivery.turns import Turns
from gripproxy.grip.signature import KeyProblem
from gripproxy.pipe import socket_path
from gripproxy.process import tls
from gripproxy.process.handover import ALONE, Handover
from gripproxy.process.heap import keep_freed_memory
from gripproxy.process.listening_sockets import ListeningSocket
from gripproxy.process.log import access, log
from gripproxy.process.supervised import Child
from gripproxy.sessions.context import SessionContext
from gripproxy.sessions.recovery_scheduler import RecoveryScheduler
from gripproxy.sessions.timer_wheel import TICK, Wheel
from gripproxy.stats.connection_events import ConnectionReporter, connection_id
from gripproxy.stats.worker_stats import WorkerStats
from gripproxy.worker.commands import RemoteCommands
from gripproxy.worker.drain import Drain
from gripproxy.worker.error_boundary import ErrorBoundary
from gripproxy.worker.handler_link import FANOUT, HandlerLink
from gripproxy.worker.handler_messages import HandlerMessages
from gripproxy.worker.routes import WorkerRoutes
from gripproxy.worker.totals import Totals

__all__ = ["Worker", "main"]

COUNTS_INTERVAL: Final = 0.1
"""Seconds between two reports of session counts to the handler."""

SWEEP_INTERVAL: Final = 1.0
"""Seconds between two sweeps for requests that have taken too long."""


def _later(loop: asyncio.AbstractEventLoop, seconds: float, callback: Callable[[], None]) -> None:
    if seconds <= 0:
        loop.call_soon(callback)
    else:
        loop.call_later(seconds, callback)


class Worker:
    """One worker process: its parts, made in the order of their layers.

    Args:
        config: The configuration.
        number: Number of the worker, from 1.
        loop: The event loop.
        handover: The runner's handover, if there is one.

    Raises:
        KeyProblem: A key of the configuration cannot be read.
    """

    def __init__(
        self, config: Config, number: int, loop: asyncio.AbstractEventLoop, handover: Handover = ALONE
    ) -> None:
        proxy, settings = config.proxy, config.globals
        workers, block_size = max(1, proxy.workers), config.handler.message_block_size
        clock, later = loop.time, partial(_later, loop)
        epoch = self.epoch = time.time_ns()
        """Start of the process in nanoseconds."""
        named = partial(connection_id, number, epoch)
        self.config, self._loop = config, loop
        self._stopped = loop.create_future()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._counts_at = 0.0

        # Statistics and delivery
        reporter = ConnectionReporter(clock, settings.stats_connection_ttl, settings.stats_connection_send)
        stats = self.stats = WorkerStats(clock, reporter, block_size)
        boundary = self.boundary = ErrorBoundary(stats)
        link = self.link = HandlerLink(loop, socket_path(config), config.handler.worker_queue_max)
        table = self.table = ChannelTable(link.send, stats, boundary.session)
        wheel = self.wheel = Wheel(clock(), boundary.timer)

        # Backends
        recovery_max = ceil(proxy.recovery_max / workers)
        turns = Turns(loop.call_soon, clock)
        scheduler = self.scheduler = RecoveryScheduler(
            lambda seconds: later(seconds, scheduler.run), clock, turns, proxy.recovery_rate / workers, recovery_max
        )
        router = self.router = Router(config)
        files_max = open_files_max()
        shortage = self.shortage = DescriptorShortage(loop.call_later, clock, files_max, files_in_use)
        pool = self.pool = BackendPool(
            loop, proxy.connect_timeout, proxy.backend_idle_timeout, target_context, config.policy(), shortage, workers
        )
        backend = BackendContext(
            loop=loop,
            clock=clock,
            config=config,
            router=router,
            pool=pool,
            stats=stats,
            outages=Outages(clock, log.warning, log.info),
            scheduler=scheduler,
            wheel=wheel,
            turns=FrameTurns(loop.call_soon),
            trace=TraceHeaders(proxy.trace_headers, os.urandom(12)),
        )
        links = self.links = LinkFetcher(backend)

        # Clients
        registry = self.registry = Registry(config, stats, named)
        events = self.events = ClientEvents(config, clock)
        buffers = self.buffers = SendBuffers(proxy.buffers_max, loop.call_soon, registry.peers, closed_sides)
        pacer = None
        if (rate := max(0, config.handler.message_rate)) > 0:
            high_water = ceil(max(0, config.handler.message_hwm) / workers)
            dropped = events.deliveries_dropped
            pacer = DeliveryRateLimiter(ceil(rate / workers), high_water, later, dropped, clock, boundary.session)
        sessions = self.sessions = SessionContext(
            table,
            wheel,
            scheduler,
            clock,
            FilterRequests(backend).ask,
            proxy.stream_buffer_max,
            pacer is not None,
            proxy.hold_confirm_timeout,
            later=later,
            output_max=proxy.filter_output_max,
            refused=events.item_refused,
            fetch=links.fetch,
            grew=buffers.grew,
            recover_interval=proxy.ws_recover_interval,
            ignore_query=proxy.share_links_ignoring_query,
        )
        own = bool(config.runner.access_log)
        context = self.context = ClientContext(
            backend,
            registry=registry,
            access_log=AccessLog(config, clock, named, backend.trace, access if own else log, own),
            events=events,
            sessions=sessions,
            buffers=buffers,
            gone=GoneRequests(backend),
        )
        fanout = self.fanout = Fanout(sessions, partial(link.pause, FANOUT), pacer, block_size, stats.deliveries.add)
        acceptor = self.acceptor = Acceptor(
            loop,
            partial(HttpConnection, context),
            lambda: registry.connections,
            lambda: pool.connecting,
            shortage.watch,
            files_max,
        )

        # The process
        self.totals = Totals(context, link, fanout, pacer, acceptor, shortage, links, handover.restarts)
        self.commands = RemoteCommands(table, registry, sessions)
        self.messages = HandlerMessages(
            name=(number, epoch),
            link=link,
            table=table,
            fanout=fanout,
            registry=registry,
            stats=stats,
            totals=self.totals,
            events=events,
            commands=self.commands,
            boundary=boundary,
            loop=loop,
        )
        self.drain = Drain(context, number, acceptor, self.messages.announce_retiring, self._end)
        self.routes = WorkerRoutes(config, number, loop, router.use, handover.routes)

    # --- time

    def _tick(self) -> None:
        self._loop.call_later(TICK, self._tick)
        now = self._loop.time()
        if self.stats.advance(now, TICK):
            self.context.outages.sweep()
        self.wheel.advance(now)
        if now >= self._counts_at:
            # Not a timer of its own: to wake up costs more than the report.
            self._counts_at = now + COUNTS_INTERVAL - TICK / 2
            self._count()

    def _count(self) -> None:
        self.table.counts()
        if self.link.connected:
            self.stats.flush(self._loop.time(), self.link.send)

    def _sweep(self) -> None:
        self._loop.call_later(SWEEP_INTERVAL, self._sweep)
        now = self._loop.time()
        for client in list(self.registry.active):
            client.sweep(now)
        for poster in list(self.context.posting):
            poster.sweep(now)
        self.pool.sweep(now)
        self.buffers.look(now)
        self.acceptor.look()
        self.totals.report()

    # --- life

    async def run(self, listeners: list[ListeningSocket], child: Child) -> int:
        """Serve until the process is stopped.

        Args:
            listeners: Listening sockets.
            child: The tie to the runner.

        Returns:
            The exit status.

        Raises:
            ConfigError: The routes cannot be used, or a certificate cannot be read.
            KeyProblem: A key cannot be read.
        """
        routes, loop = self.routes, self._loop
        keep_freed_memory()
        routes.load()
        log.attach(loop)
        access.attach(loop)
        routes.watch(child)
        child.start(
            loop,
            self.drain.stop,
            routes.hangup,
            ready=False,
            on_retire=self.drain.retire,
            on_routes=routes.offered,
            on_use=routes.use,
        )
        # Routes loaded while this process was starting count for its first request.
        child.catch_up()
        await routes.settle()
        task = loop.create_task(self.link.keep(self.messages, loop.time), name="pipe to the handler")
        self._tasks.add(task)
        handshake = self.config.proxy.client_tls_timeout
        if any(listener.tls for listener in listeners):
            self.drain.allow(handshake)
        await self.acceptor.open(listeners, partial(tls.server_context, self.config.certs_dir), handshake)
        if self.registry.retiring:
            self.acceptor.close()
        self._tick()
        self._sweep()
        child.ready()
        if not child.supervised:  # the runner has logged its sockets itself
            for listener in listeners:
                log.info("listening", url=listener.url, key=listener.key)
        # Objects made so far live as long as the process: the collector need not visit them again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 100)
        await self._stopped
        return 0

    def _end(self) -> None:
        """End the process: no client is left, or time is over."""
        self.acceptor.end()
        for task in self._tasks:
            task.cancel()
        self.pool.close()
        if self.link.connected:
            # The last counts are reported too.
            self.stats.flush(self._loop.time(), self.link.send)
            self.totals.report()
            self.link.close()
        if not self._stopped.done():
            self._stopped.set_result(None)


def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks that are left, such as connects to a backend: at the end of the loop each would log an error."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def main(config: Config, number: int, listeners: list[ListeningSocket], child: Child) -> int:
    """Run a worker until it is stopped.

    Args:
        config: The configuration.
        number: Number of the worker, from 1.
        listeners: Listening sockets.
        child: The tie to the runner.

    Returns:
        The exit status.
    """
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        try:
            worker = Worker(config, number, loop, child.handover)
            return loop.run_until_complete(worker.run(listeners, child))
        except (ConfigError, KeyProblem) as error:
            log.error("configuration", str(error))
            return 2
    finally:
        child.close()
        _cancel_tasks(loop)
        loop.run_until_complete(loop.shutdown_asyncgens())
        log.flush()
        loop.close()
