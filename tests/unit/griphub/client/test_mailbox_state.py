"""State of a subscriber: answers in, actions out; and the whole against the hub's core over a bad network."""

from __future__ import annotations

import itertools
import random
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from griphub.client.errors import BadAnswer
from griphub.client.mailbox_actions import (
    Action,
    Cause,
    Command,
    CommandsAnswer,
    Deliver,
    Failure,
    Loss,
    MailboxMessage,
    Pair,
    Place,
    Poll,
    PollAnswer,
    ReadHistory,
    Report,
    SendCommands,
)
from griphub.client.mailbox_state import MailboxState
from griphub.mailboxes.bounds import Bounds
from griphub.mailboxes.commands import parse_commands
from griphub.mailboxes.decisions import Applied, Conflict, Hold, Messages, Unknown
from griphub.mailboxes.mailboxes import Mailboxes

T, U, TA = Pair("t"), Pair("u"), Pair("t", "a")
A = TypeVar("A")


def state(**options: int) -> MailboxState:
    names = itertools.count(1)
    return MailboxState(lambda: f"s{next(names)}", lambda: 1.0, failure_after=10.0, **options)


def one(actions: list[Action], kind: type[A]) -> A:
    (found,) = [action for action in actions if isinstance(action, kind)]
    return found


def kinds(actions: list[Action]) -> list[type]:
    return [type(action) for action in actions]


def causes(actions: list[Action]) -> list[Cause]:
    return [action.cause for action in actions if isinstance(action, Report)]


def message(id: int, topic: str = "t", key: str | None = None) -> MailboxMessage:
    return MailboxMessage(topic, key, Place(id), f"payload {id}")


def following(*pairs: Pair, last: int = 5, **options: int) -> tuple[MailboxState, Poll]:
    """State that polls for subscriptions."""
    client = state(**options)
    poll = None
    for pair in pairs:
        batch = one(client.subscribe(pair, 0), SendCommands)
        actions = client.commands_answered(batch, CommandsAnswer("p1", [Place(last)]), 0)
        poll = poll or one(actions, Poll)
    assert poll is not None
    return client, poll


def test_commands_wait_for_the_batch_under_way_and_the_last_one_wins() -> None:
    client = state(commands_max=2)
    first = one(client.subscribe(T, 0), SendCommands)
    assert (first.sequence, first.commands) == (1, (Command(True, T),))
    for pair in (U, TA, Pair("v")):
        assert client.subscribe(pair, 0) == []
    assert client.unsubscribe(U, 0) == []
    assert client.unsubscribe(T, 0) == []
    assert client.subscribe(T, 0) == []
    actions = client.commands_answered(first, CommandsAnswer("p1", [Place(5)]), 0)
    batch = one(actions, SendCommands)
    assert (batch.sequence, batch.commands) == (2, (Command(True, TA), Command(True, Pair("v"))))
    batch = one(client.commands_answered(batch, CommandsAnswer("p1", [Place(5), Place(0)]), 0), SendCommands)
    assert (batch.sequence, batch.commands) == (3, (Command(True, T),))
    assert client.commands_answered(first, CommandsAnswer("p1", [Place(5)]), 0) == []


def test_a_batch_is_repeated_unchanged_after_a_pause() -> None:
    client = state()
    batch = one(client.subscribe(T, 0), SendCommands)
    assert client.commands_failed(batch, Failure(503, "away"), 1.0) == []
    assert client.subscribe(U, 1.0) == []
    assert client.deadline == pytest.approx(1.1)
    assert client.tick(1.05) == []
    assert client.tick(1.2) == [batch]


def test_polls_begin_with_the_mailbox_and_acknowledge_deliveries() -> None:
    client, poll = following(T)
    assert (poll.subscriber, poll.max_processed, poll.publisher_id) == ("s1", 0, "p1")
    actions = client.poll_answered(poll, PollAnswer("p1", [message(6), message(7)]), 1)
    assert kinds(actions) == [Deliver, Deliver, Poll]
    assert one(actions, Poll).max_processed == 7
    assert client.poll_answered(poll, PollAnswer("p1", [message(8)]), 1) == [], "an answer that is late"
    actions = client.poll_answered(one(actions, Poll), PollAnswer("p1", [message(7), message(8)]), 1)
    assert kinds(actions) == [Deliver, Poll]


