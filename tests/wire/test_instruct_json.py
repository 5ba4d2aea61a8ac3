"""Instructions in an application/grip-instruct body (docs/grip.md §3.2)."""

from __future__ import annotations

import base64

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect, instruct
from tests.wire.wirekit.holding import listen, long_poll, stream

SETUP = Setup(routes="* {backend}\n*,path_beg=/debug,debug {backend}\n")


@covers("3.2 json", "3.2 own response", "2.5 grip by type")
def test_only_the_response_object_counts(site: Site, case: str) -> None:
    document = {"response": {"code": 404, "reason": "Not Mine", "headers": {"X-A": "1"}, "body": "sorry\n"}}
    site.backend.on(f"/{case}", instruct(document, "X-Own: never seen"))
    answer = site.get(f"/{case}")
    assert answer.line == "404 Not Mine"
    assert answer.lines == ["X-A: 1", "Content-Length: 6"]
    assert answer.body == b"sorry\n"


@covers("3.2 code phrase")
@pytest.mark.parametrize(("code", "line"), [(404, "404 Not Found"), (499, "499 Undefined Reason")])
def test_a_code_without_reason_gets_its_phrase(site: Site, case: str, code: int, line: str) -> None:
    site.backend.on(f"/{case}", instruct({"response": {"code": code, "body": "x"}}))
    assert site.get(f"/{case}").line == line


