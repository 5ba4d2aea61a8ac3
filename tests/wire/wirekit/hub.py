"""A hub behind a site's proxy: a process of its own, which the proxy's route and control port lead to."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from tests.support.service import Service, alive, descendants
from tests.wire.wirekit.client import PATIENCE, Client
from tests.wire.wirekit.messages import Response
from tests.wire.wirekit.site import Site

__all__ = ["Follower", "Hub", "follow"]

STREAM = "Accept: text/event-stream"
LINES = "Accept: application/x-ndjson"


class Hub:
    """A running hub with a store in a private directory. Requests go through the proxy.

    Attributes:
        site: the proxy in front.
        root: path of the hub there.
        port: of the hub's own listener.
    """

    def __init__(
        self,
        site: Site,
        root: str = "/hub",
        port: str = "port1",
        values: Mapping[str, object] | None = None,
        handler: str = "",
    ) -> None:
        """Write the configuration, and start.

        Args:
            site: the proxy in front.
            root: path of the hub there.
            port: placeholder of its port.
            values: further keys of ``[hub]``.
            handler: further lines of ``[handler]``.
        """
        ports = site.proxy.ports
        self.site, self.root, self.port = site, root, ports[port]
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="wire-hub-", dir="/tmp"))
        self.store = self.directory / "hub.db"
        self._config = self.directory / "hub.conf"
        self._service: Service | None = None
        lines = {
            "store": self.store,
            "listen": f"127.0.0.1:{self.port}",
            "listen_path": root,
            "publish": f"http://127.0.0.1:{ports['control']}",
            "publish_sub": f"tcp://127.0.0.1:{ports['sub']}",
            "hub_anonymous": "all",
            "ballast": 0,
            **(values or {}),
        }
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        handler = f"[handler]\nreserved_key=the secret of the reserved channels\n{handler}"
        key = site.proxy.setup.config["proxy.sig_key"]
        self._config.write_text(
            f"[global]\nrundir={self.directory}/run\n[proxy]\nsig_key={key}\n{handler}[hub]\n{text}"
        )
        self.start()

    # Process

    def start(self) -> None:
        """Start the process, and wait until it serves."""
        self._service = Service([sys.executable, "-m", "gripproxy", "hub", f"--config={self._config}"])
        self._service.wait_for_log("hub ready")

    @property
    def log(self) -> str:
        """Everything logged since the last start."""
        assert self._service is not None
        return self._service.log

    def wait_log(self, pattern: str) -> None:
        """Wait until the log since the last start matches the regular expression."""
        assert self._service is not None
        self._service.wait_for_log(pattern)

    def kill(self) -> None:
        """End the process by SIGKILL, and wait until those below it have ended as well."""
        assert self._service is not None
        pids = descendants(self._service.process.pid)
        os.kill(pids[0], signal.SIGKILL)
        self._service.process.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while any(map(alive, pids)):
            assert time.monotonic() < deadline, f"processes {pids} outlive the hub"
            time.sleep(0.01)
        self._service.stop()
        self._service = None

    def stop(self) -> None:
        """End the process in the ordinary way."""
        if self._service is not None:
            service, self._service = self._service, None
            assert service.stop() == 0

    def store_command(self, *words: str) -> None:
        """Run ``gripproxy hub-store``."""
        subprocess.run([sys.executable, "-m", "gripproxy", "hub-store", *words], check=True, capture_output=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    # Requests

    def ask(self, method: str, path: str, *headers: str, body: bytes | str = b"") -> Response:
        """Send a request through the proxy; ``path`` is below the root."""
        return self.site.ask(method, self.root + path, *headers, body=body)

    def make(self, topic: str) -> str:
        """Make a topic, and return its path below the root."""
        answer = self.ask("PUT", f"/topics/{quote(topic, '')}", body="{}")
        assert answer.status == 201, (answer.line, answer.body)
        return f"/topics/{quote(topic, '')}"

    def publish(self, topic: str, *data: object, key: str | None = None) -> list[str]:
        """Publish events in one request; return their cursors."""
        events = [{"data": value, **({} if key is None else {"key": key})} for value in data]
        path, body = f"/topics/{quote(topic, '')}/events", json.dumps({"events": events})
        answer = self.ask("POST", path, "Content-Type: application/json", body=body)
        assert answer.status == 201, (answer.line, answer.body)
        return [event["cursor"] for event in answer.json()["events"]]


class Follower:
    """A stream of the hub, read event by event.

    Attributes:
        client: its connection.
        last_id: of the blocks so far.
    """

    def __init__(self, client: Client, *, lines: bool) -> None:
        """Read the body behind the head that ``client`` has read."""
        self.client = client
        self.last_id = ""
        self._lines = lines
        self._rest = b""

    def next(self, timeout: float = PATIENCE) -> tuple[str, dict[str, Any]]:
        """Return type and members of the next event or report; keep-alives are left out. Type ``end``: the end."""
        deadline = time.monotonic() + timeout
        mark = b"\n" if self._lines else b"\n\n"
        while True:
            block, found, rest = self._rest.partition(mark)
            if not found:
                part = self.client.piece(max(0.0, deadline - time.monotonic()))
                if not part:
                    assert not self._rest, self._rest
                    return "end", {}
                self._rest += part
                continue
            self._rest = rest
            if self._lines:
                data = block.decode()
            else:
                fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if ": " in line)
                self.last_id = fields.get("id", self.last_id)
                data = fields.get("data", "")
            if data:
                members: dict[str, Any] = json.loads(data)
                assert self._lines or members["type"] == fields.get("event", "event")
                return members["type"], members

    def events(self, count: int, timeout: float = PATIENCE) -> list[dict[str, Any]]:
        """Return the next events, of which each names the one before."""
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout
        while len(found) < count:
            kind, members = self.next(max(0.0, deadline - time.monotonic()))
            assert kind == "event", (kind, members, len(found))
            if found:
                assert members["prev_id"] == found[-1]["id"], (members, found[-1])
            found.append(members)
        return found

    def data(self, count: int, timeout: float = PATIENCE) -> list[Any]:
        """Return the data of the next events."""
        return [event["data"] for event in self.events(count, timeout)]


@contextlib.contextmanager
def follow(hub: Hub, path: str, *headers: str, lines: bool = False) -> Iterator[Follower]:
    """Open a stream through the proxy; ``path`` is that of a topic below the root, with the query of its events."""
    path, _, query = path.partition("?")
    if lines:
        query += "&follow=true"
    with hub.site.connect() as client:
        client.request("GET", f"{hub.root}{path}/events?{query}", LINES if lines else STREAM, *headers)
        head = client.head()
        assert head.status == 200, (head.line, client.rest())
        yield Follower(client, lines=lines)
