"""How a phase of a hostile run is judged."""

from __future__ import annotations

import math
import pathlib
import time
from typing import Any

import pytest

from tests.faults.history import History
from tests.faults.hostile.processor import Usage, foreign_share, usage
from tests.faults.hostile.verdict import (
    ALLOWED,
    FOREIGN_MAX,
    HOPS,
    Phase,
    delays_between,
    disconnects,
    latencies,
    limit,
    percentile,
)
from tests.faults.hostile.witness import read_delays

PHASE = Phase("client", 10.0, 20.0)


def told(*steps: tuple[Any, ...]) -> History:
    now = 0.0
    history = History(lambda: now)
    for at, who, what, *values in steps:
        now = at
        history.add(who, what, *values)
    return history


OPENED = (1.0, "c", "opened", 1, "a-2", 0)


def test_an_item_is_as_late_as_it_came_after_it_was_written() -> None:
    history = told(
        OPENED,
        (2.0, "d", "opened", 1, "a-2", 0),
        (10.5, "p", "wrote", "a-2", 1),
        (10.75, "c", "got", 1, "a-2", 1, "1"),
        (11.5, "d", "got", 1, "a-2", 1, "1"),
        (11.75, "d", "got", 1, "a-2", 1, "1"),
    )
    assert sorted(latencies(history, PHASE)) == [0.25, 1.0]


def test_one_that_has_not_come_is_infinitely_late() -> None:
    history = told(OPENED, (10.5, "p", "wrote", "a-2", 1))
    assert latencies(history, PHASE) == [math.inf]
    assert percentile(latencies(history, PHASE)) > limit(1.0, 1.0)


@pytest.mark.parametrize("at", [9.9, 20.0])
def test_items_of_other_phases_do_not_count(at: float) -> None:
    assert latencies(told(OPENED, (at, "p", "wrote", "a-2", 1)), PHASE) == []


def test_nobody_waits_for_items_of_other_channels() -> None:
    assert latencies(told(OPENED, (10.5, "p", "wrote", "a-4", 1)), PHASE) == []


def test_an_end_with_a_reason_is_a_disconnect() -> None:
    history = told(
        (9.0, "c", "ended", 1, "cut before"),
        (11.0, "c", "ended", 2, ""),
        (12.0, "c", "ended", 3, "cut"),
        (21.0, "c", "ended", 4, "cut behind"),
    )
    assert disconnects(history, PHASE) == ["c: cut"]


def test_percentiles() -> None:
    values = [float(value) for value in range(200, 0, -1)]
    assert percentile(values) == 198.0
    assert percentile([5.0]) == 5.0
    assert percentile([]) == 0.0


def test_the_limit_is_three_times_the_quiet_one_or_a_quarter_second_and_what_the_machine_takes() -> None:
    assert limit(0.01, 0.0) == ALLOWED
    assert limit(0.2, 0.0) == pytest.approx(0.6)
    assert limit(0.01, 0.1) == pytest.approx(ALLOWED + HOPS * 0.1)


def test_what_others_use_of_the_machine_makes_everything_slower() -> None:
    assert limit(0.01, 0.1, 0.5) == pytest.approx(2 * ALLOWED + HOPS * 0.1)
    assert limit(0.01, 0.0, 1.0) == limit(0.01, 0.0, FOREIGN_MAX) == pytest.approx(5 * ALLOWED)


def test_the_share_of_others_is_what_neither_rested_nor_was_ours() -> None:
    before, after = Usage(10.0, 100.0, 5.0), Usage(20.0, 112.0, 9.0)
    assert foreign_share(before, after, 2) == pytest.approx(0.4)
    assert foreign_share(before, Usage(20.0, 103.0, 9.0), 2) == 0.0
    assert foreign_share(before, before, 2) == 0.0


def test_the_processors_time_is_read() -> None:
    before = usage()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    after = usage()
    assert after.at > before.at
    assert after.busy > before.busy
    assert after.own > before.own


def test_the_witness_is_asked_about_the_phase(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "witness"
    path.write_text("9.0 0.5\n11.0 0.25\n19.5 0.125\n20.5 0.75\n21")
    assert delays_between(read_delays(path), PHASE) == [0.25, 0.125]
    assert read_delays(tmp_path / "none") == []
