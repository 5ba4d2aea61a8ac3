"""The worker's table of channels: what it asks the handler, what it tells sessions.

And the table and the handler's exchange joined by an imaginary wire, with every order in which messages may cross.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy import pipe
from gripproxy.delivery.channel import FEW, Channel, FastPath, Subscription
from gripproxy.delivery.channel_table import ChannelTable
from gripproxy.delivery.fanout import STEP
from gripproxy.grip.item import Item
from gripproxy.grip.item_pack import unpack_item
from gripproxy.grip.response import Response
from gripproxy.pipe import RESPONSE, SOCKET, STREAM, Message
from gripproxy.sessions.response import ResponseHold, ResponseTerms
from handler.dispatch.dispatcher import Dispatcher
from tests.support.session_doubles import Client, House, Listener, answer, text, want


@pytest.fixture
def house() -> House:
    return House()


class TestLane:
    @given(st.lists(st.integers(0, 4)))
    def test_its_members_are_who_joined_and_has_not_left_in_that_order(self, moves: list[int]) -> None:
        lane, table = FastPath(), ChannelTable(lambda message: None)
        sessions = [Listener(table) for _ in range(5)]
        expected: dict[Listener, None] = {}
        for number in moves:
            session = sessions[number]
            if session in expected:
                lane.leave(session)
                del expected[session]
            else:
                lane.join(session)
                lane.join(session)
                expected[session] = None
            assert list(lane.members) == list(expected)

    @given(st.lists(st.integers(0, 4)))
    def test_careful_ones_are_who_is_watched(self, moves: list[int]) -> None:
        channel, table = Channel(b"ch"), ChannelTable(lambda message: None)
        sessions = [Listener(table) for _ in range(5)]
        expected: dict[Listener, Subscription] = {}
        for number in moves:
            session = sessions[number]
            if session in expected:
                assert channel.unwatch(session)
                assert not channel.unwatch(session)
                del expected[session]
            else:
                expected[session] = Subscription(session, channel, b"ch", None, ())
                channel.watch(expected[session])
            assert channel.watched() == tuple(expected.values())
            assert (channel.careful is None) == (not expected)

    def test_a_fan_out_of_several_turns_looks_at_a_dict(self) -> None:
        assert FEW < STEP


class TestSubscribe:
    def test_the_handler_is_asked_once_per_channel(self, house: House) -> None:
        first = Listener(house.table).join(want(b"a"))
        second = Listener(house.table).join(want(b"a"))
        assert house.take() == [(pipe.SUBSCRIBE, b"a", 1)]
        assert not first.confirmed
        house.table.confirmed(b"a", 1, None)
        assert first.confirmed
        assert second.confirmed

    def test_a_confirmed_channel_needs_no_second_question(self, house: House) -> None:
        Listener(house.table).join(want(b"a"))
        house.confirm()
        later = Listener(house.table).join(want(b"a"))
        assert later.confirmed
        assert house.take() == []

    def test_a_session_waits_for_all_its_channels(self, house: House) -> None:
        session = Listener(house.table).join(want(b"a"), want(b"b"))
        house.table.confirmed(b"a", 1, None)
        assert not session.confirmed
        house.table.confirmed(b"b", 2, None)
        assert session.confirmed

    def test_no_channel_is_confirmed_at_once(self, house: House) -> None:
        session = Listener(house.table)
        house.table.subscribe(session, [])
        assert session.confirmed
        assert house.take() == []

    def test_the_prefix_belongs_to_the_channel_and_not_to_its_name(self, house: House) -> None:
        session = Listener(house.table).join(want(b"a", b"3", "skip-self", prefix=b"r-"))
        (subscription,) = session.subscriptions
        assert house.take() == [(pipe.SUBSCRIBE, b"r-a", 1)]
        assert (subscription.name, subscription.prev_id, subscription.filters) == (b"a", b"3", ("skip-self",))
        assert house.table.get(b"r-a") is subscription.channel
        assert house.table.get(b"a") is None

    def test_an_answer_to_an_older_question_is_ignored(self, house: House) -> None:
        Listener(house.table).join().leave()
        session = Listener(house.table).join()
        assert [message[:2] for message in house.take()] == [
            (pipe.SUBSCRIBE, b"ch"),
            (pipe.UNSUBSCRIBE, b"ch"),
            (pipe.SUBSCRIBE, b"ch"),
        ]
        house.table.confirmed(b"ch", 1, b"old")
        assert not session.confirmed
        house.table.confirmed(b"ch", 2, None)
        assert session.confirmed

    def test_an_answer_nobody_waits_for_is_ignored(self, house: House) -> None:
        Listener(house.table).join().leave()
        house.table.confirmed(b"ch", 1, b"x")
        assert len(house.table) == 0


class TestUnsubscribe:
    def test_the_last_session_ends_the_subscription(self, house: House) -> None:
        first, second = Listener(house.table).join(), Listener(house.table).join()
        house.take()
        first.leave()
        assert house.take() == []
        second.leave()
        assert house.take() == [(pipe.UNSUBSCRIBE, b"ch", False)]
        assert len(house.table) == 0

    @pytest.mark.parametrize(("mode", "linger"), [(RESPONSE, True), (STREAM, False), (SOCKET, False)])
    def test_a_response_hold_that_was_the_last_one_lingers(self, house: House, mode: int, linger: bool) -> None:
        session = Listener(house.table, mode=mode).join()
        house.take()
        session.leave()
        assert house.take() == [(pipe.UNSUBSCRIBE, b"ch", linger)]

    def test_one_that_leaves_before_the_answer_is_not_told(self, house: House) -> None:
        leaver, stayer = Listener(house.table).join(), Listener(house.table).join()
        leaver.leave()
        house.confirm()
        assert not leaver.confirmed
        assert stayer.confirmed

    def test_one_that_leaves_because_another_was_confirmed(self, house: House) -> None:
        """Sessions are told in turn; what the first does may end the second."""
        second = Listener(house.table)

        class First(Listener):
            def on_confirmed(self) -> None:
                second.leave()

        First(house.table).join()
        second.join()
        house.confirm()
        assert second.subscriptions == ()
        assert house.table.get(b"ch") is not None


class TestCounts:
    def test_only_changes_are_told_and_together(self, house: House) -> None:
        sessions = [Listener(house.table, mode=mode).join() for mode in (RESPONSE, STREAM, STREAM, SOCKET)]
        house.confirm()
        house.table.counts()
        assert sorted(house.take()) == [
            (pipe.COUNT, b"ch", RESPONSE, 1),
            (pipe.COUNT, b"ch", STREAM, 2),
            (pipe.COUNT, b"ch", SOCKET, 1),
        ]
        house.table.counts()
        assert house.take() == []
        sessions[1].leave()
        Listener(house.table).join()
        house.table.counts()
        assert house.take() == []
        sessions[0].leave()
        house.table.counts()
        assert house.take() == [(pipe.COUNT, b"ch", RESPONSE, 0)]

    def test_a_channel_that_is_gone_has_no_counts(self, house: House) -> None:
        Listener(house.table).join().leave()
        house.take()
        house.table.counts()
        assert house.take() == []

    def test_nothing_is_told_while_the_pipe_is_down(self, house: House) -> None:
        Listener(house.table).join()
        house.confirm()
        house.table.down()
        house.table.counts()
        assert house.take() == []
        house.table.announce(2, "1")
        house.take()
        house.table.counts()
        assert house.take() == []


class TestAnnounce:
    def test_hello_has_every_channel_with_its_sessions_and_its_last_id(self, house: House) -> None:
        for mode in (RESPONSE, STREAM, STREAM, SOCKET):
            Listener(house.table, mode=mode).join(want(b"a"))
        Listener(house.table).join(want(b"b"))
        house.confirm()
        house.publish(text(b"x", b"7", channel=b"a"), text(b"y", channel=b"b"))
        house.table.down()
        house.table.announce(5, "2")
        (hello,) = house.take()
        assert hello == (pipe.HELLO, pipe.VERSION, 5, "2", [(b"a", 1, 2, 1, b"7"), (b"b", 0, 1, 0, None)])

    def test_what_sessions_wait_for_is_asked_again_with_a_new_number(self, house: House) -> None:
        session = Listener(house.table).join()
        house.table.down()
        house.take()
        house.table.announce(1, "1")
        hello, question = house.take()
        assert hello[4] == []
        assert question == (pipe.SUBSCRIBE, b"ch", 2)
        house.table.confirmed(b"ch", 1, None)
        assert not session.confirmed
        house.table.confirmed(b"ch", 2, None)
        assert session.confirmed

    def test_a_session_that_came_while_the_pipe_was_down_is_confirmed_when_it_is_back(self, house: House) -> None:
        old = Listener(house.table).join()
        house.confirm()
        house.table.down()
        new = Listener(house.table).join()
        other = Listener(house.table).join(want(b"b"))
        house.take()
        assert not new.confirmed
        house.table.announce(1, "1")
        house.confirm()
        assert new.confirmed
        assert other.confirmed
        assert old.confirmed


class TestConflict:
    """A backend's prev-id beside the id of the last item (docs/grip.md §6.4)."""

    def hold(self, house: House, prev_id: bytes | None) -> Client:
        client = Client()
        terms = ResponseTerms(Response(200, b"OK", [], b"held"), 55, {}, None, b"", False)
        ResponseHold(client, house.context, terms, 1).start([want(b"ch", prev_id)], 8)
        return client

    def test_the_same_id_is_none(self, house: House) -> None:
        client = self.hold(house, b"5")
        house.confirm(b"5")
        assert client.take() == []

    def test_nothing_known_or_nothing_claimed_is_none(self, house: House) -> None:
        unclaimed, unknown = self.hold(house, None), self.hold(house, b"5")
        house.confirm(None)
        assert unclaimed.take() == unknown.take() == []

    def test_another_id_is_repaired_at_once(self, house: House) -> None:
        client = self.hold(house, b"5")
        house.confirm(b"6")
        assert client.take() == [("retry", ((b"ch", b"5"),))]

    def test_every_session_that_is_behind_is_repaired(self, house: House) -> None:
        """One session's repair must not make the others believe that they are up to date."""
        clients = [self.hold(house, b"5") for _ in range(3)]
        house.confirm(b"6")
        assert [client.take() for client in clients] == [[("retry", ((b"ch", b"5"),))]] * 3

    def test_the_worker_decides_with_the_item_it_received_last(self, house: House) -> None:
        Listener(house.table).join()
        house.confirm(b"5")
        house.publish(text(b"x", b"6", b"5"))
        behind, current = self.hold(house, b"5"), self.hold(house, b"6")
        assert behind.take() == [("retry", ((b"ch", b"5"),))]
        assert current.take() == []

    def test_an_item_without_id_does_not_hide_the_one_before_it(self, house: House) -> None:
        Listener(house.table).join()
        house.confirm(b"6")
        house.publish(text(b"x"))
        assert self.hold(house, b"5").take() == [("retry", ((b"ch", b"5"),))]
        assert self.hold(house, b"6").take() == []


