"""Many runs of subscriptions by callback in virtual time: ``python -m tests.support.p3sub_soak --seeds 1000``.

Exit status 1 if a promise was broken; each finding is printed with the scenario and the seed that repeat it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.support.p3sub_history import Told
from tests.support.p3sub_scenarios import SCENARIOS
from tests.support.p3sub_validators import judge

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run scenarios with seeds.

    Args:
        arguments: of the command; None for those of the process.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.support.p3sub_soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="runs of each scenario (default: 100)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="first seed (default: 0)")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="one of all; may be repeated")
    options = parser.parse_args(arguments)
    broken = False
    for scenario in options.scenario or SCENARIOS:
        begun, counts = time.monotonic(), Counter[str]()
        for seed in range(options.first, options.first + options.seeds):
            history = SCENARIOS[scenario](seed)
            counts.update(
                record.kind if isinstance(record, Told) else type(record).__name__ for record in history.records
            )
            for found in judge(history).values():
                broken = True
                for finding in found:
                    print(f"{scenario}, seed {seed}: {finding}", flush=True)
        figures = ", ".join(f"{count} {name.lower()}" for name, count in counts.most_common())
        print(f"{scenario}: {options.seeds} runs in {time.monotonic() - begun:.0f} s: {figures}", flush=True)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
