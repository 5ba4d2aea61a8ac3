"""What is relayed exactly, and what is refused because two readers could take it differently (RFC 9110, RFC 9112)."""

from __future__ import annotations

import pytest

from tests.wire.wirekit import CLOSE, Aborted, Script, Setup, Silence, Site, covers, expect, on_pushpin, response
from tests.wire.wirekit.client import PATIENCE

SETUP = Setup(routes="* {backend}\nevents.test {backend},over_http\n")
REFUSED = "502 Bad Gateway"
FINAL = response("200 OK", body="final\n")


def answered(site: Site, case: str, answer: object, *, method: str = "GET") -> tuple[str, bytes]:
    """Return status line and body of what a client gets for a backend's answer; empty where nothing comes."""
    site.backend.on(f"/{case}", answer)
    with site.connect() as client:
        client.request(method, f"/{case}")
        try:
            answer = client.response(timeout=0.3 if on_pushpin() else PATIENCE, method=method)
        except (Aborted, Silence):
            return "", b""
    return answer.line, answer.body


# Responses


@covers("2.1 backend 103")
@pytest.mark.parametrize("framing", ["Transfer-Encoding: chunked", "Content-Length: 7"])
def test_an_interim_response_says_nothing_of_connection_and_body(site: Site, case: str, framing: str) -> None:
    hints = "Link: </a.css>; rel=preload"
    early = response(
        "103 Early Hints",
        hints,
        "Connection: close, X-Hop",
        "Keep-Alive: timeout=5",
        "Upgrade: h2c",
        "Trailer: X",
        "Grip-Hold: stream",
        framing,
    )
    site.backend.on(f"/{case}", early + FINAL)
    with site.connect() as client:
        client.request("GET", f"/{case}")
        first = client.head()
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="Drops a 103 response that arrives together with the final response.",
            ours_does="Relays a 103 response without its connection, framing and Grip-* headers, and then the final "
            "response.",
            because="An interim response concerns neither the connection nor the final body.",
        ):
            assert (first.line, first.lines) == ("103 Early Hints", [hints])
            first = client.head()
        assert first.line == "200 OK"
        assert client.rest() == b"final\n"
        assert client.ask("GET", f"/{case}-next").status == 200


