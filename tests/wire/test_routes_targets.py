"""Where a request goes: targets, their properties, failover (docs/grip.md §1.4, §1.6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.wire.test_reliability_stream import follow_links
from tests.wire.wirekit import CLOSE, Script, Setup, Site, covers, expect, hold, response, self_signed
from tests.wire.wirekit.holding import long_poll

CLIENT = self_signed("client.test")
SETUP = Setup(
    routes="""
* {backend}
over.test {dead} {backend}
over-tls.test {tls},ssl {backend}
none.test {dead} {dead}
final.test {backend} {second}
tls.test {tls},ssl,insecure
tls-strict.test {tls},ssl
backend.test {tls},ssl
connect-host.test {tls},ssl,trust_connect_host
connect-address.test {tlsip},ssl,trust_connect_host
strict-address.test {tlsip},ssl
mtls.test {mtls},ssl,insecure,client_cert={dir}/client.crt,client_key={dir}/client.key
untrusted.test {backend},untrusted
v6.test {backend6}
built-in.test test
built-in.test,path_beg=/below/ test
built-in-bare.test,path_beg=/bare test
""",
    files={
        "client.crt": CLIENT.cert,
        "client.key": CLIENT.key,
        "trusted.pem": self_signed("backend.test").cert + self_signed("127.0.0.1").cert,
    },
    env={"SSL_CERT_FILE": "{dir}/trusted.pem"},
)
STRANGER = Setup(routes="* {tls},ssl\n")
LINKS = Setup(
    routes="untrusted.test {backend},untrusted\ntwo.test {backend} {second}\nthree.test {third}\n* {backend}\n",
    config={"proxy.policy_deny": "", "proxy.sign_foreign_links": False},
)
UNREACHABLE = b"Error while proxying to origin.\n"


@covers("1.4 host:port")
def test_plain_target(site: Site, case: str) -> None:
    assert site.get(f"/{case}").body == b"backend\n"


@covers("1.6 connect failure", "1.6 replay")
def test_next_target_is_used_with_the_same_body(site: Site, case: str) -> None:
    answer = site.ask("POST", f"/{case}", "Host: over.test", body="the body")
    assert answer.body == b"backend\n"
    assert site.backend.request(f"/{case}").body == b"the body"


@covers("1.6 tls failure")
def test_next_target_is_used_when_tls_fails(site: Site, case: str) -> None:
    assert site.get(f"/{case}", "Host: over-tls.test").body == b"backend\n"


@covers("2.6 unreachable")
def test_no_target_left(site: Site) -> None:
    answer = site.get("/", "Host: none.test")
    assert answer.line == "502 Bad Gateway"
    assert answer.lines == ["Content-Type: text/plain", f"Content-Length: {len(UNREACHABLE)}"]
    assert answer.body == UNREACHABLE


@covers("1.6 final")
def test_error_status_of_the_first_target_is_final(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("503 Busy", body="busy"))
    answer = site.get(f"/{case}", "Host: final.test")
    assert answer.line == "503 Busy"
    assert site.second.count(f"/{case}") == 0


@covers("1.6 final", "2.6 bad response")
def test_closed_connection_of_the_first_target_is_final(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", Script(CLOSE))
    answer = site.ask("POST", f"/{case}", "Host: final.test", body="x")
    assert answer.line == "502 Bad Gateway"
    assert answer.body == UNREACHABLE
    assert site.second.count(f"/{case}") == 0


@covers("1.4 ssl", "1.4 insecure")
def test_tls_target_without_certificate_check(site: Site, case: str) -> None:
    assert site.get(f"/{case}", "Host: tls.test").body == b"tls\n"


@covers("1.4 ssl")
def test_tls_target_is_compared_with_the_host_of_the_request(site: Site, case: str) -> None:
    assert site.get(f"/{case}", "Host: tls-strict.test").status == 502
    assert site.get(f"/{case}", "Host: backend.test").body == b"tls\n"


@covers("1.4 ssl")
def test_tls_target_with_unknown_issuer_is_refused(start: Callable[[Setup], Site], case: str) -> None:
    stranger = start(STRANGER)
    assert stranger.get(f"/{case}", "Host: backend.test").status == expect(
        pushpin=200,
        ours=502,
        pushpin_does="Accepts a TLS target's certificate of an unknown issuer if its name is right.",
        ours_does="Answers 502 when a TLS target's certificate has an unknown issuer; `insecure` turns the check off.",
        because="Anyone can issue such a certificate. Pushpin's HTTP client, zurl, compares only the name.",
    )


@covers("1.4 trust_connect_host")
def test_tls_target_is_compared_with_its_own_name(site: Site, case: str) -> None:
    # The first target's certificate is for backend.test only, the second one's for its address.
    assert site.get(f"/{case}", "Host: connect-host.test").status == 502
    assert site.get(f"/{case}", "Host: connect-address.test").body == b"tlsip\n"
    assert site.get(f"/{case}", "Host: strict-address.test").status == 502


@covers("1.4 client_cert")
def test_client_certificate(site: Site, case: str) -> None:
    answer = site.get(f"/{case}", "Host: mtls.test")
    assert answer.body == expect(
        pushpin=UNREACHABLE,
        ours=b"mtls\n",
        pushpin_does="Does not know `client_cert` and `client_key`: a target that requires a client certificate is "
        "unreachable.",
        ours_does="Presents `client_cert` with `client_key` to a TLS target.",
        because="Both come from the coming Pushpin 2.0.",
    )


@covers("1.4 untrusted", "2.6 policy")
def test_untrusted_target_on_loopback_is_blocked(site: Site, case: str) -> None:
    answer = site.get(f"/{case}", "Host: untrusted.test")
    assert answer.body == expect(
        pushpin=b"backend\n",
        ours=UNREACHABLE,
        pushpin_does="Connects to an `untrusted` target on a loopback address if zurl's own configuration allows it, "
        "as in this case.",
        ours_does="Blocks an `untrusted` target on a loopback address by `policy_deny`.",
        because="The access policy is part of gripproxy's configuration.",
    )


@covers("1.4 untrusted", "6.6 signed")
@pytest.mark.parametrize("way", ["page", "stream"])
def test_link_of_an_untrusted_target_is_not_signed(start: Callable[[Setup], Site], case: str, way: str) -> None:
    site = start(LINKS)
    follow_links(site)
    link = f"Grip-Link: <http://{site.second.address}/{case}-2>; rel=next; timeout=0"
    first = response("200 OK", link, body="one ")
    if way == "stream":
        first = hold("stream", f"{case}; prev-id=1", link, body="one ")
    site.backend.on(f"/{case}", first)
    site.second.on(f"/{case}-2", response("200 OK", body="two\n"))
    assert site.get(f"/{case}", "Host: untrusted.test").body == b"one two\n"
    assert site.backend.request(f"/{case}")["grip-sig"] is not None
    signed = expect(
        pushpin=True,
        ours=False,
        pushpin_does="Requests a next link of an `untrusted` target with `Grip-Sig`.",
        ours_does="Requests a next link of an `untrusted` target without `Grip-Sig`.",
        because="The signature would let that target pass for the proxy at other backends.",
    )
    assert (site.second.request(f"/{case}-2")["grip-sig"] is not None) == signed


@covers("6.6 signed")
@pytest.mark.parametrize("where", ["foreign", "target"])
def test_foreign_links_need_not_be_signed(start: Callable[[Setup], Site], case: str, where: str) -> None:
    site = start(LINKS)
    follow_links(site)
    place = site.third if where == "foreign" else site.second
    site.backend.on(
        f"/{case}", response("200 OK", f"Grip-Link: <http://{place.address}/{case}-2>; rel=next", body="one ")
    )
    place.on(f"/{case}-2", response("200 OK", body="two\n"))
    assert site.get(f"/{case}", "Host: two.test").body == b"one two\n"
    signed = expect(
        pushpin=True,
        ours=where == "target",
        pushpin_does="Requests next links of any host with `Grip-Sig`.",
        ours_does="With `sign_foreign_links=false`, sends `Grip-Sig` only with requests for links that lead to a "
        "target of the route.",
        because="A foreign host needs no proof of where a request comes from.",
    )
    assert (place.request(f"/{case}-2")["grip-sig"] is not None) == signed


@covers("1.4 ipv6")
def test_ipv6_target(site: Site, case: str) -> None:
    answer = site.get(f"/{case}", "Host: v6.test")
    assert (answer.status, answer.body) == expect(
        pushpin=(200, b"backend\n"),
        ours=(200, b"backend6\n"),
        pushpin_does="Refuses a routes line with a `[v6]:port` target; the `*` line takes its requests.",
        ours_does="Connects to a `[v6]:port` target.",
        because="IPv6 targets exist since Pushpin 1.41.",
    )


@covers("1.4 test root", "1.4 test")
def test_built_in_target_says_hello(site: Site) -> None:
    answer = site.get("/", "Host: built-in.test")
    assert answer.line == "200 OK"
    assert answer["Content-Type"] == "text/plain"
    assert answer.body == expect(
        pushpin=b"Hello from the Pushpin test handler!\n",
        ours=b"Hello from the gripproxy test handler!\n",
        pushpin_does="The built-in test target answers `Hello from the Pushpin test handler!`.",
        ours_does="The built-in test target answers `Hello from the gripproxy test handler!`.",
        because="Each program names itself.",
    )


@covers("1.4 test stream")
def test_built_in_stream_takes_channels_from_the_query(site: Site, case: str) -> None:
    with site.connect() as client:
        client.request("GET", f"/stream?channel={case}a&channel={case}b", "Host: built-in.test")
        assert client.head().status == 200
        assert client.data_until(b"\n") == b"[stream opened]\n"
        for channel in (f"{case}a", f"{case}b"):
            site.publisher.stream(channel, f"{channel}\n")
            assert client.data_until(b"\n") == f"{channel}\n".encode()
    with site.connect() as client:
        client.request("GET", "/stream", "Host: built-in.test")
        client.head()
        assert client.data_until(b"\n") == b"[stream opened]\n"
        site.publisher.stream("test", "default\n")
        assert client.data_until(b"\n") == b"default\n"


@covers("1.4 test response")
def test_built_in_response_hold(site: Site, case: str) -> None:
    with long_poll(site, f"/response?channel={case}", case, "Host: built-in.test") as client:
        site.publisher.answer(case, "published\n")
        assert client.response().body == b"published\n"


@covers("1.4 test path_beg")
def test_built_in_target_below_a_path(site: Site) -> None:
    assert b"Hello from the" in site.get("/below/", "Host: built-in.test").body
    assert b"Hello from the" in site.get("/bare/", "Host: built-in-bare.test").body
    assert site.get("/bare", "Host: built-in-bare.test").status == 404


@covers("1.4 test 404")
def test_built_in_target_knows_nothing_else(site: Site) -> None:
    answer = site.get("/other", "Host: built-in.test")
    assert answer.line == "404 Not Found"
    assert answer.body == b"no such test resource\n"


@covers("1.4 test body limit")
def test_built_in_target_limits_the_body(site: Site) -> None:
    answer = site.ask("POST", "/", "Host: built-in.test", body=b"x" * 100_001)
    assert answer.status in (400, 413)
    assert site.ask("POST", "/", "Host: built-in.test", body=b"x" * 100_000).status == 200
