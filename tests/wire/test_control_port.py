"""The HTTP control port (docs/grip.md §5.5)."""

from __future__ import annotations

import contextlib
import json

import pytest

from tests.wire.wirekit import Client, Publisher, Response, Setup, Site, covers, expect, hold, request
from tests.wire.wirekit.holding import stream

SETUP = Setup()

NOTHING = '{"items":[]}'


def sent(site: Site, data: bytes | str) -> Response:
    """Send bytes to the control port and return the answer."""
    with Client.connect(site.publisher.control) as client:
        client.send(data)
        return client.response()


@covers("5.5 root")
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_root(publisher: Publisher, method: str) -> None:
    reply = publisher.post("/", "x" if method == "POST" else "", method=method)
    assert reply.line == "200 OK"
    assert reply["content-type"] == "text/plain"
    assert reply.body == b"Pushpin API\n"


@covers("5.5 publish", "5.5 all or nothing")
@pytest.mark.parametrize("path", ["/publish", "/publish/"])
def test_publish(publisher: Publisher, path: str) -> None:
    reply = publisher.post(path, NOTHING)
    assert reply.line == "200 OK"
    assert reply["content-type"] == "text/plain"
    assert reply.body == b"Published\n"


@covers("5.5 publish")
def test_several_items_reach_their_channels_in_order(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"{case}, {case}-b"))
    with stream(site, f"/{case}") as client:
        items = [
            {"channel": c, "http-stream": {"content": t}} for c, t in ((case, "1"), (f"{case}-b", "2"), (case, "3"))
        ]
        site.publisher.publish(*items)
        assert client.data(3) == b"123"


@covers("5.5 all or nothing")
def test_one_bad_item_and_nothing_is_published(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        items = [{"channel": case, "http-stream": {"content": "good\n"}}, {}]
        reply = site.publisher.post("/publish/", json.dumps({"items": items}))
        place = expect(
            pushpin="",
            ours="items[1]: ",
            pushpin_does="Does not say which item of a batch is wrong.",
            ours_does="Names the index of the wrong item in a batch.",
            because="The publisher finds it at once. `publish_strict=false` leaves it out.",
        )
        body = f"Invalid format: {place}publish item object does not contain 'channel'\n"
        assert reply.body.decode() == body
        site.publisher.stream(case, "later\n")
        assert client.chunk() == b"later\n"


@covers("5.5 recover")
@pytest.mark.parametrize("path", ["/recover", "/recover/"])
def test_recover(publisher: Publisher, path: str) -> None:
    reply = publisher.post(path, "any body")
    assert reply.line == "200 OK"
    assert reply.body == b"Updated\n"
    reply = publisher.post(path, "", "Accept: application/json", "Content-Length: 0")
    assert reply["content-type"] == "application/json"
    assert reply.body == b'{"message":"Updated"}\n'


TEXT, JSON, NEITHER = "text/plain", "application/json", None


@covers("5.5 accept", "5.5 accept none", "15 11 control port")
@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ([], TEXT),
        (["text/plain"], TEXT),
        (["text/*"], TEXT),
        (["*/*"], TEXT),
        (["*"], TEXT),
        (["application/json"], JSON),
        (["application/*"], JSON),
        (["text/plain, application/json"], JSON),
        (["application/json, text/plain"], TEXT),
        (["application/json;q=0.5, text/html"], JSON),
        (["application/json", "text/html"], JSON),
        (["application/json", "text/plain"], TEXT),
        (["text/html"], NEITHER),
        (["TEXT/PLAIN"], NEITHER),
        ([" "], NEITHER),
    ],
    ids=str,
)
def test_accept(publisher: Publisher, accept: list[str], kind: str | None) -> None:
    reply = publisher.post("/publish/", NOTHING, *[f"Accept: {value}" for value in accept])
    if kind is None:
        assert reply.line == "406 Not Acceptable"
        assert reply["content-type"] == "text/plain"
        assert reply.body == b"Not Acceptable. Supported formats are text/plain and application/json.\n"
    else:
        assert reply.line == "200 OK"
        assert reply["content-type"] == kind
        assert reply.body == (b"Published\n" if kind == TEXT else b'{"message":"Published"}\n')


