"""Group commits: requests on a socket in, commits and answers out."""

from __future__ import annotations

import os
import pathlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from griphub.processes import writer_process
from griphub.processes.checkpointer import Checkpointer
from griphub.processes.frames import FrameBuffer, FrameSocket, frame
from griphub.processes.large_transfer import LargeTransfer
from griphub.processes.writer_process import ANSWER, APPEND, CALL, FAILED, OUTCOMES, PART, REFUSED, WriterLoop
from griphub.store.errors import StoreBroken, StoreFull
from griphub.store.plain_records import PlainOutcome, PlainPublication, plain_publication
from griphub.store.publication import Publication
from griphub.store.sqlite_writer import SqliteWriter
from tests.support.store_conformance import drafts, made, subscribed


class CountingWriter(SqliteWriter):
    """Writer that remembers the sizes of its commits, and can be full or broken."""

    commits: list[int]
    error: Callable[[], Exception] | None = None

    def append_plain(self, publications: Sequence[PlainPublication]) -> list[PlainOutcome]:
        self.commits.append(sum(len(publication[1]) for publication in publications))
        if self.error is not None:
            raise self.error()
        return super().append_plain(publications)


class Loop:
    """A writer's loop, with the hub's end of its socket."""

    def __init__(self, path: pathlib.Path) -> None:
        self.hub, self.sock = socket.socketpair()
        self.hub.setblocking(False)
        self.wake_end, self.wakeup = os.pipe()
        self.writer = CountingWriter(path, "off", ballast=4096)
        self.writer.commits = []
        self.checkpoints = Checkpointer(path, "off", lambda: None)
        self.loop = WriterLoop(FrameSocket(self.sock, self.wake_end), self.writer, self.checkpoints)
        self.buffer = FrameBuffer()

    def send(self, *values: Any) -> None:
        self.hub.sendall(b"".join(map(frame, values)))

    def answers(self) -> list[Any]:
        got: list[Any] = []
        while True:
            try:
                got += self.buffer.feed(self.hub.recv(1_000_000))
            except BlockingIOError:
                return got

    def close(self) -> None:
        self.checkpoints.close()
        self.writer.close()
        self.hub.close()
        self.sock.close()
        os.close(self.wake_end)
        os.close(self.wakeup)


@pytest.fixture
def loop(tmp_path: pathlib.Path) -> Iterator[Loop]:
    loop = Loop(tmp_path / "hub.db")
    made(loop.writer, "t")
    yield loop
    loop.close()


def plain(*texts: str) -> PlainPublication:
    return plain_publication(Publication("t", drafts(*texts)))


def test_a_large_publication_arrives_in_parts_between_others(loop: Loop) -> None:
    transfer = LargeTransfer(PART, plain("x" * 200_000))
    for text in ("a", "b"):
        loop.hub.sendall(transfer.part())
        loop.send((APPEND, [plain(text)]))
        loop.loop.turn(None)
    assert transfer.complete
    assert loop.writer.commits == [1, 2]
    answers = loop.answers()
    assert [kind for kind, _ in answers] == [OUTCOMES] * 2
    assert [len(outcomes) for _, outcomes in answers] == [1, 2]


def test_all_that_has_arrived_is_one_commit(loop: Loop) -> None:
    loop.send((APPEND, [plain("a"), plain("b", "c")]), (APPEND, [plain("d")]))
    assert loop.loop.turn(10)
    assert loop.writer.commits == [4]
    [(kind, outcomes)] = loop.answers()
    assert kind == OUTCOMES
    assert [outcome[3:4] + outcome[5:] for outcome in outcomes] == [(1, 1), (2, 2), (4, 1)]
    assert not loop.loop.turn(0)


def test_a_command_divides_commits(loop: Loop) -> None:
    loop.send((APPEND, [plain("a")]), (CALL, "raise_access", ("t",)), (APPEND, [plain("b")]), (CALL, "state", ()))
    loop.loop.turn(10)
    assert loop.writer.commits == [1, 1]
    assert [answer[0] for answer in loop.answers()] == [OUTCOMES, ANSWER, OUTCOMES, ANSWER]


def test_a_commit_is_bounded(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_process, "GROUP_EVENTS", 4)
    loop.send((APPEND, [plain("a", "b", "c"), plain("d"), plain("e"), plain(*"fghij"), plain("k")]))
    loop.loop.turn(10)
    assert loop.writer.commits == [4, 1, 5, 1]
    monkeypatch.setattr(writer_process, "GROUP_BYTES", 2000)
    loop.writer.commits.clear()
    loop.send((APPEND, [plain("a" * 900), plain("b" * 900), plain("c" * 900), plain("d" * 9000)]))
    while sum(loop.writer.commits) < 4:
        loop.loop.turn(10)
    assert loop.writer.commits == [2, 1, 1]


