"""One play, for any proxy: clients of all kinds come, hear, and go, step by step, and the stats socket tells of it.

Each step ends when the stats have told all that it does, and with an item on the channel ``marker``: its event divides
the events of a recording into steps, however long they took.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable

from spark_stats.event import parse, plain
from tests.wire.wirekit import Client, Publisher, Setup, Site, response
from tests.wire.wirekit.events import GRIP, event, events, opened, subscribe
from tests.wire.wirekit.proxy import UPDATED
from tests.wire.wirekit.websocket import Socket, handshake

__all__ = ["MARKER", "Play", "Watcher", "end", "perform", "setup"]

PATIENCE = 60.0
"""Seconds for the stats to tell of something."""

QUIET = 4.0
"""Seconds without any event after which there is nothing to tell any more: reports come every second."""

MARKER = "marker"


def setup(stats_format: str) -> Setup:
    """Routes with ids and one without, short reports, and blocks."""
    return Setup(
        routes=(
            "begin.stats,id=probe test\nmarker,id=marker {backend}\nlive,id=live {backend}\npoll,id=poll {backend}\n"
            "chat,id=chat {backend},over_http\n* {backend}\n"
        ),
        config={
            **UPDATED,
            "handler.stats_format": stats_format,
            "handler.stats_report_interval": 1,
            "handler.message_block_size": 10,
            # So that 1.36, which now and then forgets to say that one is gone, says so soon.
            "global.stats_connection_ttl": 20,
            # As long as ours lingers at least, where first subscriptions have updates.
            "handler.subscription_linger": 5,
        },
    )


class Watcher:
    """What the stats have told so far."""

    def __init__(self, publisher: Publisher) -> None:
        self._sock = publisher.subscribe_stats()
        self.present: dict[str, str] = {}
        """Peer by id, of connections that are there."""
        self.came: Counter[str] = Counter()
        """Connections by peer."""
        self.subscribers: dict[tuple[str, str], int] = {}
        self.sums: Counter[str] = Counter()
        self.reports: Counter[str] = Counter()
        """Reports by route."""
        self.items: set[str] = set()
        self.last = 0.0
        """When the last event came, and when the last that is no report."""
        self.stirred = 0.0

    def look(self, seconds: float) -> None:
        """Take what is there, or comes within so many seconds."""
        if not self._sock.poll(round(seconds * 1000)):
            return
        kind, raw, _ = parse(self._sock.recv())
        fields = plain(raw)
        self.last = time.monotonic()
        if kind != b"report":
            self.stirred = self.last
        if kind == b"conn":
            if fields.get("unavailable"):
                self.present.pop(fields["id"], None)
            elif fields["id"] not in self.present:
                self.present[fields["id"]] = fields["peer-address"]
                self.came[fields["peer-address"]] += 1
        elif kind == b"sub":
            self.subscribers[fields["mode"], fields["channel"]] = fields.get("subscribers", 0)
        elif kind == b"message":
            self.sums["addressed"] += fields["count"]
            self.items.add(fields.get("item-id", ""))
        elif kind == b"activity":
            self.sums["activity"] += fields["count"]
        elif kind == b"counts":
            self.sums["requests"] += fields["requests-received"]
        elif kind in (b"delivery", b"recovery"):
            for name, value in fields.items():
                if type(value) is int:
                    self.sums[f"{kind.decode()} {name}"] += value
        elif kind == b"report":
            self.reports[fields.get("route", "")] += 1
            for name, value in fields.items():
                if type(value) is int:
                    self.sums[f"report {name}"] += value

    def close(self) -> None:
        """Close the socket."""
        self._sock.close(0)

    @property
    def quiet(self) -> bool:
        """Nothing has come for long: reports end with one of nothing, but not always with 1.36."""
        return time.monotonic() > self.last + QUIET

    def until(self, done: Callable[[], bool]) -> None:
        """Read until it is so."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, (self.present, self.subscribers, self.sums, self.items)
            self.look(0.2)