# --- both ends of the pipe


class Peer:
    """The handler's view of the worker: a way to send messages down the wire."""

    def __init__(self, wire: deque[Message]) -> None:
        self.send = wire.append


class World:
    """A worker's table and fan-out, a handler's exchange, and a wire between them that delivers when it is told to.

    Events: ``step`` does the next thing in the worker, ``publish`` the next item in the handler, ``up`` and ``down``
    deliver one message. Unrealistic: messages of one turn do not travel in one frame, which only makes more orders.
    """

    def __init__(self, steps: list[Callable[[World], None]], items: list[Item]) -> None:
        self.house = House()
        self.table: ChannelTable = self.house.table
        self.up: deque[Message] = deque()
        self.down: deque[Message] = deque()
        self.table._send = self.up.append
        self.handler = Dispatcher(update=False)
        self.peer: Peer | None = None
        self.steps = deque(steps)
        self.items = deque(items)
        self.accepted: list[Item] = []
        self.sessions: list[Listener] = []
        self.holds: list[ResponseHold] = []
        self.heard: int | None = None
        """How many items were accepted before the handler heard of the channel, if it knows it."""
        self.connect()

    def connect(self) -> None:
        self.peer = None
        self.table.announce(1, "1")

    def restart_handler(self) -> None:
        """The handler dies and is back at once: what is on the wire is lost with it."""
        self.up.clear()
        self.down.clear()
        self.table.down()
        self.handler = Dispatcher(update=False)
        self.connect()

    def break_link(self) -> None:
        self.up.clear()
        self.down.clear()
        self.table.down()
        if self.peer is not None:
            self.handler.left(self.peer, 0.0)
        self.connect()

    def lose(self) -> None:
        self.down.clear()
        self.down.append((pipe.LOST,))

    def enabled(self) -> list[str]:
        events = []
        if self.up:
            events.append("up")
        if self.items:
            events.append("publish")
        if self.down:
            events.append("down")
        if self.steps:
            events.append("step")
        return events

    def do(self, event: str) -> None:
        getattr(self, f"do_{event}")()

    def do_step(self) -> None:
        self.steps.popleft()(self)

    def do_publish(self) -> None:
        item = self.items.popleft()
        self.handler.accept(item, 0.0)
        self.accepted.append(item)

    def do_up(self) -> None:
        message = self.up.popleft()
        if message[0] == pipe.HELLO:
            self.peer = Peer(self.down)
            self.handler.joined(self.peer, message[4], 0.0)
            self.heard = len(self.accepted) if message[4] else None
            return
        assert self.peer is not None
        if message[0] == pipe.UNSUBSCRIBE:
            self.heard = None
        elif message[0] == pipe.SUBSCRIBE and self.heard is None:
            self.heard = len(self.accepted)
        self.handler.received(self.peer, message, 0.0)

    def do_down(self) -> None:
        message = self.down.popleft()
        if message[0] == pipe.ITEM:
            self.house.fanout.item(unpack_item(message[1]))
            self.house.fanout.flush()
        elif message[0] == pipe.SUBSCRIBED:
            self.table.confirmed(message[1], message[2], message[3])
        elif message[0] == pipe.LOST:
            self.table.lost()
            for held in self.holds:
                # As the worker does, though not in batches.
                held.update()


