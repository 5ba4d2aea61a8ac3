"""Pace of polls: a busy mailbox is answered now and then with several messages, not for each message.

A reply with one message costs as much as one with fifty. So a poll that follows a reply with messages waits for a
moment before it is carried out, the longer, the more busy mailboxes its owner has, and the larger their replies are; a
mailbox with a message now and then is answered immediately.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["BUSY", "BYTES", "BYTES_AHEAD", "INTERVAL", "INTERVAL_MAX", "OWNERS_MAX", "REPLIES", "PollPace"]

INTERVAL: Final = 0.03
"""Least number of seconds between two replies with messages of one mailbox, for which its messages wait."""

INTERVAL_MAX: Final = 0.4
"""Greatest number of seconds between them, however many busy mailboxes an owner has."""

REPLIES: Final = 6000
"""Replies a second that an owner with many busy mailboxes gets: about as many as two cores can carry."""

BYTES: Final = 40_000_000
"""Bytes a second of the replies to an owner: a reply that is not acknowledged is given again and again."""

BYTES_AHEAD: Final = 2_000_000
"""Bytes of replies that an owner gets immediately, after a pause."""

PAUSE: Final = 0.001
"""Least number of seconds for which a poll waits, so that waiting costs little."""

BUSY: Final = 1.0
"""Seconds since its last reply with messages for which a mailbox counts as busy."""

OWNERS_MAX: Final = 1000
"""Number of owners in memory beyond which those without busy mailboxes are looked for."""


class _Timer(Protocol):
    def cancel(self) -> object:
        """Cancel the call."""


class _Owner:
    """Replies to the mailboxes of an owner.

    Attributes:
        busy: time of the last reply with messages to each busy mailbox, in the order of these times.
        paid: time at which the bytes of all replies are paid off, in seconds.
    """

    __slots__ = ("busy", "paid")

    def __init__(self) -> None:
        self.busy: OrderedDict[str, float] = OrderedDict()
        self.paid = 0.0

    def replied(self, subscriber: str, size: int, now: float) -> None:
        """Note a reply of some bytes."""
        self.busy[subscriber] = now
        self.busy.move_to_end(subscriber)
        self.paid = max(self.paid, now) + size / BYTES
        self.forget(now)

    def left(self, subscriber: str, now: float) -> float:
        """Return the seconds until a poll of a mailbox is carried out."""
        left = self.paid - BYTES_AHEAD / BYTES - now
        last = self.busy.get(subscriber)
        if last is not None:
            left = max(left, last + min(INTERVAL_MAX, max(INTERVAL, len(self.busy) / REPLIES)) - now)
        return left

    def forget(self, now: float) -> bool:
        """Forget the mailboxes that are not busy any more; return whether nothing is left."""
        while self.busy:
            subscriber = next(iter(self.busy))
            if now - self.busy[subscriber] < BUSY:
                return False
            del self.busy[subscriber]
        return self.paid <= now


class PollPace:
    """Times of replies, and the polls that wait for theirs: one of each mailbox at most.

    Args:
        now: monotonic time in seconds.
        later: calls a function after seconds.
    """

    def __init__(self, now: Callable[[], float], later: Callable[[float, Callable[[], None]], _Timer]) -> None:
        self._now = now
        self._later = later
        self._owners: dict[str, _Owner] = {}
        self._owners_max = OWNERS_MAX
        self._waiting: dict[str, tuple[_Timer, Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def replied(self, owner: str, subscriber: str, size: int) -> None:
        """Note a reply with messages.

        Args:
            owner: key of the mailbox's owner.
            subscriber: name of the subscriber.
            size: bytes of the reply.
        """
        now = self._now()
        known = self._owners.get(owner)
        if known is None:
            if len(self._owners) >= self._owners_max:
                self._sweep(now)
            known = self._owners[owner] = _Owner()
        known.replied(subscriber, size, now)

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
        known = self._owners.get(owner)
        if known is None or known.left(subscriber, self._now()) <= 0:
            carry_out()
        else:
            self._wait(known, subscriber, carry_out, give_up)

    def _wait(self, owner: _Owner, subscriber: str, carry_out: Callable[[], None], give_up: Callable[[], None]) -> None:
        def begin() -> None:
            # Meanwhile other mailboxes of the owner may have had large replies.
            if owner.left(subscriber, self._now()) > 0:
                self._wait(owner, subscriber, carry_out, give_up)
            else:
                del self._waiting[subscriber]
                carry_out()

        left = max(PAUSE, owner.left(subscriber, self._now()))
        self._waiting[subscriber] = (self._later(left, begin), give_up)

    def _sweep(self, now: float) -> None:
        """Forget the owners without busy mailboxes; seldom, if there are few of these."""
        for name, owner in list(self._owners.items()):
            if owner.forget(now):
                del self._owners[name]
        self._owners_max = max(OWNERS_MAX, 2 * len(self._owners))
