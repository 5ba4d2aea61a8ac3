"""A whole house in one thread: a handler, workers, a backend and clients, without sockets and without a clock.

Everything between the bytes of a client and the items of a publisher is real: client connections, exchanges, held
sessions, channel tables and fan-outs of the workers; links, directory, duplicates, sequencer and recent ids of the
handler. In memory are: the pipe (each message is a step of its own, which allows more orders than frames would), the
connections, and the loop, whose clock only a jump moves.

``House.enabled`` names the steps that could come next, ``House.do`` takes one; ``every_order`` takes them in every
order. Two steps that touch different places are tried in one order only: the result of the other is equal.

The backend has the truth, a list of numbers; it adds to it at a script's ``commit``, reads it in one step and
answers in a later one. Items are published by another step of the script. Every item is ``<number>`` in all formats.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from gripproxy.config import Config
from gripproxy.grip.item import Item, MessageFormat, ResponseFormat, StreamFormat
from gripproxy.pipe import HELLO, Message
from gripproxy.routing.routes_file import RoutesFile
from gripproxy.routing.table import RouteTable
from gripproxy.worker.worker import Worker
from handler.dispatch.dispatcher import Dispatcher
from handler.dispatch.worker_links import WorkerLinks
from tests.support.doubles import Backend, Browser, Loop, Parsed, Pool, Timer, config, pooled, unchunk

CHANNEL: Final = b"ch"
STEPS_MAX: Final = 2000
"""Steps after which a run counts as endless."""

PATIENCE: Final = 3.0
"""Seconds after the last step in which all clients have to be up to date: enough for the update after the first
subscription and batches of updates, and far from the time of a poll or of a link."""

MESSAGE_WAIT: Final = 8.0
"""Seconds after the last step in which all clients have to be up to date, if an item waits for a missing one."""

STRIDE: Final = 0.5
"""Seconds the clock moves at a time, at most."""

_ALL: Final = frozenset({"all"})


@cache
def _config(workers: int) -> Config:
    # Neither signing nor policies, which cost more than all the rest.
    return config(workers=workers, sig_key="", policy_allow=(), policy_deny=())


@cache
def _routes(workers: int) -> RouteTable:
    return RoutesFile.of(_config(workers)).load().table


class StepLoop(Loop):
    """Callbacks for the next turn wait until the house takes them, one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.soon: deque[tuple[Callable[..., Any], tuple[Any, ...], Timer]] = deque()

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Timer:
        timer = Timer()
        self.soon.append((callback, args, timer))
        return timer

    def turn(self) -> None:
        callback, args, timer = self.soon.popleft()
        if not timer.cancelled:
            callback(*args)


class Line:
    """The pipe between one worker and the handler; stands at the handler's end for its PipeConnection."""

    def __init__(self, received: Callable[..., None], lost: Callable[..., None], overflow: Callable[..., None]) -> None:
        self.received = received
        self.lost = lost
        self.overflow = overflow
        self.error = None
        self.up: deque[Message] = deque()
        self.down: deque[Message] = deque()
        self.reading = True
        self.closed = False

    @property
    def queued(self) -> int:
        return len(self.down)

    @property
    def load(self) -> int:
        return len(self.down)

    def send(self, message: Message) -> None:
        if not self.closed:
            self.down.append(message)

    def close(self) -> None:
        self.closed = True

    def drop(self) -> None:
        """More waits than may."""
        self.down.clear()
        self.overflow(self)


class End:
    """The worker's end of a line."""

    def __init__(self, line: Line) -> None:
        self.line = line

    def send(self, message: Message) -> None:
        if not self.line.closed:
            self.line.up.append(message)

    def pause_reading(self) -> None:
        self.line.reading = False

    def resume_reading(self) -> None:
        self.line.reading = True


class _Links(WorkerLinks):
    def accept(self) -> Any:
        line: Any = Line(self._received, self._lost, self._overflowed)
        self._workers[line] = None
        return line


