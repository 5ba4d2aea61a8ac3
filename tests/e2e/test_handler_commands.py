"""The command socket with real REQ and DEALER peers (docs/grip.md §5.8)."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import zmq
import zmq.asyncio

from gripproxy import pipe
from gripproxy.grip import tnetstring
from handler.service import Service
from tests.support.handler_service import PATIENCE, FakeWorker, handler, read_config
from tests.support.ports import free_ports


@pytest.fixture(scope="module")
def specs() -> list[str]:
    """Where PULL, SUB and the command socket are; taken when the tests begin, and not long before."""
    return [f"tcp://127.0.0.1:{port}" for port in free_ports(3)]


@pytest.fixture
async def house(tmp_path: pathlib.Path, specs: list[str]) -> AsyncIterator[tuple[Service, FakeWorker]]:
    pull, sub, command = specs
    # Without the update a second after the first subscription, which would be one more command on a busy machine.
    settings = {"push_in_spec": pull, "push_in_sub_specs": sub, "update_on_first_subscription": "false"}
    config = read_config(tmp_path, 1, **settings, command_spec=command)
    async with handler(config, (b"ch", 0, 1, 0, None)) as parts:
        yield parts


@pytest.fixture
def dealer(specs: list[str]) -> Iterator[zmq.asyncio.Socket]:
    context = zmq.asyncio.Context()
    with context.socket(zmq.DEALER) as sock:
        sock.linger = 0
        sock.connect(specs[2])
        yield sock
    context.term()


async def ask(sock: zmq.asyncio.Socket, method: bytes, **args: Any) -> Any:
    fields: dict[bytes, Any] = {b"method": method, b"id": b"1"}
    if args:
        fields[b"args"] = {name.encode(): value for name, value in args.items()}
    await sock.send_multipart([b"", tnetstring.dumps(fields)])
    empty, reply = await asyncio.wait_for(sock.recv_multipart(), PATIENCE)
    assert empty == b""
    return tnetstring.loads(reply)


def ok(value: Any = None) -> dict[bytes, Any]:
    return {b"id": b"1", b"success": True, b"value": value}


async def test_uris(house: tuple[Service, FakeWorker], dealer: zmq.asyncio.Socket, specs: list[str]) -> None:
    names = (b"publish-pull", b"publish-sub", b"command")
    uris = {name: spec.encode() for name, spec in zip(names, specs, strict=True)}
    assert await ask(dealer, b"get-zmq-uris") == ok(uris)


async def test_a_req_socket_works_too(house: tuple[Service, FakeWorker], specs: list[str]) -> None:
    context = zmq.asyncio.Context()
    with context.socket(zmq.REQ) as req:
        req.linger = 0
        req.connect(specs[2])
        await req.send(tnetstring.dumps({b"method": b"recover"}))
        assert tnetstring.loads(await asyncio.wait_for(req.recv(), PATIENCE)) == {b"success": True, b"value": None}
    context.term()


async def test_published_items_arrive(house: tuple[Service, FakeWorker], dealer: zmq.asyncio.Socket) -> None:
    items = [{b"channel": b"ch", b"http-stream": {b"content": b"via rep"}}]
    assert await ask(dealer, b"publish", items=items) == ok()
    assert await house[1].contents(1) == [b"via rep"]


async def test_malformed_requests_get_no_reply_and_stop_nothing(
    house: tuple[Service, FakeWorker], dealer: zmq.asyncio.Socket, capfd: pytest.CaptureFixture[str]
) -> None:
    good = tnetstring.dumps({b"method": b"recover"})
    for frames in (
        [b"", b"T3:ab"],
        [b"", b"5:"],
        [b"", b"T" + good],
        [b"", tnetstring.dumps({b"id": b"1"})],
        [b""],
        [good],
        [b"", good, b"more"],
    ):
        await dealer.send_multipart(frames)
    assert await ask(dealer, b"zzz") == {b"id": b"1", b"success": False, b"condition": b"method-not-found"}
    house[0].dispatcher.refusals.settle()
    lines = capfd.readouterr().out
    assert lines.count('request refused: way=command reason="message of 5 bytes is not a tnetstring') == 1
    assert lines.count('requests refused: way=command more=6 last_reason="request has 4 frames, expected a delim') == 1
    assert house[0].dispatcher.refusals.totals()["command"] == 7


async def test_the_whole_envelope_comes_back(house: tuple[Service, FakeWorker], dealer: zmq.asyncio.Socket) -> None:
    """A request that came through other ROUTERs carries their addresses."""
    await dealer.send_multipart([b"hop", b"", tnetstring.dumps({b"method": b"recover"})])
    frames = await asyncio.wait_for(dealer.recv_multipart(), PATIENCE)
    assert frames[:2] == [b"hop", b""]


async def test_conncheck_waits_for_the_workers(house: tuple[Service, FakeWorker], dealer: zmq.asyncio.Socket) -> None:
    asking = asyncio.create_task(ask(dealer, b"conncheck", ids=[b"a", b"b"]), name="ask")
    ((_, number, name, args),) = await house[1].expect(pipe.COMMAND)
    assert (name, args) == ("conncheck", {"ids": [b"a", b"b"]})
    house[1].link.send((pipe.ANSWER, number, [b"b"]))
    assert await asking == ok([b"b"])


async def test_many_requests_at_once(house: tuple[Service, FakeWorker], dealer: zmq.asyncio.Socket) -> None:
    """More than the socket keeps, more than one turn reads, and more than may be open."""
    count = 500
    for number in range(count):
        request = {b"method": b"conncheck", b"id": b"%d" % number, b"args": {b"ids": []}}
        await dealer.send_multipart([b"", tnetstring.dumps(request)])
    seen = set()
    for _ in range(count):
        for message in await house[1].expect(pipe.COMMAND):
            house[1].link.send((pipe.ANSWER, message[1], []))
            seen.add(message[1])
        if len(seen) == count:
            break
    ids = set()
    for _ in range(count):
        reply = tnetstring.loads((await asyncio.wait_for(dealer.recv_multipart(), PATIENCE))[1])
        assert isinstance(reply, dict)
        ids.add(reply[b"id"])
    assert ids == {b"%d" % number for number in range(count)}
