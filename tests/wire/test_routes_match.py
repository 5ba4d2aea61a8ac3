"""Which line of the routes file a request takes (docs/grip.md §1.2, §1.3, §1.5)."""

from __future__ import annotations

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect

SETUP = Setup(
    routes="""
*,header=X-Line:any {backend}
exact.test,header=X-Line:exact {backend}
only.test,path_beg=/here,header=X-Line:here {backend}
proto.test,header=X-Line:no-proto,path_beg=/long/path {backend}
proto.test,proto=http,header=X-Line:http {backend}
proto.test,proto=ws,path_beg=/long/path/longest,header=X-Line:ws {backend}
path.test,header=X-Line:root {backend}
path.test,path_beg=/a,header=X-Line:a {backend}
path.test,path_beg=/a/b,header=X-Line:ab {backend}
path.test,path_beg=/%20,header=X-Line:encoded {backend}
tls.test,path_beg=/tls,header=X-Line:path {backend}
tls.test,ssl=no,header=X-Line:plain {backend}
tls.test,ssl=yes,header=X-Line:tls {backend}
late.test,ssl=no,header=X-Line:plain {backend}
late.test,path_beg=/tls,header=X-Line:path {backend}
secure.test,ssl=yes,header=X-Line:tls {backend}
twice.test,path_beg=/x,header=X-Line:first {backend}
twice.test,path_beg=/x,header=X-Line:second {backend}
ids.test,id=one,header=X-Line:one {backend}
ids.test,id=same,path_beg=/1,header=X-Line:same1 {backend}
ids.test,id=same,path_beg=/2,header=X-Line:same2 {backend}
""",
    config={"proxy.accept_pushpin_route": True, "proxy.accept_x_forwarded_protocol": True},
)


def line_of(site: Site, uri: str, *headers: str) -> str | None:
    """Return the X-Line header that the route of the request adds, or the error text if there is no route."""
    answer = site.get(uri, *headers)
    if answer.status == 502:
        return answer.body.decode()
    path = uri.partition("?")[0]
    return site.backend.request(path, site.backend.count(path) - 1)["X-Line"]


@covers("1.2 any host", "1.2 exact host")
@pytest.mark.parametrize(
    ("host", "line"),
    [
        ("exact.test", "exact"),
        ("EXACT.TEST", "exact"),
        ("exact.test:8080", "exact"),
        ("sub.exact.test", "any"),
        ("other.test", "any"),
        ("127.0.0.1", "any"),
    ],
)
def test_host(site: Site, case: str, host: str, line: str) -> None:
    assert line_of(site, f"/{case}", f"Host: {host}") == line


@covers("1.2 groups exclusive", "15 12 host hides", "2.6 no route")
def test_named_host_never_falls_back_to_any(site: Site, case: str) -> None:
    assert line_of(site, f"/here/{case}", "Host: only.test") == "here"
    assert line_of(site, f"/there/{case}", "Host: only.test") == "No route for host: only.test\n"


@covers("1.5 proto first", "1.3 proto")
def test_proto_beats_a_longer_path(site: Site, case: str) -> None:
    assert line_of(site, f"/long/path/longest/{case}", "Host: proto.test") == "http"


@covers("1.5 longer path", "1.3 path_beg")
def test_longest_path_wins(site: Site, case: str) -> None:
    assert line_of(site, f"/{case}", "Host: path.test") == "root"
    assert line_of(site, f"/a/{case}", "Host: path.test") == "a"
    assert line_of(site, f"/a/b/{case}", "Host: path.test") == "ab"
    assert line_of(site, f"/a{case}", "Host: path.test") == "a"


@covers("1.3 path_beg")
def test_path_is_compared_percent_encoded(site: Site, case: str) -> None:
    assert line_of(site, f"/%20/{case}", "Host: path.test") == "encoded"
    assert line_of(site, f"/+/{case}", "Host: path.test") == "root"


@covers("2.1 methods")
def test_uri_is_forwarded_byte_for_byte(site: Site, case: str) -> None:
    uri = f"/{case}?a=%41%2F%7E&b=%20'\"[]"
    assert site.get(uri, "Host: path.test").status == 200
    assert site.backend.request(f"/{case}").uri == expect(
        pushpin=f"/{case}?a=A%2F~&b=%20'%22[]",
        ours=uri,
        pushpin_does="Rewrites some characters of a request's query: `%41` becomes `A`, `\"` becomes `%22`.",
        ours_does="Forwards the request target byte for byte.",
        because="A signature over the target stays valid.",
    )


@covers("1.5 ssl last", "1.3 ssl")
def test_ssl_replaces_a_longer_path_but_not_the_other_way_round(site: Site, case: str) -> None:
    assert line_of(site, f"/tls/{case}a", "Host: tls.test") == "plain"
    assert line_of(site, f"/tls/{case}b", "Host: late.test") == "path"


@covers("1.3 ssl", "2.2 xfp accepted", "1.8 accept_x_forwarded_protocol")
@pytest.mark.parametrize(
    "header", ["X-Forwarded-Proto: https", "X-Forwarded-Protocol: https", "X-Forwarded-Proto: wss"]
)
def test_trusted_forwarded_proto_counts_as_tls(site: Site, case: str, header: str) -> None:
    assert line_of(site, f"/{case}", "Host: tls.test", header) == "tls"
    assert line_of(site, f"/{case}p", "Host: secure.test") == "No route for host: secure.test\n"
    assert line_of(site, f"/{case}s", "Host: secure.test", header) == "tls"


@covers("1.5 duplicate", "1.5 tie")
def test_second_line_with_the_same_condition_is_skipped(site: Site, case: str) -> None:
    assert line_of(site, f"/x/{case}", "Host: twice.test") == "first"
    site.proxy.wait_log(r"routes:\d+:? .*duplicate")


@covers("2.1 by id", "1.3 id", "1.8 accept_pushpin_route", "2.2 pushpin-route removed")
def test_route_by_id(site: Site, case: str) -> None:
    assert line_of(site, f"/{case}", "Host: other.test", "Pushpin-Route: one") == "one"
    assert site.backend.request(f"/{case}")["Pushpin-Route"] is None
    # No fallback to the host when nothing has this id.
    assert line_of(site, f"/{case}x", "Host: exact.test", "Pushpin-Route: nope") == "No route for host: exact.test\n"


@covers("1.5 same id")
def test_id_of_two_lines_is_unusable(site: Site, case: str) -> None:
    assert line_of(site, f"/1/{case}", "Host: ids.test", "Pushpin-Route: same") == expect(
        pushpin="same1",
        ours="No route for host: ids.test\n",
        pushpin_does="Routes a request with `Pushpin-Route` by its host when two lines share the id.",
        ours_does="Answers `No route for host` to a request with `Pushpin-Route` when two lines share the id.",
        because="The request asked for a route by id, not for that of its host.",
    )
    assert line_of(site, f"/1/{case}", "Host: ids.test") == "same1"


@covers("2.1 no host")
def test_request_without_host_is_for_localhost(site: Site, case: str) -> None:
    with site.connect() as client:
        client.send(f"GET /{case} HTTP/1.0\r\n\r\n")
        assert client.response().status == 200
    asked = site.backend.request(f"/{case}")
    assert asked["X-Line"] == "any"
    assert asked["Host"] == "localhost"
