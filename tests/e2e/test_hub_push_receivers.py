"""Receivers of pushes of every kind, against the whole service: what they were sent, and whether it was acknowledged.

Each has a subscription of its own on one topic; a message is published once.
"""

from __future__ import annotations

import asyncio
import datetime
import pathlib
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from tests.e2e.test_hub_pubsub import Client
from tests.faults.hub_owner_tokens import KEY
from tests.support.certificates import make_certificate
from tests.support.hub import HubSite, hub_site, until
from tests.support.raw_receiver import RawReceiver, RawRequest, Way, answer, raw_receiver, silence

ACKNOWLEDGING = {102, 200, 201, 202, 204}
"""Statuses that acknowledge; 102 if nothing final follows."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return the folder of certificates; ``trusted.crt`` has those that the hub trusts."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificate(folder, "good", "localhost")
    make_certificate(folder, "expired", "localhost", until=datetime.datetime(2024, 1, 1))
    make_certificate(folder, "unknown", "localhost")
    trusted = [(folder / f"{stem}.crt").read_bytes() for stem in ("good", "expired")]
    (folder / "trusted.crt").write_bytes(b"".join(trusted))
    return folder


@pytest.fixture(scope="module")
def site(certificates: pathlib.Path) -> Iterator[HubSite]:
    settings = {
        "hub.hub_key": KEY,
        "hub.hub_anonymous": "none",
        "hub.callback_allow": "127.0.0.0/8",
        "hub.callback_ca": str(certificates / "trusted.crt"),
        "hub.push_http": "true",
    }
    with hub_site(settings) as site:
        yield site


@pytest.fixture
async def receiver() -> AsyncIterator[RawReceiver]:
    async with raw_receiver() as receiver:
        yield receiver


async def subscribe(client: Client, endpoints: dict[str, str], **fields: Any) -> None:
    """Make a topic, and a subscription for each endpoint."""
    await client.call("PUT", "topics/tt-1", {})
    for id, url in endpoints.items():
        given = {"topic": client.topic(), "pushConfig": {"pushEndpoint": url}, **fields}
        await client.call("PUT", f"subscriptions/{id}", given)


async def backlogs(client: Client) -> dict[str, int]:
    return {each["name"].rpartition("/")[2]: each["backlog"] for each in await client.figures()}


async def wait_for_backlogs(client: Client, expected: dict[str, int]) -> None:
    """Wait until subscriptions have so many messages."""
    found: dict[str, int] = {}
    deadline = asyncio.get_running_loop().time() + 30
    while asyncio.get_running_loop().time() < deadline:
        found = await backlogs(client)
        if found == expected:
            return
        await asyncio.sleep(0.1)
    wrong = {id: found.get(id) for id in expected if found.get(id) != expected[id]}
    raise AssertionError(f"backlogs: {wrong}")


def interim(status: int, then: Way | None = None) -> Way:
    """Return the way that answers with an interim status, and then in another way, or by closing the connection."""

    async def way(request: RawRequest, writer: Any) -> None:
        writer.write(f"HTTP/1.1 {status} Text\r\n\r\n".encode())
        await writer.drain()
        if then is None:
            raise ConnectionError
        await then(request, writer)

    return way


def raw(data: bytes, *, close: bool = True) -> Way:
    """Return the way that writes bytes, and closes the connection or leaves it open."""

    async def way(request: RawRequest, writer: Any) -> None:
        writer.write(data)
        await writer.drain()
        if close:
            raise ConnectionError
        await silence(request, writer)

    return way


async def reset(request: RawRequest, writer: Any) -> None:
    """Reset the connection."""
    writer.transport.abort()
    raise ConnectionError


async def endless_body(request: RawRequest, writer: Any) -> None:
    """Answer 200 with a body that does not end."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"2000\r\n" + b"x" * 8192 + b"\r\n")
        await writer.drain()


