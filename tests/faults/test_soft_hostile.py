"""One owner of soft topics at all of their bounds, beside 200 ordinary owners, who get no error and lose nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from tests.e2e.crowd import room_for_files
from tests.faults.hub_owner_tokens import KEY
from tests.faults.soft_hostile_attacks import ATTACKS, WINDOWS
from tests.faults.test_hub_owner import HOSTILE, MEMORY, OWNERS, Verdict, measure
from tests.support.hub import hub_site

SOFT: Final = OWNERS // 4
"""Ordinary owners whose topic is a soft one as well."""

CHANGES: Final = {
    "hub.hub_key": KEY,
    "hub.hub_anonymous": "none",
    "hub.soft_topics_per_owner_max": str(WINDOWS),
    "hub.ranges_per_owner_max": "300",
    "proxy.client_head_timeout": "5",
    "proxy.client_body_timeout": "5",
}
"""Bounds that one owner reaches in some seconds."""

BOUNDS: Final = {**MEMORY, "hub": 500}
"""Megabytes that each process may have at most: the windows of one owner have up to 128 MB of events."""

RUNS: Final = {
    "lines": ("lines", "waiting", "pieces"),
    "values": ("resets", "extremes", "bad", "torn", "fill"),
    "watchers": ("replays", "ranges", "told"),
}
"""Attacks of each run: those that load the same part of a process together."""

LIMITED: Final = {"fill": "429", "waiting": "429", "ranges": "429", "bad": "400", "extremes": "400"}
"""Status that each of these attacks must have got, among others."""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Verdict]:
    """Figures of each run."""
    found = {}
    for run, names in RUNS.items():
        with room_for_files(8000), hub_site(CHANGES) as site:
            work = measure(
                site, tmp_path_factory.mktemp(run), ",".join(names), HOSTILE, "tests.faults.soft_hostile_attacks", SOFT
            )
            found[run] = asyncio.run(work)
    return found


def attack_of(verdicts: Mapping[str, Verdict], name: str) -> dict[str, Any]:
    """Return what an attack has got."""
    return next(verdict.attacks[name] for verdict in verdicts.values() if name in verdict.attacks)


@pytest.mark.parametrize("run", RUNS)
def test_ordinary_owners_get_no_error(verdicts: Mapping[str, Verdict], run: str, tell: Callable[[str], None]) -> None:
    tell(f"soft topics, {run}: {verdicts[run].text}")
    assert verdicts[run].errors == []


@pytest.mark.parametrize("run", RUNS)
def test_ordinary_owners_are_served_in_time(verdicts: Mapping[str, Verdict], run: str) -> None:
    verdict = verdicts[run]
    assert verdict.stored[1] <= verdict.allowed[0], verdict.text
    assert verdict.arrived[1] <= verdict.allowed[1], verdict.text


@pytest.mark.parametrize("run", RUNS)
def test_every_process_lives_in_its_bound(verdicts: Mapping[str, Verdict], run: str) -> None:
    verdict = verdicts[run]
    assert verdict.replaced == []
    assert verdict.trouble == []
    assert {name: size for name, size in verdict.peaks.items() if size > BOUNDS.get(name.split(" ")[0], 200)} == {}


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_attacks(verdicts: Mapping[str, Verdict], name: str) -> None:
    attack = attack_of(verdicts, name)
    assert attack["trouble"] == ""
    assert attack["did"], attack


@pytest.mark.parametrize(("name", "status"), LIMITED.items())
def test_a_limit_is_reached(verdicts: Mapping[str, Verdict], name: str, status: str) -> None:
    attack = attack_of(verdicts, name)
    assert attack["did"].get(status, 0) > 0, attack


if __name__ == "__main__":
    # Some attacks only: python -m tests.faults.test_soft_hostile [NAMES [SECONDS]]
    import pathlib
    import tempfile

    with room_for_files(8000), hub_site(CHANGES) as site, tempfile.TemporaryDirectory() as folder:
        chosen, lasting = [*sys.argv[1:], "", ""][:2]
        seconds = float(lasting or HOSTILE)
        found = asyncio.run(
            measure(site, pathlib.Path(folder), chosen, seconds, "tests.faults.soft_hostile_attacks", SOFT)
        )
        print(*found.attacks.values(), *found.errors[:20], *found.trouble[:20], *found.replaced, found.text, sep="\n")
        print(len(found.errors), "errors")
