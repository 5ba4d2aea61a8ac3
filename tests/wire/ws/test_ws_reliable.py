"""WebSockets over HTTP that get what they missed from their backend (docs/websocket-reliability.md).

Pushpin ignores the prev-id: there the same backends see no question, and items arrive as they are published.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.wire.wirekit import UPDATED, Client, Exchange, Setup, Site, covers, expect
from tests.wire.wirekit.events import GRIP, control, event, events, opened, subscribe
from tests.wire.wirekit.messages import Request, response
from tests.wire.wirekit.websocket import Socket, direct, handshake, websocket

ROUTES = "* {backend},over_http\n*,path_beg=/direct {backend}\n*,path_beg=/prefixed,prefix=pre- {backend},over_http\n"
SETUP = Setup(routes=ROUTES)
FIRST = Setup(routes=ROUTES, config=UPDATED)
HASTY = Setup(routes=ROUTES, config={"proxy.ws_recover_interval": 1, "proxy.response_timeout": 5})
HINT = {"formats": {"ws-message": {"action": "hint"}}}


def reliable() -> bool:
    """Tell whether the proxy acts on the prev-id of a WebSocket's subscribe."""
    return expect(
        pushpin=False,
        ours=True,
        pushpin_does="Ignores the `prev-id` of a WebSocket's `subscribe`: what the client misses stays missing.",
        ours_does="Requests from the backend what a WebSocket over HTTP with a `prev-id` has missed.",
        because="This is an extension of GRIP, described in docs/websocket-reliability.md.",
    )


class Room:
    """A channel's messages, and a backend that answers what is asked: the messages after the last one somebody has."""

    def __init__(self, site: Site, case: str, route: str = "", name: str = "") -> None:
        """Script the path of the case."""
        self.site = site
        self.channel = name or case
        self.full = ("pre-" if route == "/prefixed" else "") + self.channel
        self.path = f"{route}/{case}"
        self.last = 1
        self.behind: int | None = None
        """The last one that those who open know, if that is not the last one."""
        self.held: threading.Event | None = None
        """What the next question's answer waits for, after the backend has looked."""
        self.broken: list[bytes | None] = []
        """Answers instead of the right one; None for none at all."""
        self.others: list[Room] = []
        site.backend.on(self.path, self.answer)

    def answer(self, exchange: Exchange) -> bytes:
        """Answer an opening, a question or a message, which is echoed."""
        asked = questions(exchange.request)
        if exchange.request.body == b"OPEN\r\n":
            known = [(room.channel, room.last if room.behind is None else room.behind) for room in self.rooms]
            return opened(*[subscribe(channel, prev_id=str(last)) for channel, last in known], headers=(GRIP,))
        if not asked:
            said = re.fullmatch(rb"TEXT [0-9a-f]+\r\n(.*)\r\n", exchange.request.body, re.DOTALL)
            return events(event("TEXT", b"m:" + said[1])) if said else events()
        parts = []
        for room in self.rooms:
            parts += [event("TEXT", f"m:{number}") for number in range(asked[room.channel] + 1, room.last + 1)]
            parts.append(subscribe(room.channel, prev_id=str(room.last)))
        answer = events(*parts)
        if self.broken:
            instead = self.broken.pop(0)
            if instead is None:
                exchange.wait(self.held or threading.Event())
                exchange.close()
                return b""
            return instead
        if self.held is not None:
            exchange.wait(self.held)
        return answer

    @property
    def rooms(self) -> list[Room]:
        return [self, *self.others]

    def item(self, number: int, **fields: Any) -> dict[str, Any]:
        """The item of a message; what follows nothing is not kept waiting for what it should follow."""
        formats = {"ws-message": {"content": str(number)}}
        return {"channel": self.full, "id": str(number), "prev-id": str(number - 1), "formats": formats, **fields}

    def write(self, number: int = 1) -> None:
        """Store messages and tell nobody."""
        self.last += number

    def publish(self, number: int, **fields: Any) -> None:
        """Publish a message, which is stored then."""
        self.last = max(self.last, number)
        self.site.publisher.publish(self.item(number, **{"no-seq": True, **fields}))

    def hint(self) -> None:
        """Say that there is something new."""
        self.site.publisher.publish({"channel": self.full, **HINT})

    def asked(self, count: int) -> dict[str, int]:
        """What the request with this number (the opening is 0) asks for. It must be a question."""
        request = self.site.backend.request(self.path, count)
        assert request.body == b""
        assert request["Content-Length"] == "0"
        found = questions(request)
        assert found
        return found


