"""What the kernel says of a process."""

from __future__ import annotations

import os
import resource
import time

from gripproxy.process.proc_figures import proc_figures


def test_our_own() -> None:
    figures = proc_figures(os.getpid())
    assert figures is not None
    usage = resource.getrusage(resource.RUSAGE_SELF)
    assert 0 <= usage.ru_utime + usage.ru_stime - figures.cpu_seconds < 5
    assert 0 < figures.resident_bytes <= figures.virtual_bytes
    assert 3 <= figures.open_files <= figures.files_max
    assert figures.files_max == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert 0 < figures.start_seconds <= time.time() + 1


def test_none_of_a_process_that_there_is_not() -> None:
    assert proc_figures(2**22 + 1) is None
