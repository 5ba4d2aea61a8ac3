"""Large publications have a tenth of the writer's time while small ones arrive."""

from __future__ import annotations

import pytest

from griphub.processes.large_share import PAUSE, PAUSE_MAX, QUIET, LargeShare


@pytest.fixture
def share() -> LargeShare:
    """A large publication took 0.1 s and ended at 10.1; a small one came at 10."""
    share = LargeShare()
    assert share.ready(10.0)
    share.small(10.0)
    share.begin()
    share.sent(10.0)
    assert share.end(10.1) == pytest.approx(0.1 * PAUSE)
    return share


def test_one_at_a_time() -> None:
    share = LargeShare()
    share.begin()
    assert not share.ready(100.0)
    share.sent(100.0)
    assert not share.ready(100.0)
    share.end(100.0)
    assert share.ready(100.0)


def test_the_next_waits(share: LargeShare) -> None:
    share.small(10.9)
    assert not share.ready(10.9)
    assert share.ready(10.1 + 0.1 * PAUSE + 0.001)


def test_without_small_ones_there_is_no_pause(share: LargeShare) -> None:
    assert not share.ready(10.0 + QUIET - 0.01)
    assert share.ready(10.0 + QUIET)


def test_the_pause_has_an_end() -> None:
    share = LargeShare()
    share.begin()
    share.sent(0.0)
    assert share.end(60.0) == PAUSE_MAX
    share.small(61.9)
    assert share.ready(60.0 + PAUSE_MAX)
