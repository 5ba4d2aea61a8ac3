"""Caches whose ranges move: what they give together is a state that was, and broken on purpose they are caught."""

from __future__ import annotations

import asyncio

import pytest

from griphub.client.key_range import KeyRange
from griphub.client.snapshot_cache import SnapshotCache
from griphub.client.stitched import NotKnown
from tests.faults.cache_mutants import MUTANTS, PROMISE
from tests.support.hub_history import Finding, judge
from tests.support.hub_recorder import Recorder
from tests.support.hub_records import WHOLE, Event
from tests.support.small_hub import EPOCH
from tests.support.watch_hub import WatchHub, watch_hub

DEADLINE = 30.0
READER = "caches"
LEFT, RIGHT = KeyRange("", "m"), KeyRange("m", None)


async def moved(hub: WatchHub, recorder: Recorder) -> None:
    """Move the keys up to m from one cache to another, with changes before the move, during it, and behind it."""
    hub.commit(a=1, b=1, c=1, y=1, z=1)
    async with SnapshotCache(hub.url, "t") as old, SnapshotCache(hub.url, "t") as new:
        old.add()

        async def look(*caches: SnapshotCache) -> None:
            """Read everything at the newest version, as soon as it is known."""
            first, *others = caches
            cursor = hub.progress()
            async with asyncio.timeout(DEADLINE):
                recorder.viewed(READER, await first.wait([KeyRange()], others=others, at_least=cursor))

        await look(old)
        hub.commit(b=None, y=2)
        await look(old)
        # The old owner does not hear of these: the knowledge that it hands over is that of a moment ago.
        hub.mute = True
        hub.commit(a=2, c=None, z=2)
        hub.commit(d=2)
        known = old.regions()
        old.assign([RIGHT])
        new.assign([LEFT], known)
        view = new.read([LEFT])
        if not isinstance(view, NotKnown):
            recorder.viewed(READER, view)
        hub.mute = False
        await look(new, old)
        hub.commit(a=3, d=None, y=None)
        await look(new, old)


async def play(mutant: str | None, patch: pytest.MonkeyPatch) -> list[Finding]:
    """Return the findings of a run, of the real caches if there is no mutant."""
    async with watch_hub() as hub:
        if mutant is not None:
            MUTANTS[mutant](patch, hub)
        recorder = Recorder("t")
        recorder.reader(READER, WHOLE)
        await moved(hub, recorder)
        history = recorder.history
        for event in hub.topics["t"].events:
            ids = (int(event["id"]), int(event["prev_id"]), int(event["version"]))
            history.store.append(Event(*ids, 0, str(event.get("data")), event["key"], event["op"]))
        history.newest, history.epochs, history.complete = hub.newest, [EPOCH], {READER}
        return judge(history).get(PROMISE, [])


@pytest.mark.parametrize("mutant", [None, *MUTANTS])
def test_caches_give_states_that_were_unless_they_are_broken(
    mutant: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = asyncio.run(play(mutant, monkeypatch))
    assert bool(findings) == (mutant is not None), findings
