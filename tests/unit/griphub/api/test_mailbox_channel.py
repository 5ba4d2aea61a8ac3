"""Channels of mailboxes: names, positions that are never used again, and the items that move them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from griphub.api.mailbox_channel import MailboxChannels, Repeated, is_mailbox


@pytest.fixture
def items() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def channels(items: list[dict[str, Any]]) -> MailboxChannels:
    return MailboxChannels("hub/", lambda channel, item: items.append(json.loads(item)), 100)


@pytest.mark.parametrize("name", ["s", "a/b c", "ü" * 100, "x" * 255, "\udc80"])
def test_each_subscriber_has_a_short_channel_of_its_own(channels: MailboxChannels, name: str) -> None:
    channel, _ = channels.hold(name)
    assert is_mailbox("hub/", channel)
    assert channel.isascii()
    assert len(channel) < 20
    assert channel != channels.hold(name + "x")[0]


@pytest.mark.parametrize("channel", ["hub/1/sse/", "other/mailbox/cw", "mailbox/cw"])
def test_others_are_no_channels_of_mailboxes(channel: str) -> None:
    assert not is_mailbox("hub/", channel)


def test_polls_are_held_at_the_position_of_the_last_item(
    channels: MailboxChannels, items: list[dict[str, Any]]
) -> None:
    assert not channels.has("s")
    name, position = channels.hold("s")
    assert channels.has("s")
    assert name in channels
    assert channels.hold("s") == (name, position)
    channels.wake("s")
    channels.answer("s", b'{"messages":[]}')
    assert channels.hold("s") == (name, position + 2)
    hint, answer = items
    assert hint == {
        "channel": name,
        "id": str(position + 1),
        "prev-id": str(position),
        "formats": {"http-response": {"action": "hint"}},
    }
    assert (answer["prev-id"], answer["id"]) == (str(position + 1), str(position + 2))
    assert answer["formats"]["http-response"]["body"] == '{"messages":[]}'


def test_a_channel_is_not_used_again_by_a_later_mailbox_or_process(channels: MailboxChannels) -> None:
    name, _ = channels.hold("s")
    channels.forget("s")
    channels.forget("s")
    assert [channels.has("s"), name in channels, f"{name}é" in channels, "hub/1/sse/" in channels] == [False] * 4
    names = {name, channels.hold("s")[0], channels.hold("t")[0]}
    later = MailboxChannels("hub/", lambda channel, item: None, 101)
    assert len({*names, *(later.hold(str(number))[0] for number in range(100))}) == 103


def test_a_repeated_poll_is_the_present_one_at_its_position_and_an_older_one_elsewhere(
    channels: MailboxChannels,
) -> None:
    name, position = channels.hold("s")
    former = ("hub/mailbox/former/1", str(position))
    assert channels.repeated("s", []) is Repeated.NOT
    assert channels.repeated("s", [("other", "7")]) is Repeated.NOT
    assert channels.repeated("s", [("other", "7"), (name, str(position))]) is Repeated.PRESENT
    assert channels.repeated("s", [(name, str(position - 1))]) is Repeated.OLDER
    assert channels.repeated("s", [former]) is Repeated.OLDER
