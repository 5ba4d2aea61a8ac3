"""WebSocket-over-HTTP: requests, events and responses (docs/grip.md §8.3, §13.9)."""

from __future__ import annotations

import threading

import pytest

from tests.wire.wirekit import Aborted, Script, Setup, Site, covers, expect, response
from tests.wire.wirekit.events import EVENTS, GRIP, control, event, events, opened, over_http, subscribe
from tests.wire.wirekit.frames import BINARY, PING, PONG, TEXT, closing
from tests.wire.wirekit.websocket import KEY, handshake, reject, websocket

SETUP = Setup(
    routes="* {backend},over_http\n*,path_beg=/plain,no_grip {backend},over_http\n"
    "*,path_beg=/rewritten/,path_rem=10,replace_beg=/new/ {backend},over_http\n"
    "*,path_beg=/signed,sig_iss=me,sig_key=secret {backend},over_http\n"
)


@covers("8.3 post", "8.3 removed headers", "8.3 added headers", "8.3 open", "15 14 woh")
def test_open_request(site: Site, case: str) -> None:
    lines = ("Sec-WebSocket-Protocol: p1", "X-C: 1", "Meta-Foo: x", "Grip-Foo: 1", "Connection-Id: zz", "Cookie: a=b")
    more = ("Accept: text/html", "Sec-WebSocket-Extensions: permessage-deflate", "User-Agent: wire")
    with over_http(site, f"/{case}?q=1", headers=(*lines, *more)) as talk:
        asked = talk.backend.request(f"/{case}")
        assert (asked.method, asked.uri, asked.version) == ("POST", f"/{case}?q=1", "HTTP/1.1")
        assert asked.body == b"OPEN\r\n"
        assert asked["Host"] == "wire.example"
        assert asked["Sec-WebSocket-Key"] == KEY
        assert asked["Sec-WebSocket-Version"] == "13"
        assert asked["Sec-WebSocket-Protocol"] == "p1"
        assert asked["X-C"] == "1"
        assert asked["Cookie"] == "a=b"
        assert asked["User-Agent"] == "wire"
        assert asked.all("Sec-WebSocket-Extensions") == ["grip"]
        assert asked.all("Accept") == ["application/websocket-events"]
        assert asked.all("Content-Type") == ["application/websocket-events"]
        assert asked.all("Content-Length") == ["6"]
        assert asked["Connection-Id"] not in (None, "zz")
        for name in ("Upgrade", "Meta-Foo", "Grip-Foo", "Transfer-Encoding"):
            assert asked[name] is None, name


@covers("8.3 post", "8.3 added headers", "8.3 text binary", "8.3 replayed header")
def test_later_requests_are_like_the_first(site: Site, case: str) -> None:
    with over_http(site, f"/{case}?q=1", headers=("X-C: 1",)) as talk:
        first = talk.backend.request(f"/{case}")
        talk.client.text("one")
        asked = talk.request()
        assert (asked.method, asked.uri) == ("POST", f"/{case}?q=1")
        assert asked.body == b"TEXT 3\r\none\r\n"
        differing = {"content-length", "grip-sig", "connection"}
        left = [line for line in first.lines if line.partition(":")[0].lower() not in differing]
        right = [line for line in asked.lines if line.partition(":")[0].lower() not in differing]
        assert sorted(left) == sorted(right)
        assert asked["Content-Bytes-Replayed"] is None


@covers("8.3 added headers", "2.2 grip-feature", "2.3 hs256")
def test_every_request_is_signed(site: Site, case: str) -> None:
    with over_http(site, f"/signed/{case}") as talk:
        talk.client.text("one")
        for asked in (talk.backend.request(f"/signed/{case}"), talk.request()):
            assert asked["Grip-Sig"] is not None
            assert asked["Grip-Feature"] is not None


@covers("8.3 post", "1.3 path_rem", "1.3 replace_beg")
def test_path_is_rewritten(site: Site, case: str) -> None:
    site.backend.on(f"/new/{case}", [opened(), events()])
    with websocket(site, f"/rewritten/{case}?q=1") as client:
        client.text("x")
        for number in (0, 1):
            assert site.backend.request(f"/new/{case}", number).uri == f"/new/{case}?q=1"