@covers("5.5 accept", "15 11 control port")
def test_accept_comes_first_and_errors_are_text(publisher: Publisher) -> None:
    assert publisher.post("/nowhere", "", "Accept: text/html", method="GET").status == 406
    assert publisher.post("/publish/", "{", "Accept: text/html").status == 406
    reply = publisher.post("/publish/", "{", "Accept: application/json")
    assert reply["content-type"] == "text/plain"
    assert reply.body == b"Body is not valid JSON.\n"


@covers("5.5 405")
@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/publish", "/publish/", "/recover"])
def test_other_methods(publisher: Publisher, path: str, method: str) -> None:
    reply = publisher.post(path, "", method=method)
    assert reply.line == "405 Method Not Allowed"
    assert reply["allow"] == "POST"
    assert reply.body.decode() == f"Method not allowed: {method}.\n"


@covers("5.5 404", "15 11 control port")
@pytest.mark.parametrize("path", ["/nowhere", "/publish?x=1", "/publish//", "/?x=1", "/publish/x"])
def test_other_paths(publisher: Publisher, path: str) -> None:
    reply = publisher.post(path, NOTHING)
    assert reply.line == "404 Not Found"
    assert reply["content-type"] == "text/plain"
    assert reply.body == b"Not Found\n"


@covers("5.5 bad json", "5.5 not object", "5.5 items")
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("{", "Body is not valid JSON."),
        ("1", "Body is not valid JSON."),
        ('"text"', "Body is not valid JSON."),
        ("[]", "Invalid format."),
        ("{}", "Invalid format: object does not contain 'items'"),
        ('{"items":1}', "Invalid format: object contains 'items' with wrong type"),
        ('{"items":{}}', "Invalid format: object contains 'items' with wrong type"),
        ('{"items":[1]}', "Invalid format: publish item object is not an object"),
    ],
)
def test_bad_bodies(publisher: Publisher, body: str, text: str) -> None:
    reply = publisher.post("/publish/", body)
    assert reply.line == "400 Bad Request"
    assert reply.body.decode() == f"{text}\n"


