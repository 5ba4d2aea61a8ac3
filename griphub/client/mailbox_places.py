"""Places of a subscriber: the subscriptions that an application wants, and up to where it has the events of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from griphub.client.mailbox_actions import (
    Action,
    Cause,
    Deliver,
    Loss,
    MailboxMessage,
    Pair,
    Place,
    ReadHistory,
    Report,
)

__all__ = ["Places"]

EVENTFUL_MAX: Final = 1000
"""Topics without a subscription of which it is remembered that they had events."""


@dataclass(slots=True, eq=False)
class _Wanted:
    """Subscription that the application wants.

    Attributes:
        place: place up to which the application has its events; None to begin with the next event.
        settled: whether the publisher has answered its command.
        sequence: number of the batch with its command; 0 before.
        polls: number of polls begun before it was settled.
    """

    place: Place | None
    settled: bool = False
    sequence: int = 0
    polls: int = 0

    def send(self, sequence: int) -> None:
        self.sequence = sequence

    def settle(self, last: Place, polls: int) -> None:
        self.place = last
        self.settled = True
        self.polls = polls

    def move(self, place: Place) -> None:
        self.place = place

    def begin_again(self) -> None:
        self.settled = False
        self.sequence = 0


class Places:
    """Wanted subscriptions and their places."""

    def __init__(self) -> None:
        self._wanted: dict[Pair, _Wanted] = {}
        self._eventful: set[str] = set()
        """Topics with events: those of subscriptions, and up to ``EVENTFUL_MAX`` former ones."""

    def __len__(self) -> int:
        return len(self._wanted)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._wanted)

    def __contains__(self, pair: Pair) -> bool:
        return pair in self._wanted

    def add(self, pair: Pair, after: Place | None) -> None:
        """Add a subscription, or begin it anew.

        Args:
            pair: its subject.
            after: place behind which it begins; None to begin with the next event.
        """
        self._wanted[pair] = _Wanted(after)

    def remove(self, pair: Pair) -> bool:
        """Remove a subscription.

        Args:
            pair: its subject.

        Returns:
            Whether it was there.
        """
        if len(self._eventful) > len(self._wanted) + EVENTFUL_MAX:
            self._eventful &= {each.topic for each in self._wanted}
        return self._wanted.pop(pair, None) is not None

    def send(self, pair: Pair, sequence: int) -> None:
        """Note that the command of a subscription is in a batch.

        Args:
            pair: its subject.
            sequence: number of the batch.
        """
        self._wanted[pair].send(sequence)

    def sent_in(self, pair: Pair, sequence: int) -> bool:
        """Return whether the newest command of a subscription is in a batch.

        Args:
            pair: its subject.
            sequence: number of the batch.
        """
        wanted = self._wanted.get(pair)
        return wanted is not None and wanted.sequence == sequence

    def settle(self, pair: Pair, last: Place, polls: int, epoch: str = "") -> ReadHistory | None:
        """Note the publisher's answer to the command of a subscription.

        Args:
            pair: its subject.
            last: place behind the topic's last event: later ones come by the mailbox.
            polls: number of polls begun.
            epoch: current epoch of the store; empty if it is not known.

        Returns:
            The history to be read; None if there is none.
        """
        wanted = self._wanted[pair]
        start = wanted.place
        wanted.settle(last, polls)
        if start is None or start.id == last.id:
            return None
        if 0 < last.id < start.id and epoch and start.epoch == epoch:
            # No restore has taken back events before the place, and the topic has none after it.
            wanted.move(start)
            return None
        return ReadHistory(pair, start, last)

    def receive(self, message: MailboxMessage) -> Iterable[Action] | None:
        """Return the delivery of a message, or none if it is not wanted.

        Args:
            message: the message.

        Returns:
            Actions; None if they are known only after the answer to a command.
        """
        pairs = {Pair(message.topic), Pair(message.topic, message.key)}
        matching = [wanted for pair in pairs if (wanted := self._wanted.get(pair)) is not None]
        settled = [wanted for wanted in matching if wanted.settled]
        if matching and not settled:
            return None
        # A message up to the place of a subscription is part of the history that was read for it.
        behind = [wanted for wanted in settled if wanted.place is None or wanted.place.id < message.place.id]
        for wanted in behind:
            wanted.move(message.place)
        if behind:
            self._eventful.add(message.topic)
        return [Deliver(message)] if behind else []

    def lose(self, loss: Loss, reached: Place | None = None) -> Iterable[Action] | None:
        """Return the reports of a loss, and the histories to be read.

        Args:
            loss: the loss; one of a whole topic may stand for those of its keys.
            reached: place up to which all messages of the mailbox were received; None for none.

        Returns:
            Actions; None if they are known only after the answer to a command.
        """
        pair, place = loss
        whole = self._wanted.get(Pair(pair.topic))
        if pair.key is None:
            # Keys first: the history of the whole topic has theirs from its own place on only.
            pairs = [each for each in self._wanted if each.topic == pair.topic]
            pairs.sort(key=lambda each: each.key is None)
        else:
            pairs = [each for each in (pair, Pair(pair.topic)) if each in self._wanted][:1]
        if not all(self._wanted[each].settled for each in pairs):
            return None
        actions: list[Action] = []
        for each in pairs:
            wanted = self._wanted[each]
            until = place
            if whole is not None and whole is not wanted and each != pair and whole.place is not None:
                until = min(place, whole.place)
            start = self._start(each, wanted, reached)
            if start is not None and start.id < until.id:
                actions += [Report(Cause.LOST, each), ReadHistory(each, start, until)]
                wanted.move(until)
        return actions

    def may_have_ended(self, pair: Pair, polls: int) -> bool:
        """Return whether a report of a poll, that a subscription has ended, may be about the present one.

        Args:
            pair: its subject.
            polls: number of polls begun, the one with the report among them.
        """
        wanted = self._wanted.get(pair)
        # One that was settled since the poll began may be newer than the report, which is repeated if it is not.
        return wanted is None or (wanted.settled and wanted.polls != polls)

    def begin_again(self, reached: Place | None = None) -> None:
        """Note that the publisher has none of the subscriptions any more.

        Args:
            reached: place up to which all messages of the mailbox were received; None for none.
        """
        for pair, wanted in self._wanted.items():
            start = self._start(pair, wanted, reached)
            if start is not None:
                wanted.move(start)
            wanted.begin_again()

    def _start(self, pair: Pair, wanted: _Wanted, reached: Place | None) -> Place | None:
        """Return the place up to which the application has the events of a subscription, as far as is known."""
        place = wanted.place
        if place is None or not wanted.settled or reached is None or reached.id <= place.id:
            return place
        # A topic without events may be another one by now: from its beginning on, nothing of that is missed.
        return reached if place.id > 0 or pair.topic in self._eventful else place