def test_a_poll_that_the_application_has_delayed_counts_from_its_begin() -> None:
    client, poll = following(T)
    assert client.follows(T)
    assert not client.follows(U)
    assert client.poll_begun(poll, 100)
    assert client.poll_failed(poll, Failure(503, "away"), 101) == [], "not silent for long"
    poll = one(client.tick(102), Poll)
    batch = one(client.subscribe(U, 102), SendCommands)
    client.commands_answered(batch, CommandsAnswer("p2", [Place(5)]), 102)
    assert not client.poll_begun(poll, 103), "of an earlier life"


def test_messages_of_others_are_dropped_and_acknowledged() -> None:
    client, poll = following(T)
    actions = client.poll_answered(poll, PollAnswer("p1", [message(6, "x"), message(7, "x", "y")]), 1)
    assert kinds(actions) == [Poll]
    assert one(actions, Poll).max_processed == 7


def test_a_message_before_the_answer_to_its_subscribe_waits_for_it() -> None:
    client, poll = following(T)
    batch = one(client.subscribe(U, 0, after=Place(3)), SendCommands)
    actions = client.poll_answered(poll, PollAnswer("p1", [message(6), message(9, "u"), message(10)]), 1)
    assert kinds(actions) == [Deliver]
    actions = client.commands_answered(batch, CommandsAnswer("p1", [Place(8)]), 2)
    assert actions[0] == ReadHistory(U, Place(3), Place(8))
    poll = one(actions, Poll)
    assert poll.max_processed == 6
    actions = client.poll_answered(poll, PollAnswer("p1", [message(9, "u"), message(10)]), 3)
    assert kinds(actions) == [Deliver, Deliver, Poll]


def test_a_forgotten_subscriber_subscribes_again_and_reads_from_its_places() -> None:
    client, poll = following(T, TA)
    poll = one(client.poll_answered(poll, PollAnswer("p1", [message(6)]), 1), Poll)
    actions = client.poll_failed(poll, Failure(404, "unknown subscriber"), 2)
    assert kinds(actions) == [Report, SendCommands]
    assert causes(actions) == [Cause.FORGOTTEN]
    batch = one(actions, SendCommands)
    assert (batch.subscriber, batch.sequence, client.subscriber) == ("s2", 1, "s2")
    assert batch.commands == (Command(True, T), Command(True, TA))
    actions = client.commands_answered(batch, CommandsAnswer("p1", [Place(9), Place(9)]), 3)
    assert actions[:2] == [ReadHistory(T, Place(6), Place(9)), ReadHistory(TA, Place(5), Place(9))]
    assert kinds(actions[2:]) == [Poll]
    assert one(actions, Poll).max_processed == 0


def test_another_publisher_id_begins_again_in_polls_and_commands() -> None:
    client, poll = following(T)
    actions = client.poll_answered(poll, PollAnswer("p2", [message(6)]), 1)
    assert kinds(actions) == [Report, SendCommands]
    assert causes(actions) == [Cause.RESTARTED]
    client, poll = following(T)
    batch = one(client.subscribe(U, 1), SendCommands)
    actions = client.commands_answered(batch, CommandsAnswer("p2", [Place(0)]), 1)
    assert causes(actions) == [Cause.RESTARTED]
    assert one(actions, SendCommands).commands == (Command(True, T), Command(True, U))
    assert client.poll_answered(poll, PollAnswer("p1"), 1) == []


def test_a_conflict_begins_again_under_another_name_after_a_pause() -> None:
    client, _ = following(T)
    batch = one(client.subscribe(U, 1), SendCommands)
    actions = client.commands_failed(batch, Failure(409, "expected 1"), 1)
    assert causes(actions) == [Cause.CONFLICT]
    assert kinds(actions) == [Report]
    assert one(client.tick(2), SendCommands).subscriber == "s2"


