"""Tree of ranges: the same answers as a scan of all ranges, in a fixed order, balanced after any changes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.topics.range_tree import RangeTree

Range = tuple[str, str]

texts = st.text("abc", max_size=3)
ranges = st.tuples(texts, texts).filter(lambda pair: pair[0] < pair[1])


def scan(held: set[Range], key: str) -> list[Range]:
    """Return the ranges that contain a key, the last to begin first, of these the shortest first."""
    hits = sorted((each for each in held if each[0] <= key < each[1]), key=lambda each: each[1])
    return sorted(hits, key=lambda each: each[0], reverse=True)


@given(st.lists(st.tuples(st.booleans(), ranges), max_size=60), st.lists(texts, min_size=1, max_size=5))
def test_a_look_up_finds_what_a_scan_finds(steps: list[tuple[bool, Range]], keys: list[str]) -> None:
    tree: RangeTree[Range] = RangeTree()
    held: set[Range] = set()
    for adds, each in steps:
        if adds and each not in held:
            tree.add(*each, each)
            held.add(each)
        elif not adds and each in held:
            tree.remove(*each)
            held.remove(each)
        for key in keys:
            assert list(tree.matching(key)) == scan(held, key)


@pytest.mark.parametrize("order", ["rising", "falling", "random"])
def test_very_many_ranges_are_found_and_removed_whatever_their_order(order: str) -> None:
    # An unbalanced tree would be deeper than the interpreter allows.
    names = [f"{number:05}" for number in range(20_000)]
    held = [(name, name + "~") for name in names]
    if order == "falling":
        held.reverse()
    elif order == "random":
        random.Random(7).shuffle(held)
    tree: RangeTree[str] = RangeTree()
    for low, high in held:
        tree.add(low, high, low)
    assert [list(tree.matching(name)) for name in names[::97]] == [[name] for name in names[::97]]
    for low, high in held[::2]:
        tree.remove(low, high)
    kept = {low for low, _ in held[1::2]}
    assert all(list(tree.matching(name)) == ([name] if name in kept else []) for name in names)


def test_one_range_that_contains_all_others_is_found_with_each() -> None:
    tree: RangeTree[str] = RangeTree()
    tree.add("", "z", "all")
    for number in range(1000):
        tree.add(f"{number:03}", f"{number:03}~", f"{number:03}")
    assert [list(tree.matching(f"{number:03}")) for number in (0, 500, 999)] == [
        ["000", "all"],
        ["500", "all"],
        ["999", "all"],
    ]
    assert list(tree.matching("y")) == ["all"]
    tree.remove("", "z")
    assert list(tree.matching("y")) == []


def test_a_range_that_is_not_there_cannot_be_removed() -> None:
    tree: RangeTree[str] = RangeTree()
    tree.add("a", "c", "value")
    for low, high in (("a", "b"), ("b", "c"), ("c", "d")):
        with pytest.raises(KeyError):
            tree.remove(low, high)
    assert list(tree.matching("b")) == ["value"]
