"""WebSockets to a backend that speaks WebSocket itself (docs/grip.md §8.2, §13.10)."""

from __future__ import annotations

import json
import pathlib
import threading
from collections.abc import Callable

import pytest

from tests.wire.wirekit import CLOSE, RESET, Exchange, Script, Setup, Site, covers, expect, response
from tests.wire.wirekit.events import GRIP, control, event, events, offered, opened, over_http
from tests.wire.wirekit.frames import BINARY, CLOSE_FRAME, CONTINUATION, PING, PONG, TEXT, closing, frame
from tests.wire.wirekit.websocket import KEY, Accept, accept_of, direct, handshake, reject, websocket

SETUP = Setup(
    routes="* {backend}\n*,path_beg=/plain,no_grip {backend}\n"
    "*,path_beg=/rewritten/,path_rem=10,replace_beg=/new/ {backend}\n"
    "*,path_beg=/signed,sig_iss=me,sig_key=secret {backend}\n"
    "tls.example {tls},ssl,insecure\ntlshttp.example {tls},ssl,insecure,over_http\n"
)
FORWARDED = Setup(
    routes="* {backend},over_http\n*,path_beg=/direct {backend}\n", config={"proxy.x_forwarded_for": "append"}
)
GRIP_ON = (GRIP,)


@covers("8.2 forwarded handshake")
def test_handshake_at_the_backend(site: Site, case: str) -> None:
    lines = ("User-Agent: wire", "X-C: 1", "Grip-X: 1", "Sec-WebSocket-Extensions: permessage-deflate", "Cookie: a=b")
    with direct(site, f"/{case}?q=1", *lines) as (_, backend):
        asked = backend.request
        assert (asked.method, asked.uri, asked.version) == ("GET", f"/{case}?q=1", "HTTP/1.1")
        assert asked["Host"] == "wire.example"
        assert asked["User-Agent"] == "wire"
        assert asked["Cookie"] == "a=b"
        assert asked["X-C"] == "1"
        assert asked["Grip-X"] is None
        assert asked.all("Sec-WebSocket-Extensions") == ["grip"]
        assert asked["Upgrade"] == "websocket"
        assert asked["Connection"] == "Upgrade"
        assert asked["Sec-WebSocket-Version"] == "13"
        assert asked["Sec-WebSocket-Key"] not in (None, KEY)
        assert asked["Content-Length"] is None


@covers("8.2 forwarded handshake", "2.2 grip-feature", "2.3 hs256")
def test_handshake_is_signed(site: Site, case: str) -> None:
    with direct(site, f"/signed/{case}") as (_, backend):
        assert backend.request["Grip-Sig"] is not None
        assert backend.request["Grip-Feature"] is not None


@covers("8.2 accepted after the backend")
def test_the_client_is_accepted_with_the_headers_of_the_backend(site: Site, case: str) -> None:
    with direct(site, f"/{case}", answer=("X-Backend: 1", "Set-Cookie: a=b", *GRIP_ON)) as (client, _):
        answer = client.response
        assert answer is not None
        assert answer.line == "101 Switching Protocols"
        assert answer["X-Backend"] == "1"
        assert answer["Set-Cookie"] == "a=b"
        assert answer["Upgrade"] == "websocket"
        assert answer["Connection"] == "Upgrade"
        assert answer.all("Sec-WebSocket-Accept") == [accept_of(KEY)]
        assert answer["Sec-WebSocket-Extensions"] is None


@covers("8.2 rejection")
def test_rejection(site: Site, case: str) -> None:
    backend = response("418 Short And Stout", "Content-Type: text/plain", "X-R: 1", body="no way\n")
    site.backend.on(f"/{case}", backend)
    answer = reject(site, f"/{case}")
    assert answer.status == 418
    assert answer.body == b"no way\n"
    assert (answer.reason, answer["X-R"], answer["Content-Type"]) == expect(
        pushpin=("", None, None),
        ours=("Short And Stout", "1", "text/plain"),
        pushpin_does="Relays a backend's refusal of a WebSocket without its reason phrase and headers.",
        ours_does="Relays a backend's refusal of a WebSocket with its status, reason phrase, headers and body.",
        because="The client learns why.",
    )


