"""What a worker or handler process has in common with the others: its tie to the runner, signals, limits.

The runner and each child share a Unix stream socket pair, made before the child starts. The child writes one byte per
second into it (its beat); that its other end is gone tells either of them that the other has died, however it died. The
runner writes one line into it: that a worker is to retire.
A process may also run by itself, under systemd or another supervisor: then there is no such socket, and the rest works
the same (with systemd's ``NOTIFY_SOCKET`` it tells systemd instead).
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gripproxy.log import log

if TYPE_CHECKING:
    import asyncio

    from gripproxy.config import Config

__all__ = [
    "BEAT",
    "BEAT_INTERVAL",
    "CHILD_VARIABLE",
    "FILE_LIMIT_MAX",
    "OWNED_VARIABLE",
    "PREPARED",
    "READY",
    "REFUSED",
    "RESTARTS_VARIABLE",
    "RETIRING_VARIABLE",
    "ROUTES_VARIABLE",
    "RUNNER_SIGNALS",
    "Child",
    "Watchdog",
    "as_the_runner",
    "child_variable",
    "inherited_routes",
    "notify_supervisor",
    "owned_variable",
    "raise_file_limit",
    "restarts",
    "retire_order",
    "retiring_workers",
    "routes_order",
    "use_order",
]

CHILD_VARIABLE: Final = "GRIPPROXY_CHILD"
"""Environment variable from the runner to a child: ``descriptor,beat_timeout,shutdown_timeout`` (seconds)."""

OWNED_VARIABLE: Final = "GRIPPROXY_OWNED"
"""Environment variable from the runner to a child: what the runner decided at its start and cannot change, as JSON. The
config file may say something else by now."""

RESTARTS_VARIABLE: Final = "GRIPPROXY_RESTARTS"
"""Environment variable from the runner to a child: how often it was started before, for the statistics."""

RETIRING_VARIABLE: Final = "GRIPPROXY_RETIRING"
"""Environment variable from the runner to the handler: how many workers are there besides those of the configuration,
because they retire and still hold clients."""

ROUTES_VARIABLE: Final = "GRIPPROXY_ROUTES"
"""Environment variable from the runner to a worker: ``descriptor,generation`` of the routes it starts with. That is
a file in memory: a worker reads no routes file, which could stall it, and all workers have the same routes."""

BEAT_INTERVAL: Final = 1.0
"""Seconds between two beats (a quarter of the beat timeout, if that is shorter)."""

BEAT: Final = b"."
READY: Final = b"+"
PREPARED: Final = b"="
REFUSED: Final = b"!"
"""What a child writes: READY once when it serves, BEAT each second, and for each ``routes_order`` either PREPARED, or
REFUSED if it had no descriptor left to get the routes with."""

_DESCRIPTORS: Final = 16
"""Descriptors taken in with one read from the runner; it sends one with each order of routes."""

RUNNER_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2})
"""Blocked by the runner while it starts a child, so that one that comes early waits until the child can obey it
(SIGHUP would otherwise kill a process that is still importing). Child.start unblocks them."""

HANG_FACTOR: Final = 2
"""A child whose event loop hangs for this many beat timeouts ends by itself: the runner may not be there to kill it."""

EXIT_GRACE: Final = 5.0
"""Seconds beyond shutdown_timeout after which a child that was told to stop is ended by the kernel."""

FILE_LIMIT_MAX: Final = 1_048_576
"""Descriptors asked for when the hard limit is unlimited: the kernel's own default ceiling (fs.nr_open)."""


def child_variable(descriptor: int, beat_timeout: float, shutdown_timeout: float) -> str:
    """Return the value of CHILD_VARIABLE for a child that inherits ``descriptor`` (times in seconds)."""
    return f"{descriptor},{beat_timeout:g},{shutdown_timeout:g}"


def owned_variable(config: Config) -> str:
    """Return the value of OWNED_VARIABLE: where the processes meet, and how many workers share the limits."""
    shared = config.globals
    return json.dumps({"rundir": shared.rundir, "ipc_prefix": shared.ipc_prefix, "workers": config.proxy.workers})


