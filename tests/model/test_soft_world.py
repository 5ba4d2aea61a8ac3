"""Soft topics: ingesters with changing partitions, followers of all ranges, resets, restarts: no promise is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from griphub.windows.bounds import WindowBounds
from griphub.windows.event_blocks import EventBlocks
from griphub.windows.pieces import Pieces
from griphub.windows.span import Span
from tests.support.soft_world import play

fixed = settings(max_examples=400, deadline=None, derandomize=True, database=None)


@fixed
@given(st.integers(0, 2**32))
def test_with_small_bounds_no_promise_is_broken(seed: int) -> None:
    assert play(seed).findings == []


@fixed
@given(st.integers(0, 2**32))
def test_with_room_for_all_no_promise_is_broken(seed: int) -> None:
    assert play(seed, WindowBounds()).findings == []


def test_the_course_has_all_that_can_happen() -> None:
    worlds = [play(seed) for seed in range(20)]
    assert all(sum(counts) > 20 for counts in zip(*[(w.releases, w.resyncs, w.conflicts) for w in worlds], strict=True))


# --- the findings see each of these faults

raise_to, reset = Pieces.raise_to, Pieces.reset


def greatest(pieces: Pieces, span: Span) -> int | None:
    versions = [piece.progress for other, piece in pieces.each() if other.overlaps(span)]
    return None if None in versions else max(version for version in versions if version is not None)


def known_ones(pieces: Pieces, span: Span) -> int | None:
    found = [piece.progress for other, piece in pieces.each() if other.overlaps(span)]
    return min((version for version in found if version is not None), default=None)


MUTANTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "a range has the greatest progress of its pieces": (Pieces, "progress", greatest),
    "an unknown piece does not count": (Pieces, "progress", known_ones),
    "progress is one too high": (Pieces, "raise_to", lambda self, span, v, stamp: raise_to(self, span, v + 1, stamp)),
    "a full window forgets that it dropped events": (Pieces, "forget", lambda self, span, dropped: reset(self, span)),
    "dropping the oldest events does not raise the floor": (
        Pieces,
        "raise_floor",
        lambda self, key, floor: self.span_at(key),
    ),
    "a release does not look at the floor": (Pieces, "floor", lambda self, span: (0, 0)),
    "a range is clipped at its blocks": (EventBlocks, "_inside", lambda self, index, span: True),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method, wrong = MUTANTS[name]
    monkeypatch.setattr(owner, method, wrong)
    assert any(play(seed).findings for seed in range(300)), f"not noticed: {name}"
