"""One hostile process: attacks that run side by side for some seconds, and a count of what each of them did.

An attack is an asynchronous generator over a Field: it prepares its payload once, and each ``yield`` ends one round.
The process runs at the lowest priority and pauses between rounds, so that the service is hurt by what an attack asks
of it and not by an attacker that takes the processor away.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import uvloop

from tests.faults.hostile.field import Field

__all__ = ["Attack", "Outcome", "assault", "main"]

NICE: Final = 19
"""Lowest priority: the share of the processor is some hundredths where anything else wants it."""

ROUND_PATIENCE: Final = 60.0
"""Seconds that the first round of an attack may take before it counts as stuck."""

Act = Callable[[Field], AsyncIterator[None]]


@dataclasses.dataclass(frozen=True)
class Attack:
    """One attack: ``act`` makes its rounds, with ``every`` seconds between two of them."""

    act: Act
    every: float = 0.5


@dataclasses.dataclass
class Outcome:
    """Result of one attack.

    Completed ``rounds``, counts of what it ``did``, ``breaches`` that it has seen itself, and the ``trouble`` that
    ended it.
    """

    name: str
    rounds: int = 0
    did: Counter[str] = dataclasses.field(default_factory=Counter)
    breaches: list[str] = dataclasses.field(default_factory=list)
    trouble: str = ""

    def line(self) -> str:
        """Return the outcome as one line of JSON."""
        values = {"rounds": self.rounds, "did": self.did, "breaches": self.breaches, "trouble": self.trouble}
        return json.dumps({"attack": self.name} | values)


async def assault(attacks: Mapping[str, Attack], ports: Mapping[str, int], seconds: float) -> list[Outcome]:
    """Run the attacks side by side.

    Args:
        attacks: by name.
        ports: the service's ports by name, and ``hostile``, the port of the backend that the field serves.
        seconds: duration, from when the field's backend serves.

    Returns:
        One outcome for each attack, in their order.
    """
    field = Field(ports)
    await field.open()
    print("attacking", flush=True)
    end = time.monotonic() + seconds
    outcomes = [Outcome(name) for name in attacks]
    try:
        await asyncio.gather(*(_run(attacks[outcome.name], outcome, field, end) for outcome in outcomes))
    finally:
        await field.close()
    return outcomes


async def _run(attack: Attack, outcome: Outcome, field: Field, end: float) -> None:
    """Make rounds until ``end``, in seconds of the monotonic clock, and one at least, however busy the machine is."""
    rounds = attack.act(field.view(outcome.did, outcome.breaches))
    try:
        while not outcome.rounds or time.monotonic() < end:
            patience = ROUND_PATIENCE if not outcome.rounds else end - time.monotonic()
            try:
                async with asyncio.timeout(patience):
                    await anext(rounds)
            except TimeoutError:
                if not outcome.rounds:
                    outcome.trouble = f"the first round took more than {ROUND_PATIENCE:g} s"
                return
            outcome.rounds += 1
            await asyncio.sleep(min(attack.every, max(0.0, end - time.monotonic())))
    except Exception as error:  # noqa: BLE001 - of one attack; reported, and a failure of the run
        outcome.trouble = f"{error!r:.300}"


def main(attacks: Mapping[str, Attack], arguments: list[str] | None = None) -> int:
    """Run the attacks that the command line names; print one outcome a line.

    Args:
        attacks: all there are, by name.
        arguments: of the command line; None: those of the process.

    Returns:
        Never, but for an error: the process ends with status 0, whatever the attacks achieved.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--ports", required=True, help="name=port, separated by commas")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--only", default="", help="names of attacks, separated by commas (default: all)")
    options: Any = parser.parse_args(arguments)
    os.nice(NICE)
    ports = {name: int(port) for name, _, port in (pair.partition("=") for pair in options.ports.split(","))}
    names = options.only.split(",") if options.only else list(attacks)
    chosen = {name: attacks[name] for name in names}

    async def attack() -> None:
        for outcome in await assault(chosen, ports, options.seconds):
            print(outcome.line(), flush=True)
        # What is still open is closed by the kernel: a hostile peer does not say goodbye.
        os._exit(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(attack())
    return 1
