"""WebSocket-over-HTTP as a backend speaks it: events in bodies (docs/grip.md §8.3)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tests.wire.wirekit.backend import Backend
from tests.wire.wirekit.client import PATIENCE
from tests.wire.wirekit.messages import Request, response, to_bytes
from tests.wire.wirekit.site import Site
from tests.wire.wirekit.websocket import Socket, websocket

__all__ = [
    "EVENTS",
    "GRIP",
    "Event",
    "control",
    "event",
    "events",
    "offered",
    "opened",
    "over_http",
    "subscribe",
]

EVENTS = "Content-Type: application/websocket-events"
GRIP = "Sec-WebSocket-Extensions: grip"
Event = tuple[str, bytes | None]


def event(kind: str, content: bytes | str | None = None) -> bytes:
    """Return one event; without content it has no length either."""
    if content is None:
        return f"{kind}\r\n".encode()
    data = to_bytes(content)
    return b"%s %x\r\n%s\r\n" % (kind.encode(), len(data), data)


def events(*parts: bytes, headers: tuple[str, ...] = ()) -> bytes:
    """Return the response of a backend with these events."""
    return response("200 OK", EVENTS, *headers, body=b"".join(parts))


def opened(*parts: bytes, headers: tuple[str, ...] = ()) -> bytes:
    """Return the response that accepts a WebSocket and says more; add `GRIP` to the headers for control messages."""
    return events(event("OPEN"), *parts, headers=headers)


def control(kind: str, **fields: Any) -> bytes:
    """Return the content of a control message (docs/grip.md §8.5); ``content_bin`` becomes ``content-bin``."""
    return b"c:" + json.dumps({"type": kind, **{k.replace("_", "-"): v for k, v in fields.items()}}).encode()


def subscribe(channel: str, **fields: Any) -> bytes:
    """Return a TEXT event with a subscribe control message."""
    return event("TEXT", control("subscribe", channel=channel, **fields))


def offered(request: Request) -> list[Event]:
    """Return the events of a request that the proxy made, in order. The body must be well formed to its end."""
    found: list[Event] = []
    left = request.body
    while left:
        line, end, left = left.partition(b"\r\n")
        assert end, f"a line without its end: {line!r}"
        kind, blank, size = line.decode().partition(" ")
        if not blank:
            found.append((kind, None))
            continue
        length = int(size, 16)
        assert left[length : length + 2] == b"\r\n", f"an event without its end: {request.body[:500]!r}"
        found.append((kind, left[:length]))
        left = left[length + 2 :]
    return found


class Conversation:
    """An open WebSocket whose backend speaks HTTP, from both of its ends."""

    def __init__(self, client: Socket, backend: Backend, path: str) -> None:
        """Made by `over_http`."""
        self.client = client
        self.backend = backend
        self.path = path
        self.asked = 1
        """How many requests the case has looked at; the first is the OPEN."""

    @property
    def id(self) -> str:
        """The connection id."""
        return self.backend.request(self.path)["Connection-Id"] or ""

    def request(self, timeout: float = PATIENCE) -> Request:
        """Return the next request of this WebSocket."""
        self.asked += 1
        return self.backend.request(self.path, self.asked - 1, timeout)

    def offer(self, timeout: float = PATIENCE) -> list[Event]:
        """Return the events of the next request."""
        return offered(self.request(timeout))

    def no_more(self) -> bool:
        """Tell whether the backend has got no request that the case has not looked at."""
        return self.backend.count(self.path) == self.asked


@contextlib.contextmanager
def over_http(site: Site, uri: str, *answers: Any, headers: tuple[str, ...] = ()) -> Iterator[Conversation]:
    """Open a WebSocket over HTTP. `answers` are the backend's, one per request; after them it answers with no event.

    Without any answer the backend accepts, with GRIP. `headers` belong to the client's handshake.
    """
    path = uri.partition("?")[0]
    first = answers or (opened(headers=(GRIP,)),)
    site.backend.on(path, [*first, events()])
    with websocket(site, uri, *headers) as client:
        yield Conversation(client, site.backend, path)
