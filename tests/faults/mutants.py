"""gripproxy broken on purpose, one guarantee at a time, so that the validators can be seen to notice.

Each mutant changes classes of gripproxy in the process that calls it; tests.faults.launcher does that in workers. What
it does to one item it does to item TARGET of each channel.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from gripproxy.delivery.channel_table import ChannelTable
from gripproxy.delivery.fanout import Fanout
from gripproxy.grip.response import chunk
from gripproxy.sessions.context import SessionContext
from gripproxy.sessions.recovery import Recovery
from gripproxy.sessions.stream import StreamHold

__all__ = ["GUARANTEES", "MUTANTS", "TARGET"]

TARGET: Final = 6
"""Number of the item that something is done to."""


def _number(content: bytes) -> int:
    found = re.search(rb"data: \S+ (\d+) ", content)
    return int(found[1]) if found else 0


def swaps_two() -> None:
    """An item is written after its successor."""
    write = StreamHold.filtered
    kept: dict[StreamHold, bytes] = {}

    def filtered(self: StreamHold, item: Any, content: bytes) -> None:
        if _number(content) == TARGET:
            kept[self] = content
            return
        write(self, item, content)
        if self in kept:
            write(self, item, kept.pop(self))

    StreamHold.filtered = filtered  # type: ignore[method-assign]


def delivers_one_twice() -> None:
    """An item is written twice."""
    write = StreamHold.filtered

    def filtered(self: StreamHold, item: Any, content: bytes) -> None:
        write(self, item, content)
        if _number(content) == TARGET:
            write(self, item, content)

    StreamHold.filtered = filtered  # type: ignore[method-assign]


def drops_one() -> None:
    """An item is not written, as if it had been."""
    write = StreamHold.filtered

    def filtered(self: StreamHold, item: Any, content: bytes) -> None:
        if _number(content) != TARGET:
            write(self, item, content)

    StreamHold.filtered = filtered  # type: ignore[method-assign]


def forgets_the_window() -> None:
    """Nobody looks whether something was published while the backend was answering."""
    ChannelTable.conflict = lambda self, subscription: None  # type: ignore[method-assign]


def skips_recovery() -> None:
    """The backend is never asked for what is missing."""
    Recovery.granted = lambda self: None  # type: ignore[method-assign]


def stalls_all_for_one() -> None:
    """While one client does not read nobody gets anything."""
    blocked, writable, take = StreamHold.on_blocked, StreamHold.on_writable, Fanout.item
    stalled: set[StreamHold] = set()
    waiting: list[tuple[Fanout, Any]] = []

    def on_blocked(self: StreamHold) -> None:
        stalled.add(self)
        blocked(self)

    def on_writable(self: StreamHold) -> None:
        stalled.discard(self)
        writable(self)
        while waiting and not stalled:
            take(*waiting.pop(0))

    def take_or_not(self: Fanout, item: Any) -> None:
        if stalled:
            waiting.append((self, item))
        else:
            take(self, item)

    StreamHold.on_blocked = on_blocked  # type: ignore[method-assign]
    StreamHold.on_writable = on_writable  # type: ignore[method-assign]
    Fanout.item = take_or_not  # type: ignore[method-assign]


def hoards() -> None:
    """What waits for a client that does not read has no limit."""
    make = SessionContext.__init__

    def init(self: SessionContext, *args: Any, **named: Any) -> None:
        make(self, *args, **named)
        self.buffer_max = 2**60

    SessionContext.__init__ = init  # type: ignore[method-assign]


def misdelivers() -> None:
    """An item goes to sessions of another channel too."""
    write = StreamHold.filtered

    def filtered(self: StreamHold, item: Any, content: bytes) -> None:
        write(self, item, content)
        if _number(content) == TARGET:
            for channel in self.context.table.all():
                for other in channel.members():
                    if isinstance(other, StreamHold) and channel.name != item.channel:
                        other.transport.write(chunk(content))

    StreamHold.filtered = filtered  # type: ignore[method-assign]


MUTANTS: Final[dict[str, Callable[[], None]]] = {
    "swaps-two": swaps_two,
    "delivers-one-twice": delivers_one_twice,
    "drops-one": drops_one,
    "forgets-the-window": forgets_the_window,
    "skips-recovery": skips_recovery,
    "stalls-all-for-one": stalls_all_for_one,
    "hoards": hoards,
    "misdelivers": misdelivers,
}
"""All mutants by name."""

GUARANTEES: Final[dict[str, str]] = {
    "swaps-two": "ordered",
    "delivers-one-twice": "unique",
    "drops-one": "gap-free",
    "forgets-the-window": "no-window",
    "skips-recovery": "resumable",
    "stalls-all-for-one": "isolated",
    "hoards": "bounded",
    "misdelivers": "addressed",
}
"""Which guarantee each of them breaks."""
