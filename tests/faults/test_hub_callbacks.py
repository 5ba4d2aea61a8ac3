"""One hostile owner of subscriptions beside ordinary ones: their callbacks arrive in time, and none leads elsewhere."""

from __future__ import annotations

import asyncio
import json
import math
import pathlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from griphub.sender.failure_class import FailureClass
from tests.e2e.crowd import room_for_files
from tests.faults.hostile.processor import foreign_share, usage
from tests.faults.hostile.verdict import FOREIGN_MAX, Phase, delays_between, percentile
from tests.faults.hostile.witness import read_delays
from tests.faults.hub_callback_attacks import ATTACKS, FOE, VICTIM
from tests.faults.hub_owner_tokens import KEY, token
from tests.support.hub import HubSite, hub_site, until
from tests.support.service import Service, descendants

OWNERS: Final = 60
ADDRESS: Final = "127.0.0.2"
"""Address of the receivers of ordinary owners."""

INTERVAL: Final = 2.0
"""Seconds between two events of an owner."""

QUIET: Final = 6.0
HOSTILE: Final = 15.0
"""Seconds of the two phases."""

RATIO: Final = 1.5
ALLOWED: Final = 0.15
"""The 99th percentile may be so many times that of the quiet phase, or so many seconds: a few milliseconds are the
machine's own affair."""

HOPS: Final = 6
"""Processes that wake up between publishing and arrival: publisher, worker, hub, writer, sender, receiver."""

CHANGES: Final = {
    "hub.hub_key": KEY,
    "hub.hub_anonymous": "none",
    "hub.callback_allow": f"{ADDRESS}/32, {FOE}/32, {VICTIM}/32",
    "hub.callback_timeout": "2",
    "hub.callback_tries": "3",
    "hub.callback_pause": "0.2",
    "hub.callback_pause_max": "1",
}

SENDER_MB: Final = 150
"""Megabytes that the sender may have at most."""

SHOWN: Final = {
    "in_flight=bool", "lag=float", "lag=int", "delivered=int", "failures=dict",
    *(f'state="{state}"' for state in ("challenging", "replaying", "live", "sending", "pausing", "resting")),
    *(f'reason="{reason}"' for reason in ("callback", "behind", "rights-ended", "revoked")),
    *(f'failure="{each.value}"' for each in FailureClass),
}  # fmt: skip
"""All that an owner may see of the deliveries of its subscription, beside what it gave itself."""


