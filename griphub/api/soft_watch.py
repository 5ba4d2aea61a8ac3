"""Watching of soft topics over HTTP: event streams, lines and WebSockets, held by GRIP like those of stored topics."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import orjson

from griphub.access.capability import BadCapability, Capability, read, sign
from griphub.access.owner import owner_key, turn_of
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.follow import HELD_MAX, KEEP_ALIVE, LINK_TIMEOUT, TYPES, Following, expired_stream
from griphub.api.problem import Problem
from griphub.api.query import RESYNC, accepted_representation
from griphub.api.reading import Reading
from griphub.api.request import Answer, Request
from griphub.api.socket_events import resync_events, socket_answer, socket_opening, subscription
from griphub.api.soft_pages import SoftFollower, SoftPage, SoftPages
from griphub.api.soft_query import SoftQuery, snapshot_location, soft_place, soft_query
from griphub.store.topic import Topic
from griphub.topics.channel_index import LEASE
from griphub.topics.event_text import Representation, progress_text
from griphub.topics.ranges import key_range
from griphub.windows.positions import Position, parse_position
from griphub.windows.span import Span, span_of
from gripproxy.grip.errors import ClientError
from gripproxy.grip.websocket_events import Event

__all__ = ["SoftWatching"]

PAGE_PURPOSE: Final = "soft page"
"""Purpose of the links of further pages, whose ``after_key`` is a position."""

SOCKET_BYTES: Final = 500_000
"""Bytes of texts after which an answer to a WebSocket ends; the proxy takes 1,000,000 with the texts around them."""

_PLACE: Final = b"meta-hub-place"
_KEEP_ALIVES: Final = {Representation.SSE: r":\n\n", Representation.LINES: r"\n"}


class SoftWatching:
    """Answers to watchers of soft topics.

    Args:
        context: parts of the hub.
        following: makes the texts of a resync.
        reading: reads positions that the proxy names.
    """

    def __init__(self, context: Context, following: Following, reading: Reading) -> None:
        self._context = context
        self._following = following
        self._reading = reading
        self._pages = SoftPages(context, context.soft)

    # --- GET /topics/T/watch

    async def answer(self, request: Request, topic: Topic, rights: Rights) -> Answer:
        """Answer ``GET /topics/T/watch`` with an event stream or lines.

        Args:
            request: the request.
            topic: its topic, a soft one; the caller may read it.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused; 429, a bound was reached; 503.
        """
        if request.header(b"last-event-id") == RESYNC.encode():
            # The resync before has ended the watch; this ends the EventSource.
            return Answer(204, b"", "")
        query, owner = soft_query(request.target.query), owner_key(rights.owner)
        form = accepted_representation(request.headers, watching=True)
        self._context.counters.watches += 1
        try:
            place, known = self._place(request, topic, query)
            follower = SoftFollower(topic, query.span, form, place, owner, rights.ends, announced=not known)
            return await self._stream(follower)
        except Problem as problem:
            return self._ended(problem, form, query.span)

    def _place(self, request: Request, topic: Topic, query: SoftQuery) -> tuple[Position | int | None, bool]:
        """Return the place of a request, and whether the proxy named it."""
        positions = self._reading.positions(request, topic)
        if positions is not None:
            return soft_place(positions[1], "Grip-Last"), True
        last = request.header(b"last-event-id")
        if last:
            return soft_place(last.decode("utf-8", "replace"), "Last-Event-ID"), False
        return query.place, False

    def _ended(self, problem: Problem, form: Representation, span: Span) -> Answer:
        """Return the answer to a watcher that cannot be served from its place; other problems are raised."""
        if problem.status != 410:
            raise problem
        return self._following.resync_stream(problem, form, key_range(*span.bounds))

    async def _stream(self, follower: SoftFollower) -> Answer:
        page, form = await self._pages.read(follower), follower.representation
        self._context.counters.replays += 1
        body = b"".join(page.texts)
        headers = [("Cache-Control", "no-store")]
        if page.more or len(body) > HELD_MAX:
            assert page.last is not None
            link = self._link(replace(follower, place=page.last), page.last)
            headers.append(("Grip-Link", f"<{link}>; rel=next"))
        else:
            body += self._progress(page, follower)
            headers += self._hold(page, follower)
        return Answer(200, body, TYPES[form.frame], headers)

    def _progress(self, page: SoftPage, follower: SoftFollower) -> bytes:
        if page.progress is None:
            return b""
        low, high = follower.span.bounds
        form = follower.representation
        return progress_text(page.progress.version, str(page.progress), low, high, form)

    def _hold(self, page: SoftPage, follower: SoftFollower) -> list[tuple[str, str]]:
        context, form = self._context, follower.representation
        end = float(follower.rights_end or "inf")
        channel = context.index.lease(page.held, form, context.now() + LEASE, end)
        return [
            ("Grip-Hold", "stream"),
            ("Grip-Channel", f"{channel.name}; prev-id={page.held.mark}"),
            ("Grip-Link", f"<{self._link(follower, None)}>; rel=next; timeout={LINK_TIMEOUT}"),
            ("Grip-Keep-Alive", f"{_KEEP_ALIVES[form.frame]}; format=cstring; timeout={KEEP_ALIVE}"),
        ]

    # --- GET /follow/CAPABILITY

    def _link(self, follower: SoftFollower, last: Position | None) -> str:
        """Return the signed link of a follower; without a position it is shared by all with equal rights."""
        topic, keys = follower.topic, key_range(*follower.span.bounds)
        turn = turn_of(follower.owner) if follower.owner else follower.turn
        capability = Capability(
            mode="watch",
            topic=topic.number,
            access=topic.access,
            representation=follower.representation.value,
            keys=(keys.low, keys.high, keys.keyed),
            expires=follower.rights_end,
            # A new watch gets progress behind its last page.
            position=None if last is None else int(follower.announced),
            after_key=None if last is None else str(last),
            turn=None if last is None else turn,
        )
        secret = self._context.state.secret
        text = sign(capability, secret) if last is None else sign(capability, secret, PAGE_PURPOSE)
        return follower.link_base + text

    def linked(self, text: str) -> tuple[Capability, Topic | None] | None:
        """Return capability and topic of a link, if it is one of a soft topic; None for others.

        The topic of a page may have been deleted.

        Args:
            text: the signed capability.
        """
        secret = self._context.state.secret
        for purpose in ("link", PAGE_PURPOSE):
            try:
                capability = read(text, secret, purpose)
            except BadCapability:
                continue
            topic = self._context.topics.numbered(capability.topic)
            mine = purpose == PAGE_PURPOSE or (topic is not None and topic.settings.soft)
            return (capability, topic) if mine else None
        return None

    async def link(self, request: Request, capability: Capability, topic: Topic | None) -> Answer:
        """Answer the proxy's request for a link.

        Args:
            request: the request.
            capability: of the link.
            topic: its topic, a soft one; None if it was deleted.

        Returns:
            The answer.

        Raises:
            Problem: 400, the proxy names no place; 403, it is no link of a watcher; 429; 503.
        """
        form = Representation(capability.representation)
        if capability.mode != "watch" or not form.watches:
            raise Problem(403, "forbidden", "this is no link of a watcher")
        if topic is None:
            return self._following.resync_stream(self._reading.deleted(), form)
        if capability.problem(self._context.wall(), topic.access) is not None:
            return expired_stream(form)
        span = span_of(*capability.keys[:2])
        follower = SoftFollower(topic, span, form, None, "", capability.expires, link_base="", turn=capability.turn)
        try:
            if capability.after_key is not None:
                # The next page of a replay. In Grip-Last the proxy names the place at which the replay began.
                place = _position(capability.after_key)
                follower = replace(follower, place=place, announced=bool(capability.position))
            else:
                positions = self._reading.positions(request, topic)
                if positions is None:
                    text = "a shared link needs Grip-Last: only a GRIP proxy may follow it"
                    raise Problem(400, "bad-request", text)
                follower = replace(follower, place=soft_place(positions[1], "Grip-Last"))
            return await self._stream(follower)
        except Problem as problem:
            return self._ended(problem, form, span)

    # --- WebSockets

    async def socket(self, request: Request, topic: Topic, rights: Rights) -> Answer:
        """Answer one request of a WebSocket that watches a soft topic.

        Args:
            request: the request.
            topic: its topic, a soft one; the caller may read it.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: an opening is refused; 413, there are too many events.
        """
        opening = socket_opening(request)
        if isinstance(opening, Answer):
            return opening
        query, owner = soft_query(request.target.query), owner_key(rights.owner)
        form, meta = Representation.WATCH_WS, request.header(_PLACE)
        context = self._context
        try:
            if meta and not opening:
                place, _, told = meta.decode("utf-8", "replace").partition(" ")
                follower = SoftFollower(
                    topic, query.span, form, soft_place(place), owner, rights.ends, announced=bool(told)
                )
            else:
                found, known = self._place(request, topic, query)
                follower = SoftFollower(topic, query.span, form, found, owner, rights.ends, announced=not known)
            page = await self._pages.read(follower, SOCKET_BYTES)
        except Problem as problem:
            if problem.status != 410:
                raise
            text = self._following.resync(problem, form, key_range(*query.span.bounds))
            return socket_answer(resync_events(text, opening=opening))
        context.counters.replays += int(opening)
        context.counters.watches += int(opening)
        events = [Event(b"OPEN")] if opening else []
        events += [Event(b"TEXT", text) for text in page.texts]
        headers: list[tuple[str, str]] = []
        if opening:
            headers.append(("Sec-WebSocket-Extensions", 'grip; message-prefix=""'))
        if page.more:
            told = " told" if follower.announced else ""
            headers += [("More-Events", "true"), ("Set-Meta-Hub-Place", f"{page.last}{told}")]
        else:
            if progress := self._progress(page, follower):
                events.append(Event(b"TEXT", progress))
            end = float(follower.rights_end or "inf")
            channel = context.index.lease(page.held, form, context.now() + LEASE, end)
            events.append(subscription(channel.name, page.held.mark))
            if meta:
                headers.append(("Set-Meta-Hub-Place", ""))
        return socket_answer(events, headers)

    # --- GET /topics/T/snapshot

    async def snapshot(self, request: Request, topic: Topic) -> Answer:
        """Answer ``GET /topics/T/snapshot``: the source has it.

        Args:
            request: the request.
            topic: its topic, a soft one; the caller may read it.

        Returns:
            The answer.

        Raises:
            Problem: 400; 409, the topic names no ``snapshot_url``.
        """
        query, url = soft_query(request.target.query), topic.settings.snapshot_url
        if not url:
            text = (
                f"the topic {topic.name!r} is a soft one and names no snapshot_url: read the source itself, or have"
                " its URL set with PATCH /topics/NAME"
            )
            raise Problem(409, "conflict", text)
        headers = [("Location", snapshot_location(url, query)), ("Cache-Control", "no-store")]
        return Answer(307, orjson.dumps({"snapshot_url": url}), headers=headers)


def _position(text: str) -> Position:
    try:
        return parse_position(text)
    except ClientError as error:
        raise Problem(403, "forbidden", "the link was made by another version of the hub: connect again") from error
