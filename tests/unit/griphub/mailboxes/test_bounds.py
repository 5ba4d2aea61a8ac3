"""Bounds of mailboxes: sane values, and a message that names the limit."""

from __future__ import annotations

import pytest

from griphub.mailboxes.bounds import Bounds, MailboxLimit


def test_a_bound_is_at_least_one() -> None:
    assert Bounds(keys_each=1).keys_each == 1
    with pytest.raises(ValueError, match="messages is 0: expected at least 1"):
        Bounds(messages=0)


def test_a_limit_names_its_value_and_holder() -> None:
    error = MailboxLimit("keys", 7, "mailbox")
    assert (error.name, error.limit, error.whose) == ("keys", 7, "mailbox")
    assert str(error) == "the limit of 7 keys per mailbox is reached: end some of them first"
    assert "in total" in str(MailboxLimit("mailboxes", 7, "total"))
