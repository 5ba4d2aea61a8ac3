"""The state of an owner's mailboxes."""

from __future__ import annotations

from griphub.mailboxes.commands import Command, CommandBatch
from griphub.mailboxes.mailboxes import Mailboxes
from griphub.mailboxes.messages import MESSAGE_COST
from griphub.mailboxes.summary import MailboxSummary


def test_an_owner_has_the_state_of_its_own_mailboxes() -> None:
    mailboxes = Mailboxes("p")
    batch = CommandBatch(1, (Command(True, "t"), Command(True, "t", "k")))
    for subscriber, owner in (("b", "o"), ("a", "o"), ("c", "other")):
        mailboxes.commands(subscriber, owner, batch, lambda topic, key: 0, 10.0)
    mailboxes.poll("a", "o", 0, None, 12.0)
    assert mailboxes.summaries("o", 13.0) == [
        MailboxSummary("a", 2, 0, 0, True, 1.0, 1),
        MailboxSummary("b", 2, 0, 0, False, 3.0, 1),
    ]
    mailboxes.publish("t", None, 1, b"payload", 7, 14.0)
    assert mailboxes.summaries("o", 14.0)[1] == MailboxSummary("b", 2, 1, 7 + MESSAGE_COST, False, 4.0, 1)
    assert (mailboxes.follows("t"), mailboxes.follows("u")) == (True, False)
    assert mailboxes.topics("a") == {"t"}
    assert mailboxes.topics("none") == set()
    assert mailboxes.held("b") is None
