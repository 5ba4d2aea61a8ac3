"""A WebSocket with ids: what it missed is asked for, in requests of its own, and comes before what is newer.

Session and leg are real; the backend is a list of requests that a test answers. What answers say is in
test_reliable_socket_answers.
"""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.filters import AskAnswer
from gripproxy.grip.frames import CLOSE, TEXT
from gripproxy.grip.headers import Headers
from gripproxy.grip.item import Item, MessageFormat, StreamFormat
from gripproxy.grip.response import Response
from gripproxy.pipe import SOCKET
from gripproxy.sessions.reliable_websocket import PASSED_MAX
from gripproxy.sessions.websocket_over_http import LastIds, WebSocketOverHttp
from tests.support.session_doubles import House, Socket, SocketClient, socket_session

EVENTS = (b"Content-Type", b"application/websocket-events")
QUESTION = b""


def item(number: int, prev: int | None = None, channel: bytes = b"ch", **more: Any) -> Item:
    """An item whose content is its id; it follows the number before it if nothing else is said."""
    prev_id = b"%d" % (number - 1 if prev is None else prev)
    message = MessageFormat(**{"action": "send", "type": "text", "content": b"%d" % number} | more)
    return Item(channel, b"%d" % number, prev_id, message=message)


def action(name: str, channel: bytes = b"ch") -> Item:
    return Item(channel, message=MessageFormat(name))  # type: ignore[arg-type]


def event(content: bytes) -> bytes:
    return b"TEXT %x\r\n%b\r\n" % (len(content), content)


def subscribe(prev_id: int | None, channel: bytes = b"ch", *filters: str) -> bytes:
    """The event that subscribes, or names the last id."""
    more = b"" if prev_id is None else b',"prev-id":"%d"' % prev_id
    names = b",".join(b'"%b"' % name.encode() for name in filters)
    return event(b'c:{"type":"subscribe","channel":"%b","filters":[%b]%b}' % (channel, names, more))


def messages(*numbers: int) -> bytes:
    return b"".join(event(b"m:%d" % number) for number in numbers)


class Talk:
    """A client, and a backend over HTTP that answers when the test says so."""

    def __init__(self, house: House | None = None, **terms: Any) -> None:
        self.house = house or House()
        self.client = SocketClient()
        self.session = socket_session(self.house, self.client, b"m:", **terms)
        self.requests: list[tuple[bytes, LastIds]] = []
        self.in_flight = False
        self.leg = WebSocketOverHttp(self.session, self, False, 200_000)
        self.session.start(self.leg)

    # Poster

    def post(self, body: bytes, replayed: int, meta: Headers, last_ids: LastIds = ()) -> None:
        assert not self.in_flight, "a request before the last one is answered"
        self.in_flight = True
        self.requests.append((body, last_ids))

    def spoiled(self, why: str, question: bool) -> None:
        """The log of the process is tested elsewhere."""

    # what a test does

    def open(self, *events: bytes, confirm: bool = True) -> Talk:
        """What the answer to OPEN says."""
        self.leg.process([], lambda closed: None)
        self.say(b"hello")
        self.requests.clear()
        self.answer(*events)
        if confirm:
            self.house.confirm()
        return self

    def say(self, content: bytes) -> None:
        self.session.client_data(TEXT, content, True, True)

    def posted(self) -> list[tuple[bytes, LastIds]]:
        """Requests since the last time."""
        requests, self.requests = self.requests, []
        return requests

    def answer(self, *events: bytes, code: int = 200) -> None:
        self.in_flight = False
        self.leg.on_answer(Response(code, b"", [EVENTS], b"".join(events)))

    def fail(self, retry: bool = False) -> None:
        self.in_flight = False
        self.leg.on_post_failed(retry, "no answer")

    def publish(self, *items: Item) -> None:
        self.house.publish(*items)

    def updates(self) -> None:
        """Those that wait for their turn have it."""
        self.house.pass_time(0.2)
        self.house.scheduler.run()

    def heard(self) -> list[Any]:
        return self.client.take()


