"""How long channels, ids, meta and items may be, wherever they come from; and the keys that allow more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.wire.wirekit import Publisher, Setup, Site, covers, expect, hold, instruct
from tests.wire.wirekit.holding import stream
from tests.wire.wirekit.publisher import tnet

ROUTES = "* {backend}\n*,path_beg=/debug,debug {backend}\n"
SETUP = Setup(routes=ROUTES)
LARGER = Setup(
    routes=ROUTES,
    config={
        "runner.client_buffer_size": 65536,
        "handler.channel_max": 5000,
        "handler.id_max": 900_000,
        "handler.meta_max": 900_000,
    },
)
SMALLER = Setup(config={"handler.item_max": 2000, "handler.push_in_http_max_body_size": 10_000_000})

MOST = 1024
META = 65536
LONG = "x" * (MOST + 1)
PREFIX = "Failed to parse accept instructions: "


def item(channel: str, content: str = "x\n", **fields: Any) -> dict[str, Any]:
    """Return an item for the streams of a channel, ``_`` in names of fields standing for ``-``."""
    extra = {name.replace("_", "-"): value for name, value in fields.items()}
    return {"channel": channel, "formats": {"http-stream": {"content": content}}, **extra}


def over(what: str, size: int, most: int, key: str) -> str:
    """Return what is said of something that is too long."""
    return f"publish item object contains '{what}' of {size} bytes, at most {most} are allowed ({key})"


OVER = [
    (item(LONG), over("channel", MOST + 1, MOST, "channel_max")),
    (item("a", id=LONG), over("id", MOST + 1, MOST, "id_max")),
    (item("a", prev_id=LONG), over("prev-id", MOST + 1, MOST, "id_max")),
    (item("a", meta={"k": "v" * META}), over("meta", META + 1, META, "meta_max")),
    (
        item("a", meta={str(number): "" for number in range(257)}),
        "publish item object contains 'meta' of 257 values, at most 256 are allowed",
    ),
]
NAMES = ["channel", "id", "prev-id", "meta", "values of meta"]


@covers("5.2 item", "5.5 bad item")
@pytest.mark.parametrize(("bad", "detail"), OVER, ids=NAMES)
def test_over_http(publisher: Publisher, bad: dict[str, Any], detail: str) -> None:
    reply = publisher.post("/publish/", json.dumps({"items": [item("a"), bad]}))
    line = expect(
        pushpin="200 OK",
        ours="400 Bad Request",
        pushpin_does="Accepts a channel, id or prev-id of 1,025 bytes, meta of 65,537 bytes and 257 values of meta.",
        ours_does="`/publish/` returns 400 for an item whose channel, id or prev-id exceeds 1,024 bytes, or whose meta "
        "exceeds 65,536 bytes or 256 values.",
        because="They are kept in memory, which publishers could fill. `channel_max`, `id_max` and `meta_max` raise "
        "the limits.",
    )
    assert reply.line == line
    if line == "400 Bad Request":
        assert reply.body.decode() == f"Invalid format: items[1]: {detail}\n"


@covers("5.8 publish")
@pytest.mark.parametrize(("bad", "detail"), OVER, ids=NAMES)
def test_over_the_command_socket(publisher: Publisher, bad: dict[str, Any], detail: str) -> None:
    reply = publisher.command("publish", {"items": [item("a"), bad]}, id="1")
    refused = expect(
        pushpin=False,
        ours=True,
        pushpin_does="The command `publish` accepts an item with a channel, id or prev-id of 1,025 bytes or meta of "
        "65,537 bytes.",
        ours_does="The command `publish` fails with `bad-request` and names the limit that the item exceeds.",
        because="The limits of an item hold for every way to publish.",
    )
    if refused:
        value = f"Invalid format: items[1]: {detail}".encode()
        assert reply == {b"id": b"1", b"success": False, b"condition": b"bad-request", b"value": value}
    else:
        assert reply[b"success"] is True


@covers("5.1 channel", "5.1 id", "5.1 meta")
def test_the_bounds_may_be_reached(site: Site) -> None:
    channel = "c" * MOST
    site.backend.on("/full", instruct({"hold": {"mode": "stream", "channels": [{"name": channel}]}}))
    with stream(site, "/full") as client:
        site.publisher.publish(item(channel, "over HTTP\n", id="1" * MOST, meta={"k": "v" * (META - 1)}))
        assert client.data_until(b"\n") == b"over HTTP\n"
        site.publisher.push_item(item(channel, "by PULL\n", id="2" * MOST, prev_id="1" * MOST))
        assert client.data_until(b"\n") == b"by PULL\n"
        site.publisher.publish(item(channel, "again\n", id="1" * MOST))
        site.publisher.publish(item(channel, "a new one\n", id="1" * (MOST - 1) + "2"))
        assert client.data_until(b"\n") == b"a new one\n"


@covers("5.6 T", "5.6 J")
@pytest.mark.parametrize("bad", [bad for bad, _ in OVER[1:]], ids=NAMES[1:])
@pytest.mark.parametrize("form", ["T", "J"])
def test_by_pull(site: Site, case: str, form: str, bad: dict[str, Any]) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    bad = {**bad, "channel": case, "no-seq": True, "formats": {"http-stream": {"content": "long\n"}}}
    with stream(site, f"/{case}") as client:
        site.publisher.push(b"T" + tnet(bad) if form == "T" else b"J" + json.dumps(bad).encode())
        site.publisher.push_item(item(case, "next\n"))
        came = expect(
            pushpin=b"long\nnext\n",
            ours=b"next\n",
            pushpin_does="Delivers an item from PULL whose id, prev-id or meta exceeds 1,024 or 65,536 bytes.",
            ours_does="Skips an item from PULL whose id, prev-id or meta exceeds its limit, counts and logs it, and "
            "delivers the next one.",
            because="The limits of an item hold for every way to publish; PULL has no reply.",
        )
        assert client.data(len(came)) == came


@covers("5.7 two parts")
def test_by_sub(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client, site.publisher.feed() as feed:
        feed.wait_for(b"\x01" + case.encode())
        feed.item(case, item(case, "long\n", id=LONG))
        feed.item(case, item(case, "next\n"))
        came = expect(
            pushpin=b"long\nnext\n",
            ours=b"next\n",
            pushpin_does="Delivers an item from SUB whose id exceeds 1,024 bytes.",
            ours_does="Skips an item from SUB whose id exceeds `id_max`, counts and logs it, and delivers the next "
            "one.",
            because="The limits of an item hold for every way to publish; SUB has no reply.",
        )
        assert client.data(len(came)) == came


def held(**channel: Any) -> dict[str, Any]:
    """Return an instruct that holds a stream of one channel."""
    return {"hold": {"mode": "stream", "channels": [{"name": "a", **channel}]}}


@covers("3.7 json", "3.7 grip-channel")
@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (instruct(held(name=LONG)), "channel has a name of 1025 bytes, at most 1024 are allowed (channel_max)"),
        (instruct(held(**{"prev-id": LONG})), "channel has a prev-id of 1025 bytes, at most 1024 are allowed (id_max)"),
        (
            instruct({"hold": {**held()["hold"], "meta": {"k": "v" * META}}}),
            "connection has meta of 65537 bytes, at most 65536 are allowed (meta_max)",
        ),
        (hold("stream", LONG), "channel has a name of 1025 bytes, at most 1024 are allowed (channel_max)"),
        (
            hold("stream", f"a; prev-id={LONG}", "Grip-Link: </next>; rel=next"),
            "channel has a prev-id of 1025 bytes, at most 1024 are allowed (id_max)",
        ),
    ],
    ids=["name", "prev-id", "meta", "name in a header", "prev-id in a header"],
)
def test_in_an_instruct(site: Site, case: str, answer: bytes, detail: str) -> None:
    site.backend.on(f"/debug/{case}", answer)
    with site.connect() as client:
        client.request("GET", f"/debug/{case}")
        head = client.head()
        line = expect(
            pushpin="200 OK",
            ours="502 Bad Gateway",
            pushpin_does="Holds a client on a channel whose name or prev-id exceeds 1,024 bytes, or with meta of "
            "65,537 bytes.",
            ours_does="Answers 502 when a backend names a channel or prev-id over 1,024 bytes or meta over 65,536 "
            "bytes; in debug mode the body names the limit.",
            because="Every session keeps them in memory.",
        )
        assert head.line == line
        if line == "502 Bad Gateway":
            assert client.rest().decode() == f"{PREFIX}{detail}\n"


@covers("5.1 channel", "5.1 id", "5.1 meta")
def test_keys_allow_more(start: Callable[[Setup], Site]) -> None:
    site = start(LARGER)
    channel, long = "c" * 5000, "1" * 300_000
    site.backend.on("/long", instruct({"hold": {"mode": "stream", "channels": [{"name": channel}]}}))
    with stream(site, "/long") as client:
        site.publisher.publish(item(channel, "first\n", id=long, meta={"k": "v" * 100_000}))
        site.publisher.publish(item(channel, "again\n", id=long))
        site.publisher.publish(item(channel, "third\n", id="3", prev_id="2"))
        site.publisher.publish(item(channel, "second\n", id="2", prev_id=long))
        assert client.data(len(b"first\nsecond\nthird\n")) == b"first\nsecond\nthird\n"


@covers("5.2 item")
def test_an_item_that_is_too_long(start: Callable[[Setup], Site], case: str) -> None:
    site = start(SMALLER)
    site.backend.on(f"/{case}", hold("stream", case))
    refused = expect(
        pushpin=False,
        ours=True,
        pushpin_does="Does not know `item_max` and publishes an item over that size.",
        ours_does="Refuses an item over `item_max` (16 MiB by default): 400 over HTTP, failure of the command "
        "`publish`; from PULL it is skipped.",
        because="One item must not fill the memory of every worker.",
    )
    with stream(site, f"/{case}") as client:
        reply = site.publisher.post("/publish/", json.dumps({"items": [item(case, "x" * 2000 + "\n")]}))
        assert reply.status == (400 if refused else 200)
        assert reply.body.startswith(b"Invalid format: publish item object has 20") is refused
        answer = site.publisher.command("publish", {"items": [item(case, "x" * 2000 + "\n")]}, id="1")
        assert answer[b"success"] is not refused
        site.publisher.push_item(item(case, "x" * 2000 + "\n"))
        # Several that are short enough come together in a request that is longer.
        site.publisher.publish(*[item(case, "y" * 1000 + "\n")] * 4)
        long = 0 if refused else 3
        data = client.data(2001 * long + 1001 * 4)
        assert data.count(b"x" * 2000 + b"\n") == long
        assert data.count(b"y" * 1000 + b"\n") == 4


@covers("5.3 ops")
def test_an_item_of_too_many_values(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    many = {"http-response": {"body-patch": [{"op": "test", "path": "", "value": ["v"] * 60_000}]}}
    refused = expect(
        pushpin=False,
        ours=True,
        pushpin_does="Publishes an item of more than 50,000 values.",
        ours_does="Refuses a message or request of more than 50,000 values: 400 over HTTP, `bad-request` on the "
        "command socket; from PULL it is skipped.",
        because="The time to decode a message grows with the number of its values.",
    )
    with stream(site, f"/{case}") as client:
        bad = {"channel": case, "formats": many | {"http-stream": {"content": "many\n"}}}
        reply = site.publisher.post("/publish/", json.dumps({"items": [bad]}))
        assert reply.status == (400 if refused else 200)
        answer = site.publisher.command("publish", {"items": [bad]})
        assert answer[b"success"] is not refused
        if refused:
            detail = b"Invalid format: publish item object has more than 50000 values"
            assert reply.body == detail + b"\n"
            assert (answer[b"condition"], answer[b"value"]) == (b"bad-request", detail)
        site.publisher.push(b"T" + tnet(bad))
        site.publisher.push(b"J" + json.dumps(bad).encode())
        site.publisher.push_item(item(case, "next\n"))
        assert client.data_until(b"next\n") == b"many\n" * (0 if refused else 4) + b"next\n"


@covers("5.8 refresh", "5.8 conncheck")
def test_other_commands(publisher: Publisher) -> None:
    refused = expect(
        pushpin=False,
        ours=True,
        pushpin_does="`refresh` takes a `cid` of 1,025 bytes and returns `item-not-found`; a request id of 1,025 bytes "
        "is echoed.",
        ours_does="`refresh` returns `bad-request` for a `cid` over 1,024 bytes, `conncheck` for ids that count for "
        "more than 1,048,576 bytes; a request id over 1,024 bytes is not echoed.",
        because="Ids of connections and requests are kept until workers answer.",
    )
    if refused:
        reply = publisher.command("refresh", {"cid": LONG}, id="1")
        assert reply[b"condition"] == b"bad-request"
        assert reply[b"value"] == b"'cid' has 1025 bytes, at most 1024 are allowed (id_max)"
        reply = publisher.command("conncheck", {"ids": ["x"] * 20_000}, id="1")
        assert reply[b"condition"] == b"bad-request"
        assert reply[b"value"] == (
            b"'ids' count for 1300000 bytes, at most 1048576 are allowed (64 of them for each id)"
        )
        assert b"id" not in publisher.command("recover", id=LONG)
    else:
        assert publisher.command("refresh", {"cid": LONG}, id="1")[b"condition"] == b"item-not-found"
        assert publisher.command("recover", id=LONG)[b"id"] == LONG.encode()
