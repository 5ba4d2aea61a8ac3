"""Malformed messages: all counted, some kept, never without bound."""

from __future__ import annotations

import pathlib
import resource

import orjson
import pytest

from spark_stats import quarantine
from spark_stats.journal import Frame
from spark_stats.quarantine import MAX_HEAD, PERIOD, SAMPLES, Quarantine
from tests.support.spark_doubles import NOON, opened


def frame(elapsed: int = 0) -> Frame:
    return Frame("tcp://there", NOON, elapsed, 7, [])


def lines(root: pathlib.Path) -> list[dict[str, object]]:
    path = root / "_recorder" / "quarantine" / "2026-11-20.jsonl"
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_a_sample_tells_what_came_from_where(tmp_path: pathlib.Path) -> None:
    kept = Quarantine(opened(tmp_path), "s")
    kept.refuse("why", frame(), 9, b"\xff\n" + b"x" * 5000)
    assert lines(tmp_path) == [
        {
            "received_at": "2026-11-20T12:00:00+00:00",
            "endpoint": "tcp://there",
            "session": "s",
            "seq": 9,
            "reason": "why",
            "bytes": 5002,
            "head": "ÿ\n" + "x" * (MAX_HEAD - 2),
        }
    ]


def test_a_flood_is_counted_and_sampled_per_reason_and_period(tmp_path: pathlib.Path) -> None:
    kept = Quarantine(opened(tmp_path), "s")
    for seq in range(1000):
        kept.refuse("a", frame(), seq, b"x")
        kept.refuse("b", frame(), seq, b"x")
    assert kept.counts == {"a": 1000, "b": 1000}
    assert kept.total == 2000
    assert len(lines(tmp_path)) == 2 * SAMPLES
    kept.refuse("a", frame(PERIOD), 1000, b"x")
    assert len(lines(tmp_path)) == 2 * SAMPLES + 1


def test_the_file_of_a_day_is_bounded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "MAX_FILE", 500)
    kept = Quarantine(opened(tmp_path), "s")
    for seq in range(10):
        kept.refuse("a", frame(), seq, b"x" * 50)
    assert (tmp_path / "_recorder" / "quarantine" / "2026-11-20.jsonl").stat().st_size <= 500
    assert kept.total == 10


def test_a_full_disk_leaves_whole_lines(tmp_path: pathlib.Path) -> None:
    kept = Quarantine(opened(tmp_path), "s")
    kept.refuse("a", frame(), 1, b"x")
    size = (tmp_path / "_recorder" / "quarantine" / "2026-11-20.jsonl").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Room for a part of the next line: the system writes that part, and says so.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
    try:
        with pytest.raises(OSError, match="written in part"):
            kept.refuse("a", frame(), 2, b"x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    kept.refuse("a", frame(), 3, b"x")
    assert [line["seq"] for line in lines(tmp_path)] == [1, 3]


def test_without_sampling_it_only_counts(tmp_path: pathlib.Path) -> None:
    kept = Quarantine(opened(tmp_path), "s", sampling=False)
    kept.refuse("a", frame(), 1, b"x")
    assert kept.total == 1
    assert not list((tmp_path / "_recorder" / "quarantine").iterdir())
