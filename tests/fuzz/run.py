"""Fuzz all targets for some minutes: ``python -m tests.fuzz.run --minutes 5``.

Exit status 1 if an input breaks a contract. The input is printed, with its error, and added to the corpus: the unit
tests fail with it from then on, until it is fixed.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from tests.fuzz import corpus_file
from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.targets import TARGETS

__all__ = ["main"]


@dataclass(frozen=True, slots=True)
class Report:
    """What the search with one target came to."""

    name: str
    runs: int
    features: int
    corpus: list[bytes]
    """Inputs that reach all that was reached."""
    found: bytes | None
    text: str


def search(name: str, seconds: float, seed: int) -> Report:
    """Fuzz one target, in a process of its own.

    Args:
        name: name of the target.
        seconds: how long.
        seed: of the random choices.
    """
    fuzzer = Fuzzer(TARGETS[name], corpus_file.read(name), seed)
    fuzzer.run(seconds)
    finding = fuzzer.finding
    if finding is None:
        return Report(name, fuzzer.runs, fuzzer.features, fuzzer.essential(), None, "")
    text = "".join(traceback.format_exception(finding.error))
    return Report(name, fuzzer.runs, fuzzer.features, [], finding.data, f"{finding.data!r}\n{text}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: instead of those of the process.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description="Fuzz parsers and codecs.")
    parser.add_argument("--minutes", type=float, default=5, help="for all targets together (default: 5)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: chosen anew")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only this one; may be repeated")
    parser.add_argument("--keep", action="store_true", help="rewrite the corpus: what reaches all that was reached")
    options = parser.parse_args(arguments)
    names = options.target or list(TARGETS)
    processes = min(len(names), os.cpu_count() or 1)
    seconds = options.minutes * 60 * processes / len(names)
    print(f"{len(names)} targets, {seconds:.0f} s each, seed {options.seed}", flush=True)
    status = 0
    with ProcessPoolExecutor(processes) as pool:
        jobs = [pool.submit(search, name, seconds, options.seed) for name in names]
        for job in jobs:
            report = job.result()
            print(f"{report.name}: {report.runs} inputs, {report.features} features", flush=True)
            if report.found is not None:
                status = 1
                print(report.text, file=sys.stderr, flush=True)
                corpus_file.write(report.name, [*corpus_file.read(report.name), report.found])
            elif options.keep:
                corpus_file.write(report.name, report.corpus)
    return status


if __name__ == "__main__":
    sys.exit(main())
