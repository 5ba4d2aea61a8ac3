"""A held response: confirmation, timeout, publish, patch, hint, gaps, the end. Events in, what the client got out."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy import pipe
from gripproxy.grip.filters import AskAnswer
from gripproxy.grip.item import Item, ResponseFormat
from gripproxy.grip.response import Response
from gripproxy.sessions.response import ResponseHold, ResponseTerms, merge
from tests.support.session_doubles import Client, House, Want, answer, text, want

HELD = Response(200, b"OK", [(b"Content-Type", b"application/json"), (b"X-Held", b"1")], b'{"n":1}\n')


@pytest.fixture
def house() -> House:
    return House()


class Poll:
    """One long-poll with its client."""

    def __init__(
        self,
        house: House,
        *wanted: Want,
        timeout: int = 55,
        debug: bool = False,
        meta: dict[bytes, bytes] | None = None,
    ) -> None:
        self.client = Client()
        terms = ResponseTerms(HELD, timeout, meta or {}, None, b"", debug)
        self.hold = ResponseHold(self.client, house.context, terms, 1)
        self.hold.start(wanted or (want(b"ch"),), 8)

    def take(self) -> list[Any]:
        return self.client.take()

    @property
    def body(self) -> bytes:
        ((what, response),) = self.take()
        assert what == "respond"
        return bytes(response.body)


def held(house: House, *wanted: Want, **more: Any) -> Poll:
    poll = Poll(house, *wanted, **more)
    house.confirm()
    assert poll.take() == []
    return poll


def respond(body: bytes = b"", **more: Any) -> Item:
    return Item(b"ch", response=ResponseFormat(body=body, **more))


class TestTimeout:
    def test_the_held_response_goes_out(self, house: House) -> None:
        poll = held(house, timeout=20)
        house.pass_time(19.9)
        assert poll.take() == []
        house.pass_time(0.2)
        assert poll.take() == [("respond", HELD)]
        assert (len(house.table), len(house.wheel)) == (0, 0)

    def test_it_begins_with_the_confirmation(self, house: House) -> None:
        poll = Poll(house, timeout=20)
        house.pass_time(5)
        house.confirm()
        house.pass_time(19)
        assert poll.take() == []
        house.pass_time(2)
        assert poll.take() == [("respond", HELD)]

    def test_unconfirmed_for_eight_seconds_is_an_error(self, house: House) -> None:
        poll = Poll(house)
        house.pass_time(7.9)
        assert poll.take() == []
        house.pass_time(0.2)
        assert poll.take() == [("unavailable",)]
        assert len(house.table) == 0

    def test_one_channel_of_two_is_not_enough(self, house: House) -> None:
        poll = Poll(house, want(b"a"), want(b"b"))
        house.table.confirmed(b"a", 1, None)
        house.pass_time(8.1)
        assert poll.take() == [("unavailable",)]


class TestPublish:
    def test_the_item_is_the_answer_once(self, house: House) -> None:
        poll = held(house)
        house.publish(respond(b"a"), respond(b"b"))
        assert poll.body == b"a"
        assert house.take()[-1] == (pipe.UNSUBSCRIBE, b"ch", True)

    def test_what_is_for_others_is_passed_by(self, house: House) -> None:
        poll = held(house)
        house.publish(text(b"x"), Item(b"ch", response=ResponseFormat("close")))
        assert poll.take() == []

    def test_a_patch_changes_the_held_body(self, house: House) -> None:
        poll = held(house)
        operations = [{"op": "replace", "path": "/n", "value": 2}]
        house.publish(Item(b"ch", response=ResponseFormat(patch=operations)))
        assert poll.body == b'{"n":2}\n'

    def test_a_patch_that_fails_is_an_empty_body(self, house: House) -> None:
        poll = held(house)
        house.publish(Item(b"ch", response=ResponseFormat(patch=[{"op": "remove", "path": "/no"}])))
        assert poll.body == b""

    def test_a_hint_asks_the_backend_at_once(self, house: House) -> None:
        poll = held(house, want(b"ch", b"5"), want(b"other"))
        house.publish(Item(b"ch", response=ResponseFormat("hint")))
        assert poll.take() == [("retry", ((b"ch", b"5"),))]
        house.publish(respond(b"late"))
        assert poll.take() == []


class TestMerge:
    """Headers of the item replace those of the held response (docs/grip.md §4.1)."""

    def merged(self, *headers: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        return merge(HELD, respond(b"x", headers=list(headers)), b"x").headers

    def test_status_and_reason_are_the_items(self) -> None:
        response = merge(HELD, respond(b"x", code=404, reason=b"Gone Fishing"), b"y")
        assert (response.code, response.reason, response.body) == (404, b"Gone Fishing", b"y")

    def test_no_headers_keeps_the_held_ones(self) -> None:
        assert self.merged() == HELD.headers

    def test_the_same_name_replaces_whatever_its_case(self) -> None:
        assert self.merged((b"content-type", b"text/plain"), (b"X-New", b"2")) == [
            (b"X-Held", b"1"),
            (b"content-type", b"text/plain"),
            (b"X-New", b"2"),
        ]

    def test_a_repeated_header_stays_repeated(self) -> None:
        assert self.merged((b"X-Held", b"2"), (b"X-Held", b"3"))[1:] == [(b"X-Held", b"2"), (b"X-Held", b"3")]

    def test_grip_and_framing_headers_are_not_sent(self) -> None:
        framing = [(b"Content-Length", b"9"), (b"Transfer-Encoding", b"chunked"), (b"Connection", b"close")]
        assert self.merged((b"Grip-Hold", b"response"), (b"Keep-Alive", b"1"), *framing) == HELD.headers

    def test_expose_headers_hides(self) -> None:
        """A quirk of the protocol that is kept (docs/grip.md §4.1)."""
        assert self.merged((b"Grip-Expose-Headers", b"x-held, X-Other"), (b"X-Other", b"2")) == HELD.headers[:1]

    def test_the_held_headers_are_left_alone(self) -> None:
        before = list(HELD.headers)
        self.merged((b"X-Held", b"2"))
        assert HELD.headers == before


class TestIds:
    def test_items_in_order_are_delivered(self, house: House) -> None:
        poll = held(house, want(b"ch", b"5"))
        house.publish(answer(b"six", b"6", b"5"))
        assert poll.body == b"six"

    def test_the_item_the_backend_named_is_contained_already(self, house: House) -> None:
        poll = held(house, want(b"ch", b"5"))
        house.publish(answer(b"five", b"5", b"4"))
        assert poll.take() == []
        assert len(house.scheduler) == 0

    @pytest.mark.parametrize("prev_id", [b"6", None])
    def test_a_gap_is_repaired_with_the_next_batch(self, house: House, prev_id: bytes | None) -> None:
        poll = held(house, want(b"ch", b"5"))
        house.publish(answer(b"seven", b"7", prev_id))
        assert poll.take() == []
        assert house.armed == [0.1]
        house.scheduler.run()
        assert poll.take() == [("retry", ((b"ch", b"5"),))]
        assert len(house.scheduler) == 0

    def test_without_prev_id_everything_is_taken(self, house: House) -> None:
        poll = held(house)
        house.publish(answer(b"seven", b"7", b"6"))
        assert poll.body == b"seven"

    def test_a_dropped_item_moves_the_id_on(self, house: House) -> None:
        poll = held(house, want(b"ch", b"5", "skip-self"), meta={b"user": b"me"})
        mine = Item(b"ch", b"6", b"5", response=ResponseFormat(body=b"mine"), meta={b"sender": b"me"})
        house.publish(mine)
        assert poll.take() == []
        house.publish(answer(b"seven", b"7", b"6"))
        assert poll.body == b"seven"

    def test_all_ids_go_with_the_repeated_request(self, house: House) -> None:
        poll = held(house, want(b"a", b"1", prefix=b"p-"), want(b"b"), want(b"c", b"3"))
        poll.hold.update()
        assert poll.take() == [("retry", ((b"a", b"1"), (b"c", b"3")))]

    def test_a_conflict_on_one_of_two_channels(self, house: House) -> None:
        poll = Poll(house, want(b"a", b"1"), want(b"b", b"2"))
        house.table.confirmed(b"a", 1, b"1")
        assert poll.take() == []
        house.table.confirmed(b"b", 2, b"9")
        assert poll.take() == [("retry", ((b"a", b"1"), (b"b", b"2")))]
        assert poll.client.because == ((b"b", b"9"),)


CHECK = {b"url": b"/check"}


class TestFilters:
    @pytest.mark.parametrize("debug", [False, True])
    def test_a_filter_that_fails_is_fatal_in_debug_mode_only(self, house: House, debug: bool) -> None:
        poll = held(house, want(b"ch", None, "var-subst"), debug=debug)
        house.publish(respond(b"%(who)s"), respond(b"fine"))
        if debug:
            ((what, detail),) = poll.take()
            assert what == "fail"
            assert detail.startswith("filter error: var-subst: ")
        else:
            assert poll.body == b"fine"

    def test_filters_see_the_patched_body(self, house: House) -> None:
        poll = held(house, want(b"ch", None, "var-subst"), meta={b"name": b"Ann"})
        operations = [{"op": "replace", "path": "/n", "value": "%(name)s"}]
        house.publish(Item(b"ch", response=ResponseFormat(patch=operations)))
        assert poll.body == b'{"n":"Ann"}\n'

    def test_the_backend_is_not_asked_about_what_a_filter_has_still(self, house: House) -> None:
        """The ids it is told would say that the client has an item that nobody has delivered."""
        poll = held(house, want(b"ch", b"5", "http-check"), meta=CHECK)
        house.publish(answer(b"six", b"6", b"5"), answer(b"eight", b"8", b"7"))
        poll.hold.update()
        poll.hold.update()
        assert poll.take() == []
        ((_, done),) = house.asks
        done(AskAnswer(204, [], b""))
        assert poll.body == b"six"

    def test_an_item_that_a_filter_drops_counts_as_had(self, house: House) -> None:
        poll = held(house, want(b"ch", b"5", "http-check"), meta=CHECK)
        house.publish(answer(b"six", b"6", b"5"))
        poll.hold.update()
        ((_, done),) = house.asks
        done(AskAnswer(200, [(b"Action", b"drop")], b""))
        assert poll.take() == [("retry", ((b"ch", b"6"),))]

    def test_an_item_that_finds_no_place_is_had_from_the_backend(self, house: House) -> None:
        house.context.queue_max = 1
        poll = held(house, want(b"ch", b"5", "http-check"), meta=CHECK)
        house.publish(*(answer(b"%d" % n, b"%d" % n, b"%d" % (n - 1)) for n in (6, 7, 8)))
        assert len(house.scheduler) == 1
        assert [subscription.prev_id for subscription in poll.hold.subscriptions] == [b"7"]

    def test_content_that_was_prepared_for_other_filters_is_skipped(self, house: House) -> None:
        poll = held(house)
        house.publish(respond(b"x", content_filters=("build-id",)), respond(b"y", content_filters=()))
        assert poll.body == b"y"


def test_an_item_for_other_kinds_of_clients_is_no_gap(house: House) -> None:
    poll = held(house, want(b"ch", b"5"))
    house.publish(text(b"for streams", b"6", b"5"), answer(b"seven", b"7", b"6"))
    assert poll.body == b"seven"


class TestEnds:
    def test_the_client_leaves(self, house: House) -> None:
        poll = held(house, want(b"ch", b"5"))
        house.publish(answer(b"seven", b"7", b"6"))
        poll.hold.client_lost()
        poll.hold.client_lost()
        assert (len(house.table), len(house.wheel), len(house.scheduler)) == (0, 0, 0)
        house.publish(respond(b"x"))
        poll.hold.update()
        assert poll.take() == []

    @pytest.mark.parametrize("confirmed", [True, False])
    def test_the_process_ends(self, house: House, confirmed: bool) -> None:
        poll = held(house) if confirmed else Poll(house)
        poll.hold.drain()
        poll.hold.drain()
        house.confirm()
        assert poll.take() == [("respond", HELD)]

    def test_one_that_is_over_before_it_began_asks_for_nothing(self, house: House) -> None:
        client = Client()
        hold = ResponseHold(client, house.context, ResponseTerms(HELD, 55, {}, None, b"", False), 1)
        hold.drain()
        hold.start([want(b"ch")], 8)
        assert client.take() == [("respond", HELD)]
        assert house.take() == []


def test_calls_after_the_end_do_nothing(house: House) -> None:
    """A filter, a timer or the scheduler may call once more after the response."""
    poll = held(house)
    hold = poll.hold
    [subscription] = hold.subscriptions
    house.publish(respond(b"x"))
    assert poll.body == b"x"
    hold.on_timer(house.clock.now)
    hold.filtered(respond(b"late"), b"late")
    hold.refused(subscription, respond(b"late"), None, "late")
    hold.update()
    house.turns.run_all()
    assert not hold.deliver(subscription, respond(b"late"))
    assert poll.take() == []


def test_equal_terms_are_equal() -> None:
    def terms(**more: Any) -> ResponseTerms:
        fields: dict[str, Any] = {
            "response": Response(200, b"OK", [], b"x"),
            "timeout": 5,
            "meta": {},
            "route": None,
            "rate_key": b"",
            "debug": False,
            "untrusted": False,
        }
        return ResponseTerms(**{**fields, **more})

    assert terms() == terms()
    for field, other in (
        ("response", HELD),
        ("timeout", 6),
        ("meta", {b"a": b"b"}),
        ("debug", True),
        ("untrusted", True),
    ):
        assert terms() != terms(**{field: other})
