"""A large value in parts, and whole again."""

from __future__ import annotations

import pytest

from griphub.processes import large_transfer
from griphub.processes.frames import FrameBuffer, FrameError
from griphub.processes.large_transfer import PART_SIZE, LargeTransfer, PartBuffer

VALUE = ["text", [b"x" * PART_SIZE, 1, None], "y" * PART_SIZE]


def test_parts_are_bounded_and_make_the_value() -> None:
    transfer, frames, parts = LargeTransfer(7, VALUE), FrameBuffer(), PartBuffer()
    lasts = []
    while not transfer.complete:
        part = transfer.part()
        assert len(part) < PART_SIZE + 100
        [(kind, data, last)] = frames.feed(part)
        assert kind == 7
        parts.add(data)
        lasts.append(last)
    assert lasts == [False, False, True]
    assert parts.take() == VALUE


def test_one_value_follows_another() -> None:
    parts = PartBuffer()
    for value in ([1], [2]):
        [(_, data, last)] = FrameBuffer().feed(LargeTransfer(0, value).part())
        parts.add(data)
        assert last
        assert parts.take() == value


def test_parts_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_transfer, "FRAME_MAX", 100)
    parts = PartBuffer()
    parts.add(b"x" * 100)
    with pytest.raises(FrameError, match="more than 100 bytes"):
        parts.add(b"x")
