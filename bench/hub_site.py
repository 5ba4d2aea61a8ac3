"""Service with a hub under measurement: gripproxy as shipped, with a store in a folder of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from bench.hub_load import Posted, Poster, batch, request
from bench.processes import cpu_seconds, pss_kb
from bench.programs import BenchError
from bench.targets import GripProxy, Wish

__all__ = ["KEY", "PREFIX", "HubProxy", "processors", "role", "watch_of"]

PREFIX = "/hub"
"""Path under which the route has the hub."""

FILL_BATCH = 1000
"""Events of a batch that fills a topic: the most that a request may have."""

FILL_CONNECTIONS = 4

KEY = "a key of the benchmark with 32 bytes or more"
"""Key that verifies tokens: subscriptions need an owner."""

CERTIFICATE = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=bench"
"""Arguments of ``openssl`` for a certificate and its key."""


class HubProxy(GripProxy):
    """This project with a hub, and beside it the usual backend for plain clients.

    Args:
        programs: folder of the compiled programs.
    """

    name = "hub"

    def __init__(self, programs: pathlib.Path) -> None:
        super().__init__(programs)
        self._topics = 0

    def commands(self, wish: Wish) -> list[list[str]]:
        """Write the configuration, and return the commands to start.

        Args:
            wish: the way in which the service is started.

        Returns:
            The commands, each with its arguments.
        """
        commands = super().commands(wish)
        config = self.folder / "gripproxy.conf"
        lines = (
            f"[hub]\nstore={self.store}\nhub_anonymous=all\nhub_sync=full\nhub_key={KEY}\ncallback_allow=127.0.0.0/8\npush_http=true\n"
            # One owner has all mailboxes and ranges that are measured.
            "mailboxes_per_owner_max=20000\nkeys_per_owner_max=5000000\n"
            "ranges_per_topic_max=20000\nranges_per_owner_max=20000\n"
        )
        if self._make_certificate():
            lines += "callback_ca=callback.crt\n"
        text = config.read_text()
        head = re.search(r"^\[hub\]\n", text, re.MULTILINE)
        config.write_text(text.replace(head[0], lines, 1) if head else f"{text}\n{lines}")
        routes = self.folder / "routes"
        routes.write_text(f"*,path_beg={PREFIX} hub\n{routes.read_text()}")
        return commands

    @property
    def has_certificate(self) -> bool:
        """True if the folder has a certificate for callbacks over TLS."""
        return (self.folder / "callback.crt").exists()

    def _make_certificate(self) -> bool:
        program = shutil.which("openssl")
        if program is None:
            return False
        files = ["-keyout", str(self.folder / "callback.key"), "-out", str(self.folder / "callback.crt")]
        command = [program, *CERTIFICATE.split(), "-addext", "subjectAltName=IP:127.0.0.1", *files]
        return subprocess.run(command, capture_output=True).returncode == 0

    def start(self, wish: Wish) -> None:
        super().start(wish)
        self._until("the hub answers", lambda: self._status(f"{PREFIX}/openapi.json") == 200)

    @property
    def store(self) -> pathlib.Path:
        """File of the store."""
        return self.folder / "hub.db"

    @property
    def socket(self) -> str:
        """Path of the hub's own socket.

        Raises:
            BenchError: there is none.
        """
        for path in sorted(self.folder.iterdir()):
            if path.is_socket() and path.name.endswith("hub"):
                return str(path)
        raise BenchError(f"the hub has no socket in {self.folder}")

    def topic(self, name: str, *, events: int | None = None, soft: bool = False) -> str:
        """Make a new topic, and return the path of its events behind the prefix.

        Args:
            name: first part of its name.
            events: how many are retained; None for all.
            soft: whether its events are those of another store.

        Raises:
            BenchError: the hub refuses it.
        """
        self._topics += 1
        name = f"{name}-{self._topics}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            settings = ({"retention": {"events": events}} if events else {}) | ({"store": "none"} if soft else {})
            body = json.dumps(settings)
            connection.request("PUT", f"{PREFIX}/topics/{name}", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        if answer.status not in (200, 201):
            raise BenchError(f"PUT /topics/{name} was answered with {answer.status}: {text[:300]!r}")
        return f"/topics/{name}/events"

    def poster(
        self,
        path: str,
        body: bytes,
        *,
        connections: int,
        content_type: str = "text/plain",
        direct: bool = False,
        keys: int = 10_000,
    ) -> Poster:
        """Return a publisher, to be closed.

        Args:
            path: as ``topic`` has it.
            body: content of each request.
            connections: how many.
            content_type: media type of the content.
            direct: to the hub's own socket instead of the proxy.
            keys: number of different keys.
        """
        message = request(path if direct else PREFIX + path, body, content_type=content_type)
        return Poster(self.programs, self.socket if direct else self.port, message, connections=connections, keys=keys)

    def document(self, path: str) -> Any:
        """Return a document of the hub.

        Args:
            path: behind the prefix.

        Raises:
            BenchError: the answer is not 200.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", PREFIX + path, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        if answer.status != 200:
            raise BenchError(f"GET {path} was answered with {answer.status}: {text[:300]!r}")
        return json.loads(text)

    def fill(self, path: str, number: int, *, keys: int = 0) -> Posted:
        """Publish events in large batches.

        Args:
            path: as ``topic`` has it.
            number: of events; a multiple of FILL_BATCH, or fewer.
            keys: number of different keys, in turn; 0 for events without.

        Returns:
            The report of the batches.

        Raises:
            BenchError: not all were taken.
        """
        each = min(number, FILL_BATCH)
        count = number // each
        body = batch(each, keys=keys > 0)
        poster = self.poster(
            *(path, body), connections=FILL_CONNECTIONS, content_type="application/json", direct=True, keys=max(1, keys)
        )
        with contextlib.closing(poster):
            posted = poster.post(count, seconds=600)
        if posted.taken != count:
            raise BenchError(f"of {count} batches {posted.taken} were taken")
        return posted

    def memory_by_role(self) -> dict[str, int]:
        """Return the memory of the processes, in KB, added up by their roles."""
        return {name: pss_kb(pids) for name, pids in self._pids_by_role().items()}

    def cpu_by_role(self) -> dict[str, float]:
        """Return the processor time of the processes, in seconds, added up by their roles."""
        return {name: cpu_seconds(pids) for name, pids in self._pids_by_role().items()}

    def cpu_of(self, name: str) -> float:
        """Return the processor time of the processes with a role, in seconds.

        Args:
            name: of the role.
        """
        return cpu_seconds(self._pids_by_role().get(name, ()))

    def _pids_by_role(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for pid in self.pids():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                found.setdefault(role(words), []).append(pid)
        return found


ROLES = ("worker", "handler", "hub", "writer_process", "reader_process", "sender_process")


def role(words: Iterable[str]) -> str:
    """Return the role of a process of the service; ``runner`` for those that have no other.

    Args:
        words: its command line.
    """
    for word in words:
        for name in ROLES:
            if word == name or word.endswith(f".{name}"):
                return name
    return "runner"


def watch_of(path: str, query: str = "") -> str:
    """Return the path of watches behind the prefix.

    Args:
        path: of the events of the topic.
        query: of the watch, with its question mark.
    """
    return f"{path.removesuffix('/events')}/watch{query}"


def processors(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> str:
    """Return a text about the processors that were taken, by roles.

    Args:
        before: processor time of each role, in seconds.
        after: the same later.
        seconds: time between.
    """
    shares = {name: (after[name] - before.get(name, 0.0)) / seconds for name in after}
    used = sorted(((share, name) for name, share in shares.items() if share >= 0.01), reverse=True)
    return "CPU: " + ", ".join(f"{name.removesuffix('_process')} {share:.2f}" for share, name in used)
