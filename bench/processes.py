"""What processes cost, from /proc: processor time and memory, of a command and everything below it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import time
from collections.abc import Callable, Iterable

__all__ = ["below", "busy_share", "cpu_seconds", "dying_with_parent", "pss_kb", "settled"]


PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl
"""Looked up beforehand: between fork and exec little may be done."""


def dying_with_parent(parent: int) -> Callable[[], None]:
    """What a new process is to do before it runs its program, for SIGTERM when ``parent`` ends, however that does."""

    def set_up() -> None:
        _prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # it has ended meanwhile

    return set_up


def below(pids: Iterable[int]) -> list[int]:
    """``pids`` and all processes below them."""
    found = list(pids)
    for parent in found:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in pathlib.Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """Time on a processor of all threads of ``pids`` so far, user and system, in seconds, exact to the nanosecond."""
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def pss_kb(pids: Iterable[int]) -> int:
    """Memory of ``pids`` in KB: pages that several share are counted once. The kernel's for sockets is not in it."""
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found = re.search(r"^Pss:\s+(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            total += int(found[1]) if found else 0
    return total


def settled(look: Callable[[], float], *, within: float = 0.005, every: float = 0.25, most: float = 3.0) -> float:
    """What ``look`` returns when two looks ``every`` seconds apart differ by a small share; after ``most`` anyway."""
    deadline = time.monotonic() + most
    before = look()
    while True:
        time.sleep(every)
        value = look()
        if abs(value - before) <= within * max(abs(value), 1.0) or time.monotonic() > deadline:
            return value
        before = value


def busy_share(seconds: float = 1.0) -> float:
    """Which share of all processors is taken, over so many seconds from now: nothing of ours may run meanwhile."""

    def idle() -> tuple[int, int]:
        fields = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return fields[3] + fields[4], sum(fields)

    before = idle()
    time.sleep(seconds)
    after = idle()
    return 1 - (after[0] - before[0]) / max(1, after[1] - before[1])
