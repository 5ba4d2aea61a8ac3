"""Instructions that cannot be understood: the answer is a 502 that says why in debug mode (docs/grip.md §3.7)."""

from __future__ import annotations

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect, instruct, response

SETUP = Setup(routes="* {backend}\n*,path_beg=/debug,debug {backend}\n")

HOLD = "Grip-Hold: stream"
CHANNEL = "Grip-Channel: any"
PREFIX = "Failed to parse accept instructions: "
MODES = "Grip-Hold must be set to either 'response' or 'stream'"
CSTRING = "failed to parse Grip-Keep-Alive cstring format"

IN_HEADERS = [
    (["Grip-Hold: Stream"], MODES),
    (["Grip-Hold: "], MODES),
    (["Grip-Hold: stream, response"], MODES),
    (["Grip-Hold: response", "Grip-Timeout: soon"], "failed to parse Grip-Timeout"),
    (["Grip-Hold: response", "Grip-Timeout: -1"], "Grip-Timeout has invalid value"),
    (["Grip-Timeout: -1"], "Grip-Timeout has invalid value"),
    ([HOLD, "Grip-Keep-Alive: ; timeout=5"], "Grip-Keep-Alive cannot be empty"),
    ([HOLD, "Grip-Keep-Alive: x; mode=never"], "no such Grip-Keep-Alive mode 'never'"),
    ([HOLD, "Grip-Keep-Alive: x; format=hex"], "no such Grip-Keep-Alive format 'hex'"),
    ([HOLD, "Grip-Keep-Alive: x; timeout=soon"], "failed to parse Grip-Keep-Alive timeout value"),
    ([HOLD, "Grip-Keep-Alive: x; timeout=-1"], "Grip-Keep-Alive timeout has invalid value"),
    ([HOLD, "Grip-Keep-Alive: x\\; format=cstring"], CSTRING),
    ([HOLD, "Grip-Keep-Alive: \\xzz; format=cstring"], CSTRING),
    (["Grip-Status: fine"], "Grip-Status contains invalid status code"),
    (["Grip-Status: 1000"], "Grip-Status contains invalid status code"),
    (["Grip-Status: -1"], "Grip-Status contains invalid status code"),
    (["Grip-Link: /next; rel=next"], "failed to parse Grip-Link value"),
    (["Grip-Link: <>; rel=next"], "failed to parse Grip-Link value"),
    (["Grip-Link: <http://[>; rel=next"], "Grip-Link contains invalid link"),
    (["Grip-Link: </next>; rel=next; timeout=soon"], "failed to parse Grip-Link timeout value"),
    (["Grip-Link: </next>; rel=next; timeout=-1"], "Grip-Link timeout has invalid value"),
]


@covers(
    "3.7 502",
    "3.7 grip-hold",
    "3.7 grip-channel",
    "3.7 grip-timeout",
    "3.7 keep-alive",
    "3.7 grip-status",
    "3.7 grip-link",
    "2.6 bad instruct",
)
@pytest.mark.parametrize(("lines", "detail"), IN_HEADERS, ids=[" ".join(lines) for lines, _ in IN_HEADERS])
def test_bad_header(site: Site, case: str, lines: list[str], detail: str) -> None:
    site.backend.on(f"/debug/{case}", response("200 OK", *lines, body="never seen"))
    answer = site.get(f"/debug/{case}")
    assert answer.line == "502 Bad Gateway"
    assert answer.lines == ["Content-Type: text/plain", f"Content-Length: {len(PREFIX + detail) + 1}"]
    assert answer.body.decode() == f"{PREFIX}{detail}\n"


def streaming(**fields: object) -> dict[str, object]:
    """Return an instruct document that holds a stream without channels."""
    return {"hold": {"mode": "stream", "channels": [], **fields}}


def answering(**fields: object) -> dict[str, object]:
    """Return an instruct document that only answers."""
    return {"response": {"body": "x", **fields}}


NOT_JSON = "failed to parse application/grip-instruct content as JSON"

