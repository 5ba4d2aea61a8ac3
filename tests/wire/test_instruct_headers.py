"""Instructions in response headers (docs/grip.md §3.1, §3.3, §0.1)."""

from __future__ import annotations

from threading import Event

import pytest

from tests.wire.wirekit import CLOSE, Script, Setup, Site, covers, expect, hold, response
from tests.wire.wirekit.holding import long_poll, stream

SETUP = Setup(
    routes="* {backend}\n"
    "*,path_beg=/debug,debug {backend}\n"
    "*,path_beg=/prefixed,prefix=pre-,id=prefixed {backend}\n"
    "*,path_beg=/implicit {backend},sub=everybody,sub=everyone\n"
    "*,path_beg=/nogrip,no_grip {backend}\n"
)


@covers("2.5 grip by header", "2.5 grip stripped")
def test_any_grip_header_makes_it_a_grip_response(site: Site, case: str) -> None:
    site.backend.on(
        f"/{case}", response("200 Mine", "X-A: 1", "Grip-Foo: x", "grip-bar: y", "Content-Type: text/plain", body="b\n")
    )
    answer = site.get(f"/{case}")
    assert answer.line == "200 Mine"
    assert answer.lines == ["X-A: 1", "Content-Type: text/plain", "Content-Length: 2"]
    assert answer.body == b"b\n"


@covers("1.3 no_grip")
def test_no_grip_route_leaves_everything_alone(site: Site, case: str) -> None:
    site.backend.on(f"/nogrip/{case}", hold("stream", case, "Grip-Status: 404", body="plain\n"))
    answer = site.get(f"/nogrip/{case}")
    assert answer.line == "200 OK"
    assert answer["grip-hold"] == "stream"
    assert answer.body == b"plain\n"


@covers("3.1 grip-status")
@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("404", "404 Not Found"),
        ("404 Gone Fishing", "404 Gone Fishing"),
        ("299", "299 Undefined Reason"),
        ("999", "999 Undefined Reason"),
    ],
)
def test_status_is_replaced(site: Site, case: str, value: str, line: str) -> None:
    site.backend.on(f"/{case}", response("200 Mine", f"Grip-Status: {value}", "Grip-Status: 500", body="x"))
    assert site.get(f"/{case}").line == line


@covers("3.1 grip-status", "3.3 grip-status overrides")
def test_held_responses_take_the_status_too(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, "Grip-Status: 404", body="begin\n"))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        assert client.head().line == "404 Not Found"
        assert client.chunk() == b"begin\n"
        site.publisher.stream(case, "more\n")
        assert client.chunk() == b"more\n"


@covers("3.1 expose-headers")
def test_only_exposed_headers_go_out(site: Site, case: str) -> None:
    site.backend.on(
        f"/{case}",
        response(
            "200 OK",
            "Grip-Expose-Headers: x-a, Content-Type",
            "Grip-Expose-Headers: X-C",
            "X-A: 1",
            "X-B: 2",
            "X-C: 3",
            "Content-Type: text/plain",
            body="x",
        ),
    )
    assert site.get(f"/{case}").lines == ["X-A: 1", "X-C: 3", "Content-Type: text/plain", "Content-Length: 1"]


@covers("3.1 expose-headers")
def test_an_empty_expose_list_exposes_everything(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", "Grip-Expose-Headers: ", "X-A: 1", "X-B: 2", body="x"))
    assert site.get(f"/{case}").lines == ["X-A: 1", "X-B: 2", "Content-Length: 1"]


@covers("3.1 expose-headers")
def test_expose_headers_apply_to_holds(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, "Grip-Expose-Headers: X-A", "X-A: 1", "X-B: 2", body="begin\n"))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        head = client.head()
        assert head["x-a"] == "1"
        assert head["x-b"] is None
        assert head["content-type"] is None


