"""``gripproxy hub`` as a process, ended with Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.small_hub import SmallHub, small_hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallHub]:
    monkeypatch.delenv("GRIPPROXY_HUB_TOKEN", raising=False)
    with small_hub() as hub:
        monkeypatch.setenv("GRIPPROXY_HUB_URL", hub.url)
        yield hub


def wait(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_new_events_until_ctrl_c(hub: SmallHub) -> None:
    hub.add("old")
    command = [sys.executable, "-m", "gripproxy", "hub", "follow", "t"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait(lambda: hub.followers == 1)
        hub.add("new")
        assert child.stdout is not None
        assert child.stdout.readline() == '2026-01-01T00:00:00.000002Z  e1.2  "new"\n'
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60) == ("", "")
        assert child.returncode == 130
    finally:
        child.kill()
        child.communicate()


def test_a_publisher_at_a_silent_input_ends_with_ctrl_c(hub: SmallHub) -> None:
    command = [sys.executable, "-m", "gripproxy", "hub", "publish", "t"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdin is not None
        child.stdin.write("a\n")
        child.stdin.flush()
        wait(lambda: [event["data"] for event in hub.topics["t"].events] == ["a"])
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
    finally:
        child.kill()
        child.communicate()
