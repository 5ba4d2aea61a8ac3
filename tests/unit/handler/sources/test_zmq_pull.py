"""Messages of the PULL socket. Real sockets are in tests/e2e/test_handler_intake.py."""

from __future__ import annotations

import asyncio

from handler.dispatch.refusals import INTERVAL
from tests.support.zmq_doubles import House, item, turn


async def test_pull(house: House) -> None:
    assert house.pull() == "tcp://127.0.0.1:5560"
    (sock,) = house.context.sockets
    assert sock.places == ["bind tcp://127.0.0.1:5560"]
    sock.waiting = [[item(b"a")], [b"T" + item(b"b")], [b""], [item(b"two"), item(b"parts")], [item(b"c")]]
    await turn()
    assert house.worker.contents == [b"a", b"b", b"c"]
    assert house.dispatcher.counters.invalid == 2
    assert house.lines[0].startswith('item skipped: way=PULL reason="message is empty')
    house.dispatcher.tick(asyncio.get_running_loop().time() + INTERVAL)
    assert house.lines[1:] == ['items skipped: way=PULL more=1 last_reason="message has 2 parts, expected 1"']
    assert house.dispatcher.refusals.totals() == {"pull": 2, "sub": 0, "http": 0, "command": 0}


async def test_an_item_over_a_bound_is_skipped(house: House) -> None:
    house.pull()
    sock = house.context.sockets[0]
    long = [item(b"x", b"c" * 1025), item(b"x" * (16 * 1024 * 1024)), b"x" * (16 * 1024 * 1024 + 1)]
    sock.waiting = [*([each] for each in long), [item(b"x" * 100_000)], [item(b"y", b"c" * 1024)]]
    await turn()
    assert house.worker.contents == [b"x" * 100_000]
    assert house.dispatcher.counters.pull == 2
    assert house.dispatcher.counters.invalid == 3
    expected = "publish item object contains 'channel' of 1025 bytes, at most 1024 are allowed (channel_max)"
    assert house.lines[0].startswith(f'item skipped: way=PULL reason="{expected}" ')


async def test_an_error_without_text_is_explained(house: House) -> None:
    house.pull()
    house.context.sockets[0].waiting = [[b'J{"channel":"a","http-stream":{"action":"zz"}}']]
    await turn()
    assert "contains 'action' with the unknown value" in house.lines[0]


async def test_a_long_bad_item_is_shown_in_part(house: House) -> None:
    house.pull()
    house.context.sockets[0].waiting = [[b"x" * 100_000]]
    await turn()
    assert len(house.lines[0]) < 1000


async def test_an_item_on_a_reserved_channel_is_skipped(house: House) -> None:
    house.pull(b"c")
    house.context.sockets[0].waiting = [[item(b"a")], [item(b"b", b"c")], [item(b"d", b"other")]]
    await turn()
    assert house.worker.contents == []
    assert (house.dispatcher.counters.pull, house.dispatcher.counters.invalid) == (1, 2)
    assert house.lines[0].startswith(
        "item skipped: way=PULL channel=ch reason=\"channel 'ch' begins with 'c', which is reserved: publish over "
    )