@covers("8.2 rejection")
def test_a_plain_answer_is_a_rejection(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", "Content-Type: text/plain", body="hello\n"))
    answer = reject(site, f"/{case}")
    assert answer.status == 200
    assert answer.body == b"hello\n"


@covers("8.2 backend fails")
@pytest.mark.parametrize("end", [CLOSE, RESET], ids=repr)
def test_backend_that_does_not_answer_the_handshake(site: Site, case: str, end: object) -> None:
    site.backend.on(f"/{case}", Script(end))  # type: ignore[arg-type]
    answer = reject(site, f"/{case}")
    assert answer.line == "502 Bad Gateway"
    assert answer.body == b"Error while proxying to origin.\n"


@covers("8.2 backend fails")
@pytest.mark.parametrize(
    "line",
    [
        "Upgrade:",
        "Upgrade: h2c",
        "Connection:",
        "Connection: keep-alive",
        "Connection: close",
    ],
)
def test_backend_that_does_not_grant_the_upgrade(site: Site, case: str, line: str) -> None:
    standard = [kept for kept in ("Upgrade: websocket", "Connection: Upgrade") if kept[:7] != line[:7]]

    def answer(exchange: Exchange) -> bytes:
        accept = f"Sec-WebSocket-Accept: {accept_of(exchange.request['Sec-WebSocket-Key'] or '')}"
        return response("101 Switching Protocols", *standard, *([] if line.endswith(":") else [line]), accept)

    site.backend.on(f"/{case}", answer)
    with site.connect() as client:
        client.request("GET", f"/{case}", *handshake())
        assert client.head().line == expect(
            pushpin="101 Switching Protocols",
            ours="502 Bad Gateway",
            pushpin_does="Opens the WebSocket when the backend's 101 lacks `Upgrade: websocket` or `Connection: "
            "upgrade`.",
            ours_does="Answers 502 when the backend's 101 lacks `Upgrade: websocket` or `Connection: upgrade`.",
            because="RFC 6455 §4.1 requires both.",
        )


@covers("8.2 accepted after the backend")
@pytest.mark.parametrize("line", ["upgrade: WebSocket", "Upgrade: h2c, websocket", "Connection: keep-alive, UPGRADE"])
def test_backend_that_grants_the_upgrade_in_other_words(site: Site, case: str, line: str) -> None:
    with direct(site, f"/{case}", answer=(line,)) as (client, backend):
        backend.text("x")
        assert client.next().payload == b"x"


@covers("8.2 backend fails")
@pytest.mark.parametrize("line", ["Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "Sec-WebSocket-Accept:"])
def test_backend_with_a_bad_key(site: Site, case: str, line: str) -> None:
    lines = ["Upgrade: websocket", "Connection: Upgrade", *([] if line.endswith(":") else [line])]
    site.backend.on(f"/{case}", response("101 Switching Protocols", *lines))
    with site.connect() as client:
        client.request("GET", f"/{case}", *handshake())
        assert client.head().line == expect(
            pushpin="101 Switching Protocols",
            ours="502 Bad Gateway",
            pushpin_does="Opens the WebSocket when the backend's `Sec-WebSocket-Accept` is wrong or missing.",
            ours_does="Answers 502 when the backend's `Sec-WebSocket-Accept` is wrong or missing.",
            because="It proves that the backend has read the handshake (RFC 6455 §4.1).",
        )


@covers("8.2 backend fails")
@pytest.mark.parametrize("offer", ["", "Sec-WebSocket-Protocol: p1"])
def test_backend_with_a_subprotocol_that_was_not_offered(site: Site, case: str, offer: str) -> None:
    def answer(exchange: Exchange) -> bytes:
        accept = f"Sec-WebSocket-Accept: {accept_of(exchange.request['Sec-WebSocket-Key'] or '')}"
        lines = ("Upgrade: websocket", "Connection: Upgrade", accept, "Sec-WebSocket-Protocol: p2")
        return response("101 Switching Protocols", *lines)

    site.backend.on(f"/{case}", answer)
    with site.connect() as client:
        client.request("GET", f"/{case}", *handshake(), *([offer] if offer else []))
        assert client.head().line == expect(
            pushpin="101 Switching Protocols",
            ours="502 Bad Gateway",
            pushpin_does="Opens the WebSocket when the backend's 101 has a subprotocol that the client did not offer.",
            ours_does="Answers 502 when the backend's 101 has a subprotocol that the client did not offer.",
            because="RFC 6455 §4.1 requires it; a client would drop the WebSocket.",
        )


@covers("8.2 prefix")
@pytest.mark.parametrize(
    ("extension", "prefix"),
    [("grip", "m:"), ("grip; message-prefix=p", "p"), ('grip; message-prefix="a b;"', "a b;"), ("x, grip", "m:")],
)
def test_prefix(site: Site, case: str, extension: str, prefix: str) -> None:
    with direct(site, f"/{case}", answer=(f"Sec-WebSocket-Extensions: {extension}",)) as (client, backend):
        backend.text("other")
        backend.binary(b"other")
        backend.text(prefix + "text")
        assert client.says("text")
        backend.binary(prefix.encode() + b"\0binary")
        assert client.message() == (BINARY, b"\0binary")
        backend.text(prefix)
        assert client.says("")
        backend.text(prefix[:-1])
        backend.text("")
        backend.text(prefix + prefix)
        assert client.says(prefix)


@covers("8.2 empty prefix")
def test_empty_prefix_passes_everything(site: Site, case: str) -> None:
    answer = ('Sec-WebSocket-Extensions: grip; message-prefix=""',)
    with direct(site, f"/{case}", answer=answer) as (client, backend):
        backend.text("anything")
        assert client.says("anything")
        backend.text(b"")
        assert client.says("")
        backend.text(control("set-meta", name="a", value="b"))
        backend.text("c")
        assert client.says("c")
        backend.binary(b"c:binary")
        assert client.message() == (BINARY, b"c:binary")


@covers("8.2 prefix")
def test_prefix_of_a_fragmented_message(site: Site, case: str) -> None:
    with direct(site, f"/{case}", answer=GRIP_ON) as (client, backend):
        backend.frame(TEXT, "m:one ", fin=False)
        backend.frame(CONTINUATION, "m:two ", fin=False)
        backend.frame(CONTINUATION, "three")
        assert client.says("one m:two three")
        backend.frame(TEXT, "other", fin=False)
        backend.frame(CONTINUATION, "m:still other")
        if expect(
            pushpin=True,
            ours=False,
            pushpin_does="Discards only the first fragment of a message without the prefix; a later fragment that "
            "begins with the prefix is sent.",
            ours_does="Discards all fragments of a message without the prefix.",
            because="The prefix decides on the message.",
        ):
            assert client.says("m:still other")
        backend.frame(TEXT, "m:", fin=False)
        backend.frame(CONTINUATION, "next")
        assert client.says("next")


@covers("8.2 control message", "8.5 subscribe")
def test_control_message(site: Site, case: str) -> None:
    with direct(site, f"/{case}", answer=GRIP_ON) as (client, backend), site.publisher.feed() as feed:
        backend.text(control("subscribe", channel=case))
        feed.wait_for(b"\x01" + case.encode())
        site.publisher.publish({"channel": case, "formats": {"ws-message": {"content": "published"}}})
        assert client.says("published")
        assert backend.silent(0.1)


@covers("8.2 fragmented control")
def test_fragmented_control_message_is_discarded(site: Site, case: str) -> None:
    with direct(site, f"/{case}", answer=GRIP_ON) as (client, backend), site.publisher.feed() as feed:
        message = control("subscribe", channel=case)
        backend.frame(TEXT, message[:-5], fin=False)
        backend.frame(CONTINUATION, message[-5:])
        backend.text(control("subscribe", channel=f"{case}-two"))
        backend.text("m:end")
        assert client.says("end")
        told = b""
        while told != f"\x01{case}-two".encode():
            told = feed.told()
            assert told != b"\x01" + case.encode()


@covers("8.2 ping pong close", "8.2 pings relayed")
@pytest.mark.parametrize("extension", [(), GRIP_ON], ids=["plain", "grip"])
def test_pings_are_relayed_and_not_answered(site: Site, case: str, extension: tuple[str, ...]) -> None:
    with direct(site, f"/{case}", answer=extension) as (client, backend):
        for sender, receiver in ((client, backend), (backend, client)):
            for opcode in (PING, PONG):
                sender.frame(opcode, b"payload")
                got = receiver.next()
                assert got.opcode == opcode
                assert got.payload == expect(
                    pushpin=b"",
                    ours=b"payload",
                    pushpin_does="Relays a ping or pong without its payload.",
                    ours_does="Relays a ping or pong with its payload.",
                    because="A peer recognises the pong to its ping by the payload.",
                )
                sender.frame(opcode)
                got = receiver.next()
                assert (got.opcode, got.payload) == (opcode, b"")
        assert client.silent(0.1)
        assert backend.silent(0)


@covers("8.2 ping pong close")
def test_ping_between_fragments(site: Site, case: str) -> None:
    with direct(site, f"/{case}") as (client, backend):
        client.frame(TEXT, "one ", fin=False)
        assert backend.next().payload == b"one "
        client.ping()
        if not expect(
            pushpin=False,
            ours=True,
            pushpin_does="Drops a client that sends a ping between the fragments of a message.",
            ours_does="Relays a ping that a client sends between the fragments of a message.",
            because="RFC 6455 §5.4 allows it.",
        ):
            assert client.dropped()
            return
        assert backend.next().opcode == PING
        client.frame(CONTINUATION, "two")
        got = backend.next()
        assert (got.opcode, got.payload, got.fin) == (CONTINUATION, b"two", True)


@covers("8.2 client unchanged")
def test_messages_of_the_client_are_not_touched(site: Site, case: str) -> None:
    with direct(site, f"/{case}", answer=GRIP_ON) as (client, backend):
        for text in ("hello", "m:hello", json.dumps({"a": 1}), "", "\u20ac\U0001f600"):
            client.text(text)
            assert backend.says(text)
        message = control("subscribe", channel=case).decode()
        client.text(message)
        assert backend.says(message)
        client.binary(bytes(range(256)))
        assert backend.message() == (BINARY, bytes(range(256)))


@covers("8.2 without the extension")
@pytest.mark.parametrize("extensions", [(), ("Sec-WebSocket-Extensions: gripx",)], ids=["none", "other"])
def test_without_the_extension_everything_passes(site: Site, case: str, extensions: tuple[str, ...]) -> None:
    with direct(site, f"/{case}", answer=extensions) as (client, backend):
        message = control("subscribe", channel=case).decode()
        for text in ("m:hello", "hello", message):
            backend.text(text)
            assert client.says(text)


@covers("8.2 no_grip", "1.3 no_grip")
def test_no_grip(site: Site, case: str) -> None:
    with direct(site, f"/plain/{case}", answer=GRIP_ON) as (client, backend):
        assert backend.request["Sec-WebSocket-Extensions"] is None
        backend.text("m:hello")
        assert client.says("m:hello")
        backend.text("hello")
        assert client.says("hello")


def no_code() -> int | None:
    """Return the code of the close frame that reaches the client when the backend's has none."""
    return expect(
        pushpin=1000,
        ours=None,
        pushpin_does="Relays a backend's close frame without a code with code 1000.",
        ours_does="Relays a backend's close frame without a code as it is.",
        because="The client sees what the backend sent.",
    )


@covers("8.2 close relayed", "8.2 ping pong close")
@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (4001, "bye"), (3000, "\u20ac"), (1001, "away"), (None, "")])
def test_close_of_the_client(site: Site, case: str, code: int | None, reason: str) -> None:
    with direct(site, f"/{case}", answer=GRIP_ON) as (client, backend):
        client.close(code, reason)
        assert backend.closed() == (code, reason.encode())
        backend.close(code, reason)
        assert client.closed() == (code or no_code(), reason.encode())
        assert client.dropped()


@covers("8.2 close relayed", "8.2 ping pong close")
@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (4001, "bye"), (1011, "\u20ac"), (None, "")])
def test_close_of_the_backend(site: Site, case: str, code: int | None, reason: str) -> None:
    with direct(site, f"/{case}", answer=GRIP_ON) as (client, backend):
        backend.close(code, reason)
        assert client.closed() == (code or no_code(), reason.encode())
        client.close(4002, "echo")
        assert backend.closed() == (4002, b"echo")
        backend.done.set()
        assert client.dropped()


