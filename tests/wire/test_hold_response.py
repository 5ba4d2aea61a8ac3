"""Long-polls: one response, when something is published or when the time is over (docs/grip.md §4.1)."""

from __future__ import annotations

import contextlib

import pytest

from tests.wire.wirekit import Client, Setup, Site, covers, expect, hold, instruct, response
from tests.wire.wirekit.holding import long_poll

SETUP = Setup(routes="* {backend}\n*,path_beg=/debug,debug {backend}\n*,path_beg=/implicit {backend},sub=implied\n")


@covers("3.1 grip-hold", "4.1 1 buffered", "4.1 4 publish", "4.1 4 headers", "15 9 inherits", "5.1 http-response")
def test_published_response(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case, "X-T: held", "X-A: 1", "X-A: 2", body="never sent"))
    with long_poll(site, f"/{case}", case) as client:
        assert client.silent(0.1)
        site.publisher.publish(
            {
                "channel": case,
                "formats": {
                    "http-response": {
                        "code": 201,
                        "reason": "Made",
                        "headers": {"x-a": "over", "X-P": "new"},
                        "body": "published\n",
                    }
                },
            }
        )
        answer = client.response()
        assert answer.line == "201 Made"
        assert answer["x-t"] == "held"
        assert answer.all("x-a") == ["over"]
        assert answer["x-p"] == "new"
        assert answer["content-type"] == "text/plain"
        assert answer["content-length"] == "10"
        assert answer.body == b"published\n"


