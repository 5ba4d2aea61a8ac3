"""What is measured: how each server is configured, started, watched and ended."""

from __future__ import annotations

import abc
import contextlib
import http.client
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench import items
from bench.load import Crowd, Publisher
from bench.ports import free_ports
from bench.processes import below, cpu_seconds, dying_with_parent, pss_kb
from bench.programs import BenchError

__all__ = ["TARGETS", "GripProxy", "Loop", "Nginx", "Pushpin", "Target", "Wish", "descriptors"]

ROOT = pathlib.Path(__file__).resolve().parent.parent
START_PATIENCE = 60.0
STOP_PATIENCE = 15.0


def descriptors() -> int:
    """How many files one process may open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def run_output(*command: str) -> str:
    """What a command says about itself, on either channel."""
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Wish:
    """How a target is to be started for a trial."""

    kind: str = "stream"
    """What the C loop speaks."""
    clients: int = 0
    """If more than it holds as shipped: raise its limits and have as many processes as that needs."""
    metrics: bool = False
    """Whether it is to be asked for its own counts."""

    @property
    def workers(self) -> int:
        """Processes that hold clients, each well below its limit of files; 0: as shipped."""
        cores = len(os.sched_getaffinity(0))
        return max(cores, -(-self.clients * 5 // (descriptors() * 4))) if self.clients else 0


class Target(abc.ABC):
    """A server with its backend, both in processes of their own; a folder of its own; free ports."""

    name = ""
    paths: Mapping[str, str] = {}
    """What to ask for to become a client of a kind."""
    ways: Sequence[str] = ()
    """How one can publish, the quickest first."""
    asks_backend = True
    """Whether the backend decides about each client."""

    def __init__(self, programs: pathlib.Path) -> None:
        self.programs = programs
        self.wish: Wish | None = None
        """How it was started; None while it does not run."""
        self._started: list[subprocess.Popen[bytes]] = []

    @classmethod
    def missing(cls) -> str:
        """Why it cannot be measured here; empty if it can."""
        return ""

    @classmethod
    def version(cls) -> str:
        """Which one it is."""
        return ""

    @abc.abstractmethod
    def commands(self, wish: Wish) -> list[list[str]]:
        """Write what is needed into the folder, and return the commands to start."""

    def message(self, way: str, kind: str, *, ids: bool, one: bool) -> bytes:
        """The template of a message."""
        maker = {"zmq": items.zmq_frame, "http": items.grip_request}[way]
        return maker(kind, ids=ids)

    # --- from start to stop

    def start(self, wish: Wish) -> None:
        """Start it, and return when it serves. Raises BenchError when it does not. To be stopped in any case."""
        self.wish = wish
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-"))
        self.port, self.pull, self.control, self.sub, self.rep, self.metrics, self.backend = free_ports(7)
        self._log = (self.folder / "log").open("ab")
        self._spawn([f"{self.programs}/origin", str(self.backend)])
        self._wait_for(self.backend)
        for command in self.commands(wish):
            self._spawn(command)
        for port in {self.port, *(self.port_of(way) for way in self.ways)}:
            self._wait_for(port)
        # Pushpin's processes find each other only after its ports are open.
        if "plain" in self.paths:
            self._until("a request succeeds", lambda: self._status("/hello") == 200)
        if self.asks_backend:
            self._until("a client is held", lambda: self._status(self.paths["stream"].replace("#####", "00000")) == 200)

    def _spawn(self, command: Sequence[str]) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            preexec_fn=dying_with_parent(os.getpid()),
        )
        self._started.append(process)

    def _until(self, what: str, look: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_PATIENCE
        while not look():
            if time.monotonic() > deadline or any(process.poll() is not None for process in self._started):
                raise BenchError(
                    f"{self.name} does not start: waited in vain until {what}\nIts log ends:\n{self.log()}"
                )
            time.sleep(0.02)

    def _wait_for(self, port: int) -> None:
        def accepts() -> bool:
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", port)) == 0

        self._until(f"it accepts on port {port}", accepts)

    def _status(self, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", path)
            return connection.getresponse().status
        return 0

    def log(self) -> str:
        """The end of its log."""
        return (self.folder / "log").read_text("utf-8", "replace")[-2000:]

    def stop(self) -> None:
        """End it and everything that it started."""
        if self.wish is None:
            return
        ending = self._started
        pids = below(process.pid for process in ending)
        for process in ending:
            process.terminate()
        for process in ending:
            try:
                process.wait(STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # Not before: when this is interrupted it is called again.
        self.wish = None
        self._started = []
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- what is done with it

    def crowd(
        self, kind: str, *, own: bool = False, headers: Sequence[str] = (), processes: int = 1, buffer: int = 0
    ) -> Crowd:
        """Clients to be, all on one channel or each on its ``own``."""
        path = self.paths[kind]
        return Crowd(
            self.programs,
            self.port,
            "stream" if kind == "kept" else kind,
            path if own else path.replace("#####", "00000"),
            headers=headers,
            processes=processes,
            buffer=buffer,
        )

    def port_of(self, way: str) -> int:
        """Where to publish."""
        return {"zmq": self.pull, "http": self.control}[way]

    def publisher(
        self, kind: str, *, way: str = "", channels: int = 0, ids: bool = False, buffer: int = 0
    ) -> Publisher:
        """A publisher of messages to ``channels`` channels in turn, or (0) to the one that all clients have."""
        chosen = way or self.ways[0]
        message = self.message(chosen, kind, ids=ids, one=channels > 0)
        return Publisher(self.programs, self.port_of(chosen), chosen, message, channels=max(channels, 1), buffer=buffer)

    def pids(self) -> list[int]:
        """All its processes, without the backend."""
        return below(process.pid for process in self._started[1:])

    def cpu(self) -> float:
        """Processor time so far, in seconds: of the server, not of its backend."""
        return cpu_seconds(self.pids())

    def memory(self) -> int:
        """Memory now, in KB."""
        return pss_kb(self.pids())

    def asked(self) -> int:
        """How many requests the backend has answered."""
        connection = http.client.HTTPConnection("127.0.0.1", self.backend, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", "/count")
            return int(connection.getresponse().read())

    def counts(self) -> dict[str, float]:
        """Its own metrics (`Wish.metrics`)."""
        return {}


GRIP_PATHS = {
    "stream": f"/stream?c={items.CHANNEL}",
    "poll": f"/poll?c={items.CHANNEL}",
    "ws": f"/ws?c={items.CHANNEL}",
    "plain": "/hello",
    "kept": f"/stream?c={items.CHANNEL}&k=55",
}


class GripProxy(Target):
    """This project, with the configuration as shipped, but for ports and folders."""

    name = "gripproxy"
    paths = GRIP_PATHS
    ways = ("zmq", "http")

    @classmethod
    def version(cls) -> str:
        return run_output(sys.executable, "-m", "gripproxy", "--version").strip()

    def commands(self, wish: Wish) -> list[list[str]]:
        changes = {
            "rundir": self.folder,
            "http_port": f"127.0.0.1:{self.port}",
            "push_in_spec": f"tcp://127.0.0.1:{self.pull}",
            "push_in_sub_specs": f"tcp://127.0.0.1:{self.sub}",
            "push_in_http_port": self.control,
            "command_spec": f"tcp://127.0.0.1:{self.rep}",
        }
        if wish.clients:
            changes |= {"client_maxconn": 2 * wish.clients, "workers": wish.workers}
        text = (ROOT / "conf" / "gripproxy.conf").read_text()
        for key, value in changes.items():
            text, found = re.subn(rf"^{key}=.*$", f"{key}={value}", text, flags=re.MULTILINE)
            if found != 1:
                raise BenchError(f"conf/gripproxy.conf has {found} lines {key}=, not one")
        if wish.metrics:
            text = text.replace("[handler]\n", f"[handler]\nprometheus_port=127.0.0.1:{self.metrics}\n")
        (self.folder / "gripproxy.conf").write_text(text)
        (self.folder / "routes").write_text(f"* 127.0.0.1:{self.backend},over_http\n")
        return [[sys.executable, "-m", "gripproxy", f"--config={self.folder}/gripproxy.conf"]]

    def counts(self) -> dict[str, float]:
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        found = re.findall(r"^([a-z_]+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in found}


class Pushpin(Target):
    """Pushpin, as shipped by the distribution, but for ports, folders, and its limit of deliveries a second."""

    name = "pushpin"
    paths = GRIP_PATHS
    ways = ("zmq", "http")

    @classmethod
    def missing(cls) -> str:
        return "" if shutil.which("pushpin") else "no pushpin on the PATH (Debian: apt-get install pushpin zurl)"

    @classmethod
    def version(cls) -> str:
        return run_output("pushpin", "--version").strip()

    def commands(self, wish: Wish) -> list[list[str]]:
        numbers = re.search(r"(\d+)\.(\d+)", self.version())
        age = (int(numbers[1]), int(numbers[2])) if numbers else (1, 36)
        modern = age >= (1, 40)
        run = self.folder
        sockets = {
            "zurl_out_specs": f"ipc://{run}/z-in",
            "zurl_out_stream_specs": f"ipc://{run}/z-in-stream",
            "zurl_in_specs": f"ipc://{run}/z-out",
        }
        sections: dict[str, dict[str, object]] = {
            "global": {"include": "{libdir}/internal.conf", "rundir": run, "ipc_prefix": "bench-", "port_offset": 0},
            "runner": {
                "services": "connmgr,proxy,handler" if modern else "condure,pushpin-proxy,pushpin-handler",
                "http_port": f"127.0.0.1:{self.port}",
                "logdir": run,
                "log_level": 2,
                "client_buffer_size": 8192,
                "client_maxconn": 50000,
            },
            "proxy": {
                "routesfile": f"{run}/routes",
                "set_x_forwarded_protocol": "proto-only",
                "sig_iss": "pushpin",
                "sig_key": "changeme",
                "updates_check": "off",
                **(sockets if age < (1, 38) else {}),
            },
            "handler": {
                "push_in_spec": f"tcp://127.0.0.1:{self.pull}",
                "push_in_sub_specs": f"tcp://127.0.0.1:{self.sub}",
                "push_in_sub_connect": "false",
                "push_in_http_addr": "127.0.0.1",
                "push_in_http_port": self.control,
                "stats_spec": f"ipc://{run}/stats",
                "command_spec": f"tcp://127.0.0.1:{self.rep}",
                "message_rate": 100_000_000,
                "message_hwm": 100_000_000,
                "message_wait": 5000,
                "id_cache_ttl": 60,
                "connection_subscription_max": 20,
                "subscription_linger": 60,
                "stats_connection_ttl": 120,
                "stats_subscription_ttl": 60,
                "stats_report_interval": 10,
                "stats_format": "tnetstring",
            },
        }
        (run / "pushpin.conf").write_text(
            "\n".join(
                f"[{section}]\n" + "".join(f"{key}={value}\n" for key, value in keys.items())
                for section, keys in sections.items()
            )
        )
        (run / "routes").write_text(f"* 127.0.0.1:{self.backend},over_http\n")
        commands = [["pushpin", "--merge-output", f"--config={run}/pushpin.conf"]]
        if age < (1, 38):
            names = {"in_spec": "in", "in_stream_spec": "in-stream", "out_spec": "out", "in_req_spec": "req"}
            lines = [f"{key}=ipc://{run}/z-{name}\n" for key, name in names.items()]
            # As shipped it may not ask loopback, and only 2,000 backends at the same time.
            lines.append("defpolicy=allow\nallow=\ndeny=\nmax_open_requests=20000\nbuffer_size=200000\ntimeout=600\n")
            lines.append("in_hwm=20000\nout_hwm=20000\n")
            (run / "zurl.conf").write_text("[General]\n" + "".join(lines))
            commands.insert(0, ["zurl", f"--config={run}/zurl.conf"])
        return commands


class Nginx(Target):
    """nginx with one worker: plain proxying, and with the module nchan also clients, which it holds on its own."""

    name = "nginx"
    ways = ("http",)
    paths: Mapping[str, str] = {"plain": "/hello"}
    asks_backend = False

    def __init__(self, programs: pathlib.Path) -> None:
        super().__init__(programs)
        if self.module():
            self.paths = {
                "plain": "/hello",
                "stream": f"/stream?c={items.CHANNEL}",
                "poll": f"/poll?c={items.CHANNEL}",
                "ws": f"/ws?c={items.CHANNEL}",
            }

    @classmethod
    def missing(cls) -> str:
        return (
            ""
            if shutil.which("nginx")
            else "no nginx on the PATH (Debian: apt-get install nginx-light libnginx-mod-nchan)"
        )

    @classmethod
    def version(cls) -> str:
        said = run_output("nginx", "-v").strip().removeprefix("nginx version: ")
        return said + (" with nchan" if cls.module() else " without nchan (Debian: apt-get install libnginx-mod-nchan)")

    @classmethod
    def module(cls) -> str:
        """Where nchan is; empty if it is not there."""
        named = re.search(r"--modules-path=(\S+)", run_output("nginx", "-V"))
        path = pathlib.Path(named[1] if named else "/usr/lib/nginx/modules", "ngx_nchan_module.so")
        return str(path) if path.exists() else ""

    def port_of(self, way: str) -> int:
        return self.port

    def message(self, way: str, kind: str, *, ids: bool, one: bool) -> bytes:
        return items.nchan_request(kind)

    def commands(self, wish: Wish) -> list[list[str]]:
        module, run, most = self.module(), self.folder, descriptors()
        subscriber = "nchan_subscriber {}; nchan_channel_id $arg_c; nchan_subscriber_first_message newest;"
        nchan = f"""
    location = /stream {{ {subscriber.format("http-raw-stream")} nchan_subscriber_timeout 0; }}
    location = /poll {{ {subscriber.format("longpoll")} }}
    location = /ws {{ {subscriber.format("websocket")} }}
    location = /publish {{
      nchan_publisher http; nchan_channel_id $arg_c; nchan_message_buffer_length 0; nchan_store_messages off;
    }}"""
        temporary = "".join(f"  {name}_temp_path {run}/{name};\n" for name in ("proxy", "fastcgi", "uwsgi", "scgi"))
        (run / "nginx.conf").write_text(f"""
