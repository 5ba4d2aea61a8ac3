"""The client's side of a WebSocket: what it takes to get one (docs/grip.md §8.1), and refusals (§8.6)."""

from __future__ import annotations

import threading
import uuid

import pytest

from tests.wire.wirekit import Aborted, Exchange, Script, Setup, Site, covers, expect, request, response
from tests.wire.wirekit.events import event, events, offered, opened, over_http
from tests.wire.wirekit.frames import BINARY, CONTINUATION, PING, TEXT, frame
from tests.wire.wirekit.websocket import KEY, Accept, Socket, accept_of, direct, handshake, reject, websocket

SETUP = Setup(
    routes="* {backend},over_http\n"
    "*,path_beg=/direct {backend}\n"
    "nowhere.example,path_beg=/never {backend}\n"
    "dead.example {dead},over_http\n"
    "deaddirect.example {dead}\n"
    "second.example {dead},over_http {backend},over_http\n"
    "seconddirect.example {dead} {backend}\n"
    "proto.example,proto=ws {backend},over_http\n"
    "proto.example,proto=http {dead}\n"
    "headers.example,header=X-Route:yes,header=X-Gone: {backend},over_http\n"
)


@covers("8.1 handshake", "8.3 open headers")
def test_accepted_with_the_headers_of_the_backend(site: Site, case: str) -> None:
    backend = opened(headers=("X-Extra: 1", "Set-Cookie: a=b", "Set-Cookie: c=d"))
    with over_http(site, f"/{case}", backend) as talk:
        answer = talk.client.response
        assert answer is not None
        assert answer.line == "101 Switching Protocols"
        assert answer["Upgrade"] == "websocket"
        assert answer["Connection"] == "Upgrade"
        assert answer["Sec-WebSocket-Accept"] == accept_of(KEY)
        assert answer["X-Extra"] == "1"
        assert answer.all("Set-Cookie") == ["a=b", "c=d"]
        known = {"upgrade", "connection", "sec-websocket-accept", "x-extra", "set-cookie"}
        assert set(answer.names) == known


@covers("8.1 upgrade case")
@pytest.mark.parametrize("value", ["WebSocket", "WEBSOCKET"])
def test_upgrade_in_other_letters(site: Site, case: str, value: str) -> None:
    site.backend.on(f"/{case}", opened())
    with site.connect() as client:
        client.request("GET", f"/{case}", *handshake(f"Upgrade: {value}", "Connection: keep-alive, upgrade"))
        status = client.head().status
        assert status != 200 or site.backend.request(f"/{case}").method == "GET"
    assert status == expect(
        pushpin=200,
        ours=101,
        pushpin_does="Takes a request with `Upgrade: WebSocket` for a plain request.",
        ours_does="Opens a WebSocket for `Upgrade: WebSocket`, in whatever letter case.",
        because="RFC 6455 §4.2.1 and the coming Pushpin 2.0 compare it without regard to case.",
    )


def answer_to(site: Site, *lines: str, uri: str, method: str = "GET") -> str:
    """Return the status line, ``closed`` if there is none, of the answer to an odd handshake."""
    with site.connect() as client:
        client.request(method, uri, *handshake(*lines))
        try:
            return client.head().line
        except Aborted:
            return "closed"


@covers("8.1 handshake needs")
@pytest.mark.parametrize("line", ["Sec-WebSocket-Key:", "Sec-WebSocket-Version:"], ids=["key", "version"])
def test_handshake_without(site: Site, case: str, line: str) -> None:
    assert answer_to(site, line, uri=f"/{case}") == expect(
        pushpin="closed",
        ours="400 Bad Request",
        pushpin_does="Closes the connection without a response to a handshake without `Sec-WebSocket-Key` or "
        "`Sec-WebSocket-Version`.",
        ours_does="Answers 400 to a handshake without `Sec-WebSocket-Key` or `Sec-WebSocket-Version`.",
        because="Pushpin answers from 1.40 on.",
    )
    assert site.backend.count(f"/{case}") == 0


@covers("8.1 handshake needs")
def test_handshake_of_another_version(site: Site, case: str) -> None:
    assert answer_to(site, "Sec-WebSocket-Version: 8", uri=f"/{case}") == expect(
        pushpin="closed",
        ours="426 Upgrade Required",
        pushpin_does="Closes the connection without a response to a handshake of another WebSocket version.",
        ours_does="Answers 426 to a handshake of another WebSocket version.",
        because="The client learns which version is served (RFC 6455 §4.4).",
    )
    assert site.backend.count(f"/{case}") == 0


