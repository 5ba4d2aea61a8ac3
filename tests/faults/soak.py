"""The long run: ``python -m tests.faults.soak --minutes 10`` (``make soak``). Prints what happens every ten seconds.

A run with a hub follows (tests.faults.hub_soak), and one with soft topics (tests.faults.soft_soak).

Exit status 1 if a guarantee was broken; the findings are printed, and the whole history is kept in a file.
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import random
import sys
import tempfile

import uvloop

from tests.e2e.crowd import room_for_files
from tests.faults import hub_soak, soft_soak
from tests.faults.run import Scale, run

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run once; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--clients", type=int, default=520)
    parser.add_argument("--channels", type=int, default=50)
    parser.add_argument("--rate", type=float, default=8.0, help="items per second of each of four publishers")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between two faults")
    parser.add_argument(
        "--link", type=float, default=3.0, help="seconds after which quiet clients' backends are asked (1000: never)"
    )
    parser.add_argument("--faults", default="", help="kinds of faults, separated by commas (default: all)")
    parser.add_argument("--hub", type=float, default=10.0, help="minutes of the run with a hub afterwards (0: none)")
    parser.add_argument("--soft", type=float, default=2.0, help="minutes of the run with soft topics then (0: none)")
    options = parser.parse_args(arguments)
    scale = Scale(
        options.clients,
        options.channels,
        options.rate,
        options.minutes * 60,
        options.pause,
        tuple(options.faults.split(",")) if options.faults else None,
        options.link,
    )
    print(f"seed {options.seed}: {scale}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="gripproxy-soak-") as folder,
        room_for_files(4 * options.clients + 1000),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        report, case = runner.run(run(pathlib.Path(folder), options.seed, scale, lambda line: print(line, flush=True)))
    for finding in report.findings:
        print(finding)
    for text in report.trouble:
        print(text)
    if report.findings or report.trouble:
        path = pathlib.Path(tempfile.mkdtemp(prefix="gripproxy-history-")) / f"seed-{options.seed}.jsonl"
        case.history.write(path)
        print(f"the whole history is in {path}")
    print(report, flush=True)
    failed = bool(report.findings or report.trouble)
    if options.hub:
        failed |= bool(hub_soak.main(["--minutes", str(options.hub), "--seed", str(options.seed)]))
    if options.soft:
        failed |= bool(soft_soak.main(["--minutes", str(options.soft), "--seed", str(options.seed)]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
