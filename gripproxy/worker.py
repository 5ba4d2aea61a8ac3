"""A worker process: accepts clients, proxies, and holds every session it accepted.

This module ties the parts together and owns the process's clock, timers and counters; decisions are made in
``gripproxy.sessions`` and ``gripproxy.grip``, connections are in ``gripproxy.edge``.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any, Final

import uvloop

from gripproxy import tls
from gripproxy.buffers import Buffers
from gripproxy.commands import answer
from gripproxy.config import Config, ConfigError
from gripproxy.edge.accepting import Accepting, files_in_use
from gripproxy.edge.asking import Asking
from gripproxy.edge.backend import BackendPool
from gripproxy.edge.client import ClientConnection
from gripproxy.edge.clienttls import target_context
from gripproxy.edge.fetch import Fetch
from gripproxy.edge.forwarding import Forwarder, ForwardSettings
from gripproxy.edge.linkfetch import LinkFetches
from gripproxy.edge.names import folded
from gripproxy.edge.opening import Opening
from gripproxy.edge.peer import closed_sides
from gripproxy.edge.poster import Posting
from gripproxy.edge.shortage import Shortage
from gripproxy.edge.turns import Turns
from gripproxy.grip.bounds import Bounds
from gripproxy.grip.forwarded import ForwardedFor
from gripproxy.grip.item import Item
from gripproxy.grip.response import Response
from gripproxy.grip.signature import KeyProblem, Signer, load_key
from gripproxy.journal import Journal
from gripproxy.listeners import Listener
from gripproxy.log import log
from gripproxy.mishaps import Mishaps
from gripproxy.pipe import ANSWER, COMMAND, ITEM, LOST, RETIRING, STATS, SUBSCRIBED, WATCH, Link, Message, socket_path
from gripproxy.pressure import Pressure
from gripproxy.process import Child
from gripproxy.retiring import ARRIVAL, Retirement
from gripproxy.routes import Route, RouteTable
from gripproxy.sessions.channels import ChannelTable
from gripproxy.sessions.fanout import Fanout
from gripproxy.sessions.keeper import Keeper, Updates
from gripproxy.sessions.pacing import Pacer
from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold
from gripproxy.sessions.websocket import WebSocketSession
from gripproxy.sessions.wheel import TICK, Wheel
from gripproxy.tally import SERIAL_STEP, Tally
from gripproxy.worker_routes import Signers, WorkerRoutes

__all__ = ["Worker", "main"]

COUNTS_INTERVAL: Final = 0.1
"""Seconds between two reports of session counts to the handler."""

SWEEP_INTERVAL: Final = 1.0
"""Seconds between two looks at what has taken too long."""

RECONNECT: Final = (0.02, 0.5)
"""First and longest pause in seconds before the pipe is connected again."""

GONE_TIMEOUT: Final = 30.0
"""Seconds the request to a gone link may take; its outcome does not matter."""


def _given(link: Link) -> Link:
    return link


class Worker(Journal):
    """One worker and everything it knows.

    Arguments: the loaded ``config``; the worker's ``number``, from 1; the ``loop`` it runs on.
    """

    def __init__(self, config: Config, number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(config, number, loop.time, time.time_ns())
        self.loop = loop
        self.log = log
        self.connections = 0
        self.requests = 0
        self.max_connections = ceil(config.runner.client_maxconn / max(1, config.proxy.workers))
        self.max_requests = ceil(config.proxy.max_open_requests / max(1, config.proxy.workers))
        self.in_flight = 0
        """Requests and handshakes that are with a backend; held ones are not."""
        self.active: dict[ClientConnection, None] = {}
        """Connections that are not held: those the sweep looks at."""
        self.draining = False
        self.recovered = float("-inf")
        """When all were last asked to recover; what a backend was asked before may lack something by now."""
        self.retiring = False
        """A successor serves: no new clients come, and each request is the last one of its connection."""
        self.held: dict[int, ResponseHold | StreamHold] = {}
        self.sockets: dict[bytes, WebSocketSession] = {}
        """WebSockets by connection id."""
        self.posting = Posting()
        """Requests of WebSockets in flight."""
        self._farewells = 0
        """Requests to gone links that are under way."""
        self._serial = 0
        self.turns = Turns(loop.call_soon)
        self.buffers = Buffers(config.proxy.buffers_max, loop.call_soon, self._peers, closed_sides)
        self.accepting = Accepting(
            loop,
            partial(ClientConnection, self),
            lambda: self.connections,
            lambda: self.pool.connecting,
        )
        self._arrival = ARRIVAL
        self._link: Link | None = None
        self._stopped = loop.create_future()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._signers: Signers = {}
        self._told: dict[str, int] = {}
        self._gauges: dict[str, int] = {}
        self._counts_at = 0.0

        base = self._base = Path(config.directory)
        proxy = config.proxy
        self.forward_settings = ForwardSettings(
            ForwardedFor.parse(proxy.x_forwarded_for),
            ForwardedFor.parse(proxy.x_forwarded_for_trusted),
            proxy.accept_x_forwarded_protocol,
            proxy.set_x_forwarded_protocol,
            frozenset(folded(name.encode()) for name in proxy.orig_headers_need_mark),
            proxy.accept_pushpin_route,
            proxy.cdn_loop.encode(),
            load_key(proxy.upstream_key, base),
        )
        self.bounds = Bounds.of(config.handler)
        self.signer(proxy.sig_key, proxy.sig_iss)

        self.tally = Tally(self)
        self.table = ChannelTable(self.tell_handler, self.tally)
        self.mishaps = Mishaps(self.table)
        self.table.failed = self.mishaps.session
        self.wheel = Wheel(self.clock())
        self.wheel.failed = self.mishaps.timer
        self.updates = Updates(
            lambda seconds: self._later(seconds, self.updates.run),
            self.clock,
            proxy.recovery_rate / max(1, proxy.workers),
            ceil(proxy.recovery_max / max(1, proxy.workers)),
        )
        rate = max(0, config.handler.message_rate)
        self.pacer = (
            Pacer(
                ceil(rate / max(1, proxy.workers)),
                ceil(max(0, config.handler.message_hwm) / max(1, proxy.workers)),
                self._later,
                self.deliveries_dropped,
                self.clock,
                self.mishaps.session,
            )
            if rate
            else None
        )
        keeper = self.keeper = Keeper(
            self.table,
            self.wheel,
            self.updates,
            self.clock,
            Asking(self).ask,
            proxy.stream_buffer_max,
            self.pacer is not None,
            proxy.hold_confirm_timeout,
            later=self._later,
            output_max=proxy.filter_output_max,
            refused=self.item_refused,
        )
        keeper.recover_interval = proxy.ws_recover_interval
        self.links = LinkFetches(self)
        keeper.fetch = self.links.fetch
        keeper.grew = self.buffers.grew
        keeper.ignore_query = proxy.share_links_ignoring_query
        self.pressure = Pressure(self._messages, (self.held, self.sockets), self._pause_intake, loop)
        self.fanout = Fanout(keeper, self.pressure.busy, self.pacer, config.handler.message_block_size)
        self.shortage = Shortage(
            loop.call_later, loop.time, self.accepting.limit, files_in_use, lambda: self.accepting.careful
        )
        self.pool = BackendPool(
            loop, proxy.connect_timeout, proxy.backend_idle_timeout, target_context, config.policy(), self.shortage
        )
        self.route_source = WorkerRoutes(config, number, loop, self.use_routes)
        self.routes = RouteTable()
        self.routes_generation = 0
        """Number of the routes in use; with a runner all workers have the same."""

    # --- routes

    def load_routes(self) -> None:
        """Take the routes to start with. Raises ConfigError if there are none that can be used."""
        self.route_source.load()

    def use_routes(self, table: RouteTable, generation: int, signers: Signers) -> None:
        """Use these routes from now on, and their signers; requests keep the Route they found."""
        self.routes, self.routes_generation = table, generation
        usual = (self.config.proxy.sig_key, self.config.proxy.sig_iss)
        self._signers = {usual: self._signers[usual], **signers}

    def signer(self, key: str, issuer: str) -> Signer | None:
        """Return the signer of a key as the config writes it; None for an empty key. Raises KeyProblem."""
        name = (key, issuer)
        if name not in self._signers:
            loaded = load_key(key, self._base)
            self._signers[name] = Signer(loaded, issuer) if loaded is not None else None
        return self._signers[name]

    def forwarder(self, route: Route, index: int, signed: bool = True) -> Forwarder:
        """Return what writes requests of a route for one of its targets, with Grip-Sig if ``signed`` and there is a
        key. Made at the first use."""
        forwarder: Forwarder | None = route.cache.get(index if signed else ("unsigned", index))
        if forwarder is None:
            proxy = self.config.proxy
            key = route.sig_key if route.sig_key is not None else proxy.sig_key
            issuer = route.sig_iss if route.sig_iss is not None else proxy.sig_iss
            try:
                signer = self.signer(key, issuer) if signed else None
            except KeyProblem as error:
                log.error(
                    "route %s: sig_key: %s; its requests go out unsigned", route.id.decode("utf-8", "replace"), error
                )
                signer = None
            forwarder = Forwarder(route, route.targets[index], self.forward_settings, signer, time.time)
            route.cache[index if signed else ("unsigned", index)] = forwarder
        return forwarder

    def debug(self, route: Route) -> bool:
        """Whether errors on this route are told in full."""
        return route.debug or self.config.proxy.debug

    def cors(self, route: Route) -> bool:
        """Whether responses on this route get CORS headers."""
        return route.aco or self.config.proxy.auto_cross_origin

    # --- sessions

    def _peers(self) -> list[Any]:
        """Return all clients, as peers for the buffers."""
        return [*self.active, *(session.outlet for session in chain(self.held.values(), self.sockets.values()))]

    def next_serial(self) -> int:
        """Return a number for a new request, unique in this process; it ends with the second of the minute."""
        self._serial += SERIAL_STEP
        return self._serial | self.tally.phase

    def held_began(self, hold: ResponseHold | StreamHold, client: ClientConnection) -> None:
        """A request is held from now on."""
        self.held[hold.serial] = hold
        self.tally.holds[hold.mode] += 1
        self.tally.holding[hold.mode] += 1

    def held_ended(self, hold: ResponseHold | StreamHold) -> None:
        """A hold is over."""
        self.held.pop(hold.serial, None)
        self.tally.holding[hold.mode] -= 1

    def socket_began(self, session: WebSocketSession, opening: Opening) -> None:
        """A WebSocket is open."""
        self.connections += 1
        self.upgraded += 1
        self.sockets[session.cid] = session
        if log.level >= 2:
            self.log_opening(opening, f"open as {session.cid.decode()}")
        if self.draining:
            self.loop.call_soon(session.drain)

    def socket_ended(self, session: WebSocketSession | None) -> None:
        """A WebSocket's connection is gone."""
        self.connections -= 1
        if session is not None and self.sockets.pop(session.cid, None) is not None:
            self.tally.left(session)

    def tell_gone(self, route: Route, base: bytes, link: bytes, untrusted: bool) -> None:
        """POST to a gone link; failures do not matter (docs/grip.md §4.4). ``untrusted``: of an untrusted target."""
        self._farewells += 1

        def done(_: Response | None) -> None:
            self._farewells -= 1

        headers = [(b"Content-Length", b"0")]
        Fetch(self, route, base, link, b"POST", headers, b"", GONE_TIMEOUT, done, untrusted=untrusted)

    # --- the pipe

    def tell_handler(self, message: Message) -> None:
        """Send a message to the handler; lost if there is none."""
        if self._link is not None:
            self._link.send(message)

    def _pause_intake(self, pause: bool) -> None:
        if self._link is not None:
            if pause:
                self._link.pause_reading()
            else:
                self._link.resume_reading()

    async def _keep_link(self) -> None:
        """Keep the pipe to the handler up, for as long as the process runs."""
        path = socket_path(self.config)
        pause, longest = RECONNECT
        told = before = False
        while True:
            lost: asyncio.Future[None] = self.loop.create_future()

            def on_lost(_: Link, lost: asyncio.Future[None] = lost) -> None:
                if not lost.done():
                    lost.set_result(None)

            self.pressure.flush()
            fresh = Link.sized(self.pressure.take, on_lost, self.config.handler.worker_queue_max)
            try:
                await self.loop.create_unix_connection(partial(_given, fresh), path)
            except OSError as error:
                if not told and pause >= longest:
                    told = True
                    log.warning("no connection to the handler at %s: %s; trying on", path, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, longest)
                continue
            told = False
            since = self.clock()
            self._link = link = fresh
            self.tally.anew()
            self._gauges = {}
            self.table.announce(self.epoch, str(self.number))
            self._tell_retiring()
            log.debug("connected to the handler")
            if before:
                # What was published while there was no handler came by nobody.
                self.recover()
            before = True
            await lost
            self._link = None
            self._watched(False, False)
            self.table.down()
            if link.error is not None:
                log.error("the pipe to the handler broke: %s", link.error)
            elif not self.draining:
                log.warning("the handler is gone; held clients stay, new holds wait")
            if self.clock() - since > longest:
                pause = RECONNECT[0]
            else:
                # It hangs up at once: a handler that ends, or one of another version.
                await asyncio.sleep(pause)
                pause = min(pause * 2, longest)

    def _messages(self, link: Link, messages: list[Message]) -> None:
        item = self.fanout.item
        unpack = Item.unpack
        rest = iter(messages)
        while True:
            try:
                for message in rest:
                    kind = message[0]
                    if kind == ITEM:
                        item(unpack(message[1]))
                    elif kind == SUBSCRIBED:
                        self.table.confirmed(message[1], message[2], message[3])
                    elif kind == COMMAND:
                        self.tell_handler((ANSWER, message[1], answer(self, message[2], message[3])))
                    elif kind == WATCH:
                        self._watched(message[1], message[2])
                    elif kind == LOST:
                        self.lost += 1
                        log.error("items were lost on the way from the handler: this worker does not keep up")
                        self.table.lost()
                        self.recover()
                break
            except Exception as error:  # noqa: BLE001 - of one message; those behind it are dealt with
                self.mishaps.message(message, error)
        self.fanout.flush()

    def _watched(self, connections: bool, counts: bool) -> None:
        """Somebody wants to know of each connection, and of the sessions of each channel at once, or does not."""
        self.tally.watch(connections)
        self.table.changed = (lambda: self._later(0, self.table.counts)) if counts else None

    def recover(self) -> None:
        """Have every hold with ids ask the backend for what it may have missed, in batches."""
        self.recovered = self.keeper.recovered = self.clock()
        for hold in list(self.held.values()):
            if any(subscription.prev_id is not None for subscription in hold.subscriptions):
                self.updates.add(hold)
        self.recover_sockets()

    def recover_sockets(self) -> None:
        """Have every WebSocket with ids ask the backend for what it may have missed."""
        for session in self.sockets.values():
            reliable = session.reliable
            if reliable is not None:
                reliable.recover()

    # --- time

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        if seconds <= 0:
            self.loop.call_soon(callback)
        else:
            self.loop.call_later(seconds, callback)

    def _tick(self) -> None:
        self.loop.call_later(TICK, self._tick)
        now = self.clock()
        self.tally.advance(now)
        self.wheel.advance(now)
        if now >= self._counts_at:
            # Not a timer of its own: to wake up costs more than what is done then.
            self._counts_at = now + COUNTS_INTERVAL - TICK / 2
            self._count()

    def _count(self) -> None:
        self.table.counts()
        if self._link is not None:
            self.tally.flush(self.clock())

    def _sweep(self) -> None:
        self.loop.call_later(SWEEP_INTERVAL, self._sweep)
        now = self.clock()
        for client in list(self.active):
            client.sweep(now)
        for poster in list(self.posting):
            poster.sweep(now)
        self.pool.sweep(now)
        self.buffers.look(now)
        self.accepting.look()
        self._tell_totals()

    def _tell_totals(self) -> None:
        totals = self.totals() | self.tally.totals()
        deltas = {name: value - self._told.get(name, 0) for name, value in totals.items()}
        deltas = {name: delta for name, delta in deltas.items() if delta}
        gauges = self.tally.gauges(self._link.queued if self._link is not None else 0)
        if self._link is not None and (deltas or gauges != self._gauges):
            self._told, self._gauges = totals, gauges
            self.tell_handler((STATS, deltas | self.tally.by_route(), gauges))

    # --- life

    async def run(self, listeners: list[Listener], child: Child) -> int:
        """Serve until told to stop; returns the exit status. Raises ConfigError, KeyProblem before serving."""
        self.load_routes()
        loop = self.loop
        log.attach(loop)
        routes = self.route_source
        routes.watch(child)
        child.start(
            loop,
            self.stop,
            self.hangup,
            ready=False,
            on_retire=self.retire,
            on_routes=routes.offered,
            on_use=routes.use,
        )
        # What was loaded while this process was starting counts for its first request.
        child.catch_up()
        await routes.settle()
        self._tasks.add(loop.create_task(self._keep_link(), name="pipe to the handler"))
        handshake = self.config.proxy.client_tls_timeout
        if any(listener.tls for listener in listeners):
            self._arrival += handshake
        await self.accepting.open(listeners, partial(tls.server_context, self.config.certs_dir), handshake)
        if self.retiring or self.draining:
            self.accepting.close()
        self._tick()
        self._sweep()
        child.ready()
        # What exists now lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 100)
        await self._stopped
        return 0

    def hangup(self) -> None:
        """SIGHUP: read the routes again, if the runner does not."""
        self.route_source.hangup()

    def _tell_retiring(self) -> None:
        if self.retiring:
            self.tell_handler((RETIRING, os.getpid()))

    def retire(self, hold_time: float, spread: float) -> None:
        """A successor serves: take no new clients, let those that are held go later (see Retirement), then end."""
        if self.draining or self.retiring:
            return
        self.retiring = True
        self.accepting.close()
        self._tell_retiring()
        Retirement(self, hold_time, spread, self._arrival)

    def stop(self) -> None:
        """Stop accepting, end what is held, finish what is in flight; at the latest after ``shutdown_timeout``."""
        if self.draining:
            return
        self.draining = self.retiring = True
        self.accepting.close()
        for hold in list(self.held.values()):
            hold.drain()
        for session in list(self.sockets.values()):
            session.drain()
        for client in list(self.active):
            client.drain()
        self._end_at = self.clock() + self.config.runner.shutdown_timeout
        self._wait_for_end()

    def _wait_for_end(self) -> None:
        left = self.connections or self.posting or self._farewells
        if left and self.clock() < self._end_at and not self._stopped.done():
            self.loop.call_later(0.02, self._wait_for_end)
            return
        for client in list(self.active):
            client.abort()
        for session in list(self.sockets.values()):
            session.abort("the process ends")
        self.accepting.end()
        for task in self._tasks:
            task.cancel()
        self.pool.close()
        if self._link is not None:
            # What it counted last counts too.
            self.tally.flush(self.clock())
            self._tell_totals()
            self._link.close()
        if not self._stopped.done():
            self._stopped.set_result(None)


def main(config: Config, number: int, listeners: list[Listener], child: Child) -> int:
    """Run worker ``number`` on the given listeners until it is told to stop. Returns the exit status."""
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        try:
            worker = Worker(config, number, loop)
            return loop.run_until_complete(worker.run(listeners, child))
        except (ConfigError, KeyProblem) as error:
            log.error("%s", error)
            return 2
    finally:
        child.close()
        loop.run_until_complete(loop.shutdown_asyncgens())
        log.flush()
        loop.close()
