"""WebSocket-over-HTTP: closing, vanishing, failing, refreshing (docs/grip.md §8.3)."""

from __future__ import annotations

import threading

import pytest

from tests.wire.wirekit import CLOSE, RESET, Backend, Script, Setup, Site, covers, expect, response
from tests.wire.wirekit.events import GRIP, event, events, offered, opened, over_http, subscribe
from tests.wire.wirekit.frames import closing
from tests.wire.wirekit.websocket import handshake, reject, websocket

SETUP = Setup(
    routes="* {backend},over_http\n"
    "mortal.example 127.0.0.1:{port1},over_http\nfresh.example 127.0.0.1:{port2},over_http\n"
)


@covers("8.3 client close", "8.3 close", "15 14 woh")
@pytest.mark.parametrize(("code", "reason"), [(4001, "bye"), (1000, ""), (1001, "\u20ac"), (None, "")])
def test_close_of_the_client(site: Site, case: str, code: int | None, reason: str) -> None:
    content = closing(code, reason) or None
    with over_http(site, f"/{case}", opened(), events(event("CLOSE", content))) as talk:
        talk.client.close(code, reason)
        assert talk.offer() == [("CLOSE", content)]
        assert talk.client.closed() == (code or answer_without_code(), reason.encode())
        assert talk.client.dropped()
        assert talk.no_more()


def answer_without_code() -> int | None:
    """Return the code that a client gets that closed without one."""
    return expect(
        pushpin=1000,
        ours=None,
        pushpin_does="Answers a client's close frame without a code with code 1000.",
        ours_does="Answers a client's close frame without a code with one that has no code either.",
        because="A close frame is answered with the code that it has (RFC 6455 §5.5.1).",
    )


