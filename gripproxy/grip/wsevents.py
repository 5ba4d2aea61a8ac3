"""WebSocket-over-HTTP events (docs/grip.md §8.3): their bytes, the queue towards the backend, the headers around them.

A WebSocket becomes a series of requests. :func:`encode` and :func:`decode` are the bodies; an :class:`Outbox` keeps
what the client sent until the backend has accepted it; the functions at the end read a response's headers.

Errors: :class:`EventError` and :class:`AcceptError` are the backend's fault, :class:`OutboxFull` the client's (or of
the caller, who should have stopped reading).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gripproxy.grip.bounds import BOUNDS, size_of
from gripproxy.grip.frames import MAX_CONTROL, close_payload, is_close_code
from gripproxy.grip.headers import Headers, ParamsError, all_of, first, param, parse_params, split_list

__all__ = [
    "BATCH",
    "CONTENT_TYPE",
    "KEEP_ALIVE_MIN",
    "MAX_META",
    "MESSAGE_PREFIX",
    "AcceptError",
    "Event",
    "EventError",
    "Outbox",
    "OutboxFull",
    "bytes_accepted",
    "close_content",
    "decode",
    "encode",
    "grip_extension",
    "is_events",
    "keep_alive_interval",
    "parse_close_content",
    "public_headers",
    "set_meta",
    "update_meta",
]

CONTENT_TYPE: Final = b"application/websocket-events"
BATCH: Final = 200_000
"""Content bytes after which a request takes no more events."""
KEEP_ALIVE_MIN: Final = 20
"""Seconds; a backend that asks for a shorter ``Keep-Alive-Interval`` gets this one."""
MESSAGE_PREFIX: Final = b"m:"
"""What begins a message for the client if the backend does not say otherwise (docs/grip.md §8.2)."""
MAX_META: Final = 100
"""Names of meta kept for a connection: they are sent along with every request, and a backend can set new ones in each
response."""

_BOUND: Final = 2_000_000
# What an event costs beyond its content: without it, empty messages would be free.
_EVENT_COST: Final = 32
_MAX_LINE: Final = 100
_HEX: Final = re.compile(rb"[0-9A-Fa-f]{1,16}")
_TYPE: Final = re.compile(rb"[!-~]+")
_INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,10}")
_SET_META: Final = b"set-meta-"
_MAX_INTERVAL: Final = 2**31 - 1
_CONTROL: Final = frozenset((b"PING", b"PONG"))
_DATA: Final = frozenset((b"TEXT", b"BINARY", b"PING", b"PONG"))
# Of an OPEN response: for the proxy, or about this one message and connection (RFC 9110 §7.6.1). Extensions are agreed
# on between the client and the proxy, the key is answered by the proxy.
_PRIVATE: Final = frozenset(
    (
        b"connection",
        b"content-bytes-accepted",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"keep-alive",
        b"keep-alive-interval",
        b"sec-websocket-accept",
        b"sec-websocket-extensions",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)


class EventError(ValueError):
    """The backend's response does not follow docs/grip.md §8.3; the text says where and what was expected."""


class AcceptError(ValueError):
    """The backend's ``Content-Bytes-Accepted`` makes no sense for what was offered."""


class OutboxFull(Exception):
    """The client sent more than may wait for the backend."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    :param type: ``OPEN``, ``TEXT``, ``BINARY``, ``PING``, ``PONG``, ``CLOSE`` or ``DISCONNECT``; others are kept for
        the caller to ignore.
    :param content: ``None`` if the event has no length; of a text as for a message of no bytes.
    """

    type: bytes
    content: bytes | None = None


def encode(events: Iterable[Event]) -> bytes:
    """The body for some events.

    :param events: in order.
    :returns: the body. An event without content, or with an empty one, has no length, as Pushpin writes it.
    """
    return b"".join(
        [
            b"%b %x\r\n%b\r\n" % (event.type, len(event.content), event.content)
            if event.content
            else event.type + b"\r\n"
            for event in events
        ]
    )


