"""Services: the kinds of child processes, one record each.

A further kind of process is a further record in ``services_of``. The runner tests the fields of the record, never its
kind.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gripproxy.config import Config

__all__ = ["Command", "Replacement", "Service", "default_command", "services_of"]

HANDLER_STOP: Final = 6.0
"""Seconds the handler has to stop: it finishes the requests of publishers and passes its items to the workers, each for
a bounded time (FINISH_TIME and PASS_TIME there); without any of these it needs milliseconds."""

HUB_STOP: Final = 6.0
"""Seconds the hub has to stop: it finishes requests and passes its items to the handler, for 3 s at most, and closes
its store, with a last write to the disk."""

Command = Callable[[str, int, Sequence[str]], list[str]]
"""Returns the command line of a child, from its kind (worker, handler, hub), its number (0: it has none) and the
options of the configuration."""


class Replacement(enum.Enum):
    """How a rolling restart replaces the processes of a service."""

    NONE = "none"
    """Never: the service keeps its processes until the runner ends."""
    OVERLAPPING = "overlapping"
    """At each reload: a successor serves, then its predecessor retires."""
    EXCLUSIVE = "exclusive"
    """Only at a reload that names the service. It owns ports or files that one process at a time can have, so a process
    ends before its successor starts."""


@dataclass(frozen=True, slots=True)
class Service:
    """One kind of child process.

    Attributes:
        kind: name in the configuration, on the command line, in admin requests and in the log.
        command: returns the command line of the process with the given number.
        count: number of processes; 0 if the service is not configured.
        numbered: log lines name its processes by kind and number, not by kind alone.
        ready_before: kinds whose first processes start only when all processes of this service serve.
        stop_order: services with the lowest number stop first, the next ones when all processes of these have ended.
        stop_time: seconds for a graceful end; None: ``shutdown_timeout`` and a margin.
        replacement: how a rolling restart replaces its processes.
        listens: its processes inherit the listening sockets of the client side.
        routes: its processes inherit the routes, and receive each new generation.
    """

    kind: str
    command: Callable[[int], list[str]]
    count: int = 1
    numbered: bool = False
    ready_before: frozenset[str] = frozenset()
    stop_order: int = 0
    stop_time: float | None = None
    replacement: Replacement = Replacement.NONE
    listens: bool = False
    routes: bool = False


def default_command(kind: str, number: int, argv: Sequence[str]) -> list[str]:
    """Return the command line of a child: this Python, this package.

    Args:
        kind: subcommand of ``gripproxy``.
        number: of the process, 0 if it has none.
        argv: options of the configuration.
    """
    numbered = [f"--number={number}"] if number else []
    # -P: modules in the working directory must not be imported in place of the package's.
    return [sys.executable, "-P", "-m", "gripproxy", kind, *numbered, *argv]


def services_of(config: Config, argv: Sequence[str], command: Command = default_command) -> list[Service]:
    """Return all services in the order in which their processes start.

    Args:
        config: its ``[runner] services`` decides which of them have processes.
        argv: options that make children load an equal configuration.
        command: returns the command lines of children.
    """
    configured = config.services
    return [
        Service(
            "handler",
            lambda _: command("handler", 0, argv),
            count=int("handler" in configured),
            # It serves the last subscriptions and counts of the workers and the last items of the hub, so it stops when
            # they have ended.
            stop_order=2,
            stop_time=HANDLER_STOP,
            replacement=Replacement.EXCLUSIVE,
        ),
        Service(
            "worker",
            lambda number: command("worker", number, argv),
            count=config.proxy.workers if "worker" in configured else 0,
            numbered=True,
            replacement=Replacement.OVERLAPPING,
            listens=True,
            routes=True,
        ),
        Service(
            "hub",
            lambda _: command("hub", 0, argv),
            count=int("hub" in configured),
            # Workers finish their clients' requests, which may be to the hub, so it stops when they have ended; the
            # handler still takes its items then.
            stop_order=1,
            stop_time=HUB_STOP,
            replacement=Replacement.EXCLUSIVE,
        ),
    ]