class Play:
    """The clients of one site, and what the stats are to tell of them. Use as a context manager."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.stats = Watcher(site.publisher)
        self.step = 0
        self.requests = 0
        """New ones so far."""
        self.again = 0
        """Of held ones: the update after a first subscription."""
        self._open = contextlib.ExitStack()
        self._peer = 0
        self._marked: Client | None = None

    def __enter__(self) -> Play:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    # --- clients

    def peer(self) -> str:
        """A new client's address, which tells it apart in the stats."""
        self._peer += 1
        return f"10.0.0.{self._peer}"

    def ask(self, host: str, method: str = "GET", uri: str = "/page", body: str = "") -> None:
        """A request that is answered at once."""
        peer = self.peer()
        self.requests += 1
        assert self.site.ask(method, uri, f"Host: {host}", f"X-Forwarded-For: {peer}", body=body).status == 200
        self.stats.until(lambda: self.stats.came[peer] > 0 and peer not in self.stats.present.values())

    def hold(self, host: str, mode: str, channel: str, subscribers: int) -> tuple[str, Client]:
        """A request that is held; ``subscribers`` are there then. Returns the peer and the client."""
        peer, path = self.peer(), f"/{mode}-{channel}"
        backend = self.site.backend
        lines = (f"Grip-Hold: {mode}", f"Grip-Channel: {channel}", "Grip-Timeout: 3600")
        backend.on(path, response("200 OK", *lines, "Content-Type: text/plain", body="[]"))
        client = self._open.enter_context(self.site.connect())
        before = backend.count(path)
        client.request("GET", path, f"Host: {host}", f"X-Forwarded-For: {peer}")
        self.requests += 1
        if mode == "stream":
            assert client.head().status == 200
            assert client.data(2) == b"[]"
        elif subscribers == 1:
            # A second after the first subscription its backend is asked again.
            backend.request(path, before + 1, PATIENCE)
            self.again += 1
        self.there(peer, mode, channel, subscribers)
        return peer, client

    def there(self, peer: str, mode: str, channel: str, subscribers: int) -> None:
        """The stats know of a client and its subscription."""
        self.stats.until(lambda: peer in self.stats.present.values())
        self.subscribed(mode, channel, subscribers)

    def subscribed(self, mode: str, channel: str, subscribers: int) -> None:
        self.stats.until(lambda: self.stats.subscribers.get((mode, channel)) == subscribers)

    def talk(self, channel: str, subscribers: int) -> tuple[str, Socket]:
        """A WebSocket whose backend speaks HTTP, and answers each message with one."""
        peer, path = self.peer(), f"/ws-{channel}"
        self.site.backend.on(path, lambda exchange: self._answer(exchange.request.body, channel))
        client = self._open.enter_context(self.site.connect())
        client.request("GET", path, *handshake("Host: chat", f"X-Forwarded-For: {peer}"))
        self.requests += 1
        assert client.head().status == 101
        self.there(peer, "ws", channel, subscribers)
        return peer, Socket(client, mask=True)

    def _answer(self, body: bytes, channel: str) -> bytes:
        if body.startswith(b"OPEN"):
            return opened(subscribe(channel), headers=(GRIP,))
        if body.startswith(b"CLOSE"):
            return events(event("CLOSE", body[-4:-2]))
        return events(event("TEXT", "m:pong")) if b"ping" in body else events()

    def gone(self, peer: str) -> None:
        """The stats say that a client is gone."""
        self.stats.until(lambda: peer not in self.stats.present.values())

    # --- steps

    def begin(self) -> None:
        """Wait until the stats are heard."""

        def heard() -> bool:
            self.requests += 1
            # A report may be of what was before.
            return self.site.get("/", "Host: begin.stats").status == 200 and self.stats.stirred > 0

        self.stats.until(heard)

    def start(self) -> None:
        """Hold the stream that marks are for, and let the reports of what was before go by."""
        _, self._marked = self.hold("marker", "stream", MARKER, 1)
        stats = self.stats
        # If the first ones were not heard, their count may not be either.
        stats.until(lambda: stats.sums["requests"] >= self.requests or time.monotonic() > stats.stirred + QUIET)
        stats.until(lambda: stats.sums["report minutes"] >= stats.came.total())
        before = stats.reports.copy()
        stats.until(lambda: any(number > before[route] + 3 for route, number in stats.reports.items()))
        self.requests = self.again = 0
        stats.sums.clear()
        self.mark()

    def mark(self) -> None:
        """End a step, when all requests were told."""
        stats, step = self.stats, f"step-{self.step}"
        stats.until(lambda: stats.sums["requests"] >= self.requests)
        stats.until(lambda: stats.sums["activity"] >= self.requests + self.again)
        assert stats.sums["requests"] == self.requests, (step, stats.sums, self.requests)
        self.site.publisher.stream(MARKER, "x", id=step)
        stats.until(lambda: step in stats.items)
        # Told when it is addressed: a client that is closed before it is written would not have it.
        assert self._marked is not None
        assert self._marked.data(1) == b"x"
        self.step += 1


