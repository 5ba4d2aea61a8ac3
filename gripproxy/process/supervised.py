"""Process under supervision of the runner: beats, messages and signals of a child.

The runner and each child share a Unix stream socket pair, made before the child starts. The child writes one byte per
second into it (its beat); the end of the connection is the death notice of either side. The runner sends messages
(``gripproxy.process.runner_messages``) through it.

A process may also run by itself, under systemd or another supervisor. It has no socket pair then, and sends its
readiness and its beats to systemd instead (``NOTIFY_SOCKET``).
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gripproxy.process.handover import ALONE, HANDOVER_VARIABLE, Handover
from gripproxy.process.log import access, log
from gripproxy.process.runner_messages import Logged, Retire, RunnerMessage, UseRoutes, decode_message
from gripproxy.process.systemd import notify_supervisor

if TYPE_CHECKING:
    import asyncio

__all__ = ["BEAT", "BEAT_INTERVAL", "PREPARED", "READY", "REFUSED", "RUNNER_SIGNALS", "Child"]

BEAT_INTERVAL: Final = 1.0
"""Seconds between two beats (a quarter of the beat timeout, if that is shorter)."""


BEAT: Final = b"."
READY: Final = b"+"
PREPARED: Final = b"="
REFUSED: Final = b"!"
"""Bytes that a child sends: READY once when it serves, BEAT each second, and for each PrepareRoutes either PREPARED, or
REFUSED if it had no descriptor left to receive the routes with."""

_DESCRIPTORS: Final = 16
"""Descriptors received with one read from the runner; it sends one with each PrepareRoutes."""

RUNNER_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2})
"""Signals that the runner blocks while it starts a child, so that an early one waits until the child handles it. SIGHUP
would otherwise kill a process that is still importing. Child.start unblocks them."""


HANG_FACTOR: Final = 2
"""A child whose event loop hangs for this many beat timeouts ends by itself: the runner may not be there to kill it."""


EXIT_GRACE: Final = 5.0
"""Seconds beyond shutdown_timeout after which the kernel ends a child that has to stop."""


class Child:
    """This process as a child of the runner, or on its own.

    Call ``start`` when the event loop runs, and ``close`` at the end (optional: the kernel closes everything too).

    Args:
        handover: from the runner; the default is a process without one.

    Raises:
        ValueError: the handover's descriptor is no socket.
    """

    def __init__(self, handover: Handover = ALONE) -> None:
        self.stop_reason: str | None = None
        """Why the process has to stop, once it has to: a signal's name or the runner's death."""
        self.handover = handover
        self._sock = _tie(handover.descriptor) if handover.descriptor >= 0 else None
        self._beat_timeout = handover.beat_timeout
        self._shutdown_timeout = handover.shutdown_timeout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_stop: Callable[[], None] | None = None
        self._on_hangup: Callable[[], None] | None = None
        self._on_retire: Callable[[float, float], None] | None = None
        self._on_routes: Callable[[int, int], None] | None = None
        self._on_use: Callable[[int], None] | None = None
        self._on_logged: Callable[[Logged], None] | None = None
        self._received = b""
        """The beginning of a message; the runner writes short lines only."""
        self._descriptors: list[int] = []
        """Descriptors that arrived with messages which are not complete."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def supervised(self) -> bool:
        """True if the runner started this process."""
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
        on_logged: Callable[[Logged], None] | None = None,
    ) -> None:
        """Send beats from now on, and handle signals and messages of the runner.

        Args:
            loop: of the process, running.
            on_stop: called once: for SIGTERM, for SIGINT (only without a runner: Ctrl-C reaches the whole group, and
                the runner stops its children in order), or when the runner has died. The process then has
                ``shutdown_timeout`` seconds to end gracefully.
            on_hangup: called for each SIGHUP, after the log was reopened.
            ready: False: the process does not serve yet; call ``ready`` when it does.
            on_retire: called with hold time and spread in seconds when a successor serves. The process takes no new
                clients, keeps those it holds for the hold time, closes them within the spread, and ends.
            on_routes: called with generation and descriptor of new routes. It owns the descriptor, and calls
                ``prepared`` when it could use them.
            on_use: called with the generation of the routes to be used from now on.
            on_logged: called with each warning and error of the runner.
        """
        self._loop, self._on_stop, self._on_hangup, self._on_retire = loop, on_stop, on_hangup, on_retire
        self._on_routes, self._on_use, self._on_logged = on_routes, on_use, on_logged
        loop.add_signal_handler(signal.SIGTERM, self._stop, "SIGTERM")
        loop.add_signal_handler(signal.SIGHUP, self._hangup)
        # It is for the runner; one that was sent to the whole group must not end this process.
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
        """Report that the process serves now. A process that ends before has failed to start."""
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
            # SIGALRM has its default action, the end of the process: a loop that hangs after the runner has died would
            # otherwise stay, without a supervisor to end it.
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
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._obey(decode_message(line))

    def catch_up(self) -> None:
        """Take the messages that the runner has sent since it started this process."""
        if self._sock is not None:
            self._readable()

    def _obey(self, message: RunnerMessage) -> None:
        if isinstance(message, Retire):
            if self._on_retire is not None and self.stop_reason is None:
                self._on_retire(message.hold_time, message.spread)
        elif isinstance(message, UseRoutes):
            if self._on_use is not None:
                self._on_use(message.generation)
        elif isinstance(message, Logged):
            if self._on_logged is not None:
                self._on_logged(message)
        elif not self._descriptors:
            log.error("new routes refused", "no file descriptor is left for them: raise LimitNOFILE= or ulimit -n")
            self._send(REFUSED)
        elif self._on_routes is None or self.stop_reason is not None:
            os.close(self._descriptors.pop(0))
            self.prepared()
        else:
            self._on_routes(message.generation, self._descriptors.pop(0))

    def prepared(self) -> None:
        """Answer PrepareRoutes: the routes can be used now, or later ones replace them."""
        self._send(PREPARED)

    def _stop(self, reason: str) -> None:
        if self.stop_reason is not None:
            return
        self.stop_reason = reason
        log.info("stopping", reason=reason)
        if self._sock is None:
            notify_supervisor("STOPPING=1")
        else:
            signal.setitimer(signal.ITIMER_REAL, self._shutdown_timeout + EXIT_GRACE)
        if self._on_stop is not None:
            self._on_stop()

    def _hangup(self) -> None:
        log.reopen()
        access.reopen()
        log.info("SIGHUP received", "the log was opened again, files are loaded again")
        if self._on_hangup is not None:
            self._on_hangup()


def _tie(descriptor: int) -> socket.socket:
    """Return the inherited end of the socket pair to the runner."""
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError as error:
        raise ValueError(
            f"{HANDOVER_VARIABLE}: descriptor {descriptor}: {error}; only the gripproxy command sets it"
        ) from error
    sock.setblocking(False)
    sock.set_inheritable(False)
    return sock