@covers("4.1 5 keep-alive")
def test_the_connection_goes_on(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with long_poll(site, f"/{case}", case) as client:
        site.publisher.answer(case, "one")
        assert client.response().body == b"one"
        assert client.ask("GET", f"/{case}-next").body == b"backend\n"


@covers("4.1 5 keep-alive", "connections close")
def test_connection_close_is_obeyed(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with long_poll(site, f"/{case}", case, "Connection: close") as client:
        site.publisher.answer(case, "one")
        answer = client.response()
        assert answer["connection"] == "close"
        assert answer.body == b"one"
        assert client.until_close() == b""


@covers("2.1 http10")
def test_http_1_0(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with long_poll(site, f"/{case}", case, version="HTTP/1.0") as client:
        site.publisher.answer(case, "one")
        answer = client.response()
        assert answer.version == "HTTP/1.0"
        assert answer.body == b"one"
        assert client.until_close() == b""


@covers("4.1 head", "15 21 head")
def test_head_gets_no_body(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with long_poll(site, f"/{case}", case, method="HEAD") as client:
        site.publisher.answer(case, "ab")
        answer = client.head(method="HEAD")
        assert answer.line == "200 OK"
        assert answer["content-length"] == "2"
        sent = expect(
            pushpin=b"ab",
            ours=b"",
            pushpin_does="Sends the published body (`ab`) in response to a held HEAD request.",
            ours_does="Sends `Content-Length: 2` and no body in response to a held HEAD request.",
            because="A response to HEAD has no body (RFC 9110 §9.3.2).",
        )
        assert client.exactly(len(sent)) == sent
        assert client.silent(0.1)


@covers("4.1 4 publish", "5.1 channel")
def test_any_of_several_channels_answers(site: Site, case: str) -> None:
    site.backend.on(f"/implicit/{case}", hold("response", f"{case}-1, {case}-2"))
    with long_poll(site, f"/implicit/{case}", f"{case}-2") as client:
        site.publisher.answer(f"{case}-2", "two")
        assert client.response().body == b"two"


@covers("1.4 sub")
def test_an_implicit_channel_answers(site: Site, case: str) -> None:
    site.backend.on(f"/implicit/{case}", hold("response", case))
    with long_poll(site, f"/implicit/{case}", case) as client:
        site.publisher.answer("implied", "implied\n")
        assert client.response().body == b"implied\n"


@covers("5.1 http-response close")
def test_close_does_not_end_a_long_poll(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with long_poll(site, f"/{case}", case) as client:
        close = {"action": "close"}
        site.publisher.publish({"channel": case, "http-response": close, "http-stream": close})
        site.publisher.stream(case, "for streams")
        assert client.silent(0.1)
        site.publisher.answer(case, "answer")
        assert client.response().body == b"answer"


@covers("4.1 4 hint", "6.4 hint", "6.5 retry")
def test_hint_sends_the_request_again(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", [hold("response", case), response("200 OK", "X-Second: yes", body="second answer\n")])
    with long_poll(site, f"/{case}?q=1", case, "X-C: 1", "Grip-X: 1", method="PUT", body="request body") as client:
        site.publisher.publish({"channel": case, "http-response": {"action": "hint"}})
        answer = client.response()
        assert answer["x-second"] == "yes"
        assert answer.body == b"second answer\n"
    first, second = site.backend.request(f"/{case}", 0), site.backend.request(f"/{case}", 1)
    for request in (first, second):
        assert (request.method, request.uri, request.body) == ("PUT", f"/{case}?q=1", b"request body")
        assert request["x-c"] == "1"
        assert request["grip-x"] is None
        assert request["grip-last"] is None
        assert request["grip-sig"] is not None


@covers("4.1 4 hint", "6.3 check", "6.5 retry")
@pytest.mark.parametrize("mode", ["response", "stream"])
def test_a_hint_with_an_id(site: Site, case: str, mode: str) -> None:
    """A hint stands for events that the backend has: it must be asked from the place before them."""
    link = [f"Grip-Link: </{case}>; rel=next"] if mode == "stream" else []
    site.backend.on(f"/{case}", [hold(mode, f"{case}; prev-id=1", *link), response("200 OK", body="end")])
    with long_poll(site, f"/{case}", case) as client:
        if mode == "stream":
            client.head()
        site.publisher.publish({"channel": case, "id": "2", "prev-id": "1", f"http-{mode}": {"action": "hint"}})
        asked = site.backend.request(f"/{case}", 1)
        assert (client.rest() if mode == "stream" else client.response().body) == b"end"
    last = expect(
        pushpin="2",
        ours="1",
        pushpin_does="Counts a hint as had: `Grip-Last` names the id of the hint.",
        ours_does="Asks from the place before a hint: `Grip-Last` names its `prev-id`.",
        because="The client has not got what the hint stands for.",
    )
    assert asked["Grip-Last"] == f"{case}; last-id={last}"


@covers("4.1 4 hint")
def test_hint_may_be_answered_with_another_hold(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", [hold("response", case), hold("response", f"{case}-b")])
    with long_poll(site, f"/{case}", case) as client, site.publisher.feed() as feed:
        site.publisher.publish({"channel": case, "http-response": {"action": "hint"}})
        feed.wait_for(b"\x01" + f"{case}-b".encode())
        site.publisher.answer(case, "left")
        site.publisher.answer(f"{case}-b", "joined")
        assert client.response().body == b"joined"


@covers("4.1 4 disconnect", "5.7 linger", "6.8 linger")
def test_a_client_that_leaves(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with site.publisher.feed() as feed:
        with long_poll(site, f"/{case}", case) as client:
            feed.wait_for(b"\x01" + case.encode())
            client.reset()
        # The two seconds of subscription_linger come first.
        feed.wait_for(b"\x00" + case.encode())


@covers(
    "3.1 grip-timeout",
    "3.1 no channel",
    "3.2 json",
    "3.3 304",
    "3.3 grip-status overrides",
    "4.1 3 timeout timer",
    "4.1 4 timeout",
    "7 build-id",
    "15 2 minimums",
)
def test_timeouts(site: Site, case: str) -> None:
    def held(*headers: str, status: str = "200 Held", body: str = "late\n") -> bytes:
        return response(status, "Grip-Hold: response", *headers, body=body)

    channel = f"Grip-Channel: {case}"
    held_json = {"channels": [{"name": case}], "timeout": "zz"}
    answers = {
        "five": held(channel, "Grip-Timeout: 5", "X-A: 1"),
        "raised": held(channel, "Grip-Timeout: 0"),
        "no-channel": held("Grip-Timeout: 1"),
        "status": held(channel, "Grip-Timeout: 5", "Grip-Status: 404"),
        "304": held(channel, "Grip-Timeout: 5", 'ETag: "x"', status="304 Same", body=""),
        "json": instruct({"hold": {**held_json, "timeout": 5}, "response": {"code": 203, "body": "late\n"}}),
        "json-text": instruct({"hold": held_json, "response": {"body": "late\n"}}, status="200 Held"),
        # Filters of response content leave the timeout body of a long-poll alone.
        "build-id": held(
            f"{channel}; filter=build-id", "Grip-Set-Meta: id_format=v", "Grip-Timeout: 5", body="%(x)I %I"
        ),
        "HEAD": response("200 Held", "Grip-Hold: response", channel, "Grip-Timeout: 5", "Content-Length: 0"),
    }
    with contextlib.ExitStack() as stack:
        clients: dict[str, Client] = {}
        for name, answer in answers.items():
            site.backend.on(f"/{case}-{name}", answer)
            clients[name] = stack.enter_context(site.connect())
            clients[name].request("HEAD" if name == "HEAD" else "GET", f"/{case}-{name}")
        got = {}
        for name, client in clients.items():
            got[name] = client.response(method="HEAD" if name == "HEAD" else "GET")
            # Pushpin asks once more after a second, since the channel is new; the time starts again then.
            asked = site.backend.request(f"/{case}-{name}", site.backend.count(f"/{case}-{name}") - 1)
            assert got[name].time - asked.time > 4.9, name
    assert {name: answer.line for name, answer in got.items()} == {
        "five": "200 Held",
        "raised": "200 Held",
        "no-channel": "200 Held",
        "status": "404 Not Found",
        "304": "304 Same",
        "json": "203 Non-Authoritative Information",
        "json-text": "200 Held",
        "build-id": "200 Held",
        "HEAD": "200 Held",
    }
    assert got["five"].lines == ["X-A: 1", "Content-Length: 5"]
    assert got["304"]["etag"] == '"x"'
    assert got["build-id"].body == b"%(x)I %I"
    assert {name for name, answer in got.items() if answer.body != b"late\n"} == {"304", "HEAD", "build-id"}


@covers("4.1 filter drop", "4.1 4 publish")
def test_a_dropped_item_leaves_it_waiting(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", f"{case}; filter=skip-self", "Grip-Set-Meta: user=ann"))
    with long_poll(site, f"/{case}", case) as client:
        site.publisher.answer(case, "mine", meta={"sender": "ann"})
        assert client.silent(0.1)
        site.publisher.answer(case, "yours", meta={"sender": "bob"})
        assert client.response().body == b"yours"


@covers("connections pipelining")
def test_a_pipelined_request_waits_its_turn(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with long_poll(site, f"/{case}", case) as client:
        client.request("GET", f"/{case}-next")
        assert client.silent(0.1)
        site.publisher.answer(case, "first")
        assert client.response().body == b"first"
        assert client.response().body == b"backend\n"
