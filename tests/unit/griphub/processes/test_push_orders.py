"""Orders about subscriptions of the push API: frames in, frames and requests out. The store is a real one."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pytest

from griphub.callbacks.event_source import StoreSource
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.pushed_event import PushedEvent
from griphub.processes.frames import packed, unpacked
from griphub.processes.push_commands import (
    ACKNOWLEDGE,
    ACKNOWLEDGED,
    BACKLOGS,
    BURIED,
    BURY,
    IDENTITY,
    MODIFIED,
    MODIFY,
    PULL,
    PULLED,
    PUSH_ADD,
    PUSH_CHANGE,
    PUSH_FIGURES,
    PUSH_MOVE,
    PUSH_READY,
    PUSH_REMOVE,
    PUSH_REMOVED,
    TOPIC_GONE,
)
from griphub.processes.push_orders import PushOrders
from griphub.pubsub.identity import new_key
from griphub.pubsub.names import check_resource
from griphub.pubsub.proto_json import read_message
from griphub.pubsub.subscription_resource import SUBSCRIPTION, check_subscription
from griphub.store.sqlite_reader import RowReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.topic import TopicSettings
from tests.support.store_conformance import published

NAME = check_resource("p", "subscriptions", "ss-1")
PUSH = {"pushEndpoint": "https://example.com/"}
DEAD = {"deadLetterTopic": "projects/p/topics/dead", "maxDeliveryAttempts": 5}


class Request:
    """Request to a receiver."""

    def __init__(self, headers: Any, body: bytes, done: Any) -> None:
        self.headers = dict(headers)
        self.message = int(json.loads(body)["message"]["messageId"])
        self.done = done
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


class House:
    """Orders and a store; frames cross as between processes."""

    def __init__(self, path: pathlib.Path) -> None:
        self.writer = SqliteWriter(path, "off")
        self.writer.put_topic("p/tt-1", TopicSettings())
        self.rows = RowReader(path)
        self.time = 1000.0
        self.answers: list[tuple[Any, ...]] = []
        self.requests: list[Request] = []
        self.orders = PushOrders(
            lambda answer: self.answers.append(unpacked(packed((answer,)))[0]),
            StoreSource(self.rows, lambda: 10**9),
            self.send,
            lambda: self.time,
            lambda: self.time,
            "hub.example",
            1000,
            (100, 100, 100),
        )

    def send(
        self, url: object, owner: str, headers: object, body: bytes, answer_max: int, done: Any, **_: object
    ) -> Request:
        self.requests.append(Request(headers, body, done))
        return self.requests[-1]

    def order(self, kind: int, *arguments: Any) -> list[tuple[Any, ...]]:
        """Give an order; return the answers to it."""
        self.answers = []
        self.orders.orders[kind](*unpacked(packed(arguments)))
        return self.work()

    def work(self) -> list[tuple[Any, ...]]:
        for _ in range(1000):
            if not self.orders.work():
                return self.answers
        raise AssertionError("the turns do not come to an end")

    def subscribe(self, number: int = 1, **given: Any) -> list[tuple[Any, ...]]:
        values = settings(**given)
        return self.order(PUSH_ADD, [(number, 1, "owner", values, 0, b"", {}, 0)], 10**6)

    def publish(self, *texts: str) -> Sequence[int]:
        stored = published(self.writer, "p/tt-1", *texts).ids
        rows = [self.rows.event_at(1, id) for id in stored]
        self.orders.stored(1, [PushedEvent(row) for row in rows if row is not None])
        self.work()
        return stored

    def states(self) -> dict[int, Any]:
        self.answers = []
        self.orders.report()
        return dict(self.answers)


def settings(**given: Any) -> dict[str, Any]:
    values = read_message(SUBSCRIPTION, {"topic": "projects/p/topics/tt-1", **given})
    return dict(orjson.loads(orjson.dumps(check_subscription(NAME, values))))


@pytest.fixture
def house(tmp_path: pathlib.Path) -> Iterator[House]:
    house = House(tmp_path / "hub.db")
    yield house
    house.rows.close()
    house.writer.close()


def test_a_push_subscription_from_beginning_to_end(house: House) -> None:
    published(house.writer, "p/tt-1", "a")
    assert house.subscribe(pushConfig=PUSH) == []
    house.publish("b")
    assert [request.message for request in house.requests] == [1, 2]
    house.requests[0].done(Outcome(204, seconds=0.25))
    house.requests[1].done(Outcome(500, seconds=0.25))
    house.work()
    states = house.states()
    [(number, generation, position, acked, attempts, used)] = states[BACKLOGS]
    assert (number, generation, position, acked, attempts) == (1, 0, 1, b"", "{}")
    assert used > 0
    [figures] = states[PUSH_FIGURES]
    assert figures[:3] == (1, 1, 0)
    assert figures[6:] == ({"ack": 1, "remote_server_5xx": 1}, 0.5, 0, 2, "")
    assert house.orders.deadline is not None
    house.time += 1
    house.work()
    assert [request.message for request in house.requests] == [1, 2, 2]
    assert house.order(PUSH_REMOVE, [1]) == [(PUSH_REMOVED, [1])]
    assert house.requests[2].aborted
    house.publish("c")
    assert len(house.requests) == 3


def test_pulls(house: House) -> None:
    house.subscribe()
    assert house.order(PULL, 7, 1, 10) == [(PULLED, 7, [])]
    house.publish("a", "b")
    assert house.answers == [(PULLED, 7, []), (PUSH_READY, 1)]
    [(kind, call, messages)] = house.order(PULL, 8, 1, 10)
    assert (kind, call) == (PULLED, 8)
    assert [(id, attempt, row[4]) for id, _, attempt, row in messages] == [(1, 1, b"a"), (2, 1, b"b")]
    (one, first, *_), (two, second, *_) = messages
    assert house.order(MODIFY, 9, 1, [(two, second)], 0) == [(MODIFIED, 9)]
    [(kind, call, progress)] = house.order(ACKNOWLEDGE, 10, 1, [(one, first), (two, second)])
    assert (kind, call, progress[2]) == (ACKNOWLEDGED, 10, 1)
    assert house.order(ACKNOWLEDGE, 11, 1, [(one, first)]) == [(ACKNOWLEDGED, 11, None)]
    assert house.order(PULL, 12, 99, 10) == [(PULLED, 12, [])]


def test_dead_letters(house: House) -> None:
    house.subscribe(deadLetterPolicy=DEAD)
    house.publish("a")
    answers: list[tuple[Any, ...]] = []
    for call in range(5):
        [(_, _, [(id, lease, attempt, _)])] = house.order(PULL, call, 1, 10)
        assert attempt == call + 1
        answers = house.order(MODIFY, call, 1, [(id, lease)], 0)
    [(kind, number, topic, row, attempts, progress)] = [answer for answer in answers if answer[0] == BURY]
    assert (kind, number, topic, row[0], row[4], attempts, progress[2]) == (BURY, 1, "p/dead", 1, b"a", 5, 1)
    house.order(BURIED, 1, 1, True)
    assert house.states()[BACKLOGS][0][2] == 1


def test_identity_and_signatures(house: House) -> None:
    key = new_key(1000.0)
    names = {"a": "whsec_" + "YWFh" * 8, "b": "whsec_" + "YmJi" * 8}
    house.order(IDENTITY, "https://hub.example", key.kid, key.pem, names)
    token = {"serviceAccountEmail": "me@example.com"}
    house.subscribe(pushConfig={**PUSH, "oidcToken": token, "attributes": {"x-hub-signing-keys": "a,b"}})
    house.publish("one")
    headers = house.requests[0].headers
    assert headers["Authorization"].startswith("Bearer ey")
    assert len(headers["webhook-signature"].split()) == 2
    # Other keys of the same names: the next request has them.
    house.order(IDENTITY, "https://hub.example", key.kid, key.pem, {**names, "b": "whsec_" + "Y2Nj" * 8})
    house.requests[0].done(Outcome(200))
    house.work()
    house.publish("two")
    first, second = [each.headers["webhook-signature"].split() for each in house.requests]
    assert len(second) == 2
    assert first[1] != second[1]


def test_a_subscription_is_not_sent_without_a_key_that_signs_it(house: House) -> None:
    house.subscribe(pushConfig={**PUSH, "attributes": {"x-hub-signing-keys": "missing"}})
    house.publish("one")
    assert house.requests == []


def test_changes(house: House) -> None:
    house.subscribe()
    house.publish("a", "b")
    house.order(PUSH_CHANGE, 1, settings(pushConfig=PUSH))
    assert [request.message for request in house.requests] == [1, 2]
    house.order(PUSH_MOVE, 1, 1, 1, b"")
    assert [request.aborted for request in house.requests[:2]] == [True, True]
    assert [request.message for request in house.requests[2:]] == [2]
    house.order(TOPIC_GONE, 1)
    assert house.requests[2].aborted
    assert not house.orders.follows(1)


def test_a_damaged_subscription_does_not_keep_others_from_beginning(house: House) -> None:
    good, bad = settings(pushConfig=PUSH), settings(pushConfig=PUSH)
    bad["filter"] = "?"
    house.order(PUSH_ADD, [(1, 1, "o", bad, 0, b"", {}, 0), (2, 1, "o", good, 0, b"\x80", {}, 0)], 0)
    house.order(PUSH_ADD, [(3, 1, "o", good, 0, b"", {}, 0)], 0)
    house.order(PUSH_CHANGE, 3, bad)
    house.publish("a")
    assert len(house.requests) == 1


def test_hints(house: House) -> None:
    house.subscribe(pushConfig=PUSH)
    published(house.writer, "p/tt-1", "a", "b")
    house.orders.hint(1, 2)
    house.work()
    assert [request.message for request in house.requests] == [1, 2]
    assert house.orders.follows(1)
    assert not house.orders.follows(2)
