"""Client and backend connections: how long they live and in which order they answer (docs/grip.md §2.1)."""

from __future__ import annotations

import threading

import pytest

from tests.wire.wirekit import CLOSE, Exchange, Script, Setup, Site, chunk, covers, expect, hold, request, response

SETUP = Setup()


@covers("connections keep-alive")
def test_several_requests_on_one_connection(site: Site, case: str) -> None:
    with site.connect() as client:
        for number in range(3):
            assert client.ask("POST", f"/{case}{number}", body="x" * number).body == b"backend\n"


@covers("connections close")
def test_connection_close_is_obeyed(site: Site, case: str) -> None:
    with site.connect() as client:
        answer = client.ask("GET", f"/{case}", "Connection: close")
        assert answer.body == b"backend\n"
        assert answer["Connection"] == "close"
        assert client.until_close() == b""


@covers("2.1 http10")
def test_http10_closes_unless_asked_to_stay(site: Site, case: str) -> None:
    with site.connect() as client:
        answer = client.ask("GET", f"/{case}", version="HTTP/1.0")
        assert answer.version == "HTTP/1.0"
        assert client.until_close() == b""
    with site.connect() as client:
        answer = client.ask("GET", f"/{case}", "Connection: keep-alive", version="HTTP/1.0")
        assert (answer["Connection"] or "").lower() == "keep-alive"
        assert client.ask("GET", f"/{case}", version="HTTP/1.0").status == 200


@covers("2.1 http10", "4.2 1 http10")
def test_http10_stream_is_delimited_by_the_end(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, body="welcome\n"))
    with site.connect() as client:
        client.request("GET", f"/{case}", version="HTTP/1.0")
        answer = client.head()
        assert answer.version == "HTTP/1.0"
        assert answer["Transfer-Encoding"] is None
        assert answer["Content-Length"] is None
        assert client.data_until(b"\n") == b"welcome\n"
        site.publisher.stream(case, "hello\n")
        assert client.data_until(b"\n") == b"hello\n"
        site.publisher.end(case)
        assert client.rest() == b""


@covers("connections pipelining")
def test_pipelined_requests_are_answered_in_order(site: Site, case: str) -> None:
    slow = threading.Event()
    site.backend.on(f"/{case}1", Script(slow, response("200 OK", body="one")))
    site.backend.on(f"/{case}2", response("200 OK", body="two"))
    site.backend.on(f"/{case}3", response("200 OK", body="three"))
    with site.connect() as client:
        client.send(
            request("GET", f"/{case}1") + request("POST", f"/{case}2", body="body") + request("GET", f"/{case}3")
        )
        site.backend.request(f"/{case}1")
        slow.set()
        assert [client.response().body for _ in range(3)] == [b"one", b"two", b"three"]


@covers("connections pipelining", "4.1 5 keep-alive")
def test_request_behind_a_held_one_waits(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with site.publisher.feed() as feed, site.connect() as client:
        client.send(request("GET", f"/{case}") + request("GET", f"/{case}-behind"))
        feed.wait_for(b"\x01" + case.encode())
        assert client.silent(0.3)
        assert site.backend.count(f"/{case}-behind") == 0
        site.publisher.answer(case, "published")
        assert client.response().body == b"published"
        assert client.response().body == b"backend\n"


@covers("connections head", "2.1 methods")
def test_head_answer_has_no_body(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
    with site.connect() as client:
        answer = client.ask("HEAD", f"/{case}")
        assert answer["Content-Length"] == "1234"
        assert client.ask("GET", f"/{case}-next").body == b"backend\n"
    assert site.backend.request(f"/{case}").method == "HEAD"


@covers("connections head", "15 21 head")
@pytest.mark.parametrize("mode", ["response", "stream"])
def test_head_hold_has_no_body(site: Site, case: str, mode: str) -> None:
    site.backend.on(f"/{case}", hold(mode, case))
    with site.publisher.feed() as feed, site.connect() as client:
        client.request("HEAD", f"/{case}")
        item = {"http-response": {"body": "published"}, "http-stream": {"content": "published"}}
        if mode == "stream":
            assert client.head(method="HEAD").status == 200
            site.publisher.publish({"channel": case, "formats": item})
        else:
            feed.wait_for(b"\x01" + case.encode())
            site.publisher.publish({"channel": case, "formats": item})
            assert client.head(method="HEAD").status == 200
        try:
            body = client.exactly(1, timeout=0.5) != b""
        except Exception:  # noqa: BLE001 - nothing, or an end: either way no body
            body = False
    assert body is expect(
        pushpin=True,
        ours=False,
        pushpin_does="Sends what is published as a body when the held request is HEAD.",
        ours_does="Sends no body in response to a held HEAD request.",
        because="A response to HEAD has no body (RFC 9110 §9.3.2).",
    )


@covers("connections reuse")
def test_backend_connections_are_reused(site: Site, case: str) -> None:
    before = site.backend.connections
    for _ in range(10):
        assert site.get(f"/{case}").status == 200
    assert site.backend.connections - before <= 3


@covers("connections reuse closed")
def test_reused_connection_that_closes_is_tried_again(site: Site, case: str) -> None:
    """A backend that closes an idle connection just as a request arrives on it."""

    def drop_if_reused(exchange: Exchange) -> bytes | None:
        if exchange.request.connection in seen:
            exchange.close()
            return None
        seen.add(exchange.request.connection)
        return response("200 OK", body="fresh")

    seen: set[int] = set()
    site.backend.on(f"/{case}", drop_if_reused)
    for _ in range(6):
        assert site.get(f"/{case}").body == b"fresh"


@covers("connections reuse closed", "1.6 final")
def test_post_on_a_reused_connection_is_not_repeated(site: Site, case: str) -> None:
    """Nobody knows whether the backend has acted already, so a POST goes out once."""
    site.backend.on(f"/{case}", Script(CLOSE))
    for _ in range(3):
        site.get(f"/{case}-warm-up")
    answer = site.ask("POST", f"/{case}", body="pay")
    assert answer.status == 502
    assert site.backend.count(f"/{case}") == expect(
        pushpin=2,
        ours=1,
        pushpin_does="Sends a POST a second time when the backend closes a reused connection before it answers.",
        ours_does="Sends a POST once and answers 502 when the backend closes a reused connection before it answers.",
        because="The backend may have acted on it already. In Pushpin it is the HTTP client, zurl, that repeats.",
    )


@covers("2.5 chunked")
def test_backend_connection_survives_a_chunked_response(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", "Transfer-Encoding: chunked") + chunk("abc") + chunk(""))
    connections = set()
    for number in range(4):
        assert site.get(f"/{case}").body == b"abc"
        connections.add(site.backend.request(f"/{case}", number).connection)
    assert len(connections) < 4
