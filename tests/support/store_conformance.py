"""Conformance of a store engine: what every implementation of ``griphub.store.interface`` must do.

An engine's test module makes a subclass of ``Conformance`` with a fixture ``stores``. A test reads as publications in,
pages out; it knows no table of the engine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, Protocol

import pytest

from griphub.store.event import Draft, Event
from griphub.store.interface import WHOLE, KeyRange, StoreReader, StoreWriter
from griphub.store.publication import Condition, Idempotency, Publication, Published, Refused, Repeated
from griphub.store.subscription import Subscription, SubscriptionProgress
from griphub.store.topic import Retention, Topic, TopicSettings

__all__ = [
    "Conformance",
    "HandClock",
    "Stores",
    "draft_of",
    "drafts",
    "history",
    "made",
    "published",
    "subscribed",
    "texts",
    "trim",
]

SECOND = 1_000_000
"""Microseconds."""

BIG = 10**9


class HandClock:
    """Microseconds since 1970, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


class Stores(Protocol):
    """A store that a test may open, close and crash."""

    clock: HandClock
    writer: StoreWriter
    reader: StoreReader

    def crash(self) -> None:
        """End the writer as a killed process does, and open the store again."""


def drafts(*texts: str) -> tuple[Draft, ...]:
    """Return drafts; ``key=value`` puts a key, ``-key`` deletes it."""
    made = []
    for text in texts:
        key, equals, value = text.partition("=")
        if text.startswith("-"):
            made.append(Draft(b"", "text/plain", text[1:], "delete"))
        else:
            made.append(Draft((value if equals else text).encode(), "text/plain", key if equals else None))
    return tuple(made)


def made(writer: StoreWriter, name: str, settings: TopicSettings | None = None) -> Topic:
    """Make a topic, or change its settings."""
    result = writer.put_topic(name, settings or TopicSettings())
    assert result is not None
    return result[0]


def trim(writer: StoreWriter, number: int, keep: int | None = None) -> None:
    """Do all that the retention of a topic demands; the floor does not pass an id to ``keep``."""
    while True:
        floor = writer.wanted_floor(number)
        if keep is not None:
            floor = min(floor, keep)
        before = writer.raise_floor(number, 0)
        raised = writer.raise_floor(number, floor)
        while writer.delete_slice(number):
            pass
        if raised == before:
            return


def published(writer: StoreWriter, topic: str, *texts: str) -> Published:
    """Publish in one transaction; it must succeed."""
    [outcome] = writer.append([Publication(topic, drafts(*texts))])
    assert isinstance(outcome, Published)
    return outcome


def history(
    reader: StoreReader, topic: Topic, after: int = 0, keys: KeyRange = WHOLE, limit: int = 1000, size: int = BIG
) -> list[Event]:
    """Return all events of a topic above an id, page by page."""
    events: list[Event] = []
    while True:
        page = reader.page(topic.number, after, keys, limit, size)
        assert page is not None
        assert len(page.events) <= limit
        events += page.events
        after = page.last
        if not page.more:
            return events


def texts(events: Sequence[Event]) -> list[str]:
    """Return events as ``drafts`` reads them."""
    shown = []
    for event in events:
        if event.op == "delete":
            shown.append(f"-{event.key}")
        else:
            shown.append(event.data.decode() if event.key is None else f"{event.key}={event.data.decode()}")
    return shown


def draft_of(topic: int, id: str = "s", owner: str = "o", position: int = 0) -> Subscription:
    """Return a subscription without a number."""
    keys = (("whsec_new", None), ("whsec_old", 1_700_000_000.25))
    return Subscription(0, topic, id, owner, "https://example.com/ü", "after=0", position, keys, 2 * SECOND, SECOND)


def subscribed(writer: StoreWriter, topic: int, id: str = "s", owner: str = "o", position: int = 0) -> Subscription:
    """Make a subscription; it must succeed."""
    result = writer.subscriptions.make(draft_of(topic, id, owner, position))
    assert isinstance(result, Subscription)
    return result