WORKER_SIDE = ("down", "step")


def every_order(make: Callable[[], World], check: Callable[[World], None], alike: bool = True) -> int:
    """Run a fresh world through every order of events, check each at its end, and return how many there were.

    Two events on different sides commute unless one sends what the other receives: with ``alike`` only one order of
    such a pair is tried.
    """

    def allowed(world: World, last: str | None, before: list[str]) -> list[str]:
        enabled = world.enabled()
        if alike and last in WORKER_SIDE:
            # What the handler could have done before the last event is tried in that order.
            return [event for event in enabled if event in WORKER_SIDE or event not in before]
        return enabled

    orders = 0
    paths: list[list[str]] = [[]]
    while paths:
        path = paths.pop()
        world = make()
        before: list[str] = []
        for event in path:
            before = world.enabled()
            world.do(event)
        while events := allowed(world, path[-1] if path else None, before):
            paths += [[*path, event] for event in events[1:]]
            before = world.enabled()
            world.do(events[0])
            path = [*path, events[0]]
        if not world.enabled():
            orders += 1
            check(world)
    return orders


class Late(Listener):
    """A listener that knows how many items had been accepted when it came."""

    accepted_before = 0


def join(world: World) -> None:
    session = Late(world.table)
    session.accepted_before = len(world.accepted)
    world.sessions.append(session)
    session.join()


