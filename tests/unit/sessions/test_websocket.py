"""A WebSocket between its client, its backend and the publishers: what each of them does, what the others get.

What is written between the pieces of a message is in test_websocket_lanes; backends over HTTP are in test_over_http.
"""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.control import Subscribe
from gripproxy.grip.filters import AskAnswer
from gripproxy.grip.frames import BINARY, CLOSE, CONT, PING, PONG, TEXT, FrameParser
from gripproxy.grip.item import Item, MessageFormat, StreamFormat
from gripproxy.grip.permessage_deflate import Parameters, negotiate
from gripproxy.pipe import UNSUBSCRIBE
from gripproxy.sessions.websocket import CLOSE_TIMEOUT
from tests.support.session_doubles import House, Socket, message

NORMAL = close_payload(1000)
GONE = close_payload(1001)


@pytest.fixture
def socket() -> Socket:
    return Socket()


class TestFromTheClient:
    def test_everything_goes_on_as_it_is(self, socket: Socket) -> None:
        session = socket.session
        session.client_data(TEXT, b"c:{}", True, True)
        session.client_data(BINARY, b"a", True, False)
        session.client_ping(b"?")
        session.client_data(BINARY, b"b", False, True)
        session.client_pong(b"!")
        assert socket.told() == [(TEXT, b"c:{}"), (BINARY, b"a", ...), (PING, b"?"), (CONT, b"b"), (PONG, b"!")]
        assert socket.heard() == []


class TestFromTheBackend:
    """docs/grip.md §8.2: what becomes of a message depends on its beginning."""

    @pytest.mark.parametrize(
        ("prefix", "opcode", "data", "heard"),
        [
            (b"m:", TEXT, b"m:hello", [(TEXT, b"hello")]),
            (b"m:", BINARY, b"m:\0", [(BINARY, b"\0")]),
            (b"m:", TEXT, b"m:", [(TEXT, b"")]),
            (b"m:", TEXT, b"m:m:c:", [(TEXT, b"m:c:")]),
            (b"m:", TEXT, b"hello", []),
            (b"m:", TEXT, b"m", []),
            (b"m:", BINARY, b"c:{}", []),
            (b"", TEXT, b"hello", [(TEXT, b"hello")]),
            (b"", BINARY, b"c:{}", [(BINARY, b"c:{}")]),
            (None, TEXT, b"hello", [(TEXT, b"hello")]),
            (None, TEXT, b"c:{}", [(TEXT, b"c:{}")]),
            (None, TEXT, b"m:x", [(TEXT, b"m:x")]),
        ],
    )
    def test_whole_messages(self, prefix: bytes | None, opcode: int, data: bytes, heard: list[Any]) -> None:
        socket = Socket(prefix)
        socket.backend(data, opcode)
        assert socket.heard() == heard

    def test_a_message_in_pieces_loses_its_prefix(self, socket: Socket) -> None:
        socket.session.backend_data(TEXT, b"m:a", True, False)
        socket.session.backend_data(TEXT, b"m:b", False, False)
        socket.session.backend_data(TEXT, b"", False, True)
        assert socket.heard() == [(TEXT, b"a", ...), (CONT, b"m:b", ...), (CONT, b"")]

    @pytest.mark.parametrize("beginning", [b"x", b'c:{"type":"detach"}', b"c:"])
    def test_others_in_pieces_are_discarded_whole(self, socket: Socket, beginning: bytes) -> None:
        socket.session.backend_data(TEXT, beginning, True, False)
        socket.session.backend_data(TEXT, b"m:middle", False, False)
        socket.session.backend_data(TEXT, b"m:end", False, True)
        socket.backend(b"m:next")
        assert socket.heard() == [(TEXT, b"next")]
        assert socket.told() == []

    def test_pings_and_pongs(self, socket: Socket) -> None:
        socket.session.backend_data(TEXT, b"m:a", True, False)
        socket.session.backend_ping(b"?")
        socket.session.backend_pong(b"!")
        socket.session.backend_data(TEXT, b"b", False, True)
        assert socket.heard() == [(TEXT, b"a", ...), (PING, b"?"), (PONG, b"!"), (CONT, b"b")]

    def test_a_backend_that_breaks_drops_the_client(self, socket: Socket) -> None:
        socket.subscribed()
        socket.session.backend_lost("reset")
        assert socket.heard() == [("drop", "reset")]
        socket.assert_nothing_is_left()


