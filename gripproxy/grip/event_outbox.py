"""Queue of WebSocket-over-HTTP events that the backend has not accepted (docs/grip.md §8.3)."""

from __future__ import annotations

from typing import Final

from gripproxy.grip.errors import BackendError, ClientError
from gripproxy.grip.websocket_events import Event

__all__ = ["BATCH", "AcceptError", "Outbox", "OutboxFull"]


BATCH: Final = 200_000
"""Content bytes after which a request takes no more events."""


_BOUND: Final = 2_000_000


# Cost of an event beyond its content: without it, empty messages would be free.
_EVENT_COST: Final = 32


_DATA: Final = frozenset((b"TEXT", b"BINARY", b"PING", b"PONG"))


class AcceptError(BackendError, ValueError):
    """The backend's ``Content-Bytes-Accepted`` makes no sense for the events offered."""


class OutboxFull(ClientError):
    """The client sent more than may wait for the backend."""


class Outbox:
    """Queue of events of the client that the backend has not accepted (docs/grip.md §8.3, ``Content-Bytes-Accepted``).

    Data events and at the end perhaps one ``CLOSE``. ``OPEN`` and ``DISCONNECT`` travel alone and never pass through
    here. An event the backend accepted in part stays, shortened, with its type.

    Bound: when ``full``, the caller stops reading from the client; events read already still fit, until ``bound`` is
    reached. It holds at most that and one message, for any size of messages that the caller allows.

    Args:
        high: Bytes (content, and 32 for each event) from which it is ``full``.
        bound: Bytes, counted likewise, from which it takes no more; must leave room for ``high`` and the messages of
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
        # At the front, events that an earlier request offered and the backend did not accept.
        self._seen = 0
        self._seen_bytes = 0

    def __len__(self) -> int:
        return len(self._events)

    @property
    def empty(self) -> bool:
        """True if no event waits."""
        return not self._events

    @property
    def full(self) -> bool:
        """True if the client should be read from no more.

        Events offered and not accepted do not count: the backend waits for later ones, which must be read, or the
        connection would be stuck.
        """
        return self.size - self._seen_bytes + _EVENT_COST * (len(self._events) - self._seen) >= self._high

    @property
    def fresh(self) -> bool:
        """True if something waits that was never offered: only that (or a refresh, or a keep-alive) calls for a
        request, since of all others the backend wants more first."""
        return len(self._events) > self._seen

    def add(self, event: Event) -> None:
        """Append an event of the client.

        Args:
            event: ``TEXT``, ``BINARY``, ``PING``, ``PONG`` or ``CLOSE``.

        Raises:
            OutboxFull: ``bound`` is reached; the event is not in.
            ValueError: Another type, or something behind a ``CLOSE``; a mistake of the caller.
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
        """Return the events that the next request offers. Taking again before :meth:`accepted` begins at the front.

        Args:
            limit: Content bytes from which no further event is taken; the first event is taken with any size.
            one_event: Take at most one.

        Returns:
            The events, to be sent as they are, and how many content bytes of them were offered before
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
        """Take note of a response to the events of :meth:`take`.

        Args:
            count: Content bytes the backend accepted (``Content-Bytes-Accepted``), ``None`` for all.

        Returns:
            Whether a ``CLOSE`` was among the events accepted now. If a CLOSE was offered and is not, the backend waits
            for more data that cannot come: only a keep-alive or a refresh offers the remainder again.

        Raises:
            AcceptError: It accepts more than was offered; nothing, although more was waiting than the request could
                take; or all but (a part of) the content of a ``CLOSE``.
            RuntimeError: Nothing was taken; a mistake of the caller.
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
            assert event.content is not None  # it is longer than the bytes left
            self._events[0] = Event(event.type, event.content[left:])
            self.size -= left
        remaining = offered_bytes - min(count, offered_bytes)
        if close and removed == len(data):
            del self._events[0]
            self.size -= close_bytes
            self._seen = self._seen_bytes = 0
            return True
        if not removed and not left and self._maxed:
            # Equal requests would repeat without end: the bytes that the backend waits for do not fit.
            raise AcceptError("nothing was accepted, although more is waiting than fits into one request")
        self._seen = offered - removed
        self._seen_bytes = remaining
        return False
