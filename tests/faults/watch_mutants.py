"""Watching broken on purpose, one promise at a time, so that the validators can be seen to notice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from griphub.api import reading
from griphub.api.follow import Following
from griphub.processes.readers import ReaderPool
from griphub.service import Hub
from griphub.store.topic import Topic
from griphub.topics import fanout
from griphub.topics.channel_index import HeldRange
from griphub.topics.event_text import Representation, progress_text
from griphub.topics.fanout import FanOut
from griphub.topics.items import stream_item
from griphub.topics.progress import ProgressStamps
from griphub.topics.range_index import RangeIndex
from tests.faults.hub_mutants import Mutant

__all__ = ["MUTANTS"]

Patch = pytest.MonkeyPatch


def from_the_newest_of_the_store(patch: Patch) -> None:
    """Progress says what is stored, not what was fanned out."""
    patch.setattr(FanOut, "version", lambda self, held: self.stored)


def before_its_events(patch: Patch) -> None:
    """Progress is sent when its events are added, before their items are made."""
    add = FanOut.add

    def first(self: FanOut, number: int, events: Any) -> bool:
        for held in self._index.of_topic(number):
            newest, self.newest = self.newest, events[-1].id
            self.progress(held, events[-1].time)
            self.newest = newest
        return add(self, number, events)

    patch.setattr(FanOut, "add", first)


def outside_the_chain(patch: Patch) -> None:
    """Progress has neither id nor prev-id, so that it overtakes what was lost."""

    def alone(channel: str, id: str, previous: str, form: Representation, text: bytes) -> bytes:
        if b'"type":"progress"' in text:
            id = previous = ""
        return stream_item(channel, id, previous, form, text)

    patch.setattr(fanout, "stream_item", alone)

    def progress(self: FanOut, held: HeldRange, stamp: int) -> bool:
        version = self.version(held) or 0
        mark = self.mark(version, stamp)
        for channel in held.channels:
            if channel.watches:
                text = progress_text(version, mark, held.keys.low, held.keys.high, channel.frame)
                self._send(channel.name, alone(channel.name, "", "", channel.frame, text))
        return True

    patch.setattr(FanOut, "progress", progress)


def divides_a_version(patch: Patch) -> None:
    """Progress follows any part of a version that is read in parts."""
    patch.setattr(FanOut, "version", lambda self, held: max(self.newest, held.given))


def floor_read_before_the_page(patch: Patch) -> None:
    """The place is compared with the floor of the request's beginning."""
    read, floors = Following.read, dict[int, Topic]()
    render = ReaderPool.render_page

    async def remember(self: Following, follower: Any, *rest: Any) -> Any:
        floors[follower.topic.number] = follower.topic
        return await read(self, follower, *rest)

    async def with_an_old_floor(self: ReaderPool, number: int, *rest: Any, **named: Any) -> Any:
        page = await render(self, number, *rest, **named)
        return page and replace(page, topic=replace(page.topic, floor=floors[number].floor))

    patch.setattr(Following, "read", remember)
    patch.setattr(ReaderPool, "render_page", with_an_old_floor)


def begins_one_late(patch: Patch) -> None:
    """A page begins one event too late: a version that is exclusive is taken for the first one."""
    render = ReaderPool.render_page

    async def late(self: ReaderPool, number: int, after: int, *rest: Any, **named: Any) -> Any:
        return await render(self, number, after + 1, *rest, **named)

    patch.setattr(ReaderPool, "render_page", late)


def begins_one_early(patch: Patch) -> None:
    """A page begins with the event that the version names."""
    render = ReaderPool.render_page

    async def early(self: ReaderPool, number: int, after: int, *rest: Any, **named: Any) -> Any:
        return await render(self, number, max(0, after - 1), *rest, **named)

    patch.setattr(ReaderPool, "render_page", early)


def clips_ranges(patch: Patch) -> None:
    """The least key of a range is not found in it."""
    matching = RangeIndex.matching

    def clipped(self: RangeIndex[HeldRange], key: str | None) -> list[HeldRange]:
        return [held for held in matching(self, key) if key is None or held.keys.low != key]

    patch.setattr(RangeIndex, "matching", clipped)


def forgets_stamps(patch: Patch) -> None:
    """Stamps begin anew with each start."""
    patch.setattr(ProgressStamps, "begin", lambda self, first: None)


def only_behind_events(patch: Patch) -> None:
    """A range in which nothing has happened gets no progress."""
    progress = FanOut.progress

    def lazy(self: FanOut, held: HeldRange, stamp: int) -> bool:
        return progress(self, held, stamp) if held.last_event > 0 and not held.mark else True

    patch.setattr(FanOut, "progress", lazy)


def waits_with_any_cursor(patch: Patch) -> None:
    """A version of another store is waited for, without a resync."""
    patch.setattr(reading, "is_known", lambda cursor, intervals, newest: True)


def snapshots_of_now(patch: Patch) -> None:
    """A snapshot has the values of now under an earlier version."""
    render = ReaderPool.render_snapshot

    async def newest(self: ReaderPool, number: int, keys: Any, version: int, *rest: Any, **named: Any) -> Any:
        return await render(self, number, keys, 2**62, *rest, **named)

    patch.setattr(ReaderPool, "render_snapshot", newest)


def starts_silently(patch: Patch) -> None:
    """Watchers that are held when the hub starts are not asked to come back."""

    def subscribed(self: Hub, name: str) -> None:
        self._index.subscribed(name)

    patch.setattr(Hub, "_subscribed", subscribed)


MUTANTS: Final[dict[str, Mutant]] = {
    "from-the-newest-of-the-store": Mutant("bookmarkable", "waiting", from_the_newest_of_the_store),
    "before-its-events": Mutant("bookmarkable", "watched", before_its_events),
    "outside-the-chain": Mutant("gap-free", "lost", outside_the_chain),
    "divides-a-version": Mutant("bookmarkable", "in-parts", divides_a_version),
    "floor-read-before-the-page": Mutant("gap-free", "trimmed", floor_read_before_the_page),
    "begins-one-late": Mutant("gap-free", "watched", begins_one_late),
    "begins-one-early": Mutant("unique", "seam", begins_one_early),
    "clips-ranges": Mutant("gap-free", "watched", clips_ranges),
    "forgets-stamps": Mutant("bookmarkable", "clock-back", forgets_stamps),
    "only-behind-events": Mutant("told", "quiet", only_behind_events),
    "waits-with-any-cursor": Mutant("gap-free", "restored", waits_with_any_cursor),
    "snapshots-of-now": Mutant("snapshot", "snapshots", snapshots_of_now),
    "compacts-deletions-early": Mutant("snapshot", "compacted", child="compacts-deletions-early"),
    "starts-silently": Mutant("told", "restarted", starts_silently),
}
"""All mutants by name."""
