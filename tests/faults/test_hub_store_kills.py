"""The writer is killed at random instants while requests are published and repeated: each is stored once.

Subscriptions are made and deleted meanwhile: those that are not deleted are there, and no number is used twice.

``ROUNDS=1000 pytest tests/faults/test_hub_store_kills.py`` kills it more often.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from griphub.processes.writer import WriterProcess
from griphub.processes.writer_options import WriterOptions
from griphub.store.errors import StoreBroken, StoreBusy, StoreError
from griphub.store.interface import WHOLE
from griphub.store.maintenance import check
from griphub.store.publication import Idempotency, Outcome, Publication, Published, Refused, Repeated
from griphub.store.sqlite_reader import SqliteReader
from griphub.store.subscription import Subscription
from griphub.store.topic import TopicSettings
from tests.support.store_conformance import draft_of, drafts

ROUNDS = int(os.environ.get("ROUNDS", "30"))
PUBLISHERS = 20
SUBSCRIBERS = 3

T = TypeVar("T")


class Load:
    """Publishers that repeat a request until it is answered."""

    def __init__(self, writer: WriterProcess) -> None:
        self.writer = writer
        self.answers: dict[str, tuple[int, ...]] = {}
        self.subscriptions: dict[int, Subscription | None] = {}
        """Answered ones by number; None for a deleted one."""
        self.unknown_commands = 0
        self.unknown = 0
        self.repeated = 0
        self.stopping = False

    async def publish(self, publisher: int) -> None:
        """Publish requests of one to three events until ``stopping``."""
        number = 0
        while not self.stopping:
            name = f"{publisher}-{number}"
            texts = [f"{name}{letter}" for letter in "abc"[: 1 + number % 3]]
            outcome = await self.outcome(Publication("t", drafts(*texts), None, Idempotency("o", name, b"d")))
            self.repeated += isinstance(outcome, Repeated)
            self.answers[name] = outcome.first.ids if isinstance(outcome, Repeated) else outcome.ids
            number += 1

    async def subscribe(self, subscriber: int) -> None:
        """Make subscriptions, and delete every second one, until ``stopping``."""
        count, owner = 0, f"o{subscriber}"
        while not self.stopping:
            draft = draft_of(1, str(count), owner)
            make = partial(self.writer.make_subscription, draft, None, None, None, owner=owner)
            made = await self.carried_out(make)
            assert isinstance(made, Subscription)
            assert made.number not in self.subscriptions, "its number is that of another one"
            if count % 2:
                await self.carried_out(partial(self.writer.delete_subscription, 1, owner, draft.id, owner=owner))
            self.subscriptions[made.number] = None if count % 2 else made
            count += 1

    async def carried_out(self, command: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await asyncio.wait_for(command(), 60)
            except StoreBusy:
                await asyncio.sleep(0.005)
            except StoreBroken:
                self.unknown_commands += 1

    async def outcome(self, publication: Publication) -> Published | Repeated:
        while True:
            answer: asyncio.Future[Outcome | StoreError] = asyncio.get_running_loop().create_future()
            try:
                self.writer.append(publication, answer.set_result)
            except StoreBusy:
                await asyncio.sleep(0.005)
                continue
            outcome = await asyncio.wait_for(answer, 60)
            if isinstance(outcome, StoreBroken):
                self.unknown += 1
                continue
            assert not isinstance(outcome, StoreError | Refused), outcome
            return outcome


async def run(path: pathlib.Path) -> Load:
    returned = asyncio.Event()
    writer = WriterProcess(path, WriterOptions("full", 0), on_return=lambda state: returned.set())
    await writer.start()
    try:
        await writer.put_topic("t", TopicSettings())
        load, choose = Load(writer), random.Random(1)
        publishers = [asyncio.create_task(load.publish(number)) for number in range(PUBLISHERS)]
        publishers += [asyncio.create_task(load.subscribe(number)) for number in range(SUBSCRIBERS)]
        for _ in range(ROUNDS):
            before = len(load.answers)
            await asyncio.sleep(choose.random() * 0.05)
            returned.clear()
            os.kill(writer.pid, signal.SIGKILL)
            await asyncio.wait_for(returned.wait(), 60)
            # The first round of requests of the new process ends before it is killed.
            await until(lambda before=before: len(load.answers) >= before + PUBLISHERS)  # type: ignore[misc]
        load.stopping = True
        await asyncio.wait_for(asyncio.gather(*publishers), 60)
        assert writer.restarts == ROUNDS
    finally:
        await writer.stop()
    return load


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - answers set no event
            await asyncio.sleep(0.005)


def test_each_request_is_stored_once(tmp_path: pathlib.Path, tell: Callable[[str], None]) -> None:
    path = tmp_path / "hub.db"
    load = asyncio.run(run(path))
    assert load.unknown > ROUNDS
    assert check(path) == []
    reader = SqliteReader(path)
    stored: Counter[str] = Counter()
    ids: dict[str, list[int]] = {}
    after, more = 0, True
    while more:
        page = reader.page(1, after, WHOLE, 1000, 10**9)
        assert page is not None
        for event in page.events:
            text = event.data.decode()
            stored[text] += 1
            ids.setdefault(text[:-1], []).append(event.id)
        after, more = page.last, page.more
    subscriptions = reader.subscriptions(0, 1_000_000)
    reader.close()
    assert load.unknown_commands > ROUNDS / 3
    assert subscriptions == [each for _, each in sorted(load.subscriptions.items()) if each is not None]
    assert set(stored.values()) == {1}
    assert {name: tuple(found) for name, found in ids.items()} == load.answers
    tell(
        f"store: {ROUNDS} kills of the writer, {len(load.answers)} requests stored once, "
        f"{load.unknown} repeated without an answer, {load.repeated} of them were stored; "
        f"{len(load.subscriptions)} subscriptions, {load.unknown_commands} commands repeated without an answer"
    )
