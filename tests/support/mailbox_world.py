"""A publisher's mailboxes, their subscribers, and a network between them that repeats, reorders and loses; no sockets.

One subscriber is that of ``griphub.Mailbox`` without its I/O. The other one is a plain program, with two polls at once
now and then, that is restored with an old state. What the publisher answers is compared with what it ought to, which is
kept aside; what breaks a promise is a finding:

    fifo                 messages come in the order of their ids
    once                 a message comes once, also if its topic and its key are followed
    acked-never-again    what was acknowledged does not come again
    unacked-never-lost   what was not acknowledged comes, as long as the publisher's id stays
    told                 what was lost is reported: to the subscriber, or by 404 or another publisher's id
    last-wins            the last command about a subscription wins
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from griphub.client.mailbox_actions import (
    Action,
    Cause,
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
from griphub.mailboxes.commands import CommandBatch, parse_commands
from griphub.mailboxes.decisions import Applied, Conflict, Hold, Messages, Unknown
from griphub.mailboxes.mailboxes import Mailboxes

__all__ = ["PROMISES", "Finding", "World", "play"]

PROMISES: Final = ("fifo", "once", "acked-never-again", "unacked-never-lost", "told", "last-wins")

T, TA = Pair("t"), Pair("t", "a")
PAIRS: Final = (T, Pair("u"), TA, Pair("v", "b"))

STEPS: Final = {
    "publish": 14,
    "arrive": 16,
    "return": 16,
    "repeat": 5,
    "lose request": 2,
    "lose answer": 3,
    "time": 6,
    "subscribe": 5,
    "unsubscribe": 2,
    "deliver": 4,
    "restart": 1,
    "forget": 1,
    "plain commands": 4,
    "plain poll": 8,
    "plain restored": 2,
}
"""Steps, each with its share."""


@dataclass(frozen=True)
class Finding:
    """Promise that was broken.

    Attributes:
        promise: its name.
        text: what was seen.
    """

    promise: str
    text: str


@dataclass
class Expected:
    """Mailbox as it ought to be, in one life.

    Attributes:
        subscriptions: topics and keys that it follows.
        pending: messages that it has, or has to report as lost, by id: each with the subscriptions that it is for.
            Without one of these, which lasted since, a message may come or not.
        acknowledged: greatest number that a poll has acknowledged, among those that were given.
        given: greatest number that a reply had.
        sequence: number of the last batch of commands.
    """

    subscriptions: set[Pair] = field(default_factory=set)
    pending: dict[int, set[Pair]] = field(default_factory=dict)
    acknowledged: int = 0
    given: int = 0
    sequence: int = 0

    def published(self, id: int, pair: Pair) -> None:
        """Expect a message, if it is for the mailbox."""
        found = self.subscriptions & {pair, Pair(pair.topic)}
        if found:
            self.pending[id] = found

    def command(self, pair: Pair, *, subscribe: bool) -> None:
        """Carry out a command."""
        if subscribe:
            self.subscriptions.add(pair)
            return
        self.subscriptions.discard(pair)
        for found in self.pending.values():
            found.discard(pair)
        self.pending = {id: found for id, found in self.pending.items() if found}

    def lost(self, loss: Loss) -> None:
        """Expect no more what is reported as lost; a loss of a whole topic may stand for those of its keys."""
        topic, key = loss.pair
        for id, found in list(self.pending.items()):
            if id <= loss.place.id and any(pair.topic == topic and key in (None, pair.key) for pair in found):
                del self.pending[id]


@dataclass
class Plain:
    """Subscriber that is a plain program.

    Attributes:
        sequence: of its last batch.
        batch: batch that is not answered; None for none.
        publisher_id: as the last answer had it.
        processed: greatest number that it has processed under that id.
        saved: earlier pair of those, which it may be restored with.
    """

    sequence: int = 0
    batch: CommandBatch | None = None
    publisher_id: str | None = None
    processed: int = 0
    saved: tuple[str | None, int] = (None, 0)


class World:
    """All of it.

    Args:
        chance: chooses.
        bounds: of the mailboxes.
    """

    def __init__(self, chance: random.Random, bounds: Bounds) -> None:
        self._chance = chance
        self._bounds = bounds
        self.now = 0.0
        self.findings: list[Finding] = []
        self.truth: list[tuple[int, Pair]] = []
        self._publishers = itertools.count(1)
        self._hub = self._new_hub()
        names = itertools.count(1)
        self._client = MailboxState(lambda: f"s{next(names)}", lambda: 1.0, failure_after=10.0, commands_max=2)
        self._plain = Plain()
        self._requests: list[Any] = []
        self._answers: list[tuple[Any, Any]] = []
        self._held: dict[tuple[str, int], Any] = {}
        self._expected: dict[tuple[str, str], Expected] = {}
        """By name and publisher's id."""
        self._current: dict[str, str] = {}
        """Publisher's id of the present life, by name."""
        self.wanted: dict[Pair, int] = {}
        """Subscriptions of the client, each with the newest id at its begin."""
        self._both = False
        """Whether a topic and its key were followed beside each other."""
        self.got: list[int] = []
        self.reports: list[Cause] = []

    def _new_hub(self) -> Mailboxes:
        return Mailboxes(f"p{next(self._publishers)}", self._bounds)

    def _find(self, promise: str, text: str) -> None:
        self.findings.append(Finding(promise, text))

    # --- the publisher

    def _newest(self, topic: str) -> int:
        return max((id for id, pair in self.truth if pair.topic == topic), default=0)

    def _publish(self, number: int) -> None:
        pair = PAIRS[number % len(PAIRS)]
        id = (self.truth[-1][0] if self.truth else 0) + 1 + number % 3
        self.truth.append((id, pair))
        for name, life in self._current.items():
            self._expected[name, life].published(id, pair)
        self._woken(self._hub.publish(*pair, id, None, 10, self.now))

    def _woken(self, wakes: Any) -> None:
        for woken in wakes:
            poll = self._held.pop((woken.subscriber, woken.number), None)
            if poll is not None:
                self._requests.append(poll)

    def _arrive(self, request: Any) -> None:
        if isinstance(request, SendCommands):
            self._commands(request.subscriber, parse_commands(request.document()), request)
        elif isinstance(request, CommandBatch):
            self._commands("plain", request, request)
        else:
            self._poll(request)

    def _commands(self, name: str, batch: CommandBatch, request: Any) -> None:
        decision = self._hub.commands(name, "o", batch, lambda topic, _: self._newest(topic), self.now)
        if isinstance(decision, Conflict):
            self._answers.append((request, Failure(409, str(decision))))
            return
        assert isinstance(decision, Applied)
        life = decision.publisher_id
        self._current[name] = life
        expected = self._expected.setdefault((name, life), Expected())
        if not decision.repeated:
            if batch.sequence <= expected.sequence:
                self._find("last-wins", f"{name}: batch {batch.sequence} was carried out after {expected.sequence}")
            expected.sequence = batch.sequence
            # The last command of a batch about a subscription is that which counts.
            for (topic, key), subscribe in {(each.topic, each.key): each.subscribe for each in batch.commands}.items():
                expected.command(Pair(topic, key), subscribe=subscribe)
        last = [None if id is None else Place(id) for id in decision.last_ids]
        self._answers.append((request, CommandsAnswer(life, last)))

    def _poll(self, poll: Poll) -> None:
        name, life = poll.subscriber, self._current.get(poll.subscriber, "")
        expected = self._expected.get((name, life))
        if expected is not None and poll.publisher_id == life:
            expected.acknowledged = max(expected.acknowledged, min(poll.max_processed, expected.given))
        found = self._hub.poll(name, "o", poll.max_processed, poll.publisher_id, self.now)
        if isinstance(found, Unknown):
            if expected is not None:
                self._find("told", f"{name} is unknown, and was not forgotten")
            self._answers.append((poll, Failure(404)))
            return
        if expected is None:
            self._find("told", f"{name} was forgotten, and its poll is answered with {type(found).__name__}")
            return
        assert isinstance(found, Hold | Messages)
        if found.older is not None and (older := self._held.pop((name, found.older), None)) is not None:
            self._answers.append((older, PollAnswer(life)))
        if isinstance(found, Hold):
            if poll.publisher_id not in (None, life):
                self._find("told", f"{name} polls with {poll.publisher_id} and is held in {life}")
            self._check(name, expected, [], [])
            self._held[name, found.number] = poll
            return
        reply = found.reply
        messages = [MailboxMessage(each.topic, each.key, Place(each.id), None) for each in reply.messages]
        lost = [Loss(Pair(loss.topic, loss.key), Place(loss.last_id)) for loss in reply.lost]
        self._check(name, expected, messages, lost)
        self._answers.append((poll, PollAnswer(reply.publisher_id, messages, lost)))

    def _check(self, name: str, expected: Expected, messages: list[MailboxMessage], lost: list[Loss]) -> None:
        """Compare a reply with the mailbox as it ought to be."""
        ids = [message.place.id for message in messages]
        if len(set(ids)) < len(ids):
            self._find("once", f"{name}: {ids}")
        elif ids != sorted(ids):
            self._find("fifo", f"{name}: {ids}")
        if again := [id for id in ids if id <= expected.acknowledged]:
            self._find("acked-never-again", f"{name}: {again} up to {expected.acknowledged}")
        for loss in lost:
            expected.lost(loss)
        due = [id for id in expected.pending if id > expected.acknowledged]
        # Those beyond the end of the reply come with the next one.
        missing = [id for id in due if id not in ids and (not ids or id < max(ids))]
        if missing and not self._hub.behind and (ids or not lost):
            self._find("unacked-never-lost", f"{name}: {missing} of {due}, a reply has {ids}")
        expected.pending = {id: expected.pending[id] for id in due}
        expected.given = max([expected.given, *ids, *(loss.place.id for loss in lost)])

    # --- the client

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Deliver(found):
                    self._have(found.place.id)
                case ReadHistory(pair, after, until):
                    for id, found_pair in self.truth:
                        if after.id < id <= until.id and pair in (found_pair, Pair(found_pair.topic)):
                            self._have(id)
                case Report(cause):
                    self.reports.append(cause)
                case SendCommands() | Poll():
                    self._requests.append(action)

    def _have(self, id: int) -> None:
        topic = next(pair.topic for found, pair in self.truth if found == id)
        same = {found for found, pair in self.truth if pair.topic == topic}
        # After a failure, histories of a topic and of a key that is followed beside it may overlap.
        if not (topic == "t" and self._both):
            if id in self.got:
                self._find("once", f"the application has {id} twice")
            elif max(same & set(self.got), default=0) > id:
                self._find("fifo", f"the application has {id} behind {self.got[-1]}")
        self.got.append(id)

    def _give(self, request: Any, answer: Any) -> None:
        client = self._client
        if isinstance(request, CommandBatch):
            self._give_plain(request, answer)
        elif isinstance(request, Poll) and request.subscriber == "plain":
            self._give_plain_poll(request, answer)
        elif isinstance(request, Poll):
            take = client.poll_failed if isinstance(answer, Failure) else client.poll_answered
            self._act(take(request, answer, self.now))
        elif isinstance(answer, Failure):
            self._act(client.commands_failed(request, answer, self.now))
        else:
            self._act(client.commands_answered(request, answer, self.now))

    # --- the plain program

    def _plain_commands(self, number: int) -> None:
        plain = self._plain
        if plain.batch is None:
            commands = []
            for _ in range(1 + number % 2):
                pair = self._chance.choice(PAIRS)
                name = "subscribe" if self._chance.random() < 0.7 else "unsubscribe"
                commands.append({name: {"topic": pair.topic, **({"key": pair.key} if pair.key else {})}})
            plain.batch = parse_commands({"sequence": plain.sequence + 1, "commands": commands})
        self._requests.append(plain.batch)

    def _give_plain(self, batch: CommandBatch, answer: Any) -> None:
        plain = self._plain
        if batch is not plain.batch or (isinstance(answer, Failure) and answer.status is None):
            return
        plain.batch = None
        if isinstance(answer, Failure):
            # It begins again, and has to be forgotten for that.
            self._forget("plain")
            self._plain = Plain(saved=plain.saved)
            return
        plain.sequence = batch.sequence
        if answer.publisher_id != plain.publisher_id:
            plain.publisher_id, plain.processed = answer.publisher_id, 0

    def _plain_poll(self) -> None:
        plain = self._plain
        self._requests.append(Poll("plain", plain.processed, plain.publisher_id))

    def _give_plain_poll(self, poll: Poll, answer: Any) -> None:
        plain = self._plain
        if isinstance(answer, Failure):
            if answer.status == 404:
                self._plain = Plain(saved=plain.saved)
            return
        if answer.publisher_id != plain.publisher_id:
            plain.publisher_id, plain.processed = answer.publisher_id, 0
        ids = [each.place.id for each in (*answer.lost, *answer.messages)]
        plain.processed = max([plain.processed, *ids])
        if self._chance.random() < 0.3:
            plain.saved = (plain.publisher_id, plain.processed)

    # --- what happens

    def step(self, kind: str, number: int) -> None:
        """Let something happen.

        Args:
            kind: of ``STEPS``.
            number: chooses what it happens to.
        """
        if kind in ("arrive", "repeat", "return", "lose request", "lose answer"):
            self._carry(kind, number)
        elif kind in ("subscribe", "unsubscribe"):
            self._choose(PAIRS[number % len(PAIRS)], subscribe=kind == "subscribe")
        else:
            events: dict[str, Callable[[], object]] = {
                "publish": lambda: self._publish(number),
                "deliver": lambda: self._woken(self._hub.deliver(self.now)),
                "restart": self._restart,
                "forget": lambda: self._forget(self._client.subscriber if number % 2 else "plain"),
                "time": lambda: self._wait(1.0 + number),
                "plain commands": lambda: self._plain_commands(number),
                "plain poll": self._plain_poll,
                "plain restored": lambda: self._restore(number),
            }
            events[kind]()

    def _carry(self, kind: str, number: int) -> None:
        """Let something happen to a request or answer on its way, if there is one."""
        on_their_way: list[Any] = self._answers if kind in ("return", "lose answer") else self._requests
        if not on_their_way:
            return
        place = number % len(on_their_way)
        match kind:
            case "repeat":
                self._arrive(self._requests[place])
            case "arrive":
                self._arrive(self._requests.pop(place))
            case "return":
                self._give(*self._answers.pop(place))
            case "lose request":
                self._give(self._requests.pop(place), Failure(None, "lost"))
            case _:
                self._give(self._answers.pop(place)[0], Failure(None, "lost"))

    def _choose(self, pair: Pair, *, subscribe: bool) -> None:
        """Have the client subscribe or unsubscribe."""
        if not subscribe:
            self.wanted.pop(pair, None)
            self._act(self._client.unsubscribe(pair, self.now))
        elif pair not in self.wanted:
            self.wanted[pair] = self.truth[-1][0] if self.truth else 0
            self._both |= {T, TA} <= set(self.wanted)
            self._act(self._client.subscribe(pair, self.now, Place(self.wanted[pair])))

    def _wait(self, seconds: float) -> None:
        self.now += seconds
        self._act(self._client.tick(self.now))

    def _restart(self) -> None:
        self._hub = self._new_hub()
        self._current.clear()
        self._cut()

    def _restore(self, number: int) -> None:
        """Give the plain program the state of a former life, or of another publisher, whose numbers are greater."""
        self._plain.publisher_id, self._plain.processed = self._plain.saved if number % 2 else ("elsewhere", 10**6)

    def _forget(self, name: str) -> None:
        self._hub.forget(name)
        self._current.pop(name, None)
        self._cut()

    def _cut(self) -> None:
        """End held polls without an answer."""
        for poll in list(self._held.values()):
            self._give(poll, Failure(None, "cut"))
        self._held.clear()

    def settle(self) -> None:
        """Carry everything, until nothing moves any more; then look whether the client has all."""
        for _ in range(500):
            if self._requests:
                self._arrive(self._requests.pop(0))
            elif self._answers:
                self._give(*self._answers.pop(0))
            elif self._hub.behind:
                self._woken(self._hub.deliver(self.now))
            elif self._client.deadline is not None:
                self.now = max(self.now, self._client.deadline)
                self._act(self._client.tick(self.now))
            else:
                break
        else:
            self._find("told", "the client does not come to rest")
            return
        for pair, begin in self.wanted.items():
            expected = [id for id, found in self.truth if id > begin and pair in (found, Pair(found.topic))]
            if missing := [id for id in expected if id not in self.got]:
                self._find("told", f"the application lacks {missing} of {pair}")
        there = self._expected.get((self._client.subscriber, self._current.get(self._client.subscriber, "")))
        followed = set() if there is None else there.subscriptions
        if followed != set(self.wanted):
            self._find("last-wins", f"{followed} is followed, and {set(self.wanted)} is wanted")


def play(seed: int, bounds: Bounds | None = None, steps: int = 300) -> World:
    """Return a world in which much has happened.

    Args:
        seed: decides what.
        bounds: of the mailboxes; small ones if None.
        steps: number of things that happen.
    """
    chance = random.Random(seed)
    world = World(chance, bounds or Bounds(messages=3, reply_messages=2, losses=1))
    for kind in chance.choices(list(STEPS), list(STEPS.values()), k=steps):
        world.step(kind, chance.randrange(8))
        if world.findings:
            return world
    world.settle()
    return world
