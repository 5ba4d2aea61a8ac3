"""The worker's table of channels: who is subscribed to what, and what the handler has confirmed.

Sans-I/O. The table asks the handler for channels through ``send`` (pipe messages) and tells sessions when all of
theirs are confirmed. A channel the handler has already confirmed to this worker needs no second question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, cast

from gripproxy.grip.item import Item
from gripproxy.pipe import CONFLICT, COUNT, HELLO, RESPONSE, SOCKET, STREAM, SUBSCRIBE, UNSUBSCRIBE, VERSION, Message
from gripproxy.sessions.figures import Ledger

__all__ = ["Channel", "ChannelTable", "Lane", "PlainSession", "Session", "Subscription", "Wanted"]


class Session(Protocol):
    """One held client, whatever its kind, as the table and the fan-out see it."""

    @property
    def mode(self) -> int:
        """gripproxy.pipe.RESPONSE, STREAM or SOCKET."""

    @property
    def rate_key(self) -> bytes:
        """Which queue its deliveries wait in when their rate is limited: the route's id, empty if it has none."""

    subscriptions: tuple[Subscription, ...]
    unconfirmed: int

    def on_confirmed(self) -> None:
        """Every channel is confirmed: items published from now on arrive."""

    over: bool

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """An item for one of the session's channels has come. Returns whether it was written or queued."""

    def give_up(self) -> None:
        """A bug of ours hit the session: end it. What the client got must not look complete."""


class PlainSession(Session, Protocol):
    """A session that takes every item of a channel as it is: the fan-out writes to its transport itself."""

    @property
    def transport(self) -> Any:
        """Something with ``write(bytes)``."""

    def write_gathered(self, data: bytes) -> None:
        """Take framed items that were gathered for it while it was plain. Nothing happens once it is over."""


Wanted = tuple[bytes, bytes, bytes | None, tuple[str, ...]]
"""What a session wants of a channel: full name, name without the route's prefix, prev-id or None, filter names."""

FEW: Final = 2
"""Members up to which a lane is a tuple. A fan-out of several turns, which looks a long time at the same members, must
have more."""

_NONE = (0, 0, 0)
_SAME: dict[tuple[int, int, int], tuple[int, int, int]] = {_NONE: _NONE}


class Subscription:
    """A session's tie to one channel.

    ``prev_id`` is the id of the last item the session has of the channel (None: not checked); ``filters`` are the
    names of the filters every item passes first; ``name`` is the channel without the route's prefix.
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


class Lane:
    """The plain sessions of one kind on one channel, and what is gathered for them in this turn of the loop.

    ``members`` keeps the order of joining, to be changed by ``join`` and ``leave`` alone; ``parts`` are framed items
    that every member still gets, in one write; ``size`` their bytes; ``touched`` when something was written to all of
    them, in seconds.
    """

    __slots__ = ("members", "parts", "size", "touched")

    def __init__(self) -> None:
        # Most channels have one or two, and a dict for so few is larger than all else of a channel.
        self.members: tuple[PlainSession, ...] | dict[PlainSession, None] = ()
        self.parts: list[bytes] | None = None
        self.size = 0
        self.touched = 0.0

    def join(self, session: PlainSession) -> None:
        """A session comes, or is there already."""
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
        """A member goes."""
        members = self.members
        if type(members) is tuple:
            self.members = tuple([member for member in members if member is not session])
        else:
            del cast(dict[PlainSession, None], members)[session]


class Channel:
    """One channel with at least one session here.

    ``streams`` and ``sockets`` are the lanes of plain sessions; ``careful`` has everything else. ``queue`` is set
    while a fan-out is under way that gave the loop a turn: later items wait there.
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
        """Whether ``last`` is as new as the handler's: if not, the next session has it asked."""
        self.streams: Lane | None = None
        self.sockets: Lane | None = None
        # None if there is none, and else as in a lane: a tuple while they are few.
        self.careful: tuple[Subscription, ...] | dict[Session, Subscription] | None = None
        self.waiting: list[Session] | None = None
        self.queue: deque[Item] | None = None
        self.last: bytes | None = None
        """Id of the last item with one received here, None if unknown: the worker's own knowledge of what is recent."""
        self.response_count = 0
        self.stream_count = 0
        self.socket_count = 0
        self.told = _NONE
        """Counts by mode that the handler knows."""

    def lane(self, session: Session) -> Lane | None:
        """Return the lane the session is in, None if it is a careful one."""
        lane = self.streams if session.mode == STREAM else self.sockets
        return lane if lane is not None and session in lane.members else None

    def watch(self, subscription: Subscription) -> None:
        """From now on its session is a careful one."""
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
        """The session is no careful one any more. Returns whether it was."""
        careful = self.careful
        if careful is None:
            return False
        if isinstance(careful, dict):
            found = careful.pop(session, None) is not None
            self.careful = careful or None
            return found
        if careful[-1].session is session:
            # Most are careful only until they are confirmed.
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
        """Return every session (a copy: sessions may end while it is walked)."""
        sessions: list[Session] = [subscription.session for subscription in self.watched()]
        for lane in (self.streams, self.sockets):
            if lane is not None:
                sessions += lane.members
        return sessions

    @property
    def counts(self) -> tuple[int, int, int]:
        """Sessions by mode: response holds, streams, WebSockets."""
        return (self.response_count, self.stream_count, self.socket_count)

    @property
    def sessions(self) -> int:
        """Number of sessions of all kinds."""
        return self.response_count + self.stream_count + self.socket_count


