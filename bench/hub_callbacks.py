"""Part of the hub's benchmark: callbacks of subscriptions, replayed and live, plain and over TLS."""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from bench.hub_load import SIZE
from bench.hub_parts import ITEM, Bench
from bench.hub_site import KEY, PREFIX, HubProxy
from bench.latencies import Latencies
from bench.ports import free_ports
from bench.programs import BenchError, Program

__all__ = ["Owner", "Received", "Receiver", "callbacks", "receiver_of"]

UNCONFIRMED = 90
"""Subscriptions made before the callbacks of the ones before are confirmed: the hub has a bound for each host."""

COLUMNS = ("callbacks/s", "p50, ms", "p99, ms", "sender, MB", "CPU of the sender, µs")

TLS_RECEIVER = pathlib.Path(__file__).resolve().parent / "tls_receiver.py"


@dataclass(frozen=True)
class Received:
    """Report of a receiver.

    Attributes:
        events: acknowledged ones.
        challenges: confirmed ones.
        first: nanoseconds of the monotonic clock at the first event.
        last: nanoseconds of the monotonic clock at the last event.
        latencies: times from publishing to arrival, of events with a mark.
    """

    events: int
    challenges: int
    first: int
    last: int
    latencies: Latencies

    @property
    def rate(self) -> float:
        """Events acknowledged a second."""
        return self.events / max(1e-9, (self.last - self.first) / 1e9)


class Receiver:
    """Program that confirms challenges and acknowledges events.

    Args:
        command: of the program, without its ports.
        ports: of 127.0.0.1 to listen on.
        scheme: of its URLs.
    """

    def __init__(self, command: Sequence[str], ports: Sequence[int], scheme: str = "http") -> None:
        self._program = Program([*command, *map(str, ports)])
        self.urls = [f"{scheme}://127.0.0.1:{port}/callback" for port in ports]

    def zero(self) -> Received:
        """Forget the events so far; the report is that of nothing, but for the challenges."""
        self._program.tell("zero")
        return self._received(30)

    def wait(self, count: int, seconds: float) -> Received:
        """Wait for events.

        Args:
            count: of events since ``zero``.
            seconds: greatest time for them.

        Returns:
            The report, which may have fewer.

        Raises:
            BenchError: the program does not answer.
        """
        self._program.tell(f"wait {count} {int(seconds * 1000)}")
        return self._received(seconds + 30)

    def _received(self, seconds: float) -> Received:
        answer = self._program.answer(seconds)
        return Received(
            *(answer["events"], answer["challenges"], answer["first"], answer["last"]), Latencies(answer["histogram"])
        )

    def close(self) -> None:
        """End the program."""
        self._program.close()


class Owner:
    """Owner of subscriptions, on one connection to the proxy."""

    def __init__(self, site: HubProxy) -> None:
        claims = {"iss": "bench", "sub": "bench", "aud": "gripproxy-hub", "exp": int(time.time()) + 86_400}
        rights = {right: ["*"] for right in ("publish", "subscribe", "admin")}
        self._token = jwt.encode(claims | rights, KEY, "HS256")
        self._connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)

    def post(self, path: str, body: dict[str, Any]) -> None:
        """Post an object; see ``send``."""
        self.send("POST", path, body)

    def send(self, method: str, path: str, body: dict[str, Any]) -> None:
        """Send an object, again while a limit is reached or the sender is being started.

        Args:
            method: of the request.
            path: behind the prefix.
            body: the object.

        Raises:
            BenchError: the hub refuses it.
        """
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        deadline = time.monotonic() + 10
        while True:
            self._connection.request(method, PREFIX + path, json.dumps(body), headers)
            answer = self._connection.getresponse()
            text = answer.read()
            if 200 <= answer.status <= 299:
                return
            if answer.status not in (429, 503) or time.monotonic() > deadline:
                raise BenchError(f"{method} {path} was answered with {answer.status}: {text[:300]!r}")
            time.sleep(0.1)

    def subscribe(self, events: str, urls: Sequence[str], number: int, receiver: Receiver) -> None:
        """Make subscriptions from the beginning, and wait until all are confirmed.

        Args:
            events: path of the topic's events.
            urls: of the callbacks, in turn.
            number: of subscriptions.
            receiver: behind the callbacks; its events count from here on.

        Raises:
            BenchError: some are not confirmed.
        """
        path = events.removesuffix("/events") + "/subscriptions"
        confirmed = receiver.zero().challenges
        for index in range(number):
            body = {"subscription_id": f"s{index}", "callback": urls[index % len(urls)], "after": "0"}
            self.post(path, body)
            if (index + 1) % UNCONFIRMED == 0 or index + 1 == number:
                self._until(receiver, confirmed + index + 1)

    def _until(self, receiver: Receiver, challenges: int) -> None:
        deadline = time.monotonic() + 30
        while (found := receiver.wait(0, 0).challenges) < challenges:
            if time.monotonic() > deadline:
                raise BenchError(f"only {found} of {challenges} callbacks were confirmed")
            time.sleep(0.02)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


