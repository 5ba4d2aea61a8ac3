"""Batches of a subscriber's commands: JSON that was decoded already, checked member by member."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gripproxy.grip.errors import ClientError

__all__ = [
    "COMMANDS_MAX",
    "KEY_MAX",
    "PROJECT_TOPIC_MAX",
    "SEQUENCE_MAX",
    "SUBSCRIBER_MAX",
    "TOPIC_MAX",
    "BadCommands",
    "Command",
    "CommandBatch",
    "LastId",
    "TooManyCommands",
    "check_subscriber",
    "parse_commands",
]

COMMANDS_MAX: Final = 2000
"""Greatest number of commands of a batch: more come in the next one."""

TOPIC_MAX: Final = 255
"""Greatest length of a topic's name, in bytes of UTF-8."""

PROJECT_TOPIC_MAX: Final = 320
"""Greatest length of a topic's name of the form ``PROJECT/TOPIC``, in bytes of UTF-8."""

KEY_MAX: Final = 1024
"""Greatest length of a key, in bytes of UTF-8."""

SUBSCRIBER_MAX: Final = 255
"""Greatest length of a subscriber's name, in bytes of UTF-8: it is kept with its mailbox."""

SEQUENCE_MAX: Final = 2**63 - 1
"""Greatest number of a batch."""

SHOWN: Final = 80
"""Characters of a refused value that a message shows."""

LastId = Callable[[str, str | None], int | None]
"""Called with topic and key of a subscribe. Returns the id of the last event of the topic among those up to the newest
published message, 0 for none; None if there is no such topic, or the owner may not read it.
"""

_BATCH: Final = ("sequence", "commands")
_KINDS: Final = ("subscribe", "unsubscribe")
_SUBJECT: Final = ("topic", "key")
_TYPES: Final = {str: "a string", int: "a number", float: "a number", list: "an array"}


class BadCommands(ClientError, ValueError):
    """Batch of commands, or name of a subscriber, that breaks the form: answered with 400.

    Args:
        text: fault and cure.
        command: place of the only command that was found to be wrong, from 0; None if it is not one of them.

    Attributes:
        command: place of that command.
    """

    def __init__(self, text: str, command: int | None = None) -> None:
        super().__init__(text)
        self.command = command


class TooManyCommands(BadCommands):
    """Batch of more commands than a request may have: answered with 413.

    Args:
        number: commands of the batch.

    Attributes:
        limit: greatest number of commands.
    """

    def __init__(self, number: int) -> None:
        super().__init__(
            f"commands has {number} members: at most {COMMANDS_MAX} are allowed, send them in several batches"
        )
        self.limit = COMMANDS_MAX


class Command(NamedTuple):
    """Begin or end of a subscription.

    Attributes:
        subscribe: True for the begin.
        topic: name of the topic.
        key: key; None for the whole topic.
    """

    subscribe: bool
    topic: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class CommandBatch:
    """Commands that are carried out in order, all or none.

    Attributes:
        sequence: number of the batch, 1 for the first one of a subscriber.
        commands: the commands.
    """

    sequence: int
    commands: tuple[Command, ...]

    def outcome(self, last_id: LastId) -> tuple[tuple[int | None, ...], dict[tuple[str, str | None], bool]]:
        """Return the places from which subscriptions begin, and the subscriptions at the end of the batch.

        Args:
            last_id: gives the places.

        Returns:
            The last id of each subscribe, None for a refused one; and by topic and key whether the subscription is
            there after the batch: the last command wins.
        """
        last_ids: list[int | None] = []
        wanted: dict[tuple[str, str | None], bool] = {}
        for command in self.commands:
            place = last_id(command.topic, command.key) if command.subscribe else None
            if command.subscribe:
                last_ids.append(place)
            wanted[command.topic, command.key] = place is not None
        return tuple(last_ids), wanted


def parse_commands(document: object) -> CommandBatch:
    """Return the batch of a JSON document.

    Args:
        document: ``{"sequence": 1, "commands": [{"subscribe": {"topic": "t", "key": "k"}}, …]}``, decoded.

    Raises:
        BadCommands: it has another form; the message names the member and the right value.
        TooManyCommands: it has too many commands.
    """
    members = _object(document, "the batch", _BATCH)
    sequence = _required(members, "sequence", "the batch")
    if isinstance(sequence, bool) or not isinstance(sequence, int):
        raise BadCommands(f"sequence is {_kind(sequence)}: expected an integer from 1 to {SEQUENCE_MAX}")
    if not 1 <= sequence <= SEQUENCE_MAX:
        raise BadCommands(f"sequence is {str(sequence)[:SHOWN]}: expected an integer from 1 to {SEQUENCE_MAX}")
    commands = _required(members, "commands", "the batch")
    if not isinstance(commands, list):
        raise BadCommands(f"commands is {_kind(commands)}: expected an array")
    if len(commands) > COMMANDS_MAX:
        raise TooManyCommands(len(commands))
    return CommandBatch(sequence, tuple(_commands(commands)))


def check_subscriber(name: str) -> str:
    """Check the name of a subscriber.

    Args:
        name: percent-decoded.

    Returns:
        The name.

    Raises:
        BadCommands: it is empty or too long.
    """
    _check_size(name, "the name of the subscriber", SUBSCRIBER_MAX)
    return name


def _commands(values: list[object]) -> Iterator[Command]:
    for place, value in enumerate(values):
        try:
            yield _command(value, f"commands[{place}]")
        except BadCommands as error:
            # The others of the batch can be sent without it.
            raise BadCommands(str(error), place) from error


def _command(value: object, place: str) -> Command:
    members = _object(value, place, _KINDS)
    if len(members) != 1:
        raise BadCommands(f"{place} has {len(members)} members: expected one of {', '.join(_KINDS)}")
    kind, subject = next(iter(members.items()))
    place = f"{place}.{kind}"
    names = _object(subject, place, _SUBJECT)
    topic = _text(_required(names, "topic", place), f"{place}.topic")
    _check_size(topic, f"{place}.topic", PROJECT_TOPIC_MAX if "/" in topic else TOPIC_MAX)
    key = None
    if "key" in names:
        key = _text(names["key"], f"{place}.key", ", or no member for the whole topic")
        _check_size(key, f"{place}.key", KEY_MAX)
    return Command(kind == "subscribe", topic, key)


def _object(value: object, place: str, known: Sequence[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise BadCommands(f"{place} is {_kind(value)}: expected an object with {' and '.join(known)}")
    for name in value:
        if name not in known:
            found = difflib.get_close_matches(name[:SHOWN], known, 1)
            hint = f"did you mean {found[0]!r}? " if found else ""
            raise BadCommands(f"{place} has the unknown member {name[:SHOWN]!r}: {hint}expected {' or '.join(known)}")
    return value


def _required(members: dict[str, object], name: str, place: str) -> object:
    if name not in members:
        raise BadCommands(f"{place} has no member {name!r}: add it")
    return members[name]


def _text(value: object, place: str, cure: str = "") -> str:
    if not isinstance(value, str):
        raise BadCommands(f"{place} is {_kind(value)}: expected a string{cure}")
    return value


def _check_size(text: str, place: str, most: int) -> None:
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise BadCommands(f"{place} {text[:SHOWN]!r} has half of a surrogate pair: expected valid Unicode") from error
    if not 1 <= size <= most:
        raise BadCommands(f"{place} {text[:SHOWN]!r} has {size} bytes: expected 1 to {most}")


def _kind(value: object) -> str:
    """Return the name of a JSON value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return _TYPES.get(type(value), "an object")
