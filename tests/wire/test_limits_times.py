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
        site.publisher.stream(case, "first\n", id="1")
        site.publisher.stream(case, "again\n", id="1")
        begin = time.monotonic()
        assert client.data_until(b"\n") == b"first\n"
        while client.silent(0.2):
            site.publisher.stream(case, "later\n", id="1")
        assert client.data_until(b"\n") == b"later\n"
        assert 0.8 < time.monotonic() - begin < 12


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
        for size, least, most in ((None, 1.3, 12.0), (1, 0.0, 1.3)):
            more = {} if size is None else {"size": size}
            begin = time.monotonic()
            # 120 deliveries of ten blocks each are 1200; with a size of their own they are 120.
            site.publisher.publish(
                *[{"channel": case, "http-stream": {"content": "x" * 1000}, **more} for _ in range(120)]
            )
            assert client.data(120_000) == b"x" * 120_000
            assert least <= time.monotonic() - begin < most, (size, time.monotonic() - begin)


@covers("10 message_rate")
def test_routes_with_an_id_have_queues_of_their_own(start: Callable[[Setup], Site], case: str) -> None:
    site = start(ROUTES)
    site.backend.on(f"/one/{case}", hold("stream", f"{case}-1"))
    site.backend.on(f"/two/{case}", hold("stream", f"{case}-2"))
    with stream(site, f"/one/{case}") as one, stream(site, f"/two/{case}") as two:
        site.publisher.publish(*[{"channel": f"{case}-1", "http-stream": {"content": "1"}} for _ in range(200)])
        begin = time.monotonic()
        site.publisher.stream(f"{case}-2", "2")
        assert two.data(1) == b"2"
        waited = time.monotonic() - begin
        assert one.data(200) == b"1" * 200
        assert time.monotonic() - begin > 0.4
        own_queue = expect(
            pushpin=False,
            ours=True,
            because="A hold knows the id of its route; in 1.36 it does not, since 1.37 it does.",
        )
        assert (waited < 0.4) is own_queue
