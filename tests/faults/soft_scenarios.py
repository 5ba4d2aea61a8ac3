"""Scenarios of short runs with a soft topic, each at a place where a promise is easily broken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from griphub.windows import window
from tests.faults.soft_stage import SoftStage
from tests.support.hub import until
from tests.support.hub_records import Keys, Measured
from tests.support.soft_api import append, progress, reset

__all__ = ["SCENARIOS", "Scenario"]

A_TO_C: Final = Keys("a", "c")
FROM_M: Final = Keys("m", None)

FULL: Final = 100
"""Events of a window in the scenarios in which it is full."""


@dataclass(frozen=True)
class Scenario:
    """Steps of a run.

    Attributes:
        play: carries them out.
        settings: further values of ``[hub]``.
    """

    play: Callable[[SoftStage], Awaitable[None]]
    settings: Mapping[str, str] = field(default_factory=dict)


async def _begin(stage: SoftStage) -> None:
    """Begin with a first version, and watchers of everything and of two ranges."""
    lines = stage.commit(10, "a", "b", "m", "z")
    await stage.give(*lines, progress(10))
    stage.watch("whole", "watch-sse")
    stage.watch("first", "watch-lines", A_TO_C)
    stage.watch("second", "watch-sse", FROM_M)
    await stage.settle()


async def parts(stage: SoftStage) -> None:
    """Two ingesters give their parts of versions one after the other, and in any order."""
    await _begin(stage)
    one, two = stage.commit(20, "a", "z", "-m"), stage.commit(30, "b", "y", "a")
    await stage.give(one[0], *two[::2], progress(30, high="m"))
    stage.progress()
    await stage.settle()
    await stage.give(two[1])
    stage.progress()
    await stage.settle()
    await stage.give(*one[1:], progress(20, low="m"))
    stage.progress()
    await stage.settle()
    await stage.give(progress(30, low="m"))
    three, four = stage.commit(40, "a", "z"), stage.commit(50, "b", "y", "z")
    await stage.give(four[2], *three, *four[:2], progress(50))
    await stage.end()


async def cut(stage: SoftStage) -> None:
    """Progress of a part in the middle of a piece cuts it: what is beside it stays where it was."""
    await _begin(stage)
    lines = stage.commit(20, "a", "n", "p", "z")
    await stage.give(lines[2], progress(20, "p", "q"))
    stage.progress()
    await stage.settle()
    more = stage.commit(30, "n", "o")
    await stage.give(lines[1], *more, progress(30, "n", "p"))
    stage.progress()
    await stage.settle()
    await stage.give(lines[0], lines[3], progress(30))
    await stage.end()


async def begun(stage: SoftStage) -> None:
    """Behind a start an ingester knows its part, and another one does not yet."""
    lines = stage.commit(10, "a", "z")
    await stage.give(lines[0], progress(10, high="m"))
    stage.watch("whole")
    stage.watch("first", "watch-sse", A_TO_C)
    await stage.settle()
    lines = stage.commit(20, "a", "y")
    await stage.give(lines[0], progress(20, high="m"))
    await stage.again()
    await stage.give(lines[1], progress(20, low="m"))
    await stage.end()


async def repeated(stage: SoftStage) -> None:
    """Requests whose answers were lost are sent again, before and after progress."""
    await _begin(stage)
    lines = stage.commit(20, "a", "b", "z")
    for _ in range(2):
        await stage.give(*lines)
    for _ in range(2):
        await stage.give(*lines, progress(20))
        await stage.settle()
    await stage.end()


async def late(stage: SoftStage) -> None:
    """A faulty ingester gives an event that the source does not have, behind the progress that excluded it."""
    await _begin(stage)
    leaving = [stage.watch("leaving", "watch-lines"), stage.watch("leaving second", "watch-sse", FROM_M)]
    await stage.settle()
    for reader in leaving:
        await reader.leave()
    await stage.give(*stage.commit(20, "a", "z"), progress(20))
    response = await stage.give(append("n", 15, "never"))
    if response.status == 409:
        await stage.give(append("n", 15, "never"), progress(20))
    for reader in leaving:
        reader.come_back()
    await stage.end()


async def trimmed(stage: SoftStage) -> None:
    """A full window drops what a watcher that was away needs."""
    await _begin(stage)
    reader = stage.watch("leaving", "watch-lines", A_TO_C)
    await stage.settle()
    await reader.leave()
    for version in range(20, 320, 2):
        await stage.give(*stage.commit(version, "a" if version < 40 else "z"), progress(version))
    stage.soft.measured.append(Measured("events of the window", len(stage.window), FULL))
    reader.come_back()
    await stage.end()


async def lagging(stage: SoftStage) -> None:
    """A window is full of events without progress, and forgets them; progress below them is no promise."""
    await _begin(stage)
    lines = [line for version in range(20, 320, 2) for line in stage.commit(version, "a", "z")]
    await stage.give(*lines[: 2 * FULL + 20])
    await stage.give(progress(100))
    stage.replica = 100
    await stage.again()
    await stage.give(*lines[2 * FULL + 20 :], progress(250))
    await stage.settle()
    await stage.give(progress(318))
    stage.replica = None
    await stage.again()
    await stage.give(*stage.commit(400, "b", "y"), progress(400))
    await stage.end()


async def truncated(stage: SoftStage) -> None:
    """The source loses a range without an event: those who watch it are told."""
    await _begin(stage)
    await stage.give(*stage.commit(20, "a", "z"), progress(20))
    await stage.settle()
    stage.commit(30, truncated=A_TO_C)
    await stage.give(reset("a", "c"), progress(30))
    await stage.again()
    await stage.give(*stage.commit(40, "a", "y"), progress(40))
    await stage.end()


async def reset_late(stage: SoftStage) -> None:
    """A reset whose answer was lost was repeated; its first copy arrives behind later changes."""
    await _begin(stage)
    stage.commit(20, truncated=A_TO_C)
    copy = [reset("a", "c"), progress(20)]
    await stage.give(*copy)
    await stage.again()
    await stage.give(*stage.commit(30, "a"), progress(30))
    ahead = stage.commit(40, "b")
    await stage.give(*ahead)
    await stage.settle()
    await stage.give(*copy)
    stage.replica = 20
    await stage.again()
    await stage.give(progress(40))
    stage.replica = None
    await stage.again()
    await stage.give(*stage.commit(50, "a", "z"), progress(50))
    await stage.end()


async def restored(stage: SoftStage) -> None:
    """The source goes back, and gives versions a second time, while a watcher is away."""
    await _begin(stage)
    reader = stage.watch("leaving", "watch-sse")
    await stage.settle()
    for version in (20, 30, 40):
        await stage.give(*stage.commit(version, "a", "y"), progress(version))
    await stage.settle()
    await reader.leave()
    stage.soft.restored(20)
    await stage.give(reset(), progress(20))
    await stage.again()
    for version in (30, 40, 50):
        await stage.give(*stage.commit(version, "b", "z"), progress(version))
    reader.come_back()
    await stage.end()


async def restarted(stage: SoftStage) -> None:
    """The hub restarts under its watchers, and is given what it has lost."""
    await _begin(stage)
    reader = stage.watch("leaving", "watch-lines")
    await stage.settle()
    await stage.give(*stage.commit(15, "b"), progress(15))
    await stage.settle()
    await reader.leave()
    ahead = stage.commit(20, "a", "z")
    await stage.give(*ahead)
    await stage.restart_hub()
    await stage.give(progress(15))
    reader.come_back()
    await stage.settle()
    await stage.give(*ahead, *stage.commit(30, "b", "y"), progress(30))
    await stage.again()
    await stage.give(*stage.commit(40, "a"), progress(40))
    await stage.end()


async def divided(stage: SoftStage) -> None:
    """More is released than one release may have: it ends between versions."""
    stage.patch.setattr(window, "RELEASE_MAX", 4)
    await _begin(stage)
    lines = [line for version in (20, 30, 40, 50) for line in stage.commit(version, "a", "b", "m", "y", "z")[:3]]
    lines += [append(key, version, f"0.{version}") for version in (20, 30, 40, 50) for key in ("y", "z")]
    await stage.give(*lines, progress(50))
    await stage.end()


async def lost(stage: SoftStage) -> None:
    """An item is lost between the handler and a worker, and progress comes behind it."""
    lines = stage.commit(10, "a")
    await stage.give(*lines, progress(10))
    stage.watch("range", "watch-lines", A_TO_C)
    await stage.settle()
    stage.handler.losses = 1
    await stage.give(*stage.commit(20, "a"), progress(20))
    await until(lambda: not stage.handler.losses, "the loss")
    stage.progress()
    await stage.end()


async def seam(stage: SoftStage) -> None:
    """An event and its progress come between the answer that holds a watcher and the hold."""
    await stage.give(*stage.commit(10, "a"), progress(10))
    for version, name, keys in ((20, "whole", Keys()), (30, "range", A_TO_C)):

        async def meanwhile(version: int = version) -> None:
            items = stage.handler.items
            await stage.give(*stage.commit(version, "a"), progress(version))
            stage.progress()
            if stage.handler.channels:
                await until(lambda: stage.handler.items > items, "the item of the event")

        stage.at_next_hold(meanwhile)
        stage.watch(name, "watch-sse", keys)
        await stage.settle()
    await stage.end()


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "parts": Scenario(parts),
    "cut": Scenario(cut),
    "begun": Scenario(begun),
    "repeated": Scenario(repeated),
    "late": Scenario(late),
    "trimmed": Scenario(trimmed, {"soft_events_per_topic_max": str(FULL)}),
    "lagging": Scenario(lagging, {"soft_events_per_topic_max": str(FULL)}),
    "truncated": Scenario(truncated),
    "reset-late": Scenario(reset_late),
    "restored": Scenario(restored),
    "restarted": Scenario(restarted),
    "divided": Scenario(divided),
    "lost": Scenario(lost),
    "seam": Scenario(seam),
}
"""All scenarios by name."""
