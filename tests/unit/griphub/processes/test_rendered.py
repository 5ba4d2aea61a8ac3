"""Rendered rows are the texts of their events, one by one."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from griphub.processes.rendered import PIECE, PageText
from griphub.store.cursor import EpochInterval
from griphub.store.plain_records import Row, event_of
from griphub.topics.event_text import Epochs, Representation, render_events

EPOCHS = Epochs([EpochInterval("old", 1, 10), EpochInterval("new", 100, None)])


def rows(seed: int) -> list[Row]:
    """Return rows of all kinds: two epochs, some seconds, contents that are embedded and such that are not."""
    choose = random.Random(seed)
    made: list[Row] = []
    time = 1_700_000_000_000_000 + choose.randrange(10**6)
    for id in [*range(1, 11), *range(100, 800)]:
        time += choose.choice([1, 1, 1000, 999_999, 1_000_000, 7_300_000])
        kind, data = choose.choice(
            [
                ("application/json", b'{"a":1}'),
                ("application/json", b'{\r\n"a": [1,\n2]}'),
                ("application/vnd.x+json; charset=utf-8", b'"x"'),
                ("text/plain", "é\n\x00".encode()),
                ("text/plain", b'a",\n  "b\\'),
                ("text/plain; charset=utf-8", "\u2028😀".encode()),
                ("text/plain", b""),
                ("text/plain", b"\xff"),
                ("image/png", bytes(range(256))),
                ("application/json", b""),
                ("", b"x"),
            ]
        )
        key = choose.choice([None, None, "k", 'ké"y\n'])
        attributes = choose.choice([None, None, '{"n":"v"}'])
        op = 0 if key is None else choose.choice([0, 1])
        made.append((id, id - 1, id + choose.randrange(3), time, data, kind, key, op, attributes, len(data)))
    return made


@pytest.mark.parametrize("representation", list(Representation))
@pytest.mark.parametrize("first_prev", [None, 0, 77])
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_rendered_as_their_events(seed: int, first_prev: int | None, representation: Representation) -> None:
    part = rows(seed)
    wanted = render_events(map(event_of, part), first_prev, EPOCHS, representation)
    text = PageText(EPOCHS, representation, first_prev)
    cuts = [0, 1, PIECE + 20, len(part)]
    assert b"".join(piece for a, b in pairwise(cuts) for piece in text.pieces(part[a:b])) == wanted


@pytest.mark.parametrize("representation", list(Representation))
def test_no_rows(representation: Representation) -> None:
    assert list(PageText(EPOCHS, representation).pieces([])) == []
