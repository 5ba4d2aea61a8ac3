"""The fuzzer finds what only coverage leads to."""

from __future__ import annotations

import sys
import time
from collections.abc import Hashable

import pytest

from tests.fuzz import fuzzer as fuzzer_module
from tests.fuzz.coverage import EdgeTracer, untraced
from tests.fuzz.fuzzer import Finding, Fuzzer, TooSlow
from tests.fuzz.target import Target, Violation, gist, require_equal
from tests.unit.fuzz import maze

RUNS = 4000
LETTERS = (b"M", b"A", b"Z", b"E")


def nothing(data: bytes) -> Hashable:
    maze.enter(data)
    return None


def found(fuzzer: Fuzzer) -> Finding:
    fuzzer.run(runs=RUNS)
    assert fuzzer.finding is not None
    return fuzzer.finding


def test_it_goes_from_edge_to_edge() -> None:
    finding = found(Fuzzer(Target("maze", nothing, (maze,), (b"x",), LETTERS)))
    assert isinstance(finding.error, ZeroDivisionError)
    assert finding.data == b"MAZE"


def test_it_goes_from_outcome_to_outcome_where_code_is_not_seen() -> None:
    assert found(Fuzzer(Target("maze", maze.enter, (), (b"x",), LETTERS))).data == b"MAZE"


def test_without_guidance_it_does_not_get_there() -> None:
    fuzzer = Fuzzer(Target("maze", nothing, (), (b"x",), LETTERS))
    fuzzer.run(runs=RUNS)
    assert fuzzer.finding is None
    assert fuzzer.runs == RUNS + 1


def test_a_seed_decides_all() -> None:
    def kept(seed: int) -> list[bytes]:
        fuzzer = Fuzzer(Target("maze", nothing, (maze,), (b"x",), (b"MA",)), seed=seed)
        fuzzer.run(runs=200)
        return fuzzer.kept

    assert kept(1) == kept(1)
    assert kept(1) != kept(2)


def test_an_input_of_the_corpus_that_fails_is_found_first() -> None:
    fuzzer = Fuzzer(Target("maze", nothing, (maze,), (), ()), [b"MAZEMAZE and more"])
    fuzzer.run(runs=RUNS)
    assert fuzzer.runs == 1
    assert fuzzer.finding is not None
    assert fuzzer.finding.data == b"MAZE"


def test_the_essential_inputs_reach_all_edges() -> None:
    fuzzer = Fuzzer(Target("maze", nothing, (maze,), (b"", b"x", b"M", b"MA", b"MA and more", b"MAZ"), ()))
    assert sorted(fuzzer.essential()) == [b"", b"M", b"MA", b"MAZ"]


def test_an_input_that_takes_too_long_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(data: bytes) -> Hashable:
        while data == b"slow":
            time.monotonic()
        return None

    monkeypatch.setattr(fuzzer_module, "INPUT_TIME", 0.01)
    fuzzer = Fuzzer(Target("slow", check, (), (b"slow",), ()))
    assert fuzzer.finding is not None
    assert isinstance(fuzzer.finding.error, TooSlow)


def test_tracing_ends_with_the_run() -> None:
    before = sys.gettrace()
    tracer = EdgeTracer((maze,))
    assert tracer.run(lambda: maze.enter(b"M")) == 1
    edges = tracer.edges
    with pytest.raises(ZeroDivisionError):
        tracer.run(lambda: maze.enter(b"MAZE"))
    assert len(tracer.edges) > len(edges) > 0
    assert sys.gettrace() is before


def test_what_is_untraced_leaves_no_edges() -> None:
    def run(data: bytes) -> None:
        with untraced(data):
            maze.enter(b"MAZ")

    tracer = EdgeTracer((maze,))
    tracer.run(lambda: run(bytes(1000)))
    assert not tracer.edges
    tracer.run(lambda: run(b"short"))
    assert tracer.edges


def test_how_often_an_edge_is_taken_counts() -> None:
    tracer = EdgeTracer((maze,))
    tracer.run(lambda: maze.enter(b"M"))
    once = tracer.features
    tracer.run(lambda: (maze.enter(b"M"), maze.enter(b"M")))
    assert not tracer.features & once


def test_values_are_compared_with_their_types() -> None:
    require_equal("x", {"a": (1, float("nan")), "b": 2}, {"b": 2, "a": (1, float("nan"))})
    with pytest.raises(Violation, match="x: 1 and True"):
        require_equal("x", 1, True)


def test_the_gist_of_an_error_has_no_values() -> None:
    assert gist(ValueError("12 of b'x' and \"y's\" at 0xff")) == "ValueError: # of # and # at #"
