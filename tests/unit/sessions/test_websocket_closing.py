"""Ends of a WebSocket: closes from its client, its backend and its publishers, in every order; detached backends."""

from __future__ import annotations

import pytest

from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.frames import CLOSE, PONG, TEXT
from gripproxy.grip.item import Item, MessageFormat
from gripproxy.sessions.websocket import CLOSE_TIMEOUT
from tests.support.session_doubles import Socket, message

NORMAL = close_payload(1000)
GONE = close_payload(1001)


@pytest.fixture
def socket() -> Socket:
    return Socket()


class TestClientCloses:
    def test_and_the_backend_answers(self, socket: Socket) -> None:
        socket.subscribed()
        socket.session.client_close(4000, b"bye")
        assert socket.told() == [(CLOSE, close_payload(4000, b"bye"))]
        socket.backend(b"m:last")
        socket.publish(message(b"item"))
        socket.session.backend_close(4001, b"ok")
        assert socket.heard() == [(TEXT, b"last"), (TEXT, b"item"), (CLOSE, close_payload(4001, b"ok")), "end"]
        socket.assert_nothing_is_left()

    def test_twice_is_once(self, socket: Socket) -> None:
        socket.session.client_close(1000, b"")
        socket.session.client_close(1001, b"")
        assert socket.told() == [(CLOSE, NORMAL)]

    def test_and_the_backend_breaks(self, socket: Socket) -> None:
        socket.session.client_close(1000, b"")
        socket.session.backend_lost("reset")
        assert socket.heard() == [("drop", "reset")]

    def test_and_leaves_without_waiting_for_the_answer(self, socket: Socket) -> None:
        socket.session.client_close(1000, b"")
        socket.told()
        socket.session.client_lost()
        socket.session.backend_ping(b"")
        socket.session.backend_close(1000, b"")
        assert socket.told() == []
        assert socket.heard() == []
        socket.assert_nothing_is_left()

    def test_without_a_backend(self, socket: Socket) -> None:
        socket.session.leg = None
        socket.session.client_close(1000, b"")
        assert socket.heard() == [(CLOSE, NORMAL), "end"]

    def test_by_vanishing(self, socket: Socket) -> None:
        socket.subscribed()
        socket.session.client_lost()
        socket.session.client_lost()
        assert socket.told() == ["lost"]
        socket.assert_nothing_is_left()


class TestClientBreaksTheProtocol:
    def test_it_is_told_and_the_backend_too(self, socket: Socket) -> None:
        socket.session.client_failed(1002, "no mask")
        assert socket.heard() == [(CLOSE, close_payload(1002, b"no mask")), "end"]
        assert socket.told() == [(CLOSE, close_payload(1002, b"no mask"))]
        socket.assert_nothing_is_left()

    def test_in_its_answer_to_a_close(self, socket: Socket) -> None:
        socket.session.backend_close(1000, b"")
        socket.session.client_failed(1002, "no mask")
        assert socket.heard() == [(CLOSE, NORMAL), ("drop", "no mask")]
        assert socket.told() == ["lost"]


class TestBackendCloses:
    def test_and_the_client_answers(self, socket: Socket) -> None:
        socket.session.backend_close(4000, b"bye")
        assert socket.heard() == [(CLOSE, close_payload(4000, b"bye"))]
        socket.session.client_data(TEXT, b"on its way", True, True)
        socket.session.client_close(4000, b"bye")
        assert socket.heard() == ["end"]
        assert socket.told() == [(TEXT, b"on its way"), (CLOSE, close_payload(4000, b"bye"))]
        socket.assert_nothing_is_left()

    def test_and_nothing_follows(self, socket: Socket) -> None:
        socket.subscribed()
        socket.backend(b'c:{"type":"keep-alive","content":".","timeout":2}')
        socket.session.backend_close(1000, b"")
        socket.backend(b"m:x")
        socket.session.backend_ping(b"")
        socket.session.backend_pong(b"")
        socket.session.backend_close(1001, b"")
        socket.publish(message(b"x"), Item(b"ch", message=MessageFormat("close")))
        socket.session.drain()
        socket.house.pass_time(5)
        assert socket.heard() == [(CLOSE, NORMAL)]

    def test_and_the_client_never_answers(self, socket: Socket) -> None:
        socket.session.backend_close(1000, b"")
        socket.house.pass_time(CLOSE_TIMEOUT - 0.1)
        assert socket.heard() == [(CLOSE, NORMAL)]
        socket.house.pass_time(0.2)
        assert socket.heard() == [("drop", "the client does not answer a close")]
        assert socket.told() == ["lost"]
        socket.assert_nothing_is_left()

    def test_and_goes_and_the_client_still_answers(self, socket: Socket) -> None:
        socket.session.backend_close(1000, b"")
        socket.session.backend_lost("gone")
        socket.session.client_close(1000, b"")
        assert socket.heard() == [(CLOSE, NORMAL), "end"]
        assert socket.told() == []


