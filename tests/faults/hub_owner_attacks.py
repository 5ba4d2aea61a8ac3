"""One hostile owner of a hub, at all of its bounds at once: ``python -m tests.faults.hub_owner_attacks --url URL …``.

It has a valid token with all rights over its own folder of topics. Each attack runs by itself and counts the statuses
that it gets; the process runs at the lowest priority, so that the service is hurt by what it asks, and prints a line of
JSON for each attack at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import uvloop

from tests.faults.hub_owner_tokens import HOSTILE, token

__all__ = ["ATTACKS", "Attack", "Foe", "main"]

NICE: Final = 19

LONG_EVENTS: Final = 20_000
LONG_SIZE: Final = 1000
"""Events of the long history, and bytes of each."""

KEYS: Final = 3000
"""Keys of the topic whose snapshots are read."""


class Foe:
    """The hostile owner, as one attack sees it.

    Args:
        url: of the hub.
        did: takes what it gets, by name.
    """

    def __init__(self, url: str, did: Counter[str], session: aiohttp.ClientSession) -> None:
        self.url = url
        self.did = did
        self.session = session
        self.headers = {"Authorization": f"Bearer {token(HOSTILE)}"}

    def topic(self, name: str) -> str:
        """Return the URL of a topic."""
        return f"{self.url}/topics/{HOSTILE}%2F{name}"

    async def ask(self, method: str, url: str, headers: Mapping[str, str] | None = None, **options: Any) -> int:
        """Return the status of a request."""
        every = {**self.headers, **(headers or {})}
        try:
            async with self.session.request(method, url, headers=every, **options) as response:
                await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            self.did[type(error).__name__] += 1
            return 0
        self.did[str(status)] += 1
        return status

    async def post(self, name: str, body: bytes, headers: Mapping[str, str] | None = None) -> int:
        """Publish to a topic."""
        every = {"Content-Type": "application/json", **(headers or {})}
        return await self.ask("POST", f"{self.topic(name)}/events", every, data=_parts(body))

    def head(self, target: str, method: str = "GET", lines: str = "") -> bytes:
        """Return the head of a request of a raw connection."""
        path = urlsplit(target)
        where = path.path + (f"?{path.query}" if path.query else "")
        authorization = self.headers["Authorization"]
        return f"{method} {where} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n{lines}\r\n".encode()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a raw connection, of which little is read ahead."""
        place = urlsplit(self.url)
        return await asyncio.open_connection(place.hostname, place.port, limit=1024)

    async def side_by_side(self, number: int, act: Callable[[], Awaitable[None]]) -> None:
        """Do something over and over, so many times at once."""

        async def repeat() -> None:
            while True:
                await act()
                await asyncio.sleep(0.01)

        await asyncio.gather(*(repeat() for _ in range(number)))


async def _parts(body: bytes) -> Any:
    for start in range(0, len(body), 2**18):
        yield body[start : start + 2**18]


async def topics(foe: Foe) -> None:
    """More and more topics, changed and deleted, many at a time."""
    numbers = itertools.count()

    async def act() -> None:
        name = f"t{next(numbers)}"
        if await foe.ask("PUT", foe.topic(name), json={"retention": {"events": 10}}) == 201:
            return
        name = f"t{next(numbers) % 50}"
        await foe.ask("PATCH", foe.topic(name), json={"labels": {"a": "b" * 200}})
        await foe.ask("DELETE", foe.topic(name))

    await foe.side_by_side(50, act)


async def ranges(foe: Foe) -> None:
    """Followers of distinct ranges, each of which stays."""
    writers = []
    for number in itertools.count():
        target = f"{foe.topic('main')}/events?low=k{number}&high=k{number}~"
        reader, writer = await foe.connect()
        writer.write(foe.head(target, lines="Accept: text/event-stream\r\n"))
        line = await reader.readline()
        foe.did[line.split(b" ")[1].decode() if b" " in line else "cut"] += 1
        if b" 200 " in line:
            writers.append(writer)
        else:
            writer.close()
            await asyncio.sleep(0.05)


