"""docs/grip.md §5.8: requests and replies of the command socket, as observed on Pushpin (§13.12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import zmq
import zmq.asyncio

from gripproxy import pipe
from gripproxy.grip import tnetstring
from gripproxy.grip.item_pack import unpack_item
from gripproxy.process.log import WARNING
from handler.control.command_socket import (
    CHECKED_MAX,
    ENVELOPE_MAX,
    ID_COST,
    Commands,
    CommandSocket,
    Request,
    RequestError,
    failure,
    parse_request,
    success,
)
from handler.dispatch.dispatcher import Dispatcher
from handler.sources.value_count import VALUES_MAX
from tests.support.log_lines import LogLines

PATIENCE = 20.0

URIS = {b"command": b"tcp://127.0.0.1:5563", b"publish-pull": b"tcp://127.0.0.1:5560"}


class Worker:
    def __init__(self) -> None:
        self.got: list[pipe.Message] = []
        self.arrived = asyncio.Event()

    def send(self, message: pipe.Message) -> None:
        self.got.append(message)
        self.arrived.set()


@pytest.fixture
def dispatcher() -> Dispatcher:
    return Dispatcher()


@pytest.fixture
def worker(dispatcher: Dispatcher) -> Worker:
    worker = Worker()
    dispatcher.joined(worker, [(b"ch", 0, 1, 0, None)], 0)
    return worker


def run(dispatcher: Dispatcher, method: bytes, args: dict[bytes, Any] | None = None) -> list[Any]:
    """The replies so far, decoded; a later one is added to the same list."""
    replies: list[Any] = []
    request = Request(method, b"1", {} if args is None else args)
    Commands(dispatcher, URIS).run(request, 0, lambda reply: replies.append(tnetstring.loads(reply)))
    return replies


class Peer:
    """A command socket and a DEALER connected to it."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.command = CommandSocket(self.context, Commands(dispatcher, URIS), dispatcher)
        self._sock = zmq.asyncio.Context.shadow(self.context).socket(zmq.DEALER)
        self._sock.connect(self.command.open("tcp://127.0.0.1:*"))

    async def send(self, frames: list[bytes]) -> None:
        await self._sock.send_multipart(frames)

    async def reply(self) -> Any:
        empty, payload = await asyncio.wait_for(self._sock.recv_multipart(), PATIENCE)
        assert empty == b""
        return tnetstring.loads(payload)

    async def ask(self, payload: bytes) -> Any:
        await self.send([b"", payload])
        return await self.reply()

    def close(self) -> None:
        self._sock.close(0)
        self.command.close()
        self.context.term()


