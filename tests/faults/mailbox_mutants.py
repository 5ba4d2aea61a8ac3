"""Mailboxes broken on purpose, one promise at a time, so that the world of ``mailbox_world`` can be seen to notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pytest

from griphub.client.mailbox_places import Places
from griphub.client.mailbox_state import MailboxState
from griphub.mailboxes.bounds import Bounds
from griphub.mailboxes.commands import CommandBatch
from griphub.mailboxes.decisions import CommandDecision, Messages, PollDecision, Unknown
from griphub.mailboxes.deliveries import _Lane
from griphub.mailboxes.mailbox import Mailbox
from griphub.mailboxes.mailboxes import LastId, Mailboxes
from griphub.mailboxes.subscriptions import TopicFollowers

__all__ = ["MUTANTS", "Mutant"]

Patch = pytest.MonkeyPatch


def takes_any_publisher_id(patch: Patch) -> None:
    """An acknowledgement counts with an old publisher's id."""
    poll = Mailboxes.poll

    def any_id(
        self: Mailboxes, subscriber: str, owner: str, max_processed: int, publisher_id: str | None, now: float
    ) -> PollDecision:
        mailbox = self._mailboxes.get(subscriber)
        if mailbox is not None and publisher_id is not None:
            before = mailbox.size
            mailbox.acknowledge(max_processed)
            self._accounts.resized(mailbox, before)
        return poll(self, subscriber, owner, max_processed, publisher_id, now)

    patch.setattr(Mailboxes, "poll", any_id)


def sending_removes(patch: Patch) -> None:
    """A reply removes its messages from the mailbox."""
    poll = Mailboxes.poll

    def removing(self: Mailboxes, subscriber: str, *arguments: Any) -> PollDecision:
        found = poll(self, subscriber, *arguments)
        if isinstance(found, Messages):
            mailbox = self._mailboxes[subscriber]
            before = mailbox.size
            mailbox.acknowledge(max([0, *(message.id for message in found.reply.messages)]))
            self._accounts.resized(mailbox, before)
        return found

    patch.setattr(Mailboxes, "poll", removing)


def applies_older_batches(patch: Patch) -> None:
    """A batch that is repeated after a newer one is carried out again."""
    commands = Mailboxes.commands

    def again(
        self: Mailboxes, subscriber: str, owner: str, batch: CommandBatch, last_id: LastId, now: float
    ) -> CommandDecision:
        mailbox = self._mailboxes.get(subscriber)
        if mailbox is not None and batch.sequence < mailbox.sequence:
            last_ids, wanted = batch.outcome(last_id)
            self._apply(mailbox, wanted)
            mailbox.answered(batch.sequence, hash(batch.commands), last_ids)
        return commands(self, subscriber, owner, batch, last_id, now)

    patch.setattr(Mailboxes, "commands", again)


def delivers_twice(patch: Patch) -> None:
    """A message of a topic and a key that are both followed comes for each of them."""

    def both(self: TopicFollowers[Mailbox], owner: Any, key: str | None) -> Sequence[Mailbox]:
        keyed = () if key is None else self._of(owner, key)
        return [*self._of(owner, None), *keyed]

    patch.setattr(TopicFollowers, "of", both)


def polls_make_mailboxes(patch: Patch) -> None:
    """The poll of an unknown subscriber makes a mailbox."""
    poll = Mailboxes.poll

    def making(
        self: Mailboxes, subscriber: str, owner: str, max_processed: int, publisher_id: str | None, now: float
    ) -> PollDecision:
        found = poll(self, subscriber, owner, max_processed, publisher_id, now)
        if isinstance(found, Unknown):
            self.commands(subscriber, owner, CommandBatch(1, ()), lambda topic, key: 0, now)
            return poll(self, subscriber, owner, 0, self.publisher_id_of(subscriber), now)
        return found

    patch.setattr(Mailboxes, "poll", making)


def forgets_losses(patch: Patch) -> None:
    """Messages beyond the bound of a mailbox go without a report."""
    patch.setattr(Mailbox, "lose", lambda self, topic, key, last_id, most: None)


def forgets_gaps(patch: Patch) -> None:
    """Messages beyond the bound of an owner go without a report."""
    add = _Lane.add

    def silent(self: _Lane, *arguments: Any) -> None:
        add(self, *arguments)
        self._gap.clear()

    patch.setattr(_Lane, "add", silent)


def last_come_first_served(patch: Patch) -> None:
    """What waits for an owner is delivered from its end."""

    def add(self: _Lane, message: Any, topic: Any, bounds: Bounds) -> None:
        self._waiting.appendleft((message, topic))

    patch.setattr(_Lane, "add", add)


def keeps_acknowledged(patch: Patch) -> None:
    """The newest acknowledged message stays."""
    acknowledge = Mailbox.acknowledge
    patch.setattr(Mailbox, "acknowledge", lambda self, number: acknowledge(self, number - 1))


def reads_from_the_newest(patch: Patch) -> None:
    """A subscriber that begins again takes the newest place of all for that of each subscription."""
    begin_again = Places.begin_again

    def newest(self: Places, reached: Any = None) -> None:
        places = [wanted.place for wanted in self._wanted.values() if wanted.place is not None]
        for wanted in self._wanted.values():
            if places and wanted.place is not None:
                wanted.move(max(places))
        begin_again(self, reached)

    patch.setattr(Places, "begin_again", newest)


def ignores_404(patch: Patch) -> None:
    """A subscriber that is told that it was forgotten polls on."""
    failed = MailboxState.poll_failed

    def again(self: MailboxState, poll: Any, failure: Any, now: float) -> Any:
        return [] if failure.status == 404 else failed(self, poll, failure, now)

    patch.setattr(MailboxState, "poll_failed", again)


class Mutant(NamedTuple):
    """One promise broken.

    Attributes:
        promise: that is broken, one of ``mailbox_world.PROMISES``.
        patch: breaks it.
    """

    promise: str
    patch: Callable[[Patch], None]


MUTANTS: Final[dict[str, Mutant]] = {
    "takes-any-publisher-id": Mutant("unacked-never-lost", takes_any_publisher_id),
    "sending-removes": Mutant("unacked-never-lost", sending_removes),
    "applies-older-batches": Mutant("last-wins", applies_older_batches),
    "delivers-twice": Mutant("once", delivers_twice),
    "polls-make-mailboxes": Mutant("told", polls_make_mailboxes),
    "forgets-losses": Mutant("unacked-never-lost", forgets_losses),
    "forgets-gaps": Mutant("unacked-never-lost", forgets_gaps),
    "last-come-first-served": Mutant("fifo", last_come_first_served),
    "keeps-acknowledged": Mutant("acked-never-again", keeps_acknowledged),
    "reads-from-the-newest": Mutant("told", reads_from_the_newest),
    "ignores-404": Mutant("told", ignores_404),
}
"""All mutants by name."""
