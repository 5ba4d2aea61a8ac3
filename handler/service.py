"""Composition root of the handler process: makes its objects, opens them in order, and closes them."""

from __future__ import annotations

import asyncio
import gc
import os
import pathlib
import socket
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import uvloop
import zmq

from gripproxy import pipe
from gripproxy.config import Config
from gripproxy.grip.bounds import Bounds
from gripproxy.grip.signature import KeyProblem, load_key
from gripproxy.process.endpoints import BindError, check_free, listen_metrics, listen_tcp
from gripproxy.process.handover import ALONE, Handover
from gripproxy.process.hub_sockets import hub_control_socket
from gripproxy.process.log import log
from gripproxy.process.runner_messages import Logged
from gripproxy.process.supervised import Child
from handler.control.api import Api
from handler.control.authenticator import Authenticator
from handler.control.command_socket import Commands, CommandSocket
from handler.control.http_server import HttpServer, Limits
from handler.control.hub_intake import HubIntake
from handler.control.metrics_api import MetricsApi
from handler.dispatch.dispatcher import Dispatcher
from handler.dispatch.timers import Timers
from handler.dispatch.worker_links import WorkerLinks
from handler.sources.source import Source, Sources
from handler.sources.zmq_pull import ZmqPull
from handler.sources.zmq_sub import ZmqSub
from handler.stats.aggregator import StatsAggregator, StatsSettings
from handler.stats.socket import StatsFeed, StatsSocket

if TYPE_CHECKING:
    from handler.stats.certificate_watch import CertificateWatch

__all__ = ["Service", "main"]

FINISH_TIME: Final = 0.5
"""Seconds in which connected publishers may complete their requests after SIGTERM. A successor can only bind the ports
afterwards."""

PASS_TIME: Final = 3.0
"""Seconds for workers to read the messages queued for them at the end; afterwards these are lost. A worker needs
milliseconds, unless its machine is busy."""

POLL_INTERVAL: Final = 0.005
"""Seconds between two checks during FINISH_TIME and PASS_TIME."""

ANNOUNCE_TIME: Final = 5.0
"""Seconds to wait for HELLO of all workers, retiring ones included, before publishers are admitted. An item received
earlier would not reach the clients of a worker that is about to connect."""


