"""A session of recording: when segments are closed, what a crash leaves, what clocks and disks may do."""

from __future__ import annotations

import errno
import os
import pathlib
import resource
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from spark_stats import segment
from spark_stats.directory import Directory, sync_folder
from spark_stats.recording import Limits, RecordError, Recording
from tests.support.spark_doubles import NOON, SECOND, FakeClock, opened, recording, rows, tnet

THERE = "tcp://there"


def activity(*numbers: int) -> list[bytes]:
    return [tnet("activity", from_="a", count=number) for number in numbers]


def counts(root: pathlib.Path) -> list[int]:
    return [row["count"] for row in rows(root, "activity")]


def actions(root: pathlib.Path) -> list[str]:
    return [row["action"] for row in rows(root, "recorder")]


def facts(root: pathlib.Path, action: str) -> dict[str, Any]:
    (row,) = [row for row in rows(root, "recorder") if row["action"] == action]
    extra: dict[str, Any] = orjson.loads(row.get("extra", "{}"))
    return row | extra


def journals(root: pathlib.Path) -> list[pathlib.Path]:
    return sorted((root / "_recorder" / "journal").iterdir())


def crash(made: Recording) -> None:
    """Leave everything as it is on the disk; a process that dies gives its lock back."""
    made._directory.unlock()


class TestSegments:
    def test_everything_taken_is_in_segments_at_the_end(self, tmp_path: pathlib.Path) -> None:
        made = recording(tmp_path)
        made.take(THERE, activity(1, 2))
        made.take("tcp://elsewhere", activity(3))
        made.take(THERE, [])
        assert rows(tmp_path) == []
        made.end()
        assert counts(tmp_path) == [1, 2, 3]
        assert [row["endpoint"] for row in rows(tmp_path, "activity")] == [THERE, THERE, "tcp://elsewhere"]
        assert actions(tmp_path) == ["start", "stop"]
        assert facts(tmp_path, "start")["endpoints"] == ["tcp://there"]
        assert [row["seq"] for row in rows(tmp_path)] == [0, 1, 2, 3, 4]
        assert journals(tmp_path) == []

    def test_age_closes_segments(self, tmp_path: pathlib.Path) -> None:
        clock = FakeClock()
        made = recording(tmp_path, clock, age=60)
        made.take(THERE, activity(1))
        clock.forward(59)
        made.tick()
        assert counts(tmp_path) == []
        clock.forward(1)
        made.tick()
        assert counts(tmp_path) == [1]
        # The next one's age counts from its first event.
        clock.forward(600)
        made.tick()
        made.take(THERE, activity(2))
        clock.forward(59)
        made.tick()
        assert counts(tmp_path) == [1]
        made.end()
        assert counts(tmp_path) == [1, 2]

    def test_size_closes_segments(self, tmp_path: pathlib.Path) -> None:
        made = recording(tmp_path, size=10_000)
        for number in range(1000):
            made.take(THERE, activity(number))
            assert sum(path.stat().st_size for path in journals(tmp_path)) < 10_200
        made.end()
        assert counts(tmp_path) == list(range(1000))
        assert made.closed > 10

    def test_nothing_received_is_no_segment(self, tmp_path: pathlib.Path) -> None:
        made = recording(tmp_path)
        made.seal()
        before = made.closed
        made.seal()
        made.tick()
        assert made.closed == before

    def test_closed_on_request(self, tmp_path: pathlib.Path) -> None:
        made = recording(tmp_path)
        made.take(THERE, activity(1))
        made.seal()
        assert counts(tmp_path) == [1]
        assert journals(tmp_path) == []


class TestMalformed:
    def test_counted_sampled_and_no_row(self, tmp_path: pathlib.Path) -> None:
        made = recording(tmp_path)
        made.take(THERE, [b"nonsense", *activity(1), b"conn T5:x"])
        made.end()
        assert counts(tmp_path) == [1]
        assert made.quarantine.counts == {"no space behind a type": 1, "not a tnetstring behind T": 1}
        (path,) = (tmp_path / "_recorder" / "quarantine").iterdir()
        assert [orjson.loads(line)["head"] for line in path.read_bytes().splitlines()] == ["nonsense", "conn T5:x"]