def decode(body: bytes) -> list[Event]:
    """Read the body of a backend's response.

    :param body: the whole body.
    :returns: the events in order. What follows ``CLOSE`` or ``DISCONNECT``, and types that mean nothing, are there: the
        caller ignores them.
    :raises EventError: the body ends inside an event, a length is not hexadecimal, a content does not end with CRLF
        where its length says, a line has no type, a ``TEXT`` is not UTF-8, or a ``PING`` or ``PONG`` has more than 125
        bytes (either would make the client fail the connection, RFC 6455 §8.1 and §5.5).
    """
    events: list[Event] = []
    position, end = 0, len(body)
    while position < end:
        stop = body.find(b"\r\n", position)
        if stop < 0:
            raise EventError(f"no line end in the {end - position} bytes from byte {position} on")
        kind, space, length_text = body[position:stop].partition(b" ")
        if not _TYPE.fullmatch(kind):
            raise EventError(f"event at byte {position} has the type {kind[:_MAX_LINE]!r}; expected a word")
        start = stop + 2
        if not space:
            events.append(Event(kind))
            position = start
            continue
        if not _HEX.fullmatch(length_text):
            raise EventError(
                f"{kind[:_MAX_LINE].decode()} at byte {position} has the length {length_text[:_MAX_LINE]!r}; "
                "expected a hexadecimal number"
            )
        stop = start + int(length_text, 16)
        position = stop + 2
        if position > end:
            raise EventError(
                f"{kind[:_MAX_LINE].decode()} at byte {start} should end at byte {position}; the body ends at {end}"
            )
        if body[stop:position] != b"\r\n":
            raise _no_end(kind, stop, body)
        content = body[start:stop]
        if kind == b"TEXT" and not content.isascii():
            try:
                content.decode()
            except UnicodeDecodeError as e:
                raise EventError(f"TEXT at byte {start} is not UTF-8: {e.reason} at its byte {e.start}") from e
        elif len(content) > MAX_CONTROL and kind in _CONTROL:
            raise EventError(
                f"{kind.decode()} at byte {start} has {len(content)} bytes; a frame of it carries at most {MAX_CONTROL}"
            )
        events.append(Event(kind, content))
    return events


def _no_end(kind: bytes, stop: int, body: bytes) -> EventError:
    return EventError(
        f"{kind[:_MAX_LINE].decode()} does not end at byte {stop} as its length says: "
        f"{body[stop : stop + 2]!r} instead of CRLF"
    )


