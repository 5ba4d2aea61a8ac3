"""The real runner over children that are child.py.

Run as ``service.py CONFIG LOGFILE WORKER_BEHAVIOUR HANDLER_BEHAVIOUR``.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence

from gripproxy.config import load_config
from gripproxy.runner.service import services_of
from gripproxy.runner.startup import run

CHILD = str(pathlib.Path(__file__).with_name("child.py"))


def main() -> int:
    path, file, worker, handler = sys.argv[1:]

    def command(kind: str, number: int, argv: Sequence[str]) -> list[str]:
        return [sys.executable, CHILD, kind, str(number or 1), file, worker if kind == "worker" else handler]

    config = load_config(path, log_file=file or None)
    return run(config, services_of(config, (), command))


if __name__ == "__main__":
    raise SystemExit(main())
