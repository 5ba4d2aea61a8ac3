"""Control messages of a backend (docs/grip.md §8.5)."""

from __future__ import annotations

import base64
import time

import pytest

from tests.wire.wirekit import Publisher, Setup, Site, covers, expect
from tests.wire.wirekit.events import GRIP, control, event, events, opened, over_http, subscribe
from tests.wire.wirekit.frames import BINARY, PING, PONG, TEXT
from tests.wire.wirekit.websocket import direct

SETUP = Setup(
    routes="* {backend},over_http\n*,path_beg=/direct {backend}\n*,path_beg=/prefixed,prefix=pre- {backend},over_http\n"
    "*,path_beg=/implicit {backend},over_http,sub=implied\n*,path_beg=/debug,debug {backend},over_http\n"
)
GRIP_ON = (GRIP,)


def publish(publisher: Publisher, channel: str, content: str, **fields: object) -> None:
    """Publish a text to the WebSockets of a channel."""
    publisher.publish({"channel": channel, "formats": {"ws-message": {"content": content}}, **fields})


@covers("8.5 subscribe", "8.4 send", "8.5 not forwarded")
def test_subscribe(site: Site, case: str) -> None:
    answer = opened(subscribe(case), event("TEXT", "m:behind"), headers=GRIP_ON)
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer) as talk:
        assert talk.client.says("behind")
        feed.wait_for(b"\x01" + case.encode())
        publish(site.publisher, case, "published")
        assert talk.client.says("published")
        publish(site.publisher, f"{case}-other", "to others")
        publish(site.publisher, case, "again")
        assert talk.client.says("again")


@covers("8.5 subscribe", "1.3 prefix")
def test_subscribe_on_a_route_with_a_prefix(site: Site, case: str) -> None:
    answer = opened(subscribe(case), headers=GRIP_ON)
    with site.publisher.feed() as feed, over_http(site, f"/prefixed/{case}", answer) as talk:
        feed.wait_for(b"\x01pre-" + case.encode())
        publish(site.publisher, case, "no")
        publish(site.publisher, f"pre-{case}", "yes")
        assert talk.client.says("yes")
        talk.backend.on(talk.path, events(event("TEXT", control("unsubscribe", channel=case))))
        talk.client.text("x")
        feed.wait_for(b"\x00pre-" + case.encode())


@covers("8.5 subscribe limit", "10 channels")
def test_subscriptions_over_the_limit_are_ignored(site: Site, case: str) -> None:
    parts = [subscribe(f"{case}-{n:02}") for n in range(22)]
    with site.publisher.feed() as feed, over_http(site, f"/{case}", opened(*parts, headers=GRIP_ON)) as talk:
        feed.wait_for(f"\x01{case}-19".encode())
        for n in reversed(range(22)):
            publish(site.publisher, f"{case}-{n:02}", str(n))
        for n in reversed(range(20)):
            assert talk.client.says(str(n))


@covers("8.5 filters limit", "7 limit")
def test_more_than_five_filters(site: Site, case: str) -> None:
    filters = ["skip-self", "skip-users", "require-sub", "skip-self", "skip-users", "skip-self"]
    answer = opened(subscribe(case, filters=filters), headers=GRIP_ON)
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer) as talk:
        if expect(
            pushpin=True,
            ours=False,
            pushpin_does="Accepts six filters in a `subscribe`.",
            ours_does="Closes a WebSocket with 1011 when a `subscribe` has more than five filters.",
            because="Pushpin 1.41 has this limit.",
        ):
            feed.wait_for(b"\x01" + case.encode())
            publish(site.publisher, case, "x")
            assert talk.client.says("x")
        else:
            assert talk.client.closed()[0] == 1011


@covers("8.5 filters limit")
def test_five_filters(site: Site, case: str) -> None:
    filters = ["skip-self", "skip-users", "skip-self", "skip-users", "skip-self"]
    answer = opened(subscribe(case, filters=filters), headers=GRIP_ON)
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer) as talk:
        feed.wait_for(b"\x01" + case.encode())
        publish(site.publisher, case, "x")
        assert talk.client.says("x")


