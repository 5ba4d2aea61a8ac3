"""Hub's side of the sender: orders in, frames out; reports, ends and returns of a process that the test is."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from griphub.callbacks.courier import Report
from griphub.processes import sender
from griphub.processes.frames import FrameBuffer
from griphub.processes.push_commands import IDENTITY, PULLED, PUSH_ADD
from griphub.processes.push_link import PushLink
from griphub.processes.sender import EVENTS_BYTES, SLICE, SenderProcess
from griphub.processes.sender_commands import (
    ADD,
    CANCEL,
    CANCELLED,
    EVENTS,
    FIGURES,
    HINT,
    LOCK_SUFFIX,
    READY,
    RENEW,
    REPORTS,
    REST,
    SIGN,
    UNUSABLE,
    PlainSubscription,
    SenderOptions,
)
from griphub.store.file_lock import FileLock

TURNS_MAX = 1000
REPORT: Report = (1, 7, True, "", "", "live", False, 3, 0, {}, True)


class Process:
    """Process of the sender, in place of ``ChildProcess``."""

    fails = False
    """Whether processes cannot be started."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        on_value: Callable[[Any], None],
        on_end: Callable[[str], None],
        on_writable: Callable[[], None],
    ) -> None:
        self.module, self.arguments = module, arguments
        self.says = on_value
        self._on_end = on_end
        self._on_writable = on_writable
        self._buffer = FrameBuffer()
        self.orders: list[Any] = []
        self.writable = True
        self.pid = 4711
        self.killed = self.stopped = False

    async def start(self) -> None:
        if Process.fails:
            raise OSError(12, "Cannot allocate memory")
        CHILDREN.append(self)

    def write(self, data: bytes) -> None:
        self.orders += self._buffer.feed(data)

    def kill(self) -> None:
        self.killed = True

    async def stop(self) -> None:
        self.stopped = True
        self.ends("status 0")

    def ends(self, reason: str = "signal SIGKILL") -> None:
        self._on_end(reason)

    def takes_again(self) -> None:
        self.writable = True
        self._on_writable()

    def took(self) -> list[Any]:
        """Return the orders since the last call."""
        taken, self.orders = self.orders, []
        return taken


CHILDREN: list[Process] = []


def plain(number: int) -> PlainSubscription:
    return (number, 1, "t", str(number), "o", "https://example.com/", (("whsec_k", None),), 5, True, "", "")


class House:
    """A hub's side, its subscriptions, and the reports that it was given."""

    def __init__(self, path: pathlib.Path, *numbers: int) -> None:
        self.path = path
        self.numbers = list(numbers)
        self.reports: list[Report] = []
        self.sender = SenderProcess(
            path,
            SenderOptions(),
            lambda: 9,
            lambda: self.numbers,
            self._plain,
            lambda reports: self.reports.extend(reports),
        )

    def _plain(self, number: int) -> PlainSubscription | None:
        return plain(number) if number in self.numbers else None

    async def process(self, count: int = 1) -> Process:
        """Return the process that is the last of so many."""
        for _ in range(TURNS_MAX):
            if len(CHILDREN) >= count:
                return CHILDREN[count - 1]
            await asyncio.sleep(0)
        raise AssertionError(f"there are {len(CHILDREN)} processes")

    async def working(self, count: int = 1) -> Process:
        """Return a process that has the subscriptions."""
        process = await self.process(count)
        process.says((READY,))
        await turns()
        return process


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """Return the path of a store whose sender is a double."""
    CHILDREN.clear()
    monkeypatch.setattr(sender, "ChildProcess", Process)
    monkeypatch.setattr(sender, "pause_before", lambda failures: 0.0)
    yield tmp_path / "hub.db"
    Process.fails = False


@contextlib.asynccontextmanager
async def opened(path: pathlib.Path, *numbers: int) -> AsyncIterator[House]:
    house = House(path, *numbers)
    house.sender.open()
    try:
        yield house
    finally:
        await house.sender.stop()


@contextlib.contextmanager
def earlier_hub(path: pathlib.Path) -> Iterator[None]:
    """Have the sender of an earlier hub at work for the time of the block."""
    lock = FileLock(path.with_name(path.name + LOCK_SUFFIX))
    try:
        yield
    finally:
        lock.release()


# --- beginning


async def test_there_is_no_process_without_subscriptions(path: pathlib.Path) -> None:
    async with opened(path) as house:
        await turns()
        assert (CHILDREN, house.sender.pid, house.sender.working) == ([], 0, False)
        assert house.sender.succession.done()
        house.sender.events(1, [(9,)], 3)
        house.sender.hint(1, 9)
        house.sender.rest([1], "revoked")
        assert house.sender.cancel(1).done()
        await turns()
        assert CHILDREN == []


async def test_the_first_subscription_starts_it(path: pathlib.Path) -> None:
    async with opened(path) as house:
        house.numbers.append(1)
        house.sender.add(plain(1))
        process = await house.process()
        assert process.module == "griphub.processes.sender_process"
        assert process.arguments[:2] == ["--store", str(path)]
        assert process.took() == []
        await house.working()
        assert (house.sender.pid, house.sender.working) == (4711, True)
        assert process.took() == [(ADD, [plain(1)], 9)]
        house.numbers.append(2)
        house.sender.add(plain(2))
        assert process.took() == [(ADD, [plain(2)], 9)]


