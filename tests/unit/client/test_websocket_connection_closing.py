"""Ends of WebSockets where one side does not read: nobody stays unread or half closed because of the other."""

from __future__ import annotations

import pytest

from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.frames import BINARY, CLOSE, PING, TEXT, serialise
from tests.support.sockets import Talk

DETACH = serialise(TEXT, b'c:{"type":"detach"}')


@pytest.fixture
def direct() -> Talk:
    return Talk()


@pytest.fixture
def over_http() -> Talk:
    return Talk(over_http=True)


def subscribe(talk: Talk) -> bytes:
    return serialise(TEXT, b'c:{"type":"subscribe","channel":"ch"}')


class TestDirectBackendThatDoesNotRead:
    def test_stops_its_client(self, direct: Talk) -> None:
        direct.backend_blocks()
        assert not direct.client.reading
        direct.backend_blocks(False)
        assert direct.client.reading

    def test_its_close_is_answered_by_the_client(self, direct: Talk) -> None:
        direct.says(TEXT, b"beginning", fin=False)
        direct.backend_blocks()
        direct.backend.take()
        direct.backend_says(serialise(CLOSE, close_payload(1009)))
        assert direct.heard() == [(CLOSE, close_payload(1009))]
        # The answer is behind what the client was sending.
        direct.says(0, b"middle", fin=False)
        direct.says(PING, b"?")
        direct.backend_blocks(False)
        direct.says(0, b"end")
        assert direct.backend_heard() == []
        direct.says(CLOSE, close_payload(1009))
        assert direct.backend_heard() == [(CLOSE, close_payload(1009))]
        assert direct.client.closing
        assert direct.backend.transport.closing

    def test_data_goes_on_to_one_that_has_closed_and_reads(self, direct: Talk) -> None:
        direct.backend_says(serialise(CLOSE, close_payload(1000)))
        direct.says(TEXT, b"last")
        assert direct.backend_heard() == [(TEXT, b"last")]

    def test_is_dropped_if_it_never_takes_the_close(self, direct: Talk) -> None:
        direct.backend_blocks()
        direct.backend_says(serialise(CLOSE, close_payload(1000)))
        direct.says(CLOSE, close_payload(1000))
        assert direct.backend.transport.closing
        assert not direct.backend.transport.aborted
        direct.house.pass_time(11)
        assert direct.backend.transport.aborted

    def test_its_client_is_read_after_detach(self, direct: Talk) -> None:
        direct.backend_blocks()
        direct.backend_says(DETACH)
        direct.says(PING, b"?")
        assert [payload for _, payload in direct.heard()] == [b"?"]

    def test_its_client_is_read_after_a_published_close(self, direct: Talk) -> None:
        direct.backend_says(subscribe(direct))
        direct.backend_blocks()
        direct.publish_close()
        assert direct.heard() == [(CLOSE, close_payload(4000))]
        direct.says(CLOSE, close_payload(4000))
        assert direct.client.closing

    def test_its_client_is_dropped_after_its_mistake(self, direct: Talk) -> None:
        direct.backend_blocks()
        direct.backend_says(b"\xf1\x00")
        assert direct.heard() == []
        assert direct.client.aborted

    def test_its_client_is_read_after_a_message_that_is_too_long(self) -> None:
        direct = Talk(ws_message_max=10)
        direct.backend_blocks()
        direct.backend_says(serialise(TEXT, b"x" * 11))
        [(opcode, payload)] = direct.heard()
        assert (opcode, payload[:2]) == (CLOSE, close_payload(1009))
        direct.says(CLOSE, close_payload(1009))
        assert direct.client.closing


class TestBackendOverHttpThatTakesNoMore:
    def test_its_client_is_read_after_detach(self, over_http: Talk) -> None:
        over_http.fill()
        over_http.answers(b'TEXT 13\r\nc:{"type":"detach"}\r\n')
        over_http.says(PING, b"?")
        assert [payload for _, payload in over_http.heard()] == [b"?"]

    def test_its_client_is_read_after_a_published_close(self, over_http: Talk) -> None:
        over_http.says(BINARY, b"first")
        over_http.backend.take()
        over_http.answers(b'TEXT 25\r\nc:{"type":"subscribe","channel":"ch"}\r\n')
        over_http.fill()
        over_http.publish_close()
        assert over_http.heard() == [(CLOSE, close_payload(4000))]
        over_http.says(CLOSE, close_payload(4000))
        assert over_http.client.closing

    def test_its_client_is_read_after_its_close(self, over_http: Talk) -> None:
        over_http.fill()
        over_http.answers(b"")
        assert over_http.client.reading is False
        over_http.answers(b"CLOSE 2\r\n\x03\xe8\r\n")
        assert over_http.heard() == [(CLOSE, close_payload(1000))]
        over_http.says(CLOSE, close_payload(1000))
        assert b"\r\n\r\nCLOSE 2\r\n\x03\xe8\r\n" in over_http.backend.take()


def test_a_message_in_single_bytes(over_http: Talk) -> None:
    over_http.says(TEXT, b"a", fin=False)
    for letter in b"bcd":
        over_http.says(0, bytes((letter,)), fin=False)
    over_http.says(0, b"")
    assert over_http.backend.take().endswith(b"\r\n\r\nTEXT 4\r\nabcd\r\n")


class TestClientThatDoesNotRead:
    def test_is_dropped_if_it_never_takes_the_close(self, direct: Talk) -> None:
        direct.client.protocol.pause_writing()
        direct.says(CLOSE, close_payload(1000))
        direct.backend_says(serialise(CLOSE, close_payload(1000)))
        assert not direct.client.closing
        direct.house.pass_time(11)
        assert direct.client.aborted

    def test_is_dropped_if_the_last_bytes_stay(self, direct: Talk) -> None:
        direct.client.buffered = 1
        direct.says(CLOSE, close_payload(1000))
        direct.backend_says(serialise(CLOSE, close_payload(1000)))
        assert direct.client.closing
        assert not direct.client.aborted
        direct.house.pass_time(11)
        assert direct.client.aborted


class TestClientThatBreaksTheProtocol:
    def test_says_nothing_any_more(self, direct: Talk) -> None:
        direct.client.protocol.pause_writing()
        direct.says(0, b"continues nothing")
        assert [opcode for opcode, _ in direct.backend_heard()] == [CLOSE]
        direct.says(TEXT, b"more")
        assert direct.backend_heard() == []
        direct.client.protocol.resume_writing()
        assert [opcode for opcode, _ in direct.heard()] == [CLOSE]
        assert direct.client.eof_written

    def test_in_its_answer_to_a_close_leaves_nobody_behind(self, direct: Talk) -> None:
        direct.backend_says(serialise(CLOSE, close_payload(1000)))
        direct.says(CLOSE, b"\x03")
        assert direct.client.aborted
        assert direct.backend.transport.aborted
