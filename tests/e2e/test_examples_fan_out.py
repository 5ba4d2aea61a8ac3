"""The example of ingestion and fan-out: the broker has anomalies in each act, and watching has none."""

from __future__ import annotations

import asyncio
import pathlib
import re
import subprocess
from typing import Final

import pytest

from examples.fan_out.freshness import FAIR, Freshness
from examples.fan_out.ring import Ring
from examples.fan_out.verdict import judged
from tests.e2e.test_examples import Example
from tests.support.service import ROOT

README: Final = "examples/fan_out/README.md"
PATIENCE: Final = 110.0
"""Seconds of a run."""


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """The example as a person starts it."""
    command = [*Example("fan-out").command, "--seconds", "4", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)


def row(output: str, label: str) -> list[int]:
    """Cells of a line of a table."""
    (line,) = re.findall(rf"^{re.escape(label)}  +(.*)$", output, flags=re.MULTILINE)
    return [int(cell) for cell in str(line).split()]


@pytest.fixture(scope="module")
def good() -> subprocess.CompletedProcess[str]:
    return run()


def test_a_consumer_that_was_away_is_wrong_for_ever_or_told(good: subprocess.CompletedProcess[str]) -> None:
    assert good.returncode == 0, good.stdout + good.stderr
    stream, watch = row(good.stdout, "times that it learned of that")
    assert (stream, watch >= 1) == (0, True)
    assert row(good.stdout, "articles wrong in the end, of 30") == [4, 0]
    assert row(good.stdout, "withdrawn articles that it still sells") == [2, 0]
    assert row(good.stdout, "articles wrong at a consumer that stayed") == [0, 0]
    assert re.search(r"watch: resync, events behind 30 are not retained; snapshot \d+\n", good.stdout)
    assert re.search(r"watch: meanwhile 28 articles were changed, and withdrawn: article-05, article-06\n", good.stdout)
    assert "it will sell article-05 for ever" in good.stdout


def test_a_busy_article_holds_up_others_in_the_queue_only(good: subprocess.CompletedProcess[str]) -> None:
    queue, watch = row(good.stdout, "held up behind more than two of them")
    assert (queue > 0, watch) == (True, 0)
    queue, watch = row(good.stdout, "most values of the busy one before one of them")
    assert watch <= FAIR < queue
    changes, _ = row(good.stdout, "changes of article-01")
    assert row(good.stdout, "of these worked off")[1] < changes


@pytest.mark.parametrize(
    ("option", "act", "label"),
    [
        ("--without-snapshot", "absence", "withdrawn articles that it still sells"),
        ("--without-collapsing", "busy article", "held up behind more than two of them"),
    ],
)
def test_without_the_technique_watching_has_anomalies_too(option: str, act: str, label: str) -> None:
    bad = run(option)
    assert bad.returncode == 1, bad.stdout + bad.stderr
    assert row(bad.stdout, label)[1] > 0
    assert re.search(rf"^watch has \d+ anomalies \({act}\)", bad.stdout, flags=re.MULTILINE)


def test_the_document_shows_lines_that_a_run_prints(good: subprocess.CompletedProcess[str]) -> None:
    text = pathlib.Path(ROOT / README).read_text()
    (block,) = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    command, _, shown = block.partition("\n")
    assert command == "$ make fan-out"
    assert "\nfan-out: " in (ROOT / "Makefile").read_text()
    lines = [line for line in shown.splitlines() if line and "…" not in line]
    assert len(lines) > 20
    assert {shape(line) for line in lines} <= {shape(line) for line in good.stdout.splitlines()}
    assert set(re.findall(r"ARGS=(--[\w-]+)", text)) == {"--without-snapshot", "--without-collapsing"}


def shape(line: str) -> str:
    """A line without its figures and the widths of columns."""
    return re.sub(r"\d+(\.\d+)?", "#", re.sub(r" +", " ", line))


# --- the ring


async def test_a_ring_gives_what_is_there_without_a_sign_of_a_hole() -> None:
    ring = Ring(3)
    for number in range(1, 6):
        ring.add("k", number, 0.0)
    assert (ring.first, ring.last) == (3, 5)
    assert [entry.id for entry in await ring.read(1)] == [3, 4, 5]
    assert [entry.id for entry in await ring.read(3, 1)] == [4]


async def test_a_reader_of_a_ring_waits_for_the_next_entry() -> None:
    ring = Ring(3)
    reading = asyncio.create_task(ring.read(0))
    await asyncio.sleep(0)
    assert not reading.done()
    ring.add("k", None, 2.5)
    (entry,) = await asyncio.wait_for(reading, 30)
    assert (entry.id, entry.key, entry.number, entry.time) == (1, "k", None, 2.5)


# --- the checkers


def test_tables_are_compared_with_the_store() -> None:
    verdict = judged({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 9, "d": 4}, {"a": 1, "b": 2, "c": 3}, (5, 9), 0)
    assert (verdict.wrong, verdict.withdrawn, verdict.wrong_stayed) == (("b", "c"), ("d",), ())
    assert (verdict.missed, verdict.anomalies) == (3, 3)
    assert judged({"a": 1}, {"a": 1}, {"a": 1, "b": 1}, (5, 6), 1).wrong_stayed == ("b",)
    assert judged({"a": 1}, {"a": 1}, {"a": 1}, (5, 6), 1).anomalies == 0


def test_a_change_is_held_up_behind_more_than_two_values_of_the_busy_key() -> None:
    freshness = Freshness("busy")
    freshness.add("busy", 0.0, 0.0, 1.0)
    for now in (2.0, 3.0):
        freshness.add("busy", 0.0, 0.0, now)
    freshness.add("other", 1.0, 1.5, 3.5)
    assert [(wait.key, wait.seconds, wait.behind) for wait in freshness.waits] == [("other", 2.5, 2)]
    assert freshness.held_up == []
    freshness.add("busy", 0.0, 0.0, 4.0)
    freshness.add("other", 1.0, 1.5, 4.5)
    assert [wait.behind for wait in freshness.held_up] == [3]
    assert freshness.worked == 4
