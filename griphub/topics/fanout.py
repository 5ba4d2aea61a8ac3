"""Fan-out of stored events: one item for each channel with followers. Sans-I/O.

Events are taken in the order of their commits. Each turn makes items for a bounded number of ranges, so that an event
that lies in very many of them does not stall the process; events behind it wait. ``newest`` is the id up to which
everything is done: answers to followers end there, and ranges enter the index there.

Progress is an item of the same chain, made here too: it cannot overtake an event that waits, and goes no further than
the events that were fanned out to its range.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from griphub.store.event import Event
from griphub.store.interface import KeyRange
from griphub.topics.channel_index import UNKNOWN, ChannelIndex, HeldRange
from griphub.topics.event_text import Epochs, Representation, event_json, progress_text, render_text
from griphub.topics.items import hint_item, move_item, page_item, stream_item
from griphub.topics.ranges import bounds_query

__all__ = ["EVENTS_MAX", "SLICE", "SLICE_BYTES", "WAITING_MAX", "FanOut"]

SLICE: Final = 1000
"""Ranges for which a turn makes items."""

MATCHES: Final = 20_000
"""Ranges that a turn finds for events."""

SLICE_BYTES: Final = 4_000_000
"""Bytes of items after which a turn ends."""

WAITING_MAX: Final = 64_000_000
"""Bytes of events that wait for their turn, beyond which their topics' followers get a hint in place of items."""

EVENT_COST: Final = 400
"""Bytes that an event counts for beside its content."""

EVENTS_MAX: Final = 50
"""Events of one publication that a channel gets as items; more are one hint."""


@dataclass(slots=True)
class _Transaction:
    """Events of one publication that wait, or whose items are being made."""

    number: int
    events: Sequence[Event]
    last: int
    """Id of the last event."""
    size: int
    """Bytes that its events count for."""
    whole: bool
    """False if further events of its version follow: it is read from the store in parts."""
    matched: int = 0
    """Events whose ranges have been found."""
    found: dict[HeldRange, list[Event]] = field(default_factory=dict)
    """Ranges of those events, until all are found."""
    ranges: deque[tuple[HeldRange, list[Event]]] | None = None
    """Ranges that are left, each with its events; None until all are found."""


@dataclass(slots=True)
class _Texts:
    """Texts of the events of a transaction, each made once."""

    epochs: Epochs
    texts: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def json(self, event: Event, prev_id: int) -> bytes:
        known = self.texts.get((event.id, prev_id))
        if known is None:
            known = self.texts[event.id, prev_id] = event_json(event, prev_id, self.epochs)
        return known