@covers("8.5 unsubscribe")
def test_unsubscribe(site: Site, case: str) -> None:
    with (
        site.publisher.feed() as feed,
        over_http(
            site,
            f"/{case}",
            opened(subscribe(case), subscribe(f"{case}-two"), headers=GRIP_ON),
            events(event("TEXT", control("unsubscribe", channel=case))),
        ) as talk,
    ):
        feed.wait_for(f"\x01{case}-two".encode())
        publish(site.publisher, case, "one")
        assert talk.client.says("one")
        talk.client.text("x")
        feed.wait_for(b"\x00" + case.encode())
        publish(site.publisher, case, "no")
        publish(site.publisher, f"{case}-two", "two")
        assert talk.client.says("two")


@covers("8.5 implicit", "1.4 sub")
def test_implicit_subscription_cannot_be_unsubscribed(site: Site, case: str) -> None:
    answer = opened(event("TEXT", control("unsubscribe", channel="implied")), subscribe(case), headers=GRIP_ON)
    with site.publisher.feed() as feed, over_http(site, f"/implicit/{case}", answer) as talk:
        feed.wait_for(b"\x01" + case.encode())
        publish(site.publisher, case, "own")
        assert talk.client.says("own")
        publish(site.publisher, "implied", "still there")
        assert talk.client.says("still there")


@covers("8.5 set-meta", "7 skip-self")
def test_set_meta(site: Site, case: str) -> None:
    answer = opened(
        event("TEXT", control("set-meta", name="user", value="alice")),
        subscribe(case, filters=["skip-self"]),
        headers=GRIP_ON,
    )
    removal = events(event("TEXT", control("set-meta", name="user")), subscribe(f"{case}-two"))
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer, removal) as talk:
        feed.wait_for(b"\x01" + case.encode())
        publish(site.publisher, case, "from alice", meta={"sender": "alice"})
        publish(site.publisher, case, "from bob", meta={"sender": "bob"})
        assert talk.client.says("from bob")
        talk.client.text("x")
        asked = talk.request()
        assert asked["Meta-User"] is None
        feed.wait_for(f"\x01{case}-two".encode())
        publish(site.publisher, case, "from alice again", meta={"sender": "alice"})
        assert talk.client.says("from alice again")


@covers("8.3 set-meta", "7 skip-self")
def test_meta_of_headers_is_not_that_of_control_messages(site: Site, case: str) -> None:
    answer = opened(subscribe(case, filters=["skip-self"]), headers=(GRIP, "Set-Meta-User: alice"))
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer) as talk:
        feed.wait_for(b"\x01" + case.encode())
        publish(site.publisher, case, "from alice", meta={"sender": "alice"})
        assert talk.client.says("from alice")


@covers("8.5 keep-alive idle", "8.5 keep-alive content")
def test_keep_alive_when_idle(site: Site, case: str) -> None:
    begin = control("keep-alive", content="{}", timeout=2)
    start = time.monotonic()
    with over_http(site, f"/{case}", opened(event("TEXT", begin), headers=GRIP_ON)) as talk:
        for number in (1, 2, 3):
            assert talk.client.says("{}")
            # Each comes a second less up to a whole second after the time that was said.
            assert time.monotonic() - start > number * 0.95
        assert talk.no_more()


@covers("8.5 keep-alive modes", "8.5 keep-alive idle")
def test_keep_alive_modes(site: Site, case: str) -> None:
    """A message every 0.4 s keeps an idle keep-alive of 5 s from ever being sent; an interval goes on."""
    subscribed = subscribe(case)
    idle = control("keep-alive", content="idle", timeout=5)
    interval = control("keep-alive", content="interval", timeout=2, mode="interval")
    begin = time.monotonic()
    with (
        site.publisher.feed() as feed,
        over_http(site, f"/{case}-1", opened(subscribed, event("TEXT", idle), headers=GRIP_ON)) as one,
        over_http(site, f"/{case}-2", opened(subscribed, event("TEXT", interval), headers=GRIP_ON)) as two,
    ):
        feed.wait_for(b"\x01" + case.encode())
        publish(site.publisher, case, "both")
        assert one.client.says("both")
        # On a slow machine the interval may be over before.
        assert two.client.message()[1] in (b"both", b"interval")
        came, number = [], 0
        while time.monotonic() < begin + 5.6 or b"interval" not in came:
            number += 1
            publish(site.publisher, case, f"message {number}")
            assert one.client.says(f"message {number}")
            until = time.monotonic() + 0.4
            while (left := until - time.monotonic()) > 0:
                if two.client.wire.buffer or not two.client.silent(left):
                    came.append(two.client.message()[1])
        assert came.count(b"interval") <= (time.monotonic() - begin) / 0.95, came


