"""Channels on which polls of mailboxes are held: their names, positions and items. Sans-I/O.

A mailbox has one channel. Its position is the id of the last item on it; a poll is held at the position, so that an
item that was published before the hold was known is seen as missed (docs/grip.md §6.5).
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

import orjson

from griphub.topics.event_text import Representation
from griphub.topics.items import hint_item

__all__ = ["MailboxChannels", "channel_of", "is_mailbox"]

_PART: Final = "mailbox/"
_DIGEST: Final = 16


def channel_of(prefix: str, subscriber: str) -> str:
    """Return the name of a mailbox's channel, from which its owner cannot be seen.

    Args:
        prefix: first part of the names of all channels of the hub.
        subscriber: name of the subscriber, with its owner.
    """
    digest = blake2b(subscriber.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()
    return prefix + _PART + urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_mailbox(prefix: str, channel: str) -> bool:
    """Return whether a channel is that of a mailbox.

    Args:
        prefix: first part of the names of all channels of the hub.
        channel: name of the channel.
    """
    return channel.startswith(prefix + _PART)


class MailboxChannels:
    """Positions of the channels, and items that move them.

    Args:
        prefix: first part of the names of all channels of the hub.
        publish: called with a channel and an item.
        first: number below all positions; those of an earlier process must not be used again.
    """

    __slots__ = ("_last", "_positions", "_prefix", "_publish")

    def __init__(self, prefix: str, publish: Callable[[str, bytes], None], first: int) -> None:
        self._prefix = prefix
        self._publish = publish
        self._last = first
        self._positions: dict[str, int] = {}
        """Position by channel."""

    def __contains__(self, channel: object) -> bool:
        return channel in self._positions

    def name(self, subscriber: str) -> str:
        """Return the name of the channel of a ``subscriber``."""
        return channel_of(self._prefix, subscriber)

    def hold(self, subscriber: str) -> tuple[str, int]:
        """Return channel and position at which a poll of a ``subscriber`` is held."""
        channel = self.name(subscriber)
        position = self._positions.get(channel)
        return channel, self._move(channel) if position is None else position

    def position(self, subscriber: str) -> int | None:
        """Return the position of the channel of a ``subscriber``; None if none of its polls was held."""
        return self._positions.get(self.name(subscriber))

    def wake(self, subscriber: str) -> None:
        """Have the held poll of a ``subscriber`` repeated by the proxy: there is an answer."""
        channel, previous = self.hold(subscriber)
        self._publish(channel, hint_item(channel, Representation.POLL, str(self._move(channel)), str(previous)))

    def answer(self, subscriber: str, body: bytes) -> None:
        """Answer the held poll of a subscriber.

        Args:
            subscriber: its name.
            body: JSON of the answer.
        """
        channel, previous = self.hold(subscriber)
        response = {
            "headers": {"Content-Type": "application/json", "Cache-Control": "no-store"},
            "body": body.decode(),
        }
        item = {
            "channel": channel,
            "id": str(self._move(channel)),
            "prev-id": str(previous),
            "formats": {"http-response": response},
        }
        self._publish(channel, orjson.dumps(item))

    def forget(self, subscriber: str) -> None:
        """Forget the position of a ``subscriber`` without a mailbox."""
        self._positions.pop(self.name(subscriber), None)

    def _move(self, channel: str) -> int:
        self._last += 1
        self._positions[channel] = self._last
        return self._last
