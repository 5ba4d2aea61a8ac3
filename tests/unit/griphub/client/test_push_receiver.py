"""griphub.client.push_receiver: requests to a callback in, answers out; without sockets."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest import mock

import aiohttp
import pytest
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from griphub.client import push_receiver
from griphub.client.push_receiver import BODY_MAX, PushReceiver
from griphub.client.received import ReceivedEvent
from griphub.client.webhook_signature import WebhookKey
from griphub.sender.signature import SigningKey
from tests.support.pushing_hub import signed

NOW = 1_800_000_000.0
KEY = WebhookKey(b"k" * 24)
EVENT: dict[str, Any] = {
    "type": "event",
    **dict.fromkeys(("id", "prev_id", "version", "version_cursor"), "7"),
    "cursor": "e.7",
    "time": "2026-01-01T00:00:00.000000Z",
    "content_type": "application/json",
    "data": [1],
}


class Bench:
    """A receiver whose subscription is ``s1``."""

    def __init__(self) -> None:
        self.pushes: list[tuple[str, ReceivedEvent, int]] = []
        self.status = 204
        self.receiver = PushReceiver(KEY, lambda: NOW, lambda id: id == "s1", self.push)

    def push(self, id: str, event: ReceivedEvent, size: int) -> int:
        self.pushes.append((id, event, size))
        return self.status

    def request(
        self, body: bytes, headers: dict[str, str] | None = None, *, method: str = "POST", end: bool = True
    ) -> tuple[web.Request, aiohttp.StreamReader]:
        reader = aiohttp.StreamReader(mock.Mock(spec=BaseProtocol), 2**16, loop=asyncio.get_running_loop())
        reader.feed_data(body)
        if end:
            reader.feed_eof()
        given = signed(SigningKey(KEY.secret), body, NOW) if headers is None else headers
        return make_mocked_request(method, "/callback", headers=given, payload=reader), reader

    async def send(self, body: bytes, headers: dict[str, str] | None = None, **options: Any) -> tuple[int, str]:
        answer = await self.receiver.handle(self.request(body, headers, **options)[0])
        return answer.status, answer.text or ""

    def headers(self, body: bytes, **changes: str) -> dict[str, str]:
        return {**signed(SigningKey(KEY.secret), body, NOW), **changes}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def text_of(**changes: Any) -> bytes:
    return json.dumps({"subscription_id": "s1", "topic": "t", **EVENT, **changes}).encode()


def challenge(id: str = "s1", token: Any = "a-token") -> bytes:
    return json.dumps({"type": "challenge", "subscription_id": id, "challenge": token}).encode()


async def test_a_push_is_given_on_as_the_history_has_it(bench: Bench) -> None:
    body = text_of()
    assert await bench.send(body) == (204, "")
    assert bench.pushes == [("s1", ReceivedEvent.of(EVENT), len(body))]
    assert bench.pushes[0][1].document == EVENT
    assert bench.receiver.refused == {}


async def test_a_challenge_is_repeated(bench: Bench) -> None:
    assert await bench.send(challenge()) == (200, "a-token")
    assert bench.pushes == []


async def test_the_challenge_of_a_subscription_that_is_not_wanted_is_not(bench: Bench) -> None:
    status, text = await bench.send(challenge("s2"))
    assert status == 410
    assert "a-token" not in text


async def test_a_challenge_by_a_stranger_is_not_repeated(bench: Bench) -> None:
    """Else events could be sent here that are not wanted."""
    body = challenge()
    status, text = await bench.send(body, signed(SigningKey(b"x" * 24), body, NOW))
    assert (status, "a-token" in text) == (401, False)


@pytest.mark.parametrize("token", [None, 7, "", "x" * 257, ["x"]])
async def test_a_challenge_that_is_none(bench: Bench, token: Any) -> None:
    assert (await bench.send(challenge(token=token)))[0] == 400


async def test_unsigned_and_old_requests_are_not_read(bench: Bench) -> None:
    body = text_of()
    for headers in ({}, signed(SigningKey(KEY.secret), body, NOW - 301), signed(SigningKey(KEY.secret), body, 4e9)):
        request, reader = bench.request(body, headers)
        answer = await bench.receiver.handle(request)
        assert answer.status == 401
        assert answer.keep_alive is False
        assert reader.total_bytes == len(body)
        assert not reader.at_eof(), "the content was read"
    assert bench.pushes == []
    assert bench.receiver.refused == {401: 3}


async def test_another_key_is_401_so_that_a_stale_subscription_rests(bench: Bench) -> None:
    body = text_of(subscription_id="of a killed process")
    status, text = await bench.send(body, signed(SigningKey(b"x" * 24), body, NOW))
    assert status == 401
    assert text == "webhook-signature has no signature of this body with the key of this receiver\n"
    assert bench.pushes == []


async def test_a_changed_body(bench: Bench) -> None:
    body = text_of()
    assert (await bench.send(body.replace(b"7", b"8"), bench.headers(body)))[0] == 401
    assert bench.pushes == []


async def test_a_full_queue_asks_for_a_repetition(bench: Bench) -> None:
    bench.status = 503
    answer = await bench.receiver.handle(bench.request(text_of())[0])
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert bench.receiver.refused == {}


async def test_the_end_is_410(bench: Bench) -> None:
    bench.status = 410
    assert (await bench.send(text_of()))[0] == 410


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b"{}",
        json.dumps({**EVENT}).encode(),
        text_of(subscription_id=7),
        text_of(id=7),
        text_of(cursor=None),
        text_of(data_base64="?"),
    ],
)
async def test_signed_contents_that_are_none(bench: Bench, body: bytes) -> None:
    assert (await bench.send(body))[0] == 400
    assert bench.pushes == []


async def test_other_methods_and_codings(bench: Bench) -> None:
    assert (await bench.send(b"", method="GET"))[0] == 405
    body = text_of()
    assert (await bench.send(body, bench.headers(body, **{"Content-Encoding": "gzip"})))[0] == 415
    assert (await bench.send(body, bench.headers(body, **{"Content-Encoding": "identity"})))[0] == 204


async def test_a_length_beyond_the_bound_is_not_read(bench: Bench) -> None:
    body = text_of()
    headers = bench.headers(body, **{"Content-Length": str(BODY_MAX + 1)})
    request, reader = bench.request(body, headers)
    assert (await bench.receiver.handle(request)).status == 413
    assert not reader.at_eof()


async def test_a_content_beyond_the_bound_is_cut(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_receiver, "BODY_MAX", 1000)
    assert (await bench.send(text_of(data="x" * 1000)))[0] == 413
    assert (await bench.send(text_of(data="x")))[0] == 204


async def test_all_bodies_together_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_receiver, "BODIES_MAX", 1500)
    slow, reader = bench.request(b"x" * 1000, bench.headers(b""), end=False)
    waiting = asyncio.ensure_future(bench.receiver.handle(slow))
    await asyncio.sleep(0)
    assert (await bench.send(text_of(data="x" * 500)))[0] == 503
    reader.feed_eof()
    assert (await waiting).status == 401
    assert (await bench.send(text_of(data="x" * 500)))[0] == 204


async def test_requests_at_the_same_time_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_receiver, "REQUESTS_MAX", 2)
    slow = [bench.request(b"", bench.headers(b""), end=False) for _ in range(2)]
    waiting = [asyncio.ensure_future(bench.receiver.handle(request)) for request, _ in slow]
    await asyncio.sleep(0)
    assert (await bench.send(text_of()))[0] == 503
    for _, reader in slow:
        reader.feed_eof()
    await asyncio.gather(*waiting)
    assert (await bench.send(text_of()))[0] == 204


async def test_a_body_that_takes_too_long(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_receiver, "BODY_TIMEOUT", 0.01)
    assert (await bench.send(b"x", bench.headers(b"x"), end=False))[0] == 408
    assert (await bench.send(text_of()))[0] == 204
