"""Blocks of events: the same answers as a plain list, at any number of events and any cut of ranges."""

from __future__ import annotations

import random

import pytest

from griphub.windows import event_blocks
from griphub.windows.event_blocks import EventBlocks
from griphub.windows.soft_event import EVERYTHING, SoftEvent, complete
from griphub.windows.span import ALL, TOP, Span


def made(version: int, stamp: int, key: str) -> SoftEvent:
    return SoftEvent(version, stamp, key, "put", b"1", "application/json", {})


@pytest.mark.parametrize("seed", range(30))
def test_answers_are_those_of_a_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_blocks, "BLOCK", 4)
    chance = random.Random(seed)
    blocks = EventBlocks()
    plain: list[SoftEvent] = []
    keys = [chance.choice("abcde") * chance.randint(1, 3) for _ in range(chance.choice([1, 3, 20]))]
    for stamp in range(1, 200):
        event = made(chance.randint(1, 60), stamp, chance.choice(keys))
        if blocks.get(event.version, event.key) is None:
            blocks.add(event)
            plain.append(event)
        low, high = sorted([chance.choice(["", *keys]), chance.choice([TOP, *keys])])
        span = Span(low, high) if low < high else ALL
        after, upto = complete(chance.randint(0, 60)), complete(chance.randint(0, 60))
        expected = sorted(e for e in plain if low <= e.key < (high if low < high else TOP) or span == ALL)
        within = [e for e in expected if after < e.place <= upto]
        assert blocks.read(span, after, upto, 10) == within[:10]
        assert blocks.newest(span) == max((e.version for e in expected), default=0)
        if chance.random() < 0.05:
            dropped = [e for e in expected if e.place <= upto]
            blocks.drop(span, upto)
            plain = [e for e in plain if e not in dropped]
        if chance.random() < 0.02:
            taken = [e for each in blocks.take(span) for e in each]
            assert sorted(taken) == [e for e in expected if e in plain]
            plain = [e for e in plain if e not in taken]
        assert list(blocks.oldest()) == plain
        assert (len(blocks), blocks.size) == (len(plain), sum(e.size for e in plain))
    blocks.drop(ALL, EVERYTHING)
    assert (len(blocks), blocks.size, blocks.newest(ALL)) == (0, 0, 0)


def test_a_busy_key_gets_a_block_of_its_own() -> None:
    blocks = EventBlocks()
    for version in range(1, 3000):
        blocks.add(made(version, version, "busy"))
        blocks.add(made(version, version, f"other{version % 7}"))
    span = Span("busy", "busy\0")
    assert [event.version for event in blocks.read(span, complete(2990), EVERYTHING, 100)] == list(range(2991, 3000))
    blocks.drop(span, complete(2995))
    assert [event.version for event in blocks.read(span, (0, 0), EVERYTHING, 100)] == list(range(2996, 3000))
