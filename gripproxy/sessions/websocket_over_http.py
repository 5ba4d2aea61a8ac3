"""Backend's side of a WebSocket as HTTP requests: WebSocket-over-HTTP after the opening (docs/grip.md §8.3).

Sans-I/O: events of the client are gathered and posted one request at a time; events of the responses go to the
session. ``Poster`` performs the requests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from gripproxy.grip.event_headers import bytes_accepted, event_fields, is_events, parse_interval, update_meta
from gripproxy.grip.event_outbox import BATCH, AcceptError, Outbox, OutboxFull
from gripproxy.grip.event_reader import READ_MAX, EventReader
from gripproxy.grip.frames import BINARY, TEXT
from gripproxy.grip.headers import Headers
from gripproxy.grip.response import Response
from gripproxy.grip.websocket_events import Event, EventError, close_content, decode_some, encode, parse_close_content
from gripproxy.sessions.reliable_websocket import ReliableWebSocket
from gripproxy.sessions.timer_wheel import Alarm
from gripproxy.sessions.websocket import WebSocketSession

# States of a leg: LIVE; LEAVING, DISCONNECT is to be sent; LEFT, it was sent; DEAD, nothing is sent or received.
LIVE, LEAVING, LEFT, DEAD = range(4)

# Request under way: none, one with events or a refresh, a query for missed messages; or its response is being read.
NOTHING, EVENTS, QUESTION, READING = range(4)

__all__ = ["RETRIES", "LastIds", "Poster", "WebSocketOverHttp"]

LastIds = tuple[tuple[bytes, bytes], ...]
"""(channel without the route's prefix, last id) of each channel with an id."""

RETRIES: Final = (1, 2, 4, 8, 16)
"""Seconds before each repetition after a failed connection, plus up to one more (docs/grip.md §8.3)."""

STEP: Final = 16
"""Events of a response passed on between two checks of the clock."""


class Poster(Protocol):
    """Posts events to the backend, one request at a time."""

    def post(self, body: bytes, replayed: int, meta: Headers, last_ids: LastIds = ()) -> None:
        """Send a request; ``on_answer`` or ``on_post_failed`` of the leg follows.

        Args:
            body: events.
            replayed: bytes of it that an earlier request had.
            meta: header fields ``Meta-*``.
            last_ids: of ``Grip-Last``, in a query.
        """

    def spoiled(self, why: str, question: bool) -> None:
        """Log a response, given to ``on_answer``, that cannot be used.

        Args:
            why: the reason.
            question: it answers a query, which may be repeated.
        """


class WebSocketOverHttp:
    """Backend leg of one WebSocket. Implements ``gripproxy.sessions.websocket_interfaces.BackendLeg``.

    Args:
        session: the WebSocket.
        poster: performs requests.
        one_event: a request has one event at most.
        max_message: bytes of the longest message.
    """

    __slots__ = (
        "_alarm",
        "_blocked",
        "_body",
        "_client_closed",
        "_ending",
        "_in_flight",
        "_interval",
        "_outbox",
        "_parts",
        "_parts_type",
        "_poster",
        "_refresh",
        "_replayed",
        "_retry",
        "_session",
        "_state",
        "_taken",
        "_unread",
        "backend_meta",
        "max_message",
        "one_event",
    )

    answers = True

    def __init__(self, session: WebSocketSession, poster: Poster, one_event: bool, max_message: int) -> None:
        self._session = session
        self._poster = poster
        self.one_event = one_event
        self.max_message = max_message
        self.backend_meta: Headers = _NO_META
        """Meta set by ``Set-Meta-*`` of responses, sent as ``Meta-*``."""
        self._outbox: Outbox | None = None
        self._parts: bytearray | None = None  # not a list: pieces may be of one byte each
        self._parts_type = b""
        self._in_flight = NOTHING
        self._body = b""
        self._replayed = 0
        self._taken = False
        self._interval = 0
        self._refresh = False
        self._retry = 0
        self._alarm: Alarm | None = None
        self._blocked = False
        self._unread = False
        self._client_closed = False
        self._ending = False
        self._state = LIVE

    # --- from the session

    def data(self, opcode: int, data: bytes, first: bool, fin: bool) -> None:
        """Take a piece of a client's message; whole messages become events.

        Args:
            opcode: of the message.
            data: the piece.
            first: the piece begins the message.
            fin: the piece ends the message.
        """
        if not (first and fin):
            if first:
                self._parts = bytearray()
                self._parts_type = b"TEXT" if opcode == TEXT else b"BINARY"
            parts = self._parts
            if parts is None:
                return
            parts += data
            if not fin:
                return
            self._parts = None
            self._add(Event(self._parts_type, bytes(parts)))
            return
        self._add(Event(b"TEXT" if opcode == TEXT else b"BINARY", data))

    def ping(self, data: bytes) -> None:
        """Send a client's ping.

        Args:
            data: its payload.
        """
        self._add(Event(b"PING", data or None))

    def pong(self, data: bytes) -> None:
        """Send a client's pong.

        Args:
            data: its payload.
        """
        self._add(Event(b"PONG", data or None))

    def close(self, code: int | None, reason: bytes) -> None:
        """Send the client's close, or its answer to the backend's, as a CLOSE event.

        Args:
            code: of the close frame; None if it has none.
            reason: of the close frame.
        """
        self._client_closed = True
        self._add(Event(b"CLOSE", close_content(code, reason)))

    def end(self) -> None:
        """Send CLOSE without content; events of the backend are ignored from now on (docs/grip.md §8.4)."""
        self._ending = True
        self._read_on()
        self._add(Event(b"CLOSE", None))

    def detach(self) -> None:
        """Send CLOSE without content, because the backend has detached (docs/grip.md §8.5)."""
        self.end()

    def refresh(self) -> None:
        """Send a request without events; after the one under way, if there is one."""
        self._refresh = True
        self._go()

    def recover(self) -> None:
        """Send the query of the session's recovery; after the request under way, if there is one."""
        self._go()

    def client_lost(self) -> None:
        """Send DISCONNECT, alone: the client has disconnected (docs/grip.md §8.3)."""
        if self._state == LIVE:
            self._state = LEAVING
            self._cancel()
            self._outbox = None
            self._go()

    def flow(self, go: bool) -> None:
        """Start or stop sending requests.

        Args:
            go: start; otherwise the client does not read as fast as the backend sends.
        """
        self._blocked = not go
        if go:
            self._go()

    def buffered(self) -> int:
        """Return the bytes that wait for the backend."""
        outbox, parts = self._outbox, self._parts
        return (outbox.size if outbox is not None else 0) + (len(parts) if parts is not None else 0) + len(self._body)

    def _add(self, event: Event) -> None:
        if self._state != LIVE:
            return
        outbox = self._outbox
        if outbox is None:
            outbox = self._outbox = Outbox()
        try:
            outbox.add(event)
        except OutboxFull as error:
            self._fail(str(error))
            return
        if outbox.full and not self._unread and not self._ending:
            self._unread = True
            self._session.outlet.read(False)
        self._go()

    # --- requests

    @property
    def _leaves(self) -> bool:
        """True once a side has closed, so that missed messages no longer matter."""
        return self._client_closed or self._ending

    def _go(self) -> None:
        """Send the next request, if there is one and none is under way."""
        if self._in_flight:
            return
        if self._state == LEAVING:
            self._state = LEFT
            self._in_flight = EVENTS
            self._poster.post(b"DISCONNECT\r\n", 0, self.backend_meta)
            return
        if self._state != LIVE:
            return
        if self._retry or (self._blocked and not self._ending):
            return
        outbox = self._outbox
        fresh = outbox is not None and outbox.fresh
        reliable = self._session.reliable
        if reliable is not None and reliable.wanted and (reliable.first or not fresh) and self._question(reliable):
            return
        if fresh or self._refresh:
            self._request()

    def _question(self, reliable: ReliableWebSocket) -> bool:
        """Query for missed messages. Returns False if the query is not to be sent now."""
        if self._leaves:
            return False
        last_ids = reliable.take()
        if not last_ids:
            return False
        self._cancel()
        self._refresh = False  # a query is a request, too
        self._in_flight = QUESTION
        self._poster.post(b"", 0, self.backend_meta, last_ids)
        return True

    def _request(self) -> None:
        self._cancel()
        self._refresh = False
        self._in_flight = EVENTS
        reliable = self._session.reliable
        if reliable is not None:
            reliable.sent()
        outbox = self._outbox
        self._taken = outbox is not None
        if outbox is None:
            self._poster.post(b"", 0, self.backend_meta)
            return
        events, self._replayed = outbox.take(BATCH, self.one_event)
        self._body = encode(events)
        self._poster.post(self._body, self._replayed, self.backend_meta)

    def on_answer(self, response: Response) -> None:
        """Take the response to the request under way.

        Args:
            response: the response, its body whole.
        """
        question, self._in_flight = self._in_flight == QUESTION, NOTHING
        self._retry = 0
        self._body, self._replayed = b"", 0
        if self._state != LIVE:
            # The response to DISCONNECT does not matter; after an earlier one DISCONNECT is sent.
            self._go()
            return
        if response.code != 200 or not is_events(response.headers):
            self._poster.spoiled(f"events were answered with {response.code}", question)
            self._unusable(question, f"the backend answered events with {response.code}")
            return
        body = response.body
        try:
            events, position = decode_some(body, 0, READ_MAX)
        except EventError as error:
            self._malformed(error, question)
            return
        if position < len(body):
            self._later(partial(self._read, EventReader(body, events, position), response, question))
        else:
            self._take(events, response, question)

    def _read(self, reader: EventReader, response: Response, question: bool) -> None:
        """Continue to read the events of a long response."""
        try:
            whole = reader.read()
        except EventError as error:
            self._malformed(error, question)
            return
        if whole:
            self._take(reader.events, response, question)
        else:
            self._later(partial(self._read, reader, response, question))

    def _take(self, events: list[Event], response: Response, question: bool) -> None:
        """Drop the client's events that the response accepts, and pass its own on."""
        try:
            accepted = self._headers(events, response.headers)
            if self._taken and self._outbox is not None and not question:
                self._outbox.accepted(bytes_accepted(accepted))
                if self._outbox.empty:
                    self._outbox = None
        except (AcceptError, EventError) as error:
            self._malformed(error, question)
            return
        # The client has closed, and the backend does not accept the remaining events.
        stuck = self._client_closed and self._outbox is not None and not self._outbox.fresh
        closing = self._client_closed and (self._outbox is None or self._outbox.empty)
        if len(events) <= STEP:
            self._answered(events, question, closing, stuck, self._process(events))
        else:
            self.process(events, partial(self._answered, events, question, closing, stuck))

    def _answered(self, events: list[Event], question: bool, closing: bool, stuck: bool, closed: bool) -> None:
        """Continue after a response whose events are passed on."""
        if self._ending and (self._outbox is None or self._outbox.empty):
            self._state = DEAD
            return
        if self._state != LIVE or closed:
            if closing:
                self._state = DEAD
            if self._outbox is None or not self._outbox.full:
                self._read_on()  # for the client's answer to the close
            self._go()
            return
        # Once both sides have closed no more requests follow at an interval.
        if (closing or stuck) and (not self._interval or self._session.over):
            self._spoil("the backend does not answer a close")
            return
        reliable = self._session.reliable
        if reliable is not None:
            if not question:
                reliable.received()
            elif not self._leaves and not reliable.answered(any(map(_is_message, events))):
                self._spoil("the backend does not say what the client missed")
                return
        self._rest()

    def _later(self, act: Callable[[], None]) -> None:
        """Call a function in the next turn of the loop; no request is sent before."""
        self._in_flight = READING
        self._session.context.turns.again(partial(self._continue, act))

    def _continue(self, act: Callable[[], None]) -> bool:
        self._in_flight = NOTHING
        try:
            if self._state == LIVE:
                act()
            else:
                # The client has left; DISCONNECT may be due.
                self._go()
        except Exception as error:  # noqa: BLE001 - of one session; those behind it have their turn
            self._session.context.table.failed(self._session, error)
        return True

    def _malformed(self, error: Exception, question: bool) -> None:
        self._poster.spoiled(f"events: {error}", question)
        self._unusable(question, f"the backend's events: {error}")

    def _unusable(self, question: bool, why: str) -> None:
        """Fail, or repeat a query later: the response is missing or cannot be used. Events may have been taken, so
        they are not sent twice."""
        reliable = self._session.reliable
        if question and (reliable is None or self._leaves or reliable.failed()):
            self._rest()
        else:
            self._fail(why)

    def opened(self, events: list[Event], headers: Headers) -> None:
        """Take the response to OPEN: pass its events on, then send those of the client, or wait.

        Args:
            events: those behind OPEN.
            headers: of the response.
        """
        try:
            self._headers(events, headers)
        except EventError as error:
            self._session.backend_lost(str(error))
            return
        if len(events) > STEP:
            self.process(events, lambda closed: None if closed else self._rest())
        elif not events or not self._process(events):
            self._rest()

    def _headers(self, events: list[Event], headers: Headers) -> bytes | None:
        """Take interval, meta and the request for more from a response's fields; return ``Content-Bytes-Accepted``."""
        interval, accepted, more, meta = event_fields(headers)
        # Without an event in it, a backend that always has more would be asked again and again.
        if more is not None and events and more.strip().lower() == b"true":
            self._refresh = True
        if interval is not None:
            self._interval = parse_interval(interval) or 0
        if meta:
            self.backend_meta = update_meta(self.backend_meta, headers, self._session.terms.bounds.meta)
        return accepted

    def process(self, events: list[Event], done: Callable[[bool], None], start: int = 0) -> None:
        """Pass the backend's events to the session, in several turns of the loop if there are many.

        Args:
            events: of one response.
            done: called with True if one of them ended the conversation, else with False; not called if the client
                leaves before all are passed on.
            start: index of the first event.
        """
        count = len(events)
        while count - start > STEP:
            if self._process(events[start : start + STEP]):
                done(True)
                return
            start += STEP
            if self._session.context.turns.late():
                self._later(partial(self.process, events, done, start))
                return
        done(self._process(events[start:] if start else events))

    def _process(self, events: list[Event]) -> bool:
        """Pass events to the session. Returns True if one of them ended the conversation."""
        session = self._session
        for event in events:
            kind, content = event.type, event.content
            if self._ending:
                continue
            if kind == b"TEXT" or kind == b"BINARY":
                session.backend_data(TEXT if kind == b"TEXT" else BINARY, content or b"", True, True)
            elif kind == b"PING":
                session.backend_ping(content or b"")
            elif kind == b"PONG":
                session.backend_pong(content or b"")
            elif kind == b"CLOSE":
                session.backend_close(*parse_close_content(content))
                return True
            elif kind == b"DISCONNECT":
                self._state = DEAD
                session.abort_client("the backend asked for it")
                return True
            elif kind == b"OPEN":
                self._spoil("the backend opened twice")
                return True
        return False

    def _rest(self) -> None:
        if self._outbox is None or not self._outbox.full:
            self._read_on()
        self._go()
        if not self._in_flight and self._interval and self._state == LIVE:
            if self._alarm is None:
                self._alarm = Alarm(self._on_alarm)
            context = self._session.context
            context.wheel.set(self._alarm, context.clock() + self._interval)

    def _read_on(self) -> None:
        if self._unread:
            self._unread = False
            self._session.outlet.read(True)

    def on_post_failed(self, retry: bool, why: str, kind: str = "") -> None:
        """Repeat the request later, or fail: there is no response to it.

        Args:
            retry: the backend cannot have taken the request.
            why: the reason, for the log.
            kind: of the failure.
        """
        question, self._in_flight = self._in_flight == QUESTION, NOTHING
        if self._state != LIVE:
            # The response to DISCONNECT does not matter; after an earlier one DISCONNECT is sent.
            self._go()
            return
        if question:
            self._unusable(True, why)
            return
        if not retry or self._retry >= len(RETRIES):
            self._fail(why)
            return
        context = self._session.context
        pause = RETRIES[self._retry] + context.random() * 0.999
        self._retry += 1
        if self._alarm is None:
            self._alarm = Alarm(self._on_alarm)
        context.wheel.set(self._alarm, context.clock() + pause)

    def _on_alarm(self, now: float) -> None:
        if self._in_flight or self._state != LIVE:
            return
        if self._retry:
            # Unchanged, even if the client has sent more (docs/grip.md §8.3).
            self._in_flight = EVENTS
            self._poster.post(self._body, self._replayed, self.backend_meta)
            return
        if self._session.over:
            self._state = DEAD
            return
        self._refresh = True
        self._go()

    def _spoil(self, why: str) -> None:
        """Drop the client: the backend broke the protocol."""
        self._poster.spoiled(why, False)
        self._fail(why)

    def _fail(self, why: str) -> None:
        self._state = DEAD
        self._cancel()
        self._read_on()
        if not self._ending:
            self._session.backend_lost(why)

    def _cancel(self) -> None:
        if self._alarm is not None:
            self._session.context.wheel.cancel(self._alarm)


def _is_message(event: Event) -> bool:
    return event.type == b"BINARY" or (event.type == b"TEXT" and not (event.content or b"").startswith(b"c:"))


_NO_META: Final[Headers] = []
