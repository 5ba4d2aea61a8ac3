"""``Content-Bytes-Accepted`` and ``Content-Bytes-Replayed`` (docs/grip.md §8.3, from 1.41 on; 1.36 ignores them)."""

from __future__ import annotations

import contextlib
import threading

from tests.wire.wirekit import Script, Setup, Site, covers, expect
from tests.wire.wirekit.events import event, events, offered, opened, over_http
from tests.wire.wirekit.frames import closing

SETUP = Setup(routes="* {backend},over_http\n*,path_beg=/one {backend},over_http,one_event\n")


def takes(count: int | str, *parts: bytes) -> bytes:
    """Return a response that accepts so many content bytes."""
    return events(*parts, headers=(f"Content-Bytes-Accepted: {count}",))


def counted() -> bool:
    """Tell whether the proxy obeys Content-Bytes-Accepted."""
    return expect(
        pushpin=False,
        ours=True,
        pushpin_does="Ignores `Content-Bytes-Accepted`.",
        ours_does="Obeys `Content-Bytes-Accepted`: a backend may accept a part of what it is offered, and the rest is "
        "offered again.",
        because="The header exists since Pushpin 1.41.",
    )


@covers("8.3 accepted", "8.3 replayed header")
def test_nothing_accepted(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", opened(), takes(0)) as talk:
        talk.client.text("hello")
        asked = talk.request()
        assert offered(asked) == [("TEXT", b"hello")]
        assert asked["Content-Bytes-Replayed"] is None
        site.publisher.command("conncheck", {"ids": [talk.id]})
        talk.client.binary(b"more")
        asked = talk.request()
        if counted():
            assert offered(asked) == [("TEXT", b"hello"), ("BINARY", b"more")]
            assert asked["Content-Bytes-Replayed"] == "5"
            talk.client.text("last")
            asked = talk.request()
            assert asked["Content-Bytes-Replayed"] is None
            assert offered(asked) == [("TEXT", b"last")]
        else:
            assert offered(asked) == [("BINARY", b"more")]


@covers("8.3 accepted", "8.3 replayed header")
def test_a_part_accepted(site: Site, case: str) -> None:
    go = threading.Event()
    with over_http(site, f"/{case}", opened(), Script(go, events()), takes(6)) as talk:
        talk.client.text("first")
        talk.request()
        talk.client.text("one")
        talk.client.text("two")
        talk.client.text("three")
        site.publisher.command("refresh", {"cid": "nobody"})
        go.set()
        got = talk.offer()
        assert got[0] == ("TEXT", b"one")
        if not counted():
            return
        offered_bytes = sum(len(content or b"") for _, content in got)
        if len(got) < 3:
            # The frames came too late for one request: what is left is offered with the rest.
            return
        assert offered_bytes == 11
        talk.client.text("more")
        asked = talk.request()
        assert offered(asked) == [("TEXT", b"three"), ("TEXT", b"more")]
        assert asked["Content-Bytes-Replayed"] == "5"


@covers("8.3 accepted")
def test_a_part_of_a_message_accepted(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", opened(), takes(2), takes(1), takes("nonsense")) as talk:
        talk.client.text("hello")
        talk.request()
        talk.client.ping(b"p")
        asked = talk.request()
        if not counted():
            return
        assert offered(asked) == [("TEXT", b"llo"), ("PING", b"p")]
        assert asked["Content-Bytes-Replayed"] == "3"
        talk.client.text("x")
        asked = talk.request()
        assert offered(asked) == [("TEXT", b"lo"), ("PING", b"p"), ("TEXT", b"x")]
        assert asked["Content-Bytes-Replayed"] == "3"
        talk.client.text("y")
        assert talk.offer() == [("TEXT", b"y")]


@covers("8.3 accepted", "8.3 refresh")
def test_only_new_data_or_a_refresh_offers_again(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", opened(), takes(0, event("TEXT", "wait"))) as talk:
        talk.client.text("hello")
        talk.request()
        assert talk.client.says("wait")
        assert talk.client.silent(0.2)
        assert talk.no_more()
        site.publisher.command("refresh", {"cid": talk.id})
        asked = talk.request()
        assert offered(asked) == ([("TEXT", b"hello")] if counted() else [])


@covers("8.3 accepted errors")
def test_more_accepted_than_offered(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", opened(), takes(6)) as talk:
        talk.client.text("hello")
        talk.request()
        if counted():
            assert talk.client.dropped()
        else:
            talk.client.text("x")
            talk.request()


@covers("8.3 accepted errors")
def test_nothing_accepted_although_not_everything_fitted(site: Site, case: str) -> None:
    """Five messages of which a request takes two: what the backend waits for can never get in."""
    go = threading.Event()
    answers = (opened(), Script(go, takes(1)), takes(0))
    with over_http(site, f"/{case}", *answers) as talk:
        talk.client.text("x")
        talk.request()

        def send() -> None:
            with contextlib.suppress(ConnectionError):  # it may be dropped before it has sent them all
                for _ in range(5):
                    talk.client.text("y" * 100_000)

        sender = threading.Thread(target=send)
        sender.start()
        go.set()
        if counted():
            talk.backend.on(talk.path, takes(0))
            assert talk.client.dropped()
        sender.join()


@covers("8.3 accepted")
def test_a_backend_that_wants_more_than_a_window(site: Site, case: str) -> None:
    go = threading.Event()
    with over_http(site, f"/{case}", opened(), Script(go, takes(1)), takes(1), takes(1)) as talk:
        talk.client.text("x")
        talk.request()
        if not counted():
            return
        for _ in range(2):
            talk.client.text("y" * 100_000)
        # The answer comes when the proxy has stopped reading, or soon will.
        go.set()
        got = talk.offer()
        assert got[0] == ("TEXT", b"y" * 100_000)
        talk.client.text("z")
        asked = talk.request()
        assert offered(asked)[0] == ("TEXT", b"y" * 99_999)


@covers("8.3 accepted errors")
def test_close_accepted_in_part(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", opened(), takes(1, event("CLOSE", closing(4001)))) as talk:
        talk.client.close(4001)
        assert talk.offer() == [("CLOSE", closing(4001))]
        if counted():
            assert talk.client.dropped()
        else:
            assert talk.client.closed() == (4001, b"")


@covers("8.3 accepted")
def test_one_event_and_accepted(site: Site, case: str) -> None:
    with over_http(site, f"/one{case}", opened(), takes(2)) as talk:
        talk.client.text("hello")
        assert talk.offer() == [("TEXT", b"hello")]
        talk.client.text("x")
        asked = talk.request()
        if counted():
            assert offered(asked) == [("TEXT", b"llo")]
            assert asked["Content-Bytes-Replayed"] == "3"
            assert talk.offer() == [("TEXT", b"x")]
        else:
            assert offered(asked) == [("TEXT", b"x")]
