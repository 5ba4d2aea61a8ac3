"""A sharded cache, invalidated by pubsub and kept by watching, under the same load. It ends with a verdict.

make sharded-cache [ARGS='--seconds 60'], or with another hub: HUB_URL=… python examples/sharded_cache/run.py
"""

from __future__ import annotations

import argparse
import asyncio
import os

from judge import Verdict
from load import KEYS, RANGES, SERVERS, Load, prepare

LONGEST = 600  # seconds


def story(load: Load, verdict: Verdict) -> str:
    """Return the story of a stale key.

    Args:
        load: the run.
        verdict: on it; there is a stale key.
    """
    key = verdict.pubsub.stale(verdict.log)[0]
    keys, value = load.sharder.range_of(key), verdict.pubsub.quiet[key]
    lines = load.journal.story(key, f"the sharder moves {keys} from")
    end = f"{load.sharder.owners[keys]} still has {value}, and no message is under way that would change that"
    return "\n".join([f"One of the stale keys, {key}:\n", *lines, f"{load.journal.now:8.3f} s  {end}"])


async def main() -> int:
    """Run both for some seconds.

    Returns:
        Exit status.
    """
    parser = argparse.ArgumentParser(description="A sharded cache, invalidated by pubsub and kept by watching.")
    parser.add_argument("--seconds", type=float, default=12, help="of load (default %(default)s, at most 600)")
    parser.add_argument(
        "--newest", action="store_true", help="read the newest values of each server, to see that one version is needed"
    )
    options = parser.parse_args()
    if not 0 < options.seconds <= LONGEST:
        parser.error(f"--seconds {options.seconds:g}: expected above 0 and at most {LONGEST}: all is kept to be judged")
    await prepare(os.environ["HUB_URL"])
    print(f"{len(KEYS)} keys in {len(RANGES)} ranges, which move between {len(SERVERS)} servers of each kind.")
    load = Load(os.environ["HUB_URL"], options.newest)
    try:
        await load.run(options.seconds)
        verdict = Verdict(load.pubsub, load.watch, await load.settle())
        print(verdict.table)
        if verdict.shows:
            print(f"\n{story(load, verdict)}")
        print(f"\n{verdict.text}")
        return 0 if verdict.holds and verdict.shows else 1
    finally:
        await load.close()


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
