"""Starts gripproxy with something changed in its processes: ``python -m tests.faults.launcher [options] -- …``.

The service is that of the ``gripproxy`` command, runner and all; the arguments behind ``--`` are its. ``--relay`` has
the workers connect to another socket than the handler's, so that something can stand between them; ``--mutant``
applies one of tests.faults.mutants or tests.faults.hostile.mutants; ``--descriptors`` is the limit of open files.
Nothing of this is possible with the product.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Sequence

from gripproxy.cli import main as cli
from gripproxy.config import config_argv, load_config
from gripproxy.runner import startup
from gripproxy.runner.service import services_of
from gripproxy.worker import worker
from tests.faults.hostile.mutants import MUTANTS as HOSTILE_MUTANTS
from tests.faults.mutants import MUTANTS

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the whole service, or the one process that the arguments name."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    split = words.index("--")
    own, rest = words[:split], words[split + 1 :]
    parser = argparse.ArgumentParser()
    parser.add_argument("--relay", default="")
    parser.add_argument("--mutant", default="")
    parser.add_argument("--descriptors", type=int, default=0)
    options = parser.parse_args(own)
    if options.descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (options.descriptors, options.descriptors))
    if rest[0] in ("worker", "handler"):
        if options.relay:
            worker.socket_path = lambda config: options.relay  # type: ignore[attr-defined]
        if options.mutant:
            undo = (
                HOSTILE_MUTANTS[options.mutant].undo if options.mutant in HOSTILE_MUTANTS else MUTANTS[options.mutant]
            )
            undo()
        return cli.main(rest)

    def command(kind: str, number: int, argv: Sequence[str]) -> list[str]:
        numbered = [f"--number={number}"] if kind == "worker" else []
        return [sys.executable, "-m", "tests.faults.launcher", *own, "--", kind, *numbered, *argv]

    config = load_config(rest[0].removeprefix("--config="))
    return startup.run(config, services_of(config, config_argv(config), command))


if __name__ == "__main__":
    sys.exit(main())
