"""Accounts of mailboxes: number and bytes of each owner's, and whose messages go first if all together are too many."""

from __future__ import annotations

from griphub.mailboxes.bounds import Bounds, MailboxLimit
from griphub.mailboxes.mailbox import Mailbox, MailboxOwner
from griphub.mailboxes.size_classes import SizeClasses

__all__ = ["Accounts"]


class Accounts:
    """Owners of mailboxes, and the bytes of the messages in them."""

    __slots__ = ("_owners", "_sizes", "lives", "mailboxes", "size")

    def __init__(self) -> None:
        self._owners: dict[str, MailboxOwner] = {}
        self._sizes: SizeClasses[MailboxOwner] = SizeClasses()
        self.mailboxes = 0
        """Number of mailboxes of all owners."""
        self.lives = 0
        """Number of mailboxes that were ever opened."""
        self.size = 0
        """Bytes of the messages in all mailboxes."""

    def check(self, owner: str, bounds: Bounds) -> None:
        """Check that an owner may have one mailbox more.

        Args:
            owner: key of the owner.
            bounds: bounds of mailboxes.

        Raises:
            MailboxLimit: it may not.
        """
        known = self._owners.get(owner)
        if known is not None and known.mailboxes >= bounds.mailboxes_each:
            raise MailboxLimit("mailboxes", bounds.mailboxes_each, "owner")
        if self.mailboxes >= bounds.mailboxes_total:
            raise MailboxLimit("mailboxes", bounds.mailboxes_total, "total")

    def keys_of(self, owner: str) -> int:
        """Return the number of subscriptions of an ``owner``."""
        known = self._owners.get(owner)
        return 0 if known is None else known.keys

    def open(self, subscriber: str, owner: str, now: float) -> Mailbox:
        """Make an empty mailbox.

        Args:
            subscriber: its name.
            owner: key of its owner.
            now: monotonic time in seconds.

        Returns:
            The mailbox.
        """
        holder = self._owners.get(owner)
        if holder is None:
            holder = self._owners[owner] = MailboxOwner(owner)
        holder.count(1)
        self.mailboxes += 1
        self.lives += 1
        return Mailbox(subscriber, holder, now, self.lives)

    def close(self, mailbox: Mailbox) -> None:
        """Take a mailbox out of the accounts.

        Args:
            mailbox: one that was opened here.
        """
        self._add(mailbox, mailbox.size, 0)
        holder = mailbox.owner
        self.mailboxes -= 1
        if not holder.count(-1):
            del self._owners[holder.name]

    def resized(self, mailbox: Mailbox, before: int) -> None:
        """Note that the messages of a mailbox are others now.

        Args:
            mailbox: one that was opened here.
            before: bytes that its messages counted for until now.
        """
        if mailbox.size != before:
            self._add(mailbox, before, mailbox.size)

    def _add(self, mailbox: Mailbox, before: int, after: int) -> None:
        holder = mailbox.owner
        size = holder.size + after - before
        holder.sizes.move(mailbox, before, after)
        self._sizes.move(holder, holder.size, size)
        holder.resize(size)
        self.size += after - before

    def largest(self) -> Mailbox | None:
        """Return the largest mailbox of the largest owner, up to a factor of two each; None if all are empty."""
        holder = self._sizes.largest()
        return None if holder is None else holder.sizes.largest()
