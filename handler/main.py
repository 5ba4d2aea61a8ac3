"""The handler process: starts the parts, ties them together, stops them."""

from __future__ import annotations

import asyncio
import gc
import os
import pathlib
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

import uvloop
import zmq

from gripproxy import pipe
from gripproxy.config import Config
from gripproxy.grip.bounds import Bounds
from gripproxy.grip.signature import KeyProblem, load_key
from gripproxy.log import log
from gripproxy.process import Child, restarts, retiring_workers

from .api import Api
from .clock import Clock
from .commands import Commands, CommandSocket
from .control import ControlServer, Limits
from .endpoints import BindError, check_free, listen_metrics, listen_tcp
from .exchange import Exchange
from .guard import Guard
from .intake import Intake
from .links import Links
from .stats import Stats, StatsSettings
from .statsocket import StatsSocket

__all__ = ["Service", "main"]

FINISH_TIME: Final = 0.5
"""Seconds for publishers that are connected to end what they have begun, when the handler is told to stop. A successor
can only take their ports after that."""

PASS_TIME: Final = 3.0
"""Seconds for workers to take what is queued for them at the end; after that it is lost. A worker takes milliseconds,
unless its machine is busy."""

LOOK: Final = 0.005
"""Seconds between two looks whether that is done."""

ANNOUNCE_TIME: Final = 5.0
"""Seconds to wait for all workers, retiring ones too, to announce themselves before publishers are let in: an item
taken in earlier would be nobody's, although clients of a worker that is about to connect are waiting for it."""


class Service:
    """All parts of the handler on the running event loop. ``open`` or ``close``, once each.

    ``retiring``: workers that will announce themselves besides those of the configuration.
    """

    def __init__(self, config: Config, retiring: int = 0) -> None:
        self._config = config
        self._retiring = retiring
        settings = config.handler
        stats: Stats[Any] = Stats(
            StatsSettings(
                f"gripproxy-handler_{os.getpid()}".encode(),
                config.globals.stats_connection_ttl,
                settings.stats_subscription_ttl,
                settings.stats_report_interval,
                settings.message_block_size,
            ),
            clock=asyncio.get_running_loop().time,
        )
        self.exchange = Exchange(
            id_cache_ttl=settings.id_cache_ttl,
            id_cache_max=settings.id_cache_max,
            last_ids_max=settings.last_ids_max,
            message_wait=settings.message_wait,
            message_wait_max=settings.message_wait_max,
            linger=settings.subscription_linger,
            update=settings.update_on_first_subscription,
            bounds=Bounds.of(settings),
            stats=stats,
        )
        self._loop = asyncio.get_running_loop()
        self._clock = Clock(self.exchange)
        self.links = Links(self.exchange, self._changed, queue_max=settings.worker_queue_max)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.intake = Intake(self._context, self.exchange, self.links.congested, settings.push_in_buffer_max)
        self._commands: CommandSocket | None = None
        self._stats: StatsSocket | None = None
        self._control: ControlServer | None = None
        self._metrics: list[ControlServer] = []
        self._serving = False
        self._all_joined = asyncio.Event()

    async def open(self) -> None:
        """Open the pipe, wait for the workers, then open the intakes.

        Raises BindError for an address in use, KeyProblem for a bad ``control_key``, OSError for bad certificate files.
        """
        settings = self._config.handler
        guard = Guard(load_key(settings.control_key, pathlib.Path(self._config.directory)), settings.control_iss)
        tls = _tls(settings.control_tls_cert, settings.control_tls_key)
        # All that can be wrong is found before waiting: a clash of ports should not show up seconds later.
        for key, spec in self._bound_specs():
            check_free(spec, key)
        control_socket = None
        if settings.push_in_http_port:
            control_socket = listen_tcp(settings.push_in_http_addr, settings.push_in_http_port, "push_in_http_port")
        try:
            await self._open_metrics()
            if settings.stats_spec:
                json = settings.stats_format == "json"
                self._stats = StatsSocket(self._context, self.exchange, json, self.exchange.delivery)
                self._stats.open(settings.stats_spec, settings.ipc_file_mode)
            await self.links.open(pipe.socket_path(self._config))
            try:
                await asyncio.wait_for(self._all_joined.wait(), ANNOUNCE_TIME)
            except TimeoutError:
                missing = self._config.proxy.workers + self._retiring - self.links.announced
                log.warning("%d workers have not joined in %g s; going on without them", missing, ANNOUNCE_TIME)
            self._open_sockets()
            if control_socket is not None:
                await self._open_control(control_socket, guard, tls)
            self._serving = True
            self.exchange.opened(self._loop.time())
            self._clock.look()
        except BaseException:
            if control_socket is not None:
                control_socket.close()
            raise

    async def finish(self) -> None:
        """Let no new publishers in, and take what those that are connected have sent, for FINISH_TIME at most."""
        self._serving = False
        self.intake.retire()
        if self._control is not None:
            self._control.retire()
        await _while(
            lambda: self.intake.unread or (self._control is not None and bool(self._control.connections)), FINISH_TIME
        )

    async def close(self) -> None:
        """Take no more in, pass on what was taken, close everything."""
        if self._control is not None:
            self._control.close()
        self.intake.close()
        if self._commands is not None:
            self._commands.close()
        self.exchange.refusals.settle()
        if self._stats is not None:
            self._stats.close()
        for server in self._metrics:
            server.close()
        self._clock.close()
        self.links.close()
        # Let the loop write what the links have flushed; a worker that does not read is not waited for long.
        await asyncio.sleep(0)
        await _while(lambda: self.links.connected > 0, PASS_TIME)
        self._context.term()

    def unready(self) -> str:
        """Why items are not taken in and delivered to all; empty if they are."""
        joined, workers = self.links.joined, self._config.proxy.workers
        if self._serving and joined >= workers:
            return ""
        return f"{joined} of {workers} workers have joined" if joined < workers else "not taking items in"

    async def _open_metrics(self) -> None:
        """Open the metrics ports of both sections; all figures are here, of whichever process they are."""
        ports = [
            ("prometheus_port", section.prometheus_port, section.prometheus_prefix)
            for section in (self._config.handler, self._config.proxy)
            if section.prometheus_port
        ]
        if ports:
            # Imported here because most handlers serve no metrics.
            from .metrics import Metrics

        for key, address, prefix in ports:
            sock = listen_metrics(address, key, self._config.handler.ipc_file_mode)
            metrics = Metrics(self.exchange, self.links, self, prefix, self._clock.late, restarts())
            server = ControlServer(metrics, Limits())
            self._metrics.append(server)
            await server.open(sock)

    def _bound_specs(self) -> list[tuple[str, str]]:
        settings = self._config.handler
        specs = [("push_in_spec", settings.push_in_spec), ("command_spec", settings.command_spec)]
        specs.append(("stats_spec", settings.stats_spec))
        if settings.push_in_sub_specs and not settings.push_in_sub_connect:
            specs.append(("push_in_sub_specs", settings.push_in_sub_specs[0]))
        return [(key, spec) for key, spec in specs if spec]

    def _open_sockets(self) -> None:
        settings, mode = self._config.handler, self._config.handler.ipc_file_mode
        uris: dict[bytes, bytes] = {}
        if settings.push_in_spec:
            uris[b"publish-pull"] = self.intake.open_pull(settings.push_in_spec, mode).encode()
        if settings.push_in_sub_specs:
            address = self.intake.open_sub(settings.push_in_sub_specs, settings.push_in_sub_connect, mode)
            if address is not None:
                uris[b"publish-sub"] = address.encode()
        if settings.command_spec:
            self._commands = CommandSocket(self._context, Commands(self.exchange, uris), self.exchange)
            uris[b"command"] = self._commands.open(settings.command_spec, mode).encode()

    async def _open_control(self, sock: socket.socket, guard: Guard, tls: ssl.SSLContext | None) -> None:
        settings = self._config.handler
        api = Api(self.exchange, guard, self._loop.time, time.time)
        limits = Limits(settings.push_in_http_max_headers_size, settings.push_in_http_max_body_size)
        self._control = ControlServer(api, limits)
        await self._control.open(sock, tls)

    def _changed(self) -> None:
        self._clock.look()
        workers = self._config.proxy.workers
        if self.links.joined >= workers and self.links.announced >= workers + self._retiring:
            self._all_joined.set()


