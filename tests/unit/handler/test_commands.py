"""docs/grip.md §5.8: requests and replies of the command socket, as observed on Pushpin (§13.12)."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy import pipe
from gripproxy.grip import tnet
from gripproxy.grip.item import Item
from handler.commands import CHECKED_MAX, ID_COST, Commands, Request, RequestError, failure, parse_request, success
from handler.exchange import Exchange

URIS = {b"command": b"tcp://127.0.0.1:5563", b"publish-pull": b"tcp://127.0.0.1:5560"}


class Worker:
    def __init__(self) -> None:
        self.got: list[pipe.Message] = []

    def send(self, message: pipe.Message) -> None:
        self.got.append(message)


@pytest.fixture
def exchange() -> Exchange:
    return Exchange()


@pytest.fixture
def worker(exchange: Exchange) -> Worker:
    worker = Worker()
    exchange.joined(worker, [(b"ch", 0, 1, 0, None)], 0)
    return worker


def run(exchange: Exchange, method: bytes, args: dict[bytes, Any] | None = None) -> list[Any]:
    """The replies so far, decoded; a later one is added to the same list."""
    replies: list[Any] = []
    request = Request(method, b"1", {} if args is None else args)
    Commands(exchange, URIS).run(request, 0, lambda reply: replies.append(tnet.loads(reply)))
    return replies


class TestRequest:
    def test_parts(self) -> None:
        payload = tnet.dumps({b"method": b"m", b"id": b"1", b"args": {b"a": b"b"}, b"from": b"me"})
        assert parse_request(payload) == Request(b"m", b"1", {b"a": b"b"})
        assert parse_request(tnet.dumps({b"method": b"m"})) == Request(b"m", b"", {})

    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"hello",
            b"T2:{}}",
            b"T" + tnet.dumps({b"method": b"m"}),
            tnet.dumps({b"method": b"m"})[:-1],
            tnet.dumps([b"method"]),
            tnet.dumps({}),
            tnet.dumps({b"method": 1}),
            tnet.dumps({b"method": b"m", b"id": 1}),
            tnet.dumps({b"method": b"m", b"args": 1}),
            tnet.dumps({b"method": b"m", b"args": None}),
        ],
    )
    def test_anything_else_is_none(self, payload: bytes) -> None:
        with pytest.raises(RequestError):
            parse_request(payload)


class TestReply:
    def test_the_id_is_echoed_if_not_empty(self) -> None:
        assert tnet.loads(success(Request(b"m", b"7", {}))) == {b"id": b"7", b"success": True, b"value": None}
        assert tnet.loads(success(Request(b"m", b"", {}))) == {b"success": True, b"value": None}

    def test_a_failure_has_a_value_only_if_there_is_more_to_say(self) -> None:
        request = Request(b"m", b"7", {})
        assert tnet.loads(failure(request, b"c")) == {b"id": b"7", b"success": False, b"condition": b"c"}
        assert tnet.loads(failure(Request(b"m", b"", {}), b"c", b"more")) == {
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


def test_unknown_method(exchange: Exchange) -> None:
    assert run(exchange, b"zzz") == [failed(b"method-not-found")]


def test_get_zmq_uris(exchange: Exchange) -> None:
    assert run(exchange, b"get-zmq-uris") == [ok(URIS)]


class TestPublish:
    def test_items_go_to_the_workers(self, exchange: Exchange, worker: Worker) -> None:
        items = [{b"channel": b"ch", b"http-stream": {b"content": content}} for content in (b"a", b"b")]
        assert run(exchange, b"publish", {b"items": items}) == [ok()]
        streams = [Item.unpack(message[1]).stream for message in worker.got]
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
    def test_bad_items(self, exchange: Exchange, args: dict[bytes, Any], detail: bytes) -> None:
        assert run(exchange, b"publish", args) == [failed(b"bad-request", value=b"Invalid format: " + detail)]

    def test_one_bad_item_stops_all(self, exchange: Exchange, worker: Worker) -> None:
        good = {b"channel": b"ch", b"http-stream": {b"content": b"x"}}
        run(exchange, b"publish", {b"items": [good, {}]})
        assert worker.got == []


def test_recover(exchange: Exchange, worker: Worker) -> None:
    assert run(exchange, b"recover") == [ok()]
    assert worker.got == [(pipe.COMMAND, 0, "recover", {})]


class TestRefresh:
    def test_by_channel_always_succeeds(self, exchange: Exchange, worker: Worker) -> None:
        assert run(exchange, b"refresh", {b"channel": b"nobody"}) == [ok()]
        assert worker.got == []
        assert run(exchange, b"refresh", {b"channel": b"ch"}) == [ok()]
        assert worker.got == [(pipe.COMMAND, 0, "refresh", {"channel": b"ch"})]

    def test_by_connection_asks_the_workers(self, exchange: Exchange, worker: Worker) -> None:
        replies = run(exchange, b"refresh", {b"cid": b"x"})
        ((_, number, name, args),) = worker.got
        assert (replies, name, args) == ([], "refresh", {"cid": b"x"})
        exchange.told(worker, (pipe.ANSWER, number, True), 0)
        assert replies == [ok()]

    def test_an_unknown_connection(self, exchange: Exchange, worker: Worker) -> None:
        replies = run(exchange, b"refresh", {b"cid": b"x"})
        exchange.told(worker, (pipe.ANSWER, worker.got[0][1], False), 0)
        assert replies == [failed(b"item-not-found")]
        assert run(Exchange(), b"refresh", {b"cid": b"x"}) == [failed(b"item-not-found")]

    @pytest.mark.parametrize("args", [{}, {b"cid": 1}, {b"channel": 1}, {b"cid": 1, b"channel": b"ch"}])
    def test_bad_requests(self, exchange: Exchange, args: dict[bytes, Any]) -> None:
        assert run(exchange, b"refresh", args) == [failed(b"bad-request")]


class TestConncheck:
    def test_the_answers_of_all_workers_in_the_order_asked(self, exchange: Exchange, worker: Worker) -> None:
        other = Worker()
        exchange.joined(other, [], 0)
        replies = run(exchange, b"conncheck", {b"ids": [b"a", b"b", b"c"]})
        exchange.told(worker, (pipe.ANSWER, worker.got[0][1], [b"c"]), 0)
        assert replies == []
        exchange.told(other, (pipe.ANSWER, other.got[0][1], [b"a"]), 0)
        assert replies == [ok([b"a", b"c"])]

    def test_without_workers_nobody_is_connected(self, exchange: Exchange) -> None:
        assert run(exchange, b"conncheck", {b"ids": [b"a"]}) == [ok([])]

    def test_a_worker_that_does_not_answer(self, exchange: Exchange, worker: Worker) -> None:
        replies = run(exchange, b"conncheck", {b"ids": [b"a"]})
        exchange.tick(10)
        assert replies == [failed(b"proxy-request-failed")]

    @pytest.mark.parametrize("args", [{}, {b"ids": b"a"}, {b"ids": [b"a", 5]}])
    def test_bad_requests(self, exchange: Exchange, args: dict[bytes, Any]) -> None:
        assert run(exchange, b"conncheck", args) == [failed(b"bad-request")]


class TestBounds:
    LONG = b"x" * 1025

    def test_a_long_id_is_not_repeated(self, exchange: Exchange) -> None:
        replies: list[Any] = []
        Commands(exchange, URIS).run(Request(b"recover", self.LONG, {}), 0, lambda r: replies.append(tnet.loads(r)))
        detail = b"'id' has 1025 bytes, at most 1024 are allowed (id_max)"
        assert replies == [{b"success": False, b"condition": b"bad-request", b"value": detail}]

    def test_items(self, exchange: Exchange, worker: Worker) -> None:
        items = [{b"channel": b"ch", b"id": self.LONG, b"http-stream": {b"content": b"x"}}]
        detail = b"Invalid format: publish item object contains 'id' of 1025 bytes, at most 1024 are allowed (id_max)"
        assert run(exchange, b"publish", {b"items": items}) == [failed(b"bad-request", value=detail)]
        assert worker.got == []

    def test_one_item_of_many(self, exchange: Exchange, worker: Worker) -> None:
        items = [{b"channel": b"ch", b"http-stream": {b"content": b"x" * size}} for size in (1, 16 * 1024 * 1024)]
        replies: list[Any] = []
        payload = tnet.dumps({b"method": b"publish", b"id": b"1", b"args": {b"items": items}})
        Commands(exchange, URIS).run(parse_request(payload), 0, lambda reply: replies.append(tnet.loads(reply)))
        assert replies[0][b"condition"] == b"bad-request"
        assert b"publish item object has 16777218 bytes, at most 16777216 are allowed" in replies[0][b"value"]
        assert worker.got == []

    def test_a_connection_to_refresh(self, exchange: Exchange, worker: Worker) -> None:
        detail = b"'cid' has 1025 bytes, at most 1024 are allowed (id_max)"
        assert run(exchange, b"refresh", {b"cid": self.LONG}) == [failed(b"bad-request", value=detail)]
        assert worker.got == []

    def test_connections_to_check(self, exchange: Exchange, worker: Worker) -> None:
        most = CHECKED_MAX // (ID_COST + 1)
        (reply,) = run(exchange, b"conncheck", {b"ids": [b"x"] * (most + 1)})
        assert reply[b"condition"] == b"bad-request"
        assert reply[b"value"].startswith(b"'ids' count for ")
        (reply,) = run(exchange, b"conncheck", {b"ids": [b"x" * CHECKED_MAX]})
        assert reply[b"condition"] == b"bad-request"
        assert worker.got == []
        assert run(exchange, b"conncheck", {b"ids": [b"x"] * most}) == []
        assert len(worker.got) == 1
