"""Starting gripproxy or Pushpin with the same files, and ending it with all its children."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.ports import free_ports
from tests.support.service import alive
from tests.wire.wirekit.client import PATIENCE, Aborted, Client, Silence
from tests.wire.wirekit.expecting import on_pushpin

__all__ = ["UPDATED", "Proxy", "Setup", "StartProblem"]

START_PATIENCE = 40.0
"""Seconds for a proxy to open its ports: Pushpin needs one on an idle machine."""
STOP_PATIENCE = 20.0
WARM_ROUTES = "\nhold.warm-up test\nrelay.warm-up {backend}\n"
"""Go behind the routes of a setup, for `Proxy._warm_up` only: hosts of their own, which no case uses."""

PORTS = ("http", "control", "pull", "sub", "rep", "stats", "port1", "port2", "port3")
"""Names that stand for free ports in routes, config values, arguments and file names."""

CONFIG: Mapping[str, object] = {
    "global.include": "{libdir}/internal.conf",
    "global.rundir": "{dir}/run",
    "global.ipc_prefix": "wire-",
    "global.port_offset": 0,
    "global.stats_connection_ttl": 120,
    "runner.services": "condure,pushpin-proxy,pushpin-handler",
    "runner.http_port": "127.0.0.1:{http}",
    "runner.logdir": "{dir}/log",
    "runner.log_level": 2,
    "runner.client_buffer_size": 8192,
    "runner.client_maxconn": 2000,
    "proxy.routesfile": "{dir}/routes",
    "proxy.debug": False,
    "proxy.auto_cross_origin": False,
    "proxy.accept_x_forwarded_protocol": False,
    "proxy.set_x_forwarded_protocol": "proto-only",
    "proxy.orig_headers_need_mark": "",
    "proxy.sig_iss": "pushpin",
    "proxy.sig_key": "changeme",
    "proxy.updates_check": "off",
    "handler.push_in_spec": "tcp://127.0.0.1:{pull}",
    "handler.push_in_sub_specs": "tcp://127.0.0.1:{sub}",
    "handler.push_in_sub_connect": False,
    "handler.push_in_http_addr": "127.0.0.1",
    "handler.push_in_http_port": "{control}",
    "handler.stats_spec": "tcp://127.0.0.1:{stats}",
    "handler.command_spec": "tcp://127.0.0.1:{rep}",
    "handler.message_rate": 2500,
    "handler.message_hwm": 25000,
    "handler.message_wait": 1000,
    "handler.id_cache_ttl": 60,
    "handler.connection_subscription_max": 20,
    "handler.subscription_linger": 2,
    "handler.stats_report_interval": 2,
    "handler.stats_format": "tnetstring",
}
"""The pushpin.conf of every case, before its own changes: as shipped, with shorter waits."""

OURS = {
    "proxy.workers": 2,
    "handler.message_rate": None,
    "handler.message_hwm": None,
    "handler.update_on_first_subscription": False,
    "runner.process_beat_timeout": 120,
    "proxy.trace_headers": "none",
}
"""What differs for gripproxy: several workers, and no delivery rate limit, as in the configuration it ships (a limit
makes every delivery take the careful way, and most users would run what the cases never saw). And nobody is asked
again a second after a channel's first subscription: on a busy machine a case may take longer than that, and would have
something going on that it is not about; the cases that are about it have `UPDATED`. Nor is a process killed for its
silence there."""

UPDATED: Mapping[str, object] = {"handler.update_on_first_subscription": True}
"""Goes into the config of cases that are about this update. Pushpin 1.36 makes it in all of them."""


class StartProblem(Exception):
    """The proxy ended, or did not open its ports in time."""


@dataclass(eq=False)
class Setup:
    """What a proxy is started with. Cases that use the same object share the running proxy within a module.

    Filled in everywhere: ``{http}`` and the other names of `PORTS`; ``{dir}``, the private directory; and as
    ``host:port`` ``{backend}``, ``{second}``, ``{third}``, ``{tls}``, ``{tlsip}``, ``{mtls}``, ``{backend6}``,
    ``{unix}`` and ``{dead}``, where no server listens.
    """

    routes: str = "* {backend}\n"
    config: Mapping[str, object] = field(default_factory=dict)
    """``section.key`` to value, on top of `CONFIG`; None leaves a key out."""
    args: Sequence[str] = ()
    """More command line arguments."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Further files in the private directory, by relative name."""
    env: Mapping[str, str] = field(default_factory=dict)
    """More environment variables."""
    wait_for: Sequence[str] = ("http", "control")
    """Ports (names, with ``+N`` for a moved one; or unix socket paths) that must accept before a case may start."""


