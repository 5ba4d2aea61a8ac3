"""Figures of a process that the kernel keeps: processor time, memory, descriptors and start (proc(5))."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

__all__ = ["ProcFigures", "proc_figures"]

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class ProcFigures(NamedTuple):
    """Figures of one process.

    Attributes:
        cpu_seconds: processor time, of the user and the system.
        resident_bytes: memory that is in RAM.
        virtual_bytes: memory that is mapped.
        start_seconds: time of the start since 1970.
        open_files: descriptors in use.
        files_max: the limit of descriptors.
    """

    cpu_seconds: float
    resident_bytes: int
    virtual_bytes: int
    start_seconds: float
    open_files: int
    files_max: int


def proc_figures(pid: int) -> ProcFigures | None:
    """Return the figures of the process ``pid``; None if it has ended, or belongs to another user."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program, in parentheses, may have anything in it.
            fields = file.read().rpartition(b")")[2].split()
        files = len(os.listdir(f"/proc/{pid}/fd"))
        with open(f"/proc/{pid}/limits") as limits:
            line = next(line for line in limits if line.startswith("Max open files"))
        with open("/proc/stat") as file:
            boot = next(int(line.split()[1]) for line in file if line.startswith("btime"))
    except (OSError, StopIteration):
        return None
    most = line.split()[3]
    return ProcFigures(
        (int(fields[11]) + int(fields[12])) / _TICKS,
        int(fields[21]) * _PAGE,
        int(fields[20]),
        boot + int(fields[19]) / _TICKS,
        files,
        int(most) if most.isdigit() else -1,
    )
