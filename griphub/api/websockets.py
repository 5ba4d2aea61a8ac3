"""Following and watching over a WebSocket, which the proxy turns into requests (docs/grip.md §8.3)."""

from __future__ import annotations

from typing import Final

import orjson

from griphub.access.owner import owner_key
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.follow import Follower, Following
from griphub.api.problem import Problem
from griphub.api.query import ReadQuery, read_query, watch_query
from griphub.api.reading import Reading
from griphub.api.request import Answer, Request
from griphub.api.socket_events import (
    EXPIRED,
    resync_events,
    socket_answer,
    socket_close,
    socket_opening,
    subscription,
)
from griphub.store.topic import Topic
from griphub.topics.channel_index import LEASE
from griphub.topics.event_text import Representation
from gripproxy.grip.websocket_events import Event

__all__ = ["WebSockets", "expired", "upgrade_refused"]

PAGE_BYTES: Final = 600_000
"""Bytes of contents after which an answer ends; the proxy takes 1,000,000 with the texts around them."""

PAGE_EVENTS: Final = 2000

_PLACE: Final = b"meta-hub-place"


class WebSockets:
    """Answers to the requests of WebSockets.

    Args:
        context: parts of the hub.
        following: reads pages.
        reading: resolves places.
    """

    def __init__(self, context: Context, following: Following, reading: Reading) -> None:
        self._context = context
        self._following = following
        self._reading = reading

    async def answer(self, request: Request, topic: Topic, rights: Rights, *, watching: bool = False) -> Answer:
        """Answer one request of a WebSocket that follows or watches a topic.

        Args:
            request: the request.
            topic: the topic; the caller may read it.
            rights: of the caller.
            watching: whether it watches.

        Raises:
            Problem: an opening is refused; 413, there are too many events.
        """
        opening = socket_opening(request)
        if isinstance(opening, Answer):
            return opening
        form = Representation.WATCH_WS if watching else Representation.WS
        query = (watch_query if watching else read_query)(request.target.query)
        if query.until is not None or query.limit is not None or query.wait is not None:
            raise Problem(400, "bad-request", "a WebSocket takes after, since, low, high and truncated only")
        try:
            return await self._page(request, topic, rights, query, form, opening=opening)
        except Problem as problem:
            if problem.status != 410:
                raise
            text = self._following.resync(problem, form, query.keys)
            return socket_answer(resync_events(text, opening=opening))

    def deleted(self) -> Answer:
        """Return the answer to a WebSocket whose topic was deleted."""
        text = self._following.resync(self._reading.deleted(), Representation.WS)
        return socket_answer(resync_events(text, opening=False))

    async def _page(
        self,
        request: Request,
        topic: Topic,
        rights: Rights,
        query: ReadQuery,
        form: Representation,
        *,
        opening: bool,
    ) -> Answer:
        context = self._context
        owner = owner_key(rights.owner)
        meta = request.header(_PLACE)
        if meta and not opening:
            # The next part of a replay. In Grip-Last the proxy names the place at which the replay began.
            after, position = self._reading.place(meta.decode("utf-8", "replace"), topic), False
        else:
            after, position = await self._reading.start(request, query, topic, owner)
        follower = Follower(
            topic,
            query.keys,
            form,
            after,
            owner,
            rights.ends,
            truncated=query.truncated and opening,
            position=position,
            announced=form.watches and not position,
        )
        part = await self._following.read(follower, PAGE_EVENTS, PAGE_BYTES)
        page = part.page
        context.counters.replays += int(opening)
        context.counters.watches += int(opening and form.watches)
        events = [Event(b"OPEN")] if opening else []
        if part.lost:
            events.append(Event(b"TEXT", part.lost))
        events += [Event(b"TEXT", self._text(line)) for line in page.body.split(b"\n") if line]
        headers: list[tuple[str, str]] = []
        if opening:
            headers.append(("Sec-WebSocket-Extensions", 'grip; message-prefix=""'))
        if page.more:
            headers += [("More-Events", "true"), ("Set-Meta-Hub-Place", context.epochs.cursor(page.last))]
            if not page.count and not opening:
                # More-Events means nothing in an answer without events.
                events.append(Event(b"PING"))
        else:
            if progress := self._following.announcement(follower, part.version):
                events.append(Event(b"TEXT", progress))
            events.append(self._subscription(follower, part.position))
            if meta:
                headers.append(("Set-Meta-Hub-Place", ""))
        return socket_answer(events, headers)

    def _subscription(self, follower: Follower, position: str | None) -> Event:
        """Return the control message that subscribes a WebSocket, at the end of its replay."""
        context = self._context
        held = context.index.range(follower.topic.number, follower.keys)
        if held is None or position is None:
            raise Problem(503, "unavailable", "the reading took too long: repeat the request")
        end = float(follower.rights_end or "inf")
        channel = context.index.lease(held, follower.representation, context.now() + LEASE, end)
        return subscription(channel.name, position)

    def _text(self, line: bytes) -> bytes:
        """Return the message of an event; a reference if it is too large for one."""
        if len(line) <= self._context.config.ws_content_max:
            return line
        event = orjson.loads(line)
        event.pop("data", None)
        event.pop("data_base64", None)
        event["url"] = "events/" + event["cursor"]
        event["size"] = len(line)
        return orjson.dumps(event)


def upgrade_refused() -> Problem:
    """Return the refusal of a WebSocket that the proxy passes on as such, not as requests."""
    text = "a WebSocket reaches the hub as requests: the proxy's route needs over_http. An event stream needs nothing"
    return Problem(501, "unsupported", text)


def expired() -> Answer:
    """Return the answer to a WebSocket whose rights have ended."""
    return socket_answer([socket_close(EXPIRED, b"the rights of this connection have ended")])