class TestControlMessages:
    def test_subscribe(self, socket: Socket) -> None:
        socket.backend(b'c:{"type":"subscribe","channel":"ch"}')
        socket.house.confirm()
        socket.publish(message(b"news"))
        assert socket.heard() == [(TEXT, b"news")]

    def test_channels_have_the_routes_prefix(self) -> None:
        socket = Socket(prefix=b"m:", house=House(), implicit=(b"all",))
        socket.session.terms.prefix = b"p-"
        socket.subscribed(b"a")
        assert socket.channels == [b"all", b"p-a"]
        socket.backend(b'c:{"type":"unsubscribe","channel":"a"}')
        assert socket.channels == [b"all"]

    def test_the_targets_own_channels_stay(self) -> None:
        socket = Socket(implicit=(b"all",))
        socket.backend(b'c:{"type":"unsubscribe","channel":"all"}')
        assert socket.channels == [b"all"]

    def test_so_many_channels_and_no_more(self) -> None:
        socket = Socket(limit=2)
        for channel in (b"a", b"b", b"b", b"c"):
            socket.subscribed(channel)
        assert socket.channels == [b"a", b"b"]
        assert socket.heard() == [("note", "subscription ignored: 2 channels are subscribed to")]
        socket.backend(b'c:{"type":"unsubscribe","channel":"a"}')
        socket.subscribed(b"c")
        assert socket.channels == [b"b", b"c"]

    def test_subscribing_again_replaces_the_filters(self, socket: Socket) -> None:
        socket.subscribed(b"ch", "require-sub")
        socket.publish(Item(b"ch", meta={b"require_sub": b"other"}, message=MessageFormat("send", "text", b"1")))
        socket.subscribed(b"ch")
        socket.publish(Item(b"ch", meta={b"require_sub": b"other"}, message=MessageFormat("send", "text", b"2")))
        assert socket.heard() == [(TEXT, b"2")]

    def test_too_many_filters_are_a_mistake_the_client_sees(self) -> None:
        socket = Socket(max_filters=1)
        socket.session.control(Subscribe(b"ch", ("skip-self", "skip-users"), None))
        assert socket.heard() == [(CLOSE, close_payload(1011, b"too many filters for channel 'ch'"))]

    def test_unsubscribe_from_the_last_channel(self, socket: Socket) -> None:
        socket.subscribed()
        socket.house.take()
        socket.backend(b'c:{"type":"unsubscribe","channel":"ch"}')
        assert socket.house.take() == [(UNSUBSCRIBE, b"ch", False)]
        socket.publish(message(b"x"))
        assert socket.heard() == []

    def test_meta_is_set_and_removed(self, socket: Socket) -> None:
        socket.backend(b'c:{"type":"set-meta","name":"a","value":"1"}')
        socket.backend(b'c:{"type":"set-meta","name":"b","value":"2"}')
        socket.backend(b'c:{"type":"set-meta","name":"a"}')
        socket.backend(b'c:{"type":"set-meta","name":"never"}')
        assert socket.session.meta == {b"b": b"2"}

    def test_keep_alive(self, socket: Socket) -> None:
        socket.backend(b'c:{"type":"keep-alive","content":".","timeout":10}')
        socket.house.pass_time(8)
        socket.backend(b"m:x")
        socket.house.pass_time(9)
        assert socket.heard() == [(TEXT, b"x")]
        socket.house.pass_time(1)
        assert socket.heard() == [(TEXT, b".")]
        socket.backend(b'c:{"type":"keep-alive"}')
        socket.house.pass_time(60)
        assert socket.heard() == []

    def test_published_items_put_a_keep_alive_off(self, socket: Socket) -> None:
        socket.subscribed()
        socket.backend(b'c:{"type":"keep-alive","content":".","timeout":10}')
        for _ in range(3):
            socket.house.pass_time(8)
            socket.publish(message(b"x"))
        assert socket.heard() == [(TEXT, b"x")] * 3

    def test_a_delayed_message_waits_and_is_flushed(self, socket: Socket) -> None:
        socket.backend(b'c:{"type":"send-delayed","content":"1","timeout":5}')
        socket.backend(b'c:{"type":"send-delayed","content":"2","message-type":"ping","timeout":5}')
        socket.backend(b"m:now")
        assert socket.heard() == [(TEXT, b"1"), (TEXT, b"now")]
        socket.backend(b'c:{"type":"flush-delayed"}')
        socket.backend(b'c:{"type":"flush-delayed"}')
        assert socket.heard() == [(PING, b"2")]
        socket.house.pass_time(10)
        assert socket.heard() == []

    def test_own_messages_do_not_come_between_pieces(self, socket: Socket) -> None:
        socket.backend(b'c:{"type":"send-delayed","content":"1","timeout":1}')
        socket.session.backend_data(TEXT, b"m:a", True, False)
        socket.house.pass_time(2)
        socket.session.backend_data(TEXT, b"b", False, True)
        assert socket.heard() == [(TEXT, b"a", ...), (CONT, b"b"), (TEXT, b"1")]

    @pytest.mark.parametrize("data", [b"c:", b"c:{", b"c:[]", b'c:{"type":"dance"}', b'c:{"type":"subscribe"}'])
    def test_wrong_ones_are_ignored(self, socket: Socket, data: bytes) -> None:
        socket.backend(data)
        socket.backend(b"m:x")
        [(what, text), got] = socket.heard()
        assert what == "note"
        assert text.startswith("control message ignored: ")
        assert got == (TEXT, b"x")


