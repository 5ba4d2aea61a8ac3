"""One hostile owner of soft topics, at all of their bounds at once: ``python -m tests.faults.soft_hostile_attacks``.

It ingests as no source would: the greatest bodies and versions, progress up and down, pieces without end, resets in a
loop, bodies that are slow or break off; it fills its windows, and watches thousands of ranges of one of them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final

from tests.faults.hub_owner_attacks import Attack, Foe, main

__all__ = ["ATTACKS", "WINDOWS"]

WINDOWS: Final = 20
"""Soft topics of the owner: the bound."""

OWN: Final = ("pieces", "resets", "extremes", "bad", "torn", "long", "ranges", "told")
"""Topics that one attack each has for itself."""

FREE: Final = WINDOWS - len(OWN)
"""Further topics, for all."""

LINES: Final = 10_000
"""Lines of a request: the bound."""

GREATEST: Final = 2**63 - 1
"""Greatest version."""

NDJSON: Final = {"Content-Type": "application/x-ndjson"}


def append(key: str, version: int, data: object = 1) -> bytes:
    """Return the line of an event."""
    return b'{"append":{"key":"%b","version":"%d","data":%b}}\n' % (key.encode(), version, json.dumps(data).encode())


def progress(version: int, low: str = "", high: str = "") -> bytes:
    """Return the line of progress."""
    return json.dumps({"progress": {"version": str(version), **_span(low, high)}}).encode() + b"\n"


def reset(low: str = "", high: str = "") -> bytes:
    """Return the line of a reset."""
    return json.dumps({"reset": _span(low, high)}).encode() + b"\n"


def _span(low: str, high: str) -> dict[str, str]:
    return {name: key for name, key in (("low", low), ("high", high)) if key}


async def give(foe: Foe, name: str, lines: Iterable[bytes]) -> int:
    """Send lines to a topic."""
    return await foe.ask("POST", f"{foe.topic(name)}/ingest", NDJSON, data=b"".join(lines))


async def _pause(work: Awaitable[object]) -> None:
    await work
    await asyncio.sleep(0.05)


async def lines(foe: Foe) -> None:
    """Requests of the greatest number of lines, to all topics, many at a time."""
    versions = itertools.count(1)

    async def act() -> None:
        version = next(versions)
        body = [append(f"k{number}", version) for number in range(LINES - 1)]
        await give(foe, f"w{version % FREE}", [*body, progress(version)])

    await foe.side_by_side(6, lambda: _pause(act()))


async def waiting(foe: Foe) -> None:
    """The same to topics that have many of them to do, as many as may wait."""
    versions = itertools.count(1)
    body = [append(f"k{number}", GREATEST - 1) for number in range(LINES)]

    async def act() -> None:
        await give(foe, f"w{next(versions) % FREE}", body)

    await foe.side_by_side(120, lambda: _pause(act()))


async def fill(foe: Foe) -> None:
    """Large events, without progress or with it, until all windows are full."""
    versions = itertools.count(1)
    data = "x" * 100_000

    async def act() -> None:
        version = next(versions)
        body = [append(f"k{number}", version, data) for number in range(120)]
        await give(foe, f"w{version % FREE}", [*body, *[progress(version)] * (version % 3 == 0)])

    await foe.side_by_side(3, lambda: _pause(act()))


async def pieces(foe: Foe) -> None:
    """Pieces up to the bound and beyond, each with a progress of its own; then united, cut and reset."""
    chance, versions = random.Random(1), itertools.count(1)
    await give(foe, "pieces", [progress(1)])

    async def act() -> None:
        version = next(versions)
        cuts = [f"{number:06}" for number in sorted(chance.sample(range(10**6), chance.choice((300, 499, 2000))))]
        body = [
            progress(version + number % 2, low, high) for number, (low, high) in enumerate(itertools.pairwise(cuts))
        ]
        await give(foe, "pieces", body)
        await give(foe, "pieces", [append(cut, version + 5) for cut in cuts])
        await give(foe, "pieces", [reset(low, high) for low, high in itertools.pairwise(cuts[::2])])
        await give(foe, "pieces", [progress(version)])

    await foe.side_by_side(3, lambda: _pause(act()))


async def resets(foe: Foe) -> None:
    """Resets in a loop, of everything and of parts, in requests of the greatest number of lines."""
    kinds = itertools.cycle(
        (
            [reset()] * LINES,
            [line for _ in range(LINES // 2) for line in (reset(), progress(7))],
            [line for number in range(LINES // 2) for line in (reset(f"k{number}"), progress(9))],
            [line for number in range(LINES // 3) for line in (reset("k"), append(f"k{number}", 5), progress(9, "a"))],
        )
    )
    await foe.side_by_side(2, lambda: _pause(give(foe, "resets", next(kinds))))


async def extremes(foe: Foe) -> None:
    """The greatest versions; progress that goes up and down."""
    bodies = itertools.cycle(
        (
            [append("a", GREATEST), append("b", 1), progress(GREATEST)],
            [append("a", GREATEST)],
            [progress(1)],
            [append("a", 1), append("b", GREATEST - 1)],
            [reset(), append("a", GREATEST), append("b", 1)],
            [progress(GREATEST, "a", "b"), progress(1)],
            [progress(version, "a" if version % 2 else "b") for version in range(LINES, 0, -1)],
            [reset(), progress(0)],
            [b'{"append":{"key":"a","version":"9223372036854775808","data":1}}\n'],
            [b'{"append":{"key":"a","version":"-1","data":1}}\n'],
            [b'{"progress":{"version":"1e18"}}\n'],
        )
    )
    await foe.side_by_side(4, lambda: _pause(give(foe, "extremes", next(bodies))))


async def bad(foe: Foe) -> None:
    """Lines that are none: the last of many, deep, long, torn, in other codings."""
    head = [append(f"k{number}", 3) for number in range(LINES - 2)]
    deep = b"[" * 70 + b"]" * 70
    wide = b"[" + b"[]," * 49_000 + b"[]]"
    bodies = itertools.cycle(
        (
            [*head, b"{}\n"],
            [*head, append("a", 1)[:-1]],
            [b'{"append":{"key":"a","version":"1","data":' + deep + b"}}\n"],
            [b'{"append":{"key":"a","version":"1","data":' + wide + b"}}\n"] * 50,
            [b'{"append":{"key":"a","version":"1","data":' + b"1" * 900_000 + b"}}\n"] * 10,
            [b'{"append":{"key":"a","version":"1","data":"' + b"\\u0000" * 150_000 + b'"}}\n'] * 10,
            [b'{"append":{"key":"a","version":"1","data_base64":"' + b"A" * 999_900 + b'"}}\n'] * 10,
            [b'{"progress":{"low":"b","high":"a","version":"1"}}\n'] * 10,
            [b"\n" * LINES],
            [b"x" * 14_000_000],
            [b"\xff" * 1_000_000 + b"\n"],
        )
    )
    await foe.side_by_side(3, lambda: _pause(give(foe, "bad", next(bodies))))


async def torn(foe: Foe) -> None:
    """Bodies that come slowly, and bodies that break off: 60 connections."""
    part = b"".join(append(f"k{number}", 3, "x" * 500) for number in range(1000))

    async def act(number: int) -> None:
        while True:
            _, writer = await foe.connect()
            head = "Content-Type: application/x-ndjson\r\nContent-Length: 13000000\r\n"
            try:
                writer.write(foe.head(f"{foe.topic('torn')}/ingest", "POST", head))
                for _ in range(20):
                    writer.write(part[:100] if number % 2 else part)
                    async with asyncio.timeout(5):
                        await writer.drain()
                    await asyncio.sleep(0.3 if number % 2 else 0)
                foe.did["torn"] += 1
            except (OSError, TimeoutError) as error:
                foe.did[type(error).__name__] += 1
            writer.transport.abort()
            await asyncio.sleep(0.2)

    await asyncio.gather(*(act(number) for number in range(60)))


async def replays(foe: Foe) -> None:
    """Watches of a full window from its beginning, many at a time, of which nothing or little is read."""

    async def act() -> None:
        reader, writer = await foe.connect()
        writer.write(foe.head(f"{foe.topic('long')}/watch?version=1", lines="Accept: application/x-ndjson\r\n"))
        line = await reader.readline()
        foe.did[line.split(b" ")[1].decode() if b" " in line else "cut"] += 1
        for _ in range(50):
            await reader.read(1024)
            await asyncio.sleep(0.05)
        writer.transport.abort()

    async def fast() -> None:
        async with foe.session.get(f"{foe.topic('long')}/watch?version=1", headers=foe.headers) as response:
            size = 0
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > 5_000_000:
                    break
        foe.did[f"fast {response.status}"] += 1

    await asyncio.gather(foe.side_by_side(60, act), foe.side_by_side(5, fast))


async def ranges(foe: Foe) -> None:
    """Thousands of distinct ranges, one within the other, each with a watcher, and events for all of them."""
    await _ranges(foe, "ranges", 0)


async def told(foe: Foe) -> None:
    """The same, and a reset now and then: all watchers are told, end and come back."""
    await _ranges(foe, "told", 100)


async def _ranges(foe: Foe, name: str, every: int) -> None:
    """Watch ranges of a topic, and give events; with a reset after so many of them, unless it is nought."""
    versions = itertools.count(2)

    async def watch(first: int) -> None:
        for number in itertools.cycle(range(first, 2500, 25)):
            reader, writer = await foe.connect()
            target = f"{foe.topic(name)}/watch?low=k{number:06}&high=l"
            writer.write(foe.head(target, lines="Accept: application/x-ndjson\r\n"))
            line = await reader.readline()
            foe.did[line.split(b" ")[1].decode() if b" " in line else "cut"] += 1
            if b" 200 " in line:
                reading.append(asyncio.ensure_future(_drain(reader, writer)))
            else:
                writer.close()
                await asyncio.sleep(0.2)

    async def act() -> None:
        version = next(versions)
        await give(foe, name, [append("kz", version), append(f"k{version:06}", version), progress(version)])
        if every and version % every == 0:
            await give(foe, name, [reset("k", "l"), progress(version, "k", "l")])
        await asyncio.sleep(0.02)

    reading = list[Any]()
    await asyncio.gather(foe.side_by_side(2, act), *(watch(first) for first in range(25)))


async def _drain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(65_536):
        pass
    writer.close()


ATTACKS: Final[Mapping[str, Attack]] = {
    act.__name__: act for act in (lines, waiting, fill, pieces, resets, extremes, bad, torn, replays, ranges, told)
}


async def prepare(foe: Foe) -> None:
    """Make the topics of the attacks."""
    for name in (*OWN, *[f"w{number}" for number in range(FREE)]):
        assert await foe.ask("PUT", foe.topic(name), json={"store": "none", "progress": 1}) in (200, 201), name
    for name in ("ranges", "told", "long"):
        assert await give(foe, name, [progress(1)]) == 200
    for version in range(2, 6):
        body = [append(f"k{number}", version, "x" * 500) for number in range(LINES - 1)]
        assert await give(foe, "long", [*body, progress(version)]) == 200


if __name__ == "__main__":
    main(ATTACKS, prepare)
