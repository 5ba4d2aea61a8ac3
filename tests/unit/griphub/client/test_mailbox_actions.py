"""Actions of a subscriber: the batch as JSON."""

from __future__ import annotations

from griphub.client.mailbox_actions import Command, Pair, SendCommands


def test_a_batch_as_json() -> None:
    batch = SendCommands("s", 3, (Command(True, Pair("t")), Command(False, Pair("t", "k"))))
    assert batch.document() == {
        "sequence": 3,
        "commands": [{"subscribe": {"topic": "t"}}, {"unsubscribe": {"topic": "t", "key": "k"}}],
    }
