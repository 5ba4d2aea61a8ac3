"""A backend that speaks WebSocket: frames in and out, back-pressure, its mistakes.

Closes where one side does not read are in test_websocket_closing.
"""

from __future__ import annotations

import pytest

from gripproxy.backend.websocket_leg import CLOSE_TIMEOUT
from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.frames import BINARY, CLOSE, CONT, PING, PONG, TEXT, FrameParser, serialise
from tests.support.sockets import Talk


@pytest.fixture
def talk() -> Talk:
    return Talk()


class TestFrames:
    def test_from_the_client_are_masked_and_otherwise_as_they_came(self, talk: Talk) -> None:
        talk.says(TEXT, b"a", fin=False)
        talk.says(PING, b"?")
        talk.says(CONT, b"b")
        talk.says(PONG, b"!")
        data = talk.backend.take()
        frames = [(f.opcode, f.payload, f.fin) for f in FrameParser(True, 1000).feed(data)]
        assert frames == [(TEXT, b"a", False), (PING, b"?", True), (CONT, b"b", True), (PONG, b"!", True)]

    def test_from_the_backend(self, talk: Talk) -> None:
        talk.backend_says(serialise(TEXT, b"m:a", fin=False) + serialise(PING, b"?"))
        talk.backend_says(serialise(CONT, b"b") + serialise(PONG, b"!") + serialise(BINARY, b"m:c"))
        assert talk.heard() == [(TEXT, b"a"), (PING, b"?"), (CONT, b"b"), (PONG, b"!"), (BINARY, b"c")]

    def test_cut_anywhere(self, talk: Talk) -> None:
        data = serialise(TEXT, b"m:hello") + serialise(PING, b"?") + serialise(TEXT, b"m:again")
        for n in range(len(data)):
            talk.backend_says(data[n : n + 1])
        heard = talk.heard()
        assert heard == [(TEXT, b"hello"), (PING, b"?"), (TEXT, b"again")]

    @pytest.mark.parametrize(
        ("data", "code"),
        [
            (serialise(TEXT, b"m:x", mask=True), 1002),
            (serialise(CONT, b"x"), 1002),
            (b"\xc1\x01x", 1002),
            (serialise(TEXT, b"m:\xff"), 1007),
            (serialise(CLOSE, b"\x03"), 1002),
        ],
        ids=["masked", "nothing to go on", "reserved bit", "not UTF-8", "half a close code"],
    )
    def test_that_are_wrong_end_both_sides_and_the_client_is_not_accused(
        self, talk: Talk, data: bytes, code: int
    ) -> None:
        talk.backend_says(serialise(TEXT, b"m:before") + data)
        assert talk.heard() == [(TEXT, b"before")]
        assert talk.client.aborted
        [(opcode, payload)] = talk.backend_heard()
        assert (opcode, payload[:2]) == (CLOSE, close_payload(code))
        assert talk.backend.transport.closing

    def test_a_message_that_is_too_long(self) -> None:
        talk = Talk(ws_message_max=1000)
        talk.backend_says(serialise(TEXT, b"m:" + b"x" * 999))
        [(opcode, payload)] = talk.heard()
        assert (opcode, payload[:2]) == (CLOSE, close_payload(1009))
        assert not talk.client.aborted


class TestBackPressure:
    def test_the_backend_is_read_as_fast_as_the_client_reads(self, talk: Talk) -> None:
        talk.client.protocol.pause_writing()
        assert not talk.backend.transport.reading
        talk.client.protocol.resume_writing()
        assert talk.backend.transport.reading

    def test_the_client_is_read_as_fast_as_the_backend_reads(self, talk: Talk) -> None:
        talk.backend_blocks()
        assert not talk.client.reading
        talk.backend_blocks(False)
        assert talk.client.reading


class TestEnds:
    def test_a_client_that_vanishes_takes_the_backend_with_it(self, talk: Talk) -> None:
        talk.client.lose()
        assert talk.backend.transport.aborted
        assert talk.house.worker.registry.sockets == {}
        assert talk.house.worker.registry.connections == 0

    def test_a_backend_that_vanishes_takes_the_client_with_it(self, talk: Talk) -> None:
        talk.backend.leaves()
        assert talk.client.aborted

    def test_a_backend_that_vanishes_after_its_close_does_not(self, talk: Talk) -> None:
        talk.backend_says(serialise(CLOSE, close_payload(1000)))
        talk.backend.leaves()
        talk.heard()
        talk.says(CLOSE, close_payload(1000))
        assert talk.client.closing
        assert not talk.client.aborted

    def test_a_backend_that_never_answers_a_close_is_dropped_and_so_is_the_client(self, talk: Talk) -> None:
        talk.says(CLOSE, close_payload(1000))
        assert talk.backend_heard() == [(CLOSE, close_payload(1000))]
        talk.house.pass_time(CLOSE_TIMEOUT + 0.5)
        assert talk.backend.transport.aborted
        talk.backend.leaves()
        assert talk.client.aborted

    def test_a_close_is_not_waited_for_if_the_client_does_not_read(self, talk: Talk) -> None:
        talk.client.protocol.pause_writing()
        talk.says(CLOSE, close_payload(1000))
        # Its close can be read although its data was not wanted.
        assert talk.backend.transport.reading

    def test_detached_it_hears_no_more_and_is_not_heard(self, talk: Talk) -> None:
        talk.backend_says(serialise(TEXT, b'c:{"type":"detach"}') + serialise(TEXT, b"m:late"))
        assert talk.backend_heard() == [(CLOSE, b"")]
        talk.says(TEXT, b"x")
        assert talk.backend_heard() == []
        assert talk.heard() == []
        talk.backend_says(serialise(CLOSE, b""))
        assert talk.backend.transport.closing
        talk.backend.leaves()
        assert not talk.client.closing
