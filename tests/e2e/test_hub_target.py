"""The target ``hub``: a backend on the hub's socket, below a prefix of the path that it does not see (docs/routes.md).

A plain backend has the place of the hub, and a process that does nothing else runs as the service ``hub``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.idle_hub import IDLE_HUB
from tests.wire.wirekit import Backend, Setup, Site, hold
from tests.wire.wirekit.client import PATIENCE
from tests.wire.wirekit.events import GRIP, event, events, opened
from tests.wire.wirekit.holding import stream
from tests.wire.wirekit.messages import response
from tests.wire.wirekit.websocket import websocket

ROUTES = """
*,path_beg=/x/ hub
*,path_beg=/y hub
named.test hub
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    config = {"proxy.workers": 1, "hub.store": "{dir}/hub.db", "hub.hub_anonymous": "all"}
    with Site(Setup(routes=ROUTES, config=config, files=IDLE_HUB.files, env=IDLE_HUB.environment)) as site:
        yield site


@pytest.fixture(scope="module")
def hub(site: Site) -> Iterator[Backend]:
    backend = Backend("hub", host=f"{site.proxy.directory}/run/wire-hub")
    yield backend
    backend.stop()
    assert backend.problems == []


@pytest.mark.parametrize("path", ["/x/topics/T", "/y/topics/T", "/topics/T"])
def test_a_request(path: str, site: Site, hub: Backend) -> None:
    host = "named.test" if path.startswith("/topics") else "a.test"
    before = hub.count("/topics/T")
    assert site.get(f"{path}?access_token=t", f"Host: {host}").body == b"hub\n"
    assert hub.request("/topics/T", before).uri == "/topics/T?access_token=t"


@pytest.mark.parametrize("prefix", ["x", "y"])
def test_a_chain_of_relative_links(prefix: str, site: Site, hub: Backend) -> None:
    """Each link is relative to the one before, as the hub has seen the paths."""
    begin, page, last, follow = f"/topics/{prefix}/events", f"/p/{prefix}", f"/p/{prefix}/2", f"/follow/{prefix}"
    at_once = "rel=next; timeout=0"
    hub.on(begin, hold("stream", f"{prefix}0", f"Grip-Link: <../../p/{prefix}>; {at_once}", body="0"))
    hub.on(page, response("200 OK", f"Grip-Link: <{prefix}/2?n=1>; {at_once}", body="1"))
    link = f"Grip-Link: <../../follow/{prefix}>; rel=next; timeout=100"
    hub.on(last, hold("stream", f"{prefix}1; prev-id=1", link, body="2"))
    hub.on(follow, hold("stream", f"{prefix}1; prev-id=2", body="3"))
    with stream(site, f"/{prefix}{begin}?access_token=t", opening=b"0") as client:
        assert client.data(2) == b"12"
        assert hub.request(last).uri == f"{last}?n=1"
        hint = {"channel": f"{prefix}1", "formats": {"http-stream": {"action": "hint"}}}
        deadline = time.monotonic() + PATIENCE
        # The first hints may find no hold yet.
        while not hub.count(follow):
            assert time.monotonic() < deadline
            site.publisher.publish(hint)
        assert client.data(1) == b"3"
    assert hub.request(follow)["Grip-Last"] == f"{prefix}1; last-id=1"
    assert hub.request(begin).uri == f"{begin}?access_token=t"


def test_a_long_poll_is_repeated_at_the_same_path(site: Site, hub: Backend) -> None:
    hub.on("/poll", [hold("response", "poll; prev-id=1"), response("200 OK", body="now")])
    with site.connect() as client:
        client.request("GET", "/x/poll?access_token=t")
        deadline = time.monotonic() + PATIENCE
        while hub.count("/poll") < 2:
            assert time.monotonic() < deadline
            site.publisher.publish({"channel": "poll", "formats": {"http-response": {"action": "hint"}}})
        assert client.response().body == b"now"
    assert hub.request("/poll", 1).uri == "/poll?access_token=t"


def test_a_websocket_over_http(site: Site, hub: Backend) -> None:
    hub.on("/topics/W/watch", [opened(headers=(GRIP,)), events(event("TEXT", "m:hello"))])
    with websocket(site, "/x/topics/W/watch?access_token=t") as client:
        client.text("hello?")
        assert client.says("hello")
    for number in range(2):
        request = hub.request("/topics/W/watch", number)
        assert (request.method, request.uri) == ("POST", "/topics/W/watch?access_token=t")


def test_a_hub_that_is_away_is_a_503() -> None:
    config = {"proxy.workers": 1, "hub.store": "{dir}/hub.db", "hub.hub_anonymous": "all"}
    routes = "* hub,away_wait=0.1\n"
    with Site(Setup(routes=routes, config=config, files=IDLE_HUB.files, env=IDLE_HUB.environment)) as site:
        answer = site.get("/topics")
        assert (answer.status, answer["Retry-After"]) == (503, "3")