@covers("8.2 close relayed")
def test_messages_before_the_close_arrive(site: Site, case: str) -> None:
    with direct(site, f"/{case}") as (client, backend):
        backend.raw(b"".join(frame(TEXT, b"%d" % n, mask=False) for n in range(20)))
        backend.close(4000)
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="May lose messages that a backend sends right before its close frame.",
            ours_does="Delivers messages that a backend sends before its close frame, then the close frame.",
            because="Frames are delivered in order.",
        ):
            for n in range(20):
                assert client.says(str(n))
        assert client.ending() == (4000, b"")


@covers("8.2 large messages")
@pytest.mark.parametrize("size", [65535, 65536, 150_000])
def test_large_messages(site: Site, case: str, size: int) -> None:
    content = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    with direct(site, f"/{case}") as (client, backend):
        client.binary(content)
        assert backend.message() == (BINARY, content)
        backend.binary(content)
        assert client.message() == (BINARY, content)


@covers("8.2 large messages")
def test_very_large_messages(site: Site, case: str) -> None:
    content = b"0123456789abcdef" * 62_500
    passes = expect(
        pushpin=False,
        ours=True,
        pushpin_does="Stalls or drops the connection at a message of 1,000,000 bytes.",
        ours_does="Relays messages of 1,000,000 bytes both ways; `ws_message_max` (16 MiB by default) is the limit.",
        because="RFC 6455 sets no smaller limit.",
    )
    with direct(site, f"/{case}") as (client, backend):
        if passes:
            backend.binary(content)
            assert client.message(20) == (BINARY, content)
            client.binary(content)
            assert backend.message(20) == (BINARY, content)


