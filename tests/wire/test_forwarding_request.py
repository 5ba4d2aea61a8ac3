"""Requests on their way from the client to the backend (docs/grip.md §2.1, §2.2)."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable

import pytest

from tests.wire.wirekit import Exchange, Setup, Site, chunk, covers, expect, response, self_signed
from tests.wire.wirekit.client import PATIENCE
from tests.wire.wirekit.messages import Request

CERTIFICATE = self_signed("proxy.test")
TLS_CONFIG = {"runner.https_ports": "{port1}"}
TLS_FILES = {
    "runner/certs/default_{port1}.crt": CERTIFICATE.cert,
    "runner/certs/default_{port1}.key": CERTIFICATE.key,
}
TLS_PORTS = ("http", "control", "port1")
SETUP = Setup(config={"proxy.log_from": True, "proxy.log_user_agent": True})
FORWARDED = Setup(
    config={"proxy.x_forwarded_for": "truncate:0,append", "proxy.set_x_forwarded_protocol": True, **TLS_CONFIG},
    files=TLS_FILES,
    wait_for=TLS_PORTS,
)
LAST_ONE = Setup(
    config={
        "proxy.x_forwarded_for": "truncate:1,append",
        "proxy.set_x_forwarded_protocol": False,
        "proxy.cdn_loop": "cdn",
    }
)
PROTO_ONLY = Setup(config=TLS_CONFIG, files=TLS_FILES, wait_for=TLS_PORTS)
Start = Callable[[Setup], Site]


def forwarded(site: Site, case: str, *headers: str) -> Request:
    """Send a GET with these headers and return what the backend received."""
    assert site.get(f"/{case}", *headers).status == 200
    return site.backend.request(f"/{case}")


def anonymous_tls() -> ssl.SSLContext:
    """Return a client context that takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@covers("2.2 removed")
def test_hop_headers_are_removed(site: Site, case: str) -> None:
    asked = forwarded(
        site,
        case,
        "Connection: X-Hop",
        "Keep-Alive: timeout=1",
        "Accept-Encoding: my-own",
        "Content-Encoding: x",
        "Expect: something",
        "X-Kept: 1",
    )
    assert not {"keep-alive", "content-encoding", "expect"} & set(asked.names)
    assert asked["Connection"] in (None, "keep-alive")
    assert "my-own" not in (asked["Accept-Encoding"] or "")
    assert asked["X-Kept"] == "1"


@covers("2.2 hop kept")
def test_headers_named_by_connection_and_the_like_stay(site: Site, case: str) -> None:
    asked = forwarded(
        site, case, "Connection: X-Hop", "X-Hop: 1", "TE: trailers", "Upgrade: foo", "Proxy-Authorization: x"
    )
    assert (asked["X-Hop"], asked["TE"], asked["Upgrade"], asked["Proxy-Authorization"]) == (
        "1",
        "trailers",
        "foo",
        "x",
    )


@covers("2.2 grip removed", "2.2 mark removed")
def test_grip_headers_and_marks_of_clients_are_removed(site: Site, case: str) -> None:
    asked = forwarded(
        site, case, "Grip-Foo: 1", "grip-last: a; last-id=1", "Grip-Sig: zzz", "eb9bf0f5-X: 1", "Gripe: kept"
    )
    assert asked["Gripe"] == "kept"
    assert [name for name in asked.names if name.startswith("grip-")] == ["grip-sig", "grip-feature"]
    assert asked["Grip-Sig"] != "zzz"
    assert asked["eb9bf0f5-X"] is None


@covers("2.2 grip-feature")
def test_grip_feature(site: Site, case: str) -> None:
    assert forwarded(site, case)["Grip-Feature"] == expect(
        pushpin="status, session, link:next, filter:skip-self, filter:skip-users, filter:require-sub, "
        "filter:build-id, filter:var-subst",
        ours="status, link:next, link:gone, filter:skip-self, filter:skip-users, filter:require-sub, "
        "filter:build-id, filter:var-subst, filter:http-check, filter:http-modify, ws:prev-id, ws:more-events",
        pushpin_does="Sends `Grip-Feature` with `session`, and without `link:gone`, `filter:http-check`, "
        "`filter:http-modify`, `ws:prev-id` and `ws:more-events`.",
        ours_does="Sends `Grip-Feature` with `link:gone`, `filter:http-check`, `filter:http-modify`, `ws:prev-id` and "
        "`ws:more-events`, and without `session`.",
        because="These are the features of 1.41, two filters of 2.0 and reliable WebSockets; `session` comes later.",
    )


