"""A busy, healthy topic and its subscriber: ``python -m tests.faults.p3sub_busy --minutes 10``.

Nothing fails, so no subscription is to be renewed, no event is to be polled that was not pushed before, and each event
arrives once and in order. Prints a line of JSON; the exit status is 1 for anything else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time

import aiohttp

from griphub import Publisher, Subscriber
from tests.support.hub import HubSite, hub_site
from tests.support.push_site import PUSH_CONFIG, token

__all__ = ["run"]


async def _publish(site: HubSite, end: float) -> int:
    count = 0
    async with Publisher(site.url, "busy", token=token()) as publisher:
        while time.monotonic() < end:
            for _ in range(random.choice((1, 1, 1, 5, 40))):
                await publisher.submit(count)
                count += 1
            await publisher.flush()
            await asyncio.sleep(random.choice((0.01, 0.02, 0.1, 0.3)) if random.random() < 0.98 else 3.0)
        await publisher.publish("end")
    return count


async def run(site: HubSite, seconds: float) -> dict[str, object]:
    """Publish and subscribe for a time, and return the figures.

    Args:
        site: a service with ``PUSH_CONFIG``.
        seconds: duration.
    """
    found: list[object] = []
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token()}"}) as session,
        session.put(f"{site.url}/topics/busy", json={}) as answer,
    ):
        assert answer.status == 201
    async with Subscriber(site.url, "busy", token=token(), after="0", port=0) as subscriber:
        publishing = asyncio.ensure_future(_publish(site, time.monotonic() + seconds))
        async for event in subscriber:
            if event.data == "end":
                break
            found.append(event.data)
        published = await publishing
        counts = subscriber.counts
    whole = found == list(range(published))
    return {"published": published, "whole": whole, **{name: getattr(counts, name) for name in counts.__slots__}}


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    given = parser.parse_args()
    with hub_site(PUSH_CONFIG) as site:
        figures = asyncio.run(run(site, given.minutes * 60))
    print(json.dumps(figures))
    return 0 if figures["whole"] and not figures["renewed"] else 1


if __name__ == "__main__":
    sys.exit(main())
