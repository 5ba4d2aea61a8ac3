"""Streams: a response whose body goes on (docs/grip.md §4.2)."""

from __future__ import annotations

import contextlib

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect, hold, response
from tests.wire.wirekit.holding import stream

SETUP = Setup(routes="* {backend}\n*,path_beg=/debug,debug {backend}\n")


@covers("3.1 grip-hold", "4.2 1 start", "4.2 4 publish", "4.2 4 close", "5.1 id", "5.4 1 duplicate")
def test_start_publish_duplicate_close(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, 'ETag: "x"', body="welcome\n", status="200 Mine"))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        head = client.head()
        assert head.line == "200 Mine"
        assert head["etag"] == '"x"'
        assert head["content-length"] is None
        assert head["transfer-encoding"] == "chunked"
        assert client.chunk() == b"welcome\n"
        site.publisher.stream(case, "hello\n")
        assert client.chunk() == b"hello\n"
        site.publisher.publish({"channel": case, "id": "i1", "http-stream": {"content-bin": "AGJpbg=="}})
        assert client.chunk() == b"\0bin"
        site.publisher.stream(case, "the same id again\n", id="i1")
        site.publisher.end(case)
        assert client.chunk() == b""


@covers("4.1 5 keep-alive", "connections keep-alive")
def test_the_connection_is_usable_after_a_stream(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, body="begin\n"))
    with stream(site, f"/{case}", opening=b"begin\n") as client:
        site.publisher.end(case)
        assert client.rest() == b""
        assert client.ask("GET", f"/{case}-next").body == b"backend\n"


@covers("4.2 1 http10")
def test_http_1_0_clients_get_plain_bytes_until_the_end(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, body="begin\n"))
    with site.connect() as client:
        client.request("GET", f"/{case}", version="HTTP/1.0")
        head = client.head()
        assert head.version == "HTTP/1.0"
        assert head["transfer-encoding"] is None
        assert client.exactly(6) == b"begin\n"
        site.publisher.stream(case, "more\n")
        assert client.exactly(5) == b"more\n"
        site.publisher.end(case)
        assert client.until_close() == b""