@covers("3.4 conditional")
@pytest.mark.parametrize("times", [1, 4])
def test_a_204_has_no_length(site: Site, case: str, times: int) -> None:
    site.backend.on(f"/{case}", b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nX-A: 1\r\n\r\n")
    for _ in range(times):
        answer = site.get(f"/{case}")
        assert (answer.line, answer["X-A"]) == ("204 No Content", "1")
        assert answer["Content-Length"] is None


@covers("2.6 bad response", "bad input bad backend")
@pytest.mark.parametrize(
    "coding",
    ["gzip, chunked", "gzip", "chunked, identity", "identity, chunked", "chunked, chunked", "xchunked", "chunked;q=1"],
)
def test_a_coding_that_is_not_understood(site: Site, case: str, coding: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n"
    got = answered(site, case, Script(head.encode() + b"2\r\nab\r\n0\r\n\r\n", CLOSE))
    if on_pushpin():
        assert got[0] in ("200 OK", REFUSED, "")
    else:
        assert got == (REFUSED, b"Error while proxying to origin.\n")


@covers("2.6 bad response", "bad input bad backend")
def test_identity_reads_to_the_close(site: Site, case: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n"
    assert answered(site, case, Script(head + b"2\r\nab\r\n0\r\n\r\n", CLOSE)) == ("200 OK", b"2\r\nab\r\n0\r\n\r\n")


@covers("2.6 bad response", "bad input bad backend")
@pytest.mark.parametrize("status", ["000", "042", "99", "099", "20", "1000", "0200", "-20", "2x0"])
def test_a_status_that_is_none(site: Site, case: str, status: str) -> None:
    got = answered(site, case, f"HTTP/1.1 {status} OK\r\nContent-Length: 2\r\n\r\nab".encode())
    if on_pushpin():
        # It takes some of them for what it makes of the digits.
        assert got[0][-2:] in ("OK", "ay", "")
    else:
        assert got[0] == REFUSED


@covers("2.6 bad response", "bad input bad backend")
@pytest.mark.parametrize("place", ["reason", "value"])
@pytest.mark.parametrize("letter", [*map(chr, range(9)), *map(chr, range(10, 32)), "\x7f"], ids=repr)
def test_control_characters_of_a_backend(site: Site, case: str, place: str, letter: str) -> None:
    reason, value = (f"a{letter}b", "1") if place == "reason" else ("OK", f"a{letter}b")
    data = f"HTTP/1.1 200 {reason}\r\nX-A: {value}\r\nContent-Length: 2\r\n\r\nab".encode()
    site.backend.on(f"/{case}", Script(data, CLOSE))
    with site.connect() as client:
        client.request("GET", f"/{case}", "Connection: close")
        try:
            got = client.until_close(timeout=0.3 if on_pushpin() else PATIENCE)
        except Silence:
            got = b""
    if on_pushpin():
        assert got[:12] in (b"HTTP/1.1 200", b"HTTP/1.1 502", b"")
    else:
        assert got.startswith(b"HTTP/1.1 502 ")


@covers("2.5 pass through")
@pytest.mark.parametrize("times", [1, 4])
def test_tabs_and_bytes_above_127_pass(site: Site, case: str, times: int) -> None:
    value = b"c\td\xe9\xff"
    reason = expect(
        pushpin=b"a\tb",
        ours=b"a\tb\xe9\xff",
        pushpin_does="Never answers a client whose backend's reason phrase is not UTF-8.",
        ours_does="Relays bytes above 127 in the reason phrase.",
        because="RFC 9112 §4 allows them.",
    )
    site.backend.on(f"/{case}", b"HTTP/1.1 200 %b\r\nX-A: %b\r\nContent-Length: 0\r\n\r\n" % (reason, value))
    for _ in range(times):
        with site.connect() as client:
            client.send(b"GET /%b HTTP/1.1\r\nHost: a\r\nX-B: %b\r\n\r\n" % (case.encode(), value))
            answer = client.head()
    assert answer.line == "200 " + reason.decode("latin-1")
    assert b"\r\nX-A: %b\r\n" % value in answer.raw_head
    assert b"\r\nX-B: %b\r\n" % value in site.backend.request(f"/{case}").raw_head


@covers("2.6 bad response", "bad input bad backend")
@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**64])
def test_a_length_that_no_counter_holds(site: Site, case: str, length: int) -> None:
    got = answered(site, case, Script(f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nab".encode(), CLOSE))
    assert got[0] in expect(
        pushpin=(REFUSED, ""),
        ours=(REFUSED,),
        pushpin_does="Answers 502, or nothing, when a backend's `Content-Length` is 2^63 or more.",
        ours_does="Answers 502 when a backend's `Content-Length` is 2^63 or more.",
        because="No counter holds such a length.",
    )


@covers("4.2 head", "15 21 head")
@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
@pytest.mark.parametrize("lines", [("Grip-Hold: stream",), ('Grip-Link: </next>; rel="next"',)], ids=["held", "paged"])
def test_head_of_a_stream_has_no_length(site: Site, case: str, lines: tuple[str, ...], version: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", *lines, f"Grip-Channel: {case}", "Content-Type: a/b"))
    with site.connect() as client:
        client.request("HEAD", f"/{case}", version=version)
        head = client.head(method="HEAD")
        assert (head.line, head["Content-Length"], head["Content-Type"]) == ("200 OK", None, "a/b")
        if version == "HTTP/1.1" and not on_pushpin():
            assert client.ask("GET", f"/{case}-next").status == 200


# Requests


@covers("bad input malformed", "2.6 malformed")
@pytest.mark.parametrize(
    "host",
    ["a b", "a/b", "/", "a\tb", "a?b", "a#b", "a@b", "a:b", "a:80:81", "a,b c", "[::1", "::1", ":80", "a\\b", "<a>"],
)
def test_a_host_that_is_none(site: Site, case: str, host: str) -> None:
    answer = site.raw(f"GET /{case} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert answer[:12] in expect(
        pushpin=(b"HTTP/1.1 200", b"HTTP/1.1 502", b""),
        ours=(b"HTTP/1.1 400",),
        pushpin_does="Forwards a request whose `Host` is malformed (`a b`, `a:80:81`), answers 502, or closes the "
        "connection.",
        ours_does="Answers 400 when `Host` is not a name or an address, with or without a port.",
        because="RFC 9112 §3.2 requires it.",
    )
    if not on_pushpin():
        assert site.backend.count(f"/{case}") == 0


@covers("bad input malformed")
@pytest.mark.parametrize(
    "host", ["a", "A.Test:80", "a:", "[::1]", "[::1]:80", "[fe80::1%25en0]", "xn--a_b.test", "\u00e9.test", ""]
)
def test_a_host_that_is_one(site: Site, case: str, host: str) -> None:
    answer = site.raw(f"GET /{case} HTTP/1.1\r\nHost: {host} \t\r\nConnection: close\r\n\r\n".encode())
    assert answer[:12] == b"HTTP/1.1 200"


@covers("bad input absolute form")
@pytest.mark.parametrize("authority", ["a b", "u@a", "a:b", "[::1", ":80", "a:80:81"])
def test_an_authority_that_is_none(site: Site, case: str, authority: str) -> None:
    answer = site.raw(f"GET http://{authority}/{case} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    if not on_pushpin():
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert site.backend.count(f"/{case}") == 0


@covers("bad input cl te")
@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**64, 10**30])
def test_a_request_of_a_length_that_no_counter_holds(site: Site, case: str, length: int) -> None:
    with site.connect() as client:
        client.send(f"POST /{case} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nab")
        try:
            line = client.head(timeout=0.3 if on_pushpin() else PATIENCE).line
        except (Aborted, Silence):
            line = ""
    assert line in expect(
        pushpin=("", "400 Bad Request", REFUSED),
        ours=("400 Bad Request",),
        pushpin_does="Answers 400, 502 or nothing when the `Content-Length` of a request is 2^63 or more.",
        ours_does="Answers 400 when the `Content-Length` of a request is 2^63 or more.",
        because="No counter holds such a length, and waiting for the body would never end.",
    )


@covers("1.4 over_http", "2.6 403")
@pytest.mark.parametrize(
    "value",
    [
        "application/websocket-events; charset=utf-8",
        "application/websocket-events;",
        "Application/WebSocket-Events ; a=b",
        "text/plain, application/websocket-events",
        "application/websocket-events, text/plain",
        "application/websocket-events,application/websocket-events",
        'text/plain; a="application/websocket-events"',
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "GET", "X-ANY", "DELETE"])
def test_websocket_events_in_disguise(site: Site, case: str, method: str, value: str) -> None:
    line = site.ask(method, f"/{case}", "Host: events.test", f"Content-Type: {value}", body="OPEN\r\n").line
    exact = method == "POST" and value.partition(";")[0].strip().lower() == "application/websocket-events"
    assert line in expect(
        pushpin=("403 Forbidden", "200 OK", "400 Bad Request"),
        ours=("403 Forbidden",) if exact or method != "X-ANY" else ("403 Forbidden", "501 Not Implemented"),
        pushpin_does="Forwards some requests with WebSocket events to an `over_http` target: those with another method "
        "than POST or with more than the plain media type in `Content-Type`.",
        ours_does="Answers 403 when the `Content-Type` of a request to an `over_http` target contains "
        "`application/websocket-events`, whatever the method (or 501 for an unknown method).",
        because="An untrusted client must not pass for the proxy.",
    )
    if not on_pushpin():
        assert site.backend.count(f"/{case}") == 0


@covers("1.4 over_http")
@pytest.mark.parametrize("value", ["application/websocket-events2", "x-application/websocket-events", "text/plain"])
def test_other_types_are_not_websocket_events(site: Site, case: str, value: str) -> None:
    assert site.ask("POST", f"/{case}", "Host: events.test", f"Content-Type: {value}", body="x").status == 200


@covers("1.4 over_http", "2.6 403")
def test_websocket_events_under_a_name_alike(site: Site, case: str) -> None:
    for _ in range(4):
        lines = ("Host: events.test", "Content_Type: application/websocket-events")
        assert site.get(f"/{case}", *lines).line == expect(
            pushpin="200 OK",
            ours="403 Forbidden",
            pushpin_does="Forwards `Content_Type: application/websocket-events` to an `over_http` target.",
            ours_does="Answers 403 for `Content_Type: application/websocket-events` to an `over_http` target.",
            because="A CGI backend cannot tell `Content_Type` from `Content-Type`.",
        )
