"""Events of WebSockets in requests and answers."""

from __future__ import annotations

import pytest

from griphub.api.problem import Problem
from griphub.api.request import Answer, Request, target_of
from griphub.api.socket_events import (
    EVENTS_MAX,
    GONE,
    resync_events,
    socket_answer,
    socket_opening,
    subscription,
)
from gripproxy.grip.websocket_events import Event, decode, encode

FEATURES = [(b"grip-feature", b"ws:prev-id, ws:more-events")]


def opening(*events: Event, headers: list[tuple[bytes, bytes]] = FEATURES) -> bool | Answer:
    return socket_opening(Request(b"POST", target_of(b"/x"), headers, encode([*events])))


def test_an_opening_needs_a_proxy_that_can_repair() -> None:
    assert opening(Event(b"OPEN")) is True
    assert opening() is False, "a held WebSocket asks"
    with pytest.raises(Problem) as caught:
        opening(Event(b"OPEN"), headers=[])
    assert caught.value.status == 501


def test_ends_and_messages_have_answers_of_their_own() -> None:
    for events, expected in (
        ([Event(b"DISCONNECT")], []),
        ([Event(b"CLOSE", b"\x03\xe8")], [b"CLOSE"]),
        ([Event(b"TEXT", b"hello")], [b"CLOSE"]),
    ):
        answer = opening(*events)
        assert isinstance(answer, Answer)
        assert [event.type for event in decode(answer.body)] == expected


def test_too_many_events_and_none_at_all_are_refused() -> None:
    with pytest.raises(Problem) as caught:
        opening(*[Event(b"PING")] * (EVENTS_MAX + 1))
    assert caught.value.status == 413
    with pytest.raises(Problem) as caught:
        socket_opening(Request(b"POST", target_of(b"/x"), FEATURES, b"no events"))
    assert caught.value.status == 400


def test_a_resync_ends_the_websocket() -> None:
    [opened, text, close] = resync_events(b"{}", opening=True)
    assert (opened.type, text.content) == (b"OPEN", b"{}")
    assert (close.content or b"")[:2] == GONE.to_bytes(2, "big")
    assert [event.type for event in resync_events(b"{}", opening=False)] == [b"TEXT", b"CLOSE"]


def test_a_subscription_names_channel_and_position() -> None:
    assert decode(socket_answer([subscription("hub/1/wws/", "ab.1.2")]).body)[0].content == (
        b'c:{"type":"subscribe","channel":"hub/1/wws/","prev-id":"ab.1.2"}'
    )
