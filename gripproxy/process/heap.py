"""Heap of a process that passes on large bodies again and again."""

from __future__ import annotations

from typing import Final

__all__ = ["KEPT", "keep_freed_memory"]

KEPT: Final = 8 * 1024 * 1024
"""Bytes of freed memory at the end of the heap up to which it stays with the process."""


def keep_freed_memory() -> None:
    """Have the process keep up to ``KEPT`` bytes of freed memory, and not give all of it back after each large body.

    Memory that the system gives anew is cleared by it, page by page, which takes longer than to pass on a body.
    glibc keeps twice the size of the largest block that was mapped and freed (mallopt(3), ``M_MMAP_THRESHOLD``); other
    libraries are left as they are. The block here is never touched, so it takes no memory.
    """
    block = bytes(KEPT // 2)
    del block