@contextlib.contextmanager
def receiver_of(bench: Bench, site: HubProxy, number: int, *, tls: bool) -> Iterator[Receiver]:
    """A receiver on a number of ports."""
    if tls and not site.has_certificate:
        raise BenchError("no certificate without openssl: apt-get install openssl")
    plain = [f"{bench.programs}/receiver"]
    command = [sys.executable, str(TLS_RECEIVER), str(site.folder)] if tls else plain
    receiver = Receiver(command, free_ports(number), "https" if tls else "http")
    try:
        yield receiver
    finally:
        receiver.close()


def callbacks(bench: Bench) -> None:
    """Callbacks to many receivers and to one: replayed as fast as they go, live at a rate, and a long history.

    Args:
        bench: the run.
    """
    scale = bench.scale
    number = scale.subscriptions
    bench.begin("callbacks", f"Callbacks of {number} subscriptions, events of {SIZE} bytes, acknowledged", COLUMNS)
    for ports, tls in ((number, False), (1, False), (1, True)):
        to = f"to {f'{ports} receivers' if ports > 1 else 'one receiver'}{' over TLS' if tls else ''}"
        with bench.measuring(f"replay {to}"):
            _replay(bench, f"replay {to}", ports, number, scale.replayed, tls=tls)
    with bench.measuring("live"):
        _live(bench, number)
    with bench.measuring("long history"):
        _replay(bench, f"replay of {scale.long:,} events to one callback", 1, 1, scale.long)


def _figures(site: HubProxy, found: Received, cpu: float) -> dict[str, float]:
    memory = site.memory_by_role().get("sender_process", 0) / 1000
    micros = (site.cpu_of("sender_process") - cpu) * 1e6 / max(1, found.events)
    figures = {COLUMNS[0]: found.rate, COLUMNS[3]: memory, COLUMNS[4]: micros}
    if len(found.latencies):
        figures |= {COLUMNS[1]: found.latencies.quantile(0.5), COLUMNS[2]: found.latencies.quantile(0.99)}
    return figures


def _replay(bench: Bench, name: str, ports: int, number: int, events: int, *, tls: bool = False) -> None:
    """Measure how fast stored events are delivered to new subscriptions."""
    with (
        bench.site() as site,
        receiver_of(bench, site, ports, tls=tls) as receiver,
        contextlib.closing(Owner(site)) as owner,
    ):
        path = site.topic("replayed")
        site.fill(path, events)
        cpu = site.cpu_of("sender_process")
        owner.subscribe(path, receiver.urls, number, receiver)
        found = receiver.wait(number * events, _patience(number * events))
        note = "" if found.events == number * events else f"{found.events:,} of {number * events:,} callbacks"
        bench.row(name, _figures(site, found, cpu), note, failed=bool(note))


def _patience(count: int) -> float:
    """Return the greatest time for a number of callbacks, in seconds."""
    return 60 + count / 1000


def _live(bench: Bench, number: int) -> None:
    """Measure the time from publishing to the arrival of callbacks, at a rate that the sender keeps up with."""
    scale = bench.scale
    rate = max(1, scale.callbacks // number)
    with (
        bench.site() as site,
        receiver_of(bench, site, number, tls=False) as receiver,
        contextlib.closing(Owner(site)) as owner,
    ):
        path = site.topic("live")
        owner.subscribe(path, receiver.urls, number, receiver)
        with contextlib.closing(site.poster(path, ITEM.encode(), connections=4)) as poster:
            poster.post(rate, rate=rate)
            receiver.zero()
            cpu = site.cpu_of("sender_process")
            posted = poster.post(seconds=scale.seconds, rate=rate)
            found = receiver.wait(number * posted.taken, 30)
        name = f"live, {rate} events/s to {number} receivers each"
        bench.row(name, _figures(site, found, cpu), "", failed=found.events < number * posted.taken)
