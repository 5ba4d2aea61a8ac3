"""Whom an item's action concerns when its subscriptions have filters (docs/grip.md §7): WebSockets."""

from __future__ import annotations

import json

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect
from tests.wire.wirekit.events import GRIP, control, event, events, opened, over_http, subscribe

SETUP = Setup(routes="* {backend},over_http\n")

FOR_OTHERS = {
    "skip-self": {"sender": "alice"},
    "skip-users": {"skip_users": "carl, alice"},
    "require-sub": {"require_sub": "elsewhere"},
}
"""Item meta by the filter that keeps such an item from alice."""


def act(site: Site, channel: str, action: str, meta: dict[str, str]) -> bool:
    """Publish an action to the WebSockets of a channel. Return whether the proxy knows it."""
    item = {"channel": channel, "formats": {"ws-message": {"action": action}}, "meta": meta}
    status = site.publisher.post("/publish/", json.dumps({"items": [item]})).status
    if action == "refresh":
        assert status == expect(
            pushpin=400,
            ours=200,
            pushpin_does="Returns 400 for the action `refresh` of a ws-message.",
            ours_does="Accepts the action `refresh`: each subscribed WebSocket sends a request to its backend.",
            because="Pushpin knows it from 1.38 on.",
        )
    else:
        assert status == 200
    return status == 200


def say(site: Site, channel: str, content: str) -> None:
    """Publish a text to them."""
    site.publisher.publish({"channel": channel, "formats": {"ws-message": {"content": content}}})


@covers("7 actions")
@pytest.mark.parametrize("action", ["close", "refresh"])
@pytest.mark.parametrize("name", FOR_OTHERS)
def test_an_action_for_others(site: Site, case: str, name: str, action: str) -> None:
    user = event("TEXT", control("set-meta", name="user", value="alice"))
    answer = opened(user, subscribe(case, filters=[name]), headers=(GRIP,))
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer, events()) as talk:
        feed.wait_for(f"\x01{case}".encode())
        act(site, case, action, FOR_OTHERS[name])
        # It is carried out in order: what comes behind it shows that it is over.
        say(site, case, "still here")
        assert talk.client.says("still here")
        talk.client.text("still here")
        assert talk.offer() == [("TEXT", b"still here")]
        assert talk.no_more()


@covers("7 actions")
@pytest.mark.parametrize("action", ["close", "refresh"])
def test_an_action_for_this_one(site: Site, case: str, action: str) -> None:
    user = event("TEXT", control("set-meta", name="user", value="alice"))
    answer = opened(user, subscribe(case, filters=["skip-self", "skip-users"]), headers=(GRIP,))
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer, events()) as talk:
        feed.wait_for(f"\x01{case}".encode())
        if not act(site, case, action, {"sender": "bob", "skip_users": "bob"}):
            return
        if action == "close":
            assert talk.client.closed() == (1000, b"")
        else:
            assert talk.offer() == []