def test_losses_are_reported_and_read() -> None:
    client, poll = following(T, U)
    lost = [Loss(T, Place(7)), Loss(Pair("x"), Place(8))]
    actions = client.poll_answered(poll, PollAnswer("p1", [message(9)], lost), 1)
    assert actions[:2] == [Report(Cause.LOST, T), ReadHistory(T, Place(5), Place(7))]
    assert kinds(actions[2:]) == [Deliver, Poll]
    actions = client.poll_answered(one(actions, Poll), PollAnswer("p1", [], [Loss(U, Place(11))]), 2)
    assert one(actions, Poll).max_processed == 11


def test_an_ended_subscription_is_reported_once_and_confirmed() -> None:
    client, poll = following(T, U)
    poll = one(client.poll_answered(poll, PollAnswer("p1"), 100), Poll)
    actions = client.poll_answered(poll, PollAnswer("p1", ended=[U]), 101)
    assert causes(actions) == [Cause.ENDED]
    assert one(actions, SendCommands).commands == (Command(False, U),)
    actions = client.poll_answered(one(actions, Poll), PollAnswer("p1", ended=[U]), 110)
    assert kinds(actions) == [Poll]


def test_refused_subscribes_end() -> None:
    client = state()
    batch = one(client.subscribe(T, 0), SendCommands)
    actions = client.commands_answered(batch, CommandsAnswer("p1", [None]), 0)
    assert causes(actions) == [Cause.REFUSED]
    batch = one(client.subscribe(U, 0), SendCommands)
    actions = client.commands_failed(batch, Failure(400, "no such thing"), 0)
    assert actions == [Report(Cause.REFUSED, U, "no such thing")]
    assert one(client.subscribe(U, 0), SendCommands).sequence == 2


def test_a_limit_that_stays_refuses_the_batch() -> None:
    client = state()
    batch = one(client.subscribe(T, 0), SendCommands)
    assert client.commands_failed(batch, Failure(429, "full"), 1) == []
    assert one(client.tick(5), SendCommands) is batch
    assert causes(client.commands_failed(batch, Failure(429, "full"), 10)) == [Cause.REFUSED]


def test_failed_polls_are_reported_once_after_a_time() -> None:
    client, poll = following(T)
    assert client.poll_failed(poll, Failure(None, "no connection"), 1) == []
    poll = one(client.tick(2), Poll)
    actions = client.poll_failed(poll, Failure(None, "no connection"), 10)
    assert actions == [Report(Cause.UNREACHABLE, None, "no connection")]
    poll = one(client.tick(20), Poll)
    assert client.poll_failed(poll, Failure(503, "away", 60.0), 21) == []
    assert client.deadline == 81


def test_empty_replies_in_quick_succession_are_slowed_down() -> None:
    client, poll = following(T)
    poll = one(client.poll_answered(poll, PollAnswer("p1"), 55), Poll)
    assert client.poll_answered(poll, PollAnswer("p1"), 55.5) == []
    assert kinds(client.tick(56)) == [Poll]


def test_bounds_and_answers_that_do_not_fit() -> None:
    client = state(keys_max=1)
    batch = one(client.subscribe(T, 0), SendCommands)
    assert client.subscribe(T, 0) == []
    with pytest.raises(ValueError, match="there are 1 subscriptions: at most 1"):
        client.subscribe(U, 0)
    with pytest.raises(BadAnswer, match="2 last ids for 1 subscribes"):
        client.commands_answered(batch, CommandsAnswer("p1", [None, None]), 0)
    assert client.unsubscribe(U, 0) == []
    assert kinds(client.commands_answered(batch, CommandsAnswer("p1", [Place(0)]), 0)) == [Poll]


# --- with the hub's core, over a network that repeats, reorders and loses

