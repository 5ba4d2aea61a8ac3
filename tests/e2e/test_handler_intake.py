"""Publishing over ZeroMQ: PULL and SUB, with real sockets (docs/grip.md §5.6, §5.7)."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import zmq
import zmq.asyncio

from gripproxy import pipe
from gripproxy.grip import tnetstring
from gripproxy.process.zmq_reader import TURN
from handler.dispatch.worker_links import WorkerLinks
from tests.support.handler_service import eventually, handler, read_config
from tests.support.ports import free_ports


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """A publisher's ZeroMQ, with all its sockets closed at the end."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def push(context: zmq.Context[zmq.Socket[bytes]]) -> Iterator[zmq.Socket[bytes]]:
    """A publisher's PUSH socket."""
    with context.socket(zmq.PUSH) as sock:
        sock.linger = 0
        yield sock


def item(content: bytes, channel: bytes = b"ch", **more: Any) -> bytes:
    fields: dict[bytes, Any] = {b"channel": channel, b"http-stream": {b"content": content}}
    return tnetstring.dumps(fields | {name.replace("_", "-").encode(): value for name, value in more.items()})


STREAM = (b"ch", 0, 1, 0, None)


async def test_pull_takes_the_three_forms(tmp_path: pathlib.Path, push: zmq.Socket[bytes]) -> None:
    spec = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    async with handler(read_config(tmp_path, push_in_spec=spec), STREAM) as (_, worker):
        push.connect(spec)
        push.send(item(b"bare"))
        push.send(b"T" + item(b"T"))
        push.send(b'J{"channel":"ch","http-stream":{"content":"J"}}')
        assert await worker.contents(3) == [b"bare", b"T", b"J"]


