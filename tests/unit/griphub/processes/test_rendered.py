"""Rendered rows are the texts of their events, one by one."""

from __future__ import annotations

import random

import pytest

from griphub.processes.rendered import render_rows
from griphub.store.cursor import EpochInterval
from griphub.store.plain_records import Row, event_of
from griphub.topics.event_text import Epochs, Representation, render_events

EPOCHS = Epochs([EpochInterval("old", 1, 10), EpochInterval("new", 100, None)])


def rows(seed: int) -> list[Row]:
    """Return rows of all kinds: two epochs, some seconds, contents that are embedded and such that are not."""
    choose = random.Random(seed)
    made: list[Row] = []
    time = 1_700_000_000_000_000 + choose.randrange(10**6)
    for id in [*range(1, 11), *range(100, 150)]:
        time += choose.choice([1, 1, 1000, 999_999, 1_000_000, 7_300_000])
        kind, data = choose.choice(
            [
                ("application/json", b'{"a":1}'),
                ("application/json", b'{\r\n"a": [1,\n2]}'),
                ("application/vnd.x+json; charset=utf-8", b'"x"'),
                ("text/plain", "é\n\x00".encode()),
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
    assert render_rows(part, first_prev, EPOCHS, representation) == wanted


@pytest.mark.parametrize("representation", list(Representation))
def test_no_rows(representation: Representation) -> None:
    assert render_rows([], None, EPOCHS, representation) == b""