class Outbox:
    """What the client sent and the backend has not accepted yet (docs/grip.md §8.3, ``Content-Bytes-Accepted``).

    Data events and at the end perhaps one ``CLOSE``. ``OPEN`` and ``DISCONNECT`` travel alone and never pass through
    here. An event the backend accepted in part stays, shortened, with its type.

    Bound: when ``full``, the caller stops reading from the client; what was read already still fits, until ``bound`` is
    reached. It holds at most that and one message, whatever size the caller allows for messages.

    :param high: bytes (content, and 32 for each event) from which it is ``full``.
    :param bound: bytes, counted likewise, from which it takes no more; must leave room for ``high`` and the messages of
        one read from the socket.
    """

    __slots__ = (
        "_bound",
        "_closing",
        "_events",
        "_high",
        "_maxed",
        "_offered",
        "_offered_close",
        "_seen",
        "_seen_bytes",
        "size",
    )

    size: int
    """Content bytes waiting, those of a ``CLOSE`` included."""

    def __init__(self, high: int = BATCH, bound: int = _BOUND) -> None:
        self._high = high
        self._bound = bound
        # A list, since an empty one is a tenth of a deque; events leave it in one cut per response.
        self._events: list[Event] = []
        self._closing = False
        self.size = 0
        self._offered: int | None = None  # events of the request under way
        self._offered_close = False
        self._maxed = False  # more was waiting than it could take
        # At the front, what an earlier request offered and the backend did not accept.
        self._seen = 0
        self._seen_bytes = 0

    def __len__(self) -> int:
        return len(self._events)

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._events

    @property
    def full(self) -> bool:
        """Whether the client should be read from no more.

        What the backend was offered and did not accept does not count: it waits for what comes next, which must be
        read, or the connection would be stuck.
        """
        return self.size - self._seen_bytes + _EVENT_COST * (len(self._events) - self._seen) >= self._high

    @property
    def fresh(self) -> bool:
        """Whether something waits that was never offered: only that (or a refresh, or a keep-alive) calls for a
        request, since the backend said of the rest that it wants more first."""
        return len(self._events) > self._seen

    def add(self, event: Event) -> None:
        """Append what the client sent.

        :param event: ``TEXT``, ``BINARY``, ``PING``, ``PONG`` or ``CLOSE``.
        :raises OutboxFull: ``bound`` is reached; the event is not in.
        :raises ValueError: another type, or something behind a ``CLOSE``; a mistake of the caller.
        """
        if self._closing:
            raise ValueError(f"nothing follows a CLOSE, but {event.type!r} was added")
        if event.type not in _DATA:
            if event.type != b"CLOSE":
                raise ValueError(f"an outbox holds messages and CLOSE, not {event.type!r}")
            # A CLOSE always fits: it is the last event, and without it the backend would never hear of the end.
            self._closing = True
        elif self.size + _EVENT_COST * len(self._events) >= self._bound:
            raise OutboxFull(
                f"{self.size} bytes in {len(self._events)} messages wait for the backend; the bound is {self._bound}"
            )
        self._events.append(event)
        if event.content:
            self.size += len(event.content)

    def take(self, limit: int = BATCH, one_event: bool = False) -> tuple[list[Event], int]:
        """What the next request offers. Taking again before :meth:`accepted` begins anew at the front.

        :param limit: content bytes from which no further event is taken; the first event is taken whatever its size.
        :param one_event: take at most one.
        :returns: the events, to be sent as they are, and how many content bytes of them were offered before
            (``Content-Bytes-Replayed``; not to be sent if 0).
        """
        events: list[Event] = []
        size = 0
        for event in self._events:
            if size >= limit or (one_event and events):
                break
            events.append(event)
            if event.content:
                size += len(event.content)
        self._offered = len(events)
        self._offered_close = bool(events) and events[-1].type == b"CLOSE"
        self._maxed = len(events) < len(self._events)
        return events, min(self._seen_bytes, size)

    def accepted(self, count: int | None = None) -> bool:
        """Take note of a response to what :meth:`take` gave.

        :param count: content bytes the backend accepted (``Content-Bytes-Accepted``), ``None`` for all.
        :returns: whether a ``CLOSE`` was among what is accepted now. If a CLOSE was offered and is not, the backend
            waits for more data that cannot come: only a keep-alive or a refresh offers the rest again.
        :raises AcceptError: it accepts more than was offered; nothing, although more was waiting than the request could
            take; or all but (a part of) the content of a ``CLOSE``.
        :raises RuntimeError: nothing was taken; a mistake of the caller.
        """
        if self._offered is None:
            raise RuntimeError("accepted() without take()")
        offered, close = self._offered, self._offered_close
        self._offered = None
        # The CLOSE is accepted with, and only with, everything in front of it.
        data = [len(event.content or b"") for event in self._events[: offered - close]]
        offered_bytes = sum(data)
        close_bytes = len(self._events[offered - 1].content or b"") if close else 0
        if count is None:
            count = offered_bytes + close_bytes
        if not 0 <= count <= offered_bytes + close_bytes:
            raise AcceptError(f"{count} content bytes were accepted, but {offered_bytes + close_bytes} offered")
        if close and offered_bytes <= count < offered_bytes + close_bytes:
            raise AcceptError(
                f"the CLOSE must be accepted together with what is in front of it: {count} content bytes were accepted "
                f"of {offered_bytes + close_bytes}"
            )
        left = min(count, offered_bytes)
        removed = 0
        for size in data:
            if size > left:
                break
            left -= size
            self.size -= size
            removed += 1
        del self._events[:removed]
        if left:
            event = self._events[0]
            assert event.content is not None  # it is longer than what is left
            self._events[0] = Event(event.type, event.content[left:])
            self.size -= left
        remaining = offered_bytes - min(count, offered_bytes)
        if close and removed == len(data):
            del self._events[0]
            self.size -= close_bytes
            self._seen = self._seen_bytes = 0
            return True
        if not removed and not left and self._maxed:
            # The same would be offered for ever, since what the backend waits for cannot get in.
            raise AcceptError("nothing was accepted, although more is waiting than fits into one request")
        self._seen = offered - removed
        self._seen_bytes = remaining
        return False


def close_content(code: int | None, reason: bytes = b"") -> bytes | None:
    """The content of a ``CLOSE`` event.

    :param code: ``None`` for none.
    :param reason: UTF-8.
    :returns: two bytes of code and the reason, or ``None`` without a code.
    """
    return close_payload(code, reason) or None