@covers("8.5 keep-alive content", "8.5 message type")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"content_bin": base64.b64encode(b"\x01\x02").decode(), "message_type": "binary"}, (BINARY, b"\x01\x02")),
        ({"content_bin": base64.b64encode(b"text").decode()}, (TEXT, b"text")),
        ({"content": "p", "message_type": "ping"}, (PING, b"p")),
        ({"content": "p", "message_type": "pong"}, (PONG, b"p")),
    ],
    ids=["binary", "default is text", "ping", "pong"],
)
def test_keep_alive_content(site: Site, case: str, fields: dict[str, str], expected: tuple[int, bytes]) -> None:
    begin = control("keep-alive", timeout=1, **fields)
    with over_http(site, f"/{case}", opened(event("TEXT", begin), headers=GRIP_ON)) as talk:
        got = talk.client.next()
        assert (got.opcode, got.payload) == expected


@covers("8.5 keep-alive off")
@pytest.mark.parametrize("fields", [{}, {"timeout": 1}])
def test_keep_alive_off(site: Site, case: str, fields: dict[str, int]) -> None:
    answer = opened(event("TEXT", control("keep-alive", content="{}", timeout=1)), headers=GRIP_ON)
    off = events(event("TEXT", control("keep-alive", **fields)), event("TEXT", "m:off"))
    with over_http(site, f"/{case}", answer, off) as talk:
        talk.client.text("x")
        while (got := talk.client.message()) != (TEXT, b"off"):
            assert got == (TEXT, b"{}")
        assert talk.client.silent(1.2)


@covers("8.5 send-delayed")
def test_send_delayed(site: Site, case: str) -> None:
    answer = opened(event("TEXT", control("send-delayed", content="later")), event("TEXT", "m:now"), headers=GRIP_ON)
    begin = time.monotonic()
    with over_http(site, f"/{case}", answer) as talk:
        assert talk.client.says("now")
        assert talk.client.says("later")
        assert time.monotonic() - begin > 0.5


@covers("8.5 send-delayed")
def test_a_new_delayed_message_sends_the_pending_one(site: Site, case: str) -> None:
    first = control("send-delayed", content="first", timeout=30)
    second = control("send-delayed", content="second", timeout=30, message_type="binary")
    third = control("send-delayed", content_bin=base64.b64encode(b"third").decode(), timeout=1, message_type="ping")
    parts = [event("TEXT", content) for content in (first, second, third)]
    with over_http(site, f"/{case}", opened(*parts, headers=GRIP_ON)) as talk:
        assert talk.client.says("first")
        assert talk.client.message() == (BINARY, b"second")
        got = talk.client.next()
        assert (got.opcode, got.payload) == (PING, b"third")


@covers("8.5 flush-delayed")
def test_flush_delayed(site: Site, case: str) -> None:
    answer = opened(event("TEXT", control("send-delayed", content="later", timeout=30)), headers=GRIP_ON)
    with over_http(site, f"/{case}", answer, events(event("TEXT", control("flush-delayed")))) as talk:
        assert talk.client.silent(0.1)
        talk.client.text("x")
        assert talk.client.says("later")


def answer_of_a_detached(code: int) -> int:
    """Return the code that a client gets that closes with this one while it is detached."""
    return expect(
        pushpin=1000,
        ours=code,
        pushpin_does="Answers the close frame of a detached client with code 1000.",
        ours_does="Answers the close frame of a detached client with the client's own code.",
        because="RFC 6455 §5.5.1 suggests it.",
    )


@covers("8.5 detach")
def test_detach(site: Site, case: str) -> None:
    answer = opened(subscribe(case), event("TEXT", control("detach")), headers=GRIP_ON)
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer) as talk:
        feed.wait_for(b"\x01" + case.encode())
        assert talk.offer() == [("CLOSE", None)]
        talk.client.text("to nobody")
        publish(site.publisher, case, "published")
        assert talk.client.says("published")
        talk.client.close(4001, "bye")
        assert talk.client.closed()[0] == answer_of_a_detached(4001)
        assert talk.client.dropped()
        assert talk.no_more()


