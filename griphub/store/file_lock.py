"""Lock of a store's file: one writer at a time, released by the kernel when the process ends."""

from __future__ import annotations

import fcntl
import os
import pathlib
import time
from typing import Final

from griphub.store.errors import StoreInUse, StoreProblem

__all__ = ["FileLock"]

POLL: Final = 0.02
"""Seconds between two tries."""


class FileLock:
    """Lock on a file beside the store; held until ``release``, or until the process ends however it does.

    Args:
        path: of the store. The lock is a file of its own: SQLite's locks on the store end when any descriptor of the
            store is closed in the process (fcntl(2)).
        wait: seconds to wait for its holder's end: a writer whose hub was killed finishes its last commit.

    Raises:
        StoreInUse: another process holds it.
        StoreProblem: the file cannot be made.
    """

    def __init__(self, path: pathlib.Path, wait: float = 0.0) -> None:
        lock = path.with_name(path.name + ".lock")
        try:
            self._fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreProblem(f"cannot make {lock}: {error.strerror}") from error
        end = time.monotonic() + wait
        while not self._locked():
            if time.monotonic() >= end:
                holder = os.pread(self._fd, 100, 0).decode("ascii", "replace").strip()
                os.close(self._fd)
                raise StoreInUse(f"{path} is open in process {holder or '?'}: a store has one hub at a time")
            time.sleep(POLL)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def _locked(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Release the lock; the file stays, so that no other process can lock one that is about to vanish."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
