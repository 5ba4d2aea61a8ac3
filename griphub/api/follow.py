"""Following: replay of a topic's events, then live ones, as one sequence (the seam).

Every answer is a page of history up to the id that the fan-out has reached. A page that is not the last one is followed
by a link to the next; the last one is held on the channel of its range, at the position that the channel had when the
page was begun. An item published in between has another ``prev-id``:
the proxy sees a gap and follows the link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson

from griphub.access.capability import Capability, sign
from griphub.access.owner import linked_reader, turn_of
from griphub.api.context import Context
from griphub.api.problem import Problem
from griphub.api.request import Answer
from griphub.processes.rendered import RenderedPage
from griphub.store.interface import KeyRange
from griphub.store.topic import Topic
from griphub.topics.channel_index import LEASE, UNKNOWN, HeldRange
from griphub.topics.event_text import Representation, control_text
from griphub.topics.items import page_body
from griphub.topics.times import time_text

__all__ = ["HELD_MAX", "PAGE_BYTES", "PAGE_EVENTS", "Follower", "Following"]

PAGE_EVENTS: Final = 4000
"""Events of a page of a replay."""

PAGE_BYTES: Final = 1_000_000
"""Bytes of contents after which a page of a replay ends."""

HELD_MAX: Final = 90_000
"""Bytes of an answer that the proxy holds; GRIP's bound is 100,000. A longer page is one more link of the chain."""

LINK_TIMEOUT: Final = 60
"""Seconds without an item after which the proxy follows the link of a held stream."""

KEEP_ALIVE: Final = 20
"""Seconds without content after which the proxy sends a keep-alive to a stream."""

TYPES: Final = {Representation.SSE: "text/event-stream", Representation.LINES: "application/x-ndjson"}

_KEEP_ALIVES: Final = {Representation.SSE: r":\n\n", Representation.LINES: r"\n"}


@dataclass(frozen=True, slots=True)
class Follower:
    """One request to follow, resolved.

    Attributes:
        topic: the topic.
        keys: range of keys.
        representation: form of the contents.
        after: id behind which the follower stands; 0 for the beginning.
        owner: key of the owner, for the bounds; empty for a link.
        rights_end: time at which the follower's rights end, in seconds since 1970; 0 for never.
        truncated: whether events that are not retained may be left out, with a report.
        position: whether ``after`` is a position that the proxy names: the tail of the channel is never gone.
        link_base: relative path from the request to the links of the hub.
        limit: events that are still to be given; 0 for no limit.
        until: id at which the reading ends; None to follow.
        gone: whether the place that was asked for is not retained, and ``after`` replaces it, with a report.
        turn: number of the owner in whose turn a linked page is read; None for a request with an owner, and for a
            shared link, which is read in the turn of its topic.
    """

    topic: Topic
    keys: KeyRange
    representation: Representation
    after: int
    owner: str
    rights_end: int
    truncated: bool = False
    position: bool = False
    link_base: str = "../../follow/"
    limit: int = 0
    until: int | None = None
    gone: bool = False
    turn: int | None = None

    @property
    def reader(self) -> str:
        """Text that names the owner whose reads wait in one queue."""
        if self.owner:
            return self.owner
        return f"topic {self.topic.number}" if self.turn is None else linked_reader(self.turn)


@dataclass(frozen=True, slots=True)
class _Part:
    """Part of a replay.

    Attributes:
        page: events, rendered.
        tail: position of the range's channels when the page was begun, or of a follower that is ahead of them; None if
            nothing is held.
        lost: JSON of the report of events that are left out; empty for none.
    """

    page: RenderedPage
    tail: int | None
    lost: bytes


