"""Soak of push subscriptions: processes are killed under load, and every acknowledged publication must arrive.

    python -m tests.faults.push_soak --minutes 10 --subscriptions 200 --dead 5 --seed 1

Hub, sender, handler, workers and the receivers are killed one after the other. Before that, two calm phases measure
whether the dead receivers delay the others. It ends with a verdict, and status 0 if all promises were kept.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import bisect
import contextlib
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from typing import Any, Final

import aiohttp

from tests.faults.hub_owner_tokens import KEY, token
from tests.support.hub import HubSite, hub_site, until
from tests.support.ports import free_ports
from tests.support.service import ROOT

SETTINGS: Final = {
    "hub.hub_key": KEY,
    "hub.hub_anonymous": "none",
    "hub.callback_allow": "127.0.0.0/8",
    "hub.push_http": "true",
}
TOPICS: Final = 10
VICTIMS: Final = ("hub", "sender_process", "handler", "worker", "receiver")
DRAIN: Final = 180.0
"""Seconds for the messages that are left at the end: pauses of receivers have up to a minute."""


class Receivers:
    """Process of the receivers, and the file of what they have."""

    def __init__(self, folder: pathlib.Path) -> None:
        (self.port,) = free_ports(1)
        self.log = folder / "received"
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.faults.push_receiver", str(self.port), str(self.log)]
        return subprocess.Popen(command, cwd=ROOT)

    def kill(self) -> None:
        """Kill the process, and start another one."""
        self._process.kill()
        self._process.wait()
        self._process = self._start()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def lines(self) -> list[tuple[float, str, str]]:
        """Return time, path and id of each message that has arrived."""
        found = []
        for line in self.log.read_bytes().decode().splitlines() if self.log.exists() else ():
            at, path, id = line.split(" ")
            found.append((float(at), path, id))
        return found


class Soak:
    """Run of the soak.

    Args:
        site: the service.
        receivers: the receivers.
        session: of HTTP.
        options: of the command line.
    """

    def __init__(
        self, site: HubSite, receivers: Receivers, session: aiohttp.ClientSession, options: argparse.Namespace
    ) -> None:
        self.site, self.receivers, self.session, self.options = site, receivers, session, options
        self.random = random.Random(options.seed)
        self.published: dict[str, tuple[str, float]] = {}
        """Topic and time of each publication that was answered, by id."""
        self.kills: list[tuple[float, str]] = []
        self.followers: dict[str, list[str]] = defaultdict(list)
        """Paths of the living subscriptions of each topic."""
        self._headers = {"Authorization": f"Bearer {token('o')}"}

    async def call(self, method: str, path: str, body: Any) -> dict[str, Any]:
        """Send a request, again while it has no answer that counts."""
        deadline = time.monotonic() + 60
        url = f"{self.site.url}/v1/projects/o/{path}"
        while True:
            try:
                async with self.session.request(method, url, json=body, headers=self._headers) as answer:
                    text = await answer.text()
                    if answer.status in (200, 409):
                        found: dict[str, Any] = json.loads(text)
                        return found
                    assert answer.status in (502, 503), (answer.status, text)
            except (aiohttp.ClientError, OSError, TimeoutError):
                # A worker was killed under the connection.
                pass
            assert time.monotonic() < deadline, f"{method} {path} has no answer"
            await asyncio.sleep(0.05)

    async def subscribe(self) -> None:
        """Make topics and the living subscriptions."""
        for number in range(TOPICS):
            await self.call("PUT", f"topics/tt-{number}", {})
        for number in range(self.options.subscriptions):
            await self._subscribe(number, self.receivers.port)

    async def _subscribe(self, number: int, port: int) -> None:
        topic, path = f"tt-{number % TOPICS}", f"/s-{number}"
        given = {
            "topic": f"projects/o/topics/{topic}",
            "enableMessageOrdering": number % 4 == 0,
            "pushConfig": {"pushEndpoint": f"http://127.0.0.1:{port}{path}"},
        }
        await self.call("PUT", f"subscriptions/s-{number}", given)
        if port == self.receivers.port:
            self.followers[topic].append(path)

    async def add_dead(self) -> None:
        """Make the subscriptions whose receivers do not exist."""
        (port,) = free_ports(1)
        first = self.options.subscriptions
        for number in range(first, first + round(first * self.options.dead / 100)):
            await self._subscribe(number, port)

    async def publish(self, end: float) -> None:
        """Publish at a steady rate until a time."""
        while time.monotonic() < end:
            topic = f"tt-{self.random.randrange(TOPICS)}"
            message: dict[str, Any] = {"data": base64.b64encode(b"x" * 200).decode()}
            if self.random.random() < 0.3:
                message["orderingKey"] = f"k{self.random.randrange(5)}"
            began = time.time()
            answer = await self.call("POST", f"topics/{topic}:publish", {"messages": [message]})
            self.published[answer["messageIds"][0]] = (topic, began)
            await asyncio.sleep(self.random.expovariate(self.options.rate))

    async def kill(self, end: float) -> None:
        """Kill processes until a time, each some seconds after the one before."""
        while time.monotonic() < end:
            await asyncio.sleep(self.random.uniform(2, 6))
            victim = self.random.choice(VICTIMS)
            self.kills.append((time.time(), victim))
            if victim == "receiver":
                self.receivers.kill()
                continue
            starts = self.site.log.count("hub ready")
            with contextlib.suppress(AssertionError, ProcessLookupError):
                self.site.kill(victim)
            if victim == "hub":
                await until(lambda: self.site.log.count("hub ready") > starts, "the hub")  # noqa: B023

    def latencies(self, since: float, before: float) -> float:
        """Return the 99th percentile of seconds from publication to arrival, of messages published in a time."""
        found = sorted(
            at - self.published[id][1]
            for at, _, id in self.receivers.lines()
            if id in self.published and since <= self.published[id][1] < before
        )
        return found[int(len(found) * 0.99)] if found else 0.0

    def missing(self) -> int:
        """Return how many deliveries have not arrived."""
        arrived: dict[str, set[str]] = defaultdict(set)
        for _, path, id in self.receivers.lines():
            arrived[path].add(id)
        return sum(
            id not in arrived[path] for id, (topic, _) in self.published.items() for path in self.followers[topic]
        )

    async def drained(self) -> int:
        """Wait until everything has arrived, for ``DRAIN`` seconds; return how much has not."""
        for _ in range(round(DRAIN)):
            if not (missing := self.missing()):
                return 0
            await asyncio.sleep(1)
        return missing

    def duplicates(self) -> tuple[int, int]:
        """Return the number of messages that arrived again, and of those that no kill explains."""
        times = sorted(at for at, victim in self.kills if victim in ("hub", "sender_process", "receiver"))
        first: dict[tuple[str, str], float] = {}
        again = unexplained = 0
        for at, path, id in self.receivers.lines():
            before = first.setdefault((path, id), at)
            if before == at:
                continue
            again += 1
            # The acknowledgement of a killed process is lost; reports to the store are some tenths of a second behind.
            place = bisect.bisect_left(times, before - 2.0)
            unexplained += not (place < len(times) and times[place] <= at)
            first[path, id] = at
        return again, unexplained


async def run(options: argparse.Namespace) -> int:
    """Run the soak; return the exit status."""
    with tempfile.TemporaryDirectory() as name, hub_site(SETTINGS) as site:
        receivers = Receivers(pathlib.Path(name))
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as session:
                return await _run(Soak(site, receivers, session, options))
        finally:
            receivers.stop()


async def _run(soak: Soak) -> int:
    options = soak.options
    await soak.subscribe()
    # Connections are opened, windows grow.
    await soak.publish(time.monotonic() + 5)
    phases = []
    for dead in (False, True):
        if dead:
            await soak.add_dead()
            # The pauses of the dead ones have grown by then.
            await asyncio.sleep(5)
        began = time.time()
        await soak.publish(time.monotonic() + options.calm)
        await asyncio.sleep(2)
        phases.append(soak.latencies(began, time.time() - 2))
    end = time.monotonic() + 60 * options.minutes
    await asyncio.gather(soak.publish(end), soak.kill(end))
    missing = await soak.drained()
    again, unexplained = soak.duplicates()
    faults = [line for line in soak.site.log.splitlines() if "Traceback" in line or "unexpected error" in line]
    ratio = phases[1] / phases[0] if phases[0] else 0.0
    print(
        f"push soak, seed {options.seed}: published {len(soak.published)}, deliveries {len(soak.receivers.lines())},"
        f" kills {dict(Counter(victim for _, victim in soak.kills))}, missing {missing}, again {again},"
        f" of these unexplained {unexplained}, faults {len(faults)};"
        f" p99 {1000 * phases[0]:.1f} ms, with {options.dead} % dead {1000 * phases[1]:.1f} ms ({ratio:.2f})"
    )
    for line in faults[:5]:
        print(line)
    return int(bool(missing or unexplained or faults))


def main() -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.push_soak")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--subscriptions", type=int, default=200)
    parser.add_argument("--dead", type=float, default=5.0, help="percent of them")
    parser.add_argument("--rate", type=float, default=10.0, help="publications per second")
    parser.add_argument("--calm", type=float, default=30.0, help="seconds of each phase before the kills")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return asyncio.run(run(options))


if __name__ == "__main__":
    sys.exit(main())
