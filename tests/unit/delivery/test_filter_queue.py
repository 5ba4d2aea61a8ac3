"""Items of one session on their way through filters that ask the backend: order, bound, failures."""

from __future__ import annotations

import pytest

from gripproxy.grip.filters import AskAnswer
from gripproxy.grip.item import Item, ResponseFormat, StreamFormat
from gripproxy.grip.response import Response
from gripproxy.sessions.stream import StreamHold, StreamTerms
from tests.support.session_doubles import Client, House, Want, chunks, close, text, want


@pytest.fixture
def house() -> House:
    return House()


META = {b"url": b"/check", b"user": b"me"}


def stream(house: House, *wanted: Want, debug: bool = False, meta: dict[bytes, bytes] | None = None) -> Client:
    client = Client()
    terms = StreamTerms(None, META if meta is None else meta, None, b"http://h/x", None, b"", debug)
    hold = StreamHold(client, house.context, terms, Response(200, b"OK"), 1)
    hold.start(wanted or (want(b"ch", None, "http-modify"),), 8)
    house.confirm()
    client.take()
    client.hold = hold  # type: ignore[attr-defined]
    return client


def modified(content: bytes) -> AskAnswer:
    return AskAnswer(200, [], content)


UNCHANGED = AskAnswer(204, [], b"")
DROPPED = AskAnswer(200, [(b"Action", b"drop")], b"")


def reply(house: House, answer: AskAnswer | None) -> None:
    _, answered = house.asks.pop(0)
    answered(answer)


class TestOrder:
    def test_later_items_wait_for_the_answer(self, house: House) -> None:
        client = stream(house)
        house.publish(text(b"a"), text(b"b"), text(b"c"))
        assert len(house.asks) == 1
        assert house.asks[0][0].body == b"a"
        reply(house, modified(b"A"))
        assert client.take() == [chunks(b"A")]
        reply(house, DROPPED)
        reply(house, UNCHANGED)
        assert client.take() == [chunks(b"c")]
        assert house.asks == []

    def test_other_channels_wait_too(self, house: House) -> None:
        """A client of several channels sees their items in the order in which they were published."""
        client = stream(house, want(b"ch", None, "http-modify"), want(b"free"))
        house.publish(text(b"a"), text(b"b", channel=b"free"))
        assert client.take() == []
        reply(house, UNCHANGED)
        assert client.take() == [chunks(b"a"), chunks(b"b")]

    def test_a_close_waits_its_turn(self, house: House) -> None:
        client = stream(house)
        house.publish(text(b"a"), text(b"b"), close())
        reply(house, UNCHANGED)
        assert client.take() == [chunks(b"a")]
        reply(house, UNCHANGED)
        assert client.take() == [chunks(b"b"), ("end", True)]

    def test_a_close_with_nothing_before_it_is_at_once(self, house: House) -> None:
        client = stream(house)
        house.publish(text(b"a"))
        reply(house, UNCHANGED)
        house.publish(close())
        assert client.take() == [chunks(b"a"), ("end", True)]

    def test_filters_before_and_behind_the_question_are_run(self, house: House) -> None:
        client = stream(
            house, want(b"ch", None, "skip-self", "http-modify", "var-subst"), meta={**META, b"name": b"Ann"}
        )
        house.publish(Item(b"ch", stream=StreamFormat("send", b"mine"), meta={b"sender": b"me"}), text(b"x"))
        reply(house, modified(b"for %(name)s"))
        assert client.take() == [chunks(b"for Ann")]

    def test_two_questions_for_one_item(self, house: House) -> None:
        client = stream(house, want(b"ch", None, "http-check", "http-modify"))
        house.publish(text(b"a"), text(b"b"))
        reply(house, UNCHANGED)
        assert client.take() == []
        reply(house, modified(b"A"))
        assert client.take() == [chunks(b"A")]
        assert len(house.asks) == 1

    def test_other_sessions_do_not_wait(self, house: House) -> None:
        asks, free = stream(house), stream(house, want(b"ch"))
        house.publish(text(b"a"))
        assert (asks.take(), free.take()) == ([], [chunks(b"a")])