async def test_a_process_is_given_all_subscriptions_in_slices_as_it_takes_them(path: pathlib.Path) -> None:
    async with opened(path, *range(1, 2 * SLICE + 11)) as house:
        process = await house.process()
        process.writable = False
        process.says((READY,))
        await turns()
        assert process.took() == []
        process.takes_again()
        await asyncio.sleep(0)
        assert [len(order[1]) for order in process.took()] == [SLICE]
        # Those that are deleted meanwhile are not given, those made meanwhile are given by themselves.
        house.numbers.remove(SLICE + 1)
        house.numbers.append(1000)
        house.sender.add(plain(1000))
        assert process.took() == [(ADD, [plain(1000)], 9)]
        await turns()
        given = [each[0] for order in process.took() for each in order[1]]
        assert given == list(range(SLICE + 2, 2 * SLICE + 11))


# --- orders and reports


async def test_orders_are_passed_on_in_order(path: pathlib.Path) -> None:
    async with opened(path, 1) as house:
        process = await house.working()
        process.took()
        house.sender.renew(1)
        house.sender.rest([1], "revoked")
        house.sender.sign(1, (("whsec_n", None), ("whsec_k", 7.5)))
        house.sender.drop([1])
        assert process.took() == [
            (RENEW, 1),
            (REST, [1], "revoked"),
            (SIGN, 1, (("whsec_n", None), ("whsec_k", 7.5))),
            (CANCEL, [1]),
        ]


async def test_events_of_one_turn_are_one_frame(path: pathlib.Path) -> None:
    async with opened(path, 1) as house:
        process = await house.working()
        process.took()
        house.sender.events(1, [(7, "row")], 3)
        house.sender.events(2, [(8, "row"), (9, "row")], 3)
        house.sender.hint(3, 10)
        assert process.took() == []
        await turns()
        assert process.took() == [(EVENTS, [(1, [(7, "row")]), (2, [(8, "row"), (9, "row")])]), (HINT, [(3, 10)])]


