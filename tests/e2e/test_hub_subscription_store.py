"""Subscriptions of a store that is backed up, restored and damaged: the sender goes on, and waits for nothing."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import sqlite3
import time
from collections.abc import AsyncIterator
from typing import Any

import jwt

from griphub.store.maintenance import back_up, restore
from tests.support.hub_api import PATIENCE, HubApi, hub_api
from tests.support.webhook import WebhookReceiver, webhook_receiver

SECRET = "0123456789abcdef0123456789abcdef"
CLAIMS = {"iss": "me", "sub": "alice", "aud": "gripproxy-hub", "exp": 4_000_000_000, "subscribe": ["*"]}
OWNER = {"Authorization": f"Bearer {jwt.encode(CLAIMS, SECRET, 'HS256')}"}
SETTINGS = {"hub_key": SECRET, "callback_allow": "127.0.0.0/8"}
PATH = "/topics/t/subscriptions"


@contextlib.asynccontextmanager
async def hub_in(folder: pathlib.Path) -> AsyncIterator[HubApi]:
    async with hub_api(SETTINGS, folder) as hub:
        yield hub


async def subscribe(hub: HubApi, receiver: WebhookReceiver, id: str) -> dict[str, Any]:
    body = {"subscription_id": id, "callback": receiver.url, "after": "0"}
    answer = await hub.request("POST", PATH, body, OWNER)
    assert answer.status == 201, answer
    document: dict[str, Any] = answer.json
    return document


def test_a_restored_store_delivers_all_that_it_has(tmp_path: pathlib.Path) -> None:
    store, copy = tmp_path / "hub.db", tmp_path / "copy.db"

    async def case() -> None:
        async with webhook_receiver() as receiver:
            async with hub_in(tmp_path) as hub:
                await hub.make("t")
                await subscribe(hub, receiver, "s")
                await hub.publish("t", "a", "b")
                await receiver.wait(2)
                # The store has the position when the hub has ended; the copy has an older one.
                await asyncio.to_thread(back_up, store, copy)
                await hub.publish("t", "lost")
                await receiver.wait(3)
                await subscribe(hub, receiver, "later")
            count = len(receiver.events)
            restore(copy, store, replace=True)
            async with hub_in(tmp_path) as hub:
                found = (await hub.request("GET", PATH, headers=OWNER)).json["subscriptions"]
                assert [each["subscription_id"] for each in found] == ["s"]
                [new] = await hub.publish("t", "new")
                while "new" not in receiver.data:
                    count += 1
                    await receiver.wait(count)
                # Repetitions are allowed.
                assert set(receiver.data[3:]) <= {"a", "b", "lost", "new"}
                last = receiver.events[-1].document
                assert (last["subscription_id"], last["cursor"]) == ("s", new)

    asyncio.run(case())


def test_a_position_above_the_newest_event_is_no_wait(tmp_path: pathlib.Path) -> None:
    async def case() -> None:
        async with webhook_receiver() as receiver:
            async with hub_in(tmp_path) as hub:
                await hub.make("t")
                await subscribe(hub, receiver, "s")
                await hub.publish("t", "a")
                await receiver.wait(1)
            with contextlib.closing(sqlite3.connect(tmp_path / "hub.db", isolation_level=None)) as connection:
                connection.execute("update subscription set position = 1000000")
            async with hub_in(tmp_path) as hub:
                await hub.publish("t", "b")
                await receiver.wait(2)
                assert receiver.data == ["a", "b"]

    asyncio.run(case())


def test_an_ordinary_end_repeats_nothing(tmp_path: pathlib.Path) -> None:
    async def case() -> None:
        async with webhook_receiver() as receiver:
            async with hub_in(tmp_path) as hub:
                await hub.make("t")
                await subscribe(hub, receiver, "s")
                [*_, newest] = await hub.publish("t", *range(50))
                deadline = time.monotonic() + PATIENCE
                while (await hub.request("GET", f"{PATH}/s", headers=OWNER)).json["position"] != newest:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.02)
            async with hub_in(tmp_path) as hub:
                await hub.publish("t", "next")
                await receiver.wait(51)
                assert receiver.data == [*range(50), "next"]

    asyncio.run(case())