class TestChannelsNotConfirmed:
    """What the backend sends behind a subscribe reaches the client only when items do."""

    def test_hold_everything_back(self, socket: Socket) -> None:
        socket.backend(b"m:before")
        socket.backend(b'c:{"type":"subscribe","channel":"ch"}')
        socket.backend(b"m:behind")
        socket.session.backend_ping(b"")
        assert socket.heard() == [(TEXT, b"before")]
        socket.house.confirm()
        socket.publish(message(b"item"))
        assert socket.heard() == [(TEXT, b"behind"), (PING, b""), (TEXT, b"item")]

    def test_until_the_last_is_confirmed(self, socket: Socket) -> None:
        for channel in (b"a", b"b"):
            socket.backend(b'c:{"type":"subscribe","channel":"%b"}' % channel)
        socket.backend(b"m:x")
        socket.house.table.confirmed(b"a", 1, None)
        assert socket.heard() == []
        socket.house.table.confirmed(b"b", 2, None)
        assert socket.heard() == [(TEXT, b"x")]

    def test_or_is_wanted_no_more(self, socket: Socket) -> None:
        socket.backend(b'c:{"type":"subscribe","channel":"ch"}')
        socket.backend(b"m:x")
        socket.backend(b'c:{"type":"unsubscribe","channel":"ch"}')
        assert socket.heard() == [(TEXT, b"x")]

    def test_drop_both_sides_after_a_time(self, socket: Socket) -> None:
        socket.backend(b'c:{"type":"subscribe","channel":"ch"}')
        socket.house.pass_time(socket.house.context.confirm_timeout - 0.1)
        assert socket.heard() == []
        socket.house.pass_time(0.2)
        assert socket.heard() == [("drop", "a subscription was not confirmed by the handler in time")]
        assert socket.told() == ["lost"]
        socket.assert_nothing_is_left()

    def test_and_a_client_that_does_not_read(self, socket: Socket) -> None:
        socket.backend(b'c:{"type":"subscribe","channel":"ch"}')
        socket.backend(b"m:x")
        socket.session.on_blocked()
        socket.house.confirm()
        assert socket.heard() == []
        socket.session.on_writable()
        assert socket.heard() == [(TEXT, b"x")]

    def test_a_close_waits_like_everything(self, socket: Socket) -> None:
        socket.backend(b'c:{"type":"subscribe","channel":"ch"}')
        socket.session.backend_close(1000, b"")
        assert socket.heard() == []
        socket.house.confirm()
        assert socket.heard() == [(CLOSE, NORMAL)]


