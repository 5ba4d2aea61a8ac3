"""The backend's side of a WebSocket as HTTP requests: WebSocket-over-HTTP after the opening (docs/grip.md §8.3).

Sans-I/O: events of the client are gathered and posted one request at a time; what the backend answers goes to the
session. ``Poster`` performs the requests.
"""

from __future__ import annotations

from typing import Final, Protocol

from gripproxy.grip.frames import BINARY, TEXT
from gripproxy.grip.headers import Headers
from gripproxy.grip.response import Response
from gripproxy.grip.wsevents import (
    BATCH,
    AcceptError,
    Event,
    EventError,
    Outbox,
    OutboxFull,
    bytes_accepted,
    close_content,
    decode,
    encode,
    is_events,
    keep_alive_interval,
    parse_close_content,
    update_meta,
)
from gripproxy.sessions.reliable_socket import ReliableSocket
from gripproxy.sessions.websocket import WebSocketSession
from gripproxy.sessions.wheel import Alarm

# A leg's life: LIVE; LEAVING, DISCONNECT is to be sent; LEFT, it was sent; DEAD, nothing more is sent or heard.
LIVE, LEAVING, LEFT, DEAD = range(4)

# What is under way: nothing, events or a request for them, a question for what the client missed.
NOTHING, EVENTS, QUESTION = range(3)

__all__ = ["RETRIES", "LastIds", "OverHttp", "Poster"]

LastIds = tuple[tuple[bytes, bytes], ...]
"""(channel without the route's prefix, id of the last item the client has) of each channel with ids."""

RETRIES: Final = (1, 2, 4, 8, 16)
"""Seconds before each new try after a failed connection, plus up to one more (docs/grip.md §8.3)."""


class Poster(Protocol):
    """Posts events to the backend, one request at a time."""

    def post(self, body: bytes, replayed: int, meta: Headers, last_ids: LastIds = ()) -> None:
        """Send a request; ``on_answer`` or ``on_post_failed`` of the leg follows. ``last_ids``: see ``grip_last``."""

    def spoiled(self, why: str, question: bool) -> None:
        """The answer given to ``on_answer`` cannot be used; ``question``: what was asked may be asked again."""


