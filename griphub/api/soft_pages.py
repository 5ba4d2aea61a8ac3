"""Pages of soft topics: replay from the window, then a place in the chain of a range, as one sequence (the seam).

Place and chain are read in one turn of the loop, so that no item can come between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from griphub.access.owner import linked_reader
from griphub.api.context import Context
from griphub.api.problem import Cause, Gone, limited, unavailable
from griphub.api.soft_feed import SoftFeed
from griphub.api.soft_problems import limit_reached
from griphub.api.soft_query import Place
from griphub.api.turns import Turns
from griphub.store.topic import Topic
from griphub.topics.channel_index import LEASE, HeldRange
from griphub.topics.event_text import Representation, render_text
from griphub.topics.ranges import key_range
from griphub.windows.bounds import WindowLimit
from griphub.windows.decisions import Start, StartKind
from griphub.windows.event_texts import event_text, position_of, reference_text
from griphub.windows.positions import Position
from griphub.windows.soft_event import complete
from griphub.windows.span import Span
from griphub.windows.window import Window

__all__ = ["PAGE_BYTES", "PAGE_EVENTS", "SoftFollower", "SoftPage", "SoftPages"]

PAGE_EVENTS: Final = 500
"""Events of a page: rendering them takes some milliseconds."""

PAGE_BYTES: Final = 500_000
"""Bytes of texts after which a page ends; its last event may have a megabyte more."""

SETTLE_TURNS: Final = 1000
"""Turns of windows for which an answer waits until the followers of its range have reached its place."""

PAGES_WAITING: Final = 4000
OWNER_PAGES_WAITING: Final = 1000
"""Pages that wait for a turn, of all owners and of one."""


@dataclass(frozen=True, slots=True)
class SoftFollower:
    """One request to watch a soft topic, resolved.

    Attributes:
        topic: the topic.
        span: range of keys.
        representation: form of the contents.
        place: place behind which events are wanted; None for now.
        owner: key of the owner, for the bounds; empty for a link.
        rights_end: time at which its rights end, in seconds since 1970; 0 for never.
        announced: whether progress is given behind the last page: the beginning of a watch.
        link_base: relative path from the request to the links of the hub.
        turn: number of the owner in whose turn a linked page is read; None for a request with an owner.
    """

    topic: Topic
    span: Span
    representation: Representation
    place: Place | None
    owner: str
    rights_end: int
    announced: bool = False
    link_base: str = "../../follow/"
    turn: int | None = None

    @property
    def reader(self) -> str:
        """Text that names the owner whose pages wait in one queue."""
        if self.owner:
            return self.owner
        return f"topic {self.topic.number}" if self.turn is None else linked_reader(self.turn)


@dataclass(frozen=True, slots=True)
class SoftPage:
    """Part of a replay.

    Attributes:
        texts: events in the frame of the representation.
        last: position of the last one; None without events.
        held: range of the follower, at whose ``mark`` it is held if nothing more follows.
        more: whether further events follow.
        progress: position up to which everything was given, with the last page of a new watch; else None.
    """

    texts: list[bytes]
    last: Position | None
    held: HeldRange
    more: bool
    progress: Position | None


class SoftPages:
    """Pages of followers.

    Args:
        context: parts of the hub.
        feed: windows of the soft topics.
    """

    def __init__(self, context: Context, feed: SoftFeed) -> None:
        self._context = context
        self._feed = feed
        self._turns = Turns("watches of soft topics", PAGES_WAITING, OWNER_PAGES_WAITING)

    async def read(self, follower: SoftFollower, size: int = PAGE_BYTES) -> SoftPage:
        """Read the next page of a follower.

        Args:
            follower: the follower.
            size: bytes of texts after which the page ends.

        Raises:
            Problem: 410, the place is not one to read from; 429, a bound was reached; 503.
        """
        for _ in range(SETTLE_TURNS):
            await self._turns.next(follower.reader)
            if self._context.topics.numbered(follower.topic.number) is None:
                raise self._gone(follower, "the topic was deleted", "deleted", None)
            try:
                window = self._feed.window(follower.topic)
                start = self._start(window, follower)
                if start.kind is not StartKind.KNOWN:
                    raise self._refusal(follower, start, window)
                held = self._enter(window, follower)
            except WindowLimit as error:
                raise limit_reached(error) from error
            released = window.released(follower.span)
            assert released is not None
            if _version(follower.place) <= released:
                return self._page(window, held, released, follower, size)
            # Its range is behind: others have it since before the progress that this follower has.
            self._feed.wake(follower.topic)
            await self._feed.turned()
        raise unavailable("the followers of this range are far behind the source: repeat the request")

    def _start(self, window: Window, follower: SoftFollower) -> Start:
        place, span = follower.place, follower.span
        if isinstance(place, Position):
            return window.resume(span, place)
        if place is not None:
            return window.start(span, place)
        progress = window.progress(span)
        return Start(StartKind.UNKNOWN if progress is None else StartKind.KNOWN, None, progress)

    def _enter(self, window: Window, follower: SoftFollower) -> HeldRange:
        """Return the range of a follower, in the index, followed by the window."""
        context, number, span = self._context, follower.topic.number, follower.span
        keys = key_range(*span.bounds)
        held = context.index.range(number, keys)
        if held is None:
            most = context.config.ranges_per_topic_max
            if context.index.ranges(number) >= most:
                raise limited(f"no more than {most}: ranges_per_topic_max", "ranges_per_topic_max", most)
            if keys.keyed:
                context.quotas.take("ranges", follower.owner)
            try:
                window.follow(span)
            except WindowLimit:
                if keys.keyed:
                    context.quotas.give("ranges", follower.owner)
                raise
            held = context.index.enter(number, keys, 0, 0, follower.owner)
            tail = window.tail(span, self._feed.now)
            assert tail is not None, "the start was known"
            held.mark, held.marked = str(tail), tail.version
        elif _version(follower.place) > (window.released(span) or 0):
            window.follow(span)
        end = float(follower.rights_end or "inf")
        context.index.lease(held, follower.representation, context.now() + LEASE, end)
        self._feed.watch(follower.topic, held)
        return held

    def _page(self, window: Window, held: HeldRange, released: int, follower: SoftFollower, size: int) -> SoftPage:
        place = follower.place
        after = complete(released) if place is None else place.place if isinstance(place, Position) else complete(place)
        events = window.read(follower.span, after, released, PAGE_EVENTS + 1)
        texts: list[bytes] = []
        whole, last = 0, None
        for event in events[:PAGE_EVENTS]:
            text = event_text(event, window.epoch)
            form = follower.representation.frame
            if form is Representation.WS and len(text) > self._context.config.ws_content_max:
                text = reference_text(event, window.epoch, len(text))
            last = position_of(event, window.epoch)
            texts.append(render_text(text, str(last), form))
            whole += len(texts[-1])
            if whole >= size:
                break
        more = len(texts) < len(events)
        progress = window.tail(follower.span, self._feed.now) if follower.announced and not more else None
        return SoftPage(texts, last, held, more, progress)

    # --- loss

    def _refusal(self, follower: SoftFollower, start: Start, window: Window) -> Gone:
        """Return the problem of a place from which a follower cannot read."""
        low, high = follower.span.bounds
        keys = "" if low is None and high is None else " of this range"
        reasons: dict[StartKind, tuple[Cause, str]] = {
            StartKind.BELOW: ("floor", f"events{keys} up to version {start.floor} are not retained"),
            StartKind.ABOVE: ("unknown", f"the source has given everything{keys} up to version {start.progress} only"),
            StartKind.EPOCH: ("unknown", "the place is one of before a restart of the hub or a reset by the source"),
            StartKind.UNKNOWN: ("unknown", f"the source has given no progress yet for all{keys or ' keys'}"),
        }
        cause, reason = reasons[start.kind]
        # A place of another epoch is compared with no floor, which the follower needs to begin anew.
        floor = window.floor(follower.span)
        return self._gone(follower, f"{reason}: read a snapshot of the source and watch from its version", cause, floor)

    def _gone(self, follower: SoftFollower, reason: str, cause: Cause, floor: Position | None) -> Gone:
        self._context.counters.gone += 1
        extra = {
            "floor": None if floor is None else str(floor.version),
            "floor_cursor": None if floor is None else str(floor),
            "oldest_time": None,
            "snapshot": "snapshot" if follower.topic.settings.snapshot_url and cause != "deleted" else None,
        }
        return Gone(cause, reason, extra)


def _version(place: Place | None) -> int:
    """Return the version behind which a place lies; 0 for now."""
    if place is None:
        return 0
    return place.version if isinstance(place, Position) else place
