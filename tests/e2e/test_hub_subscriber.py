"""griphub.Subscriber against a real hub, whose pushes are lost, repeated, overtaken and late on the way.

That nothing is repeated at the end is seen by a last event, which has to be the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import random
import secrets
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from griphub import Publisher, Report, ReportKind, Strategy, Subscriber
from griphub.client.connection import HubConnection
from tests.support.hub import PATIENCE, HubSite, hub_site, until
from tests.support.push_site import PUSH_CONFIG, token

EVENTS: Final = 300


@pytest.fixture(scope="module")
def site() -> Iterator[HubSite]:
    with hub_site(PUSH_CONFIG) as site:
        yield site


@pytest.fixture
async def topic(site: HubSite) -> str:
    name = f"news-{secrets.token_hex(4)}"
    async with HubConnection(site.url, token()) as connection:
        assert (await connection.request("PUT", ("topics", name), body=b"{}")).status == 201
    return name


async def subscriptions(site: HubSite, topic: str) -> list[dict[str, Any]]:
    async with HubConnection(site.url, token()) as connection:
        answer = await connection.request("GET", ("topics", topic, "subscriptions"))
    found = json.loads(answer.body)["subscriptions"]
    assert isinstance(found, list)
    return found


async def take(subscriber: Subscriber, count: int) -> list[Any]:
    async with asyncio.timeout(2 * PATIENCE):
        return [(await anext(subscriber)).data for _ in range(count)]


async def publish(site: HubSite, topic: str, *data: Any, gap: float = 0.0) -> None:
    async with Publisher(site.url, topic, token=token()) as publisher:
        for each in data:
            await publisher.publish(each)
            await asyncio.sleep(gap)


class Network:
    """Way from the hub to a callback, on which each push has a fate of its own.

    Attributes:
        url: by which the hub reaches the callback.
        target: URL of the callback itself.
        shares: probability of each fate: ``lost`` (the hub believes that it was received), ``failed`` (it is repeated
            by the hub), ``answer lost`` (received, and repeated), ``late`` (behind its successors), ``twice``.
        fates: number of each.
    """

    def __init__(self) -> None:
        self.url = self.target = ""
        self.shares: dict[str, float] = {}
        self.fates: Counter[str] = Counter()
        self._chance = random.Random(7)
        self._late: set[asyncio.Task[int]] = set()

    def _fate(self) -> str:
        number = self._chance.random()
        for fate, share in self.shares.items():
            number -= share
            if number < 0:
                return fate
        return "sound"

    async def _handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower().startswith("webhook-")}
        assert len(headers) == 3, "each push is signed"
        if b'"challenge"' in body:
            async with self._session.post(self.target, data=body, headers=headers) as answer:
                return web.Response(status=answer.status, body=await answer.read())
        fate = self._fate()
        self.fates[fate] += 1
        match fate:
            case "lost":
                return web.Response(status=204)
            case "failed":
                return web.Response(status=500)
            case "late":
                task = asyncio.ensure_future(self._send(body, headers, self._chance.random()))
                self._late.add(task)
                task.add_done_callback(self._late.discard)
                return web.Response(status=204)
        status = await self._send(body, headers)
        if fate == "twice":
            await self._send(body, headers)
        return web.Response(status=500 if fate == "answer lost" else status)

    async def _send(self, body: bytes, headers: dict[str, str], after: float = 0.0) -> int:
        await asyncio.sleep(after)
        try:
            async with self._session.post(self.target, data=body, headers=headers) as answer:
                return answer.status
        except aiohttp.ClientError:
            return 502

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Network]:
        application = web.Application()
        application.router.add_post("/", self._handle)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
            async with aiohttp.ClientSession() as self._session:
                yield self
                await asyncio.gather(*self._late)
        finally:
            await runner.cleanup()


@contextlib.asynccontextmanager
async def behind(network: Network, site: HubSite, topic: str, **options: Any) -> AsyncIterator[Subscriber]:
    """A subscriber behind a network."""
    async with network.running():
        subscriber = Subscriber(site.url, topic, token=token(), callback_url=network.url, port=0, **options)
        async with subscriber:
            network.target = f"http://127.0.0.1:{subscriber.port}/"
            yield subscriber


async def together(work: Coroutine[Any, Any, Any], *others: Coroutine[Any, Any, Any]) -> Any:
    """The result of the first, while the others run."""
    async with asyncio.TaskGroup() as group:
        first = group.create_task(work)
        for other in others:
            group.create_task(other)
    return first.result()


async def test_on_a_sound_network_pushes_bring_all_and_no_subscription_is_renewed(site: HubSite, topic: str) -> None:
    network, reports = Network(), list[Report]()
    async with behind(network, site, topic, on_report=reports.append) as subscriber:
        await publish(site, topic, "first")
        assert await take(subscriber, 1) == ["first"]
        (standing,) = await subscriptions(site, topic)
        got = await together(take(subscriber, EVENTS), publish(site, topic, *range(EVENTS), gap=0.01))
        assert got == list(range(EVENTS))
        counts = subscriber.counts
        assert counts.renewed == 0
        assert counts.pushed > EVENTS / 2, "most of them arrived by pushes"
        assert [each["subscription_id"] for each in await subscriptions(site, topic)] == [standing["subscription_id"]]
    assert reports == []
    assert await subscriptions(site, topic) == [], "the end cancels"


async def test_lost_repeated_late_and_failed_pushes(site: HubSite, topic: str) -> None:
    network, reports = Network(), list[Report]()
    network.shares = {"lost": 0.3, "failed": 0.1, "answer lost": 0.1, "late": 0.2, "twice": 0.1}
    async with behind(network, site, topic, on_report=reports.append) as subscriber:
        await publish(site, topic, "first")
        assert await take(subscriber, 1) == ["first"]
        got = await together(take(subscriber, EVENTS), publish(site, topic, *range(EVENTS), gap=0.01))
        assert got == list(range(EVENTS))
        await publish(site, topic, "end")
        assert await take(subscriber, 1) == ["end"]
        assert {"lost", "failed", "answer lost", "late", "twice"} <= network.fates.keys()
        counts = subscriber.counts
        assert counts.polled
        assert counts.pushed
    assert {report.kind for report in reports} <= {ReportKind.RENEWED, ReportKind.FAILED}


async def test_a_killed_hub(topic: str, site: HubSite) -> None:
    async def work() -> None:
        for number in range(EVENTS):
            if number in (EVENTS // 3, 2 * EVENTS // 3):
                await asyncio.to_thread(site.kill, "hub")
            await publish(site, topic, number)

    network = Network()
    network.shares = {"lost": 0.1}
    async with behind(network, site, topic) as subscriber:
        assert await together(take(subscriber, EVENTS), work()) == list(range(EVENTS))
        await publish(site, topic, "end")
        assert await take(subscriber, 1) == ["end"]


async def test_a_subscriber_that_was_off_goes_on_where_it_was(
    site: HubSite, topic: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "place"
    await publish(site, topic, *range(10))
    async with behind(Network(), site, topic, state_path=path) as subscriber:
        assert await take(subscriber, 10) == list(range(10))
    await publish(site, topic, *range(10, 20))
    async with behind(Network(), site, topic, state_path=path) as subscriber:
        # The last one was taken, and not processed.
        assert await take(subscriber, 11) == list(range(9, 20))


@pytest.mark.parametrize("strategy", Strategy)
async def test_either_strategy_alone_and_both(site: HubSite, topic: str, strategy: Strategy) -> None:
    async with behind(Network(), site, topic, strategy=strategy) as subscriber:
        await publish(site, topic, *range(20))
        assert await take(subscriber, 20) == list(range(20))
        counts = subscriber.counts
        assert (counts.pushed > 0, counts.polled > 0) != (False, False)
        assert strategy.polls or counts.polled == 0
        assert strategy.pushes or counts.pushed == 0


async def test_switched_off_and_on(site: HubSite, topic: str) -> None:
    async with behind(Network(), site, topic) as subscriber:
        await until(lambda: subscriber.subscription_id is not None, "subscribed")
        subscriber.switch(Strategy.POLL_ONLY)
        await publish(site, topic, 1)
        assert await take(subscriber, 1) == [1]
        assert await subscriptions(site, topic) == []
        subscriber.switch(Strategy.PUSH_AND_POLL)
        await publish(site, topic, 2)
        assert await take(subscriber, 1) == [2]


async def test_from_the_time_of_a_receipt(site: HubSite, topic: str) -> None:
    """The time to begin behind is one that the hub gave."""
    async with Publisher(site.url, topic, token=token()) as publisher:
        receipt = await publisher.publish("before")
        await publisher.publish("behind")
    async with behind(Network(), site, topic, since=receipt.time) as subscriber:
        assert await take(subscriber, 1) == ["behind"]


async def test_a_killed_sender(site: HubSite, topic: str) -> None:
    async def work() -> None:
        for number in range(EVENTS):
            if number in (EVENTS // 3, 2 * EVENTS // 3):
                await asyncio.to_thread(site.kill, "sender_process")
            await publish(site, topic, number)

    async with behind(Network(), site, topic) as subscriber:
        assert await together(take(subscriber, EVENTS), work()) == list(range(EVENTS))
        await publish(site, topic, "end")
        assert await take(subscriber, 1) == ["end"]


def store_command(*words: str) -> None:
    command = [sys.executable, "-m", "gripproxy", "hub-store", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("strategy", [Strategy.PUSH_AND_POLL, Strategy.POLL_ONLY])
async def test_a_store_that_is_restored_from_a_backup(strategy: Strategy) -> None:
    """Events behind the backup are lost for the hub, which is told; none is repeated, and the new ones follow."""
    reports: list[Report] = []
    with hub_site(PUSH_CONFIG) as site:
        backup, store = str(site.directory / "backup.db"), str(site.directory / "hub.db")
        async with HubConnection(site.url, token()) as connection:
            assert (await connection.request("PUT", ("topics", "t"), body=b"{}")).status == 201
        async with behind(Network(), site, "t", strategy=strategy, on_report=reports.append) as subscriber:
            await publish(site, "t", *range(10))
            await asyncio.to_thread(store_command, "backup", store, backup)
            await publish(site, "t", *range(10, 20))
            assert await take(subscriber, 20) == list(range(20))
            assert site.service is not None
            # The runner is to start no other hub before the store is there.
            site.service.process.send_signal(signal.SIGSTOP)
            await asyncio.to_thread(site.kill, "hub")
            await asyncio.to_thread(store_command, "restore", backup, store, "--force")
            site.service.process.send_signal(signal.SIGCONT)
            await publish(site, "t", *range(20, 30))
            subscriber.wake()
            assert await take(subscriber, 10) == list(range(20, 30))
    gone = [report for report in reports if report.kind is ReportKind.GONE]
    assert len(gone) == 1
    assert not [report for report in reports if report.kind is ReportKind.GAP]