@covers("8.5 detach")
def test_detach_of_a_direct_websocket(site: Site, case: str) -> None:
    with site.publisher.feed() as feed, direct(site, f"/direct/{case}", answer=GRIP_ON) as (client, backend):
        backend.text(control("subscribe", channel=case))
        feed.wait_for(b"\x01" + case.encode())
        backend.text(control("detach"))
        assert backend.closed()[1] == b""
        backend.close()
        backend.done.set()
        client.text("to nobody")
        publish(site.publisher, case, "published")
        assert client.says("published")
        client.close(4001)
        assert client.closed()[0] == answer_of_a_detached(4001)
        assert client.dropped()


@covers("8.5 ignored")
def test_control_messages_that_mean_nothing(site: Site, case: str) -> None:
    odd = [
        b"c:",
        b"c:nonsense",
        b"c:[]",
        b'c:{"type":1}',
        b"c:{}",
        control("unknown"),
        control("subscribe"),
        control("subscribe", channel=""),
        control("subscribe", channel=1),
        control("subscribe", channel=f"{case}-x", filters="skip-self"),
        control("unsubscribe"),
        control("set-meta", value="x"),
        control("set-meta", name=""),
        control("keep-alive", content="x", timeout=0),
        control("keep-alive", content="x", timeout=-1),
        control("keep-alive", content="x", timeout=1, message_type="odd"),
        control("send-delayed", content="x", message_type="odd"),
        control("flush-delayed"),
        control("session"),
    ]
    parts = [event("TEXT", content) for content in odd]
    answer = opened(*parts, event("TEXT", "m:alive"), subscribe(case), headers=GRIP_ON)
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer) as talk:
        assert talk.client.says("alive")
        feed.wait_for(b"\x01" + case.encode())
        publish(site.publisher, case, "published")
        assert talk.client.says("published")
        assert talk.client.silent(1.3)


@covers("8.5 ignored", "bad input ws events")
@pytest.mark.parametrize("kind", ["send-delayed", "keep-alive"])
def test_control_frame_that_is_too_long(site: Site, case: str, kind: str) -> None:
    parts = [event("TEXT", control(kind, content="x" * size, timeout=1, message_type="ping")) for size in (125, 126)]
    with over_http(site, f"/{case}", opened(*parts, headers=GRIP_ON)) as talk:
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="Need not ignore a `send-delayed` or `keep-alive` whose ping exceeds 125 bytes.",
            ours_does="Ignores a `send-delayed` or `keep-alive` whose ping exceeds 125 bytes.",
            because="A longer ping violates RFC 6455 §5.5.",
        ):
            got = talk.client.next()
            assert (got.opcode, got.payload) == (PING, b"x" * 125)


@covers("8.5 order")
def test_a_message_behind_a_subscribe_comes_before_what_is_published(site: Site, case: str) -> None:
    answer = opened(subscribe(case), *(event("TEXT", f"m:{n}") for n in range(10)), headers=GRIP_ON)
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer) as talk:
        feed.wait_for(b"\x01" + case.encode())
        publish(site.publisher, case, "published")
        got = [talk.client.message()[1] for _ in range(11)]
        assert [content for content in got if content != b"published"] == [b"%d" % n for n in range(10)]


@covers("8.5 order", "8.5 subscribe")
def test_what_is_published_after_a_message_behind_the_subscribe_arrives(site: Site, case: str) -> None:
    """The window between subscribe and its effect: nothing behind the control message is sent before it counts."""
    if not expect(
        pushpin=False,
        ours=True,
        pushpin_does="May send a message that follows a `subscribe` before the subscription is in effect.",
        ours_does="Sends a message that follows a `subscribe` only when the subscription is in effect.",
        because="An item published in response to that message would be missed.",
    ):
        return
    for number in range(20):
        answer = opened(subscribe(f"{case}-{number}"), event("TEXT", "m:go"), headers=GRIP_ON)
        with over_http(site, f"/{case}-{number}", answer) as talk:
            assert talk.client.says("go")
            publish(site.publisher, f"{case}-{number}", "published")
            assert talk.client.says("published")
