"""The runner: opens the listening sockets, starts worker and handler processes, watches them and restarts them.

gripproxy.children are the processes, gripproxy.life decides about each, gripproxy.reload about their replacement,
``Runner`` is the loop around them. No asyncio: the runner waits for signals, orders and the children's beats, and has
nothing else to do, so that it is the last process that fails.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from gripproxy import __version__
from gripproxy.background import Call
from gripproxy.children import Command, Process, default_command, describe_status, make_processes
from gripproxy.config import Config, ConfigError, config_argv
from gripproxy.distribution import READ_TIME, Distribution, read_first
from gripproxy.exposure import exposures, shipped_keys
from gripproxy.life import CONFIG_STATUS, Action, Life, State, Verdict
from gripproxy.listeners import Listener, ListenError, close_all, open_listeners, remove_paths
from gripproxy.log import log
from gripproxy.orders import Order, Orders, orders_path
from gripproxy.process import READY, Watchdog, notify_supervisor, raise_file_limit, retire_order
from gripproxy.reload import Reload, adopt, load_again, needs_restart
from gripproxy.routes_file import RoutesFile
from gripproxy.routes_watch import Reading

__all__ = ["Runner", "run"]

STOP_MARGIN: Final = 1.0
"""Children end their sessions within shutdown_timeout; the runner kills what is there this much later."""

RETIRE_MARGIN: Final = 15.0
"""The same for a worker that retires: it may also wait for TLS handshakes that began before."""

HANDLER_STOP: Final = 6.0
"""Seconds the handler has: it ends what publishers have begun and hands workers what it took in, each for a bounded
time (FINISH_TIME and PASS_TIME there); with nothing to do it needs milliseconds."""

SECOND_SIGNAL: Final = 1.0
"""A second SIGINT or SIGTERM this long after the first means "now". Earlier it is the same wish twice: a terminal and
a supervisor often both send one."""

SPARE_FILES: Final = 200
"""Descriptors a worker needs besides its clients (libraries, backends' idle connections, the pipe), an eighth of them
if that is less: at this point it pauses accepting."""

RETIRING_MAX: Final = 2
"""Processes of one worker's number that may retire at the same time. When one more does, the oldest lets its clients go
at once: reloads in quick succession must not fill the memory."""


class Runner:
    """Runs the service until it is told to stop or has to give up.

    Args:
        config: of the service.
        listeners: one list per worker, already open.
        processes: from make_processes.
        routes: that the service starts with; None if it has no workers.
    """

    def __init__(
        self, config: Config, listeners: list[list[Listener]], processes: list[Process], routes: Reading | None = None
    ) -> None:
        self.config = config
        self.listeners = listeners
        self.processes = processes
        self.failure = 0
        """Exit status, once the service had to be given up."""
        self.stopping_since: float | None = None
        self.announced = False
        self._reload: Reload[Process] | None = None
        self._reloading: list[Order] = []
        """Who waits for the reload that goes on."""
        self._wanted: list[Order | None] = []
        """Reloads that are asked for and have not begun; None is a signal. One serves them all."""
        self._reading: Call[tuple[Config, Reading]] | None = None
        """The configuration, while it is read for a reload. In a thread: its file system may stall."""
        self._reading_for: list[Order | None] = []
        """Who waits for that; nobody any more when it has taken READ_TIME."""
        self._watchdog = Watchdog.of_systemd()
        self._selector = selectors.DefaultSelector()
        self._orders = Orders(self._selector, self._take_order)
        self._signals_in, self._signals_out = socket.socketpair()
        self._routes = Distribution(RoutesFile.of(config), routes, self._wake) if routes is not None else None

    def run(self) -> int:
        """Run until the end. Returns the exit status: 0 if it was told to stop."""
        for sock in (self._signals_in, self._signals_out):
            sock.setblocking(False)
        handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGCHLD)
        # The number arrives through the wake-up descriptor; the handler only keeps the default action away.
        before = {number: signal.signal(number, lambda *_: None) for number in handled}
        wakeup = signal.set_wakeup_fd(self._signals_out.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._signals_in, selectors.EVENT_READ, self._take_signals)
        try:
            path = orders_path(self.config)
            try:
                self._orders.open(path)
            except OSError as error:
                log.warning("%s: %s; gripproxy reload cannot reach this process", path, error.strerror)
            while not self.turn():
                pass
            return self.failure
        finally:
            self._kill_all()
            if self._routes is not None:
                self._routes.close()
            self._orders.close()
            remove_paths(self.listeners)
            close_all(self.listeners)
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                # Who says it once more is obeyed already: the default action would only change the exit status.
                obeyed = number in (signal.SIGTERM, signal.SIGINT) and self.stopping_since is not None
                signal.signal(number, signal.SIG_IGN if obeyed else handler)
            self._selector.close()
            self._signals_in.close()
            self._signals_out.close()

    def turn(self) -> bool:
        """Do what is due, wait for the next thing to happen. Returns whether everything has ended."""
        now = time.monotonic()
        self._watchdog.feed(now)
        for process in self.processes:
            self._reap(process)
            if process.life.overdue(now):
                # Perhaps the runner itself was stopped: the signs of life then wait in the socket.
                self._hear(process)
            action = process.life.act(now)
            if action is Action.START:
                self._start(process)
            elif action is Action.KILL:
                self._kill(process)
        if self.stopping_since is not None:
            self._stop_handler_last()
            if all(process.life.state is State.ENDED for process in self.processes):
                return True
        else:
            if self._routes is not None:
                self._routes.turn(self.processes, now)
            self._go_on_reloading()
        dues = [process.life.due for process in self.processes if process.life.due is not None]
        dues += self._watchdog.dues
        if self._routes is not None and self.stopping_since is None:
            dues += self._routes.dues
        if self._reading_for and self._reading is not None:
            dues.append(self._reading.began + READ_TIME)
        timeout = max(0.0, min(dues) - time.monotonic()) if dues else None
        for key, _ in self._selector.select(timeout):
            key.data()
        return False

    # Children

    def _start(self, process: Process) -> None:
        process.life.started(time.monotonic())
        try:
            routes = self._routes.inherited if self._routes is not None and process.kind == "worker" else None
            process.start(self.config, self._retiring(), routes)
        except OSError as error:
            log.error("%s cannot be started: %s", process.name, error)
            self._judge(process, 1, f"{process.name} could not be started")
            return
        assert process.sock is not None
        assert process.popen is not None
        self._selector.register(process.sock, selectors.EVENT_READ, partial(self._hear, process))
        log.info("%s started, process %d", process.name, process.popen.pid)

    def _retiring(self) -> int:
        """How many workers are there whose successor serves already."""
        return sum(
            each.kind == "worker" and each.alive and each.life.state is State.RETIRING for each in self.processes
        )

    def _hear(self, process: Process) -> None:
        data = process.read()
        if data:
            process.life.heard(time.monotonic(), READY in data)
            if self._routes is not None:
                self._routes.heard(process, data)
            self._announce()
        elif data is not None:
            self._forget(process)

    def _announce(self) -> None:
        if self.announced or any(process.life.state is not State.SERVING for process in self.processes):
            return
        self.announced = True
        log.info("ready")
        notify_supervisor("READY=1")

    def _forget(self, process: Process) -> None:
        """The socket pair is of no use any more: the other end is closed."""
        if process.sock is not None:
            self._selector.unregister(process.sock)
            process.sock.close()
            process.sock = None

    def _kill(self, process: Process) -> None:
        log.error("%s is killed: %s", process.identity, process.life.reason)
        process.signal(signal.SIGKILL)

    def _reap(self, process: Process) -> None:
        identity = process.identity
        status = process.wait()
        if status is None:
            return
        # What it said last counts: READY may be there unread.
        data = process.read()
        if data:
            process.life.heard(time.monotonic(), READY in data)
        self._forget(process)
        self._judge(process, status, f"{identity} {describe_status(status)}")

    def _judge(self, process: Process, status: int, what: str) -> None:
        life, now = process.life, time.monotonic()
        if self.stopping_since is not None and status == 0:
            # Somebody signalled the whole process group, as timeout(1) does: it has only ended before its turn.
            life.stop(now, 0.0)
        verdict = life.ended(now, status)
        if verdict is Verdict.EXPECTED:
            (log.info if status == 0 else log.warning)("%s", what)
        elif verdict is Verdict.ABANDON:
            log.error("%s; %s", what, life.reason)
        elif verdict is Verdict.RESTART:
            log.error("%s; it is started again in %g s", what, life.delay)
        else:
            log.error("%s; giving up: %s (see the lines above)", what, life.reason)
            if self.config.log_file is not None:
                print(f"gripproxy: {what}: {life.reason}; see {self.config.log_file}", file=sys.stderr)
            self.failure = CONFIG_STATUS if status == CONFIG_STATUS else 1
            self.stop()

    def _kill_all(self) -> None:
        for process in self.processes:
            if process.alive:
                process.signal(signal.SIGKILL)
        for process in self.processes:
            if process.popen is not None:
                process.popen.wait()
            self._forget(process)

    # Signals

    def _wake(self) -> None:
        """Have the loop turn; called in other threads. No signal has the number 0."""
        with contextlib.suppress(OSError):  # full: it turns anyway; closed: it is over
            self._signals_out.send(b"\0")

    def _take_signals(self) -> None:
        for number in self._signals_in.recv(4096):
            if number == signal.SIGHUP:
                self.hangup()
            elif number == signal.SIGUSR2:
                self._wanted.append(None)
            elif number in (signal.SIGTERM, signal.SIGINT):
                self.stop(signal.Signals(number).name)

    def hangup(self) -> None:
        """SIGHUP: open the log again and pass it on."""
        log.reopen()
        if self.stopping_since is not None:
            return
        log.info("SIGHUP: passing it on to all processes")
        for process in self.processes:
            process.signal(signal.SIGHUP)
        if self._routes is not None:
            self._routes.read()

    def stop(self, reason: str = "") -> None:
        """Stop everything gracefully; called again after SECOND_SIGNAL: at once."""
        now = time.monotonic()
        if self.stopping_since is not None:
            if reason and now - self.stopping_since >= SECOND_SIGNAL:
                log.warning("%s again: killing what is left", reason)
                self._kill_all_now()
            return
        if reason:
            log.info("%s: stopping, within %g s", reason, self.config.runner.shutdown_timeout)
        notify_supervisor("STOPPING=1")
        self.stopping_since = now
        for order in (*self._reloading, *self._wanted, *self._reading_for):
            if order is not None:
                self._orders.finish(order, "the service is being stopped")
        self._reload, self._reloading, self._wanted, self._reading_for = None, [], [], []
        self._orders.close()
        # From here on nobody may queue on sockets that only the runner holds: they would wait and then be reset.
        remove_paths(self.listeners)
        close_all(self.listeners)
        for process in self.processes:
            if process.kind == "worker":
                self._stop_worker(process)

    def _stop_worker(self, process: Process) -> None:
        if process.life.stop(time.monotonic(), process.shutdown_timeout + STOP_MARGIN):
            process.signal(signal.SIGTERM)

    def _stop_handler_last(self) -> None:
        """The handler serves the workers' last subscriptions and counts, so it goes when they have gone."""
        if any(process.kind == "worker" and process.life.state is not State.ENDED for process in self.processes):
            return
        for process in self.processes:
            if process.life.state not in (State.STOPPING, State.ENDED) and process.life.stop(
                time.monotonic(), HANDLER_STOP
            ):
                process.signal(signal.SIGTERM)

    def _kill_all_now(self) -> None:
        for process in self.processes:
            process.life.stop(time.monotonic(), 0.0)

    # The rolling restart

    def _take_order(self, order: Order) -> None:
        """Somebody gave an order through the socket in rundir."""
        if order.words not in (["reload"], ["reload", "handler"]):
            self._orders.finish(order, f"there is no order {' '.join(order.words)!r} here")
            return
        self._wanted.append(order)
        if self._reload is not None or self._reading is not None or not self.announced:
            self._orders.progress(order, "waiting for the start that goes on")

    def _go_on_reloading(self) -> None:
        """Begin a reload that is wanted, or take the next step of the one that goes on."""
        # Those that have retired, and the successor of one that was given up.
        self.processes = [process for process in self.processes if process.life.state is not State.ENDED]
        if self._reload is None and self.announced and (self._wanted or self._reading is not None):
            self._read_for_reload()
        if self._reload is None or not self._reload.advance():
            return
        failure = self._reload.failure
        if failure:
            log.error("reload: %s", failure)
        else:
            log.info("reload: done")
        waiting, self._reload, self._reloading = self._reloading, None, []
        for order in waiting:
            self._orders.finish(order, failure)

    def _read_for_reload(self) -> None:
        """Read the configuration beside the loop, then begin the reload; give up when that takes too long."""
        if self._reading is None:
            self._reading_for, self._wanted = self._wanted, []
            self._reading = Call(self._read_again, self._wake, "configuration")
        call = self._reading
        if not call.over:
            if time.monotonic() >= call.began + READ_TIME:
                failed, self._reading_for, self._wanted = self._reading_for + self._wanted, [], []
                if failed:
                    self._refuse_reload(failed, f"the configuration cannot be read: no answer within {READ_TIME:g} s")
            return
        orders, self._reading, self._reading_for = self._reading_for, None, []
        if not orders:
            return
        try:
            fresh, routes = call.result()
            fault = self._routes.fault(routes) if self._routes is not None else ""
        except (ConfigError, ListenError) as error:
            fault = str(error)
        if fault:
            self._refuse_reload(orders, fault)
        else:
            self._begin_reload([order for order in orders if order is not None], fresh, routes)

    def _refuse_reload(self, orders: list[Order | None], reason: str) -> None:
        log.error("reload: %s; nothing has changed", reason)
        for order in orders:
            if order is not None:
                self._orders.finish(order, reason)

    def _begin_reload(self, orders: list[Order], fresh: Config, routes: Reading) -> None:
        warnings = [*fresh.warnings, *exposures(fresh), *shipped_keys(fresh)]
        changed = needs_restart(self.config, fresh)
        if changed:
            warnings.append(f"{', '.join(changed)} changed: that needs a full restart, until then the old values count")
        for warning in warnings:
            log.warning("reload: %s", warning)
        self.config = adopt(self.config, fresh)
        if self._routes is not None:
            self._routes.change(RoutesFile.of(self.config), routes, time.monotonic())
        with contextlib.suppress(OSError):  # the log file cannot be opened again: the old one stays
            _open_log(self.config)
        serving = [each for each in self.processes if each.life.state not in (State.RETIRING, State.STOPPING)]
        workers = [each for each in serving if each.kind == "worker"]
        with_handler = any("handler" in order.words for order in orders)
        handler = next((each for each in serving if each.kind == "handler"), None) if with_handler else None
        log.info("reload: %d workers%s, one after the other", len(workers), ", then the handler" if handler else "")
        self._reload = Reload(self, workers, handler)
        self._reloading = orders
        for text in (*warnings, "the configuration is read"):
            for order in orders:
                self._orders.progress(order, text)

    def _read_again(self) -> tuple[Config, Reading]:
        """Read and check what a reload needs, in a thread."""
        fresh, routes = load_again(self.config)
        for listener in self.listeners[0] if self.listeners else []:
            if listener.tls:
                _check_certificate(fresh, listener)
        return fresh, routes

    def succeed(self, old: Process) -> Process:
        """Start a successor of ``old``; for gripproxy.reload, as the next three."""
        beat_timeout = self.config.runner.process_beat_timeout
        worker = old.kind == "worker"
        new = old.successor(Life(beat_timeout, time.monotonic(), trial=worker, proven=not worker))
        self.processes.append(new)
        return new

    def retire(self, old: Process) -> None:
        """Have ``old`` let its clients go, for its successor serves."""
        settings = self.config.runner
        alike = [each for each in self.processes if each.number == old.number and each.kind == old.kind]
        retiring = [each for each in alike if each.life.state is State.RETIRING]
        for process in retiring[: max(0, len(retiring) + 1 - RETIRING_MAX)]:
            log.warning("%s: %d others of its number retire, it lets its clients go now", process.name, RETIRING_MAX)
            self._stop_worker(process)
        hold_time, spread = settings.reload_hold_time, settings.reload_spread
        longest = hold_time + spread + old.shutdown_timeout + RETIRE_MARGIN
        if old.life.retire(time.monotonic(), longest):
            old.tell(retire_order(hold_time, spread))

    def end(self, old: Process) -> None:
        """Have the handler end gracefully."""
        if old.life.stop(time.monotonic(), HANDLER_STOP):
            old.signal(signal.SIGTERM)

    def changed(self, new: Process, old: Process) -> None:
        """Say that ``new`` serves."""
        text = f"{new.name} serves, process {new.pid}"
        log.info("reload: %s%s", text, f"; process {old.pid} retires" if old.alive else "")
        for order in self._reloading:
            self._orders.progress(order, text)


def _check_files(config: Config) -> None:
    limit = raise_file_limit()
    log.info("each process may open %d files", limit)
    if "worker" not in config.services:
        return
    reach = max(0, limit - min(SPARE_FILES, limit // 8)) * config.proxy.workers
    if reach < config.runner.client_maxconn:
        log.warning(
            "client_maxconn is %d, but the limit of open files (%d) allows about %d clients; raise it (LimitNOFILE=)",
            config.runner.client_maxconn,
            limit,
            reach,
        )


def _prepare(config: Config) -> list[list[Listener]]:
    """Open what the service needs. Raises ListenError, or OSError for a rundir that cannot be had."""
    os.makedirs(config.globals.rundir, mode=0o700, exist_ok=True)
    if "worker" not in config.services:
        return []
    listeners = open_listeners(config, config.proxy.workers)
    try:
        for listener in listeners[0]:
            if listener.tls:
                _check_certificate(config, listener)
    except ListenError:
        remove_paths(listeners)
        close_all(listeners)
        raise
    return listeners


def _check_certificate(config: Config, listener: Listener) -> None:
    # Only here: the ssl module costs memory that most runners need not spend.
    from gripproxy.tls import server_context

    server_context(config.certs_dir, listener.port or 0)


def _open_log(config: Config) -> None:
    log.configure(config.log_level("runner"), config.log_file, config.runner.log_format == "json", process="runner")


def run(
    config: Config,
    argv: Sequence[str] | None = None,
    command: Command = default_command,
    routes: Reading | None = None,
) -> int:
    """Run the whole service until it is told to stop.

    Args:
        config: of the service.
        argv: options that make children load the same configuration (default: worked out from it).
        command: makes the children's commands (tests use another program).
        routes: to start with; read here if None.

    Returns:
        The exit status: 0 after SIGTERM or SIGINT, 2 if the configuration is wrong or a port is in use (with the
        reason on standard error), 1 if a process cannot be kept running.

    Raises:
        ConfigError: the service cannot start with its routes.
    """
    if routes is None and "worker" in config.services:
        routes = read_first(config)
    try:
        _open_log(config)
    except OSError as error:
        print(f"gripproxy: --logfile: {config.log_file}: {error.strerror}", file=sys.stderr)
        return CONFIG_STATUS
    try:
        listeners = _prepare(config)
    except ListenError as error:
        print(f"gripproxy: {error}", file=sys.stderr)
        return CONFIG_STATUS
    except OSError as error:
        print(f"gripproxy: [global] rundir: {error.filename}: {error.strerror}", file=sys.stderr)
        return CONFIG_STATUS
    log.info("gripproxy %s, process %d, config %s", __version__, os.getpid(), config.path or "built in")
    for warning in (*config.warnings, *exposures(config), *shipped_keys(config)):
        log.warning("%s", warning)
    _check_files(config)
    for listener in listeners[0] if listeners else []:
        log.info("listening on %s (%s)", listener.url, listener.key)
    if "worker" in config.services and not (listeners and listeners[0]):
        log.warning("no http_port, https_ports or local_ports is set: no client can connect")
    processes = make_processes(
        config, listeners, config_argv(config) if argv is None else argv, command, time.monotonic()
    )
    return Runner(config, listeners, processes, routes).run()
