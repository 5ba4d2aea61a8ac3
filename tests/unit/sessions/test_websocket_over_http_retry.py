"""WebSocket-over-HTTP when the backend cannot be reached: the same request again, and everything else waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gripproxy.grip.bounds import BOUNDS
from gripproxy.grip.frames import TEXT
from gripproxy.grip.headers import Headers
from gripproxy.grip.response import Response
from gripproxy.sessions.websocket import WebSocketSession
from gripproxy.sessions.websocket_over_http import RETRIES, LastIds, WebSocketOverHttp
from tests.support.session_doubles import House

EVENTS = (b"Content-Type", b"application/websocket-events")


class Session:
    """What the leg tells its session. Unrealistic: it takes everything, and never talks back."""

    reliable = None
    terms = SimpleNamespace(bounds=BOUNDS)

    def __init__(self, house: House) -> None:
        self.context = house.context
        self.log: list[Any] = []

    def backend_data(self, opcode: int, data: bytes, first: bool, fin: bool) -> None:
        self.log.append(data)

    def backend_lost(self, why: str) -> None:
        self.log.append(("lost", why))


class Post:
    """Requests that are posted, as (body, replayed, meta); the test answers them."""

    def __init__(self) -> None:
        self.requests: list[tuple[bytes, int, Headers]] = []

    def post(self, body: bytes, replayed: int, meta: Headers, last_ids: LastIds = ()) -> None:
        self.requests.append((body, replayed, list(meta)))

    def spoiled(self, why: str, question: bool) -> None:
        """No answer is bad here."""
        raise AssertionError(why)

    def take(self) -> tuple[bytes, int]:
        """The one request since the last time."""
        [(body, replayed, _)] = self.requests
        self.requests.clear()
        return body, replayed


class Conversation:
    def __init__(self) -> None:
        self.house = House()
        self.session = Session(self.house)
        self.post = Post()
        self.leg = WebSocketOverHttp(cast(WebSocketSession, self.session), self.post, False, 200_000)

    def say(self, text: bytes) -> None:
        self.leg.data(TEXT, text, True, True)

    def answer(self, *headers: tuple[bytes, bytes], body: bytes = b"") -> None:
        self.leg.on_answer(Response(200, b"OK", [EVENTS, *headers], body))

    def unreachable(self) -> None:
        self.leg.on_post_failed(True, "no connection")


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def test_the_same_request_is_sent_again_after_each_pause(talk: Conversation) -> None:
    talk.say(b"one")
    first = talk.post.take()
    for pause in RETRIES:
        talk.unreachable()
        talk.house.pass_time(pause)
        assert talk.post.requests == []
        talk.house.pass_time(1)
        assert talk.post.take() == first
    talk.unreachable()
    assert talk.session.log == [("lost", "no connection")]


def test_what_comes_meanwhile_waits_for_the_next_request(talk: Conversation) -> None:
    talk.say(b"one")
    talk.unreachable()
    talk.say(b"two")
    talk.leg.refresh()
    talk.post.requests.clear()
    talk.house.pass_time(2)
    assert talk.post.take() == (b"TEXT 3\r\none\r\n", 0)
    talk.answer(body=b"TEXT 2\r\nhi\r\n")
    assert talk.session.log == [b"hi"]
    assert talk.post.take() == (b"TEXT 3\r\ntwo\r\n", 0)


def test_the_count_of_pauses_begins_anew_after_an_answer(talk: Conversation) -> None:
    for text in (b"one", b"two"):
        talk.say(text)
        for pause in RETRIES:
            talk.unreachable()
            talk.house.pass_time(pause + 1)
        talk.answer()
    assert talk.session.log == []


def test_what_was_offered_before_is_counted_in_the_retry_too(talk: Conversation) -> None:
    talk.say(b"one")
    talk.answer((b"Content-Bytes-Accepted", b"1"))
    talk.post.requests.clear()
    talk.say(b"two")
    again = (b"TEXT 2\r\nne\r\nTEXT 3\r\ntwo\r\n", 2)
    assert talk.post.take() == again
    talk.unreachable()
    talk.house.pass_time(2)
    assert talk.post.take() == again


def test_a_client_that_leaves_ends_the_retries(talk: Conversation) -> None:
    talk.say(b"one")
    talk.unreachable()
    talk.post.requests.clear()
    talk.leg.client_lost()
    assert talk.post.take() == (b"DISCONNECT\r\n", 0)
    talk.unreachable()
    talk.house.pass_time(40)
    assert talk.post.requests == []
