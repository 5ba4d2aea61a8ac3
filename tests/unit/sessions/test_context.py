"""What sessions share: times that are spread."""

from __future__ import annotations

from itertools import pairwise

from tests.support.session_doubles import House


def test_times_are_spread_evenly_over_a_tenth_and_never_later() -> None:
    context = House().context
    times = sorted(context.spread(100, serial) for serial in range(7000, 8000))
    assert 90 < times[0] < 90.1
    assert 99.9 < times[-1] <= 100
    assert max(after - before for before, after in pairwise(times)) < 0.05
    assert context.spread(100, 7) == context.spread(100, 7)


def test_two_processes_do_not_have_the_same_times() -> None:
    assert House().context.spread(100, 7) != House().context.spread(100, 7)
