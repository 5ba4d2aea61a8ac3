"""Channels on which pulls are held: their names, positions and items. Sans-I/O.

Each pull has a channel of its own, on which it stays when the proxy repeats it. A hint has it repeated: messages are
leased when the repeated request is answered, to a client that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from griphub.topics.event_text import Representation
from griphub.topics.items import hint_item

__all__ = ["PULL_TIME", "PullChannels", "PullHold", "TooManyPulls", "is_pull"]

_PART: Final = "pull/"

PULL_TIME: Final = 20
"""Seconds for which a pull waits for a message."""

SPARE: Final = 10.0
"""Seconds behind that after which a channel is forgotten."""

PER_SUBSCRIPTION: Final = 1000
"""Greatest number of held pulls of one subscription."""


def is_pull(prefix: str, channel: str) -> bool:
    """Return whether a channel is that of a pull.

    Args:
        prefix: first part of the names of all channels of the hub.
        channel: name of the channel.
    """
    return channel.startswith(prefix + _PART)


class TooManyPulls(Exception):
    """Refusal of a pull that would have to be held: there are as many as may be."""


@dataclass(slots=True)
class PullHold:
    """Held pull.

    Attributes:
        channel: name of its channel.
        position: of the channel when the hold was decided.
        until: monotonic time at which it is answered empty, in seconds.
    """

    channel: str
    position: int
    until: float


class PullChannels:
    """Names and positions of the channels, and items that move them.

    Args:
        prefix: first part of the names of all channels of the hub.
        publish: called with a channel and an item.
        process: text of this process: channels of an earlier one are used only by the pulls that are held there.
        total: greatest number of held pulls.
    """

    __slots__ = ("_common", "_holds", "_last", "_numbers", "_prefix", "_publish", "_subscriptions", "_total")

    def __init__(self, prefix: str, publish: Callable[[str, bytes], None], process: str, total: int) -> None:
        self._prefix = prefix
        self._common = f"{prefix}{_PART}{process}/"
        self._publish = publish
        self._total = total
        self._last = 0
        self._holds: dict[str, PullHold] = {}
        self._numbers: dict[str, int] = {}
        """Subscription of each channel."""
        self._subscriptions: dict[int, dict[str, None]] = {}
        """Channels of each subscription."""

    def __len__(self) -> int:
        return len(self._holds)

    def __contains__(self, channel: str) -> bool:
        return channel in self._holds

    def hold(self, number: int, held: Iterable[tuple[str, str]], now: float) -> PullHold:
        """Return where a pull is held if there is no message for it. Decided before messages are asked for.

        Args:
            number: of the subscription.
            held: channels that the request names as its own, each with its last id.
            now: monotonic time, in seconds.

        Returns:
            The hold; its time may be over.

        Raises:
            TooManyPulls: there are as many as may be.
        """
        own = [(channel, id) for channel, id in held if is_pull(self._prefix, channel)]
        known = self._holds.get(own[0][0]) if own else None
        if known is not None and self._numbers[known.channel] == number:
            return PullHold(known.channel, known.position, known.until)
        channels = self._subscriptions.setdefault(number, {})
        if len(channels) >= PER_SUBSCRIPTION or len(self._holds) >= self._total:
            if not channels:
                del self._subscriptions[number]
            raise TooManyPulls(f"{len(channels)} pulls of this subscription are waiting, and {len(self)} of all")
        position = 1
        if own and known is None:
            # Of an earlier process: held on the channel that it has.
            channel, id = own[0]
            position = int(id) if id.isascii() and id.isdigit() and len(id) < 16 else 1
        else:
            self._last += 1
            channel = f"{self._common}{self._last}"
        hold = self._holds[channel] = PullHold(channel, position, now + PULL_TIME)
        self._numbers[channel] = number
        channels[channel] = None
        return PullHold(channel, position, hold.until)

    def release(self, channel: str) -> None:
        """Forget a ``channel``: its pull is answered."""
        if self._holds.pop(channel, None) is None:
            return
        number = self._numbers.pop(channel)
        channels = self._subscriptions[number]
        del channels[channel]
        if not channels:
            del self._subscriptions[number]

    def wake(self, number: int) -> None:
        """Have the held pulls of a subscription repeated by the proxy; ``number``: of the subscription."""
        for channel in self._subscriptions.get(number, ()):
            hold = self._holds[channel]
            before, hold.position = hold.position, hold.position + 1
            item = hint_item(channel, Representation.POLL, str(hold.position), str(before))
            self._publish(channel, item)

    def wake_all(self) -> None:
        """Have all held pulls repeated by the proxy."""
        for number in [*self._subscriptions]:
            self.wake(number)

    def expire(self, now: float) -> None:
        """Forget the channels of pulls that the proxy has answered by now, or whose clients have left.

        Args:
            now: monotonic time, in seconds.
        """
        # The oldest ones come first.
        ended = []
        for hold in self._holds.values():
            if hold.until + SPARE > now:
                break
            ended.append(hold.channel)
        for channel in ended:
            self.release(channel)