@covers("4.2 head", "15 21 head")
def test_head_gets_no_body(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with site.connect() as client:
        client.request("HEAD", f"/{case}")
        assert client.head(method="HEAD").line == "200 OK"
        site.publisher.stream(case, "body\n")
        sent = expect(
            pushpin=b"5\r\nbody\n\r\n",
            ours=b"",
            pushpin_does="Sends published content as chunks in response to a HEAD request that is held as a stream.",
            ours_does="Sends no content in response to a HEAD request that is held as a stream.",
            because="A response to HEAD has no body (RFC 9110 §9.3.2).",
        )
        assert client.exactly(len(sent)) == sent
        assert client.silent(0.2) or client.until_close() == b""


@covers("4.2 1 start")
def test_an_empty_initial_body(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.stream(case, "first\n")
        assert client.chunk() == b"first\n"


@covers("4.2 1 large", "10 grip response", "15 3 buffered")
@pytest.mark.parametrize("size", [100_000, 100_001, 300_000])
def test_an_initial_body_of_any_size(site: Site, case: str, size: int) -> None:
    body = bytes(97 + i % 26 for i in range(size))
    site.backend.on(f"/{case}", hold("stream", case, body=body))
    with stream(site, f"/{case}", opening=body) as client:
        # Held once the last byte has passed; the proxy may need a moment more than the client to see the end of it.
        with site.publisher.feed() as feed:
            feed.wait_for(b"\x01" + case.encode())
        site.publisher.stream(case, "more\n")
        assert client.chunk() == b"more\n"


@covers("4.2 1 large")
@pytest.mark.parametrize("size", [100_000, 300_000])
def test_an_initial_body_of_any_size_for_http_1_0(site: Site, case: str, size: int) -> None:
    body = bytes(97 + i % 26 for i in range(size))
    site.backend.on(f"/{case}", hold("stream", case, body=body))
    with site.connect() as client, site.publisher.feed() as feed:
        client.request("GET", f"/{case}", version="HTTP/1.0")
        assert client.head().line == "200 OK"
        assert client.exactly(size) == body
        feed.wait_for(b"\x01" + case.encode())
        site.publisher.stream(case, "more\n")
        assert client.exactly(5) == b"more\n"


@covers("5.4 3 fan-out")
def test_every_client_of_the_channel_gets_the_item(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    site.backend.on(f"/{case}-other", hold("stream", f"{case}-other"))
    with contextlib.ExitStack() as stack, stream(site, f"/{case}-other") as other:
        # Enough of them for every worker process to have some.
        clients = [stack.enter_context(stream(site, f"/{case}")) for _ in range(20)]
        site.publisher.stream(case, "to all\n")
        site.publisher.stream(f"{case}-other", "to the other\n")
        assert {client.chunk() for client in clients} == {b"to all\n"}
        assert other.chunk() == b"to the other\n"
        site.publisher.end(case)
        assert {client.rest() for client in clients} == {b""}
        assert other.silent(0)


@covers("4.2 6 disconnect", "5.7 forwarding")
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_leaves_ends_its_subscription(site: Site, case: str, how: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with site.publisher.feed() as feed, site.connect() as client:
        client.request("GET", f"/{case}")
        client.head()
        feed.wait_for(b"\x01" + case.encode())
        client.close() if how == "close" else client.reset()
        feed.wait_for(b"\x00" + case.encode())


@covers("5.1 http-stream", "4.2 4 publish")
def test_only_the_stream_format_reaches_a_stream(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.answer(case, "for long-polls\n")
        site.publisher.publish({"channel": case, "formats": {"ws-message": {"content": "for WebSockets"}}})
        hint = {"action": "hint"}
        site.publisher.publish({"channel": case, "formats": {"http-response": hint, "unknown": {}}})
        site.publisher.stream(case, "")
        site.publisher.stream(case, "for streams\n")
        assert client.chunk() == b"for streams\n"


@covers("3.1 grip-hold")
def test_a_post_may_be_held_too(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, body="begin\n"))
    with site.connect() as client:
        client.request("POST", f"/{case}", body="question")
        client.head()
        assert client.chunk() == b"begin\n"
        assert site.backend.request(f"/{case}").body == b"question"
        site.publisher.stream(case, "more\n")
        assert client.chunk() == b"more\n"


@covers("10 request body", "2.6 400 request")
@pytest.mark.parametrize("mode", ["stream", "response"])
def test_a_request_too_large_to_hold(site: Site, case: str, mode: str) -> None:
    site.backend.on(f"/{case}", hold(mode, case, body="begin\n"))
    answer = site.ask("POST", f"/{case}", body="x" * 100_001)
    assert answer.line == "400 Bad Request"
    assert answer.body == b"Request too large to accept GRIP instruct.\n"


@covers("10 request body")
def test_a_request_just_small_enough_to_hold(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, body="begin\n"))
    with site.connect() as client:
        client.request("POST", f"/{case}", body="x" * 100_000)
        assert client.head().line == "200 OK"
        assert client.chunk() == b"begin\n"


@covers("10 grip response", "2.6 too large", "15 3 buffered")
@pytest.mark.parametrize(
    "lines", [["Grip-Hold: response", "Grip-Channel: big"], ["Grip-Foo: 1"]], ids=["hold", "no hold"]
)
def test_a_grip_response_too_large_to_buffer(site: Site, case: str, lines: list[str]) -> None:
    for path in (f"/{case}", f"/debug/{case}"):
        site.backend.on(path, response("200 OK", *lines, body="x" * 100_001))
    assert site.get(f"/{case}").body == b"Error while proxying to origin.\n"
    answer = site.get(f"/debug/{case}")
    assert answer.line == "502 Bad Gateway"
    assert answer.body.decode() == f"GRIP instruct response too large from {site.backend.address}\n"


@covers("10 grip response")
def test_a_grip_response_just_small_enough(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", "Grip-Foo: 1", body="x" * 100_000))
    assert site.get(f"/{case}").body == b"x" * 100_000


@covers("5.1 http-stream")
def test_a_large_item(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    content = "0123456789" * 30_000
    with stream(site, f"/{case}") as client:
        site.publisher.stream(case, content)
        assert client.data(len(content)).decode() == content
