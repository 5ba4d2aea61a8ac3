"""Publishing to WebSockets (docs/grip.md §8.4), and filters there (§7)."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.wire.wirekit import Aborted, Client, Setup, Silence, Site, covers, expect
from tests.wire.wirekit.client import PATIENCE
from tests.wire.wirekit.events import GRIP, Conversation, control, event, events, opened, over_http, subscribe
from tests.wire.wirekit.frames import BINARY, CONTINUATION, PING, PONG, TEXT, Frame
from tests.wire.wirekit.websocket import Accept, Socket, direct, handshake

SETUP = Setup(
    routes="* {backend},over_http\n*,path_beg=/direct {backend}\n*,path_beg=/prefixed,prefix=pre- {backend},over_http\n"
    "*,path_beg=/debug,debug {backend},over_http\n*,path_beg=/implicit {backend},over_http,sub=implied\n"
    "*,path_beg=/two {backend},over_http,sub=implied,sub=implied-two\n*,path_beg=/plain {backend},over_http,sub=plain\n"
)
SLOW = Setup(routes="* {backend}\n", config={"handler.message_rate": None, "proxy.stream_buffer_max": 300_000})


@contextlib.contextmanager
def subscribed(site: Site, path: str, channel: str, *meta: tuple[str, str], **fields: Any) -> Iterator[Conversation]:
    """Open a WebSocket over HTTP that is subscribed to the channel, with meta (name, value) set before."""
    parts = [event("TEXT", control("set-meta", name=name, value=value)) for name, value in meta]
    answer = opened(*parts, subscribe(channel, **fields), headers=(GRIP,))
    prefix = "pre-" if path.startswith("/prefixed") else ""
    with site.publisher.feed() as feed, over_http(site, path, answer) as talk:
        feed.wait_for(f"\x01{prefix}{channel}".encode())
        yield talk


def publish(site: Site, channel: str, message: dict[str, Any], **fields: Any) -> None:
    """Publish a ws-message."""
    site.publisher.publish({"channel": channel, "formats": {"ws-message": message}, **fields})


@covers("8.4 types", "8.4 not prefixed", "8.4 backend not involved")
@pytest.mark.parametrize(
    ("message", "opcode", "content"),
    [
        ({"content": "text \u20ac"}, TEXT, "text \u20ac".encode()),
        ({"content-bin": base64.b64encode(b"\0\xff").decode()}, BINARY, b"\0\xff"),
        ({"content": "b", "type": "binary"}, BINARY, b"b"),
        ({"content-bin": base64.b64encode(b"t").decode(), "type": "text"}, TEXT, b"t"),
        ({"content": "p", "type": "ping"}, PING, b"p"),
        ({"content": "", "type": "ping"}, PING, b""),
        ({"content": "q", "type": "pong"}, PONG, b"q"),
        ({"content": ""}, TEXT, b""),
        ({"content": "m:x"}, TEXT, b"m:x"),
        ({"content": 'c:{"type":"detach"}'}, TEXT, b'c:{"type":"detach"}'),
        ({"content": "x", "action": "send"}, TEXT, b"x"),
    ],
)
def test_types(site: Site, case: str, message: dict[str, str], opcode: int, content: bytes) -> None:
    with subscribed(site, f"/{case}", case) as talk:
        publish(site, case, message)
        got = talk.client.next()
        assert (got.opcode, got.payload) == (opcode, content)
        assert talk.no_more()


@covers("8.4 types", "8.3 ping pong")
def test_the_pong_of_a_published_ping_goes_to_the_backend(site: Site, case: str) -> None:
    with subscribed(site, f"/{case}", case) as talk:
        publish(site, case, {"content": "x", "type": "ping"})
        assert talk.client.next().opcode == PING
        talk.client.pong(b"x")
        assert talk.offer() == [("PONG", b"x")]


@covers("8.4 types")
def test_ping_without_content(site: Site, case: str) -> None:
    with subscribed(site, f"/{case}", case) as talk:
        publish(site, case, {"type": "ping"})
        publish(site, case, {"content": "next"})
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="Sends nothing for a published ping without content.",
            ours_does="Sends an empty ping for a published ping without content.",
            because="A ping needs no payload (RFC 6455 §5.5.2).",
        ):
            got = talk.client.next()
            assert (got.opcode, got.payload) == (PING, b"")
        assert talk.client.says("next")


@covers("8.4 types", "8.4 send")
def test_large_published_message(site: Site, case: str) -> None:
    content = "0123456789abcdef" * 12_500
    with subscribed(site, f"/{case}", case) as talk:
        publish(site, case, {"content": content})
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="Stalls at a published message of 200,000 bytes.",
            ours_does="Delivers a published message of 200,000 bytes.",
            because="RFC 6455 sets no smaller limit.",
        ):
            assert talk.client.message() == (TEXT, content.encode())


@covers("8.4 hint")
def test_hint_is_ignored(site: Site, case: str) -> None:
    with subscribed(site, f"/{case}", case) as talk:
        publish(site, case, {"action": "hint"})
        publish(site, case, {"content": "next"})
        assert talk.client.says("next")
        assert talk.no_more()


@covers("8.4 close", "15 16 ws close")
@pytest.mark.parametrize(
    ("message", "code", "reason"),
    [({"code": 4005, "reason": "rsn"}, 4005, b"rsn"), ({"code": 4005}, 4005, b""), ({}, 1000, b"")],
)
def test_close(site: Site, case: str, message: dict[str, Any], code: int, reason: bytes) -> None:
    with subscribed(site, f"/{case}", case) as talk:
        publish(site, case, {"action": "close", **message})
        assert talk.client.closed() == (code, reason)
        assert talk.offer() == [("CLOSE", None)]
        talk.client.close(code)
        assert talk.client.dropped()


@covers("8.4 close", "15 16 ws close")
def test_close_of_a_direct_websocket(site: Site, case: str) -> None:
    with site.publisher.feed() as feed, direct(site, f"/direct/{case}", answer=(GRIP,)) as (client, backend):
        backend.text(control("subscribe", channel=case))
        feed.wait_for(b"\x01" + case.encode())
        publish(site, case, {"action": "close", "code": 4001, "reason": "x"})
        assert client.closed() == (4001, b"x")
        client.close(4001)
        assert backend.closed() == (None, b"")
        backend.close()
        assert client.dropped()


@covers("8.4 refresh", "8.3 refresh")
def test_published_refresh(site: Site, case: str) -> None:
    with subscribed(site, f"/{case}", case) as talk:
        answer = site.publisher.post(
            "/publish/",
            f'{{"items":[{{"channel":"{case}","formats":{{"ws-message":{{"action":"refresh"}}}}}}]}}',
        )
        assert answer.status == expect(
            pushpin=400,
            ours=200,
            pushpin_does="Returns 400 for the action `refresh` of a ws-message.",
            ours_does="Accepts the action `refresh`: each subscribed WebSocket sends a request to its backend.",
            because="Pushpin knows it from 1.38 on.",
        )
        if answer.status == 200:
            assert talk.request().body == b""


@covers("8.4 mid-message", "15 15 ws dropped")
def test_published_while_a_message_of_the_backend_is_partly_written(site: Site, case: str) -> None:
    with site.publisher.feed() as feed, direct(site, f"/direct/{case}", answer=(GRIP,)) as (client, backend):
        backend.text(control("subscribe", channel=case))
        feed.wait_for(b"\x01" + case.encode())
        backend.frame(TEXT, "m:begin ", fin=False)
        assert client.next().payload == b"begin "
        publish(site, case, {"content": "published"})
        publish(site, case, {"type": "ping", "content": ""})
        # A reply of the command socket comes behind the items that were published before it.
        site.publisher.command("conncheck", {"ids": []})
        assert client.silent(0.1) or client.wire.buffer
        backend.frame(CONTINUATION, "end")
        got: list[Frame] = []
        while not any(frame.payload == b"end" for frame in got):
            got.append(client.next())
        assert [frame.payload for frame in got if frame.opcode in (TEXT, CONTINUATION)] == [b"end"]
        backend.text("m:next")
        rest = [client.message()]
        while rest[-1] != (TEXT, b"next"):
            rest.append(client.message())
        assert [content for opcode, content in rest if opcode == TEXT] == expect(
            pushpin=[b"next"],
            ours=[b"published", b"next"],
            pushpin_does="Drops a message that is published while a fragmented message of the backend is incomplete.",
            ours_does="Delivers a message that is published while a fragmented message of the backend is incomplete "
            "behind it.",
            because="Fragments of two messages must not be mixed (RFC 6455 §5.4).",
        )


@covers("8.4 slow client", "15 15 ws dropped")
def test_client_that_does_not_read(start: Callable[[Setup], Site], case: str) -> None:
    """Pushpin skips single messages unseen; ours keeps all of them up to a bound and then ends the connection."""
    site, accept, total = start(SLOW), Accept(GRIP), 6_000
    site.backend.on(f"/{case}", accept)
    with site.publisher.feed() as feed, Client.connect(site.port, receive_buffer=65536) as wire:
        wire.request("GET", f"/{case}", *handshake())
        assert wire.head().status == 101
        client = Socket(wire, mask=True)
        with accept.socket() as backend:
            backend.text(control("subscribe", channel=case))
            feed.wait_for(b"\x01" + case.encode())
            for n in range(total):
                message = {"content": f"{n:06}" + "x" * 3_000}
                site.publisher.push_item({"channel": case, "formats": {"ws-message": message}})
            site.publisher.push_item({"channel": f"{case}-end", "formats": {"http-stream": {"content": ""}}})
            assert site.publisher.command("recover")[b"success"] is True
            cut_off = expect(
                pushpin=False,
                ours=True,
                pushpin_does="Skips single messages for a client that does not read, without notice.",
                ours_does="Keeps every message for a client that does not read up to `stream_buffer_max`, then closes "
                "the connection and logs `slow client`.",
                because="The client can recover from a closed connection, not from a gap that it cannot see.",
            )
            if cut_off:
                # Not before: a client that reads while items still come is not slow.
                site.proxy.wait_log(r"slow client cut off: client=127\.0\.0\.1")
            numbers = []
            try:
                while True:
                    numbers.append(int(client.message(PATIENCE if cut_off else 1)[1][:6]))
            except Aborted:
                assert cut_off
            except Silence:
                assert not cut_off
            assert len(numbers) < total
            assert numbers == sorted(numbers)
            if cut_off:
                assert numbers == list(range(len(numbers)))


@covers("8.4 same channel twice")
def test_a_second_subscribe_replaces_the_filters(site: Site, case: str) -> None:
    with subscribed(site, f"/{case}", case, ("user", "alice"), filters=["skip-self"]) as talk:
        publish(site, case, {"content": "no"}, meta={"sender": "alice"})
        publish(site, case, {"content": "one"})
        assert talk.client.says("one")
        talk.backend.on(talk.path, events(subscribe(case), subscribe(f"{case}-end")))
        with site.publisher.feed() as feed:
            talk.client.text("x")
            feed.wait_for(f"\x01{case}-end".encode())
        publish(site, case, {"content": "yes"}, meta={"sender": "alice"})
        publish(site, case, {"content": "two"})
        assert talk.client.says("yes")
        assert talk.client.says("two")


@covers("8.4 send", "5.4 1 duplicate")
def test_duplicates_and_order(site: Site, case: str) -> None:
    with subscribed(site, f"/{case}", case) as talk:
        # Together: one that waits for its turn goes out without it after a second.
        items = (("1", "1", "0"), ("3", "3", "2"), ("1 again", "1", "0"), ("2", "2", "1"))
        site.publisher.publish(
            *[
                {"channel": case, "id": id, "prev-id": prev, "formats": {"ws-message": {"content": content}}}
                for content, id, prev in items
            ]
        )
        for content in "123":
            assert talk.client.says(content)


@covers("8.4 send", "8.4 types")
def test_published_over_zeromq(site: Site, case: str) -> None:
    with subscribed(site, f"/{case}", case) as talk:
        site.publisher.push_item({"channel": case, "formats": {"ws-message": {"content": b"\xff\0", "type": "binary"}}})
        assert talk.client.message() == (BINARY, b"\xff\0")
        with site.publisher.feed() as feed:
            feed.wait_for(b"\x01" + case.encode())
            feed.item(case, {"formats": {"ws-message": {"content": "by SUB"}}})
            assert talk.client.says("by SUB")


@covers("8.4 text that is not utf-8")
def test_text_that_is_not_utf_8(site: Site, case: str) -> None:
    bad = base64.b64encode(b"\xff\xfe").decode()
    item = f'{{"channel":"{case}","ws-message":{{"content-bin":"{bad}","type":"text"}}}}'
    with subscribed(site, f"/{case}", case) as talk:
        answer = site.publisher.post("/publish/", f'{{"items":[{item}]}}')
        assert answer.status == expect(
            pushpin=200,
            ours=400,
            pushpin_does="Publishes a text message that is not UTF-8.",
            ours_does="Returns 400 for a text message that is not UTF-8.",
            because="Clients fail the connection for such a text (RFC 6455 §8.1).",
        )
        if answer.status == 200:
            assert talk.client.message() == (TEXT, b"\xff\xfe")
        publish(site, case, {"content": "next"})
        assert talk.client.says("next")


@covers("7 skip-self", "7 skip-users")
def test_delivery_filters(site: Site, case: str) -> None:
    with subscribed(site, f"/{case}", case, ("user", "alice"), filters=["skip-self", "skip-users"]) as talk:
        publish(site, case, {"content": "from alice"}, meta={"sender": "alice"})
        publish(site, case, {"content": "not to alice"}, meta={"skip_users": "bob, alice"})
        publish(site, case, {"content": "yes"}, meta={"sender": "bob", "skip_users": "bob"})
        assert talk.client.says("yes")


@covers("7 require-sub")
def test_require_sub(site: Site, case: str) -> None:
    with subscribed(site, f"/prefixed/{case}", case, filters=["require-sub"]) as talk:
        publish(site, f"pre-{case}", {"content": "other"}, meta={"require_sub": "other"})
        publish(site, f"pre-{case}", {"content": "same"}, meta={"require_sub": case})
        publish(site, f"pre-{case}", {"content": "end"}, meta={"require_sub": ""})
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="The filter `require-sub` drops every item with `require_sub` for WebSockets.",
            ours_does="The filter `require-sub` passes an item to a WebSocket that is subscribed to the channel of "
            "`require_sub`.",
            because="The coming Pushpin 2.0 does so.",
        ):
            assert talk.client.says("same")
        assert talk.client.says("end")


@covers("7 var-subst", "7 build-id")
def test_content_filters(site: Site, case: str) -> None:
    with subscribed(site, f"/{case}", case, ("user", "alice"), filters=["var-subst"]) as talk:
        publish(site, case, {"content": "hello %(user)s 100%%"})
        assert talk.client.says("hello alice 100%")
    with subscribed(site, f"/{case}2", f"{case}2", ("id_format", "x"), filters=["build-id"]) as talk:
        publish(site, f"{case}2", {"content": "id %(own)I"})
        assert talk.client.says("id own")


@covers("7 error effect")
def test_filter_error(site: Site, case: str) -> None:
    with subscribed(site, f"/{case}", case, filters=["var-subst"]) as talk:
        publish(site, case, {"content": "%(nobody)s"})
        publish(site, case, {"content": "next"})
        assert talk.client.says("next")


@covers("7 error effect")
def test_filter_error_with_debug(site: Site, case: str) -> None:
    with subscribed(site, f"/debug/{case}", case, filters=["var-subst"]) as talk:
        publish(site, case, {"content": "%(nobody)s"})
        publish(site, case, {"content": "next"})
        if expect(
            pushpin=True,
            ours=False,
            pushpin_does="In debug mode, skips an item that cannot be filtered for a WebSocket.",
            ours_does="In debug mode, closes a WebSocket with 1011 and the filter error when an item cannot be "
            "filtered for it.",
            because="Pushpin 1.41 does so.",
        ):
            assert talk.client.says("next")
        else:
            code, reason = talk.client.closed()
            assert code == 1011
            assert b"var-subst" in reason


@covers("7 content-filters")
@pytest.mark.parametrize("debug", [False, True])
def test_content_filters_mismatch(site: Site, case: str, debug: bool) -> None:
    path = f"/debug/{case}" if debug else f"/{case}"
    with subscribed(site, path, case, ("user", "alice"), filters=["skip-self", "var-subst"]) as talk:
        publish(site, case, {"content": "%(user)s", "content-filters": ["var-subst"]})
        assert talk.client.says("alice")
        publish(site, case, {"content": "no", "content-filters": ["build-id"]})
        publish(site, case, {"content": "next"})
        if debug and expect(
            pushpin=False,
            ours=True,
            pushpin_does="In debug mode, skips an item whose `content-filters` differ from those of the subscription.",
            ours_does="In debug mode, closes a WebSocket with 1011 for an item whose `content-filters` differ from "
            "those of the subscription.",
            because="Pushpin 1.41 does so.",
        ):
            assert talk.client.closed()[0] == 1011
        else:
            assert talk.client.says("next")


@covers("1.4 sub", "8.5 implicit")
def test_implicit_channels(site: Site, case: str) -> None:
    site.backend.on(f"/two/{case}", [opened(headers=(GRIP,)), events()])
    with site.publisher.feed() as feed, over_http(site, f"/two/{case}") as talk:
        feed.wait_for(b"\x01implied-two")
        publish(site, "implied", {"content": "one"})
        assert talk.client.says("one")
        publish(site, "implied-two", {"content": "two"})
        assert talk.client.says("two")


@covers("1.4 sub", "8.5 implicit")
def test_implicit_channels_without_grip(site: Site, case: str) -> None:
    with site.publisher.feed() as feed, over_http(site, f"/plain/{case}", opened()) as talk:
        feed.wait_for(b"\x01plain")
        publish(site, "plain", {"content": "published"})
        assert talk.client.says("published")
