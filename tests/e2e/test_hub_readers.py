"""Calls over processes: results, turns, bounds, and readers that are killed."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from griphub.processes.readers import ReaderOptions, ReaderPool
from griphub.processes.rendered import RenderedPage
from griphub.store.errors import OwnerBusy, StoreBroken, StoreBusy, StoreError, StoreProblem
from griphub.store.interface import WHOLE, KeyRange
from griphub.store.sqlite_reader import SqliteReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.topic import Topic
from griphub.topics.event_text import Epochs, Representation, render_events
from tests.support.store_conformance import made, published, subscribed

PATIENCE = 30.0
BIG = 10**9

Start = Callable[..., Awaitable[ReaderPool]]


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a store with a topic."""
    writer = SqliteWriter(tmp_path / "hub.db", "off")
    made(writer, "t")
    published(writer, "t", "a=1", "b=1", "no key", "a=2")
    published(writer, "t", "c=1")
    for id in "abc":
        subscribed(writer, 1, id)
    writer.close()
    return tmp_path / "hub.db"


@pytest.fixture
async def start(path: pathlib.Path) -> AsyncIterator[Start]:
    """Return a function that starts readers, which are ended with the test."""
    pools: list[ReaderPool] = []

    async def start(count: int = 1, **options: float) -> ReaderPool:
        pool = ReaderPool(path, count, ReaderOptions(**options))  # type: ignore[arg-type]
        await pool.start()
        pools.append(pool)
        return pool

    yield start
    for pool in pools:
        await pool.stop()


def stop_reader(pool: ReaderPool, place: int = 0) -> int:
    """Stop a reader, so that its next call takes long; return its process."""
    pid = pool.pids[place]
    os.kill(pid, signal.SIGSTOP)
    return pid


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - processes set no event
            await asyncio.sleep(0.005)


async def test_methods_are_those_of_a_reader(start: Start, path: pathlib.Path) -> None:
    pool, reader = await start(), SqliteReader(path)
    topic = reader.topic("t")
    assert topic is not None
    number = topic.number
    assert await pool.topic("t") == topic
    assert await pool.topic("u") is None
    assert await pool.topics() == [topic]
    assert await pool.topics("t", 5) == []
    assert await pool.state() == reader.state()
    for keys in (WHOLE, KeyRange(), KeyRange("a", "b")):
        assert await pool.page(number, 0, keys, 3, BIG) == reader.page(number, 0, keys, 3, BIG)
        assert await pool.last_in(number, keys, BIG) == reader.last_in(number, keys, BIG)
    assert await pool.snapshot(number, KeyRange(), 5, None, 2, BIG) == reader.snapshot(
        number, KeyRange(), 5, None, 2, BIG
    )
    assert await pool.events_after(1, 100, BIG) == reader.events_after(1, 100, BIG)
    assert await pool.event_at(number, 2) == reader.event_at(number, 2)
    assert await pool.event_at(number, 99) is None
    event = reader.last_of(number, "a")
    assert event is not None
    assert await pool.last_of(number, "a") == event
    assert await pool.id_at(number, event.time) == event.id
    assert len(reader.subscriptions()) == 3
    assert await pool.subscriptions() == reader.subscriptions()
    assert await pool.subscriptions(1, 1) == reader.subscriptions(1, 1)
    assert await pool.page(77, 0, WHOLE, 3, BIG) is None
    assert await pool.render_page(77, 0, WHOLE, 3, BIG, None, Representation.SSE) is None
    assert await pool.render_snapshot(77, WHOLE, 3, None, 3, BIG) is None
    reader.close()


async def rendered(pool: ReaderPool, topic: Topic, after: int, keys: KeyRange, form: Representation) -> RenderedPage:
    page = await pool.render_page(topic.number, after, keys, 3, BIG, None, form)
    assert page is not None
    return page


@pytest.mark.parametrize("form", list(Representation))
async def test_rendered_pages(start: Start, path: pathlib.Path, form: Representation) -> None:
    pool, reader = await start(), SqliteReader(path)
    topic = reader.topic("t")
    assert topic is not None
    epochs = Epochs(reader.state().intervals)
    for after, keys, first_prev in (
        (0, WHOLE, None),
        (2, WHOLE, None),
        (5, WHOLE, None),
        (0, KeyRange(), 0),
        (1, KeyRange("a", "b"), 1),
        (3, KeyRange(), 2),
        (4, KeyRange("c"), 0),
    ):
        plain = reader.page(topic.number, after, keys, 3, BIG)
        assert plain is not None
        body = render_events(plain.events, first_prev, epochs, form)
        ends = (plain.events[0].id, plain.events[-1].id) if plain.events else (0, 0)
        wanted = RenderedPage(plain.topic, body, len(plain.events), *ends, plain.last, plain.more)
        assert await rendered(pool, topic, after, keys, form) == wanted
    reader.close()


