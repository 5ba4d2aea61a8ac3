"""A replica that is applied in parallel, from a stream of events and by watching. It ends with a verdict.

make replica [ARGS='--seconds 60'], or with another hub: HUB_URL=… python examples/replica/run.py
"""

from __future__ import annotations

import argparse
import asyncio
import os
from statistics import median

from access import CONSULTANT
from judge import StoreLog, Verdict
from load import PACES, Leak, Load

LONGEST = 600  # seconds


def story(load: Load, leak: Leak, log: StoreLog) -> str:
    """Return the story of a state that never was: one row is newer than the other one may be.

    Args:
        load: the run.
        leak: the state.
        log: of the store.
    """
    (_, new), (key, old) = sorted(leak.rows, key=lambda row: -row[1].version)
    missing, applied = log.next_version(key, old.version), load.pubsub_replica.applied
    notes = [
        (leak.time, f"a reader of the replica sees that {CONSULTANT} can read {leak.rows[0][0]}"),
        (applied[new.version], f"one worker applies version {new.version}"),
        (applied[missing], f"another worker applies version {missing}"),
        *((at, f"version {step}: {text}") for step, (at, text) in load.steps.items() if step in (missing, new.version)),
    ]
    lines = [f"{at - load.began:8.3f} s  {text}" for at, text in sorted(notes)]
    return "\n".join(["One of the states that never were:\n", *lines])


async def main() -> int:
    """Run both for some seconds.

    Returns:
        Exit status.
    """
    parser = argparse.ArgumentParser(description="A replica that is applied in parallel, from events and by watching.")
    parser.add_argument("--seconds", type=float, default=12, help="of load (default %(default)s, at most 600)")
    parser.add_argument(
        "--newest",
        action="store_true",
        help="show the newest values of each watcher, to see that one version is needed",
    )
    options = parser.parse_args()
    if not 0 < options.seconds <= LONGEST:
        parser.error(f"--seconds {options.seconds:g}: expected above 0 and at most {LONGEST}: all is kept to be judged")
    slowest = max(PACES.values()) / min(PACES.values())
    print(f"{len(PACES)} workers of each replica; the slowest takes {slowest:.0f} times as long as the fastest.")
    load = Load(os.environ["HUB_URL"], options.newest)
    verdict = Verdict(load.pubsub, load.watch, await load.run(options.seconds))
    print(f"\n{verdict.table}\n\nThe watching replica was {median(load.behind):.2f} s behind the store (median).")
    if load.leak is not None:
        print(f"\n{story(load, load.leak, verdict.log)}")
    print(f"\n{verdict.text}")
    return 0 if verdict.holds and verdict.shows else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
