"""Channels reserved for some routes and publishers (docs/grip.md §5.9)."""

from __future__ import annotations

import json

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect, hold, instruct, response
from tests.wire.wirekit.events import GRIP, event, opened, over_http, subscribe
from tests.wire.wirekit.holding import stream
from tests.wire.wirekit.publisher import tnet

KEY = "the secret of the reserved channels"
SETUP = Setup(
    routes="* {backend},over_http\nown.test,reserved {backend}\nprefixed.test,prefix=ow {backend}\n"
    "debug.test,debug {backend}\n",
    config={"handler.reserved_prefix": "own/", "handler.reserved_key": KEY},
)


def item(channel: str, content: str) -> dict[str, object]:
    return {"channel": channel, "http-stream": {"content": content}}


@covers("5.9 http", "1.3 reserved")
def test_publishing_over_http(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"own/{case}, {case}"))
    with stream(site, f"/{case}", "Host: own.test") as client:
        body = json.dumps({"items": [item(case, "a\n"), item(f"own/{case}", "b\n")]})
        reply = site.publisher.post("/publish/", body)
        assert reply.line == expect(
            pushpin="200 OK",
            ours="403 Forbidden",
            pushpin_does="Does not know `reserved_prefix`: whoever reaches the control port may use any channel.",
            ours_does="Returns 403 for a publish request with an item on a channel that begins with `reserved_prefix`, "
            "and publishes none of its items, unless the request shows `reserved_key`.",
            because="One part of an application, such as an event store, can keep its channels to itself.",
        )
        if reply.line == "403 Forbidden":
            assert reply.body.startswith(
                b"Forbidden: channels that begin with 'own/' are reserved: use another channel"
            )
        else:
            assert client.data(4) == b"a\nb\n"
        body = json.dumps({"items": [item(f"own/{case}", "c\n"), item(case, "d\n")]})
        assert site.publisher.post("/publish/", body, f"Authorization: Bearer {KEY}").line == "200 OK"
        assert client.data(4) == b"c\nd\n"


@covers("5.9 zeromq")
@pytest.mark.parametrize("way", ["PULL", "SUB", "REP"])
def test_publishing_over_zeromq(site: Site, case: str, way: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"own/{case}"))
    with site.publisher.feed() as feed, stream(site, f"/{case}", "Host: own.test") as client:
        feed.wait_for(f"\x01own/{case}".encode())
        published = expect(
            pushpin=True,
            ours=False,
            pushpin_does="Does not know `reserved_prefix`: ZeroMQ publishers may use any channel.",
            ours_does="Skips items on a channel that begins with `reserved_prefix` on PULL and SUB sockets, counts and "
            "logs them; the command socket replies `forbidden`.",
            because="ZeroMQ publishers show no key.",
        )
        if way == "PULL":
            site.publisher.push(tnet(item(f"own/{case}", "a\n")))
        elif way == "SUB":
            feed.item(f"own/{case}", item("any", "a\n"))
        else:
            reply = site.publisher.command("publish", {"items": [item(f"own/{case}", "a\n")]})
            assert reply[b"success"] is published
            assert reply.get(b"condition") == (None if published else b"forbidden")
        if published:
            assert client.data(2) == b"a\n"
        elif way != "REP":
            line = site.proxy.wait_log(rf"item skipped: way={way} channel=own/{case} ")
            assert "begins with 'own/', which is reserved" in line
        body = json.dumps({"items": [item(f"own/{case}", "b\n")]})
        assert site.publisher.post("/publish/", body, f"Authorization: Bearer {KEY}").line == "200 OK"
        assert client.data(2) == b"b\n"


@covers("5.9 routes", "1.3 reserved")
@pytest.mark.parametrize("form", ["headers", "JSON", "prefix"])
def test_channels_that_backends_name(site: Site, case: str, form: str) -> None:
    if form == "JSON":
        answer = instruct({"hold": {"mode": "stream", "channels": [{"name": f"own/{case}"}]}})
    else:
        answer = hold("stream", f"{'n/' if form == 'prefix' else 'own/'}{case}")
    site.backend.on(f"/{case}", answer)
    with site.connect() as client:
        client.request("GET", f"/{case}", "Host: prefixed.test" if form == "prefix" else "Host: debug.test")
        head = client.head()
        assert head.line == expect(
            pushpin="200 OK",
            ours="502 Bad Gateway",
            pushpin_does="Does not know `reserved_prefix`: every backend may name any channel.",
            ours_does="Answers 502 when a backend names a channel that begins with `reserved_prefix`, the route's "
            "`prefix` included, on a route without `reserved`.",
            because="A backend could otherwise show its clients what is published for others.",
        )
    if form != "prefix":
        with stream(site, f"/{case}", "Host: own.test"):
            pass


@covers("5.9 websocket")
def test_channels_that_websockets_subscribe_to(site: Site, case: str) -> None:
    answer = opened(subscribe(f"own/{case}"), subscribe(case), event("TEXT", "m:behind"), headers=(GRIP,))
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer) as talk:
        assert talk.client.says("behind")
        feed.wait_for(b"\x01" + case.encode())
        body = json.dumps({"items": [{"channel": f"own/{case}", "ws-message": {"content": "a"}}]})
        assert site.publisher.post("/publish/", body, f"Authorization: Bearer {KEY}").line == "200 OK"
        if expect(
            pushpin=True,
            ours=False,
            pushpin_does="Does not know `reserved_prefix`: a WebSocket's backend may subscribe to any channel.",
            ours_does="Ignores a `subscribe` for a channel that begins with `reserved_prefix` on a route without "
            "`reserved`, as it does malformed control messages.",
            because="A backend could otherwise show its clients what is published for others.",
        ):
            assert talk.client.says("a")
        site.publisher.publish({"channel": case, "ws-message": {"content": "b"}})
        assert talk.client.says("b")


@covers("5.9 links")
def test_channels_that_answers_of_links_name(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", f"Grip-Link: </{case}/next>; rel=next", body="a\n"))
    site.backend.on(f"/{case}/next", hold("stream", f"own/{case}", body="b\n"))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        assert client.head().line == "200 OK"
        assert client.data(4) == b"a\nb\n"
        if expect(
            pushpin=True,
            ours=False,
            pushpin_does="Subscribes to whatever channel the answer of a next link names.",
            ours_does="Ends a stream when the answer of a next link names a channel that begins with "
            "`reserved_prefix`, on a route without `reserved`.",
            because="A backend could otherwise show its clients what is published for others.",
        ):
            site.publisher.stream(f"own/{case}", "c\n")
            assert client.data(2) == b"c\n"
        else:
            assert client.rest() == b""
