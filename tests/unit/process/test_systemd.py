"""gripproxy.process.systemd: notifications and the watchdog."""

from __future__ import annotations

import os
import socket

import pytest

from gripproxy.process.systemd import Watchdog, notify_supervisor


def test_an_absent_supervisor_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify_supervisor("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/notify")
    notify_supervisor("READY=1")


def test_a_supervisor_in_the_abstract_namespace_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"gripproxy-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind("\0" + name)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        notify_supervisor("READY=1")
        supervisor.settimeout(5)
        assert supervisor.recv(100) == b"READY=1"


class TestWatchdog:
    def fed(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        states: list[str] = []
        monkeypatch.setattr("gripproxy.process.systemd.notify_supervisor", states.append)
        return states

    def test_it_is_fed_twice_in_its_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        states = self.fed(monkeypatch)
        monkeypatch.setenv("WATCHDOG_USEC", "10000000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        watchdog = Watchdog.of_systemd()
        for second in range(11):
            watchdog.feed(100.0 + second)
        assert states == ["WATCHDOG=1"] * 3
        assert watchdog.dues == [115.0]

    @pytest.mark.parametrize(("time", "pid"), [("", ""), ("0", ""), ("x", ""), ("1000000", "1")])
    def test_none_is_not_fed(self, monkeypatch: pytest.MonkeyPatch, time: str, pid: str) -> None:
        states = self.fed(monkeypatch)
        monkeypatch.setenv("WATCHDOG_USEC", time)
        monkeypatch.setenv("WATCHDOG_PID", pid)
        watchdog = Watchdog.of_systemd()
        watchdog.feed(100.0)
        assert (states, watchdog.dues) == ([], [])
