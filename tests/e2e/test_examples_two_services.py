"""The example of two services that follow each other's state: one is killed, and both have the other one's state."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.ports import free_ports

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 60.0


class Pair:
    """Both services.

    Args:
        ports: of the left and of the right one.
    """

    def __init__(self, ports: list[int]) -> None:
        self._urls = {name: f"http://127.0.0.1:{port}" for name, port in zip(("left", "right"), ports, strict=True)}

    def show(self, name: str) -> dict[str, Any]:
        """Return the tables of a service; empty if it is not there."""
        try:
            with urllib.request.urlopen(self._urls[name] + "/", timeout=PATIENCE) as answer:
                document: dict[str, Any] = json.load(answer)
                return document
        except (urllib.error.URLError, ConnectionError):
            return {}

    def put(self, name: str, key: str, value: str) -> None:
        """Set a value of a service's own table."""
        request = urllib.request.Request(f"{self._urls[name]}/state/{key}", value.encode(), method="PUT")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            assert answer.status == 204

    def until(self, condition: Callable[[dict[str, Any], dict[str, Any]], bool], text: str) -> None:
        """Wait until the tables of both are as they ought to be."""
        deadline = time.monotonic() + PATIENCE
        while True:
            tables = self.show("left"), self.show("right")
            if all(tables) and condition(*tables):
                return
            assert time.monotonic() < deadline, f"{text}: {tables}"

    def converge(self, text: str) -> None:
        """Wait until each has the other one's table, key by key."""
        self.until(lambda left, right: left["other"] == right["mine"] and right["other"] == left["mine"], text)


@pytest.fixture
def pair() -> Iterator[Pair]:
    ports = free_ports(2)
    command = [sys.executable, str(ROOT / "examples" / "two_services" / "run.py"), "--ports", *map(str, ports)]
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield Pair(ports)
    finally:
        program.terminate()
        assert program.wait(PATIENCE) == 0


@pytest.mark.parametrize("name", ["left", "right"])
def test_a_killed_service_comes_back_and_both_converge(pair: Pair, name: str) -> None:
    other = "right" if name == "left" else "left"
    pair.converge("both have started")
    for number in range(20):
        pair.put("left", f"k{number % 5}", f"left {number}")
        pair.put("right", f"k{number % 3}", f"right {number}")
    pair.converge("both were changed")
    before = pair.show(name)
    os.kill(before["pid"], signal.SIGKILL)
    pair.put(other, "meanwhile", "it is away")
    pair.until(lambda left, right: {"left": left, "right": right}[name]["pid"] != before["pid"], "started again")
    pair.converge("the new run has all, and its own table in place of the former one")
    assert "k0" not in pair.show(other)["other"]
    assert pair.show(name)["other"]["meanwhile"] == "it is away"
    pair.put(name, "k0", "again")
    pair.put(other, "k4", "again")
    pair.converge("both go on")