@covers("8.3 text binary", "8.3 empty text", "8.3 ping pong")
def test_events_of_the_client(site: Site, case: str) -> None:
    with over_http(site, f"/{case}") as talk:
        for opcode, content, body in (
            (TEXT, b"one", b"TEXT 3\r\none\r\n"),
            (TEXT, "\u20ac".encode(), b"TEXT 3\r\n\xe2\x82\xac\r\n"),
            (TEXT, b"c:{}", b"TEXT 4\r\nc:{}\r\n"),
            (BINARY, b"\r\n\0\xff" * 8, b"BINARY 20\r\n" + b"\r\n\0\xff" * 8 + b"\r\n"),
            (BINARY, b"0123456789abcdef" * 10, b"BINARY a0\r\n" + b"0123456789abcdef" * 10 + b"\r\n"),
            (TEXT, b"", b"TEXT\r\n"),
            (BINARY, b"", b"BINARY\r\n"),
            (PING, b"pp", b"PING 2\r\npp\r\n"),
            (PING, b"", b"PING\r\n"),
            (PONG, b"qq", b"PONG 2\r\nqq\r\n"),
            (PONG, b"", b"PONG\r\n"),
        ):
            talk.client.frame(opcode, content)
            assert talk.request().body == body


@covers("8.3 text binary", "8.3 empty text", "8.3 ping pong", "8.3 unknown events", "8.3 order")
def test_events_of_the_backend(site: Site, case: str) -> None:
    parts = (
        event("TEXT", "one"),
        event("TEXT", "\u20ac"),
        event("BINARY", b"\r\n\0\xff"),
        event("SOMETHING", "else"),
        event("text", "lower"),
        event("NOTHING"),
        event("TEXT", ""),
        event("TEXT"),
        event("BINARY", ""),
        event("PING", "pp"),
        event("PING"),
        event("PONG", "qq"),
        event("PONG"),
        b"TEXT 0A\r\n0123456789\r\n",
        b"TEXT b\r\n0123456789a\r\n",
        event("TEXT", "end"),
    )
    with over_http(site, f"/{case}", opened(), events(*parts)) as talk:
        talk.client.text("go")
        got: list[tuple[int, bytes]] = []
        while not got or got[-1] != (TEXT, b"end"):
            frame = talk.client.next()
            got.append((frame.opcode, frame.payload))
    assert got == [
        (TEXT, b"one"),
        (TEXT, "\u20ac".encode()),
        (BINARY, b"\r\n\0\xff"),
        (TEXT, b""),
        (TEXT, b""),
        (BINARY, b""),
        (PING, b"pp"),
        (PING, b""),
        (PONG, b"qq"),
        (PONG, b""),
        (TEXT, b"0123456789"),
        (TEXT, b"0123456789a"),
        (TEXT, b"end"),
    ]