@covers("3.2 code phrase")
def test_without_code_the_status_of_the_answer_stays(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", instruct({"response": {"body": "x"}}, status="200 Mine"))
    assert site.get(f"/{case}").line == "200 Mine"


@covers("3.2 headers forms")
def test_headers_as_pairs_may_repeat_a_name(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", instruct({"response": {"headers": [["X-A", "1"], ["X-A", "2"]], "body": "x"}}))
    assert site.get(f"/{case}").lines == ["X-A: 1", "X-A: 2", "Content-Length: 1"]


@covers("3.2 headers forms")
def test_a_content_length_in_the_document_is_recomputed(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", instruct({"response": {"headers": {"Content-Length": "99"}, "body": "four"}}))
    assert site.get(f"/{case}").lines == ["Content-Length: 4"]


@covers("3.2 body-bin")
def test_body_in_base64_wins_over_text(site: Site, case: str) -> None:
    body = base64.b64encode(b"\0\xff\r\n").decode()
    site.backend.on(f"/{case}", instruct({"response": {"body": "text", "body-bin": body}}))
    assert site.get(f"/{case}").body == b"\0\xff\r\n"


@covers("3.2 type parameters")
def test_the_media_type_may_have_parameters(site: Site, case: str) -> None:
    document = {"response": {"body": "x"}}
    site.backend.on(f"/{case}", instruct(document, "Content-Type: application/grip-instruct; charset=utf-8"))
    assert site.get(f"/{case}").body == b"x"


@covers("3.2 type parameters")
def test_the_media_type_in_other_letters(site: Site, case: str) -> None:
    document = {"response": {"body": "x"}}
    site.backend.on(f"/{case}", instruct(document, "Content-Type: Application/GRIP-Instruct"))
    as_it_is = b'{"response": {"body": "x"}}'
    body = expect(
        pushpin=as_it_is,
        ours=b"x",
        pushpin_does="Relays an instruct document to the client when its media type is written "
        "`Application/GRIP-Instruct`.",
        ours_does="Reads a document of type `Application/GRIP-Instruct` as an instruct.",
        because="Media types are case-insensitive (RFC 9110 §8.3.1).",
    )
    assert site.get(f"/{case}").body == body


@covers("3.2 link header", "3.2 json")
def test_headers_beside_the_document_are_read_first(site: Site, case: str) -> None:
    site.backend.on(f"/{case}-1", instruct({"response": {"body": "x"}}, "Grip-Status: 404"))
    site.backend.on(f"/{case}-2", instruct({"response": {"code": 201, "body": "x"}}, "Grip-Status: 404"))
    assert site.get(f"/{case}-1").line == "404 Not Found"
    assert site.get(f"/{case}-2").line == "201 Created"


@covers("3.2 json", "3.2 meta")
def test_stream_hold(site: Site, case: str) -> None:
    document = {
        "hold": {"mode": "stream", "channels": [{"name": case, "filters": ["var-subst"]}], "meta": {"who": "Ann"}},
        "response": {"headers": {"Content-Type": "text/x"}, "body": "begin\n"},
    }
    site.backend.on(f"/{case}", instruct(document))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        assert client.head()["content-type"] == "text/x"
        assert client.chunk() == b"begin\n"
        site.publisher.stream(case, "hello %(who)s\n")
        assert client.chunk() == b"hello Ann\n"


@covers("3.2 default mode")
def test_hold_without_mode_waits_for_one_response(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", instruct({"hold": {"channels": [{"name": case}]}, "response": {"body": "late"}}))
    with long_poll(site, f"/{case}", case) as client:
        site.publisher.answer(case, "published\n")
        assert client.response().body == b"published\n"


@covers("3.2 keep-alive")
def test_keep_alives_ignore_what_is_published(site: Site, case: str) -> None:
    def holding(keep_alive: dict[str, object]) -> bytes:
        return instruct({"hold": {"mode": "stream", "channels": [{"name": case}], "keep-alive": keep_alive}})

    site.backend.on(f"/{case}-text", holding({"content": "text", "timeout": 1}))
    site.backend.on(f"/{case}-binary", holding({"content-bin": "AGI=", "content": "unused", "timeout": 1}))
    with stream(site, f"/{case}-text") as text, stream(site, f"/{case}-binary") as binary:
        clients = {"text": text, "binary": binary}
        got: dict[str, list[bytes]] = {name: [] for name in clients}
        for _ in range(6):
            site.publisher.stream(case, "published")
            for name, pieces in listen(clients, 0.25).items():
                got[name] += [piece for _, piece in pieces]
        # In idle mode six publishes in 1.5 s would leave no pause of a second.
        assert b"text" in b"".join(got["text"])
        assert b"\0b" in b"".join(got["binary"])
        assert b"unused" not in b"".join(got["binary"])


@covers("2.5 grip stripped")
def test_grip_headers_inside_the_document(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", instruct({"response": {"headers": {"Grip-Foo": "1", "X-A": "2"}, "body": "x"}}))
    lines = expect(
        pushpin=["Grip-Foo: 1", "X-A: 2", "Content-Length: 1"],
        ours=["X-A: 2", "Content-Length: 1"],
        pushpin_does="Sends Grip-* headers of an instruct document to the client.",
        ours_does="Removes Grip-* headers of an instruct document.",
        because="Grip-* headers are between backend and proxy.",
    )
    assert site.get(f"/{case}").lines == lines


@covers("15 21 splitting")
@pytest.mark.parametrize(
    ("response", "word"),
    [
        ({"reason": "Fine\r\nX-Injected: 1"}, "reason"),
        ({"headers": {"X-A": "1\r\nX-Injected: 1"}}, "header"),
        ({"headers": {"X A": "1"}}, "header"),
    ],
    ids=str,
)
def test_response_splitting(site: Site, case: str, response: dict[str, object], word: str) -> None:
    site.backend.on(f"/debug/{case}", instruct({"response": {**response, "body": "x"}}))
    answer = site.get(f"/debug/{case}")
    refused = expect(
        pushpin=False,
        ours=True,
        pushpin_does="Answers 200 for an instruct document whose reason or header contains CR LF, or whose header name "
        "contains a space.",
        ours_does="Answers 502 for an instruct document with CR, LF or NUL in a reason or header, or with an invalid "
        "header name.",
        because="They would let a document write header lines of its own (response splitting).",
    )
    if refused:
        assert answer.line == "502 Bad Gateway"
        assert word in answer.body.decode()
    else:
        assert answer.status == 200
