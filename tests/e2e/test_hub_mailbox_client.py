"""griphub.Mailbox against a real hub: killed between events, and with mailboxes that are too small."""

from __future__ import annotations

import asyncio
import json

from griphub import Mailbox, Publisher
from griphub.client.connection import HubConnection
from tests.support.hub import PATIENCE, HubSite, hub_site, until

TOPICS = ("a", "b", "c")
EVENTS = 200


async def make_topics(site: HubSite) -> None:
    async with HubConnection(site.url) as connection:
        for topic in TOPICS:
            assert (await connection.request("PUT", ("topics", topic), body=b"{}")).status == 201


async def mailboxes(site: HubSite) -> list[object]:
    async with HubConnection(site.url) as connection:
        answer = await connection.request("GET", ("subscribers",))
    found = json.loads(answer.body)["subscribers"]
    assert isinstance(found, list)
    return found


async def receive(mailbox: Mailbox, count: int) -> dict[str, list[object]]:
    """Return the data of the next events by topic."""
    got: dict[str, list[object]] = {topic: [] for topic in TOPICS}
    for _ in range(count):
        message = await anext(mailbox)
        got[message.topic].append(message.event.data)
    return got


async def test_a_killed_hub_costs_no_event_and_gives_none_twice() -> None:
    failures: list[str] = []
    subscribed: set[str] = set()

    async def publish(site: HubSite) -> None:
        publishers = [Publisher(site.url, topic) for topic in TOPICS]
        for number in range(EVENTS):
            if number == EVENTS // 2:
                await asyncio.to_thread(site.kill, "hub")
            await publishers[number % 3].publish(number)
        for publisher in publishers:
            await publisher.close()

    with hub_site() as site:
        await make_topics(site)
        async with asyncio.timeout(3 * PATIENCE), asyncio.TaskGroup() as group:
            mailbox = Mailbox(
                site.url, on_failure=failures.append, on_subscribed=lambda topic, *_: subscribed.add(topic)
            )
            async with mailbox:
                for topic in TOPICS:
                    await mailbox.subscribe(topic)
                await until(lambda: subscribed == set(TOPICS), "subscribed")
                sending = group.create_task(publish(site))
                got = await receive(mailbox, EVENTS)
                await sending
                # A further event of each topic would be preceded by a repeated one.
                for topic in TOPICS:
                    async with Publisher(site.url, topic) as publisher:
                        await publisher.publish("end")
                assert await receive(mailbox, 3) == {topic: ["end"] for topic in TOPICS}
                assert len(await mailboxes(site)) == 1
        assert got == {topic: list(range(place, EVENTS, 3)) for place, topic in enumerate(TOPICS)}
        assert failures
        assert await mailboxes(site) == []


async def test_messages_beyond_the_bound_are_reported_and_read() -> None:
    lost: list[tuple[str, str | None]] = []
    subscribed: set[str] = set()
    with hub_site({"hub.mailbox_bytes_max": "5000"}) as site:
        await make_topics(site)
        mailbox = Mailbox(
            site.url,
            on_subscribed=lambda topic, *_: subscribed.add(topic),
            on_lost=lambda topic, key, last: lost.append((topic, key)),
        )
        async with asyncio.timeout(3 * PATIENCE), mailbox:
            for topic in TOPICS:
                await mailbox.subscribe(topic)
            # There is no poll as long as no event is asked for.
            await until(lambda: subscribed == set(TOPICS), "subscribed")
            for topic in TOPICS:
                async with Publisher(site.url, topic) as publisher:
                    for number in range(EVENTS):
                        await publisher.submit(number)
            got = await receive(mailbox, 3 * EVENTS)
        assert got == {topic: list(range(EVENTS)) for topic in TOPICS}
        assert ("a", None) in lost
