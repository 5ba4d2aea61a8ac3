"""Limits in time: how long ids are remembered, and what a large delivery weighs (docs/grip.md §5.4, §10)."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.wire.wirekit import Setup, Site, covers, expect, hold
from tests.wire.wirekit.holding import stream

SETUP = Setup()
ONE_SECOND = Setup(config={"handler.id_cache_ttl": 1})
NO_CACHE = Setup(config={"handler.id_cache_ttl": 0})
BLOCKS = Setup(config={"handler.message_rate": 400, "handler.message_block_size": 100, "proxy.workers": 1})
ROUTES = Setup(
    routes="* {backend}\n*,path_beg=/one,id=one {backend}\n*,path_beg=/two,id=two {backend}\n",
    config={"handler.message_rate": 200, "proxy.workers": 1},
)


@covers("5.4 1 duplicate")
def test_ids_are_forgotten_after_a_while(start: Callable[[Setup], Site], case: str) -> None:
    site = start(ONE_SECOND)
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        begin = time.monotonic()
        # Together: it may take more than the second between one publish and the next.
        texts = ("first\n", "again\n")
        site.publisher.publish(*[{"channel": case, "id": "1", "http-stream": {"content": text}} for text in texts])
        assert client.data_until(b"\n") == b"first\n"
        while client.silent(0.2):
            site.publisher.stream(case, "later\n", id="1")
        assert client.data_until(b"\n") == b"later\n"
        assert time.monotonic() - begin > 0.8


@covers("5.4 1 duplicate")
def test_without_a_cache_nothing_is_a_duplicate(start: Callable[[Setup], Site], case: str) -> None:
    site = start(NO_CACHE)
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.stream(case, "one\n", id="1")
        site.publisher.stream(case, "two\n", id="1")
        assert client.data(8) == b"one\ntwo\n"


@covers("10 message_rate", "5.1 size")
def test_a_delivery_weighs_its_blocks(start: Callable[[Setup], Site], case: str) -> None:
    site = start(BLOCKS)
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:

        def seconds(**more: object) -> float:
            begin = time.monotonic()
            site.publisher.publish(
                *[{"channel": case, "http-stream": {"content": "x" * 1000}, **more} for _ in range(120)]
            )
            assert client.data(120_000) == b"x" * 120_000
            return time.monotonic() - begin

        # 120 deliveries of ten blocks each are 1200; with a size of their own they are 120, and take a third of a
        # second. Longer on a busy machine, but not every time.
        assert seconds() >= 1.3
        assert any(seconds(size=1) < 1.3 for _ in range(20))


@covers("10 message_rate")
def test_routes_with_an_id_have_queues_of_their_own(start: Callable[[Setup], Site], case: str) -> None:
    site = start(ROUTES)
    site.backend.on(f"/one/{case}", hold("stream", f"{case}-1"))
    site.backend.on(f"/two/{case}", hold("stream", f"{case}-2"))
    with stream(site, f"/one/{case}") as one, stream(site, f"/two/{case}") as two:
        # Three seconds of one queue, and then one for the other.
        site.publisher.publish(*[{"channel": f"{case}-1", "http-stream": {"content": "1"}} for _ in range(600)])
        site.publisher.stream(f"{case}-2", "2")
        assert two.data(1) == b"2"
        before = b""
        while len(before) < 600 and not one.silent(0):
            before += one.piece()
        assert before + one.data(600 - len(before)) == b"1" * 600
        own_queue = expect(
            pushpin=False,
            ours=True,
            pushpin_does="Delivers items to holds of all routes from one queue: with `message_rate` 200, an item for "
            "one route waits for 600 of another.",
            ours_does="Has a delivery queue for each route id, so that items for one route do not wait for those of "
            "another.",
            because="A hold knows the id of its route from Pushpin 1.37 on.",
        )
        assert (len(before) < 500) is own_queue
