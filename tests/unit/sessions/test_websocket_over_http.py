"""WebSocket-over-HTTP: what the client sends becomes requests, what the backend answers goes to the client.

A real session stands between leg and client; the backend is a list of posted bodies. Failures to connect are in
test_over_http_retry.
"""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.control import Detach, Subscribe
from gripproxy.grip.event_reader import READ_MAX
from gripproxy.grip.frames import BINARY, CLOSE, PING, PONG, TEXT
from gripproxy.grip.headers import Headers
from gripproxy.grip.item import Item, MessageFormat
from gripproxy.grip.response import Response
from gripproxy.grip.websocket_events import Event
from gripproxy.sessions.websocket import CLOSE_TIMEOUT
from gripproxy.sessions.websocket_over_http import LastIds, WebSocketOverHttp
from tests.support.session_doubles import House, SocketClient, message, socket_session

EVENTS = (b"Content-Type", b"application/websocket-events")
INTERVAL = (b"Keep-Alive-Interval", b"30")
ACCEPTED = b"Content-Bytes-Accepted"
BYE = close_payload(4001, b"bye")
CLOSED = b"CLOSE 5\r\n%b\r\n" % BYE
DISCONNECT = b"DISCONNECT\r\n"


class Client(SocketClient):
    """Notes by itself when it is to be read from."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: list[bool] = []

    def read(self, go: bool) -> None:
        self.reading.append(go)


class Talk:
    """A client and a backend that have opened."""

    def __init__(self, one_event: bool = False) -> None:
        self.house = House()
        self.client = Client()
        self.session = socket_session(self.house, self.client)
        self.requests: list[tuple[bytes, int, Headers]] = []
        self.spoilt: list[str] = []
        self.in_flight = False
        self.leg = WebSocketOverHttp(self.session, self, one_event, 200_000)
        self.session.leg = self.leg

    # Poster

    def post(self, body: bytes, replayed: int, meta: Headers, last_ids: LastIds = ()) -> None:
        assert not self.in_flight, "a request before the last one is answered"
        self.in_flight = True
        self.requests.append((body, replayed, list(meta)))

    def spoiled(self, why: str, question: bool) -> None:
        self.spoilt.append(why)

    # what a test does

    def say(self, *texts: bytes) -> None:
        for text in texts:
            self.session.client_data(TEXT, text, True, True)

    def posted(self) -> list[bytes]:
        """Bodies posted since the last time."""
        bodies = [body for body, _, _ in self.requests]
        self.requests.clear()
        return bodies

    def answer(self, body: bytes = b"", *headers: tuple[bytes, bytes], code: int = 200) -> None:
        self.answer_with(Response(code, b"", [EVENTS, *headers], body))

    def answer_with(self, response: Response) -> None:
        self.in_flight = False
        self.leg.on_answer(response)

    def fail(self, retry: bool, why: str) -> None:
        self.in_flight = False
        self.leg.on_post_failed(retry, why)

    def heard(self) -> list[Any]:
        return self.client.take()


@pytest.fixture
def talk() -> Talk:
    return Talk()


class TestRequests:
    def test_one_message(self, talk: Talk) -> None:
        talk.say(b"one")
        assert talk.posted() == [b"TEXT 3\r\none\r\n"]

    def test_every_kind_of_event(self, talk: Talk) -> None:
        talk.say(b"first")
        talk.posted()
        talk.session.client_data(BINARY, b"\0", True, True)
        talk.session.client_ping(b"?")
        talk.session.client_ping(b"")
        talk.session.client_pong(b"!")
        talk.say(b"")
        talk.answer()
        assert talk.posted() == [b"BINARY 1\r\n\0\r\nPING 1\r\n?\r\nPING\r\nPONG 1\r\n!\r\nTEXT\r\n"]

    def test_what_comes_during_a_request_goes_with_the_next(self, talk: Talk) -> None:
        talk.say(b"one", b"two", b"three")
        assert talk.posted() == [b"TEXT 3\r\none\r\n"]
        talk.answer()
        assert talk.posted() == [b"TEXT 3\r\ntwo\r\nTEXT 5\r\nthree\r\n"]
        talk.answer()
        assert talk.posted() == []

    def test_a_request_takes_so_much_and_no_more(self, talk: Talk) -> None:
        half = b"x" * 100_000
        talk.say(b"-", half, half, b"more")
        talk.posted()
        talk.answer()
        assert talk.posted() == [b"TEXT 186a0\r\n%b\r\n" % half * 2]
        talk.answer()
        assert talk.posted() == [b"TEXT 4\r\nmore\r\n"]

    def test_one_event_in_each_if_the_target_wants_that(self) -> None:
        talk = Talk(one_event=True)
        talk.say(b"1", b"2", b"3")
        for digit in (b"1", b"2", b"3"):
            assert talk.posted() == [b"TEXT 1\r\n%b\r\n" % digit]
            talk.answer()
        assert talk.posted() == []

    def test_a_message_in_pieces_is_posted_whole(self, talk: Talk) -> None:
        talk.session.client_data(BINARY, b"a", True, False)
        talk.session.client_data(BINARY, b"b", False, False)
        talk.session.client_ping(b"")
        assert talk.posted() == [b"PING\r\n"]
        talk.session.client_data(BINARY, b"c", False, True)
        talk.answer()
        assert talk.posted() == [b"BINARY 3\r\nabc\r\n"]

    def test_meta_goes_along_until_it_is_deleted(self, talk: Talk) -> None:
        talk.say(b"1", b"2")
        talk.posted()
        talk.answer(b"", (b"Set-Meta-User", b"me"), (b"Set-Meta-Id", b"5"))
        [(_, _, meta)] = talk.requests
        assert meta == [(b"User", b"me"), (b"Id", b"5")]
        talk.say(b"3")
        talk.posted()
        talk.answer(b"", (b"set-meta-user", b""))
        [(_, _, meta)] = talk.requests
        assert meta == [(b"Id", b"5")]


class TestAnswers:
    def test_events_go_to_the_client_in_order(self, talk: Talk) -> None:
        talk.say(b"x")
        talk.answer(b"TEXT 1\r\na\r\nPING\r\nBINARY 1\r\nb\r\nPONG 1\r\nc\r\nTEXT\r\nNEWS 1\r\nd\r\n")
        assert talk.heard() == [(TEXT, b"a"), (PING, b""), (BINARY, b"b"), (PONG, b"c"), (TEXT, b"")]

    def test_disconnect_drops_the_client_and_what_follows_it(self, talk: Talk) -> None:
        talk.say(b"x", b"y")
        talk.posted()
        talk.answer(b"TEXT 1\r\na\r\nDISCONNECT\r\nTEXT 1\r\nb\r\n")
        assert talk.heard() == [(TEXT, b"a"), ("drop", "the backend asked for it")]
        assert talk.posted() == []

    @pytest.mark.parametrize(
        ("answer", "why"),
        [
            (Response(200, b"", [], b""), "the backend answered events with 200"),
            (
                Response(200, b"", [(b"Content-Type", EVENTS[1] + b"; a=b")], b""),
                "the backend answered events with 200",
            ),
            (Response(204, b"", [EVENTS], b""), "the backend answered events with 204"),
            (Response(200, b"", [EVENTS], b"OPEN\r\n"), "the backend opened twice"),
        ],
    )
    def test_that_are_not_events_end_it_without_a_word_to_the_backend(
        self, talk: Talk, answer: Response, why: str
    ) -> None:
        talk.say(b"x", b"y")
        talk.posted()
        talk.answer_with(answer)
        assert talk.heard() == [("drop", why)]
        assert len(talk.spoilt) == 1
        assert talk.posted() == []
        talk.house.pass_time(60)
        assert talk.posted() == []

    @pytest.mark.parametrize(
        ("body", "header"),
        [
            (b"TEXT x\r\n", (b"X", b"")),
            (b"TEXT 1\r\na\r\nTEXT 5\r\nhel", (b"X", b"")),
            (b"", (ACCEPTED, b"2")),
            (b"", (b"Set-Meta-X", b"y")),
        ],
    )
    def test_that_are_broken_end_it(self, talk: Talk, body: bytes, header: tuple[bytes, bytes]) -> None:
        talk.leg.backend_meta = [(b"%d" % n, b"") for n in range(100)]
        talk.say(b"x")
        talk.answer(body, header)
        [(what, why)] = talk.heard()
        assert what == "drop"
        assert why.startswith("the backend's events: ")

    def test_a_failure_that_is_not_to_be_repeated(self, talk: Talk) -> None:
        talk.say(b"x")
        talk.fail(False, "reset")
        assert talk.heard() == [("drop", "reset")]


class TestAcceptedBytes:
    def test_the_rest_is_offered_with_what_comes_next(self, talk: Talk) -> None:
        talk.say(b"abcd", b"ef")
        talk.posted()
        talk.answer(b"", (ACCEPTED, b"1"))
        # "ef" is new; "bcd" goes along.
        [(body, replayed, _)] = talk.requests
        assert (body, replayed) == (b"TEXT 3\r\nbcd\r\nTEXT 2\r\nef\r\n", 3)

    def test_the_rest_alone_is_no_reason_to_ask(self, talk: Talk) -> None:
        talk.say(b"abcd")
        talk.posted()
        talk.answer(b"", (ACCEPTED, b"1"))
        talk.house.pass_time(100)
        assert talk.posted() == []

    def test_a_refresh_offers_the_rest(self, talk: Talk) -> None:
        talk.say(b"abcd")
        talk.posted()
        talk.answer(b"", (ACCEPTED, b"1"))
        talk.session.refresh()
        assert talk.posted() == [b"TEXT 3\r\nbcd\r\n"]

    def test_the_interval_offers_the_rest(self, talk: Talk) -> None:
        talk.say(b"abcd")
        talk.posted()
        talk.answer(b"", (ACCEPTED, b"0"), INTERVAL)
        talk.house.pass_time(31)
        assert talk.posted() == [b"TEXT 4\r\nabcd\r\n"]

    def test_an_empty_request_has_nothing_to_accept(self, talk: Talk) -> None:
        talk.session.refresh()
        assert talk.posted() == [b""]
        talk.say(b"x")
        talk.answer(b"", (ACCEPTED, b"7"))
        assert talk.posted() == [b"TEXT 1\r\nx\r\n"]


class TestRefreshAndInterval:
    def test_a_refresh_asks_at_once(self, talk: Talk) -> None:
        talk.session.refresh()
        assert talk.posted() == [b""]
        talk.answer(b"TEXT 1\r\na\r\n")
        assert talk.posted() == []

    def test_during_a_request_another_follows(self, talk: Talk) -> None:
        talk.session.refresh()
        talk.session.refresh()
        talk.session.refresh()
        assert talk.posted() == [b""]
        talk.answer()
        assert talk.posted() == [b""]
        talk.answer()
        assert talk.posted() == []

    def test_a_published_refresh(self, talk: Talk) -> None:
        talk.session.control(Subscribe(b"ch", (), None))
        talk.house.confirm()
        talk.house.publish(Item(b"ch", message=MessageFormat("refresh")))
        assert talk.posted() == [b""]

    def test_quiet_for_the_interval_an_empty_request_is_sent(self, talk: Talk) -> None:
        talk.say(b"x")
        talk.posted()
        talk.answer(b"", INTERVAL)
        for _ in range(2):
            talk.house.pass_time(29.9)
            assert talk.posted() == []
            talk.house.pass_time(0.2)
            assert talk.posted() == [b""]
            talk.answer()

    def test_the_interval_counts_from_the_last_answer(self, talk: Talk) -> None:
        talk.session.refresh()
        talk.answer(b"", INTERVAL)
        talk.posted()
        talk.house.pass_time(20)
        talk.say(b"x")
        talk.house.pass_time(20)
        talk.posted()
        talk.answer()
        talk.house.pass_time(29.9)
        assert talk.posted() == []
        talk.house.pass_time(0.2)
        assert talk.posted() == [b""]

    @pytest.mark.parametrize("off", [b"0", b"-1", b"x"])
    def test_the_interval_is_turned_off(self, talk: Talk, off: bytes) -> None:
        talk.session.refresh()
        talk.answer(b"", INTERVAL)
        talk.session.refresh()
        talk.answer(b"", (b"Keep-Alive-Interval", off))
        talk.posted()
        talk.house.pass_time(100)
        assert talk.posted() == []


class TestBackPressure:
    def test_a_client_that_sends_much_is_not_read(self, talk: Talk) -> None:
        talk.say(b"-", b"x" * 200_000)
        assert talk.client.reading == [False]
        talk.answer()
        assert talk.client.reading == [False]
        talk.answer()
        assert talk.client.reading == [False, True]

    def test_what_was_read_already_still_fits_up_to_a_bound(self, talk: Talk) -> None:
        talk.say(b"-", *[b"x" * 200_000] * 10)
        assert talk.heard() == []
        talk.say(b"x")
        [(what, why)] = talk.heard()
        assert what == "drop"
        assert "wait for the backend" in why

    def test_a_client_that_does_not_read_is_not_asked_for(self, talk: Talk) -> None:
        talk.session.on_blocked()
        talk.say(b"x")
        talk.session.refresh()
        assert talk.posted() == []
        talk.session.on_writable()
        assert talk.posted() == [b"TEXT 1\r\nx\r\n"]

    def test_nor_when_what_waited_fills_its_connection_again(self, talk: Talk) -> None:
        talk.say(b"x")
        talk.posted()
        talk.session.on_blocked()
        talk.answer(b"TEXT 1\r\ny\r\n")
        talk.say(b"z")
        talk.session.transport.on_write = talk.session.on_blocked
        talk.session.on_writable()
        assert talk.posted() == []
        talk.session.on_writable()
        assert talk.posted() == [b"TEXT 1\r\nz\r\n"]

    def test_nor_at_the_interval(self, talk: Talk) -> None:
        talk.session.refresh()
        talk.posted()
        talk.answer(b"", INTERVAL)
        talk.session.on_blocked()
        talk.house.pass_time(31)
        assert talk.posted() == []
        talk.session.on_writable()
        assert talk.posted() == [b""]


class TestClientCloses:
    def close(self, talk: Talk) -> None:
        talk.session.client_close(4001, b"bye")

    def test_and_the_backend_answers(self, talk: Talk) -> None:
        self.close(talk)
        assert talk.posted() == [CLOSED]
        assert talk.heard() == []
        talk.answer(b"TEXT 4\r\nlast\r\nCLOSE 2\r\n\x0f\xa2\r\nTEXT 1\r\nx\r\n")
        assert talk.heard() == [(TEXT, b"last"), (CLOSE, b"\x0f\xa2"), "end"]
        assert talk.posted() == []

    def test_behind_what_it_said(self, talk: Talk) -> None:
        talk.say(b"1", b"2")
        self.close(talk)
        talk.posted()
        talk.answer()
        assert talk.posted() == [b"TEXT 1\r\n2\r\n" + CLOSED]

    def test_without_a_code(self, talk: Talk) -> None:
        talk.session.client_close(None, b"")
        assert talk.posted() == [b"CLOSE\r\n"]

    def test_and_the_backend_does_not_answer(self, talk: Talk) -> None:
        self.close(talk)
        talk.answer(b"TEXT 1\r\nx\r\n")
        assert talk.heard() == [(TEXT, b"x"), ("drop", "the backend does not answer a close")]

    def test_and_the_backend_wants_more_that_cannot_come(self, talk: Talk) -> None:
        talk.say(b"abc")
        talk.answer(b"", (ACCEPTED, b"0"))
        self.close(talk)
        talk.answer(b"", (ACCEPTED, b"0"))
        assert talk.heard() == [("drop", "the backend does not answer a close")]

    def test_and_the_backend_answers_at_the_interval(self, talk: Talk) -> None:
        self.close(talk)
        talk.posted()
        talk.answer(b"", INTERVAL)
        talk.house.pass_time(31)
        assert talk.posted() == [b""]
        talk.answer(b"CLOSE\r\n")
        assert talk.heard() == [(CLOSE, b""), "end"]
        talk.house.pass_time(100)
        assert talk.posted() == []

    def test_while_the_backend_does(self, talk: Talk) -> None:
        talk.say(b"1")
        talk.posted()
        self.close(talk)
        talk.answer(b"CLOSE 2\r\n\x03\xe8\r\n")
        assert talk.heard() == [(CLOSE, b"\x03\xe8"), "end"]
        assert talk.posted() == [CLOSED]
        talk.answer()
        assert talk.heard() == []


class TestBackendCloses:
    def test_and_is_told_what_the_client_answers(self, talk: Talk) -> None:
        talk.say(b"1")
        talk.posted()
        talk.answer(CLOSED + b"TEXT 1\r\nx\r\n")
        assert talk.heard() == [(CLOSE, BYE)]
        assert talk.posted() == []
        talk.session.client_close(4001, b"bye")
        assert talk.heard() == ["end"]
        assert talk.posted() == [CLOSED]
        talk.answer()
        assert talk.heard() == []

    def test_and_is_not_asked_any_more_after_that(self, talk: Talk) -> None:
        talk.say(b"1")
        talk.answer(CLOSED, INTERVAL)
        talk.session.client_close(4001, b"bye")
        talk.posted()
        talk.answer()
        talk.house.pass_time(100)
        assert talk.posted() == []
        assert len(talk.house.wheel) == 0

    def test_and_the_client_never_answers(self, talk: Talk) -> None:
        talk.say(b"1")
        talk.posted()
        talk.answer(CLOSED)
        talk.house.pass_time(CLOSE_TIMEOUT + 0.1)
        assert talk.heard() == [(CLOSE, BYE), ("drop", "the client does not answer a close")]
        assert talk.posted() == [DISCONNECT]

    def test_with_a_code_that_may_not_be_sent(self, talk: Talk) -> None:
        talk.say(b"1")
        talk.answer(b"CLOSE 2\r\n\0\0\r\n")
        assert talk.heard() == [(CLOSE, b"")]


class TestPublisherCloses:
    def closed(self, talk: Talk) -> None:
        talk.session.control(Subscribe(b"ch", (), None))
        talk.house.confirm()
        talk.house.publish(Item(b"ch", message=MessageFormat("close", code=4001, reason=b"bye")))
        assert talk.heard() == [(CLOSE, BYE)]

    def test_and_both_sides_hear_of_it(self, talk: Talk) -> None:
        self.closed(talk)
        assert talk.posted() == [b"CLOSE\r\n"]
        talk.session.client_close(4001, b"bye")
        assert talk.heard() == ["end"]
        talk.answer(b"CLOSE\r\nTEXT 1\r\nx\r\n")
        assert talk.posted() == []
        assert talk.heard() == []

    def test_behind_what_the_client_said(self, talk: Talk) -> None:
        talk.say(b"1", b"2")
        talk.posted()
        self.closed(talk)
        talk.answer(b"TEXT 1\r\nx\r\n")
        assert talk.posted() == [b"TEXT 1\r\n2\r\nCLOSE\r\n"]
        assert talk.heard() == []

    def test_and_the_client_is_read_for_its_answer(self, talk: Talk) -> None:
        talk.say(b"-", b"x" * 200_000)
        self.closed(talk)
        assert talk.client.reading == [False, True]


class TestDetach:
    def test_the_backend_is_closed_and_the_client_stays(self, talk: Talk) -> None:
        talk.session.control(Subscribe(b"ch", (), None))
        talk.house.confirm()
        talk.session.control(Detach())
        assert talk.posted() == [b"CLOSE\r\n"]
        talk.answer(b"TEXT 1\r\nx\r\nCLOSE\r\n")
        talk.say(b"into the void")
        talk.session.client_ping(b"?")
        talk.house.publish(message(b"news"))
        assert talk.heard() == [(PONG, b"?"), (TEXT, b"news")]
        talk.session.client_close(1000, b"")
        assert talk.heard() == [(CLOSE, b"\x03\xe8"), "end"]
        assert talk.posted() == []

    @pytest.mark.parametrize("code", [200, 404])
    def test_how_the_backend_takes_it_does_not_matter(self, talk: Talk, code: int) -> None:
        talk.session.control(Detach())
        talk.answer_with(Response(code, b"", [], b"whatever"))
        assert talk.heard() == []

    def test_that_the_backend_is_gone_does_not_matter(self, talk: Talk) -> None:
        talk.session.control(Detach())
        talk.posted()
        talk.fail(False, "reset")
        talk.house.pass_time(100)
        assert talk.heard() == []
        assert talk.posted() == []

    def test_nothing_is_asked_for_a_client_that_is_gone(self, talk: Talk) -> None:
        talk.say(b"abc")
        talk.answer(b"", (ACCEPTED, b"0"), INTERVAL)
        talk.posted()
        talk.session.control(Detach())
        talk.posted()
        talk.answer(b"", (ACCEPTED, b"0"))
        talk.session.client_lost()
        talk.house.pass_time(100)
        assert talk.posted() == []


class TestClientVanishes:
    def test_the_backend_is_told(self, talk: Talk) -> None:
        talk.session.client_lost()
        assert talk.posted() == [DISCONNECT]
        talk.answer(b"TEXT 1\r\nx\r\n", INTERVAL)
        talk.house.pass_time(100)
        assert talk.posted() == []
        assert talk.heard() == []

    def test_after_the_request_in_flight_and_alone(self, talk: Talk) -> None:
        talk.say(b"1", b"2")
        talk.posted()
        talk.session.client_lost()
        assert talk.posted() == []
        talk.answer(b"TEXT 1\r\nx\r\n")
        assert talk.posted() == [DISCONNECT]
        assert talk.heard() == []

    def test_also_if_that_fails(self, talk: Talk) -> None:
        talk.say(b"1")
        talk.posted()
        talk.session.client_lost()
        talk.fail(True, "refused")
        assert talk.posted() == [DISCONNECT]
        talk.fail(True, "refused")
        talk.house.pass_time(100)
        assert talk.posted() == []

    def test_after_its_close_there_is_nothing_to_tell(self, talk: Talk) -> None:
        talk.session.client_close(1000, b"")
        talk.posted()
        talk.session.client_lost()
        talk.answer(b"CLOSE\r\n")
        assert talk.posted() == []
        assert talk.heard() == []

    def test_no_more_empty_requests(self, talk: Talk) -> None:
        talk.session.refresh()
        talk.answer(b"", INTERVAL)
        talk.posted()
        talk.session.client_lost()
        talk.posted()
        talk.house.pass_time(100)
        assert talk.posted() == []
        assert len(talk.house.wheel) == 0


def test_the_opening_answer_may_carry_more(talk: Talk) -> None:
    talk.leg.opened([], [EVENTS, INTERVAL, (b"Set-Meta-User", b"me")])
    talk.house.pass_time(31)
    assert talk.requests == [(b"", 0, [(b"User", b"me")])]


class TestLongResponses:
    """A response of many events is read and passed on in several turns of the loop."""

    @pytest.fixture
    def talk(self) -> Talk:
        """Return a conversation with a request under way whose client takes a millisecond for each message."""
        talk = Talk()
        transport, clock = talk.client.transport, talk.house.clock

        def slow() -> None:
            clock.now += 0.001
            transport.on_write = slow

        transport.on_write = slow
        talk.say(b"request")
        talk.posted()
        return talk

    def test_other_work_has_its_turn(self, talk: Talk) -> None:
        talk.answer(b"TEXT 1\r\nx\r\n" * 100)
        counts = [len(talk.heard())]
        while talk.house.turns.run():
            counts.append(len(talk.heard()))
        assert sum(counts) == 100
        # A check of the clock after each 16 messages, and 5 ms a turn.
        assert max(counts) <= 32
        assert talk.posted() == []

    def test_the_next_request_waits_for_the_last_event(self, talk: Talk) -> None:
        talk.answer(b"TEXT 1\r\nx\r\n" * 100)
        talk.say(b"next")
        assert talk.posted() == []
        talk.house.turns.run_all()
        assert len(talk.heard()) == 100
        assert talk.posted() == [b"TEXT 4\r\nnext\r\n"]

    def test_reading_takes_turns_too(self, talk: Talk) -> None:
        talk.answer(b"PONG\r\n" * (READ_MAX + 1) + b"TEXT 4\r\nlast\r\n")
        assert talk.heard() == []
        talk.house.turns.run_all()
        assert (TEXT, b"last") in talk.heard()

    def test_a_long_opening(self) -> None:
        talk = Talk()
        talk.leg.opened([Event(b"TEXT", b"x")] * 100, [EVENTS])
        talk.house.turns.run_all()
        assert talk.heard() == [(TEXT, b"x")] * 100
        assert talk.posted() == []

    def test_an_opening_that_is_closed_at_once(self) -> None:
        talk = Talk()
        talk.leg.opened([Event(b"CLOSE", BYE)], [EVENTS, (b"Keep-Alive-Interval", b"20")])
        assert talk.heard() == [(CLOSE, BYE)]
        assert talk.posted() == []

    def test_nothing_of_a_malformed_response_is_passed_on(self, talk: Talk) -> None:
        talk.answer(b"TEXT 1\r\nx\r\n" * (READ_MAX + 1) + b"TEXT")
        talk.house.turns.run_all()
        assert len(talk.spoilt) == 1
        assert b"\x81\x01x" not in talk.client.transport.sent

    @pytest.mark.parametrize("count", [100, READ_MAX + 1])
    def test_a_client_that_leaves_meanwhile_gets_no_more(self, talk: Talk, count: int) -> None:
        talk.answer(b"TEXT 1\r\nx\r\n" * count)
        talk.session.client_lost()
        got = len(talk.heard())
        assert talk.posted() == []
        talk.house.turns.run_all()
        assert len(talk.heard()) == 0
        assert got < count
        assert talk.posted() == [DISCONNECT]

    def test_events_behind_a_close_are_not_read_in_later_turns(self, talk: Talk) -> None:
        talk.answer(b"TEXT 1\r\nx\r\n" * 50 + CLOSED + b"TEXT 1\r\ny\r\n" * 50)
        talk.house.turns.run_all()
        assert b"\x81\x01y" not in talk.client.transport.sent
        assert talk.client.transport.sent.endswith(b"\x88\x05" + BYE)

    def test_a_defect_ends_the_session_only(self, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail() -> None:
            raise RuntimeError("defect")

        failures: list[tuple[object, Exception]] = []
        monkeypatch.setattr(talk.house.table, "failed", lambda *failure: failures.append(failure))
        talk.answer(b"TEXT 1\r\nx\r\n" * 50)
        monkeypatch.setattr(talk.client, "relayed", fail)
        talk.house.turns.run_all()
        [(session, error)] = failures
        assert session is talk.session
        assert str(error) == "defect"


class TestMoreEvents:
    """``More-Events: true``: the backend has more than one response takes."""

    MORE = (b"More-Events", b"true")

    def test_the_next_request_is_sent_at_once(self, talk: Talk) -> None:
        talk.say(b"begin")
        talk.posted()
        for number in range(3):
            talk.answer(b"TEXT 1\r\n%d\r\n" % number, self.MORE)
            assert talk.posted() == [b""]
        talk.answer(b"TEXT 4\r\nlast\r\n")
        assert talk.posted() == []
        assert talk.heard() == [(TEXT, b"0"), (TEXT, b"1"), (TEXT, b"2"), (TEXT, b"last")]

    def test_it_carries_what_the_client_has_sent(self, talk: Talk) -> None:
        talk.say(b"begin", b"next")
        talk.posted()
        talk.answer(b"TEXT 1\r\nx\r\n", self.MORE)
        assert talk.posted() == [b"TEXT 4\r\nnext\r\n"]
        talk.answer()
        assert talk.posted() == []

    def test_after_the_opening(self, talk: Talk) -> None:
        talk.leg.opened([Event(b"TEXT", b"first")], [EVENTS, self.MORE])
        assert talk.posted() == [b""]

    def test_an_answer_without_events_asks_for_nothing(self, talk: Talk) -> None:
        talk.say(b"begin")
        talk.posted()
        talk.answer(b"", self.MORE, INTERVAL)
        assert talk.posted() == []
        talk.house.pass_time(31)
        assert talk.posted() == [b""]

    def test_it_waits_until_the_client_reads(self, talk: Talk) -> None:
        talk.say(b"begin")
        talk.posted()
        talk.leg.flow(False)
        talk.answer(b"TEXT 1\r\nx\r\n", self.MORE)
        assert talk.posted() == []
        talk.leg.flow(True)
        assert talk.posted() == [b""]

    def test_a_client_that_has_left_gets_no_more(self, talk: Talk) -> None:
        talk.say(b"begin")
        talk.posted()
        talk.session.client_lost()
        talk.answer(b"TEXT 1\r\nx\r\n", self.MORE)
        assert talk.posted() == [DISCONNECT]


class TestAfterTheEnd:
    """Calls of a session that is about to end."""

    def test_a_dead_leg_takes_nothing(self, talk: Talk) -> None:
        talk.leg.client_lost()
        assert talk.posted() == [DISCONNECT]
        talk.leg.data(TEXT, b"late", True, True)
        talk.leg.ping(b"late")
        talk.leg.client_lost()
        talk.leg.refresh()
        talk.answer(b"TEXT 1\r\nx\r\n")
        assert talk.posted() == []

    def test_the_rest_of_a_message_without_its_beginning(self, talk: Talk) -> None:
        talk.leg.data(TEXT, b"rest", False, True)
        assert talk.posted() == []
        talk.say(b"whole")
        assert talk.posted() == [b"TEXT 5\r\nwhole\r\n"]

    def test_a_close_in_the_first_part_of_a_long_response(self, talk: Talk) -> None:
        talk.say(b"request")
        talk.posted()
        talk.answer(CLOSED + b"TEXT 1\r\nx\r\n" * 50)
        assert talk.heard() == [(CLOSE, BYE)]
        assert talk.house.turns.waiting == []

    def test_a_failure_of_the_last_request_does_not_matter(self, talk: Talk) -> None:
        talk.leg.client_lost()
        talk.posted()
        talk.fail(True, "away")
        talk.house.pass_time(60)
        assert talk.posted() == []
