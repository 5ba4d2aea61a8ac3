"""Publishers and followers of griphub.client against a real hub whose processes are killed, and with tokens."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import jwt
import pytest

from griphub import Follower, NewEvent, Publisher, ReceivedEvent, Selection
from griphub.client.connection import HubConnection
from griphub.client.errors import HubError, RequestFailed
from griphub.client.history import read_history
from tests.support.hub import HubSite, hub_site

SECRET = "a secret that is long enough for HS256"
EVENTS = 3000


@pytest.fixture(scope="module")
def site() -> Iterator[HubSite]:
    with hub_site() as site:
        yield site


async def made(site: HubSite, topic: str, token: str | None = None) -> str:
    async with HubConnection(site.url, token) as connection:
        answer = await connection.request("PUT", ("topics", topic), body=b"{}")
    assert answer.status == 201
    return topic


async def history(site: HubSite, topic: str) -> list[object]:
    async with HubConnection(site.url) as connection:
        return [
            message.data
            async for message in read_history(connection, topic, Selection())
            if isinstance(message, ReceivedEvent)
        ]


async def test_killed_processes_lose_nothing_and_store_nothing_twice(site: HubSite) -> None:
    topic = await made(site, "killed")
    reached = asyncio.Event()

    async def follow() -> list[object]:
        seen: list[object] = []
        async with Follower(site.url, topic) as follower:
            async for event in follower:
                assert isinstance(event, ReceivedEvent)
                seen.append(event.data)
                if len(seen) == EVENTS // 10:
                    reached.set()
                if len(seen) == EVENTS:
                    return seen
        return seen

    async def kill() -> None:
        await reached.wait()
        for kind in ("hub", "writer_process", "handler", "hub"):
            await asyncio.to_thread(site.kill, kind)
            await asyncio.sleep(0.5)

    following, killing = asyncio.create_task(follow()), asyncio.create_task(kill())
    async with Publisher(site.url, topic, buffer=2000) as publisher:
        for number in range(EVENTS):
            await publisher.submit(number)
            if number % 10 == 0:
                # Many small requests, so that the kills hit some of them.
                await publisher.flush()
        await killing
        assert (await publisher.publish_many([NewEvent("a"), NewEvent("b")]))[1].id > "0"
        assert publisher.stored == EVENTS + 2
    assert await asyncio.wait_for(following, 60) == list(range(EVENTS))
    assert await history(site, topic) == [*range(EVENTS), "a", "b"]


async def test_conditions_and_names(site: HubSite) -> None:
    topic = await made(site, "conditions")
    async with Publisher(site.url, topic) as publisher:
        first = await publisher.publish({"events": []}, key="k", if_match="0")
        again = await publisher.publish("once", idempotency_key="n")
        repeated = await publisher.publish("once", idempotency_key="n")
        assert (repeated.id, repeated.repeated) == (again.id, True)
        await publisher.publish(key="k", op="delete", if_match=first.cursor)
        with pytest.raises(RequestFailed) as failed:
            await publisher.publish("late", key="k", if_match=first.cursor)
        assert failed.value.status == 412
        with pytest.raises(RequestFailed, match="another request"):
            await publisher.publish("other", idempotency_key="n")
    assert await history(site, topic) == [{"events": []}, "once", None]


async def test_an_event_at_fault_harms_no_other(site: HubSite) -> None:
    topic = await made(site, "fault")
    async with Publisher(site.url, topic) as publisher:
        events = [NewEvent(1), NewEvent(2, key="k" * 2000), NewEvent("t", content_type="text/plain"), NewEvent(b"\xff")]
        results = await asyncio.gather(
            *(publisher.publish(event.data, key=event.key, content_type=event.content_type) for event in events),
            return_exceptions=True,
        )
    assert [isinstance(result, HubError) for result in results] == [False, True, False, False]
    assert await history(site, topic) == [1, "t", b"\xff"]


def command(site: HubSite, *argv: str, token: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRIPPROXY_HUB")}
    environment["GRIPPROXY_HUB_URL"] = site.url
    if token is not None:
        environment["GRIPPROXY_HUB_TOKEN"] = token
    return subprocess.run(
        [sys.executable, "-m", "gripproxy", "hub", *argv],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_snapshot_from_the_command_line(site: HubSite) -> None:
    assert command(site, "topics", "make", "table").returncode == 0
    numbers = range(2500)
    # Several pages of the hub, so that the proxy follows links between them.
    for round in ("old", "new"):
        batch = [NewEvent({"n": number, "is": round, "filler": "x" * 500}, key=f"k{number:04}") for number in numbers]
        asyncio.run(publish_all(site, "table", batch))
    assert command(site, "publish", "table", "--delete", "--key=k0001").returncode == 0
    done = command(site, "snapshot", "table")
    assert (done.returncode, done.stderr) == (0, "")
    first, *events, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert last == {"complete": first["version"], "cursor": first["cursor"]}
    assert [event["key"] for event in events] == [f"k{number:04}" for number in numbers if number != 1]
    assert {event["data"]["is"] for event in events} == {"new"}
    # A version between the events of two keys.
    part = command(site, "snapshot", "table", "--low=k0010", "--high=k0012", f"--version={events[9]['cursor']}")
    found = [json.loads(line) for line in part.stdout.splitlines()]
    assert [(event["key"], event["data"]["is"]) for event in found[1:-1]] == [("k0010", "new"), ("k0011", "old")]
    gone = command(site, "snapshot", "table", "--version=zzzz.1")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "(410 gone)" in gone.stderr
    followed = command(site, "follow", "table", f"--after={events[2497]['cursor']}", "--limit=1", "--json")
    assert json.loads(followed.stdout)["key"] == "k2499"


async def publish_all(site: HubSite, topic: str, events: list[NewEvent]) -> None:
    async with Publisher(site.url, topic) as publisher:
        for event in events:
            await publisher.submit(event.data, key=event.key)


def test_commands_with_tokens() -> None:
    def token(**rights: list[str]) -> str:
        claims = {"iss": "i", "sub": "s", "aud": "gripproxy-hub", "exp": int(time.time()) + 600, **rights}
        return jwt.encode(claims, SECRET, "HS256")

    admin, writer, reader = token(admin=["*"]), token(publish=["news-*"]), token(subscribe=["news-*"])
    with hub_site({"hub.hub_anonymous": None, "hub.hub_key": SECRET}) as site:
        assert command(site, "topics", "make", "news-a", token=admin).stdout == "made news-a\n"
        assert command(site, "topics", "make", "other", token=admin).returncode == 0
        assert command(site, "publish", "news-a", "hello", token=writer).returncode == 0
        done = command(site, "read", "news-a", token=reader)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith("  hello\n")
        followed = command(site, "follow", "news-a", "--after=0", "--limit=1", token=reader)
        assert followed.stdout == done.stdout
        assert [line.split()[0] for line in command(site, "topics", token=reader).stdout.splitlines()] == [
            "NAME",
            "news-a",
        ]
        for refused in (
            command(site, "publish", "news-a", "x", token=reader),
            command(site, "read", "news-a", token=writer),
            command(site, "read", "other", token=reader),
            command(site, "topics", "delete", "news-a", token=writer),
        ):
            assert (refused.returncode, refused.stdout) == (1, "")
            assert "(403 forbidden)" in refused.stderr
        without = command(site, "read", "news-a")
        assert without.returncode == 1
        assert "(a token is given with --token or GRIPPROXY_HUB_TOKEN)" in without.stderr