@covers("8.3 client close")
def test_the_backend_answers_a_close_with_another_code(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", opened(), events(event("CLOSE", closing(4002, "mine")))) as talk:
        talk.client.close(4001, "yours")
        assert talk.client.closed() == (4002, b"mine")
        assert talk.client.dropped()


@covers("8.3 client close")
def test_events_before_the_answer_to_a_close(site: Site, case: str) -> None:
    answer = events(event("TEXT", "last words"), event("CLOSE", closing(4001)))
    with over_http(site, f"/{case}", opened(), answer) as talk:
        talk.client.close(4001)
        code = talk.client.ending()
        assert code == (4001, b"")


@covers("8.3 client close", "8.3 batching")
def test_close_behind_messages(site: Site, case: str) -> None:
    go = threading.Event()
    with over_http(site, f"/{case}", opened(), Script(go, events())) as talk:
        talk.client.text("one")
        assert talk.offer() == [("TEXT", b"one")]
        talk.client.text("two")
        talk.client.close(4001)
        go.set()
        got = talk.offer()
        if len(got) == 1:
            got += talk.offer()
        assert got == [("TEXT", b"two"), ("CLOSE", closing(4001))]


@covers("8.3 client close unanswered", "15 14 woh")
def test_close_that_the_backend_does_not_answer(site: Site, case: str) -> None:
    with over_http(site, f"/{case}") as talk:
        talk.client.close(4001)
        assert talk.offer() == [("CLOSE", closing(4001))]
        assert talk.client.dropped()


@covers("8.3 backend close", "8.3 close")
@pytest.mark.parametrize("when", ["open", "later"])
def test_close_of_the_backend(site: Site, case: str, when: str) -> None:
    parting = event("CLOSE", closing(4100, "rea"))
    answers = [opened(parting)] if when == "open" else [opened(), events(parting)]
    with over_http(site, f"/{case}", *answers) as talk:
        if when == "later":
            talk.client.text("x")
            talk.request()
        assert talk.client.closed() == (4100, b"rea")
        talk.client.close(4101, "client")
        assert talk.offer() == [("CLOSE", closing(4101, "client"))]
        assert talk.client.dropped()


@covers("8.3 backend close", "8.3 close")
def test_close_of_the_backend_without_code(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", opened(), events(event("CLOSE"))) as talk:
        talk.client.text("x")
        talk.request()
        assert talk.client.closed() == (
            expect(
                pushpin=1000,
                ours=None,
                pushpin_does="Turns a CLOSE event without a code into a close frame with code 1000.",
                ours_does="Turns a CLOSE event without a code into a close frame without a code.",
                because="The client sees what the backend sent.",
            ),
            b"",
        )
        talk.client.close()
        assert talk.offer() == [("CLOSE", None)]


@covers("8.3 client vanishes", "15 14 woh")
@pytest.mark.parametrize("how", ["reset", "end"])
def test_client_vanishes(site: Site, case: str, how: str) -> None:
    with over_http(site, f"/{case}", opened(headers=("Set-Meta-User: alice",))) as talk:
        if how == "reset":
            talk.client.reset()
        else:
            talk.client.wire.close()
        asked = talk.request()
        assert offered(asked) == [("DISCONNECT", None)]
        assert asked["Connection-Id"] == talk.id
        assert asked["Meta-User"] == "alice"
        assert asked["Content-Type"] == "application/websocket-events"


@covers("8.3 client vanishes")
def test_client_vanishes_during_a_request(site: Site, case: str) -> None:
    go = threading.Event()
    with over_http(site, f"/{case}", opened(), Script(go, events())) as talk:
        talk.client.text("x")
        talk.request()
        talk.client.reset()
        go.set()
        assert talk.offer() == [("DISCONNECT", None)]


@covers("8.3 client vanishes")
def test_answer_to_disconnect_is_ignored(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", opened(), response("500 Oops")) as talk:
        talk.client.reset()
        assert talk.offer() == [("DISCONNECT", None)]
    with over_http(site, f"/{case}-two") as talk:
        talk.client.text("still served")
        assert talk.offer() == [("TEXT", b"still served")]
    assert site.backend.count(f"/{case}") == 2


@covers("8.3 client vanishes")
def test_client_vanishes_before_it_is_accepted(site: Site, case: str) -> None:
    go = threading.Event()
    site.backend.on(f"/{case}", [Script(go, opened()), events()])
    with site.connect() as wire:
        wire.request("GET", f"/{case}", *handshake())
        site.backend.request(f"/{case}")
        wire.reset()
        go.set()
    with over_http(site, f"/{case}-two") as talk:
        talk.client.text("x")
        talk.request()


@covers("8.3 failed request")
@pytest.mark.parametrize(
    "answer",
    [
        response("500 Oops", "Content-Type: application/websocket-events"),
        response("404 No", "Content-Type: text/plain", body="no\n"),
        response("200 OK", "Content-Type: text/plain", body=event("TEXT", "x")),
        response("200 OK", body=event("TEXT", "x")),
        response("200 OK", "Content-Type: application/websocket-events; a=b", body=event("TEXT", "x")),
    ],
    ids=["500", "404", "other type", "no type", "type with parameters"],
)
def test_bad_answer_drops_the_client(site: Site, case: str, answer: bytes) -> None:
    with over_http(site, f"/{case}", opened(), answer) as talk:
        talk.client.text("x")
        assert talk.offer() == [("TEXT", b"x")]
        assert talk.client.dropped()


@covers("8.3 lost request", "connections reuse closed")
def test_request_on_a_kept_connection_that_the_backend_closes(site: Site, case: str) -> None:
    """It may have closed an idle connection just as the request came, so it is asked once more."""
    with over_http(site, f"/{case}", opened(), Script(CLOSE)) as talk:
        talk.client.text("x")
        assert talk.offer() == [("TEXT", b"x")]
        assert talk.offer() == [("TEXT", b"x")]
        talk.client.text("y")
        assert talk.offer() == [("TEXT", b"y")]


@covers("8.3 lost request")
def test_request_on_a_new_connection_that_the_backend_closes(site: Site, case: str) -> None:
    backend = Backend("fresh", port=site.proxy.ports["port2"])
    try:
        # No other case has left a connection to this backend.
        backend.on(f"/{case}", [Script(opened(headers=("Connection: close",)), CLOSE), Script(CLOSE), events()])
        with websocket(site, f"/{case}", "Host: fresh.example") as client:
            client.text("x")
            assert offered(backend.request(f"/{case}", 1)) == [("TEXT", b"x")]
            if expect(
                pushpin=False,
                ours=True,
                pushpin_does="May send events a second time when the backend reads them on a new connection and closes "
                "it without a response.",
                ours_does="Drops the client when the backend reads events on a new connection and closes it without a "
                "response.",
                because="The backend may have acted on the events already.",
            ):
                assert client.dropped()
                assert backend.count(f"/{case}") == 2
    finally:
        backend.stop()


@covers("8.3 lost request")
def test_answer_that_ends_too_early(site: Site, case: str) -> None:
    half = events(event("TEXT", "whole"), event("TEXT", "half"))[:-3]
    with over_http(site, f"/{case}", opened(), Script(half, CLOSE)) as talk:
        talk.client.text("x")
        assert talk.client.ending() == (1006, b"")


@covers("8.3 open fails", "8.6 no target")
@pytest.mark.parametrize("end", [CLOSE, RESET], ids=repr)
def test_open_that_is_not_answered(site: Site, case: str, end: object) -> None:
    site.backend.on(f"/{case}", Script(end))  # type: ignore[arg-type]
    answer = reject(site, f"/{case}")
    assert answer.line == "502 Bad Gateway"
    assert answer.body == b"Error while proxying to origin.\n"
    if expect(
        pushpin=False,
        ours=True,
        pushpin_does="May send an OPEN a second time when the backend closes the connection without a response.",
        ours_does="Sends an OPEN once and answers 502 when the backend closes the connection without a response.",
        because="The backend may have acted on the OPEN already.",
    ):
        assert site.backend.count(f"/{case}") == 1


@covers("8.3 connect retry")
def test_connect_failure_is_retried(site: Site, case: str) -> None:
    port = site.proxy.ports["port1"]
    first = Backend("first", port=port)
    first.on(f"/{case}", opened())
    with websocket(site, f"/{case}", "Host: mortal.example") as client:
        first.stop()
        client.text("one")
        assert client.silent(0.3)
        client.text("two")
        second = Backend("second", port=port)
        try:
            second.on(f"/{case}", events(event("TEXT", "back")))
            got = offered(second.request(f"/{case}"))
            assert client.says("back")
            if len(got) == 1:
                # The first was under way when the second came; on a busy machine they may go together.
                got += offered(second.request(f"/{case}", 1))
                assert client.says("back")
            assert got == [("TEXT", b"one"), ("TEXT", b"two")]
        finally:
            second.stop()


@covers("8.3 refresh", "5.8 refresh")
def test_refresh_by_id(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", opened(), events(event("TEXT", "fresh"))) as talk:
        reply = site.publisher.command("refresh", {"cid": talk.id})
        assert reply[b"success"] is True
        asked = talk.request()
        assert asked.method == "POST"
        assert asked.body == b""
        assert asked["Content-Length"] == "0"
        assert asked["Content-Type"] == "application/websocket-events"
        assert talk.client.says("fresh")


@covers("8.3 refresh", "5.8 refresh")
def test_refresh_by_channel(site: Site, case: str) -> None:
    answer = opened(subscribe(case), headers=(GRIP,))
    with (
        site.publisher.feed() as feed,
        over_http(site, f"/{case}1", answer) as one,
        over_http(site, f"/{case}2", answer) as two,
        over_http(site, f"/{case}3") as other,
    ):
        feed.wait_for(b"\x01" + case.encode())
        # The second one's subscription shows in nothing but its effect.
        while not two.backend.count(f"/{case}2") > 1:
            assert site.publisher.command("refresh", {"channel": case})[b"success"] is True
            threading.Event().wait(0.05)
        assert one.request().body == b""
        assert two.request().body == b""
        assert other.no_more()


@covers("8.3 refresh in flight")
def test_refresh_while_a_request_is_in_flight(site: Site, case: str) -> None:
    go = threading.Event()
    with over_http(site, f"/{case}", opened(), Script(go, events())) as talk:
        talk.client.text("x")
        assert talk.offer() == [("TEXT", b"x")]
        assert site.publisher.command("refresh", {"cid": talk.id})[b"success"] is True
        assert site.publisher.command("conncheck", {"ids": [talk.id]})[b"success"] is True
        go.set()
        assert talk.request().body == b""


@covers("5.8 refresh")
def test_refresh_of_nobody(site: Site) -> None:
    reply = site.publisher.command("refresh", {"cid": "nobody"})
    assert reply[b"success"] is False
    assert reply[b"condition"] == b"item-not-found"


@covers("5.8 conncheck")
def test_conncheck(site: Site, case: str) -> None:
    with over_http(site, f"/{case}") as one:
        with over_http(site, f"/{case}2") as two:
            reply = site.publisher.command("conncheck", {"ids": [one.id, "nobody", two.id]})
            assert sorted(reply[b"value"]) == sorted([one.id.encode(), two.id.encode()])
        assert two.offer() == [("DISCONNECT", None)]
        reply = site.publisher.command("conncheck", {"ids": [one.id, two.id]})
        assert reply[b"value"] == [one.id.encode()]
