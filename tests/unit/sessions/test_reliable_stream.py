"""A stream with a next link: items are checked, gaps asked for, answers read. Events in, the client's bytes out.

The backend is a list of what was asked; a test answers it.
"""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy.grip.instruct import Instruct, KeepAlive
from gripproxy.grip.item import Item, StreamFormat
from gripproxy.grip.links import NextLink
from gripproxy.grip.response import Response
from gripproxy.pipe import CONFLICT
from gripproxy.sessions.context import LinkRequest
from gripproxy.sessions.link_response import Reader, Reading, SharedResponse
from gripproxy.sessions.reliable_stream import RETRIES, ReliableStream
from gripproxy.sessions.stream import StreamTerms
from tests.support.session_doubles import Client, House, Want, chunks, close, text, want

BASE = b"http://h/start"
HINT = Item(b"ch", stream=StreamFormat("hint"))
END = ("end", True)


def held(prev_id: bytes | None, *headers: tuple[bytes, bytes], channel: bytes = b"ch", body: bytes = b"") -> Response:
    """An answer that holds the stream on one channel, with a link."""
    spec = channel + (b"; prev-id=" + prev_id if prev_id is not None else b"")
    return page(b"/again", (b"Grip-Hold", b"stream"), (b"Grip-Channel", spec), *headers, body=body)


def page(link: bytes | None, *headers: tuple[bytes, bytes], body: bytes = b"") -> Response:
    """An answer without a hold; None for no link: it is the last."""
    more = [(b"Grip-Link", b"<%b>; rel=next" % link)] if link is not None else []
    return Response(200, b"OK", [*headers, *more], body)


def wanted(instruct: Instruct) -> list[Want]:
    return [want(channel.name, channel.prev_id, *channel.filters) for channel in instruct.channels]


class Source:
    """The backend's connection: notes whether it is read."""

    def __init__(self) -> None:
        self.reading = True
        self.abandoned = False

    def pause(self) -> None:
        self.reading = False

    def resume(self) -> None:
        self.reading = True

    def abandon(self) -> None:
        self.abandoned = True


class Stream:
    """One reliable stream with its client, and its backend."""

    def __init__(
        self,
        house: House,
        *channels: Want,
        timeout: int = 120,
        keep_alive: KeepAlive | None = None,
        debug: bool = False,
        none: bool = False,
        start: bool = True,
        meta: dict[bytes, bytes] | None = None,
    ) -> None:
        self.house = house
        self.client = Client()
        self.asked: list[tuple[LinkRequest, SharedResponse, Reading]] = []
        self.untrusted = False
        """Whether an untrusted target answers."""
        house.context.fetch = self.fetch
        # The whole timeout for the one stream there is.
        house.context.offset = 0.0
        link = NextLink(b"/next", timeout)
        terms = StreamTerms(keep_alive, meta or {}, link, BASE, None, b"", debug)
        opening = Response(200, b"OK", [], b"hello")
        self.hold = ReliableStream(self.client, house.context, terms, opening, 0, BASE, link, wanted)
        self.hold.start(() if none else channels or (want(b"ch", b"1"),), 8)
        if start:
            house.confirm()
            self.take()

    def fetch(self, request: LinkRequest, reader: Reader) -> Reading:
        answer = SharedResponse(self.house.turns, lambda: None)
        reading = answer.join(reader, b"http://h/next")
        self.asked.append((request, answer, reading))
        return reading

    def take(self) -> list[Any]:
        return self.client.take()

    @property
    def waiting(self) -> int:
        """Requests that are not answered."""
        return len(self.asked)

    def question(self) -> tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...]]:
        """The one request under way: base, link, last ids."""
        [(request, _, _)] = self.asked
        return request.base, request.link, request.last_ids

    def answer(self, response: Response | None, uri: bytes = b"http://h/next") -> None:
        if response is not None:
            self.begin(response)
        [(_, answer, reading)] = self.asked
        reading.uri = uri
        if response is not None:
            self.finish()
            return
        self.asked.clear()
        answer.failed()

    def finish(self) -> None:
        """The answer is complete."""
        [(_, answer, _)] = self.asked
        self.asked.clear()
        answer.end()

    def begin(self, response: Response) -> Source:
        """The head of the answer comes, and the body, but not its end."""
        [(_, answer, _)] = self.asked
        answer.source = source = Source()
        answer.head(response.code, response.reason, response.headers, self.untrusted)
        if response.body:
            answer.body(response.body)
        return source

    def more(self, body: bytes) -> None:
        """More of the answer's body comes."""
        [(_, answer, _)] = self.asked
        answer.body(body)

    def ask(self) -> None:
        """A query is due and has its turn, if there is none under way."""
        self.hold.recover()
        if self.hold in self.house.scheduler:
            self.house.scheduler.discard(self.hold)
            self.hold.update()

    def updates(self) -> bool:
        """The queue of updates has its turn; returns whether the stream was in it."""
        queued = len(self.house.scheduler) == 1
        self.house.scheduler.run()
        return queued


