"""What becomes of a published http-response (docs/grip.md §4.1, §5.1, §5.3)."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.wire.wirekit import Response, Setup, Site, covers, expect, hold
from tests.wire.wirekit.holding import long_poll

SETUP = Setup(routes="* {backend}\n*,path_beg=/debug,debug {backend}\n")


def delivered(site: Site, uri: str, channel: str, form: dict[str, Any]) -> Response:
    """Hold a long-poll, publish the http-response and return what the client gets."""
    with long_poll(site, uri, channel) as client:
        site.publisher.publish({"channel": channel, "formats": {"http-response": form}})
        return client.response()


@covers("5.1 http-response")
@pytest.mark.parametrize(
    ("form", "line"),
    [
        ({}, "200 OK"),
        ({"code": 404}, "404 Not Found"),
        ({"code": 599}, "599 Undefined Reason"),
        ({"code": 404, "reason": "Away"}, "404 Away"),
        ({"code": "202"}, "202 Accepted"),
        ({"code": 201.6}, "202 Accepted"),
    ],
    ids=str,
)
def test_status(site: Site, case: str, form: dict[str, Any], line: str) -> None:
    site.backend.on(f"/{case}", hold("response", case, status="201 Held"))
    answer = delivered(site, f"/{case}", case, {**form, "body": "x"})
    assert answer.line == line
    assert answer.body == b"x"


@covers("5.1 http-response")
@pytest.mark.parametrize("code", [204, 304])
def test_a_status_without_body(site: Site, case: str, code: int) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with long_poll(site, f"/{case}", case) as client:
        site.publisher.publish({"channel": case, "http-response": {"code": code, "body": "x"}})
        assert client.response().status == code
        assert client.ask("GET", f"/{case}-next").body == b"backend\n"


@covers("5.1 http-response order")
def test_binary_body_wins_over_text_and_patch(site: Site, case: str) -> None:
    binary = base64.b64encode(b"\0\xff").decode()
    site.backend.on(f"/{case}-1", hold("response", f"{case}-1"))
    site.backend.on(f"/{case}-2", hold("response", f"{case}-2"))
    patch: list[Any] = [{"op": "add", "path": "/a", "value": 1}]
    form = {"body-bin": binary, "body": "text", "body-patch": patch}
    assert delivered(site, f"/{case}-1", f"{case}-1", form).body == b"\0\xff"
    assert delivered(site, f"/{case}-2", f"{case}-2", {"body": "text", "body-patch": patch}).body == b"text"


@covers("4.1 4 headers", "15 9 inherits")
def test_headers_replace_held_ones_of_the_same_name(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case, "X-A: held 1", "X-A: held 2", "X-B: held", "Content-Type: a/b"))
    answer = delivered(
        site, f"/{case}", case, {"headers": [["x-a", "1"], ["X-A", "2"], ["Content-Length", "77"]], "body": "four"}
    )
    assert answer.all("x-a")[0] == "1"
    assert "held 1" not in answer.all("x-a")
    assert answer["x-b"] == "held"
    assert answer["content-type"] == "a/b"
    assert answer.all("content-length") == ["4"]
    assert answer.body == b"four"


@covers("4.1 4 headers")
def test_a_header_new_to_the_response_may_repeat(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    answer = delivered(site, f"/{case}", case, {"headers": [["X-A", "1"], ["X-A", "2"]], "body": "x"})
    assert answer.all("x-a") == ["1", "2"]


@covers("4.1 4 grip headers", "4.1 4 expose", "15 8 expose-headers")
def test_grip_headers_of_an_item(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case, "X-T: held", "X-U: held"))
    headers = {"Grip-Expose-Headers": "X-T", "Grip-Hold": "stream", "grip-foo": "1", "X-N": "n"}
    answer = delivered(site, f"/{case}", case, {"headers": headers, "body": "x"})
    assert answer["x-t"] is None
    assert answer["x-u"] == "held"
    assert answer["x-n"] == "n"
    assert [name for name in answer.names if name.startswith("grip-")] == []


@covers("15 21 splitting")
def test_headers_that_would_break_the_framing(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with long_poll(site, f"/{case}", case) as client:
        headers = {"Connection": "close", "Transfer-Encoding": "chunked"}
        site.publisher.publish({"channel": case, "http-response": {"headers": headers, "body": "x"}})
        answer = client.response()
        assert answer.names == ["content-type", "content-length"]
        assert answer.body == b"x"
        assert client.ask("GET", f"/{case}-next").body == b"backend\n"


@covers("4.1 4 body-patch", "5.3 ops", "5.3 line end")
@pytest.mark.parametrize(
    ("held", "patch", "body"),
    [
        ('{"a": 1}\n', [{"op": "add", "path": "/b", "value": [1, {"x": "é"}]}], '{"a":1,"b":[1,{"x":"é"}]}\n'),
        ('{"a": 1}\r\n', [{"op": "replace", "path": "/a", "value": 2}], '{"a":2}\r\n'),
        ('{"a":1,"b":2}', [{"op": "remove", "path": "/a"}], '{"b":2}'),
        ('{"a":1}', [{"op": "move", "from": "/a", "path": "/c"}], '{"c":1}'),
        ("[1,2]", [{"op": "copy", "from": "/0", "path": "/-"}], "[1,2,1]"),
        ('{"a":1}', [{"op": "test", "path": "/a", "value": 1}, {"op": "add", "path": "/z", "value": None}], None),
        ('{"a": 1}', [], '{"a":1}'),
    ],
    ids=["add", "replace", "remove", "move", "copy", "test", "nothing"],
)
def test_patch(site: Site, case: str, held: str, patch: list[Any], body: str | None) -> None:
    site.backend.on(f"/{case}", hold("response", case, "Content-Type: application/json", body=held))
    answer = delivered(site, f"/{case}", case, {"body-patch": patch})
    assert answer.line == "200 OK"
    assert answer["content-type"] == "application/json"
    assert answer.body.decode() == (body or '{"a":1,"z":null}')


@covers("5.3 failed", "15 10 failed patch")
@pytest.mark.parametrize(
    ("held", "patch"),
    [
        ('{"a":1}', [{"op": "test", "path": "/a", "value": 2}]),
        ('{"a":1}', [{"op": "remove", "path": "/nope"}]),
        ('{"a":1}', [1]),
        ("no JSON", [{"op": "add", "path": "/a", "value": 2}]),
        ("1", [{"op": "replace", "path": "", "value": 2}]),
    ],
    ids=["test", "no such path", "no operation", "no JSON", "scalar"],
)
def test_a_patch_that_fails(site: Site, case: str, held: str, patch: list[Any]) -> None:
    site.backend.on(f"/debug/{case}", hold("response", case, body=held))
    answer = delivered(site, f"/debug/{case}", case, {"body-patch": patch})
    line, body = expect(
        pushpin=("502 Bad Gateway", b"filter error: \n"),
        ours=("200 OK", b""),
        pushpin_does="Answers 502 (in debug mode: `filter error: `) when a `body-patch` cannot be applied.",
        ours_does="Answers 200 with an empty body when a `body-patch` cannot be applied.",
        because="Later versions of Pushpin do so.",
    )
    assert answer.line == line
    assert answer.body == body
