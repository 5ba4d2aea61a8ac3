"""Streams that share their position get what each of them would get alone, whatever happens to them and to the items.

Two kinds of runs, made up by hypothesis. In the first the same events go to a crowd with cohorts and to one without, of
streams or of WebSockets: every client gets the same bytes, and the requests are the same. In the second fan-outs take
several turns, in which clients block and come; when all has healed each client has the truth: in order, nothing twice,
nothing left out.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gripproxy.delivery import channel as channels
from gripproxy.delivery import fanout, turns
from gripproxy.grip.instruct import Instruct, KeepAlive
from gripproxy.grip.item import Item, ResponseFormat, StreamFormat
from gripproxy.grip.links import NextLink
from gripproxy.grip.response import Response
from gripproxy.sessions.context import LinkRequest
from gripproxy.sessions.link_response import Reader, Reading, SharedResponse
from gripproxy.sessions.reliable_stream import ReliableStream
from gripproxy.sessions.stream import StreamTerms
from tests.support.session_doubles import Client, House, want
from tests.unit.sessions.test_reliable_websocket import Talk, action, item, messages, subscribe

CROWD = 5
BASE = b"http://h/start"
KEEP_ALIVE = KeepAlive(b":\n", "idle", 20)

fixed = settings(
    max_examples=500,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
"""The same runs every time and everywhere."""

Step = tuple[str, int]


def wanted(instruct: Instruct) -> list[Any]:
    return [want(channel.name, channel.prev_id) for channel in instruct.channels]


class Crowd:
    """Streams on one channel, their backend, and the log of the channel, of which the network may lose items."""

    def __init__(self) -> None:
        self.house = House(10**9)
        self.house.context.offset = 0.0
        self.house.context.fetch = self.fetch
        self.length = 0
        """Items in the log; the last has that number as its id, as in the items."""
        self.lost: list[int] = []
        self.asked: list[tuple[int, LinkRequest, SharedResponse]] = []
        self.requests: list[tuple[int, float, Any]] = []
        self.clients: list[Client] = []
        self.holds: list[ReliableStream] = []
        self.starts: list[int] = []
        self.blocked: set[int] = set()
        for _ in range(CROWD):
            self.join(0)

    def fetch(self, request: LinkRequest, reader: Reader) -> Reading:
        assert isinstance(reader, ReliableStream)
        answer = SharedResponse(self.house.turns, lambda: None)
        self.asked.append((reader.serial, request, answer))
        self.requests.append((reader.serial, round(self.house.clock(), 2), request.last_ids))
        return answer.join(reader, b"http://h/next")

    def item(self, number: int) -> Item:
        return Item(b"ch", b"%d" % number, b"%d" % (number - 1), stream=StreamFormat("send", b"%d." % number))

    def missing(self, last: int) -> bytes:
        return b"".join([b"%d." % number for number in range(last + 1, self.length + 1)])

    # steps

    def join(self, way: int) -> None:
        """A client comes; what its backend has read may be older or newer than what has arrived."""
        position = max(0, self.length - way % 3)
        client, link = Client(), NextLink(b"/next", 60)
        terms = StreamTerms(KEEP_ALIVE if way % 2 else None, {}, link, BASE, None, b"", False)
        opening = Response(200, b"OK", [], b"")
        serial = len(self.holds)
        hold = ReliableStream(client, self.house.context, terms, opening, serial, BASE, link, wanted)
        self.clients.append(client)
        self.holds.append(hold)
        self.starts.append(position)
        hold.start([want(b"ch", b"%d" % position)], 8)
        self.house.confirm()

    def one(self, way: int) -> int:
        return way % len(self.holds)

    def leave(self, way: int) -> None:
        self.holds[self.one(way)].client_lost()

    def publish(self, way: int) -> None:
        self.length += 1
        self.house.publish(self.item(self.length))

    def lose(self, way: int) -> None:
        self.length += 1
        self.lost.append(self.length)

    def late(self, way: int) -> None:
        """A lost item comes after all, or one that is known comes again."""
        number = self.lost.pop(way % len(self.lost)) if self.lost else way % (self.length + 1)
        if number:
            self.house.publish(self.item(number))

    def foreign(self, way: int) -> None:
        """An item without a format for streams."""
        self.length += 1
        self.house.publish(
            Item(b"ch", b"%d" % self.length, b"%d" % (self.length - 1), response=ResponseFormat(body=b"x"))
        )

    def hint(self, way: int) -> None:
        self.house.publish(Item(b"ch", stream=StreamFormat("hint")))

    def close(self, way: int) -> None:
        if not way:
            self.house.publish(Item(b"ch", stream=StreamFormat("close")))

    def nameless(self, way: int) -> None:
        if way < 2:
            self.house.publish(Item(b"ch", None, b"%d" % self.length, stream=StreamFormat("send", b"nameless.")))

    def filtered(self, way: int) -> None:
        if way < 2:
            self.length += 1
            content = StreamFormat("send", b"%d." % self.length, ("skip-self",))
            self.house.publish(Item(b"ch", b"%d" % self.length, b"%d" % (self.length - 1), stream=content))

    def block(self, way: int) -> None:
        """The client blocks at the next write, or now."""
        number = self.one(way)
        if number not in self.blocked and not self.holds[number].over:
            self.blocked.add(number)
            if way % 2:
                self.clients[number].transport.on_write = self.holds[number].on_blocked
            else:
                self.holds[number].on_blocked()

    def read(self, way: int) -> None:
        number = self.one(way)
        self.blocked.discard(number)
        self.clients[number].transport.on_write = None
        self.holds[number].on_writable()

    def wait(self, way: int) -> None:
        self.house.pass_time((0.06, 1, 25, 58)[way % 4])

    def turn(self, way: int) -> None:
        self.house.turns.run()

    def updates(self, way: int) -> None:
        self.house.scheduler.run()

    def recover(self, way: int) -> None:
        for hold in self.holds:
            hold.recover()

    def answer(self, way: int) -> None:
        """The backend answers what was asked: with everything, or not at all."""
        asked, self.asked = self.asked, []
        for _, request, answer in sorted(asked, key=lambda one: one[0]):
            if not answer.readers:
                continue
            # Without an id the check has ended.
            last = request.last_ids[0][1] if request.last_ids else b"%d" % self.length
            if way == 1:
                answer.failed()
                continue
            headers = [
                (b"Grip-Hold", b"stream"),
                (b"Grip-Channel", b"ch; prev-id=%d" % self.length),
                (b"Grip-Link", b"</next>; rel=next; timeout=60"),
            ]
            answer.head(200, b"OK", headers)
            if body := self.missing(int(last)):
                answer.body(body)
            answer.end()

    def heal(self) -> None:
        """Everything is read, one more item comes, and all that is asked is answered."""
        for number in range(len(self.holds)):
            self.read(number)
        self.publish(0)
        for _ in range(10):
            self.house.turns.run_all()
            self.house.pass_time(2)
            self.house.scheduler.run()
            self.answer(0)
        self.house.turns.run_all()

    def contents(self, number: int) -> bytes:
        """The body that a client has got, without keep-alives."""
        log = self.clients[number].log
        data = b"".join([entry for entry in log if isinstance(entry, bytes)])
        return b"".join(re.findall(rb"[0-9a-f]+\r\n([^:]*?)\r\n", data))


class Talks:
    """WebSockets over HTTP on one channel, and their backend, which answers when it likes."""

    def __init__(self) -> None:
        self.house = House(10**9)
        self.house.context.recover_interval = 60
        self.length = 1
        self.lost: list[int] = []
        self.requests: list[Any] = []
        self.talks: list[Talk] = []
        self.blocked: set[int] = set()
        for _ in range(CROWD):
            self.join(0)

    # steps

    def join(self, way: int) -> None:
        position = max(1, self.length - way % 3)
        self.talks.append(Talk(self.house).open(subscribe(position)))

    def one(self, way: int) -> int:
        return way % len(self.talks)

    def leave(self, way: int) -> None:
        self.talks[self.one(way)].session.client_lost()

    def publish(self, way: int) -> None:
        self.length += 1
        self.house.publish(item(self.length))

    def lose(self, way: int) -> None:
        self.length += 1
        self.lost.append(self.length)

    def late(self, way: int) -> None:
        number = self.lost.pop(way % len(self.lost)) if self.lost else 1 + way % self.length
        self.house.publish(item(number))

    def act(self, way: int) -> None:
        self.house.publish(action(("hint", "refresh")[way % 2]))

    def say(self, way: int) -> None:
        talk = self.talks[self.one(way)]
        if not talk.session.over:
            talk.say(b"hello")

    def block(self, way: int) -> None:
        number = self.one(way)
        if number not in self.blocked and not self.talks[number].session.over:
            self.blocked.add(number)
            if way % 2:
                self.talks[number].client.transport.on_write = self.talks[number].session.on_blocked
            else:
                self.talks[number].session.on_blocked()

    def read(self, way: int) -> None:
        number = self.one(way)
        self.blocked.discard(number)
        self.talks[number].client.transport.on_write = None
        self.talks[number].session.on_writable()

    def wait(self, way: int) -> None:
        self.house.pass_time((0.06, 1, 25, 58)[way % 4])

    def updates(self, way: int) -> None:
        self.house.scheduler.run()

    def recover(self, way: int) -> None:
        for talk in self.talks:
            if talk.session.reliable is not None:
                talk.session.reliable.recover()

    def detach(self, way: int) -> None:
        talk = self.talks[self.one(way)]
        if way < 2 and talk.in_flight:
            talk.answer(b'TEXT 13\r\nc:{"type":"detach"}\r\n')

    def answer(self, way: int) -> None:
        """The backend answers all requests: a query with everything that is missing, or, now and then, not at all."""
        for number, talk in enumerate(self.talks):
            for request in talk.posted():
                self.requests.append((number, round(self.house.clock(), 2), request))
                if not talk.in_flight:
                    continue
                last = int(request[1][0][1]) if request[1] else self.length
                if way == 1:
                    talk.fail()
                elif request[1]:
                    talk.answer(messages(*range(last + 1, self.length + 1)), subscribe(self.length))
                else:
                    talk.answer()


def steps(*names: str) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 11)), max_size=40)


ALL = (
    *("publish", "publish", "publish", "join", "leave", "lose", "late", "foreign", "hint", "close", "nameless"),
    *("filtered", "block", "read", "wait", "wait", "wait", "turn", "updates", "recover", "answer", "answer"),
)


@given(steps(*ALL))
@fixed
def test_a_cohort_is_no_different(steps: list[Step]) -> None:
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        for least in (0, 10**9):
            patch.setattr(channels, "COHORT_LEAST", least)
            crowd = Crowd()
            for name, way in steps:
                getattr(crowd, name)(way)
            bytes_of = [b"".join([one for one in client.log if isinstance(one, bytes)]) for client in crowd.clients]
            calls_of = [[one for one in client.log if isinstance(one, tuple)] for client in crowd.clients]
            ids_of = [[each.prev_id for each in hold.subscriptions] for hold in crowd.holds]
            figures = (crowd.house.fanout.delivered, crowd.house.table.ledger.others.client_content_bytes_sent)
            seen.append((bytes_of, calls_of, ids_of, sorted(crowd.requests), crowd.house.sent, figures))
    assert seen[0] == seen[1]


TURNS = (
    *("publish", "publish", "publish", "join", "lose", "late", "hint", "block", "read", "turn", "wait", "updates"),
    "answer",
)

TALK = (
    *("publish", "publish", "publish", "join", "leave", "lose", "late", "act", "say", "block", "read", "wait", "wait"),
    *("updates", "recover", "detach", "answer", "answer"),
)


@given(steps(*TALK))
@fixed
def test_a_cohort_of_websockets_is_no_different(steps: list[Step]) -> None:
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        for least in (0, 10**9):
            patch.setattr(channels, "COHORT_LEAST", least)
            crowd = Talks()
            for name, way in steps:
                getattr(crowd, name)(way)
                crowd.house.turns.run_all()
            ids_of = [[each.prev_id for each in talk.session.subscriptions] for talk in crowd.talks]
            seen.append(([talk.heard() for talk in crowd.talks], ids_of, crowd.requests, crowd.house.sent))
    assert seen[0] == seen[1]


@given(steps(*TURNS))
@fixed
def test_a_fan_out_of_several_turns_leaves_nothing_out(steps: list[Step]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channels, "COHORT_LEAST", 0)
        for name in ("STEP", "CAREFUL_STEP", "FEW"):
            patch.setattr(fanout, name, 1)
        patch.setattr(turns, "TURN_TIME", 0.0)
        crowd = Crowd()
        for name, way in steps:
            getattr(crowd, name)(way)
        crowd.heal()
        for number, hold in enumerate(crowd.holds):
            assert not hold.over
            assert crowd.contents(number) == crowd.missing(crowd.starts[number])
