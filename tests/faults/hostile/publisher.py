"""A hostile publisher: ``python -m tests.faults.hostile.publisher``. It may publish, on channels of its own.

Its sessions are held through its own backend, so that its items reach somebody: filters, patches and ids cost the
service nothing where nobody listens.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import zmq

from tests.faults.hostile.assault import Attack, main
from tests.faults.hostile.field import Field, Request, get, hold, tnet

__all__ = ["ATTACKS"]

CHANNEL_COUNT: Final = 20
"""Channels of one hold, as many as ``connection_subscription_max`` allows."""


def stream_item(channel: str, content: str, **more: Any) -> dict[str, Any]:
    """Return an item for streams."""
    return {"channel": channel, "formats": {"http-stream": {"content": content}}, **more}


def poll_item(channel: str, **format: Any) -> dict[str, Any]:
    """Return an item for long-polls."""
    return {"channel": channel, "formats": {"http-response": format}}


async def template_of_percents(field: Field) -> AsyncIterator[None]:
    """480 kB of ``%%`` to 120 streams that substitute variables: one pass costs what the content is long."""
    meta = tuple(f'Grip-Set-Meta: name="v{number}"' for number in range(3))
    path = field.say("percents", hold("stream", "percents; filter=var-subst", headers=meta))
    streams = field.group(120, get(path))
    body = json.dumps({"items": [stream_item("percents", "%%" * 240_000)]}).encode()
    while True:
        await streams.fill()
        await field.post(body)
        yield


async def template_that_grows(field: Field) -> AsyncIterator[None]:
    """470 kB of directives that stand for a long meta value: the result is hundreds of times as long."""
    meta = f'Grip-Set-Meta: name="{"n" * 8000}"'
    path = field.say("growing", hold("stream", "growing; filter=var-subst", headers=(meta,)))
    streams = field.group(2, get(path))
    body = json.dumps({"items": [stream_item("growing", "%(name)s" * 59_000)]}).encode()
    while True:
        await streams.fill()
        await field.post(body)
        yield


async def ids_that_grow(field: Field) -> AsyncIterator[None]:
    """Directives of ``build-id`` whose id format repeats the channel's id."""
    meta = f'Grip-Set-Meta: id_format="{"%(ids)s" * 300}"'
    path = field.say("ids", hold("stream", f"ids; prev-id={'p' * 500}; filter=build-id", headers=(meta,)))
    streams = field.group(20, get(path))
    body = json.dumps({"items": [stream_item("ids", "%I" * 240_000)]}).encode()
    while True:
        await streams.fill()
        await field.post(body)
        yield