async def test_events_that_the_process_does_not_take_become_hints(path: pathlib.Path) -> None:
    async with opened(path, 1) as house:
        process = await house.working()
        process.took()
        process.writable = False
        for id in range(1, 100):
            house.sender.events(1, [(id,)], EVENTS_BYTES // 10)
        await turns()
        assert process.took() == []
        process.takes_again()
        await turns()
        (events, groups), hint = process.took()
        assert (events, [rows[0][0] for _, rows in groups]) == (EVENTS, list(range(1, 10)))
        # It reads the others.
        assert hint == (HINT, [(1, 99)])


async def test_reports_and_figures_are_passed_on(path: pathlib.Path) -> None:
    async with opened(path, 1) as house:
        process = await house.working()
        process.says((REPORTS, [REPORT]))
        process.says((FIGURES, {"delivered": 3}))
        assert (house.reports, house.sender.figures) == ([REPORT], {"delivered": 3})


# --- cancellations


async def test_a_cancellation_is_over_when_the_process_has_answered(path: pathlib.Path) -> None:
    async with opened(path, 1, 2) as house:
        process = await house.working()
        process.took()
        house.numbers.remove(1)
        ended = house.sender.cancel(1)
        # A second order would be answered before the request of the first has ended.
        assert house.sender.cancel(1) is ended
        assert process.took() == [(CANCEL, [1])]
        process.says((CANCELLED, [2]))
        assert not ended.done()
        process.says((CANCELLED, [1]))
        assert ended.done()
        house.sender.cancel(1)
        assert process.took() == [(CANCEL, [1])]


async def test_a_cancellation_is_over_when_the_process_is(path: pathlib.Path) -> None:
    async with opened(path, 1, 2) as house:
        process = await house.working()
        house.numbers.remove(1)
        ended = house.sender.cancel(1)
        house.sender.kill("a cancellation was not answered")
        assert (process.killed, ended.done()) == (True, False)
        process.ends()
        assert ended.done()
        # Between two processes none is at work, and the next one is not given it.
        assert house.sender.cancel(7).done()
        second = await house.working(2)
        assert second.took() == [(ADD, [plain(2)], 9)]
        assert house.sender.restarts == 1


async def test_a_cancellation_waits_for_the_sender_of_an_earlier_hub(path: pathlib.Path) -> None:
    with earlier_hub(path):
        async with opened(path) as house:
            process = await house.process()
            ended = house.sender.cancel(1)
            assert (ended.done(), house.sender.succession.done()) == (False, False)
            # It has waited for the lock for a minute.
            process.says((UNUSABLE, "hub.db is open in process 1"))
            process.ends("status 2")
            process = await house.process(2)
            assert not ended.done()
            process.says((READY,))
            assert (ended.done(), house.sender.succession.done()) == (True, True)


async def test_a_sender_that_cannot_start_keeps_no_deletion_from_being_answered(path: pathlib.Path) -> None:
    with earlier_hub(path):
        house = House(path)
        house.sender.open()
        process = await house.process()
        ended = house.sender.cancel(1)
    # The earlier one has ended, and this one has another fault.
    process.says((UNUSABLE, "callback_ca: not a certificate"))
    process.ends("status 2")
    assert (ended.done(), house.sender.cancel(2).done()) == (True, True)
    await house.sender.stop()


# --- ends


async def test_the_next_process_is_given_the_subscriptions_as_they_are_then(path: pathlib.Path) -> None:
    async with opened(path, 1, 2) as house:
        process = await house.working()
        house.sender.events(1, [(7,)], 3)
        process.ends()
        assert not house.sender.working
        house.numbers.remove(1)
        house.sender.drop([1])
        house.sender.events(1, [(8,)], 3)
        house.sender.hint(1, 9)
        second = await house.working(2)
        # It reads the events.
        assert second.took() == [(ADD, [plain(2)], 9)]


async def test_one_that_cannot_be_started_is_tried_again(path: pathlib.Path) -> None:
    Process.fails = True
    async with opened(path, 1) as house:
        await turns(20)
        assert (CHILDREN, house.sender.working) == ([], False)
        Process.fails = False
        assert (await house.working()).took() == [(ADD, [plain(1)], 9)]


async def test_pauses_grow_until_a_report_arrives(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[int] = []

    def pause_before(failures: int) -> float:
        pauses.append(failures)
        return 0.0

    monkeypatch.setattr(sender, "pause_before", pause_before)
    async with opened(path, 1) as house:
        for count in (1, 2):
            (await house.process(count)).ends("status 2")
        third = await house.working(3)
        third.says((REPORTS, [REPORT]))
        third.ends()
        await house.process(4)
        assert pauses == [0, 1, 2, 0]


async def test_at_the_end_the_last_reports_arrive_and_nothing_is_started_again(path: pathlib.Path) -> None:
    house = House(path, 1)
    house.sender.open()
    process = await house.working()
    house.numbers.clear()
    ended = house.sender.cancel(1)

    async def stop() -> None:
        assert not ended.done(), "its request may still be under way"
        process.says((REPORTS, [REPORT]))
        process.ends("status 0")

    process.stop = stop  # type: ignore[method-assign]
    await house.sender.stop()
    assert (house.reports, ended.done(), house.sender.pid) == ([REPORT], True, 0)
    await turns(20)
    assert len(CHILDREN) == 1


class Pushes:
    """Link about subscriptions of the push API: keeps all that it is told."""

    def __init__(self, *numbers: int) -> None:
        self.all = list(numbers)
        self.told: list[Any] = []
        self.order: Callable[[tuple[Any, ...]], None] | None = None

    def numbers(self) -> list[int]:
        return self.all

    def began(self, order: Callable[[tuple[Any, ...]], None]) -> None:
        self.order = order
        order((IDENTITY, "key"))

    def additions(self, numbers: Sequence[int]) -> tuple[Any, ...] | None:
        return (PUSH_ADD, [*numbers])

    def received(self, kind: int, arguments: Sequence[Any]) -> bool:
        if kind != PULLED:
            return False
        self.told.append(tuple(arguments))
        return True

    def ended(self) -> None:
        self.told.append("ended")

    def released(self) -> None:
        self.told.append("released")


async def pushing(path: pathlib.Path, *numbers: int) -> tuple[SenderProcess, Pushes]:
    push = Pushes(*numbers)
    process = SenderProcess(
        *(path, SenderOptions(), lambda: 9, list, lambda number: None, lambda reports: None),
        push=cast(PushLink, push),
    )
    process.open()
    await turns()
    return process, push


async def test_a_subscription_of_the_push_api_needs_the_process(path: pathlib.Path) -> None:
    process, _ = await pushing(path, 5)
    assert len(CHILDREN) == 1
    await process.stop()


async def test_the_process_is_started_when_it_is_needed(path: pathlib.Path) -> None:
    process, push = await pushing(path)
    assert not CHILDREN
    process.need()
    process.need()
    await turns()
    [child] = CHILDREN
    child.says((READY,))
    await turns()
    assert child.took() == [(IDENTITY, "key")]
    assert push.order is not None
    await process.stop()


async def test_the_process_is_given_all_subscriptions_of_the_push_api_in_slices(path: pathlib.Path) -> None:
    process, push = await pushing(path, *range(SLICE + 1))
    [child] = CHILDREN
    child.says((READY,))
    await turns()
    assert child.took() == [(IDENTITY, "key"), (PUSH_ADD, [*range(SLICE)]), (PUSH_ADD, [SLICE])]
    child.says((PULLED, 1, []))
    assert push.told[-1] == (1, [])
    child.ends()
    assert "ended" in push.told
    await turns()
    CHILDREN[1].says((READY,))
    await turns()
    assert CHILDREN[1].took()[1:] == [(PUSH_ADD, [*range(SLICE)]), (PUSH_ADD, [SLICE])]
    await process.stop()
