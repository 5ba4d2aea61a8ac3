"""The example of work queues: queues have anomalies, and watching has none; its judge is judged as well."""

from __future__ import annotations

import asyncio
import pathlib
import re
import subprocess
from typing import Final

import pytest

from examples.work_queues.faults import Fault, Faults
from examples.work_queues.judge import Verdict, Write, judge
from examples.work_queues.sharder import Sharder
from griphub import KeyRange
from tests.e2e.test_examples import Example
from tests.support.service import ROOT

README: Final = "examples/work_queues/README.md"
PATIENCE: Final = 110.0
"""Seconds of a run: seven releases, and the workers' faults."""


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """The example as a person starts it; with so few seconds it has its least number of releases."""
    command = [*Example("work-queues").command, "--seconds", "1", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)


def row(output: str, label: str) -> list[str]:
    """Cells of a line of the table."""
    (line,) = re.findall(rf"^{re.escape(label)}\s+(.*)$", output, flags=re.MULTILINE)
    return str(line).split()


@pytest.fixture(scope="module")
def good() -> subprocess.CompletedProcess[str]:
    return run()


def test_the_queues_have_anomalies_and_watching_has_none(good: subprocess.CompletedProcess[str]) -> None:
    assert good.returncode == 0, good.stdout + good.stderr
    first, last, watch = map(int, row(good.stdout, "newer release overwritten by an older one"))
    assert (first > 0, last > 0, watch) == (True, True, 0)
    assert int(row(good.stdout, "steps lost")[0]) > 0
    assert int(row(good.stdout, "releases written again")[1]) > 0
    assert row(good.stdout, "releases written again")[2] == "0"
    assert row(good.stdout, "machines wrong in the end")[2] == "0"
    assert int(row(good.stdout, "late writes refused (412)")[2]) > 0


def test_the_story_is_that_of_one_machine(good: subprocess.CompletedProcess[str]) -> None:
    (machine,) = re.findall(
        r"^One of them \(ack last\), as the history has it: (machine-\d\d)$", good.stdout, re.MULTILINE
    )
    began, newer, late = re.findall(r"^ +[\d.]+ s  (worker \d).*release (\d+)$", good.stdout, re.MULTILINE)[-3:]
    assert began == late
    assert newer[0] != late[0]
    assert int(newer[1]) > int(late[1])
    assert f"{late[0]} has written {machine} := {late[1]} over" in good.stdout


def test_without_the_condition_a_late_write_gets_through() -> None:
    bad = run("--without-if-match")
    assert bad.returncode == 1, bad.stdout + bad.stderr
    assert int(row(bad.stdout, "newer release overwritten by an older one")[2]) > 0
    assert row(bad.stdout, "late writes refused (412)")[2] == "0"
    assert "watch has " in bad.stdout


def test_the_document_shows_lines_that_a_run_prints(good: subprocess.CompletedProcess[str]) -> None:
    text = pathlib.Path(ROOT / README).read_text()
    (block,) = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    command, _, shown = block.partition("\n")
    assert command == "$ make work-queues"
    assert "\nwork-queues: " in (ROOT / "Makefile").read_text()
    table = shown[shown.index("changes of the desired") : shown.index("One of them")].splitlines()
    assert len(table) == 10
    assert {shape(line) for line in table} <= {shape(line) for line in good.stdout.splitlines()}
    assert set(re.findall(r"ARGS=(--[\w-]+)", text)) == {"--without-if-match"}


def shape(line: str) -> str:
    """A line without its figures and the widths of columns."""
    return re.sub(r"\d+|-(?= |$)", "#", re.sub(r" +", " ", line))


# --- the judge


def verdict(*writes: tuple[int, str], desired: tuple[int, ...] = (1, 2, 3)) -> Verdict:
    wishes = [Write("m", version) for version in desired]
    return judge(wishes, [Write("m", version, worker=worker) for version, worker in writes])


def test_each_step_once_and_in_order_is_no_anomaly() -> None:
    found = verdict((1, "a"), (2, "b"), (3, "a"))
    assert (found.asked, found.written) == (3, 3)
    assert found.anomalies(steps=True) == 0


def test_a_skipped_state_is_an_anomaly_of_steps_only() -> None:
    found = verdict((1, "a"), (3, "a"))
    assert [wish.version for wish in found.skipped] == [2]
    assert (found.anomalies(steps=True), found.anomalies(steps=False)) == (1, 0)


def test_a_late_write_is_an_anomaly_even_if_it_is_repaired() -> None:
    found = verdict((1, "a"), (2, "a"), (1, "b"), (3, "a"))
    ((late, before),) = found.overwritten
    assert (late.worker, late.version, before.version) == ("b", 1, 2)
    assert (found.wrong, found.anomalies(steps=False)) == ((), 1)


def test_a_late_write_that_stays_makes_the_machine_wrong() -> None:
    found = verdict((1, "a"), (2, "a"), (3, "a"), (2, "b"))
    assert [wish.version for wish in found.wrong] == [3]
    assert found.anomalies(steps=False) == 2


def test_a_machine_without_any_write_is_wrong() -> None:
    assert [wish.key for wish in verdict().wrong] == ["m"]


def test_the_same_release_again_is_repeated() -> None:
    assert len(verdict((1, "a"), (1, "b"), (2, "a"), (3, "a")).repeated) == 1


def test_machines_are_judged_apart() -> None:
    found = judge([Write("m", 1), Write("n", 2)], [Write("n", 2), Write("m", 1)])
    assert found.anomalies(steps=True) == 0


# --- the sharder

LEFT, RIGHT = KeyRange("a", "m"), KeyRange("m", None)


def test_a_range_is_given_up_before_it_is_given_away() -> None:
    sharder = Sharder([LEFT, RIGHT], lease=1.0)
    assert sharder.beat("one", 0.0) == {LEFT, RIGHT}
    assert sharder.beat("two", 0.1) == set()
    kept = sharder.beat("one", 0.2)
    assert len(kept) == 1
    assert sharder.beat("two", 0.3) == set()
    assert sharder.beat("one", 0.4) == kept
    assert sharder.beat("two", 0.5) == {LEFT, RIGHT} - kept


def test_a_silent_worker_loses_its_ranges_and_learns_of_it_at_its_next_beat() -> None:
    taken: list[tuple[KeyRange, str, str]] = []
    sharder = Sharder([LEFT], 1.0, lambda *move: taken.append(move))
    assert sharder.beat("one", 0.0) == {LEFT}
    assert sharder.beat("two", 1.0) == set()
    assert sharder.beat("two", 1.1) == {LEFT}
    assert taken == [(LEFT, "one", "two")]
    assert sharder.beat("one", 1.2) == set()


# --- faults


def test_a_fault_strikes_once_at_its_machine_and_release_or_a_later_one() -> None:
    faults = Faults(last=9)
    faults.arm(Fault.STOP, "m", 3)
    assert [faults.strike("m", 2), faults.strike("n", 3), faults.strike("m", 4), faults.strike("m", 5)] == [
        None,
        None,
        Fault.STOP,
        None,
    ]


async def test_a_stopped_worker_is_woken_when_its_machine_is_two_releases_ahead() -> None:
    faults = Faults(last=9)
    waiting = asyncio.create_task(faults.gone_ahead("m", 3))
    assert [faults.written("m", version) for version in (3, 4)] == [0, 3]
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    faults.written("m", 5)
    await asyncio.wait_for(waiting, 30)
    assert faults.written("m", 3) == 5