def test_a_large_publication_has_a_commit_of_its_own(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_process, "LARGE", 1000)
    loop.send((APPEND, [plain("a"), plain("b"), plain("c" * 600, "d" * 600), plain("e"), plain("f")]))
    loop.loop.turn(10)
    assert loop.writer.commits == [2, 2, 2]


def test_a_full_disk_fails_a_commit_only(loop: Loop) -> None:
    loop.writer.error = lambda: StoreFull("no space")
    loop.send((APPEND, [plain("a"), plain("b")]))
    loop.loop.turn(10)
    assert loop.answers() == [(FAILED, 2, "no space")]
    loop.writer.error = None
    loop.send((APPEND, [plain("a")]))
    loop.loop.turn(10)
    [(kind, _)] = loop.answers()
    assert kind == OUTCOMES


def test_a_deletion_releases_the_ballast_and_later_it_is_taken_back(
    loop: Loop, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [StoreFull("no space")]
    monkeypatch.setattr(writer_process, "FULL_PAUSE", 0.0)
    delete = loop.writer.delete_slice

    def delete_slice(number: int) -> bool:
        if full:
            raise full.pop()
        assert not (tmp_path / "hub.db.ballast").exists(), "room was made"
        return delete(number)

    monkeypatch.setattr(loop.writer, "delete_slice", delete_slice)
    loop.loop = WriterLoop(FrameSocket(loop.sock, loop.wake_end), loop.writer, loop.checkpoints)
    loop.send((CALL, "delete_slice", (1,)))
    loop.loop.turn(10)
    assert loop.answers() == [(ANSWER, False)]
    loop.loop.turn(0)
    assert (tmp_path / "hub.db.ballast").stat().st_size == 4096


def test_other_commands_are_refused_on_a_full_disk(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreFull("no space")

    monkeypatch.setattr(loop.writer, "raise_access", full)
    loop.send((CALL, "raise_access", ("t",)))
    loop.loop.turn(10)
    assert loop.answers() == [(REFUSED, "no space")]


def test_a_subscription_can_be_deleted_on_a_full_disk(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    full = [StoreFull("no space")]
    delete = loop.writer.subscriptions.delete

    def delete_with_room(*name: Any) -> int | None:
        if full:
            raise full.pop()
        return delete(*name)

    subscribed(loop.writer, 1)
    monkeypatch.setattr(loop.writer.subscriptions, "delete", delete_with_room)
    loop.loop = WriterLoop(FrameSocket(loop.sock, loop.wake_end), loop.writer, loop.checkpoints)
    loop.send((CALL, "delete_subscription", (1, "o", "s")), (CALL, "delete_subscription", (1, "o", "s")))
    loop.loop.turn(10)
    assert loop.answers() == [(ANSWER, 1), (ANSWER, None)]


def test_nothing_is_answered_after_a_failed_write(loop: Loop) -> None:
    loop.writer.error = lambda: StoreBroken("disk I/O error")
    loop.send((APPEND, [plain("a")]))
    with pytest.raises(StoreBroken):
        loop.loop.turn(10)
    assert loop.answers() == []


def test_a_failed_checkpoint_ends_the_writer(loop: Loop) -> None:
    loop.checkpoints.failure = "checkpoint: SQLITE_IOERR_FSYNC"
    with pytest.raises(StoreBroken, match="IOERR_FSYNC"):
        loop.loop.turn(0)


def test_all_that_was_sent_is_stored_when_the_hub_has_ended(loop: Loop, tmp_path: pathlib.Path) -> None:
    loop.send(*[(APPEND, [plain("a"), plain("b")]) for _ in range(10)])
    loop.hub.shutdown(socket.SHUT_WR)
    loop.loop.run(lambda: False)
    assert sum(loop.writer.commits) == 20
    assert sum(len(answer[1]) for answer in loop.answers()) == 20


def test_an_idle_store_empties_its_log_and_releases_pages(
    loop: Loop, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_process, "IDLE", 0.01)
    loop.writer.append_plain([plain(*["x" * 10_000] * 600)])
    loop.send((CALL, "delete_topic", ("t",)), *[(CALL, "delete_slice", (1,))] * 20)
    rounds = iter(range(1000))
    log = tmp_path / "hub.db-wal"
    # The end is looked at after each turn: the first ones work, the others find the store idle.
    loop.loop.run(lambda: next(rounds) > 2 and log.stat().st_size == 0)
    assert log.stat().st_size == 0
    assert (tmp_path / "hub.db").stat().st_size < 4_500_000