@pytest.fixture
async def peer(dispatcher: Dispatcher) -> AsyncIterator[Peer]:
    peer = Peer(dispatcher)
    yield peer
    peer.close()


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines of the log with warnings."""
    return LogLines(monkeypatch, WARNING).lines


class TestRequest:
    def test_parts(self) -> None:
        payload = tnetstring.dumps({b"method": b"m", b"id": b"1", b"args": {b"a": b"b"}, b"from": b"me"})
        assert parse_request(payload) == Request(b"m", b"1", {b"a": b"b"})
        assert parse_request(tnetstring.dumps({b"method": b"m"})) == Request(b"m", b"", {})

    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"hello",
            b"T2:{}}",
            b"T" + tnetstring.dumps({b"method": b"m"}),
            tnetstring.dumps({b"method": b"m"})[:-1],
            tnetstring.dumps([b"method"]),
            tnetstring.dumps({}),
            tnetstring.dumps({b"method": 1}),
            tnetstring.dumps({b"method": b"m", b"id": 1}),
            tnetstring.dumps({b"method": b"m", b"args": 1}),
            tnetstring.dumps({b"method": b"m", b"args": None}),
        ],
    )
    def test_anything_else_is_none(self, payload: bytes) -> None:
        with pytest.raises(RequestError):
            parse_request(payload)


class TestReply:
    def test_the_id_is_echoed_if_not_empty(self) -> None:
        assert tnetstring.loads(success(Request(b"m", b"7", {}))) == {b"id": b"7", b"success": True, b"value": None}
        assert tnetstring.loads(success(Request(b"m", b"", {}))) == {b"success": True, b"value": None}

    def test_a_failure_has_a_value_only_if_there_is_more_to_say(self) -> None:
        request = Request(b"m", b"7", {})
        assert tnetstring.loads(failure(request, b"c")) == {b"id": b"7", b"success": False, b"condition": b"c"}
        assert tnetstring.loads(failure(Request(b"m", b"", {}), b"c", b"more")) == {
            b"success": False,
            b"condition": b"c",
            b"value": b"more",
        }


def ok(value: object = None) -> dict[bytes, object]:
    return {b"id": b"1", b"success": True, b"value": value}


def failed(condition: bytes, **more: object) -> dict[bytes, object]:
    return {b"id": b"1", b"success": False, b"condition": condition} | {
        name.encode(): value for name, value in more.items()
    }


def test_unknown_method(dispatcher: Dispatcher) -> None:
    assert run(dispatcher, b"zzz") == [failed(b"method-not-found")]


def test_get_zmq_uris(dispatcher: Dispatcher) -> None:
    assert run(dispatcher, b"get-zmq-uris") == [ok(URIS)]


class TestPublish:
    def test_items_go_to_the_workers(self, dispatcher: Dispatcher, worker: Worker) -> None:
        items = [{b"channel": b"ch", b"http-stream": {b"content": content}} for content in (b"a", b"b")]
        assert run(dispatcher, b"publish", {b"items": items}) == [ok()]
        streams = [unpack_item(message[1]).stream for message in worker.got]
        assert [stream.content for stream in streams if stream is not None] == [b"a", b"b"]

    @pytest.mark.parametrize(
        ("args", "detail"),
        [
            ({}, b"object does not contain 'items'"),
            ({b"items": 5}, b"object contains 'items' with wrong type"),
            ({b"items": [5]}, b"publish item object is not an object"),
            ({b"items": [{b"channel": b"c"}]}, b"no formats specified"),
        ],
    )
    def test_bad_items(self, dispatcher: Dispatcher, args: dict[bytes, Any], detail: bytes) -> None:
        assert run(dispatcher, b"publish", args) == [failed(b"bad-request", value=b"Invalid format: " + detail)]

    def test_one_bad_item_stops_all(self, dispatcher: Dispatcher, worker: Worker) -> None:
        good = {b"channel": b"ch", b"http-stream": {b"content": b"x"}}
        run(dispatcher, b"publish", {b"items": [good, {}]})
        assert worker.got == []


def test_recover(dispatcher: Dispatcher, worker: Worker) -> None:
    assert run(dispatcher, b"recover") == [ok()]
    assert worker.got == [(pipe.COMMAND, 0, "recover", {})]


class TestRefresh:
    def test_by_channel_always_succeeds(self, dispatcher: Dispatcher, worker: Worker) -> None:
        assert run(dispatcher, b"refresh", {b"channel": b"nobody"}) == [ok()]
        assert worker.got == []
        assert run(dispatcher, b"refresh", {b"channel": b"ch"}) == [ok()]
        assert worker.got == [(pipe.COMMAND, 0, "refresh", {"channel": b"ch"})]

    def test_by_connection_asks_the_workers(self, dispatcher: Dispatcher, worker: Worker) -> None:
        replies = run(dispatcher, b"refresh", {b"cid": b"x"})
        ((_, number, name, args),) = worker.got
        assert (replies, name, args) == ([], "refresh", {"cid": b"x"})
        dispatcher.received(worker, (pipe.ANSWER, number, True), 0)
        assert replies == [ok()]

    def test_an_unknown_connection(self, dispatcher: Dispatcher, worker: Worker) -> None:
        replies = run(dispatcher, b"refresh", {b"cid": b"x"})
        dispatcher.received(worker, (pipe.ANSWER, worker.got[0][1], False), 0)
        assert replies == [failed(b"item-not-found")]
        assert run(Dispatcher(), b"refresh", {b"cid": b"x"}) == [failed(b"item-not-found")]

    @pytest.mark.parametrize("args", [{}, {b"cid": 1}, {b"channel": 1}, {b"cid": 1, b"channel": b"ch"}])
    def test_bad_requests(self, dispatcher: Dispatcher, args: dict[bytes, Any]) -> None:
        assert run(dispatcher, b"refresh", args) == [failed(b"bad-request")]


class TestConncheck:
    def test_the_answers_of_all_workers_in_the_order_asked(self, dispatcher: Dispatcher, worker: Worker) -> None:
        other = Worker()
        dispatcher.joined(other, [], 0)
        replies = run(dispatcher, b"conncheck", {b"ids": [b"a", b"b", b"c"]})
        dispatcher.received(worker, (pipe.ANSWER, worker.got[0][1], [b"c"]), 0)
        assert replies == []
        dispatcher.received(other, (pipe.ANSWER, other.got[0][1], [b"a"]), 0)
        assert replies == [ok([b"a", b"c"])]

    def test_without_workers_nobody_is_connected(self, dispatcher: Dispatcher) -> None:
        assert run(dispatcher, b"conncheck", {b"ids": [b"a"]}) == [ok([])]

    def test_a_worker_that_does_not_answer(self, dispatcher: Dispatcher, worker: Worker) -> None:
        replies = run(dispatcher, b"conncheck", {b"ids": [b"a"]})
        dispatcher.tick(10)
        assert replies == [failed(b"proxy-request-failed")]

    @pytest.mark.parametrize("args", [{}, {b"ids": b"a"}, {b"ids": [b"a", 5]}])
    def test_bad_requests(self, dispatcher: Dispatcher, args: dict[bytes, Any]) -> None:
        assert run(dispatcher, b"conncheck", args) == [failed(b"bad-request")]


class TestBounds:
    LONG = b"x" * 1025

    def test_a_long_id_is_not_repeated(self, dispatcher: Dispatcher) -> None:
        replies: list[Any] = []
        Commands(dispatcher, URIS).run(
            Request(b"recover", self.LONG, {}), 0, lambda r: replies.append(tnetstring.loads(r))
        )
        detail = b"'id' has 1025 bytes, at most 1024 are allowed (id_max)"
        assert replies == [{b"success": False, b"condition": b"bad-request", b"value": detail}]

    def test_items(self, dispatcher: Dispatcher, worker: Worker) -> None:
        items = [{b"channel": b"ch", b"id": self.LONG, b"http-stream": {b"content": b"x"}}]
        detail = b"Invalid format: publish item object contains 'id' of 1025 bytes, at most 1024 are allowed (id_max)"
        assert run(dispatcher, b"publish", {b"items": items}) == [failed(b"bad-request", value=detail)]
        assert worker.got == []

    def test_one_item_of_many(self, dispatcher: Dispatcher, worker: Worker) -> None:
        items = [{b"channel": b"ch", b"http-stream": {b"content": b"x" * size}} for size in (1, 16 * 1024 * 1024)]
        replies: list[Any] = []
        payload = tnetstring.dumps({b"method": b"publish", b"id": b"1", b"args": {b"items": items}})
        Commands(dispatcher, URIS).run(parse_request(payload), 0, lambda reply: replies.append(tnetstring.loads(reply)))
        assert replies[0][b"condition"] == b"bad-request"
        assert b"publish item object has 16777218 bytes, at most 16777216 are allowed" in replies[0][b"value"]
        assert worker.got == []

    def test_a_connection_to_refresh(self, dispatcher: Dispatcher, worker: Worker) -> None:
        detail = b"'cid' has 1025 bytes, at most 1024 are allowed (id_max)"
        assert run(dispatcher, b"refresh", {b"cid": self.LONG}) == [failed(b"bad-request", value=detail)]
        assert worker.got == []

    def test_connections_to_check(self, dispatcher: Dispatcher, worker: Worker) -> None:
        most = CHECKED_MAX // (ID_COST + 1)
        (reply,) = run(dispatcher, b"conncheck", {b"ids": [b"x"] * (most + 1)})
        assert reply[b"condition"] == b"bad-request"
        assert reply[b"value"].startswith(b"'ids' count for ")
        (reply,) = run(dispatcher, b"conncheck", {b"ids": [b"x" * CHECKED_MAX]})
        assert reply[b"condition"] == b"bad-request"
        assert worker.got == []
        assert run(dispatcher, b"conncheck", {b"ids": [b"x"] * most}) == []
        assert len(worker.got) == 1


class TestSocket:
    """The ROUTER socket with a DEALER peer."""

    async def test_a_request_gets_its_reply(self, peer: Peer) -> None:
        assert await peer.ask(tnetstring.dumps({b"method": b"get-zmq-uris", b"id": b"1"})) == {
            b"id": b"1",
            b"success": True,
            b"value": URIS,
        }

    @pytest.mark.parametrize(
        ("frames", "reason"),
        [
            ([b"no delimiter"], "request has 2 frames, expected a delimiter and one payload"),
            ([b"", b"one", b"two"], "request has 4 frames, expected a delimiter and one payload"),
            ([b"x" * ENVELOPE_MAX, b"", b"payload"], f"at most {ENVELOPE_MAX} are allowed"),
            ([b"", b"5:bytes,"], "must be a map"),
        ],
    )
    async def test_a_message_that_is_no_request_gets_no_reply(
        self, peer: Peer, refused: list[str], frames: list[bytes], reason: str
    ) -> None:
        await peer.send(frames)
        assert (await peer.ask(tnetstring.dumps({b"method": b"recover"})))[b"success"], "the next one does"
        assert len(refused) == 1
        assert reason in refused[0]

    async def test_too_many_values_are_an_error(self, peer: Peer, dispatcher: Dispatcher) -> None:
        many = b"%d:%b]" % (3 * (VALUES_MAX + 1), b"0:]" * (VALUES_MAX + 1))
        reply = await peer.ask(b"%d:%b}" % (len(many) + 7, b"4:args," + many))
        assert reply[b"condition"] == b"bad-request"
        assert reply[b"value"].startswith(b"Invalid format: publish item object has more than")
        assert dispatcher.counters.invalid == 1

    async def test_requests_wait_while_workers_owe_answers(
        self, peer: Peer, dispatcher: Dispatcher, worker: Worker
    ) -> None:
        await peer.send([b"", tnetstring.dumps({b"method": b"conncheck", b"args": {b"ids": [b"a"]}})])
        await asyncio.wait_for(worker.arrived.wait(), PATIENCE)
        _, number, _, _ = worker.got[-1]
        dispatcher.received(worker, (pipe.ANSWER, number, [b"a"]), 0)
        assert (await peer.reply())[b"value"] == [b"a"]

    async def test_a_reply_after_the_end_is_dropped(self, peer: Peer, dispatcher: Dispatcher, worker: Worker) -> None:
        await peer.send([b"", tnetstring.dumps({b"method": b"refresh", b"args": {b"cid": b"a"}})])
        await asyncio.wait_for(worker.arrived.wait(), PATIENCE)
        peer.command.close()
        dispatcher.received(worker, (pipe.ANSWER, worker.got[-1][1], True), 0)
        assert len(dispatcher.requests) == 0


def test_publish_on_a_reserved_channel_is_refused_whole(dispatcher: Dispatcher) -> None:
    items = [{b"channel": channel, b"http-stream": {b"content": b"x"}} for channel in (b"ch", b"hub/1")]
    replies: list[Any] = []
    for part in (items, items[:1]):
        request = Request(b"publish", b"1", {b"items": part})
        Commands(dispatcher, URIS, b"hub/").run(request, 0, lambda reply: replies.append(tnetstring.loads(reply)))
    assert [reply[b"success"] for reply in replies] == [False, True]
    assert replies[0][b"condition"] == b"forbidden"
    assert replies[0][b"value"].startswith(b"channel 'hub/1' begins with 'hub/', which is reserved")
    assert (dispatcher.counters.received, dispatcher.counters.invalid) == (1, 1)
    assert dispatcher.refusals.totals()["command"] == 1