class Handler:
    """One life of the handler. It takes items in when all workers have announced themselves."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.dispatcher = Dispatcher(linger=house.linger, update=house.update, follow=house.followed)
        self.links = _Links(self.dispatcher, lambda: None, house.loop.time)
        self.open = False
        self._tick_at = house.loop.time() + 1

    def look(self, now: float) -> None:
        """As the handler's clock does when something is due, and every second."""
        due = self.dispatcher.next_due()
        if due is not None and due <= now:
            self.dispatcher.due(now)
        if self._tick_at <= now:
            self._tick_at = now + 1
            self.dispatcher.tick(now)


class Room:
    """One worker with its surroundings."""

    def __init__(self, house: House, number: int) -> None:
        self.house = house
        self.number = number
        loop: Any = house.loop
        self.pool = Pool()
        with pooled(self.pool):
            self.worker = Worker(_config(house.workers), number, loop)
        self.worker.router.routes = _routes(house.workers)
        self.worker.scheduler._chance = self.worker.sessions.random = lambda: 0.5
        self.line: Line | None = None
        self.before = False
        self.clients: list[Client] = []
        self.answers: dict[int, bytes] = {}
        """Pending responses of the backend, by connection."""

    def connect(self) -> None:
        """As the worker does when its connection is accepted."""
        assert self.house.handler is not None
        line: Any = self.house.handler.links.accept()
        self.line = line
        end: Any = End(line)
        self.worker.link._link = end
        self.worker.table.announce(self.worker.epoch, str(self.number))
        if self.before:
            self.worker.commands.recover()
        self.before = True

    def notice(self) -> None:
        """As the worker does at the end of its connection."""
        self.line = None
        self.worker.link._link = None
        self.worker.table.down()

    def backend(self, number: int) -> Backend:
        return self.pool.opened[number]


class Client:
    """A client that needs all numbers once and in order. ``has`` are the received ones."""

    path = b""

    def __init__(self, room: Room, since: int) -> None:
        self.room = room
        self.since = since
        self.has = list(range(1, since + 1))
        self.taken = len(room.house.taken)
        """Number of items accepted when the client connected, or when its stream began."""
        self.gone = False
        self.browser = Browser(room)  # type: ignore[arg-type]
        room.clients.append(self)
        self.ask()

    def ask(self) -> None:
        last = self.has[-1] if self.has else 0
        self.browser.says(b"GET %b?since=%d HTTP/1.1\r\nHost: h\r\n\r\n" % (self.path, last))

    def leave(self) -> None:
        self.gone = True
        self.browser.transport.lose()

    def react(self) -> None:
        """Read the received bytes."""
        raise NotImplementedError

    def take(self, body: bytes) -> None:
        self.has += [int(number) for number in re.findall(rb"<(\d+)>", body)]


class Poll(Client):
    """A long-poll that begins anew after each answer."""

    path = b"/poll"
    again = True

    def react(self) -> None:
        data = self.browser.take()
        if data:
            response = Parsed(data)
            assert response.code == 200, data
            self.take(response.body)
            if self.again:
                self.ask()


class PlainPoll(Poll):
    """A long-poll whose backend names no prev-id."""

    path = b"/plain-poll"


class Live(Client):
    """A stream with ids and a next link."""

    path = b"/live"

    def __init__(self, room: Room, since: int) -> None:
        self._data = b""
        self._begun = False
        super().__init__(room, since)

    def react(self) -> None:
        data = self.browser.take()
        if not data:
            return
        if not self._begun:
            response = Parsed(data)
            assert response.code == 200, data
            self._begun = True
            self.taken = len(self.room.house.taken)
            data = response.rest
        content, over = unchunk(data)
        assert not over, "the stream has ended"
        self.take(content)


class Stream(Live):
    """A stream without ids, whose backend sends no past items."""

    path = b"/stream"


@dataclass(frozen=True)
class Step:
    """A step of a script: its action, the places it touches, and its condition."""

    act: Callable[[House], None]
    touches: frozenset[str] = _ALL
    when: Callable[[House], bool] = lambda house: True


Script = list[Step]


