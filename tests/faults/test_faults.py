"""Faults, on a stage whose processes only sleep."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import cast

import pytest

from tests.faults.crew import Crew
from tests.faults.faults import KINDS, Faults
from tests.faults.history import History
from tests.faults.stage import Plan, Stage
from tests.support.service import alive


class Sleepers:
    """A service of two workers, started again as soon as somebody looks; pipes and routes that count what they get."""

    def __init__(self) -> None:
        self.plan = Plan(1)
        self.popen: dict[str, subprocess.Popen[bytes]] = {}
        self.orders: list[str] = []
        self.service = None
        self.service_log = ""
        self.all: list[subprocess.Popen[bytes]] = []

    def children(self) -> dict[str, int]:
        for name in ("worker 1", "worker 2"):
            popen = self.popen.get(name)
            if popen is None or popen.poll() is not None:
                self.popen[name] = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                self.all.append(self.popen[name])
        return {name: popen.pid for name, popen in self.popen.items()}

    def order_relay(self, order: str) -> None:
        self.orders.append(order)


@pytest.fixture
def stage() -> Iterator[Sleepers]:
    stage = Sleepers()
    yield stage
    for popen in stage.all:
        popen.kill()
        popen.wait()


@pytest.fixture
def faults(stage: Sleepers) -> Faults:
    history = History()
    return Faults(cast(Stage, stage), Crew(1, history, 1), history, 1)


def noted(faults: Faults) -> list[tuple[object, ...]]:
    return [(record.what, *record.values) for record in faults.history]


async def test_a_process_that_is_killed_heals_when_it_was_started_again(stage: Sleepers, faults: Faults) -> None:
    before = dict(stage.children())
    for _ in range(2):
        faults.begin("kill worker")
    await faults.heal()
    # Both, because the first was still being hurt when the second fault looked for a victim.
    assert not {alive(pid) for pid in before.values()} - {False}
    assert faults.counts == {"kill worker": 2}
    assert sorted(noted(faults)[:2]) == [
        ("fault", "kill worker", "worker 1"),
        ("fault", "kill worker", "worker 2"),
    ]
    assert [entry[0] for entry in noted(faults)[2:]] == ["healed", "healed"]


async def test_a_process_that_is_stopped_goes_on_or_dies_of_it(stage: Sleepers, faults: Faults) -> None:
    stage.children()
    faults.begin("stop worker")
    task = asyncio.ensure_future(faults.heal())
    while not task.done():
        await asyncio.sleep(0.05)
        for entry in noted(faults):
            if entry[0] == "fault" and faults.left_to_die:
                os.kill(stage.popen[str(entry[2])].pid, signal.SIGKILL)
    await task
    assert [entry[0] for entry in noted(faults)] == ["fault", "healed"]


async def test_the_pipe_is_cut_and_stalled(stage: Sleepers, faults: Faults) -> None:
    faults.begin("cut pipe")
    faults.begin("stall pipe")
    await faults.heal()
    assert stage.orders == ["cut", "stall", "flow"]


async def test_a_fault_that_goes_wrong_is_told(faults: Faults) -> None:
    faults.begin("reload")
    with pytest.raises(AssertionError):
        await faults.heal()


def test_all_faults_have_a_name_of_what_and_whom() -> None:
    words = {"worker", "handler", "runner", "reload", "pipe", "routes", "backend", "publisher", "reader"}
    assert {kind.split(" ")[-1] for kind in KINDS} == words