def leave(world: World) -> None:
    next(session for session in world.sessions if not session.over).leave()


def restart(world: World) -> None:
    world.restart_handler()


def break_link(world: World) -> None:
    """The link breaks and is back at once; the handler lives on, with what it knows."""
    world.break_link()


def lose(world: World) -> None:
    """What the handler has queued is more than it may keep."""
    world.lose()


def check_nothing_lost(world: World) -> None:
    """Whoever is left has every item accepted since it came and the handler knew of it, once and in order."""
    accepted = [item.stream.content.decode() for item in world.accepted if item.stream is not None]
    for session in world.sessions:
        got = session.contents
        assert got == sorted(set(got)), (got, accepted)
        if session.over:
            continue
        assert session.confirmed
        assert world.heard is not None
        since = max(world.heard, session.accepted_before if isinstance(session, Late) else 0)
        assert set(accepted[since:]) <= set(got), (got, accepted, since)


def numbered(count: int) -> list[Item]:
    return [text(b"%d" % n, b"%d" % n, b"%d" % (n - 1)) for n in range(1, count + 1)]


class TestBothEnds:
    def test_subscribe_unsubscribe_subscribe_while_publishing_loses_nothing(self) -> None:
        orders = every_order(lambda: World([join, leave, join], numbered(3)), check_nothing_lost)
        assert orders > 100

    def test_twice_in_a_row(self) -> None:
        orders = every_order(lambda: World([join, leave, join, leave, join], numbered(1)), check_nothing_lost)
        assert orders > 100

    def test_a_second_session_that_comes_and_the_first_that_goes(self) -> None:
        orders = every_order(lambda: World([join, join, leave, join], numbered(3)), check_nothing_lost)
        assert orders > 100

    def test_everything_gone_at_the_end(self) -> None:
        def check(world: World) -> None:
            check_nothing_lost(world)
            assert len(world.table) == 0
            assert world.handler.subscriptions.channels == {}

        every_order(lambda: World([join, leave, join, leave], numbered(1)), check)

    @pytest.mark.parametrize(
        "steps", [[join, restart], [join, restart, leave, join], [join, leave, restart, join], [join, restart, join]]
    )
    def test_the_handler_restarts_in_between(self, steps: list[Callable[[World], None]]) -> None:
        """What the old one had accepted and not delivered is lost with it; what the new one accepts is not."""
        assert every_order(lambda: World(steps, numbered(1)), check_nothing_lost, alike=False) > 10

    @pytest.mark.parametrize("steps", [[join, lose], [join, join, lose, join]])
    def test_the_handler_drops_its_queue_answers_and_all(self, steps: list[Callable[[World], None]]) -> None:
        """Nobody waits for an answer that was dropped."""

        def check(world: World) -> None:
            assert all(session.confirmed for session in world.sessions if not session.over)

        assert every_order(lambda: World(steps, numbered(1)), check, alike=False) > 10


