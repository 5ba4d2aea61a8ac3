"""A rolling restart: a new generation of processes takes over from the old one, worker by worker.

One after the other, and not all at once: a configuration with which workers cannot serve is noticed with the first of
them, when nothing else has changed yet; only one process more than there will be starts at any time, so the cores stay
with the clients; and no more memory is needed than for workers that hold clients. It costs about half a second each.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable
from typing import Final, Generic, Protocol, TypeVar

from gripproxy.config import Config, load_config
from gripproxy.life import Life, State
from gripproxy.routes_file import RoutesFile
from gripproxy.routes_watch import Reading

__all__ = ["OWNED", "Reload", "adopt", "load_again", "needs_restart"]

OWNED: Final = (
    ("global", "rundir"),
    ("global", "ipc_prefix"),
    ("runner", "services"),
    ("runner", "http_port"),
    ("runner", "https_ports"),
    ("runner", "local_ports"),
    ("proxy", "workers"),
)
"""Keys that the runner decides about at its start: sockets it has opened, and what it runs."""


def load_again(config: Config) -> tuple[Config, Reading]:
    """Return the configuration as the files and the same command line say now, and the routes.

    Raises:
        ConfigError: one of them cannot be used, with file and line.
    """
    fresh = load_config(config.path, **dataclasses.asdict(config.overrides))
    source = RoutesFile.of(fresh)
    data = source.read()
    return fresh, Reading(data, source.parse(data))


def needs_restart(config: Config, fresh: Config) -> list[str]:
    """Return the keys, as ``[section] key``, whose change from ``config`` to ``fresh`` only a full restart obeys."""
    return [
        f"[{section}] {key}" for section, key in OWNED if _value(config, section, key) != _value(fresh, section, key)
    ]


def adopt(config: Config, fresh: Config) -> Config:
    """Return ``fresh`` with the values of ``config`` for the keys that the runner owns."""
    for section in ("global", "runner", "proxy"):
        attribute = "globals" if section == "global" else section
        kept = {key: _value(config, section, key) for owner, key in OWNED if owner == section}
        changed = dataclasses.replace(getattr(fresh, attribute), **kept)
        fresh = dataclasses.replace(fresh, **{attribute: changed})
    return fresh


def _value(config: Config, section: str, key: str) -> object:
    return getattr(config.globals if section == "global" else getattr(config, section), key)


class Replaceable(Protocol):
    """A child process, as far as its replacement needs it."""

    @property
    def name(self) -> str: ...
    @property
    def life(self) -> Life: ...


P = TypeVar("P", bound=Replaceable)


class House(Protocol[P]):
    """What carries a reload out: the runner."""

    def succeed(self, old: P) -> P:
        """Have a successor of ``old`` started, and return it."""

    def retire(self, old: P) -> None:
        """Its successor serves: let ``old`` retire."""

    def end(self, old: P) -> None:
        """Let ``old`` end gracefully now; it has no successor yet."""

    def changed(self, new: P, old: P) -> None:
        """``new`` serves in place of ``old``."""


class Reload(Generic[P]):
    """One rolling restart, as decisions. Sans-I/O: call ``advance`` whenever a child's life has changed.

    Arguments: ``house``; ``workers`` that are to be replaced, in that order; then the ``handler``, None to leave it.
    """

    def __init__(self, house: House[P], workers: Iterable[P], handler: P | None = None) -> None:
        self.failure = ""
        """Why it was given up, once it was; ``advance`` returns true then."""
        self._house = house
        self._queue = deque(workers)
        self._handler = handler
        self._old: P | None = None
        self._new: P | None = None

    def advance(self) -> bool:
        """Go as far as possible now; return whether it is over."""
        while self._old is not None or self._next():
            if not self._step():
                return bool(self.failure)
        return True

    def _next(self) -> bool:
        """Begin with the next process; return whether there is one."""
        if self._queue:
            self._old = self._queue.popleft()
            self._new = self._house.succeed(self._old)
        elif self._handler is not None:
            # It owns ports that only one process can have, so the old one ends first.
            self._old = self._handler
            self._house.end(self._old)
        return self._old is not None

    def _step(self) -> bool:
        """Go on with the process at hand; return whether that is done."""
        old, new = self._old, self._new
        assert old is not None
        if new is None:
            if old.life.state is State.ENDED:
                self._new = self._house.succeed(old)
            return False
        if new.life.state is State.ENDED:
            goes_on = "" if old is self._handler else f"; the old {old.name} goes on"
            self.failure = f"{new.name} could not be started: {new.life.reason}{goes_on}"
            return False
        if new.life.state is not State.SERVING:
            return False
        if old is self._handler:
            self._handler = None
        else:
            self._house.retire(old)
        self._house.changed(new, old)
        self._old = self._new = None
        return True
