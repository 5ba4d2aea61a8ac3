"""Part of the hub's benchmark: mailboxes under a load of messages, and the memory of idle ones."""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.hub_load import KEY, SIZE
from bench.hub_parts import Bench
from bench.hub_site import PREFIX, HubProxy
from bench.latencies import Latencies
from bench.processes import settled
from bench.programs import BenchError, Program

__all__ = ["Polled", "Pollers", "mailboxes"]

POLLER = pathlib.Path(__file__).resolve().parent / "mailbox_poller.py"

FOLLOWERS = 20
"""Mailboxes that follow each key."""

KEYS = 10
"""Keys that each mailbox follows."""

BATCH = 50
"""Events of a request of the publisher."""

COLUMNS = ("messages/s", "replies/s", "p50, ms", "p99, ms", "most, ms")


@dataclass(frozen=True)
class Polled:
    """Report of subscribers.

    Attributes:
        replies: that had messages.
        messages: in them.
        failures: answers other than 200, and connections that ended.
        lost: replies with losses.
        most: greatest time of a reply, in ms: from the storing of its first message to its arrival.
        latencies: these times.
    """

    replies: int
    messages: int
    failures: int
    lost: int
    most: float
    latencies: Latencies


class Pollers:
    """Program with subscribers that poll as fast as replies come.

    Args:
        port: of the service, on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self._program = Program([sys.executable, str(POLLER), str(port), PREFIX])

    def open(self, name: str, count: int) -> Polled:
        """Begin the polls of subscribers ``name0``, ``name1`` and so on.

        Args:
            name: first part of their names.
            count: how many.

        Returns:
            The report so far.

        Raises:
            BenchError: the program does not answer.
        """
        return self._ask(f"open {name} {count}")

    def zero(self) -> Polled:
        """Begin a new count.

        Returns:
            The report of nothing.
        """
        return self._ask("zero")

    def report(self) -> Polled:
        """Return the report since ``zero``."""
        return self._ask("report")

    def _ask(self, command: str) -> Polled:
        self._program.tell(command)
        answer = self._program.answer(120)
        return Polled(
            *(answer["replies"], answer["messages"], answer["failures"], answer["lost"]),
            answer["most"] / 1e6,
            Latencies(answer["histogram"]),
        )

    def close(self) -> None:
        """End the program, and so its polls."""
        self._program.close()


class Followers:
    """Maker of mailboxes, on one connection to the proxy.

    Args:
        site: the service.
    """

    def __init__(self, site: HubProxy) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)

    def follow(self, name: str, topic: str, keys: Sequence[str], sequence: int = 1) -> None:
        """Have a subscriber follow keys.

        Args:
            name: of the subscriber.
            topic: name of the topic.
            keys: in it.
            sequence: number of the batch of commands.

        Raises:
            BenchError: the hub refuses it.
        """
        commands = [{"subscribe": {"topic": topic, "key": key}} for key in keys]
        body = json.dumps({"sequence": sequence, "commands": commands})
        path = f"{PREFIX}/subscribers/{name}/commands"
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise BenchError(f"commands were answered with {answer.status}: {text[:300]!r}")

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


@contextlib.contextmanager
def polling(site: HubProxy, name: str, count: int) -> Iterator[Pollers]:
    """Subscribers that poll.

    Args:
        site: the service.
        name: first part of their names.
        count: how many.
    """
    with contextlib.closing(Pollers(site.port)) as pollers:
        pollers.open(name, count)
        yield pollers


def topic_of(path: str) -> str:
    """Return the name of a topic.

    Args:
        path: of its events.
    """
    return path.split("/")[2]


def batch(number: int) -> bytes:
    """Return a batch of events with keys, as JSON.

    Args:
        number: of events.
    """
    event = {"content_type": "text/plain", "key": KEY, "data": "x" * SIZE}
    return json.dumps({"events": [event] * number}).encode()


def mailboxes(bench: Bench) -> None:
    """Mailboxes under a load of messages, and the memory of idle ones.

    Args:
        bench: the run.
    """
    scale = bench.scale
    few = scale.mailboxes
    title = f"Mailboxes, {FOLLOWERS} with each key, events of {SIZE} bytes"
    bench.begin("mailboxes", f"{title}, {scale.messages:,} messages/s altogether", COLUMNS)
    for count in (few, 10 * few):
        with bench.measuring(f"{count:,} mailboxes"):
            _loaded(bench, count)
    columns = ("KB each", "of it workers", "handler", "hub")
    bench.begin("mailbox-memory", f"Memory (PSS) of each of {10 * few:,} mailboxes with a held poll", columns)
    for keys in (KEYS, scale.keys):
        with bench.measuring(f"{keys:,} keys each"):
            _memory(bench, 10 * few, keys)


def _loaded(bench: Bench, count: int) -> None:
    """Measure mailboxes that get messages at a rate."""
    scale = bench.scale
    keys = max(1, count * KEYS // FOLLOWERS)
    with bench.site() as site, contextlib.closing(Followers(site)) as followers:
        path = site.topic("loaded")
        topic = topic_of(path)
        for number in range(count):
            # Each key has the same number of followers, and those of a mailbox are far apart: they come in turn.
            places = [(number + place * keys // KEYS) % keys for place in range(KEYS)]
            followers.follow(f"{topic}.{number}", topic, [f"k{place:07}" for place in places])
        rate = max(1, round(scale.messages / FOLLOWERS / BATCH))
        poster = site.poster(path, batch(BATCH), connections=4, content_type="application/json", keys=keys)
        with polling(site, f"{topic}.", count) as pollers, contextlib.closing(poster):
            # At first all polls are held, and all mailboxes are answered together.
            poster.post(seconds=scale.seconds, rate=rate)
            pollers.zero()
            cpu = {name: site.cpu_of(name) for name in ("worker", "handler", "hub")}
            posted = poster.post(seconds=scale.seconds, rate=rate)
            found = pollers.report()
            used = ", ".join(f"{name} {(site.cpu_of(name) - cpu[name]) / scale.seconds:.0%}" for name in cpu)
        quantile = found.latencies.quantile
        times = (quantile(0.5), quantile(0.99), found.most)
        values = (found.messages / scale.seconds, found.replies / scale.seconds, *times)
        note = f"CPU: {used}"
        if found.failures or found.lost or posted.refused:
            note += f"; {found.failures} failures, {found.lost} losses, {posted.refused} publishes refused"
        failed = not found.messages or found.failures > 0
        bench.row(f"{count:,} mailboxes", dict(zip(COLUMNS, values, strict=True)), note, failed=failed)


def _memory(bench: Bench, count: int, keys: int) -> None:
    """Measure idle mailboxes whose polls are held; keys are shared by as many as under a load, if there are many."""
    with bench.site() as site, contextlib.closing(Followers(site)) as followers:
        topic = topic_of(site.topic("idle"))
        followers.follow(f"{topic}-first0", topic, ["k"])
        with polling(site, f"{topic}-first", 1):
            settled(site.memory, most=bench.scale.settle)
        before = site.memory_by_role()
        for number in range(count):
            for start in range(0, keys, 2000):
                chosen = [f"{number}-{place}" for place in range(start, min(keys, start + 2000))]
                followers.follow(f"{topic}.{number}", topic, chosen, start // 2000 + 1)
        with polling(site, f"{topic}.", count):
            settled(site.memory, most=bench.scale.settle)
            after = site.memory_by_role()
        grown = {name: (after[name] - before.get(name, 0)) / count for name in after}
        parts = (grown.get("worker", 0.0), grown.get("handler", 0.0), grown.get("hub", 0.0))
        columns = bench.parts[-1].columns
        bench.row(f"{keys:,} keys each", dict(zip(columns, (sum(grown.values()), *parts), strict=True)))