@pytest.fixture
def house() -> House:
    return House()


class TestCheck:
    def test_an_item_that_follows_is_delivered(self, house: House) -> None:
        stream = Stream(house)
        house.publish(text(b"two", b"2", b"1"), text(b"three", b"3", b"2"))
        assert stream.take() == [chunks(b"two"), chunks(b"three")]
        assert not stream.updates()

    def test_what_the_opening_contains_is_not_delivered_again(self, house: House) -> None:
        stream = Stream(house)
        house.publish(text(b"one", b"1", b"0"))
        assert stream.take() == []
        assert not stream.updates()

    @pytest.mark.parametrize("prev_id", [b"2", None])
    def test_an_item_that_does_not_follow_is_asked_for(self, house: House, prev_id: bytes | None) -> None:
        stream = Stream(house)
        house.publish(text(b"three", b"3", prev_id))
        assert stream.take() == []
        assert stream.waiting == 0
        assert stream.updates()
        assert stream.question() == (BASE, b"/next", ((b"ch", b"1"),))

    def test_an_item_without_id_ends_the_checking(self, house: House) -> None:
        stream = Stream(house)
        house.publish(text(b"a", None, b"1"), text(b"b", b"9", b"8"))
        assert stream.take() == [chunks(b"a"), chunks(b"b")]
        assert not stream.updates()

    def test_a_channel_without_ids_takes_everything(self, house: House) -> None:
        stream = Stream(house, want(b"ch"))
        house.publish(text(b"a", b"5", b"4"), text(b"b", b"9", b"8"))
        assert stream.take() == [chunks(b"a"), chunks(b"b")]

    def test_each_channel_has_its_own_ids(self, house: House) -> None:
        stream = Stream(house, want(b"a", b"1"), want(b"b", b"7"), want(b"c"))
        house.publish(text(b"x", b"8", b"7", channel=b"b"), text(b"y", b"3", b"2", channel=b"a"))
        assert stream.take() == [chunks(b"x")]
        stream.updates()
        assert stream.question()[2] == ((b"a", b"1"), (b"b", b"8"))

    def test_the_last_ids_are_of_names_without_the_routes_prefix(self, house: House) -> None:
        stream = Stream(house, want(b"ch", b"1", prefix=b"p-"))
        stream.ask()
        assert stream.question()[2] == ((b"ch", b"1"),)

    def test_a_hint_asks_at_once(self, house: House) -> None:
        stream = Stream(house)
        house.publish(HINT)
        assert stream.question() == (BASE, b"/next", ((b"ch", b"1"),))

    def test_a_close_needs_no_ids(self, house: House) -> None:
        stream = Stream(house)
        house.publish(close())
        assert stream.take() == [END]
        assert len(house.wheel) == len(house.scheduler) == len(house.table) == 0

    def test_equal_streams_share_a_key(self, house: House) -> None:
        first, second, other = Stream(house), Stream(house), Stream(house, want(b"ch", b"2"))
        assert first.hold.request_key == second.hold.request_key
        assert first.hold.request_key != other.hold.request_key


