"""Publishing through the PULL socket (docs/grip.md §5.6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect, hold
from tests.wire.wirekit.holding import long_poll, stream
from tests.wire.wirekit.publisher import tnet

SETUP = Setup()


def item(channel: str, content: bytes | str, **fields: Any) -> dict[str, Any]:
    """Return an item for streams; `content` may be bytes, for tnetstrings."""
    extra = {name.replace("_", "-"): value for name, value in fields.items()}
    return {"channel": channel, "formats": {"http-stream": {"content": content}}, **extra}


@covers("5.6 T", "5.6 J", "5.6 bare")
def test_three_forms(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.push(b"T" + tnet(item(case, "tnetstring\n")))
        assert client.data_until(b"\n") == b"tnetstring\n"
        site.publisher.push(b"J" + json.dumps(item(case, "JSON\n")).encode())
        assert client.data_until(b"\n") == b"JSON\n"
        site.publisher.push(tnet(item(case, "bare\n")))
        assert client.data_until(b"\n") == b"bare\n"


@covers("5.6 T", "5.1 http-stream")
def test_tnetstrings_carry_any_bytes(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.push_item(item(case, b"\0\xff\r\n"))
        assert client.data(4) == b"\0\xff\r\n"
        # content-bin is a JSON matter: here it is not looked at.
        site.publisher.push_item({"channel": case, "http-stream": {"content": "text", "content-bin": "AGI="}})
        assert client.data(4) == b"text"


@covers("5.6 T", "5.1 http-response", "4.1 4 publish")
def test_a_response_with_every_field(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case, "X-T: held"))
    with long_poll(site, f"/{case}", case) as client:
        form = {"code": 404, "reason": "Away", "headers": [["X-A", "1"], ["X-A", "2"]], "body": b"\0\xff"}
        site.publisher.push_item({"channel": case, "formats": {"http-response": form}})
        answer = client.response()
        assert answer.line == "404 Away"
        assert answer.all("x-a") == ["1", "2"]
        assert answer["x-t"] == "held"
        assert answer.body == b"\0\xff"


@covers("5.6 T", "4.1 4 body-patch")
def test_a_patch(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case, body='{"a":1}\n'))
    with long_poll(site, f"/{case}", case) as client:
        patch = [{"op": "add", "path": "/b", "value": [1, True, "x"]}]
        site.publisher.push_item({"channel": case, "http-response": {"body-patch": patch}})
        assert client.response().body == b'{"a":1,"b":[1,true,"x"]}\n'


@covers("5.6 T", "5.1 meta")
def test_meta_and_actions(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"{case}; filter=skip-self", "Grip-Set-Meta: user=ann"))
    with stream(site, f"/{case}") as client:
        site.publisher.push_item(item(case, "dropped\n", meta={"sender": "ann"}))
        site.publisher.push_item(item(case, "passed\n", meta={"sender": "bob"}))
        assert client.data_until(b"\n") == b"passed\n"
        site.publisher.push_item({"channel": case, "http-stream": {"action": "close"}})
        assert client.rest() == b""


@covers("5.4 1 duplicate", "5.1 id")
def test_one_duplicate_check_for_all_doors(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"{case}, {case}-b"))
    with stream(site, f"/{case}") as client:
        site.publisher.push_item(item(case, "first\n", id="1"))
        assert client.data_until(b"\n") == b"first\n"
        site.publisher.stream(case, "again over HTTP\n", id="1")
        assert site.publisher.command("publish", {"items": [item(case, "again as a command\n", id="1")]})[b"success"]
        site.publisher.stream(f"{case}-b", "other channel\n", id="1")
        assert client.data_until(b"\n") == b"other channel\n"


@covers("5.6 invalid")
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"garbage",
        b"J{",
        b"J1",
        b"T",
        b"T5:hello,",
        b"0:~",
        tnet([]),
        tnet({"channel": "a"}),
        tnet({"channel": "a", "http-stream": {}}),
        tnet({"channel": 1, "http-stream": {"content": "x"}}),
        b"T99999999999999999999:x,",
        b"T-1:x,",
        b"T3:abc,trailing",
    ],
    ids=repr,
)
def test_what_is_invalid_is_skipped(site: Site, case: str, payload: bytes) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.push(payload)
        site.publisher.push_item(item(case, "still here\n"))
        assert client.data_until(b"\n") == b"still here\n"


@covers("5.6 truncated", "15 21 truncated")
@pytest.mark.parametrize("payload", [b"T3:ab", b"5:", tnet({"channel": "a"})[:-1]], ids=repr)
def test_a_truncated_tnetstring(start: Any, case: str, payload: bytes) -> None:
    survives = expect(
        pushpin=False,
        ours=True,
        pushpin_does="Crashes on a truncated tnetstring from PULL.",
        ours_does="Discards a truncated tnetstring from PULL and delivers the next item.",
        because="One malformed message must not end the service.",
    )
    if not survives:
        return
    site = start(SETUP)
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.push(payload)
        site.publisher.push_item(item(case, "still here\n"))
        assert client.data_until(b"\n") == b"still here\n"


@covers("5.4 2 sequencing")
def test_a_burst_arrives_complete_and_in_order(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        for number in range(1000):
            site.publisher.push_item(item(case, f"{number}\n"))
        wanted = "".join(f"{number}\n" for number in range(1000))
        assert client.data(len(wanted)).decode() == wanted