def parse_close_content(content: bytes | None) -> tuple[int | None, bytes]:
    """Read the content of a backend's ``CLOSE`` event.

    :param content: of the event.
    :returns: code and reason, fit for a close frame. Less than two bytes, and a code that must not be on the wire
        (backends do write 0 for "none"), mean no code and no reason. A reason that is not UTF-8 is repaired with
        U+FFFD, one over 123 bytes is cut.
    """
    if content is None or len(content) < 2:
        return None, b""
    code = content[0] << 8 | content[1]
    if not is_close_code(code):
        return None, b""
    return code, close_payload(code, content[2:])[2:]


def is_events(headers: Headers) -> bool:
    """Whether a response is of the right type: exactly ``application/websocket-events``, without parameters."""
    return first(headers, b"content-type") == CONTENT_TYPE


def keep_alive_interval(headers: Headers) -> int | None:
    """``Keep-Alive-Interval`` of a response.

    :returns: seconds, at least ``KEEP_ALIVE_MIN``; 0 if it turns the keep-alive off (0, negative or no number);
        ``None`` if the header is missing and all stays as it was.
    """
    value = first(headers, b"keep-alive-interval")
    if value is None:
        return None
    value = value.strip()
    seconds = int(value) if _INTEGER.fullmatch(value) else 0
    return max(seconds, KEEP_ALIVE_MIN) if 0 < seconds <= _MAX_INTERVAL else 0


def bytes_accepted(headers: Headers) -> int | None:
    """``Content-Bytes-Accepted`` of a response, for :meth:`Outbox.accepted`.

    :returns: the number, ``None`` (all) if it is missing, negative or no number.
    """
    value = first(headers, b"content-bytes-accepted")
    if value is None or not _INTEGER.fullmatch(value := value.strip()):
        return None
    count = int(value)
    return count if count >= 0 else None


def set_meta(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The ``Set-Meta-*`` headers of a response.

    :returns: (name without ``Set-Meta-``, as the backend wrote it; value) in order. An empty value deletes.
    """
    length = len(_SET_META)
    return [
        (name[length:], value) for name, value in headers if len(name) > length and name[:length].lower() == _SET_META
    ]


def update_meta(meta: Headers, headers: Headers, most: int = BOUNDS.meta) -> Headers:
    """Apply the ``Set-Meta-*`` headers of a response.

    :param meta: (name, value) pairs so far; not changed.
    :param headers: of the response.
    :param most: bytes that all names and values may have.
    :returns: the pairs now; ``meta`` itself if nothing was set. Names are compared without regard to letter case.
    :raises EventError: there would be more than ``MAX_META``, or more bytes than ``most``.
    """
    changes = set_meta(headers)
    if not changes:
        return meta
    updated = {name.lower(): (name, value) for name, value in meta}
    for name, value in changes:
        updated.pop(name.lower(), None)
        if value:
            updated[name.lower()] = (name, value)
    if len(updated) > MAX_META:
        raise EventError(f"Set-Meta-* makes {len(updated)} names of meta; at most {MAX_META} are kept")
    size = size_of(updated.values())
    if size > most:
        raise EventError(f"Set-Meta-* makes {size} bytes of meta; at most {most} are allowed (meta_max)")
    return list(updated.values())


def public_headers(headers: Headers) -> Headers:
    """The headers of an ``OPEN`` response that go to the client in its 101.

    :returns: all but those for the proxy (``Set-Meta-*``, ``Keep-Alive-Interval``, …), of the message's framing, and of
        the handshake, which the proxy writes itself.
    """
    length = len(_SET_META)
    return [
        header
        for header in headers
        if (name := header[0].lower()) not in _PRIVATE and not (len(name) > length and name.startswith(_SET_META))
    ]


def grip_extension(headers: Headers) -> bytes | None:
    """Whether a backend's handshake response turns GRIP on (docs/grip.md §8.2).

    :param headers: of the 101, or of the response to ``OPEN``.
    :returns: the message prefix (``m:`` if none is named; empty means that every message goes to the client), or
        ``None`` if ``Sec-WebSocket-Extensions`` has no ``grip``. An item with a quote that is not closed is skipped.
    """
    for item in split_list(all_of(headers, b"sec-websocket-extensions")):
        try:
            name, params = parse_params(item)
        except ParamsError:
            continue  # as in every list-type header (docs/grip.md §0.1)
        if name.lower() == b"grip":
            prefix = param(params, b"message-prefix")
            return MESSAGE_PREFIX if prefix is None else prefix
    return None
