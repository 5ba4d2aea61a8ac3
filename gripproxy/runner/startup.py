"""Start of the service: everything that can fail before the first process runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from gripproxy import __version__
from gripproxy.config import Config, config_argv
from gripproxy.config.exposure import exposures, shipped_keys
from gripproxy.process.limits import raise_file_limit
from gripproxy.process.listening_sockets import ListenError, ListeningSocket, close_all, open_listeners, remove_paths
from gripproxy.process.log import log
from gripproxy.routing.routes_watch import Reading
from gripproxy.runner.lifecycle import CONFIG_STATUS
from gripproxy.runner.reload_requests import check_certificates
from gripproxy.runner.route_distribution import read_first
from gripproxy.runner.runner import Runner, open_log
from gripproxy.runner.service import Service, services_of

__all__ = ["run"]

SPARE_FILES: Final = 200
"""Descriptors a worker needs besides its clients (libraries, idle connections to backends, the pipe), an eighth of them
if that is less: at this point it pauses accepting."""


def _check_files(config: Config, serves_clients: bool) -> None:
    limit = raise_file_limit()
    log.info("limit of open files", files=limit)
    if not serves_clients:
        return
    reach = max(0, limit - min(SPARE_FILES, limit // 8)) * config.proxy.workers
    if reach < config.runner.client_maxconn:
        log.warning(
            "client_maxconn above the limit of open files",
            "raise LimitNOFILE= or ulimit -n",
            client_maxconn=config.runner.client_maxconn,
            files_max=limit,
            clients_max=reach,
        )


def _prepare(config: Config, count: int) -> list[list[ListeningSocket]]:
    """Make rundir, and open the listening sockets of ``count`` processes. Raises ListenError and OSError."""
    os.makedirs(config.globals.rundir, mode=0o700, exist_ok=True)
    listeners = open_listeners(config, count) if count else []
    try:
        check_certificates(config, listeners[0] if listeners else ())
    except ListenError:
        remove_paths(listeners)
        close_all(listeners)
        raise
    return listeners


def run(config: Config, services: Sequence[Service] | None = None, routes: Reading | None = None) -> int:
    """Run the whole service until a signal stops it.

    Args:
        config: of the service.
        services: all there are, in the order of their start (default: those of this package).
        routes: to start with; read here if None.

    Returns:
        The exit status: 0 after SIGTERM or SIGINT, 2 if the configuration is wrong or a port is in use (with the
        reason on standard error), 1 if a process cannot be kept running.

    Raises:
        ConfigError: the service cannot start with its routes.
    """
    if services is None:
        services = services_of(config, config_argv(config))
    if routes is None and any(service.routes and service.count for service in services):
        routes = read_first(config)
    try:
        open_log(config)
    except OSError as error:
        print(f"gripproxy: --logfile: {config.log_file}: {error.strerror}", file=sys.stderr)
        return CONFIG_STATUS
    listening = max((service.count for service in services if service.listens), default=0)
    try:
        listeners = _prepare(config, listening)
    except ListenError as error:
        print(f"gripproxy: {error}", file=sys.stderr)
        return CONFIG_STATUS
    except OSError as error:
        print(f"gripproxy: [global] rundir: {error.filename}: {error.strerror}", file=sys.stderr)
        return CONFIG_STATUS
    log.info("gripproxy starts", version=__version__, pid=os.getpid(), config=config.path or "built in")
    for warning in (*config.warnings, *exposures(config), *shipped_keys(config)):
        log.warning("configuration", warning)
    _check_files(config, listening > 0)
    for listener in listeners[0] if listeners else []:
        log.info("listening", url=listener.url, key=listener.key)
    if listeners and not listeners[0]:
        log.warning("no port for clients", "no client can connect: set http_port, https_ports or local_ports")
    return Runner(config, listeners, services, routes).run()