class TestPublishers:
    @pytest.mark.parametrize(("kind", "opcode"), [("text", TEXT), ("binary", BINARY), ("ping", PING), ("pong", PONG)])
    def test_every_type(self, socket: Socket, kind: Any, opcode: int) -> None:
        socket.subscribed()
        socket.publish(message(b"m:x", kind), message(None, kind))
        assert socket.heard() == [(opcode, b"m:x"), (opcode, b"")]
        assert socket.told() == []

    def test_what_is_not_for_web_sockets_is_passed_by(self, socket: Socket) -> None:
        socket.subscribed()
        socket.publish(
            Item(b"ch", stream=StreamFormat("send", b"x")), Item(b"ch", message=MessageFormat("hint")), message(b"y")
        )
        assert socket.heard() == [(TEXT, b"y")]

    def test_a_refresh_asks_the_backend(self, socket: Socket) -> None:
        socket.subscribed()
        socket.publish(Item(b"ch", message=MessageFormat("refresh")))
        assert socket.told() == ["refresh"]
        assert socket.heard() == []

    def test_filters(self, socket: Socket) -> None:
        socket.backend(b'c:{"type":"set-meta","name":"user","value":"me"}')
        socket.subscribed(b"ch", "skip-self")
        for sender in (b"me", b"you"):
            socket.publish(Item(b"ch", meta={b"sender": sender}, message=MessageFormat("send", "text", sender)))
        assert socket.heard() == [(TEXT, b"you")]

    def test_what_a_filter_asks_keeps_the_order_and_changes_the_content(self, socket: Socket) -> None:
        socket.subscribed(b"ch", "http-modify")
        socket.session.meta = {b"url": b"http://h/check"}
        socket.publish(*(message(text) for text in (b"1", b"2")), Item(b"ch", message=MessageFormat("close")))
        assert socket.heard() == []
        while socket.house.asks:
            _, answered = socket.house.asks.pop(0)
            answered(AskAnswer(200, [], b"changed"))
        assert socket.heard() == [(TEXT, b"changed"), (TEXT, b"changed"), (CLOSE, NORMAL)]

    @pytest.mark.parametrize("debug", [True, False])
    def test_a_filter_that_cannot_work_is_fatal_in_debug_mode(self, debug: bool) -> None:
        socket = Socket(debug=debug).subscribed()
        socket.publish(message(b"1", content_filters=("skip-self",)), message(b"2"))
        first, *rest = socket.heard()
        if debug:
            assert first[0] == CLOSE
            assert first[1][:2] == close_payload(1011)
            assert rest == []
            assert socket.told() == ["end"]
        else:
            assert first[0] == "note"
            assert rest == [(TEXT, b"2")]


class TestCompression:
    @pytest.fixture
    def agreed(self) -> Parameters:
        found = negotiate(b"permessage-deflate; server_no_context_takeover; client_no_context_takeover")
        assert found is not None
        return found[1]

    @staticmethod
    def inflate(data: bytes) -> bytes:
        return zlib.decompressobj(-15).decompress(data + b"\0\0\xff\xff")

    def test_of_an_item_is_done_once_for_all(self, agreed: Parameters) -> None:
        house = House()
        sockets = [Socket(house=house) for _ in range(3)]
        for socket in sockets[:2]:
            socket.session.deflate = agreed
        for socket in sockets:
            socket.subscribed()
        house.publish(message(b"hello hello hello hello " * 10))
        first, second, plain = [socket.client.log[0] for socket in sockets]
        assert first is second
        assert len(first) < 50 < len(plain)
        [frame] = FrameParser(False, 1000, True).feed(first)
        assert frame.rsv1
        assert self.inflate(frame.payload) == b"hello hello hello hello " * 10

    def test_of_messages_in_pieces(self, socket: Socket, agreed: Parameters) -> None:
        socket.session.deflate = agreed
        socket.session.backend_data(TEXT, b"m:hello ", True, False)
        socket.session.backend_data(TEXT, b"hello", False, True)
        first, last = FrameParser(False, 1000, True).feed(socket.client.transport.sent)
        assert (first.opcode, first.rsv1, first.fin) == (TEXT, True, False)
        assert (last.opcode, last.rsv1, last.fin) == (CONT, False, True)
        assert self.inflate(first.payload + last.payload) == b"hello hello"

    def test_not_of_control_frames(self, socket: Socket, agreed: Parameters) -> None:
        socket.session.deflate = agreed
        socket.subscribed()
        socket.publish(message(b"ping" * 20, "ping"))
        socket.session.backend_ping(b"ping" * 20)
        assert socket.heard() == [(PING, b"ping" * 20)] * 2