class House:
    """The whole.

    ``since`` is how many numbers the truth begins with; the rest are those of
    ``handler.dispatch.dispatcher.Dispatcher``.

    ``bystanders``: workers whose messages travel immediately, since no result depends on their order.
    """

    def __init__(
        self, workers: int = 1, since: int = 1, linger: float = 60, update: bool = True, patience: float = PATIENCE
    ) -> None:
        self.loop = StepLoop()
        self.counts = False
        """True if workers report their numbers of sessions."""
        self.workers, self.linger, self.update, self.patience = workers, linger, update, patience
        self.truth = since
        self.bystanders: set[int] = set()
        self.nameless: set[int] = set()
        """Numbers that are published without id."""
        self.reads = 0
        self.lost = False
        """True if items were dropped on the way to a worker, or with a handler."""
        self.taken: list[tuple[int, frozenset[int]]] = []
        """Items that a handler accepted: number, and which workers had subscribed by then."""
        self.wishes: deque[bool] = deque()
        """Subscription that has not reached the publishers' XPUB yet."""
        self.wished = False
        self.handler: Handler | None = Handler(self)
        self.rooms = [Room(self, number) for number in range(1, workers + 1)]
        self.scripts: dict[str, deque[Step]] = {}
        for room in self.rooms:
            room.connect()
        self.settle(0)

    @property
    def clients(self) -> list[Client]:
        return [client for room in self.rooms for client in room.clients]

    def followed(self, channel: bytes, wanted: bool) -> None:
        """The handler's SUB socket asks for the channel, or does not want it any more."""
        self.wishes.append(wanted)

    # --- steps

    def enabled(self) -> list[str]:
        """Return the steps that are possible now."""
        names = []
        for room in self.rooms:
            number = room.number
            if room.line is not None:
                if room.line.up and self.handler is not None:
                    names.append(f"up {number}")
                if room.line.down and room.line.reading:
                    names.append(f"down {number}")
            for place, backend in enumerate(room.pool.opened):
                if place in room.answers:
                    names.append(f"answer {number} {place}")
                elif backend.transport.out:
                    names.append(f"read {number} {place}")
        if self.loop.soon:
            names.append("turn")
        names += [name for name, steps in self.scripts.items() if steps and steps[0].when(self)]
        return names

    def touched(self, name: str) -> frozenset[str]:
        """Which places a step reads or changes, apart from the ends of queues."""
        kind, _, number = name.partition(" ")
        if kind == "up":
            return _HANDLER
        if kind == "down":
            return frozenset({f"worker {number}"})
        if kind == "answer":
            return frozenset({f"worker {number.partition(' ')[0]}"})
        if kind == "read":
            return _TRUTH
        if kind == "turn":
            return _ALL
        return self.scripts[name][0].touches

    def do(self, name: str) -> None:
        """Take one step."""
        kind, _, rest = name.partition(" ")
        if kind in ("up", "down", "read", "answer"):
            number, _, place = rest.partition(" ")
            room = self.rooms[int(number) - 1]
            if kind == "up":
                self._up(room)
            elif kind == "down":
                self._down(room)
            elif kind == "read":
                backend = room.backend(int(place))
                room.answers[int(place)] = self._read(backend.take())
            else:
                room.backend(int(place)).says(room.answers.pop(int(place)))
        elif kind == "turn":
            self.loop.turn()
        else:
            self.scripts[name].popleft().act(self)
        self._react()
        for bystander in self.bystanders:
            room = self.rooms[bystander - 1]
            while room.line is not None and (room.line.up or room.line.down):
                if room.line.up:
                    self._up(room)
                else:
                    self._down(room)

    def _up(self, room: Room) -> None:
        line, handler = room.line, self.handler
        assert line is not None
        assert handler is not None
        message = line.up.popleft()
        line.received(line, [message])
        assert not line.closed, f"the handler did not like {message}"
        if message[0] == HELLO and handler.links.joined == len(self.rooms):
            handler.open = True
            handler.dispatcher.opened(self.loop.time())

    def _down(self, room: Room) -> None:
        assert room.line is not None
        link: Any = room.worker.link._link
        room.worker.messages.deliver(link, [room.line.down.popleft()])

    def _react(self) -> None:
        """Do all that takes no time: connections to the backend, and clients."""
        for room in self.rooms:
            for client in room.clients:
                if not client.gone:
                    client.react()
            while room.pool.wanted:
                room.pool.connect()
            for place, backend in enumerate(room.pool.opened):
                if backend.transport.closing and not backend.transport.lost:
                    room.answers.pop(place, None)
                    backend.transport.out.clear()
                    backend.leaves()

    # --- the backend

    def _read(self, request: bytes) -> bytes:
        """The backend reads the truth for a request; the answer leaves later."""
        self.reads += 1
        found = re.match(rb"GET (/[a-z-]+)(?:\?since=(\d+))? ", request)
        assert found, request
        path, since = found[1], int(found[2] or 0)
        last = re.search(rb"\r\n[Gg]rip-[Ll]ast: ch; last-id=(\d+)\r\n", request)
        if last:
            since = int(last[1])
        news = b"".join(b"<%d>" % number for number in range(since + 1, self.truth + 1))
        headers = b""
        if path == b"/stream":
            news = b""
            headers = b"Grip-Hold: stream\r\nGrip-Channel: ch\r\n"
        elif path == b"/live":
            headers = (
                b"Grip-Hold: stream\r\nGrip-Channel: ch; prev-id=%d\r\n"
                b"Grip-Link: </live>; rel=next; timeout=30\r\n" % self.truth
            )
        elif not news:
            prev_id = b"; prev-id=%d" % self.truth if path == b"/poll" else b""
            headers = b"Grip-Hold: response\r\nGrip-Channel: ch%b\r\n" % prev_id
        return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (headers, len(news), news)

    # --- time

    @property
    def quiet(self) -> bool:
        """True if no message is in transit that takes less time than a timer does; the backend may be slow."""
        return not self.loop.soon and not any(room.line and (room.line.up or room.line.down) for room in self.rooms)

    def jump(self, seconds: float) -> None:
        """Let time pass, a stride at a time, and the timers of workers and handler with it."""
        end = self.loop.now + seconds
        while self.loop.now < end:
            self.loop.run(min(STRIDE, end - self.loop.now))
            for room in self.rooms:
                room.worker.wheel.advance(self.loop.now)
                if self.counts:
                    room.worker.table.counts()
            if self.handler is not None:
                self.handler.look(self.loop.now)
            self._react()

    def settle(self, seconds: float) -> None:
        """Take every step as it comes, then let time pass, until ``seconds`` are over and nothing is left to do."""
        end = self.loop.now + seconds
        for _ in range(STEPS_MAX):
            names = self.enabled()
            if names:
                self.do(names[0])
            elif self.loop.now < end:
                self.jump(STRIDE)
            else:
                return
        raise AssertionError("the house runs in circles")