class TestConflict:
    """Something was published while the backend was answering."""

    def test_at_the_opening(self, house: House) -> None:
        stream = Stream(house, start=False)
        house.confirm(recent=b"2")
        assert stream.take() == [("begin", 200, b"hello")]
        assert stream.updates()
        assert stream.question()[2] == ((b"ch", b"1"),)

    @pytest.mark.parametrize("recent", [b"1", None])
    def test_none(self, house: House, recent: bytes | None) -> None:
        stream = Stream(house, start=False)
        house.confirm(recent)
        assert not stream.updates()

    def test_a_backend_that_insists_is_believed_the_second_time(self, house: House) -> None:
        stream = Stream(house)
        house.publish(text(b"nine", b"9", b"8"))
        stream.updates()
        stream.answer(held(b"5"))
        assert stream.updates()
        house.take()
        stream.answer(held(b"5"))
        assert not stream.updates()
        assert house.take() == [(CONFLICT, b"ch", b"9", b"5")]
        house.publish(text(b"six", b"6", b"5"))
        assert stream.take() == [chunks(b"six")]

    def test_the_next_one_is_asked_for_again(self, house: House) -> None:
        stream = Stream(house)
        for item_id in (b"7", b"9"):
            house.publish(text(b"x", item_id, b"?"))
            for _ in range(2):
                assert stream.updates()
                stream.answer(held(b"5"))
            assert not stream.updates()

    def test_at_a_channel_that_an_answer_names(self, house: House) -> None:
        stream = Stream(house)
        stream.ask()
        stream.answer(held(b"5", channel=b"new"))
        assert not stream.updates()
        house.confirm(recent=b"6")
        assert stream.updates()
        assert stream.question()[2] == ((b"new", b"5"),)


