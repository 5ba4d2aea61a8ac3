"""Requests that read a topic: history, following and links, resolved to a place and a range."""

from __future__ import annotations

import dataclasses
from typing import Final

from griphub.access.capability import BadCapability, Capability, read
from griphub.access.owner import owner_key
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.follow import PAGE_BYTES, PAGE_EVENTS, Follower, Following, channels_of, expired_stream
from griphub.api.problem import Problem
from griphub.api.query import ReadQuery, accepted_representation, last_event_id, read_query
from griphub.api.request import Answer, Request
from griphub.store.cursor import is_known, parse_cursor
from griphub.store.errors import BadCursor
from griphub.store.interface import KeyRange
from griphub.store.topic import Topic
from griphub.topics.event_text import Representation
from griphub.topics.items import page_body
from griphub.topics.ranges import parse_channel

__all__ = ["Reading"]

JSON_PAGE: Final = 1000
"""Events of a JSON page without ``limit``."""


class Reading:
    """Answers to requests that read events.

    Args:
        context: parts of the hub.
        following: answers to followers.
    """

    def __init__(self, context: Context, following: Following) -> None:
        self._context = context
        self._following = following

    # --- places

    def place(self, text: str, topic: Topic) -> int:
        """Return the id that a cursor names.

        Args:
            text: the parameter.
            topic: topic that is read.

        Raises:
            Problem: 400, it is no cursor; 410, it is not one of this store, or older than the topic.
        """
        context = self._context
        try:
            cursor = parse_cursor(text)
        except BadCursor as error:
            raise Problem(400, "bad-request", str(error)) from error
        newest = max(context.fanout.stored, context.fanout.newest)
        if not is_known(cursor, context.state.intervals, newest):
            reason = f"{text} is no place of this store, which was restored or made anew"
            raise self._following.gone(topic, reason, "unknown")
        if 0 < cursor.id < topic.birth:
            reason = f"{text} is older than the topic, which was deleted and made again"
            raise self._following.gone(topic, reason, "unknown")
        return cursor.id

    async def start(self, request: Request, query: ReadQuery, topic: Topic, owner: str) -> tuple[int, bool]:
        """Return the id behind which a request begins, and whether the proxy named it.

        Args:
            request: the request.
            query: its parameters.
            topic: topic that is read.
            owner: key of the owner.

        Raises:
            Problem: as ``place``.
        """
        positions = self.positions(request, topic)
        if positions is not None:
            return self.place(positions[1], topic), True
        last = last_event_id(request.headers)
        if last:
            return self.place(last, topic), False
        if query.after is not None:
            return self.place(query.after, topic), False
        if query.since is not None:
            if topic.floor_time and query.since < topic.floor_time:
                raise self._following.gone(topic, "events since then are not retained")
            found = await self._context.readers.id_at(topic.number, query.since, owner=owner)
            # Events up to the floor are deleted, so their times are not found any more.
            return max(found, topic.floor if topic.floor > topic.birth else 0), False
        return self._context.fanout.newest if query.newest else 0, False

    def positions(self, request: Request, topic: Topic) -> tuple[KeyRange, str] | None:
        """Return range and position that the proxy names for a held client; None for a new request.

        Args:
            request: the request.
            topic: its topic.

        Raises:
            Problem: 410, the hold was one of another topic, which had the same name.
        """
        context = self._context
        lines = [value for name, value in request.headers if name == b"grip-last"]
        for name, last in channels_of(lines):
            if not name.startswith(context.config.prefix):
                continue
            number, _, keys = parse_channel(context.config.prefix, name)
            if number != topic.number:
                raise self._following.gone(topic, "the topic was deleted and made again", "unknown")
            return keys, last
        return None

    def is_held(self, request: Request) -> bool:
        """Return whether a request is that of a client which the proxy holds.

        Args:
            request: the request.
        """
        prefix = self._context.config.prefix
        lines = [value for name, value in request.headers if name == b"grip-last"]
        return any(name.startswith(prefix) for name, _ in channels_of(lines))

    def deleted(self) -> Problem:
        """Return the problem of a topic that was deleted under its followers."""
        return self._following.gone(None, "the topic was deleted", "deleted")

    # --- GET /topics/T/events

    async def events(self, request: Request, topic: Topic, rights: Rights) -> Answer:
        """Answer ``GET /topics/T/events``.

        Args:
            request: the request.
            topic: its topic; the caller may read it.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused.
        """
        if last_event_id(request.headers) == "resync":
            # The resync before has ended the reading; this ends the EventSource.
            return Answer(204, b"", "")
        query = read_query(request.target.query)
        form = accepted_representation(request.headers)
        try:
            follower = await self._follower(request, query, form, topic, rights)
            if form is not Representation.POLL:
                return await self._following.stream(follower)
            if query.wait is not None:
                return await self._following.poll(follower, query.wait)
            return await self._page(request, follower, query)
        except Problem as problem:
            if problem.status == 410 and form is Representation.SSE:
                return self._following.resync_stream(problem, form)
            raise

    async def _follower(
        self, request: Request, query: ReadQuery, form: Representation, topic: Topic, rights: Rights
    ) -> Follower:
        """Return the follower of a request, with its place as an id."""
        owner, gone = owner_key(rights.owner), False
        try:
            after, position = await self.start(request, query, topic, owner)
        except Problem as problem:
            if problem.status != 410 or not query.truncated:
                raise
            after, position, gone = 0, False, True
        follow = query.follow
        if follow is None:
            follow = form is Representation.SSE and query.until is None and query.limit is None
        until: int | None = None
        if query.until is not None:
            until = await self._context.readers.id_at(topic.number, query.until, owner=owner)
        elif not follow and query.wait is None:
            until = self._context.fanout.newest
        return Follower(
            topic,
            query.keys,
            form,
            after,
            owner,
            rights.ends,
            truncated=query.truncated,
            position=position,
            until=until,
            limit=query.limit or 0,
            gone=gone,
        )

    async def _page(self, request: Request, follower: Follower, query: ReadQuery) -> Answer:
        limit = min(query.limit or JSON_PAGE, PAGE_EVENTS)
        part = await self._following.read(dataclasses.replace(follower, limit=0), limit, PAGE_BYTES)
        body, last, more, lost = part.page.body, part.page.last, part.page.more, part.lost
        cursor = self._context.epochs.cursor(last)
        etag = f'"{follower.after}-{last}-{int(more)}"'
        headers = [("ETag", etag), ("Cache-Control", "no-cache")]
        if more:
            headers.append(("Link", f'<?{query.following(cursor)}>; rel="next"'))
        if lost:
            headers.append(("Event-Truncated", cursor))
        if request.header(b"if-none-match") == etag.encode():
            return Answer(304, b"", "", headers)
        return Answer(200, page_body(body, cursor, more=more, truncated=lost), "application/json", headers)

    # --- GET /follow/CAPABILITY

    async def link(self, request: Request, text: str) -> Answer:
        """Answer the proxy's request for a link.

        Args:
            request: the request.
            text: the signed capability.

        Returns:
            The answer.

        Raises:
            Problem: 403, the signature is wrong; 503.
        """
        context = self._context
        try:
            capability = self._capability(text)
        except BadCapability as error:
            raise Problem(403, "forbidden", str(error)) from error
        form = Representation(capability.representation)
        if capability.mode != ("watch" if form.watches else "follow"):
            raise Problem(403, "forbidden", "this is no link of a follower")
        topic = context.topics.numbered(capability.topic)
        if topic is None:
            return self._following.resync_stream(self.deleted(), form)
        if capability.problem(context.wall(), topic.access) is not None:
            return expired_stream(form)
        keys = KeyRange(*capability.keys)
        try:
            after, position = self._link_place(request, capability, topic)
            follower = Follower(
                topic,
                keys,
                form,
                after,
                "",
                capability.expires,
                position=position,
                link_base="",
                limit=capability.limit,
                until=capability.until or None,
                announced=form.watches and not position,
                turn=capability.turn,
            )
            return await self._following.stream(follower)
        except Problem as problem:
            if problem.status == 410:
                return self._following.resync_stream(problem, form, keys)
            raise

    def _capability(self, text: str) -> Capability:
        """Read a shared link, or that of a page, which is one of the current epoch only."""
        state = self._context.state
        try:
            return read(text, state.secret)
        except BadCapability:
            return read(text, state.secret, f"page {state.epoch}")

    def _link_place(self, request: Request, capability: Capability, topic: Topic) -> tuple[int, bool]:
        if capability.position is not None:
            # The next page of a replay. In Grip-Last the proxy names the place at which the replay began.
            return capability.position, False
        positions = self.positions(request, topic)
        if positions is None:
            raise Problem(400, "bad-request", "a shared link needs Grip-Last: only a GRIP proxy may follow it")
        return self.place(positions[1], topic), True
