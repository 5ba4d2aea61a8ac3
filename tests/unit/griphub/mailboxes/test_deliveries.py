"""Deliveries: few at once, many in turns of their owners, each owner's in order, and a gap where too many wait."""

from __future__ import annotations

import itertools

from griphub.mailboxes.bounds import Bounds
from griphub.mailboxes.commands import Command, CommandBatch
from griphub.mailboxes.decisions import Hold, Messages, WakeUp
from griphub.mailboxes.deliveries import AT_ONCE, OWNERS, SLICE
from griphub.mailboxes.mailbox import ALLOWANCE, ALLOWANCE_RATE
from griphub.mailboxes.mailboxes import Mailboxes

MANY = AT_ONCE + 50


class House:
    """Mailboxes with short calls.

    Args:
        bounds: of mailboxes.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.boxes = Mailboxes("p", bounds or Bounds(mailboxes_each=10_000))
        self.now = 0.0
        self.id = 0
        self.publisher_ids: dict[str, str] = {}

    def follow(self, owner: str, number: int, topic: str = "t", key: str | None = None) -> list[str]:
        """Make mailboxes of an owner that follow a topic or key; return their names."""
        names = [f"{owner}{topic}{key or ''}{place}" for place in range(number)]
        for name in names:
            batch = CommandBatch(1, (Command(True, topic, key),))
            self.boxes.commands(name, owner, batch, lambda topic, key: self.id, self.now)
        return names

    def publish(self, topic: str = "t", key: str | None = None, size: int = 10) -> list[WakeUp]:
        self.id += 1
        return list(self.boxes.publish(topic, key, self.id, b"", size, self.now))

    def got(self, name: str, owner: str) -> list[int]:
        """Return the ids in a mailbox."""
        decision = self.boxes.poll(name, owner, 0, None, self.now)
        return [message.id for message in decision.reply.messages] if isinstance(decision, Messages) else []

    def lost(self, name: str, owner: str) -> list[tuple[str, str | None, int]]:
        """Return the losses of a mailbox."""
        decision = self.boxes.poll(name, owner, 0, None, self.now)
        return (
            [(each.topic, each.key, each.last_id) for each in decision.reply.lost]
            if isinstance(decision, Messages)
            else []
        )

    def finish(self) -> int:
        """Deliver all; return the number of turns."""
        turns = 0
        while self.boxes.behind:
            self.boxes.deliver(self.now)
            turns += 1
        return turns


def test_a_message_for_few_is_delivered_at_once() -> None:
    house = House()
    names = house.follow("o", AT_ONCE)
    assert isinstance(house.boxes.poll(names[0], "o", 0, None, 0), Hold)
    assert house.publish() == [WakeUp(names[0], 1)]
    assert not house.boxes.behind
    assert house.got(names[-1], "o") == [1]


def test_a_message_for_many_of_an_owner_does_not_delay_those_of_others() -> None:
    house = House()
    many, few = house.follow("many", MANY), house.follow("few", 1)
    assert house.publish() == []
    assert (house.boxes.behind, house.got(many[0], "many"), house.got(few[0], "few")) == (True, [], [1])
    # The order of an owner's messages stays, also of one for few.
    [one] = house.follow("many", 1, "u")
    house.publish("u")
    assert house.got(one, "many") == []
    assert house.finish() == 1
    assert [house.got(name, "many") for name in (many[0], many[-1], one)] == [[1], [1], [2]]


def test_a_turn_is_bounded_and_owners_take_turns() -> None:
    house = House()
    first, second = house.follow("a", 2 * SLICE), house.follow("b", MANY)
    for _ in range(3):
        house.publish()
    turns = 0
    reached: list[list[int]] = []
    while house.boxes.behind:
        house.boxes.deliver(0)
        turns += 1
        sizes = {name: house.boxes.summaries(name, 0) for name in "ab"}
        reached.append([sum(each.messages for each in sizes[name]) for name in "ab"])
    assert reached[1][1] == 3 * MANY, "the other is not behind all of the first"
    assert all(now[0] - before[0] <= SLICE for before, now in itertools.pairwise(reached))
    assert [house.got(name, "a") for name in (first[0], first[-1])] == [[1, 2, 3]] * 2
    assert house.got(second[0], "b") == [1, 2, 3]


def test_a_message_of_very_many_owners_is_divided_in_turns() -> None:
    house = House()
    names = {f"o{number}": house.follow(f"o{number}", 1)[0] for number in range(OWNERS + 100)}
    house.publish()
    house.publish(key="k")
    assert house.boxes.behind
    house.boxes.deliver(0)
    assert house.finish() >= 1
    assert {tuple(house.got(name, owner)) for owner, name in names.items()} == {(1, 2)}


def test_a_subscription_gets_no_message_from_before_its_begin_nor_after_its_end() -> None:
    house = House()
    many = house.follow("o", MANY)
    house.publish()
    late = house.follow("o", 1, "t", "k")
    assert isinstance(
        house.boxes.commands(many[0], "o", CommandBatch(2, (Command(False, "t"),)), lambda *_: 0, 0), object
    )
    house.boxes.forget(many[1])
    house.publish(key="k")
    house.finish()
    assert house.got(late[0], "o") == [2]
    assert house.got(many[0], "o") == []
    assert house.got(many[2], "o") == [1, 2]


def test_an_owner_with_too_many_deliveries_waits_for_its_allowance() -> None:
    house = House()
    names = house.follow("o", AT_ONCE)
    for _ in range(int(ALLOWANCE) // AT_ONCE):
        house.publish()
    assert not house.boxes.behind
    house.publish()
    assert house.boxes.behind
    house.finish()
    house.now += AT_ONCE / ALLOWANCE_RATE
    house.publish()
    assert not house.boxes.behind
    assert house.got(names[0], "o") == list(range(1, house.id + 1))


def test_what_is_too_much_for_an_owner_is_a_gap_that_its_mailboxes_report() -> None:
    house = House(Bounds(mailboxes_each=10_000, messages=3))
    many, keyed = house.follow("o", MANY), house.follow("o", 1, "t", "k")
    [other] = house.follow("p", 1, "t")
    [apart] = house.follow("o", 1, "u")
    house.publish()
    house.finish()
    for _ in range(4):
        house.publish(key="k")
    assert house.boxes.behind
    house.publish()
    house.finish()
    # What a mailbox had before the gap goes as well: losses come before messages.
    assert (house.lost(many[0], "o"), house.got(many[0], "o")) == ([("t", None, 5)], [6])
    assert (house.lost(keyed[0], "o"), house.got(keyed[0], "o")) == ([("t", None, 5)], [])
    assert (house.lost(apart, "o"), house.got(apart, "o")) == ([], [])
    assert house.got(other, "p")[-1] == 6


def test_the_bytes_that_wait_for_an_owner_are_bounded_too() -> None:
    house = House(Bounds(mailboxes_each=10_000, bytes_each=10_000, messages=1000))
    names = house.follow("o", MANY)
    for _ in range(5):
        house.publish(size=3000)
    house.finish()
    assert house.lost(names[0], "o") == [("t", None, 4)]
    assert house.got(names[0], "o") == [5]
