"""Crashes between each two operations on the files of a store, power losses, and synchronisations that fail.

A scenario publishes named requests, has subscriptions, trims, and makes checkpoints. It is ended before each of its
operations in turn, in a process of its own; for power losses its operations are replayed up to each point. Then the
store is opened again, all requests are repeated, and each must be there once, with the outcome that was answered; so
must the subscriptions, with no position above an event that is there.
"""

from __future__ import annotations

import marshal
import os
import pathlib
import random
import signal
import sqlite3
from collections.abc import Callable

import pytest

from griphub.store.errors import StoreBroken
from griphub.store.interface import WHOLE
from griphub.store.maintenance import check
from griphub.store.publication import Idempotency, Publication, Published, Repeated
from griphub.store.schema import Sync
from griphub.store.sqlite_reader import SqliteReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.subscription import SubscriptionProgress
from griphub.store.topic import Retention, TopicSettings
from tests.faults.sqlite_shim import IOERR_FSYNC, OK, Operation, install
from tests.support.store_conformance import drafts, subscribed, texts, trim

REQUESTS = 8
KEPT = 9
"""Events that the retention of the topic keeps."""

Answers = dict[int, tuple[int, ...]]
"""Ids of the events of each answered request; below 0 results of answered changes of subscriptions."""

MADE, SAVED, DELETED = -1, -2, -3
"""A subscription was made, its number; its position was saved, the position; another one was made and deleted."""


def request(number: int) -> Publication:
    names = [f"{number}{letter}" for letter in "abc"[: 1 + number % 3]]
    return Publication("t", drafts(*names), None, Idempotency("o", str(number), b"d"))


def scenario(path: pathlib.Path, sync: Sync, answer: Callable[[int, tuple[int, ...]], None]) -> None:
    """Publish, have subscriptions, trim and make checkpoints."""
    writer = SqliteWriter(path, sync)
    made = writer.put_topic("t", TopicSettings(Retention(events=KEPT)))
    assert made is not None
    checkpoints = sqlite3.connect(path, isolation_level=None)
    checkpoints.execute(f"pragma synchronous = {sync}")
    for number in range(0, REQUESTS, 2):
        first, second = writer.append([request(number), request(number + 1)])
        assert isinstance(first, Published)
        assert isinstance(second, Published)
        answer(number, first.ids)
        answer(number + 1, second.ids)
        if number == 0:
            answer(MADE, (subscribed(writer, made[0].number, "kept").number,))
        if number == 2:
            writer.subscriptions.save([SubscriptionProgress(1, second.ids[-1], True, "", "")])
            answer(SAVED, (second.ids[-1],))
            checkpoints.execute("pragma wal_checkpoint(passive)").fetchone()
        if number == 4:
            trim(writer, made[0].number)
            subscribed(writer, made[0].number, "other")
            writer.subscriptions.delete(made[0].number, "o", "other")
            answer(DELETED, ())
            checkpoints.execute("pragma wal_checkpoint(truncate)").fetchone()


def verify(path: pathlib.Path, answers: Answers, *, durable: bool = True) -> None:
    """Open a store after a crash, repeat all requests, and compare."""
    verify_subscriptions(path, answers if durable else {})
    answers = {number: ids for number, ids in answers.items() if number >= 0}
    writer = SqliteWriter(path, "off")
    try:
        if writer.put_topic("t", TopicSettings(Retention(events=KEPT))) is None:
            raise AssertionError("the topic cannot be made")
        outcomes = [writer.append([request(number)])[0] for number in range(REQUESTS)]
    finally:
        writer.close()
    stored: Answers = {}
    for number, outcome in enumerate(outcomes):
        assert isinstance(outcome, Published | Repeated)
        stored[number] = outcome.first.ids if isinstance(outcome, Repeated) else outcome.ids
    if durable:
        # A store that has lost them would issue the same ids for the repetitions.
        assert all(isinstance(outcomes[number], Repeated) for number in answers)
        assert {number: stored[number] for number in answers} == answers
    repeated = [isinstance(outcome, Repeated) for outcome in outcomes]
    # Commits are lost from the end on only, and their requests together.
    assert repeated == sorted(repeated, reverse=True)
    assert repeated[::2] == repeated[1::2]
    assert check(path) == []
    reader = SqliteReader(path)
    topic = reader.topic("t")
    assert topic is not None
    page = reader.page(topic.number, topic.floor, WHOLE, 1000, 10**9)
    assert page is not None
    reader.close()
    wanted = [text for number in range(REQUESTS) for text in texts_of(number)]
    got = texts(page.events)
    assert got == wanted[len(wanted) - len(got) :]
    assert len(got) >= KEPT


