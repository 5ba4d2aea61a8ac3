"""Held channels against a SUB socket, as the handler has one, that subscribes, dies and returns."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Callable

import pytest
import zmq

from griphub.notify.held_channels import HeldChannels
from handler.sources.zmq_sub import MAX_SUBSCRIPTIONS

PATIENCE = 20.0
"""Seconds for anything that a test waits for."""


class House:
    """Held channels, and the handler that holds them."""

    def __init__(self, path: pathlib.Path) -> None:
        self.spec = f"ipc://{path}"
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.seen: list[str] = []
        self.held = HeldChannels(
            self.context,
            self.spec,
            "hub/",
            lambda name: self.seen.append(f"+{name}"),
            lambda name: self.seen.append(f"-{name}"),
        )
        self.handler: zmq.Socket[bytes] | None = None

    def live(self, *channels: str) -> None:
        self.handler = self.context.socket(zmq.SUB)
        self.handler.setsockopt(zmq.SNDHWM, MAX_SUBSCRIPTIONS)
        self.handler.setsockopt(zmq.LINGER, 0)
        self.handler.bind(self.spec)
        self.subscribe(*channels)

    def subscribe(self, *channels: str) -> None:
        assert self.handler is not None
        for channel in channels:
            self.handler.setsockopt(zmq.SUBSCRIBE, channel.encode())

    def unsubscribe(self, channel: str) -> None:
        assert self.handler is not None
        self.handler.setsockopt(zmq.UNSUBSCRIBE, channel.encode())

    def die(self) -> None:
        if self.handler is not None:
            self.handler.close()
            self.handler = None

    async def sees(self, *expected: str) -> None:
        """Wait for changes, in any order, and nothing besides them."""
        await self._until(lambda: len(self.seen) >= len(expected))
        seen, self.seen = self.seen, []
        assert sorted(seen) == sorted(expected)

    async def _until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not true():
                if self.handler is not None:
                    # A socket takes new connections, and passes its subscriptions on to them, when it is asked.
                    self.handler.getsockopt(zmq.EVENTS)
                await asyncio.sleep(0.001)


@pytest.fixture
async def house(tmp_path: pathlib.Path) -> AsyncIterator[House]:
    house = House(tmp_path / "sub")
    try:
        yield house
    finally:
        house.die()
        house.held.close()
        house.context.term()


async def test_the_first_and_the_last_subscriber_are_seen(house: House) -> None:
    house.live()
    house.subscribe("hub/1/sse/")
    await house.sees("+hub/1/sse/")
    house.subscribe("hub/1/sse/", "hub/2/sse/")
    await house.sees("+hub/2/sse/")
    house.unsubscribe("hub/1/sse/")
    house.unsubscribe("hub/2/sse/")
    await house.sees("-hub/2/sse/")
    house.unsubscribe("hub/1/sse/")
    await house.sees("-hub/1/sse/")


async def test_channels_of_others_are_left_out(house: House) -> None:
    house.live("chat", "hu", "hubba", "", "hub/1/sse/")
    await house.sees("+hub/1/sse/")
    house.unsubscribe("chat")
    house.subscribe("hub/2/sse/é")
    await house.sees("+hub/2/sse/é")


async def test_a_handler_that_is_there_first_reports_all(tmp_path: pathlib.Path) -> None:
    before: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    handler = before.socket(zmq.SUB)
    handler.setsockopt(zmq.SNDHWM, MAX_SUBSCRIPTIONS)
    handler.bind(f"ipc://{tmp_path}/sub")
    names = [f"hub/{number}/sse/" for number in range(2000)]
    for name in names:
        handler.setsockopt(zmq.SUBSCRIBE, name.encode())
    house = House(tmp_path / "sub")
    house.handler = handler
    try:
        await house.sees(*[f"+{name}" for name in names])
    finally:
        house.die()
        house.held.close()
        house.context.term()
        before.term()


async def test_the_death_of_the_handler_ends_all_and_its_return_begins_some(house: House) -> None:
    house.live("hub/1/sse/", "hub/2/sse/", "hub/3/sse/")
    await house.sees("+hub/1/sse/", "+hub/2/sse/", "+hub/3/sse/")
    for _ in range(2):
        house.die()
        await house.sees("-hub/1/sse/", "-hub/2/sse/", "-hub/3/sse/")
        house.live("hub/1/sse/", "hub/2/sse/", "hub/3/sse/")
        await house.sees("+hub/1/sse/", "+hub/2/sse/", "+hub/3/sse/")
    house.die()
    await house.sees("-hub/1/sse/", "-hub/2/sse/", "-hub/3/sse/")
    house.live("hub/3/sse/", "hub/4/sse/")
    await house.sees("+hub/3/sse/", "+hub/4/sse/")


async def test_after_the_close_nothing_is_reported(house: House) -> None:
    house.live("hub/1/sse/")
    await house.sees("+hub/1/sse/")
    house.held.close()
    house.subscribe("hub/2/sse/")
    await asyncio.sleep(0)
    assert house.seen == []
