"""Input that must not get through: malformed, oversized, smuggled, slow (docs/grip.md §2.6; RFC 9112 §11)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from tests.wire.wirekit import Aborted, Setup, Silence, Site, covers, expect, on_pushpin
from tests.wire.wirekit.client import PATIENCE

SETUP = Setup()
HASTY = Setup(
    config={
        "proxy.client_head_timeout": 1,
        "proxy.client_body_timeout": 1,
        "proxy.client_idle_timeout": 1,
        "proxy.response_timeout": 1,
        "proxy.backend_body_timeout": 1,
    }
)
CROWDED = Setup(config={"runner.client_maxconn": 20})


def patience() -> float:
    """Seconds to wait for an end or an answer. Pushpin often keeps such a connection, so its cases always wait."""
    return 1.5 if on_pushpin() else PATIENCE


def refused(site: Site, case: str, data: bytes) -> bytes:
    """Send bytes that must not reach the backend as a second request; return the status line of the last answer.

    Ours says in its log, once, what was wrong with what this client sent.
    """
    with site.connect() as client:
        peer = f"127.0.0.1:{client.sock.getsockname()[1]}"
        client.send(data)
        client.finish()
        try:
            got = client.until_close(timeout=patience())
        except Silence:
            got = b""
    lines = [line for line in got.split(b"\r\n") if line.startswith(b"HTTP/1.")]
    assert site.backend.count(f"/{case}-smuggled") == 0
    if not on_pushpin():
        site.proxy.wait_log(f"client disconnected: client={peer} ")
        assert site.proxy.log.count(peer) == 1
    return lines[-1] if lines else b""


BAD_REQUEST = b"HTTP/1.1 400 Bad Request"


@covers("2.6 malformed", "bad input malformed", "15 21 malformed")
@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
        b"G E T / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
    ids=["nonsense", "no version", "version", "method", "no colon", "tls", "two hosts", "control in target"],
)
def test_malformed_request(site: Site, case: str, data: bytes) -> None:
    assert refused(site, case, data) in expect(
        pushpin=(b"", b"HTTP/1.1 200 OK", b"HTTP/1.1 502 Bad Gateway"),
        ours=(BAD_REQUEST, b"HTTP/1.1 505 HTTP Version Not Supported"),
        pushpin_does="Closes the connection without a response to a malformed request, or forwards what it takes it "
        "for.",
        ours_does="Answers 400 to a malformed request, 505 to an HTTP version that is not served.",
        because="Pushpin answers 400 from 1.40 on.",
    )


def smuggle(case: str, *lines: str, body: str) -> bytes:
    """A POST whose end depends on who reads it, with a second request where a careless reader would see one."""
    hidden = f"GET /{case}-smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    head = "".join(f"{line}\r\n" for line in [f"POST /{case} HTTP/1.1", "Host: a", *lines, ""])
    return (head + body.replace("HIDDEN", hidden)).encode()


@covers("bad input cl te", "bad input duplicate length", "bad input te coding", "bad input header name")
@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (["Content-Length: 5", "Transfer-Encoding: chunked"], "0\r\n\r\nHIDDEN"),
        (["Transfer-Encoding: chunked", "Content-Length: 5"], "0\r\n\r\nHIDDEN"),
        (["Content-Length: 0", "Content-Length: 50"], "HIDDEN"),
        (["Content-Length: 0, 50"], "HIDDEN"),
        (["Content-Length: +0"], "HIDDEN"),
        (["Content-Length: 0x0"], "HIDDEN"),
        (["Content-Length: -1"], "HIDDEN"),
        (["Content-Length: "], "HIDDEN"),
        (["Transfer-Encoding: gzip, chunked"], "0\r\n\r\nHIDDEN"),
        (["Transfer-Encoding: chunked, identity"], "0\r\n\r\nHIDDEN"),
        (["Transfer-Encoding: xchunked"], "0\r\n\r\nHIDDEN"),
        (["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], "0\r\n\r\nHIDDEN"),
        (["Transfer-Encoding : chunked"], "0\r\n\r\nHIDDEN"),
        (["Transfer-Encoding:\x0bchunked"], "0\r\n\r\nHIDDEN"),
        (["Content-Length : 0"], "HIDDEN"),
        ([" Content-Length: 0"], "HIDDEN"),
        (["X: 1\rContent-Length: 0"], "HIDDEN"),
        (["X: a\x00b"], "HIDDEN"),
    ],
    ids=[
        "CL.TE",
        "TE.CL",
        "two lengths",
        "list of lengths",
        "plus",
        "hex",
        "negative",
        "empty length",
        "gzip chunked",
        "chunked identity",
        "xchunked",
        "two codings",
        "blank before colon TE",
        "control before chunked",
        "blank before colon CL",
        "blank first",
        "bare CR",
        "NUL",
    ],
)
def test_smuggling(site: Site, case: str, lines: list[str], body: str) -> None:
    with site.connect() as client:
        client.send(smuggle(case, *lines, body=body))
        client.finish()
        try:
            got = client.until_close(timeout=patience())
        except Silence:
            got = b"open"
    statuses = [line[9:12] for line in got.split(b"\r\n") if line.startswith(b"HTTP/1.")]
    if on_pushpin():
        # What the oracle makes of it does not matter, as long as it does not end.
        assert len(statuses) <= 2
        return
    assert statuses in ([b"400"], [b"501"])
    assert site.backend.count(f"/{case}") == 0
    assert site.backend.count(f"/{case}-smuggled") == 0


@covers("bad input bare lf", "bad input obs-fold")
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nHost: a\nX-A: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n\tfolded\r\n\r\n",
    ],
    ids=["bare LF", "one bare LF", "fold", "fold by tab"],
)
def test_line_ends(site: Site, case: str, data: bytes) -> None:
    assert refused(site, case, data) in expect(
        pushpin=(b"HTTP/1.1 200 OK", b""),
        ours=(BAD_REQUEST,),
        pushpin_does="Accepts lines that end in a bare LF and folded header lines, or closes the connection.",
        ours_does="Answers 400 to a request with a bare LF or a folded header line.",
        because="Two parsers can read such a request differently (RFC 9112 §2.2, §5.2).",
    )


@covers("bad input chunk extension", "bad input bare lf")
@pytest.mark.parametrize(
    "chunks",
    [
        "5;ext\nabcde\r\n0\r\n\r\n",
        "5\nabcde\n0\n\n",
        "5\r\nabcdefg\r\n0\r\n\r\n",
        "-5\r\nabcde\r\n0\r\n\r\n",
        "0x5\r\nabcde\r\n0\r\n\r\n",
        " 5\r\nabcde\r\n0\r\n\r\n",
        "ffffffffffffffff5\r\nabcde\r\n0\r\n\r\n",
        "\r\nabcde\r\n0\r\n\r\n",
        "0\r\nContent-Length: 50\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=[
        "LF in extension",
        "LF only",
        "too long",
        "negative",
        "0x",
        "blank",
        "overflow",
        "empty size",
        "length in trailer",
        "coding in trailer",
    ],
)
def test_broken_chunks(site: Site, case: str, chunks: str) -> None:
    head = f"POST /{case} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    hidden = f"GET /{case}-smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    if on_pushpin():
        # Some of these it lets through; what counts is that it does not end.
        site.raw((head + "0\r\n\r\n").replace("Host: a", "Host: a\r\nConnection: close").encode())
    else:
        assert refused(site, case, (head + chunks + hidden).encode()) == BAD_REQUEST


@covers("bad input chunk extension", "bad input trailers")
def test_chunk_extensions_and_trailers_are_read_over(site: Site, case: str) -> None:
    with site.connect() as client:
        client.send(f"POST /{case} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.send(b'5;name="va;lue"\r\nabcde\r\n0\r\nX-Trailer: 1\r\n\r\n')
        assert client.response().status == 200
        assert client.ask("GET", f"/{case}-next").status == 200
    assert site.backend.request(f"/{case}").body == b"abcde"
    assert site.backend.request(f"/{case}")["X-Trailer"] is None
    assert site.backend.request(f"/{case}-next")["X-Trailer"] is None
    assert site.backend.request(f"/{case}-next")["Content-Length"] is None


@covers("bad input chunk extension")
def test_endless_chunk_extension(site: Site, case: str) -> None:
    with site.connect() as client:
        client.send(f"POST /{case} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;")
        try:
            for _ in range(100):
                client.send(b"x" * 10_000)
            got = client.until_close(timeout=patience())
        except (BrokenPipeError, ConnectionResetError):
            got = b"cut off"
        except Silence:
            got = b"read on"
    assert (b"read on" not in got) is expect(
        pushpin=b"read on" not in got,
        ours=True,
        pushpin_does="May read a chunk extension of 1 MB and wait for more.",
        ours_does="Cuts off a request whose chunk extension exceeds the limit of a request head.",
        because="A chunk extension belongs to no body, so no limit of a body applies to it.",
    )


@covers("bad input oversize")
def test_head_that_grows_without_end(site: Site, case: str) -> None:
    with site.connect() as client:
        try:
            for number in range(2000):
                client.send(f"X-{number}: 1\r\n" if number else f"GET /{case} HTTP/1.1\r\n")
            got = client.until_close(timeout=patience())
        except (BrokenPipeError, ConnectionResetError):
            got = b""
    assert site.backend.count(f"/{case}") == 0
    assert got[:12] in expect(
        pushpin=(b"",),
        ours=(b"HTTP/1.1 431", b""),
        pushpin_does="Closes the connection without a response to a request head of 2,000 lines.",
        ours_does="Answers 431 to a request head that exceeds the limit; a client that still sends may see a reset "
        "instead.",
        because="The client learns the reason.",
    )


@covers("bad input connect")
def test_connect(site: Site) -> None:
    with site.connect() as client:
        client.send("CONNECT backend.test:80 HTTP/1.1\r\nHost: backend.test:80\r\n\r\n")
        try:
            line = client.head(timeout=patience()).line
        except (Aborted, Silence):
            line = "nothing"
    assert line in expect(
        pushpin=("nothing", "200 OK", "502 Bad Gateway", "400 Bad Request"),
        ours=("405 Method Not Allowed",),
        pushpin_does="Answers CONNECT with 200, 400 or 502, or not at all.",
        ours_does="Answers CONNECT with 405.",
        because="Tunnels are not served.",
    )


@covers("bad input slow head")
@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n"], ids=["nothing", "half a head"])
def test_slow_head(start: Callable[[Setup], Site], data: bytes) -> None:
    site = start(HASTY)
    began = time.monotonic()
    with site.connect() as client:
        client.send(data)
        try:
            got = client.until_close(timeout=patience())
            outcome = "ended"
        except Silence:
            outcome, got = "kept", b""
    assert outcome == expect(
        pushpin="kept",
        ours="ended",
        pushpin_does="Keeps a connection on which the request head stays incomplete; it has no `client_head_timeout`.",
        ours_does="Ends a connection whose request head is not complete after `client_head_timeout` (15 s by default), "
        "with 408 or without a response.",
        because="A client that sends no request must not occupy a connection.",
    )
    assert got[:12] in (b"", b"HTTP/1.1 408")
    assert time.monotonic() - began > 0.8


@covers("bad input slow body")
def test_slow_body(start: Callable[[Setup], Site], case: str) -> None:
    site = start(HASTY)
    with site.connect() as client:
        client.request("POST", f"/{case}", "Content-Length: 100")
        client.send(b"x" * 50)
        try:
            got = client.until_close(timeout=patience())
            outcome = "ended"
        except Silence:
            outcome, got = "kept", b""
    assert outcome == expect(
        pushpin="kept",
        ours="ended",
        pushpin_does="Keeps a connection on which the request body stops arriving; it has no `client_body_timeout`.",
        ours_does="Ends a request whose body stops arriving for `client_body_timeout` (60 s by default).",
        because="A request that stays incomplete must not occupy a connection.",
    )
    assert got[:12] in (b"", b"HTTP/1.1 408", b"HTTP/1.1 400")


@covers("connections keep-alive")
def test_idle_connection_is_closed(start: Callable[[Setup], Site]) -> None:
    site = start(HASTY)
    with site.connect() as client:
        assert client.ask("GET", "/").status == 200
        try:
            assert client.until_close(timeout=patience()) == b""
            outcome = "ended"
        except Silence:
            outcome = "kept"
    assert outcome == expect(
        pushpin="kept",
        ours="ended",
        pushpin_does="Keeps an idle connection of a client; it has no `client_idle_timeout`.",
        ours_does="Closes a connection that is idle for `client_idle_timeout` (75 s by default), without a response.",
        because="An idle client must not occupy a connection.",
    )


@covers("2.6 bad response")
def test_backend_that_does_not_answer(start: Callable[[Setup], Site], case: str) -> None:
    site = start(HASTY)
    site.backend.on(f"/{case}", lambda exchange: exchange.read() and None)
    with site.connect() as client:
        client.request("GET", f"/{case}")
        try:
            line = client.head(timeout=patience()).line
        except Silence:
            line = "nothing yet"
    assert line in expect(
        pushpin=("nothing yet",),
        ours=("502 Bad Gateway", "504 Gateway Timeout"),
        pushpin_does="Waits for a backend that does not answer; it has no `response_timeout`.",
        ours_does="Answers 504 or 502 when a backend does not answer within `response_timeout` (60 s by default).",
        because="The client learns of the failure.",
    )


@covers("1.8 client_maxconn", "connections maxconn", "10 client_maxconn")
def test_too_many_connections(start: Callable[[Setup], Site]) -> None:
    outcomes: list[int] = []
    site = start(CROWDED)
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(site.connect()) for _ in range(26)]
        for client in crowd:
            client.request("GET", "/")
        for client in crowd:
            try:
                outcomes.append(client.head(timeout=0.2 if on_pushpin() else PATIENCE).status)
            except (Silence, Aborted):
                outcomes.append(0)
    assert set(outcomes) <= expect(
        pushpin={200, 0},
        ours={200, 503},
        pushpin_does="Leaves connections beyond `client_maxconn` without a response.",
        ours_does="Answers 503 to connections beyond `client_maxconn`.",
        because="The client learns the reason and can try later.",
    )
    assert 0 < outcomes.count(200) <= 20
