"""Which ways through the code of a target one run takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, ModuleType
from typing import Any, Final, TypeVar

__all__ = ["EdgeTracer", "untraced"]

SHORT: Final = 80
"""Bytes up to which inputs are traced while they are read byte by byte: tracing that takes most of the time of a run,
and long inputs go the ways of short ones."""

Result = TypeVar("Result")
Edge = tuple[CodeType, int, int]


class EdgeTracer:
    """Counts pairs of consecutive lines within each function of some modules, by ``sys.settrace``."""

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        self._files = frozenset(module.__file__ for module in modules)
        self._counts: dict[Edge, int] = {}

    def run(self, function: Callable[[], Result]) -> Result:
        """Call a function and count the edges it takes, those of earlier calls forgotten.

        Args:
            function: what to call.

        Returns:
            Its result. An exception passes through; the edges up to it are counted.
        """
        self._counts = {}
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            return function()
        finally:
            sys.settrace(before)

    @property
    def edges(self) -> set[Hashable]:
        """Edges of the last run."""
        return set(self._counts)

    @property
    def features(self) -> set[Hashable]:
        """Edges of the last run with the magnitude of their number: once, 2 to 3 times, 4 to 7 times, more often."""
        return {(edge, min(count.bit_length(), 4)) for edge, count in self._counts.items()}

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code.co_filename not in self._files:
            return None
        counts = self._counts
        last = 0

        def line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            nonlocal last
            if event == "line":
                edge = (code, last, frame.f_lineno)
                counts[edge] = counts.get(edge, 0) + 1
                last = frame.f_lineno
            return line

        return line


@contextmanager
def untraced(data: bytes) -> Iterator[None]:
    """Count no edges within the block, unless the input is short.

    Args:
        data: the input.
    """
    if len(data) <= SHORT:
        yield
        return
    before = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(before)
