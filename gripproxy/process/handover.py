"""Handover from the runner to a child: one typed message, in one environment variable."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gripproxy.config import Config

__all__ = ["ALONE", "HANDOVER_VARIABLE", "Handover", "InheritedRoutes", "InheritedSocket", "Owned"]

HANDOVER_VARIABLE: Final = "GRIPPROXY_HANDOVER"
"""Environment variable from the runner to a child: the Handover, as JSON."""


@dataclass(frozen=True, slots=True)
class InheritedSocket:
    """A listening socket that a child inherits, as ``gripproxy.process.listening_sockets`` describes it."""

    descriptor: int
    key: str
    name: str
    tls: bool
    port: int | None
    unix: bool


@dataclass(frozen=True, slots=True)
class InheritedRoutes:
    """The routes that a child starts with: a file in memory.

    A worker reads no routes file, which could stall it, and all workers have the same routes.
    """

    descriptor: int
    generation: int


@dataclass(frozen=True, slots=True)
class Owned:
    """Values of the configuration that the runner decided at its start; the file may have changed since.

    Attributes:
        rundir: directory in which the processes meet.
        ipc_prefix: first part of the names there.
        workers: number of processes that share the limits.
    """

    rundir: str
    ipc_prefix: str
    workers: int


@dataclass(frozen=True, slots=True)
class Handover:
    """Message from the runner to a child at its start. The default is that of a process without a runner.

    Attributes:
        descriptor: of the child's end of the socket pair that ties it to the runner, -1 without a runner.
        beat_timeout: seconds without a beat after which the runner kills the child.
        shutdown_timeout: seconds a child has to end gracefully.
        owned: configuration values of the runner, None without a runner.
        restarts: starts of this process before, for the statistics.
        retiring: number of processes that retire, by kind; they still hold clients.
        routes: None for a child that needs none.
        listeners: listening sockets of the child.
    """

    descriptor: int = -1
    beat_timeout: float = 10.0
    shutdown_timeout: float = 5.0
    owned: Owned | None = None
    restarts: int = 0
    retiring: Mapping[str, int] = field(default_factory=dict)
    routes: InheritedRoutes | None = None
    listeners: tuple[InheritedSocket, ...] = ()

    @classmethod
    def take(cls) -> Handover:
        """Return the handover of this process, taken out of the environment: a child of its own must not have it.

        Raises:
            ValueError: HANDOVER_VARIABLE is set but cannot be right (the runner sets it, people do not).
        """
        value = os.environ.pop(HANDOVER_VARIABLE, None)
        if value is None:
            return cls()
        try:
            return cls.decode(value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{HANDOVER_VARIABLE}={value}: {error}; only the gripproxy command sets it") from error

    @property
    def descriptors(self) -> list[int]:
        """All descriptors that the child has to inherit."""
        routes = [self.routes.descriptor] if self.routes is not None else []
        return [self.descriptor, *routes, *(listener.descriptor for listener in self.listeners)]

    def encode(self) -> str:
        """Return the value of HANDOVER_VARIABLE."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def decode(cls, value: str) -> Handover:
        """Return the handover that ``encode`` has written.

        Args:
            value: of HANDOVER_VARIABLE.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: something else has written it.
        """
        fields = json.loads(value)
        owned, routes = fields["owned"], fields["routes"]
        return cls(
            int(fields["descriptor"]),
            float(fields["beat_timeout"]),
            float(fields["shutdown_timeout"]),
            Owned(**owned) if owned is not None else None,
            int(fields["restarts"]),
            {str(kind): int(number) for kind, number in fields["retiring"].items()},
            InheritedRoutes(**routes) if routes is not None else None,
            tuple(InheritedSocket(**listener) for listener in fields["listeners"]),
        )

    def merge(self, config: Config) -> Config:
        """Return ``config`` with the values that the runner owns; unchanged without a runner."""
        owned = self.owned
        if owned is None:
            return config
        shared = dataclasses.replace(config.globals, rundir=owned.rundir, ipc_prefix=owned.ipc_prefix)
        proxy = dataclasses.replace(config.proxy, workers=owned.workers)
        return dataclasses.replace(config, globals=shared, proxy=proxy)


ALONE: Final = Handover()
"""Handover of a process without a runner."""