class TestPublisherCloses:
    CLOSING = Item(b"ch", message=MessageFormat("close", code=4000, reason=b"bye"))

    def test_and_the_client_answers(self, socket: Socket) -> None:
        socket.subscribed()
        socket.publish(message(b"1"), self.CLOSING, message(b"2"), self.CLOSING)
        assert socket.heard() == [(TEXT, b"1"), (CLOSE, close_payload(4000, b"bye"))]
        assert socket.told() == ["end"]
        socket.session.client_data(TEXT, b"late", True, True)
        socket.session.client_close(4000, b"bye")
        assert socket.heard() == ["end"]
        assert socket.told() == []
        socket.assert_nothing_is_left()

    def test_without_a_code_it_is_1000(self, socket: Socket) -> None:
        socket.subscribed()
        socket.publish(Item(b"ch", message=MessageFormat("close")))
        assert socket.heard() == [(CLOSE, NORMAL)]

    def test_and_the_client_never_answers(self, socket: Socket) -> None:
        socket.subscribed()
        socket.publish(self.CLOSING)
        socket.heard()
        socket.house.pass_time(CLOSE_TIMEOUT + 0.1)
        assert socket.heard() == [("drop", "the client does not answer a close")]
        assert socket.told() == ["end"]

    def test_after_the_client_did(self, socket: Socket) -> None:
        socket.subscribed()
        socket.session.client_close(1000, b"")
        socket.publish(self.CLOSING)
        socket.session.backend_close(1000, b"")
        assert socket.heard() == [(CLOSE, close_payload(4000, b"bye")), "end"]

    def test_the_end_of_the_process_is_a_close_too(self, socket: Socket) -> None:
        socket.session.drain()
        assert socket.heard() == [(CLOSE, GONE)]
        assert socket.told() == ["end"]


class TestDetach:
    @pytest.fixture
    def detached(self, socket: Socket) -> Socket:
        socket.subscribed()
        socket.backend(b'c:{"type":"detach"}')
        socket.backend(b'c:{"type":"detach"}')
        assert socket.told() == ["detach"]
        return socket

    def test_the_client_stays_and_gets_items(self, detached: Socket) -> None:
        detached.publish(message(b"x"))
        assert detached.heard() == [(TEXT, b"x")]

    def test_what_the_client_says_goes_nowhere(self, detached: Socket) -> None:
        detached.session.client_data(TEXT, b"x", True, True)
        detached.session.client_pong(b"")
        detached.session.refresh()
        detached.session.on_blocked()
        detached.session.on_writable()
        assert detached.told() == []

    def test_its_pings_are_answered(self, detached: Socket) -> None:
        detached.session.client_ping(b"?")
        assert detached.heard() == [(PONG, b"?")]

    def test_its_close_is_answered(self, detached: Socket) -> None:
        detached.session.client_close(4000, b"bye")
        assert detached.heard() == [(CLOSE, close_payload(4000, b"bye")), "end"]
        assert detached.told() == []

    def test_nobody_hears_that_it_vanished(self, detached: Socket) -> None:
        detached.session.client_lost()
        assert detached.told() == []

    def test_its_mistakes_are_its_own(self, detached: Socket) -> None:
        detached.session.client_failed(1002, "no mask")
        assert detached.heard() == [(CLOSE, close_payload(1002, b"no mask")), "end"]
        assert detached.told() == []
