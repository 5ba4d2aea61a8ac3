"""Order of the files: those that take longest begin first, so that none is left alone at the end of a parallel run."""

from __future__ import annotations

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Move the files of ``LONGEST`` to the front if the tests run in several processes.

    Args:
        config: Configuration of the run.
        items: All tests, in the order of their files; sorted in place.
    """
    if hasattr(config, "workerinput"):
        places = {config.rootpath / name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.path, len(places)))