def questions(request: Request) -> dict[str, int]:
    """The last id of each channel that a request names."""
    lines = [value for name, value in request.headers if name.lower() == "grip-last"]
    found = (re.fullmatch(r"(\S+); last-id=(\d+)", line) for line in lines)
    return {match[1]: int(match[2]) for match in found if match}


class Talk:
    """A client in a room."""

    def __init__(self, room: Room, client: Socket) -> None:
        """Made by `joined`."""
        self.room = room
        self.client = client

    def hears(self, *numbers: int) -> None:
        """The next messages are these."""
        for number in numbers:
            assert self.client.says(str(number))

    def still_there(self) -> None:
        """Nothing but an echo comes."""
        assert self.client.echoes("still there?")


@contextlib.contextmanager
def joined(room: Room) -> Iterator[Talk]:
    """Open a WebSocket and wait until it is subscribed."""
    with room.site.publisher.feed() as feed, websocket(room.site, room.path) as client:
        for each in room.rooms:
            feed.wait_for(b"\x01" + each.full.encode())
        yield Talk(room, client)


@pytest.fixture
def room(site: Site, case: str) -> Room:
    return Room(site, case)


@pytest.fixture
def talk(room: Room) -> Iterator[Talk]:
    with joined(room) as talk:
        yield talk


@covers("8.5 prev-id")
def test_what_is_missing_comes_before_what_is_newer(room: Room, talk: Talk) -> None:
    room.publish(2)
    talk.hears(2)
    room.write(2)
    room.publish(5)
    if not reliable():
        talk.hears(5)
        return
    talk.hears(3, 4, 5)
    assert room.asked(1) == {room.channel: 2}
    room.publish(5)
    room.publish(6)
    talk.hears(6)
    talk.still_there()
    assert room.site.backend.count(room.path) == 3


@covers("8.5 prev-id")
def test_a_repeated_item_is_dropped(room: Room, talk: Talk) -> None:
    # Another id for the handler than for the session would be another item, so it is the first one, of the opening.
    room.publish(1)
    if not reliable():
        talk.hears(1)
    room.publish(2)
    talk.hears(2)
    talk.still_there()
    assert room.site.backend.count(room.path) == 2


@covers("8.5 prev-id", "8.4 hint")
def test_a_hint(room: Room, talk: Talk) -> None:
    room.write(2)
    room.hint()
    if reliable():
        talk.hears(2, 3)
        assert room.asked(1) == {room.channel: 1}
    talk.still_there()


@covers("8.5 prev-id")
def test_the_command_recover(room: Room, talk: Talk) -> None:
    room.write(2)
    assert room.site.publisher.command("recover")[b"success"] is True
    if reliable():
        talk.hears(2, 3)
    talk.still_there()


@covers("8.5 prev-id")
def test_the_first_subscription(start: Callable[[Setup], Site], case: str) -> None:
    room = Room(start(FIRST), case)
    with joined(room) as talk:
        room.write(1)
        if reliable():
            talk.hears(2)
        talk.still_there()


@covers("8.5 prev-id")
def test_a_quiet_time(start: Callable[[Setup], Site], case: str) -> None:
    room = Room(start(HASTY), case)
    with joined(room) as talk:
        room.write(1)
        if reliable():
            talk.hears(2)
            room.publish(3)
            talk.hears(3)
            room.write(1)
            talk.hears(4)
        talk.still_there()


@covers("8.5 prev-id")
def test_published_while_the_backend_was_answering(room: Room) -> None:
    with joined(room) as first:
        room.publish(2)
        first.hears(2)
        # The second client's backend has not seen number 2 when it opens.
        room.behind = 1
        with websocket(room.site, room.path) as client:
            if reliable():
                assert client.says("2")
                assert room.asked(2) == {room.channel: 1}
                room.publish(3)
                first.hears(3)
                assert client.says("3")
                return
            # Number 2 never comes; what does is published once the subscription is known, of which nobody tells.
            number = 3
            room.publish(number)
            while client.silent(0.5):
                number += 1
                room.publish(number)
            assert int(client.message()[1]) in range(3, number + 1)


@covers("8.5 prev-id")
@pytest.mark.parametrize("number", [3, 150])
def test_items_during_a_question_come_behind_its_answer(room: Room, talk: Talk, number: int) -> None:
    room.held = threading.Event()
    room.write()
    room.hint()
    if not reliable():
        return
    assert room.asked(1) == {room.channel: 1}
    # The backend has looked, and takes its time.
    for following in range(3, number + 1):
        room.publish(following)
    assert talk.client.silent(0.3)
    room.held.set()
    talk.hears(*range(2, number + 1))
    talk.still_there()


