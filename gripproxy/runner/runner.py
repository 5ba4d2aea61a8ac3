"""The runner: the loop that starts the child processes, supervises, replaces and stops them.

No asyncio: the runner waits for signals, admin requests and the beats of its children, and has nothing else to do, so
that it is the last process that fails.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Sequence
from functools import partial
from typing import Final

from gripproxy.config import Config
from gripproxy.config.exposure import exposures, shipped_keys
from gripproxy.config.reload import adopt, needs_restart
from gripproxy.process.listening_sockets import ListeningSocket, close_all, remove_paths
from gripproxy.process.log import log
from gripproxy.process.runner_messages import Logged, Retire
from gripproxy.process.supervised import READY
from gripproxy.process.systemd import Watchdog, notify_supervisor
from gripproxy.routing.routes_file import RoutesFile
from gripproxy.routing.routes_watch import Reading
from gripproxy.runner.admin_socket import CLASH, AdminRequest, AdminSocket, admin_socket_path, report_clash
from gripproxy.runner.child_process import ChildProcess, how_ended, make_processes
from gripproxy.runner.lifecycle import CONFIG_STATUS, Action, Lifecycle, State, Verdict
from gripproxy.runner.reload_requests import ReloadRequests, read_again
from gripproxy.runner.rolling_restart import RollingRestart
from gripproxy.runner.route_distribution import RouteDistribution
from gripproxy.runner.service import Replacement, Service
from gripproxy.runner.shutdown import Shutdown
from gripproxy.runner.signals import SignalPipe

__all__ = ["Runner", "open_log"]

STOP_MARGIN: Final = 1.0
"""Seconds beyond shutdown_timeout, in which children end their sessions, after which the runner kills them."""

RETIRE_MARGIN: Final = 15.0
"""Seconds beyond hold time, spread and shutdown_timeout after which the runner kills a worker that retires: it may also
wait for TLS handshakes that began before."""

SECOND_SIGNAL: Final = 1.0
"""Seconds after the first SIGINT or SIGTERM from which on a second one means "now". Earlier it repeats the first: a
terminal and a supervisor often both send one."""

RETIRING_MAX: Final = 2
"""Processes of one worker's number that may retire at one time. When one more does, the oldest closes its clients
immediately: reloads in quick succession must not fill the memory."""


def open_log(config: Config) -> None:
    """Open the log of the runner.

    Args:
        config: describes the log.

    Raises:
        OSError: its file cannot be opened.
    """
    log.configure(config.log_level("runner"), config.log_file, config.runner.log_format == "json", process="runner")


class Runner:
    """Runs the service until a signal stops it, or a process cannot be kept running.

    Args:
        config: of the service.
        listeners: listening sockets, open, one list per process of the service that listens.
        services: all there are, in the order of their start.
        routes: those the service starts with; None if no process uses routes.
    """

    def __init__(
        self,
        config: Config,
        listeners: list[list[ListeningSocket]],
        services: Sequence[Service],
        routes: Reading | None = None,
    ) -> None:
        self.config = config
        self.services = services
        self.processes = make_processes(services, listeners, config.runner.process_beat_timeout, time.monotonic())
        self.failure = 0
        """Exit status: not 0 once the service had to be given up."""
        self.announced = False
        """True once all processes served at one time."""
        self._listeners = listeners
        self._shutdown: Shutdown[ChildProcess] | None = None
        self._watchdog = Watchdog.of_systemd()
        self._selector = selectors.DefaultSelector()
        handlers: dict[int, Callable[[], None]] = {
            signal.SIGTERM: partial(self.stop, "SIGTERM"),
            signal.SIGINT: partial(self.stop, "SIGINT"),
            signal.SIGHUP: self.hangup,
            signal.SIGUSR2: self.request_reload,
        }
        self._signals = SignalPipe(self._selector, handlers)
        self._admin = AdminSocket(self._selector, self._take_request)
        exclusive = [each.kind for each in services if each.replacement is Replacement.EXCLUSIVE]
        self._reloads = ReloadRequests(self, self._admin, exclusive, self._signals.wake)
        self._routes = (
            RouteDistribution(RoutesFile.of(config), routes, self._signals.wake) if routes is not None else None
        )

    def run(self) -> int:
        """Return the exit status at the end of the service: 0 after a signal to stop."""
        self._signals.open()
        try:
            path = admin_socket_path(self.config)
            try:
                self._admin.open(path)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return self._refuse_second(path)
                log.warning(
                    "administration socket not opened",
                    "gripproxy reload cannot reach this process",
                    path=path,
                    reason=error.strerror,
                )
            while not self.turn():
                pass
            return self.failure
        finally:
            self._kill_all()
            if self._routes is not None:
                self._routes.close()
            self._admin.close()
            self._close_listeners()
            # One more request to stop has been obeyed already: the default action would only change the exit status.
            self._signals.close(() if self._shutdown is None else (signal.SIGTERM, signal.SIGINT))
            self._selector.close()

    def _refuse_second(self, path: str) -> int:
        """Return the exit status for a service whose runtime files are those of another one that runs."""
        report_clash(path)
        way_out = "set another rundir or ipc_prefix in [global], or start this one with --id N"
        log.error("another gripproxy has these runtime files", way_out, path=path)
        if self.config.log_file is not None:
            print(f"gripproxy: another gripproxy has these runtime files: {path}; {way_out}", file=sys.stderr)
        return CONFIG_STATUS

    def turn(self) -> bool:
        """Return whether everything has ended, after all steps that are due and the next event."""
        now = time.monotonic()
        self._watchdog.feed(now)
        for process in self.processes:
            self._act(process, now)
        if self._shutdown is not None:
            self._advance_shutdown(self._shutdown)
            if self._shutdown.over:
                return True
        else:
            if self._routes is not None:
                self._routes.turn(self.processes, now)
            # Retired processes, and successors that were given up, are gone.
            self.processes = [process for process in self.processes if process.lifecycle.state is not State.ENDED]
            self._reloads.turn(time.monotonic(), self.announced)
        self._report_log()
        dues = self._dues()
        timeout = max(0.0, min(dues) - time.monotonic()) if dues else None
        for key, _ in self._selector.select(timeout):
            key.data()
        return False

    def _report_log(self) -> None:
        """Pass warnings and errors of this process on to the handler, for metrics and the live view."""
        for process in self.processes:
            if process.kind == "handler" and process.lifecycle.state is State.SERVING:
                for report in log.reports.take():
                    process.send(Logged(*report))
                return

    def _dues(self) -> list[float]:
        """Return the times at which the loop has to turn, monotonic clock in seconds."""
        dues = [
            each.lifecycle.due for each in self.processes if each.lifecycle.due is not None and not self._waits(each)
        ]
        dues += self._watchdog.dues
        if self._shutdown is None:
            dues += self._reloads.dues
            if self._routes is not None:
                dues += self._routes.dues
        return dues

    # Children

    def _act(self, process: ChildProcess, now: float) -> None:
        """Take the step that is due for ``process``."""
        self._reap(process)
        if process.lifecycle.overdue(now):
            # Perhaps the runner itself was stopped (SIGSTOP): the beats are in the socket then.
            self._hear(process)
        if self._waits(process):
            return
        action = process.lifecycle.act(now)
        if action is Action.START:
            self._start(process)
        elif action is Action.KILL:
            log.error("process killed", name=process.identity, reason=process.lifecycle.reason)
            process.signal(signal.SIGKILL)

    def _waits(self, process: ChildProcess) -> bool:
        """Return whether a service that is ready before this one does not serve yet. Restarts do not wait."""
        return not self.announced and any(
            process.kind in each.service.ready_before and each.lifecycle.state is not State.SERVING
            for each in self.processes
        )

    def _start(self, process: ChildProcess) -> None:
        process.lifecycle.started(time.monotonic())
        retiring = Counter(
            each.kind for each in self.processes if each.alive and each.lifecycle.state is State.RETIRING
        )
        routes = self._routes.inherited if self._routes is not None and process.service.routes else None
        try:
            process.start(self.config, retiring, routes)
        except OSError as error:
            log.error("process not started", name=process.name, reason=error)
            self._judge(process, 1, None)
            return
        assert process.sock is not None
        self._selector.register(process.sock, selectors.EVENT_READ, partial(self._hear, process))
        log.info("process started", name=process.name, pid=process.pid)

    def _hear(self, process: ChildProcess) -> None:
        """Read the messages of ``process``."""
        data = process.read()
        if data:
            process.lifecycle.heard(time.monotonic(), READY in data)
            if self._routes is not None:
                self._routes.heard(process, data)
            self._announce()
        elif data is not None:
            self._disconnect(process)

    def _announce(self) -> None:
        if self.announced or any(process.lifecycle.state is not State.SERVING for process in self.processes):
            return
        self.announced = True
        log.info("ready")
        notify_supervisor("READY=1")

    def _disconnect(self, process: ChildProcess) -> None:
        if process.sock is not None:
            self._selector.unregister(process.sock)
            process.close()

    def _reap(self, process: ChildProcess) -> None:
        pid = process.pid
        status = process.wait()
        if status is None:
            return
        # READY may be unread, and decides whether the start has failed.
        data = process.read()
        if data:
            process.lifecycle.heard(time.monotonic(), READY in data)
        self._disconnect(process)
        self._judge(process, status, pid)

    def _judge(self, process: ChildProcess, status: int, pid: int | None) -> None:
        """React to the end of a process; ``pid``: that it had, None if it could not be started."""
        lifecycle, now = process.lifecycle, time.monotonic()
        how = how_ended(status) if pid is not None else {}
        if self._shutdown is not None and status == 0:
            # A signal to the whole process group, as from timeout(1), ends it before its turn.
            lifecycle.stop(now, 0.0)
        verdict = lifecycle.ended(now, status)
        if verdict is Verdict.EXPECTED:
            (log.info if status == 0 else log.warning)("process ended", name=process.name, pid=pid, **how)
        elif verdict is Verdict.ABANDON:
            log.error("process ended", name=process.name, pid=pid, **how, reason=lifecycle.reason)
        elif verdict is Verdict.RESTART:
            log.error(
                "process ended", "it is started again", name=process.name, pid=pid, **how, in_seconds=lifecycle.delay
            )
        else:
            log.error("giving up", "see the lines above", name=process.name, pid=pid, **how, reason=lifecycle.reason)
            if self.config.log_file is not None:
                print(f"gripproxy: {process.name}: {lifecycle.reason}; see {self.config.log_file}", file=sys.stderr)
            self.failure = CONFIG_STATUS if status == CONFIG_STATUS else 1
            self.stop()

    # The end

    def stop(self, reason: str = "") -> None:
        """Stop all processes gracefully; a second signal after SECOND_SIGNAL kills them.

        Args:
            reason: name of a signal; empty: the service is given up.
        """
        now = time.monotonic()
        if self._shutdown is not None:
            if reason and now - self._shutdown.began >= SECOND_SIGNAL:
                log.warning("stopping at once", "processes that are left are killed", reason=reason)
                for process in self.processes:
                    process.lifecycle.stop(now, 0.0)
            return
        if reason:
            log.info("stopping", reason=reason, within_seconds=self.config.runner.shutdown_timeout)
        notify_supervisor("STOPPING=1")
        self._shutdown = Shutdown(now)
        self._reloads.abort("the service is being stopped")
        self._admin.close()
        # Clients must not queue on sockets that only the runner holds from here on: they would wait and then be reset.
        self._close_listeners()
        self._advance_shutdown(self._shutdown)

    def _advance_shutdown(self, shutdown: Shutdown[ChildProcess]) -> None:
        while processes := shutdown.advance(self.processes):
            for process in processes:
                self.end(process)

    def _close_listeners(self) -> None:
        remove_paths(self._listeners)
        close_all(self._listeners)

    def _kill_all(self) -> None:
        for process in self.processes:
            process.signal(signal.SIGKILL)
        for process in self.processes:
            if process.popen is not None:
                process.popen.wait()
            self._disconnect(process)

    # Signals and admin requests

    def hangup(self) -> None:
        """Handle SIGHUP: open the log again, pass the signal on, and read the routes again."""
        log.reopen()
        if self._shutdown is not None:
            return
        log.info("SIGHUP received", "it is passed on to all processes")
        for process in self.processes:
            process.signal(signal.SIGHUP)
        if self._routes is not None:
            self._routes.read()

    def _take_request(self, request: AdminRequest) -> None:
        """Take a request of the admin socket: to reload, or the report of a second gripproxy that it was refused."""
        word, *rest = request.words
        if word == CLASH and len(rest) == 1 and rest[0].isdecimal():
            log.warning(
                "second gripproxy refused",
                "it has the same rundir and ipc_prefix as this one",
                pid=int(rest[0]),
                rundir=self.config.globals.rundir,
            )
            self._admin.finish(request)
        else:
            self.request_reload(request)

    def request_reload(self, request: AdminRequest | None = None) -> None:
        """Reload as soon as possible: for a request of the admin socket, or for SIGUSR2 (None)."""
        if self._shutdown is None:
            self._reloads.add(request, self.announced)

    # gripproxy.runner.reload_requests.Reloader

    def read_again(self) -> tuple[Config, Reading]:
        """Return configuration and routes as the files contain them now. Called in a thread.

        Raises:
            ConfigError: a file cannot be used.
            ListenError: a certificate cannot be used.
        """
        return read_again(self.config, self._listeners[0] if self._listeners else ())

    def fault(self, reading: Reading) -> str:
        """Return the reason why ``reading`` cannot replace the routes in force, empty if it can."""
        return self._routes.fault(reading) if self._routes is not None else ""

    def begin_reload(
        self, fresh: Config, reading: Reading, kinds: Collection[str]
    ) -> tuple[RollingRestart[ChildProcess], list[str]]:
        """Use a new configuration from now on.

        Args:
            fresh: the configuration.
            reading: its routes.
            kinds: exclusive services to be replaced too.

        Returns:
            The rolling restart, and warnings for the operator.
        """
        warnings = [*fresh.warnings, *exposures(fresh), *shipped_keys(fresh)]
        changed = needs_restart(self.config, fresh)
        if changed:
            warnings.append(f"{', '.join(changed)} changed: that needs a full restart, until then the old values count")
        for warning in warnings:
            log.warning("reload", step=warning)
        self.config = adopt(self.config, fresh)
        if self._routes is not None:
            self._routes.change(RoutesFile.of(self.config), reading, time.monotonic())
        with contextlib.suppress(OSError):  # the log file cannot be opened again: the old one stays
            open_log(self.config)
        processes = self._replaced_by_reload(kinds)
        log.info("reload begun", processes=self._describe(processes))
        return RollingRestart(self, processes), warnings

    def _replaced_by_reload(self, kinds: Container[str]) -> list[ChildProcess]:
        """Return the processes that a reload replaces, in its order: exclusive services of ``kinds`` come last."""
        serving = [each for each in self.processes if each.lifecycle.state not in (State.RETIRING, State.STOPPING)]
        overlapping = [each for each in serving if each.service.replacement is Replacement.OVERLAPPING]
        exclusive = [each for each in serving if each.service.replacement is Replacement.EXCLUSIVE]
        return overlapping + [each for each in exclusive if each.kind in kinds]

    def _describe(self, processes: Sequence[ChildProcess]) -> str:
        """Return the processes of a reload for the log, as ``2 workers, then the handler``."""
        counts = Counter(each.kind for each in processes)
        overlapping = [each.kind for each in self.services if each.replacement is Replacement.OVERLAPPING]
        parts = [" and ".join(f"{counts[kind]} {kind}{'' if counts[kind] == 1 else 's'}" for kind in overlapping)]
        parts += [f"then the {kind}" for kind in counts if kind not in overlapping]
        return ", ".join(filter(None, parts))

    # gripproxy.runner.rolling_restart.Supervisor

    def succeed(self, old: ChildProcess) -> ChildProcess:
        """Return a successor of ``old``, which starts in the next turn."""
        exclusive = old.service.replacement is Replacement.EXCLUSIVE
        beat_timeout = self.config.runner.process_beat_timeout
        new = old.successor(Lifecycle(beat_timeout, time.monotonic(), trial=not exclusive, proven=exclusive))
        self.processes.append(new)
        return new

    def retire(self, old: ChildProcess) -> None:
        """Retire ``old``: its successor serves, so it drains its clients and ends."""
        settings = self.config.runner
        alike = [each for each in self.processes if each.number == old.number and each.kind == old.kind]
        retiring = [each for each in alike if each.lifecycle.state is State.RETIRING]
        for process in retiring[: max(0, len(retiring) + 1 - RETIRING_MAX)]:
            log.warning(
                "process retires without delay",
                "others of its number still retire",
                name=process.name,
                retiring=RETIRING_MAX,
            )
            self.end(process)
        hold_time, spread = settings.reload_hold_time, settings.reload_spread
        longest = hold_time + spread + old.shutdown_timeout + RETIRE_MARGIN
        if old.lifecycle.retire(time.monotonic(), longest):
            old.send(Retire(hold_time, spread))

    def end(self, old: ChildProcess) -> None:
        """End ``old`` gracefully; it is killed if that takes longer than the ``stop_time`` of its service."""
        stop_time = old.service.stop_time
        if stop_time is None:
            stop_time = old.shutdown_timeout + STOP_MARGIN
        if old.lifecycle.stop(time.monotonic(), stop_time):
            old.signal(signal.SIGTERM)

    def replaced(self, new: ChildProcess, old: ChildProcess) -> None:
        """Report that ``new`` serves in place of ``old``."""
        text = f"{new.name} serves, process {new.pid}"
        log.info("reload", step=text, retiring=old.pid if old.alive else None)
        self._reloads.progress(text)