class TestItemsDuringAFetch:
    def fetching(self, house: House) -> Stream:
        stream = Stream(house)
        stream.ask()
        return stream

    def test_wait(self, house: House) -> None:
        stream = self.fetching(house)
        house.publish(text(b"two", b"2", b"1"))
        assert stream.take() == []

    def test_that_follow_the_answer_follow(self, house: House) -> None:
        stream = self.fetching(house)
        house.publish(text(b"five", b"5", b"4"), text(b"six", b"6", b"5"))
        stream.answer(held(b"4", body=b"2 to 4"))
        assert stream.take() == [chunks(b"2 to 4"), chunks(b"five"), chunks(b"six")]
        assert not stream.updates()

    def test_that_the_answer_contains_are_left_out(self, house: House) -> None:
        stream = self.fetching(house)
        house.publish(text(b"two", b"2", b"1"), text(b"three", b"3", b"2"), text(b"four", b"4", b"3"))
        stream.answer(held(b"3", body=b"2 to 3"))
        assert stream.take() == [chunks(b"2 to 3"), chunks(b"four")]
        assert not stream.updates()

    def test_older_ones_in_front_of_the_first_that_follows_are_left_out(self, house: House) -> None:
        stream = self.fetching(house)
        house.publish(text(b"two", b"2", b"1"), text(b"four", b"4", b"3"))
        stream.answer(held(b"3"))
        assert stream.take() == [chunks(b"four")]
        assert not stream.updates()

    def test_that_fit_nothing_are_asked_for_again(self, house: House) -> None:
        stream = self.fetching(house)
        house.publish(text(b"eight", b"8", b"7"))
        stream.answer(held(b"5"))
        assert stream.take() == []
        assert stream.updates()
        assert stream.question() == (b"http://h/next", b"/again", ((b"ch", b"5"),))

    def test_with_a_gap_behind_the_first_that_follows(self, house: House) -> None:
        stream = self.fetching(house)
        house.publish(text(b"six", b"6", b"5"), text(b"eight", b"8", b"7"))
        stream.answer(held(b"5"))
        assert stream.take() == [chunks(b"six")]
        assert stream.updates()
        assert stream.question()[2] == ((b"ch", b"6"),)

    def test_of_a_channel_the_answer_does_not_name_are_dropped(self, house: House) -> None:
        stream = self.fetching(house)
        house.publish(text(b"two", b"2", b"1"))
        stream.answer(held(b"5", channel=b"other"))
        house.confirm()
        assert stream.take() == []
        assert not stream.updates()
        assert house.table.get(b"ch") is None

    def test_of_a_channel_without_ids_follow(self, house: House) -> None:
        stream = self.fetching(house)
        house.publish(text(b"a"), text(b"b", b"9", b"7"))
        stream.answer(held(None))
        assert stream.take() == [chunks(b"a"), chunks(b"b")]

    def test_a_close_among_them_is_the_end(self, house: House) -> None:
        stream = self.fetching(house)
        house.publish(text(b"two", b"2", b"1"), close(), text(b"three", b"3", b"2"))
        stream.answer(held(b"1", body=b"-"))
        assert stream.take() == [chunks(b"-"), chunks(b"two"), END]

    def test_a_hint_among_them_asks_again_and_the_rest_waits_for_that(self, house: House) -> None:
        stream = self.fetching(house)
        house.publish(text(b"two", b"2", b"1"), HINT, text(b"three", b"3", b"2"))
        stream.answer(held(b"1"))
        assert stream.take() == [chunks(b"two")]
        assert stream.question()[2] == ((b"ch", b"2"),)
        stream.answer(held(b"2"))
        assert stream.take() == [chunks(b"three")]

    def test_only_so_many_wait_and_the_rest_is_asked_for(self, house: House) -> None:
        stream = self.fetching(house)
        house.publish(*(text(b"x", b"%d" % n, b"%d" % (n - 1)) for n in range(2, 103)))
        stream.answer(held(b"1"))
        assert stream.take() == [chunks(b"x")] * 100
        # The answer is older than what was published, which is asked for.
        assert stream.updates()
        assert stream.question()[2] == ((b"ch", b"101"),)

    def test_no_second_fetch_begins(self, house: House) -> None:
        stream = self.fetching(house)
        stream.ask()
        house.publish(HINT, text(b"nine", b"9", b"8"))
        assert stream.waiting == 1
        assert not stream.updates()

    def test_the_client_leaves(self, house: House) -> None:
        stream = self.fetching(house)
        house.publish(text(b"two", b"2", b"1"))
        stream.hold.client_lost()
        stream.answer(held(b"1", body=b"late"))
        assert stream.take() == []
        assert len(house.wheel) == len(house.scheduler) == len(house.table) == 0

    def test_items_that_came_before_all_channels_were_confirmed_are_checked_too(self, house: House) -> None:
        stream = Stream(house, want(b"a", b"1"), want(b"b"), start=False)
        house.table.confirmed(b"a", 1, None)
        house.publish(text(b"one", b"1", b"0", channel=b"a"), text(b"two", b"2", b"1", channel=b"a"))
        house.table.confirmed(b"b", 2, None)
        assert stream.take() == [("begin", 200, b"hello"), chunks(b"two")]

    def test_a_hint_before_all_channels_were_confirmed_is_asked_once(self, house: House) -> None:
        stream = Stream(house, want(b"ch", b"1"), want(b"b"), timeout=5, start=False)
        house.table.confirmed(b"ch", 1, None)
        house.publish(HINT)
        house.table.confirmed(b"b", 2, None)
        house.pass_time(30)
        assert stream.waiting == 1


class TestFailures:
    @pytest.mark.parametrize("response", [None, Response(503, b"", [], b"busy"), Response(302, b"", [], b"")])
    def test_are_tried_again_five_times(self, house: House, response: Response | None) -> None:
        stream = Stream(house, debug=True)
        stream.ask()
        for pause in RETRIES:
            question = stream.question()
            stream.answer(response)
            house.pass_time(pause)
            assert stream.waiting == 0
            house.pass_time(1)
            assert stream.question() == question
        assert stream.take() == []
        stream.answer(response)
        assert stream.take() == [chunks(b"\n\nFailed to retrieve next link.\n"), END]
        assert len(house.wheel) == len(house.scheduler) == len(house.table) == 0

    def test_are_told_only_in_debug_mode(self, house: House) -> None:
        stream = Stream(house)
        stream.ask()
        for pause in RETRIES:
            stream.answer(None)
            house.pass_time(pause + 1)
        stream.answer(None)
        assert stream.take() == [END]

    def test_are_counted_anew_after_an_answer(self, house: House) -> None:
        stream = Stream(house)
        for _ in range(2):
            stream.ask()
            for pause in RETRIES:
                stream.answer(None)
                house.pass_time(pause + 1)
            stream.answer(held(b"1"))
        assert stream.take() == []

    def test_items_wait_all_the_while(self, house: House) -> None:
        stream = Stream(house)
        stream.ask()
        stream.answer(None)
        house.publish(text(b"two", b"2", b"1"))
        house.pass_time(2)
        stream.answer(held(b"1"))
        assert stream.take() == [chunks(b"two")]


