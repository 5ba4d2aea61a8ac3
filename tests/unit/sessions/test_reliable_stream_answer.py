"""A stream with a next link and the answers of that: what they say, and their body on its way to the client."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy.grip.filters import AskAnswer
from gripproxy.grip.instruct import KeepAlive
from gripproxy.sessions.context import LinkRequest
from gripproxy.sessions.link_response import Reader, Reading
from gripproxy.sessions.recovery import RETRIES
from tests.support.session_doubles import House, chunks, text, want
from tests.unit.sessions.test_reliable_stream import BASE, END, HINT, Stream, held, page


@pytest.fixture
def house() -> House:
    return House()


class TestAnswers:
    def asking(self, house: House, debug: bool = True, **more: Any) -> Stream:
        stream = Stream(house, debug=debug, **more)
        stream.ask()
        return stream

    def test_a_hold_names_exactly_its_channels(self, house: House) -> None:
        stream = self.asking(house)
        spec = (b"Grip-Channel", b"new")
        stream.answer(held(b"5", spec, body=b"body"))
        house.confirm()
        assert [(s.name, s.prev_id) for s in stream.hold.subscriptions] == [(b"ch", b"5"), (b"new", None)]
        house.publish(text(b"x", channel=b"new"), text(b"six", b"6", b"5"))
        assert stream.take() == [chunks(b"body"), chunks(b"x"), chunks(b"six")]

    def test_its_link_is_relative_to_the_one_that_was_fetched(self, house: House) -> None:
        stream = self.asking(house)
        stream.answer(held(b"5"), uri=b"http://other/deep/link")
        stream.ask()
        assert stream.question()[:2] == (b"http://other/deep/link", b"/again")

    @pytest.mark.parametrize("page_only", [True, False])
    def test_one_of_an_untrusted_target_steers_under_the_policy_for_good(self, house: House, page_only: bool) -> None:
        stream = self.asking(house)
        key = stream.hold.request_key
        assert not stream.asked[0][0].untrusted
        stream.untrusted = True
        if page_only:
            stream.answer(page(b"/more", body=b"x"))
        else:
            stream.answer(held(b"5"))
            stream.ask()
        assert stream.asked[0][0].untrusted
        # A trusted target that answers what an untrusted one has asked for does not vouch for it.
        stream.untrusted = False
        stream.answer(held(b"6"))
        stream.ask()
        assert stream.asked[0][0].untrusted
        assert stream.hold.untrusted
        assert stream.hold.request_key != key

    def test_its_keep_alive_counts_from_now_on(self, house: House) -> None:
        stream = self.asking(house)
        stream.answer(held(b"5", (b"Grip-Keep-Alive", b"\\n; format=cstring; timeout=10")))
        house.pass_time(11)
        assert stream.take() == [chunks(b"\n")]

    def test_without_a_keep_alive_there_is_none(self, house: House) -> None:
        stream = self.asking(house, keep_alive=KeepAlive(b".", "idle", 10))
        stream.answer(held(b"5"))
        house.pass_time(30)
        assert stream.take() == []

    def test_that_was_asked_for_before_there_was_a_reason_is_not_the_last(self, house: House) -> None:
        stream = Stream(house)
        fetch = house.context.fetch

        def joined(request: LinkRequest, reader: Reader) -> Reading:
            reading = fetch(request, reader)
            reading.late = True
            return reading

        house.context.fetch = joined
        house.publish(HINT)
        house.context.fetch = fetch
        stream.answer(held(b"1"))
        assert stream.updates()
        stream.answer(held(b"2", body=b"two"))
        assert not stream.updates()
        assert stream.take() == [chunks(b"two")]

    def test_pages_follow_each_other_at_once(self, house: House) -> None:
        stream = self.asking(house)
        stream.answer(page(b"/2", body=b"one"))
        assert stream.question()[1] == b"/2"
        stream.answer(page(b"3", body=b"two"), uri=b"http://h/2")
        assert stream.question()[:2] == (b"http://h/2", b"3")
        house.publish(text(b"eight", b"8", b"7"))
        stream.answer(held(b"7", body=b"three"))
        assert stream.take() == [chunks(b"one"), chunks(b"two"), chunks(b"three"), chunks(b"eight")]

    def test_a_stream_of_pages_only(self, house: House) -> None:
        stream = Stream(house, none=True)
        assert stream.question() == (BASE, b"/next", ())
        stream.answer(page(None, body=b"all"))
        assert stream.take() == [chunks(b"all"), END]

    def test_no_hold_and_no_link_is_the_end(self, house: House) -> None:
        stream = self.asking(house)
        house.publish(text(b"two", b"2", b"1"))
        stream.answer(page(None, body=b"last"))
        assert stream.take() == [chunks(b"last"), END]
        assert len(house.wheel) == len(house.scheduler) == len(house.table) == 0

    def test_a_hold_without_link_and_ids_is_held(self, house: House) -> None:
        stream = self.asking(house)
        stream.answer(page(None, (b"Grip-Hold", b"stream"), (b"Grip-Channel", b"ch"), body=b"body"))
        house.publish(text(b"x"))
        house.pass_time(300)
        assert stream.take() == [chunks(b"body"), chunks(b"x")]
        assert stream.waiting == 0

    @pytest.mark.parametrize(
        ("headers", "told"),
        [
            (((b"Grip-Hold", b"response"), (b"Grip-Channel", b"ch")), b"Next link returned non-stream hold."),
            (
                ((b"Grip-Hold", b"stream"), (b"Grip-Channel", b"ch; prev-id=5")),
                b"channel 'ch' specifies prev-id, but no next link found",
            ),
        ],
    )
    @pytest.mark.parametrize("debug", [True, False])
    def test_that_cannot_be_followed_end_the_stream_behind_their_body(
        self, house: House, headers: tuple[tuple[bytes, bytes], ...], told: bytes, debug: bool
    ) -> None:
        stream = self.asking(house, debug)
        stream.answer(page(None, *headers, body=b"body"))
        assert stream.take() == [chunks(b"body"), *([chunks(b"\n\n%b\n" % told)] if debug else []), END]

    def test_that_are_wrong_end_the_stream(self, house: House) -> None:
        stream = self.asking(house)
        stream.answer(page(None, (b"Grip-Hold", b"sideways"), body=b"body"))
        body, told, end = stream.take()
        assert body == chunks(b"body")
        assert b"sideways" in told or b"Grip-Hold" in told
        assert end == END

    def test_build_id_is_done_in_bodies_too(self, house: House) -> None:
        stream = self.asking(house)
        more = ((b"Grip-Channel", b"other; filter=build-id"), (b"Grip-Set-Meta", b'id_format="<%(a)s>"'))
        stream.answer(held(b"5", *more, body=b"id: %(ab)I\n"))
        assert stream.take() == [chunks(b"id: ab\n")]

    def test_a_filter_that_cannot_work_ends_the_stream_without_the_body(self, house: House) -> None:
        stream = self.asking(house)
        stream.answer(held(b"5", (b"Grip-Channel", b"other; filter=build-id"), body=b"raw"))
        told, end = stream.take()
        assert b"filter error: " in told
        assert end == END


class TestFilters:
    """A filter that asks the backend about items, on a stream that asks it for what it missed."""

    UNCHANGED = AskAnswer(204, [], b"")

    def stream(self, house: House) -> Stream:
        meta = {b"url": b"/check"}
        return Stream(house, want(b"ch", b"1", "http-check"), meta=meta)

    def test_have_their_say_before_the_answer(self, house: House) -> None:
        stream = self.stream(house)
        house.publish(text(b"two", b"2", b"1"), text(b"four", b"4", b"3"))
        assert stream.updates()
        assert stream.waiting == 0
        [(_, reply)] = house.asks
        reply(self.UNCHANGED)
        assert stream.question()[2] == ((b"ch", b"2"),)
        stream.answer(held(b"4", body=b"3 to 4"))
        assert stream.take() == [chunks(b"two"), chunks(b"3 to 4")]

    def test_that_can_take_no_more_leave_nothing_out(self, house: House) -> None:
        stream = self.stream(house)
        house.publish(*(text(b"%d" % n, b"%d" % n, b"%d" % (n - 1)) for n in range(2, 105)))
        assert stream.updates()
        for _ in range(101):
            [(_, reply)] = house.asks
            house.asks.clear()
            reply(self.UNCHANGED)
        assert stream.question()[2] == ((b"ch", b"102"),)
        assert stream.take() == [chunks(b"%d" % n) for n in range(2, 103)]

    def test_and_the_end_of_the_stream(self, house: House) -> None:
        stream = self.stream(house)
        house.publish(text(b"two", b"2", b"1"))
        stream.ask()
        stream.hold.client_lost()
        [(_, reply)] = house.asks
        reply(self.UNCHANGED)
        assert stream.waiting == 0


class TestClientThatDoesNotRead:
    def test_gets_what_it_missed_from_the_backend(self, house: House) -> None:
        stream = Stream(house)
        stream.hold.on_blocked()
        house.publish(text(b"two", b"2", b"1"), text(b"three", b"3", b"2"))
        assert stream.take() == []
        assert not stream.updates()
        stream.hold.on_writable()
        assert stream.updates()
        assert stream.question()[2] == ((b"ch", b"1"),)

    def test_and_missed_nothing_is_not_asked_for(self, house: House) -> None:
        stream = Stream(house)
        stream.hold.on_blocked()
        stream.hold.on_writable()
        assert not stream.updates()
        house.publish(text(b"two", b"2", b"1"))
        assert stream.take() == [chunks(b"two")]

    def test_is_not_fetched_for(self, house: House) -> None:
        stream = Stream(house, timeout=10)
        stream.hold.on_blocked()
        house.publish(HINT)
        house.pass_time(20)
        assert stream.waiting == 0
        stream.hold.on_writable()
        assert stream.updates()
        assert stream.waiting == 1

    def test_gets_the_next_page_when_it_has_read_the_last(self, house: House) -> None:
        stream = Stream(house)
        stream.ask()
        stream.hold.on_blocked()
        stream.answer(page(b"/2", body=b"one"))
        assert stream.waiting == 0
        # It follows what the client has not of the old ids, but is in a page already.
        house.publish(text(b"two", b"2", b"1"), text(b"six", b"6", b"5"))
        stream.hold.on_writable()
        assert stream.question()[1] == b"/2"
        stream.answer(held(b"5", body=b"five"))
        assert stream.take() == [chunks(b"one"), chunks(b"five"), chunks(b"six")]
        assert not stream.updates()


class TestStreamedAnswer:
    """The body goes to the client as it comes (docs/grip.md §6.6)."""

    def asking(self, house: House, **more: Any) -> Stream:
        stream = Stream(house, **more)
        stream.ask()
        return stream

    def test_goes_on_to_the_client_before_its_end(self, house: House) -> None:
        stream = self.asking(house)
        stream.begin(held(b"4", body=b"one"))
        assert stream.take() == [chunks(b"one")]
        house.publish(text(b"five", b"5", b"4"))
        stream.more(b"two")
        assert stream.take() == [chunks(b"two")]
        stream.finish()
        assert stream.take() == [chunks(b"five")]

    def test_of_any_size(self, house: House) -> None:
        stream = self.asking(house)
        stream.begin(held(b"4"))
        for _ in range(300):
            stream.more(b"x" * 100_000)
        stream.finish()
        assert sum(map(len, stream.take())) > 30_000_000
        house.publish(text(b"five", b"5", b"4"))
        assert stream.take() == [chunks(b"five")]

    def test_is_not_read_while_the_client_does_not_read(self, house: House) -> None:
        stream = self.asking(house)
        source = stream.begin(held(b"4", body=b"one"))
        stream.hold.on_blocked()
        assert not source.reading
        # More than may be buffered was under way already, which is the backend's connection's affair.
        stream.more(b"x" * 1001)
        assert stream.take() == [chunks(b"one")]
        stream.hold.on_writable()
        assert source.reading
        assert stream.take() == [chunks(b"x" * 1001)]
        stream.finish()
        assert stream.waiting == 0

    def test_that_ends_while_the_client_does_not_read(self, house: House) -> None:
        stream = self.asking(house)
        stream.hold.on_blocked()
        stream.answer(page(None, body=b"last"))
        assert stream.take() == []
        stream.hold.on_writable()
        assert stream.take() == [chunks(b"last"), END]

    def test_begins_for_a_client_that_does_not_read_already(self, house: House) -> None:
        stream = self.asking(house)
        stream.hold.on_blocked()
        stream.answer(None)
        house.pass_time(2)
        source = stream.begin(held(b"4", body=b"one"))
        assert not source.reading
        assert stream.take() == []
        stream.hold.on_writable()
        assert stream.take() == [chunks(b"one")]

    @pytest.mark.parametrize("debug", [True, False])
    def test_that_breaks_off_ends_the_connection_and_not_the_body(self, house: House, debug: bool) -> None:
        stream = self.asking(house, debug=debug)
        stream.begin(held(b"4", body=b"one"))
        stream.answer(None)
        told = [chunks(b"\n\nFailed to retrieve next link.\n")] if debug else []
        assert stream.take() == [chunks(b"one"), *told, ("break off",)]
        assert len(house.wheel) == len(house.scheduler) == len(house.table) == 0

    def test_that_breaks_off_for_a_client_that_does_not_read(self, house: House) -> None:
        stream = self.asking(house)
        stream.begin(held(b"4", body=b"one"))
        stream.hold.on_blocked()
        stream.more(b"two")
        stream.answer(None)
        assert stream.take() == [chunks(b"one"), ("break off",)]

    def test_that_breaks_off_before_the_client_got_any_is_asked_for_again(self, house: House) -> None:
        stream = self.asking(house)
        stream.begin(held(b"4"))
        stream.answer(None)
        assert stream.take() == []
        house.pass_time(2)
        assert stream.question() == (BASE, b"/next", ((b"ch", b"1"),))

    def test_begun_resets_no_count_of_failures_before_its_body(self, house: House) -> None:
        stream = self.asking(house)
        for pause in RETRIES:
            stream.begin(held(b"4"))
            stream.answer(None)
            house.pass_time(pause + 1)
        stream.answer(None)
        assert stream.take() == [END]

    def test_is_not_mixed_with_keep_alives(self, house: House) -> None:
        stream = self.asking(house, keep_alive=KeepAlive(b".", "interval", 10))
        house.pass_time(11)
        assert stream.take() == [chunks(b".")]
        stream.begin(held(b"4", (b"Grip-Keep-Alive", b".; timeout=10"), body=b"data: o"))
        house.pass_time(30)
        stream.more(b"ne\n\n")
        assert stream.take() == [chunks(b"data: o"), chunks(b"ne\n\n")]
        stream.finish()
        house.pass_time(11)
        assert stream.take() == [chunks(b".")]

    def test_is_not_wanted_by_a_client_that_has_left(self, house: House) -> None:
        stream = self.asking(house)
        source = stream.begin(held(b"4", body=b"one"))
        stream.hold.client_lost()
        assert source.abandoned
        stream.more(b"two")
        stream.finish()
        assert stream.take() == [chunks(b"one")]

    def test_is_broken_off_when_the_process_ends(self, house: House) -> None:
        stream = self.asking(house)
        source = stream.begin(held(b"4", body=b"one"))
        stream.hold.drain()
        assert stream.take() == [chunks(b"one"), ("break off",)]
        assert source.abandoned

    @pytest.mark.parametrize("debug", [True, False])
    def test_of_pages_that_cannot_be_had_does_not_look_complete(self, house: House, debug: bool) -> None:
        stream = Stream(house, none=True, debug=debug)
        stream.answer(page(b"/2", body=b"one"))
        for pause in RETRIES:
            stream.answer(None)
            house.pass_time(pause + 1)
        stream.answer(None)
        told = [chunks(b"\n\nFailed to retrieve next link.\n")] if debug else []
        assert stream.take() == [chunks(b"one"), *told, ("break off",)]

    def test_of_pages_is_broken_off_between_them_when_the_process_ends(self, house: House) -> None:
        stream = Stream(house, none=True)
        stream.answer(page(b"/2", body=b"one"))
        stream.hold.drain()
        assert stream.take() == [chunks(b"one"), ("break off",)]

    def test_of_pages_goes_before_those_who_recover(self, house: House) -> None:
        stream = Stream(house, none=True)
        assert stream.asked[0][0].more
        stream.answer(page(b"/2"))
        assert stream.asked[0][0].more
        assert not self.asking(house).asked[0][0].more

    def test_is_filtered_as_it_comes(self, house: House) -> None:
        stream = self.asking(house)
        more = ((b"Grip-Channel", b"other; filter=build-id"), (b"Grip-Set-Meta", b'id_format="<%(a)s>"'))
        stream.begin(held(b"5", *more, body=b"id: %(a"))
        stream.more(b"b)I\n")
        stream.finish()
        assert b"".join(stream.take()) == chunks(b"id: ") + chunks(b"ab\n")

    def test_that_goes_to_many_is_kept_once(self, house: House) -> None:
        streams = [Stream(house) for _ in range(3)]
        for stream in streams:
            house.context.fetch = stream.fetch
            stream.ask()
            stream.answer(held(b"4"))
        assert len({id(stream.hold.terms) for stream in streams}) == 1
        other = Stream(house)
        other.ask()
        other.answer(held(b"4"), uri=b"http://h/other")
        assert other.hold.terms.uri == b"http://h/other"

    def test_that_goes_to_a_slower_and_a_faster_client(self, house: House) -> None:
        slow, fast = Stream(house), Stream(house)
        fast.ask()
        [(_, answer, _)] = fast.asked
        house.context.fetch = lambda request, reader: answer.join(reader, b"http://h/next")
        slow.ask()
        source = fast.begin(held(b"4", body=b"one"))
        slow.hold.on_blocked()
        fast.more(b"x" * 600)
        # The faster one is not held up; the slower one has its buffer, and is cut off at its bound.
        assert source.reading
        assert fast.take() == [chunks(b"one"), chunks(b"x" * 600)]
        assert slow.take() == [chunks(b"one")]
        fast.more(b"y" * 400)
        [(what, _)] = slow.take()
        assert what == "cut"
        fast.finish()
        house.publish(text(b"five", b"5", b"4"))
        assert fast.take() == [chunks(b"y" * 400), chunks(b"five")]