PAIRS = (T, U, TA, Pair("v", "b"))
STEPS = {"publish": 14, "arrive": 16, "return": 16, "repeat": 5, "lose request": 2, "lose answer": 2, "time": 6}
STEPS |= {"subscribe": 5, "unsubscribe": 2, "restart": 1, "forget": 1}


class World:
    """A subscriber, the hub's core, the truth, and requests and answers on their way."""

    def __init__(self) -> None:
        self.now = 0.0
        self.publishers = itertools.count(1)
        self.truth: list[tuple[int, Pair]] = []
        self.hub = self.new_hub()
        self.client = state(commands_max=2)
        self.requests: list[SendCommands | Poll] = []
        self.answers: list[tuple[SendCommands | Poll, CommandsAnswer | PollAnswer | Failure]] = []
        self.held: dict[tuple[str, int], Poll] = {}
        self.wanted: dict[Pair, int] = {}
        """Subscriptions, each with the newest id at its begin."""
        self.both = False
        """Whether a topic and its key were followed beside each other."""
        self.got: list[int] = []
        self.reports: list[Cause] = []
        self.acknowledged: dict[tuple[str, str], int] = {}

    def new_hub(self) -> Mailboxes:
        return Mailboxes(f"p{next(self.publishers)}", Bounds(messages=3, reply_messages=2, losses=1))

    def newest(self, topic: str) -> int:
        return max((id for id, pair in self.truth if pair.topic == topic), default=0)

    def act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Deliver(found):
                    self.have(found.place.id)
                case ReadHistory(pair, after, until):
                    for id, found_pair in self.truth:
                        if after.id < id <= until.id and pair in (found_pair, Pair(found_pair.topic)):
                            self.have(id)
                case Report(cause):
                    self.reports.append(cause)
                case SendCommands() | Poll():
                    self.requests.append(action)

    def have(self, id: int) -> None:
        topic = next(pair.topic for found, pair in self.truth if found == id)
        same = {found for found, pair in self.truth if pair.topic == topic}
        # After a failure, histories of a topic and of a key that is followed beside it may overlap.
        if not (topic == "t" and self.both):
            assert id not in self.got, "twice"
            assert max(same & set(self.got), default=0) < id, "order"
        self.got.append(id)

    def publish(self, number: int) -> None:
        pair = PAIRS[number % 4]
        id = (self.truth[-1][0] if self.truth else 0) + 1 + number % 3
        self.truth.append((id, pair))
        for woken in self.hub.publish(*pair, id, None, 10, self.now):
            poll = self.held.pop((woken.subscriber, woken.number))
            self.requests.append(poll)

    def arrive(self, request: SendCommands | Poll) -> None:
        if isinstance(request, SendCommands):
            batch = parse_commands(request.document())
            decision = self.hub.commands(request.subscriber, "o", batch, lambda topic, _: self.newest(topic), self.now)
            if isinstance(decision, Conflict):
                self.answers.append((request, Failure(409, str(decision))))
            else:
                assert isinstance(decision, Applied)
                last = [None if id is None else Place(id) for id in decision.last_ids]
                self.answers.append((request, CommandsAnswer(decision.publisher_id, last)))
            return
        found = self.hub.poll(request.subscriber, "o", request.max_processed, request.publisher_id, self.now)
        match found:
            case Unknown():
                self.answers.append((request, Failure(404)))
            case Hold(number, older, publisher_id):
                if older is not None:
                    self.answers.append((self.held.pop((request.subscriber, older)), PollAnswer(publisher_id)))
                self.held[request.subscriber, number] = request
            case Messages(_, reply, older):
                life = (request.subscriber, reply.publisher_id)
                if older is not None:
                    self.answers.append((self.held.pop((request.subscriber, older)), PollAnswer(life[1])))
                if request.publisher_id == life[1]:
                    self.acknowledged[life] = max(self.acknowledged.get(life, 0), request.max_processed)
                assert all(each.id > self.acknowledged.get(life, 0) for each in reply.messages), "acknowledged"
                messages = [MailboxMessage(m.topic, m.key, Place(m.id), None) for m in reply.messages]
                lost = [Loss(Pair(loss.topic, loss.key), Place(loss.last_id)) for loss in reply.lost]
                self.answers.append((request, PollAnswer(reply.publisher_id, messages, lost)))

    def give(self, request: SendCommands | Poll, answer: CommandsAnswer | PollAnswer | Failure) -> None:
        client = self.client
        if isinstance(request, Poll):
            if isinstance(answer, Failure):
                self.act(client.poll_failed(request, answer, self.now))
            elif isinstance(answer, PollAnswer):
                self.act(client.poll_answered(request, answer, self.now))
        elif isinstance(answer, Failure):
            self.act(client.commands_failed(request, answer, self.now))
        elif isinstance(answer, CommandsAnswer):
            self.act(client.commands_answered(request, answer, self.now))

    def step(self, kind: str, number: int) -> None:
        match kind:
            case "publish":
                self.publish(number)
            case "arrive" | "repeat" if self.requests:
                place = number % len(self.requests)
                self.arrive(self.requests[place] if kind == "repeat" else self.requests.pop(place))
            case "return" if self.answers:
                self.give(*self.answers.pop(number % len(self.answers)))
            case "lose request" if self.requests:
                self.give(self.requests.pop(number % len(self.requests)), Failure(None, "lost"))
            case "lose answer" if self.answers:
                self.give(self.answers.pop(number % len(self.answers))[0], Failure(None, "lost"))
            case "subscribe":
                pair = PAIRS[number % 4]
                if pair not in self.wanted:
                    self.wanted[pair] = self.truth[-1][0] if self.truth else 0
                    self.both |= {T, TA} <= set(self.wanted)
                    self.act(self.client.subscribe(pair, self.now, Place(self.wanted[pair])))
            case "unsubscribe":
                pair = PAIRS[number % 4]
                self.wanted.pop(pair, None)
                self.act(self.client.unsubscribe(pair, self.now))
            case "restart":
                self.hub = self.new_hub()
                self.cut()
            case "forget":
                self.hub.forget(self.client.subscriber)
                self.cut()
            case "time":
                self.now += 1 + number
                self.act(self.client.tick(self.now))
            case _:
                pass

    def cut(self) -> None:
        """Held polls end without an answer."""
        for poll in list(self.held.values()):
            self.give(poll, Failure(None, "cut"))
        self.held.clear()

    def settle(self) -> None:
        """Carry everything, until nothing moves any more."""
        for _ in range(300):
            if self.requests:
                self.arrive(self.requests.pop(0))
            elif self.answers:
                self.give(*self.answers.pop(0))
            elif self.client.deadline is not None:
                self.now = max(self.now, self.client.deadline)
                self.act(self.client.tick(self.now))
            else:
                return
        raise AssertionError("it does not come to rest")


