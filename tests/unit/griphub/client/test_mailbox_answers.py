"""griphub.client.mailbox_answers: JSON in, answers out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from griphub.client.errors import BadAnswer
from griphub.client.mailbox_actions import CommandsAnswer, Loss, Pair, Place
from griphub.client.mailbox_answers import MailboxEvent, commands_answer_of, place_of, poll_answer_of

EVENT = {
    "id": "6",
    "cursor": "e.6",
    "prev_id": "0",
    "version_cursor": "e.6",
    "time": "T",
    "key": "k",
    "op": "put",
    "content_type": "application/json",
    "data": 1,
}
REPLY: dict[str, Any] = {
    "publisher_id": "p",
    "messages": [{"sequence_id": "6", "topic": "t", "event": EVENT}],
    "lost": [{"topic": "t", "key": "k", "last_id": "e.5"}],
    "ended": [{"topic": "u"}],
}


def test_places() -> None:
    assert place_of("0") == Place(0, "0")
    assert place_of("7f60c6a1.41") == Place(41, "7f60c6a1.41")


@pytest.mark.parametrize("cursor", ["", "41", "e.", "e.x", "e.1 ", None, 0])
def test_no_places(cursor: object) -> None:
    with pytest.raises(ValueError, match="no cursor"):
        place_of(cursor)


def test_answers_to_commands() -> None:
    body = b'{"publisher_id":"p","sequence":1,"last_ids":["e.4",null],"repeated":false}'
    assert commands_answer_of(body) == CommandsAnswer("p", [Place(4, "e.4"), None])
    body = b'{"publisher_id":"p","sequence":1,"epoch":"e","last_ids":["0"],"repeated":false}'
    assert commands_answer_of(body) == CommandsAnswer("p", [Place(0, "0")], "e")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"publisher_id":1,"last_ids":[]}'])
def test_no_answers_to_commands(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        commands_answer_of(body)


def test_replies() -> None:
    answer = poll_answer_of(json.dumps(REPLY).encode())
    (message,) = answer.messages
    assert (message.topic, message.key, message.place) == ("t", "k", Place(6, "e.6"))
    assert isinstance(message.payload, MailboxEvent)
    assert (message.payload.topic, message.payload.event.data) == ("t", 1)
    assert answer.lost == [Loss(Pair("t", "k"), Place(5, "e.5"))]
    assert answer.ended == [Pair("u")]


@pytest.mark.parametrize(
    "change",
    [
        {"publisher_id": None},
        {"messages": {}},
        {"messages": [{**REPLY["messages"][0], "sequence_id": "x"}]},
        {"messages": [{**REPLY["messages"][0], "event": {}}]},
        {"messages": ["x"]},
        {"lost": [{"topic": "t"}]},
        {"ended": [{"topic": "t", "key": None}]},
    ],
)
def test_no_replies(change: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        poll_answer_of(json.dumps({**REPLY, **change}).encode())
