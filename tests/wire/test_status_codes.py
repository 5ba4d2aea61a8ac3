"""Status codes and reasons that publishers and backends name: three digits, final, on one line (RFC 9110 §15, §5.5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.wire.wirekit import Publisher, Setup, Site, covers, expect, hold, instruct, response
from tests.wire.wirekit.holding import long_poll

SETUP = Setup(routes="* {backend}\n*,path_beg=/debug,debug {backend}\n")

NOT_FINAL = [0, 1, 99, 100, 101, 103, 199]
PREFIX = "Failed to parse accept instructions: "


def answer(channel: str, **fields: Any) -> dict[str, Any]:
    """Return an item that answers long-polls of the channel."""
    return {"channel": channel, "formats": {"http-response": {"body": "published\n", **fields}}}


@covers("5.2 http-response")
@pytest.mark.parametrize("code", [*NOT_FINAL, "zz", "103"])
def test_over_http(publisher: Publisher, code: object) -> None:
    reply = publisher.post("/publish/", json.dumps({"items": [answer("a", code=code)]}))
    line = expect(
        pushpin="200 OK",
        ours="400 Bad Request",
        pushpin_does="Publishes an http-response whose `code` is below 200 or no number.",
        ours_does="Returns 400 for an http-response whose `code` is not 200 to 999.",
        because="Behind an interim status a client waits for a further response, and takes what arrives next on its "
        "connection for that.",
    )
    assert reply.line == line
    if line == "400 Bad Request":
        number = 0 if code == "zz" else int(str(code))
        assert reply.body.decode() == (
            f"Invalid format: 'http-response' contains 'code' with invalid value: {number}, "
            "expected a final status, 200 to 999\n"
        )


@covers("5.2 http-response")
def test_one_bad_status_refuses_the_whole_request(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with long_poll(site, f"/{case}", case) as client:
        items = [answer(case, body="first\n"), answer(case, code=103)]
        reply = site.publisher.post("/publish/", json.dumps({"items": items}))
        if expect(
            pushpin=True,
            ours=False,
            pushpin_does="Accepts a publish request in which one item has a status below 200.",
            ours_does="Returns 400 for a publish request in which one item has a status below 200.",
            because="A request is accepted or refused as a whole.",
        ):
            assert reply.status == 200
        else:
            assert reply.status == 400
            site.publisher.answer(case, "second\n")
        assert client.response().body == expect(
            pushpin=b"first\n",
            ours=b"second\n",
            pushpin_does="Publishes the other items of a request in which one has a status below 200.",
            ours_does="Publishes no item of a request that is refused.",
            because="A request is accepted or refused as a whole.",
        )


def by_pull(site: Site, channel: str, item: dict[str, Any]) -> None:
    """Publish through the PULL socket."""
    site.publisher.push_item(item)


def by_sub(site: Site, channel: str, item: dict[str, Any]) -> None:
    """Publish through the SUB socket."""
    with site.publisher.feed() as feed:
        feed.wait_for(b"\x01" + channel.encode())
        feed.item(channel, item)


def by_command(site: Site, channel: str, item: dict[str, Any]) -> None:
    """Publish through the command socket, which says what is wrong."""
    reply = site.publisher.command("publish", {"items": [item]}, id="1")
    good = item["formats"]["http-response"].get("code", 200) >= 200
    assert reply[b"success"] is expect(
        pushpin=True,
        ours=good,
        pushpin_does="The command `publish` accepts an http-response with status 103.",
        ours_does="The command `publish` fails with `bad-request` for an http-response with a status below 200.",
        because="Behind an interim status a client waits for a further response.",
    )
    if not reply[b"success"]:
        assert reply[b"condition"] == b"bad-request"
        assert reply[b"value"].startswith(b"Invalid format: 'http-response' contains 'code' with invalid value: 103")


@covers("5.6 T", "5.7 two parts", "5.8 publish")
@pytest.mark.parametrize("way", [by_pull, by_sub, by_command])
def test_over_zeromq(site: Site, case: str, way: Callable[[Site, str, dict[str, Any]], None]) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with long_poll(site, f"/{case}", case) as client:
        way(site, case, answer(case, code=103))
        # It was last on the line, so what comes in behind it shows that it was skipped.
        way(site, case, answer(case, code=404))
        line = expect(
            pushpin="103 Undefined Reason",
            ours="404 Not Found",
            pushpin_does="Answers a long-poll with a published `103 Undefined Reason`.",
            ours_does="Skips an item with a published status below 200 and logs it; the next item answers the "
            "long-poll.",
            because="Behind an interim status a client waits for a further response.",
        )
        assert client.head().line == line


@covers("3.1 grip-status", "3.7 grip-status")
@pytest.mark.parametrize("value", ["0", "99", "100", "101", "103", "199", "0200", "+200", "20"])
def test_grip_status(site: Site, case: str, value: str) -> None:
    site.backend.on(f"/debug/{case}", response("200 OK", f"Grip-Status: {value}", body="x"))
    with site.connect() as client:
        client.request("GET", f"/debug/{case}")
        head = client.head()
    refused = expect(
        pushpin=False,
        ours=True,
        pushpin_does="Answers with whatever number `Grip-Status` names: 0, 103, 200 for `+200`.",
        ours_does="Answers 502 when `Grip-Status` is not three digits from 200 to 999.",
        because="Behind an interim status a client waits for a further response.",
    )
    if refused:
        assert head.line == "502 Bad Gateway"
    else:
        assert head.line.split(" ")[0] == str(int(value))


@covers("3.1 grip-status", "3.7 grip-status")
def test_what_is_published_to_a_stream_with_an_interim_status(site: Site, case: str) -> None:
    forged = "HTTP/1.1 200 Forged\r\nContent-Length: 0\r\n\r\n"
    site.backend.on(f"/debug/{case}", hold("stream", case, "Grip-Status: 103"))
    with site.connect() as client:
        client.request("GET", f"/debug/{case}")
        line = expect(
            pushpin="103 Undefined Reason",
            ours="502 Bad Gateway",
            pushpin_does="Holds a stream with `Grip-Status: 103`.",
            ours_does="Answers 502 to a hold with `Grip-Status: 103`.",
            because="The client would take published content for its response.",
        )
        head = client.head()
        assert head.line == line
        if line == "502 Bad Gateway":
            client.rest()
            site.publisher.stream(case, forged)
            assert client.silent(0.2)


@covers("3.7 json")
@pytest.mark.parametrize("code", [*NOT_FINAL, "zz"])
def test_a_status_in_an_instruct(site: Site, case: str, code: object) -> None:
    site.backend.on(f"/debug/{case}", instruct({"response": {"code": code, "body": "x"}}))
    with site.connect() as client:
        client.request("GET", f"/debug/{case}")
        head = client.head()
    number = 0 if code == "zz" else int(str(code))
    assert head.line.split(" ")[0] == expect(
        pushpin=str(number),
        ours="502",
        pushpin_does="Answers with a status below 200 that an instruct document names.",
        ours_does="Answers 502 when an instruct document names a status below 200.",
        because="Behind an interim status a client waits for a further response.",
    )


CONTROLS = [f"a{chr(code)}b" for code in (0, 1, 8, 10, 11, 13, 27, 31, 127)]


@covers("5.2 headers", "5.2 http-response")
@pytest.mark.parametrize("text", CONTROLS, ids=[repr(text) for text in CONTROLS])
@pytest.mark.parametrize("place", ["reason", "headers"])
def test_control_characters_from_a_publisher(publisher: Publisher, place: str, text: str) -> None:
    value: object = text if place == "reason" else [["X-A", text]]
    reply = publisher.post("/publish/", json.dumps({"items": [answer("a", **{place: value})]}))
    line = expect(
        pushpin="200 OK",
        ours="400 Bad Request",
        pushpin_does="Publishes an http-response with control characters in a reason or header value.",
        ours_does="Returns 400 for an http-response with control characters in a reason or header value.",
        because="They could forge headers, or make two parsers read them differently.",
    )
    assert reply.line == line
    if line == "400 Bad Request":
        assert reply.body.decode().startswith(f"Invalid format: 'http-response' contains '{place}' with invalid value")


@covers("5.1 http-response")
def test_tabs_and_other_bytes_pass(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with long_poll(site, f"/{case}", case) as client:
        site.publisher.publish(answer(case, reason="Ça\tva", headers=[["X-A", "a\tbé"]]))
        head = client.head()
        assert head.line == "200 Ça\tva".encode().decode("latin-1")
        assert head["x-a"] == "a\tbé"


@covers("3.7 json")
@pytest.mark.parametrize("text", CONTROLS, ids=[repr(text) for text in CONTROLS])
@pytest.mark.parametrize("place", ["reason", "headers"])
def test_control_characters_in_an_instruct(site: Site, case: str, place: str, text: str) -> None:
    value: object = text if place == "reason" else [["X-A", text]]
    site.backend.on(f"/{case}", instruct({"response": {"body": "x", place: value}}))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        line = client.until(b"\n").rstrip(b"\r\n")
    refused = expect(
        pushpin=False,
        ours=True,
        pushpin_does="Answers a client although the instruct document has control characters in a reason or header "
        "value.",
        ours_does="Answers 502 when an instruct document has control characters in a reason or header value.",
        because="They could forge headers, or make two parsers read them differently.",
    )
    assert (line == b"HTTP/1.1 502 Bad Gateway") is refused


@covers("3.1 grip-status")
def test_a_stream_may_have_any_final_status(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, "Grip-Status: 599 Odd"))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        assert client.head().line == "599 Odd"
        site.publisher.stream(case, "published\n")
        assert client.chunk() == b"published\n"
