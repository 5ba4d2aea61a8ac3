"""Limits in numbers (docs/grip.md §10, §6.2)."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.wire.wirekit import Setup, Site, covers, hold
from tests.wire.wirekit.holding import stream

# What waits for its turn must not go out because the machine was busy for a second.
SETUP = Setup(config={"handler.message_wait": 60_000})
TWO_CHANNELS = Setup(config={"handler.connection_subscription_max": 2})
SLOW = Setup(config={"handler.message_rate": 100})
SHORT = Setup(config={"handler.message_rate": 40, "handler.message_hwm": 10, "proxy.workers": 1})
UNLIMITED = Setup(config={"handler.message_rate": 0, "handler.message_hwm": 0})


@covers("10 channels", "3.1 grip-channel")
def test_the_first_twenty_channels_of_a_connection(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", ", ".join(f"{case}-{n}" for n in range(22))))
    with stream(site, f"/{case}") as client:
        for number in (21, 20, 19, 0):
            site.publisher.stream(f"{case}-{number}", f"<{number}>")
        assert client.data(7) == b"<19><0>"
        assert client.silent(0.1)


@covers("10 channels")
def test_the_limit_of_channels_is_configurable(start: Callable[[Setup], Site], case: str) -> None:
    site = start(TWO_CHANNELS)
    site.backend.on(f"/{case}", hold("stream", f"{case}-1, {case}-2", f"Grip-Channel: {case}-3"))
    with stream(site, f"/{case}") as client:
        for number in (3, 2, 1):
            site.publisher.stream(f"{case}-{number}", f"<{number}>")
        assert client.data(6) == b"<2><1>"
        assert client.silent(0.1)


@covers("10 message_rate")
def test_message_rate(start: Callable[[Setup], Site], case: str) -> None:
    site = start(SLOW)
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        wanted = "".join(f"<{number}>" for number in range(60))
        begin = time.monotonic()
        for number in range(60):
            site.publisher.push_item({"channel": case, "http-stream": {"content": f"<{number}>"}})
        assert client.data(len(wanted)).decode() == wanted
        # 60 deliveries in batches of three every 25 ms.
        assert time.monotonic() - begin > 0.4


@covers("10 message_hwm")
def test_message_hwm(start: Callable[[Setup], Site], case: str) -> None:
    site = start(SHORT)
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.publish(
            *[{"channel": case, "http-stream": {"content": f"<{number:03}>"}} for number in range(200)]
        )
        got = client.data_until(b"<009>")
        # The rest did not fit into the queue: only what left it while the 200 came in made room for more.
        while not got.endswith(b"<end>"):
            site.publisher.stream(case, "<end>")  # as long as the queue is full this is dropped too
            while not client.silent(0.2):
                got += client.piece()
        numbers = got.decode().replace("<end>", "").strip("<>").split("><")
        assert numbers == sorted(numbers)
        assert 10 <= len(numbers) < 150, numbers


@covers("10 message_rate")
def test_zero_is_no_limit(start: Callable[[Setup], Site], case: str) -> None:
    site = start(UNLIMITED)
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        wanted = "".join(f"<{number:05}>" for number in range(1_500))
        items = [{"channel": case, "http-stream": {"content": f"<{number:05}>"}} for number in range(1_500)]
        # Pushpin's own limit would make each take 0.6 s. A busy machine may need more than that, but not every time.
        took = [float("inf")]
        while min(took) > 0.5 and len(took) < 40:
            begin = time.monotonic()
            site.publisher.publish(*items)
            assert client.data(len(wanted)).decode() == wanted
            took.append(time.monotonic() - begin)
        assert min(took) <= 0.5, took


@covers("10 sequencer", "6.2 waiting limit")
def test_a_hundred_items_wait_for_their_turn(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:

        def item(number: int) -> dict[str, object]:
            content = {"http-stream": {"content": f"<{number}>"}}
            return {"channel": case, "id": str(number), "prev-id": str(number - 1), "formats": content}

        site.publisher.publish(item(0))
        assert client.data_until(b">") == b"<0>"
        # 2 to 101 wait for 1; 102 is one too many.
        site.publisher.publish(*[item(number) for number in range(2, 103)])
        site.publisher.publish(item(1))
        wanted = "".join(f"<{number}>" for number in range(1, 102))
        assert client.data(len(wanted)).decode() == wanted
        site.publisher.stream(case, "<after>", no_seq=True)
        assert client.data_until(b"<after>") == b"<after>"
