"""gripproxy.process.handover: one message, from the environment of the runner's child."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest

from gripproxy.config import load_config
from gripproxy.process.handover import ALONE, HANDOVER_VARIABLE, Handover, InheritedRoutes, InheritedSocket, Owned
from gripproxy.process.supervised import Child


class TestHandover:
    FULL = Handover(
        3,
        2.5,
        7.0,
        Owned("/run/x", "a-", 77),
        4,
        {"worker": 2},
        InheritedRoutes(5, 6),
        (
            InheritedSocket(8, "http_port", "0.0.0.0:80", False, 80, False),
            InheritedSocket(9, "local_ports", "/run/s", False, None, True),
        ),
    )

    def test_a_child_gets_all_that_the_runner_has_sent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(HANDOVER_VARIABLE, self.FULL.encode())
        assert Handover.take() == self.FULL
        assert self.FULL.descriptors == [3, 5, 8, 9]

    def test_it_is_taken_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(HANDOVER_VARIABLE, self.FULL.encode())
        Handover.take()
        assert HANDOVER_VARIABLE not in os.environ
        assert Handover.take() == ALONE

    def test_a_child_has_the_values_that_its_runner_owns(self) -> None:
        now = load_config(None, ipc_prefix="b-", log_level="3")
        config = self.FULL.merge(now)
        assert (config.globals.rundir, config.globals.ipc_prefix, config.proxy.workers) == ("/run/x", "a-", 77)
        assert config.overrides == now.overrides
        assert dataclasses.replace(config.globals, rundir=now.globals.rundir, ipc_prefix="b-") == now.globals

    def test_a_process_on_its_own_has_its_configuration(self) -> None:
        config = load_config(None)
        assert ALONE.merge(config) is config

    @pytest.mark.parametrize("value", ["", "x", "[]", "{}", "3", '{"owned": {"rundir": 1}, "routes": null}'])
    def test_what_no_runner_wrote_is_refused(self, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        monkeypatch.setenv(HANDOVER_VARIABLE, value)
        with pytest.raises(ValueError, match="only the gripproxy command sets it"):
            Handover.take()

    @pytest.mark.parametrize("field", ["descriptor", "beat_timeout", "restarts", "retiring", "routes", "listeners"])
    def test_each_field_is_checked(self, monkeypatch: pytest.MonkeyPatch, field: str) -> None:
        fields = dataclasses.asdict(self.FULL) | {field: ["x"]}
        monkeypatch.setenv(HANDOVER_VARIABLE, json.dumps(fields))
        with pytest.raises(ValueError, match="only the gripproxy command sets it"):
            Handover.take()

    def test_a_descriptor_that_is_no_socket_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"descriptor 99999: .*only the gripproxy command sets it"):
            Child(Handover(99999))