def _document(size: int) -> bytes:
    return json.dumps({"list": list(range(size // 7)), "text": "t" * 100}).encode()


async def costly_patch(field: Field) -> AsyncIterator[None]:
    """47 and 450 kB of patch operations to 335 long-polls that hold the same 50 kB document, and to 60 with others."""
    same = hold("response", "patched", body=_document(50_000))

    async def differing(request: Request, reader: object, writer: Any) -> bool:
        body = _document(20_000).replace(b"tttttttt", b"%08x" % random.getrandbits(32), 1)
        writer.write(hold("response", "patched", body=body))
        return True

    equal = field.group(335, get(field.say("patched", same)), silent=True)
    different = field.group(60, get(field.behave("patched-each", differing)), silent=True)
    operations = [{"op": "add", "path": "/list/0", "value": number} for number in range(900)]
    move = {"op": "move", "from": "/list/900", "path": "/list/0"}
    bodies = [
        json.dumps({"items": [poll_item("patched", **{"body-patch": ops})]}).encode()
        for ops in ([move] * 8000, operations, [move] * 900)
    ]
    turn = 0
    while True:
        equal.renew()
        different.renew()
        await equal.fill()
        await different.fill()
        await field.post(bodies[turn % 3])
        turn += 1
        yield


async def many_values(field: Field) -> AsyncIterator[None]:
    """Items of 480 kB, and requests of 480 kB, that are 120,000 empty lists: each becomes an object."""
    lists: list[list[object]] = [[]] * 120_000
    item = {"channel": "values", "formats": {"http-response": {"body-patch": lists}}}
    body = json.dumps({"items": [item]}).encode()
    message = b"J" + json.dumps(item).encode()
    command = tnet({"method": "publish", "args": {"items": [item]}})
    while True:
        for _ in range(3):
            field.push("pull", message)
            field.push("sub", b"values", message)
            field.command(command)
        await field.post(body)
        yield


async def patch_that_copies(field: Field) -> AsyncIterator[None]:
    """Operations that double a part of the document again and again."""
    path = field.say("copied", hold("response", "copied", body=b'{"a": ["' + b"x" * 1000 + b'"]}'))
    polls = field.group(20, get(path), silent=True)
    copies: list[dict[str, Any]] = [{"op": "copy", "from": "/a", "path": "/a/0"} for _ in range(40)]
    while True:
        polls.renew()
        await polls.fill()
        await field.publish(poll_item("copied", **{"body-patch": copies}))
        yield


async def long_names(field: Field) -> AsyncIterator[None]:
    """Ids, channels and meta of 400 kB on all ways in: caches keep names."""
    serial = random.getrandbits(30)
    while True:
        for _ in range(80):
            serial += 1
            name = f"{serial}" * 44_000
            field.pull_item(stream_item("names", "x", id=name))
            field.pull_item(stream_item(name, "x", id="1"))
            field.sub_item(stream_item(name, "x", id="1"))
            field.command(tnet({"method": "publish", "args": {"items": [stream_item("names", "x", id=name)]}}))
        await field.publish(stream_item("names", "x", id=name))
        await field.publish(stream_item("names", "x", meta={"m": name}))
        await field.publish(stream_item("names", "x", **{"prev-id": name}))
        yield


async def statuses(field: Field) -> AsyncIterator[None]:
    """Status codes that are none, and line breaks in reasons and headers, to long-polls."""
    polls = field.group(10, get(field.say("statuses", hold("response", "statuses"))), silent=True)
    forms: list[dict[str, Any]] = [
        *({"code": code, "body": "HTTP/1.1 200 OK\r\n\r\n"} for code in (-1, 0, 1, 99, 100, 101, 103, 1000, 10**9)),
        *({"reason": f"OK{end}X-Injected: yes", "body": "b"} for end in ("\r\n", "\n", "\r", "\0", "\x7f", "\x01")),
        *({"headers": {"X-A": f"a{end}X-Injected: yes"}, "body": "b"} for end in ("\r\n", "\n", "\r", "\0")),
        *({"headers": {f"X-A{end}X-Injected": "yes"}, "body": "b"} for end in ("\r\n", "\n", ": ", "\0", " ")),
        {"headers": {"Content-Length": "999999", "Transfer-Encoding": "chunked"}, "body": "b"},
    ]
    while True:
        for form in forms:
            for member in polls.open:
                first = member.first
                # 503: the worker has as many clients as it may; it was not the item.
                expected = not first or first[:13] in (b"HTTP/1.1 200 ", b"HTTP/1.1 503 ")
                if b"\nx-injected" in first.lower() or not expected:
                    field.breach(f"a client got {first!r}")
            polls.renew()
            await polls.fill()
            await field.publish(poll_item("statuses", **form))
        yield


NONSENSE: Final = (
    b"",
    b"T",
    b"J",
    b"X",
    b"J{",
    b"J[]",
    b"Jnull",
    b'J{"channel": 5}',
    b'J{"channel": "x", "formats": []}',
    b"J" + b"[" * 100_000,
    b"J" + b'{"a":' * 50_000,
    b'J{"channel": "x", "id": ' + b"1" * 100_000 + b"}",
    b"T0:",
    b"T9999999999:",
    b"T99999999999999999999999999:x,",
    b"T5:hello",
    b"T5:hello?",
    b"T-1:,",
    b"T10:5:hello,5:x]",
    b"T" + b"1:" * 50_000,
    b"T" + tnet({"channel": {"a": 1}}),
    b"T" + tnet({"channel": "x", "http-stream": {"content": 5}}),
    b"\xff\xfe\x00" * 1000,
)
"""Messages that are no item, bare or behind the letter of their form."""


def _nested(depth: int) -> bytes:
    data = b"0:~"
    for _ in range(depth):
        data = b"%d:%b]" % (len(data), data)
    return b"T" + data


async def nonsense(field: Field) -> AsyncIterator[None]:
    """What is neither a tnetstring nor JSON, on all ways in, in bursts: errors and log lines cost something too."""
    forms = (*NONSENSE, _nested(5_000))
    while True:
        for _ in range(20):
            for form in forms:
                field.push("pull", form)
                field.push("sub", b"nonsense", form)
                field.command(form)
                field.push("rep", form)
        for form in forms:
            await field.post(form[1:])
        for path in ("/", "/publish/", "/nothing", "/publish?a=b", "*"):
            await field.post(b"{}", path)
        yield


async def flood(field: Field) -> AsyncIterator[None]:
    """3,000 items a round on channels that have nobody, each with an id of its own."""
    serial = random.getrandbits(40)
    while True:
        for number in range(3000):
            field.pull_item(stream_item(f"flood-{serial}-{number}", "x", id=str(number)))
        serial += 1
        yield


async def chains(field: Field) -> AsyncIterator[None]:
    """Items whose predecessor never comes, 60 kB each, on 20 channels with a session: they wait in the sequencer."""
    channels = [f"chain-{number}" for number in range(CHANNEL_COUNT)]
    streams = field.group(2, get(field.say("chains", hold("stream", *channels))))
    serial = random.getrandbits(40)
    while True:
        await streams.fill()
        for channel in channels:
            for _ in range(10):
                serial += 2
                item = stream_item(channel, "x" * 60_000, id=str(serial), **{"prev-id": str(serial - 1)})
                field.pull_item(item)
        yield


async def idle_control(field: Field) -> AsyncIterator[None]:
    """More connections to the control port than it takes, that say nothing, half a head or half a body."""
    halves = (b"", b"POST /publish HTTP/1.1\r\nHost: x\r\n", get("/publish", "Content-Length: 900000", method="POST"))
    while True:
        idle = [
            await field.connect(halves[number % 3] + b"x" * 3 * (number % 3 == 2), port="control")
            for number in range(160)
        ]
        field.did["opened"] += sum(member is not None for member in idle)
        yield
        for member in idle:
            if member is not None:
                member.drop()


async def filters_that_wait(field: Field) -> AsyncIterator[None]:
    """Items of 50 kB to streams whose filter asks a backend that does not answer; then a close, which waits too."""

    async def silent(request: Request, reader: object, writer: Any) -> bool:
        field.did["filter asked"] += 1
        await writer.wait_closed()
        return False

    url = field.behave("silent", silent)
    meta = f'Grip-Set-Meta: url="{url}"'
    path = field.say("waiting", hold("stream", "waiting; filter=http-check; filter=http-modify", headers=(meta,)))
    streams = field.group(20, get(path))
    content = "x" * 50_000
    while True:
        await streams.fill()
        for _ in range(30):
            field.pull_item(stream_item("waiting", content))
        field.pull_item({"channel": "waiting", "formats": {"http-stream": {"action": "close"}}})
        yield


async def hints(field: Field) -> AsyncIterator[None]:
    """Hints, closes and refreshes as fast as they can be published, to sessions that then ask or come again."""
    link = "Grip-Link: </hostile/hinted>; rel=next; timeout=120"
    path = field.say("hinted", hold("stream", "hinted; prev-id=1", headers=(link,)))
    streams = field.group(20, get(path))
    polls = field.group(20, get(field.say("hinted-poll", hold("response", "hinted; prev-id=1"))), silent=True)
    while True:
        await streams.fill()
        await polls.fill()
        for number in range(50):
            for action in ("hint", "refresh", "hint"):
                formats = {name: {"action": action} for name in ("http-stream", "http-response", "ws-message")}
                field.pull_item({"channel": "hinted", "formats": formats})
            gap = {"id": f"{number}-{random.random()}", "prev-id": f"nothing-{number}", "no-seq": True}
            field.pull_item(stream_item("hinted", "x", **gap))
        field.pull_item({"channel": "hinted", "formats": {"http-stream": {"action": "close"}}})
        yield


async def large_items(field: Field) -> AsyncIterator[None]:
    """Items of half a megabyte to 60 streams that never read, and of 20 MB that are too large for anybody."""
    streams = field.group(60, get(field.say("large", hold("stream", "large"))), deaf=True, small=True)
    large = b"J" + json.dumps(stream_item("large", "x" * 450_000)).encode()
    huge = b"J" + json.dumps(stream_item("large", "x" * 20_000_000)).encode()
    turn = 0
    while True:
        await streams.fill()
        for _ in range(5):
            field.push("pull", large)
        if turn % 4 == 0:
            field.push("pull", huge)
            field.push("sub", b"large", huge)
        turn += 1
        yield


def _bursts(way: str) -> Callable[[Field], AsyncIterator[None]]:
    async def bursts(field: Field) -> AsyncIterator[None]:
        """Items of 450 kB over three connections, 90 MB at a time, for streams that do not read."""
        streams = field.group(10, get(field.say(f"bursts-{way}", hold("stream", "bursts"))), deaf=True, small=True)
        item = b"J" + json.dumps(stream_item("bursts", "x" * 450_000)).encode()
        sockets = [field.fresh_socket(way) for _ in range(3)]
        try:
            while True:
                await streams.fill()
                for _ in range(66):
                    for sock in sockets:
                        if sock.poll(0, zmq.POLLOUT):
                            sock.send_multipart([b"bursts", item] if way == "sub" else [item], zmq.NOBLOCK, copy=False)
                            field.did["pushed"] += 1
                    await asyncio.sleep(0)
                yield
        finally:
            for sock in sockets:
                sock.close(0)

    return bursts


ATTACKS: Final[dict[str, Attack]] = {
    "template-of-percents": Attack(template_of_percents, 1.0),
    "template-that-grows": Attack(template_that_grows, 1.0),
    "ids-that-grow": Attack(ids_that_grow, 1.0),
    "costly-patch": Attack(costly_patch, 1.0),
    "many-values": Attack(many_values, 0.5),
    "patch-that-copies": Attack(patch_that_copies, 0.5),
    "long-names": Attack(long_names, 0.5),
    "statuses": Attack(statuses, 0.5),
    "nonsense": Attack(nonsense, 0.5),
    "flood": Attack(flood, 0.5),
    "chains": Attack(chains, 0.3),
    "idle-control": Attack(idle_control, 1.0),
    "filters-that-wait": Attack(filters_that_wait, 0.5),
    "hints": Attack(hints, 0.5),
    "large-items": Attack(large_items, 0.5),
    "bursts-pull": Attack(_bursts("pull"), 2.0),
    "bursts-sub": Attack(_bursts("sub"), 2.0),
}
"""All attacks by name."""


if __name__ == "__main__":
    sys.exit(main(ATTACKS))
