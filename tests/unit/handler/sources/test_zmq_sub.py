"""Messages and subscriptions of the SUB socket. Real sockets are in tests/e2e/test_handler_intake.py."""

from __future__ import annotations

import time

import zmq

from gripproxy import pipe
from handler.sources.zmq_sub import MAX_SUBSCRIPTIONS
from tests.support.zmq_doubles import House, item, turn


async def test_a_topic_over_a_bound_is_skipped(house: House) -> None:
    house.sub()
    sock = house.context.sockets[0]
    sock.waiting = [[b"ch" * 513, item(b"a")], [b"ch", item(b"b")]]
    await turn()
    assert house.worker.contents == [b"b"]
    assert " reason=\"publish item object contains 'channel' of 1026 bytes" in house.lines[0]


async def test_sub_takes_the_topic_for_the_channel(house: House) -> None:
    house.sub(("tcp://127.0.0.1:5562", "tcp://127.0.0.1:9"), connect=False)
    (sock,) = house.context.sockets
    assert sock.places == ["bind tcp://127.0.0.1:5562"], "only the first is bound"
    sock.waiting = [[b"ch", item(b"a", b"other")], [b"chX", item(b"b")], [b"ch"], [b"ch", b"T3:ab"]]
    await turn()
    assert house.worker.contents == [b"a"]
    assert (house.dispatcher.counters.unheard, house.dispatcher.counters.invalid) == (1, 2)


async def test_sub_connects_to_all(house: House) -> None:
    assert house.sub(("tcp://a:1", "tcp://b:2"), connect=True) is None
    (sock,) = house.context.sockets
    assert sock.places == ["connect tcp://a:1", "connect tcp://b:2"]
    assert [option for option in sock.options if option[0] in (zmq.TCP_KEEPALIVE, zmq.TCP_KEEPALIVE_IDLE)] == [
        (zmq.TCP_KEEPALIVE, 1),
        (zmq.TCP_KEEPALIVE_IDLE, 30),
    ]


async def test_sub_follows_the_channels_before_and_after(house: House) -> None:
    house.sub()
    (sock,) = house.context.sockets
    house.dispatcher.received(house.worker, (pipe.SUBSCRIBE, b"new", 1), 0)
    house.dispatcher.received(house.worker, (pipe.UNSUBSCRIBE, b"new", False), 0)
    house.dispatcher.left(house.worker, 0)
    assert [option for option in sock.options if option[0] in (zmq.SUBSCRIBE, zmq.UNSUBSCRIBE)] == [
        (zmq.SUBSCRIBE, b"ch"),
        (zmq.SUBSCRIBE, b"new"),
        (zmq.UNSUBSCRIBE, b"new"),
        (zmq.UNSUBSCRIBE, b"ch"),
    ]


async def test_a_publisher_that_connects_late_learns_of_all_channels(house: House) -> None:
    house.sub()
    (sock,) = house.context.sockets
    assert (zmq.SNDHWM, MAX_SUBSCRIPTIONS) in sock.options
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sub, publisher = context.socket(zmq.SUB), context.socket(zmq.XPUB)
    try:
        sub.setsockopt(zmq.SNDHWM, MAX_SUBSCRIPTIONS)
        port = sub.bind_to_random_port("tcp://127.0.0.1")
        for number in range(3000):
            sub.setsockopt(zmq.SUBSCRIBE, b"%d" % number)
        publisher.connect(f"tcp://127.0.0.1:{port}")
        seen: set[bytes] = set()
        deadline = time.monotonic() + 20
        while len(seen) < 3000 and time.monotonic() < deadline:
            # The socket passes its subscriptions on when it is asked for something.
            sub.getsockopt(zmq.EVENTS)
            if publisher.poll(10):
                seen.add(publisher.recv())
        assert seen == {b"\1%d" % number for number in range(3000)}
    finally:
        context.destroy(0)


async def test_a_changed_subscription_looks_for_messages(house: House) -> None:
    """The edge may have gone by while the subscription was changed."""
    house.sub()
    await turn()
    house.context.sockets[0].waiting = [[b"ch", item(b"a")]]
    await turn()
    assert house.worker.contents == []
    house.dispatcher.received(house.worker, (pipe.SUBSCRIBE, b"new", 1), 0)
    await turn()
    assert house.worker.contents == [b"a"]


async def test_an_item_on_a_reserved_channel_is_skipped_whatever_channel_it_names(house: House) -> None:
    house.sub(reserved=b"c")
    house.context.sockets[0].waiting = [[b"ch", item(b"a", b"other")], [b"other", item(b"b")]]
    await turn()
    assert house.worker.contents == []
    assert (house.dispatcher.counters.sub, house.dispatcher.counters.invalid) == (1, 1)
    assert house.lines[0].startswith(
        "item skipped: way=SUB channel=ch reason=\"channel 'ch' begins with 'c', which is reserved: publish over "
    )
