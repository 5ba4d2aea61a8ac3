"""Channel of a worker, and the subscriptions that sessions have to it."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Protocol, cast

from gripproxy.grip.item import Item
from gripproxy.pipe import (
    STREAM,
)

__all__ = ["Channel", "FastPath", "PlainSession", "Session", "Subscription", "Wanted"]


class Session(Protocol):
    """Held client of any kind, as the channel table and the fan-out use it."""

    @property
    def mode(self) -> int:
        """Kind of the session: RESPONSE, STREAM or SOCKET of gripproxy.pipe.messages."""

    @property
    def rate_key(self) -> bytes:
        """Key of the queue of its deliveries when their rate is limited: the route's id, empty if it has none."""

    subscriptions: tuple[Subscription, ...]
    unconfirmed: int

    def on_confirmed(self) -> None:
        """Begin to deliver: all channels are confirmed, so no item published from now on is missed."""

    over: bool

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """Deliver an item.

        Args:
            subscription: of the session to the item's channel.
            item: as published.

        Returns:
            Whether the item was written or queued.
        """

    def abort_on_defect(self) -> None:
        """Abort the session because of a defect of gripproxy; the client must not take its response for complete."""


class PlainSession(Session, Protocol):
    """Session that takes every item of a channel unchanged: the fan-out writes to its transport."""

    @property
    def transport(self) -> Any:
        """Object with ``write(bytes)``."""

    def write_gathered(self, data: bytes) -> None:
        """Take items that were gathered for one write while the session was plain; no-op once it is over.

        Args:
            data: the items, framed.
        """


Wanted = tuple[bytes, bytes, bytes | None, tuple[str, ...]]
"""A wanted subscription: full name of the channel, name without the route's prefix, prev-id or None, filter names."""


FEW: Final = 2
"""Members up to which a lane is a tuple. A fan-out of several turns reads the members for longer, so it needs more
members than this."""


_NONE = (0, 0, 0)


_SAME: dict[tuple[int, int, int], tuple[int, int, int]] = {_NONE: _NONE}


class Subscription:
    """Subscription of a session to one channel.

    Attributes:
        session: the session.
        channel: the channel.
        name: of the channel without the route's prefix.
        prev_id: id of the last item that the session has of the channel; None if ids are not checked.
        filters: names of the filters that every item passes first.
    """

    __slots__ = ("channel", "filters", "name", "prev_id", "session")

    def __init__(
        self, session: Session, channel: Channel, name: bytes, prev_id: bytes | None, filters: tuple[str, ...]
    ) -> None:
        self.session = session
        self.channel = channel
        self.name = name
        self.prev_id = prev_id
        self.filters = filters


class FastPath:
    """Plain sessions of one kind on one channel, and the items gathered for them in this turn of the loop.

    Attributes:
        members: the sessions in the order of joining; only ``join`` and ``leave`` change it.
        parts: framed items that every member still gets, in one write.
        size: of ``parts``, in bytes.
        touched: time of the last write to all members, in seconds.
    """

    __slots__ = ("members", "parts", "size", "touched")

    def __init__(self) -> None:
        # Most channels have one or two members, and a dict for those is larger than the whole channel.
        self.members: tuple[PlainSession, ...] | dict[PlainSession, None] = ()
        self.parts: list[bytes] | None = None
        self.size = 0
        self.touched = 0.0

    def join(self, session: PlainSession) -> None:
        """Add a member, unless it is one already.

        Args:
            session: the session.
        """
        members = self.members
        if type(members) is tuple:
            if session in members:
                return
            if len(members) < FEW:
                self.members = (*members, session)
                return
            members = self.members = dict.fromkeys(members)
        cast(dict[PlainSession, None], members)[session] = None

    def leave(self, session: PlainSession) -> None:
        """Remove a member.

        Args:
            session: the session.
        """
        members = self.members
        if type(members) is tuple:
            self.members = tuple([member for member in members if member is not session])
        else:
            del cast(dict[PlainSession, None], members)[session]


class Channel:
    """Channel with at least one session in this worker.

    ``streams`` and ``sockets`` are the lanes of plain sessions; ``careful`` has all other subscriptions. ``queue`` is
    set while a fan-out is under way that has given the loop a turn: later items wait there.

    Args:
        name: full name.
    """

    __slots__ = (
        "careful",
        "confirmed",
        "last",
        "name",
        "number",
        "queue",
        "response_count",
        "socket_count",
        "sockets",
        "stream_count",
        "streams",
        "told",
        "waiting",
    )

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.number = 0
        """Number of the newest SUBSCRIBE."""
        self.confirmed = False
        """True once SUBSCRIBED arrived; cleared on disconnect or LOST. The next join then sends SUBSCRIBE."""
        self.streams: FastPath | None = None
        self.sockets: FastPath | None = None
        # None without a subscription, else as in a lane: a tuple while there are few.
        self.careful: tuple[Subscription, ...] | dict[Session, Subscription] | None = None
        self.waiting: list[Session] | None = None
        self.queue: deque[Item] | None = None
        self.last: bytes | None = None
        """Id of the last item with one that this worker received; None if unknown."""
        self.response_count = 0
        self.stream_count = 0
        self.socket_count = 0
        self.told = _NONE
        """Counts by mode that were last reported to the handler."""

    def lane(self, session: Session) -> FastPath | None:
        """Return the lane of a session; None if the session is a careful one.

        Args:
            session: subscribed to the channel.
        """
        lane = self.streams if session.mode == STREAM else self.sockets
        return lane if lane is not None and session in lane.members else None

    def watch(self, subscription: Subscription) -> None:
        """Make the session of a subscription a careful one.

        Args:
            subscription: to this channel.
        """
        careful = self.careful
        if careful is None:
            self.careful = (subscription,)
        elif isinstance(careful, dict):
            careful[subscription.session] = subscription
        elif len(careful) < FEW:
            self.careful = (*careful, subscription)
        else:
            self.careful = {each.session: each for each in (*careful, subscription)}

    def unwatch(self, session: Session) -> bool:
        """Make a session careful no longer.

        Args:
            session: subscribed to the channel.

        Returns:
            Whether it was careful.
        """
        careful = self.careful
        if careful is None:
            return False
        if isinstance(careful, dict):
            found = careful.pop(session, None) is not None
            self.careful = careful or None
            return found
        if careful[-1].session is session:
            # Most sessions are careful only until they are confirmed.
            self.careful = careful[:-1] or None
            return True
        for place, subscription in enumerate(careful):
            if subscription.session is session:
                self.careful = (*careful[:place], *careful[place + 1 :]) or None
                return True
        return False

    def watched(self) -> tuple[Subscription, ...]:
        """Return the subscriptions of the careful sessions."""
        careful = self.careful
        return tuple(careful.values()) if type(careful) is dict else cast(tuple[Subscription, ...], careful or ())

    def members(self) -> list[Session]:
        """Return every session; a copy, because sessions may end during the iteration."""
        sessions: list[Session] = [subscription.session for subscription in self.watched()]
        for lane in (self.streams, self.sockets):
            if lane is not None:
                sessions += lane.members
        return sessions

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return the number of sessions by mode: response holds, streams, WebSockets."""
        return (self.response_count, self.stream_count, self.socket_count)

    @property
    def sessions(self) -> int:
        """Number of sessions of all kinds."""
        return self.response_count + self.stream_count + self.socket_count


def _raised(session: Session, error: Exception) -> None:
    """Raise: the default without an error boundary."""
    raise error