async def test_rendered_snapshots(start: Start, path: pathlib.Path) -> None:
    pool, reader = await start(), SqliteReader(path)
    first = await pool.render_snapshot(1, KeyRange(), 5, None, 2, BIG)
    assert first is not None
    plain = reader.snapshot(1, KeyRange(), 5, None, 2, BIG)
    assert plain is not None
    assert (first.count, first.next_key, first.topic) == (2, "b", plain.topic)
    epochs = Epochs(reader.state().intervals)
    assert first.body == render_events(plain.events, None, epochs, Representation.LINES)
    second = await pool.render_snapshot(1, KeyRange(), 5, "b", 2, BIG)
    assert second is not None
    assert (second.count, second.next_key) == (1, None)
    reader.close()


async def test_a_missing_store(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StoreProblem, match=r"none\.db cannot be opened"):
        await ReaderPool(tmp_path / "none.db", 2).start()


async def test_calls_have_turns(start: Start) -> None:
    pool = await start()
    pid = stop_reader(pool)
    order: list[str] = []

    async def call(owner: str) -> None:
        await pool.id_at(1, 0, owner=owner)
        order.append(owner)

    calls = [asyncio.create_task(call(owner)) for owner in "aaaabc"]
    await until(lambda: pool.waiting == 5)
    os.kill(pid, signal.SIGCONT)
    await asyncio.wait_for(asyncio.gather(*calls), PATIENCE)
    assert order == ["a", "a", "b", "c", "a", "a"]


async def test_one_owner_leaves_a_reader_to_the_others(start: Start) -> None:
    pool = await start(2)
    pid = stop_reader(pool)
    first = asyncio.create_task(pool.state(owner="a"))
    second = asyncio.create_task(pool.state(owner="a"))
    await asyncio.wait_for(pool.state(owner="b"), PATIENCE)
    assert not first.done()
    assert not second.done()
    os.kill(pid, signal.SIGCONT)
    await asyncio.wait_for(asyncio.gather(first, second), PATIENCE)


async def test_what_waits_is_bounded(start: Start) -> None:
    pool = await start(waiting_max=3, owner_max=2)
    pid = stop_reader(pool)
    calls = [asyncio.create_task(pool.state(owner="a")) for _ in range(3)]
    await until(lambda: pool.waiting == 2)
    with pytest.raises(OwnerBusy, match="2 reads of this owner wait already"):
        await pool.state(owner="a")
    calls.append(asyncio.create_task(pool.state(owner="b")))
    await until(lambda: pool.waiting == 3)
    with pytest.raises(StoreBusy, match="3 calls wait"):
        await pool.state(owner="c")
    calls[2].cancel()
    await until(lambda: pool.waiting == 2)
    os.kill(pid, signal.SIGCONT)
    await asyncio.wait_for(asyncio.wait(calls), PATIENCE)
    assert [call.cancelled() for call in calls] == [False, False, True, False]


async def test_a_call_of_a_killed_reader_is_repeated(start: Start) -> None:
    pool = await start(2)
    pid = stop_reader(pool)
    call = asyncio.create_task(pool.state())
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    assert (await asyncio.wait_for(call, PATIENCE)).newest == 5
    await until(lambda: pool.pids[0] not in (0, pid))
    await asyncio.wait_for(asyncio.gather(*[pool.state(owner=str(n)) for n in range(4)]), PATIENCE)


async def test_a_call_that_kills_readers_is_repeated_once(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    pool = await start()
    pid = pool.pids[0]
    with pytest.raises(StoreBusy, match="ended during the call"):
        await pool.call("a method that there is not")
    assert capfd.readouterr().err.count("KeyError") == 2
    assert (await pool.state()).newest == 5
    assert pool.pids[0] != pid


async def test_a_reader_that_takes_too_long_is_replaced(start: Start) -> None:
    pool = await start(deadline=0.2)
    pid = stop_reader(pool)
    with pytest.raises(StoreBusy, match=r"not read within 0\.2 s"):
        await pool.state()
    await until(lambda: pool.pids[0] not in (0, pid))


async def test_a_call_that_fails(start: Start, path: pathlib.Path) -> None:
    pool = await start()
    with pytest.raises(StoreBroken, match="id_at: "):
        await pool.call("id_at", 1, 2**70)
    assert (await pool.state()).newest == 5


async def test_calls_fail_at_the_end(start: Start) -> None:
    pool = await start()
    pid = stop_reader(pool)
    calls = [asyncio.create_task(pool.state()) for _ in range(3)]
    await until(lambda: pool.waiting == 2)
    stop = asyncio.create_task(pool.stop())
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    await asyncio.wait_for(stop, PATIENCE)
    results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE)
    assert all(isinstance(result, StoreError) for result in results)
    with pytest.raises(StoreBusy):
        await pool.state()