async def _while(busy: Callable[[], bool], longest: float) -> None:
    """Return when ``busy`` is over, or after ``longest`` seconds."""
    for _ in range(round(longest / LOOK)):
        if not busy():
            return
        await asyncio.sleep(LOOK)


def main(config: Config, child: Child) -> int:
    """Run the handler until it is told to stop, and return its exit status: 0, or 2 for a config that cannot work.

    ``child`` is its tie to the runner. Signals are handled from the start on.
    """
    return uvloop.run(_run(config, child))


async def _run(config: Config, child: Child) -> int:
    loop = asyncio.get_running_loop()
    log.attach(loop)
    stop = asyncio.Event()
    child.start(loop, stop.set, lambda: None, ready=False)
    service = Service(config, retiring_workers())
    try:
        opening = loop.create_task(service.open(), name="open the handler")
        stopping = loop.create_task(stop.wait(), name="wait for the end")
        await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            opening.cancel()
            await asyncio.wait((opening,))
        else:
            opening.result()
            child.ready()
            log.info("handler ready: %s", ", ".join(_describe(config)) or "no intake configured")
            # What was made so far lives as long as the process; the collector need not look at it again.
            gc.collect()
            gc.freeze()
            await stopping
            await service.finish()
    except (BindError, KeyProblem, OSError) as error:
        log.error("handler: [handler] %s", error)
        return 2
    finally:
        await service.close()
        log.attach(None)
        child.close()
    return 0


def _describe(config: Config) -> list[str]:
    settings = config.handler
    parts = []
    if settings.push_in_spec:
        parts.append(f"PULL {settings.push_in_spec}")
    if settings.push_in_sub_specs:
        verb = "SUB to" if settings.push_in_sub_connect else "SUB"
        parts.append(f"{verb} {','.join(settings.push_in_sub_specs)}")
    if settings.push_in_http_port:
        scheme = "https" if settings.control_tls_cert else "http"
        parts.append(f"{scheme} {settings.push_in_http_addr}:{settings.push_in_http_port}")
    if settings.stats_spec:
        parts.append(f"stats {settings.stats_spec}")
    for section in (settings, config.proxy):
        if section.prometheus_port:
            parts.append(f"metrics {section.prometheus_port}")
    if settings.command_spec:
        parts.append(f"commands {settings.command_spec}")
    return parts


def _tls(certificate: str, key: str) -> ssl.SSLContext | None:
    if not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (certificate, key):
        if os.path.exists(path) and not os.path.isfile(path):
            # OpenSSL would wait for the writer of a FIFO.
            raise BindError("control_tls_cert", certificate, f"{path} must be a regular file")
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise BindError("control_tls_cert", certificate, f"not usable with control_tls_key={key}: {error}") from error
    return context
