"""griphub.api.connection_progress: the time without progress, and which connections are ended for it."""

from __future__ import annotations

import pytest

from griphub.api.connection_progress import Progress, stalled


def test_a_connection_is_quiet_from_the_first_look_on() -> None:
    progress = Progress()
    assert [progress.quiet(0, now) for now in (5.0, 6.0, 9.0)] == [0.0, 1.0, 4.0]


def test_a_byte_taken_is_progress() -> None:
    progress = Progress()
    looks = [(100, 1.0), (100, 3.0), (99, 4.0), (99, 9.0), (0, 10.0), (0, 11.0)]
    assert [progress.quiet(*look) for look in looks] == [0.0, 2.0, 0.0, 5.0, 0.0, 1.0]


def test_an_answer_is_progress_even_if_as_much_waits_as_before() -> None:
    progress = Progress()
    progress.quiet(100, 1.0)
    progress.used = True
    assert progress.quiet(100, 2.0) == 0.0
    assert progress.quiet(100, 3.0) == 1.0


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([], ""),
        ([(9.9, 5, "a")], ""),
        ([(10.0, 5, "a"), (0.0, 5, "b")], "a"),
        ([(0.0, 100, "a")], ""),
        ([(0.0, 101, "a")], "a"),
        ([(3.0, 50, "a"), (2.0, 50, "b"), (1.0, 50, "c")], "a"),
        ([(1.0, 50, "a"), (1.0, 60, "b"), (1.0, 20, "c")], "b"),
        ([(1.0, 40, "a"), (2.0, 90, "b"), (3.0, 20, "c"), (11.0, 1, "d")], "bd"),
    ],
)
def test_those_that_take_least_are_ended(looks: list[tuple[float, int, str]], expected: str) -> None:
    assert "".join(stalled(looks, 10.0, 100)) == expected