@covers("8.1 handshake needs")
def test_handshake_with_a_bad_key(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", opened())
    assert answer_to(site, "Sec-WebSocket-Key: short", uri=f"/{case}") == expect(
        pushpin="101 Switching Protocols",
        ours="400 Bad Request",
        pushpin_does="Opens a WebSocket when `Sec-WebSocket-Key` is not 16 bytes in base64.",
        ours_does="Answers 400 when `Sec-WebSocket-Key` is not 16 bytes in base64.",
        because="RFC 6455 §4.2.1 requires it.",
    )


@covers("8.1 handshake needs")
def test_only_get_opens_a_websocket(site: Site, case: str) -> None:
    assert answer_to(site, uri=f"/{case}", method="POST") == expect(
        pushpin="closed",
        ours="400 Bad Request",
        pushpin_does="Closes the connection without a response to a handshake by POST.",
        ours_does="Answers 400 to a handshake by POST.",
        because="Pushpin answers from 1.40 on.",
    )


@covers("8.1 handshake needs")
def test_http_1_0_does_not_upgrade(site: Site, case: str) -> None:
    with site.connect() as client:
        client.request("GET", f"/{case}", *handshake(), version="HTTP/1.0")
        client.head()
    assert site.backend.request(f"/{case}").method == expect(
        pushpin="POST",
        ours="GET",
        pushpin_does="Opens a WebSocket for a handshake in HTTP/1.0.",
        ours_does="Forwards a handshake in HTTP/1.0 as a plain request.",
        because="`Upgrade` is ignored in HTTP/1.0 (RFC 9110 §7.8).",
    )


@covers("8.1 extensions hidden")
def test_extensions_of_the_backend_are_hidden(site: Site, case: str) -> None:
    answer = ("Sec-WebSocket-Extensions: grip; message-prefix=p",)
    with direct(site, f"/direct/{case}", answer=answer) as (client, _):
        assert client.response is not None
        assert client.response["Sec-WebSocket-Extensions"] is None
    with over_http(site, f"/{case}", opened(headers=answer)) as talk:
        assert talk.client.response is not None
        assert talk.client.response["Sec-WebSocket-Extensions"] is None


@covers("8.1 subprotocol")
def test_subprotocol_is_what_the_backend_answers(site: Site, case: str) -> None:
    chosen = "Sec-WebSocket-Protocol: p2"
    with direct(site, f"/direct/{case}", "Sec-WebSocket-Protocol: p1, p2", answer=(chosen,)) as (client, backend):
        assert backend.request["Sec-WebSocket-Protocol"] == "p1, p2"
        assert client.response is not None
        assert client.response["Sec-WebSocket-Protocol"] == "p2"
    with over_http(site, f"/{case}", opened(headers=(chosen,)), headers=("Sec-WebSocket-Protocol: p1",)) as talk:
        assert talk.backend.request(f"/{case}")["Sec-WebSocket-Protocol"] == "p1"
        assert talk.client.response is not None
        assert talk.client.response["Sec-WebSocket-Protocol"] == "p2"


@covers("8.1 no compression")
def test_no_compression_unless_configured(site: Site, case: str) -> None:
    offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
    with direct(site, f"/direct/{case}", offer) as (client, backend):
        assert client.response is not None
        assert client.response["Sec-WebSocket-Extensions"] is None
        assert backend.request["Sec-WebSocket-Extensions"] == "grip"
        backend.text("plain")
        assert client.says("plain")


@covers("8.1 connection id")
def test_every_websocket_has_an_id(site: Site, case: str) -> None:
    with over_http(site, f"/{case}") as one, over_http(site, f"/{case}2") as two:
        assert one.id != two.id
        for id in (one.id, two.id):
            assert str(uuid.UUID(id)) == id
        one.client.text("a")
        assert one.request()["Connection-Id"] == one.id


@covers("8.1 fragments")
def test_fragments_of_the_client_are_relayed(site: Site, case: str) -> None:
    with direct(site, f"/direct/{case}") as (client, backend):
        client.frame(TEXT, "one ", fin=False)
        client.frame(CONTINUATION, "", fin=False)
        client.frame(CONTINUATION, "two ", fin=False)
        client.frame(CONTINUATION, "three")
        assert backend.message() == (TEXT, b"one two three")
        client.frame(BINARY, b"\0", fin=False)
        client.frame(CONTINUATION, b"\1")
        assert backend.message() == (BINARY, b"\0\1")


@covers("8.1 fragments")
def test_a_fragment_does_not_wait_for_the_rest(site: Site, case: str) -> None:
    with direct(site, f"/direct/{case}") as (client, backend):
        client.frame(TEXT, "first", fin=False)
        got = backend.next()
        assert (got.opcode, got.payload, got.fin) == (TEXT, b"first", False)
        backend.frame(TEXT, "answer", fin=False)
        got = client.next()
        assert (got.opcode, got.payload, got.fin) == (TEXT, b"answer", False)


@covers("8.1 early frames")
def test_frames_before_the_handshake_is_answered(site: Site, case: str) -> None:
    accept, go = Accept(then=frame(TEXT, b"from the backend", mask=False)), threading.Event()

    def answer(exchange: Exchange) -> Accept:
        exchange.wait(go)
        return accept

    site.backend.on(f"/direct/{case}", answer)
    with site.connect() as wire:
        early = frame(TEXT, b"one") + frame(PING) + frame(TEXT, b"two")
        wire.send(request("GET", f"/direct/{case}", *handshake()) + early)
        site.backend.request(f"/direct/{case}")
        go.set()
        assert wire.head().status == 101
        client = Socket(wire, mask=True)
        with accept.socket() as backend:
            assert client.says("from the backend")
            assert backend.says("one")
            assert backend.next().opcode == PING
            assert backend.says("two")


@covers("8.1 early frames")
def test_frames_before_open_is_answered(site: Site, case: str) -> None:
    go = threading.Event()
    site.backend.on(f"/{case}", [Script(go, opened()), events()])
    with site.connect() as wire:
        wire.send(request("GET", f"/{case}", *handshake()) + frame(TEXT, b"one") + frame(TEXT, b"two"))
        assert offered(site.backend.request(f"/{case}")) == [("OPEN", None)]
        go.set()
        assert wire.head().status == 101
        got = offered(site.backend.request(f"/{case}", 1))
        if len(got) == 1:
            got += offered(site.backend.request(f"/{case}", 2))
        assert got == [("TEXT", b"one"), ("TEXT", b"two")]


@covers("8.6 no target")
@pytest.mark.parametrize("host", ["nowhere.example", "dead.example", "deaddirect.example"])
def test_no_target(site: Site, case: str, host: str) -> None:
    answer = reject(site, f"/{case}", f"Host: {host}")
    assert answer.line == "502 Bad Gateway"
    text = "No route for host: nowhere.example\n" if host.startswith("nowhere") else "Error while proxying to origin.\n"
    assert answer.body.decode() == text
    assert answer["Content-Type"] is None
    assert answer["Content-Length"] == str(len(text))


@covers("8.6 no target", "1.6 connect failure")
@pytest.mark.parametrize("host", ["second.example", "seconddirect.example"])
def test_next_target(site: Site, case: str, host: str) -> None:
    if host == "second.example":
        with over_http(site, f"/{case}", headers=(f"Host: {host}",)) as talk:
            talk.client.text("a")
            assert talk.offer() == [("TEXT", b"a")]
    else:
        with direct(site, f"/{case}", f"Host: {host}") as (client, backend):
            client.text("a")
            assert backend.says("a")


@covers("1.3 proto")
def test_route_for_websockets_only(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", opened())
    with websocket(site, f"/{case}", "Host: proto.example"):
        pass
    assert site.get(f"/{case}", "Host: proto.example").status == 502


@covers("1.3 header")
def test_headers_of_the_route(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", headers=("Host: headers.example", "X-Gone: 1", "X-Kept: 2")) as talk:
        talk.client.text("x")
        for asked in (talk.backend.request(f"/{case}"), talk.request()):
            assert (asked["X-Route"], asked["X-Gone"], asked["X-Kept"]) == ("yes", None, "2")


@covers("8.1 plain request")
def test_plain_request_on_a_websocket_route(site: Site, case: str) -> None:
    site.backend.on(f"/direct/{case}", response("200 OK", body="plain\n"))
    assert site.get(f"/direct/{case}").body == b"plain\n"


@covers("1.4 over_http", "2.6 403")
def test_plain_request_on_an_over_http_target(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", body="plain\n"))
    assert site.get(f"/{case}").body == b"plain\n"
    body = event("OPEN").decode()
    answer = site.ask("POST", f"/{case}", "Content-Type: application/websocket-events", body=body)
    assert answer.line == "403 Forbidden"
    assert answer.body == b"Client not allowed to send WebSocket events directly.\n"
    assert site.backend.count(f"/{case}") == 1
