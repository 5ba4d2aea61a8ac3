"""Memory of large blocks stays with the process."""

from __future__ import annotations

import platform
import resource

import pytest

from gripproxy.process.heap import keep_freed_memory

BLOCK = 1_000_000
BLOCKS = 3


def faults(rounds: int) -> int:
    """Return the pages that the system has given for blocks that are made and freed again and again."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        blocks = [b"x" * BLOCK for _ in range(BLOCKS)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries are left as they are")
def test_freed_memory_is_used_again() -> None:
    keep_freed_memory()
    faults(1)
    assert faults(20) < 2 * BLOCKS * BLOCK / resource.getpagesize()