class TestContext:
    def test_the_question_names_ids_and_uri(self, house: House) -> None:
        stream(house, want(b"ch", b"5", "http-check"), want(b"other", b"9"))
        house.publish(text(b"a", b"6", b"5"))
        ask, _ = house.asks[0]
        assert ask.url == b"http://h/check"
        assert (b"Sub-Meta", b'{"url":"/check","user":"me"}') in ask.headers

    def test_require_sub_knows_the_channels_without_prefix(self, house: House) -> None:
        client = stream(house, want(b"ch", None, "require-sub", prefix=b"p-"), want(b"vip", prefix=b"p-"))
        for needed, content in ((b"vip", b"yes"), (b"no", b"no")):
            house.publish(Item(b"p-ch", stream=StreamFormat("send", content), meta={b"require_sub": needed}))
        assert client.take() == [chunks(b"yes")]


class TestBound:
    def test_so_many_wait_and_no_more(self, house: House) -> None:
        house.context.queue_max = 3
        client = stream(house)
        house.publish(*[text(b"%d" % n) for n in range(5)])
        for _ in range(4):
            reply(house, UNCHANGED)
        assert client.take() == [chunks(b"%d" % n) for n in range(4)]
        assert house.asks == []

    def test_a_close_that_finds_no_room_overtakes_nothing(self, house: House) -> None:
        house.context.queue_max = 1
        client = stream(house)
        house.publish(text(b"a"), text(b"b"), close(), text(b"c"), close())
        assert client.take() == []
        reply(house, UNCHANGED)
        reply(house, UNCHANGED)
        assert client.take() == [chunks(b"a"), chunks(b"b"), ("end", True)]
        assert house.asks == []

    def test_bytes_that_wait(self) -> None:
        house = House(buffer_max=10_000)
        client = stream(house)
        house.publish(*[text(b"%d" % n + b"x" * 4_999) for n in range(5)])
        for _ in range(4):
            reply(house, UNCHANGED)
        assert house.asks == []
        assert len(client.take()) == 4
        assert house.table.ledger.unsent == {"filter-queue": 1}

    def test_an_item_that_waits_counts_with_its_other_formats(self) -> None:
        """They exist for as long as the one that is waited with."""
        house = House(buffer_max=10_000)
        client = stream(house)
        long = Item(b"ch", response=ResponseFormat(body=b"x" * 10_001), stream=StreamFormat("send", b"b"))
        house.publish(text(b"a"), long, text(b"c"))
        for _ in range(2):
            reply(house, UNCHANGED)
        assert house.asks == []
        assert client.take() == [chunks(b"a"), chunks(b"b")]
        assert house.table.ledger.unsent == {"filter-queue": 1}


class TestFailures:
    def test_no_answer_skips_the_item_and_goes_on(self, house: House) -> None:
        client = stream(house)
        house.publish(text(b"a"), text(b"b"))
        reply(house, None)
        reply(house, UNCHANGED)
        assert client.take() == [chunks(b"b")]

    def test_no_answer_in_debug_mode_ends_the_stream(self, house: House) -> None:
        client = stream(house, debug=True)
        house.publish(text(b"a"), text(b"b"))
        reply(house, None)
        error, end = client.take()
        assert b"filter error: http-modify: " in error
        assert end == ("end", True)
        assert house.asks == []

    def test_an_answer_after_the_client_has_left(self, house: House) -> None:
        client = stream(house)
        house.publish(text(b"a"), text(b"b"))
        client.hold.client_lost()  # type: ignore[attr-defined]
        reply(house, UNCHANGED)
        assert client.take() == []
        assert house.asks == []

    def test_a_question_that_cannot_be_asked_is_a_failure(self, house: House) -> None:
        client = stream(house, meta={})
        house.publish(text(b"a"))
        assert (client.take(), house.asks) == ([], [])
