"""Clients that are held: waiting until they are, and listening to several at once."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Iterator, Mapping

from tests.wire.wirekit.client import Client
from tests.wire.wirekit.site import Site

__all__ = ["answered", "listen", "long_poll", "stream"]


@contextlib.contextmanager
def long_poll(
    site: Site, uri: str, channel: str, *headers: str, method: str = "GET", body: str = "", version: str = "HTTP/1.1"
) -> Iterator[Client]:
    """Send a request and give its client once the proxy has subscribed to the channel.

    A long-poll shows nothing to its client while it is held; the subscription at the SUB socket tells. So the channel
    must be one that nobody was subscribed to before.
    """
    with site.publisher.feed() as feed, site.connect() as client:
        client.request(method, uri, *headers, body=body, version=version)
        feed.wait_for(b"\x01" + channel.encode())
        yield client


@contextlib.contextmanager
def stream(site: Site, uri: str, *headers: str, opening: bytes = b"") -> Iterator[Client]:
    """Send a GET, and give its client once the head and the initial body (200, exactly `opening`) have come."""
    with site.connect() as client:
        client.request("GET", uri, *headers)
        head = client.head()
        assert head.line == "200 OK", head.line
        assert client.data(len(opening)) == opening
        yield client


def answered(client: Client, publish: Callable[[], None]) -> Client:
    """Publish again and again until something comes; for a long-poll that was asked for again.

    Nothing tells when it is held once more, and what is published without an id meanwhile is for nobody.
    """
    publish()
    while client.silent(0.3):
        publish()
    return client


def listen(clients: Mapping[str, Client], seconds: float) -> dict[str, list[tuple[float, bytes]]]:
    """Read chunks of several streams for so long.

    Returns what came for each: seconds since the call, and the content of the chunk.
    """
    begin = time.monotonic()
    got: dict[str, list[tuple[float, bytes]]] = {name: [] for name in clients}
    sockets = {client.sock: name for name, client in clients.items()}
    while (left := begin + seconds - time.monotonic()) > 0:
        waiting = [c.sock for c in clients.values() if c.buffer]
        ready = waiting or select.select(list(sockets), [], [], left)[0]
        now = time.monotonic() - begin
        for sock in ready:
            name = sockets[sock]
            part = clients[name].piece()
            if part:
                got[name].append((now, part))
            else:
                del sockets[sock]
    return got
