"""A store has one writer; the lock ends with its process, however that ends."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from griphub.store.errors import StoreInUse, StoreProblem
from griphub.store.file_lock import FileLock

HOLDER = """
import pathlib, sys
from griphub.store.file_lock import FileLock
lock = FileLock(pathlib.Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_the_second_is_told_who_has_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hub.db"
    first = FileLock(path)
    with pytest.raises(StoreInUse, match=f"{path} is open in process {os.getpid()}:"):
        FileLock(path)
    first.release()
    first.release()
    FileLock(path).release()


def test_a_killed_process_holds_nothing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hub.db"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(StoreInUse, match=f"in process {holder.pid}:"):
            FileLock(path)
    finally:
        holder.kill()
        holder.communicate()
    FileLock(path).release()


def test_a_folder_that_is_missing(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StoreProblem, match="cannot make"):
        FileLock(tmp_path / "missing" / "hub.db")
