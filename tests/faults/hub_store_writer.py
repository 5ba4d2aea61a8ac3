"""Writer of a store on a disk that is full or fails: the ordinary process, with a shim below SQLite.

The environment names two files, looked at before each operation: ``HUB_STORE_SPACE`` holds the bytes that all files of
the store may have together, and while ``HUB_STORE_FAILING`` exists, synchronisations fail.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import sys

from griphub.processes import writer_process
from tests.faults.sqlite_shim import FULL, IOERR_FSYNC, OK, Operation, install


def _room(folder: pathlib.Path) -> int:
    """Return the bytes that are free."""
    space = int(pathlib.Path(os.environ["HUB_STORE_SPACE"]).read_text())
    for each in folder.glob("hub.db*"):
        if not each.name.endswith("-shm"):
            # The ballast is removed meanwhile.
            with contextlib.suppress(FileNotFoundError):
                space -= each.stat().st_size
    return space


def _on_operation(operation: Operation) -> int:
    path = pathlib.Path(operation.path)
    if operation.kind == "sync":
        return IOERR_FSYNC if os.path.exists(os.environ["HUB_STORE_FAILING"]) else OK
    growth = operation.offset + len(operation.data) - path.stat().st_size
    return FULL if operation.kind == "write" and growth > max(0, _room(path.parent)) else OK


def main() -> int:
    """Run the writer; return its exit status."""
    allocate = os.posix_fallocate

    def posix_fallocate(descriptor: int, offset: int, size: int) -> None:
        folder = pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent
        if size > _room(folder):
            raise OSError(errno.ENOSPC, "no space in this test")
        allocate(descriptor, offset, size)

    os.posix_fallocate = posix_fallocate
    install(_on_operation)
    return writer_process.main()


if __name__ == "__main__":
    sys.exit(main())