@covers("3.1 grip-channel")
def test_channels_come_in_one_header_and_in_several(site: Site, case: str) -> None:
    site.backend.on(
        f"/{case}",
        hold(
            "stream", f"{case}-1, {case}-2; unknown=1 , ,{case}-3;;;", f'Grip-Channel: "{case},4"; filter="skip-self"'
        ),
    )
    with stream(site, f"/{case}") as client:
        for channel in (f"{case}-1", f"{case}-2", f"{case}-3", f'"{case},4"'):
            site.publisher.stream(channel, f"{channel}\n")
            assert client.chunk().decode() == f"{channel}\n"


@covers("3.1 grip-channel", "3.7 grip-channel")
def test_a_channel_with_bad_quotes_is_skipped(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"{case}-ok", f'Grip-Channel: {case}-bad; prev-id="x'))
    with stream(site, f"/{case}") as client:
        site.publisher.stream(f"{case}-bad", "bad\n")
        site.publisher.stream(f"{case}-ok", "ok\n")
        assert client.chunk() == b"ok\n"


@covers("5.4 3 fan-out", "3.5 names")
def test_channel_names_are_exact(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"{case} ä/Ö?#"))
    with stream(site, f"/{case}") as client:
        for name in (f"{case} ä/ö?#", f"{case} ä", f"{case} ä/Ö?#x", case):
            site.publisher.stream(name, "wrong\n")
        site.publisher.stream(f"{case} ä/Ö?#", "right\n")
        assert client.chunk() == b"right\n"


@covers("3.1 no channel")
def test_a_hold_without_channel_just_holds(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", "Grip-Hold: stream", body="begin\n"))
    with stream(site, f"/{case}", opening=b"begin\n") as client:
        site.publisher.post("/publish/", '{"items":[{"channel":"","http-stream":{"content":"to the empty channel"}}]}')
        assert client.silent(0.2)


@covers("3.1 no channel")
@pytest.mark.parametrize("mode", ["stream", "response"])
def test_a_hold_without_channel_is_told_in_debug_mode(site: Site, case: str, mode: str) -> None:
    site.backend.on(f"/debug/{case}", response("200 OK", f"Grip-Hold: {mode}", body="begin\n"))
    told = expect(
        pushpin=False,
        ours=True,
        pushpin_does="Holds a client without a channel, also in debug mode.",
        ours_does="Answers 502 in debug mode, with what is missing, if a hold has no channel; otherwise it holds the "
        "client, with a warning and a metric.",
        because="Nothing that is published reaches such a client: `Grip-Channel` was forgotten or misspelt.",
    )
    with site.connect() as client:
        client.request("GET", f"/debug/{case}")
        if told:
            answer = client.response()
            assert answer.line == "502 Bad Gateway"
            needed = "the backend has to send Grip-Channel, or the target needs sub="
            assert answer.body.decode() == f"Grip-Hold: {mode} without a channel: {needed}\n"
        elif mode == "stream":
            client.head()
            assert client.chunk() == b"begin\n"


@covers("1.3 prefix", "3.5 names")
def test_the_route_prefixes_channels(site: Site, case: str) -> None:
    site.backend.on(f"/prefixed/{case}", hold("stream", f"{case}, {case}-2"))
    with stream(site, f"/prefixed/{case}") as client:
        site.publisher.stream(case, "without prefix\n")
        site.publisher.stream(f"pre-{case}-2", "with prefix\n")
        assert client.chunk() == b"with prefix\n"


@covers("1.4 sub")
def test_the_target_adds_channels(site: Site, case: str) -> None:
    site.backend.on(f"/implicit/{case}", hold("stream", case))
    with stream(site, f"/implicit/{case}") as client:
        for channel in ("everybody", case, "everyone"):
            site.publisher.stream(channel, f"{channel}\n")
            assert client.chunk().decode() == f"{channel}\n"


@covers("3.3 status holds")
@pytest.mark.parametrize("status", ["404 Not Here", "500 Oops", "201 Made"])
def test_any_status_may_hold(site: Site, case: str, status: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, status=status, body="begin\n"))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        assert client.head().line == status
        assert client.chunk() == b"begin\n"
        site.publisher.stream(case, "more\n")
        assert client.chunk() == b"more\n"


