"""Free ports for the servers under measurement."""

from __future__ import annotations

import socket

import pytest

from bench import ports


def test_different_and_free() -> None:
    found = ports.free_ports(20)
    assert len(set(found)) == 20
    for port in found:
        assert port in ports.RANGE
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as other:
            free = other.getsockname()[1]
        monkeypatch.setattr(ports, "RANGE", range(min(taken, free), max(taken, free) + 1, abs(taken - free)))
        assert ports.free_ports(1) == [free]
