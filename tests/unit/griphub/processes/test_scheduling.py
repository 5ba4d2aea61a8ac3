"""griphub.processes.scheduling: what the system is asked for."""

from __future__ import annotations

import os

import pytest

from griphub.processes.scheduling import run_in_batches


def test_the_process_is_scheduled_for_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []
    monkeypatch.setattr(
        os, "sched_setscheduler", lambda pid, policy, param: asked.append((pid, policy, param.sched_priority))
    )
    run_in_batches()
    assert asked == [(0, os.SCHED_BATCH, 0)]


def test_a_system_that_forbids_it_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", forbid)
    run_in_batches()