def perform(play: Play) -> None:
    """All steps, and the end of everybody."""
    stats, site = play.stats, play.site
    for host in ("live", "poll", "other", "other"):
        play.ask(host)
    play.ask("poll", "POST", body="x" * 1000)
    play.mark()

    play.hold("live", "stream", "a", 1)
    _, second = play.hold("live", "stream", "a", 2)
    third, loose = play.hold("other", "stream", "b", 1)
    play.mark()

    polls = [play.hold("poll", "response", "p", number) for number in (1, 2)]
    play.mark()

    _, socket = play.talk("a", 1)
    other, leaving = play.talk("w", 1)
    play.mark()

    both = {"http-stream": {"content": "12345678901"}, "ws-message": {"content": "hello"}}
    site.publisher.publish({"channel": "a", "id": "both", "formats": both})
    site.publisher.publish({"channel": "a", "id": "both", "formats": both})
    site.publisher.publish({"channel": "nobody", "id": "unheard", "formats": both})
    site.publisher.push_item({"channel": "b", "id": "pushed", "formats": {"http-stream": {"content": "by ZeroMQ"}}})
    assert second.data(11) == b"12345678901"
    assert loose.data(9) == b"by ZeroMQ"
    assert socket.says("hello")
    stats.until(lambda: stats.items >= {"both", "pushed"})
    play.mark()

    site.publisher.answer("p", "over", id="answer")
    for peer, client in polls:
        assert client.response().body == b"over"
        play.gone(peer)
    play.mark()

    play.hold("live", "stream", "a", 3)
    socket.text("ping")
    assert socket.says("pong")
    play.mark()

    site.publisher.publish({"channel": "a", "formats": {"http-stream": {"content": "x" * 100}}})
    second.data(100)
    leaving.close(1000)
    assert leaving.closed() == (1000, b"")
    play.gone(other)
    play.subscribed("ws", "w", 0)
    play.mark()

    second.close()
    play.subscribed("stream", "a", 2)
    site.publisher.end("b")
    assert loose.rest() == b""
    play.gone(third)
    play.subscribed("stream", "b", 0)
    # Long-polls linger.
    play.subscribed("response", "p", 0)
    play.mark()


def end(play: Play) -> None:
    """To be called when all clients are closed: wait for all that the stats have to tell of it."""
    stats = play.stats
    stats.until(lambda: not stats.present and not any(stats.subscribers.values()))
    stats.until(lambda: stats.sums["report sent"] >= stats.sums["addressed"])
    stats.until(lambda: stats.sums["report minutes"] >= play.requests)
    stats.until(lambda: stats.quiet)
    stats.close()
