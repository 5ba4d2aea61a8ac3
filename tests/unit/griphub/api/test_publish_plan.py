"""griphub.api.publish_plan: publications in plain form, and their answers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from griphub.access.owner import ANONYMOUS, Owner, owner_key
from griphub.access.patterns import EVERY, NONE
from griphub.access.rights import Rights, anonymous_rights
from griphub.access.tokens import BadToken
from griphub.api.context import HubCounters
from griphub.api.feed import Feed
from griphub.api.problem import Problem
from griphub.api.publish_plan import DATA_MAX, PublishPlan
from griphub.api.publishing import Publishing
from griphub.api.request import Answer
from griphub.processes.writer import PlainDone
from griphub.processes.writer_options import OVERHEAD
from griphub.store.cursor import EpochInterval
from griphub.store.errors import OwnerBusy, StoreBroken, StoreBusy, StoreError, StoreFull
from griphub.store.event import Draft, Event
from griphub.store.plain_records import PlainOutcome, PlainPublication
from griphub.store.topic import Topic, TopicSettings
from griphub.topics.event_text import Epochs
from griphub.topics.topic_table import TopicTable

TIME = 1_795_476_254_000_123
FIELDS = Draft(b"", "text/plain", "k", "put", {"a": "b"})


class Writer:
    """Writer that keeps publications until they are answered."""

    def __init__(self) -> None:
        self.taken: list[tuple[PlainPublication, int, PlainDone, str]] = []
        self.busy: StoreError | None = None

    def append_plain(self, plain: PlainPublication, size: int, done: PlainDone, owner: str) -> None:
        if self.busy is not None:
            raise self.busy
        self.taken.append((plain, size, done, owner))


class Followers:
    """Feed of a topic with followers or without."""

    def __init__(self, *, there: bool) -> None:
        self.there = there
        self.counted_sizes: list[tuple[int, int, int, int]] = []
        self.events: list[tuple[int, Event]] = []

    def counted(self, number: int, last: int, events: int, size: int) -> bool:
        self.counted_sizes.append((number, last, events, size))
        return self.there

    def stored(self, number: int, events: tuple[Event, ...]) -> None:
        self.events += [(number, event) for event in events]


class Client:
    """Receiver of answers: status and body of each."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []

    def answer(self, answer: Answer) -> None:
        self.answers.append((answer.status, json.loads(answer.body)))

    def created(self, body: bytes) -> None:
        self.answers.append((201, json.loads(body)))


class Verifier:
    """Verifier of one token, with the rights that it is given."""

    def __init__(self, rights: Rights | None = None) -> None:
        self.anonymous = anonymous_rights("all")
        self.given = rights

    def rights(self, token: bytes, wall: float) -> Rights:
        assert (token, wall) == (b"token", 2.0)
        if self.given is None:
            raise BadToken("it has expired")
        return self.given


class House:
    """A plan of the topic ``t``, number 7, and what is around it."""

    def __init__(
        self, draft: Draft, *, followed: bool = False, rights: Rights | None = None, token: bytes | None = None
    ) -> None:
        self.writer, self.client, self.counters = Writer(), Client(), HubCounters()
        self.feed = Followers(there=followed)
        self.verifier = Verifier(rights)
        self.topics = TopicTable()
        self.topics.set(Topic(7, "t", 0, 0, 0, 0, 0, 0, 0, TopicSettings()))
        context: Any = SimpleNamespace(
            config=SimpleNamespace(idempotency_per_owner_max=1),
            verifier=self.verifier,
            topics=self.topics,
            writer=self.writer,
            counters=self.counters,
            epochs=Epochs([EpochInterval("e", 3, None)]),
            now=lambda: 1.0,
            wall=lambda: 2.0,
        )
        self.plan = PublishPlan(context, Publishing(context, cast(Feed, self.feed)), "t", draft, token)

    def publish(self, body: bytes = b"hello") -> bool:
        return self.plan(body, self.client)

    def finish(self, outcome: PlainOutcome | StoreError) -> tuple[int, Any]:
        _, _, done, _ = self.writer.taken.pop(0)
        done(outcome)
        return self.client.answers.pop()


def test_an_event_goes_to_the_writer_with_the_fields_of_its_head() -> None:
    house = House(FIELDS)
    assert house.publish()
    [(plain, size, _, owner)] = house.writer.taken
    counted = len("text/plain") + len("k") + len("ab") + len("hello")
    assert plain == ("t", ((0, "k", "text/plain", '{"a":"b"}', b"hello", counted),), None, None, None)
    assert (size, owner) == (counted + OVERHEAD, owner_key(ANONYMOUS))


def test_the_answer_has_id_cursor_and_time_after_the_commit() -> None:
    house = House(FIELDS)
    house.publish()
    assert house.client.answers == []
    event = {"id": "5", "cursor": "e.5", "time": "2026-11-23T23:24:14.000123Z"}
    whole = {"events": [event], "version": "5", "version_cursor": "e.5"}
    assert house.finish((0, 7, 4, 5, TIME, 1)) == (201, whole)
    assert (house.feed.counted_sizes, house.feed.events) == ([(7, 5, 1, 5)], [])
    assert house.counters.answers == {201: 1}


def test_followers_get_the_event() -> None:
    house = House(FIELDS, followed=True)
    house.publish()
    house.finish((0, 7, 4, 5, TIME, 1))
    assert house.feed.events == [(7, Event(5, 4, 5, TIME, b"hello", "text/plain", "k", "put", {"a": "b"}))]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [((2, "unknown", 0), 404), (StoreFull("the disk is full"), 507), (StoreBroken("it ended"), 503)],
)
def test_what_is_not_stored_is_answered_by_a_problem(outcome: PlainOutcome | StoreError, status: int) -> None:
    house = House(FIELDS, followed=True)
    house.publish()
    assert house.finish(outcome)[0] == status
    assert (house.feed.counted_sizes, house.feed.events) == ([], [])
    assert house.counters.answers == {status: 1}


@pytest.mark.parametrize(("error", "status"), [(OwnerBusy("much"), 429), (StoreBusy("much"), 503)])
def test_what_the_writer_does_not_take_is_a_problem(error: StoreError, status: int) -> None:
    house = House(FIELDS)
    house.writer.busy = error
    with pytest.raises(Problem) as caught:
        house.publish()
    assert caught.value.status == status


def test_a_content_beyond_the_bound_and_a_deleted_topic_are_looked_at_again() -> None:
    house = House(FIELDS)
    assert house.publish(b"x" * DATA_MAX)
    assert not house.publish(b"x" * (DATA_MAX + 1))
    house.topics.remove(7)
    assert not house.publish()
    assert len(house.writer.taken) == 1


def test_rights_are_asked_for_each_time() -> None:
    rights = Rights(Owner("issuer", "me"), EVERY, NONE, NONE, 0)
    house = House(FIELDS, rights=rights, token=b"token")
    assert house.publish()
    assert house.publish()
    assert {owner for _, _, _, owner in house.writer.taken} == {owner_key(rights.owner)}
    house.verifier.given = Rights(rights.owner, NONE, EVERY, EVERY, 0)
    assert not house.publish()
    house.verifier.given = None
    assert not house.publish()
    house.verifier.given = Rights(Owner("issuer", "other"), EVERY, NONE, NONE, 0)
    assert house.publish()
    assert house.writer.taken[-1][3] == owner_key(Owner("issuer", "other"))