class TestLinkTimeout:
    def test_is_counted_from_the_opening(self, house: House) -> None:
        stream = Stream(house, timeout=30)
        house.pass_time(29.9)
        assert not stream.updates()
        house.pass_time(0.2)
        assert stream.updates()
        assert stream.question() == (BASE, b"/next", ((b"ch", b"1"),))

    def test_is_counted_from_the_last_item(self, house: House) -> None:
        stream = Stream(house, timeout=30)
        house.pass_time(20)
        house.publish(text(b"two", b"2", b"1"))
        house.pass_time(29.9)
        assert not stream.updates()
        house.pass_time(0.2)
        assert stream.updates()
        assert stream.question()[2] == ((b"ch", b"2"),)

    def test_is_not_moved_by_what_is_not_delivered(self, house: House) -> None:
        stream = Stream(house, timeout=30)
        house.pass_time(20)
        house.publish(text(b"one", b"1", b"0"))
        house.pass_time(10.1)
        assert stream.updates()

    def test_is_counted_anew_from_an_answer(self, house: House) -> None:
        stream = Stream(house, timeout=30)
        house.pass_time(31)
        assert stream.updates()
        link = (b"Grip-Link", b"</soon>; rel=next; timeout=10")
        stream.answer(Response(200, b"", [(b"Grip-Hold", b"stream"), (b"Grip-Channel", b"ch"), link]))
        house.pass_time(9.9)
        assert not stream.updates()
        house.pass_time(0.2)
        assert stream.updates()
        assert stream.question()[1] == b"/soon"

    def test_of_nothing_is_over_at_once(self, house: House) -> None:
        stream = Stream(house, timeout=0)
        house.pass_time(0.1)
        assert stream.updates()
        assert stream.waiting == 1

    def test_those_that_began_together_do_not_end_together(self, house: House) -> None:
        times = set()
        for serial in range(20):
            stream = Stream(house, timeout=100)
            stream.hold.serial = serial
            times.add(round(stream.hold.quiet_after, 1))
        assert 90 <= min(times) < 91
        assert 99 < max(times) <= 100
        assert len(times) == 20

    def test_does_not_pass_during_a_fetch(self, house: House) -> None:
        stream = Stream(house, timeout=5)
        stream.ask()
        house.pass_time(60)
        assert not stream.updates()
        assert stream.waiting == 1

    def test_the_end_forgets_it(self, house: House) -> None:
        stream = Stream(house, timeout=5)
        stream.hold.drain()
        house.pass_time(10)
        assert not stream.updates()
        assert stream.take() == [END]


def test_what_is_due_before_the_stream_has_begun_is_asked_then(house: House) -> None:
    """Items were lost on one of its channels while another is not confirmed yet."""
    stream = Stream(house, want(b"ch", b"1"), want(b"other", b"1"), start=False)
    stream.ask()
    assert not stream.updates()
    house.confirm()
    assert stream.updates()
    assert stream.waiting == 1


def test_calls_after_the_end_do_nothing(house: House) -> None:
    """The scheduler, a link's response or the transport may call once more after the client has left."""
    stream = Stream(house)
    hold = stream.hold
    [subscription] = hold.subscriptions
    hold.client_lost()
    assert stream.take() == []
    assert not hold.deliver(subscription, text(b"late", b"2", b"1"))
    hold.on_blocked()
    hold.on_writable()
    hold.on_timer(house.clock.now)
    hold.on_link_failed()
    hold.on_link_end(b"http://h/next", None, "")
    hold.update()
    hold.drain()
    house.turns.run_all()
    assert stream.take() == []
    assert stream.waiting == 0