def texts(*numbers: int) -> list[tuple[int, bytes]]:
    return [(TEXT, b"%d" % number) for number in numbers]


@pytest.fixture
def talk() -> Talk:
    return Talk().open(subscribe(1))


class TestItems:
    def test_that_follow_are_delivered_and_the_backend_is_not_asked(self, talk: Talk) -> None:
        talk.publish(item(2), item(3))
        talk.updates()
        assert talk.heard() == texts(2, 3)
        assert talk.posted() == []

    def test_that_are_repeated_are_dropped(self, talk: Talk) -> None:
        talk.publish(item(1), item(2), item(2))
        talk.updates()
        assert talk.heard() == texts(2)
        assert talk.posted() == []

    def test_that_do_not_follow_come_behind_what_is_missing(self, talk: Talk) -> None:
        talk.publish(item(4))
        assert talk.heard() == []
        assert talk.posted() == []
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
        talk.answer(messages(2, 3, 4), subscribe(4))
        talk.publish(item(5))
        talk.updates()
        assert talk.heard() == texts(2, 3, 4, 5)
        assert talk.posted() == []

    def test_a_question_counts_as_a_gap_a_recovery_and_a_request(self, talk: Talk) -> None:
        talk.publish(item(7))
        talk.updates()
        ledger = talk.house.table.ledger
        assert ledger.recovery == {(b"", SOCKET): [1, 1, 1, 0]}
        assert ledger.questions == 1

    def test_of_channels_without_ids_are_all_taken(self) -> None:
        talk = Talk().open(subscribe(1), subscribe(None, b"other"))
        talk.publish(item(9, 5, b"other"), item(9, 5, b"other"))
        assert talk.heard() == texts(9, 9)

    def test_of_two_channels_have_their_own_ids(self) -> None:
        talk = Talk().open(subscribe(1), subscribe(7, b"other"))
        talk.publish(item(8, None, b"other"), item(3))
        talk.updates()
        assert talk.heard() == texts(8)
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"), (b"other", b"8")))]
        talk.answer(messages(2, 3), subscribe(3), subscribe(8, b"other"))
        talk.publish(item(4), item(9, None, b"other"))
        assert talk.heard() == texts(2, 3, 4, 9)

    def test_without_an_id_end_the_checking(self, talk: Talk) -> None:
        talk.publish(Item(b"ch", None, b"1", message=MessageFormat("send", "text", b"x")), item(9, 5))
        talk.updates()
        assert talk.heard() == [(TEXT, b"x"), *texts(9)]
        assert talk.posted() == []

    def test_for_streams_only_are_no_gap(self, talk: Talk) -> None:
        talk.publish(Item(b"ch", b"2", b"1", stream=StreamFormat("send", b"x")), item(3))
        talk.updates()
        assert talk.heard() == texts(3)
        assert talk.posted() == []

    def test_a_close_needs_no_id(self, talk: Talk) -> None:
        talk.publish(action("close"))
        assert talk.heard() == [(CLOSE, close_payload(1000, b""))]
        assert talk.posted() == [(b"CLOSE\r\n", ())]

    def test_a_refresh_is_an_ordinary_request(self, talk: Talk) -> None:
        talk.publish(action("refresh"))
        assert talk.posted() == [(b"", ())]

    def test_names_have_no_prefix_in_questions(self) -> None:
        talk = Talk(prefix=b"p-").open(subscribe(1))
        talk.publish(item(3, None, b"p-ch"))
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]

    def test_published_while_the_backend_was_answering(self) -> None:
        talk = Talk().open(subscribe(1), messages(0), confirm=False)
        assert talk.heard() == []
        talk.house.confirm(recent=b"2")
        assert talk.heard() == texts(0)
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
        talk.answer(messages(2), subscribe(2))
        talk.publish(item(2), item(3))
        talk.updates()
        assert talk.heard() == texts(2, 3)
        assert talk.posted() == []

    def test_a_session_that_never_had_ids_has_nothing_of_all_that(self) -> None:
        talk = Talk().open(subscribe(None))
        assert talk.session.extras is None or talk.session.reliable is None


