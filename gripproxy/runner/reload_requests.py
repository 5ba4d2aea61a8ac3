"""Requests to reload: from ``gripproxy reload`` and SIGUSR2 to the rolling restart, and back to its outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from gripproxy.config import Config, ConfigError, load_config
from gripproxy.process.background import Call
from gripproxy.process.listening_sockets import ListenError, ListeningSocket
from gripproxy.process.log import log
from gripproxy.routing.routes_file import RoutesFile
from gripproxy.routing.routes_watch import Reading
from gripproxy.runner.admin_socket import AdminRequest
from gripproxy.runner.child_process import ChildProcess
from gripproxy.runner.rolling_restart import RollingRestart
from gripproxy.runner.route_distribution import READ_TIME

__all__ = ["Answers", "ReloadRequests", "Reloader", "check_certificates", "read_again"]


def check_certificates(config: Config, listeners: Iterable[ListeningSocket]) -> None:
    """Load the certificates of listening sockets.

    Args:
        config: names their folder.
        listeners: of one worker.

    Raises:
        ListenError: a certificate is missing or unusable.
    """
    for listener in listeners:
        if listener.tls:
            # Imported here: the ssl module costs memory that most runners need not spend.
            from gripproxy.process.tls import server_context

            server_context(config.certs_dir, listener.port or 0)


def read_again(config: Config, listeners: Iterable[ListeningSocket]) -> tuple[Config, Reading]:
    """Return the configuration that the files contain now, with the command line of ``config``, and the routes.

    Args:
        config: in force.
        listeners: of one worker; the certificates they need are checked.

    Raises:
        ConfigError: a file cannot be used; with file and line.
        ListenError: a certificate cannot be used.
    """
    fresh = load_config(config.path, **dataclasses.asdict(config.overrides))
    source = RoutesFile.of(fresh)
    data = source.read()
    reading = Reading(data, source.parse(data))
    check_certificates(fresh, listeners)
    return fresh, reading


class Answers(Protocol):
    """Receives the answers to requests: the admin socket."""

    def progress(self, request: AdminRequest, text: str) -> None:
        """Send ``text`` as progress of ``request``."""

    def finish(self, request: AdminRequest, failure: str = "") -> None:
        """Send the outcome of ``request``: a reason of ``failure``, or none."""


class Reloader(Protocol):
    """Executes a reload: the runner."""

    def read_again(self) -> tuple[Config, Reading]:
        """Return configuration and routes as the files contain them now. Called in a thread.

        Raises:
            ConfigError, ListenError: they cannot be used.
        """

    def fault(self, reading: Reading) -> str:
        """Return the reason why ``reading`` cannot replace the routes in force, empty if it can."""

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


class ReloadRequests:
    """Requests to reload, merged: one rolling restart serves all that arrive before its configuration is read.

    Call ``turn`` in each turn of the loop, and at ``dues``.

    Args:
        reloader: executes the reload.
        answers: receives the answers.
        kinds: exclusive services that a request may name.
        wake: wakes the loop; called in another thread.
    """

    def __init__(self, reloader: Reloader, answers: Answers, kinds: Collection[str], wake: Callable[[], None]) -> None:
        self._reloader = reloader
        self._answers = answers
        self._kinds = frozenset(kinds)
        self._wake = wake
        self._waiting: list[AdminRequest | None] = []
        """Requests whose configuration is not being read yet; None is a signal."""
        self._reading: Call[tuple[Config, Reading]] | None = None
        """Configuration that is being read. In a thread: its file system may stall."""
        self._reading_for: list[AdminRequest | None] = []
        """Requests for this configuration; none once it took READ_TIME."""
        self._restart: RollingRestart[ChildProcess] | None = None
        self._restarting: list[AdminRequest] = []
        """Requests for the restart in progress."""

    @property
    def dues(self) -> list[float]:
        """Times at which ``turn`` has to be called, monotonic clock in seconds."""
        return [self._reading.began + READ_TIME] if self._reading_for and self._reading is not None else []

    def add(self, request: AdminRequest | None, serving: bool) -> None:
        """Add a request.

        Args:
            request: from the admin socket; None: a signal.
            serving: all processes serve, so that a reload can begin.
        """
        if request is not None:
            word, *kinds = request.words
            if word != "reload" or not self._kinds.issuperset(kinds):
                self._answers.finish(request, f"there is no order {' '.join(request.words)!r} here")
                return
        self._waiting.append(request)
        if request is not None and (self._restart is not None or self._reading is not None or not serving):
            self._answers.progress(request, "waiting for the start that goes on")

    def turn(self, now: float, serving: bool) -> None:
        """Begin a reload that is requested, or take the next steps of the one in progress.

        Args:
            now: monotonic clock in seconds.
            serving: all processes serve, so that a reload can begin.
        """
        if self._restart is None and serving and (self._waiting or self._reading is not None):
            self._read(now)
        if self._restart is None or not self._restart.advance():
            return
        failure = self._restart.failure
        if failure:
            log.error("reload", step=failure)
        else:
            log.info("reload done")
        requests, self._restart, self._restarting = self._restarting, None, []
        for request in requests:
            self._answers.finish(request, failure)

    def progress(self, text: str) -> None:
        """Send ``text`` as progress of the restart."""
        for request in self._restarting:
            self._answers.progress(request, text)

    def abort(self, reason: str) -> None:
        """End all requests with ``reason``, and the restart with them."""
        for request in (*self._restarting, *self._waiting, *self._reading_for):
            if request is not None:
                self._answers.finish(request, reason)
        self._restart, self._restarting, self._waiting, self._reading_for = None, [], [], []

    def _read(self, now: float) -> None:
        """Read the configuration beside the loop, then begin the restart; give up after READ_TIME."""
        if self._reading is None:
            self._reading_for, self._waiting = self._waiting, []
            self._reading = Call(self._reloader.read_again, self._wake, "configuration")
        call = self._reading
        if not call.over:
            if now >= call.began + READ_TIME:
                requests, self._reading_for, self._waiting = self._reading_for + self._waiting, [], []
                if requests:
                    self._refuse(requests, f"the configuration cannot be read: no answer within {READ_TIME:g} s")
            return
        requests, self._reading, self._reading_for = self._reading_for, None, []
        if not requests:
            return
        try:
            fresh, reading = call.result()
            fault = self._reloader.fault(reading)
        except (ConfigError, ListenError) as error:
            fault = str(error)
        if fault:
            self._refuse(requests, fault)
        else:
            self._begin([request for request in requests if request is not None], fresh, reading)

    def _refuse(self, requests: list[AdminRequest | None], reason: str) -> None:
        log.error("reload refused", "nothing has changed", reason=reason)
        for request in requests:
            if request is not None:
                self._answers.finish(request, reason)

    def _begin(self, requests: list[AdminRequest], fresh: Config, reading: Reading) -> None:
        kinds = {kind for request in requests for kind in request.words[1:]}
        self._restart, warnings = self._reloader.begin_reload(fresh, reading, kinds)
        self._restarting = requests
        for text in (*warnings, "the configuration is read"):
            self.progress(text)
