"""The disk: its file system is found among the mounts, and its rate follows from the times."""

from __future__ import annotations

import pathlib

import pytest

from bench.hub_disk import Disk, file_system, measured

MOUNTS = """\
proc /proc proc rw 0 0
/dev/vda / ext4 rw,relatime 0 0
tmpfs /srv/fast tmpfs rw 0 0
/dev/vdb /srv xfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"), [("/srv/fast/a", "tmpfs"), ("/srv/faster", "xfs"), ("/home", "ext4"), ("/", "ext4")]
)
def test_the_deepest_mount_that_holds_the_folder_counts(folder: str, kind: str) -> None:
    assert file_system(pathlib.Path(folder), MOUNTS) == kind


def test_a_folder_without_mount_is_unknown() -> None:
    assert file_system(pathlib.Path("/home"), "") == "unknown"


def test_a_measurement_leaves_no_file_and_has_at_least_one_record(tmp_path: pathlib.Path) -> None:
    disk = measured(tmp_path, 0)
    assert disk.rate > 0
    assert 0 < disk.p50 <= disk.p99
    assert list(tmp_path.iterdir()) == []


def test_the_line_names_rate_and_file_system() -> None:
    line = Disk(rate=4892.4, p50=0.153, p99=0.929, kind="ext4").line()
    assert line == "Disk (ext4): 4,892 fdatasync/s of 512 appended bytes each, p50 0.153 ms, p99 0.929 ms."
