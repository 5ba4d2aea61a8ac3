"""Channels, ids and meta that a WebSocket's backend names, and how long they may be (docs/grip.md §8.5)."""

from __future__ import annotations

import json

import pytest

from tests.wire.wirekit import Publisher, Setup, Site, covers, expect
from tests.wire.wirekit.events import GRIP, control, event, opened, over_http, subscribe

SETUP = Setup(routes="* {backend},over_http\n")
GRIP_ON = (GRIP,)
MORE = dict.fromkeys(("one", "two", "three"), "v" * 30000)


def publish(publisher: Publisher, channel: str, content: str, **fields: object) -> None:
    """Publish a text to the WebSockets of a channel."""
    publisher.publish({"channel": channel, "formats": {"ws-message": {"content": content}}, **fields})


@covers("8.5 subscribe")
@pytest.mark.parametrize("size", [1024, 1025])
def test_a_long_channel_is_ignored(site: Site, case: str, size: int) -> None:
    channel = f"{case}-" + "c" * (size - len(case) - 1)
    answer = opened(subscribe(channel), subscribe(case), headers=GRIP_ON)
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer) as talk:
        feed.wait_for(b"\x01" + case.encode())
        body = json.dumps({"items": [{"channel": channel, "formats": {"ws-message": {"content": "long"}}}]})
        site.publisher.post("/publish/", body)
        publish(site.publisher, case, "short")
        first = (
            "long"
            if size == 1024
            else expect(
                pushpin="long",
                ours="short",
                pushpin_does="Subscribes a WebSocket to a channel of 1,025 bytes.",
                ours_does="Ignores a control message that names a channel over 1,024 bytes, counts and logs it; "
                "`channel_max` raises the limit.",
                because="Every session keeps its channels in memory.",
            )
        )
        assert talk.client.says(first)


@covers("8.5 set-meta", "7 skip-self")
def test_meta_beyond_its_bound_is_ignored(site: Site, case: str) -> None:
    parts = [event("TEXT", control("set-meta", name="user", value="alice"))]
    parts += [event("TEXT", control("set-meta", name=name, value=value)) for name, value in MORE.items()]
    parts += [event("TEXT", control("set-meta", name="user", value="bob" + "b" * 10_000))]
    answer = opened(*parts, subscribe(case, filters=["skip-self"]), headers=GRIP_ON)
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer) as talk:
        feed.wait_for(b"\x01" + case.encode())
        publish(site.publisher, case, "from alice", meta={"sender": "alice"})
        publish(site.publisher, case, "end")
        first = expect(
            pushpin="from alice",
            ours="end",
            pushpin_does="Sets meta of a WebSocket without a limit on their size.",
            ours_does="Ignores a control message by which meta would exceed 65,536 bytes; the values set before stay.",
            because="Every session keeps its meta in memory.",
        )
        assert talk.client.says(first)
