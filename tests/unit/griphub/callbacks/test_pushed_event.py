"""Events as messages, and memories of them."""

from __future__ import annotations

from griphub.callbacks.pushed_event import TAIL_EVENTS, EventMemory, PushedEvent, TailBudget, TopicTail


def event(
    id: int,
    prev: int | None = None,
    data: bytes = b"x",
    key: str | None = None,
    attributes: str | None = None,
    op: int = 0,
    size: int = 1,
) -> PushedEvent:
    return PushedEvent(
        (id, id - 1 if prev is None else prev, id, 1000 * id, data, "text/plain", key, op, attributes, size)
    )


def ids(events: object) -> list[int] | None:
    return None if events is None else [each.id for each in events]  # type: ignore[attr-defined]


class TestEvents:
    def test_an_event_is_a_message(self) -> None:
        message = event(7, data=b"hi", key="k", attributes='{"a":"b"}').message()
        assert (message.id, message.time, message.data) == (7, 7000, b"hi")
        assert (message.attributes, message.ordering_key) == ({"a": "b"}, "k")

    def test_ordering_keys(self) -> None:
        assert event(7).ordering_key == ""
        assert event(7, key="k").ordering_key == "k"
        assert event(7, key="k", attributes='{"a":"b"}').ordering_key == "k"
        assert event(7, key="k", attributes='{"goog-ordering-key":"o"}').ordering_key == "o"

    def test_a_deletion_says_so(self) -> None:
        assert event(7, op=1).attributes == {"hub-op": "delete"}
        assert event(7, op=1, attributes='{"a":"b"}').message().attributes == {"a": "b", "hub-op": "delete"}


class TestMemory:
    def test_the_latest_are_remembered(self) -> None:
        memory = EventMemory(20_000)
        for id in range(1, 100):
            memory.put(event(id, size=500))
            assert memory.size <= 20_000
        assert len(memory) == 20
        assert memory.get(99) is not None
        assert memory.get(1) is None

    def test_one_that_is_used_stays_longer(self) -> None:
        memory = EventMemory(20_000)
        for id in range(1, 100):
            memory.put(event(id, size=500))
            memory.get(1)
        assert memory.get(1) is not None

    def test_a_large_one_does_not_displace_the_others(self) -> None:
        memory = EventMemory(20_000)
        memory.put(event(1))
        memory.put(event(2, size=6000))
        memory.put(event(1))
        assert (memory.get(2), len(memory)) == (None, 1)


class TestTail:
    def test_events_behind_a_place(self) -> None:
        tail = TopicTail(TailBudget())
        tail.add([event(10, 4), event(12, 10), event(15, 12)])
        assert ids(tail.after(4, 100)) == [10, 12, 15]
        assert ids(tail.after(11, 100)) == [12, 15]
        assert ids(tail.after(10, 1)) == [12]
        assert ids(tail.after(15, 100)) == []
        assert ids(tail.after(99, 100)) == []

    def test_earlier_ones_are_read_from_the_store(self) -> None:
        tail = TopicTail(TailBudget())
        assert tail.after(0, 100) is None
        tail.add([event(10, 4)])
        assert tail.after(3, 100) is None

    def test_so_are_those_that_were_only_announced(self) -> None:
        tail = TopicTail(TailBudget())
        tail.add([event(10, 4)])
        tail.announce(12)
        assert tail.newest == 12
        assert tail.after(10, 100) is None
        tail.add([event(15, 12)])
        assert ids(tail.after(12, 100)) == [15]
        assert tail.after(10, 100) is None

    def test_behind_a_gap_it_begins_anew(self) -> None:
        tail = TopicTail(TailBudget())
        tail.add([event(10, 4), event(15, 12)])
        assert ids(tail.after(12, 100)) == [15]
        assert tail.after(4, 100) is None

    def test_known_ones_are_passed_over(self) -> None:
        tail = TopicTail(TailBudget())
        tail.add([event(10, 4), event(12, 10)])
        tail.add([event(10, 4), event(12, 10), event(15, 12)])
        tail.announce(15)
        assert ids(tail.after(4, 100)) == [10, 12, 15]

    def test_it_is_bounded(self) -> None:
        tail = TopicTail(TailBudget())
        tail.add([event(id) for id in range(1, 2 * TAIL_EVENTS + 1)])
        assert tail.after(TAIL_EVENTS - 1, 10_000) is None
        assert len(tail.after(TAIL_EVENTS, 10_000) or ()) == TAIL_EVENTS
        tail.add([event(2 * TAIL_EVENTS + 1, size=2_000_000)])
        assert tail.after(2 * TAIL_EVENTS, 10) is None


def test_tails_have_a_budget_together() -> None:
    budget = TailBudget(2 * event(1).size)
    tails = [TopicTail(budget) for _ in range(3)]
    for number, tail in enumerate(tails):
        tail.add([event(number + 1)])
    # The topic that was published to longest ago is read from the store.
    assert [ids(tail.after(number, 10)) for number, tail in enumerate(tails)] == [None, [2], [3]]
    tails[1].add([event(5, 2)])
    assert [ids(tail.after(number, 10)) for number, tail in enumerate(tails)] == [None, [2, 5], None]
    assert budget.size == 2 * event(1).size
    tails[1].clear()
    assert budget.size == 0