@covers("8.2 abnormal loss", "8.6 backend death")
@pytest.mark.parametrize("how", ["reset", "close"])
def test_loss_of_one_side_drops_the_other(site: Site, case: str, how: str) -> None:
    for number in (1, 2):
        with direct(site, f"/{case}-{number}") as (client, backend):
            client.text("hello")
            assert backend.says("hello")
            lost, other = (client, backend) if number == 1 else (backend, client)
            if how == "reset":
                lost.reset()
            else:
                lost.done.set()
                lost.wire.close()
            assert other.dropped()


@covers("8.2 abnormal loss")
def test_loss_inside_a_message(site: Site, case: str) -> None:
    with direct(site, f"/{case}") as (client, backend):
        backend.frame(TEXT, "begin", fin=False)
        assert client.next().payload == b"begin"
        backend.done.set()
        assert client.ending() == (1006, b"")


@covers("8.2 forwarded handshake")
def test_path_is_rewritten(site: Site, case: str) -> None:
    accept = Accept()
    site.backend.on(f"/new/{case}", accept)
    with websocket(site, f"/rewritten/{case}"), accept.socket() as backend:
        assert backend.request.uri == f"/new/{case}"


@covers("8.2 close relayed")
def test_data_behind_a_close_is_dropped(site: Site, case: str) -> None:
    with direct(site, f"/{case}") as (client, backend):
        client.raw(frame(CLOSE_FRAME, closing(4000)) + frame(TEXT, b"too late"))
        assert backend.closed() == (4000, b"")
        assert backend.silent(0.1)


