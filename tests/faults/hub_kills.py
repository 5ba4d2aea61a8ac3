"""Kills of the hub and of its writer under load: each answered publication is there once, and none twice.

    python -m tests.faults.hub_kills --kills 200

Publishers name each request, and repeat it until it is answered. Afterwards the store is compared with their answers.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import time
from dataclasses import dataclass, field
from functools import partial

import aiohttp

from tests.support.hub import HubSite, hub_site, until

__all__ = ["Outcome", "run"]

PUBLISHERS = 8
PAUSE = (0.05, 0.6)
"""Seconds between the moment when the hub serves and its next kill, at least and at most."""


@dataclass
class Outcome:
    """Outcome of a run.

    Attributes:
        kills: processes killed, by kind.
        answered: ids by text of the event, as answered.
        stored: ids by text, as the history has them.
        repeated: requests that were sent more than once.
    """

    kills: collections.Counter[str] = field(default_factory=collections.Counter)
    answered: dict[str, str] = field(default_factory=dict)
    stored: dict[str, list[str]] = field(default_factory=dict)
    repeated: int = 0

    def faults(self) -> list[str]:
        """Return the findings: answered and missing, stored twice, another id than the answered one."""
        found = [
            f"{text}: answered as {id}, not stored" for text, id in self.answered.items() if text not in self.stored
        ]
        found += [f"{text}: stored as {ids}" for text, ids in self.stored.items() if len(ids) != 1]
        found += [
            f"{text}: answered as {id}, stored as {self.stored[text]}"
            for text, id in self.answered.items()
            if text in self.stored and id not in self.stored[text]
        ]
        return found


async def _publish(session: aiohttp.ClientSession, url: str, number: int, outcome: Outcome, end: asyncio.Event) -> None:
    serial = 0
    while not end.is_set():
        serial += 1
        text = f"{number}.{serial}"
        tries = 0
        while text not in outcome.answered:
            tries += 1
            try:
                async with session.post(
                    url, data=text, headers={"Content-Type": "text/plain", "Idempotency-Key": text}
                ) as response:
                    if response.status == 201:
                        [event] = (await response.json())["events"]
                        outcome.answered[text] = event["id"]
                    else:
                        assert response.status in (502, 503), await response.text()
            except aiohttp.ClientError:
                continue
        outcome.repeated += int(tries > 1)


def _reached(outcome: Outcome, wanted: int) -> bool:
    return len(outcome.answered) > wanted


async def run(site: HubSite, kills: int, seed: int) -> Outcome:
    """Publish while processes are killed, and return what was answered and what is stored.

    Args:
        site: a running service.
        kills: processes to kill, alternately the hub and its writer.
        seed: of the instants.
    """
    chance, outcome, end = random.Random(seed), Outcome(), asyncio.Event()
    url = f"{site.url}/topics/kills/events"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        async with session.put(f"{site.url}/topics/kills", json={}) as response:
            assert response.status == 201
        async with asyncio.TaskGroup() as group:
            for number in range(PUBLISHERS):
                group.create_task(_publish(session, url, number, outcome, end))
            for kill in range(kills):
                wanted = len(outcome.answered) + PUBLISHERS
                await until(partial(_reached, outcome, wanted), "publications are answered")
                await asyncio.sleep(chance.uniform(*PAUSE))
                kind = ("hub", "writer_process")[kill % 2]
                await asyncio.to_thread(site.kill, kind)
                outcome.kills[kind] += 1
            end.set()
        after = "0"
        more = True
        while more:
            async with session.get(url, params={"after": after, "limit": "4000"}) as response:
                assert response.status == 200, await response.text()
                page = await response.json()
            for event in page["events"]:
                outcome.stored.setdefault(event["data"], []).append(event["id"])
            after, more = page["cursor"], page["more"]
    return outcome


def main() -> int:
    """Run from the command line; the exit status is 1 with findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args()
    # All names of a run are one owner's.
    with hub_site({"hub.idempotency_per_owner_max": "1000000"}) as site:
        outcome = asyncio.run(run(site, given.kills, given.seed))
    faults = outcome.faults()
    shown = {"seed": given.seed, "kills": dict(outcome.kills), "answered": len(outcome.answered)}
    print(json.dumps({**shown, "stored": len(outcome.stored), "repeated": outcome.repeated, "findings": len(faults)}))
    for fault in faults[:20]:
        print(fault)
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
