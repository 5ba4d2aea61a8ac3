"""Ballast: disk space that is released when the disk is full, so that retention can delete.

Deleting needs space too: a full SQLite store cannot free itself.
"""

from __future__ import annotations

import os
import pathlib
from typing import Final

__all__ = ["BALLAST_SIZE", "Ballast"]

BALLAST_SIZE: Final = 32 * 1024 * 1024
"""Bytes of the file: enough for the write-ahead log of a retention."""


class Ballast:
    """File beside a store, which only occupies space.

    Args:
        path: of the store.
        size: bytes of the file; 0 for none.
    """

    def __init__(self, path: pathlib.Path, size: int = BALLAST_SIZE) -> None:
        self._path = path.with_name(path.name + ".ballast")
        self._name = str(self._path)
        """The path as text: each commit looks at the file."""
        self._size = size

    @property
    def present(self) -> bool:
        """True while the space is occupied."""
        try:
            return self._size == 0 or os.stat(self._name).st_size >= self._size
        except FileNotFoundError:
            return False

    def take(self) -> bool:
        """Occupy the space; return whether it is occupied."""
        if self.present:
            return True
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        try:
            os.posix_fallocate(fd, 0, self._size)
        except OSError:
            self.drop()
            return False
        finally:
            os.close(fd)
        return True

    def drop(self) -> None:
        """Release the space."""
        self._path.unlink(missing_ok=True)
