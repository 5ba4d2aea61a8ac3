"""A process that only wakes up: ``python -m tests.faults.hostile.witness``. How late it does is the machine's doing.

It is of ordinary priority and sleeps a hundredth of a second at a time. Whatever delays it delays an item as well, once
in each of the processes that an item passes through, without any fault of the service.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from typing import Final

__all__ = ["INTERVAL", "read_delays"]

INTERVAL: Final = 0.01
"""Seconds between two wake-ups."""


def read_delays(path: pathlib.Path) -> list[tuple[float, float]]:
    """Return what a witness has written: the monotonic time in seconds of each wake-up, and how late it was."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [(float(at), float(late)) for at, _, late in (line.partition(" ") for line in lines) if late]


def main(arguments: list[str] | None = None) -> None:
    """Write a line for each wake-up, until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--diary", type=pathlib.Path, required=True)
    options = parser.parse_args(arguments)
    with options.diary.open("w", buffering=1) as diary:
        while True:
            begun = time.monotonic()
            time.sleep(INTERVAL)
            now = time.monotonic()
            diary.write(f"{now:.6f} {now - begun - INTERVAL:.6f}\n")


if __name__ == "__main__":
    main()