def verify_subscriptions(path: pathlib.Path, answers: Answers) -> None:
    """Open a store after a crash, and compare its subscriptions with the answers."""
    writer = SqliteWriter(path, "off")
    reader = SqliteReader(path)
    newest, found = writer.state().newest, {each.id: each for each in reader.subscriptions()}
    kept, other = found.get("kept"), found.get("other")
    if MADE in answers:
        assert kept is not None
        assert (kept.number,) == answers[MADE]
    if SAVED in answers:
        assert kept is not None
        assert (kept.position, kept.confirmed) == (*answers[SAVED], True)
    if DELETED in answers:
        assert other is None
    assert all(each.position <= newest for each in found.values())
    if kept is not None:
        # Repeated, the request finds it. The number of a deleted one is not used again.
        assert subscribed(writer, kept.topic, "kept") == kept
        assert subscribed(writer, kept.topic, "further").number > (2 if DELETED in answers else kept.number)
    assert check(path) == []
    reader.close()
    writer.close()


def texts_of(number: int) -> list[str]:
    return [draft.data.decode() for draft in request(number).drafts]


def run_apart(
    path: pathlib.Path, sync: Sync, on_operation: Callable[[int, Operation], int]
) -> tuple[list[tuple[Operation | None, int, tuple[int, ...]]], int]:
    """Run the scenario in a process of its own.

    Args:
        path: of the store.
        sync: durability.
        on_operation: called in that process with number and operation; returns a result code.

    Returns:
        Operations and answers in order, and the status of the process.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reading)
            count = 0

            def note(*values: str | int | bytes | tuple[int, ...]) -> None:
                data = marshal.dumps(values)
                os.write(writing, len(data).to_bytes(4, "big") + data)

            def counted(operation: Operation) -> int:
                nonlocal count
                code = on_operation(count, operation)
                note(operation.kind, operation.path, operation.offset, operation.data)
                count += 1
                return code

            synchronise = os.fsync

            def fsync(descriptor: int) -> None:
                counted(Operation("folder", os.readlink(f"/proc/self/fd/{descriptor}")))
                synchronise(descriptor)

            # The store synchronises its folder by itself.
            os.fsync = fsync  # type: ignore[assignment]
            install(counted)
            try:
                scenario(path, sync, lambda number, ids: note("answer", number, ids))
                status = 0
            except StoreBroken:
                status = 3
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        data = file.read()
    _, status = os.waitpid(child, 0)
    records: list[tuple[Operation | None, int, tuple[int, ...]]] = []
    while data:
        size = int.from_bytes(data[:4], "big")
        values, data = marshal.loads(data[4 : 4 + size]), data[4 + size :]
        if values[0] == "answer":
            records.append((None, values[1], values[2]))
        else:
            records.append((Operation(*values), 0, ()))
    return records, status


def answered(records: list[tuple[Operation | None, int, tuple[int, ...]]]) -> Answers:
    return {number: ids for operation, number, ids in records if operation is None}


def operations(folder: pathlib.Path, sync: Sync) -> list[tuple[Operation | None, int, tuple[int, ...]]]:
    """Return the records of an undisturbed run."""
    folder.mkdir()
    records, status = run_apart(folder / "hub.db", sync, lambda count, operation: OK)
    assert status == 0
    assert len(answered(records)) == REQUESTS + 3
    return records


def test_a_kill_before_each_operation(tmp_path: pathlib.Path) -> None:
    total = sum(operation is not None for operation, _, _ in operations(tmp_path / "whole", "full"))
    assert total > 100
    partly = 0
    for place in range(total):

        def kill(count: int, operation: Operation, place: int = place) -> int:
            if count == place:
                os.kill(os.getpid(), signal.SIGKILL)
            return OK

        path = tmp_path / f"{place}.db"
        records, status = run_apart(path, "full", kill)
        assert status == signal.SIGKILL
        partly += 0 < len(answered(records)) < REQUESTS + 3
        verify(path, answered(records))
    assert partly > 50


class Disk:
    """Files as a disk has them: what was synchronised, and operations that may or may not have reached it."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.pending: dict[str, list[Operation]] = {}

    def add(self, operation: Operation) -> None:
        waiting = self.pending.setdefault(operation.path, [])
        if operation.kind == "sync":
            for each in waiting:
                self.apply(each)
            waiting.clear()
        elif operation.kind == "folder":
            for path, others in self.pending.items():
                if any(each.kind == "delete" for each in others):
                    self.files.pop(path, None)
                    others.clear()
        elif operation.kind == "delete" and operation.offset:
            waiting.clear()
            self.apply(operation)
        else:
            waiting.append(operation)

    def lose_power(self, kept: Callable[[], bool]) -> None:
        """Carry out some of the operations that were not synchronised.

        Args:
            kept: returns whether the next one has reached the disk.
        """
        for waiting in self.pending.values():
            for each in waiting:
                if kept():
                    self.apply(each)

    def apply(self, operation: Operation) -> None:
        if operation.kind == "delete":
            self.files.pop(operation.path, None)
        else:
            apply(self.files.setdefault(operation.path, bytearray()), operation)


