"""Time of the machine's processors: used by the processes of a run, and by all others."""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
from typing import Final, NamedTuple

from tests.support.service import descendants

__all__ = ["Usage", "foreign_share", "usage"]

TICK: Final = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """State at one moment, in seconds.

    Of the monotonic clock, of processors in use, and of those by this process and all below it.
    """

    at: float
    busy: float
    own: float


def usage() -> Usage:
    """Return the state now. Time stolen from a virtual machine counts as in use."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _waiting, interrupts, soft, stolen = map(int, fields)
    own = 0
    for pid in descendants(os.getpid()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # Its own time, and that of its children which have ended.
            own += sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return Usage(time.monotonic(), (user + nice + system + interrupts + soft + stolen) / TICK, own / TICK)


def foreign_share(before: Usage, after: Usage, processors: int | None = None) -> float:
    """Return the share of the machine that others have used in between, from 0 to 1.

    Args:
        before: the state at the beginning.
        after: the state at the end.
        processors: how many the machine has; None: as the system says.
    """
    capacity = (after.at - before.at) * (processors or os.cpu_count() or 1)
    others = (after.busy - before.busy) - (after.own - before.own)
    return min(1.0, max(0.0, others / capacity)) if capacity > 0 else 0.0
