"""The private sockets of the hub: admitted without a key, of the service's user only, and replaced after a crash."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import socket
import stat

import pytest
import zmq
import zmq.asyncio

from gripproxy.config import Config, load_config
from gripproxy.process.endpoints import BindError
from gripproxy.process.hub_sockets import HUB_BODY_MAX, hub_control_socket, hub_sub_spec
from handler import service as module
from handler.service import Service
from tests.support.handler_service import handler


def configured(folder: pathlib.Path, *hub: str) -> Config:
    """Return a configuration of a hub, with a control key and no ports."""
    lines = [f"[global]\nrundir={folder}/run", "[proxy]\nworkers=1", "[handler]\ncontrol_key=secret", "[hub]", *hub]
    (folder / "g.conf").write_text("\n".join(lines) + "\n")
    return load_config(str(folder / "g.conf"))


def hub(folder: pathlib.Path) -> Config:
    return configured(folder, "store=hub.db", "hub_anonymous=all")


async def publish(path: str, *items: object) -> bytes:
    """Return the first line of the answer to items that are published in one request."""
    reader, writer = await asyncio.open_unix_connection(path)
    body = json.dumps({"items": items}).encode()
    writer.write(b"POST /publish HTTP/1.1\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.partition(b"\r\n")[0]


def item(content: str, channel: str = "hub/1") -> object:
    return {"channel": channel, "formats": {"http-stream": {"content": content}}}


async def test_items_are_taken_without_a_key(tmp_path: pathlib.Path) -> None:
    config = hub(tmp_path)
    async with handler(config, (b"hub/1", 0, 1, 0, None)) as (_, worker):
        assert await publish(hub_control_socket(config), item("a"), item("b")) == b"HTTP/1.1 200 OK"
        assert await worker.contents(2) == [b"a", b"b"]


async def test_a_batch_of_a_megabyte_fits(tmp_path: pathlib.Path) -> None:
    config = hub(tmp_path)
    async with handler(config, (b"hub/1", 0, 1, 0, None)) as (_, worker):
        assert await publish(hub_control_socket(config), *[item("x" * 100_000)] * 10) == b"HTTP/1.1 200 OK"
        assert await worker.contents(10) == [b"x" * 100_000] * 10
        assert await publish(hub_control_socket(config), item("x" * HUB_BODY_MAX)) == b"HTTP/1.1 400 Bad Request"


async def test_only_the_user_of_the_service_can_connect(tmp_path: pathlib.Path) -> None:
    config = hub(tmp_path)
    async with handler(config):
        for path in (hub_control_socket(config), hub_sub_spec(config).removeprefix("ipc://")):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


async def test_the_held_channels_are_learned(tmp_path: pathlib.Path) -> None:
    config, context = hub(tmp_path), zmq.asyncio.Context()
    async with handler(config, (b"hub/1", 0, 1, 0, None)) as (_, worker):
        with context.socket(zmq.XPUB) as held:
            held.connect(hub_sub_spec(config))
            assert await held.recv() == b"\x01hub/1"
            await worker.subscribe(b"hub/2", 2)
            assert await held.recv() == b"\x01hub/2"
    context.term()


async def test_sockets_of_a_dead_handler_are_replaced(tmp_path: pathlib.Path) -> None:
    config = hub(tmp_path)
    (tmp_path / "run").mkdir(mode=0o700)
    for path in (hub_control_socket(config), hub_sub_spec(config).removeprefix("ipc://")):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)
    async with handler(config, (b"hub/1", 0, 1, 0, None)) as (_, worker):
        assert await publish(hub_control_socket(config), item("a")) == b"HTTP/1.1 200 OK"
        assert await worker.contents(1) == [b"a"]


async def test_the_end_finishes_requests_and_refuses_further_ones(tmp_path: pathlib.Path) -> None:
    config = hub(tmp_path)
    async with handler(config, (b"hub/1", 0, 1, 0, None)) as (service, worker):
        path = hub_control_socket(config)
        reader, writer = await asyncio.open_unix_connection(path)
        body = json.dumps({"items": [item("last")]}).encode()
        head = b"POST /publish HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        assert await worker.contents(1) == [b"last"]
        finishing = asyncio.create_task(service.finish())
        await asyncio.sleep(0)
        writer.write(head + body)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        assert await worker.contents(1) == [b"last"]
        await finishing
        writer.close()
        await writer.wait_closed()


async def test_there_are_none_without_a_hub_that_publishes_here(tmp_path: pathlib.Path) -> None:
    others = ("store=hub.db", "hub_anonymous=all", "publish=http://other:5561", "publish_sub=tcp://other:5562")
    for lines in ((), others):
        config = configured(tmp_path, *lines)
        async with handler(config):
            names = {entry.name for entry in (tmp_path / "run").iterdir()}
            assert not {name for name in names if "hub" in name}, names


async def test_a_file_in_the_way_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = hub(tmp_path)
    os.makedirs(hub_control_socket(config))
    service = Service(config)
    monkeypatch.setattr(module, "ANNOUNCE_TIME", 0.01)
    with pytest.raises(BindError, match=f"cannot use rundir=ipc://{hub_control_socket(config)}: "):
        await service.open()
    await service.close()
