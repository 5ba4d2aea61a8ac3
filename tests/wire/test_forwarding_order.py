"""Order of answers, and clients that close their sending side (RFC 9112 §9.3.2, §9.6)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.wire.wirekit import (
    Exchange,
    Script,
    Setup,
    Silence,
    Site,
    covers,
    expect,
    hold,
    on_pushpin,
    response,
)
from tests.wire.wirekit.client import PATIENCE
from tests.wire.wirekit.holding import long_poll

SETUP = Setup()
HASTY = Setup(config={"proxy.response_timeout": 1})
BAD = {
    "nonsense": b"\0\0\r\n\r\n",
    "unknown method": b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
    "bad host": b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "coding": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "broken chunk": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n",
    "version": b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    "large head": b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 8192 + b"\r\n\r\n",
}


def until_close(site: Site, pieces: list[bytes]) -> bytes:
    """Send pieces, one packet each, and return everything that comes up to the end."""
    with site.connect() as client:
        for piece in pieces:
            client.send(piece)
        try:
            return client.until_close(timeout=0.5 if on_pushpin() else PATIENCE)
        except Silence:
            got, client.buffer = client.buffer, b""
            return got


@covers("connections pipelining", "bad input malformed")
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_good_requests_are_answered_before_a_bad_one_however_they_are_split(site: Site, case: str, bad: bytes) -> None:
    good = f"GET /{case} HTTP/1.1\r\nHost: a\r\n\r\n".encode() * 2
    data = good + bad
    answered = site.raw(f"GET /{case} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    answered = answered.replace(b"Connection: close\r\n", b"")
    splits = {
        "whole": [data],
        "before the bad one": [good, bad],
        "in the bad one": [data[: len(good) + 7], data[len(good) + 7 :]],
        "bytes": [data[n : n + 1] for n in range(len(data))] if len(bad) < 500 else [good[:9], good[9:], bad],
    }
    got = {name: until_close(site, pieces) for name, pieces in splits.items()}
    refused = {data.removeprefix(answered * 2) for data in got.values()}
    if expect(
        pushpin=False,
        ours=all(data.startswith(answered * 2) for data in got.values()) and len(refused) == 1,
        pushpin_does="Need not answer the requests that a client sent before a malformed one.",
        ours_does="Answers the requests before a malformed one first; the error does not depend on how the bytes are "
        "split into packets.",
        because="Responses go out in the order of requests (RFC 9112 §9.3.2).",
    ):
        [error] = refused
        assert error.startswith(b"HTTP/1.1 ")
        # What the bad one gets alone.
        assert error == until_close(site, [bad])
    else:
        assert on_pushpin()


@covers("connections pipelining")
def test_the_error_waits_for_a_slow_answer(site: Site, case: str) -> None:
    go = threading.Event()
    site.backend.on(f"/{case}", Script(go, response("200 OK", body="slow\n")))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        client.send(b"\0\0\r\n\r\n")
        site.backend.request(f"/{case}")
        if not on_pushpin():
            site.proxy.wait_log(r"client disconnected: client=.* reason=.*no request line")
        go.set()
        assert client.response().body == b"slow\n"
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="Need not answer a malformed request that arrives while an earlier one is in progress.",
            ours_does="Answers 400 to a malformed request behind the responses to earlier ones.",
            because="Responses go out in the order of requests (RFC 9112 §9.3.2).",
        ):
            assert client.head().line == "400 Bad Request"


@covers("connections client gone")
@pytest.mark.parametrize("times", [1, 3])
def test_half_closed_client_is_answered(site: Site, case: str, times: int) -> None:
    go = threading.Event()
    if on_pushpin():
        # It may not even ask the backend.
        go.set()
    site.backend.on(f"/{case}", Script(go, response("200 OK", body="late\n")))
    with site.connect() as client:
        for _ in range(times):
            client.request("GET", f"/{case}")
        client.finish()
        if not on_pushpin():
            site.backend.request(f"/{case}")
        go.set()
        got = client.until_close()
    assert got.count(b"late\n") == expect(
        pushpin=got.count(b"late\n"),
        ours=times,
        pushpin_does="May drop the requests of a client that closes its sending side before the response begins.",
        ours_does="Answers every request that a client sent before it closed its sending side.",
        because="A half-closed connection can still be written to (RFC 9112 §9.6).",
    )


@covers("connections client gone")
def test_half_closed_client_with_a_request_that_is_cut_off(site: Site, case: str) -> None:
    with site.connect() as client:
        client.send(f"GET /{case} HTTP/1.1\r\nHost: a\r\n\r\nGET /{case}-cut HTTP/1.1\r\nHost")
        client.finish()
        got = client.until_close(timeout=PATIENCE)
    assert got.count(b"HTTP/1.1 200 OK") == expect(
        pushpin=got.count(b"HTTP/1.1 200 OK"),
        ours=1,
        pushpin_does="May drop a complete request in front of one that the client's end cuts off.",
        ours_does="Answers complete requests in front of one that the client's end cuts off.",
        because="A truncated request says nothing about those before it.",
    )
    assert site.backend.count(f"/{case}-cut") == 0


@covers("connections client gone")
def test_half_closed_client_waits_as_long_as_the_response_timeout(start: Callable[[Setup], Site], case: str) -> None:
    site = start(HASTY)

    def never(exchange: Exchange) -> None:
        assert exchange.read() == b""

    site.backend.on(f"/{case}", never)
    with site.connect() as client:
        client.request("GET", f"/{case}")
        client.finish()
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="May wait without limit for a backend on behalf of a client that closed its sending side.",
            ours_does="Answers 504 after `response_timeout` to a client that closed its sending side, and closes.",
            because="Every wait has a limit.",
        ):
            assert client.response().line == "504 Gateway Timeout"
            assert client.until_close() == b""


@covers("connections client gone")
def test_end_of_file_ends_a_stream(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, body="open\n"))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        assert client.head().status == 200
        assert client.chunk() == b"open\n"
        client.finish()
        assert client.until_close() == b""


@covers("connections client gone")
def test_end_of_file_ends_a_long_poll(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case, "Grip-Timeout: 55", body="open\n"))
    with long_poll(site, f"/{case}", case) as client:
        client.finish()
        assert client.until_close() == b""


@covers("connections client gone")
@pytest.mark.parametrize("mode", ["stream", "response"])
def test_what_would_be_held_for_a_half_closed_client_ends_at_once(site: Site, case: str, mode: str) -> None:
    go = threading.Event()
    site.backend.on(f"/{case}", Script(go, hold(mode, case, "Grip-Timeout: 55", body="open\n")))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        client.finish()
        if not on_pushpin():
            site.backend.request(f"/{case}")
        go.set()
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="May hold a client that closed its sending side.",
            ours_does="Does not hold a client that closed its sending side: it sends the initial body or timeout "
            "response and closes.",
            because="The proxy could not notice when such a client leaves.",
        ):
            assert client.response().body == b"open\n"
            assert client.until_close() == b""


@covers("connections client gone")
def test_end_of_file_behind_the_head_of_an_answer(site: Site, case: str) -> None:
    go, gone = threading.Event(), threading.Event()

    def answer(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        exchange.wait(go)
        while exchange.read():
            pass
        gone.set()
        exchange.close()

    site.backend.on(f"/{case}", answer)
    with site.connect() as client:
        client.request("GET", f"/{case}")
        assert client.head().status == 200
        assert client.data(5) == b"hello"
        client.finish()
        go.set()
        assert gone.wait(PATIENCE)
        assert client.until_close() == b""