class TestReasonsToAsk:
    def test_a_hint_at_once(self, talk: Talk) -> None:
        talk.publish(action("hint"))
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]

    def test_a_hint_to_a_session_without_ids_is_none(self) -> None:
        talk = Talk().open(subscribe(None))
        talk.publish(action("hint"))
        talk.updates()
        assert talk.posted() == []

    def test_the_worker_lost_items(self, talk: Talk) -> None:
        assert talk.session.reliable is not None
        talk.session.reliable.recover()
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]

    def test_a_request_that_was_under_way_when_items_were_lost(self) -> None:
        talk = Talk()
        talk.say(b"x")
        talk.posted()
        talk.house.context.recovered = talk.house.clock()
        talk.answer(subscribe(1))
        talk.house.confirm()
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
        talk.answer(subscribe(1))
        talk.say(b"y")
        talk.posted()
        talk.answer(subscribe(1))
        talk.updates()
        assert talk.posted() == []
        # Long ago.
        talk.house.pass_time(61)
        talk.say(b"z")
        talk.posted()
        talk.answer(subscribe(2))
        talk.updates()
        assert talk.posted() == []

    def test_but_no_channel_has_ids_any_more(self, talk: Talk) -> None:
        assert talk.session.reliable is not None
        talk.say(b"x")
        talk.posted()
        talk.answer(subscribe(None))
        talk.session.reliable.recover()
        talk.updates()
        assert talk.posted() == []

    def test_a_quiet_time(self, talk: Talk) -> None:
        talk.house.pass_time(60)
        talk.publish(item(2))
        talk.house.pass_time(107)
        talk.updates()
        assert talk.posted() == []
        talk.house.pass_time(13)
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"2"),))]
        talk.answer(subscribe(2))
        talk.house.pass_time(107)
        talk.updates()
        assert talk.posted() == []
        talk.house.pass_time(13)
        talk.updates()
        assert len(talk.posted()) == 1

    def test_a_quiet_time_that_nobody_wants(self) -> None:
        house = House()
        house.context.recover_interval = 0
        talk = Talk(house).open(subscribe(1))
        talk.house.pass_time(1000)
        talk.updates()
        assert talk.posted() == []


class TestOneRequestAtATime:
    def test_a_question_waits_for_the_answer_to_events(self, talk: Talk) -> None:
        talk.say(b"x")
        assert talk.posted() == [(event(b"x"), ())]
        talk.publish(action("hint"), item(2))
        assert talk.posted() == []
        assert talk.heard() == texts(2)
        talk.answer(event(b"m:y"))
        assert talk.posted() == [(QUESTION, ((b"ch", b"2"),))]
        assert talk.heard() == [(TEXT, b"y")]

    def test_events_wait_for_the_answer_to_a_question(self, talk: Talk) -> None:
        talk.publish(action("hint"))
        talk.say(b"x")
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
        talk.answer(subscribe(1))
        assert talk.posted() == [(event(b"x"), ())]

    def test_they_take_turns(self, talk: Talk) -> None:
        talk.publish(action("hint"))
        talk.posted()
        talk.say(b"x")
        talk.publish(action("hint"))
        talk.answer(subscribe(1))
        # The second hint was among what waited, and comes behind the event.
        assert talk.posted() == [(event(b"x"), ())]
        talk.answer()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]

    def test_a_refresh_is_contained_in_a_question(self, talk: Talk) -> None:
        talk.say(b"x")
        talk.posted()
        talk.publish(action("hint"), action("refresh"))
        talk.answer()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
        talk.answer(subscribe(1))
        assert talk.posted() == []

    def test_a_client_that_leaves_during_a_question(self, talk: Talk) -> None:
        talk.publish(action("hint"), item(2))
        talk.posted()
        talk.session.client_lost()
        talk.answer(messages(2), subscribe(2))
        assert talk.posted() == [(b"DISCONNECT\r\n", ())]
        assert talk.heard() == []
        assert len(talk.house.table) == len(talk.house.wheel) == len(talk.house.scheduler) == 0
        assert talk.house.scheduler.asking == 0

    @pytest.mark.parametrize("code", [200, 500])
    def test_a_client_that_closes_during_a_question(self, talk: Talk, code: int) -> None:
        talk.publish(action("hint"))
        talk.posted()
        talk.session.client_close(1000, b"")
        talk.answer(code=code)
        assert talk.posted() == [(b"CLOSE 2\r\n\x03\xe8\r\n", ())]
        talk.answer(b"CLOSE 2\r\n\x03\xe8\r\n")
        assert talk.heard() == [(CLOSE, close_payload(1000, b"")), "end"]

    @pytest.mark.parametrize("code", [200, 500])
    def test_a_publisher_that_closes_during_a_question(self, talk: Talk, code: int) -> None:
        talk.publish(action("hint"))
        talk.posted()
        talk.session.drain()
        talk.answer(code=code)
        assert talk.posted() == [(b"CLOSE\r\n", ())]

    def test_a_client_that_closed_is_not_asked_for(self, talk: Talk) -> None:
        talk.session.client_close(1000, b"")
        talk.posted()
        talk.publish(action("hint"))
        talk.answer(b"CLOSE\r\n")
        assert talk.posted() == []


