"""Work that sessions share: kept as long as there is room, else made again."""

from __future__ import annotations

from gripproxy.grip.item_cache import ENTRY, SHARED_MAX, Shared


def test_what_is_kept_is_made_once() -> None:
    shared = Shared()
    made = []
    for _ in range(3):
        assert shared.once("key", lambda: made.append(1) or b"result", len) == b"result"  # type: ignore[func-returns-value]
    assert made == [1]


def test_bytes_are_bounded() -> None:
    shared = Shared()
    half = SHARED_MAX // 2 - ENTRY
    shared.keep("a", b"a", half)
    shared.keep("b", b"b", half)
    assert (shared.get("a"), shared.get("b")) == (b"a", b"b")
    assert shared.size == SHARED_MAX
    shared.keep("c", b"c", 1)
    assert (shared.get("a"), shared.get("b"), shared.get("c")) == (None, None, b"c")
    assert shared.size == ENTRY + 1


def test_what_is_larger_than_all_is_not_kept() -> None:
    shared = Shared()
    assert shared.keep("a", b"a", SHARED_MAX) == b"a"
    assert shared.get("a") is None
    assert shared.size == 0