@covers("2.2 host rewrite", "2.1 methods")
def test_host_and_cookies_pass(site: Site, case: str) -> None:
    asked = forwarded(site, case, "Host: Some.Host:8080", "Cookie: a=b", "Cookie: c=d", "User-Agent: me")
    assert asked.all("Host") == [
        expect(
            pushpin="some.host:8080",
            ours="Some.Host:8080",
            pushpin_does="Forwards `Host` in lower case.",
            ours_does="Forwards `Host` as the client wrote it.",
            because="A backend sees the client's own value.",
        )
    ]
    assert asked.all("Cookie") == ["a=b", "c=d"]
    assert asked["User-Agent"] == "me"


@covers("2.2 removed")
@pytest.mark.parametrize("last", ["7", '10-3;a="b, c"', "grüße \u2603"])
def test_the_id_that_a_browser_saw_last_passes(site: Site, case: str, last: str) -> None:
    """An EventSource that connects again says it, in UTF-8 (HTML, server-sent events)."""
    asked = forwarded(site, case, "Accept: text/event-stream", f"Last-Event-ID: {last}", "Cache-Control: no-cache")
    assert asked.all("Last-Event-ID") == [last]
    assert asked["Accept"] == "text/event-stream"


@covers("2.2 xff default", "1.8 log_from log_user_agent")
def test_forwarded_for_passes_by_default(site: Site, case: str) -> None:
    asked = forwarded(site, case, "X-Forwarded-For: 1.2.3.4, 5.6.7.8", "User-Agent: wire-agent")
    assert asked.all("X-Forwarded-For") == ["1.2.3.4, 5.6.7.8"]
    assert "wire-agent" in site.proxy.wait_log(rf"/{case}\b")


@covers("2.2 xff truncate", "2.2 xff append", "1.8 x_forwarded_for")
def test_forwarded_for_truncated_and_appended(start: Start, case: str) -> None:
    site = start(FORWARDED)
    assert forwarded(site, case, "X-Forwarded-For: 1.2.3.4, 5.6.7.8").all("X-Forwarded-For") == ["127.0.0.1"]
    site = start(LAST_ONE)
    asked = forwarded(site, case, "X-Forwarded-For: 1.1.1.1, 2.2.2.2", "X-Forwarded-For: 3.3.3.3")
    assert asked.all("X-Forwarded-For") == ["3.3.3.3, 127.0.0.1"]


@covers("2.2 cdn-loop", "1.8 cdn_loop")
def test_cdn_loop(start: Start, case: str) -> None:
    asked = forwarded(start(LAST_ONE), case, "CDN-Loop: one", "CDN-Loop: two, three")
    assert asked.all("CDN-Loop") == expect(
        pushpin=["one", "two, three"],
        ours=["one, two, three, cdn"],
        pushpin_does="Ignores `cdn_loop` and forwards `CDN-Loop` lines unchanged.",
        ours_does="Joins `CDN-Loop` lines to one and appends the value of `cdn_loop`.",
        because="`cdn_loop` exists since Pushpin 1.37.",
    )


@covers("2.2 xfp removed", "1.8 set_x_forwarded_protocol")
def test_forwarded_proto_of_clients_is_removed_when_set(start: Start, case: str) -> None:
    headers = ("X-Forwarded-Proto: https", "X-Forwarded-Protocol: https")
    for setup in (SETUP, FORWARDED):
        asked = forwarded(start(setup), case, *headers)
        assert asked["X-Forwarded-Proto"] is None
        assert asked["X-Forwarded-Protocol"] is None
    asked = forwarded(start(LAST_ONE), case, *headers)
    assert asked["X-Forwarded-Proto"] == asked["X-Forwarded-Protocol"] == "https"


@covers("2.2 xfp set", "1.8 set_x_forwarded_protocol", "1.8 https_ports", "2.2 order")
@pytest.mark.parametrize(("setup", "values"), [(PROTO_ONLY, ("https", None)), (FORWARDED, ("https", "https"))])
def test_forwarded_proto_of_tls_clients(
    start: Start, case: str, setup: Setup, values: tuple[str | None, str | None]
) -> None:
    site = start(setup)
    with site.connect("port1", tls=anonymous_tls(), server_name="any.test") as client:
        assert client.ask("GET", f"/{case}", "X-Own: 1").status == 200
    asked = site.backend.request(f"/{case}")
    assert (asked["X-Forwarded-Proto"], asked["X-Forwarded-Protocol"]) == values
    added = [n for n in asked.names if n.startswith(("grip-", "x-"))]
    both = ["x-forwarded-proto", "x-forwarded-protocol"] if values[1] else ["x-forwarded-proto"]
    last = ["x-forwarded-for"] if setup is FORWARDED else []
    assert added == ["x-own", "grip-sig", "grip-feature", *both, *last]