_HANDLER: Final = frozenset({"handler"})
_TRUTH: Final = frozenset({"truth"})


# --- steps of scripts


def item(house: House, number: int) -> Item:
    """The item of a number."""
    content = b"<%d>" % number
    named = number not in house.nameless
    return Item(
        CHANNEL,
        b"%d" % number if named else None,
        b"%d" % (number - 1) if named else None,
        response=ResponseFormat(body=content),
        stream=StreamFormat("send", content),
        message=MessageFormat("send", "text", content),
    )


def commit() -> Step:
    """The backend has one more."""

    def act(house: House) -> None:
        house.truth += 1

    return Step(act, _TRUTH)


def publish(number: int, sub: bool = False) -> Step:
    """Publish by HTTP, PULL or REP, or, ``sub``, by SUB; dropped without a handler, or before it takes items."""

    def act(house: House) -> None:
        handler = house.handler
        if handler is None or not handler.open or (sub and not house.wished):
            return
        entry = handler.dispatcher.subscriptions.channels.get(CHANNEL)
        heard = frozenset(int(worker.name) for worker in entry.workers) if entry is not None else frozenset()  # type: ignore[attr-defined]
        if handler.dispatcher.accept(item(house, number), house.loop.time()):
            house.taken.append((number, heard))

    return Step(act, _HANDLER)


