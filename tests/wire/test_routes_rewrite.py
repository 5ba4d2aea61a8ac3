"""What a route does to a request and to channel names (docs/grip.md §1.3)."""

from __future__ import annotations

import json

import jwt

from tests.wire.test_reliability_stream import follow_links
from tests.wire.wirekit import Setup, Site, covers, expect, hold, response

SETUP = Setup(
    routes="""
* {backend}
as-host.test,as_host=inner.test {backend}
as-host-port.test,as_host=inner.test:8080 {backend}
target-host.test,as_host=inner.test {backend},host=target.test
path-rem.test,path_rem=3 {backend}
replace.test,path_beg=/old,replace_beg=/new {backend}
replace.test,path_beg=/gone,replace_beg= {backend}
replace.test,path_beg=/longer/,replace_beg=/ {backend}
header.test,header=X-A:one,header=x-b:,header="X-C:  left, trimmed " {backend}
plain.test,no_grip {backend}
prefix.test,prefix=pre- {backend}
sub.test {backend},sub=sub-one,sub=sub-two
prefixed-sub.test,prefix=pre- {backend},sub=bare
marked.test,orig_headers {backend}
signed.test,sig_iss=issuer,sig_key=another-key-that-is-long-enough-for-everybody {backend}
key-only.test,sig_key=another-key-that-is-long-enough-for-everybody {backend}
iss-only.test,sig_iss=issuer {backend}
events.test {backend},over_http
""",
    config={"proxy.orig_headers_need_mark": "X-Need", "proxy.sig_key": "the-key-that-the-backend-knows-too"},
)
BOTH = {"http-stream": {"content": "x"}, "http-response": {"body": "x"}}


@covers("1.3 as_host", "2.2 host rewrite")
def test_as_host(site: Site, case: str) -> None:
    site.get(f"/{case}a", "Host: as-host.test")
    site.get(f"/{case}b", "Host: as-host-port.test")
    assert site.backend.request(f"/{case}a").all("Host") == ["inner.test"]
    assert site.backend.request(f"/{case}b").all("Host") == ["inner.test:8080"]


@covers("1.4 host")
def test_host_of_the_target_wins(site: Site, case: str) -> None:
    site.get(f"/{case}", "Host: target-host.test")
    assert site.backend.request(f"/{case}").all("Host") == ["target.test"]


@covers("1.3 path_rem")
def test_path_rem(site: Site, case: str) -> None:
    site.get(f"/ab/{case}?q=%20", "Host: path-rem.test")
    assert site.backend.request(f"/{case}").uri == f"/{case}?q=%20"


@covers("1.3 replace_beg")
def test_replace_beg(site: Site, case: str) -> None:
    site.get(f"/old/{case}?q=1", "Host: replace.test")
    site.get(f"/gone/{case}", "Host: replace.test")
    assert site.backend.request(f"/new/{case}").uri == f"/new/{case}?q=1"
    assert site.backend.request(f"/{case}").uri == f"/{case}"


@covers("1.3 replace_beg", "6.6 fetch")
def test_a_relative_link_behind_replace_beg(site: Site, case: str) -> None:
    follow_links(site)
    site.backend.on(f"/{case}/first", response("200 OK", "Grip-Link: <next>; rel=next", body="one "))
    path = expect(
        pushpin=f"/{case}/next"[len("/longer/") :],
        ours=f"{case}/next",
        pushpin_does="Resolves a link against the rewritten URI, and cuts off as many bytes as `path_beg` has, "
        "whatever they are, before it puts `replace_beg` in front: it is another path unless both are of one length.",
        ours_does="Resolves a link against the URI of the client, and rewrites it as that was.",
        because="A backend that links to itself need not know the path of its route.",
    )
    site.backend.on(f"/{path}", response("200 OK", body="two"))
    with site.connect() as client:
        client.request("GET", f"/longer/{case}/first", "Host: replace.test")
        assert client.head().line == "200 OK"
        assert client.rest() == b"one two"


@covers("1.3 header")
def test_header_replaces_adds_and_removes(site: Site, case: str) -> None:
    site.get(f"/{case}", "Host: header.test", "x-a: client", "X-B: client", "X-C: client", "X-D: client")
    asked = site.backend.request(f"/{case}")
    assert asked.all("X-A") == ["one"]
    assert asked.all("X-B") == []
    assert asked.all("X-C") == ["left, trimmed"]
    assert asked.all("X-D") == ["client"]


