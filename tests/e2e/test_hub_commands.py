"""``gripproxy hub`` as a process, ended with Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.small_hub import SmallHub, hub_of_commands, wait_until


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallHub]:
    # Children of a shell's background job ignore SIGINT; those of a terminal do not.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with hub_of_commands(monkeypatch) as hub:
            yield hub
    finally:
        signal.signal(signal.SIGINT, before)


def test_new_events_until_ctrl_c(hub: SmallHub) -> None:
    hub.add("old")
    command = [sys.executable, "-m", "gripproxy", "hub", "follow", "t"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: hub.followers == 1)
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
        wait_until(lambda: [event["data"] for event in hub.topics["t"].events] == ["a"])
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
    finally:
        child.kill()
        child.communicate()
