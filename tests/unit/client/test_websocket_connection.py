"""A client's WebSocket at the edge: bytes to events, mistakes, compression, what is left of it when it is quiet."""

from __future__ import annotations

import pytest

from gripproxy.client.websocket_connection import WebSocketConnection
from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.frames import BINARY, CLOSE, CONT, PING, TEXT, FrameParser, serialise
from gripproxy.grip.permessage_deflate import frame_shared, negotiate
from gripproxy.sessions.websocket import CLOSE_TIMEOUT
from tests.support.doubles import House, Parsed
from tests.support.sockets import HANDSHAKE, Talk, switching


@pytest.fixture
def talk() -> Talk:
    return Talk()


def client(talk: Talk) -> WebSocketConnection:
    protocol = talk.client.protocol
    assert isinstance(protocol, WebSocketConnection)
    return protocol


class TestFrames:
    def test_cut_anywhere(self, talk: Talk) -> None:
        data = serialise(TEXT, "h\u00e9llo".encode(), mask=True) + serialise(PING, b"?", mask=True)
        for n in range(len(data)):
            client(talk).data_received(data[n : n + 1])
        heard = talk.backend_heard()
        assert b"".join(payload for opcode, payload in heard if opcode != PING) == "h\u00e9llo".encode()
        assert heard[-1] == (PING, b"?")

    def test_a_quiet_one_keeps_neither_parser_nor_assembler(self, talk: Talk) -> None:
        quiet = client(talk)
        talk.says(TEXT, b"a", fin=False)
        assert quiet._assembler is not None
        talk.says(CONT, b"b")
        assert [quiet._parser, quiet._assembler] == [None, None]
        quiet.data_received(serialise(TEXT, b"abc", mask=True)[:3])
        assert quiet._parser is not None

    @pytest.mark.parametrize(
        ("data", "code"),
        [
            (serialise(TEXT, b"x"), 1002),
            (serialise(CONT, b"x", mask=True), 1002),
            (serialise(TEXT, b"x", rsv1=True, mask=True), 1002),
            (serialise(3, b"x", mask=True), 1002),
            (serialise(TEXT, b"\xff", mask=True), 1007),
            (serialise(CLOSE, b"\x03", mask=True), 1002),
        ],
        ids=["unmasked", "nothing to go on", "reserved bit", "unknown opcode", "not UTF-8", "half a close code"],
    )
    def test_that_are_wrong_are_answered_with_a_close(self, talk: Talk, data: bytes, code: int) -> None:
        client(talk).data_received(serialise(TEXT, b"good", mask=True) + data + serialise(TEXT, b"late", mask=True))
        [(opcode, payload)] = talk.heard()
        assert (opcode, payload[:2]) == (CLOSE, close_payload(code))
        good, (opcode, payload) = talk.backend_heard()
        assert good == (TEXT, b"good")
        assert (opcode, payload[:2]) == (CLOSE, close_payload(code))
        assert talk.client.eof_written
        assert talk.house.worker.events.bad == 1

    def test_what_comes_behind_a_mistake_is_thrown_away_until_the_client_closes(self, talk: Talk) -> None:
        """Closing with unread input would reset the connection, and the client might never see why."""
        talk.client.reading = False  # as when the backend is slow
        client(talk).data_received(serialise(3, b"x", mask=True))
        assert talk.client.reading
        assert talk.client.eof_written
        assert not talk.client.closing
        talk.heard()
        client(talk).data_received(b"x" * 1000)
        assert talk.heard() == []
        assert client(talk).eof_received() is False  # it is closed with that

    def test_a_client_that_goes_on_and_on_is_cut_off(self, talk: Talk) -> None:
        client(talk).data_received(serialise(3, b"x", mask=True))
        talk.house.pass_time(CLOSE_TIMEOUT + 2)
        assert talk.client.aborted

    @pytest.mark.parametrize(("size", "fine"), [(1000, True), (1001, False)])
    def test_a_message_has_a_bound(self, size: int, fine: bool) -> None:
        talk = Talk(ws_message_max=1000)
        talk.says(BINARY, b"x" * 500, fin=False)
        talk.says(CONT, b"x" * (size - 500))
        heard = talk.heard()
        assert heard == [] if fine else heard[0][1][:2] == close_payload(1009)


class TestCompression:
    @pytest.mark.parametrize("pieces", [1, 3])
    def test_of_the_clients_messages_ends_here(self, pieces: int) -> None:
        house = House(allow_compression=True)
        offer = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
        browser = house.browser().says(HANDSHAKE[:-2] + offer + b"\r\n")
        backend = house.pool.connect()
        backend.says(switching(backend.take()))
        agreed = negotiate(Parsed(browser.take()).get(b"Sec-WebSocket-Extensions") or b"")
        assert agreed is not None
        [frame] = FrameParser(False, 10_000, True).feed(frame_shared(TEXT, b"hello " * 50, agreed[1]))
        assert frame.rsv1
        data = serialise(TEXT, frame.payload, mask=True, rsv1=True)
        size = -(-len(data) // pieces)
        for n in range(pieces):
            browser.transport.protocol.data_received(data[n * size : (n + 1) * size])
        got = FrameParser(True, 10_000).feed(backend.take())
        assert b"".join(frame.payload for frame in got) == b"hello " * 50
        assert browser.transport.protocol._inflater is None


class TestEnds:
    def test_nothing_is_heard_behind_a_close(self, talk: Talk) -> None:
        client(talk).data_received(serialise(CLOSE, b"", mask=True) + serialise(TEXT, b"late", mask=True))
        talk.says(TEXT, b"later")
        assert talk.backend_heard() == [(CLOSE, b"")]

    def test_the_end_of_its_stream_is_the_end(self, talk: Talk) -> None:
        assert not client(talk).eof_received()

    def test_a_slow_one_is_cut_off_and_counted(self) -> None:
        talk = Talk(stream_buffer_max=100)
        talk.backend_says(serialise(TEXT, b'c:{"type":"subscribe","channel":"ch"}'))
        talk.backend_says(serialise(TEXT, b"m:" + b"x" * 101))
        assert talk.client.aborted
        assert talk.house.worker.events.slow == 1
        assert talk.backend.transport.aborted

    def test_reading_is_asked_for_only_of_an_open_one(self, talk: Talk) -> None:
        client(talk).read(False)
        assert not talk.client.reading
        talk.client.close()
        client(talk).read(True)
        assert not talk.client.reading
