"""Posting events: one request on a backend connection, its answer, the ways it fails."""

from __future__ import annotations

import pytest

from gripproxy.backend import event_poster
from gripproxy.backend.event_poster import RESPONSE_MAX
from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.frames import CLOSE, TEXT, serialise
from gripproxy.grip.item import Item, MessageFormat
from tests.support.sockets import EVENTS, GRIP, HANDSHAKE, Talk

ONE = b"TEXT 3\r\none\r\n"


@pytest.fixture
def talk() -> Talk:
    return Talk(over_http=True)


def body(request: bytes) -> bytes:
    return request.partition(b"\r\n\r\n")[2]


class TestRequests:
    def test_use_the_connection_that_is_there(self, talk: Talk) -> None:
        talk.says(TEXT, b"one")
        assert body(talk.backend.take()) == ONE
        assert len(talk.house.worker.context.posting) == 1
        talk.answers(b"TEXT 4\r\nm:hi\r\n")
        assert talk.heard() == [(TEXT, b"hi")]
        assert talk.backend.free
        assert len(talk.house.worker.context.posting) == 0

    def test_say_what_is_offered_again(self, talk: Talk) -> None:
        talk.says(TEXT, b"one")
        assert b"Content-Bytes-Replayed" not in talk.backend.take()
        talk.answers(b"", b"Content-Bytes-Accepted: 1\r\n")
        talk.says(TEXT, b"two")
        request = talk.backend.take()
        assert b"\r\nContent-Bytes-Replayed: 2\r\n" in request
        assert body(request) == b"TEXT 2\r\nne\r\nTEXT 3\r\ntwo\r\n"

    def test_ask_for_what_the_client_missed(self, talk: Talk) -> None:
        talk.says(TEXT, b"one")
        talk.backend.take()
        subscribe = b'c:{"type":"subscribe","channel":"ch","prev-id":"some id"}'
        talk.answers(b"TEXT %x\r\n%b\r\n" % (len(subscribe), subscribe))
        talk.house.confirm()
        talk.house.publish(Item(b"ch", message=MessageFormat("hint")))
        request = talk.backend.take()
        assert b"\r\nGrip-Last: ch; last-id=some id\r\n" in request
        assert b"\r\nContent-Length: 0\r\n" in request
        assert body(request) == b""
        talk.says(TEXT, b"two")
        talk.answers(b"")
        assert b"Grip-Last" not in talk.backend.take()

    def test_are_signed_anew_each_time_and_keep_the_clients_headers(self, talk: Talk) -> None:
        talk.says(TEXT, b"one")
        request = talk.backend.take()
        assert request.startswith(b"POST /path HTTP/1.1\r\n")
        assert b"\r\nHost: example\r\n" in request
        assert b"\r\nGrip-Feature: " in request
        assert b"\r\nContent-Length: 13\r\n" in request


