"""Options of the writer, and the bounds that are no options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from griphub.processes.child import ChildLog
from griphub.store.ballast import BALLAST_SIZE
from griphub.store.schema import Sync
from griphub.store.sqlite_writer import NAMES_MAX

__all__ = ["CALLS_MAX", "FAIL_SLICE", "OVERHEAD", "OWNER_MAX", "SEND_BYTES", "WAITING_MAX", "WINDOW", "WriterOptions"]

WAITING_MAX: Final = 64 * 1024 * 1024
"""Bytes of publications without an answer; further ones are refused."""

OWNER_MAX: Final = 24 * 1024 * 1024
"""Bytes of one owner among them; a single publication may exceed them."""

WINDOW: Final = 2 * 1024 * 1024
"""Bytes of small publications that the process has: two commits. Further ones wait for their owner's turn."""

CALLS_MAX: Final = 4
"""Commands that the process has, one of each owner."""

OVERHEAD: Final = 500
"""Bytes that an event occupies beside its content."""

SEND_BYTES: Final = 1024 * 1024
"""Bytes of publications after which a frame is sent within a turn of the loop."""

FAIL_SLICE: Final = 1000
"""Publications that a turn of the loop reports as failed."""


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Options of the writer.

    Attributes:
        sync: durability of a commit.
        ballast: bytes kept for the retention of a full disk; 0 for none.
        names_max: greatest number of remembered names of requests.
        lock_wait: seconds to wait for the end of another writer: that of a hub that was killed finishes its work.
        waiting_max: greatest number of bytes without an answer.
        owner_max: greatest number of bytes of one owner without an answer.
        window: bytes that the process has, from which on further publications wait.
        log: log of the process.
    """

    sync: Sync = "full"
    ballast: int = BALLAST_SIZE
    names_max: int = NAMES_MAX
    lock_wait: float = 5.0
    waiting_max: int = WAITING_MAX
    owner_max: int = OWNER_MAX
    window: int = WINDOW
    log: ChildLog = field(default_factory=ChildLog)