@covers("8.5 prev-id")
def test_a_client_speaks_meanwhile(room: Room, talk: Talk) -> None:
    room.held = threading.Event()
    room.write()
    room.hint()
    if not reliable():
        talk.still_there()
        return
    assert room.asked(1) == {room.channel: 1}
    talk.client.text("hello")
    assert talk.client.silent(0.3)
    assert room.site.backend.count(room.path) == 2
    room.held.set()
    talk.hears(2)
    assert talk.client.says("hello")


@covers("8.5 prev-id")
def test_a_backend_that_fails_is_asked_again(start: Callable[[Setup], Site], case: str) -> None:
    site = start(HASTY)
    room = Room(site, case)
    room.held = threading.Event()
    room.broken = [response("500 Oops", body="no"), events(b"TEXT x\r\n"), None]
    with joined(room) as talk:
        room.write()
        room.publish(3)
        if not reliable():
            talk.hears(3)
            return
        room.asked(1)
        # Between the tries the client is served.
        talk.still_there()
        for number in range(2, 9):
            if len(room.broken) == 0:
                break
            site.backend.request(room.path, number)
        room.held.set()
        talk.hears(2, 3)
        talk.still_there()


@covers("8.5 prev-id")
def test_a_route_with_a_prefix(site: Site, case: str) -> None:
    room = Room(site, case, route="/prefixed")
    with joined(room) as talk:
        room.write()
        room.publish(3)
        if not reliable():
            talk.hears(3)
            return
        talk.hears(2, 3)
        assert room.asked(1) == {case: 1}


@covers("8.5 prev-id")
def test_two_channels(room: Room, case: str) -> None:
    other = Room(room.site, f"{case}-other")
    room.others = [other]
    other.last = 100
    with joined(room) as talk:
        other.publish(101)
        talk.hears(101)
        room.write()
        room.publish(3)
        if not reliable():
            talk.hears(3)
            return
        talk.hears(2, 3)
        assert room.asked(1) == {room.channel: 1, other.channel: 101}
        other.publish(102)
        room.publish(4)
        talk.hears(102, 4)
        talk.still_there()


@covers("8.5 prev-id")
def test_an_answer_without_ids_changes_none(room: Room, talk: Talk) -> None:
    room.broken = [events()]
    room.hint()
    if reliable():
        assert room.asked(1) == {room.channel: 1}
    room.publish(2)
    talk.hears(2)
    talk.still_there()


@covers("8.5 prev-id")
def test_a_direct_websocket_takes_everything(site: Site, case: str) -> None:
    with site.publisher.feed() as feed, direct(site, f"/direct/{case}", answer=(GRIP,)) as (client, backend):
        backend.text(control("subscribe", channel=case, prev_id="1"))
        feed.wait_for(b"\x01" + case.encode())
        formats = {"ws-message": {"content": "published"}}
        site.publisher.publish({"channel": case, "id": "9", "prev-id": "8", "no-seq": True, "formats": formats})
        assert client.says("published")


@covers("8.5 prev-id")
def test_a_client_that_did_not_read(room: Room, site: Site) -> None:
    if not reliable():
        return
    size = 64 * 1024
    # More than kernel and proxy keep for a client: it would be cut off if its channel had no ids.
    kernel = int(pathlib.Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
    last = (kernel + 10_000_000) // size
    formats = {"ws-message": {"content": "x" * size}}
    with site.publisher.feed() as feed, Client.connect(site.port, receive_buffer=65536) as wire:
        wire.request("GET", room.path, *handshake())
        assert wire.head().status == 101
        feed.wait_for(b"\x01" + room.full.encode())
        client = Socket(wire, mask=True)
        for number in range(2, last):
            room.last = number
            site.publisher.push_item(room.item(number, formats=formats))
        # Taken in, all of them, when one that was pushed behind them has gone out.
        with direct(site, f"{room.path.replace('/', '/direct/', 1)}", answer=(GRIP,)) as (other, backend):
            backend.text(control("subscribe", channel=f"{room.channel}-end"))
            feed.wait_for(f"\x01{room.channel}-end".encode())
            formats = {"ws-message": {"content": "end"}}
            site.publisher.push_item({"channel": f"{room.channel}-end", "formats": formats})
            assert other.says("end")
        room.publish(last)
        got = [client.message()[1]]
        while got[-1] != b"%d" % last:
            got.append(client.message()[1])
        # The first as they were published, then as the backend tells them; in order, and each once.
        published = got.index(next(content for content in got if content != b"x" * size))
        assert published > 0
        assert got[published:] == [b"%d" % number for number in range(published + 2, last + 1)]
        assert client.echoes()