class Following:
    """Answers to followers.

    Args:
        context: parts of the hub.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    # --- reading

    async def read(self, follower: Follower, limit: int = PAGE_EVENTS, size: int = PAGE_BYTES) -> _Part:
        """Read the next page of a follower.

        Args:
            follower: the follower.
            limit: greatest number of events.
            size: bytes of contents after which the page ends.

        Raises:
            Problem: 410, the place is not retained; 429, a bound was reached; 503.
        """
        context, fanout = self._context, self._context.fanout
        held = None if follower.until is not None else self._enter(follower)
        tail = None if held is None else held.tail
        # In the middle of a publication with very many ranges, this range may be done already.
        newest = fanout.newest if tail is None else max(fanout.newest, tail)
        until = newest if follower.until is None else min(follower.until, newest)
        if follower.limit:
            limit = min(limit, follower.limit)
        number, after, lost = follower.topic.number, follower.after, b""
        if tail is not None and held is not None and follower.position and held.since <= after <= held.tail:
            # A follower without missing events is not gone below the floor either.
            page = RenderedPage(follower.topic, b"", 0, 0, 0, after, False)
            return _Part(page, tail, b"")
        for _ in range(2):
            page_or_none = await context.readers.render_page(
                number, after, follower.keys, limit, size, until, follower.representation, owner=follower.reader
            )
            context.counters.pages += 1
            if page_or_none is None:
                raise self.gone(follower.topic, "the topic was deleted")
            page = page_or_none
            if not self._below(page.topic, after):
                break
            if not follower.truncated:
                raise self.gone(page.topic, f"events up to {context.epochs.cursor(page.topic.floor)} are not retained")
            after = page.topic.floor
            lost = orjson.dumps({"type": "truncated", **self._loss(page.topic)})
        else:
            raise Problem(503, "unavailable", "the floor of the topic moves faster than it is read: repeat the request")
        if follower.gone and not lost:
            lost = orjson.dumps({"type": "truncated", **self._loss(page.topic)})
        if held is not None and held.last_event == UNKNOWN:
            await self._look_up(held, newest, follower.reader)
        if tail is not None and follower.after > newest:
            # A place that a publisher was given, whose item is still to be made: this follower has that event.
            tail = follower.after
        return _Part(page, tail, lost)

    def _below(self, topic: Topic, after: int) -> bool:
        """Return whether events behind a place are not retained any more."""
        if after < topic.birth:
            return topic.floor > topic.birth
        return after < topic.floor

    def _enter(self, follower: Follower) -> HeldRange:
        """Return the range of a follower, in the index."""
        context, number = self._context, follower.topic.number
        held = context.index.range(number, follower.keys)
        if held is None:
            if context.index.ranges(number) >= context.config.ranges_per_topic_max:
                raise _limit("ranges_per_topic_max", context.config.ranges_per_topic_max)
            if follower.keys.keyed:
                context.quotas.take("ranges", follower.owner)
            last = UNKNOWN if follower.keys.keyed else 0
            held = context.fanout.enter(number, follower.keys, last, follower.owner)
            # Kept while the page is read.
        end = float(follower.rights_end or "inf")
        context.index.lease(held, follower.representation, context.now() + LEASE, end)
        return held

    async def _look_up(self, held: HeldRange, newest: int, reader: str) -> None:
        found = await self._context.readers.last_in(held.number, held.keys, newest, owner=reader)
        if held.last_event == UNKNOWN:
            held.last_event = found

    # --- answers

    async def stream(self, follower: Follower) -> Answer:
        """Return the answer to a follower of ``SSE`` or ``LINES``: a page, and a hold or a link to the next one.

        Args:
            follower: the follower.

        Raises:
            Problem: as ``read``.
        """
        part = await self.read(follower)
        page, form = part.page, follower.representation
        body = (control_text("truncated", part.lost, form) if part.lost else b"") + page.body
        headers = [("Cache-Control", "no-store")]
        if part.lost:
            headers.append(("Event-Truncated", self._context.epochs.cursor(page.topic.floor)))
        self._context.counters.replays += 1
        left = follower.limit - page.count if follower.limit else 0
        ended = bool(follower.limit) and left <= 0
        if (page.more and not ended) or (follower.until is None and not ended and len(body) > HELD_MAX):
            following = replace(follower, after=page.last, limit=left, truncated=False, gone=False)
            link = self._link(following, page.topic, position=page.last)
            headers.append(("Grip-Link", f"<{link}>; rel=next"))
        elif follower.until is None and not ended:
            assert part.tail is not None
            headers += self._hold(follower, page.topic, part.tail)
        return Answer(200, body, TYPES[form], headers)

    def _hold(self, follower: Follower, topic: Topic, tail: int) -> list[tuple[str, str]]:
        context, form = self._context, follower.representation
        held = context.index.range(topic.number, follower.keys)
        if held is None:
            raise Problem(503, "unavailable", "the reading took too long: repeat the request")
        end = float(follower.rights_end or "inf")
        channel = context.index.lease(held, form, context.now() + LEASE, end)
        position = context.epochs.cursor(tail)
        return [
            ("Grip-Hold", "stream"),
            ("Grip-Channel", f"{channel.name}; prev-id={position}"),
            ("Grip-Link", f"<{self._link(follower, topic)}>; rel=next; timeout={LINK_TIMEOUT}"),
            ("Grip-Keep-Alive", f"{_KEEP_ALIVES[form]}; format=cstring; timeout={KEEP_ALIVE}"),
        ]

    def _link(self, follower: Follower, topic: Topic, position: int | None = None) -> str:
        """Return the signed link of a follower; without a position it is shared by all with equal rights."""
        capability = Capability(
            mode="follow",
            topic=topic.number,
            access=topic.access,
            representation=follower.representation.value,
            keys=(follower.keys.low, follower.keys.high, follower.keys.keyed),
            expires=follower.rights_end,
            position=position,
            until=(follower.until or 0) if position is not None else 0,
            limit=follower.limit if position is not None else 0,
            turn=None if position is None else turn_of(follower.owner) if follower.owner else follower.turn,
        )
        state = self._context.state
        if position is None:
            return follower.link_base + sign(capability, state.secret)
        # Ids of an epoch: after a restore the link is none.
        return follower.link_base + sign(capability, state.secret, f"page {state.epoch}")

    async def poll(self, follower: Follower, wait: int) -> Answer:
        """Return the answer to a long-poll: a page if there are events, else a hold.

        Args:
            follower: the follower.
            wait: seconds until the poll is answered without events.

        Raises:
            Problem: as ``read``.
        """
        part = await self.read(follower, min(follower.limit or PAGE_EVENTS, PAGE_EVENTS), PAGE_BYTES)
        context, page = self._context, part.page
        context.counters.replays += 1
        body = page_body(page.body, context.epochs.cursor(page.last), more=page.more, truncated=part.lost)
        headers = [("Cache-Control", "no-store")]
        if page.count or part.lost or page.more:
            return Answer(200, body, "application/json", headers)
        assert part.tail is not None
        held = context.index.range(page.topic.number, follower.keys)
        if held is None:
            raise Problem(503, "unavailable", "the reading took too long: repeat the request")
        end = float(follower.rights_end or "inf")
        channel = context.index.lease(held, Representation.POLL, context.now() + LEASE + wait, end)
        headers += [
            ("Grip-Hold", "response"),
            ("Grip-Timeout", str(wait)),
            ("Grip-Channel", f"{channel.name}; prev-id={context.epochs.cursor(part.tail)}"),
        ]
        return Answer(200, body, "application/json", headers)

    # --- loss

    def _loss(self, topic: Topic | None) -> dict[str, str | None]:
        """Return the members that name the retained part of a topic."""
        if topic is None:
            return {"floor": None, "floor_cursor": None, "oldest_time": None, "snapshot": None}
        return {
            "floor": str(topic.floor),
            "floor_cursor": self._context.epochs.cursor(topic.floor),
            "oldest_time": time_text(topic.floor_time) if topic.floor_time else None,
            "snapshot": "snapshot",
        }

    def gone(self, topic: Topic | None, reason: str) -> Problem:
        """Return the problem of a place whose events are not retained.

        Args:
            topic: the topic as it is; None if there is none any more.
            reason: the missing part.
        """
        self._context.counters.gone += 1
        cure = "read /snapshot and go on from its version, or begin at floor_cursor with truncated=allow"
        return Problem(410, "gone", f"{reason}: {cure}" if topic else reason, self._loss(topic))

    def resync(self, problem: Problem, representation: Representation) -> bytes:
        """Return the text that ends a stream whose place is gone.

        Args:
            problem: 410.
            representation: form of the stream.
        """
        self._context.counters.resyncs += 1
        members = orjson.dumps({"type": "resync", "reason": problem.detail, **problem.extra})
        return control_text("resync", members, representation)

    def resync_stream(self, problem: Problem, representation: Representation) -> Answer:
        """Return the answer that ends a stream whose place is gone.

        Args:
            problem: 410.
            representation: form of the stream.
        """
        headers = [("Cache-Control", "no-store")]
        return Answer(200, self.resync(problem, representation), TYPES[representation], headers)


def expired_stream(representation: Representation) -> Answer:
    """Return the answer to an expired link: an event without id, and the end.

    Args:
        representation: form of the stream.
    """
    members = b'{"type":"expired","reason":"the rights of this link have ended: connect again with a token"}'
    text = control_text("expired", members, representation)
    return Answer(200, text, TYPES[representation], [("Cache-Control", "no-store")])


def _limit(name: str, most: int) -> Problem:
    return Problem(429, "limit", f"no more than {most}: {name}", {"limit": name, "max": most})


def channels_of(headers: Sequence[bytes]) -> list[tuple[str, str]]:
    """Return the channels and positions of ``Grip-Last`` headers (docs/grip.md §6.6).

    Args:
        headers: their values.
    """
    found = []
    for value in headers:
        for entry in value.split(b","):
            name, _, rest = entry.partition(b";")
            parameter, _, last = rest.strip().partition(b"=")
            if parameter.strip().lower() == b"last-id":
                found.append((name.strip().decode("utf-8", "replace"), last.strip().decode("utf-8", "replace")))
    return found
