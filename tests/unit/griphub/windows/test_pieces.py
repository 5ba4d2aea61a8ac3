"""Pieces: progress of elementary ranges, as ingesters cut them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from griphub.windows.pieces import Piece, Pieces, Raised
from griphub.windows.span import ALL, TOP, Span


def shown(pieces: Pieces) -> list[tuple[str, int | None]]:
    return [(piece.low, piece.progress) for _, piece in pieces.each()]


def test_a_later_partition_never_lowers_progress() -> None:
    pieces = Pieces()
    pieces.raise_to(Span("a", "m"), 9, 0)
    pieces.raise_to(Span("m", "z"), 7, 0)
    raised = pieces.raise_to(Span("f", "z"), 8, 0)
    assert raised == [Raised(Span("m", "z"), 7, 8)], "[f, m) inherits 9 of its parent, and keeps it"
    assert shown(pieces) == [("", None), ("a", 9), ("m", 8), ("z", None)]
    assert pieces.progress(Span("a", "z")) == 8
    assert pieces.progress(Span("a", "f")) == 9
    assert pieces.progress(Span("a", "zz")) is None, "an unknown piece: none"


def test_parts_of_a_cut_piece_begin_with_the_progress_of_the_whole() -> None:
    pieces = Pieces()
    pieces.raise_to(ALL, 5, 0)
    pieces.raise_to(Span("c", "f"), 8, 0)
    assert shown(pieces) == [("", 5), ("c", 8), ("f", 5)]
    pieces.raise_to(ALL, 8, 0)
    assert shown(pieces) == [("", 8)], "equal neighbours are one piece again"


def test_the_first_progress_is_the_floor() -> None:
    pieces = Pieces()
    assert pieces.raise_to(ALL, 5, 77) == [Raised(ALL, None, 5)]
    pieces.raise_to(ALL, 8, 99)
    assert pieces.floor(ALL) == (5, 77)
    pieces.raise_floor("k", (7, 3))
    assert pieces.floor(Span("a", "b")) == (7, 3)


def test_after_a_loss_the_first_progress_must_reach_all_that_was_lost() -> None:
    pieces = Pieces()
    pieces.raise_to(ALL, 5, 0)
    pieces.forget(Span("a", "c"), {"": 20})
    assert pieces.raise_to(Span("a", "c"), 19, 0) == []
    assert pieces.progress(Span("a", "b")) is None
    assert pieces.raise_to(Span("a", "c"), 20, 0) == [Raised(Span("a", "c"), None, 20)]
    assert pieces.progress(ALL) == 5


def test_progress_that_is_forgotten_must_be_reached_again_with_all_that_was_dropped() -> None:
    pieces = Pieces()
    pieces.raise_to(Span("", "m"), 5, 0)
    pieces.raise_to(Span("m", TOP), 9, 0)
    pieces.forget(Span("a", "z"), {"": 7})
    expected = [("", 0), ("a", 7), ("m", 9), ("z", 0)]
    assert [(piece.low, piece.due) for _, piece in pieces.each()] == expected
    pieces.forget(Span("a", "z"), {})
    assert [(piece.low, piece.due) for _, piece in pieces.each()] == expected
    assert pieces.raise_to(Span("a", "z"), 7, 0) == [Raised(Span("a", "m"), None, 7)]


def test_neighbours_of_equal_progress_can_be_united() -> None:
    pieces = Pieces()
    pieces.raise_to(Span("", "m"), 5, 1)
    pieces.raise_to(Span("m", TOP), 6, 2)
    pieces.raise_to(ALL, 7, 3)
    assert len(pieces) == 2, "their floors differ"
    pieces.unite()
    assert list(pieces.each()) == [(ALL, Piece("", 7, (6, 2), 0))]


KEYS = "abcdefgh"
SPANS = st.tuples(st.sampled_from(KEYS), st.sampled_from(KEYS)).filter(lambda pair: pair[0] < pair[1])


@given(st.lists(st.tuples(SPANS, st.integers(0, 20), st.booleans())))
def test_each_key_has_the_progress_that_a_table_by_key_has(steps: list[tuple[tuple[str, str], int, bool]]) -> None:
    pieces = Pieces()
    table: dict[str, int | None] = dict.fromkeys(KEYS)
    for (low, high), version, is_reset in steps:
        span = Span(low, high)
        if is_reset:
            pieces.reset(span)
        else:
            pieces.raise_to(span, version, 0)
        for key in KEYS:
            if low <= key < high:
                table[key] = None if is_reset else max(table[key] or 0, version)
    assert {key: pieces.at(key).progress for key in KEYS} == table
    copy = pieces.copy()
    copy.reset(ALL)
    assert len(copy) == 1
    assert pieces.width(ALL) == len(pieces) == len(list(pieces.each()))
    for low in KEYS:
        for high in KEYS[KEYS.index(low) + 1 :]:
            found = [table[key] for key in KEYS if low <= key < high]
            least = None if None in found else min(version for version in found if version is not None)
            assert pieces.progress(Span(low, high)) == least