class Crowd:
    """Ordinary owners, each with a topic and a subscription; one server has all callbacks."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent: list[tuple[float, str]] = []
        self.arrived: dict[str, float] = {}
        self.errors: list[str] = []
        self._expected = dict.fromkeys(range(OWNERS), 0)

    async def receive(self, request: web.Request) -> web.Response:
        """Take a request of the sender."""
        document = await request.json()
        if document.get("type") == "challenge":
            return web.Response(text=document["challenge"])
        owner, number = map(int, document["data"].split("."))
        if number != self._expected[owner]:
            self.errors.append(f"event {number} of {owner} arrived in place of {self._expected[owner]}")
        self._expected[owner] = number + 1
        self.arrived[document["data"]] = time.monotonic()
        return web.Response(status=204)

    async def own(self, session: aiohttp.ClientSession, number: int, port: int) -> None:
        """Make the topic and the subscription of an owner."""
        headers = {"Authorization": f"Bearer {token(f'o{number}')}"}
        topic = f"{self.url}/topics/o{number}%2Ft"
        async with session.put(topic, json={}, headers=headers) as response:
            assert response.status == 201, await response.text()
        body = {"subscription_id": "s", "callback": f"http://{ADDRESS}:{port}/{number}", "after": "0"}
        async with session.post(f"{topic}/subscriptions", json=body, headers=headers) as response:
            assert response.status == 201, await response.text()

    async def publish(self, session: aiohttp.ClientSession, number: int) -> None:
        """Publish events of an owner, one after the other."""
        headers = {"Authorization": f"Bearer {token(f'o{number}')}"}
        due = time.monotonic() + INTERVAL * number / OWNERS
        for count in range(10**9):
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due += INTERVAL
            data = f"{number}.{count}"
            self.sent.append((time.monotonic(), data))
            async with session.post(
                f"{self.url}/topics/o{number}%2Ft/events", json={"events": [{"data": data}]}, headers=headers
            ) as response:
                if response.status != 201:
                    self.errors.append(f"publishing: {response.status} {await response.text()}")

    def delays(self, phase: Phase) -> list[float]:
        """Return the seconds from publishing to arrival of events of a phase."""
        return [self.arrived.get(data, math.inf) - at for at, data in self.sent if phase.begun <= at < phase.ended]


@dataclass
class Verdict:
    """Figures of a run, in seconds and megabytes."""

    quiet: float
    hostile: float
    allowed: float
    errors: list[str]
    sender: float
    attacks: dict[str, dict[str, Any]]
    log: str
    text: str


def sender_peak(site: HubSite) -> float:
    """Return the greatest resident size of the sender, in megabytes."""
    status = pathlib.Path(f"/proc/{site.pid('sender_process')}/status").read_text()
    match = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    assert match is not None
    return int(match[1]) / 1000


async def measure(site: HubSite, folder: pathlib.Path, only: str = "", seconds: float = HOSTILE) -> Verdict:
    """Run both phases."""
    crowd = Crowd(site.url)
    application = web.Application()
    application.router.add_post("/{number}", crowd.receive)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, ADDRESS, 0).start()
    witness = Service([sys.executable, "-m", "tests.faults.hostile.witness", f"--diary={folder / 'witness'}"])
    attacker: Service | None = None
    tasks: list[asyncio.Task[None]] = []
    connector = aiohttp.TCPConnector(limit=0)
    try:
        async with aiohttp.ClientSession(connector=connector) as session:
            for number in range(OWNERS):
                await crowd.own(session, number, runner.addresses[0][1])
            tasks = [asyncio.ensure_future(crowd.publish(session, number)) for number in range(OWNERS)]
            await until(lambda: len(crowd.arrived) >= OWNERS, "an event of each owner")
            begun = time.monotonic()
            await asyncio.sleep(QUIET)
            quiet = Phase("quiet", begun, time.monotonic())
            command = [sys.executable, "-m", "tests.faults.hub_callback_attacks", f"--url={site.url}"]
            attacker = Service([*command, f"--seconds={seconds}", f"--only={only}"])
            await asyncio.to_thread(attacker.wait_for_log, "attacking\n")
            before, begun = usage(), time.monotonic()
            while attacker.process.poll() is None:
                await asyncio.sleep(0.1)
                assert time.monotonic() < begun + seconds + 60, attacker.log
            hostile = Phase("hostile", begun, time.monotonic())
            foreign = foreign_share(before, usage())
            sent = [data for _, data in crowd.sent]
            await until(lambda: all(data in crowd.arrived for data in sent), "the last events")
            peak = sender_peak(site)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        lines = [] if attacker is None else attacker.log.splitlines()
        for service in (witness, attacker):
            if service is not None:
                service.stop()
        await runner.cleanup()
    late = percentile(delays_between(read_delays(folder / "witness"), hostile))
    calm, rough = percentile(crowd.delays(quiet)), percentile(crowd.delays(hostile))
    allowed = max(RATIO * calm, ALLOWED) / (1 - min(foreign, FOREIGN_MAX)) + HOPS * late
    attacks = {entry["attack"]: entry for entry in (json.loads(line) for line in lines if line.startswith('{"attack"'))}
    text = (
        f"hostile callbacks: {len(crowd.delays(hostile))} events of {OWNERS} others, p99 {calm * 1000:.1f} ->"
        f" {rough * 1000:.1f} ms of {allowed * 1000:.0f} (witness {late * 1000:.1f} ms, others use {foreign:.0%});"
        f" sender {peak:.0f} MB"
    )
    return Verdict(calm, rough, allowed, crowd.errors, peak, attacks, site.log, text)


@pytest.fixture(scope="module")
def verdict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verdict]:
    """Figures of one run."""
    with room_for_files(4000), hub_site(CHANGES) as site:
        yield asyncio.run(measure(site, tmp_path_factory.mktemp("callbacks")))


def test_callbacks_of_ordinary_owners_arrive_in_time(verdict: Verdict, tell: Callable[[str], None]) -> None:
    tell(verdict.text)
    assert verdict.hostile <= verdict.allowed, verdict.text


def test_ordinary_owners_get_each_event_once_and_in_order(verdict: Verdict) -> None:
    assert verdict.errors == []


def test_the_sender_lives_in_its_bound(verdict: Verdict) -> None:
    assert verdict.sender <= SENDER_MB, verdict.text
    assert "sender ended" not in verdict.log
    assert [line for line in verdict.log.splitlines() if " ERROR" in line or "Traceback" in line] == []


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_attacks(verdict: Verdict, name: str) -> None:
    assert verdict.attacks[name]["trouble"] == ""
    assert verdict.attacks[name]["did"]


def test_no_callback_leads_to_a_forbidden_place(verdict: Verdict) -> None:
    did = verdict.attacks["refused"]["did"]
    assert set(did) <= {"400", "429"}
    assert did["400"] > 0
    names = verdict.attacks["names"]["did"]
    assert {name for name in names if name.startswith("rests ")} <= {"rests refused-address", "rests unresolved"}
    assert names["rests refused-address"] >= 1


def test_no_redirect_is_followed(verdict: Verdict) -> None:
    assert verdict.attacks["redirects"]["did"].get("followed", 0) == 0
    assert 'saw failure="redirect"' in verdict.attacks["redirects"]["did"]


def test_a_victim_is_asked_seldom(verdict: Verdict) -> None:
    did = verdict.attacks["many"]["did"]
    assert did.get("429", 0) > 0
    # One challenge after the other, with pauses, of at most a hundred subscriptions at a time.
    assert did.get("victim's requests", 0) <= 100 * 3 + 100, did


@pytest.mark.parametrize("name", ["silent", "slow", "endless", "redirects", "resets"])
def test_an_owner_sees_the_class_of_a_failure_only(verdict: Verdict, name: str) -> None:
    seen = {text.removeprefix("saw ") for text in verdict.attacks[name]["did"] if text.startswith("saw ")}
    assert seen - SHOWN == set()
    assert any(text.startswith("failure=") for text in seen), seen


def test_other_processes_of_the_service_live(verdict: Verdict) -> None:
    assert "restarted" not in verdict.log


if __name__ == "__main__":
    # Some attacks only: python -m tests.faults.test_hub_callbacks [NAMES [SECONDS]]
    import tempfile

    with room_for_files(4000), hub_site(CHANGES) as site, tempfile.TemporaryDirectory() as folder:
        chosen, lasting = [*sys.argv[1:], "", ""][:2]
        found = asyncio.run(measure(site, pathlib.Path(folder), chosen, float(lasting or HOSTILE)))
        print(*found.attacks.values(), *found.errors[:20], found.text, sep="\n")
        assert site.service is not None
        print(len(descendants(site.service.process.pid)), "processes")
