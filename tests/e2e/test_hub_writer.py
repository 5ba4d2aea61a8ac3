"""Publications over a process: outcomes in order, and none that is wrong when the process is killed."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial

import pytest

from griphub.processes.writer import WriterProcess
from griphub.processes.writer_options import WriterOptions
from griphub.processes.writer_process import LARGE
from griphub.store.errors import OwnerBusy, StoreBroken, StoreBusy, StoreError, StoreInUse, StoreProblem
from griphub.store.event import Draft
from griphub.store.interface import StoreState
from griphub.store.publication import Condition, Idempotency, Outcome, Publication, Published, Refused
from griphub.store.sqlite_reader import SqliteReader
from griphub.store.subscription import Subscription, SubscriptionProgress
from griphub.store.topic import Retention, TopicSettings
from tests.support.store_conformance import draft_of, drafts, history, texts

PATIENCE = 30.0

Start = Callable[..., Awaitable[WriterProcess]]


@pytest.fixture
async def start(tmp_path: pathlib.Path) -> AsyncIterator[Start]:
    """Return a function that starts a writer, which is ended with the test."""
    writers: list[WriterProcess] = []

    async def start(options: WriterOptions | None = None, **callbacks: Callable[..., None]) -> WriterProcess:
        options = options or WriterOptions("off", 0, waiting_max=100_000)
        writer = WriterProcess(tmp_path / "hub.db", options, **callbacks)
        await writer.start()
        writers.append(writer)
        return writer

    yield start
    for writer in writers:
        await writer.stop()


async def outcomes(writer: WriterProcess, *publications: Publication) -> list[Outcome | StoreError]:
    """Publish in one turn of the loop, and wait for all outcomes."""
    got: list[Outcome | StoreError] = []
    end = asyncio.get_running_loop().create_future()

    def done(outcome: Outcome | StoreError) -> None:
        got.append(outcome)
        if len(got) == len(publications):
            end.set_result(None)

    for publication in publications:
        writer.append(publication, done)
    await asyncio.wait_for(end, PATIENCE)
    return got


async def test_outcomes_are_in_order(start: Start, tmp_path: pathlib.Path) -> None:
    writer = await start()
    made = await writer.put_topic("t", TopicSettings(labels={"a": "b"}), "owner")
    assert made is not None
    topic, new = made
    assert (topic.name, topic.owner, dict(topic.settings.labels), new) == ("t", "owner", {"a": "b"}, True)
    numbers = [str(number) for number in range(150)]
    got = await outcomes(writer, *[Publication("t", drafts(number)) for number in numbers])
    assert [outcome.ids[0] for outcome in got if isinstance(outcome, Published)] == list(range(1, 151))
    got = await outcomes(
        writer,
        Publication("t", drafts("a", "b"), Condition(150)),
        Publication("u", drafts("c")),
        Publication("t", drafts("d")),
    )
    assert got[1] == Refused("unknown")
    assert isinstance(got[0], Published)
    assert got[0].ids == (151, 152)
    assert got[0].times[1] == got[0].times[0] + 1
    assert writer.waiting == 0
    assert (await writer.state()).newest == 153
    reader = SqliteReader(tmp_path / "hub.db")
    assert texts(history(reader, topic)) == [*numbers, "a", "b", "d"]
    reader.close()


async def test_commands_are_in_order_with_publications(start: Start) -> None:
    writer = await start()
    made = await writer.put_topic("t", TopicSettings(Retention(events=1)))
    assert made is not None
    number = made[0].number
    got: list[Outcome | StoreError] = []
    writer.append(Publication("t", drafts("a", "b", "c")), got.append)
    deleted = await writer.delete_topic("t")
    assert isinstance(got[0], Published)
    assert deleted is not None
    assert (deleted.last, deleted.count) == (3, 3)
    assert await writer.delete_topic("t") is None
    assert await writer.gone_topics() == [number]
    assert not await writer.delete_slice(number)
    assert await writer.gone_topics() == []


async def test_a_subscription_that_was_answered_survives_the_process(start: Start, tmp_path: pathlib.Path) -> None:
    returned: asyncio.Future[StoreState] = asyncio.get_running_loop().create_future()
    writer = await start(on_return=returned.set_result)
    await writer.put_topic("t", TopicSettings())
    await outcomes(writer, Publication("t", drafts("a", "b")))
    made = await writer.make_subscription(draft_of(1), 1, 1, 1, owner="o")
    assert isinstance(made, Subscription)
    await writer.save_progress([SubscriptionProgress(made.number, 2, True, "", "")])
    os.kill(writer.pid, signal.SIGKILL)
    await asyncio.wait_for(returned, PATIENCE)
    moved = replace(made, position=2, confirmed=True)
    assert await writer.make_subscription(draft_of(1), 1, 1, 1, owner="o") == moved
    assert await writer.make_subscription(draft_of(1, "b"), 1, 1, 1, owner="o") == "topic"
    assert await writer.delete_subscription(1, "o", "s", owner="o") == made.number
    reader = SqliteReader(tmp_path / "hub.db")
    assert reader.subscriptions() == []
    reader.close()


async def test_texts_without_utf_8_are_refused(start: Start) -> None:
    writer = await start()
    pid = writer.pid
    await writer.put_topic("t", TopicSettings())
    bad = Idempotency("o\ud800", "k", b"d")
    for publication in (
        Publication("t", (Draft(b"", "a/\ud800"),)),
        Publication("t", (Draft(b"", key="\ud800"),)),
        Publication("t", drafts("a"), None, bad),
    ):
        with pytest.raises(ValueError, match="surrogates not allowed"):
            writer.append(publication, lambda outcome: None)
    for name, owner in (("\ud800", ""), ("u", "\ud800")):
        with pytest.raises(StoreError, match=r"put_topic: .*surrogates not allowed"):
            await writer.put_topic(name, TopicSettings(), owner)
    assert isinstance((await outcomes(writer, Publication("t", drafts("a"))))[0], Published)
    assert (writer.pid, writer.waiting) == (pid, 0)


async def test_retention(start: Start) -> None:
    writer = await start()
    made = await writer.put_topic("t", TopicSettings(Retention(events=1)))
    assert made is not None
    number = made[0].number
    await outcomes(writer, Publication("t", drafts("a", "b", "c")))
    assert await writer.wanted_floor(number) == 2
    raised = await writer.raise_floor(number, 2)
    assert raised is not None
    assert (raised.floor, raised.count) == (2, 3)
    assert not await writer.delete_slice(number)
    assert not await writer.forget_names()
    await writer.make_room()
    access = await writer.raise_access("t")
    assert access is not None
    assert (access.access, access.count) == (1, 1)
    assert await writer.put_topic("u", TopicSettings(), "o", 0) is None


async def test_a_second_hub_is_refused(start: Start, tmp_path: pathlib.Path) -> None:
    first = await start()
    second = WriterProcess(tmp_path / "hub.db", WriterOptions(lock_wait=0.1))
    with pytest.raises(StoreInUse, match=f"is open in process {first.pid}: a store has one hub"):
        await second.start()
    assert isinstance((await outcomes(first, Publication("t", drafts("a"))))[0], Refused)


async def test_another_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "other").write_text("no database, but some text of more than a header's length: " + "x" * 100)
    with pytest.raises(StoreProblem, match="cannot be opened as a store"):
        await WriterProcess(tmp_path / "other").start()


async def test_what_waits_is_bounded(start: Start) -> None:
    writer = await start()
    await writer.put_topic("t", TopicSettings())
    got: list[Outcome | StoreError] = []
    publication = Publication("t", drafts("x" * 10_000))
    for _ in range(9):
        writer.append(publication, got.append)
    assert 90_000 < writer.waiting <= 100_000
    with pytest.raises(StoreBusy, match="bytes wait for the store"):
        writer.append(publication, got.append)
    await writer.state()
    assert [type(outcome) for outcome in got] == [Published] * 9
    # One alone may be larger than the bound.
    [outcome] = await outcomes(writer, Publication("t", drafts("x" * 200_000)))
    assert isinstance(outcome, Published)


async def test_what_waits_of_an_owner_is_bounded(start: Start) -> None:
    writer = await start(WriterOptions("off", 0, owner_max=50_000))
    await writer.put_topic("t", TopicSettings())
    got: list[Outcome | StoreError] = []
    publication = Publication("t", drafts("x" * 10_000, "y" * 10_000))
    for owner in ("a", "a", "b"):
        writer.append(publication, got.append, owner)
    with pytest.raises(OwnerBusy, match=r"\d+ bytes of this owner wait for the store"):
        writer.append(publication, got.append, "a")
    writer.append(publication, got.append, "b")
    await writer.state()
    # One alone may be larger than the bound.
    writer.append(Publication("t", drafts("x" * 100_000)), got.append, "a")
    await writer.state()
    assert [type(outcome) for outcome in got] == [Published] * 5
    assert writer.waiting == 0


async def test_owners_have_their_turn(start: Start) -> None:
    writer = await start(WriterOptions("off", 0, window=10_000))
    await writer.put_topic("t", TopicSettings())
    got: list[str] = []
    end = asyncio.get_running_loop().create_future()

    def done(name: str, _: Outcome | StoreError) -> None:
        got.append(name)
        if len(got) == 24:
            end.set_result(None)

    for number in range(20):
        writer.append(Publication("t", drafts("x" * 10_000)), partial(done, f"a{number}"), "a")
    for number in range(2):
        for owner in ("b", "c"):
            writer.append(Publication("t", drafts("y")), partial(done, f"{owner}{number}"), owner)
    await asyncio.wait_for(end, PATIENCE)
    # The first one was sent at once; from then on there is one of each owner.
    assert got[:8] == ["a0", "a1", "b0", "c0", "a2", "b1", "c1", "a3"]
    assert got[8:] == [f"a{number}" for number in range(4, 20)]


async def test_small_publications_are_stored_between_large_ones(start: Start) -> None:
    writer = await start(WriterOptions("off", 0))
    await writer.put_topic("t", TopicSettings())
    got: list[str] = []
    end = asyncio.get_running_loop().create_future()

    def done(name: str, _: Outcome | StoreError) -> None:
        got.append(name)
        if len(got) == 7:
            end.set_result(None)

    large = drafts("x" * LARGE)
    for name in ("a0", "a1", "d0"):
        writer.append(Publication("t", large), partial(done, name), name[0])
    writer.append(Publication("t", drafts("x")), partial(done, "a2"), "a")
    for name in ("b0", "c0", "b1"):
        writer.append(Publication("t", drafts("y")), partial(done, name), name[0])
    await asyncio.wait_for(end, PATIENCE)
    # The first large one is overtaken on its way, or not; the others wait. An owner's own are in order.
    assert sorted(got[:4]) == ["a0", "b0", "b1", "c0"]
    assert [name for name in got if name[0] == "b"] == ["b0", "b1"]
    assert got[4:] in (["a1", "d0", "a2"], ["a1", "a2", "d0"])
    assert writer.waiting == 0


class Transfer:
    """Large publication of the owner "a" that waits for a stopped process, and what others publish meanwhile."""

    def __init__(self, writer: WriterProcess) -> None:
        self.writer = writer
        self.got: list[tuple[str, type[object]]] = []
        self.changed = asyncio.Event()
        os.kill(writer.pid, signal.SIGSTOP)
        self.publish("a0", "x" * 4 * LARGE)

    def publish(self, name: str, text: str = "y") -> None:
        self.writer.append(Publication("t", drafts(text)), partial(self._done, name), name[0])

    def _done(self, name: str, outcome: Outcome | StoreError) -> None:
        self.got.append((name, type(outcome)))
        self.changed.set()

    async def wait(self, number: int) -> list[tuple[str, type[object]]]:
        async with asyncio.timeout(PATIENCE):
            while len(self.got) < number:
                self.changed.clear()
                await self.changed.wait()
        return self.got


async def test_small_publications_overtake_a_large_one_on_its_way(start: Start, tmp_path: pathlib.Path) -> None:
    writer = await start(WriterOptions("off", 0))
    made = await writer.put_topic("t", TopicSettings())
    assert made is not None
    topic, _ = made
    transfer = Transfer(writer)
    # The socket is full by then.
    await asyncio.sleep(0)
    for name in ("a1", "b0", "c0"):
        transfer.publish(name)
    other = asyncio.ensure_future(writer.put_topic("u", TopicSettings(), "a"))
    os.kill(writer.pid, signal.SIGCONT)
    assert await transfer.wait(4) == [(name, Published) for name in ("b0", "c0", "a0", "a1")]
    assert await asyncio.wait_for(other, PATIENCE) is not None
    reader = SqliteReader(tmp_path / "hub.db")
    assert [len(text) for text in texts(history(reader, topic))] == [1, 1, 4 * LARGE, 1]
    reader.close()


async def test_a_large_publication_on_its_way_fails_with_the_process(start: Start) -> None:
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    writer = await start(WriterOptions("off", 0), on_end=ended.set_result)
    await writer.put_topic("t", TopicSettings())
    transfer = Transfer(writer)
    await asyncio.sleep(0)
    for name in ("b0", "a1"):
        transfer.publish(name)
    os.kill(writer.pid, signal.SIGKILL)
    await asyncio.wait_for(ended, PATIENCE)
    assert sorted(transfer.got) == [(name, StoreBroken) for name in ("a0", "a1", "b0")]
    assert writer.waiting == 0


async def test_stop_answers_a_large_publication_on_its_way(start: Start) -> None:
    writer = await start(WriterOptions("off", 0))
    await writer.put_topic("t", TopicSettings())
    transfer = Transfer(writer)
    for name in ("b0", "a1"):
        transfer.publish(name)
    os.kill(writer.pid, signal.SIGCONT)
    await writer.stop()
    assert sorted(transfer.got) == [(name, Published) for name in ("a0", "a1", "b0")]


async def test_the_commands_of_an_owner_are_sent_one_at_a_time(start: Start) -> None:
    writer = await start(WriterOptions("off", 0))
    await writer.put_topic("t", TopicSettings())
    got: list[str] = []

    async def make(name: str) -> None:
        await writer.put_topic(name, TopicSettings(), name[0])
        got.append(name)

    made = [asyncio.ensure_future(make(name)) for name in ("a0", "a1", "a2", "b0")]
    await asyncio.sleep(0)
    writer.append(Publication("t", drafts("y")), lambda outcome: got.append("c0"), "c")
    last: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    writer.append(Publication("a2", drafts("y")), last.set_result, "a")
    await asyncio.wait_for(asyncio.gather(*made), PATIENCE)
    await writer.state()
    assert got.index("c0") < got.index("a1")
    assert got.index("b0") < got.index("a1")
    # An owner's own are in order: the topic of the publication was made before it. (Answers of one read are seen in the
    # turns of their tasks, so their order tells less.)
    assert [name for name in got if name[0] == "a"] == ["a0", "a1", "a2"]
    assert isinstance(await asyncio.wait_for(last, PATIENCE), Published)


async def test_commands_that_wait_for_their_turn_fail_with_the_process(start: Start) -> None:
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    writer = await start(on_end=ended.set_result)
    os.kill(writer.pid, signal.SIGSTOP)
    calls = [asyncio.ensure_future(writer.put_topic(f"t{number}", TopicSettings(), "a")) for number in range(10)]
    await asyncio.sleep(0)
    os.kill(writer.pid, signal.SIGKILL)
    await asyncio.wait_for(ended, PATIENCE)
    await asyncio.wait(calls)
    assert [type(call.exception()) for call in calls] == [StoreBroken] * 10


async def test_publications_that_wait_for_their_turn_fail_with_the_process(start: Start) -> None:
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    writer = await start(WriterOptions("off", 0, window=1000), on_end=ended.set_result)
    got: list[Outcome | StoreError] = []
    os.kill(writer.pid, signal.SIGSTOP)
    for _ in range(10):
        writer.append(Publication("t", drafts("a")), got.append)
    os.kill(writer.pid, signal.SIGKILL)
    await asyncio.wait_for(ended, PATIENCE)
    assert [type(outcome) for outcome in got] == [StoreBroken] * 10
    assert writer.waiting == 0


async def test_a_receiver_that_fails_harms_no_other(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    writer = await start()
    await writer.put_topic("t", TopicSettings())

    def fail(outcome: Outcome | StoreError) -> None:
        raise KeyError("receiver")

    writer.append(Publication("t", drafts("a")), fail)
    [outcome] = await outcomes(writer, Publication("t", drafts("b")))
    assert isinstance(outcome, Published)
    assert "outcome not taken" in capfd.readouterr().out


async def test_stop_answers_all_that_was_published(start: Start) -> None:
    writer = await start()
    await writer.put_topic("t", TopicSettings())
    got: list[Outcome | StoreError] = []
    for _ in range(100):
        writer.append(Publication("t", drafts("a")), got.append)
    await writer.stop()
    assert [type(outcome) for outcome in got] == [Published] * 100
    with pytest.raises(StoreBusy):
        writer.append(Publication("t", drafts("a")), got.append)
    with pytest.raises(StoreBusy):
        await writer.state()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_process_returns(start: Start, tmp_path: pathlib.Path, number: int) -> None:
    ends: list[str] = []
    returned: asyncio.Future[StoreState] = asyncio.get_running_loop().create_future()
    writer = await start(on_end=ends.append, on_return=returned.set_result)
    made = await writer.put_topic("t", TopicSettings())
    assert made is not None
    [kept] = await outcomes(writer, Publication("t", drafts("kept")))
    assert isinstance(kept, Published)
    pid, secret = writer.pid, (await writer.state()).secret
    os.kill(pid, signal.SIGSTOP)
    got: list[Outcome | StoreError] = []
    for _ in range(3):
        writer.append(Publication("t", drafts("unknown")), got.append)
    call = asyncio.ensure_future(writer.state())
    await asyncio.sleep(0)
    os.kill(pid, number)
    os.kill(pid, signal.SIGCONT)
    state = await asyncio.wait_for(returned, PATIENCE)
    assert len(ends) == 1
    assert len(got) == 3
    if number == signal.SIGKILL:
        assert ends == ["signal SIGKILL"]
        assert [type(outcome) for outcome in got] == [StoreBroken] * 3
        with pytest.raises(StoreBroken, match="signal SIGKILL"):
            await call
    else:
        # It ends after the work that it has.
        assert ends == ["status 0"]
        assert {type(outcome) for outcome in got} <= {StoreBroken, Published}
        await asyncio.wait([call])
        call.exception()
    assert (state.secret, writer.restarts) == (secret, 1)
    assert writer.pid != pid
    [again] = await outcomes(writer, Publication("t", drafts("again")))
    assert isinstance(again, Published)
    assert again.ids[0] == state.newest + 1


async def test_publications_are_refused_while_it_is_away(start: Start) -> None:
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    writer = await start(on_end=ended.set_result)
    os.kill(writer.pid, signal.SIGKILL)
    await asyncio.wait_for(ended, PATIENCE)
    with pytest.raises(StoreBusy, match="is being started again"):
        writer.append(Publication("t", drafts("a")), lambda outcome: None)
    with pytest.raises(StoreBusy):
        await writer.state()
    await writer.stop()
    assert not writer.working


async def test_it_is_tried_until_the_store_can_be_opened(start: Start, tmp_path: pathlib.Path) -> None:
    returned: asyncio.Future[StoreState] = asyncio.get_running_loop().create_future()
    path, aside, hidden = tmp_path / "hub.db", tmp_path / "aside", asyncio.Event()

    def hide(reason: str) -> None:
        path.rename(aside)
        path.mkdir()
        hidden.set()

    writer = await start(on_end=hide, on_return=returned.set_result)
    os.kill(writer.pid, signal.SIGKILL)
    await asyncio.wait_for(hidden.wait(), PATIENCE)
    done, _ = await asyncio.wait([returned], timeout=0.5)
    assert not done
    path.rmdir()
    aside.rename(path)
    await asyncio.wait_for(returned, PATIENCE)
    assert writer.restarts == 1