class Service:
    """All objects of the handler on the running event loop. ``open`` and ``close`` are called once each.

    Args:
        config: the configuration.
        handover: state handed over by the runner: retiring workers that will connect, and restarts.
    """

    def __init__(self, config: Config, handover: Handover = ALONE) -> None:
        self._config = config
        self._retiring = handover.retiring.get("worker", 0)
        self._restarts = handover.restarts
        settings = config.handler
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        sink = StatsSocket(self._context, settings.stats_format == "json") if settings.stats_spec else None
        stats: StatsAggregator[Any] = StatsAggregator(
            StatsSettings(
                f"gripproxy-handler_{os.getpid()}".encode(),
                config.globals.stats_connection_ttl,
                settings.stats_subscription_ttl,
                settings.stats_report_interval,
                settings.message_block_size,
            ),
            sink,
            asyncio.get_running_loop().time,
        )
        self.sources = Sources()
        self.dispatcher = Dispatcher(
            id_cache_ttl=settings.id_cache_ttl,
            id_cache_max=settings.id_cache_max,
            last_ids_max=settings.last_ids_max,
            message_wait=settings.message_wait,
            message_wait_max=settings.message_wait_max,
            linger=settings.subscription_linger,
            update=settings.update_on_first_subscription,
            bounds=Bounds.of(settings),
            follow=self.sources.follow,
            stats=stats,
        )
        self._loop = asyncio.get_running_loop()
        self._timers = Timers(self.dispatcher)
        self.links = WorkerLinks(self.dispatcher, self._changed, queue_max=settings.worker_queue_max)
        self._stats = StatsFeed(sink, self.dispatcher) if sink is not None else None
        self._commands: CommandSocket | None = None
        self._control: HttpServer | None = None
        self._metrics: list[HttpServer] = []
        wanted = HubIntake.wanted(config)
        self._hub = HubIntake(config, self._context, self.dispatcher, self.sources) if wanted else None
        self._certificates: CertificateWatch | None = None
        self._serving = False
        self._all_joined = asyncio.Event()

    async def open(self) -> None:
        """Open the pipe, wait for the workers, then open the sources and the control port.

        Raises:
            BindError: an address is in use, or a certificate cannot be used.
            KeyProblem: ``control_key`` or ``reserved_key`` cannot be used.
            OSError: the certificate files cannot be read.
        """
        settings = self._config.handler
        base = pathlib.Path(self._config.directory)
        authenticator = Authenticator(
            load_key(settings.control_key, base), settings.control_iss, load_key(settings.reserved_key, base)
        )
        tls = _tls(settings.control_tls_cert, settings.control_tls_key)
        # Errors are found before waiting: a port in use must not show up seconds later.
        for key, spec in self._bound_specs():
            check_free(spec, key)
        control_socket = None
        if settings.push_in_http_port:
            control_socket = listen_tcp(settings.push_in_http_addr, settings.push_in_http_port, "push_in_http_port")
        try:
            self._watch_certificates()
            await self._open_metrics()
            if self._stats is not None:
                self._stats.open(settings.stats_spec, settings.ipc_file_mode)
            await self.links.open(pipe.socket_path(self._config))
            try:
                await asyncio.wait_for(self._all_joined.wait(), ANNOUNCE_TIME)
            except TimeoutError:
                missing = self._config.proxy.workers + self._retiring - self.links.announced
                log.warning(
                    "workers have not joined",
                    "the handler goes on without them",
                    workers=missing,
                    seconds=ANNOUNCE_TIME,
                )
            self._open_sockets()
            if self._hub is not None:
                await self._hub.open()
            if control_socket is not None:
                await self._open_control(control_socket, authenticator, tls)
            self._serving = True
            self.dispatcher.opened(self._loop.time())
            self._timers.schedule()
        except BaseException:
            if control_socket is not None:
                control_socket.close()
            raise

    async def finish(self) -> None:
        """Accept no new publishers, and read the messages of connected ones, for FINISH_TIME at most."""
        self._serving = False
        self.sources.pause()
        if self._control is not None:
            self._control.retire()
        if self._hub is not None:
            self._hub.retire()
        await _while(self._unfinished, FINISH_TIME)

    def _unfinished(self) -> bool:
        connected = self._control is not None and bool(self._control.connections)
        return connected or self.sources.unread or (self._hub is not None and self._hub.busy)

    async def close(self) -> None:
        """Stop receiving, send the queues of the workers, close everything."""
        if self._control is not None:
            self._control.close()
        if self._hub is not None:
            self._hub.close()
        self.sources.close()
        if self._commands is not None:
            self._commands.close()
        self.dispatcher.refusals.settle()
        if self._certificates is not None:
            self._certificates.close()
        if self._stats is not None:
            self._stats.close()
        for server in self._metrics:
            server.close()
        self._timers.close()
        self.links.close()
        # The loop writes the flushed queues; a worker that does not read gets PASS_TIME.
        await asyncio.sleep(0)
        await _while(lambda: self.links.connected > 0, PASS_TIME)
        self._context.term()

    def unready(self) -> str:
        """Return why items are not received and delivered to all workers; empty if they are."""
        joined, workers = self.links.joined, self._config.proxy.workers
        if self._serving and joined >= workers:
            return ""
        return f"workers that have joined: {joined} of {workers}" if joined < workers else "not taking items in"

    def logged(self, report: Logged) -> None:
        """Count a warning or an error of the runner, and send it to subscribers of the stats socket.

        Args:
            report: message of the runner.
        """
        self.dispatcher.counters.logged(report.level, report.event)
        self.dispatcher.stats.logged([("runner", report.level, report.event, report.text)])

    def _watch_certificates(self) -> None:
        """Watch the certificates of the TLS ports, and that of the control port, if there are any."""
        directory = self._config.certs_dir if self._config.runner.https_ports else ""
        control = self._config.handler.control_tls_cert
        if directory or control:
            # Imported here because most handlers have no certificates.
            from handler.stats.certificate_watch import CertificateWatch, certificate_files

            def files() -> dict[str, str]:
                return (certificate_files(directory) if directory else {}) | (
                    {"control_tls_cert": control} if control else {}
                )

            self._certificates = CertificateWatch(files)
            self._certificates.open()

    async def _open_metrics(self) -> None:
        """Open the metrics ports of both sections: the handler has the figures of all processes."""
        ports = [
            ("prometheus_port", section.prometheus_port, section.prometheus_prefix)
            for section in (self._config.handler, self._config.proxy)
            if section.prometheus_port
        ]
        names = self._config.handler.prometheus_pushpin_names
        if ports:
            # Imported here because most handlers serve no metrics.
            from handler.stats.prometheus import Metrics

        for key, address, prefix in ports:
            sock = listen_metrics(address, key, self._config.handler.ipc_file_mode)
            metrics = Metrics(
                self.dispatcher,
                self.links,
                prefix if names else None,
                self._timers.late,
                self._restarts,
                self._certificates,
            )
            server = HttpServer(MetricsApi(metrics, self), Limits())
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
        dispatcher, room, reserved = self.dispatcher, settings.push_in_buffer_max, settings.reserved_prefix.encode()
        strict = settings.publish_strict
        uris: dict[bytes, bytes] = {}

        def open_source(name: bytes, source: Source) -> None:
            address = self.sources.open(source, dispatcher.channels)
            if address is not None:
                uris[name] = address.encode()

        if spec := settings.push_in_spec:
            open_source(
                b"publish-pull",
                ZmqPull(self._context, dispatcher, self.links.congested, spec, mode, room, reserved, strict),
            )
        if specs := settings.push_in_sub_specs:
            connect = settings.push_in_sub_connect
            source = ZmqSub(
                self._context, dispatcher, specs, connect, mode, room, reserved, "push_in_sub_specs", strict
            )
            open_source(b"publish-sub", source)
        if settings.command_spec:
            self._commands = CommandSocket(
                self._context, Commands(self.dispatcher, uris, reserved, strict), self.dispatcher
            )
            uris[b"command"] = self._commands.open(settings.command_spec, mode).encode()

    async def _open_control(
        self, sock: socket.socket, authenticator: Authenticator, tls: ssl.SSLContext | None
    ) -> None:
        settings = self._config.handler
        reserved = settings.reserved_prefix.encode()
        api = Api(self.dispatcher, authenticator, self._loop.time, time.time, reserved, settings.publish_strict)
        limits = Limits(settings.push_in_http_max_headers_size, settings.push_in_http_max_body_size)
        self._control = HttpServer(api, limits)
        await self._control.open(sock, tls)

    def _changed(self) -> None:
        self._timers.schedule()
        workers = self._config.proxy.workers
        if self.links.joined >= workers and self.links.announced >= workers + self._retiring:
            self._all_joined.set()


