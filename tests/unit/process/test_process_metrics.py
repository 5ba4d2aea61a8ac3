"""Metrics of versions and processes."""

from __future__ import annotations

import os

from gripproxy.process.process_metrics import build_info, process_metrics


def values(*processes: tuple[str, int]) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels["process"]): sample.value
        for family in process_metrics(processes)
        for sample in family.samples
    }


def test_each_process_has_all_figures() -> None:
    found = values(("one", os.getpid()), ("two", os.getppid()))
    assert {process for _, process in found} == {"one", "two"}
    assert len({name for name, _ in found}) == 6


def test_processes_of_one_name_are_a_sum() -> None:
    one = values(("w", os.getpid()))
    both = values(("w", os.getpid()), ("w", os.getpid()))
    assert both["process_max_fds", "w"] == 2 * one["process_max_fds", "w"]
    assert both["process_start_time_seconds", "w"] == one["process_start_time_seconds", "w"]


def test_one_that_has_ended_is_left_out() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    assert values(("gone", pid)) == {}


def test_the_version_is_a_label() -> None:
    [sample] = build_info().samples
    assert sample.value == 1
    assert set(sample.labels) == {"version", "python"}
