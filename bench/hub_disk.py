"""Disk under measurement: how often a second it makes an appended record durable."""

from __future__ import annotations

import os
import pathlib
import tempfile
import time
from dataclasses import dataclass

__all__ = ["RECORD", "Disk", "file_system", "measured"]

RECORD = 512
"""Bytes of one record."""


@dataclass(frozen=True)
class Disk:
    """Figures of a disk.

    Attributes:
        rate: appended records a second, each followed by its fdatasync.
        p50: median time of one, in milliseconds.
        p99: time within which 99 % were durable, in milliseconds.
        kind: name of the file system.
    """

    rate: float
    p50: float
    p99: float
    kind: str

    def line(self) -> str:
        """Return the figures as a sentence."""
        times = f"p50 {self.p50:.3f} ms, p99 {self.p99:.3f} ms"
        return f"Disk ({self.kind}): {self.rate:,.0f} fdatasync/s of {RECORD} appended bytes each, {times}."


def file_system(folder: pathlib.Path, mounts: str) -> str:
    """Return the kind of file system that holds a folder.

    Args:
        folder: absolute path without symbolic links.
        mounts: text of ``/proc/mounts``.
    """
    found, longest = "unknown", -1
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) >= 3 and folder.is_relative_to(fields[1]) and len(fields[1]) > longest:
            found, longest = fields[2], len(fields[1])
    return found


def measured(folder: pathlib.Path, seconds: float) -> Disk:
    """Measure the disk of a folder.

    Args:
        folder: a file is made in it, and removed.
        seconds: duration of the measurement, in seconds.

    Returns:
        Its figures.
    """
    record = b"x" * RECORD
    times: list[float] = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        number = file.fileno()
        start = before = time.perf_counter()
        while before - start < seconds or not times:
            os.write(number, record)
            os.fdatasync(number)
            after = time.perf_counter()
            times.append(after - before)
            before = after
    times.sort()
    last = len(times) - 1
    return Disk(
        rate=len(times) / (before - start),
        p50=times[int(0.5 * last)] * 1e3,
        p99=times[int(0.99 * last)] * 1e3,
        kind=file_system(folder.resolve(), pathlib.Path("/proc/mounts").read_text()),
    )