class TestMissing:
    def test_what_is_found_missing_is_in_the_record(
        self, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = recording(tmp_path)
        made.take(THERE, [tnet("report", from_="a", events_sent=10), tnet("report", from_="a", events_sent=15)])
        made.seal()
        made.end()
        row = facts(tmp_path, "missed-events")
        assert (row["count"], row["from"], row["endpoint"]) == (4, "a", THERE)
        assert made.missed == 4
        assert "4 events of a never arrived" in caplog.text


class TestCrash:
    def test_what_was_taken_survives_exactly_once(self, tmp_path: pathlib.Path) -> None:
        first = recording(tmp_path)
        first.take(THERE, activity(1))
        first.seal()
        first.take(THERE, activity(2, 3))
        first.take(THERE, [b"nonsense"])
        first.take(THERE, activity(4))
        crash(first)
        assert counts(tmp_path) == [1]
        second = recording(tmp_path)
        assert counts(tmp_path) == [1, 2, 3, 4]
        second.end()
        assert counts(tmp_path) == [1, 2, 3, 4]
        assert journals(tmp_path) == []
        sessions = {row["session"] for row in rows(tmp_path, "activity")}
        assert sessions == {first.session}  # with their own numbers, so that readers can tell duplicates
        assert [row["seq"] for row in rows(tmp_path, "activity")] == [1, 2, 3, 5]
        row = facts(tmp_path, "recovered")
        assert (row["count"], row["malformed"], row["events-dropped"]) == (4, 1, 0)
        assert actions(tmp_path) == ["start", "start", "recovered", "stop"]

    def test_a_torn_tail_is_dropped_with_a_count(
        self, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = recording(tmp_path)
        first.take(THERE, activity(1, 2))
        first.take(THERE, activity(3, 4, 5))
        crash(first)
        (path,) = journals(tmp_path)
        os.truncate(path, path.stat().st_size - 7)
        recording(tmp_path).end()
        assert counts(tmp_path) == [1, 2]
        row = facts(tmp_path, "recovered")
        assert row["events-dropped"] == 3
        assert row["bytes-dropped"] > 0
        assert "with at least 3 events" in caplog.text

    @pytest.mark.parametrize("renamed", [0, 1, 2, 3])
    def test_a_crash_between_segments_duplicates_nothing(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, renamed: int
    ) -> None:
        class Died(BaseException):
            pass

        first = recording(tmp_path)
        first.take(THERE, [*activity(1, 2), tnet("conn", id="x")])
        left = iter(range(renamed))

        def dies(path: pathlib.Path) -> None:
            """Stands in the way right behind each rename."""
            if path.name.startswith("type="):
                if next(left, None) is None:
                    raise Died
                sync_folder(path)

        monkeypatch.setattr(segment, "sync_folder", dies)
        if renamed < 3:
            with pytest.raises(Died):
                first.seal()
        else:
            first._decode()
            first._segments.close()  # all, and dead before the journal is deleted
        monkeypatch.undo()
        crash(first)
        found = len(list(tmp_path.glob("date=*/type=*/*")))
        assert found == min(renamed + 1, 3)
        recording(tmp_path).end()
        assert counts(tmp_path) == [1, 2]
        assert [row["id"] for row in rows(tmp_path, "conn")] == ["x"]
        assert actions(tmp_path) == ["start", "start", "recovered", "stop"]
        assert orjson.loads(rows(tmp_path, "recorder")[2]["extra"])["found"] == found

    def test_a_crash_during_recovery_changes_nothing(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = recording(tmp_path)
        first.take(THERE, activity(1, 2))
        crash(first)

        def dies(*_: object) -> None:
            raise KeyboardInterrupt

        for name in ("close", "add"):
            directory = opened(tmp_path)
            monkeypatch.setattr(segment.Segments, name, dies)
            with pytest.raises(KeyboardInterrupt):
                Recording(directory, Limits(), FakeClock()).begin([])
            monkeypatch.undo()
            directory.unlock()
        recording(tmp_path).end()
        assert counts(tmp_path) == [1, 2]

    def test_unfinished_segments_are_removed_and_strange_files_left_alone(
        self, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        directory = opened(tmp_path)
        directory.unlock()
        (directory.open / "date=2026-11-20,type=conn,s-000001.parquet").write_bytes(b"PAR1 half")
        (directory.journals / "notes.txt").write_text("mine")
        recording(tmp_path).end()
        assert list(directory.open.iterdir()) == []
        assert [path.name for path in journals(tmp_path)] == ["notes.txt"]
        assert "unfinished segment" in caplog.text
        assert "not the name of a journal" in caplog.text

    def test_a_journal_that_nothing_was_written_into(self, tmp_path: pathlib.Path) -> None:
        directory = opened(tmp_path)
        directory.unlock()
        (directory.journals / "20261120T115959Z-0123-000001.journal").touch()
        recording(tmp_path).end()
        assert journals(tmp_path) == []
        assert facts(tmp_path, "recovered")["bytes-dropped"] == 0
        assert counts(tmp_path) == []

    def test_many_events_over_midnight(self, tmp_path: pathlib.Path) -> None:
        clock = FakeClock(NOON + 12 * 3600 * SECOND - SECOND)
        first = recording(tmp_path, clock)
        for begin in range(0, 20_000, 500):
            first.take(THERE, activity(*range(begin, begin + 500)))
            clock.forward(0.05)
        crash(first)
        recording(tmp_path, clock).end()
        assert counts(tmp_path) == list(range(20_000))
        assert {path.name for path in tmp_path.glob("date=*")} == {"date=2026-11-20", "date=2026-11-21"}
        for row in rows(tmp_path):
            assert row["date"] == row["received_at"].date().isoformat()


class TestClocks:
    def test_a_jump_is_noted_and_the_steady_time_goes_on(self, tmp_path: pathlib.Path) -> None:
        clock = FakeClock()
        made = recording(tmp_path, clock)
        made.take(THERE, activity(1))
        clock.forward(10)
        clock.jump(-36 * 3600)
        made.tick()
        made.take(THERE, activity(2))
        clock.forward(5)
        clock.jump(0.3)  # corrections like this are no jump
        made.tick()
        made.take(THERE, activity(3))
        made.end()
        assert facts(tmp_path, "clock")["jump-ms"] == -36 * 3600 * 1000
        found = sorted(rows(tmp_path, "activity"), key=lambda row: row["seq"])
        assert [row["count"] for row in found] == [1, 2, 3]
        assert [row["elapsed"] for row in found] == [0, 10 * SECOND, 15.3 * SECOND - 0.3 * SECOND]
        assert [str(row["date"]) for row in found] == ["2026-11-20", "2026-11-19", "2026-11-19"]

    def test_a_jump_forward_is_noted_once(self, tmp_path: pathlib.Path) -> None:
        clock = FakeClock()
        made = recording(tmp_path, clock)
        clock.jump(7200)
        for number in range(3):
            made.tick()
            made.take(THERE, activity(number))
            clock.forward(1)
        made.end()
        assert facts(tmp_path, "clock")["jump-ms"] == 7_200_000
        assert [row["elapsed"] for row in rows(tmp_path, "activity")] == [0, SECOND, 2 * SECOND]

    def test_segments_age_by_the_steady_clock(self, tmp_path: pathlib.Path) -> None:
        clock = FakeClock()
        made = recording(tmp_path, clock, age=60)
        made.take(THERE, activity(1))
        clock.jump(-3600)
        clock.forward(60)
        made.tick()
        assert counts(tmp_path) == [1]

    def test_a_jump_back_to_another_day_goes_back_into_its_date(self, tmp_path: pathlib.Path) -> None:
        clock = FakeClock()
        made = recording(tmp_path, clock)
        for number in range(6):
            made.take(THERE, activity(number))
            clock.jump(24 * 3600 if number % 2 else -24 * 3600)
        made.end()
        found = sorted(rows(tmp_path, "activity"), key=lambda row: row["seq"])
        assert [row["count"] for row in found] == list(range(6))
        assert len(list(tmp_path.glob("date=*/type=activity/*"))) == 2


@pytest.fixture
def small_files() -> Iterator[int]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
    yield 60_000
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


class TestFullDisk:
    def test_the_journal_is_full(self, tmp_path: pathlib.Path, small_files: int) -> None:
        first = recording(tmp_path)
        taken = 0
        with pytest.raises(RecordError, match=r"larger than the limit .* Lost: 10 events just received"):  # noqa: PT012
            while True:
                first.take(THERE, activity(*range(taken, taken + 10)))
                taken += 10
        assert taken > 100
        crash(first)
        recording(tmp_path).end()
        assert counts(tmp_path) == list(range(taken))

    @pytest.mark.parametrize(
        ("number", "why"), [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "the quota is used up")]
    )
    def test_the_reason_is_told(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, number: int, why: str
    ) -> None:
        first = recording(tmp_path)
        first.take(THERE, activity(1))

        def full(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as bent:
            bent.setattr(os, "write", full)
            with pytest.raises(RecordError, match=f"{why} .* Lost: 2 events just received"):
                first.take(THERE, activity(2, 3))
        crash(first)
        recording(tmp_path).end()
        assert counts(tmp_path) == [1]

    def test_a_segment_does_not_fit(self, tmp_path: pathlib.Path) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        first = recording(tmp_path)
        first.take(THERE, activity(*range(3000)))
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
        try:
            with pytest.raises(RecordError, match="larger than the limit"):
                first.seal()
            crash(first)
            # Nor does it when the recorder is started again, and nothing is lost or broken by trying.
            directory = opened(tmp_path)
            with pytest.raises(RecordError, match="larger than the limit"):
                Recording(directory, Limits(), FakeClock()).begin([])
            directory.unlock()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert list(Directory(tmp_path).open.iterdir()) == []
        recording(tmp_path).end()
        assert counts(tmp_path) == list(range(3000))


class TestSync:
    @pytest.mark.parametrize(("sync", "expected"), [(0.0, [1, 2, 3, 3]), (2.0, [0, 0, 1, 1]), (None, [0, 0, 0, 0])])
    def test_when_the_journal_is_synced(
        self,
        tmp_path: pathlib.Path,
        monkeypatch: pytest.MonkeyPatch,
        sync: float | None,
        expected: list[int],
    ) -> None:
        clock = FakeClock()
        synced: list[int] = []
        monkeypatch.setattr(os, "fdatasync", synced.append)
        made = recording(tmp_path, clock, sync=sync)
        synced.clear()
        seen = []
        for _ in range(3):
            made.take(THERE, activity(1))
            clock.forward(0.7)
            made.tick()
            seen.append(len(synced))
        clock.forward(0.7)
        made.tick()
        seen.append(len(synced))
        assert seen == expected
