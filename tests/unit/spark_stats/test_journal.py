"""The journal: what is appended comes back; torn and broken parts are dropped with a count."""

from __future__ import annotations

import os
import pathlib
import random
import resource
from collections.abc import Iterator

import pytest

from spark_stats.journal import Frame, Reader, Writer, pack


def frames() -> list[Frame]:
    return [
        Frame("tcp://a", 1_700_000_000_000_000, 5, 0, [b"one", b"", b"three" * 100]),
        Frame("", -5, 6, 3, [b"own"], own=True),
        Frame("ipc://é", 2, 7, 4, [b"x", b"y"]),
    ]


def written(path: pathlib.Path, what: list[Frame]) -> bytes:
    writer = Writer(path)
    for frame in what:
        writer.append(frame)
    writer.sync()
    assert writer.size == path.stat().st_size
    writer.close()
    return path.read_bytes()


def read(path: pathlib.Path, data: bytes) -> tuple[list[Frame], int, int]:
    path.write_bytes(data)
    reader = Reader(path)
    return list(reader), reader.bytes_dropped, reader.events_dropped


def test_frames_come_back(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "j"
    data = written(path, frames())
    assert read(path, data) == (frames(), 0, 0)
    assert read(path, b"") == ([], 0, 0)


def test_a_journal_is_never_written_into_a_second_time(tmp_path: pathlib.Path) -> None:
    written(tmp_path / "j", frames())
    with pytest.raises(FileExistsError):
        Writer(tmp_path / "j")


def test_a_tail_torn_anywhere_is_dropped_with_a_count(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "j"
    data = written(path, frames())
    last = len(pack(frames()[2]))
    for cut in range(1, last):
        whole, dropped, events = read(path, data[:-cut])
        assert whole == frames()[:2]
        assert dropped == last - cut
        assert events == (2 if last - cut >= 44 else 0)  # as long as the header is there it tells


def test_a_tail_of_zeros_is_dropped(tmp_path: pathlib.Path) -> None:
    data = written(tmp_path / "j", frames())
    assert read(tmp_path / "j", data + bytes(4096)) == (frames(), 4096, 0)


def test_a_broken_frame_costs_only_itself(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "j"
    data = written(path, frames())
    first = len(pack(frames()[0]))
    for at in random.Random(1).sample(range(first), 60):
        broken = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        assert read(path, broken) == (frames()[1:], first, 0)
        # Between two others the sequence numbers tell how many events it had.
        lost = read(path, pack(Frame("x", 0, 0, 0, [])) + broken)
        assert lost[2] == 3


def test_a_frame_within_a_message_is_not_one(tmp_path: pathlib.Path) -> None:
    inner = pack(frames()[0])
    outer = [Frame("tcp://a", 1, 1, 0, [inner])]
    assert read(tmp_path / "j", written(tmp_path / "j", outer))[0] == outer


@pytest.fixture
def small_files() -> Iterator[int]:
    """Files of this process may have so many bytes; Python ignores the signal that comes with it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield 1000
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_a_whole_journal(tmp_path: pathlib.Path, small_files: int) -> None:
    writer = Writer(tmp_path / "j")
    frame = Frame("tcp://a", 1, 1, 0, [b"m" * 300])
    writer.append(frame)
    writer.append(frame)
    with pytest.raises(OSError, match="File too large"):
        writer.append(frame)
    assert writer.size == os.stat(tmp_path / "j").st_size < small_files
    small = Frame("", 1, 1, 2, [b"fits"])
    writer.append(small)
    writer.close()
    reader = Reader(tmp_path / "j")
    assert list(reader) == [frame, frame, small]
    assert reader.bytes_dropped == 0
