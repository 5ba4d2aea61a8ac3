"""Channels of mailboxes: names, positions that are never used again, and the items that move them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from griphub.api.mailbox_channel import MailboxChannels, channel_of, is_mailbox


@pytest.fixture
def items() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def channels(items: list[dict[str, Any]]) -> MailboxChannels:
    return MailboxChannels("hub/", lambda channel, item: items.append(json.loads(item)), 100)


@pytest.mark.parametrize("name", ["s", "a/b c", "ü" * 100, "x" * 255, "\udc80"])
def test_each_subscriber_has_a_channel(name: str) -> None:
    channel = channel_of("hub/", name)
    assert is_mailbox("hub/", channel)
    assert channel != channel_of("hub/", name + "x")
    assert len(channel) == len(channel_of("hub/", "s"))


@pytest.mark.parametrize("channel", ["hub/1/sse/", "other/mailbox/cw", "mailbox/cw"])
def test_others_are_no_channels_of_mailboxes(channel: str) -> None:
    assert not is_mailbox("hub/", channel)


def test_polls_are_held_at_the_position_of_the_last_item(
    channels: MailboxChannels, items: list[dict[str, Any]]
) -> None:
    name = channel_of("hub/", "s")
    assert channels.position("s") is None
    assert name not in channels
    assert channels.hold("s") == channels.hold("s") == (name, 101)
    assert channels.hold("other")[1] == 102
    channels.wake("s")
    channels.answer("s", b'{"messages":[]}')
    assert channels.hold("s") == (name, 104)
    hint, answer = items
    assert hint == {
        "channel": name,
        "id": "103",
        "prev-id": "101",
        "formats": {"http-response": {"action": "hint"}},
    }
    assert (answer["prev-id"], answer["id"]) == ("103", "104")
    assert answer["formats"]["http-response"]["body"] == '{"messages":[]}'


def test_a_position_is_not_used_again(channels: MailboxChannels) -> None:
    channels.hold("s")
    channels.forget("s")
    assert channels.position("s") is None
    assert channels.hold("s")[1] == 102