class TestIdsInOtherAnswers:
    """The answer to events may name ids as well."""

    def test_newer_ones_count(self, talk: Talk) -> None:
        talk.say(b"what did I miss?")
        talk.answer(messages(2, 3), subscribe(3))
        talk.publish(item(2), item(3), item(4))
        assert talk.heard() == texts(2, 3, 4)

    def test_newer_ones_make_up_for_what_is_missing(self, talk: Talk) -> None:
        talk.say(b"x")
        talk.posted()
        talk.publish(item(3))
        talk.answer(messages(2, 3), subscribe(3))
        talk.updates()
        assert talk.heard() == texts(2, 3)
        assert talk.posted() == [(QUESTION, ((b"ch", b"3"),))]
        talk.answer()
        talk.house.pass_time(30)
        talk.updates()
        assert talk.posted() == []

    def test_older_ones_than_what_has_come_meanwhile_do_not(self, talk: Talk) -> None:
        talk.say(b"x")
        talk.posted()
        talk.publish(item(2), item(3))
        talk.answer(subscribe(2))
        talk.publish(item(4))
        talk.updates()
        assert talk.heard() == texts(2, 3, 4)
        assert talk.posted() == []

    def test_the_one_before_what_has_come_meanwhile_does_not(self, talk: Talk) -> None:
        talk.say(b"x")
        talk.posted()
        talk.publish(item(2))
        talk.answer(subscribe(1))
        talk.publish(item(3))
        talk.updates()
        assert talk.heard() == texts(2, 3)
        assert talk.posted() == []

    def test_after_very_many_items_they_count_as_older(self, talk: Talk) -> None:
        talk.say(b"x")
        talk.posted()
        last = PASSED_MAX + 50
        talk.publish(*[item(number) for number in range(2, last)])
        talk.answer(subscribe(last - 10))
        talk.publish(item(last))
        talk.updates()
        assert talk.heard() == texts(*range(2, last + 1))
        assert talk.posted() == []

    def test_a_first_one_makes_the_channel_reliable(self) -> None:
        talk = Talk().open(subscribe(None))
        talk.publish(item(5))
        talk.say(b"x")
        talk.posted()
        talk.answer(subscribe(5))
        talk.publish(item(7))
        talk.updates()
        assert talk.heard() == texts(5)
        assert talk.posted() == [(QUESTION, ((b"ch", b"5"),))]