worker_processes 1;
worker_rlimit_nofile {most};
daemon off;
pid {run}/nginx.pid;
error_log {run}/error.log warn;
{f"load_module {module};" if module else ""}
events {{ worker_connections {most * 9 // 10}; multi_accept on; }}
http {{
  access_log off;
  client_body_temp_path {run}/client;
{temporary}
  {"nchan_shared_memory_size 256M;" if module else ""}
  keepalive_requests 100000000;
  upstream backend {{ server 127.0.0.1:{self.backend}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{self.port} backlog=4096;
    location / {{ proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    {nchan if module else ""}
  }}
}}
""")
        return [["nginx", "-c", f"{run}/nginx.conf"]]


class Loop(Target):
    """One send() per client in a loop, in C: what the kernel takes for a delivery whoever asks it to."""

    name, title = "loop", "C loop"
    ways = ("line",)
    paths: Mapping[str, str] = {"stream": "/", "ws": "/"}
    asks_backend = False

    def commands(self, wish: Wish) -> list[list[str]]:
        return [[f"{self.programs}/loop", str(self.port), str(self.pull), wish.kind, str(wish.workers or 1)]]

    def port_of(self, way: str) -> int:
        return self.pull

    def message(self, way: str, kind: str, *, ids: bool, one: bool) -> bytes:
        return items.line(kind, one=one)


TARGETS: Mapping[str, type[Target]] = {kind.name: kind for kind in (GripProxy, Pushpin, Nginx, Loop)}
