"""A hub on the running loop, with real store processes and without a handler: requests in, answers out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from griphub.service import Hub
from gripproxy.config import Config, load_config
from gripproxy.process.hub_sockets import hub_socket

__all__ = ["PATIENCE", "HubApi", "Response", "answers_until", "hub_api", "hub_config"]

PATIENCE: Final = 30.0


@dataclass
class Response:
    """Answer of the hub."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        """Return the body as lines of JSON."""
        return [json.loads(line) for line in self.body.splitlines() if line]

    @property
    def blocks(self) -> list[dict[str, str]]:
        """Return the fields of each block of an event stream."""
        found = []
        for block in self.body.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if fields:
                found.append(fields)
        return found


class HubApi:
    """A running hub, and one connection to it.

    Args:
        hub: the hub.
        path: of its socket.
    """

    def __init__(self, hub: Hub, path: str) -> None:
        self.hub = hub
        self._path = path

    @property
    def path(self) -> str:
        """Return the path of the hub's socket."""
        return self._path

    async def request(
        self,
        method: str,
        target: str,
        body: bytes | str | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a request on a connection of its own, and return the answer."""
        lines = [f"{method} {target} HTTP/1.1", "Host: hub"]
        if isinstance(body, Mapping):
            body = json.dumps(body)
            if not any(name.lower() == "content-type" for name in headers or ()):
                lines.append("Content-Type: application/json")
        content = body.encode() if isinstance(body, str) else (body or b"")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body is not None:
            lines.append(f"Content-Length: {len(content)}")
        return await self.raw("\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + content)

    async def raw(self, data: bytes) -> Response:
        """Send bytes on a connection of their own, and return the answer."""
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_unix_connection(self._path, limit=2**26)
            try:
                writer.write(data)
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                if head[0].endswith("100 Continue"):
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:-2])}
                status = int(head[0].split(" ")[1])
                length = int(headers.get("content-length", "0"))
                body = b"" if data.startswith(b"HEAD ") else await reader.readexactly(length)
                return Response(status, headers, body)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def make(self, topic: str, **settings: Any) -> None:
        """Make a topic."""
        response = await self.request("PUT", f"/topics/{topic}", settings)
        assert response.status in (200, 201), response

    async def wait_for_count(self, topic: str, most: int) -> None:
        """Wait until a topic has at most so many events: retention runs each second."""
        deadline = time.monotonic() + PATIENCE
        while (await self.request("GET", f"/topics/{topic}")).json["count"] > most:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)

    async def publish(self, topic: str, *values: Any, key: str | None = None, **headers: str) -> list[str]:
        """Publish events, and return their cursors."""
        events = [{"data": value, **({} if key is None else {"key": key})} for value in values]
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        response = await self.request("POST", f"/topics/{topic}/events", {"events": events}, named)
        assert response.status == 201, response
        return [event["cursor"] for event in response.json["events"]]


def hub_config(place: pathlib.Path, changes: Mapping[str, str] | None = None) -> Config:
    """Return the configuration of a hub whose files are in ``place``, with further values of ``[hub]``."""
    values = {"store": str(place / "hub.db"), "hub_anonymous": "all", "ballast": "0", **(changes or {})}
    text = f"[global]\nrundir={place}/run\n[hub]\n" + "".join(f"{name}={value}\n" for name, value in values.items())
    (place / "gripproxy.conf").write_text(text)
    return load_config(str(place / "gripproxy.conf"))


@contextlib.asynccontextmanager
async def hub_api(
    changes: Mapping[str, str] | None = None, directory: pathlib.Path | None = None
) -> AsyncIterator[HubApi]:
    """Run a hub for the time of the block; ``changes`` are further values of ``[hub]``."""
    with tempfile.TemporaryDirectory(prefix="hub-") as temporary:
        place = directory or pathlib.Path(temporary)
        config = hub_config(place, changes)
        hub = Hub(config)
        try:
            await hub.open()
            yield HubApi(hub, hub_socket(config))
            await hub.finish()
        finally:
            await hub.close()


async def answers_until(act: Callable[[], Awaitable[Response]], status: int) -> list[Response]:
    """Repeat a request until it has a status, and return all of its answers.

    Args:
        act: makes the request.
        status: of the last answer.
    """
    deadline = time.monotonic() + PATIENCE
    answers = [await act()]
    while answers[-1].status != status:
        assert time.monotonic() < deadline, answers[-1]
        await asyncio.sleep(0.02)
        answers.append(await act())
    return answers