def apply(file: bytearray, operation: Operation) -> None:
    if operation.kind == "truncate":
        del file[operation.offset :]
        return
    end = operation.offset + len(operation.data)
    if len(file) < end:
        file.extend(bytes(end - len(file)))
    file[operation.offset : end] = operation.data


@pytest.mark.parametrize("sync", ["full", "normal"])
def test_a_power_loss_after_each_operation(tmp_path: pathlib.Path, sync: Sync) -> None:
    records = operations(tmp_path / "whole", sync)
    choose = random.Random(1)
    lost = 0
    for end in range(1, len(records) + 1):
        if records[end - 1][0] is None and end < len(records):
            continue
        for name, kept in (
            ("none", lambda: False),
            ("all", lambda: True),
            ("some", lambda: choose.random() < 0.5),
            ("most", lambda: choose.random() < 0.9),
        ):
            folder = tmp_path / f"{end}-{name}"
            folder.mkdir()
            disk = Disk()
            for operation, _, _ in records[:end]:
                if operation is not None:
                    disk.add(operation)
            disk.lose_power(kept)
            for path, content in disk.files.items():
                (folder / os.path.basename(path)).write_bytes(content)
            answers = answered(records[:end])
            try:
                verify(folder / "hub.db", answers, durable=sync == "full")
            except AssertionError as error:
                raise AssertionError(f"after operation {end} of {len(records)}, {name} of the writes kept") from error
            lost += 1
    assert lost > 400


def test_a_failed_synchronisation_answers_nothing(tmp_path: pathlib.Path) -> None:
    whole = [operation for operation, _, _ in operations(tmp_path / "whole", "full") if operation is not None]
    syncs = [place for place, operation in enumerate(whole) if operation.kind == "sync"]
    broken = 0
    for place in syncs:

        def fail(count: int, operation: Operation, place: int = place) -> int:
            return IOERR_FSYNC if count == place else OK

        path = tmp_path / f"{place}.db"
        records, _ = run_apart(path, "full", fail)
        broken += len(answered(records)) < REQUESTS + 3
        verify(path, answered(records))
    assert broken > 5
