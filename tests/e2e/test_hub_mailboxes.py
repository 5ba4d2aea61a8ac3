"""Mailboxes through the proxy: many topics over one poll, held and woken; the hub ends under held polls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from tests.support.hub import PATIENCE, HubSite, hub_site

TOPICS = ("a", "b")

TOLD = 2.0
"""Seconds after the return of the hub in which held polls are answered; on an idle machine it takes some 0.02."""


class Subscriber:
    """One subscriber that follows topics."""

    def __init__(self, session: aiohttp.ClientSession, site: HubSite, name: str) -> None:
        self._session = session
        self._url = f"{site.url}/subscribers/{name}"
        self.publisher_id = ""
        self.last = "0"

    async def follow(self, *topics: str) -> None:
        body = {"sequence": 1, "commands": [{"subscribe": {"topic": topic}} for topic in topics]}
        async with self._session.post(f"{self._url}/commands", json=body) as response:
            assert response.status == 200, await response.text()
            self.publisher_id = (await response.json())["publisher_id"]

    async def poll(self, wait: int = 30) -> tuple[int, list[dict[str, Any]]]:
        """Poll, acknowledging the messages so far; return the status and the messages."""
        query = {"max_processed_sequence_id": self.last, "publisher_id": self.publisher_id, "wait": str(wait)}
        async with self._session.get(f"{self._url}/poll", params=query) as response:
            answer = await response.json(content_type=None)
            if response.status != 200:
                return response.status, []
        messages = list(answer["messages"])
        if messages:
            self.last = messages[-1]["sequence_id"]
        return 200, messages


async def publish(session: aiohttp.ClientSession, site: HubSite, topic: str, data: str) -> None:
    async with session.post(f"{site.url}/topics/{topic}/events", json={"events": [{"data": data}]}) as response:
        assert response.status == 201, await response.text()


def run(case: Callable[[aiohttp.ClientSession, HubSite], Awaitable[None]]) -> None:
    """Run a service, and the case with it."""

    async def with_session(site: HubSite) -> None:
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
            for topic in TOPICS:
                async with session.put(f"{site.url}/topics/{topic}", json={}) as response:
                    assert response.status == 201
            await case(session, site)

    with hub_site() as site:
        asyncio.run(with_session(site))


def test_messages_of_two_topics_come_in_order_over_one_poll_after_the_other() -> None:
    async def case(session: aiohttp.ClientSession, site: HubSite) -> None:
        subscriber = Subscriber(session, site, "s")
        await subscriber.follow(*TOPICS)
        sent = [f"{number}" for number in range(100)]

        async def send() -> None:
            for number, data in enumerate(sent):
                await publish(session, site, TOPICS[number % 2], data)

        sending = asyncio.ensure_future(send())
        got: list[str] = []
        while len(got) < len(sent):
            status, messages = await subscriber.poll()
            assert status == 200
            got += [message["event"]["data"] for message in messages]
        await sending
        assert got == sent

    run(case)


def test_a_held_poll_is_answered_by_the_first_message_and_a_newer_poll_ends_it() -> None:
    async def case(session: aiohttp.ClientSession, site: HubSite) -> None:
        subscriber = Subscriber(session, site, "s")
        await subscriber.follow("a")
        first = asyncio.ensure_future(subscriber.poll(60))
        # The newer poll may be the first to arrive: then it is the older one.
        second = asyncio.ensure_future(subscriber.poll(60))
        done, (held,) = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [(200, [])]
        await publish(session, site, "a", "x")
        status, messages = await held
        assert (status, [message["event"]["data"] for message in messages]) == (200, ["x"])

    run(case)


def test_polls_that_are_held_when_the_hub_is_killed_are_answered_404() -> None:
    async def case(session: aiohttp.ClientSession, site: HubSite) -> None:
        subscribers = [Subscriber(session, site, f"s{number}") for number in range(20)]
        for subscriber in subscribers:
            await subscriber.follow("a")
        polls = [asyncio.ensure_future(subscriber.poll(60)) for subscriber in subscribers]
        # Held once the hub has answered a later request of the same connection pool.
        while True:
            async with session.get(f"{site.url}/subscribers") as response:
                found = (await response.json())["subscribers"]
            if all(each["held"] for each in found):
                break
        site.kill("hub")
        while True:
            async with session.get(f"{site.url}/topics/a") as response:
                if response.status == 200:
                    break
        back = time.monotonic()
        assert [await poll for poll in polls] == [(404, [])] * len(polls)
        assert time.monotonic() - back < TOLD
        # The subscriber begins anew.
        await subscribers[0].follow("a")
        await publish(session, site, "a", "x")
        status, messages = await subscribers[0].poll()
        assert (status, len(messages)) == (200, 1)

    run(case)