def kernel_buffers() -> int:
    """Return how many bytes the kernel keeps at most between two sockets here (tcp(7)).

    From end to end there are two such ways; but who never reads gets no larger buffer than it began with.
    """
    return sum(int(pathlib.Path(f"/proc/sys/net/ipv4/tcp_{way}mem").read_text().split()[2]) for way in "rw")


@covers("8.1 flow control", "2.5 back-pressure")
@pytest.mark.parametrize("sender", ["backend", "client"])
def test_who_does_not_read_slows_the_other_down(site: Site, case: str, sender: str) -> None:
    """More than all buffers on the way hold together: the sender waits, and nothing is lost."""
    if not expect(
        pushpin=False,
        ours=True,
        pushpin_does="Need not slow down the sender when the receiver does not read.",
        ours_does="Reads no more from the sender while the receiver does not read; every message arrives in the end.",
        because="Memory per connection stays bounded, and nothing is lost.",
    ):
        return
    size = 40_002
    number = (kernel_buffers() + 12_000_000) // size
    with direct(site, f"/{case}") as (client, backend):
        source, target = (backend, client) if sender == "backend" else (client, backend)
        sent = []

        def send() -> None:
            for n in range(number):
                source.binary(b"%06d" % n * (size // 6))
                sent.append(n)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        seen = -1
        while len(sent) != seen:
            seen = len(sent)
            thread.join(0.3)
        assert seen < number
        for n in range(number):
            assert target.message() == (BINARY, b"%06d" % n * (size // 6))
        thread.join()


@covers("1.4 ssl", "8.2 forwarded handshake")
def test_backend_with_tls(site: Site, case: str) -> None:
    accept = Accept(*GRIP_ON)
    site.tls.on(f"/{case}", accept)
    with websocket(site, f"/{case}", "Host: tls.example") as client, accept.socket() as backend:
        client.text("hello")
        assert backend.says("hello")
        backend.text("m:hi")
        assert client.says("hi")
    site.tls.on(f"/{case}-two", [opened(event("TEXT", "m:hi"), headers=GRIP_ON), events()])
    with websocket(site, f"/{case}-two", "Host: tlshttp.example") as client:
        assert client.says("hi")
        client.text("hello")
        assert offered(site.tls.request(f"/{case}-two", 1)) == [("TEXT", b"hello")]


@covers("2.2 xff append", "8.2 forwarded handshake", "8.3 added headers")
def test_forwarded_for(start: Callable[[Setup], Site], case: str) -> None:
    site = start(FORWARDED)
    with direct(site, f"/direct/{case}", "X-Forwarded-For: 10.0.0.1") as (_, backend):
        assert backend.request["X-Forwarded-For"] == "10.0.0.1, 127.0.0.1"
    with over_http(site, f"/{case}", headers=("X-Forwarded-For: 10.0.0.1",)) as talk:
        assert talk.backend.request(talk.path)["X-Forwarded-For"] == expect(
            pushpin="10.0.0.1, 127.0.0.1, 127.0.0.1",
            ours="10.0.0.1, 127.0.0.1",
            pushpin_does="Appends the client's address twice to `X-Forwarded-For` of WebSocket-over-HTTP requests.",
            ours_does="Appends the client's address once to `X-Forwarded-For` of WebSocket-over-HTTP requests.",
            because="There is one proxy on the way.",
        )