@covers("8.3 open", "8.3 order")
def test_events_behind_open(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", opened(event("TEXT", "one"), event("BINARY", b"two"))) as talk:
        assert talk.client.message() == (TEXT, b"one")
        assert talk.client.message() == (BINARY, b"two")
        assert talk.no_more()


@covers("8.3 grip extension", "8.2 prefix")
def test_prefix_of_events(site: Site, case: str) -> None:
    answer = opened(event("TEXT", "m:hi"), event("TEXT", "other"), event("BINARY", "m:"), headers=(GRIP,))
    later = events(event("BINARY", "other"), event("TEXT", "m"), event("TEXT", "m:m:x"), event("PING", "p"))
    with over_http(site, f"/{case}", answer, later) as talk:
        assert talk.client.says("hi")
        assert talk.client.message() == (BINARY, b"")
        talk.client.text("m:c:")
        assert talk.offer() == [("TEXT", b"m:c:")]
        assert talk.client.says("m:x")
        assert talk.client.next().opcode == PING


@covers("8.3 grip extension", "8.2 empty prefix")
@pytest.mark.parametrize(("prefix", "text"), [("", "hello"), ("p-", "p-hello")])
def test_own_prefix_of_events(site: Site, case: str, prefix: str, text: str) -> None:
    answer = opened(event("TEXT", text), headers=(f'{GRIP}; message-prefix="{prefix}"',))
    later = events(event("TEXT", "x"), event("TEXT", prefix + "later"))
    with over_http(site, f"/{case}", answer, later) as talk:
        assert talk.client.says("hello")
        talk.client.text("go")
        if not prefix:
            assert talk.client.says("x")
        assert talk.client.says("later")


@covers("8.3 grip extension", "8.2 without the extension")
def test_extension_counts_on_the_open_response_only(site: Site, case: str) -> None:
    later = events(event("TEXT", "x"), event("TEXT", control("detach")), headers=(GRIP,))
    with over_http(site, f"/{case}", opened(event("TEXT", "m:y")), later) as talk:
        assert talk.client.says("m:y")
        talk.client.text("go")
        assert talk.client.says("x")
        assert talk.client.says(control("detach").decode())


@covers("8.2 no_grip", "8.3 added headers")
def test_no_grip(site: Site, case: str) -> None:
    with over_http(site, f"/plain/{case}", opened(event("TEXT", "m:y"), event("TEXT", "x"), headers=(GRIP,))) as talk:
        assert talk.backend.request(f"/plain/{case}")["Sec-WebSocket-Extensions"] is None
        assert talk.client.says("m:y")
        assert talk.client.says("x")


@covers("8.3 open headers")
def test_private_headers_are_not_in_the_101(site: Site, case: str) -> None:
    private = ("Keep-Alive-Interval: 30", "Set-Meta-User: alice", GRIP)
    with over_http(site, f"/{case}", opened(headers=(*private, "X-Extra: 1", "Meta-Other: 2"))) as talk:
        answer = talk.client.response
        assert answer is not None
        known = {"upgrade", "connection", "sec-websocket-accept", "x-extra", "meta-other"}
        assert set(answer.names) == known


@covers("8.3 set-meta")
def test_meta(site: Site, case: str) -> None:
    answers = [
        opened(headers=("Set-Meta-User: alice", "Set-Meta-a: 1", "Set-Meta-Long-Name: b c")),
        events(headers=("Set-Meta-A: ", "Set-Meta-USER: bob")),
        events(),
    ]
    with over_http(site, f"/{case}", *answers) as talk:
        talk.client.text("x")
        asked = talk.request()
        assert asked["Meta-User"] == "alice"
        assert asked["Meta-A"] == "1"
        assert asked["Meta-Long-Name"] == "b c"
        for _ in range(2):
            talk.client.text("x")
            asked = talk.request()
            assert asked.all("Meta-User") == ["bob"]
            assert asked["Meta-A"] is None
            assert asked["Meta-Long-Name"] == "b c"


@covers("8.3 rejection", "8.3 response status")
@pytest.mark.parametrize(
    ("status", "kind"),
    [("403 No Way", "text/plain"), ("200 Fine", "text/plain"), ("503 Later", "application/websocket-events")],
)
def test_rejection(site: Site, case: str, status: str, kind: str) -> None:
    site.backend.on(f"/{case}", response(status, f"Content-Type: {kind}", "X-R: 1", body="no way\n"))
    answer = reject(site, f"/{case}")
    assert answer.line == status
    assert answer["X-R"] == "1"
    assert answer["Content-Type"] == kind
    assert answer.body == b"no way\n"


@covers("8.3 content type")
def test_type_with_parameters_is_another_type(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", f"{EVENTS}; charset=utf-8", body=event("OPEN")))
    answer = reject(site, f"/{case}")
    assert answer.line == "200 OK"
    assert answer.body == b"OPEN\r\n"


@covers("8.3 rejection")
@pytest.mark.parametrize("size", [5_000, 100_000, 100_001])
def test_long_rejection(site: Site, case: str, size: int) -> None:
    site.backend.on(f"/{case}", response("403 No", "Content-Type: text/plain", body=b"x" * size))
    largest = expect(
        pushpin=5_000,
        ours=100_000,
        pushpin_does="Relays a refusal of a WebSocket with a body of 5,000 bytes; with 100,000 bytes the connection is "
        "aborted after the head.",
        ours_does="Relays a refusal of a WebSocket with a body of up to 100,000 bytes; a larger one becomes a 502.",
        because="A truncated response must not reach the client.",
    )
    with site.connect() as client:
        client.request("GET", f"/{case}", *handshake())
        if size <= largest:
            answer = client.response()
            assert (answer.status, answer.body) == (403, b"x" * size)
        elif largest == 100_000:
            assert client.response().line == "502 Bad Gateway"
        else:
            assert client.head().status == 403
            with pytest.raises(Aborted):
                client.rest()


@covers("8.3 open")
@pytest.mark.parametrize(
    "body",
    [b"", event("TEXT", "x"), event("CLOSE"), event("TEXT", "x") + event("OPEN"), b"nonsense"],
    ids=["empty", "text", "close", "text first", "nonsense"],
)
def test_first_event_must_be_open(site: Site, case: str, body: bytes) -> None:
    site.backend.on(f"/{case}", response("200 OK", EVENTS, body=body))
    answer = reject(site, f"/{case}")
    assert answer.line == "502 Bad Gateway"
    assert answer.body == b"Error while proxying to origin.\n"
    assert answer["Content-Type"] is None


@covers("8.3 response size", "10 woh")
def test_response_size(site: Site, case: str) -> None:
    end = event("TEXT", "end")
    good = event("NOTHING", b"x" * (1_000_000 - len(end) - len(b"NOTHING f4222\r\n\r\n"))) + end
    assert len(good) == 1_000_000
    with over_http(site, f"/{case}", opened(), events(good), events(b"NOTHING\r\n", good)) as talk:
        talk.client.text("x")
        assert talk.client.says("end")
        talk.client.text("y")
        assert talk.client.dropped()


@covers("8.3 response size")
def test_open_response_that_is_too_large(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", opened(event("NOTHING", b"x" * 1_000_001)))
    assert reject(site, f"/{case}").line == "502 Bad Gateway"


@covers("8.3 truncated")
@pytest.mark.parametrize("cut", [1, 2, 5], ids=["no line feed", "no end", "no content"])
def test_event_cut_off_by_the_end_of_the_body(site: Site, case: str, cut: int) -> None:
    body = (event("TEXT", "whole") + event("TEXT", "half"))[:-cut]
    with over_http(site, f"/{case}", opened(), events(body), events(event("TEXT", "later"))) as talk:
        talk.client.text("x")
        if expect(
            pushpin=True,
            ours=False,
            pushpin_does="Delivers the events of a response that ends inside an event, the truncated one included.",
            ours_does="Drops the client when a response ends inside an event, and delivers none of its events.",
            because="A truncated message must not pass for a whole one.",
        ):
            assert talk.client.says("whole")
            assert talk.client.message()[1] == b"half"[: 6 - cut]
            talk.client.text("y")
            assert talk.client.says("later")
            return
        assert talk.client.dropped()


@covers("8.3 truncated", "8.3 open")
@pytest.mark.parametrize("cut", [1, 2, 5], ids=["no line feed", "no end", "no content"])
def test_first_answer_that_ends_inside_an_event(site: Site, case: str, cut: int) -> None:
    site.backend.on(f"/{case}", events((event("OPEN") + event("TEXT", "half"))[:-cut]))
    if expect(
        pushpin=True,
        ours=False,
        pushpin_does="Opens the WebSocket when the response to OPEN ends inside an event, and delivers the truncated "
        "event.",
        ours_does="Answers 502 when the response to OPEN ends inside an event.",
        because="A truncated message must not pass for a whole one.",
    ):
        with websocket(site, f"/{case}") as client:
            assert client.message()[1] == b"half"[: 6 - cut]
        return
    assert reject(site, f"/{case}").line == "502 Bad Gateway"


@covers("8.3 malformed", "8.3 failed request")
@pytest.mark.parametrize(
    "body",
    [b"TEXT zz\r\nhello\r\n", b"TEXT 5\nhello\n", b"TEXT 5 5\r\nhello\r\n", b"TEXT 10000000000000000000\r\nhello\r\n"],
    ids=["not hex", "bare line feed", "two lengths", "huge"],
)
def test_malformed_events(site: Site, case: str, body: bytes) -> None:
    with over_http(site, f"/{case}", opened(), events(body)) as talk:
        talk.client.text("x")
        assert talk.client.dropped()


@covers("8.3 malformed")
@pytest.mark.parametrize(
    ("body", "content"),
    [(b"TEXT -1\r\nhello\r\n", "hello\r\n"), (b"TEXT 5\r\nhelloXYTEXT 5\r\nagain\r\n", "hello")],
    ids=["negative", "bad end"],
)
def test_malformed_events_that_pushpin_takes(site: Site, case: str, body: bytes, content: str) -> None:
    with over_http(site, f"/{case}", opened(), events(body)) as talk:
        talk.client.text("x")
        if expect(
            pushpin=True,
            ours=False,
            pushpin_does="Accepts events with a negative length (`TEXT -1`) or without the CR LF behind the content.",
            ours_does="Drops the client when an event is malformed.",
            because="The events behind a malformed one cannot be trusted.",
        ):
            assert talk.client.says(content)
        else:
            assert talk.client.dropped()


@covers("8.3 second open")
def test_second_open(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", opened(), opened(event("TEXT", "x"))) as talk:
        talk.client.text("x")
        assert talk.client.dropped()


@covers("8.3 after close")
def test_events_behind_close_are_ignored(site: Site, case: str) -> None:
    body = (event("TEXT", "before"), event("CLOSE", closing(4001, "end")), event("TEXT", "after"))
    with over_http(site, f"/{case}", opened(), events(*body)) as talk:
        talk.client.text("x")
        assert talk.client.says("before")
        assert talk.client.closed() == (4001, b"end")


@covers("8.3 after close", "8.3 disconnect event")
def test_disconnect_drops_the_client(site: Site, case: str) -> None:
    body = (event("TEXT", "before"), event("DISCONNECT"), event("TEXT", "after"))
    with over_http(site, f"/{case}", opened(), events(*body)) as talk:
        talk.client.text("x")
        assert talk.client.ending() == (1006, b"")
    with over_http(site, f"/{case}-two", opened(event("DISCONNECT"))) as talk:
        assert talk.client.dropped()


@covers("8.3 one request at a time", "8.3 batching")
def test_one_request_at_a_time(site: Site, case: str) -> None:
    go = threading.Event()
    with over_http(site, f"/{case}", opened(), Script(go, events(event("TEXT", "done")))) as talk:
        talk.client.text("one")
        assert talk.offer() == [("TEXT", b"one")]
        talk.client.binary(b"\1\2")
        talk.client.text("two")
        talk.client.ping(b"p")
        talk.client.text("")
        assert not talk.client.wire.buffer
        go.set()
        assert talk.client.says("done")
        got = talk.offer()
        while len(got) < 4:
            got += talk.offer()
        assert got == [("BINARY", b"\1\2"), ("TEXT", b"two"), ("PING", b"p"), ("TEXT", None)]


@covers("8.3 one request at a time")
def test_backend_connection_is_reused(site: Site, case: str) -> None:
    with over_http(site, f"/{case}") as talk:
        talk.client.text("one")
        first = talk.request()
        talk.client.text("two")
        assert talk.request().connection == first.connection


@covers("8.3 unsolicited", "8.4 send")
def test_answer_without_events_and_published_messages(site: Site, case: str) -> None:
    answer = opened(subscribe(case), headers=(GRIP,))
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer) as talk:
        feed.wait_for(b"\x01" + case.encode())
        talk.client.text("x")
        talk.request()
        site.publisher.publish({"channel": case, "ws-message": {"content": "published"}})
        assert talk.client.says("published")
        assert talk.no_more()
