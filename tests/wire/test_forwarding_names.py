"""Header names that a backend cannot tell from others: CGI makes one variable of both (RFC 3875 §4.1.18)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect
from tests.wire.wirekit.events import over_http
from tests.wire.wirekit.messages import Request
from tests.wire.wirekit.websocket import direct

SETUP = Setup(
    routes="* {backend}\nover.test {backend},over_http\n"
    "set.test,header=X-Set:ours,header=X-Gone: {backend}\n"
    "marked.test,orig_headers {backend}\n",
    config={
        "proxy.x_forwarded_for": "append",
        "proxy.set_x_forwarded_protocol": True,
        "proxy.cdn_loop": "cdn",
        "proxy.orig_headers_need_mark": "X-Needs",
    },
)
PLAIN = Setup(config={"proxy.set_x_forwarded_protocol": False})
DROPPED = (
    "Grip_Sig",
    "grip_hold",
    "GRIP_Last",
    "Grip.Feature",
    "X_Forwarded_For",
    "X_Forwarded-For",
    "X-Forwarded_Proto",
    "X_Forwarded_Protocol",
    "Content_Length",
    "Transfer_Encoding",
    "Accept_Encoding",
    "Content_Encoding",
    "Keep_Alive",
    "CDN_Loop",
    "eb9bf0f5_X",
)
"""Alike to what is dropped, or written by the proxy, in each request."""

PASSING = ("X_Plain", "Meta_User", "Connection_Id", "Content_Type", "Sec_WebSocket_Key", "Gripe_X", "Pushpin_Route")


def lines(*names: str) -> list[str]:
    """Return a header line for each name."""
    return [f"{name}: forged" for name in names]


def arrived(asked: Request) -> list[str]:
    """Return the names of the headers that arrived with the client's own value."""
    return [name for name, value in asked.headers if "forged" in value]


@covers("2.2 removed", "2.2 grip removed", "2.2 mark removed")
def test_of_a_request(site: Site, case: str) -> None:
    assert site.get(f"/{case}", *lines(*DROPPED, *PASSING)).status == 200
    assert arrived(site.backend.request(f"/{case}")) == expect(
        pushpin=[*DROPPED, *PASSING],
        ours=list(PASSING),
        pushpin_does="Forwards client headers such as `Grip_Sig`, `X_Forwarded_For` and `Content_Length`.",
        ours_does="Drops a client header whose name differs only in such characters from one that the proxy drops or "
        "sets.",
        because="CGI, WSGI, Rack and PHP map `Grip_Sig` and `Grip-Sig` to one variable (RFC 3875 §4.1.18).",
    )


@covers("2.2 removed")
@pytest.mark.parametrize("letter", "!#$%&'*+.^_`|~")
def test_every_character_that_some_server_makes_an_underscore(site: Site, case: str, letter: str) -> None:
    name = f"Grip{letter}Sig"
    assert site.get(f"/{case}", f"{name}: forged").status == 200
    assert arrived(site.backend.request(f"/{case}")) == expect(
        pushpin=[name],
        ours=[],
        pushpin_does="Forwards client headers such as `Grip.Sig` and `Grip~Sig`.",
        ours_does="Compares header names as if every character but letters and digits were a hyphen, and drops "
        "`Grip.Sig` as it drops `Grip-Sig`.",
        because="Some servers replace each such character with an underscore.",
    )


def test_what_passes_passes_in_both_forms(start: Callable[[Setup], Site], case: str) -> None:
    site = start(PLAIN)
    names = [
        "X-Forwarded-For",
        "X_Forwarded_For",
        "X-Forwarded-Proto",
        "X_Forwarded_Proto",
        "CDN_Loop",
        "Pushpin_Route",
    ]
    assert site.get(f"/{case}", *lines(*names)).status == 200
    assert sorted(arrived(site.backend.request(f"/{case}"))) == sorted(names)


