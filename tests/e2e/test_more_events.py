"""``More-Events: true``: a long history over WebSocket-over-HTTP arrives without a wait (docs/grip.md §8.3)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.wire.wirekit import Setup, Site
from tests.wire.wirekit.events import event, events, opened
from tests.wire.wirekit.websocket import websocket

ANSWERS = 55
EVENTS = 90
SIZE = 10_000
MORE = "More-Events: true"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site(Setup(routes="* {backend},over_http\n", config={"proxy.workers": 1})) as site:
        yield site


def page(number: int) -> list[bytes]:
    return [event("TEXT", f"{number}-{index} ".ljust(SIZE, ".")) for index in range(EVENTS)]


def test_fifty_megabytes_of_history_on_a_silent_topic(site: Site) -> None:
    pages = [events(*page(number), headers=(MORE,)) for number in range(1, ANSWERS)]
    first = opened(*page(0), headers=(MORE, "Keep-Alive-Interval: 1000"))
    site.backend.on("/history", [first, *pages, events(event("TEXT", "end")), events()])
    begun = time.monotonic()
    with websocket(site, "/history") as client:
        for number in range(ANSWERS):
            for index in range(EVENTS):
                assert client.message()[1].startswith(b"%d-%d ." % (number, index))
        assert client.says("end")
    # Without the header each answer but the first would wait for 1,000 seconds.
    assert time.monotonic() - begun < 60
    assert site.backend.count("/history") >= ANSWERS + 1


def test_a_backend_that_always_has_more_but_sends_nothing(site: Site) -> None:
    site.backend.on("/nothing", [opened(event("TEXT", "hello"), headers=(MORE,)), events(headers=(MORE,))])
    with websocket(site, "/nothing") as client:
        assert client.says("hello")
        site.backend.request("/nothing", 1)
        client.text("from the client")
        # The opening, the request for more, and one with the client's message.
        assert b"from the client" in site.backend.request("/nothing", 2).body
        assert site.backend.count("/nothing") == 3
