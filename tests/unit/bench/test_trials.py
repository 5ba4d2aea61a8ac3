"""What is done with a server: parts that fail are done once more, then the others go on."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from bench.programs import BenchError
from bench.targets import Loop, Wish
from bench.trials import QUICK, Bench


class Still(Loop):
    """A server that is never started."""

    def __init__(self) -> None:
        super().__init__(pathlib.Path())
        self.did: list[str] = []

    def start(self, wish: Wish) -> None:
        self.wish = wish
        self.did.append("start")

    def stop(self) -> None:
        if self.wish is not None:
            self.wish = None
            self.did.append("stop")


@pytest.fixture
def target() -> Still:
    return Still()


@pytest.fixture
def failures() -> list[tuple[str, bool]]:
    return []


@pytest.fixture
def bench(target: Still, failures: list[tuple[str, bool]]) -> Bench:
    return Bench(
        target,
        QUICK,
        record=lambda key, value, lost, of: None,
        note=lambda text: None,
        failed=lambda text, again: failures.append((text, again)),
    )


def failing(times: int) -> Callable[[Bench], None]:
    left = [BenchError("stuck")] * times

    def run(bench: Bench) -> None:
        with bench.started():
            if left:
                raise left.pop()

    return run


def test_a_part_that_fails_is_done_once_more_with_a_fresh_start(
    bench: Bench, target: Still, failures: list[tuple[str, bool]]
) -> None:
    bench.part("streams", failing(1))
    assert failures == [("streams: stuck", True)]
    assert target.did == ["start", "stop", "start", "stop"]


def test_one_that_fails_twice_is_given_up(bench: Bench, failures: list[tuple[str, bool]]) -> None:
    bench.part("streams", failing(3))
    assert failures == [("streams: stuck", True), ("streams: stuck", False)]


def test_parts_that_go_together_have_one_server_unless_one_fails(bench: Bench, target: Still) -> None:
    with bench.together():
        bench.part("one", failing(0))
        bench.part("two", failing(0))
    assert target.did == ["start", "stop"]
    with bench.together():
        bench.part("one", failing(1))
        bench.part("two", failing(0))
    assert target.did[2:] == ["start", "stop", "start", "stop"]


def test_who_reads_no_more_ends_it(bench: Bench) -> None:
    def run(bench: Bench) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        bench.part("one", run)