class Conformance:
    """Tests of an engine."""

    @pytest.fixture
    def topic(self, stores: Stores) -> Topic:
        """Return a topic without bounds."""
        return made(stores.writer, "t")

    # --- order and identity

    def test_ids_are_one_order_over_all_topics(self, stores: Stores, topic: Topic) -> None:
        stores.writer.put_topic("u", TopicSettings())
        ids = [id for name in "tutu" for id in published(stores.writer, name, "a", "b").ids]
        assert ids == sorted(set(ids))
        events = history(stores.reader, topic)
        assert [event.prev_id for event in events] == [0, *[event.id for event in events[:-1]]]

    def test_a_transaction_shares_its_version(self, stores: Stores, topic: Topic) -> None:
        first = published(stores.writer, "t", "a", "b", "c")
        second = published(stores.writer, "t", "d")
        versions = [event.version for event in history(stores.reader, topic)]
        assert versions == [first.ids[-1]] * 3 + [second.ids[0]]
        assert (first.first_prev, second.first_prev) == (0, first.ids[-1])

    def test_times_are_strictly_increasing_also_when_the_clock_goes_back(self, stores: Stores, topic: Topic) -> None:
        published(stores.writer, "t", "a", "b")
        stores.clock.now -= 3600 * SECOND
        published(stores.writer, "t", "c", "d")
        times = [event.time for event in history(stores.reader, topic)]
        assert times == sorted(set(times))

    def test_an_event_is_what_was_published(self, stores: Stores, topic: Topic) -> None:
        draft = Draft(bytes(range(256)), "image/png", "clé", "put", {"a": "1", "ü": ""})
        [outcome] = stores.writer.append([Publication("t", (draft,))])
        assert isinstance(outcome, Published)
        [event] = history(stores.reader, topic)
        assert (event.data, event.content_type, event.key, event.op) == (draft.data, "image/png", "clé", "put")
        assert dict(event.attributes) == {"a": "1", "ü": ""}
        assert (event.id, event.time) == (outcome.ids[0], outcome.times[0])
        assert stores.reader.last_of(topic.number, "clé") == event

    def test_ids_are_never_issued_again(self, stores: Stores, topic: Topic) -> None:
        newest = published(stores.writer, "t", "a").ids[0]
        stores.writer.delete_topic("t")
        assert stores.writer.gone_topics() == [topic.number]
        while stores.writer.delete_slice(topic.number):
            pass
        assert stores.writer.gone_topics() == []
        stores.crash()
        again = made(stores.writer, "t")
        assert again.number != topic.number
        assert again.birth > newest, "the last place of the topic before is none of this one"
        assert published(stores.writer, "t", "b").ids[0] > newest
        assert texts(history(stores.reader, again)) == ["b"]

    # --- publications

    def test_publications_of_one_commit_keep_their_order(self, stores: Stores, topic: Topic) -> None:
        outcomes = stores.writer.append([Publication("t", drafts(str(number))) for number in range(200)])
        assert all(isinstance(outcome, Published) for outcome in outcomes)
        assert texts(history(stores.reader, topic)) == [str(number) for number in range(200)]

    def test_one_that_fails_spoils_no_other(self, stores: Stores, topic: Topic) -> None:
        publications = [
            Publication("t", drafts("a")),
            Publication("unknown", drafts("b")),
            Publication("t", drafts("c"), Condition(0)),
            Publication("t", drafts("d")),
        ]
        first, unknown, condition, last = stores.writer.append(publications)
        assert isinstance(first, Published)
        assert isinstance(last, Published)
        assert unknown == Refused("unknown")
        assert condition == Refused("condition", first.ids[0])
        assert texts(history(stores.reader, topic)) == ["a", "d"]
        assert last.ids[0] == first.ids[0] + 1

    def test_conditions_see_what_is_before_them_in_the_commit(self, stores: Stores, topic: Topic) -> None:
        [one] = stores.writer.append([Publication("t", drafts("k=1"), Condition(0, "k"))])
        assert isinstance(one, Published)
        [id] = one.ids
        outcomes = stores.writer.append(
            [
                Publication("t", drafts("k=2"), Condition(id, "k")),
                Publication("t", drafts("k=3"), Condition(id, "k")),
                Publication("t", drafts("x"), Condition(id + 1)),
                Publication("t", drafts("y=1"), Condition(0, "y")),
            ]
        )
        assert [type(outcome) for outcome in outcomes] == [Published, Refused, Published, Published]
        assert texts(history(stores.reader, topic)) == ["k=1", "k=2", "x", "y=1"]

    def test_a_repeated_request_stores_nothing(self, stores: Stores, topic: Topic) -> None:
        name = Idempotency("owner t", "key", b"digest")
        publication = Publication("t", drafts("a", "b"), None, name)
        [first] = stores.writer.append([publication])
        assert isinstance(first, Published)
        stores.crash()
        assert stores.writer.append([publication, publication]) == [Repeated(first)] * 2
        other = dataclasses.replace(publication, idempotency=dataclasses.replace(name, digest=b"another"))
        assert stores.writer.append([other]) == [Refused("another")]
        assert texts(history(stores.reader, topic)) == ["a", "b"]

    def test_repetitions_within_one_commit(self, stores: Stores, topic: Topic) -> None:
        publication = Publication("t", drafts("a"), None, Idempotency("o", "k", b"d"))
        first, second = stores.writer.append([publication, publication])
        assert isinstance(first, Published)
        assert second == Repeated(first)

    def test_a_name_of_a_deleted_topic_is_forgotten(self, stores: Stores, topic: Topic) -> None:
        publication = Publication("t", drafts("a"), None, Idempotency("o", "k", b"d"))
        [first] = stores.writer.append([publication])
        stores.writer.delete_topic("t")
        assert stores.writer.append([publication]) == [Refused("unknown")]
        made(stores.writer, "t")
        [second] = stores.writer.append([publication])
        assert isinstance(first, Published)
        assert isinstance(second, Published)
        assert second.topic != first.topic
        assert stores.writer.append([publication]) == [Repeated(second)]

    def test_an_owner_has_so_many_names(self, stores: Stores, topic: Topic) -> None:
        def named(key: str, owner: str) -> Publication:
            return Publication("t", drafts(key), None, Idempotency(owner, key, b"d", 10.0, owner, 2))

        outcomes = stores.writer.append([named("1", "o"), named("2", "o"), named("3", "o"), named("1", "p")])
        assert [type(outcome) for outcome in outcomes] == [Published, Published, Refused, Published]
        assert outcomes[2] == Refused("names")
        stores.crash()
        again, third = stores.writer.append([named("1", "o"), named("3", "o")])
        assert isinstance(again, Repeated)
        assert third == Refused("names")
        stores.clock.now += 11 * SECOND
        # An expired name gives its place to its repetition, and all are given back when they are forgotten.
        [renewed] = stores.writer.append([named("1", "o")])
        assert isinstance(renewed, Published)
        assert stores.writer.append([named("3", "o")]) == [Refused("names")]
        assert not stores.writer.forget_names()
        [fitting] = stores.writer.append([named("3", "o")])
        assert isinstance(fitting, Published)
        assert stores.writer.append([named("4", "o")]) == [Refused("names")]

    def test_the_secret_stays(self, stores: Stores) -> None:
        secret = stores.writer.state().secret
        assert len(secret) == 32
        stores.crash()
        assert stores.reader.state().secret == secret

    def test_a_refused_condition_is_not_remembered(self, stores: Stores, topic: Topic) -> None:
        publication = Publication("t", drafts("a"), Condition(5), Idempotency("o", "k", b"d"))
        assert stores.writer.append([publication]) == [Refused("condition", 0)]
        [again] = stores.writer.append([dataclasses.replace(publication, condition=None)])
        assert isinstance(again, Published)

    def test_names_are_remembered_for_their_time(self, stores: Stores, topic: Topic) -> None:
        publication = Publication("t", drafts("a"), None, Idempotency("o", "k", b"d", 10.0))
        [first] = stores.writer.append([publication])
        stores.clock.now += 11 * SECOND
        [second] = stores.writer.append([publication])
        assert isinstance(second, Published)
        assert second != first

    def test_what_was_answered_survives_a_crash(self, stores: Stores, topic: Topic) -> None:
        for number in range(20):
            published(stores.writer, "t", str(number))
            stores.crash()
        assert texts(history(stores.reader, topic)) == [str(number) for number in range(20)]

    # --- pages

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    def test_pages_together_are_the_history(self, stores: Stores, topic: Topic, limit: int) -> None:
        for number in range(5):
            published(stores.writer, "t", f"{number}a", f"{number}b", f"k{number}=c")
        whole = history(stores.reader, topic)
        assert len(whole) == 15
        assert history(stores.reader, topic, limit=limit) == whole
        assert history(stores.reader, topic, whole[6].id, limit=limit) == whole[7:]

    def test_a_page_ends_between_versions(self, stores: Stores, topic: Topic) -> None:
        one = published(stores.writer, "t", "a", "b", "c").ids
        two = published(stores.writer, "t", "d", "e").ids
        published(stores.writer, "t", "f")
        for limit, wanted in ((3, "abc"), (4, "abc"), (5, "abcde"), (6, "abcdef")):
            page = stores.reader.page(topic.number, 0, WHOLE, limit, BIG)
            assert page is not None
            assert "".join(texts(page.events)) == wanted
            assert (page.last, page.more) == ({"abc": one[2], "abcde": two[1], "abcdef": two[1] + 1}[wanted], limit < 6)
        # A version above the limit is divided, and the next page begins within it.
        for after, limit, wanted in ((0, 2, "ab"), (one[1], 2, "c"), (one[1], 3, "cde"), (two[0], 1, "e")):
            page = stores.reader.page(topic.number, after, WHOLE, limit, BIG)
            assert page is not None
            assert "".join(texts(page.events)) == wanted

    def test_a_page_of_a_range_ends_between_versions(self, stores: Stores, topic: Topic) -> None:
        first = published(stores.writer, "t", "a=1", "x=1", "b=1").ids
        published(stores.writer, "t", "a=2", "x=2", "b=2")
        page = stores.reader.page(topic.number, 0, KeyRange("a", "c"), 3, BIG)
        assert page is not None
        assert (texts(page.events), page.last) == (["a=1", "b=1"], first[2])

    def test_a_narrow_range_of_a_long_topic_takes_several_pages(self, stores: Stores, topic: Topic) -> None:
        stores.writer.append([Publication("t", drafts(*["x=1"] * 999, "k=1")) for _ in range(41)])
        pages, after, more = [], 0, True
        while more:
            page = stores.reader.page(topic.number, after, KeyRange("k", "l"), 1000, BIG)
            assert page is not None
            pages.append(len(page.events))
            assert page.last == 41_000 or page.last % 1000 == 0
            after, more = page.last, page.more
        assert pages == [20, 20, 1]

    def test_events_of_all_topics(self, stores: Stores, topic: Topic) -> None:
        other = made(stores.writer, "u")
        first = published(stores.writer, "t", "a", "b").ids
        second = published(stores.writer, "u", "c", "d").ids
        page = stores.reader.events_after(0, 100, BIG)
        assert [number for number, _ in page.events] == [topic.number] * 2 + [other.number] * 2
        assert texts([event for _, event in page.events]) == ["a", "b", "c", "d"]
        assert (page.last, page.more) == (second[1], False)
        page = stores.reader.events_after(0, 3, BIG)
        assert (len(page.events), page.last, page.more) == (2, first[1], True)
        page = stores.reader.events_after(0, 100, 1)
        assert (len(page.events), page.last, page.more) == (1, first[0], True)
        assert stores.reader.events_after(second[1], 100, BIG).events == ()

    def test_one_event(self, stores: Stores, topic: Topic) -> None:
        made(stores.writer, "u")
        [id] = published(stores.writer, "t", "k=1").ids
        [other] = published(stores.writer, "u", "b").ids
        assert [stores.reader.event_at(topic.number, id)] == history(stores.reader, topic)
        assert stores.reader.event_at(topic.number, other) is None
        assert stores.reader.event_at(topic.number, 99) is None

    def test_the_last_event_of_a_range(self, stores: Stores, topic: Topic) -> None:
        ids = published(stores.writer, "t", "a=1", "b=1", "no key", "a=2", "c=1").ids
        last = stores.reader.last_in
        assert last(topic.number, WHOLE, BIG) == ids[4]
        assert last(topic.number, WHOLE, ids[2]) == ids[2]
        assert last(topic.number, KeyRange("a", "b"), BIG) == ids[3]
        assert last(topic.number, KeyRange("a", "b"), ids[2]) == ids[0]
        assert last(topic.number, KeyRange("a", "b"), ids[0] - 1) == 0
        assert last(topic.number, KeyRange(high="c"), BIG) == ids[3]
        assert last(topic.number, KeyRange(), ids[2]) == ids[1]
        assert last(topic.number, KeyRange("d"), BIG) == 0
        assert last(77, WHOLE, BIG) == last(77, KeyRange("a"), BIG) == 0

    def test_the_last_event_of_a_range_behind_many_others(self, stores: Stores, topic: Topic) -> None:
        ids = published(stores.writer, "t", "a=1", "b=1", "a=2").ids
        stores.writer.append([Publication("t", drafts(*["x=1"] * 1000)) for _ in range(3)])
        assert stores.reader.last_in(topic.number, KeyRange("a", "b"), BIG) == ids[2]
        assert stores.reader.last_in(topic.number, KeyRange("b", "x"), BIG) == ids[1]
        assert stores.reader.last_in(topic.number, KeyRange("y"), BIG) == 0

    def test_a_page_ends_after_so_many_bytes_but_has_an_event(self, stores: Stores, topic: Topic) -> None:
        published(stores.writer, "t", "x" * 1000, "y" * 1000, "z" * 1000)
        page = stores.reader.page(topic.number, 0, WHOLE, 100, 10)
        assert page is not None
        assert (texts(page.events), page.more) == (["x" * 1000], True)
        assert len(history(stores.reader, topic, size=2100)) == 3

    def test_the_last_page_is_complete_up_to_the_newest_id_of_the_store(self, stores: Stores, topic: Topic) -> None:
        stores.writer.put_topic("u", TopicSettings())
        published(stores.writer, "t", "a")
        newest = published(stores.writer, "u", "b").ids[0]
        page = stores.reader.page(topic.number, 0, WHOLE, 100, BIG)
        assert page is not None
        assert (page.last, page.more) == (newest, False)
        bounded = stores.reader.page(topic.number, 0, WHOLE, 100, BIG, until=1)
        assert bounded is not None
        assert bounded.last == 1

    def test_a_page_of_an_unknown_topic(self, stores: Stores) -> None:
        assert stores.reader.page(77, 0, WHOLE, 10, BIG) is None
        assert stores.reader.snapshot(77, KeyRange(), 0, None, 10, BIG) is None

    @pytest.mark.parametrize(
        ("low", "high", "wanted"),
        [
            (None, None, ["a=1", "b=2", "é=3", "\U0001f600=4"]),
            ("a", "b", ["a=1"]),
            ("b", None, ["b=2", "é=3", "\U0001f600=4"]),
            (None, "b", ["a=1"]),
            ("b", "b", []),
            ("c", "a", []),
            # UTF-16 would sort the second of these before the first.
            ("\uffee", None, ["\U0001f600=4"]),
            ("", None, ["a=1", "b=2", "é=3", "\U0001f600=4"]),
        ],
    )
    def test_ranges_are_half_open_and_in_bytes(
        self, stores: Stores, topic: Topic, low: str | None, high: str | None, wanted: list[str]
    ) -> None:
        published(stores.writer, "t", "a=1", "b=2", "no key", "é=3", "\U0001f600=4")
        assert texts(history(stores.reader, topic, keys=KeyRange(low, high))) == wanted
        assert texts(self.snapshot(stores, topic, KeyRange(low, high))) == wanted

    # --- times and keys

    def test_since_a_time_is_exact(self, stores: Stores, topic: Topic) -> None:
        first = published(stores.writer, "t", "a", "b")
        stores.clock.now += SECOND
        second = published(stores.writer, "t", "c")
        at = stores.reader.id_at
        assert at(topic.number, first.times[0] - 1) == 0
        assert [at(topic.number, time) for time in first.times] == list(first.ids)
        assert at(topic.number, second.times[0] - 1) == first.ids[1]
        assert at(topic.number, second.times[0] + SECOND) == second.ids[0]

    def test_events_above_ids_are_counted(self, stores: Stores, topic: Topic) -> None:
        ids = published(stores.writer, "t", *"abcde").ids
        count = stores.reader.count_after
        assert count(topic.number, 0, 100) == (5, ids[4])
        assert count(topic.number, ids[1], 100) == (3, ids[4])
        assert count(topic.number, ids[1], 2) == (2, ids[3])
        assert count(topic.number, ids[4], 100) == (0, ids[4])
        assert count(topic.number + 1, 0, 100) == (0, 0)

    def test_the_last_event_of_a_key(self, stores: Stores, topic: Topic) -> None:
        published(stores.writer, "t", "k=1", "k=2", "j=1", "-j")
        last = stores.reader.last_of(topic.number, "k")
        deleted = stores.reader.last_of(topic.number, "j")
        assert last is not None
        assert last.data == b"2"
        assert deleted is not None
        assert deleted.op == "delete"
        assert stores.reader.last_of(topic.number, "i") is None

    # --- snapshots

    def snapshot(
        self, stores: Stores, topic: Topic, keys: KeyRange, version: int = BIG, limit: int = 1000
    ) -> list[Event]:
        events: list[Event] = []
        after: str | None = None
        while True:
            page = stores.reader.snapshot(topic.number, keys, version, after, limit, BIG)
            assert page is not None
            events += page.events
            after = page.next_key
            if after is None:
                return events

    def test_a_snapshot_is_the_table_at_a_version(self, stores: Stores, topic: Topic) -> None:
        version = published(stores.writer, "t", "a=1", "b=1", "c=1").ids[-1]
        published(stores.writer, "t", "b=2", "-a", "d=1")
        assert texts(self.snapshot(stores, topic, KeyRange(), version)) == ["a=1", "b=1", "c=1"]
        assert texts(self.snapshot(stores, topic, KeyRange())) == ["b=2", "c=1", "d=1"]
        for limit in (1, 2):
            assert texts(self.snapshot(stores, topic, KeyRange(), limit=limit)) == ["b=2", "c=1", "d=1"]

    # --- retention

    def trim(self, stores: Stores, topic: Topic, retention: Retention, keep: int | None = None) -> Topic:
        made(stores.writer, topic.name, TopicSettings(retention))
        trim(stores.writer, topic.number, keep)
        found = stores.reader.topic(topic.name)
        assert found is not None
        return found

    def test_number_of_events(self, stores: Stores, topic: Topic) -> None:
        ids = [published(stores.writer, "t", str(number)).ids[0] for number in range(10)]
        trimmed = self.trim(stores, topic, Retention(events=3))
        assert (trimmed.floor, trimmed.count) == (ids[6], 3)
        assert texts(history(stores.reader, topic)) == ["7", "8", "9"]

    def test_age(self, stores: Stores, topic: Topic) -> None:
        old = published(stores.writer, "t", "old", "older")
        stores.clock.now += 100 * SECOND
        published(stores.writer, "t", "new")
        trimmed = self.trim(stores, topic, Retention(age=50.0))
        assert (trimmed.floor, trimmed.floor_time) == (old.ids[1], old.times[1])
        assert texts(history(stores.reader, topic)) == ["new"]

    def test_bytes(self, stores: Stores, topic: Topic) -> None:
        for number in range(10):
            published(stores.writer, "t", f"{number}" * 1000)
        trimmed = self.trim(stores, topic, Retention(bytes=3500))
        assert trimmed.bytes <= 3500
        assert [event.data[:1] for event in history(stores.reader, topic)] == [b"7", b"8", b"9"]

    def test_a_long_topic_is_deleted_in_slices_behind_its_floor(self, stores: Stores, topic: Topic) -> None:
        stores.writer.append([Publication("t", drafts(*map(str, range(1000)))) for _ in range(2)])
        made(stores.writer, "t", TopicSettings(Retention(events=1)))
        floor = stores.writer.wanted_floor(topic.number)
        assert floor == 1999
        before = stores.reader.topic("t")
        assert before is not None
        assert (before.floor, before.count) == (0, 2000), "a demand changes nothing"
        assert stores.writer.raise_floor(topic.number, floor) is not None
        raised = stores.reader.topic("t")
        assert raised is not None
        assert (raised.floor, raised.count) == (1999, 2000), "the floor is committed before anything is deleted"
        assert stores.writer.wanted_floor(topic.number) == 1999
        assert stores.writer.delete_slice(topic.number)
        found = stores.reader.topic("t")
        assert found is not None
        assert 1500 <= found.count < 2000
        stores.crash()
        while stores.writer.delete_slice(topic.number):
            pass
        assert texts(history(stores.reader, topic)) == ["999"]

    def test_a_topic_far_beyond_its_bounds_is_trimmed_in_steps(self, stores: Stores, topic: Topic) -> None:
        for _ in range(6):
            stores.writer.append([Publication("t", drafts(*map(str, range(1000)))) for _ in range(2)])
        for compact in (True, False):
            trimmed = self.trim(stores, topic, Retention(events=7, compact=compact))
            assert trimmed.floor == 12_000 - 7
        assert len(history(stores.reader, topic)) == 7

    def test_an_unknown_topic_has_no_floor(self, stores: Stores) -> None:
        assert stores.writer.wanted_floor(77) == 0
        assert stores.writer.raise_floor(77, 5) is None
        assert not stores.writer.delete_slice(77)

    def test_a_floor_does_not_pass_the_newest_event(self, stores: Stores, topic: Topic) -> None:
        [newest] = published(stores.writer, "t", "a").ids
        raised = stores.writer.raise_floor(topic.number, newest + 100)
        assert raised is not None
        assert raised.floor == newest

    def test_a_lease_holds_the_floor(self, stores: Stores, topic: Topic) -> None:
        ids = [published(stores.writer, "t", str(number)).ids[0] for number in range(10)]
        assert self.trim(stores, topic, Retention(events=1), keep=ids[3]).floor == ids[3]
        assert self.trim(stores, topic, Retention(events=1)).floor == ids[8]

    def test_the_floor_never_falls(self, stores: Stores, topic: Topic) -> None:
        ids = [published(stores.writer, "t", str(number)).ids[0] for number in range(10)]
        self.trim(stores, topic, Retention(events=2))
        assert self.trim(stores, topic, Retention(events=9)).floor == ids[7]

    def test_compaction_keeps_the_last_event_of_each_key(self, stores: Stores, topic: Topic) -> None:
        published(stores.writer, "t", "a=1", "b=1", "no key", "c=1", "a=2", "-b", "d=1")
        published(stores.writer, "t", "a=3", "c=2")
        trimmed = self.trim(stores, topic, Retention(events=2, compact=True))
        # A snapshot at the floor needs what each key had there, and nothing of a key that was deleted.
        assert texts(history(stores.reader, topic)) == ["c=1", "a=2", "d=1", "a=3", "c=2"]
        assert trimmed.count == 5
        assert texts(self.snapshot(stores, topic, KeyRange(), trimmed.floor)) == ["a=2", "c=1", "d=1"]
        assert texts(self.snapshot(stores, topic, KeyRange())) == ["a=3", "c=2", "d=1"]

    def test_compaction_takes_nothing_above_the_floor(self, stores: Stores, topic: Topic) -> None:
        published(stores.writer, "t", "a=1", "a=2", "-a", "a=3")
        self.trim(stores, topic, Retention(events=4, compact=True))
        assert texts(history(stores.reader, topic)) == ["a=1", "a=2", "-a", "a=3"]

    def test_compaction_goes_on_when_the_floor_rises(self, stores: Stores, topic: Topic) -> None:
        for number in range(20):
            published(stores.writer, "t", f"a={number}", f"b{number}=1")
            self.trim(stores, topic, Retention(events=2, compact=True))
        assert texts(self.snapshot(stores, topic, KeyRange(high="b"))) == ["a=19"]
        kept = texts(history(stores.reader, topic))
        assert [text for text in kept if text.startswith("a=")] == ["a=18", "a=19"]
        assert len(kept) == 22

    # --- topics

    def test_settings_change_and_are_kept(self, stores: Stores) -> None:
        settings = TopicSettings(Retention(1.5, 2, 3, True), "none", 5.0, {"team": "a"}, "https://source.example/s")
        first = stores.writer.put_topic("x", settings, "owner")
        assert first is not None
        assert first[1]
        stores.crash()
        again = stores.writer.put_topic("x", TopicSettings(store="none"), "another")
        assert again is not None
        assert again == (dataclasses.replace(first[0], settings=again[0].settings), False)
        stores.writer.put_topic("x", settings)
        found = stores.reader.topic("x")
        assert found is not None
        assert dataclasses.asdict(found.settings.retention) == dataclasses.asdict(settings.retention)
        assert (found.settings.store, found.settings.progress, dict(found.settings.labels)) == (
            "none",
            5.0,
            {"team": "a"},
        )

    @pytest.mark.parametrize(("first", "second"), [("none", "disk"), ("disk", "none")])
    def test_a_topic_stays_of_its_kind(
        self, stores: Stores, first: Literal["none", "disk"], second: Literal["none", "disk"]
    ) -> None:
        made = stores.writer.put_topic("x", TopicSettings(store=first, progress=5.0))
        assert made is not None
        assert stores.writer.put_topic("x", TopicSettings(store=second, progress=7.0)) == (made[0], False)
        stores.crash()
        found = stores.reader.topic("x")
        assert found is not None
        assert (found.settings.store, found.settings.progress) == (first, 5.0)

    def test_an_owner_has_so_many_topics(self, stores: Stores) -> None:
        put = stores.writer.put_topic
        assert put("a", TopicSettings(), "o", 2) is not None
        assert put("b", TopicSettings(), "o", 2) is not None
        stores.crash()
        put = stores.writer.put_topic
        assert put("c", TopicSettings(), "o", 2) is None
        assert put("a", TopicSettings(progress=1.0), "o", 2) is not None, "settings may change"
        assert put("c", TopicSettings(), "p", 2) is not None
        stores.writer.delete_topic("a")
        made_again = put("d", TopicSettings(), "o", 2)
        assert made_again is not None
        assert stores.reader.topic("d") == made_again[0]
        assert made_again[0].owner == "o"

    def test_topics_are_listed_in_order(self, stores: Stores) -> None:
        for name in ("b", "a/1", "c", "a"):
            stores.writer.put_topic(name, TopicSettings())
        assert [topic.name for topic in stores.reader.topics()] == ["a", "a/1", "b", "c"]
        assert [topic.name for topic in stores.reader.topics("a", 2)] == ["a/1", "b"]

    def test_access_numbers_rise(self, stores: Stores, topic: Topic) -> None:
        raised = stores.writer.raise_access("t")
        assert raised is not None
        assert raised.access == topic.access + 1
        stores.crash()
        assert stores.reader.topic("t") == raised
        assert stores.writer.raise_access("unknown") is None

    def test_a_deleted_topic_is_unknown_at_once(self, stores: Stores, topic: Topic) -> None:
        published(stores.writer, "t", "a")
        assert stores.writer.delete_topic("t") is not None
        assert stores.writer.delete_topic("t") is None
        assert stores.reader.topic("t") is None
        assert stores.reader.page(topic.number, 0, WHOLE, 10, BIG) is None
        assert stores.writer.append([Publication("t", drafts("b"))]) == [Refused("unknown")]

    # --- subscriptions

    def test_a_subscription_is_stored_as_it_was_drafted(self, stores: Stores, topic: Topic) -> None:
        [newest] = published(stores.writer, "t", "a").ids
        draft = draft_of(topic.number, "ü/1", position=newest)
        stored = stores.writer.subscriptions.make(draft)
        assert stored == dataclasses.replace(draft, number=1)
        stores.crash()
        assert stores.reader.subscriptions() == [stored]

    def test_the_same_name_again_is_the_stored_subscription(self, stores: Stores, topic: Topic) -> None:
        first = subscribed(stores.writer, topic.number)
        stores.crash()
        other = dataclasses.replace(draft_of(topic.number), callback="https://example.com/other", created=5 * SECOND)
        assert stores.writer.subscriptions.make(other, 0, 0, 0) == first, "bounds are those of further ones"
        assert stores.reader.subscriptions() == [first]

    def test_each_owner_and_each_topic_has_ids_of_its_own(self, stores: Stores, topic: Topic) -> None:
        other = made(stores.writer, "u")
        numbers = [
            subscribed(stores.writer, number, "s", owner).number
            for number in (topic.number, other.number)
            for owner in ("o", "p")
        ]
        assert numbers == sorted(set(numbers))

    def test_a_subscription_needs_its_topic(self, stores: Stores, topic: Topic) -> None:
        assert stores.writer.subscriptions.make(draft_of(77)) is None
        stores.writer.delete_topic("t")
        assert stores.writer.subscriptions.make(draft_of(topic.number)) is None

    def test_subscriptions_are_bounded(self, stores: Stores, topic: Topic) -> None:
        other = made(stores.writer, "u")

        def make(number: int, id: str, owner: str) -> str:
            result = stores.writer.subscriptions.make(draft_of(number, id, owner), 2, 3, 5)
            assert result is not None
            return result if isinstance(result, str) else "made"

        t, u = topic.number, other.number
        assert [make(t, id, "o") for id in "abc"] == ["made", "made", "topic"]
        stores.crash()
        assert make(t, "a", "p") == "topic"
        assert [make(u, id, "o") for id in "ab"] == ["made", "owner"]
        assert make(u, "a", "p") == "made"
        v = made(stores.writer, "v").number
        assert [make(v, id, "p") for id in "ab"] == ["made", "total"]
        # What was deleted makes room, alone or with its topic.
        assert stores.writer.subscriptions.delete(t, "o", "a") is not None
        assert make(t, "c", "p") == "made"
        stores.writer.delete_topic("u")
        assert [make(v, "b", "o"), make(v, "c", "o")] == ["made", "topic"]
        w = made(stores.writer, "w").number
        assert [make(w, id, "q") for id in "ab"] == ["made", "total"]

    def test_numbers_of_subscriptions_are_never_issued_again(self, stores: Stores, topic: Topic) -> None:
        first = subscribed(stores.writer, topic.number)
        assert stores.writer.subscriptions.delete(topic.number, "o", "s") == first.number
        assert stores.writer.subscriptions.delete(topic.number, "o", "s") is None
        stores.crash()
        second = subscribed(stores.writer, topic.number)
        assert second.number > first.number
        stores.writer.delete_topic("t")
        stores.crash()
        assert subscribed(stores.writer, made(stores.writer, "t").number).number > second.number

    def test_a_deleted_subscription_is_not_there_after_a_crash(self, stores: Stores, topic: Topic) -> None:
        kept = subscribed(stores.writer, topic.number, "kept")
        for owner, id in (("p", "kept"), ("o", "other")):
            subscribed(stores.writer, topic.number, id, owner)
            assert stores.writer.subscriptions.delete(topic.number, owner, id) is not None
        stores.crash()
        assert stores.reader.subscriptions() == [kept]

    def test_a_topic_is_deleted_with_its_subscriptions(self, stores: Stores, topic: Topic) -> None:
        kept = subscribed(stores.writer, made(stores.writer, "u").number)
        for id in "abc":
            subscribed(stores.writer, topic.number, id)
        stores.writer.delete_topic("t")
        assert stores.reader.subscriptions() == [kept]
        stores.crash()
        assert stores.reader.subscriptions() == [kept]

    def test_a_renewal_ends_a_rest(self, stores: Stores, topic: Topic) -> None:
        [newest] = published(stores.writer, "t", "a").ids
        first = subscribed(stores.writer, topic.number)
        stores.writer.subscriptions.save([SubscriptionProgress(first.number, newest, True, "callback", "timeout")])
        resting = dataclasses.replace(first, position=newest, confirmed=True, rest="callback", failure="timeout")
        assert stores.reader.subscriptions() == [resting]
        renewed = stores.writer.subscriptions.renew(first.number, 9 * SECOND)
        assert renewed == dataclasses.replace(resting, rest="", failure="", rights_end=9 * SECOND)
        stores.crash()
        assert stores.reader.subscriptions() == [renewed]
        assert stores.writer.subscriptions.renew(77, SECOND) is None

    def test_keys_are_replaced(self, stores: Stores, topic: Topic) -> None:
        first = subscribed(stores.writer, topic.number)
        keys = (("whsec_newest", None), ("whsec_new", 1_795_460_400.125))
        changed = stores.writer.subscriptions.set_keys(first.number, keys)
        assert changed == dataclasses.replace(first, keys=keys)
        stores.crash()
        assert stores.reader.subscriptions() == [changed]
        assert stores.writer.subscriptions.set_keys(77, keys) is None

    def test_a_position_never_moves_back(self, stores: Stores, topic: Topic) -> None:
        ids = published(stores.writer, "t", "a", "b", "c").ids
        one, two = [subscribed(stores.writer, topic.number, id) for id in "ab"]

        def saved(*progress: tuple[int, int]) -> list[int]:
            stores.writer.subscriptions.save([SubscriptionProgress(*each, False, "", "") for each in progress])
            return [each.position for each in stores.reader.subscriptions()]

        assert saved((one.number, ids[1]), (two.number, ids[0]), (77, ids[2])) == [ids[1], ids[0]]
        assert saved((one.number, ids[0]), (two.number, ids[2])) == [ids[1], ids[2]]
        stores.crash()
        assert saved() == [ids[1], ids[2]]

    def test_a_position_is_never_above_the_newest_id(self, stores: Stores, topic: Topic) -> None:
        [newest] = published(stores.writer, "t", "a").ids
        first = subscribed(stores.writer, topic.number, position=newest + 100)
        assert first.position == newest
        stores.writer.subscriptions.save([SubscriptionProgress(first.number, newest + 100, False, "", "")])
        assert [each.position for each in stores.reader.subscriptions()] == [newest]

    def test_subscriptions_are_read_in_pages(self, stores: Stores, topic: Topic) -> None:
        all_of_them = [subscribed(stores.writer, topic.number, str(count)) for count in range(5)]
        pages: list[list[Subscription]] = []
        while page := stores.reader.subscriptions(pages[-1][-1].number if pages else 0, 2):
            pages.append(page)
        assert [len(page) for page in pages] == [2, 2, 1]
        assert [each for page in pages for each in page] == all_of_them

    # --- stamps of progress

    def test_a_new_store_has_no_stamp(self, stores: Stores) -> None:
        assert stores.writer.stamps.reserve(1) == 0

    @pytest.mark.parametrize("until", [1, 1_700_000_000 * SECOND, 2**63 - 1])
    def test_a_stamp_is_kept_over_a_crash(self, stores: Stores, until: int) -> None:
        stores.writer.stamps.reserve(until)
        stores.crash()
        assert stores.writer.stamps.reserve(1) == until

    def test_the_kept_stamp_never_falls(self, stores: Stores) -> None:
        found = []
        for until in (300, 100, 200, 300, 0, 301):
            found.append(stores.writer.stamps.reserve(until))
            stores.crash()
        assert found == [0, 300, 300, 300, 300, 300]
        assert stores.writer.stamps.reserve(1) == 301

    def test_stamps_and_events_do_not_know_each_other(self, stores: Stores) -> None:
        made(stores.writer, "t")
        before = stores.writer.state()
        stores.writer.stamps.reserve(10**15)
        assert stores.writer.state() == before
        assert published(stores.writer, "t", "a").ids == (before.newest + 1,)
        assert stores.writer.delete_topic("t")
        stores.crash()
        assert stores.writer.stamps.reserve(1) == 10**15
