"""Whatever the network does, a reliable session gets the truth: in order, nothing twice, nothing left out.

The truth is a log per channel. Between it and the session stands a network that loses, repeats and overtakes; beside it
a backend that answers when it likes, with what was true when it looked. A run is a list of steps; hypothesis looks for
one that breaks the promise. The same runs go through a stream and through a WebSocket.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gripproxy.grip.headers import Headers
from gripproxy.grip.item import Item, MessageFormat, StreamFormat
from gripproxy.grip.response import Response
from gripproxy.sessions.interfaces import Recovering
from gripproxy.sessions.recovery_states import State
from tests.support.session_doubles import House, want
from tests.unit.sessions.test_reliable_stream import Stream
from tests.unit.sessions.test_reliable_websocket import Talk, event

CHANNELS = (b"a", b"b")
LastIds = tuple[tuple[bytes, bytes], ...]

fixed = settings(
    max_examples=250,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""The same runs every time and everywhere."""


def id_of(channel: bytes, number: int) -> bytes:
    """Ids tell nothing but which item it is."""
    return hashlib.sha1(b"%b %d" % (channel, number)).hexdigest()[:8].encode()


class World(ABC):
    """The truth and its backend, one session, and everything on its way between them."""

    def __init__(self, held_before: int, unseen: int, told: bool) -> None:
        """``held_before`` items of each channel are in the opening.

        ``unseen`` more were published before the subscription, which the handler knows if it was ``told``.
        """
        self.house = House(10**9)
        self.house.context.queue_max = 3
        self.truth: dict[bytes, list[bool]] = {channel: [True] * held_before for channel in CHANNELS}
        """Whether each item has content for this kind of client."""
        self.had: dict[bytes, int] = dict.fromkeys(CHANNELS, held_before)
        """How many the opening had."""
        self.told: dict[bytes, int] = dict.fromkeys(CHANNELS, 0)
        """Up to where the session may know by itself, or from the handler, that there is something."""
        self.wire: list[tuple[bytes, int]] = []
        self.snapshot: dict[bytes, int] | None = None
        """What the backend saw when it looked, for the answer to come."""
        self.failures = 0
        self.questions = 0
        self.blocked = False
        self.output: dict[bytes, list[int]] = {channel: [] for channel in CHANNELS}
        self.open()
        for channel in CHANNELS:
            self.truth[channel] += [True] * unseen
            number = self.house.table.get(channel)
            assert number is not None
            recent = None
            if told:
                self.told[channel] = len(self.truth[channel])
                recent = id_of(channel, len(self.truth[channel]) - 1)
            self.house.table.confirmed(channel, number.number, recent)

    # the kind of session

    @abstractmethod
    def open(self) -> None: ...
    @abstractmethod
    def format(self, number: bytes) -> dict[str, Any]: ...
    @property
    @abstractmethod
    def session(self) -> Recovering: ...
    @abstractmethod
    def asked(self) -> LastIds | None:
        """What the question under way names; None if there is none."""

    @abstractmethod
    def answer_with(self, found: dict[bytes, list[int]], last: dict[bytes, int], way: int) -> None: ...
    @abstractmethod
    def fail(self) -> None: ...
    @abstractmethod
    def recover(self) -> None:
        """The worker knows that items were lost."""

    @property
    @abstractmethod
    def state(self) -> State: ...
    @abstractmethod
    def block(self, blocked: bool) -> None: ...
    @abstractmethod
    def read(self) -> list[bytes]:
        """The contents the client has got since the last time."""

    @abstractmethod
    def other(self, way: int) -> None:
        """Something that only this kind of session does, or the end of it."""

    @abstractmethod
    def others_end(self) -> None:
        """The backend answers whatever is not a question."""

    # steps

    def publish(self, channel: bytes, ours: bool) -> None:
        self.truth[channel].append(ours)
        self.wire.append((channel, len(self.truth[channel]) - 1))

    def item(self, channel: bytes, number: int) -> Item:
        formats = self.format(b"%b%d." % (channel, number)) if self.truth[channel][number] else {}
        return Item(channel, id_of(channel, number), id_of(channel, number - 1), **formats)

    def arrive(self, index: int, again: bool) -> None:
        if self.wire:
            place = index % len(self.wire)
            channel, number = self.wire[place] if again else self.wire.pop(place)
            if self.truth[channel][number]:
                self.told[channel] = max(self.told[channel], number + 1)
            self.house.publish(self.item(channel, number))

    def lose(self, index: int, known: bool) -> None:
        if self.wire:
            self.wire.pop(index % len(self.wire))
            if known:
                self.told = {channel: len(log) for channel, log in self.truth.items()}
                self.recover()

    def hint(self, channel: bytes) -> None:
        self.told[channel] = len(self.truth[channel])
        self.house.publish(Item(channel, stream=StreamFormat("hint"), message=MessageFormat("hint")))

    def turn(self, seconds: float) -> None:
        self.house.clock.now += seconds
        self.house.wheel.advance(self.house.clock.now)
        self.house.scheduler.run()
        self.house.turns.run_all()

    def look(self) -> None:
        """The backend reads its database for the answer to come."""
        if self.asked() is not None:
            self.snapshot = {channel: len(log) for channel, log in self.truth.items()}

    def answer(self, way: int) -> None:
        last_ids = self.asked()
        if last_ids is None:
            return
        if self.snapshot is None:
            self.look()
        seen, self.snapshot = self.snapshot, None
        assert seen is not None
        self.failures = 0
        self.questions += 1
        found, last = {}, {}
        for channel, last_id in last_ids:
            begin = 1 + next(n for n in range(len(self.truth[channel])) if id_of(channel, n) == last_id)
            assert begin <= len(self.truth[channel])
            last[channel] = max(begin, seen[channel])
            found[channel] = [n for n in range(begin, last[channel]) if self.truth[channel][n]]
        self.answer_with(found, last, way)

    def step(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        if name == "fail":
            # So often that nobody gives up.
            if self.asked() is not None and self.failures < 5:
                self.failures += 1
                self.snapshot = None
                self.fail()
        elif name == "block":
            if arguments[0] != self.blocked:
                self.blocked = arguments[0]
                self.block(self.blocked)
        else:
            getattr(self, name)(*arguments)
        self.check()

    # the promise

    def check(self) -> None:
        """What the client has is the beginning of the truth."""
        for content in self.read():
            for message in content.split(b".")[:-1]:
                self.output[message[:1]].append(int(message[1:]))
        for channel, got in self.output.items():
            due = self.due(channel, len(self.truth[channel]))
            assert got == due[: len(got)], f"{channel!r}: the client has {got}, the truth is {due}"
        assert not self.session.over
        queued = self.state in (State.QUEUED, State.RETRY_QUEUED)
        assert (self.session in self.house.scheduler) == queued, f"in the scheduler or not, in state {self.state.name}"

    def due(self, channel: bytes, end: int) -> list[int]:
        """Which items before ``end`` are for the client, and not in its opening."""
        return [n for n in range(self.had[channel], end) if self.truth[channel][n]]

    def settle(self, publish: bool) -> None:
        """The network turns good: after a while the client has the truth, and nobody asks any more."""
        self.step(("block", False))
        self.wire.clear()
        # The longest pause after failures, and what its answer leads to.
        self.rest(30)
        for channel, told in self.told.items():
            assert len(self.output[channel]) >= len(self.due(channel, told)), "known, and not asked for"
        if publish:
            for channel in CHANNELS:
                self.publish(channel, True)
                self.step(("arrive", 0, False))
        self.rest(40 if publish else 200)
        for channel, log in self.truth.items():
            assert self.output[channel] == self.due(channel, len(log))
        # A quiet time may be over once more.
        before = self.questions
        self.rest(90)
        assert self.questions - before <= 1

    def rest(self, seconds: int) -> None:
        """So long the backend answers at once."""
        for _ in range(seconds // 5):
            self.turn(5)
            self.others_end()
            self.step(("answer", 0))


class StreamWorld(World):
    def open(self) -> None:
        wants = [want(channel, id_of(channel, self.had[channel] - 1)) for channel in CHANNELS]
        self.stream = Stream(self.house, *wants, start=False)

    @property
    def session(self) -> Recovering:
        return self.stream.hold

    def format(self, number: bytes) -> dict[str, Any]:
        return {"stream": StreamFormat("send", number)}

    def asked(self) -> LastIds | None:
        return self.stream.question()[2] if self.stream.waiting else None

    def answer_with(self, found: dict[bytes, list[int]], last: dict[bytes, int], way: int) -> None:
        body = b"".join(b"%b%d." % (channel, n) for channel, numbers in found.items() for n in numbers)
        headers = [
            (b"Grip-Channel", b"%b; prev-id=%b" % (channel, id_of(channel, last[channel] - 1))) for channel in CHANNELS
        ]
        hold = (b"Grip-Hold", b"stream")
        self.stream.answer(Response(200, b"OK", [hold, *headers, (b"Grip-Link", b"</next>; rel=next")], body))

    def fail(self) -> None:
        self.stream.answer(None)

    def recover(self) -> None:
        self.stream.hold.recover()

    @property
    def state(self) -> State:
        return self.stream.hold._recovery.state

    def other(self, way: int) -> None:
        pass

    def others_end(self) -> None:
        pass

    def block(self, blocked: bool) -> None:
        if blocked:
            self.stream.hold.on_blocked()
        else:
            self.stream.hold.on_writable()

    def read(self) -> list[bytes]:
        data, contents = b"".join(e for e in self.stream.take() if isinstance(e, bytes)), []
        while data:
            size, _, data = data.partition(b"\r\n")
            contents.append(data[: int(size, 16)])
            data = data[int(size, 16) + 2 :]
        return contents


class Chat(Talk):
    """Knows what the client had when the last request went."""

    had: LastIds = ()

    def post(self, body: bytes, replayed: int, meta: Headers, last_ids: LastIds = ()) -> None:
        super().post(body, replayed, meta, last_ids)
        reliable = self.session.reliable
        self.had = reliable.recovery.last_ids() if reliable is not None else ()


class SocketWorld(World):
    def open(self) -> None:
        self.talk = Chat(self.house)
        self.talk.open(*[self.subscribe(channel, self.had[channel]) for channel in CHANNELS], confirm=False)
        assert self.talk.session.reliable is not None
        self.reliable = self.talk.session.reliable

    def subscribe(self, channel: bytes, last: int) -> bytes:
        return event(b'c:{"type":"subscribe","channel":"%b","prev-id":"%b"}' % (channel, id_of(channel, last - 1)))

    @property
    def session(self) -> Recovering:
        return self.reliable

    def format(self, number: bytes) -> dict[str, Any]:
        return {"message": MessageFormat("send", "text", number)}

    def asked(self) -> LastIds | None:
        if self.talk.in_flight and self.talk.requests[-1][1]:
            return self.talk.requests[-1][1]
        return None

    def answer_with(self, found: dict[bytes, list[int]], last: dict[bytes, int], way: int) -> None:
        events = []
        for channel, numbers in found.items():
            if not numbers and way & 1 and last[channel] == 1 + self.number_of(channel):
                continue  # nothing to say
            if way & 2 and len(numbers) > 1:
                # A part of it.
                del numbers[len(numbers) // 2 :]
                last[channel] = numbers[-1] + 1
            told = [event(b"m:%b%d." % (channel, n)) for n in numbers]
            subscription = self.subscribe(channel, last[channel])
            events += [subscription, *told] if way & 4 else [*told, subscription]
        self.talk.answer(*events)

    def number_of(self, channel: bytes) -> int:
        """Which item the question names as the last of the channel."""
        last_id = dict(self.talk.requests[-1][1])[channel]
        return next(n for n in range(len(self.truth[channel])) if id_of(channel, n) == last_id)

    def fail(self) -> None:
        self.talk.fail()

    def recover(self) -> None:
        self.reliable.recover()

    @property
    def state(self) -> State:
        return self.reliable.recovery.state

    def block(self, blocked: bool) -> None:
        if blocked:
            self.talk.session.on_blocked()
        else:
            self.talk.session.on_writable()

    def other(self, way: int) -> None:
        """The client says something; or it is answered, with the ids of when it was said."""
        if not self.talk.in_flight:
            self.talk.say(b"x")
        elif not self.asked():
            had = self.talk.had if way & 1 else ()
            subscribe = b'c:{"type":"subscribe","channel":"%b","prev-id":"%b"}'
            self.talk.answer(*[event(subscribe % pair) for pair in had])

    def others_end(self) -> None:
        if self.talk.in_flight and not self.asked():
            self.talk.answer()

    def read(self) -> list[bytes]:
        return [content for _, content in self.talk.heard()]


ITEMS = st.integers(0, 5)
CHANNEL = st.sampled_from(CHANNELS)
STEP = st.one_of(
    st.tuples(st.just("publish"), CHANNEL, st.sampled_from((True, True, True, False))),
    st.tuples(st.just("publish"), CHANNEL, st.just(True)),
    st.tuples(st.just("arrive"), st.just(0), st.just(False)),
    st.tuples(st.just("arrive"), ITEMS, st.booleans()),
    st.tuples(st.just("lose"), ITEMS, st.booleans()),
    st.tuples(st.just("turn"), st.sampled_from((0.1, 0.2, 2.0, 20.0))),
    st.tuples(st.just("turn"), st.just(0.2)),
    st.tuples(st.just("look")),
    st.tuples(st.just("answer"), st.integers(0, 7)),
    st.tuples(st.just("fail")),
    st.tuples(st.just("hint"), CHANNEL),
    st.tuples(st.just("block"), st.booleans()),
    st.tuples(st.just("other"), ITEMS),
)
NEXT = ("publish", b"a", True)
LOST_BEHIND_THE_LOOK = [NEXT, ("hint", b"a"), ("look",), NEXT, ("lose", 1, True), ("turn", 1.0), ("answer", 0)]
ANSWERED_IN_PARTS = [NEXT, NEXT, NEXT, ("hint", b"a"), ("answer", 2)]
HINTED_BEHIND_A_FULL_QUEUE = [
    ("hint", b"a"),
    ("look",),
    *[NEXT, ("arrive", 0, False)] * 3,
    NEXT,
    ("hint", b"a"),
    ("answer", 0),
]
RUN = st.lists(STEP, min_size=5, max_size=80)


@pytest.mark.parametrize("kind", [StreamWorld, SocketWorld])
@pytest.mark.parametrize("publish", [True, False], ids=["another item comes", "no other item comes"])
def test_the_client_gets_the_truth(kind: type[World], publish: bool) -> None:
    @fixed
    @given(st.integers(1, 3), st.integers(0, 2), st.booleans(), RUN)
    @example(1, 0, True, LOST_BEHIND_THE_LOOK)
    @example(1, 0, True, ANSWERED_IN_PARTS)
    @example(1, 0, False, ANSWERED_IN_PARTS)
    @example(1, 1, True, ANSWERED_IN_PARTS)
    @example(1, 0, False, HINTED_BEHIND_A_FULL_QUEUE)
    def run(held_before: int, unseen: int, told: bool, steps: list[tuple[Any, ...]]) -> None:
        world = kind(held_before, unseen, told)
        world.check()
        for step in steps:
            world.step(step)
        world.settle(publish)

    run()


@pytest.mark.parametrize("kind", [StreamWorld, SocketWorld])
def test_the_model_is_hard_enough(kind: type[World]) -> None:
    """Runs of this kind do lose, repeat and overtake: a session that believed all of it would break the promise."""
    world = kind(1, 0, True)
    for subscription in world.session.subscriptions:
        subscription.prev_id = None
    world.publish(b"a", True)
    world.publish(b"a", True)
    world.arrive(1, True)
    with pytest.raises(AssertionError, match="the truth is"):
        world.check()