class ChannelTable:
    """All channels of one worker.

    ``send`` takes a pipe message; messages sent while the pipe is down are lost, which is right: ``announce`` says
    everything again when it is back. ``ledger`` is what deliveries are counted in.
    """

    def __init__(self, send: Callable[[Message], None], ledger: Ledger | None = None) -> None:
        self._send = send
        self.ledger = Ledger() if ledger is None else ledger
        self.changed: Callable[[], None] | None = None
        """Called when there are counts to send, if they are wanted sooner than after 100 ms."""
        self._channels: dict[bytes, Channel] = {}
        self.get: Callable[[bytes], Channel | None] = self._channels.get
        """Returns the channel of that name, if a session here is subscribed to it."""
        self._number = 0
        self._up = False
        self._dirty: set[Channel] = set()
        self.flush: Callable[[Channel], None] = lambda channel: None
        """Writes what is gathered in a channel's lanes; the fan-out's."""
        self.failed: Callable[[Session, Exception], None] = _raised
        """Called when something went wrong for one session, while the exception is handled; the others go on."""

    def __len__(self) -> int:
        return len(self._channels)

    def all(self) -> Iterable[Channel]:
        """Return every channel (a copy: sessions may end while it is walked)."""
        return list(self._channels.values())

    def subscribe(
        self,
        session: Session,
        wanted: Iterable[Wanted],
    ) -> None:
        """Tie ``session`` to channels and call its ``on_confirmed`` when all are confirmed (maybe at once).

        ``wanted``: (channel, name without prefix, prev-id or None, filter names) for each, no channel twice.
        """
        session.unconfirmed = 0
        session.subscriptions = tuple([self._join(session, want) for want in wanted])
        if not session.unconfirmed:
            session.on_confirmed()

    def add(self, session: Session, want: Wanted) -> None:
        """Tie ``session`` to one more channel, or give it other filters and another prev-id for one it has.

        ``on_confirmed`` is called when the channel is confirmed (maybe at once).
        """
        for subscription in session.subscriptions:
            if subscription.channel.name == want[0]:
                self.make_careful(subscription)
                subscription.prev_id, subscription.filters = want[2], want[3]
                break
        else:
            session.subscriptions = (*session.subscriptions, self._join(session, want))
        if not session.unconfirmed:
            session.on_confirmed()

    def replace(self, session: Session, wanted: Iterable[Wanted]) -> None:
        """Tie ``session`` to exactly these channels: others are left, those it has get the new prev-id and filters.

        ``on_confirmed`` is called when all are confirmed (maybe at once).
        """
        old = {subscription.channel.name: subscription for subscription in session.subscriptions}
        kept: list[Subscription] = []
        for want in wanted:
            subscription = old.pop(want[0], None)
            if subscription is None:
                subscription = self._join(session, want)
            else:
                subscription.prev_id, subscription.filters = want[2], want[3]
            kept.append(subscription)
        for subscription in old.values():
            if subscription.channel.waiting is not None and session in subscription.channel.waiting:
                session.unconfirmed -= 1
            self._leave(subscription)
        session.subscriptions = tuple(kept)
        if not session.unconfirmed:
            session.on_confirmed()

    def remove(self, session: Session, subscription: Subscription) -> None:
        """Untie ``session`` from one channel."""
        session.subscriptions = tuple([s for s in session.subscriptions if s is not subscription])
        if subscription.channel.waiting is not None and session in subscription.channel.waiting:
            session.unconfirmed -= 1
        self._leave(subscription)
        if not session.unconfirmed:
            session.on_confirmed()

    def unsubscribe(self, session: Session) -> None:
        """Untie the session from all its channels; it is over."""
        for subscription in session.subscriptions:
            self._leave(subscription)
        session.subscriptions = ()
        session.unconfirmed = 0

    def _join(self, session: Session, want: Wanted) -> Subscription:
        full_name, name, prev_id, filters = want
        channel = self._channels.get(full_name)
        if channel is None:
            channel = self._channels[full_name] = Channel(full_name)
        if name == channel.name:
            name = channel.name  # one object for all
        subscription = Subscription(session, channel, name, prev_id, filters)
        channel.watch(subscription)
        self._change(channel, session, 1)
        if not channel.confirmed:
            session.unconfirmed += 1
            if channel.waiting is None:
                channel.waiting = []
                self._ask(channel)
            channel.waiting.append(session)
        return subscription

    def _ask(self, channel: Channel) -> None:
        self._number += 1
        channel.number = self._number
        self._send((SUBSCRIBE, channel.name, channel.number))

    def _leave(self, subscription: Subscription) -> None:
        channel, session = subscription.channel, subscription.session
        lane = channel.lane(session)
        if lane is not None:
            lane.leave(cast(PlainSession, session))
        if channel.careful is not None:
            channel.unwatch(session)
        if channel.waiting is not None and session in channel.waiting:
            channel.waiting.remove(session)
        self._change(channel, session, -1)
        if not channel.sessions and self._channels.get(channel.name) is channel:
            del self._channels[channel.name]
            self._dirty.discard(channel)
            self._send((UNSUBSCRIBE, channel.name, session.mode == RESPONSE))

    def _change(self, channel: Channel, session: Session, by: int) -> None:
        mode, route, ledger = session.mode, session.rate_key, self.ledger
        if route or channel in ledger.routed:
            ledger.joined(channel, route, mode, by, channel.counts)
        if mode == STREAM:
            channel.stream_count += by
        elif mode == RESPONSE:
            channel.response_count += by
        else:
            channel.socket_count += by
        if self.changed is not None and not self._dirty:
            self.changed()
        self._dirty.add(channel)

    def make_plain(self, subscription: Subscription) -> None:
        """From now on the session takes every item of the channel as it is."""
        channel, session = subscription.channel, subscription.session
        # What is gathered was published before this session became plain.
        self.flush(channel)
        if not channel.unwatch(session):
            return
        lane = channel.streams if session.mode == STREAM else channel.sockets
        if lane is None:
            lane = Lane()
            if session.mode == STREAM:
                channel.streams = lane
            else:
                channel.sockets = lane
        lane.join(cast(PlainSession, session))

    def make_careful(self, subscription: Subscription) -> bytes:
        """From now on each item of the channel goes through the session's ``deliver``.

        Returns the framed items that were gathered for it and not written yet.
        """
        channel, session = subscription.channel, subscription.session
        lane = channel.lane(session)
        if lane is None:
            return b""
        lane.leave(cast(PlainSession, session))
        channel.watch(subscription)
        return b"".join(lane.parts) if lane.parts else b""

    def confirmed(self, name: bytes, number: int, recent: bytes | None) -> None:
        """The handler answered a SUBSCRIBE. An answer to an older one than the last is ignored."""
        channel = self._channels.get(name)
        if channel is None or channel.number != number or channel.confirmed:
            return
        channel.confirmed = True
        if recent is not None:
            # Items that came before this answer are in it; ours may be of before a gap.
            channel.last = recent
        waiting, channel.waiting = channel.waiting, None
        rest = iter(waiting or ())
        while True:
            try:
                for session in rest:
                    session.unconfirmed -= 1
                    if not session.unconfirmed:
                        session.on_confirmed()
                return
            except Exception as error:  # noqa: BLE001 - of one session; those behind it go on
                self.failed(session, error)

    def received(self, channel: Channel, item: Item) -> None:
        """Remember the id of the newest item of the channel that has one."""
        if item.id is not None:
            channel.last = item.id

    def conflict(self, subscription: Subscription) -> bytes | None:
        """Return the id of what was published and not seen by the backend that named ``prev_id``; None if it is up to
        date, as far as is known."""
        channel = subscription.channel
        if subscription.prev_id is None or channel.last == subscription.prev_id:
            return None
        return channel.last

    def overtaken(self, subscription: Subscription, item_id: bytes) -> None:
        """``item_id`` is the newest that has arrived, and the backend knows of a newer one: ``prev_id``."""
        channel = subscription.channel
        if channel.last == item_id:
            channel.last = subscription.prev_id

    def insisted(self, subscription: Subscription, item_id: bytes) -> None:
        """The backend was asked again because of ``item_id`` and still names another: it is believed, and both sides
        forget that the item is recent. So one item causes at most one extra request per session, and every session that
        is behind gets its one."""
        channel = subscription.channel
        self._send((CONFLICT, channel.name, item_id, subscription.prev_id))
        if channel.last == item_id:
            channel.last = None

    def counts(self) -> None:
        """Send the changed session counts; to be called about every 100 ms."""
        if not self._dirty or not self._up:
            return
        dirty, self._dirty = self._dirty, set()
        for channel in dirty:
            told, now = channel.told, channel.counts
            if told != now:
                channel.told = _SAME.setdefault(now, now) if len(_SAME) < 1024 else now
                for mode in (RESPONSE, STREAM, SOCKET):
                    if told[mode] != now[mode]:
                        self._send((COUNT, channel.name, mode, now[mode]))

    def down(self) -> None:
        """The pipe is gone: nothing is confirmed any more, nobody is disconnected."""
        self._up = False
        for channel in self._channels.values():
            channel.confirmed = False

    def announce(self, epoch: int, worker: str) -> None:
        """The pipe is up: say hello with every channel, and ask again for those that sessions wait for."""
        self._up = True
        self._send(
            (
                HELLO,
                VERSION,
                epoch,
                worker,
                [(c.name, *c.counts, c.last) for c in self._channels.values() if not c.waiting],
            )
        )
        for channel in self._channels.values():
            channel.told = _NONE if channel.waiting else channel.counts
            if channel.waiting:
                self._dirty.add(channel)
        self._ask_again()

    def lost(self) -> None:
        """The handler dropped what it had queued for us: items, and maybe answers."""
        for channel in self._channels.values():
            channel.confirmed = False
        self._ask_again()

    def _ask_again(self) -> None:
        """Ask for the channels that sessions wait for; of the others ``last`` may be old, the next session asks."""
        for channel in self._channels.values():
            if channel.waiting:
                self._ask(channel)
            else:
                channel.waiting = None


def _raised(session: Session, error: Exception) -> None:
    """Stands in until there is somebody who deals with what goes wrong."""
    raise error


def sharers(session: Session) -> int:
    """Return among how many sessions what is written to this one exists once: all plain ones of its channel.

    1 for a careful session, which is written bytes of its own.
    """
    lanes = [subscription.channel.lane(session) for subscription in session.subscriptions]
    return max((len(lane.members) for lane in lanes if lane is not None), default=1)
