"""Gripproxy on a file system that stalls: ``python -m tests.e2e.processes.stalling FOLDER --config=FILE``.

While FOLDER/stall is a FIFO, every look at FOLDER/routes and every opening of it blocks in the kernel, in all processes
of the service, until the FIFO is opened for writing. While FOLDER/slow is one, the worker 2 does so before it has
prepared new routes, with FOLDER/waiting as the sign of it. With neither this is what the ``gripproxy`` command runs.
"""

from __future__ import annotations

import builtins
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from gripproxy.backend import router
from gripproxy.cli import main as cli
from gripproxy.config import Config, config_argv, load_config
from gripproxy.process.log import log
from gripproxy.routing.table import RouteTable
from gripproxy.runner import rollout, startup
from gripproxy.runner.service import services_of
from gripproxy.worker import routes as worker_routes

__all__ = ["main"]

_open, _stat, _builtin_open = os.open, os.stat, builtins.open


def _block(fifo: pathlib.Path) -> bool:
    """Wait at a FIFO, as long as it takes; return whether there was one."""
    try:
        _stat(fifo)
        os.close(_open(fifo, os.O_RDONLY))
    except FileNotFoundError:
        return False
    return True


def _stall(folder: pathlib.Path) -> None:
    routes = str(folder / "routes")

    def stat(path: Any, *values: Any, **names: Any) -> os.stat_result:
        if path == routes:
            _block(folder / "stall")
        return _stat(path, *values, **names)

    def open_(path: Any, *values: Any, **names: Any) -> int:
        if path == routes:
            _block(folder / "stall")
        return _open(path, *values, **names)

    def builtin_open(path: Any, *values: Any, **names: Any) -> Any:
        if path == routes:
            _block(folder / "stall")
        return _builtin_open(path, *values, **names)

    os.stat, os.open, builtins.open = stat, open_, builtin_open  # type: ignore[assignment]


def _slow(folder: pathlib.Path) -> None:
    def load_signers(table: RouteTable, config: Config) -> router.Signers:
        if (folder / "slow").exists():
            (folder / "waiting").touch()
        if _block(folder / "slow"):
            log.info("prepares new routes only now")
        return router.load_signers(table, config)

    worker_routes.load_signers = load_signers  # type: ignore[attr-defined]


def main(arguments: Sequence[str]) -> int:
    """Run the whole service, or the one process that the arguments name."""
    folder, *rest = arguments
    _stall(pathlib.Path(folder))
    if rest[0] in ("worker", "handler"):
        if "--number=2" in rest:
            _slow(pathlib.Path(folder))
        return cli.main(rest)

    # However long the test takes, the worker that is slow is waited for.
    rollout.PREPARE_TIME = 600.0  # type: ignore[misc]

    def command(kind: str, number: int, argv: Sequence[str]) -> list[str]:
        numbered = [f"--number={number}"] if number else []
        return [sys.executable, "-m", "tests.e2e.processes.stalling", folder, kind, *numbered, *argv]

    config = load_config(rest[0].removeprefix("--config="))
    return startup.run(config, services_of(config, config_argv(config), command))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