class PollWorld(World):
    """Long-polls: each reads the backend's newest id in one step and is held in a later one."""

    def __init__(self, steps: list[Callable[[World], None]], items: int) -> None:
        super().__init__(steps, [answer(b"%d" % n, b"%d" % n, b"%d" % (n - 1)) for n in range(1, items + 1)])
        self.reads: list[bytes] = []
        self.polls: list[tuple[bytes, Client]] = []


def read(world: World) -> None:
    """A backend reads its data for a poll; the last id in it is that of the item published last."""
    assert isinstance(world, PollWorld)
    world.reads.append(b"%d" % len(world.accepted))


def hold(world: World) -> None:
    """The backend's answer arrives, and with it the hold."""
    assert isinstance(world, PollWorld)
    prev_id = world.reads.pop(0)
    client = Client()
    world.polls.append((prev_id, client))
    terms = ResponseTerms(Response(200, b"OK", [], b"held"), 55, {}, None, b"", False)
    held = ResponseHold(client, world.house.context, terms, 1)
    world.holds.append(held)
    held.start([want(b"ch", prev_id)], 8)


def check_no_window(world: World) -> None:
    """No poll waits although something was published after its backend had read."""
    assert isinstance(world, PollWorld)
    last = b"%d" % len(world.accepted)
    for prev_id, client in world.polls:
        if prev_id != last or client.log:
            # An item that was still on its way when the backend read may cost a request too many.
            ((what, *_),) = client.log
            assert what == "retry" or (what == "respond" and prev_id != last), (prev_id, last)


class TestNoWindow:
    """What is published between a backend's reading and the hold is delivered or repaired, in every order."""

    def test_one_poll(self) -> None:
        assert every_order(lambda: PollWorld([read, hold], 3), check_no_window, alike=False) > 10

    def test_two_polls_one_after_the_other(self) -> None:
        assert every_order(lambda: PollWorld([read, hold, read, hold], 2), check_no_window, alike=False) > 10

    def test_two_polls_at_the_same_time(self) -> None:
        assert every_order(lambda: PollWorld([read, read, hold, hold], 2), check_no_window, alike=False) > 10

    @pytest.mark.parametrize("trouble", [break_link, lose])
    def test_a_poll_that_begins_after_items_were_lost(self, trouble: Callable[[World], None]) -> None:
        """What the worker received last is no measure then: the handler is asked, also for a channel it had confirmed.

        Polls that were held before are repaired by other means: they are asked to update.
        """

        def check(world: World) -> None:
            world.polls = world.polls[1:]  # type: ignore[attr-defined]
            check_no_window(world)

        def make() -> World:
            world = PollWorld([read, trouble, hold], 2)
            read(world)
            hold(world)
            while world.up or world.down:
                world.do("up" if world.up else "down")
            return world

        assert every_order(make, check, alike=False) > 10


class TestInsistence:
    """A backend that goes on naming the same prev-id is believed when it was asked once more."""

    def hold(self, house: House, because: tuple[tuple[bytes, bytes], ...] = ()) -> Client:
        client = Client()
        terms = ResponseTerms(Response(200, b"OK", [], b"held"), 55, {}, None, b"", False)
        ResponseHold(client, house.context, terms, 1, because).start([want(b"ch", b"5")], 8)
        return client

    def test_it_is_asked_once_and_then_both_sides_forget(self, house: House) -> None:
        first = self.hold(house)
        house.confirm(b"6")
        assert first.take() == [("retry", ((b"ch", b"5"),))]
        assert house.take() == [(pipe.UNSUBSCRIBE, b"ch", True)]
        second = self.hold(house, first.because)
        house.confirm(b"6")
        assert second.take() == []
        assert house.take() == [(pipe.CONFLICT, b"ch", b"6", b"5")]
        third = self.hold(house)
        assert third.take() == []

    def test_a_newer_item_is_another_reason(self, house: House) -> None:
        first = self.hold(house)
        house.confirm(b"6")
        second = self.hold(house, first.because)
        house.confirm(b"7")
        assert second.take() == [("retry", ((b"ch", b"5"),))]
        assert second.because == ((b"ch", b"7"),)