def numbers(*which: int, sub: bool = False) -> Script:
    """A publisher: each number is committed, and then published."""
    steps = []
    for number in which:
        steps += [commit(), publish(number, sub)]
    return steps


def jumps(*seconds: float) -> Script:
    """Time passes, each time when nothing is on its way in the house."""

    def step(length: float) -> Step:
        return Step(lambda house: house.jump(length), when=lambda house: house.quiet)

    return [step(length) for length in seconds]


def subscriptions(count: int) -> Script:
    """Subscriptions of the handler's SUB socket reach the publishers' XPUB."""

    def act(house: House) -> None:
        house.wished = house.wishes.popleft()

    return [Step(act, _HANDLER, lambda house: bool(house.wishes))] * count


def joins(kind: type[Client], worker: int = 1, since: int = 1) -> Step:
    """A client comes."""

    def act(house: House) -> None:
        kind(house.rooms[worker - 1], since)

    return Step(act, frozenset({f"worker {worker}"}))


def leaves(which: int = 0) -> Step:
    """A client goes."""
    return Step(lambda house: house.clients[which].leave())


def restart(house: House, publisher: Script | None = None) -> dict[str, Script]:
    """The handler dies, and comes back; each worker notices, and connects again.

    All, some or none of the messages that the dead handler had written may still arrive. With ``publisher`` its steps
    are taken right before the end of the handler, which leaves messages for the workers in transit.
    """

    def die(house: House) -> None:
        assert house.handler is not None
        house.handler = None
        house.lost = True
        for room in house.rooms:
            if room.line is not None:
                room.line.up.clear()
                room.line.closed = True

    def live(house: House) -> None:
        house.handler = Handler(house)

    def again(room: Room) -> Script:
        place = frozenset({f"worker {room.number}"})
        return [
            Step(lambda house: room.notice(), place, lambda house: room.line is not None and room.line.closed),
            Step(lambda house: room.connect(), place | _HANDLER, lambda house: house.handler is not None),
        ]

    # Messages of a worker to the dead handler are lost, whether sent before or after its end.
    scripts = {"handler": [*(publisher or ()), Step(die, _HANDLER), Step(live, _HANDLER)]}
    for room in house.rooms:
        scripts[f"again {room.number}"] = again(room)
    return scripts


def overflow(worker: int = 1) -> Step:
    """The queue of the worker in the handler exceeds its bound."""

    def act(house: House) -> None:
        line = house.rooms[worker - 1].line
        assert line is not None
        line.drop()
        house.lost = True

    return Step(act, frozenset({f"worker {worker}", "handler"}))


# --- every order


def every_order(make: Callable[[], House], check: Callable[[House], None]) -> int:
    """Take a fresh house through its steps in every order, settle and check it; return how many there were.

    Orders that differ only in steps that touch different places are the same (sleep sets, Godefroid 1996).
    """
    orders = 0
    stack: list[tuple[list[str], frozenset[str]]] = [([], frozenset())]
    while stack:
        path, asleep = stack.pop()
        house = make()
        for name in path:
            house.do(name)
        while enabled := house.enabled():
            todo = [name for name in enabled if name not in asleep]
            if not todo:
                break
            assert len(path) < STEPS_MAX, f"the house runs in circles: {path[-20:]}"
            touched = {name: house.touched(name) for name in enabled}
            done = set(asleep)
            for name in todo:
                if name != todo[0]:
                    stack.append(([*path, name], _apart(done, name, touched)))
                done.add(name)
            asleep = _apart(set(asleep), todo[0], touched)
            house.do(todo[0])
            path.append(todo[0])
        if not enabled:
            orders += 1
            try:
                house.settle(house.patience)
                check(house)
            except AssertionError as error:
                raise AssertionError(f"{error}\nafter {', '.join(path)}") from error
    return orders


def _apart(names: Iterable[str], name: str, touched: dict[str, frozenset[str]]) -> frozenset[str]:
    """Those of ``names`` that touch nothing ``name`` does."""
    mine = touched[name]
    return frozenset(
        other
        for other in names
        if other in touched and mine != _ALL and touched[other] != _ALL and not mine & touched[other]
    )
