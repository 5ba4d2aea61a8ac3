"""Windows are bounded by events, by bytes, and all together."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from griphub.sender.window import Window, WindowBudget


@dataclass(frozen=True)
class Event:
    id: int
    size: int = 10
    prev_id: int = 0


def window(events_max: int = 3, bytes_max: int = 100, budget: int = 1000) -> tuple[Window[Event], WindowBudget]:
    shared = WindowBudget(budget)
    return Window(shared, events_max, bytes_max), shared


def test_a_number_of_events() -> None:
    kept, budget = window()
    assert [kept.add(Event(id)) for id in (1, 2, 3, 4)] == [True, True, True, False]
    assert (len(kept), kept.first.id, budget.used) == (3, 1, 30)


def test_a_number_of_bytes() -> None:
    kept, _ = window(bytes_max=25)
    assert [kept.add(Event(1)), kept.add(Event(2, 16)), kept.add(Event(3, 15))] == [True, False, True]


def test_a_large_event_is_added_alone_and_only_by_a_page() -> None:
    kept, budget = window(bytes_max=25, budget=30)
    assert not kept.add(Event(1, 5000))
    assert kept.fill([Event(1, 5000), Event(2)]) == 1
    assert budget.used == 5000
    kept.drop_until(1)
    assert (len(kept), budget.used) == (0, 0)


def test_the_budget_of_all_windows() -> None:
    budget = WindowBudget(25)
    one: Window[Event] = Window(budget)
    other: Window[Event] = Window(budget)
    assert one.fill([Event(1), Event(2), Event(3)]) == 2
    assert not other.add(Event(1))
    one.drop_until(1)
    assert other.add(Event(1))
    one.clear()
    assert budget.used == 10


def test_a_page_as_far_as_it_fits() -> None:
    kept, _ = window()
    assert kept.fill([Event(id) for id in (5, 6, 7, 8)]) == 3
    kept.drop_until(6)
    assert kept.first.id == 7
    assert kept.fill([]) == 0


@given(st.lists(st.tuples(st.sampled_from(["add", "fill", "drop", "clear"]), st.integers(1, 60))))
def test_the_budget_is_that_of_the_events(steps: list[tuple[str, int]]) -> None:
    kept, budget = window(events_max=4, bytes_max=80, budget=70)
    inside: list[Event] = []
    for id, (step, size) in enumerate(steps):
        if step == "add" and kept.add(Event(id, size)):
            inside.append(Event(id, size))
        elif step == "fill" and not inside:
            events = [Event(id, size), Event(id + 0, size)]
            inside += events[: kept.fill(events)]
        elif step == "drop" and inside:
            until = inside[size % len(inside)].id
            kept.drop_until(until)
            inside = [event for event in inside if event.id > until]
        elif step == "clear":
            kept.clear()
            inside.clear()
        assert len(kept) == len(inside) <= 4
        assert budget.used == sum(event.size for event in inside) <= 80
