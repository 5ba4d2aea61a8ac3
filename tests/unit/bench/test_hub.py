"""The command of the hub's benchmark: its line, and the failures that it reports."""

from __future__ import annotations

import pytest

from bench.hub import PARTS, arguments, problems, scale_of
from bench.hub_disk import Disk
from bench.hub_parts import FULL, SMOKE
from bench.hub_table import Part, Row
from bench.programs import BenchError

DISK = Disk(rate=1, p50=1, p99=1, kind="ext4")


def part(*rows: Row) -> Part:
    return Part("publish", "Publishes", ("publishes/s",), DISK, list(rows))


def test_the_line_says_how_much() -> None:
    assert scale_of(arguments([])) == FULL
    assert scale_of(arguments(["--smoke"])) == SMOKE
    assert scale_of(arguments(["--seconds", "1.5", "--no-peers"])).seconds == 1.5
    assert not scale_of(arguments(["--no-peers"])).peers


@pytest.mark.parametrize("seconds", ["0", "-1"])
def test_a_duration_that_is_not_positive_is_refused(seconds: str) -> None:
    with pytest.raises(BenchError, match="must be more than 0"):
        scale_of(arguments([f"--seconds={seconds}"]))


def test_a_smoke_run_measures_no_peer() -> None:
    assert not SMOKE.peers
    store = ["publish", "batch", "history", "fanout", "memory", "maintenance"]
    assert list(PARTS) == [*store, "callbacks", "pushes", "mailboxes", "watch", "snapshot", "ingest"]


def test_a_row_that_failed_is_a_problem_and_a_peer_that_is_missing_is_none() -> None:
    good, missing = Row("hub", {"publishes/s": 1.0}), Row("etcd", note="not installed")
    assert problems([part(good, missing)]) == []
    bad = Row("hub", note="failed: no answer", failed=True)
    assert problems([part(good, bad)]) == ["publish: hub: failed: no answer"]


def test_a_table_without_any_figure_is_a_problem() -> None:
    assert problems([part(Row("etcd", note="not installed"))]) == ["publish: no figure"]
