"""The recipe of docs/held-channels.md, as it stands there: also when the handler is killed."""

from __future__ import annotations

import os
import pathlib
import queue
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.wire.wirekit import Setup, Site, hold
from tests.wire.wirekit.holding import stream

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "held-channels.md"
PATIENCE = 30.0


@pytest.fixture
def site() -> Iterator[Site]:
    # The handler is killed on purpose: what its end leaves in the log is no problem.
    site = Site(Setup())
    yield site
    site.stop()


@pytest.fixture
def changes(site: Site) -> queue.SimpleQueue[frozenset[str]]:
    """Return the sets that the recipe yields."""
    [code] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    held_channels: Callable[[str], Iterator[frozenset[str]]] = names["held_channels"]
    found: queue.SimpleQueue[frozenset[str]] = queue.SimpleQueue()

    def follow() -> None:
        for held in held_channels(f"tcp://127.0.0.1:{site.proxy.ports['sub']}"):
            found.put(held)

    threading.Thread(target=follow, name="held channels", daemon=True).start()
    return found


def wait_for(changes: queue.SimpleQueue[frozenset[str]], wanted: frozenset[str]) -> None:
    """Take sets until one is the wanted one."""
    deadline = time.monotonic() + PATIENCE
    while (held := changes.get(timeout=max(0.0, deadline - time.monotonic()))) != wanted:
        assert time.monotonic() < deadline, held


def test_the_set_follows_the_clients_and_the_handler(site: Site, changes: queue.SimpleQueue[frozenset[str]]) -> None:
    for name in ("one", "two"):
        site.backend.on(f"/{name}", hold("stream", name))
    with stream(site, "/one"):
        wait_for(changes, frozenset({"one"}))
        with stream(site, "/two"):
            wait_for(changes, frozenset({"one", "two"}))
            line = site.proxy.wait_log("process started: name=handler pid=")
            os.kill(int(line.rpartition("pid=")[2]), signal.SIGKILL)
            wait_for(changes, frozenset())
            wait_for(changes, frozenset({"one", "two"}))
        wait_for(changes, frozenset({"one"}))
    wait_for(changes, frozenset())
