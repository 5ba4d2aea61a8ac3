"""Kinds of frames about subscriptions of the push API."""

from __future__ import annotations

from griphub.processes import push_commands, sender_commands

ORDERS = (
    "PUSH_ADD",
    "PUSH_CHANGE",
    "PUSH_MOVE",
    "PUSH_REMOVE",
    "TOPIC_GONE",
    "PULL",
    "ACKNOWLEDGE",
    "MODIFY",
    "BURIED",
)
ANSWERS = (
    *("PULLED", "ACKNOWLEDGED", "MODIFIED", "PUSH_READY", "BURY", "BACKLOGS", "PUSH_REMOVED"),
    "PUSH_FIGURES",
)
OTHER_ORDERS = ("ADD", "RENEW", "REST", "SIGN", "CANCEL", "EVENTS", "HINT")
OTHER_ANSWERS = ("READY", "CANCELLED", "REPORTS", "FIGURES", "UNUSABLE")


def test_each_kind_has_a_number_of_its_own() -> None:
    for names, others in ((ORDERS, OTHER_ORDERS), (ANSWERS, OTHER_ANSWERS)):
        numbers = [getattr(push_commands, name) for name in names]
        numbers += [getattr(sender_commands, name) for name in others]
        assert len(set(numbers)) == len(numbers)
