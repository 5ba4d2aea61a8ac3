"""Mailboxes and their subscribers over a network that repeats, reorders and loses: no promise is broken."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from griphub.mailboxes import deliveries
from griphub.mailboxes.bounds import Bounds
from tests.support.mailbox_world import play

fixed = settings(max_examples=600, deadline=None, derandomize=True, database=None)


@fixed
@given(st.integers(0, 2**32))
def test_with_small_bounds_no_promise_is_broken(seed: int) -> None:
    assert play(seed).findings == []


@fixed
@given(st.integers(0, 2**32))
def test_with_room_for_all_no_promise_is_broken_and_nothing_is_lost(seed: int) -> None:
    world = play(seed, Bounds())
    assert world.findings == []
    assert not any(cause.name == "LOST" for cause in world.reports)


@pytest.mark.parametrize("messages", [2, 1000])
def test_deliveries_that_wait_break_no_promise(messages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "AT_ONCE", 0)
    monkeypatch.setattr(deliveries, "SLICE", 1)

    @fixed
    @given(st.integers(0, 2**32))
    def each(seed: int) -> None:
        assert play(seed, Bounds(messages=messages)).findings == []

    each()
