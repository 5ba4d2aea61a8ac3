"""A hostile run: 500 ordinary reliable clients, and beside them a hostile publisher, client and backend in turn.

``python -m tests.faults.hostile.run --seconds 60`` (``make soak``) prints what each attack did, and ends with status 1
if ordinary clients noticed anything: items later than the limit, a disconnect, a guarantee broken, a process killed,
or more memory used than the configuration allows.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import uvloop

from gripproxy.cli.footprint import footprints
from gripproxy.config import load_config
from tests.e2e.crowd import room_for_files
from tests.faults.crew import Crew
from tests.faults.history import History
from tests.faults.hostile.arena import ORDINARY, ROLES, Arena
from tests.faults.hostile.processor import foreign_share, usage
from tests.faults.hostile.verdict import Phase, delays_between, disconnects, latencies, limit, percentile
from tests.faults.validators import Case, Terms, judge

__all__ = ["Report", "Scale", "run"]

FORMS: Final = ("stream", "poll", "socket")
"""Kinds of ordinary clients, all of them reliable, as many of each."""

WAYS: Final = ("http", "pull", "sub", "rep")
"""Ways in of the ordinary publishers, one of each."""

CONVERGE: Final = 30.0
"""Seconds in which all clients must have all items when the attack is over."""

MARGIN: Final = 0.5
"""Seconds at the end of a phase whose items are not judged by it: the next phase begins then."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """Size of a run.

    Ordinary ``clients``, ``channels``, items per second of each of four publishers (``rate``), ``quiet`` seconds
    before the attacks, ``seconds`` of each attack, and the ``roles`` that attack, one after the other. ``only``
    names attacks; none: all. ``converge`` seconds after the attacks all clients must have all items.
    """

    clients: int = 500
    channels: int = 20
    rate: float = 5.0
    quiet: float = 5.0
    seconds: float = 10.0
    roles: tuple[str, ...] = ROLES
    only: tuple[str, ...] = ()
    converge: float = CONVERGE
    settings: Mapping[str, Mapping[str, object]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Verdict:
    """Figures of one phase.

    Items ``delivered``, 99th percentiles in seconds of their lateness and of the witness's, the share of the machine
    that others used (``foreign``), the lateness ``allowed``, sessions that were ``cut``, memory ``peaks`` in bytes by
    process, and what each attack did.
    """

    name: str
    delivered: int
    late: float
    witness: float
    foreign: float
    allowed: float
    cut: list[str]
    peaks: dict[str, int]
    attacks: list[dict[str, Any]]

    def __str__(self) -> str:
        peaks = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in self.peaks.items())
        return (
            f"{self.name}: {self.delivered} deliveries, p99 {self.late * 1000:.0f} ms of {self.allowed * 1000:.0f} ms"
            f" (witness {self.witness * 1000:.1f} ms, others use {self.foreign:.0%} of the machine),"
            f" {len(self.cut)} cut; {peaks}"
        )


@dataclasses.dataclass
class Report:
    """Everything a run found.

    A verdict for each phase, ``findings`` of the validators, ``trouble`` in logs, processes that were ``replaced``,
    publishers' items that were ``failed``, and the ``bounds`` in bytes by process.
    """

    verdicts: dict[str, Verdict]
    findings: list[str]
    trouble: list[str]
    replaced: list[str]
    failed: list[str]
    bounds: dict[str, int]

    def complaints(self, role: str) -> list[str]:
        """Return what a hostile peer of this role has achieved, which is nothing if all is well."""
        verdict = self.verdicts[role]
        found = [f"disconnected: {line}" for line in verdict.cut[:20]]
        if verdict.late > verdict.allowed:
            found.append(f"late: {verdict}")
        found += [f"{attack['attack']}: {breach}" for attack in verdict.attacks for breach in attack["breaches"]]
        for name, peak in verdict.peaks.items():
            bound = self.bounds[name.split(" ")[0]]
            if peak > bound:
                found.append(f"{name} used {peak} bytes, its bound is {bound}")
        return found

    def idle(self, role: str) -> list[str]:
        """Return the attacks that have not attacked, and why."""
        attacks = self.verdicts[role].attacks
        return [str(attack) for attack in attacks if attack["trouble"] or not attack["rounds"] or not attack["did"]]

    def general(self) -> list[str]:
        """Return the complaints that concern the whole run."""
        return [*self.findings, *self.trouble, *self.replaced, *self.failed]


async def run(
    folder: pathlib.Path, scale: Scale, mutant: str = "", progress: Callable[[str], None] = lambda line: None
) -> Report:
    """Run it.

    Args:
        folder: takes the files of all processes.
        scale: size.
        mutant: what is broken on purpose, empty for nothing.
        progress: gets a line for each phase.
    """
    history = History()
    arena = Arena(folder, history, mutant, scale.settings)
    bounds: dict[str, int] = {}
    phases: list[Phase] = []
    attacks: dict[str, list[dict[str, Any]]] = {}
    foreign: dict[str, float] = {}
    peaks: dict[str, dict[str, int]] = {}
    settled: dict[str, int] = {}
    try:
        await asyncio.to_thread(arena.start)
        bounds = {name: bound.total for name, bound in footprints(load_config(str(arena.config))).items()}
        begun = arena.children()
        crew = Crew(arena.ports["client"], history, 1)
        channels = [f"{ORDINARY}-{number}" for number in range(scale.channels)]
        try:
            for number in range(scale.clients):
                crew.add(FORMS[number % len(FORMS)], [channels[number // len(FORMS) % scale.channels]], control=True)
            for number, way in enumerate(WAYS):
                arena.start_publisher(way, way, channels[number :: len(WAYS)], scale.rate)
            assert await _all_got(crew, scale.clients), crew.complaints()
            for name in ("quiet", *scale.roles):
                seconds = scale.quiet if name == "quiet" else scale.seconds
                before = usage()
                phase, outcomes = await _phase(arena, crew, name, seconds, scale.only)
                phases.append(phase)
                foreign[name] = foreign_share(before, usage())
                attacks[name], peaks[name] = outcomes, arena.peaks()
                progress(f"{name}: {len(history)} records, {seconds:g} s")
            await asyncio.to_thread(arena.stop_publishers)
            for channel in channels:
                await asyncio.to_thread(arena.publish, channel)
            settled = arena.lengths(channels)
            await crew.converge(settled, scale.converge)
            history.add("stage", "phase", "stop")
            ended = arena.children()
        finally:
            await crew.leave()
    finally:
        await asyncio.to_thread(arena.close)
    history.merge(arena.diaries())
    case = Case(history, settled, crew.facts, Terms(deadline=scale.seconds + CONVERGE))
    findings = [str(finding) for found in judge(case).values() for finding in found]
    quiet = percentile(latencies(history, phases[0]))
    delays = arena.delays()
    verdicts = {}
    for phase in phases:
        late = latencies(history, phase)
        witness = percentile(delays_between(delays, phase))
        verdicts[phase.name] = Verdict(
            phase.name,
            len(late),
            percentile(late),
            witness,
            foreign[phase.name],
            limit(quiet, witness, foreign[phase.name]),
            disconnects(history, phase),
            peaks[phase.name],
            attacks[phase.name],
        )
    replaced = [
        f"{name} was process {pid}, is {ended.get(name)}" for name, pid in begun.items() if ended.get(name) != pid
    ]
    failed = [
        f"{record.who} could not publish item {record.values[1]} of {record.values[0]}"
        for record in history.select("published")
        if record.values[2] == "failed"
    ]
    return Report(verdicts, findings, arena.trouble, replaced, failed, bounds)


async def _all_got(crew: Crew, number: int) -> bool:
    """Return once every client has got an item; false if they do not in time."""
    deadline = time.monotonic() + 60
    while any(not any(client.last.values()) for client in crew.clients.values()):
        if time.monotonic() > deadline:
            return False
        crew.check()
        await asyncio.sleep(0.1)
    return True


async def _phase(
    arena: Arena, crew: Crew, name: str, seconds: float, only: tuple[str, ...]
) -> tuple[Phase, list[dict[str, Any]]]:
    if name == "quiet":
        begun = time.monotonic()
        await asyncio.sleep(seconds)
        crew.check()
        return Phase(name, begun, time.monotonic() - MARGIN), []
    attacker = await asyncio.to_thread(arena.attack, name, seconds, only)
    begun = time.monotonic()
    while attacker.process.poll() is None:
        await asyncio.sleep(0.2)
        crew.check()
        assert time.monotonic() < begun + seconds + 60, f"{attacker.command} does not end:\n{attacker.log}"
    ended = time.monotonic()
    outcomes = await asyncio.to_thread(arena.outcomes, attacker)
    # What the attack has left behind still belongs to it.
    await asyncio.sleep(2 * MARGIN)
    return Phase(name, begun, ended), outcomes


def main(arguments: list[str] | None = None) -> int:
    """Run once; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each attack")
    parser.add_argument("--quiet", type=float, default=10.0, help="seconds before the attacks")
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--roles", default=",".join(ROLES), help="who attacks, separated by commas")
    parser.add_argument("--only", default="", help="names of attacks of one role, separated by commas (default: all)")
    parser.add_argument("--mutant", default="", help="what is broken on purpose")
    options = parser.parse_args(arguments)
    scale = Scale(
        clients=options.clients,
        quiet=options.quiet,
        seconds=options.seconds,
        roles=tuple(options.roles.split(",")),
        only=tuple(options.only.split(",")) if options.only else (),
    )
    with (
        tempfile.TemporaryDirectory(prefix="gripproxy-hostile-") as folder,
        room_for_files(4 * options.clients + 1000),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        report = runner.run(run(pathlib.Path(folder), scale, options.mutant, lambda line: print(line, flush=True)))
    complaints = report.general()
    for role, verdict in report.verdicts.items():
        for attack in verdict.attacks:
            print(f"  {attack['attack']}: {attack['rounds']} rounds, {attack['did']} {attack['trouble']}")
        print(verdict)
        complaints += report.complaints(role) + report.idle(role)
    for complaint in complaints:
        print(complaint)
    print("bounds: " + ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in report.bounds.items()))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