class TestClientThatDoesNotRead:
    def test_gets_what_it_missed_from_the_backend(self, talk: Talk) -> None:
        talk.session.on_blocked()
        talk.publish(*[item(number, content=b"x" * 100) for number in range(2, 30)])
        talk.updates()
        assert talk.posted() == []
        assert talk.heard() == []
        talk.session.on_writable()
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
        talk.answer(messages(29), subscribe(29))
        assert talk.heard() == texts(29)

    def test_and_missed_nothing_is_not_asked_for(self, talk: Talk) -> None:
        talk.session.on_blocked()
        talk.publish(item(1))
        talk.session.on_writable()
        talk.updates()
        assert talk.posted() == []

    def test_is_asked_for_when_it_reads_again(self, talk: Talk) -> None:
        talk.session.on_blocked()
        talk.publish(action("hint"))
        assert talk.posted() == []
        talk.session.on_writable()
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]

    def test_is_cut_off_for_channels_without_ids(self) -> None:
        talk = Talk().open(subscribe(1), subscribe(None, b"other"))
        talk.session.on_blocked()
        talk.publish(*[item(number, 0, b"other", content=b"x" * 100) for number in range(2, 30)])
        [(what, _)] = talk.heard()
        assert what == "cut"


class TestFilters:
    UNCHANGED = AskAnswer(204, [], b"")

    def test_have_their_say_before_the_answer(self) -> None:
        talk = Talk()
        talk.session.meta = {b"url": b"/check"}
        talk.open(subscribe(1, b"ch", "http-check"))
        talk.publish(item(2), item(4))
        talk.updates()
        assert talk.posted() == []
        [(_, reply)] = talk.house.asks
        reply(self.UNCHANGED)
        assert talk.posted() == [(QUESTION, ((b"ch", b"2"),))]
        talk.answer(messages(3, 4), subscribe(4, b"ch", "http-check"))
        assert talk.heard() == texts(2, 3, 4)

    def test_that_can_take_no_more_leave_nothing_out(self) -> None:
        talk = Talk()
        talk.session.meta = {b"url": b"/check"}
        talk.open(subscribe(1, b"ch", "http-check"))
        talk.publish(*[item(number) for number in range(2, 110)])
        talk.updates()
        for _ in range(101):
            [(_, reply)] = talk.house.asks
            talk.house.asks.clear()
            reply(self.UNCHANGED)
        assert talk.heard() == texts(*range(2, 103))
        assert talk.posted() == [(QUESTION, ((b"ch", b"102"),))]

    def test_and_meanwhile_the_ids_end(self) -> None:
        """Items that wait for a query that is needless then wait no longer."""
        talk = Talk()
        talk.session.meta = {b"url": b"/check"}
        talk.open(subscribe(1, b"ch", "http-check"), subscribe(None, b"other"))
        talk.publish(item(2), action("hint"))
        talk.say(b"x")
        assert talk.posted() == [(event(b"x"), ())]
        talk.publish(item(9, 5, b"other"))
        talk.answer(subscribe(None, b"ch", "http-check"))
        assert talk.heard() == []
        [(_, reply)] = talk.house.asks
        reply(self.UNCHANGED)
        assert talk.posted() == []
        assert talk.heard() == texts(2, 9)


class TestBackendThatCannotBeAsked:
    def test_a_direct_one_has_the_prev_id_ignored(self) -> None:
        socket = Socket()
        socket.backend(b'c:{"type":"subscribe","channel":"ch","prev-id":"1"}')
        socket.house.confirm()
        [(what, told)] = socket.heard()
        assert what == "note"
        assert told.startswith("prev-id ignored")
        socket.publish(item(9))
        assert socket.heard() == texts(9)
        assert socket.session.reliable is None

    def test_one_that_detaches_ends_the_checking(self, talk: Talk) -> None:
        talk.publish(action("hint"), item(5))
        talk.posted()
        talk.answer(event(b'c:{"type":"detach"}'))
        assert talk.posted() == [(b"CLOSE\r\n", ())]
        talk.publish(item(9))
        assert talk.heard() == texts(5, 9)
        assert len(talk.house.wheel) == len(talk.house.scheduler) == 0
        assert talk.house.scheduler.asking == 0
