"""Targets in, path and query out; answers in, bytes out."""

from __future__ import annotations

import pytest

from griphub.api import request
from griphub.api.problem import Problem
from griphub.api.request import (
    Answer,
    Request,
    Target,
    answer_bytes,
    no_body,
    problem_answer,
    target_below,
    target_of,
)


@pytest.mark.parametrize(
    ("raw", "path", "query"),
    [
        (b"/", ("",), {}),
        (b"/topics/T/events", ("topics", "T", "events"), {}),
        (b"/topics/P%2FT", ("topics", "P/T"), {}),
        (b"/topics/P%252FT", ("topics", "P%2FT"), {}),
        (b"/topics/%C3%A9+%", ("topics", "é+%"), {}),
        (b"//a/", ("", "a", ""), {}),
        (b"/t?after=0&low=a%26b&low=&x", ("t",), {"after": ["0"], "low": ["a&b", ""], "x": [""]}),
        (b"/t?since=00:00:00%2B01:00&a+b=c+d", ("t",), {"since": ["00:00:00+01:00"], "a b": ["c d"]}),
        (b"/t?&&a=b=c&", ("t",), {"a": ["b=c"]}),
        (b"/t?a?b", ("t",), {"a?b": [""]}),
        (b"http://hub.example:80/t?a=1", ("t",), {"a": ["1"]}),
        (b"HTTPS://hub.example", ("",), {}),
        (b"http://hub.example?a=1", ("",), {"a": ["1"]}),
    ],
)
def test_a_target_has_segments_and_parameters(raw: bytes, path: tuple[str, ...], query: dict[str, list[str]]) -> None:
    assert target_of(raw) == Target(path, query)


@pytest.mark.parametrize("raw", [b"*", b"topics", b"ftp://x/", b"http:/x", b"/%FF", b"/t?%80=1", b"/t?a=%ED%A0%80"])
def test_another_target_is_refused(raw: bytes) -> None:
    with pytest.raises(Problem) as caught:
        target_of(raw)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("raw", "below"),
    [
        (b"/hub/topics/T?a=1", b"/topics/T?a=1"),
        (b"/hub", b"/"),
        (b"/hub?a=1", b"/?a=1"),
        (b"/hub/hub/x", b"/hub/x"),
        (b"http://hub.example/hub/x", b"/x"),
    ],
)
def test_a_target_behind_a_root(raw: bytes, below: bytes) -> None:
    assert target_below(raw, b"/hub") == below


@pytest.mark.parametrize("raw", [b"/", b"/topics/T", b"/hubs/x", b"/ow/x", b"/hu%62/x", b"*", b"http://hub.example"])
def test_a_target_elsewhere_is_not_found(raw: bytes) -> None:
    with pytest.raises(Problem, match=r"begin with /hub \(listen_path\)") as caught:
        target_below(raw, b"/hub")
    assert caught.value.status == 404


def test_equal_targets_share_their_parts_and_few_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[bytes, Target] = {}
    monkeypatch.setattr(request, "_KNOWN", known)
    monkeypatch.setattr(request, "TARGETS_MAX", 10)
    assert target_of(b"/a?b=c") is target_of(b"/a?b=c")
    for number in range(100):
        target_of(b"/%d" % number)
    assert len(known) <= 10
    target_of(b"/" + b"x" * request.TARGET_KEPT)
    assert all(len(raw) <= request.TARGET_KEPT for raw in known)


def test_a_header_is_found_by_its_name() -> None:
    headers = [(b"grip-last", b"a"), (b"grip-last", b"b")]
    asked = Request(b"GET", target_of(b"/"), headers)
    assert (asked.header(b"grip-last"), asked.header(b"accept")) == (b"a", None)


def test_an_answer_has_type_headers_and_length() -> None:
    answer = Answer(201, b"{}", headers=[("ETag", '"1"')])
    head = b'HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nETag: "1"\r\nContent-Length: 2\r\n'
    assert answer_bytes(answer, keep_alive=True) == head + b"\r\n{}"
    assert answer_bytes(answer, keep_alive=False) == head + b"Connection: close\r\n\r\n{}"
    assert answer_bytes(answer, keep_alive=True, head=True) == head + b"\r\n"


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_content_has_no_length(status: int) -> None:
    answered = answer_bytes(Answer(status, b"", ""), keep_alive=True)
    assert answered.startswith(b"HTTP/1.1 %d " % status)
    assert b"Content-" not in answered


def test_a_problem_is_a_document() -> None:
    problem = Problem(503, "unavailable", "later", headers=[("Retry-After", "1")])
    answered = answer_bytes(problem_answer(problem), keep_alive=True)
    assert b"HTTP/1.1 503 " in answered
    assert b"\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n" in answered
    assert b'"detail":"later"' in answered


def test_a_body_where_none_is_needed_is_refused() -> None:
    target = target_of(b"/topics/t")
    no_body(Request(b"DELETE", target, [], b"", b"/topics/t"))
    with pytest.raises(Problem, match="DELETE has no body here") as refused:
        no_body(Request(b"DELETE", target, [], b"{}", b"/topics/t"))
    assert refused.value.status == 400
