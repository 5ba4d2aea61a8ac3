"""Peers of the hub: stores of the distribution, each alone in a folder of its own, with the same durability."""

from __future__ import annotations

import abc
import base64
import contextlib
import csv
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bench.hub_load import KEY, SIZE, Poster, request
from bench.load import Crowd
from bench.ports import free_ports
from bench.processes import below, cpu_seconds, dying_with_parent, pss_kb
from bench.programs import BenchError
from bench.targets import run_output

__all__ = ["PEERS", "Etcd", "Measured", "Peer", "Postgres", "Redis", "of_pgbench_log", "of_redis_csv"]

START_PATIENCE = 30.0
STOP_PATIENCE = 15.0


@dataclass(frozen=True)
class Measured:
    """Figures of a server.

    Attributes:
        rate: durable publishes a second.
        p50: median time of one, in milliseconds.
        p99: time within which 99 % were answered, in milliseconds.
    """

    rate: float
    p50: float
    p99: float


class Peer(abc.ABC):
    """Server of another project. ``start``, ``measure`` and ``stop``, once each.

    Args:
        programs: folder of the compiled programs.
        folder: empty, on the disk that is measured.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    way: ClassVar[str]
    """How it is asked, and how its answers are durable."""
    end: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, programs: pathlib.Path, folder: pathlib.Path) -> None:
        self.programs = programs
        self.folder = folder
        self.port, self.other = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @abc.abstractmethod
    def missing(cls) -> str:
        """Return the program that is not installed; empty if it is."""

    @classmethod
    @abc.abstractmethod
    def version(cls) -> str:
        """Return the version that is installed."""

    @abc.abstractmethod
    def command(self) -> list[str]:
        """Prepare the folder, and return the command of the server.

        Returns:
            Program and arguments.
        """

    @abc.abstractmethod
    def measure(self, seconds: float, connections: int) -> Measured:
        """Publish SIZE bytes at a time in a closed loop.

        Args:
            seconds: duration, in seconds.
            connections: on each one publish at a time.

        Returns:
            The figures.

        Raises:
            BenchError: publishes fail.
        """

    def start(self) -> None:
        """Start the server, and return when it accepts connections.

        Raises:
            BenchError: it does not.
        """
        command = self.command()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
                preexec_fn=dying_with_parent(os.getpid()),
            )
        deadline = time.monotonic() + START_PATIENCE
        while not self.serves():
            if time.monotonic() > deadline or self._process.poll() is not None:
                end = (self.folder / "log").read_text("utf-8", "replace")[-2000:]
                raise BenchError(f"{self.name} does not start. Its log ends:\n{end}")
            time.sleep(0.05)

    def serves(self) -> bool:
        """Return whether the server accepts connections."""
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def user(self) -> str | None:
        """Name of the user that the server runs as; None: that of the benchmark."""
        return None

    def memory(self) -> int:
        """Return its memory, in KB."""
        return 0 if self._process is None else pss_kb(below([self._process.pid]))

    def cpu(self) -> float:
        """Return its processor time so far, in seconds."""
        return 0.0 if self._process is None else cpu_seconds(below([self._process.pid]))

    def stop(self) -> None:
        """End the server."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(self.end)
        try:
            process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def run(self, command: Sequence[str], seconds: float, *, user: str | None = None) -> str:
        """Run a load program of the peer, and return its output.

        Args:
            command: the program and its arguments.
            seconds: greatest duration, in seconds.
            user: that it runs as; None: that of the benchmark.

        Returns:
            Its output.

        Raises:
            BenchError: it fails, or takes longer.
        """
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=seconds,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        except subprocess.TimeoutExpired:
            raise BenchError(f"{command[0]} took more than {seconds:.0f} s") from None
        if done.returncode:
            raise BenchError(f"{' '.join(command)} failed with {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout


class Etcd(Peer):
    """etcd, through its JSON gateway."""

    name = "etcd"
    package = "etcd-server"
    way = "JSON gateway, /v3/kv/put; synced before the answer"

    @classmethod
    def missing(cls) -> str:
        return "" if shutil.which("etcd") else "etcd"

    @classmethod
    def version(cls) -> str:
        return run_output("etcd", "--version").partition("\n")[0]

    def command(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.other}"
        options = {
            "name": "bench",
            "data-dir": str(self.folder / "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"bench={peer}",
            "log-level": "error",
        }
        return ["etcd", *(f"--{key}={value}" for key, value in options.items())]

    def poster(self, size: int, connections: int) -> Poster:
        """Return a program that puts values, to be closed.

        Args:
            size: of a value, in bytes.
            connections: on each one request at a time.
        """
        # "a2V5" is base64 of "key"; the eight characters of a key's place are base64 of something else.
        value = base64.b64encode(b"x" * size).decode()
        body = f'{{"key":"a2V5{KEY}","value":"{value}"}}'
        message = request("/v3/kv/put", body.encode(), content_type="application/json")
        return Poster(self.programs, self.port, message, connections=connections)

    def watchers(self) -> Crowd:
        """Return watchers to be, of all keys of ``poster``, which count its values; to be closed."""
        body = '{"create_request":{"key":"a2V5","range_end":"a2V6"}}'
        return Crowd(self.programs, self.port, "stream", "/v3/watch", body=body, text="mod_revision")

    def measure(self, seconds: float, connections: int) -> Measured:
        with contextlib.closing(self.poster(SIZE, connections)) as poster:
            poster.post(connections, seconds=10)
            posted = poster.post(seconds=seconds)
        if posted.refused:
            raise BenchError(f"etcd refused {posted.refused} of {posted.taken + posted.refused} requests")
        return Measured(posted.rate, posted.latencies.quantile(0.5), posted.latencies.quantile(0.99))


def _folder_of_postgres() -> pathlib.Path | None:
    """Return the folder with the programs of the newest PostgreSQL."""
    found = [path.parent for path in pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    return max(found, key=lambda path: int(path.parent.name)) if found else None


def of_pgbench_log(lines: Iterable[str], seconds: float) -> Measured:
    """Return the figures of the transactions that pgbench has logged.

    Args:
        lines: of its logs; the third word is the time of a transaction in microseconds.
        seconds: duration of the run, in seconds.

    Raises:
        BenchError: there is none.
    """
    times = sorted(int(line.split()[2]) for line in lines if line.strip())
    if not times:
        raise BenchError("pgbench has logged no transaction")
    last = len(times) - 1
    return Measured(len(times) / seconds, times[int(0.5 * last)] / 1e3, times[int(0.99 * last)] / 1e3)


class Postgres(Peer):
    """PostgreSQL: an INSERT a transaction, by pgbench."""

    name = "PostgreSQL"
    package = "postgresql"
    way = "pgbench, a prepared INSERT a transaction; synchronous_commit=on"
    end = signal.SIGINT  # SIGTERM would wait for clients

    @classmethod
    def missing(cls) -> str:
        return "" if _folder_of_postgres() else "postgres"

    @classmethod
    def version(cls) -> str:
        return run_output(f"{_folder_of_postgres()}/postgres", "--version").strip()

    @property
    def user(self) -> str | None:
        """``postgres`` if the benchmark runs as root, as which the server does not start."""
        return "postgres" if os.geteuid() == 0 else None

    def _program(self, name: str) -> str:
        return f"{_folder_of_postgres()}/{name}"

    def command(self) -> list[str]:
        if self.user is not None:
            shutil.chown(self.folder, self.user)
        name = self.user or pwd.getpwuid(os.geteuid()).pw_name
        data = str(self.folder / "data")
        initialise = [
            "initdb",
            "--pgdata",
            data,
            "--auth=trust",
            f"--username={name}",
            "--encoding=UTF8",
            "--no-locale",
        ]
        self.run([self._program(initialise[0]), *initialise[1:]], 60, user=self.user)
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "max_connections": 300,
            "fsync": "on",
            "synchronous_commit": "on",
        }
        return [
            self._program("postgres"),
            "-D",
            data,
            *(word for key, value in settings.items() for word in ("-c", f"{key}={value}")),
        ]

    def _client(self, program: str, *words: str, seconds: float) -> str:
        name = self.user or pwd.getpwuid(os.geteuid()).pw_name
        where = ["--host=127.0.0.1", f"--port={self.port}", f"--username={name}"]
        return self.run([self._program(program), *where, *words], seconds, user=self.user)

    def serves(self) -> bool:
        try:
            self._client("pg_isready", seconds=10)
        except BenchError:
            return False
        return True

    def measure(self, seconds: float, connections: int) -> Measured:
        table = "create table event (id bigserial primary key, topic integer, data text)"
        self._client("psql", "--dbname=postgres", "-c", table, seconds=30)
        script = self.folder / "insert.sql"
        script.write_text(f"insert into event (topic, data) values (1, '{'x' * SIZE}');\n")
        lasting = max(1, round(seconds))
        words = [f"--client={connections}", "--jobs=2", "--protocol=prepared", "--no-vacuum", f"--time={lasting}"]
        self._client(
            "pgbench", *words, f"--file={script}", "--log", "--log-prefix=pgbench", "postgres", seconds=lasting + 60
        )
        lines = [line for path in self.folder.glob("pgbench.*") for line in path.read_text().splitlines()]
        return of_pgbench_log(lines, lasting)


def of_redis_csv(text: str) -> Measured:
    """Return the figures that ``redis-benchmark --csv`` prints.

    Args:
        text: its output.

    Raises:
        BenchError: they are not there.
    """
    lines = text.splitlines()
    start = next((index for index, line in enumerate(lines) if line.startswith('"test"')), len(lines))
    rows = list(csv.DictReader(lines[start:]))
    if not rows:
        raise BenchError(f"redis-benchmark printed no figures: {text[:300]!r}")
    return Measured(float(rows[-1]["rps"]), float(rows[-1]["p50_latency_ms"]), float(rows[-1]["p99_latency_ms"]))


class Redis(Peer):
    """Redis: XADD to a stream, by redis-benchmark."""

    name = "Redis"
    package = "redis-server"
    way = "redis-benchmark, XADD; appendfsync always"

    FIRST = 20_000
    """Publishes of a first run, from whose rate the number of the second follows."""

    @classmethod
    def missing(cls) -> str:
        return next((name for name in ("redis-server", "redis-benchmark") if not shutil.which(name)), "")

    @classmethod
    def version(cls) -> str:
        found = re.search(r"v=(\S+)", run_output("redis-server", "--version"))
        return f"Redis {found[1] if found else 'of an unknown version'}"

    def command(self) -> list[str]:
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "auto-aof-rewrite-percentage": "0",
            "daemonize": "no",
        }
        return ["redis-server", *(word for key, value in options.items() for word in (f"--{key}", value))]

    def _run(self, number: int, connections: int, seconds: float) -> Measured:
        words = ["redis-benchmark", "-p", str(self.port), "-c", str(connections), "-n", str(number), "--csv"]
        return of_redis_csv(self.run([*words, "XADD", "events", "*", "data", "x" * SIZE], seconds))

    def measure(self, seconds: float, connections: int) -> Measured:
        first = self._run(self.FIRST, connections, 120)
        return self._run(max(1000, int(first.rate * seconds)), connections, seconds * 10 + 60)


PEERS: tuple[type[Peer], ...] = (Etcd, Postgres, Redis)
