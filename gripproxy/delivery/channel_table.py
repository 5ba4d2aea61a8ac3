"""Channel table of a worker: subscriptions of its sessions, and confirmations of the handler.

Sans-I/O. The table sends SUBSCRIBE for channels through ``send`` (pipe messages) and calls sessions when all of their
channels are confirmed. A channel that the handler has confirmed to this worker needs no second SUBSCRIBE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from gripproxy.delivery.channel import (
    _NONE,
    _SAME,
    Channel,
    FastPath,
    PlainSession,
    Session,
    Subscription,
    Wanted,
    _raised,
)
from gripproxy.grip.item import Item
from gripproxy.pipe import (
    CONFLICT,
    COUNT,
    HELLO,
    RESPONSE,
    SOCKET,
    STREAM,
    SUBSCRIBE,
    UNSUBSCRIBE,
    VERSION,
    Message,
)
from gripproxy.stats.counters import WorkerCounters

__all__ = ["ChannelTable"]


class ChannelTable:
    """All channels of one worker.

    Args:
        send: sends a pipe message; without a connection the message is lost, and ``announce`` sends it again.
        ledger: counters of deliveries.
        failed: called with a session and the exception that occurred for it, while it is handled; others go on.
    """

    def __init__(
        self,
        send: Callable[[Message], None],
        ledger: WorkerCounters | None = None,
        failed: Callable[[Session, Exception], None] = _raised,
    ) -> None:
        self._send = send
        self.ledger = WorkerCounters() if ledger is None else ledger
        self._changed: Callable[[], None] | None = None
        self._channels: dict[bytes, Channel] = {}
        self.get: Callable[[bytes], Channel | None] = self._channels.get
        """Returns the channel of that full name; None if no session of this worker is subscribed to it."""
        self._number = 0
        self._up = False
        self._dirty: set[Channel] = set()
        self._flush: Callable[[Channel], None] | None = None
        self._unwritten: Callable[[Channel, PlainSession], bytes] | None = None
        self.failed = failed
        """Called with a session and the exception that occurred for it, while it is handled; the others go on."""

    def __len__(self) -> int:
        return len(self._channels)

    def all(self) -> Iterable[Channel]:
        """Return every channel; a copy, because sessions may end during the iteration."""
        return list(self._channels.values())

    def report_changes(self, changed: Callable[[], None] | None) -> None:
        """Have a callback called when the first session count has changed, to send it sooner than after 100 ms.

        Args:
            changed: The callback; None for none.
        """
        self._changed = changed

    def flush_by(
        self, flush: Callable[[Channel], None], unwritten: Callable[[Channel, PlainSession], bytes] | None = None
    ) -> None:
        """Have gathered items of a channel written before its members change.

        Args:
            flush: Writes the items gathered in a channel's lanes; the fan-out's.
            unwritten: Returns the bytes that a fan-out of several turns has not written to a session yet, and leaves
                them to the caller.
        """
        self._flush = flush
        self._unwritten = unwritten

    def evict(self, session: Session) -> None:
        """Unsubscribe a session that could not end itself; it is over."""
        self.unsubscribe(session)
        session.over = True

    def subscribe(
        self,
        session: Session,
        wanted: Iterable[Wanted],
    ) -> None:
        """Subscribe a session to channels; its ``on_confirmed`` is called when all are confirmed, possibly now.

        Args:
            session: without subscriptions.
            wanted: one for each channel, no channel twice.
        """
        session.unconfirmed = 0
        session.subscriptions = tuple([self._join(session, want) for want in wanted])
        if not session.unconfirmed:
            session.on_confirmed()

    def add(self, session: Session, want: Wanted) -> None:
        """Subscribe a session to one more channel, or change filters and prev-id of a channel that it has.

        Its ``on_confirmed`` is called when the channel is confirmed, possibly now.

        Args:
            session: the session.
            want: the subscription.
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
        """Subscribe a session to exactly these channels: others are left, those it has get new prev-ids and filters.

        Its ``on_confirmed`` is called when all are confirmed, possibly now.

        Args:
            session: the session.
            wanted: one for each channel, no channel twice.
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
        """Remove a session from one channel.

        Args:
            session: the session.
            subscription: of the session to the channel.
        """
        session.subscriptions = tuple([s for s in session.subscriptions if s is not subscription])
        if subscription.channel.waiting is not None and session in subscription.channel.waiting:
            session.unconfirmed -= 1
        self._leave(subscription)
        if not session.unconfirmed:
            session.on_confirmed()

    def unsubscribe(self, session: Session) -> None:
        """Remove a session from all its channels: it is over.

        Args:
            session: the session.
        """
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
            name = channel.name  # one object for all sessions
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
        if subscription.cohort is not None:
            channel.disperse(subscription)
        else:
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
        if self._changed is not None and not self._dirty:
            self._changed()
        self._dirty.add(channel)

    def make_plain(self, subscription: Subscription) -> None:
        """Have the fan-out write every item of the channel to the session's transport from now on.

        Args:
            subscription: of the session to the channel.
        """
        channel, session = subscription.channel, subscription.session
        if self._flush is not None:
            # Gathered items were published before this session became plain.
            self._flush(channel)
        if not channel.unwatch(session):
            return
        lane = channel.streams if session.mode == STREAM else channel.sockets
        if lane is None:
            lane = FastPath()
            if session.mode == STREAM:
                channel.streams = lane
            else:
                channel.sockets = lane
        lane.join(cast(PlainSession, session))

    def make_follower(self, subscription: Subscription) -> None:
        """Have the fan-out write each item that follows to the session's transport, as long as all do.

        Sessions of one kind at one position are a cohort. The session stays careful while its channel has few sessions,
        or sessions at too many positions.

        Args:
            subscription: the only one of the session, with an id and without filters.
        """
        channel, session, position = subscription.channel, subscription.session, subscription.prev_id
        assert position is not None
        if subscription.cohort is not None:
            return
        cohort = channel.cohort(session.mode, position)
        if cohort is None:
            return
        if cohort.parts is not None and self._flush is not None:
            # Gathered items were published before this session joined.
            self._flush(channel)
        channel.unwatch(session)
        cohort.join(cast(PlainSession, session))
        subscription.cohort, subscription.prev_id = cohort, None

    def make_careful(self, subscription: Subscription) -> bytes:
        """Have the session's ``deliver`` called for every item of the channel from now on.

        Args:
            subscription: of the session to the channel.

        Returns:
            The items that were gathered for the session and not written yet, framed.
        """
        channel, session = subscription.channel, cast(PlainSession, subscription.session)
        cohort = subscription.cohort
        if cohort is not None:
            parts = cohort.parts or []
            if channel.queue is not None and self._unwritten is not None:
                # The position is that of items which a fan-out of several turns has written to some members only.
                parts = [self._unwritten(channel, session), *parts]
            channel.disperse(subscription)
            channel.watch(subscription)
            return b"".join(parts)
        lane = channel.lane(session)
        if lane is None:
            return b""
        lane.leave(session)
        channel.watch(subscription)
        return b"".join(lane.parts) if lane.parts else b""

    def confirmed(self, name: bytes, number: int, recent: bytes | None) -> None:
        """Take SUBSCRIBED; one that answers an older SUBSCRIBE than the newest is ignored.

        Args:
            name: full name of the channel.
            number: of the SUBSCRIBE.
            recent: id of the channel's last item, as far as the handler knows.
        """
        channel = self._channels.get(name)
        if channel is None or channel.number != number or channel.confirmed:
            return
        channel.confirmed = True
        if recent is not None:
            # The handler has seen all items before this message; the worker's own last id may predate a gap.
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
        """Remember the id of the newest item of a channel, if it has one.

        Args:
            channel: of the item.
            item: that arrived.
        """
        if item.id is not None:
            channel.last = item.id

    def conflict(self, subscription: Subscription) -> bytes | None:
        """Return the id of an item that the backend had not seen when it named ``prev_id``; None if there is none.

        Args:
            subscription: with the ``prev_id``.
        """
        channel = subscription.channel
        if subscription.prev_id is None or channel.last == subscription.prev_id:
            return None
        return channel.last

    def overtaken(self, subscription: Subscription, item_id: bytes) -> None:
        """Take ``prev_id`` for the newest id of the channel: the backend has items newer than any that arrived.

        Args:
            subscription: with the ``prev_id``.
            item_id: of the newest item that has arrived.
        """
        channel = subscription.channel
        if channel.last == item_id:
            channel.last = subscription.prev_id

    def insisted(self, subscription: Subscription, item_id: bytes) -> None:
        """Believe a backend that was queried again because of an item and still names another id.

        Worker and handler forget that the item is recent. So one item causes at most one extra request per session, and
        every session that is behind gets its one.

        Args:
            subscription: with the ``prev_id`` that the backend names.
            item_id: of the item.
        """
        channel = subscription.channel
        self._send((CONFLICT, channel.name, item_id, subscription.prev_id))
        if channel.last == item_id:
            channel.last = None

    def counts(self) -> None:
        """Send the changed session counts; called about every 100 ms."""
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
        """Note the loss of the connection to the handler: no channel is confirmed any more, and all clients stay."""
        self._up = False
        for channel in self._channels.values():
            channel.confirmed = False

    def announce(self, epoch: int, worker: str) -> None:
        """Announce this worker on a new connection: HELLO with every channel, and SUBSCRIBE for those waited for.

        Args:
            epoch: number of the worker's life.
            worker: its name.
        """
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
        """Note LOST: the handler dropped its queue for this worker, with items and maybe confirmations."""
        for channel in self._channels.values():
            channel.confirmed = False
        self._ask_again()

    def _ask_again(self) -> None:
        """Send SUBSCRIBE for channels that sessions wait for; the others are asked for by the next session."""
        for channel in self._channels.values():
            if channel.waiting:
                self._ask(channel)
            else:
                channel.waiting = None


def sharers(session: Session) -> int:
    """Return the number of sessions that share the bytes written to this one: all plain ones of its channel.

    Args:
        session: a careful one has bytes of its own, so the number is 1.
    """
    lanes = [subscription.lane for subscription in session.subscriptions]
    return max((len(lane.members) for lane in lanes if lane is not None), default=1)