async def test_bad_items_are_skipped_and_counted(
    tmp_path: pathlib.Path, push: zmq.Socket[bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    """A truncated tnetstring ends Pushpin 1.36; here the first is one line, and all the others are one more."""
    bad: list[bytes] = [b"", b"T3:ab", b"5:", b"J{", item(b"x")[:-1], b"hello", tnetstring.dumps({b"channel": b"ch"})]
    spec = f"ipc://{tmp_path}/pull"
    async with handler(read_config(tmp_path, push_in_spec=spec), STREAM) as (service, worker):
        push.connect(spec)
        for message in bad:
            push.send(message)
        push.send_multipart([item(b"two"), item(b"parts"), b""])
        push.send(item(b"good"))
        assert await worker.contents(1) == [b"good"]
        assert service.dispatcher.counters.invalid == len(bad) + 1
    lines = capfd.readouterr().out
    assert lines.count('item skipped: way=PULL reason="message is empty; expected J and JSON, or a tnetstring"') == 1
    assert lines.count(f'items skipped: way=PULL more={len(bad)} last_reason="message has 3 parts, expected 1"') == 1
    assert lines.count(" way=PULL ") == 2


async def test_more_than_one_turn_and_then_nothing(tmp_path: pathlib.Path, push: zmq.Socket[bytes]) -> None:
    """The descriptor is edge-triggered: whoever stops at the bound of a turn is not woken again."""
    spec = f"ipc://{tmp_path}/pull"
    # All are sent before any is read: ZeroMQ has to keep them.
    config = read_config(tmp_path, push_in_spec=spec, push_in_buffer_max=0)
    async with handler(config, STREAM) as (_, worker):
        push.connect(spec)
        count = 3 * TURN + 1
        for number in range(count):
            push.send(item(b"%d" % number, id=b"%d" % number))
        assert await worker.contents(count) == [b"%d" % number for number in range(count)]


async def test_the_mode_of_an_ipc_socket(tmp_path: pathlib.Path) -> None:
    config = read_config(tmp_path, push_in_spec=f"ipc://{tmp_path}/pull", ipc_file_mode="600")
    async with handler(config):
        assert (tmp_path / "pull").stat().st_mode & 0o777 == 0o600


async def test_sub_forwards_subscriptions(tmp_path: pathlib.Path, context: zmq.Context[Any]) -> None:
    spec = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    config = read_config(tmp_path, push_in_sub_specs=spec, subscription_linger=0)
    async with handler(config) as (service, worker):
        publisher = zmq.asyncio.Context.shadow(context).socket(zmq.XPUB)
        publisher.connect(spec)
        await worker.subscribe(b"zc")
        assert await publisher.recv() == b"\x01zc"
        await publisher.send_multipart([b"zc", b"J" + b'{"channel":"other","http-stream":{"content":"x"}}'])
        assert await worker.contents(1) == [b"x"]
        # ZeroMQ matches prefixes, items go to the exact channel.
        await publisher.send_multipart([b"zcX", item(b"nobody's")])
        await publisher.send_multipart([b"zc"])
        await publisher.send_multipart([b"zc", b"T3:ab"])
        await publisher.send_multipart([b"zc", item(b"y", b"ignored")])
        assert await worker.contents(1) == [b"y"]
        assert service.dispatcher.counters.invalid == 2
        assert service.dispatcher.counters.unheard == 1
        worker.link.send((pipe.UNSUBSCRIBE, b"zc", False))
        assert await publisher.recv() == b"\x00zc"
        publisher.close(linger=0)


async def test_sub_connects_to_all_its_publishers(tmp_path: pathlib.Path, context: zmq.Context[Any]) -> None:
    asynchronous = zmq.asyncio.Context.shadow(context)
    publishers = [asynchronous.socket(zmq.XPUB) for _ in range(2)]
    specs = [f"tcp://127.0.0.1:{publisher.bind_to_random_port('tcp://127.0.0.1')}" for publisher in publishers]
    config = read_config(tmp_path, push_in_sub_specs=",".join(specs), push_in_sub_connect="true")
    async with handler(config, (b"before", 0, 1, 0, None)) as (_, worker):
        for publisher in publishers:
            assert await publisher.recv() == b"\x01before"
            await publisher.send_multipart([b"before", item(b"a")])
        assert await worker.contents(2) == [b"a", b"a"]
        await worker.subscribe(b"later")
        for publisher in publishers:
            assert await publisher.recv() == b"\x01later"
            await publisher.send_multipart([b"later", item(b"b")])
        assert await worker.contents(2) == [b"b", b"b"]
    for publisher in publishers:
        publisher.close(linger=0)


async def test_subscribing_amid_a_flood_loses_no_edge(tmp_path: pathlib.Path, context: zmq.Context[Any]) -> None:
    """Changing a SUB socket's subscriptions takes its descriptor's edge away."""
    spec = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    async with handler(read_config(tmp_path, push_in_sub_specs=spec)) as (_, worker):
        publisher = zmq.asyncio.Context.shadow(context).socket(zmq.XPUB)
        publisher.connect(spec)
        for number in range(200):
            channel = b"c%d" % number
            worker.link.send((pipe.SUBSCRIBE, channel, 1))
            assert await publisher.recv() == b"\x01" + channel
            await publisher.send_multipart([channel, item(channel)])
        assert await worker.contents(200) == [b"c%d" % number for number in range(200)]
        publisher.close(linger=0)


async def test_an_item_published_in_a_jam_waits_at_the_publisher(
    tmp_path: pathlib.Path, push: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = f"ipc://{tmp_path}/pull"
    jammed = [True]
    monkeypatch.setattr(WorkerLinks, "congested", lambda links: jammed[0])
    async with handler(read_config(tmp_path, push_in_spec=spec), STREAM) as (service, worker):
        push.connect(spec)
        push.send(item(b"x"))

        async def arrived() -> bool:
            return service.sources.unread

        await eventually(arrived)
        assert service.dispatcher.counters.received == 0
        jammed[0] = False
        assert await worker.contents(1) == [b"x"]
