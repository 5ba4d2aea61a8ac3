"""The folder of a record: its lock."""

from __future__ import annotations

import os
import pathlib

import pytest

from spark_stats.directory import Directory, DirectoryInUse


def test_two_recorders_in_one_folder_are_refused(tmp_path: pathlib.Path) -> None:
    first, second = Directory(tmp_path / "record"), Directory(tmp_path / "record")
    first.lock()
    with pytest.raises(DirectoryInUse, match=rf"another recorder \(process {os.getpid()}\) writes into .*record"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_a_lock_file_without_a_holder_is_no_lock(tmp_path: pathlib.Path) -> None:
    (tmp_path / "_recorder").mkdir()
    (tmp_path / "_recorder" / "lock").write_text("123456789\n")
    directory = Directory(tmp_path)
    directory.lock()
    assert (tmp_path / "_recorder" / "lock").read_text() == f"{os.getpid()}\n"
    directory.unlock()


def test_everything_but_segments_has_a_name_that_readers_leave_out(tmp_path: pathlib.Path) -> None:
    directory = Directory(tmp_path)
    directory.lock()
    directory.unlock()
    assert [path.name for path in tmp_path.iterdir()] == ["_recorder"]
    assert directory.partition("2026-11-20", "conn") == tmp_path / "date=2026-11-20" / "type=conn"


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        Directory(tmp_path / "file").lock()