@covers("2.1 check")
def test_check_is_answered_by_the_proxy(site: Site, case: str) -> None:
    answer = site.get(f"/{case}", "Pushpin-Check: 1")
    assert answer.line == "200 OK"
    assert answer["Content-Type"] == "text/plain"
    assert answer.body
    assert site.backend.count(f"/{case}") == 0


@covers("2.1 methods")
@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH", "PROPFIND"])
def test_methods_are_forwarded(site: Site, case: str, method: str) -> None:
    answer = site.ask(method, f"/{case}")
    assert answer.body == b"backend\n"
    assert site.backend.request(f"/{case}").method == method


@covers("2.1 methods")
def test_method_nobody_has_heard_of(site: Site, case: str) -> None:
    assert site.ask("FROBNICATE", f"/{case}").line == expect(
        pushpin="200 OK",
        ours="501 Not Implemented",
        pushpin_does="Forwards a request with an unregistered method (`FROBNICATE`).",
        ours_does="Answers 501 to an unregistered method.",
        because="The parser knows the registered methods only; 501 is the answer of RFC 9110 §9.1.",
    )


@covers("2.1 body known")
def test_known_body_is_sent_with_a_length(site: Site, case: str) -> None:
    site.ask("POST", f"/{case}", body="four")
    asked = site.backend.request(f"/{case}")
    assert asked["Content-Length"] == "4"
    assert asked.body == b"four"


@covers("2.1 body known", "2.2 removed")
def test_short_chunked_body_arrives_whole(site: Site, case: str) -> None:
    body = chunk("one ") + chunk("two") + chunk("")
    site.ask("POST", f"/{case}", "Transfer-Encoding: chunked", body=body)
    asked = site.backend.request(f"/{case}")
    assert asked.body == b"one two"
    assert (asked["Content-Length"], asked["Transfer-Encoding"]) in (("7", None), (None, "chunked"))


@covers("2.1 body streamed")
def test_long_body_is_streamed_while_it_arrives(site: Site, case: str) -> None:
    size = 400_000
    first = threading.Event()

    def count(exchange: Exchange) -> bytes:
        got = len(exchange.read())
        while got < size:
            if got >= 10_000:
                first.set()
            got += len(exchange.read())
        return response("200 OK", body=str(got))

    site.backend.on(f"/{case}", count, early=True)
    with site.connect() as client:
        client.request("POST", f"/{case}", f"Content-Length: {size}")
        client.send(b"x" * 50_000)
        # The backend sees the beginning although the end has not been sent.
        assert first.wait(PATIENCE)
        client.send(b"x" * (size - 50_000))
        assert client.response().body == b"400000"


@covers("2.1 expect")
def test_expect_100_is_answered_by_the_proxy(site: Site, case: str) -> None:
    with site.connect() as client:
        client.request("POST", f"/{case}", "Expect: 100-continue", "Content-Length: 4")
        assert client.head().raw_head == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"four")
        assert client.response().status == 200
    asked = site.backend.request(f"/{case}")
    assert asked.body == b"four"
    assert asked["Expect"] is None


@covers("2.1 http10")
def test_http10_request(site: Site, case: str) -> None:
    site.backend.on(
        f"/{case}", response("200 OK", "Transfer-Encoding: chunked") + chunk("one") + chunk("two") + chunk("")
    )
    with site.connect() as client:
        client.request("GET", f"/{case}", "Host: old.test", version="HTTP/1.0")
        answer = client.response()
    assert answer.version == "HTTP/1.0"
    assert answer["Transfer-Encoding"] is None
    assert answer.body == b"onetwo"
    assert site.backend.request(f"/{case}")["Host"] == "old.test"


@covers("bad input absolute form")
def test_absolute_form_is_routed_by_its_host(site: Site, case: str) -> None:
    with site.connect() as client:
        client.send(f"GET http://absolute.test/{case}?q HTTP/1.1\r\nHost: other.test\r\n\r\n")
        assert client.response().status == 200
    path = expect(
        pushpin=f"//absolute.test/{case}",
        ours=f"/{case}",
        pushpin_does="Takes an absolute request target for a path: `//absolute.test/…`.",
        ours_does="Routes an absolute request target by its host and forwards its path and query.",
        because="RFC 9112 §3.2.2 requires it.",
    )
    asked = site.backend.request(path)
    assert asked.uri.partition("?")[2] == "q"
    assert asked["Host"] == expect(
        pushpin="other.testhttp",
        ours="absolute.test",
        pushpin_does="Forwards a garbled `Host` (`other.testhttp`) for an absolute request target.",
        ours_does="Forwards the host of an absolute request target as `Host`.",
        because="RFC 9112 §3.2.2 requires it.",
    )