class FanOut:
    """Makes items of events.

    Args:
        index: channels with followers.
        epochs: epochs of the store.
        publish: called with channel and item.
        newest: the store's newest id.
        content_max: bytes of an event's text beyond which followers get a hint in its place.
        publish_progress: called with channel and item of progress; None for ``publish``.
        bare_hints: whether hints have no ids. Pushpin counts a hint with an id as had: asked again, the hub would be
            given the place behind the events that the hint stands for.
    """

    def __init__(
        self,
        index: ChannelIndex,
        epochs: Epochs,
        publish: Callable[[str, bytes], None],
        newest: int,
        content_max: int,
        *,
        publish_progress: Callable[[str, bytes], None] | None = None,
        bare_hints: bool = False,
    ) -> None:
        self._index = index
        self._epochs = epochs
        self._publish = publish
        self._publish_progress = publish_progress or publish
        self._content_max = content_max
        self._bare_hints = bare_hints
        self._waiting: deque[_Transaction] = deque()
        self._size = 0
        """Bytes that the waiting events count for."""
        self._expected = newest
        self._whole = True
        """False while ``newest`` lies within a version."""
        self._lasts: dict[int, int] = {}
        """Id of the last event that was added, by topic number."""
        self.newest = newest
        """Id up to which items of all events have been made."""
        self.whole = newest
        """Version up to which items of all events have been made."""
        self.items = 0
        """Items made since the start."""
        self.hints = 0
        """Hints made in place of events, since the start."""
        self.progressed = 0
        """Items of progress, since the start."""
        self.bytes = 0
        """Bytes of the items, since the start."""

    @property
    def added(self) -> int:
        """Id of the newest event that was added."""
        return self._waiting[-1].last if self._waiting else self.newest

    @property
    def stored(self) -> int:
        """Id of the newest event that is known to be stored."""
        return max(self.added, self._expected)

    def last(self, number: int) -> int | None:
        """Return the id of the last event of a topic among those that were added.

        Args:
            number: of the topic.

        Returns:
            The id; None if none of its events was added since the start.
        """
        return self._lasts.get(number)

    def forget(self, number: int) -> None:
        """Forget the last event of the deleted topic with a ``number``."""
        self._lasts.pop(number, None)

    def expect(self, id: int) -> None:
        """Note that events up to ``id`` are stored, and will be added later."""
        self._expected = max(self._expected, id)

    def skip(self, number: int, last: int, *, whole: bool = True) -> bool:
        """Note a publication of a topic without followers, whose items need not be made.

        Args:
            number: of the topic.
            last: id of its last event.
            whole: False if further events of the same version follow.

        Returns:
            False if its events have to be added.
        """
        if self._waiting or self._index.ranges(number):
            return False
        self._lasts[number] = last
        self._advance(last, whole=whole)
        return True

    def add(self, number: int, events: Sequence[Event]) -> bool:
        """Add the events of one publication.

        Args:
            number: of their topic.
            events: all of the publication, in order.

        Returns:
            True if ``work`` must be called.
        """
        last = events[-1].id
        whole = last == events[-1].version
        if self.skip(number, last, whole=whole):
            return False
        size = sum([len(event.data) for event in events]) + EVENT_COST * len(events)
        self._lasts[number] = last
        self._waiting.append(_Transaction(number, events, last, size, whole))
        self._size += size
        if self._size > WAITING_MAX:
            self._overflow()
        return bool(self._waiting)

    def pass_over(self, last: int) -> None:
        """Note that no event up to ``last`` is left of those that were not added."""
        if self._waiting:
            self._waiting[-1].last = max(self._waiting[-1].last, last)
            self._waiting[-1].whole = True
        else:
            self._advance(max(self.newest, last), whole=True)

    def reach(self, id: int) -> None:
        """Note that ``id`` was issued, and is not that of an event.

        Args:
            id: above those of all events that were stored before.
        """
        if self._expected > self.added:
            # Events below it are still to be added: it is passed over with them.
            self.expect(id)
        elif not self._waiting:
            self._advance(max(self.newest, id), whole=True)
        elif (last := self._waiting[-1]).whole:
            last.last = max(last.last, id)

    def work(self, ranges: int = SLICE) -> bool:
        """Make the items of a turn, which ends after ``MATCHES`` and ``SLICE_BYTES`` as well.

        Args:
            ranges: greatest number of ranges.

        Returns:
            True if more is left.
        """
        waiting, end, matches = self._waiting, self.bytes + SLICE_BYTES, MATCHES
        while waiting:
            first = waiting[0]
            if first.ranges is None:
                matches = self._match(first, matches)
            if first.ranges is None:
                return True
            texts = _Texts(self._epochs)
            while first.ranges:
                if ranges <= 0 or self.bytes >= end:
                    return True
                held, events = first.ranges.popleft()
                self._make(held, events, texts)
                if first.whole:
                    held.given = first.last
                ranges -= 1
            waiting.popleft()
            self._size -= first.size
            self._advance(first.last, whole=first.whole)
        return False

    def enter(self, number: int, keys: KeyRange, last_event: int, owner: str) -> HeldRange:
        """Add a range to the index at ``newest``, also while the items of a publication are being made.

        Args:
            number: of the topic.
            keys: the range.
            last_event: id of the range's last event, 0 for none, or ``UNKNOWN``.
            owner: owner of the request.

        Returns:
            The range, in the index.
        """
        held = self._index.enter(number, keys, self.newest, last_event, owner)
        if self._waiting and self._waiting[0].number == number:
            first = self._waiting[0]
            events: list[Event] = []
            for event in first.events[: first.matched]:
                if keys.contains(event.key):
                    _collect(events, event)
            if events and first.ranges is None:
                first.found[held] = events
            elif events and first.ranges is not None:
                first.ranges.append((held, events))
        return held

    def move(self, held: HeldRange) -> None:
        """Move the tail of a range to ``newest`` by an item without an event: the floor is about to pass it.

        Args:
            held: a range of the index. It has no events between its tail and ``newest``.
        """
        if held.tail >= self.newest:
            return
        cursor = self._epochs.cursor(self.newest)
        for channel in held.channels:
            previous = self.position(held, watching=channel.watches)
            self._send(channel.name, move_item(channel.name, channel.representation, cursor, previous))
        held.tail, held.mark = self.newest, ""

    def position(self, held: HeldRange, *, watching: bool) -> str:
        """Return the position of the channels of a range: that of their newest item.

        Args:
            held: a range of the index.
            watching: whether it is that of watchers, to which progress counts.
        """
        return held.mark if watching and held.mark else self._epochs.cursor(held.tail)

    def version(self, held: HeldRange) -> int | None:
        """Return the version up to which all items of a range have been made.

        Args:
            held: a range of the index.

        Returns:
            The version; None while a part of one has been made.
        """
        version = max(held.given, self.newest if self._whole else 0)
        return version if version >= held.reached(watching=True) else None

    def mark(self, version: int, stamp: int) -> str:
        """Return the cursor of progress.

        Args:
            version: of the progress.
            stamp: microseconds since 1970, not used before.
        """
        return f"{self._epochs.name(version).decode()}.{version}.{stamp}"

    def progress(self, held: HeldRange, stamp: int) -> bool:
        """Make the items of progress for the watchers of a range, behind those of its events.

        Args:
            held: a range of the index.
            stamp: microseconds since 1970, not used before.

        Returns:
            False if there is none now, since a part of a version has been made.
        """
        version = self.version(held)
        if version is None:
            return False
        mark, previous = self.mark(version, stamp), self.position(held, watching=True)
        for channel in held.channels:
            if channel.watches:
                text = progress_text(version, mark, held.keys.low, held.keys.high, channel.frame)
                self.progressed += 1
                item = stream_item(channel.name, mark, previous, channel.frame, text)
                self._send(channel.name, item, self._publish_progress)
        held.mark, held.marked = mark, version
        return True

    def _overflow(self) -> None:
        """Give up the waiting events: the followers of their topics ask the hub."""
        self._advance(self.added, whole=self._waiting[-1].whole)
        numbers = {transaction.number for transaction in self._waiting}
        self._waiting.clear()
        self._size = 0
        for number in numbers:
            for held in self._index.of_topic(number):
                for channel in held.channels:
                    self.hints += 1
                    self._send(channel.name, hint_item(channel.name, channel.representation))
                held.tail = held.since = self.newest
                held.mark = ""
                held.last_event = UNKNOWN if held.keys.keyed else 0

    def _advance(self, newest: int, *, whole: bool) -> None:
        """Note that everything up to ``newest`` is done, which is the end of a version or not."""
        self.newest, self._whole = newest, whole
        if whole:
            self.whole = newest

    def _match(self, transaction: _Transaction, most: int) -> int:
        """Find the ranges of events of a transaction; returns how many of ``most`` are left for others in this turn."""
        events, found, number = transaction.events, transaction.found, transaction.number
        while transaction.matched < len(events):
            if most <= 0:
                return 0
            event = events[transaction.matched]
            transaction.matched += 1
            matching = self._index.matching(number, event.key)
            most -= 1 + len(matching)
            for held in matching:
                _collect(found.setdefault(held, []), event)
        transaction.ranges = deque(found.items())
        transaction.found = {}
        return most

    def _make(self, held: HeldRange, events: list[Event], texts: _Texts) -> None:
        if not held.channels:
            # Left the index since the turn before.
            return
        first = held.last_event
        whole = not held.keys.keyed
        for channel in held.channels:
            name, form = channel.name, channel.frame
            last = self._epochs.cursor(events[-1].id)
            previous = self.position(held, watching=channel.watches)
            if len(events) > EVENTS_MAX or (first == UNKNOWN and not whole):
                self._send(name, self._hint(name, form, last, previous))
                continue
            prev_id = first
            pairs = []
            for event in events:
                pairs.append((event, texts.json(event, event.prev_id if whole else prev_id)))
                prev_id = event.id
            if form is Representation.POLL:
                if sum(len(text) for _, text in pairs) > self._content_max:
                    self._send(name, self._hint(name, form, last, previous))
                else:
                    link = f"?after={last}{bounds_query(held.keys)}"
                    self._send(name, page_item(name, last, previous, [text for _, text in pairs], link))
                continue
            for event, text in pairs:
                cursor = self._epochs.cursor(event.id)
                if len(text) > self._content_max:
                    item = self._hint(name, form, cursor, previous)
                else:
                    item = stream_item(name, cursor, previous, form, render_text(text, cursor, form))
                self._send(name, item)
                previous = cursor
        held.tail = held.since = held.last_event = events[-1].id
        held.mark = ""

    def _hint(self, name: str, form: Representation, id: str, previous: str) -> bytes:
        """Return the hint that stands for events up to ``id``."""
        self.hints += 1
        return hint_item(name, form) if self._bare_hints else hint_item(name, form, id, previous)

    def _send(self, name: str, item: bytes, publish: Callable[[str, bytes], None] | None = None) -> None:
        self.items += 1
        self.bytes += len(item)
        (publish or self._publish)(name, item)


def _collect(events: list[Event], event: Event) -> None:
    """Add an event to those of a range. Of more than become items only the last one counts: the list stays short."""
    if len(events) > EVENTS_MAX:
        events[-1] = event
    else:
        events.append(event)