fixed = settings(max_examples=200, deadline=None, derandomize=True, database=None)


@fixed
@given(st.integers(0, 2**32))
def test_the_subscriber_has_everything_it_follows_whatever_the_network_does(seed: int) -> None:
    # A list of steps drawn by hypothesis is too short for a batch to be overtaken by a later life of the mailbox.
    chance = random.Random(seed)
    world = World()
    for kind in chance.choices(list(STEPS), list(STEPS.values()), k=120):
        world.step(kind, chance.randrange(8))
    world.settle()
    for pair, begin in world.wanted.items():
        expected = [id for id, found in world.truth if id > begin and pair in (found, Pair(found.topic))]
        assert [id for id in expected if id not in world.got] == [], pair
    held = world.hub._index
    assert {
        pair for pair in PAIRS if any(box.subscriber == world.client.subscriber for box in held.matching(*pair))
    } >= set(world.wanted)


def test_a_pause_without_commands_leaves_no_deadline() -> None:
    client, _ = following(T)
    batch = one(client.subscribe(U, 1), SendCommands)
    client.unsubscribe(T, 1)
    client.unsubscribe(U, 1)
    client.commands_failed(batch, Failure(409), 1)
    assert client.deadline is not None
    assert client.tick(client.deadline) == []
    assert client.deadline is None
