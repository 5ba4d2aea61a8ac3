"""Judge of a run: compares the history of the actual state with that of the desired one. Sans-I/O.

The hub retains both histories, so no worker has to confess anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from griphub import ReceivedEvent


@dataclass(frozen=True, slots=True)
class Write:
    """Event of a topic in the judge's eyes.

    Attributes:
        key: name of the machine.
        version: release that is desired, or is there now.
        time: time of storing, RFC 3339.
        worker: name of the writer; empty in the desired state.
        began: time at which the work for this write was begun, RFC 3339; empty in the desired state.
    """

    key: str
    version: int
    time: str = ""
    worker: str = ""
    began: str = ""

    @classmethod
    def of(cls, event: ReceivedEvent) -> Write:
        """Return the write of an event of either topic."""
        data: dict[str, Any] = event.data
        return cls(
            event.key or "", data["version"], event.time, str(data.get("worker", "")), str(data.get("began", ""))
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Anomalies of a run, as writes.

    Attributes:
        asked: number of changes of the desired state.
        written: number of writes of the actual state.
        skipped: desired states that were never carried out. A queue has lost these steps; a reconciler may skip all
            but the last one of a machine.
        repeated: writes of a release that the machine had already.
        overwritten: writes of an older release over a newer one, with the newest write before it.
        wrong: desired states of machines whose last write is another one, or is missing.
    """

    asked: int
    written: int
    skipped: tuple[Write, ...]
    repeated: tuple[Write, ...]
    overwritten: tuple[tuple[Write, Write], ...]
    wrong: tuple[Write, ...]

    def anomalies(self, *, steps: bool) -> int:
        """Return the number of anomalies.

        Args:
            steps: whether each change of the desired state is a step, to be carried out: then skipped ones count.
        """
        return len(self.repeated) + len(self.overwritten) + len(self.wrong) + (len(self.skipped) if steps else 0)


def judge(desired: Sequence[Write], actual: Sequence[Write]) -> Verdict:
    """Return the verdict about a run.

    Args:
        desired: changes of the desired state, in order. The releases of a machine increase.
        actual: writes of the actual state, in order.
    """
    newest: dict[str, Write] = {}
    repeated: list[Write] = []
    overwritten: list[tuple[Write, Write]] = []
    for write in actual:
        before = newest.get(write.key)
        if before is not None and write.version < before.version:
            overwritten.append((write, before))
            continue
        if before is not None and write.version == before.version:
            repeated.append(write)
        newest[write.key] = write
    done = {(write.key, write.version) for write in actual}
    skipped = [wish for wish in desired if (wish.key, wish.version) not in done]
    last = {write.key: write.version for write in actual}
    goals = {wish.key: wish for wish in desired}
    wrong = [wish for wish in goals.values() if last.get(wish.key) != wish.version]
    return Verdict(len(desired), len(actual), tuple(skipped), tuple(repeated), tuple(overwritten), tuple(wrong))