@covers("1.3 header")
def test_alike_to_headers_of_the_route(site: Site, case: str) -> None:
    assert site.get(f"/{case}", "Host: set.test", *lines("X_Set", "x_gone", "X_Other")).status == 200
    asked = site.backend.request(f"/{case}")
    assert asked["X-Set"] == "ours"
    assert arrived(asked) == expect(
        pushpin=["X_Set", "x_gone", "X_Other"],
        ours=["X_Other"],
        pushpin_does="Forwards `X_Set` and `x_gone` of a client on a route with `header=X-Set:…` and `header=X-Gone:`.",
        ours_does="Drops client headers whose names a backend cannot tell from those that the route sets or removes.",
        because="The route alone decides on these headers.",
    )


@covers("1.3 orig_headers")
def test_marks(site: Site, case: str) -> None:
    assert site.get(f"/{case}", "Host: marked.test", *lines("eb9bf0f5_X_Needs", "X_Needs", "X_Plain")).status == 200
    assert arrived(site.backend.request(f"/{case}")) == expect(
        pushpin=[
            "eb9bf0f5_X_Needs",
            "X_Needs",
            "X_Plain",
            "eb9bf0f5-eb9bf0f5_X_Needs",
            "eb9bf0f5-X_Needs",
            "eb9bf0f5-X_Plain",
        ],
        ours=["X_Needs", "X_Plain", "eb9bf0f5_X_Needs", "eb9bf0f5-X_Plain"],
        pushpin_does="Forwards `eb9bf0f5_X_Needs` as an ordinary header and repeats it, as well as `X_Needs`, with the "
        "prefix `eb9bf0f5-`.",
        ours_does="Takes `eb9bf0f5_X_Needs` for a marked header and `X_Needs` for one of `orig_headers_need_mark`: "
        "neither is repeated with the prefix.",
        because="A backend cannot tell these names from the ones with hyphens.",
    )


@covers("8.2 forwarded handshake")
def test_of_a_handshake(site: Site, case: str) -> None:
    forged = lines(*DROPPED, "Sec_WebSocket_Extensions", "Sec_WebSocket_Key", "X_Plain", "Meta_User")
    with direct(site, f"/{case}", *forged) as (_, backend):
        assert arrived(backend.request) == expect(
            pushpin=[line.partition(":")[0] for line in forged],
            ours=["X_Plain", "Meta_User"],
            pushpin_does="Forwards headers such as `Grip_Sig` and `Sec_WebSocket_Key` with a WebSocket handshake.",
            ours_does="Drops them from a WebSocket handshake as from a request.",
            because="A backend cannot tell these names from the ones with hyphens.",
        )


@covers("8.3 removed headers")
def test_of_a_websocket_over_http(site: Site, case: str) -> None:
    own = (
        "Meta_User",
        "meta_a",
        "Connection_Id",
        "Content_Type",
        "Accept_",
        "Content_Bytes_Replayed",
        "Sec_WebSocket_Key",
    )
    with over_http(site, f"/{case}", headers=("Host: over.test", *lines(*DROPPED, *own, "X_Plain"))) as talk:
        talk.client.text("x")
        for asked in (talk.backend.request(f"/{case}"), talk.request()):
            assert arrived(asked) == expect(
                pushpin=[*DROPPED, *own, "X_Plain"],
                ours=["Accept_", "Sec_WebSocket_Key", "X_Plain"],
                pushpin_does="Forwards client headers such as `Meta_User`, `Connection_Id` and `Content_Type` with "
                "WebSocket-over-HTTP requests.",
                ours_does="Drops client headers from WebSocket-over-HTTP requests whose names a backend cannot tell "
                "from those that the proxy sends itself.",
                because="A client must not set the meta or the connection id of its session.",
            )


@covers("bad input trailers")
def test_of_trailers(site: Site, case: str) -> None:
    with site.connect() as client:
        client.send(f"POST /{case} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n")
        client.send("0\r\nGrip_Sig: forged\r\nMeta_User: forged\r\n\r\n")
        assert client.response().status == 200
    assert arrived(site.backend.request(f"/{case}")) == []
