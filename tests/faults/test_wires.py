"""The parts that speak: events of backends, answers to clients, what publishers send, the relay."""

from __future__ import annotations

import asyncio
import os
import pathlib

import pytest
import zmq

from handler.control.command_socket import parse_request
from handler.sources.ingest import items_of_args, parse_message
from tests.faults.answer import Answer, Broken, Events
from tests.faults.backend import last_ids, pack_events, unpack_events
from tests.faults.history import Diary, read_diary
from tests.faults.publisher import Publisher, by_socket, item, open_socket
from tests.faults.relay import Relay
from tests.faults.truth import ChannelLog, item_id


def test_ids_of_the_proxys_questions() -> None:
    assert last_ids(["a-1; last-id=x, a-2; last-id=3", 'b-0; last-id="7"']) == {"a-1": "x", "a-2": "3", "b-0": "7"}
    assert last_ids([]) == {}


def test_events_of_a_websocket_over_http() -> None:
    events = [("OPEN", b""), ("TEXT", b"hello\r\n"), ("CLOSE", b"\x03\xe8")]
    packed = pack_events(events)
    assert packed == b"OPEN\r\nTEXT 7\r\nhello\r\n\r\nCLOSE 2\r\n\x03\xe8\r\n"
    assert unpack_events(packed) == events


def test_only_whole_events_of_a_stream_count() -> None:
    events = Events()
    assert events.feed(b": hello c.1\n\nid: 1\nda") == [{"": "hello c.1"}]
    assert events.feed(b"ta: x\n\nid: 2\ndata: y\n") == [{"id": "1", "data": "x"}]


async def body(data: bytes, **headers: str) -> list[bytes]:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return [piece async for piece in Answer(reader, 200, named).pieces()]


async def test_the_body_of_an_answer() -> None:
    assert await body(b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", transfer_encoding="chunked") == [b"he", b"llo"]
    assert await body(b"hello", content_length="5") == [b"hello"]


@pytest.mark.parametrize("data", [b"", b"2\r\nh", b"2\r\nhe\r\n", b"2\r\nhe\r\n0\r\n", b"x\r\n"])
async def test_a_chunked_body_that_is_cut(data: bytes) -> None:
    with pytest.raises(Broken, match="cut"):
        await body(data, transfer_encoding="chunked")


async def test_other_bodies_that_are_cut() -> None:
    with pytest.raises(Broken, match="cut"):
        await body(b"hell", content_length="5")
    with pytest.raises(Broken, match="without length"):
        await body(b"hell")


def test_a_publisher_writes_before_it_publishes_whatever_it_does_then(tmp_path: pathlib.Path) -> None:
    sent: list[str] = []

    def send(one: dict[str, str]) -> bool:
        reader = ChannelLog(tmp_path, one["channel"])
        assert reader.refresh() >= int(one["id"])
        sent.append(one["id"])
        return len(sent) % 10 != 0

    diary = Diary(tmp_path / "diary", "publisher x")
    publisher = Publisher(tmp_path, ["a-2"], diary, send, 0.5, 1)
    for _ in range(100):
        publisher.step()
    diary.close()
    records = read_diary(tmp_path / "diary")
    assert [record.values[1] for record in records if record.what == "wrote"] == list(range(1, 101))
    ways = {record.values[2] for record in records if record.what == "published"}
    assert ways == {"sent", "twice", "swapped", "lost", "failed"}
    assert sent != sorted(sent, key=int)
    assert item("a-2", 3)["prev-id"] == "2"


@pytest.mark.parametrize("way", ["pull", "sub", "rep"])
def test_what_is_sent_by_sockets_is_taken(way: str) -> None:
    kind = {"pull": zmq.PULL, "sub": zmq.SUB, "rep": zmq.ROUTER}[way]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context.socket(kind) as there:
        there.setsockopt(zmq.RCVTIMEO, 20_000)
        there.setsockopt(zmq.LINGER, 0)
        if way == "sub":
            there.setsockopt(zmq.SUBSCRIBE, b"a-1")
        port = there.bind_to_random_port("tcp://127.0.0.1")
        with open_socket(context, way, port) as here:
            send = by_socket(here, way)
            if way == "rep":
                # Nobody answers in time; the request is there all the same.
                assert not send(item("a-1", 1))
                parts = there.recv_multipart()[2:]
            else:
                while not (parts := there.recv_multipart() if there.poll(50) else []):
                    assert send(item("a-1", 1))
    context.term()
    if way == "rep":
        request = parse_request(parts[0])
        (taken,) = items_of_args(request.args)
        assert request.method == b"publish"
    else:
        taken = parse_message(parts[-1], parts[0] if way == "sub" else None)
    assert (taken.channel, taken.id, taken.prev_id) == tuple(
        name.encode() for name in ("a-1", item_id("a-1", 1), item_id("a-1", 0))
    )


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def test_the_relay_passes_on_stalls_and_cuts(tmp_path: pathlib.Path) -> None:
    loop = asyncio.get_running_loop()
    target, source = os.fspath(tmp_path / "target"), os.fspath(tmp_path / "source")
    relay = Relay(target)
    server = await loop.create_unix_server(relay.accept, source)
    async with asyncio.timeout(20):
        # Nobody is there yet.
        reader, writer = await asyncio.open_unix_connection(source)
        assert await reader.read() == b""
        writer.transport.abort()
        echo = await loop.create_unix_server(Echo, target)
        reader, writer = await asyncio.open_unix_connection(source)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        relay.obey("stall")
        writer.write(b"two")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.1)
        relay.obey("flow")
        assert await reader.readexactly(3) == b"two"
        relay.obey("cut")
        assert await reader.read() == b""
        writer.transport.abort()
        echo.close()
        server.close()
        for _ in range(10):  # turns of the loop, in which what was aborted is closed
            await asyncio.sleep(0)
        assert not relay.ends
