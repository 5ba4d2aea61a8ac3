"""Accounts: limits of mailboxes, and the largest mailbox of the largest owner."""

from __future__ import annotations

import pytest

from griphub.mailboxes.accounts import Accounts
from griphub.mailboxes.bounds import Bounds, MailboxLimit
from griphub.mailboxes.mailbox import Mailbox
from griphub.mailboxes.messages import MESSAGE_COST, Message


def fill(accounts: Accounts, mailbox: Mailbox, size: int) -> None:
    before = mailbox.size
    mailbox.add(Message("t", None, len(mailbox) + 1, size, None))
    accounts.resized(mailbox, before)


def test_the_largest_mailbox_of_the_largest_owner() -> None:
    accounts = Accounts()
    lone = accounts.open("lone", "a", 0)
    first, second = accounts.open("first", "b", 0), accounts.open("second", "b", 0)
    assert accounts.largest() is None
    fill(accounts, lone, 3000)
    fill(accounts, first, 1500)
    fill(accounts, second, 4000)
    assert accounts.largest() is second
    assert accounts.size == 8500 + 3 * MESSAGE_COST
    accounts.close(second)
    assert accounts.largest() is lone
    assert accounts.size == 4500 + 2 * MESSAGE_COST
    accounts.close(first)
    accounts.close(lone)
    assert (accounts.size, accounts.mailboxes, accounts.largest()) == (0, 0, None)


def test_limits_of_mailboxes() -> None:
    bounds = Bounds(mailboxes_each=1, mailboxes_total=2)
    accounts = Accounts()
    accounts.check("a", bounds)
    mailbox = accounts.open("x", "a", 0)
    with pytest.raises(MailboxLimit, match="1 mailboxes per owner"):
        accounts.check("a", bounds)
    accounts.check("b", bounds)
    accounts.open("y", "b", 0)
    with pytest.raises(MailboxLimit, match="2 mailboxes in total"):
        accounts.check("c", bounds)
    accounts.close(mailbox)
    accounts.check("a", bounds)
