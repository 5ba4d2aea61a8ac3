"""Check of a request: whole or not at all, in slices."""

from __future__ import annotations

import pytest

from griphub.windows import batch
from griphub.windows.batch import Batch, Checker
from griphub.windows.bounds import WindowBounds
from griphub.windows.decisions import Refusal, Refused
from griphub.windows.event_blocks import EventBlocks
from griphub.windows.ingest_lines import IngestLine, Progress, Reset
from griphub.windows.pieces import Pieces
from griphub.windows.span import ALL, Span
from tests.support.soft_world import event


def checked(
    lines: list[IngestLine], pieces: Pieces | None = None, bounds: WindowBounds | None = None
) -> Refused | None:
    made = Batch(1, lines, None)
    checker = Checker(made, Pieces(), EventBlocks(), "e1", bounds or WindowBounds(), 0)
    while made.done < len(lines):
        refused = checker.step()
        if refused is not None:
            return refused
    return None


def test_lines_count_in_their_order() -> None:
    assert checked([event("a", 5), Progress(ALL, 5)]) is None
    refused = checked([Progress(ALL, 5), event("a", 5)])
    assert refused is not None
    assert (refused.refusal, refused.line, refused.progress) == (Refusal.CONFLICT, 2, 5)
    assert checked([Progress(ALL, 5), Reset(ALL), event("a", 5)]) is None
    assert checked([Progress(Span("m", "z"), 5), event("a", 5)]) is None


def test_a_key_has_one_event_in_a_version() -> None:
    assert checked([event("a", 5), event("a", 5)]) is None, "a repeat"
    refused = checked([event("a", 5, "1"), event("a", 5, "2")])
    assert refused is not None
    assert "last event of each key only" in refused.detail
    assert checked([event("a", 5, "1"), Reset(Span("a", "b")), event("a", 5, "2")]) is None


def test_pieces_are_bounded() -> None:
    spans = [Progress(Span(chr(97 + n), chr(98 + n)), n) for n in range(10)]
    refused = checked([*spans], bounds=WindowBounds(pieces=5))
    assert refused is not None
    assert (refused.refusal, refused.limit, refused.most) == (Refusal.LIMIT, "pieces", 5)
    equal = [Progress(Span(chr(97 + n), chr(98 + n)), 1) for n in range(10)]
    assert checked([*equal], bounds=WindowBounds(pieces=5)) is None, "neighbours of equal progress are one"


def test_a_step_looks_at_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "SLICE", 10)
    made = Batch(1, [event("a", version) for version in range(1, 26)], None)
    checker = Checker(made, Pieces(), EventBlocks(), "e1", WindowBounds(), 0)
    seen = []
    while made.done < 25:
        assert checker.step() is None
        seen.append(made.done)
    assert seen == [10, 20, 25]


def test_another_epoch_is_told_before_anything_else() -> None:
    made = Batch(1, [event("a", 1)], "e0")
    refused = Checker(made, Pieces(), EventBlocks(), "e1", WindowBounds(), 0).step()
    assert refused is not None
    assert (refused.refusal, refused.epoch) == (Refusal.EPOCH, "e1")