@covers("1.3 no_grip", "2.5 grip by header")
def test_no_grip_passes_everything_untouched(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", "Grip-Hold: stream", "Grip-Channel: x", body="plain"))
    answer = site.get(f"/{case}", "Host: plain.test")
    assert answer.lines == ["Grip-Hold: stream", "Grip-Channel: x", "Content-Length: 5"]
    assert answer.body == b"plain"
    asked = site.backend.request(f"/{case}")
    assert asked["Grip-Sig"] is None
    assert asked["Grip-Feature"] is None


@covers("1.3 prefix", "3.5 names")
def test_prefix_is_put_before_channel_names(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, body="[open]"))
    with site.connect() as client:
        client.request("GET", f"/{case}", "Host: prefix.test")
        client.head()
        assert client.data(6) == b"[open]"
        site.publisher.stream(case, "[without prefix]")
        site.publisher.stream(f"pre-{case}", "[with prefix]")
        assert client.data(1) == b"[with prefix]"


@covers("1.4 sub")
def test_implicit_subscriptions_are_added_without_prefix(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, body="[open]"))
    for host, channels in (("sub.test", [case, "sub-one", "sub-two"]), ("prefixed-sub.test", [f"pre-{case}", "bare"])):
        with site.connect() as client:
            client.request("GET", f"/{case}", f"Host: {host}")
            client.head()
            assert client.data(6) == b"[open]"
            for channel in channels:
                site.publisher.stream(channel, f"[{channel}]")
                assert client.data(1) == f"[{channel}]".encode()


@covers("1.3 orig_headers", "2.2 orig_headers", "1.8 orig_headers_need_mark", "2.2 order")
def test_orig_headers_are_repeated_with_the_mark(site: Site, case: str) -> None:
    site.get(f"/{case}", "Host: marked.test", "X-A: 1", "eb9bf0f5-X-Need: marked", "X-Need: bare")
    asked = site.backend.request(f"/{case}")
    assert asked.all("X-A") == ["1"]
    assert asked.all("eb9bf0f5-X-A") == ["1"]
    assert asked.all("X-Need") == ["bare"]
    assert asked.all("eb9bf0f5-X-Need") == ["marked"]
    assert asked.all("eb9bf0f5-Host") == ["marked.test"]
    names = asked.names
    copies = [i for i, name in enumerate(names) if name.startswith("eb9bf0f5-")]
    assert copies[0] > names.index("x-need")
    assert copies[-1] < names.index("grip-sig") < names.index("grip-feature")


def issued(site: Site, case: str, host: str) -> tuple[str, bool]:
    """Return the issuer of the backend's Grip-Sig, and whether it is signed with the route's key."""
    site.get(f"/{case}", f"Host: {host}")
    token = site.backend.request(f"/{case}")["Grip-Sig"] or ""
    claims = jwt.decode(token, options={"verify_signature": False})
    try:
        jwt.decode(token, "another-key-that-is-long-enough-for-everybody", algorithms=["HS256"])
    except jwt.InvalidSignatureError:
        return claims["iss"], False
    return claims["iss"], True


@covers("1.3 sig_iss sig_key")
def test_route_has_its_own_signing_settings(site: Site, case: str) -> None:
    assert issued(site, case + "a", "signed.test") == ("issuer", True)
    assert issued(site, case + "b", "key-only.test") == expect(
        pushpin=("pushpin", False),
        ours=("pushpin", True),
        pushpin_does="Ignores `sig_key` of a route without `sig_iss`.",
        ours_does="Signs with the `sig_key` of a route that has no `sig_iss`.",
        because="They are independent since Pushpin 1.38.",
    )
    assert issued(site, case + "c", "iss-only.test") == expect(
        pushpin=("pushpin", False),
        ours=("issuer", False),
        pushpin_does="Ignores `sig_iss` of a route without `sig_key`.",
        ours_does="Uses the `sig_iss` of a route that has no `sig_key`.",
        because="They are independent since Pushpin 1.38.",
    )


@covers("1.4 over_http", "2.6 403")
def test_clients_may_not_post_websocket_events(site: Site, case: str) -> None:
    answer = site.ask(
        "POST", f"/{case}", "Host: events.test", "Content-Type: application/websocket-events", body="OPEN\r\n"
    )
    assert answer.line == "403 Forbidden"
    assert answer["Content-Type"] == "text/plain"
    assert answer.body == b"Client not allowed to send WebSocket events directly.\n"
    assert site.backend.count(f"/{case}") == 0
    # Other types pass, and other targets do not care.
    assert site.ask("POST", f"/{case}", "Host: events.test", "Content-Type: a/b", body=json.dumps({})).status == 200
    free = site.ask("POST", f"/{case}", "Content-Type: application/websocket-events", body="OPEN\r\n")
    assert free.status == 200
