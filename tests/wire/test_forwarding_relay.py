"""Responses on their way from the backend to the client (docs/grip.md §2.1, §2.5)."""

from __future__ import annotations

import concurrent.futures
import socket
import threading

import pytest

from tests.wire.wirekit import (
    CLOSE,
    Aborted,
    Client,
    Exchange,
    Script,
    Setup,
    Silence,
    Site,
    chunk,
    covers,
    expect,
    hold,
    on_pushpin,
    response,
)
from tests.wire.wirekit.client import PATIENCE

SETUP = Setup()
ERROR = b"Error while proxying to origin.\n"


@covers("2.5 pass through")
def test_status_reason_and_headers_pass(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("207 Whatever Goes", "X-A: 1", "X-A: 2", "Content-Type: a/b", body="body"))
    answer = site.get(f"/{case}?q=1")
    assert answer.line == "207 Whatever Goes"
    assert answer.all("x-a") == ["1", "2"]
    assert answer["content-length"] == "4"
    assert answer.body == b"body"
    assert site.backend.request(f"/{case}").uri == f"/{case}?q=1"


@covers("3.4 conditional")
@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_answers_without_body(site: Site, case: str, status: str) -> None:
    site.backend.on(f"/{case}", response(status, 'ETag: "x"'))
    with site.connect() as client:
        answer = client.ask("GET", f"/{case}", 'If-None-Match: "x"')
        assert answer.line == status
        assert answer["ETag"] == '"x"'
        # Nothing follows: the next answer on the connection starts at once.
        assert client.ask("GET", f"/{case}-next").status == 200
    assert site.backend.request(f"/{case}")["If-None-Match"] == '"x"'


@covers("2.5 removed")
def test_hop_headers_are_removed(site: Site, case: str) -> None:
    site.backend.on(
        f"/{case}", response("200 OK", "Connection: X-Hop", "Keep-Alive: timeout=5", "X-Hop: 1", body="body")
    )
    answer = site.get(f"/{case}")
    assert answer["Connection"] is None
    assert answer["Keep-Alive"] is None
    assert answer["X-Hop"] == "1"


@covers("2.5 chunked")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (response("200 OK", "Transfer-Encoding: chunked") + chunk("one"), chunk("two") + chunk("")),
        (b"HTTP/1.1 200 OK\r\n\r\none", b"two"),
        (b"HTTP/1.0 200 OK\r\n\r\none", b"two"),
    ],
    ids=["chunked", "to the end", "HTTP/1.0"],
)
def test_response_without_length_is_chunked(site: Site, case: str, first: bytes, second: bytes) -> None:
    seen = threading.Event()
    site.backend.on(f"/{case}", Script(first, seen, second, CLOSE))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        answer = client.head()
        assert (answer.version, answer.line) == ("HTTP/1.1", "200 OK")
        assert answer.lines == ["Connection: Transfer-Encoding", "Transfer-Encoding: chunked"]
        assert client.data(3) == b"one"
        seen.set()
        assert client.rest() == b"two"


@covers("2.5 pass through")
def test_large_body(site: Site, case: str) -> None:
    body = bytes(range(256)) * 12_000
    site.backend.on(f"/{case}", response("200 OK", body=body))
    assert site.get(f"/{case}").body == body


