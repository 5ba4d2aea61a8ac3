"""Pace of polls: a busy mailbox is answered now and then with several messages, not for each message.

A reply with one message costs as much as one with fifty. So a poll that follows a reply with messages waits for a
moment before it is carried out, the longer, the more busy mailboxes its owner has; a mailbox with a message now and
then is answered immediately.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["INTERVAL", "INTERVAL_MAX", "REPLIES", "PollPace"]

INTERVAL: Final = 0.03
"""Least number of seconds between two replies with messages of one mailbox, for which its messages wait."""

INTERVAL_MAX: Final = 0.4
"""Greatest number of seconds between them, however many busy mailboxes an owner has."""

REPLIES: Final = 6000
"""Replies a second that an owner with many busy mailboxes gets: about as many as two cores can carry."""

BUSY: Final = 1.0
"""Seconds since its last reply with messages for which a mailbox counts as busy."""

OWNERS_MAX: Final = 1000
"""Number of owners in memory beyond which those without busy mailboxes are looked for."""


class _Timer(Protocol):
    def cancel(self) -> object:
        """Cancel the call."""


class PollPace:
    """Times of replies, and the polls that wait for theirs: one of each mailbox at most.

    Args:
        now: monotonic time in seconds.
        later: calls a function after seconds.
    """

    def __init__(self, now: Callable[[], float], later: Callable[[float, Callable[[], None]], _Timer]) -> None:
        self._now = now
        self._later = later
        self._replied: dict[str, OrderedDict[str, float]] = {}
        """By owner: time of the last reply with messages to each busy mailbox, in the order of these times."""
        self._owners_max = OWNERS_MAX
        self._waiting: dict[str, tuple[_Timer, Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def replied(self, owner: str, subscriber: str) -> None:
        """Note a reply with messages.

        Args:
            owner: key of the mailbox's owner.
            subscriber: name of the subscriber.
        """
        now = self._now()
        busy = self._replied.get(owner)
        if busy is None:
            if len(self._replied) >= self._owners_max:
                self._sweep(now)
            busy = self._replied[owner] = OrderedDict()
        busy[subscriber] = now
        busy.move_to_end(subscriber)
        _forget(busy, now)

    def begin(self, owner: str, subscriber: str, carry_out: Callable[[], None], give_up: Callable[[], None]) -> None:
        """Carry out a poll when the interval since the last reply is over.

        Args:
            owner: key of the mailbox's owner.
            subscriber: name of the subscriber.
            carry_out: called once, immediately or later.
            give_up: called in its place if a newer poll of the subscriber is begun before.
        """
        if (older := self._waiting.pop(subscriber, None)) is not None:
            timer, give_up_older = older
            timer.cancel()
            give_up_older()
        left = self._left(owner, subscriber)
        if left <= 0:
            carry_out()
            return

        def begin() -> None:
            del self._waiting[subscriber]
            carry_out()

        self._waiting[subscriber] = (self._later(left, begin), give_up)

    def _left(self, owner: str, subscriber: str) -> float:
        """Return the seconds until a poll of a mailbox is carried out."""
        busy = self._replied.get(owner)
        last = None if busy is None else busy.get(subscriber)
        if busy is None or last is None:
            return 0.0
        return last + min(INTERVAL_MAX, max(INTERVAL, len(busy) / REPLIES)) - self._now()

    def _sweep(self, now: float) -> None:
        """Forget the owners without busy mailboxes; seldom, if there are few of these."""
        for owner, busy in list(self._replied.items()):
            _forget(busy, now)
            if not busy:
                del self._replied[owner]
        self._owners_max = max(OWNERS_MAX, 2 * len(self._replied))


def _forget(busy: OrderedDict[str, float], now: float) -> None:
    """Remove the mailboxes that are not busy any more."""
    while busy:
        subscriber = next(iter(busy))
        if now - busy[subscriber] < BUSY:
            return
        del busy[subscriber]
