"""How long the shared work of an item is kept."""

from __future__ import annotations

import pytest

from gripproxy.delivery import sharing as module
from gripproxy.delivery.sharing import Sharing
from tests.support.session_doubles import Turns, text


def test_one_turn_unless_it_is_held() -> None:
    turns = Turns()
    sharing = Sharing(turns)
    brief, held = text(b"a"), text(b"b")
    first = sharing.of(brief)
    assert sharing.of(brief) is first
    sharing.hold(held)
    sharing.hold(held)
    work = sharing.of(held)
    turns.run_all()
    assert sharing.of(held) is work
    assert sharing.of(brief) is not first
    sharing.release(held)
    turns.run_all()
    assert sharing.of(held) is work
    sharing.release(held)
    turns.run_all()
    assert not sharing.entries


def test_bytes_are_bounded_over_all_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOTAL_MAX", 5_000)
    sharing = Sharing(Turns())
    items = [text(b"%d" % number) for number in range(20)]
    for item in items:
        sharing.hold(item)
        sharing.of(item).keep("x", b"x", 1_000)
        assert sum(shared.size for _, shared in sharing.entries.values()) <= 5_000 + 1_300


def test_output_max_is_told_to_the_work() -> None:
    assert Sharing(Turns(), 7).of(text(b"a")).output_max == 7
