"""State of a subscriber: answers in, actions out. tests/model/test_mailbox_world.py has it against the hub's core."""

from __future__ import annotations

import itertools
from typing import TypeVar

import pytest

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
    # All messages up to 6 were received: those of the key as well.
    assert actions[:2] == [ReadHistory(T, Place(6), Place(9)), ReadHistory(TA, Place(6), Place(9))]
    assert kinds(actions[2:]) == [Poll]
    assert one(actions, Poll).max_processed == 0


def test_after_a_restart_only_topics_with_something_new_are_read() -> None:
    def cursor(id: int, epoch: str = "e") -> Place:
        return Place(id, f"{epoch}.{id}")

    keys = [Pair("t", f"k{number}") for number in range(100)]
    client = state(commands_max=60)
    actions = [action for pair in (U, *keys) for action in client.subscribe(pair, 0)]

    def answer(actions: list[Action], epoch: str, **last: int) -> list[Action]:
        """Answer all commands; return the other actions."""
        others: list[Action] = [action for action in actions if not isinstance(action, SendCommands)]
        while batches := [action for action in actions if isinstance(action, SendCommands)]:
            found = [cursor(last[pair.topic]) for _, pair in batches[0].commands]
            actions = client.commands_answered(batches[0], CommandsAnswer(batches[0].subscriber, found, epoch), 1)
            others += [action for action in actions if not isinstance(action, SendCommands)]
        return others

    poll = one(answer(actions, "e", u=3, t=5), Poll)
    message = MailboxMessage("u", None, cursor(9), None)
    poll = one(client.poll_answered(poll, PollAnswer("s1", [message]), 1), Poll)
    # Another key of the topic has an event before that: had it been of one of these, it would have come.
    actions = answer(client.poll_failed(poll, Failure(404), 2), "e", u=9, t=7)
    assert kinds(actions) == [Report, Poll]
    # Now one behind it.
    actions = answer(client.poll_failed(one(actions, Poll), Failure(404), 3), "e", u=9, t=12)
    assert [each for each in actions if isinstance(each, ReadHistory)] == [
        ReadHistory(pair, cursor(9), cursor(12)) for pair in keys
    ]
    # After a restore the place may be one that was taken back: the history tells.
    actions = answer(client.poll_failed(one(actions, Poll), Failure(404), 4), "f", u=8, t=12)
    assert [each for each in actions if isinstance(each, ReadHistory)] == [ReadHistory(U, cursor(9), cursor(8))]


def test_a_command_that_is_refused_does_not_take_the_others_with_it() -> None:
    client = state()
    pairs = [Pair("t", f"k{number}") for number in range(5)]
    first = one(client.subscribe(U, 0), SendCommands)
    for pair in pairs:
        client.subscribe(pair, 0)
    batch = one(client.commands_answered(first, CommandsAnswer("p1", [Place(5)]), 0), SendCommands)
    client.unsubscribe(pairs[4], 0)
    actions = client.commands_failed(batch, Failure(400, "bad key", command=2), 0)
    assert actions[0] == Report(Cause.REFUSED, pairs[2], "bad key")
    batch = one(actions, SendCommands)
    expected = [*(Command(True, pair) for pair in (pairs[0], pairs[1], pairs[3])), Command(False, pairs[4])]
    assert (batch.sequence, batch.commands) == (2, tuple(expected))
    # A place that is none, or none at all: it is looked for by halves.
    actions = client.commands_failed(batch, Failure(403, "no right", command=99), 0)
    batch = one(actions, SendCommands)
    assert (kinds(actions), batch.sequence, batch.commands) == ([SendCommands], 2, tuple(expected[:2]))
    batch = one(client.commands_failed(batch, Failure(403, "no right"), 0), SendCommands)
    actions = client.commands_failed(batch, Failure(403, "no right"), 0)
    assert actions[0] == Report(Cause.REFUSED, pairs[0], "no right")
    sizes = []
    while any(isinstance(action, SendCommands) for action in actions):
        batch = one(actions, SendCommands)
        sizes.append(len(batch.commands))
        places = [Place(5) for subscribe, _ in batch.commands if subscribe]
        actions = client.commands_answered(batch, CommandsAnswer("p1", places), 0)
    assert sizes == [1, 2]
    assert [client.follows(pair) for pair in pairs] == [False, True, False, True, False]


@pytest.mark.parametrize("named", [True, False])
def test_one_bad_command_among_thousands_costs_few_requests(named: bool) -> None:
    client = state(commands_max=512)
    bad = Pair("t", "k300")
    requests = 0
    actions = [action for number in range(600) for action in client.subscribe(Pair("t", f"k{number}"), 0)]
    while any(isinstance(action, SendCommands) for action in actions):
        batch = one(actions, SendCommands)
        requests += 1
        pairs = [pair for _, pair in batch.commands]
        if bad in pairs:
            place = pairs.index(bad) if named else None
            actions = client.commands_failed(batch, Failure(400, "bad", command=place), 0)
        else:
            actions = client.commands_answered(batch, CommandsAnswer("p1", [Place(5)] * len(pairs)), 0)
    assert requests <= (4 if named else 40)
    assert [number for number in range(600) if not client.follows(Pair("t", f"k{number}"))] == [300]


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
    client.subscribe(U, 6)
    actions = client.commands_failed(batch, Failure(429, "full"), 10)
    assert causes(actions) == [Cause.REFUSED]
    # While none succeeds, the next ones do not wait for as long.
    actions = client.commands_failed(one(actions, SendCommands), Failure(429, "full"), 10.1)
    assert actions == [Report(Cause.REFUSED, U, "full")]


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


def test_a_pause_without_commands_leaves_no_deadline() -> None:
    client, _ = following(T)
    batch = one(client.subscribe(U, 1), SendCommands)
    client.unsubscribe(T, 1)
    client.unsubscribe(U, 1)
    client.commands_failed(batch, Failure(409), 1)
    assert client.deadline is not None
    assert client.tick(client.deadline) == []
    assert client.deadline is None