class OverHttp:
    """The backend leg of one WebSocket. Implements ``gripproxy.sessions.sides.BackendLeg``."""

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
        """What ``Set-Meta-*`` set, to be sent as ``Meta-*``."""
        self._outbox: Outbox | None = None
        self._parts: bytearray | None = None  # not a list of pieces: they may have one byte each
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
        """A piece of a client's message; whole messages become events."""
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
        """A client's ping."""
        self._add(Event(b"PING", data or None))

    def pong(self, data: bytes) -> None:
        """A client's pong."""
        self._add(Event(b"PONG", data or None))

    def close(self, code: int | None, reason: bytes) -> None:
        """The client closes, or answers the backend's close: the backend is told in a CLOSE event."""
        self._client_closed = True
        self._add(Event(b"CLOSE", close_content(code, reason)))

    def end(self) -> None:
        """CLOSE without content, and nothing more from the backend is heard (docs/grip.md §8.4)."""
        self._ending = True
        self._read_on()
        self._add(Event(b"CLOSE", None))

    def detach(self) -> None:
        """The same for a backend that wants out (docs/grip.md §8.5)."""
        self.end()

    def refresh(self) -> None:
        """A request at once; if one is in flight, another follows."""
        self._refresh = True
        self._go()

    def recover(self) -> None:
        """The session wants to ask for what the client missed; if a request is in flight, after that."""
        self._go()

    def client_lost(self) -> None:
        """The client vanished: DISCONNECT, alone (docs/grip.md §8.3)."""
        if self._state == LIVE:
            self._state = LEAVING
            self._cancel()
            self._outbox = None
            self._go()

    def flow(self, go: bool) -> None:
        """While much waits for the client the backend is not asked for more."""
        self._blocked = not go
        if go:
            self._go()

    def buffered(self) -> int:
        """Bytes that wait for the backend."""
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
        """One side has closed: nothing that the client missed matters any more."""
        return self._client_closed or self._ending

    def _go(self) -> None:
        """Send the next request, if there is a reason to and nothing in the way."""
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

    def _question(self, reliable: ReliableSocket) -> bool:
        """Ask for what the client missed. Returns False if that is not to be asked now."""
        if self._leaves:
            return False
        last_ids = reliable.take()
        if not last_ids:
            return False
        self._cancel()
        self._refresh = False  # it is one, too
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
        """The backend's answer to the request in flight."""
        question, self._in_flight = self._in_flight == QUESTION, NOTHING
        self._retry = 0
        self._body, self._replayed = b"", 0
        if self._state != LIVE:
            # An answer to DISCONNECT does not matter; one that came before it lets it go out.
            self._go()
            return
        if response.code != 200 or not is_events(response.headers):
            self._poster.spoiled(f"events were answered with {response.code}", question)
            self._unusable(question, f"the backend answered events with {response.code}")
            return
        try:
            events = decode(response.body)
            self.headers(response.headers)
            if self._taken and self._outbox is not None and not question:
                self._outbox.accepted(bytes_accepted(response.headers))
                if self._outbox.empty:
                    self._outbox = None
        except (EventError, AcceptError) as error:
            self._poster.spoiled(f"events: {error}", question)
            self._unusable(question, f"the backend's events: {error}")
            return
        # Closed, and the backend wants to hear no more of what is left.
        stuck = self._client_closed and self._outbox is not None and not self._outbox.fresh
        closing = self._client_closed and (self._outbox is None or self._outbox.empty)
        closed = self.process(events)
        if self._ending and (self._outbox is None or self._outbox.empty):
            self._state = DEAD
            return
        if self._state != LIVE or closed:
            if closing:
                self._state = DEAD
            if self._outbox is None or not self._outbox.full:
                self._read_on()  # its answer to the close
            self._go()
            return
        # Once both sides have closed there is nothing left to be asked at an interval.
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

    def _unusable(self, question: bool, why: str) -> None:
        """No answer, or none that can be used. Events may have been taken, and are not sent twice; a question may be
        asked again."""
        reliable = self._session.reliable
        if question and (reliable is None or self._leaves or reliable.failed()):
            self._rest()
        else:
            self._fail(why)

    def headers(self, headers: Headers) -> None:
        """Take what an answer's headers say: the interval of empty requests, and meta. Raises EventError."""
        interval = keep_alive_interval(headers)
        if interval is not None:
            self._interval = interval
        self.backend_meta = update_meta(self.backend_meta, headers, self._session.terms.bounds.meta)

    def process(self, events: list[Event]) -> bool:
        """Pass the backend's events on. Returns whether one of them ended the conversation."""
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
                session.abort("the backend asked for it")
                return True
            elif kind == b"OPEN":
                self._spoil("the backend opened twice")
                return True
        return False

    def rest(self) -> None:
        """The opening's answer is dealt with: go on with what the client has sent meanwhile, or wait."""
        self._rest()

    def _rest(self) -> None:
        if self._outbox is None or not self._outbox.full:
            self._read_on()
        self._go()
        if not self._in_flight and self._interval and self._state == LIVE:
            if self._alarm is None:
                self._alarm = Alarm(self._on_alarm)
            keeper = self._session.keeper
            keeper.wheel.set(self._alarm, keeper.clock() + self._interval)

    def _read_on(self) -> None:
        if self._unread:
            self._unread = False
            self._session.outlet.read(True)

    def on_post_failed(self, retry: bool, why: str, kind: str = "") -> None:
        """The request in flight failed; ``retry``: the backend cannot have taken it."""
        question, self._in_flight = self._in_flight == QUESTION, NOTHING
        if self._state != LIVE:
            # An answer to DISCONNECT does not matter; one that came before it lets it go out.
            self._go()
            return
        if question:
            self._unusable(True, why)
            return
        if not retry or self._retry >= len(RETRIES):
            self._fail(why)
            return
        keeper = self._session.keeper
        pause = RETRIES[self._retry] + keeper.random() * 0.999
        self._retry += 1
        if self._alarm is None:
            self._alarm = Alarm(self._on_alarm)
        keeper.wheel.set(self._alarm, keeper.clock() + pause)

    def _on_alarm(self, now: float) -> None:
        if self._in_flight or self._state != LIVE:
            return
        if self._retry:
            # The same again, whatever has come meanwhile (docs/grip.md §8.3).
            self._in_flight = EVENTS
            self._poster.post(self._body, self._replayed, self.backend_meta)
            return
        if self._session.over:
            self._state = DEAD
            return
        self._refresh = True
        self._go()

    def _spoil(self, why: str) -> None:
        """The backend says what it may not say: the client is dropped."""
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
            self._session.keeper.wheel.cancel(self._alarm)


def _is_message(event: Event) -> bool:
    return event.type == b"BINARY" or (event.type == b"TEXT" and not (event.content or b"").startswith(b"c:"))


_NO_META: Final[Headers] = []