class Proxy:
    """One running proxy with its files in a private directory."""

    def __init__(self, setup: Setup, names: Mapping[str, str]) -> None:
        """Write the files and start; `names` are further placeholders. Returns when the ports accept."""
        self.setup = setup
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="wire-", dir="/tmp"))
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.names = {**names, **{k: str(v) for k, v in self.ports.items()}, "dir": str(self.directory)}
        self.process: subprocess.Popen[bytes] | None = None
        self._zurl: subprocess.Popen[bytes] | None = None
        try:
            self._write()
            self._start()
        except BaseException:
            self.stop()
            raise

    def fill(self, text: str) -> str:
        """Replace the placeholders of this proxy in a text."""
        return re.sub(r"\{(\w+)\}", lambda m: self.names.get(m[1], m[0]), text)

    @property
    def log(self) -> str:
        """Everything logged so far, by all processes."""
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / "proxy.log").read_text("utf-8", "replace")
        return ""

    def wait_log(self, pattern: str, timeout: float = PATIENCE) -> str:
        """Wait until a log line matches the regular expression; return that line."""
        deadline = time.monotonic() + timeout
        pause = 0.01
        while True:
            for line in self.log.splitlines():
                if re.search(pattern, line):
                    return line
            if time.monotonic() > deadline:
                raise AssertionError(f"no log line matches {pattern!r}; the log ends:\n{self.log[-2000:]}")
            # A file cannot be waited for portably; short looks are the honest way.
            time.sleep(pause)

    def write_routes(self, text: str) -> None:
        """Replace the routes file atomically, as an editor does."""
        new = self.directory / "routes.new"
        new.write_text(self.fill(text))
        new.replace(self.directory / "routes")

    def signal(self, number: int) -> None:
        """Send a signal to the main process."""
        assert self.process is not None
        self.process.send_signal(number)

    @property
    def alive(self) -> bool:
        """Whether the main process still runs."""
        return self.process is not None and self.process.poll() is None

    def _write(self) -> None:
        config = {**CONFIG, **({} if on_pushpin() else OURS), **self.setup.config}
        if on_pushpin():
            for key in ("zurl_out_specs", "zurl_out_stream_specs", "zurl_in_specs"):
                name = {"zurl_out_specs": "in", "zurl_out_stream_specs": "in-stream", "zurl_in_specs": "out"}[key]
                config[f"proxy.{key}"] = f"ipc://{self.directory}/z-{name}"
        for name in ("run", "log"):
            (self.directory / name).mkdir()
        sections: dict[str, list[str]] = {}
        for key, value in config.items():
            if value is None:
                continue
            section, _, name = key.partition(".")
            text = str(value).lower() if isinstance(value, bool) else self.fill(str(value))
            sections.setdefault(section, []).append(f"{name}={text}\n")
        (self.directory / "pushpin.conf").write_text(
            "\n".join(f"[{section}]\n{''.join(lines)}" for section, lines in sections.items())
        )
        routes = self.fill(self.setup.routes)
        (self.directory / "routes").write_text(routes + self.fill(WARM_ROUTES) if on_pushpin() else routes)
        for name, content in self.setup.files.items():
            path = self.directory / self.fill(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.fill(content))

    def command(self) -> list[str]:
        """The command line that starts this proxy."""
        program = ["pushpin", "--merge-output"] if on_pushpin() else [sys.executable, "-m", "gripproxy"]
        arguments = list(self.setup.args)
        if on_pushpin() and any(word.startswith("--route") for word in arguments):
            arguments += [f"--route={route}" for route in WARM_ROUTES.split("\n") if route]
        return [*program, f"--config={self.directory}/pushpin.conf", *map(self.fill, arguments)]

    def _start(self) -> None:
        environment = {**os.environ, **{name: self.fill(value) for name, value in self.setup.env.items()}}
        with (self.directory / "proxy.log").open("ab") as log, (self.directory / "zurl.log").open("ab") as zurl_log:
            if on_pushpin():
                specs = {"in_spec": "in", "in_stream_spec": "in-stream", "out_spec": "out", "in_req_spec": "req"}
                lines = [f"{key}=ipc://{self.directory}/z-{name}\n" for key, name in specs.items()]
                options = "defpolicy=allow\ndeny=\nallow=\nmax_open_requests=2000\nbuffer_size=200000\ntimeout=600\n"
                (self.directory / "zurl.conf").write_text("[General]\n" + "".join(lines) + options)
                self._zurl = subprocess.Popen(
                    ["zurl", f"--config={self.directory}/zurl.conf"],
                    stdin=subprocess.DEVNULL,
                    stdout=zurl_log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=environment,
                )
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.directory,
                env=environment,
            )
        deadline = time.monotonic() + START_PATIENCE
        for name in self.setup.wait_for:
            self._wait_port(name, deadline)
        port = next((self.ports[name] for name in ("http", "port1") if name in self.setup.wait_for), None)
        if on_pushpin() and port is not None:
            self._warm_up(port, deadline)

    def _warm_up(self, port: int, deadline: float) -> None:
        # Pushpin's processes find each other only after its ports are open. Until then holds fail, and requests to a
        # backend wait for an answer that nobody passes on.
        for host in ("hold.warm-up", "relay.warm-up"):
            while True:
                with contextlib.suppress(Aborted, Silence, OSError), Client.connect(port) as client:
                    client.request("GET", "/stream?channel=warm-up", f"Host: {host}")
                    if client.head(timeout=0.5).status == 200:
                        break
                if time.monotonic() > deadline:
                    raise StartProblem(f"no request to {host} succeeds:\n{self.log[-3000:]}")
                time.sleep(0.02)

    def _wait_port(self, name: str, deadline: float) -> None:
        while True:
            if not self.alive:
                raise StartProblem(f"{' '.join(self.command())} ended:\n{self.log[-3000:]}")
            with contextlib.suppress(OSError):
                place, _, moved = name.partition("+")
                if place in self.ports:
                    socket.create_connection(("127.0.0.1", self.ports[place] + int(moved or 0)), 1).close()
                else:
                    with socket.socket(socket.AF_UNIX) as sock:
                        sock.connect(self.fill(name))
                return
            if time.monotonic() > deadline:
                raise StartProblem(f"nobody accepts at {name} ({self.ports.get(name, '')}):\n{self.log[-3000:]}")
            time.sleep(0.02)

    def children(self) -> list[int]:
        """Process ids of all living descendants of the main process."""
        if self.process is None:
            return []
        found, queue = [], [self.process.pid]
        while queue:
            pid = queue.pop()
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                    queue += (more := [int(word) for word in (task / "children").read_text().split()])
                    found += more
        return found

    def restart(self) -> None:
        """Kill the proxy with all below it, and start it again with the same files and ports."""
        processes = [process for process in (self.process, self._zurl) if process is not None]
        children = self.children()
        for pid in [*(process.pid for process in processes), *children]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in processes:
            process.wait(STOP_PATIENCE)
        deadline = time.monotonic() + STOP_PATIENCE
        while any(map(alive, children)):
            if time.monotonic() > deadline:
                raise StartProblem(f"processes {children} outlive SIGKILL")
            time.sleep(0.01)
        self._start()

    def stop(self) -> list[str]:
        """End the proxy and whatever is left of it. Returns what was not as it should be, for `Site` to report."""
        problems = []
        children = self.children()
        for process in (self.process, self._zurl):
            if process is None:
                continue
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                problems.append(f"{process.args!r} did not end within {STOP_PATIENCE} s of SIGTERM")
                process.kill()
                process.wait()
        for pid in children:
            if pathlib.Path(f"/proc/{pid}").exists():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    problems.append(f"process {pid} outlived its parent")
        self.process = None
        shutil.rmtree(self.directory, ignore_errors=True)
        return [] if on_pushpin() else problems
