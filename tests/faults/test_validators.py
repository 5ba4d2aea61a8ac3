"""What each validator says of small histories, good and bad."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.history import History
from tests.faults.truth import item_id
from tests.faults.validators import VALIDATORS, Case, Facts, Terms, judge

RELIABLE = Facts("stream", ("a-2",), True)
PLAIN = Facts("plain", ("a-2",), False)
CONTROL = Facts("stream", ("calm-0",), True, control=True)


class Told:
    """A history told step by step: (seconds, who, what, values …)."""

    def __init__(self, *steps: tuple[Any, ...]) -> None:
        self.now = 0.0
        self.history = History(lambda: self.now)
        for at, who, what, *values in sorted(steps, key=lambda step: float(step[0])):
            self.now = at
            self.history.add(who, what, *values)


def got(at: float, number: int, who: str = "c", connection: int = 1, channel: str = "a-2") -> tuple[Any, ...]:
    return (at, who, "got", connection, channel, number, item_id(channel, number))


def case(*steps: tuple[Any, ...], facts: Facts = RELIABLE, length: int = 4, **terms: Any) -> Case:
    truth = dict.fromkeys(facts.channels, length)
    return Case(Told(*steps).history, truth, {"c": facts}, Terms(**terms))


OPENED = (0.0, "c", "opened", 1, "a-2", 0)
GOOD = (OPENED, got(1, 1), got(2, 2), (2.5, "c", "ended", 1, "cut"), (3.0, "c", "opened", 2, "a-2", 2))
REST = (got(4, 3, connection=2), got(5, 4, connection=2))


def guarantees(one: Case) -> set[str]:
    return set(judge(one))


def test_a_client_that_came_back_and_has_everything() -> None:
    assert judge(case(*GOOD, *REST)) == {}


@pytest.mark.parametrize(
    ("guarantee", "steps"),
    [
        ("resumable", GOOD),
        ("resumable", ()),
        ("resumable", (*GOOD, *REST, (6, "stage", "behind", "c", "a-2", 4))),
        ("gap-free", (OPENED, got(1, 1), got(2, 3), got(3, 4))),
        ("gap-free", (OPENED, got(1, 2), got(2, 3), got(3, 4))),
        ("gap-free", (*GOOD, got(5, 4, connection=2))),
        ("ordered", (OPENED, got(1, 1), got(2, 3), got(3, 2), got(4, 4))),
        ("unique", (OPENED, got(1, 1), got(2, 2), got(3, 2), got(4, 3), got(5, 4))),
        ("unique", (*GOOD, got(3.5, 2, connection=2), *REST)),
        ("addressed", (*GOOD, *REST, got(6, 1, channel="a-4"))),
        ("addressed", (*GOOD, *REST, (6, "c", "got", 2, "a-2", 4, "3"))),
        ("addressed", (*GOOD, *REST, (6, "c", "misled", 2, "hello you"))),
        ("addressed", (*GOOD, *REST, (6, "backend a", "refused", "c", "a-2 has no item 'x'"))),
    ],
)
def test_what_a_reliable_client_must_not_see(guarantee: str, steps: tuple[Any, ...]) -> None:
    assert guarantee in guarantees(case(*steps))


def test_findings_show_their_evidence() -> None:
    (finding,) = judge(case(*GOOD))["resumable"]
    assert "ended with item 2 of a-2, which has 4" in str(finding)
    assert '"what": "got", "connection": 1, "channel": "a-2", "number": 2' in str(finding)


def test_of_very_many_findings_the_rest_is_counted() -> None:
    steps = [got(number, number, channel="a-4") for number in range(1, 101)]
    found = judge(case(*GOOD, *REST, *steps))["addressed"]
    assert len(found) == 21
    assert "and 80 more" in str(found[-1])


class TestUnreliable:
    def test_may_miss_items(self) -> None:
        assert judge(case(OPENED, got(1, 2), got(2, 4), facts=PLAIN)) == {}

    def test_gets_nothing_twice_in_a_session(self) -> None:
        again = (OPENED, got(1, 2), (2.0, "c", "ended", 1, "cut"), (3.0, "c", "opened", 2, "a-2", -1))
        assert judge(case(*again, got(4, 2, connection=2), facts=PLAIN)) == {}
        assert guarantees(case(OPENED, got(1, 2), got(2, 2), facts=PLAIN)) == {"unique"}

    def test_is_promised_order_for_as_long_as_the_handler_lives(self) -> None:
        published = ((0.9, "p", "published", "a-2", 3, "swapped"), (0.95, "p", "published", "a-2", 2, "swapped"))
        # Nobody can know that something is before the first item that comes.
        assert judge(case(OPENED, *published, got(1, 3), got(2, 2), facts=PLAIN)) == {}
        steps = (OPENED, *published, got(0.5, 1), got(1, 3), got(2, 2))
        assert guarantees(case(*steps, facts=PLAIN)) == {"ordered"}
        died = (1.5, "faults", "fault", "kill", "handler")
        assert judge(case(*steps, died, facts=PLAIN)) == {}
        # What the service has waited for long enough may come late.
        late = (
            OPENED,
            got(0.5, 1),
            published[0],
            (3.0, "p", "published", "a-2", 2, "swapped"),
            got(2.5, 3),
            got(3.1, 2),
        )
        assert judge(case(*late, facts=PLAIN)) == {}


class TestWindow:
    STEPS = (
        (1.0, "b", "asked", "c.1", "a-2", "stream", 0, False),
        (1.5, "p", "published", "a-2", 3, "sent"),
        (2.0, "b", "answered", "c.1", "a-2", 2),
        (2.1, "c", "opened", 1, "a-2", 0),
        got(2.1, 1),
        got(2.1, 2),
    )

    def test_repaired_in_time(self) -> None:
        assert judge(case(*self.STEPS, got(3, 3), got(20, 4), deadline=5)) == {}

    def test_repaired_by_something_else_much_later(self) -> None:
        assert guarantees(case(*self.STEPS, got(20, 3), got(21, 4), deadline=5)) == {"no-window"}

    @pytest.mark.parametrize(
        "step",
        [
            (4.0, "c", "ended", 1, "cut"),
            (4.0, "c", "paused", 1),
            (4.0, "faults", "fault", "kill", "backend a"),
            (4.0, "faults", "fault", "kill", "worker 1"),
        ],
    )
    def test_faults_that_delay_it(self, step: tuple[Any, ...]) -> None:
        assert judge(case(*self.STEPS, step, got(20, 3), got(21, 4), deadline=5)) == {}

    @pytest.mark.parametrize("target", ["backend b", "publisher http"])
    def test_faults_that_do_not(self, target: str) -> None:
        step = (4.0, "faults", "fault", "kill", target)
        assert guarantees(case(*self.STEPS, step, got(20, 3), got(21, 4), deadline=5)) == {"no-window"}


class TestIsolated:
    STEPS = (
        (0.0, "stage", "phase", "serving"),
        (0.0, "c", "opened", 1, "calm-0", 0),
        (1.0, "p", "published", "calm-0", 1, "sent"),
        (30.0, "stage", "phase", "stop"),
    )

    def test_in_time(self) -> None:
        assert judge(case(*self.STEPS, got(2, 1, channel="calm-0"), facts=CONTROL, length=1, deadline=5)) == {}

    def test_late(self) -> None:
        steps = (*self.STEPS, got(7, 1, channel="calm-0"), (3.0, "faults", "fault", "kill", "backend a"))
        assert guarantees(case(*steps, facts=CONTROL, length=1, deadline=5)) == {"isolated"}

    @pytest.mark.parametrize(
        "step",
        [
            (3.0, "faults", "fault", "stop", "worker 2"),
            (3.0, "faults", "fault", "cut", "pipe"),
            (3.0, "service", "process", "handler", 4711),
        ],
    )
    def test_late_because_the_service_itself_was_hurt(self, step: tuple[Any, ...]) -> None:
        steps = (*self.STEPS, got(7, 1, channel="calm-0"), step)
        assert judge(case(*steps, facts=CONTROL, length=1, deadline=5)) == {}

    def test_disconnected(self) -> None:
        steps = (*self.STEPS, got(2, 1, channel="calm-0"), (3.0, "c", "ended", 1, "cut"))
        assert guarantees(case(*steps, facts=CONTROL, length=1, deadline=5)) == {"isolated"}

    def test_never_held(self) -> None:
        assert "isolated" in guarantees(case(facts=CONTROL, length=0))


def test_bounded_is_told_with_the_worst_of_each_process() -> None:
    memory = [(float(at), "service", "memory", f"worker {at % 2}", 100 * at) for at in range(8)]
    found = judge(case(*GOOD, *REST, *memory, memory_kb={"worker": 500}))["bounded"]
    assert [finding.text for finding in found] == [
        "worker 0 used 600 KB, at most 500 are allowed",
        "worker 1 used 700 KB, at most 500 are allowed",
    ]
    assert judge(case(*GOOD, *REST, *memory, memory_kb={"handler": 1})) == {}


def test_all_guarantees_have_a_validator() -> None:
    assert set(VALIDATORS) == {
        "ordered", "unique", "gap-free", "no-window", "resumable", "isolated", "bounded", "addressed",
    }  # fmt: skip
