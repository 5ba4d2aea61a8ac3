"""Messages and replies."""

from __future__ import annotations

from griphub.mailboxes.messages import Ended, Lost, Message, Reply


def test_mailboxes_share_a_message_by_identity() -> None:
    payload = b"content"
    message = Message("t", None, 1, 7, payload)
    assert message.payload is payload
    assert message != Message("t", None, 1, 7, payload)


def test_an_empty_reply_has_the_publisher_id() -> None:
    assert Reply("p") == Reply("p", (), (), ())
    assert Reply("p", lost=(Lost("t", None, 3),), ended=(Ended("u", "k"),)).lost[0].last_id == 3