@covers("2.5 back-pressure")
def test_slow_client_slows_the_backend(site: Site, case: str) -> None:
    # How much the kernel keeps between them is its own affair, so the backend sends until it is stopped, and some more.
    most, more = 200_000_000, 5_000_000
    sent: list[int] = [0]
    stuck = threading.Event()

    def pour(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\n\r\n")
        exchange.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        exchange.sock.settimeout(1)
        block = b"x" * 100_000
        end = most
        while sent[0] < end:
            try:
                sent[0] += exchange.sock.send(block[: end - sent[0]])
            except TimeoutError:
                end = sent[0] + more
                exchange.sock.settimeout(30)
                stuck.set()
        exchange.close()

    site.backend.on(f"/{case}", pour)
    with Client.connect(site.port, receive_buffer=65536) as client:
        client.request("GET", f"/{case}")
        client.head()
        assert stuck.wait(30), f"{sent[0]} bytes went to a client that does not read"
        got = 0
        try:
            while part := client.piece(timeout=2 if on_pushpin() else PATIENCE):
                got += len(part)
            outcome = "complete" if got == sent[0] else "short"
        except Silence:
            outcome = "stalled"
    assert outcome in expect(
        pushpin=("complete", "stalled"),
        ours=("complete",),
        pushpin_does="In some runs a response stands still for good after the client has not read for a while.",
        ours_does="Continues a response when the client reads again.",
        because="Back-pressure must end when its cause does.",
    )


@covers("2.5 backend fails", "15 21 backend failure")
def test_backend_dies_in_a_chunked_body(site: Site, case: str) -> None:
    seen = threading.Event()
    site.backend.on(f"/{case}", Script(response("200 OK", "Transfer-Encoding: chunked") + chunk("half"), seen, CLOSE))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        client.head()
        assert client.data(4) == b"half"
        seen.set()
        try:
            outcome = client.rest().decode() + "clean end"
        except Aborted:
            outcome = "aborted"
    assert outcome == expect(
        pushpin="clean end",
        ours="aborted",
        pushpin_does="Ends a chunked response as complete when the backend dies in the middle.",
        ours_does="Aborts the client's connection when the backend dies in the middle of a chunked response.",
        because="A truncated response must not look complete.",
    )


@covers("2.5 backend fails", "15 21 backend failure")
def test_backend_dies_in_a_body_with_a_length(site: Site, case: str) -> None:
    seen = threading.Event()
    site.backend.on(f"/{case}", Script(response("200 OK", "Content-Length: 100", body="half"), seen, CLOSE))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        client.head()
        assert client.data(4) == b"half"
        seen.set()
        try:
            client.rest(timeout=1.5 if on_pushpin() else PATIENCE)
        except Aborted:
            outcome = "aborted"
        except Silence:
            outcome = "left hanging"
    assert outcome == expect(
        pushpin="left hanging",
        ours="aborted",
        pushpin_does="Leaves the client waiting when the backend dies in the middle of a body with `Content-Length`.",
        ours_does="Aborts the client's connection when the backend dies in the middle of a body with `Content-Length`.",
        because="The client learns that the rest will not arrive.",
    )


@covers("2.1 backend 100")
def test_100_of_the_backend_is_swallowed(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", b"HTTP/1.1 100 Continue\r\n\r\n" + response("200 OK", body="final"))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        answer = client.response()
    assert (answer.status, answer.body) == (200, b"final")


@covers("2.1 backend 103")
def test_103_is_relayed_and_the_final_response_follows(site: Site, case: str) -> None:
    final = threading.Event()
    site.backend.on(
        f"/{case}",
        Script(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", final, response("200 OK", body="final")),
    )
    with site.connect() as client:
        client.request("GET", f"/{case}")
        early = client.head()
        assert (early.status, early["Link"]) == (103, "</a>")
        final.set()
        try:
            outcome = client.response(timeout=1.5 if on_pushpin() else PATIENCE).body
        except (Silence, Aborted):
            outcome = b"nothing"
    assert outcome == expect(
        pushpin=b"nothing",
        ours=b"final",
        pushpin_does="Relays a 103 that arrives on its own, and then no final response.",
        ours_does="Relays a 103 and then the final response.",
        because="A 103 announces the final response (RFC 8297).",
    )


@covers("2.5 grip by header", "2.5 grip stripped")
def test_any_grip_header_makes_a_grip_response(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("201 Reason Kept", "Grip-Unknown: 1", "gRIP-other: 2", "X-A: 1", body="body"))
    answer = site.get(f"/{case}")
    assert answer.line == "201 Reason Kept"
    assert answer.lines == ["X-A: 1", "Content-Length: 4"]
    assert answer.body == b"body"


@covers("2.5 grip by type")
def test_instruct_type_makes_a_grip_response(site: Site, case: str) -> None:
    body = '{"response": {"headers": {"X-A": "1"}, "body": "inner"}}'
    site.backend.on(f"/{case}", response("200 OK", "Content-Type: application/grip-instruct; a=b", body=body))
    answer = site.get(f"/{case}")
    assert answer.line == "200 OK"
    assert answer.lines == ["X-A: 1", "Content-Length: 5"]
    assert answer.body == b"inner"


@covers("2.5 grip buffered", "15 3 buffered")
def test_grip_response_is_buffered(site: Site, case: str) -> None:
    rest = threading.Event()
    site.backend.on(
        f"/{case}", Script(response("200 OK", "Grip-X: 1", "Content-Length: 8", body="hell"), rest, b"oend")
    )
    with site.connect() as client:
        client.request("GET", f"/{case}")
        assert client.silent(0.3)
        rest.set()
        assert client.response().body == b"helloend"


@covers("2.5 backend fails", "2.6 bad response")
def test_backend_dies_in_a_grip_response(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", Script(hold("stream", case, "Content-Length: 100", body="hello"), CLOSE))
    answer = site.get(f"/{case}")
    assert answer.line == "502 Bad Gateway"
    assert answer.body == ERROR


@covers("2.5 burst")
def test_burst_of_new_requests(site: Site, case: str) -> None:
    number = 150 if on_pushpin() else 500

    def one(_: int) -> int:
        return site.get(f"/{case}").status

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        statuses = list(pool.map(one, range(number)))
    good = statuses.count(200)
    assert good == number or expect(
        pushpin=good > number // 2,
        ours=False,
        pushpin_does="In some runs answers a part of a burst of 150 requests (50 at a time) with a spurious 502.",
        ours_does="Answers a burst of 500 requests (50 at a time) with the backend's responses.",
        because="A burst is no error of the backend.",
    )


@covers("connections client gone")
def test_client_that_goes_ends_the_backend_connection(site: Site, case: str) -> None:
    gone = threading.Event()

    def pour(exchange: Exchange) -> None:
        exchange.send(response("200 OK", "Transfer-Encoding: chunked") + chunk("one"))
        while exchange.read():
            pass
        gone.set()
        exchange.close()

    site.backend.on(f"/{case}", pour)
    with site.connect() as client:
        client.request("GET", f"/{case}")
        client.head()
        assert client.data(3) == b"one"
    assert gone.wait(PATIENCE)


@covers("bad input bad backend", "2.6 bad response")
@pytest.mark.parametrize(
    "nonsense",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: nonsense\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["no status line", "no status", "bad length", "bad chunk"],
)
def test_backend_that_sends_nonsense(site: Site, case: str, nonsense: bytes) -> None:
    site.backend.on(f"/{case}", Script(nonsense, CLOSE))
    with site.connect() as client:
        client.request("POST", f"/{case}", body="x")
        try:
            answer = client.response(timeout=3 if on_pushpin() else PATIENCE)
            outcome = (answer.status, answer.body)
        except (Aborted, Silence):
            outcome = (0, b"")
    bad = (502, ERROR)
    if b"chunked" in nonsense:
        allowed = expect(
            pushpin=[bad, (0, b""), (200, b"")],
            ours=[bad, (0, b"")],
            pushpin_does="Answers 502, an empty 200 or nothing when a backend's response begins with a malformed "
            "chunk.",
            ours_does="Answers 502 or aborts the connection when a backend's response begins with a malformed chunk.",
            because="A malformed chunk is no regular end of a body (RFC 9112 §8).",
        )
    else:
        allowed = expect(
            pushpin=[bad, (200, b""), (200, b"xx"), (200, nonsense), (0, b"")],
            ours=[bad],
            pushpin_does="Answers 502, 200 or nothing when a backend's response head is not HTTP/1.x or has an invalid "
            "length.",
            ours_does="Answers 502 when a backend's response head is not HTTP/1.x or has an invalid length.",
            because="Pushpin's HTTP client, zurl, guesses at some of them.",
        )
    assert outcome in allowed


@covers("bad input backend extra bytes")
def test_backend_that_sends_more_than_its_response(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", body="body") + response("200 OK", body="poison"))
    assert site.get(f"/{case}").body == b"body"
    assert site.get(f"/{case}-next").body == b"backend\n"


@covers("bad input trailers")
def test_trailers_never_become_headers(site: Site, case: str) -> None:
    site.backend.on(
        f"/{case}", response("200 OK", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n"
    )
    with site.connect() as client:
        answer = client.ask("GET", f"/{case}")
        assert answer.body == b"abc"
        assert answer["X-Trailer"] is None
        after = client.ask("GET", f"/{case}-next")
    assert after["X-Trailer"] is None
    assert after.body == b"backend\n"
