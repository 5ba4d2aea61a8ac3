"""Gone links: the backend is told when a hold has ended (docs/grip.md §4.4)."""

from __future__ import annotations

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect, hold, response
from tests.wire.wirekit.holding import long_poll, stream

SETUP = Setup(routes="* {backend}\n")


def gone_links_are_followed() -> bool:
    """Tell whether this proxy knows them."""
    return expect(
        pushpin=False,
        ours=True,
        pushpin_does="Ignores links with `rel=gone`.",
        ours_does="Requests a link with `rel=gone` when the hold has ended.",
        because="Such links exist since Pushpin 1.41.",
    )


def told(site: Site, path: str) -> None:
    """Compare what the backend hears, if anything, when the hold of a client has ended."""
    if gone_links_are_followed():
        request = site.backend.request(path)
        assert (request.method, request.uri, request.body) == ("POST", f"{path}?why=gone", b"")
        assert request["grip-sig"] is not None
        assert request["grip-feature"] is not None
        assert request["x-c"] is None
        assert request["cookie"] is None
    assert site.backend.count(path) == int(gone_links_are_followed())


@covers("3.1 link gone", "4.4 gone")
@pytest.mark.parametrize("end", ["client leaves", "closed"])
def test_a_stream_ends(site: Site, case: str, end: str) -> None:
    link = f"Grip-Link: <{case}-gone?why=gone>; rel=gone"
    site.backend.on(f"/{case}", hold("stream", case, link))
    with site.publisher.feed() as feed, stream(site, f"/{case}", "X-C: 1", "Cookie: a=b") as client:
        feed.wait_for(b"\x01" + case.encode())
        assert site.backend.count(f"/{case}-gone") == 0
        if end == "closed":
            site.publisher.end(case)
            assert client.rest() == b""
        else:
            client.close()
        feed.wait_for(b"\x00" + case.encode())
        told(site, f"/{case}-gone")


@covers("3.1 link gone", "4.4 gone")
@pytest.mark.parametrize("end", ["published", "handed back"])
def test_a_long_poll_ends(site: Site, case: str, end: str) -> None:
    link = f"Grip-Link: </{case}-gone?why=gone>; rel=gone"
    site.backend.on(f"/{case}-gone", response("500 Oops", body="ignored"))
    site.backend.on(f"/{case}", [hold("response", case, link), response("200 OK", body="answer")])
    with long_poll(site, f"/{case}", case, "X-C: 1") as client:
        if end == "published":
            site.publisher.answer(case, "answer")
        else:
            site.publisher.publish({"channel": case, "http-response": {"action": "hint"}})
        assert client.response().body == b"answer"
        told(site, f"/{case}-gone")


@covers("4.4 gone")
def test_a_response_that_is_not_held_has_no_end(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", f"Grip-Link: </{case}-gone>; rel=gone", body="x"))
    with site.connect() as client:
        assert client.ask("GET", f"/{case}").body == b"x"
        assert client.ask("GET", f"/{case}-next").body == b"backend\n"
    assert site.backend.count(f"/{case}-gone") == 0
