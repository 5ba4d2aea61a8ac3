"""Channel of a worker, and the subscriptions that sessions have to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, Final, Protocol, cast

from gripproxy.grip.item import Item, MessageFormat, StreamFormat
from gripproxy.pipe import (
    STREAM,
)

__all__ = [
    "COHORTS_MAX",
    "COHORT_LEAST",
    "Channel",
    "Cohort",
    "FastPath",
    "PlainSession",
    "Session",
    "Subscription",
    "Verdict",
    "Wanted",
]


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
    """Session that takes items of a channel unchanged: the fan-out writes to its transport. In a cohort these are the
    items that follow, else all."""

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


COHORT_LEAST: Final = 8
"""Sessions of one kind on a channel from which on they form cohorts. Fewer are careful ones, since a cohort would take
more memory than it saves."""


COHORTS_MAX: Final = 16
"""Cohorts of one channel. Sessions at still other positions are careful ones, so that an item is compared with few."""


_NONE = (0, 0, 0)


_SAME: dict[tuple[int, int, int], tuple[int, int, int]] = {_NONE: _NONE}


class Subscription:
    """Subscription of a session to one channel.

    Attributes:
        session: the session.
        channel: the channel.
        name: of the channel without the route's prefix.
        prev_id: id of the last item that the session has of the channel; None if ids are not checked. While the session
            is in a cohort it is that of the cohort, and is not set.
        cohort: the sessions of the channel with which this one shares its last id; None if it has one of its own.
        filters: names of the filters that every item passes first.
    """

    __slots__ = ("_prev_id", "channel", "cohort", "filters", "name", "session")

    def __init__(
        self, session: Session, channel: Channel, name: bytes, prev_id: bytes | None, filters: tuple[str, ...]
    ) -> None:
        self.session = session
        self.channel = channel
        self.name = name
        self.cohort: Cohort | None = None
        self._prev_id = prev_id
        self.filters = filters

    @property
    def prev_id(self) -> bytes | None:
        """Id of the last item that the session has of the channel; None if ids are not checked."""
        cohort = self.cohort
        return self._prev_id if cohort is None else cohort.position

    @prev_id.setter
    def prev_id(self, prev_id: bytes | None) -> None:
        self._prev_id = prev_id

    @property
    def lane(self) -> FastPath | None:
        """The lane or cohort with which the session is written to; None if the session is a careful one."""
        cohort = self.cohort
        return self.channel.lane(self.session) if cohort is None else cohort


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


class Verdict(Enum):
    """Decision about an item for all members of a cohort."""

    FOLLOWS = auto()
    """The item is for all of them, and the cohort then stands at it."""
    PASSES = auto()
    """The item concerns none of them."""
    DIFFERS = auto()
    """Each member decides for itself: a gap, an item without an id, an action, or content for filters."""


class Cohort(FastPath):
    """Sessions of one kind that stand at the same position of a channel (docs/grip.md §6.3).

    An item that follows is written to all of them, and the position advances once. A member has no other channel and no
    filters; it leaves for anything but such an item.

    Args:
        mode: of the members: STREAM or SOCKET.
        position: id of the last item that all members have.

    Attributes:
        heard: time of the last item for the members, in seconds; 0 if there was none.
    """

    __slots__ = ("heard", "mode", "position")

    def __init__(self, mode: int, position: bytes) -> None:
        super().__init__()
        self.mode = mode
        self.position = position
        self.heard = 0.0

    def published(self, item: Item) -> StreamFormat | MessageFormat | None:
        """Return the format of an item for the members; None if it has none.

        Args:
            item: of the channel.
        """
        return item.stream if self.mode == STREAM else item.message

    def judge(self, item: Item) -> Verdict:
        """Decide about an item.

        Args:
            item: of the channel.

        Returns:
            The verdict, for all members.
        """
        published = self.published(item)
        if published is None:
            # The members are up to date by it all the same.
            follows = item.id is not None and item.prev_id == self.position != item.id
            return Verdict.FOLLOWS if follows else Verdict.PASSES
        if published.action != "send" or published.content_filters or item.id is None:
            return Verdict.DIFFERS
        if item.id == self.position:
            return Verdict.PASSES
        return Verdict.FOLLOWS if item.prev_id == self.position else Verdict.DIFFERS


class Channel:
    """Channel with at least one session in this worker.

    ``streams`` and ``sockets`` are the lanes of plain sessions, ``cohorts`` those of sessions with ids; ``careful`` has
    all other subscriptions. ``queue`` is
    set while a fan-out is under way that has given the loop a turn: later items wait there.

    Args:
        name: full name.
    """

    __slots__ = (
        "careful",
        "cohorts",
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
        self.cohorts: tuple[Cohort, ...] = ()
        """Two of one mode are at the same position when one of them has just arrived there."""
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
        """Return the lane of a plain session; None if the session is not plain.

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

    def cohort(self, mode: int, position: bytes) -> Cohort | None:
        """Return the cohort at a position, a new one if there is none; None if there may be no more.

        Args:
            mode: of the sessions: STREAM or SOCKET.
            position: id of the last item that they have.
        """
        for cohort in self.cohorts:
            if cohort.position == position and cohort.mode == mode:
                return cohort
        count = self.stream_count if mode == STREAM else self.socket_count
        if count < COHORT_LEAST or len(self.cohorts) >= COHORTS_MAX:
            return None
        cohort = Cohort(mode, position)
        self.cohorts = (*self.cohorts, cohort)
        return cohort

    def disperse(self, subscription: Subscription) -> None:
        """Remove a session from its cohort, whose position it keeps.

        Args:
            subscription: to this channel, of a session in a cohort.
        """
        cohort = subscription.cohort
        assert cohort is not None
        subscription.cohort = None
        subscription.prev_id = cohort.position
        cohort.leave(cast(PlainSession, subscription.session))
        if not cohort.members:
            self.cohorts = tuple([other for other in self.cohorts if other is not cohort])

    def unite(self, cohorts: Sequence[Cohort]) -> None:
        """Make cohorts one that got the same item just now: of one mode they have the same position, and times.

        Cohorts that only have the same position stay apart: their times differ, from which keep-alives and the quiet
        time count. The fewer members move to the more, so that each of them moves seldom.

        Args:
            cohorts: of this channel, without gathered items.
        """
        largest: dict[int, Cohort] = {}
        for few in sorted(cohorts, key=lambda cohort: len(cohort.members), reverse=True):
            many = largest.setdefault(few.mode, few)
            if many is few:
                continue
            moving, few.members = few.members, ()
            self.cohorts = tuple([each for each in self.cohorts if each is not few])
            for session in moving:
                session.subscriptions[0].cohort = many
                many.join(session)

    def watched(self) -> tuple[Subscription, ...]:
        """Return the subscriptions of the careful sessions."""
        careful = self.careful
        return tuple(careful.values()) if type(careful) is dict else cast(tuple[Subscription, ...], careful or ())

    def members(self) -> list[Session]:
        """Return every session; a copy, because sessions may end during the iteration."""
        sessions: list[Session] = [subscription.session for subscription in self.watched()]
        for lane in (self.streams, self.sockets, *self.cohorts):
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
