"""A disk that is full, and one that fails to synchronise: publishers are refused, readers go on, and it recovers."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from griphub.processes import writer as writer_module
from griphub.processes.readers import ReaderPool
from griphub.processes.writer import WriterProcess
from griphub.processes.writer_options import WriterOptions
from griphub.store.errors import StoreBroken, StoreError, StoreFull
from griphub.store.interface import WHOLE, StoreState
from griphub.store.maintenance import check
from griphub.store.publication import Idempotency, Outcome, Publication, Published, Repeated
from griphub.store.subscription import Subscription, SubscriptionProgress
from griphub.store.topic import Retention, TopicSettings
from tests.support.store_conformance import draft_of, drafts

ROOT = pathlib.Path(__file__).parents[2]
BALLAST = 6_000_000


class Disk:
    """A store on a disk of a size, which may fail."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / "hub.db"
        self.space = folder / "space"
        self.failing = folder / "failing"
        self.space.write_text(str(10**9))
        self.returned: asyncio.Future[StoreState] = asyncio.get_running_loop().create_future()
        self.writer = WriterProcess(self.path, WriterOptions("full", BALLAST), on_return=self.on_return)
        self.readers = ReaderPool(self.path, 1)

    def on_return(self, state: StoreState) -> None:
        if not self.returned.done():
            self.returned.set_result(state)

    async def publish(self, *texts: str, name: str | None = None) -> Outcome | StoreError:
        answer: asyncio.Future[Outcome | StoreError] = asyncio.get_running_loop().create_future()
        idempotency = None if name is None else Idempotency("o", name, b"d")
        self.writer.append(Publication("t", drafts(*texts), None, idempotency), answer.set_result)
        return await asyncio.wait_for(answer, 60)

    async def subscribe(self, id: str) -> Subscription | str | None:
        return await self.writer.make_subscription(draft_of(1, id), None, None, None, owner="o")

    async def ids(self) -> list[int]:
        """Return the ids of all events."""
        ids: list[int] = []
        after, more = 0, True
        while more:
            page = await self.readers.page(1, after, WHOLE, 1000, 10**9)
            assert page is not None
            ids += [event.id for event in page.events]
            after, more = page.last, page.more
        return ids


@pytest.fixture
async def disk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Disk]:
    monkeypatch.setattr(writer_module, "MODULE", "tests.faults.hub_store_writer")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    disk = Disk(tmp_path)
    monkeypatch.setenv("HUB_STORE_SPACE", str(disk.space))
    monkeypatch.setenv("HUB_STORE_FAILING", str(disk.failing))
    await disk.writer.start()
    try:
        await disk.readers.start()
        await disk.writer.put_topic("t", TopicSettings())
        yield disk
    finally:
        disk.failing.unlink(missing_ok=True)
        await disk.readers.stop()
        await disk.writer.stop()


async def fill(disk: Disk) -> list[int]:
    """Publish until the disk is full; return the ids of answered events."""
    disk.space.write_text(str(BALLAST + 3_000_000))
    ids: list[int] = []
    while True:
        outcome = await disk.publish("x" * 20_000, "y" * 20_000)
        if isinstance(outcome, StoreFull):
            return ids
        assert isinstance(outcome, Published)
        ids += outcome.ids


async def fits(disk: Disk, id: str) -> bool:
    """Make a subscription; return whether there was space for it."""
    try:
        await disk.subscribe(id)
    except StoreFull:
        return False
    return True


async def taken(disk: Disk) -> Published:
    """Publish until the disk has room again."""
    async with asyncio.timeout(60):
        while isinstance(outcome := await disk.publish("again"), StoreFull):  # noqa: ASYNC110 - a disk sets no event
            await asyncio.sleep(0.05)
    assert isinstance(outcome, Published)
    return outcome


async def test_retention_frees_a_full_disk(disk: Disk) -> None:
    pid = disk.writer.pid
    ids = await fill(disk)
    assert len(ids) > 20
    assert await disk.ids() == ids, "readers go on, and nothing of the refused request is there"
    # A shorter retention, as its owner sets it.
    await disk.writer.put_topic("t", TopicSettings(Retention(events=4)))
    floor = await disk.writer.wanted_floor(1)
    assert floor == ids[-5]
    assert await disk.writer.raise_floor(1, floor) is not None
    while await disk.writer.delete_slice(1):
        pass
    assert await disk.ids() == ids[-4:]
    outcome = await taken(disk)
    assert disk.writer.pid == pid
    assert disk.path.with_name("hub.db.ballast").stat().st_size == BALLAST
    assert await disk.ids() == [*ids[-4:], *outcome.ids]


async def test_more_space_is_used_without_a_restart(disk: Disk) -> None:
    pid = disk.writer.pid
    ids = await fill(disk)
    disk.space.write_text(str(10**9))
    outcome = await taken(disk)
    assert (disk.writer.pid, await disk.ids()) == (pid, [*ids, *outcome.ids])


async def test_on_a_full_disk_subscriptions_are_deleted_and_nothing_else(disk: Disk) -> None:
    pid = disk.writer.pid
    kept = await disk.subscribe("kept")
    assert isinstance(kept, Subscription)
    await disk.subscribe("cancelled")
    [*_, newest] = await fill(disk)
    # Until the last free page: a subscription takes little.
    count = 0
    while await fits(disk, f"{count:0250d}"):
        count += 1
    before = await disk.readers.subscriptions(0, 100_000)
    with pytest.raises(StoreFull):
        await disk.subscribe("refused")
    assert await disk.writer.delete_subscription(1, "o", "cancelled", owner="o") == 2
    async with asyncio.timeout(60):
        while True:
            disk.space.write_text(str(10**9))
            try:
                await disk.writer.save_progress([SubscriptionProgress(1, newest, True, "", "")])
            except StoreFull:
                # The ballast is not occupied again yet.
                await asyncio.sleep(0.05)
            else:
                break
    moved = replace(kept, position=newest, confirmed=True)
    assert await disk.readers.subscriptions(0, 100_000) == [moved, *before[2:]]
    assert disk.writer.pid == pid
    assert check(disk.path) == []


async def test_a_failed_synchronisation_of_a_subscription(disk: Disk) -> None:
    first = await disk.subscribe("a")
    disk.failing.touch()
    with pytest.raises(StoreBroken):
        await disk.subscribe("b")
    disk.failing.unlink()
    await asyncio.wait_for(disk.returned, 60)
    # Whether it was stored or not, it is there once.
    second = await disk.subscribe("b")
    assert [await disk.subscribe(id) for id in "ab"] == [first, second]
    assert await disk.readers.subscriptions() == [first, second]
    assert check(disk.path) == []


async def test_a_failed_synchronisation(disk: Disk) -> None:
    first = await disk.publish("a", name="a")
    assert isinstance(first, Published)
    pid = disk.writer.pid
    disk.failing.touch()
    assert isinstance(await disk.publish("b", "c", name="b"), StoreBroken)
    assert (await disk.ids())[:1] == list(first.ids)
    disk.failing.unlink()
    await asyncio.wait_for(disk.returned, 60)
    assert disk.writer.pid != pid
    again = await disk.publish("b", "c", name="b")
    assert isinstance(again, Published | Repeated)
    stored = again.first.ids if isinstance(again, Repeated) else again.ids
    assert await disk.ids() == [*first.ids, *stored]
    assert await disk.publish("a", name="a") == Repeated(first)
    assert check(disk.path) == []