@covers("5.5 411")
@pytest.mark.parametrize(
    "head",
    [
        "POST /publish HTTP/1.1\r\nHost: c\r\n\r\n",
        "PUT /nowhere HTTP/1.1\r\nHost: c\r\n\r\n",
        "GET /publish HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_length_is_required(site: Site, head: str) -> None:
    answer = sent(site, head)
    assert answer.line == "411 Length Required"
    assert answer.body == b"Request requires Content-Length.\n"


@covers("5.5 bad length", "10 control http")
@pytest.mark.parametrize(
    ("length", "body", "text"),
    [
        ("abc", "", "Bad Content-Length."),
        ("1000001", "", "Request body too large."),
        ("12", NOTHING + "xx", "Request body exceeded Content-Length."),
    ],
)
def test_bad_lengths(site: Site, length: str, body: str, text: str) -> None:
    answer = sent(site, f"POST /publish HTTP/1.1\r\nHost: c\r\nContent-Length: {length}\r\n\r\n{body}")
    assert answer.line == "400 Bad Request"
    assert answer.body.decode() == f"{text}\n"


@covers("10 control http")
def test_the_largest_body(publisher: Publisher) -> None:
    body = NOTHING + " " * (1_000_000 - len(NOTHING))
    assert publisher.post("/publish/", body).body == b"Published\n"


@covers("5.5 bad head", "10 control http")
def test_a_head_too_large(site: Site) -> None:
    answer = sent(site, request("GET", "/", "X-A: " + "a" * 10_100))
    assert answer.line == "400 Bad Request"
    assert answer.body == b"Request header too large.\n"


@covers("10 control http")
def test_a_head_just_small_enough(publisher: Publisher) -> None:
    assert publisher.post("/", "", "X-A: " + "a" * 9_800, method="GET").status == 200


@covers("5.5 bad head")
@pytest.mark.parametrize("data", [b"garbage\r\n\r\n", b"\0\xff\r\n\r\n"])
def test_an_unreadable_head(site: Site, data: bytes) -> None:
    answer = sent(site, data)
    assert answer.line == "400 Bad Request"
    assert answer.body == b"Failed to parse request header.\n"


@covers("5.5 expect")
def test_expect_continue(site: Site) -> None:
    with Client.connect(site.publisher.control) as client:
        client.send("POST /publish HTTP/1.1\r\nHost: c\r\nExpect: 100-continue\r\nContent-Length: 12\r\n\r\n")
        assert client.head().line == "100 Continue"
        client.send(NOTHING)
        assert client.response().body == b"Published\n"


@covers("5.5 publish")
def test_http_1_0(site: Site) -> None:
    answer = sent(site, f"POST /publish HTTP/1.0\r\nContent-Length: 12\r\n\r\n{NOTHING}")
    assert (answer.version, answer.line) == ("HTTP/1.0", "200 OK")
    assert answer.body == b"Published\n"


@covers("5.5 header order")
def test_order_of_the_headers(publisher: Publisher) -> None:
    names = publisher.post("/publish", "", method="GET").names
    expected = expect(
        pushpin=["allow", "content-type", "connection", "content-length"],
        ours=["allow", "content-type", "content-length"],
        pushpin_does="Sends `Connection: close` with a response of the control port.",
        ours_does="Sends no `Connection` header with a response of the control port, unless the connection ends with "
        "it.",
        because="A connection to the control port serves many requests.",
    )
    assert names == expected


@covers("5.5 publish")
def test_many_requests_on_one_connection(site: Site) -> None:
    with Client.connect(site.publisher.control) as client:
        first = client.ask("POST", "/publish", body=NOTHING)
        assert first.body == b"Published\n"
        more = expect(
            pushpin=False,
            ours=True,
            pushpin_does="Closes a connection to the control port after one request.",
            ours_does="Serves requests on a connection to the control port until the client sends `Connection: close`.",
            because="Publishers need no new connection for each request.",
        )
        if more:
            assert client.ask("POST", "/publish/", body=NOTHING).body == b"Published\n"
            assert client.ask("GET", "/nowhere").status == 404
            last = client.ask("POST", "/publish/", "Connection: close", body=NOTHING)
            assert last["connection"] == "close"
        else:
            assert first["connection"] == "close"
        assert client.until_close() == b""


@covers("5.5 publish")
@pytest.mark.parametrize(
    "lines",
    [
        ("Sec-Fetch-Site: cross-site",),
        ("Origin: https://evil.example",),
        ("Origin: null", "Content-Type: text/plain"),
        ("Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"),
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/publish/", "/recover/"])
def test_a_page_of_another_site(publisher: Publisher, path: str, lines: tuple[str, ...]) -> None:
    reply = publisher.post(path, NOTHING, *lines)
    line = expect(
        pushpin="200 OK",
        ours="403 Forbidden",
        pushpin_does="Accepts a publish request that a web page of another site has a browser send.",
        ours_does="Returns 403 for a request to the control port with a foreign `Origin` or `Sec-Fetch-Site: "
        "cross-site`, unless `control_key` is set.",
        because="Any page that a developer visits could publish to a control port on the same machine.",
    )
    assert reply.line == line
    if line == "403 Forbidden":
        assert reply.body.endswith(b"are refused unless control_key is set.\n")


@covers("5.5 publish")
@pytest.mark.parametrize("line", ["Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: none", "Origin: http://{host}"])
def test_a_page_of_the_same_origin(publisher: Publisher, line: str) -> None:
    host = f"127.0.0.1:{publisher.control}"
    assert publisher.post("/publish/", NOTHING, f"Host: {host}", line.format(host=host)).line == "200 OK"


@covers("5.5 publish")
@pytest.mark.parametrize("begun", ["", "POST /publish/ HTTP/1.1\r\nHost: a\r\n"], ids=["idle", "half a head"])
def test_many_connections_that_do_nothing_lock_nobody_out(site: Site, begun: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(130):
            client = stack.enter_context(Client.connect(site.publisher.control))
            client.send(begun)
        for _ in range(3):
            assert site.publisher.post("/publish/", NOTHING).line == "200 OK"
