"""Channels on which polls of mailboxes are held: their names, positions and items. Sans-I/O.

A mailbox has one channel. Its position is the number of its last item; a poll is held at the position, so that an item
that was published before the hold was known is seen as missed (docs/grip.md §6.5).

Names are short, and share their beginning: sockets of ZeroMQ keep them character by character.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Final

import orjson

from griphub.topics.event_text import Representation
from griphub.topics.items import hint_item

__all__ = ["MailboxChannels", "Repeated", "is_mailbox"]

_PART: Final = "mailbox/"
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def is_mailbox(prefix: str, channel: str) -> bool:
    """Return whether a channel is that of a mailbox.

    Args:
        prefix: first part of the names of all channels of the hub.
        channel: name of the channel.
    """
    return channel.startswith(prefix + _PART)


class Repeated(enum.Enum):
    """Relation of a poll to the one that is held."""

    NOT = enum.auto()
    """A newer one."""
    PRESENT = enum.auto()
    """That one, repeated by the proxy: nothing has to be answered."""
    OLDER = enum.auto()
    """One that was held before, and is answered without messages."""


class MailboxChannels:
    """Names and positions of the channels, and items that move them.

    Args:
        prefix: first part of the names of all channels of the hub.
        publish: called with a channel and an item.
        process: number of this process: channels of an earlier one must not be used again.
    """

    __slots__ = ("_common", "_last", "_numbers", "_positions", "_prefix", "_publish")

    def __init__(self, prefix: str, publish: Callable[[str, bytes], None], process: int) -> None:
        self._prefix = prefix
        self._common = f"{prefix}{_PART}{_base36(process)}/"
        self._publish = publish
        self._last = 0
        self._numbers: dict[str, int] = {}
        """Number of the channel by subscriber; never used again."""
        self._positions: dict[int, int] = {}
        """Position by number of the channel."""

    def __contains__(self, channel: str) -> bool:
        if not channel.startswith(self._common):
            return False
        try:
            return int(channel.removeprefix(self._common), len(_DIGITS)) in self._positions
        except ValueError:
            return False

    def hold(self, subscriber: str) -> tuple[str, int]:
        """Return channel and position at which a poll of a ``subscriber`` is held."""
        number = self._numbers.get(subscriber)
        if number is None:
            self._last += 1
            number = self._numbers[subscriber] = self._last
            self._positions[number] = 1
        return self._name(number), self._positions[number]

    def has(self, subscriber: str) -> bool:
        """Return whether a ``subscriber`` has a channel: a poll of it was held."""
        return subscriber in self._numbers

    def repeated(self, subscriber: str, held: Iterable[tuple[str, str]]) -> Repeated:
        """Return whether a poll is one that the proxy repeats.

        Args:
            subscriber: name of the subscriber, of which a poll is held.
            held: channels that the request names as its own, each with its last id.
        """
        name, position = self.hold(subscriber)
        found = [pair for pair in held if is_mailbox(self._prefix, pair[0])]
        if not found:
            return Repeated.NOT
        return Repeated.PRESENT if all(pair == (name, str(position)) for pair in found) else Repeated.OLDER

    def wake(self, subscriber: str) -> None:
        """Have the held poll of a ``subscriber`` repeated by the proxy: there is an answer."""
        channel, position = self.hold(subscriber)
        self._positions[self._numbers[subscriber]] = position + 1
        self._publish(channel, hint_item(channel, Representation.POLL, str(position + 1), str(position)))

    def answer(self, subscriber: str, body: bytes) -> None:
        """Answer the held poll of a subscriber.

        Args:
            subscriber: its name.
            body: JSON of the answer.
        """
        channel, position = self.hold(subscriber)
        self._positions[self._numbers[subscriber]] = position + 1
        response = {
            "headers": {"Content-Type": "application/json", "Cache-Control": "no-store"},
            "body": body.decode(),
        }
        item = {
            "channel": channel,
            "id": str(position + 1),
            "prev-id": str(position),
            "formats": {"http-response": response},
        }
        self._publish(channel, orjson.dumps(item))

    def forget(self, subscriber: str) -> None:
        """Forget the channel of a ``subscriber`` without a mailbox."""
        number = self._numbers.pop(subscriber, None)
        if number is not None:
            del self._positions[number]

    def _name(self, number: int) -> str:
        return self._common + _base36(number)


def _base36(number: int) -> str:
    """Return a number above 0 in few characters."""
    text = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text