async def names(foe: Foe) -> None:
    """Publications that the hub has to remember by their names."""
    numbers = itertools.count()

    async def act() -> None:
        await foe.post("main", b'{"a":1}', {"Idempotency-Key": f"name-{next(numbers)}"})

    await foe.side_by_side(8, act)


async def histories(foe: Foe) -> None:
    """Long histories, many at a time: half of them read a little now and then, half nothing."""
    head = foe.head(f"{foe.topic('long')}/events", lines="Accept: application/x-ndjson\r\n")

    async def slow(*, reads: bool) -> None:
        reader, writer = await foe.connect()
        writer.write(head)
        line = await reader.readline()
        foe.did[line.split(b" ")[1].decode() if b" " in line else "cut"] += 1
        end = time.monotonic() + 4
        while time.monotonic() < end:
            if reads:
                await reader.read(1024)
            await asyncio.sleep(0.01)
        writer.transport.abort()

    async def fast() -> None:
        await foe.ask("GET", f"{foe.topic('long')}/events", {"Accept": "application/x-ndjson"})

    async def page() -> None:
        await foe.ask("GET", f"{foe.topic('long')}/events?limit=4000&low=a&high=b")

    await asyncio.gather(
        foe.side_by_side(60, lambda: slow(reads=True)),
        foe.side_by_side(60, lambda: slow(reads=False)),
        foe.side_by_side(10, fast),
        foe.side_by_side(150, page),
    )


async def snapshots(foe: Foe) -> None:
    """Snapshots of different versions, which stay unread."""

    async def act() -> None:
        cursor = ""
        async with foe.session.put(f"{foe.topic('keyed')}/keys/k1", data=b"x", headers=foe.headers) as response:
            if response.status == 201:
                cursor = (await response.json())["version_cursor"]
        reader, writer = await foe.connect()
        writer.write(foe.head(f"{foe.topic('keyed')}/snapshot?version={cursor}"))
        line = await reader.readline()
        foe.did[line.split(b" ")[1].decode() if b" " in line else "cut"] += 1
        await asyncio.sleep(1)
        writer.transport.abort()

    await foe.side_by_side(20, act)


async def batches(foe: Foe) -> None:
    """Batches of the greatest number of events."""
    small = json.dumps({"events": [{"data": number} for number in range(1000)]}).encode()
    keyed = json.dumps({"events": [{"data": number, "key": f"k{number}"} for number in range(1000)]}).encode()
    await asyncio.gather(
        foe.side_by_side(6, lambda: _drop(foe.post("batches", small))),
        foe.side_by_side(2, lambda: _drop(foe.post("main", keyed))),
    )


async def bodies(foe: Foe) -> None:
    """Bodies of the greatest size."""
    large = json.dumps({"events": [{"data": "x" * 10_000}] * 990}).encode()
    flat = b"[" + b"1," * 4_900_000 + b"1]"
    await asyncio.gather(
        foe.side_by_side(3, lambda: _drop(foe.post("bodies", large))),
        foe.side_by_side(1, lambda: _drop(foe.post("bodies", flat))),
        foe.side_by_side(1, lambda: _drop(foe.post("bodies", b" " * 20_000_000))),
        foe.side_by_side(1, lambda: _drop(foe.ask("POST", f"{foe.topic('bodies')}/events", data=b" " * 20_000_000))),
    )


async def _drop(work: Awaitable[int]) -> None:
    await work
    await asyncio.sleep(0.1)


