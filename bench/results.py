"""Figures of all rounds: medians, spreads and ratios. One JSON object a line, as `bench/compare.py` writes them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.catalogue import MEASURES, STEPS, Bound

__all__ = ["OURS", "Lost", "Results", "Verdict"]

OURS = "gripproxy"


@dataclass(frozen=True)
class Lost:
    """Deliveries that a target owes, requests that it did not answer, clients that it refused."""

    target: str
    measure: str
    round: int
    lost: int
    of: int


@dataclass(frozen=True)
class Verdict:
    """Whether a bound holds: ``value`` is the figure, or the ratio to the peer's."""

    bound: Bound
    value: float
    holds: bool


class Results:
    """What the lines of a file say."""

    def __init__(self, lines: Iterable[str]) -> None:
        """``lines``: as written; the last one may be cut off. Raises ValueError for others that are no JSON object."""
        self.targets: list[str] = []
        """In the order in which they ran."""
        self._rounds: dict[str, int] = {}
        self.machines: list[dict[str, Any]] = []
        """What is known about the machine, of each run."""
        self.failures: list[str] = []
        self.repeated: list[tuple[str, str]] = []
        """What went wrong and was done once more: whose, and what."""
        self._lost: dict[tuple[str, str, int], Lost] = {}
        self._values: dict[str, dict[str, dict[int, float]]] = {}
        whole = [line for line in lines if line.strip()]
        for number, line in enumerate(whole, 1):
            try:
                found = json.loads(line)
            except ValueError as error:
                if number == len(whole):
                    break  # the run was ended while it wrote
                raise ValueError(f"line {number} is not JSON: {error}") from None
            self._take(found)
        self._derive()

    def _take(self, found: Mapping[str, Any]) -> None:
        if "machine" in found:
            self.machines.append(found["machine"])
            return
        target, number = found["target"], found["round"]
        self._rounds[found["trial"]] = max(self._rounds.get(found["trial"], 0), number)
        if target not in self.targets:
            self.targets.append(target)
        if "failed" in found:
            self.failures.append(f"round {number}, {target}, {found['trial']}: {found['failed']}")
        elif "again" in found:
            self.repeated.append((target, f"round {number}, {target}, {found['trial']}: {found['again']}"))
        elif "measure" in found:
            self._values.setdefault(found["measure"], {}).setdefault(target, {})[number] = found["value"]
            # What was measured once more in a round replaces what was before.
            self._lost.pop((target, found["measure"], number), None)
            if found.get("lost"):
                one = Lost(target, found["measure"], number, found["lost"], found["of"])
                self._lost[target, found["measure"], number] = one

    def _derive(self) -> None:
        """How the ratio to the C loop changes while clients become more: of both targets, so no trial can tell."""
        shares: dict[int, list[float]] = {}
        for step in (STEPS[0], STEPS[-1]):
            measured = self._values.get(f"growth single {step}", {})
            ours, theirs = measured.get(OURS, {}), measured.get("loop", {})
            for number in sorted(ours.keys() & theirs.keys()):
                if theirs[number]:
                    shares.setdefault(number, []).append(ours[number] / theirs[number])
        ratios = {number: pair[1] / pair[0] for number, pair in shares.items() if len(pair) == 2 and pair[0]}
        if ratios:
            self._values["growth ratio"] = {OURS: ratios}

    @property
    def lost(self) -> list[Lost]:
        """What was lost, in the order in which it was."""
        return list(self._lost.values())

    @property
    def rounds(self) -> int:
        """How many rounds the trial has that has the most."""
        return max(self._rounds.values(), default=0)

    def rounds_of(self, trials: Iterable[str]) -> int:
        """The last round that one of these has; 0 if none has run."""
        return max((self._rounds.get(trial, 0) for trial in trials), default=0)

    def measures(self) -> list[str]:
        """Keys of what was measured, in the order of the catalogue."""
        return [key for key in MEASURES if key in self._values]

    def values(self, measure: str, target: str) -> list[float]:
        """The figures of all rounds."""
        return list(self._values.get(measure, {}).get(target, {}).values())

    def median(self, measure: str, target: str) -> float | None:
        """The median of all rounds; None if it was not measured."""
        values = self.values(measure, target)
        return statistics.median(values) if values else None

    def ratio(self, measure: str, peer: str) -> float | None:
        """Ours over the peer's, None if no round has both: the median of the ratios within the rounds.

        What keeps a machine busy for minutes leaves these alone.
        """
        ours = self._values.get(measure, {}).get(OURS, {})
        theirs = self._values.get(measure, {}).get(peer, {})
        ratios = [ours[number] / theirs[number] for number in ours.keys() & theirs.keys() if theirs[number]]
        return statistics.median(ratios) if ratios else None

    def verdicts(self, measure: str) -> list[Verdict]:
        """The bounds of a measure that can be judged."""
        found = []
        for bound in MEASURES[measure].bounds:
            value = self.ratio(measure, bound.peer) if bound.peer else self.median(measure, OURS)
            if value is not None:
                holds = value >= bound.factor if MEASURES[measure].more else value <= bound.factor
                found.append(Verdict(bound, value, holds))
        return found
