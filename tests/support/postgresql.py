"""PostgreSQL of the distribution: a cluster of its own in a folder of its own, as the user ``postgres`` if need be."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from tests.support.ports import free_port

__all__ = ["Cluster", "programs"]

PATIENCE = 60.0


def programs() -> pathlib.Path:
    """Return the folder with the programs of the newest PostgreSQL."""
    found = [path.parent for path in pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    assert found, "PostgreSQL is missing: apt-get install postgresql"
    return max(found, key=lambda path: int(path.parent.name))


class Cluster:
    """Cluster that is started and stopped.

    Args:
        folder: made for it.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """Connection string."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"

    def initialise(self) -> None:
        """Make an empty cluster."""
        words = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync"]
        self._run("initdb", "--pgdata", str(self.data), *words)

    def copy_of(self, other: Cluster) -> None:
        """Make a standby of another cluster."""
        where = ["--host=127.0.0.1", f"--port={other.port}", "--username=postgres"]
        words = ["--wal-method=stream", "--write-recovery-conf", "--checkpoint=fast"]
        self._run("pg_basebackup", "--pgdata", str(self.data), *where, *words)

    def start(self) -> None:
        """Start the server, and return when it accepts connections."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "max_connections": 60,
            "fsync": "off",
            "wal_level": "replica",
            "deadlock_timeout": "10ms",
        }
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(programs() / "postgres"), "-D", str(self.data)]
                + [word for key, value in settings.items() for word in ("-c", f"{key}={value}")],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._as_user(),
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.dsn, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
                assert time.monotonic() < deadline, "PostgreSQL does not accept connections"
                time.sleep(0.05)

    def promote(self) -> None:
        """Make a primary of a standby."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("select pg_promote()")

    def stop(self) -> None:
        """End the server without waiting for its clients."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(2)  # fast shutdown
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def save(self, name: str) -> None:
        """Copy the files of the stopped server."""
        shutil.copytree(self.data, self.folder / name, symlinks=True, copy_function=self._copy)
        self._owned(self.folder / name)

    def restore(self, name: str) -> None:
        """Put the files back that ``save`` has copied."""
        shutil.rmtree(self.data)
        (self.folder / name).rename(self.data)

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    @staticmethod
    def _copy(source: str, target: str) -> str:
        return str(shutil.copy2(source, target))

    def _owned(self, folder: pathlib.Path) -> None:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
            for path in folder.rglob("*"):
                shutil.chown(path, "postgres", "postgres")
        folder.chmod(0o700)

    def _as_user(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        return {"user": "postgres", "group": "postgres", "extra_groups": []}

    def _run(self, program: str, *words: str) -> None:
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        command: Sequence[str] = [str(programs() / program), *words]
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE, check=False, **self._as_user()
        )
        assert done.returncode == 0, f"{program}: {done.stderr[-2000:]}"
