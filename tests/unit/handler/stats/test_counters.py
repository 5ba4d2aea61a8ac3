"""Totals of workers."""

from handler.stats.counters import MAX_NAMES, Counters


def test_deltas_add_up() -> None:
    counters = Counters()
    counters.add({"sent": 3, "held": 1})
    counters.add({"sent": 2, "held": -1, 5: 1, "text": "x", "yes": True})
    assert counters.workers == {"sent": 5, "held": 0}


def test_the_number_of_names_is_bounded() -> None:
    counters = Counters()
    counters.add({f"n{number}": 1 for number in range(MAX_NAMES + 1)})
    counters.add({"n0": 1})
    assert len(counters.workers) == MAX_NAMES
    assert counters.workers["n0"] == 2
