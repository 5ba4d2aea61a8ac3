"""Following over a WebSocket, which the proxy turns into requests (docs/grip.md §8.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import orjson

from griphub.access.owner import owner_key
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.follow import Follower, Following
from griphub.api.problem import Problem, too_large
from griphub.api.query import ReadQuery, read_query
from griphub.api.reading import Reading
from griphub.api.request import Answer, Request
from griphub.store.topic import Topic
from griphub.topics.channel_index import LEASE
from griphub.topics.event_text import Representation
from gripproxy.grip.websocket_events import Event, EventError, close_content, decode_some, encode

__all__ = ["EVENTS_TYPE", "WebSockets", "expired", "upgrade_refused"]

EVENTS_TYPE: Final = "application/websocket-events"

EVENTS_MAX: Final = 10_000
"""Greatest number of events of a WebSocket in one request: reading them takes a hundredth of a second."""

PAGE_BYTES: Final = 600_000
"""Bytes of contents after which an answer ends; the proxy takes 1,000,000 with the texts around them."""

PAGE_EVENTS: Final = 2000

GONE: Final = 4410
EXPIRED: Final = 4401
"""Close codes of the hub: the place is not retained; the rights have ended."""

FEATURES: Final = (b"ws:prev-id", b"ws:more-events")

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

    async def answer(self, request: Request, topic: Topic, rights: Rights) -> Answer:
        """Answer one request of a WebSocket that follows a topic.

        Args:
            request: the request.
            topic: the topic; the caller may read it.
            rights: of the caller.

        Raises:
            Problem: an opening is refused; 413, there are too many events.
        """
        try:
            events, end = decode_some(request.body, 0, EVENTS_MAX)
        except EventError as error:
            raise Problem(400, "bad-request", str(error)) from error
        if end < len(request.body):
            raise too_large(f"the body has more than {EVENTS_MAX} events of the WebSocket", "events", EVENTS_MAX)
        kinds = {event.type for event in events}
        opening = b"OPEN" in kinds
        if opening:
            features = request.header(b"grip-feature") or b""
            if not all(feature in features for feature in FEATURES):
                raise Problem(501, "unsupported", "this proxy cannot repair a WebSocket: follow by an event stream")
        if b"DISCONNECT" in kinds:
            return _events([])
        for event in events:
            if event.type == b"CLOSE":
                return _events([Event(b"CLOSE", event.content)])
            if event.type in (b"TEXT", b"BINARY"):
                return _events([_close(1008, b"this WebSocket takes no messages: publish over HTTP")])
        query = read_query(request.target.query)
        if query.until is not None or query.limit is not None or query.wait is not None:
            raise Problem(400, "bad-request", "a WebSocket takes after, since, low, high and truncated only")
        try:
            return await self._page(request, topic, rights, query, opening=opening)
        except Problem as problem:
            if problem.status != 410:
                raise
            text = self._following.resync(problem, Representation.WS)
            start = [Event(b"OPEN")] if opening else []
            return _events([*start, Event(b"TEXT", text), _close(GONE, b"resync")])

    def deleted(self) -> Answer:
        """Return the answer to a WebSocket whose topic was deleted."""
        text = self._following.resync(self._reading.deleted(), Representation.WS)
        return _events([Event(b"TEXT", text), _close(GONE, b"resync")])

    async def _page(self, request: Request, topic: Topic, rights: Rights, query: ReadQuery, *, opening: bool) -> Answer:
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
            Representation.LINES,
            after,
            owner,
            rights.ends,
            truncated=query.truncated and opening,
            position=position,
        )
        part = await self._following.read(replace(follower, representation=Representation.WS), PAGE_EVENTS, PAGE_BYTES)
        page = part.page
        context.counters.replays += int(opening)
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
            assert part.tail is not None
            held = context.index.range(page.topic.number, query.keys)
            if held is None:
                raise Problem(503, "unavailable", "the reading took too long: repeat the request")
            end = float(rights.ends or "inf")
            channel = context.index.lease(held, Representation.WS, context.now() + LEASE, end)
            control = {
                "type": "subscribe",
                "channel": channel.name,
                "prev-id": context.epochs.cursor(part.tail),
            }
            events.append(Event(b"TEXT", b"c:" + orjson.dumps(control)))
            if meta:
                headers.append(("Set-Meta-Hub-Place", ""))
        return _events(events, headers)

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
    return _events([_close(EXPIRED, b"the rights of this connection have ended")])


def _close(code: int, reason: bytes) -> Event:
    return Event(b"CLOSE", close_content(code, reason))


def _events(events: list[Event], headers: list[tuple[str, str]] | None = None) -> Answer:
    return Answer(200, encode(events), EVENTS_TYPE, headers or [])
