"""``secret_query``: a parameter reaches the backend, and nothing else (docs/routes.md)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.wire.wirekit import CLOSE, Script, Setup, Site, hold
from tests.wire.wirekit.client import PATIENCE
from tests.wire.wirekit.events import GRIP, event, events, opened
from tests.wire.wirekit.holding import stream
from tests.wire.wirekit.websocket import reject, websocket

SECRET = "hush-hush"
QUERY = f"a=1&access_token={SECRET}&b=2"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    routes = """
*,secret_query=access_token,debug {backend}
events.test,secret_query=access_token,debug {backend},over_http
none.test,secret_query=access_token,debug {dead}
"""
    config = {"global.log_level": "3", "proxy.workers": 1}
    with Site(Setup(routes=routes, config=config)) as site:
        yield site
        assert SECRET not in site.proxy.log


def test_the_backend_has_it(site: Site) -> None:
    assert site.get(f"/plain?{QUERY}").status == 200
    assert site.backend.request("/plain").uri == f"/plain?{QUERY}"
    assert "/plain?a=1&b=2" in site.proxy.wait_log("/plain")


def test_failures_do_not_show_it(site: Site) -> None:
    site.backend.on("/broken", Script(CLOSE))
    for host, path in (("a.test", "/broken"), ("none.test", "/away")):
        answer = site.ask("POST", f"{path}?{QUERY}", f"Host: {host}", body="x")
        assert answer.status == 502
        assert SECRET.encode() not in answer.body
        assert SECRET not in site.proxy.wait_log(path)
    assert SECRET.encode() not in reject(site, f"/socket?{QUERY}", "Host: none.test").body


def test_links_do_not_have_it(site: Site) -> None:
    site.backend.on("/held", hold("stream", "held; prev-id=1", "Grip-Link: <?after=1>; rel=next; timeout=100"))
    with stream(site, f"/held?{QUERY}"):
        site.backend.request("/held")
        site.publisher.publish({"channel": "held", "formats": {"http-stream": {"action": "hint"}}})
        assert site.backend.request("/held", 1).uri == "/held?after=1"
    gone = "Grip-Link: </gone>; rel=gone"
    site.backend.on("/left", hold("response", "left", gone))
    with site.connect() as client:
        client.request("GET", f"/left?{QUERY}")
        site.proxy.wait_log("hold: mode=response .*path=/left")
    assert site.backend.request("/gone").uri == "/gone"


def test_a_long_poll_is_repeated_with_it(site: Site) -> None:
    site.backend.on("/poll", [hold("response", "poll; prev-id=1"), hold("response", "poll; prev-id=2")])
    with site.connect() as client:
        client.request("GET", f"/poll?{QUERY}")
        deadline = time.monotonic() + PATIENCE
        # The first hints may find no hold yet.
        while site.backend.count("/poll") < 2:
            assert time.monotonic() < deadline
            site.publisher.publish({"channel": "poll", "formats": {"http-response": {"action": "hint"}}})
        assert site.backend.request("/poll", 1).uri == f"/poll?{QUERY}"


def test_websockets(site: Site) -> None:
    site.backend.on("/events", [opened(headers=(GRIP,)), events(event("TEXT", "m:hello"))])
    with websocket(site, f"/events?{QUERY}", "Host: events.test") as client:
        client.text("hello?")
        assert client.says("hello")
    assert site.backend.request("/events").uri == f"/events?{QUERY}"
    site.proxy.wait_log("WebSocket: .*/events")