async def endless_head(request: RawRequest, writer: Any) -> None:
    """Answer with a head that does not end."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-Header: " + b"x" * 1000 + b"\r\n")
        await writer.drain()


async def slow_head(request: RawRequest, writer: Any) -> None:
    """Answer a byte at a time."""
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" * 100:
        writer.write(bytes((byte,)))
        await writer.drain()
        await asyncio.sleep(1.0)


async def test_each_status(site: HubSite, receiver: RawReceiver) -> None:
    """Scenario 30: 100 to 599. A refused message is sent again, an acknowledged one never."""
    async with aiohttp.ClientSession() as session:
        client = Client(session, site, "statuses")
        for status in range(100, 600):
            receiver.ways[f"/{status}"] = interim(status) if status < 200 else answer(status)
        await subscribe(client, {f"s-{status}": receiver.url(f"/{status}") for status in range(100, 600)})
        await client.publish("a")
        refused = [status for status in range(100, 600) if status not in ACKNOWLEDGING]
        await until(lambda: all(len(receiver.at(f"/{status}")) >= 2 for status in refused), "repetitions", 90)
        await wait_for_backlogs(client, {f"s-{status}": int(status not in ACKNOWLEDGING) for status in range(100, 600)})
        assert {status: len(receiver.at(f"/{status}")) for status in ACKNOWLEDGING} == dict.fromkeys(ACKNOWLEDGING, 1)
        answers = {each["name"].rpartition("-")[2]: each["answers"] for each in await client.figures()}
        assert {name for name, found in answers.items() if "remote_server_4xx" in found} == {*map(str, range(400, 500))}
        assert {name for name, found in answers.items() if "remote_server_5xx" in found} == {*map(str, range(500, 600))}


WAYS: dict[str, tuple[Way, bool]] = {
    "garbage": (raw(b"\0\xff\0 nothing\r\n\r\n"), False),
    "another-protocol": (raw(b"220 mail.example ESMTP\r\n"), False),
    "nothing": (raw(b""), False),
    "reset": (reset, False),
    "closed-in-head": (raw(b"HTTP/1.1 200 OK\r\nContent-Le"), False),
    "closed-in-body": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), False),
    "two-lengths": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na"), False),
    "redirect": (answer(301, "Location: /good\r\n"), False),
    "interim-then-500": (interim(102, answer(500)), False),
    "interim-then-closed": (interim(102), True),
    "interim-then-200": (interim(102, answer(200)), True),
    "many-interims": (interim(103, interim(102, interim(103, answer(202)))), True),
    "endless-body": (endless_body, True),
    "endless-head": (endless_head, False),
    "large-body": (answer(200, body=b"x" * 1_000_000), True),
}
"""Ways of answering at once, and whether they acknowledge."""


async def test_answers_of_every_kind(site: HubSite, receiver: RawReceiver) -> None:
    """Scenarios 32 to 34, and the good one beside, which nothing delays."""
    async with aiohttp.ClientSession() as session:
        client = Client(session, site, "ways")
        receiver.ways.update({f"/{name}": way for name, (way, _) in WAYS.items()})
        await subscribe(client, {name: receiver.url(f"/{name}") for name in WAYS} | {"good": receiver.url("/good")})
        await client.publish("a")
        refused = [name for name, (_, acked) in WAYS.items() if not acked]
        await until(lambda: all(len(receiver.at(f"/{name}")) >= 2 for name in refused), "repetitions")
        await wait_for_backlogs(client, {name: int(not acked) for name, (_, acked) in WAYS.items()} | {"good": 0})
        sent = {name: len(receiver.at(f"/{name}")) for name, (_, acked) in WAYS.items() if acked}
        assert sent == dict.fromkeys(sent, 1)
        # No redirect was followed.
        assert len(receiver.at("/good")) == 1


async def test_answers_that_need_the_deadline(site: HubSite, receiver: RawReceiver) -> None:
    """Scenarios 31 and 32: silence is a refusal at the deadline, and an acknowledgement behind 102."""
    ways = {"silent": silence, "slow-head": slow_head, "open": raw(b"HTTP/1.1 2", close=False)}
    async with aiohttp.ClientSession() as session:
        client = Client(session, site, "late")
        receiver.ways.update({f"/{name}": way for name, way in ways.items()})
        receiver.ways["/processing"] = interim(102, silence)
        await subscribe(client, {name: receiver.url(f"/{name}") for name in (*ways, "processing")})
        await client.publish("a")
        await until(lambda: all(len(receiver.at(f"/{name}")) >= 2 for name in ways), "repetitions", 60)
        for name in ways:
            first, second, *_ = receiver.at(f"/{name}")
            assert second.began - first.began >= 9.5, name
        await wait_for_backlogs(client, {**dict.fromkeys(ways, 1), "processing": 0})
        assert len(receiver.at("/processing")) == 1


async def test_certificates(site: HubSite, certificates: pathlib.Path) -> None:
    """Scenario 35: a receiver with a certificate that is not valid is sent nothing."""
    async with aiohttp.ClientSession() as session:
        client = Client(session, site, "tls")
        async with (
            raw_receiver(_tls(certificates, "good")) as good,
            raw_receiver(_tls(certificates, "unknown")) as unknown,
            raw_receiver(_tls(certificates, "expired")) as expired,
        ):
            await subscribe(
                client,
                {
                    "good": good.url(host="localhost"),
                    "wrong-name": good.url("/name", host="127.0.0.1"),
                    "self-signed": unknown.url(host="localhost"),
                    "expired": expired.url(host="localhost"),
                },
            )
            await client.publish("a")
            await good.wait(1)
            deadline = asyncio.get_running_loop().time() + 30
            while asyncio.get_running_loop().time() < deadline:
                answers = {each["name"].rpartition("/")[2]: each["answers"] for each in await client.figures()}
                if all(answers[name].get("unreachable", 0) >= 2 for name in ("wrong-name", "self-signed", "expired")):
                    break
                await asyncio.sleep(0.1)
            await wait_for_backlogs(client, {"good": 0, "wrong-name": 1, "self-signed": 1, "expired": 1})
            assert [len(each.requests) for each in (good, unknown, expired)] == [1, 0, 0]


def _tls(folder: pathlib.Path, stem: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{stem}.crt", folder / f"{stem}.key")
    return context
