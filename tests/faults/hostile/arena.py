"""Processes of a hostile run: the service, an ordinary backend and publishers, a witness, and the hostile ones."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final

from tests.faults.history import History
from tests.faults.hostile.field import FORBIDDEN
from tests.faults.hostile.witness import read_delays
from tests.faults.stage import Plan, Stage
from tests.support.ports import free_port
from tests.support.service import Service

__all__ = ["ORDINARY", "ROLES", "Arena"]

ORDINARY: Final = "ordinary"
"""Name of the backend that nobody attacks."""

ROLES: Final = ("publisher", "client", "backend")
"""Kinds of hostile peers, each a module of this folder."""

DESCRIPTORS: Final = 900
"""Limit of open files of each process of the service: few enough to be used up."""

SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "runner": {
        "client_maxconn": 1120,
        "allow_compression": "true",
        "shutdown_timeout": 1,
        "log_level": "runner:2,worker:1,handler:1",
    },
    "proxy": {
        "workers": 2,
        "routesfile": "routes",
        "sig_key": "a key of the hostile runs",
        "policy_deny": f"{FORBIDDEN}/32",
        "ws_recover_interval": 30,
        "response_timeout": 5,
        "backend_body_timeout": 5,
        "client_head_timeout": 5,
        "client_body_timeout": 5,
        "ws_stall_timeout": 5,
        "ws_message_max": 262_144,
        "ws_over_http_message_max": 65_536,
        "stream_buffer_max": 65_536,
        "buffers_max": 16_000_000,
        "filter_output_max": 500_000,
        "recovery_max": 4,
    },
    "handler": {
        "id_cache_ttl": 60,
        "id_cache_max": 50_000,
        "item_max": 500_000,
        "meta_max": 16_384,
        "last_ids_max": 8_000_000,
        "message_wait": 1000,
        "message_wait_max": 16_000_000,
        "connection_subscription_max": 10,
        "push_in_buffer_max": 4_000_000,
        "push_in_http_max_body_size": 500_000,
        "worker_queue_max": 8_000_000,
    },
}
"""Configuration of the service: small bounds, which are reached, and whose sum fits any machine."""


class Arena(Stage):
    """A stage without relay and faults, where hostile processes are let in.

    Args:
        folder: takes the files of all processes.
        history: takes what ordinary clients, backends and publishers note.
        mutant: what is broken on purpose, by its name in tests.faults.hostile.mutants; empty for nothing.
        settings: keys of the configuration, by section, on top of SETTINGS.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        history: History,
        mutant: str = "",
        settings: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        super().__init__(folder, Plan(1, backends=(ORDINARY,), link=30.0, window=0.0, mutant=mutant), history)
        self.ports["hostile"], self.ports["closed"] = free_port(), free_port()
        self._settings = {name: {**keys, **(settings or {}).get(name, {})} for name, keys in SETTINGS.items()}
        self._witness: Service | None = None

    def write_routes(self, remark: str = "") -> None:
        hostile = f"127.0.0.1:{self.ports['hostile']}"
        super().write_routes(remark)
        routes = self.folder / "routes"
        lines = (
            f"*,path_beg=/hostile/ {hostile},over_http",
            f"*,path_beg=/hostile/direct/ {hostile}",
            f"*,path_beg=/hostile/untrusted/ 127.0.0.1:{self.ports['closed']} {hostile},untrusted",
        )
        routes.write_text(routes.read_text() + "\n".join(lines) + "\n")

    def write_config(self) -> None:
        """Write the configuration."""
        ports = self.ports
        own: dict[str, dict[str, object]] = {
            "global": {"rundir": f"{self.folder}/run"},
            "runner": {"http_port": f"127.0.0.1:{ports['client']}"},
            "handler": {
                "push_in_http_port": ports["control"],
                "push_in_spec": f"tcp://127.0.0.1:{ports['pull']}",
                "push_in_sub_specs": f"tcp://127.0.0.1:{ports['sub']}",
                "command_spec": f"tcp://127.0.0.1:{ports['rep']}",
            },
        }
        lines = []
        for section in ("global", *self._settings):
            lines.append(f"[{section}]")
            keys = own.get(section, {}) | self._settings.get(section, {})
            lines += [f"{name}={value}" for name, value in keys.items()]
        self.config.write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        """Start the service, the ordinary backend and the witness, and return when all are ready."""
        self.write_config()
        self.write_routes()
        (self.folder / "run").mkdir(mode=0o700, exist_ok=True)
        self._witness = Service(
            [sys.executable, "-m", "tests.faults.hostile.witness", f"--diary={self.folder / 'witness'}"]
        )
        self.start_backend(ORDINARY)
        self.start_service()
        self.wait_ready()
        self.backends[ORDINARY].wait_for_port(self.ports[ORDINARY])
        self.watch()
        self.history.add("stage", "phase", "serving")

    def start_service(self) -> None:
        own = [f"--descriptors={DESCRIPTORS}", *([f"--mutant={self.plan.mutant}"] if self.plan.mutant else [])]
        self.service = Service([sys.executable, "-m", "tests.faults.launcher", *own, "--", f"--config={self.config}"])
        self._read = 0

    def attack(self, role: str, seconds: float, only: tuple[str, ...] = ()) -> Service:
        """Let a hostile process in, and return once it attacks.

        Args:
            role: one of ROLES.
            seconds: duration.
            only: names of attacks; none: all.
        """
        names = ("client", "control", "pull", "sub", "rep", "hostile")
        ports = ",".join(f"{name}={self.ports[name]}" for name in names)
        chosen = [f"--only={','.join(only)}"] if only else []
        attacker = Service(
            [
                sys.executable,
                "-m",
                f"tests.faults.hostile.{role}",
                f"--ports={ports}",
                f"--seconds={seconds:g}",
                *chosen,
            ]
        )
        attacker.wait_for_log("attacking\n")
        return attacker

    @staticmethod
    def outcomes(attacker: Service) -> list[dict[str, Any]]:
        """Return what the attacks of a finished process did, and remove its files."""
        log = attacker.log
        attacker.stop()
        lines = [json.loads(line) for line in log.splitlines() if line.startswith('{"attack"')]
        assert lines, f"{attacker.command} has reported nothing:\n{log[-4000:]}"
        assert "Traceback" not in log, f"{attacker.command} failed:\n{log[-4000:]}"
        return lines

    def peaks(self) -> dict[str, int]:
        """Return the greatest resident size of each process of the service since its start, in bytes."""
        found = {}
        for name, pid in self.children().items():
            with contextlib.suppress(OSError):
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                if match := re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE):
                    found[name] = int(match[1]) * 1024
        return found

    def delays(self) -> list[tuple[float, float]]:
        """Return the witness's wake-ups: monotonic time and lateness, in seconds."""
        return read_delays(self.folder / "witness")

    def close(self) -> None:
        if self._witness is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._witness.process.pid, signal.SIGKILL)
            self._witness.stop()
        super().close()
