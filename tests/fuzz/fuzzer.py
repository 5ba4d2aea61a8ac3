"""The search for inputs that break the contract of a target."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

from tests.fuzz.coverage import EdgeTracer
from tests.fuzz.mutation import mutate
from tests.fuzz.target import Target, gist

__all__ = ["INPUT_TIME", "Finding", "Fuzzer"]

INPUT_TIME: Final = 5.0
"""Seconds of processor time one input may take: it has a few hundred bytes, and takes milliseconds if reading it is
linear."""

_MINIMISE_RUNS: Final = 2000


class TooSlow(Exception):
    """An input took longer than INPUT_TIME."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that breaks the contract of a target."""

    data: bytes
    error: Exception


@contextmanager
def _bounded() -> Iterator[None]:
    def expired(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"one input took more than {INPUT_TIME:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, INPUT_TIME)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class Fuzzer:
    """Runs one target with mutations of inputs that reached something new.

    Args:
        target: the target.
        inputs: inputs to begin with, beside the target's seeds.
        seed: of the random choices; with equal inputs an equal number of runs then finds the same.
    """

    def __init__(self, target: Target, inputs: Iterable[bytes] = (), seed: int = 0) -> None:
        self._target = target
        self._rng = random.Random(seed)
        self._tracer = EdgeTracer(target.modules)
        self._seen: set[Hashable] = set()
        self.kept: list[bytes] = []
        """Inputs each of which reached something that none before it did."""
        self.runs = 0
        self.finding: Finding | None = None
        """The first input that breaks the contract, with as little in it as was found to do so."""
        for data in sorted({*target.seeds, *inputs}, key=len):
            self._try(data)
            if self.finding is not None:
                return
        if not self.kept:
            self.kept.append(b"")

    @property
    def features(self) -> int:
        """How many different things were reached."""
        return len(self._seen)

    def run(self, seconds: float = 1e9, runs: int = 2**62) -> None:
        """Search until something is found.

        Args:
            seconds: time after which to stop.
            runs: inputs after which to stop.
        """
        end = time.monotonic() + seconds
        last = self.runs + runs
        while self.finding is None and self.runs < last and time.monotonic() < end:
            # Half of the time the newest ones: what they reached is the least explored.
            kept = self.kept
            newest = self._rng.randrange(2) and len(kept) > 20
            data = self._rng.choice(kept[-20:] if newest else kept)
            self._try(mutate(data, kept, self._target.words, self._rng))

    def essential(self) -> list[bytes]:
        """Return as few of the kept inputs as reach all edges and outcomes, not regarding how often."""
        covered: set[Hashable] = set()
        chosen = []
        for data in sorted(self.kept, key=len):
            outcome = self._tracer.run(lambda data=data: self._target.check(data))  # type: ignore[misc]
            reached = {*self._tracer.edges, ("outcome", outcome)}
            if not reached <= covered:
                covered |= reached
                chosen.append(data)
        return chosen

    def _try(self, data: bytes) -> None:
        self.runs += 1
        try:
            with _bounded():
                outcome = self._tracer.run(lambda: self._target.check(data))
        except Exception as error:  # noqa: BLE001 - any exception is a finding
            self.finding = self._minimised(Finding(data, error))
            return
        reached = self._tracer.features
        reached.add(("outcome", outcome))
        if not reached <= self._seen:
            self._seen |= reached
            self.kept.append(data)

    def _minimised(self, finding: Finding) -> Finding:
        """Leave out parts of the input as long as the error is of the same kind."""
        kind = gist(finding.error).partition(":")[0]
        runs = 0
        size = max(1, len(finding.data) // 2)
        while size:
            start = 0
            while start < len(finding.data) and runs < _MINIMISE_RUNS:
                runs += 1
                shorter = finding.data[:start] + finding.data[start + size :]
                try:
                    with _bounded():
                        self._target.check(shorter)
                except Exception as error:  # noqa: BLE001 - any exception is a finding
                    if gist(error).partition(":")[0] == kind:
                        finding = Finding(shorter, error)
                        continue
                start += size
            size //= 2
        return finding