@covers("3.3 304")
@pytest.mark.parametrize("status", ["304 Not Modified", "204 No Content"])
def test_a_status_without_body_holds_in_silence(site: Site, case: str, status: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case, 'ETag: "x"', status=status))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        head = client.head()
        assert head.line == status
        assert head.lines == ['ETag: "x"', "Content-Type: text/plain"]
        site.publisher.stream(case, "no body may follow\n")
        assert client.silent(0.2)


@covers("3.1 link others")
@pytest.mark.parametrize("link", ["</next>; rel=prev", "</next>"])
def test_links_of_another_kind_are_ignored(site: Site, case: str, link: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", f"Grip-Link: {link}", body="x"))
    answer = site.get(f"/{case}")
    assert answer.lines == ["Content-Length: 1"]
    assert answer.body == b"x"


@covers("3.4 conditional")
def test_conditional_headers_pass_both_ways(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("304 Not Modified", 'ETag: "v2"', "Last-Modified: now", "Grip-Foo: x"))
    with site.connect() as client:
        client.request("GET", f"/{case}", 'If-None-Match: "v2"', "If-Modified-Since: now")
        head = client.head()
    assert head.line == "304 Not Modified"
    assert head["etag"] == '"v2"'
    assert head["last-modified"] == "now"
    assert site.backend.request(f"/{case}")["if-none-match"] == '"v2"'


@covers("3.6 stripped")
def test_session_headers_are_stripped(site: Site, case: str) -> None:
    site.backend.on(
        f"/{case}",
        response(
            "200 OK", "Grip-Session-Id: 1", "Grip-Session-Detect: path-prefix=/", "Grip-Last: a; last-id=1", body="x"
        ),
    )
    assert site.get(f"/{case}").lines == ["Content-Length: 1"]


@covers("2.5 grip buffered", "15 3 buffered")
def test_a_grip_response_is_taken_in_whole_first(site: Site, case: str) -> None:
    second_half = Event()
    site.backend.on(
        f"/{case}",
        Script(
            response("200 OK", "Grip-Hold: stream", f"Grip-Channel: {case}", "Content-Length: 10", body="hello "),
            second_half,
            b"end\n",
        ),
    )
    with site.connect() as client:
        client.request("GET", f"/{case}")
        site.backend.request(f"/{case}")
        assert client.silent(0.2)
        second_half.set()
        assert client.head().line == "200 OK"
        assert client.chunk() == b"hello end\n"


@covers("2.6 bad response")
def test_a_backend_that_dies_in_a_grip_response(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", Script(response("200 OK", "Grip-Foo: 1", "Content-Length: 10", body="hello "), CLOSE))
    answer = site.get(f"/{case}")
    assert answer.line == "502 Bad Gateway"
    assert answer.body == b"Error while proxying to origin.\n"


@covers("3.1 set-meta")
def test_meta_takes_the_first_pair_of_each_item(site: Site, case: str) -> None:
    site.backend.on(
        f"/{case}",
        hold(
            "stream",
            f"{case}; filter=var-subst",
            'Grip-Set-Meta: user=alice; second=ignored, name="a,b; c"',
            "Grip-Set-Meta: Name=Upper",
        ),
    )
    with stream(site, f"/{case}") as client:
        site.publisher.stream(case, "%(user)s|%(name)s|%(Name)s")
        assert client.chunk() == b"alice|a,b; c|Upper"


@covers("1.3 prefix", "3.1 grip-hold")
def test_prefixed_long_poll(site: Site, case: str) -> None:
    site.backend.on(f"/prefixed/{case}", hold("response", case))
    with long_poll(site, f"/prefixed/{case}", f"pre-{case}") as client:
        site.publisher.answer(case, "no\n")
        site.publisher.answer(f"pre-{case}", "yes\n")
        assert client.response().body == b"yes\n"
