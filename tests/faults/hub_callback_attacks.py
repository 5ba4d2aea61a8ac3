"""One hostile owner of subscriptions: ``python -m tests.faults.hub_callback_attacks --url URL --seconds N``.

It has a valid token, a topic with many events, and servers on an address of its own that treat the sender badly. Each
attack subscribes to one of them, over and over; at the end a line of JSON for each tells what it got. One more server
is a victim, which has asked for nothing and counts the requests that it gets.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp
import uvloop

from tests.faults.hub_owner_tokens import HOSTILE, token

__all__ = ["ATTACKS", "FOE", "FORBIDDEN", "VICTIM", "main"]

NICE: Final = 19

FOE: Final = "127.0.0.3"
"""Address of the hostile servers."""

VICTIM: Final = "127.0.0.4"
"""Address of the victim."""

EVENTS: Final = 2000
"""Events of the hostile topic at the beginning."""

MANY: Final = 10_000
"""Subscriptions that are to be made to the victim."""

FORBIDDEN: Final = (
    "http://127.0.0.1:{hub}/hub/topics",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f.0.0.1/",
    "http://[::1]:{hub}/",
    "http://[::ffff:127.0.0.1]:{hub}/",
    "http://[::127.0.0.1]:{hub}/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::a00:1]/",
    "http://[2002:7f00:1::]/",
    "http://0.0.0.0:{hub}/",
    "http://10.0.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://[fe80::1]/",
    "http://[fd00::1]/",
    "http://user:secret@127.0.0.3:8080/",
    "http://127.0.0.3:25/",
    "ftp://127.0.0.3/",
    "file:///etc/passwd",
    "http://127.0.0.3:8080/#fragment",
    "http://127.0.0.3:8080/\\r\\nX-Injected: 1",
)
"""Callbacks that no owner may name."""

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Foe:
    """The hostile owner, as one attack sees it.

    Args:
        url: of the hub.
        session: of its requests.
        did: takes what it gets, by name.
    """

    def __init__(self, url: str, session: aiohttp.ClientSession, did: Counter[str]) -> None:
        self.url = url
        self.did = did
        self.session = session
        self.headers = {"Authorization": f"Bearer {token(HOSTILE)}"}
        self._ids = itertools.count()

    def topic(self, name: str = "t") -> str:
        """Return the URL of a topic."""
        return f"{self.url}/topics/{HOSTILE}%2F{name}"

    async def ask(self, method: str, url: str, **options: Any) -> tuple[int, Any]:
        """Return status and JSON of an answer."""
        try:
            async with self.session.request(method, url, headers=self.headers, **options) as response:
                text = await response.text()
                self.did[str(response.status)] += 1
                return response.status, json.loads(text) if text else None
        except (aiohttp.ClientError, TimeoutError) as error:
            self.did[type(error).__name__] += 1
            return 0, None

    async def subscribe(self, callback: str) -> tuple[str, int]:
        """Make a subscription from the beginning of the topic; return its id and the status."""
        id = f"{os.getpid()}-{id_base(self)}-{next(self._ids)}"
        body = {"subscription_id": id, "callback": callback, "after": "0"}
        status, _ = await self.ask("POST", f"{self.topic()}/subscriptions", json=body)
        return id, status

    async def against(self, server: Handler, number: int = 20) -> None:
        """Keep some subscriptions to a server of its own; those that rest are made again."""
        listener = await asyncio.start_server(server, FOE, 0)
        port = listener.sockets[0].getsockname()[1]
        ids: list[str] = []
        while True:
            if len(ids) < number:
                id, status = await self.subscribe(f"http://{FOE}:{port}/callback")
                if status == 201:
                    ids.append(id)
            for id in list(ids):
                _, found = await self.ask("GET", f"{self.topic()}/subscriptions/{id}")
                self.did.update(f"saw {name}" for name in _seen(found))
                if found is not None and found.get("state") == "resting":
                    await self.ask("DELETE", f"{self.topic()}/subscriptions/{id}")
                    ids.remove(id)
            await asyncio.sleep(0.2)


def id_base(foe: Foe) -> str:
    """Return a text that other attacks' ids do not have."""
    return f"{id(foe):x}"


def _seen(document: Any) -> list[str]:
    """Return the names and texts of a subscription that its owner sees, but for those that it gave itself."""
    own = ("subscription_id", "owner", "topic", "callback", "position", "newest", "created", "rights_end")
    if not isinstance(document, dict) or "state" not in document:
        return []
    return [
        f"{name}={json.dumps(value) if isinstance(value, str) else type(value).__name__}"
        for name, value in document.items()
        if name not in own
    ]


async def _head(reader: asyncio.StreamReader) -> bytes | None:
    """Return the content of a request; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _challenge(body: bytes) -> bytes | None:
    document = json.loads(body)
    return document["challenge"].encode() if document.get("type") == "challenge" else None


def confirming(bad: Handler) -> Handler:
    """Return a server that confirms challenges, and treats events badly."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (body := await _head(reader)) is not None:
                if (answer := _challenge(body)) is not None:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
                    await writer.drain()
                else:
                    await bad(reader, writer)
        except ConnectionError:
            # The sender has had enough.
            pass
        finally:
            writer.transport.abort()

    return serve


async def refused(foe: Foe) -> None:
    """Callbacks to places that none may lead to."""
    hub = foe.url.partition("://")[2].partition("/")[0].rpartition(":")[2]
    while True:
        for callback in FORBIDDEN:
            _, status = await foe.subscribe(callback.replace("{hub}", hub))
            if status == 201:
                foe.did[f"took {callback}"] += 1
        await asyncio.sleep(0.5)


