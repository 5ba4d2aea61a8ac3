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
from griphub.api.problem import Cause, Gone, Problem
from griphub.api.request import Answer
from griphub.processes.rendered import RenderedPage
from griphub.store.interface import WHOLE, KeyRange
from griphub.store.topic import Topic
from griphub.topics.channel_index import LEASE, UNKNOWN, HeldRange
from griphub.topics.event_text import Representation, control_text, progress_text
from griphub.topics.items import page_body
from griphub.topics.ranges import bounds_query
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
        announced: whether progress is given behind the page that is held: the beginning of a watch.
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
    announced: bool = False
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
        position: that of the range's channels when the page was begun, or of a follower that is ahead of them; None if
            nothing is held.
        lost: JSON of the report of events that are left out; empty for none.
        version: version up to which the range is complete with this page, for a watcher; None if it is not known.
    """

    page: RenderedPage
    position: str | None
    lost: bytes
    version: int | None = None


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
        context, fanout, form = self._context, self._context.fanout, follower.representation
        if not follower.truncated and self._below(follower.topic, follower.after) and not self._complete(follower):
            # Before the range is entered: a crowd below the floor costs neither ranges nor reads.
            raise self._below_floor(follower.topic)
        held = None if follower.until is not None else self._enter(follower)
        newest, position, version = fanout.newest, None, None
        if held is not None:
            # In the middle of a publication with very many ranges, this range may be done already.
            newest = max(newest, held.reached(watching=form.watches))
            position = fanout.position(held, watching=form.watches)
            version = fanout.version(held) if form.watches else None
        until = newest if follower.until is None else min(follower.until, newest)
        if follower.limit:
            limit = min(limit, follower.limit)
        number, after, lost = follower.topic.number, follower.after, b""
        if position is not None and self._complete(follower):
            page = RenderedPage(follower.topic, b"", 0, 0, 0, after, False)
            return _Part(page, position, b"", version)
        for _ in range(2):
            page_or_none = await context.readers.render_page(
                number, after, follower.keys, limit, size, until, form.frame, owner=follower.reader
            )
            context.counters.pages += 1
            if page_or_none is None:
                raise self.gone(follower.topic, "the topic was deleted")
            page = page_or_none
            if not self._below(page.topic, after):
                break
            if not follower.truncated:
                raise self._below_floor(page.topic)
            after = page.topic.floor
            lost = orjson.dumps({"type": "truncated", **self._loss(page.topic)})
        else:
            raise Problem(503, "unavailable", "the floor of the topic moves faster than it is read: repeat the request")
        if follower.gone and not lost:
            lost = orjson.dumps({"type": "truncated", **self._loss(page.topic)})
        if held is not None and held.last_event == UNKNOWN:
            await self._look_up(held, newest, follower.reader)
        if position is not None and follower.after > newest:
            # A place that a publisher was given, whose item is still to be made: this follower has that event.
            position, version = context.epochs.cursor(follower.after), None
        return _Part(page, position, lost, version)

    def _complete(self, follower: Follower) -> bool:
        """Return whether a follower misses no event of its range: it is not gone below the floor either."""
        held = self._context.index.range(follower.topic.number, follower.keys)
        if held is None or not follower.position or follower.until is not None:
            return False
        return held.since <= follower.after <= held.reached(watching=follower.representation.watches)

    def _below_floor(self, topic: Topic) -> Problem:
        return self.gone(topic, f"events up to {self._context.epochs.cursor(topic.floor)} are not retained")

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
        if follower.representation.watches:
            context.progress.watch(held)
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
        page, form = part.page, follower.representation.frame
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
            assert part.position is not None
            body += self.announcement(follower, part.version)
            headers += self._hold(follower, page.topic, part.position)
        return Answer(200, body, TYPES[form], headers)

    def announcement(self, follower: Follower, version: int | None) -> bytes:
        """Return the progress with which a watch begins, behind its replay; nothing for other followers.

        Args:
            follower: the follower.
            version: version up to which it has everything; None if it is not known.
        """
        if not follower.announced or version is None or version < follower.after:
            return b""
        mark, keys = self._context.progress.mark(version), follower.keys
        return progress_text(version, mark, keys.low, keys.high, follower.representation)

    def _hold(self, follower: Follower, topic: Topic, position: str) -> list[tuple[str, str]]:
        context, form = self._context, follower.representation
        held = context.index.range(topic.number, follower.keys)
        if held is None:
            raise Problem(503, "unavailable", "the reading took too long: repeat the request")
        end = float(follower.rights_end or "inf")
        channel = context.index.lease(held, form, context.now() + LEASE, end)
        return [
            ("Grip-Hold", "stream"),
            ("Grip-Channel", f"{channel.name}; prev-id={position}"),
            ("Grip-Link", f"<{self._link(follower, topic)}>; rel=next; timeout={LINK_TIMEOUT}"),
            ("Grip-Keep-Alive", f"{_KEEP_ALIVES[form.frame]}; format=cstring; timeout={KEEP_ALIVE}"),
        ]

    def _link(self, follower: Follower, topic: Topic, position: int | None = None) -> str:
        """Return the signed link of a follower; without a position it is shared by all with equal rights."""
        capability = Capability(
            mode="watch" if follower.representation.watches else "follow",
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
        assert part.position is not None
        held = context.index.range(page.topic.number, follower.keys)
        if held is None:
            raise Problem(503, "unavailable", "the reading took too long: repeat the request")
        end = float(follower.rights_end or "inf")
        channel = context.index.lease(held, Representation.POLL, context.now() + LEASE + wait, end)
        headers += [
            ("Grip-Hold", "response"),
            ("Grip-Timeout", str(wait)),
            ("Grip-Channel", f"{channel.name}; prev-id={part.position}"),
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

    def gone(self, topic: Topic | None, reason: str, cause: Cause = "floor") -> Gone:
        """Return the problem of a place whose events are not retained.

        Args:
            topic: the topic as it is; None if there is none any more.
            reason: the missing part.
            cause: its kind, for the figures.
        """
        self._context.counters.gone += 1
        cure = "read /snapshot and go on from its version, or begin at floor_cursor with truncated=allow"
        return Gone(cause, f"{reason}: {cure}" if topic else reason, self._loss(topic))

    def resync(self, problem: Problem, representation: Representation, keys: KeyRange = WHOLE) -> bytes:
        """Return the text that ends a stream whose place is gone.

        Args:
            problem: 410.
            representation: form of the stream.
            keys: range that the snapshot is to have, for a watcher.
        """
        cause: Cause = problem.cause if isinstance(problem, Gone) else "floor"
        self._context.counters.resyncs[cause] += 1
        members = {"type": "resync", "reason": problem.detail, **problem.extra}
        if representation.watches and members.get("snapshot"):
            members["snapshot"] = f"snapshot{bounds_query(keys, '?')}"
        return control_text("resync", orjson.dumps(members), representation)

    def resync_stream(self, problem: Problem, representation: Representation, keys: KeyRange = WHOLE) -> Answer:
        """Return the answer that ends a stream whose place is gone.

        Args:
            problem: 410.
            representation: form of the stream.
            keys: range that the snapshot is to have, for a watcher.
        """
        headers = [("Cache-Control", "no-store")]
        return Answer(200, self.resync(problem, representation, keys), TYPES[representation.frame], headers)


def expired_stream(representation: Representation) -> Answer:
    """Return the answer to an expired link: an event without id, and the end.

    Args:
        representation: form of the stream.
    """
    members = b'{"type":"expired","reason":"the rights of this link have ended: connect again with a token"}'
    text = control_text("expired", members, representation)
    return Answer(200, text, TYPES[representation.frame], [("Cache-Control", "no-store")])


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