async def _while(busy: Callable[[], bool], longest: float) -> None:
    """Wait until ``busy`` is false, for ``longest`` seconds at most."""
    for _ in range(round(longest / POLL_INTERVAL)):
        if not busy():
            return
        await asyncio.sleep(POLL_INTERVAL)


def main(config: Config, child: Child) -> int:
    """Run the handler until SIGTERM or SIGINT, which are handled from the start.

    Args:
        config: the configuration.
        child: connection to the runner.

    Returns:
        The exit status: 0, or 2 for a configuration that cannot be used.
    """
    return uvloop.run(_run(config, child))


async def _run(config: Config, child: Child) -> int:
    loop = asyncio.get_running_loop()
    log.attach(loop)
    stop = asyncio.Event()
    service = Service(config, child.handover)
    child.start(loop, stop.set, lambda: None, ready=False, on_logged=service.logged)
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
            log.info("handler ready", intake=", ".join(_describe(config)) or "no intake configured")
            # Objects made so far live as long as the process: the collector need not visit them again.
            gc.collect()
            gc.freeze()
            await stopping
            await service.finish()
    except (BindError, KeyProblem, OSError) as error:
        log.error("configuration", f"[handler] {error}")
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
    ports = (settings.prometheus_port, config.proxy.prometheus_port)
    parts += [f"metrics {port}" for port in ports if port]
    if settings.command_spec:
        parts.append(f"commands {settings.command_spec}")
    if HubIntake.wanted(config):
        parts.append(f"hub {hub_control_socket(config)}")
    return parts


def _tls(certificate: str, key: str) -> ssl.SSLContext | None:
    if not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (certificate, key):
        if os.path.exists(path) and not os.path.isfile(path):
            # OpenSSL would block until a FIFO has a writer.
            raise BindError("control_tls_cert", certificate, f"{path} must be a regular file")
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise BindError("control_tls_cert", certificate, f"not usable with control_tls_key={key}: {error}") from error
    return context