async def names(foe: Foe) -> None:
    """Names that lead to this machine."""
    hub = foe.url.partition("://")[2].partition("/")[0].rpartition(":")[2]

    async def lead(name: str) -> None:
        id, status = await foe.subscribe(f"http://{name}:{hub}/hub/topics")
        while status == 201:
            _, found = await foe.ask("GET", f"{foe.topic()}/subscriptions/{id}")
            if found is not None and found.get("state") == "resting":
                foe.did[f"rests {found['failure']}"] += 1
                break
            await asyncio.sleep(0.1)

    await asyncio.gather(*map(lead, ("localhost", "LOCALHOST.", os.uname().nodename.lower())))
    await asyncio.Event().wait()


async def silent(foe: Foe) -> None:
    """A server that takes events and never answers."""

    async def bad(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    await foe.against(confirming(bad))


async def slow(foe: Foe) -> None:
    """A server that answers a byte at a time."""

    async def bad(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in b"HTTP/1.1 204 No Content\r\nX-Slow: " + b"x" * 1000:
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0.1)

    await foe.against(confirming(bad))


async def endless(foe: Foe) -> None:
    """A server whose answers have no end: head lines, interim answers, bodies."""
    kinds = itertools.cycle(
        [
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4000\r\n" + b"x" * 0x4000 + b"\r\n"),
            (b"HTTP/1.1 200 OK\r\n", b"X-Line: " + b"x" * 4000 + b"\r\n"),
            (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100),
            (b"HTTP/1.1 500 No\r\nContent-Length: 99999999999\r\n\r\n", b"x" * 0x4000),
            (b"", b"\0garbage\xff" * 1000),
        ]
    )

    async def bad(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, more = next(kinds)
        writer.write(head)
        while True:
            writer.write(more)
            await writer.drain()
            foe.did["bytes"] += len(more)
            await asyncio.sleep(0.001)

    await foe.against(confirming(bad))


async def redirects(foe: Foe) -> None:
    """A server that sends the sender elsewhere, to a place that counts its guests."""

    async def guest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        foe.did["followed"] += 1
        writer.transport.abort()

    elsewhere = await asyncio.start_server(guest, FOE, 0)
    port = elsewhere.sockets[0].getsockname()[1]
    statuses = itertools.cycle((301, 302, 303, 307, 308))

    async def bad(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = f"HTTP/1.1 {next(statuses)} Go\r\nLocation: http://{FOE}:{port}/\r\nContent-Length: 0\r\n\r\n"
        writer.write(line.encode())
        await writer.drain()

    await foe.against(confirming(bad))


async def resets(foe: Foe) -> None:
    """A server that resets connections."""

    async def bad(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise ConnectionResetError

    await foe.against(confirming(bad))


async def many(foe: Foe) -> None:
    """As many subscriptions as it takes to flood a victim, at many ports and paths."""

    async def victim(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await _head(reader) is not None:
                foe.did["victim's requests"] += 1
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(victim, VICTIM, 0)
    port = server.sockets[0].getsockname()[1]
    numbers = iter(range(MANY))

    async def lane() -> None:
        for number in numbers:
            await foe.subscribe(f"http://{VICTIM}:{port}/{number}")
            foe.did["tried"] += 1

    await asyncio.gather(*(lane() for _ in range(8)))
    await asyncio.Event().wait()


async def churn(foe: Foe) -> None:
    """Subscriptions that are made and deleted at once, while a request is under way."""

    async def bad(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    listener = await asyncio.start_server(confirming(bad), FOE, 0)
    port = listener.sockets[0].getsockname()[1]

    async def lane() -> None:
        while True:
            id, status = await foe.subscribe(f"http://{FOE}:{port}/")
            if status == 201:
                await asyncio.sleep(0.05)
                await foe.ask("DELETE", f"{foe.topic()}/subscriptions/{id}")
            else:
                await asyncio.sleep(0.2)

    await asyncio.gather(*(lane() for _ in range(10)))


ATTACKS: Final[Mapping[str, Callable[[Foe], Awaitable[None]]]] = {
    act.__name__: act for act in (refused, names, silent, slow, endless, redirects, resets, many, churn)
}


async def attack(url: str, chosen: list[str], seconds: float) -> None:
    """Run attacks side by side, then print what they got."""
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        first = Foe(url, session, Counter())
        assert (await first.ask("PUT", first.topic(), json={}))[0] in (200, 201)
        events = {"events": [{"data": "x" * 500} for _ in range(1000)]}
        for _ in range(EVENTS // 1000):
            assert (await first.ask("POST", f"{first.topic()}/events", json=events))[0] == 201
        print("attacking", flush=True)
        counts: dict[str, Counter[str]] = {name: Counter() for name in chosen}
        tasks = {name: asyncio.ensure_future(ATTACKS[name](Foe(url, session, counts[name]))) for name in chosen}
        await asyncio.wait(tasks.values(), timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for name, task in tasks.items():
            trouble = f"{task.exception()!r:.300}" if task.done() else ""
            print(json.dumps({"attack": name, "did": counts[name], "trouble": trouble}), flush=True)
        os._exit(0)


def main() -> None:
    """Attack as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--only", default="", help="names of attacks, separated by commas (default: all)")
    options = parser.parse_args()
    os.nice(NICE)
    chosen = options.only.split(",") if options.only else list(ATTACKS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(attack(options.url, chosen, options.seconds))


if __name__ == "__main__":
    main()
