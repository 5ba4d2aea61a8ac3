"""Errors that the proxy answers itself, with and without debug (docs/grip.md §2.6, §2.7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.wire.wirekit import CLOSE, Script, Setup, Site, chunk, covers, expect, hold, response

SETUP = Setup(
    routes="""
* {backend}
debug.test,debug {backend}
down.test {dead} {dead}
debug-down.test,debug {dead} {dead}
"""
)
GLOBAL = Setup(routes="* {backend}\ndown.test {dead}\n", config={"proxy.debug": True})
PLAIN = b"Error while proxying to origin.\n"
BLOCK = 100_001


def error(site: Site, case: str, host: str, answer: bytes | Script) -> bytes:
    """Return the body of the 502 that the answer of the backend leads to."""
    site.backend.on(f"/{case}", answer)
    got = site.get(f"/{case}", f"Host: {host}")
    assert got.line == "502 Bad Gateway"
    assert got.lines == ["Content-Type: text/plain", f"Content-Length: {len(got.body)}"]
    return got.body


@covers("2.6 unreachable", "connections keep-alive")
def test_error_does_not_end_the_connection(site: Site) -> None:
    with site.connect() as client:
        answer = client.ask("GET", "/", "Host: down.test")
        assert answer.body == PLAIN
        assert client.ask("GET", "/", "Host: fine.test").status == 200


@covers("2.6 unreachable", "2.7 texts", "1.3 debug")
def test_unreachable_with_debug(site: Site) -> None:
    dead = site.proxy.names["dead"]
    answer = site.get("/", "Host: debug-down.test")
    assert answer.line == "502 Bad Gateway"
    assert answer.body == f"Unable to connect to any targets. Tried: {dead}, {dead}\n".encode()


@covers("2.6 bad response", "2.7 texts")
@pytest.mark.parametrize("host", ["plain.test", "debug.test"])
def test_backend_that_closes(site: Site, case: str, host: str) -> None:
    assert error(site, case, host, Script(CLOSE)) == PLAIN


@covers("2.6 bad instruct", "2.7 texts", "3.7 502")
def test_bad_instruct(site: Site, case: str) -> None:
    bad = response("200 OK", "Grip-Hold: nonsense")
    assert error(site, case, "plain.test", bad) == PLAIN
    assert error(site, case, "debug.test", bad) == (
        b"Failed to parse accept instructions: Grip-Hold must be set to either 'response' or 'stream'\n"
    )


@covers("1.8 debug", "2.7 texts")
def test_global_debug(start: Callable[[Setup], Site], case: str) -> None:
    site = start(GLOBAL)
    assert site.get("/", "Host: down.test").body == (
        f"Unable to connect to any targets. Tried: {site.proxy.names['dead']}\n".encode()
    )
    assert error(site, case, "any.test", response("200 OK", "Grip-Hold: nonsense")).startswith(b"Failed to parse")


@covers("2.6 too large", "10 grip response", "15 3 buffered")
def test_grip_response_that_is_too_large(site: Site, case: str) -> None:
    big = hold("response", case, body=b"x" * BLOCK)
    assert error(site, case, "plain.test", big) == PLAIN
    target = site.backend.address
    assert error(site, case, "debug.test", big) == f"GRIP instruct response too large from {target}\n".encode()


@covers("10 grip response")
def test_grip_response_of_just_the_limit(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", "Grip-X: 1", body=b"x" * (BLOCK - 1)))
    assert site.get(f"/{case}").body == b"x" * (BLOCK - 1)


@covers("4.2 1 large")
def test_large_stream_hold_streams_through(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, body=b"x" * 150_000))
    with site.publisher.feed() as feed, site.connect() as client:
        client.request("GET", f"/{case}")
        assert client.head().status == 200
        assert client.data(150_000) == b"x" * 150_000
        # Subscribed when the initial body is through.
        feed.wait_for(b"\x01" + case.encode())
        site.publisher.stream(case, "published")
        assert client.data(9) == b"published"


@covers("2.6 400 request", "10 request body", "15 3 buffered")
def test_request_too_large_for_a_hold(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    answer = site.ask("POST", f"/{case}", body=b"x" * BLOCK)
    assert answer.line == "400 Bad Request"
    assert answer["Content-Type"] == "text/plain"
    assert answer.body == b"Request too large to accept GRIP instruct.\n"


@covers("10 request body")
def test_large_request_without_a_hold_is_no_problem(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", body="taken"))
    assert site.ask("POST", f"/{case}", body=b"x" * BLOCK).body == b"taken"
    assert len(site.backend.request(f"/{case}").body) == BLOCK


@covers("2.7 stream", "4.2 2 prev-id no link")
def test_debug_message_at_the_end_of_a_stream(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"{case}; prev-id=1", body="hello"))
    assert site.get(f"/{case}", "Host: plain.test").body == b"hello"
    assert site.get(f"/{case}", "Host: debug.test").body == (
        f"hello\n\nchannel '{case}' specifies prev-id, but no next link found\n".encode()
    )


@covers("2.6 head size", "bad input oversize", "1.8 client_buffer_size", "10 request head")
def test_head_that_is_too_large(site: Site, case: str) -> None:
    with site.connect() as client:
        client.send(f"GET /{case} HTTP/1.1\r\nHost: a\r\nX-Big: {'x' * 9000}\r\n\r\n")
        got = client.until_close()
    assert got.partition(b"\r\n")[0] == expect(
        pushpin=b"",
        ours=b"HTTP/1.1 431 Request Header Fields Too Large",
        pushpin_does="Closes the connection without a response when a request head exceeds `client_buffer_size`.",
        ours_does="Answers 431 when a request head exceeds `client_buffer_size`.",
        because="The client learns the reason.",
    )
    # Just below the limit passes.
    head = f"GET /{case} HTTP/1.1\r\nHost: a\r\nX-Big: \r\n\r\n"
    with site.connect() as client:
        client.send(head.replace("X-Big: ", "X-Big: " + "x" * (8000 - len(head))))
        assert client.response().status == 200
    assert site.backend.count(f"/{case}") == 1


@covers("2.6 bad response")
def test_response_head_of_a_backend_that_is_too_large(site: Site, case: str) -> None:
    big = [f"X-{number}: {'x' * 100}" for number in range(20_000)]
    site.backend.on(f"/{case}", response("200 OK", *big, body="x"))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        line = client.until(b"\r\n", timeout=15)
    assert line == b"HTTP/1.1 502 Bad Gateway\r\n"
    assert site.get(f"/{case}-next").status == 200


@covers("2.5 backend fails")
def test_broken_chunk_aborts_the_client(site: Site, case: str) -> None:
    answer = response("200 OK", "Transfer-Encoding: chunked") + chunk("x" * 10)
    site.backend.on(f"/{case}", Script(answer, b"nonsense\r\n", CLOSE))
    got = site.raw(f"GET /{case} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    assert got.endswith(b"0\r\n\r\n") is expect(
        pushpin=b"200 OK" in got,
        ours=False,
        pushpin_does="May end a response as if it were complete when the backend sends a malformed chunk.",
        ours_does="Never ends a response as if it were complete when the backend sends a malformed chunk.",
        because="A malformed chunk is no regular end of a body (RFC 9112 §8).",
    )