class TestAnswers:
    def test_in_pieces(self, talk: Talk) -> None:
        talk.says(TEXT, b"one")
        talk.backend.says(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n")
        talk.backend.says(b"Content-Type: application/websocket-events\r\n\r\n5\r\nTEXT \r\n")
        talk.backend.says(b"6\r\n3\r\nm:x\r\n")
        assert talk.heard() == []
        talk.backend.says(b"2\r\n\r\n\r\n0\r\n\r\n")
        assert talk.heard() == [(TEXT, b"x")]

    @pytest.mark.parametrize("size", [RESPONSE_MAX, RESPONSE_MAX + 1])
    def test_have_a_bound(self, talk: Talk, size: int) -> None:
        talk.says(TEXT, b"one")
        talk.backend.says(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n" % (EVENTS, size))
        for start in range(0, size, 100_000):
            if not talk.backend.transport.closing:
                talk.backend.says((b"XX\r\n" * 25_000)[: min(100_000, size - start)])
        assert talk.client.aborted == (size > RESPONSE_MAX)
        assert talk.backend.transport.aborted == (size > RESPONSE_MAX)

    def test_that_are_late_end_it(self) -> None:
        talk = Talk(over_http=True, response_timeout=5)
        talk.says(TEXT, b"one")
        talk.house.pass_time(8)
        assert talk.backend.transport.aborted
        assert talk.client.aborted
        assert len(talk.house.worker.context.posting) == 0


class TestAnswersInAll:
    """Answers that are not complete are bounded together."""

    BEGUN = b"HTTP/1.1 200 OK\r\n%bContent-Length: 500000\r\n\r\n" % EVENTS

    def test_the_largest_is_given_up(self, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(event_poster, "ANSWERS_MAX", 300_000)
        posting = talk.house.worker.context.posting
        talk.says(TEXT, b"one")
        other = talk.house.browser().says(HANDSHAKE).transport
        behind = talk.house.pool.connect()
        behind.take()
        behind.says(b"HTTP/1.1 200 OK\r\n%b%bContent-Length: 6\r\n\r\nOPEN\r\n" % (EVENTS, GRIP))
        other.take()
        other.protocol.data_received(serialise(TEXT, b"one", mask=True))
        talk.backend.says(self.BEGUN + b"." * 200_000)
        behind.says(self.BEGUN + b"." * 90_000)
        assert posting.size == 290_000 + 2 * event_poster.PIECE_COST
        behind.says(b"." * 20_000)
        assert talk.client.aborted
        assert talk.backend.transport.aborted
        assert not other.aborted
        assert posting.size == 110_000 + 2 * event_poster.PIECE_COST
        behind.leaves()
        assert other.aborted
        assert posting.size == 0

    def test_pieces_of_one_byte_count_for_more(self, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(event_poster, "ANSWERS_MAX", 100 * event_poster.PIECE_COST)
        talk.says(TEXT, b"one")
        talk.backend.says(b"HTTP/1.1 200 OK\r\n%bTransfer-Encoding: chunked\r\n\r\n" % EVENTS)
        talk.backend.says(b"1\r\n.\r\n" * 90)
        assert not talk.client.aborted
        talk.backend.says(b"1\r\n.\r\n" * 10)
        assert talk.client.aborted

    def test_what_is_complete_is_not_counted(self, talk: Talk) -> None:
        talk.says(TEXT, b"one")
        talk.backend.says(self.BEGUN + b"TEXT 7a112\r\nm:" + b"." * 100_000)
        assert talk.house.worker.context.posting.size > 100_000
        talk.backend.says(b"." * 399_984 + b"\r\n")
        assert talk.house.worker.context.posting.size == 0
        assert not talk.client.aborted


class TestFailures:
    def test_no_connection_is_tried_again(self, talk: Talk) -> None:
        talk.backend.leaves()
        talk.says(TEXT, b"one")
        talk.house.pool.refuse()
        assert not talk.client.closing
        talk.house.pass_time(2.5)  # a second, up to one more, and what the wheel rounds
        assert body(talk.house.pool.connect().take()) == ONE

    def test_an_idle_connection_that_ends_just_then_is_replaced(self, talk: Talk) -> None:
        talk.says(TEXT, b"one")
        talk.backend.leaves()
        again = talk.house.pool.connect()
        assert body(again.take()) == ONE
        # Not for ever.
        again.leaves()
        assert talk.client.aborted

    def test_one_that_breaks_in_the_middle_of_its_answer_is_the_end(self, talk: Talk) -> None:
        talk.says(TEXT, b"one")
        talk.backend.says(b"HTTP/1.1 200 OK\r\n")
        talk.backend.leaves()
        assert talk.house.pool.wanted == []
        assert talk.client.aborted


class TestEnds:
    def test_a_client_that_vanishes_is_reported_when_the_answer_is_there(self, talk: Talk) -> None:
        talk.says(TEXT, b"one")
        talk.backend.take()
        talk.client.lose()
        assert talk.backend.take() == b""
        talk.answers(b"")
        assert body(talk.backend.take()) == b"DISCONNECT\r\n"
        talk.answers(b"")
        assert talk.backend.free

    def test_a_close_is_posted_and_its_answer_closes(self, talk: Talk) -> None:
        talk.says(CLOSE, close_payload(1000))
        assert body(talk.backend.take()) == b"CLOSE 2\r\n\x03\xe8\r\n"
        talk.answers(b"CLOSE 2\r\n\x03\xe8\r\n")
        assert talk.heard() == [(CLOSE, close_payload(1000))]
        assert talk.client.closing
        assert not talk.client.aborted