IN_JSON = [
    (b"{", NOT_JSON),
    (b"1", NOT_JSON),
    ([], "instruct must be an object"),
    ({"hold": 1}, "instruct contains 'hold' with wrong type"),
    ({"hold": {"mode": "zz", "channels": []}}, "hold 'mode' must be set to either 'response' or 'stream'"),
    ({"hold": {"mode": 1, "channels": []}}, "hold contains 'mode' with wrong type"),
    ({"hold": {"mode": "stream"}}, "hold does not contain 'channels'"),
    (streaming(channels=1), "hold contains 'channels' with wrong type"),
    (streaming(channels=[1]), "channel is not an object"),
    (streaming(channels=[{}]), "channel does not contain 'name'"),
    (streaming(channels=[{"name": 1}]), "channel contains 'name' with wrong type"),
    (streaming(channels=[{"name": "a", "prev-id": 1}]), "channel contains 'prev-id' with wrong type"),
    (streaming(channels=[{"name": "a", "filters": 1}]), "channel contains 'filters' with wrong type"),
    (streaming(channels=[{"name": "a", "filters": [1]}]), "filters contains value with wrong type"),
    (streaming(timeout=-1), "hold contains 'timeout' with invalid value"),
    (streaming(timeout=[]), "hold contains 'timeout' with wrong type"),
    (streaming(**{"keep-alive": 1}), "hold contains 'keep-alive' with wrong type"),
    (
        streaming(**{"keep-alive": {"content": "x", "timeout": -1}}),
        "keep-alive contains 'timeout' with invalid value",
    ),
    (streaming(**{"keep-alive": {"content-bin": 1}}), "keep-alive contains 'content-bin' with wrong type"),
    (streaming(meta=1), "hold contains 'meta' with wrong type"),
    (streaming(meta={"k": 1}), "'meta' contains 'k' with wrong type"),
    ({"response": 1}, ""),
    (answering(code=1000), "response contains 'code' with invalid value"),
    (answering(code=-1), "response contains 'code' with invalid value"),
    (answering(code=[]), "response contains 'code' with wrong type"),
    (answering(reason=1), "response contains 'reason' with wrong type"),
    (answering(headers=1), "response contains 'headers' with wrong type"),
    (answering(headers={"k": 1}), "headers contains 'k' with wrong type"),
    (answering(headers=[1]), "headers contains element with wrong type"),
    (answering(headers=[["a"]]), "headers contains list with wrong number of elements"),
    (answering(headers=[["a", 1]]), "header contains value element with wrong type"),
    (answering(headers=[[1, "a"]]), "header contains name element with wrong type"),
    (answering(body=1), "response contains 'body' with wrong type"),
    (answering(**{"body-bin": 1}), "response contains 'body-bin' with wrong type"),
]


@covers("3.7 json")
@pytest.mark.parametrize(("document", "detail"), IN_JSON, ids=[str(document) for document, _ in IN_JSON])
def test_bad_instruct(site: Site, case: str, document: object, detail: str) -> None:
    site.backend.on(f"/debug/{case}", instruct(document))
    answer = site.get(f"/debug/{case}")
    assert answer.line == "502 Bad Gateway"
    assert answer["content-type"] == "text/plain"
    assert answer.body.decode() == f"{PREFIX}{detail}\n"


@covers("3.7 json", "3.2 status 200")
def test_instruct_with_another_status(site: Site, case: str) -> None:
    site.backend.on(f"/debug/{case}", instruct(answering(), status="201 Created"))
    answer = site.get(f"/debug/{case}")
    assert answer.line == "502 Bad Gateway"
    assert answer.body.decode() == f"{PREFIX}response code for application/grip-instruct content must be 200\n"


@covers("3.7 502", "2.6 bad instruct")
def test_without_debug_the_reason_stays_inside(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", "Grip-Hold: zz", body="never seen"))
    answer = site.get(f"/{case}")
    assert answer.line == "502 Bad Gateway"
    assert answer.body == b"Error while proxying to origin.\n"


@covers("3.7 filters", "3.1 too many filters", "10 filters", "7 limit")
def test_sixth_filter(site: Site, case: str) -> None:
    many = f"Grip-Channel: {case}" + "; filter=skip-self" * 6
    site.backend.on(f"/debug/{case}", response("200 OK", "Grip-Hold: response", "Grip-Timeout: 0", many, body="T"))
    with site.connect() as client:
        client.request("GET", f"/debug/{case}")
        held = expect(
            pushpin=True,
            ours=False,
            pushpin_does="Accepts six filters on a channel.",
            ours_does="Answers 502 to more than five filters on a channel; in debug mode the body is `too many filters "
            "for channel '…'`.",
            because="Pushpin 1.41 has this limit.",
        )
        if held:
            assert client.silent(0.2)
        else:
            assert client.response().body.decode() == f"{PREFIX}too many filters for channel '{case}'\n"


@covers("3.7 filters", "10 filters")
def test_five_filters_are_fine(site: Site, case: str) -> None:
    five = f"Grip-Channel: {case}" + "; filter=skip-self" * 5
    site.backend.on(f"/debug/{case}", response("200 OK", HOLD, five, body="begin\n"))
    with site.connect() as client:
        client.request("GET", f"/debug/{case}")
        assert client.head().line == "200 OK"
        assert client.chunk() == b"begin\n"


@covers("3.2 empty body", "15 21 empty instruct")
@pytest.mark.parametrize("document", [{}, {"response": {}}])
def test_instruct_that_says_nothing(site: Site, case: str, document: dict[str, object]) -> None:
    site.backend.on(f"/{case}", instruct(document))
    answer = site.get(f"/{case}")
    line = expect(
        pushpin="502 Bad Gateway",
        ours="200 OK",
        pushpin_does="Answers 502 to an instruct without hold and body (`{}`).",
        ours_does="Answers 200 with an empty body to an instruct without hold and body.",
        because="It is an empty response and no error.",
    )
    assert answer.line == line


@covers("3.7 unknown filter")
def test_unknown_filter_is_ignored(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", HOLD, f"Grip-Channel: {case}; filter=nope", body="begin\n"))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        assert client.head().line == "200 OK"
        assert client.chunk() == b"begin\n"
        site.publisher.stream(case, "through\n")
        assert client.chunk() == b"through\n"