def as_the_runner(config: Config) -> Config:
    """Return ``config`` with what this process's runner owns in place of what the file says now.

    Without a runner it stays as it is. The variable is taken out of the environment.
    Raises ValueError if it cannot be right (it is the runner's, not for people to set).
    """
    value = os.environ.pop(OWNED_VARIABLE, None)
    if value is None:
        return config
    try:
        owned = json.loads(value)
        shared = dataclasses.replace(config.globals, rundir=owned["rundir"], ipc_prefix=owned["ipc_prefix"])
        proxy = dataclasses.replace(config.proxy, workers=owned["workers"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{OWNED_VARIABLE}={value}: {error}; only the gripproxy command sets it") from error
    return dataclasses.replace(config, globals=shared, proxy=proxy)


def retire_order(hold_time: float, spread: float) -> bytes:
    """Return what the runner writes to a worker that is to retire; see Child.start for the times, in seconds."""
    return f"{hold_time!r} {spread!r}\n".encode()


def routes_order(generation: int) -> bytes:
    """Return what the runner writes to a worker, with the descriptor of new routes, for it to prepare them."""
    return b"routes %d\n" % generation


def use_order(generation: int) -> bytes:
    """Return what the runner writes when all workers have prepared the routes: that they count from now on."""
    return b"use %d\n" % generation


def inherited_routes() -> tuple[int, int] | None:
    """Return descriptor and generation of the routes that the runner gave this process, None without a runner.

    The variable is taken out of the environment.

    Raises:
        ValueError: it cannot be right (it is the runner's, not for people to set).
    """
    value = os.environ.pop(ROUTES_VARIABLE, None)
    if value is None:
        return None
    try:
        descriptor, generation = map(int, value.split(","))
        os.fstat(descriptor)
    except (ValueError, OSError) as error:
        raise ValueError(f"{ROUTES_VARIABLE}={value}: {error}; only the gripproxy command sets it") from error
    return descriptor, generation


def restarts() -> int:
    """Return how often the runner had started this process before; 0 without a runner."""
    return _count(RESTARTS_VARIABLE)


def retiring_workers() -> int:
    """Return how many retiring workers there were when the runner started this process; 0 without a runner."""
    return _count(RETIRING_VARIABLE)


def _count(variable: str) -> int:
    value = os.environ.get(variable, "")
    return int(value) if value.isascii() and value.isdigit() else 0


def notify_supervisor(state: str) -> None:
    """Send ``state`` (as ``READY=1``) to systemd if it started this process with NOTIFY_SOCKET (sd_notify(3)).

    Nothing happens otherwise; a systemd that does not take it is only logged, the service goes on.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address[0] == "@":  # abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.sendto(state.encode(), address)
    except OSError as error:
        log.debug("cannot tell the supervisor %s: %s", state, error)


class Watchdog:
    """systemd's watchdog over this process (sd_watchdog_enabled(3)), if it set one.

    ``interval`` in seconds between two signs of life, None without a watchdog. ``dues`` is when the next one is due, on
    the clock of ``feed``, as a list of one time or none.
    """

    def __init__(self, interval: float | None) -> None:
        self.interval = interval
        self.dues: list[float] = []

    @classmethod
    def of_systemd(cls) -> Watchdog:
        """Return the watchdog that WATCHDOG_USEC and WATCHDOG_PID ask for; half of its time is the interval."""
        microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
        wanted = microseconds.isdigit() and int(microseconds) > 0 and pid in ("", str(os.getpid()))
        return cls(int(microseconds) / 2e6 if wanted else None)

    def feed(self, now: float) -> None:
        """Give a sign of life if it is due at ``now``."""
        if self.interval is not None and (not self.dues or now >= self.dues[0]):
            self.dues = [now + self.interval]
            notify_supervisor("WATCHDOG=1")


def raise_file_limit() -> int:
    """Raise this process's limit of open files to its hard limit and return the limit it has now.

    Children inherit it. Source: setrlimit(2); a held client costs one descriptor.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILE_LIMIT_MAX if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return FILE_LIMIT_MAX if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        log.warning("cannot raise the limit of open files from %d to %d: %s", soft, wanted, error)
        return soft
    return wanted


class Child:
    """This process as a child of the runner, or on its own.

    Make it with ``from_env``, call ``start`` when the event loop runs, ``close`` at the end (optional: the end of the
    process does the same).
    """

    def __init__(
        self, sock: socket.socket | None = None, beat_timeout: float = 10.0, shutdown_timeout: float = 5.0
    ) -> None:
        self.stop_reason: str | None = None
        """Why the process has to stop, once it has to: a signal's name or the runner's death."""
        self._sock = sock
        self._beat_timeout = beat_timeout
        self._shutdown_timeout = shutdown_timeout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_stop: Callable[[], None] | None = None
        self._on_hangup: Callable[[], None] | None = None
        self._on_retire: Callable[[float, float], None] | None = None
        self._on_routes: Callable[[int, int], None] | None = None
        self._on_use: Callable[[int], None] | None = None
        self._received = b""
        """The beginning of an order; the runner writes short lines only."""
        self._descriptors: list[int] = []
        """Descriptors that came with orders which are not complete."""
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def from_env(cls) -> Child:
        """Return the Child described by the environment; the variable is taken out of it.

        Raises ValueError if CHILD_VARIABLE is set but cannot be right (it is the runner's, not for people to set).
        """
        value = os.environ.pop(CHILD_VARIABLE, None)
        if value is None:
            return cls()
        try:
            descriptor, beat_timeout, shutdown_timeout = value.split(",")
            sock = socket.socket(fileno=int(descriptor))
            times = float(beat_timeout), float(shutdown_timeout)
        except (ValueError, OSError) as error:
            raise ValueError(f"{CHILD_VARIABLE}={value}: {error}; only the gripproxy command sets it") from error
        sock.setblocking(False)
        sock.set_inheritable(False)
        return cls(sock, *times)

    @property
    def supervised(self) -> bool:
        """Whether the runner started this process."""
        return self._sock is not None

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        on_stop: Callable[[], None],
        on_hangup: Callable[[], None],
        *,
        ready: bool = True,
        on_retire: Callable[[float, float], None] | None = None,
        on_routes: Callable[[int, int], None] | None = None,
        on_use: Callable[[int], None] | None = None,
    ) -> None:
        """Beat from now on, and listen for what the process has to do.

        ``on_stop()`` is called once, for SIGTERM, for SIGINT (only without a runner: Ctrl-C reaches the whole group,
        and the runner stops its children in order), or when the runner has died; the process then has
        ``shutdown_timeout`` to end gracefully. ``on_hangup()`` is called for each SIGHUP, after the log was reopened.
        ``ready=False``: the process does not serve yet; call ``ready`` when it does.
        ``on_retire(hold_time, spread)``: a successor serves. The process takes no new clients, keeps those it holds for
        ``hold_time`` seconds, lets them go within ``spread`` seconds more, and ends.
        ``on_routes(generation, descriptor)``: there are new routes; it owns the descriptor and calls ``prepared`` when
        it could use them. ``on_use(generation)``: they count from now on.
        """
        self._loop, self._on_stop, self._on_hangup, self._on_retire = loop, on_stop, on_hangup, on_retire
        self._on_routes, self._on_use = on_routes, on_use
        loop.add_signal_handler(signal.SIGTERM, self._stop, "SIGTERM")
        loop.add_signal_handler(signal.SIGHUP, self._hangup)
        # The runner's own; one that was sent to the whole group must not end anybody.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        if self._sock is None:
            loop.add_signal_handler(signal.SIGINT, self._stop, "SIGINT")
        else:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            loop.add_reader(self._sock.fileno(), self._readable)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, RUNNER_SIGNALS)
        if ready:
            self.ready()
        self._beat()

    def ready(self) -> None:
        """Say that the process serves now: a process that ends before counts as a failed start."""
        if self._sock is None:
            notify_supervisor("READY=1")
        self._send(READY)

    def close(self) -> None:
        """Undo ``start``: no beats and no signal handlers any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = self._loop
        if loop is not None and not loop.is_closed():
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                loop.remove_signal_handler(number)
            if self._sock is not None:
                loop.remove_reader(self._sock.fileno())
        if self._sock is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._sock.close()
            self._sock = None
        self._loop = None

    def _beat(self) -> None:
        loop = self._loop
        if loop is None:
            return
        self._timer = loop.call_later(min(BEAT_INTERVAL, self._beat_timeout / 4), self._beat)
        if self._sock is None:
            notify_supervisor("WATCHDOG=1")
            return
        if self.stop_reason is None:
            # SIGALRM has its default action, the end of the process: a loop that hangs after the runner has died
            # would otherwise stay for ever, as nobody else could end it.
            signal.setitimer(signal.ITIMER_REAL, HANG_FACTOR * self._beat_timeout)
        self._send(BEAT)

    def _send(self, data: bytes) -> None:
        if self._sock is None:
            return
        try:
            self._sock.send(data)
        except BlockingIOError:
            pass  # the runner is stopped; it reads the beats it has when it goes on, and none of them is news then
        except OSError:
            self._stop("the runner is gone")

    def _readable(self) -> None:
        assert self._sock is not None
        try:
            data, descriptors, _, _ = socket.recv_fds(self._sock, 4096, _DESCRIPTORS)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            if self._loop is not None:
                self._loop.remove_reader(self._sock.fileno())
            self._stop("the runner is gone")
            return
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self._descriptors += descriptors
        *orders, self._received = (self._received + data).split(b"\n")
        for order in orders:
            self._obey(order)

    def catch_up(self) -> None:
        """Obey now what the runner has written since it started this process."""
        if self._sock is not None:
            self._readable()

    def _obey(self, order: bytes) -> None:
        word, *values = order.split()
        if word == b"routes":
            if not self._descriptors:
                log.error("new routes were refused: no file descriptor is left for them")
                self._send(REFUSED)
            elif self._on_routes is None or self.stop_reason is not None:
                os.close(self._descriptors.pop(0))
                self.prepared()
            else:
                self._on_routes(int(values[0]), self._descriptors.pop(0))
        elif word == b"use":
            if self._on_use is not None:
                self._on_use(int(values[0]))
        elif self._on_retire is not None and self.stop_reason is None:
            self._on_retire(float(word), float(values[0]))

    def prepared(self) -> None:
        """Answer an order of routes: they can be used at once, or others that came later replace them."""
        self._send(PREPARED)

    def _stop(self, reason: str) -> None:
        if self.stop_reason is not None:
            return
        self.stop_reason = reason
        log.info("stopping: %s", reason)
        if self._sock is None:
            notify_supervisor("STOPPING=1")
        else:
            signal.setitimer(signal.ITIMER_REAL, self._shutdown_timeout + EXIT_GRACE)
        if self._on_stop is not None:
            self._on_stop()

    def _hangup(self) -> None:
        log.reopen()
        log.info("SIGHUP: log reopened, loading again what can be loaded again")
        if self._on_hangup is not None:
            self._on_hangup()
