"""Frames of a peer as fast as the other side takes them: where reading stops, how it goes on, shares of a turn."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from gripproxy.backend.frame_turns import BUDGET, FRAME_COST, SHARE
from gripproxy.client.websocket_connection import WebSocketConnection
from gripproxy.delivery.send_buffers import HIGH_WATER
from gripproxy.grip.assembler import PIECE
from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.frames import BINARY, CLOSE, PING, TEXT, FrameParser, serialise
from tests.support.doubles import House, Transport
from tests.support.sockets import GRIP, HANDSHAKE, Talk, switching

MESSAGE = 4 * 1024 * 1024


def deflated(data: bytes) -> bytes:
    """A message as one frame of a client that compresses."""
    compressor = zlib.compressobj(wbits=-15)
    payload = (compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]
    return serialise(TEXT, payload, mask=True, rsv1=True)


class Pair:
    """A client that compresses, and its direct backend, whose transport asks for a pause beyond 64 KiB."""

    def __init__(self, house: House | None = None, **changes: Any) -> None:
        self.house = house or House(allow_compression=True, **changes)
        offer = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
        browser = self.house.browser().says(HANDSHAKE[:-2] + offer + b"\r\n")
        self.backend = self.house.pool.connect()
        self.backend.says(switching(self.backend.take(), GRIP))
        self.client: Transport = browser.transport
        assert isinstance(self.client.protocol, WebSocketConnection)
        self.reader: WebSocketConnection = self.client.protocol
        self.blocked = False
        self.parser = FrameParser(True, 2 * MESSAGE)
        self.got = b""
        transport = self.backend.transport
        plain = transport.write

        def write(data: bytes) -> None:
            plain(data)
            if not self.blocked and sum(map(len, transport.out)) > 65536:
                self.blocked = True
                transport.protocol.pause_writing()

        transport.write = write  # type: ignore[method-assign]

    @property
    def waiting(self) -> int:
        """Bytes that wait for the backend."""
        return sum(map(len, self.backend.transport.out))

    def backend_reads(self) -> None:
        """The backend takes all there is, and is written to again."""
        for frame in self.parser.feed(self.backend.take()):
            assert frame.opcode != CLOSE, frame
            self.got += frame.payload
        if self.blocked:
            self.blocked = False
            self.backend.transport.protocol.resume_writing()


class TestABackendThatDoesNotRead:
    def test_costs_a_piece_of_a_message_and_what_was_read(self) -> None:
        """One read of a client can be hundreds of megabytes when decompressed."""
        pair = Pair()
        data = b"".join(deflated(b"%d:" % n + b"x" * MESSAGE) for n in range(20))
        pair.reader.data_received(data)
        assert pair.waiting <= 65536 + 2 * PIECE
        assert not pair.client.reading
        assert pair.reader.buffered() <= len(data) + PIECE
        for _ in range(10):
            pair.house.pass_time(0.001)
        assert pair.waiting <= 65536 + 2 * PIECE

    def test_all_arrives_in_order_once_it_reads(self) -> None:
        pair = Pair()
        messages = [b"%d:" % n + b"x" * (300_000 * n) for n in range(6)]
        pair.reader.data_received(b"".join(map(deflated, messages)) + serialise(TEXT, b"end", mask=True))
        turns = 0
        while not pair.client.reading:
            turns += 1
            assert turns < 1000
            pair.backend_reads()
            pair.house.pass_time(0.001)
        pair.backend_reads()
        assert pair.got == b"".join(messages) + b"end"
        assert pair.reader.held == 0

    def test_what_comes_meanwhile_is_behind_it(self) -> None:
        """A transport may give what it had read before it was told to pause."""
        pair = Pair()
        pair.reader.data_received(deflated(b"a" * 200_000))
        pair.reader.data_received(deflated(b"b") + serialise(TEXT, b"c", mask=True))
        while not pair.client.reading:
            pair.backend_reads()
            pair.house.pass_time(0.001)
        pair.backend_reads()
        assert pair.got == b"a" * 200_000 + b"bc"

    def test_over_http_it_is_the_first_message_too_many(self) -> None:
        talk = Talk(over_http=True, allow_compression=True)
        talk.client.protocol.data_received(serialise(BINARY, b"." * 190_000, mask=True) * 10)
        assert not talk.client.reading
        assert talk.client.protocol.session.leg.buffered() <= 3 * 190_000 + 100

    @pytest.mark.parametrize("compressed", [True, False])
    def test_a_close_behind_it_waits_for_its_turn(self, compressed: bool) -> None:
        pair = Pair()
        data = deflated(b"a" * 200_000) if compressed else serialise(TEXT, b"a" * 200_000, mask=True)
        pair.reader.data_received(data + serialise(CLOSE, close_payload(1000), mask=True))
        assert pair.blocked
        for _ in range(10):
            for frame in pair.parser.feed(pair.backend.take()):
                pair.got += frame.payload
            if pair.blocked:
                pair.blocked = False
                pair.backend.transport.protocol.resume_writing()
            pair.house.pass_time(0.001)
        assert pair.got == b"a" * 200_000 + close_payload(1000)

    def test_what_is_wrong_behind_it_is_seen_when_it_is_its_turn(self) -> None:
        pair = Pair()
        pair.reader.data_received(deflated(b"a" * 200_000) + serialise(3, b"", mask=True))
        assert pair.house.worker.events.bad == 0
        for _ in range(10):
            pair.backend.take()
            if pair.blocked:
                pair.blocked = False
                pair.backend.transport.protocol.resume_writing()
            pair.house.pass_time(0.001)
        assert pair.house.worker.events.bad == 1

    def test_a_client_that_is_gone_leaves_nothing(self) -> None:
        pair = Pair()
        pair.reader.data_received(deflated(b"a" * MESSAGE))
        pair.client.lose()
        pair.house.pass_time(0.001)
        assert pair.reader.held == 0
        assert pair.backend.transport.aborted


class TestShares:
    def test_a_turn_of_the_loop_is_not_longer_than_its_budget(self) -> None:
        """Also for a backend that takes everything; the rest comes in the next turns."""
        pair = Pair()
        del pair.backend.transport.write
        pair.reader.data_received(b"".join(deflated(b"x" * MESSAGE) for _ in range(4)))
        assert SHARE <= pair.waiting <= SHARE + 2 * PIECE
        assert not pair.client.reading
        before = pair.waiting
        pair.house.loop.run(0)
        while pair.waiting < 4 * MESSAGE:
            pair.house.pass_time(0)
            assert pair.waiting > before
            before = pair.waiting
        pair.house.pass_time(0)
        assert pair.client.reading

    def test_clients_take_turns(self) -> None:
        house = House(allow_compression=True)
        pairs = [Pair(house) for _ in range(8)]
        for pair in pairs:
            del pair.backend.transport.write
            pair.reader.data_received(deflated(b"x" * MESSAGE))
        # The first ones had their share in this turn, and there was no budget for the others.
        assert sum(pair.waiting for pair in pairs) <= BUDGET + 4 * PIECE
        turn = house.worker.context.turns._turn
        turn()
        turn()
        assert all(pair.waiting >= SHARE for pair in pairs)
        assert max(pair.waiting for pair in pairs) <= 2 * SHARE + 4 * PIECE

    def test_many_small_frames_are_work_too(self) -> None:
        pair = Pair()
        del pair.backend.transport.write
        pair.reader.data_received(serialise(PING, b"", mask=True) * 10_000)
        assert len(pair.backend.transport.out) <= SHARE // FRAME_COST + 1
        assert not pair.client.reading
        for _ in range(10_000 * FRAME_COST // BUDGET + 2):
            pair.house.pass_time(0)
        assert len(pair.backend.transport.out) == 10_000
        assert pair.client.reading


class TestAClientThatDoesNotRead:
    def test_frames_of_its_backend_stay_as_they_came(self) -> None:
        talk = Talk()
        talk.client.protocol.pause_writing()
        assert not talk.backend.transport.reading
        # What the transport had read already.
        talk.backend.transport.protocol.data_received(serialise(TEXT, b"m:x") * 1000)
        assert talk.heard() == []
        session = talk.client.protocol.session
        assert session is not None
        assert session.extras is None or not session.extras.parts
        talk.client.protocol.resume_writing()
        for _ in range(3):
            talk.house.pass_time(0.001)
        assert talk.heard() == [(TEXT, b"x")] * 1000
        assert talk.backend.transport.reading

    def test_what_its_backend_sent_before_it_went_is_not_lost(self) -> None:
        talk = Talk()
        talk.client.protocol.pause_writing()
        talk.backend.transport.protocol.data_received(serialise(TEXT, b"m:x") * 3 + serialise(CLOSE, b""))
        talk.backend.transport.lose()
        talk.client.protocol.resume_writing()
        talk.house.pass_time(0.001)
        assert talk.heard() == [(TEXT, b"x")] * 3 + [(CLOSE, b"")]


class TestWhatCountsForASlowClient:
    def test_of_a_fan_out_its_part_and_of_its_backend_all(self) -> None:
        talks = Talk()
        house = talks.house
        talks.backend_says(serialise(TEXT, b'c:{"type":"subscribe","channel":"ch"}'))
        house.confirm()
        reader = talks.client.protocol
        talks.client.buffered = HIGH_WATER + 1000
        reader.pause_writing()
        # The only one of its channel.
        assert reader.buffered() == HIGH_WATER + 1000
        session = reader.session
        assert session is not None
        assert session.extras is not None
        session.extras.sharers = 10
        assert reader.buffered() == HIGH_WATER + 100
        reader.resume_writing()
        # What its backend writes is its own, whatever came before.
        talks.backend_says(serialise(TEXT, b"m:x"))
        assert session.extras.sharers == 1
