"""Garbage collector of the hub's processes: which objects it visits, and how often.

Measured with Python 3.11, in time of the processor: with 100,000 ranges in the index (500,000 objects that the
collector knows) a collection of all of them stops the hub's loop for 120 to 170 ms, and in the sender with 100,000
subscriptions (1,300,000 objects) for 300 ms. By default nine of these happen while the subscriptions begin, and take
half of the time together. In some thousand publications and pages of a hub none of the processes made a circle, so
there is next to nothing to be found.
"""

from __future__ import annotations

import gc
from typing import Final

__all__ = ["KEEPING", "PASSING", "Thresholds", "settle_collector"]

Thresholds = tuple[int, int, int]
"""Objects after which new ones are visited; such visits after which the visited ones are visited again; and visits of
these after which all are."""

KEEPING: Final[Thresholds] = (5_000, 10, 100)
"""For processes that keep many objects, which are new at some time: hub and sender. In the measurement above the
longest pauses are 10 ms while ranges and subscriptions begin, and 25 ms in 100,000 deliveries. With ``PASSING`` they
are 110 ms there, since objects that replace others do not count, and are visited together."""

PASSING: Final[Thresholds] = (50_000, 50, 100)
"""For the writer, whose objects live for one commit: thousands of them, and no circle. It had no collection at all. A
reader frees a page before the next one, and has none by default either."""


def settle_collector(thresholds: Thresholds) -> None:
    """Begin with the work of a process: objects made so far are visited no more, and later ones by ``thresholds``."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*thresholds)
