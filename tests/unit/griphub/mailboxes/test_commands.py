"""Batches of commands: right ones, and for each wrong one the place and the right value."""

from __future__ import annotations

import pytest

from griphub.mailboxes.commands import (
    COMMANDS_MAX,
    KEY_MAX,
    SEQUENCE_MAX,
    BadCommands,
    Command,
    CommandBatch,
    TooManyCommands,
    check_subscriber,
    parse_commands,
)


def batch(*commands: object, sequence: object = 1) -> object:
    return {"sequence": sequence, "commands": list(commands)}


def test_a_batch_in_order() -> None:
    document = batch({"subscribe": {"topic": "t", "key": "k"}}, {"unsubscribe": {"topic": "p/t"}}, sequence=7)
    assert parse_commands(document) == CommandBatch(7, (Command(True, "t", "k"), Command(False, "p/t", None)))


def test_an_empty_batch_makes_a_subscriber() -> None:
    assert parse_commands(batch()) == CommandBatch(1, ())


def test_bounds_on_both_sides() -> None:
    command = {"subscribe": {"topic": "t" * 255, "key": "k" * KEY_MAX}}
    assert len(parse_commands(batch(*[command] * COMMANDS_MAX, sequence=SEQUENCE_MAX)).commands) == COMMANDS_MAX
    assert parse_commands(batch({"subscribe": {"topic": "p/" + "t" * 318}})).commands[0].topic[:3] == "p/t"
    with pytest.raises(TooManyCommands, match="2001 members: at most 2000") as caught:
        parse_commands(batch(*[command] * 2001))
    assert caught.value.limit == COMMANDS_MAX


def test_a_wrong_command_is_named_by_its_place() -> None:
    good = {"subscribe": {"topic": "t"}}
    with pytest.raises(BadCommands) as caught:
        parse_commands(batch(good, good, {"subscribe": {"topic": ""}}, {}))
    assert caught.value.command == 2
    with pytest.raises(BadCommands) as caught:
        parse_commands(batch(good, sequence=0))
    assert caught.value.command is None


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the batch is an array: expected an object with sequence and commands"),
        (None, "the batch is null"),
        ({"commands": []}, "the batch has no member 'sequence': add it"),
        ({"sequence": 1}, "the batch has no member 'commands': add it"),
        ({"sequence": 1, "command": []}, "unknown member 'command': did you mean 'commands'"),
        ({"sequence": 1, "commands": {}}, "commands is an object: expected an array"),
        (batch(sequence=True), "sequence is a boolean: expected an integer"),
        (batch(sequence="1"), "sequence is a string: expected an integer"),
        (batch(sequence=1.0), "sequence is a number: expected an integer"),
        (batch(sequence=0), "sequence is 0: expected an integer from 1 to"),
        (batch(sequence=SEQUENCE_MAX + 1), "sequence is 9223372036854775808: expected"),
        (batch({"subscribe": {"topic": "t"}}, "x"), r"commands\[1\] is a string: expected an object"),
        (batch({}), r"commands\[0\] has 0 members: expected one of subscribe, unsubscribe"),
        (batch({"subscribe": {"topic": "t"}, "unsubscribe": {"topic": "t"}}), r"commands\[0\] has 2 members"),
        (batch({"subscribed": {"topic": "t"}}), "did you mean 'subscribe'"),
        (batch({"subscribe": {"Topic": "t"}}), r"commands\[0\]\.subscribe has the unknown member 'Topic'.*'topic'"),
        (batch({"subscribe": {"key": "t"}}), r"commands\[0\]\.subscribe has no member 'topic'"),
        (batch({"subscribe": {"topic": 1}}), r"commands\[0\]\.subscribe\.topic is a number: expected a string"),
        (batch({"subscribe": {"topic": ""}}), "has 0 bytes: expected 1 to 255"),
        (batch({"subscribe": {"topic": "t" * 256}}), "has 256 bytes: expected 1 to 255"),
        (batch({"subscribe": {"topic": "p/" + "t" * 319}}), "has 321 bytes: expected 1 to 320"),
        (batch({"subscribe": {"topic": "\ud800"}}), "half of a surrogate pair"),
        (batch({"unsubscribe": {"topic": "t", "key": None}}), r"unsubscribe\.key is null: .* no member for the whole"),
        (batch({"subscribe": {"topic": "t", "key": ""}}), "has 0 bytes: expected 1 to 1024"),
        (batch({"subscribe": {"topic": "t", "key": "é" * 513}}), "has 1026 bytes: expected 1 to 1024"),
    ],
)
def test_a_wrong_batch_is_named(document: object, message: str) -> None:
    with pytest.raises(BadCommands, match=message):
        parse_commands(document)


def test_the_name_of_a_subscriber_is_bounded() -> None:
    assert check_subscriber("s" * 255) == "s" * 255
    with pytest.raises(BadCommands, match=r"the name of the subscriber .* has 256 bytes"):
        check_subscriber("s" * 256)
    with pytest.raises(BadCommands, match="has 0 bytes"):
        check_subscriber("")


def test_the_outcome_of_a_batch_is_that_of_its_last_commands() -> None:
    commands = (Command(True, "t"), Command(True, "u"), Command(False, "t"), Command(True, "gone"))
    places = {"t": 7, "u": 0}
    last_ids, wanted = CommandBatch(1, commands).outcome(lambda topic, key: places.get(topic))
    assert last_ids == (7, 0, None)
    assert wanted == {("t", None): False, ("u", None): True, ("gone", None): False}