class TestClientThatDoesNotRead:
    def test_stops_its_backend(self, socket: Socket) -> None:
        socket.session.on_blocked()
        socket.session.on_writable()
        assert socket.told() == [("flow", False), ("flow", True)]

    def test_gets_everything_later_in_order_and_in_one_write(self, socket: Socket) -> None:
        socket.subscribed()
        socket.session.on_blocked()
        socket.backend(b"m:1")
        socket.publish(message(b"2"))
        socket.session.backend_ping(b"3")
        assert socket.heard() == []
        socket.session.on_writable()
        assert len(socket.client.log) == 1
        assert socket.heard() == [(TEXT, b"1"), (TEXT, b"2"), (PING, b"3")]

    def test_keeps_what_was_gathered_for_it(self, socket: Socket) -> None:
        socket.subscribed()
        socket.house.fanout.item(message(b"1"))
        socket.session.on_blocked()
        socket.house.fanout.flush()
        socket.publish(message(b"2"))
        socket.session.on_writable()
        assert socket.heard() == [(TEXT, b"1"), (TEXT, b"2")]

    @pytest.mark.parametrize(("count", "cut"), [(10, False), (11, True)])
    def test_is_cut_off_at_the_bound(self, socket: Socket, count: int, cut: bool) -> None:
        socket.subscribed()
        socket.session.on_blocked()
        socket.told()
        socket.publish(*[message(b"x" * 88)] * count)  # 100 bytes each: 2 of head and 10 of overhead
        if cut:
            assert socket.heard() == [("cut", "1100 bytes wait for it, at most 1000 may")]
            assert socket.told() == ["lost"]
            socket.assert_nothing_is_left()
        else:
            assert socket.heard() == []

    def test_is_cut_off_once_for_a_message_that_does_not_end(self, socket: Socket) -> None:
        socket.subscribed()
        socket.session.backend_data(TEXT, b"m:a", True, False)
        socket.publish(*[message(b"x" * 600)] * 4)
        assert socket.heard()[1:] == [("cut", "the backend does not finish a message while items wait")]
        assert socket.told() == ["lost"]
        socket.assert_nothing_is_left()

    def test_gets_the_close_behind_what_waits(self, socket: Socket) -> None:
        socket.session.on_blocked()
        socket.backend(b"m:1")
        socket.session.backend_close(1000, b"")
        socket.session.client_close(1000, b"")
        assert socket.heard() == []
        socket.session.on_writable()
        assert socket.heard() == [(TEXT, b"1"), (CLOSE, NORMAL), "end"]
        socket.assert_nothing_is_left()

    def test_and_never_takes_the_close(self, socket: Socket) -> None:
        socket.session.on_blocked()
        socket.session.backend_close(1000, b"")
        socket.session.client_close(1000, b"")
        socket.told()
        socket.house.pass_time(CLOSE_TIMEOUT + 0.1)
        assert socket.heard() == [("drop", "the client does not read a close")]
        socket.assert_nothing_is_left()


class TestAfterTheEnd:
    """A transport, a timer or the backend's side may call once more after the session has ended."""

    def test_calls_do_nothing(self, socket: Socket) -> None:
        session = socket.session
        session.client_lost()
        socket.heard()
        socket.told()
        session.on_blocked()
        session.on_writable()
        session.client_lost()
        session.backend_data(TEXT, b"m:late", True, True)
        session.backend_ping(b"late")
        session.backend_pong(b"late")
        session.backend_close(1000, b"late")
        session.backend_lost("late")
        session.abort_client("late")
        session.abort_on_defect()
        session.drain()
        assert socket.heard() == []
        assert socket.told() == []

    def test_a_client_that_was_never_blocked(self, socket: Socket) -> None:
        socket.session.on_writable()
        socket.session.on_blocked()
        socket.session.on_writable()
        socket.backend(b"m:x")
        assert socket.heard() == [(TEXT, b"x")]
