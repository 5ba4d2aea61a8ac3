"""Order of the files, and the two parts of long suites: quick tests for each change, slow ones for the rest of a day.

Files that take longest begin first, so that none is left alone at the end of a parallel run.
"""

from __future__ import annotations

import fnmatch
from typing import Final

import pytest

LONGEST: Final = (
    "tests/e2e/test_survival.py",
    "tests/e2e/test_routes_file.py",
    "tests/e2e/test_reload.py",
    "tests/e2e/test_processes.py",
    "tests/wire/ws/test_ws_slow.py",
    "tests/e2e/test_hold_5000.py",
    "tests/e2e/test_work.py",
    "tests/e2e/test_stats.py",
    "tests/e2e/test_recovery_load.py",
    "tests/e2e/test_unread_websockets.py",
    "tests/e2e/test_reload_processes.py",
    "tests/e2e/test_hold_5000_websockets.py",
    "tests/e2e/test_recovery.py",
    "tests/wire/test_config_listen.py",
    "tests/wire/test_stats_events.py",
    "tests/wire/test_zmq_sub.py",
    "tests/wire/test_limits_times.py",
    "tests/wire/test_limits_counts.py",
)
"""Files of more than half a minute when they are run with others, the longest first (``pytest --durations``)."""

SLOW: Final = (
    *LONGEST,
    "tests/e2e/test_document_commands.py",
    "tests/e2e/test_examples*.py",
    "tests/e2e/test_hub_client.py",
    "tests/e2e/test_hub_follow.py",
    "tests/e2e/test_hub_lock.py",
    "tests/e2e/test_hub_push_receivers.py",
    "tests/e2e/test_hub_push_scenarios.py",
    "tests/e2e/test_hub_long.py",
    "tests/e2e/test_hub_outages.py",
    "tests/e2e/test_outages.py",
    "tests/faults/test_hostile.py",
    "tests/faults/test_hub_callbacks.py",
    "tests/faults/test_hub_cancel_cycles.py",
    "tests/faults/test_hub_owner.py",
    "tests/faults/test_hub_store_crashes.py",
    "tests/faults/test_push_soak.py",
    "tests/faults/test_runs.py",
    "tests/faults/test_soft_hostile.py",
)
"""Patterns of the files of the slow part."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--part`` to the options.

    Args:
        parser: of the command line.
    """
    parser.addoption("--part", choices=("quick", "slow"), help="of the end-to-end, wire and fault tests; default: both")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other part, and move the files of ``LONGEST`` to the front if the tests run in several processes.

    Args:
        config: Configuration of the run.
        items: All tests, in the order of their files; changed in place.
    """
    part = config.getoption("--part")
    if part is not None:
        other = [item for item in items if is_slow(config, item) is not (part == "slow")]
        left = set(other)
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=other)
    if hasattr(config, "workerinput"):
        places = {config.rootpath / name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.path, len(places)))


def is_slow(config: pytest.Config, item: pytest.Item) -> bool:
    """Return whether a test is one of the slow part.

    Args:
        config: Configuration of the run.
        item: The test.
    """
    name = item.path.relative_to(config.rootpath).as_posix()
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in SLOW)
