"""What the hot path costs, counted and not timed: no noise of a busy machine is in it.

Counted are calls of functions, Python's and C's, instructions of the interpreter and writes to sockets; for held
clients also the memory they keep. LIMITS has today's figures; a few percent more are let pass. When one is exceeded:
does the change need it? Then raise the figure, in the same commit. ``bench/work.py --profile '<errand>'`` shows where
the time goes, ``--instructions`` what it means for the processor. When something has become cheaper, lower the figure:

    .venv/bin/python -m tests.unit.test_work    # prints the table anew
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from types import FrameType
from typing import Any, Final, NamedTuple

import pytest

from bench.workloads import ERRANDS, Errand, Wire, at_work

ROOM: Final = 1.03
"""Part of the figure that may be used."""

ROOM_ELSEWHERE: Final = 1.15
"""The same for the interpreter's instructions on another version of Python than that of the table: it has others."""

VERSION: Final = (3, 11)


class Work(NamedTuple):
    """What one errand costs. ``kept``: bytes that stay allocated; None where nothing is to stay."""

    calls: float
    steps: float
    writes: float
    kept: float | None = None


LIMITS: Final = {
    "request": Work(66, 1550, 2),
    "request of a browser": Work(66, 1550, 2),
    "request with new headers": Work(161, 3060, 2),
    "request with its log line": Work(75.3, 1768, 2),
    "stream held": Work(205, 4018, 2, 929),
    "stream with ids held": Work(240, 4646, 2, 1274),
    "long-poll held": Work(175, 3524, 1, 905),
    "WebSocket held": Work(374, 6175, 2, 1520),
    "stream delivery": Work(1.09, 23.68, 1),
    "stream delivery, 4,000": Work(1.02, 26.3, 1),
    "stream delivery with ids": Work(1.55, 30.3, 1),
    "WebSocket delivery": Work(1.1, 24, 1),
    "WebSocket delivery with ids": Work(1.56, 32.2, 1),
    "WebSocket round trip": Work(154, 2546, 2),
    "item in the worker": Work(20.1, 397.5, 1),
    "item by PULL": Work(34, 548, 0),
    "item with ids by PULL": Work(48, 727, 0),
    "item by HTTP": Work(53, 810, 2),
}

COUNTED: Final = {"calls": "calls of functions", "steps": "instructions of the interpreter", "writes": "writes"}


def _counted(errand: Errand, times: int) -> tuple[int, int]:
    """Return calls of functions, and instructions of the interpreter, of so many of the errand."""
    calls = steps = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        if event == "call" or event == "c_call":
            calls += 1

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        if event == "call":
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        elif event == "opcode":
            steps += 1
        return trace

    before = sys.getprofile(), sys.gettrace()
    gc.disable()
    try:
        sys.setprofile(profile)
        errand.run(times)
        sys.setprofile(None)
        errand.after()
        sys.settrace(trace)
        errand.run(times)
    finally:
        sys.setprofile(before[0])
        sys.settrace(before[1])
        gc.enable()
    errand.after()
    return calls, steps


def _written(errand: Errand, times: int) -> int:
    before = Wire.writes
    errand.run(times)
    written = Wire.writes - before
    errand.after()
    return written


def _kept(errand: Errand, times: int) -> int:
    """Return the bytes that are allocated when it has been done so often."""
    gc.collect()
    tracemalloc.start()
    try:
        errand.run(times)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    errand.after()
    return kept


def measure(name: str) -> Work:
    """Return what one errand costs beyond what is done once however often it is done."""
    with at_work(name) as errand:
        # Whole rounds of those that do many at once; enough for held ones that the growth of tables is the same always.
        few = max(20, errand.least)
        more = 3 * few
        # Some versions of Python trace a function from its second call on.
        _counted(errand, few)
        calls, steps = (
            (b - a) / (more - few) for a, b in zip(_counted(errand, few), _counted(errand, more), strict=True)
        )
        writes = (_written(errand, more) - _written(errand, few)) / (more - few)
        kept = _kept(errand, errand.most) / errand.most if errand.unit == "hold" else None
        return Work(calls, steps, writes, kept)


def _excess(name: str, found: Work, limits: Work) -> list[str]:
    """Say what of an errand costs more than it may."""
    unit = ERRANDS[name].unit
    over = []
    for what, words in COUNTED.items():
        was, now = getattr(limits, what), getattr(found, what)
        room = ROOM_ELSEWHERE if what == "steps" and sys.version_info[:2] != VERSION else ROOM
        if now > was * room:
            over.append(f"{name}: {words} per {unit}: {was:g} -> {now:g}")
    if found.kept is not None and limits.kept is not None and found.kept > limits.kept * ROOM_ELSEWHERE:
        over.append(f"{name}: bytes kept per {unit}: {limits.kept:g} -> {found.kept:.0f}")
    return over


@pytest.mark.parametrize("name", ERRANDS)
def test_costs_what_it_did(name: str) -> None:
    over = _excess(name, measure(name), LIMITS[name])
    hint = f"see where: .venv/bin/python bench/work.py --profile {name!r}; then change it, or the table in {__file__}"
    assert not over, "\n".join([*over, hint])


if __name__ == "__main__":
    for each in ERRANDS:
        work = measure(each)
        kept_too = "" if work.kept is None else f", {work.kept:.0f}"
        print(f'    "{each}": Work({work.calls:.3g}, {work.steps:.4g}, {work.writes:.3g}{kept_too}),')
