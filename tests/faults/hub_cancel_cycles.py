"""Subscriptions that are made and cancelled: ``python -m tests.faults.hub_cancel_cycles --cycles 10000``.

The receiver fails most events, so that a cancellation falls into a challenge, a request under way, a pause before the
next attempt, or a rest. Each request notes when it has begun; one that begins after its subscription's DELETE was
answered is a finding. The sender is killed now and then.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from aiohttp import web

from tests.faults.hub_owner_tokens import KEY, token
from tests.support.hub import HubSite, hub_site
from tests.support.webhook import PushRequest, WebhookReceiver, webhook_receiver

__all__ = ["CHANGES", "Report", "cycles"]

CHANGES: Final = {
    "hub.hub_key": KEY,
    "hub.hub_anonymous": "none",
    "hub.callback_allow": "127.0.0.0/8",
    "hub.callback_pause": "0.02",
    "hub.callback_pause_max": "0.1",
    "hub.callback_tries": "5",
    "hub.subscriptions_per_owner_max": "100000",
    "hub.subscriptions_per_topic_max": "100000",
}

CYCLES_OF_AN_OWNER: Final = 400
"""Cycles of one owner, which is below the bound of its requests in a minute."""

LANES: Final = 16
"""Cycles at the same time."""

HOSTS: Final = 8
"""Addresses of receivers, each of which has places of its own among the requests of the sender."""

LONGEST: Final = 0.25
"""Greatest number of seconds from the answer to POST to DELETE."""


@dataclass
class Report:
    """Figures of a run.

    Attributes:
        cycles: that were carried out.
        requests: of the sender.
        moments: cycles by the state of the subscription just before its DELETE.
        kills: of the sender.
        late: ids of subscriptions with a request that began after the answer to DELETE.
    """

    cycles: int = 0
    requests: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    late: list[str] = field(default_factory=list)


async def _fail(request: PushRequest) -> web.StreamResponse | None:
    await asyncio.sleep(random.random() * 0.03)
    if request.challenge and random.random() < 0.9:
        return None
    return None if random.random() < 0.3 else web.Response(status=random.choice((500, 503, 429, 404, 302)))


async def _ask(session: aiohttp.ClientSession, owner: str, method: str, url: str, body: Any = None) -> Any:
    """Send a request, again while the hub or its sender is away, and return the JSON of its answer."""
    headers = {"Authorization": f"Bearer {token(owner)}"}
    deadline = time.monotonic() + 60
    while True:
        async with session.request(method, url, json=body, headers=headers) as answer:
            if answer.status == 503 and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
                continue
            assert answer.status in (200, 201, 204), (method, answer.status, await answer.text())
            return await answer.json(content_type=None) if answer.status != 204 else None


async def cycles(site: HubSite, number: int, seed: int, *, kill_each: int = 0) -> Report:
    """Make and cancel subscriptions.

    Args:
        site: a service with ``CHANGES``.
        number: of cycles.
        seed: of the random numbers.
        kill_each: cycles after which the sender is killed, again and again; 0: never.

    Returns:
        The report.
    """
    random.seed(seed)
    report, ended = Report(), dict[str, float]()
    numbers = iter(range(number))
    async with aiohttp.ClientSession() as session, contextlib.AsyncExitStack() as stack:
        receivers = [
            await stack.enter_async_context(webhook_receiver(host=f"127.0.0.{host}")) for host in range(2, HOSTS + 2)
        ]
        for receiver in receivers:
            receiver.behaviour = _fail
        owners = [f"c{index}" for index in range(-(-number // CYCLES_OF_AN_OWNER))]
        for owner in owners:
            topic = f"{site.url}/topics/{owner}%2Ft"
            await _ask(session, owner, "PUT", topic, {})
            await _ask(session, owner, "POST", f"{topic}/events", {"events": [{"data": each} for each in range(20)]})

        async def lane() -> None:
            for cycle in numbers:
                owner = owners[cycle % len(owners)]
                await _cycle(session, site, owner, f"s{cycle}", receivers[cycle % HOSTS], report, ended)
                report.cycles += 1
                if kill_each and report.cycles % kill_each == 0:
                    report.kills += 1
                    await asyncio.to_thread(site.kill, "sender_process")

        await asyncio.gather(*(lane() for _ in range(LANES)))
        # A timer that has forgotten its cancellation would fire by now.
        await asyncio.sleep(2.0)
        requests = [request for receiver in receivers for request in receiver.requests]
        report.requests = len(requests)
        report.late = [request.subscription for request in requests if request.began > ended[request.subscription]]
    return report


async def _cycle(
    session: aiohttp.ClientSession,
    site: HubSite,
    owner: str,
    id: str,
    receiver: WebhookReceiver,
    report: Report,
    ended: dict[str, float],
) -> None:
    url = f"{site.url}/topics/{owner}%2Ft/subscriptions"
    await _ask(session, owner, "POST", url, {"subscription_id": id, "callback": receiver.url, "after": "0"})
    await asyncio.sleep(random.random() * LONGEST)
    if random.random() < 0.2:
        report.moments[(await _ask(session, owner, "GET", f"{url}/{id}"))["state"]] += 1
    await _ask(session, owner, "DELETE", f"{url}/{id}")
    ended[id] = time.monotonic()


def main() -> int:
    """Run as the command line says; return 1 for a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--kill-each", type=int, default=500, help="cycles after which the sender is killed")
    given = parser.parse_args()
    with hub_site(CHANGES) as site:
        report = asyncio.run(cycles(site, given.cycles, given.seed, kill_each=given.kill_each))
    figures = {"cycles": report.cycles, "requests": report.requests, "moments": report.moments, "kills": report.kills}
    print(json.dumps({"seed": given.seed, **figures, "late": report.late}))
    return 1 if report.late else 0


if __name__ == "__main__":
    raise SystemExit(main())
