"""Size classes against a plain maximum."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from griphub.mailboxes.size_classes import SizeClasses


def test_empty() -> None:
    classes: SizeClasses[str] = SizeClasses()
    assert classes.largest() is None
    classes.move("a", 0, 5)
    classes.move("a", 5, 0)
    assert classes.largest() is None


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100)), max_size=40))
def test_the_largest_is_at_least_half_of_the_maximum(changes: list[tuple[int, int]]) -> None:
    classes: SizeClasses[int] = SizeClasses()
    sizes = dict.fromkeys(range(6), 0)
    for item, size in changes:
        classes.move(item, sizes[item], size)
        sizes[item] = size
        found = classes.largest()
        most = max(sizes.values())
        assert (found is None) == (most == 0)
        assert found is None or 2 * sizes[found] > most
