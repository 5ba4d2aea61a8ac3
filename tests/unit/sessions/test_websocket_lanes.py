"""What is published and what the backend sends, on the same WebSocket: never one inside the other, none behind a close.

The house has no pacing, so a session without filters is written to by the fan-out itself.
"""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy.grip.control import Subscribe
from gripproxy.grip.frames import TEXT, FrameParser
from gripproxy.grip.item import Item, MessageFormat
from gripproxy.sessions.websocket import WebSocketSession
from gripproxy.sessions.websocket_interfaces import SocketTerms
from gripproxy.stats.counters import RouteCounters
from tests.support.session_doubles import House, Transport

PIECE = b"x" * 100


class Outlet:
    """A client that takes everything and notes what is asked for."""

    def __init__(self) -> None:
        self.transport = Transport()
        self.ended: list[str] = []

    def close(self) -> None:
        self.ended.append("end")

    def abort(self, why: str) -> None:
        self.ended.append("drop")

    def abort_slow(self, why: str) -> None:
        self.ended.append("cut")

    def read(self, go: bool) -> None:
        """Nothing here is read."""

    def relayed(self) -> None:
        pass

    def note(self, text: str) -> None:
        """Nothing here is noted."""


class Socket:
    """A session subscribed to the channel ``ch``, without a backend."""

    def __init__(self) -> None:
        self.house = House(buffer_max=1000)
        self.outlet = Outlet()
        terms = SocketTerms(b"", 20, 5, (), None, b"", False, RouteCounters())
        outlet: Any = self.outlet
        self.session = WebSocketSession(outlet, self.house.context, terms, b"cid", 1, b"ws://localhost/", None)
        self.session.control(Subscribe(b"ch", (), None))
        self.house.confirm()

    def publish(self, *texts: bytes) -> None:
        self.house.publish(*(Item(b"ch", None, None, message=MessageFormat("send", "text", text)) for text in texts))

    @property
    def plain(self) -> bool:
        """Whether the fan-out writes to the client by itself."""
        [subscription] = self.session.subscriptions
        lane = subscription.channel.sockets
        return lane is not None and self.session in lane.members

    def frames(self) -> list[tuple[int, bool, bytes]]:
        """What the client got: opcode, whether it is the last piece, payload."""
        got = FrameParser(False, 10_000).feed(self.outlet.transport.sent)
        return [(frame.opcode, frame.fin, frame.payload) for frame in got]


@pytest.fixture
def socket() -> Socket:
    return Socket()


def test_the_fan_out_writes_by_itself(socket: Socket) -> None:
    assert socket.plain
    socket.publish(b"one", b"two")
    assert socket.frames() == [(1, True, b"one"), (1, True, b"two")]


def test_items_wait_for_the_end_of_a_message_in_pieces(socket: Socket) -> None:
    session = socket.session
    session.backend_data(TEXT, b"a", True, False)
    socket.publish(b"one")
    session.backend_data(TEXT, b"b", False, False)
    socket.publish(b"two")
    session.backend_data(TEXT, b"c", False, True)
    socket.publish(b"three")
    assert socket.frames() == [
        (1, False, b"a"),
        (0, False, b"b"),
        (0, True, b"c"),
        (1, True, b"one"),
        (1, True, b"two"),
        (1, True, b"three"),
    ]


def test_after_the_message_the_fan_out_writes_by_itself_again(socket: Socket) -> None:
    socket.session.backend_data(TEXT, b"a", True, False)
    assert not socket.plain
    socket.session.backend_data(TEXT, b"b", False, True)
    assert socket.plain


@pytest.mark.parametrize(("count", "ended"), [(9, []), (10, ["cut"])])
def test_what_waits_for_the_end_of_a_message_is_bounded_in_bytes(socket: Socket, count: int, ended: list[str]) -> None:
    socket.session.backend_data(TEXT, b"a", True, False)
    socket.publish(*(PIECE[: 100 - 12] for _ in range(count)))  # 2 bytes of head and 10 of overhead each
    assert socket.outlet.ended == []
    socket.publish(b"")
    assert socket.outlet.ended == ended


def test_no_item_follows_a_close(socket: Socket) -> None:
    socket.session.backend_close(1000, b"")
    socket.publish(b"late")
    assert socket.outlet.transport.sent == b"\x88\x02\x03\xe8"
