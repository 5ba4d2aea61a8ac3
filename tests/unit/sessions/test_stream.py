"""A held stream: opening, items, slow clients, keep-alives, the end. Events in, what the client got out."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy.delivery.send_buffers import HIGH_WATER
from gripproxy.grip.instruct import KeepAlive
from gripproxy.grip.item import Item, StreamFormat
from gripproxy.grip.response import Response
from gripproxy.sessions.stream import OPENED, StreamHold, StreamTerms
from tests.support.session_doubles import Client, House, Want, answer, chunks, close, text, want


@pytest.fixture
def house() -> House:
    return House()


BEGIN = ("begin", 200, b"hello")


class Stream:
    """One stream with its client."""

    def __init__(
        self,
        house: House,
        *wanted: Want,
        keep_alive: KeepAlive | None = None,
        debug: bool = False,
        opening: Response | None = None,
        chunked: bool = True,
        meta: dict[bytes, bytes] | None = None,
    ) -> None:
        self.client = Client(chunked)
        terms = StreamTerms(keep_alive, meta or {}, None, b"http://h/", None, b"", debug)
        opening = opening or Response(200, b"OK", [], b"hello")
        self.hold = StreamHold(self.client, house.context, terms, opening, 1)
        self.hold.start(wanted or (want(b"ch"),), 8)

    def take(self) -> list[Any]:
        return self.client.take()


def opened(house: House, *wanted: Want, **more: Any) -> Stream:
    stream = Stream(house, *wanted, **more)
    house.confirm()
    stream.take()
    return stream


class TestOpening:
    def test_nothing_is_sent_before_the_channels_are_confirmed(self, house: House) -> None:
        stream = Stream(house)
        assert stream.take() == []
        house.confirm()
        assert stream.take() == [BEGIN]

    def test_unconfirmed_for_too_long_is_an_error(self, house: House) -> None:
        stream = Stream(house)
        house.pass_time(7.9)
        assert stream.take() == []
        house.pass_time(0.2)
        assert stream.take() == [("unavailable",)]
        assert len(house.table) == 0
        assert len(house.wheel) == 0

    def test_items_of_confirmed_channels_wait_for_the_others(self, house: House) -> None:
        stream = Stream(house, want(b"a"), want(b"b"))
        house.table.confirmed(b"a", 1, None)
        house.publish(text(b"1", channel=b"a"), text(b"2", channel=b"a"))
        assert stream.take() == []
        house.table.confirmed(b"b", 2, None)
        assert stream.take() == [BEGIN, chunks(b"1"), chunks(b"2")]

    def test_only_so_many_wait(self, house: House) -> None:
        stream = Stream(house, want(b"a"), want(b"b"))
        house.table.confirmed(b"a", 1, None)
        house.publish(*[text(b"x", channel=b"a")] * (house.context.queue_max + 1))
        house.table.confirmed(b"b", 2, None)
        assert stream.take() == [BEGIN, *[chunks(b"x")] * house.context.queue_max]

    def test_only_so_many_bytes_wait(self, house: House) -> None:
        stream = Stream(house, want(b"a"), want(b"b"))
        house.table.confirmed(b"a", 1, None)
        house.publish(*[text(size * b"x", channel=b"a") for size in (600, 400, 1, 1)])
        house.table.confirmed(b"b", 2, None)
        assert stream.take() == [BEGIN, chunks(600 * b"x"), chunks(400 * b"x"), chunks(b"x")]
        assert house.table.ledger.unsent == {"unconfirmed": 1}

    def test_a_close_that_waited_is_the_end(self, house: House) -> None:
        stream = Stream(house, want(b"a"), want(b"b"))
        house.table.confirmed(b"a", 1, None)
        house.publish(text(b"1", channel=b"a"), close(b"a"), text(b"2", channel=b"a"))
        house.table.confirmed(b"b", 2, None)
        assert stream.take() == [BEGIN, chunks(b"1"), ("end", True)]

    def test_one_that_was_sent_already_is_not_sent_again(self, house: House) -> None:
        stream = Stream(house, opening=OPENED)
        house.confirm()
        house.publish(text(b"x"))
        assert stream.take() == [chunks(b"x")]

    def test_http_1_0_has_no_chunks(self, house: House) -> None:
        stream = opened(house, chunked=False)
        house.publish(text(b"x"), text(b""), text(b"y"), close())
        assert stream.take() == [b"x", b"y", ("end", False)]

    def test_the_client_blocks_at_the_opening(self, house: House) -> None:
        stream = Stream(house)
        stream.hold.on_blocked()
        house.publish(text(b"early"))
        house.confirm()
        house.publish(text(b"late"))
        assert stream.take() == [BEGIN]
        stream.hold.on_writable()
        assert stream.take() == [chunks(b"early", b"late")]


class TestItems:
    def test_items_are_written_as_they_are_and_joined(self, house: House) -> None:
        stream = opened(house)
        house.publish(text(b"a"), text(b"b"))
        house.publish(text(b"c"))
        assert stream.take() == [chunks(b"a", b"b"), chunks(b"c")]

    def test_a_close_ends_it_once(self, house: House) -> None:
        stream = opened(house)
        house.publish(text(b"a"), close(), text(b"b"), close())
        assert stream.take() == [chunks(b"a"), ("end", True)]
        assert len(house.table) == 0

    def test_what_is_for_others_is_passed_by(self, house: House) -> None:
        stream = opened(house)
        house.publish(answer(b"x"), Item(b"ch", stream=StreamFormat("hint")))
        assert stream.take() == []

    def test_an_item_the_backend_named_is_contained_already(self, house: House) -> None:
        stream = opened(house, want(b"ch", b"5"))
        house.publish(text(b"five", b"5", b"4"), text(b"six", b"6", b"5"))
        assert stream.take() == [chunks(b"six")]
        house.publish(text(b"six", b"6", b"5"))
        assert stream.take() == []

    def test_content_filters_of_the_publisher_must_fit(self, house: House) -> None:
        stream = opened(house)
        prepared = Item(b"ch", stream=StreamFormat("send", b"x", ("build-id",)))
        house.publish(text(b"1"), prepared, text(b"2"))
        assert stream.take() == [chunks(b"1"), chunks(b"2")]

    def test_filters_are_run(self, house: House) -> None:
        stream = opened(house, want(b"ch", None, "skip-self", "var-subst"), meta={b"user": b"me", b"name": b"Ann"})
        mine = Item(b"ch", stream=StreamFormat("send", b"mine"), meta={b"sender": b"me"})
        yours = Item(b"ch", stream=StreamFormat("send", b"for %(name)s"), meta={b"sender": b"you"})
        house.publish(mine, yours)
        assert stream.take() == [chunks(b"for Ann")]

    @pytest.mark.parametrize("debug", [False, True])
    def test_a_filter_that_fails_is_fatal_in_debug_mode_only(self, house: House, debug: bool) -> None:
        stream = opened(house, want(b"ch", None, "var-subst"), debug=debug)
        house.publish(text(b"%(who)s"), text(b"fine"))
        if debug:
            error, end = stream.take()
            assert b"\n\nfilter error: var-subst: " in error
            assert end == ("end", True)
        else:
            assert stream.take() == [chunks(b"fine")]


class TestWaiting:
    """What counts for a client that does not read."""

    def test_of_a_fan_out_its_part(self, house: House) -> None:
        streams = [opened(house) for _ in range(10)]
        streams[0].hold.on_blocked()
        assert streams[0].hold.waiting(HIGH_WATER + 1000, shared=True) == HIGH_WATER + 100
        # With TLS each has bytes of its own.
        assert streams[0].hold.waiting(HIGH_WATER + 1000, shared=False) == HIGH_WATER + 1000

    def test_what_waits_behind_it_is_its_own(self, house: House) -> None:
        streams = [opened(house) for _ in range(10)]
        streams[0].hold.on_blocked()
        house.publish(text(b"x" * 1000))
        assert streams[0].hold.waiting(0, shared=True) == len(chunks(b"x" * 1000))

    def test_one_that_takes_all_its_items_carefully_shares_nothing(self, house: House) -> None:
        streams = [opened(house, want(b"a"), want(b"b")) for _ in range(10)]
        streams[0].hold.on_blocked()
        assert streams[0].hold.waiting(HIGH_WATER + 1000, shared=True) == HIGH_WATER + 1000


class TestSlow:
    def test_items_wait_while_the_client_does_not_read_and_go_out_in_one_write(self, house: House) -> None:
        stream = opened(house)
        stream.hold.on_blocked()
        house.publish(text(b"a"))
        house.publish(text(b"b"))
        assert stream.take() == []
        stream.hold.on_writable()
        assert stream.take() == [chunks(b"a", b"b")]
        house.publish(text(b"c"), text(b"d"))
        assert stream.take() == [chunks(b"c", b"d")]

    def test_what_was_gathered_waits_in_its_place(self, house: House) -> None:
        stream = opened(house)
        house.fanout.item(text(b"a"))
        stream.hold.on_blocked()
        house.fanout.item(text(b"b"))
        house.fanout.flush()
        stream.hold.on_writable()
        assert stream.take() == [chunks(b"a", b"b")]

    def test_one_that_blocks_again_while_it_catches_up(self, house: House) -> None:
        stream = opened(house)
        stream.hold.on_blocked()
        house.publish(text(b"a"))
        stream.client.transport.on_write = stream.hold.on_blocked
        stream.hold.on_writable()
        house.publish(text(b"b"))
        assert stream.take() == [chunks(b"a")]
        stream.hold.on_writable()
        assert stream.take() == [chunks(b"b")]

    def test_one_that_blocks_within_the_fan_out(self, house: House) -> None:
        first, second = opened(house), opened(house)
        first.client.transport.on_write = first.hold.on_blocked
        house.publish(text(b"a"))
        house.publish(text(b"b"))
        assert (first.take(), second.take()) == ([chunks(b"a")], [chunks(b"a"), chunks(b"b")])
        first.hold.on_writable()
        assert first.take() == [chunks(b"b")]

    def test_the_bound_is_reached_and_then_exceeded(self, house: House) -> None:
        stream = opened(house)
        stream.hold.on_blocked()
        framing = len(chunks(b"x" * 100)) - 100
        for _ in range(9):
            house.publish(text(b"x" * (100 - framing)))
        house.publish(text(b"x" * (100 - framing)))
        assert stream.take() == []
        house.publish(text(b"y"))
        ((what, why),) = stream.take()
        assert (what, "1000" in why) == ("cut", True)
        assert len(house.table) == 0
        stream.hold.on_writable()
        house.publish(text(b"z"))
        assert stream.take() == []

    def test_a_close_sends_what_waits_first(self, house: House) -> None:
        stream = opened(house)
        stream.hold.on_blocked()
        house.publish(text(b"a"), close())
        assert stream.take() == [chunks(b"a"), ("end", True)]

    def test_a_slow_one_does_not_hold_back_others(self, house: House) -> None:
        slow, other = opened(house), opened(house)
        slow.hold.on_blocked()
        house.publish(text(b"a"))
        assert (slow.take(), other.take()) == ([], [chunks(b"a")])

    def test_no_keep_alive_is_queued_for_it(self, house: House) -> None:
        stream = opened(house, keep_alive=KeepAlive(b"ping", "interval", 10))
        stream.hold.on_blocked()
        house.pass_time(30)
        stream.hold.on_writable()
        assert stream.take() == []
        house.pass_time(10)
        assert stream.take() == [chunks(b"ping")]


class TestKeepAlive:
    """``random`` is 0.5, so that the interval is the timeout less half a second, nearly."""

    def times(self, house: House, stream: Stream, seconds: float, publish_at: tuple[float, ...] = ()) -> list[float]:
        """When keep-alives went out, in seconds from now, to a tick."""
        start = house.clock.now
        found = []
        waiting = sorted(publish_at)
        while house.clock.now < start + seconds:
            house.pass_time(0.05)
            if b"ping" in b"".join(stream.take()):
                found.append(round(house.clock.now - start, 1))
            while waiting and house.clock.now >= start + waiting[0]:
                waiting.pop(0)
                house.publish(text(b"item"))
                stream.take()
        return found

    def test_it_goes_out_at_intervals(self, house: House) -> None:
        stream = opened(house, keep_alive=KeepAlive(b"ping", "interval", 10))
        assert self.times(house, stream, 30) == pytest.approx([9.55, 19.15, 28.75], abs=0.12)
        assert house.context.keep_alives == 3

    def test_items_do_not_move_an_interval(self, house: House) -> None:
        stream = opened(house, keep_alive=KeepAlive(b"ping", "interval", 10))
        assert self.times(house, stream, 20, (5.0, 9.0)) == pytest.approx([9.5, 19.1], abs=0.15)

    @pytest.mark.parametrize("plain", [True, False])
    def test_items_restart_an_idle_time(self, house: House, plain: bool) -> None:
        wanted = want(b"ch") if plain else want(b"ch", None, "skip-self")
        stream = opened(house, wanted, keep_alive=KeepAlive(b"ping", "idle", 10))
        assert self.times(house, stream, 30, (5.0, 12.0)) == pytest.approx([21.5], abs=0.15)

    @pytest.mark.parametrize("mode", ["idle", "interval"])
    def test_it_is_at_most_a_second_early(self, house: House, mode: Any) -> None:
        house.context.random = lambda: 0.999999
        stream = opened(house, keep_alive=KeepAlive(b"ping", mode, 10))
        assert self.times(house, stream, 15) == pytest.approx([9.1], abs=0.1)
        house.context.random = lambda: 0.0
        stream = opened(house, keep_alive=KeepAlive(b"ping", mode, 10))
        assert self.times(house, stream, 15) == pytest.approx([10.0], abs=0.1)

    def test_a_second_may_be_next_to_nothing(self, house: House) -> None:
        """One a tick at most, however short the interval is."""
        house.context.random = lambda: 0.999999
        stream = opened(house, keep_alive=KeepAlive(b"ping", "interval", 1))
        house.pass_time(1)
        assert 5 <= len(stream.take()) <= 20

    def test_none_without_data_and_none_without_keep_alive(self, house: House) -> None:
        empty, none = opened(house, keep_alive=KeepAlive(b"", "idle", 5)), opened(house)
        house.pass_time(20)
        assert empty.take() == none.take() == []

    def test_none_once_it_is_over(self, house: House) -> None:
        stream = opened(house, keep_alive=KeepAlive(b"ping", "idle", 5))
        stream.hold.client_lost()
        assert len(house.wheel) == 0
        house.pass_time(20)
        assert stream.take() == []


class TestEnds:
    def test_the_client_leaves(self, house: House) -> None:
        stream = opened(house)
        stream.hold.client_lost()
        stream.hold.client_lost()
        house.publish(text(b"x"))
        assert stream.take() == []
        assert len(house.table) == 0

    def test_the_process_ends(self, house: House) -> None:
        stream = opened(house)
        stream.hold.on_blocked()
        house.publish(text(b"a"))
        stream.hold.drain()
        stream.hold.drain()
        assert stream.take() == [chunks(b"a"), ("end", True)]

    def test_the_process_ends_before_the_channels_are_confirmed(self, house: House) -> None:
        stream = Stream(house)
        stream.hold.drain()
        house.confirm()
        assert stream.take() == [("unavailable",)]
        assert len(house.table) == 0

    def test_one_that_is_over_before_it_began_asks_for_nothing(self, house: House) -> None:
        client = Client()
        terms = StreamTerms(None, {}, None, b"", None, b"", False)
        hold = StreamHold(client, house.context, terms, Response(200, b"OK"), 1)
        hold.drain()
        hold.start([want(b"ch")], 8)
        assert client.take() == [("unavailable",)]
        assert house.take() == []
        assert len(house.wheel) == 0


class TestQueries:
    def test_without_a_link_there_is_none_and_no_turn_is_waited_for(self, house: House) -> None:
        stream = opened(house)
        stream.hold.recover()
        assert len(house.scheduler) == 0
        assert house.armed == []


class TestAfterTheEnd:
    """A transport or a timer may call once more after the session has ended."""

    def test_calls_do_nothing(self, house: House) -> None:
        stream = opened(house, keep_alive=None)
        hold = stream.hold
        hold.client_lost()
        hold.write_gathered(b"data")
        hold.on_blocked()
        hold.on_writable()
        hold.on_timer(house.clock.now)
        hold.drain()
        hold.abort_on_defect()
        assert stream.take() == []
        assert len(house.wheel) == 0

    def test_a_stream_that_was_never_blocked_has_nothing_to_write(self, house: House) -> None:
        stream = opened(house)
        stream.hold.on_writable()
        stream.hold.on_timer(house.clock.now)
        assert stream.take() == []
        house.publish(text(b"x"))
        assert stream.take() == [chunks(b"x")]

    def test_a_client_that_reads_before_its_stream_begins(self, house: House) -> None:
        stream = Stream(house)
        stream.hold.on_blocked()
        stream.hold.on_writable()
        assert stream.take() == []
        house.confirm()
        house.publish(text(b"x"))
        assert stream.take() == [BEGIN, chunks(b"x")]


class TestTerms:
    def test_equal_terms_are_equal(self) -> None:
        def terms(**more: Any) -> StreamTerms:
            fields: dict[str, Any] = {
                "keep_alive": KeepAlive(b"x", "idle", 5),
                "meta": {b"a": b"b"},
                "link": None,
                "uri": b"http://h/",
                "route": None,
                "rate_key": b"",
                "debug": False,
                "untrusted": False,
            }
            return StreamTerms(**{**fields, **more})

        assert terms() == terms()
        for field, other in (
            ("keep_alive", None),
            ("meta", {}),
            ("uri", b""),
            ("route", object()),
            ("debug", True),
            ("untrusted", True),
        ):
            assert terms() != terms(**{field: other})
        assert terms().from_untrusted() == terms(untrusted=True)