async def deep(foe: Foe) -> None:
    """JSON of great depth, and other texts that are no JSON of an event."""
    bad = (
        b"[" * 1_000_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"events":[' + b"{}," * 200_000 + b"{}]}",
        b'{"events":[{"data":1,"attributes":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}]}",
        b"1" * 1_000_000,
        b'"' + b"\\u0000" * 100_000 + b'"',
        b"\xff" * 1000,
    )
    bodies = itertools.cycle(bad)
    await foe.side_by_side(3, lambda: _drop(foe.post("main", next(bodies))))


async def bad(foe: Foe) -> None:
    """Requests that are wrong in every part."""
    main = foe.topic("main")
    asked = itertools.cycle(
        (
            ("GET", f"{main}/events?after=zzzzzzzz.5", {}),
            ("GET", f"{main}/events?since=never", {}),
            ("GET", f"{main}/events?" + "&".join(f"p{n}={n}" for n in range(400)), {}),
            ("GET", f"{main}/events?low={'%FF' * 300}", {}),
            ("GET", f"{foe.url}/topics/o1%2Ft/events", {}),
            ("PUT", f"{foe.url}/topics/o1%2Ft", {}),
            ("GET", f"{foe.url}/topics/{'x' * 5000}", {}),
            ("GET", f"{foe.url}/topics?limit=1000000", {}),
            ("GET", f"{foe.url}/topics?limit=1000", {}),
            ("POST", f"{foe.url}/topics/o1%2Ft/revoke", {}),
            ("GET", main, {"Authorization": "Bearer " + "a" * 7000}),
            ("GET", main, {"Authorization": f"Bearer {token('other')[:-4]}AAAA"}),
            ("GET", main, {f"x-{n}": "y" for n in range(90)}),
            ("PATCH", main, {"Content-Type": "nothing"}),
            ("BREW", main, {}),
        )
    )

    async def act() -> None:
        method, url, headers = next(asked)
        await foe.ask(method, url, headers)

    await foe.side_by_side(10, act)


async def half_open(foe: Foe) -> None:
    """Connections that stay in the middle of a request: 60 in the head, 40 behind most of a large body."""
    part = b"x" * 2**20

    async def act(number: int) -> None:
        while True:
            reader, writer = await foe.connect()
            try:
                if number < 60:
                    writer.write(foe.head(foe.topic("main"))[:-7])
                else:
                    lines = "Content-Type: text/plain\r\nContent-Length: 10000000\r\n"
                    writer.write(foe.head(f"{foe.topic('bodies')}/events", "POST", lines))
                    for _ in range(9):
                        writer.write(part)
                        async with asyncio.timeout(5):
                            await writer.drain()
                foe.did["open"] += 1
                line = await reader.readline()
                foe.did[line.split(b" ")[1].decode() if b" " in line else "cut"] += 1
            except (OSError, TimeoutError) as error:
                foe.did[type(error).__name__] += 1
            writer.transport.abort()
            await asyncio.sleep(0.5)

    await asyncio.gather(*(act(number) for number in range(100)))


async def links(foe: Foe) -> None:
    """Links with wrong signatures."""
    numbers = itertools.count()

    async def act() -> None:
        number = next(numbers)
        kind = "follow" if number % 2 else "snapshot"
        await foe.ask("GET", f"{foe.url}/{kind}/{'A' * (number % 900)}{number}.{'B' * 43}")

    await foe.side_by_side(10, act)


async def polls(foe: Foe) -> None:
    """Long-polls that end with each event, and are repeated."""

    async def act() -> None:
        await foe.ask("GET", f"{foe.topic('batches')}/events?after=0&wait=5&limit=1")

    async def held() -> None:
        await foe.ask("GET", f"{foe.topic('silent')}/events?after=0&wait=5")

    await asyncio.gather(foe.side_by_side(20, act), foe.side_by_side(280, held))


async def mailboxes(foe: Foe) -> None:
    """Mailboxes up to the bound that follow one topic: all its events for all of them, in large batches and large ones.

    Some acknowledge and some do not, two polls at once now and then; commands come and go by the thousand.
    """
    numbers, following = itertools.count(), itertools.count(1)
    topic = f"{HOSTILE}/wide"
    events = json.dumps({"events": [{"data": "x" * 100, "key": f"k{number}"} for number in range(1000)]}).encode()
    large = json.dumps({"events": [{"data": "x" * 900_000}]}).encode()

    def commands(sequence: int, name: str, keys: int, size: int = 0) -> bytes:
        subjects = [{"topic": topic}, *({"topic": topic, "key": f"{key}".rjust(size, "k")} for key in range(keys))]
        return json.dumps({"sequence": sequence, "commands": [{name: subject} for subject in subjects]}).encode()

    async def follow() -> None:
        url = f"{foe.url}/subscribers/s{next(numbers)}/commands"
        if await foe.ask("POST", url, data=commands(1, "subscribe", 50)) != 200:
            await asyncio.sleep(0.2)

    async def poll() -> None:
        number = next(following) % 300
        query = {"wait": "5"}
        if number % 2:
            # Whatever the publisher's id is: it has to be learnt for an acknowledgement that counts.
            async with foe.session.get(f"{foe.url}/subscribers/s{number}/poll?wait=5", headers=foe.headers) as response:
                answer = await response.json(content_type=None)
            if response.status == 200 and answer["messages"]:
                query["max_processed_sequence_id"] = answer["messages"][-1]["sequence_id"]
                query["publisher_id"] = answer["publisher_id"]
        await foe.ask("GET", f"{foe.url}/subscribers/s{number}/poll", params=query)

    async def change() -> None:
        url = f"{foe.url}/subscribers/changing{next(numbers)}"
        for sequence, name in ((1, "subscribe"), (2, "unsubscribe"), (3, "subscribe")):
            await foe.ask("POST", f"{url}/commands", data=commands(sequence, name, 1999, 900))
        await foe.ask("DELETE", url)

    await asyncio.gather(
        foe.side_by_side(10, follow),
        foe.side_by_side(200, poll),
        foe.side_by_side(2, lambda: _drop(foe.post("wide", events))),
        foe.side_by_side(1, lambda: _drop(foe.post("wide", large))),
        foe.side_by_side(2, change),
    )


Attack = Callable[[Foe], Awaitable[None]]

ATTACKS: Final[Mapping[str, Attack]] = {
    act.__name__: act
    for act in (
        topics,
        ranges,
        names,
        histories,
        snapshots,
        batches,
        bodies,
        deep,
        bad,
        half_open,
        links,
        polls,
        mailboxes,
    )
}


async def prepare(foe: Foe) -> None:
    """Make the topics of the attacks."""
    settings = {"retention": {"bytes": 40_000_000}}
    for name in ("main", "long", "keyed", "batches", "bodies", "silent", "wide"):
        assert await foe.ask("PUT", foe.topic(name), json=settings) in (200, 201), name
    whole = {"events": [{"data": "x" * LONG_SIZE, "key": f"b{number}"} for number in range(1000)]}
    for _ in range(LONG_EVENTS // 1000):
        assert await foe.post("long", json.dumps(whole).encode()) == 201
    keyed = [{"data": "x" * LONG_SIZE, "key": f"k{number}"} for number in range(KEYS)]
    for start in range(0, KEYS, 1000):
        assert await foe.post("keyed", json.dumps({"events": keyed[start : start + 1000]}).encode()) == 201


async def attack(url: str, chosen: list[str], seconds: float, attacks: Mapping[str, Attack], ready: Attack) -> None:
    """Run attacks side by side, then print what they got."""
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await ready(Foe(url, Counter(), session))
        print("attacking", flush=True)
        counts: dict[str, Counter[str]] = {name: Counter() for name in chosen}
        tasks = {name: asyncio.ensure_future(attacks[name](Foe(url, counts[name], session))) for name in chosen}
        await asyncio.wait(tasks.values(), timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for name, task in tasks.items():
            trouble = f"{task.exception()!r:.300}" if task.done() else ""
            print(json.dumps({"attack": name, "did": counts[name], "trouble": trouble}), flush=True)
        # Connections that are still open are closed by the kernel: a hostile owner takes no leave.
        os._exit(0)


def main(attacks: Mapping[str, Attack] = ATTACKS, ready: Attack = prepare) -> None:
    """Attack as the command line says.

    Args:
        attacks: by name.
        ready: prepares them.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--only", default="", help="names of attacks, separated by commas (default: all)")
    options = parser.parse_args()
    os.nice(NICE)
    chosen = options.only.split(",") if options.only else list(attacks)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(attack(options.url, chosen, options.seconds, attacks, ready))


if __name__ == "__main__":
    main()
