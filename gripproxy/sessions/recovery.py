"""Recovery of a session that has ids: notice missed items, query the backend, catch up (docs/grip.md §6).

Sans-I/O, for streams and WebSockets alike. An item that does not follow the last one is never delivered as if it did:
the backend is queried instead; items that arrive meanwhile are kept, and checked against the ids of the response.
Without traffic the backend is queried after a while, so that a lost publisher costs a delay only. Ids are opaque and
only compared for equality. ``recovery_states`` has the states and the events that lead from one to another.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from gripproxy.delivery.channel import Subscription
from gripproxy.delivery.filter_queue import FilterQueue
from gripproxy.grip.bounds import memory_of_item
from gripproxy.grip.item import Item
from gripproxy.sessions.interfaces import Recovering
from gripproxy.sessions.item_order import FOLLOWS, GAP, REPEATED, check
from gripproxy.sessions.recovery_states import Event, State, following

__all__ = ["PARTS_MAX", "RETRIES", "Recovery"]

RETRIES: Final = (1, 2, 4, 8, 16)
"""Seconds before each repetition of a query that failed, plus up to one more (docs/grip.md §6.6)."""

PARTS_MAX: Final = 1000
"""Partial responses in a row after which a backend is taken to have no more items."""


class Recovery:
    """Recovery of one session: its state, the items kept while a query is under way, and checks of the response.

    At most ``context.queue_max`` items are kept, and none once they have ``context.buffer_max`` bytes; further ones are
    covered by another query after the response.
    """

    __slots__ = (
        *("_heard", "_ids_asked", "_ids_sent", "_kept", "_kept_bytes", "_late", "_missed", "_open_ended_now"),
        *("_parts", "_silent", "_stale", "_unverified", "open_ended", "owner", "state", "suspected", "tick", "tries"),
    )

    def __init__(self, owner: Recovering, state: State = State.IDLE) -> None:
        """Create the recovery of a session.

        Args:
            owner: the session.
            state: STARTING for a session whose channels have to be confirmed before it begins.
        """
        self.owner = owner
        self.state = state
        self.tries = 0
        """Queries that failed in a row."""
        self.open_ended = False
        """The next query is due because of a hint, a loss or a quiet time: no item id shows that its response is
        complete."""
        self._open_ended_now = False
        """``open_ended`` of the current query."""
        self.suspected = False
        """A loss is suspected, so a query whose repetitions fail ends the session."""
        self._stale = False
        """A query became due that the response to the current one may not cover: another follows it."""
        self._ids_sent: dict[bytes, bytes] | None = None
        """Last ids that the current query names, by channel (full name)."""
        self._ids_asked: dict[bytes, bytes] | None = None
        """Ids of items that the last response did not contain and the next query is for, by channel (full name)."""
        self._unverified = NONE
        """The response that ``verify`` has not looked at: NONE, WHOLE or PART."""
        self._parts = 0
        """Partial responses in a row."""
        self._missed: set[bytes] | None = None
        """Channels (full names) with items left out since their last id was named."""
        self._late: set[bytes] | None = None
        """Channels (full names) with items left out since the current query began."""
        self._kept: list[tuple[bytes, Item]] | None = None
        """Items kept for the response, with the full names of their channels."""
        self._kept_bytes = 0
        self._heard = 0.0
        """Time of the last item that was delivered by itself, in seconds."""
        self._silent: set[bytes] | None = None
        """Channels with ids that had no item since the countdown began; None if an item of any channel restarts it."""
        self.tick = -1

    def _move(self, event: Event) -> None:
        self.state = following(self.state, event)

    # --- items

    def last_ids(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return (channel name without the route's prefix, last id) of each channel with an id."""
        return tuple([(s.name, s.prev_id) for s in self.owner.subscriptions if s.prev_id is not None])

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """Check an item that arrived, and deliver it if it follows.

        Args:
            subscription: of the session to the item's channel.
            item: as published.

        Returns:
            Whether the item was written, queued or acted upon.
        """
        owner = self.owner
        action = owner.action_of(item)
        if self.state.keeps_items:
            return self._keep(subscription, item, action)
        if action == "hint":
            self._hint()
            return True
        if action is not None and action != "send":
            return owner.accept(subscription, item)
        last = subscription.prev_id
        verdict = check(subscription, item)
        if action is None:
            if verdict == FOLLOWS and last is not None and item.id is not None:
                # It has no format for this kind of client, which is up to date by it all the same.
                subscription.prev_id = item.id
            return False
        if verdict == REPEATED:
            return False
        if last is not None and owner.blocked:
            # The backend has the item; keeping it for a client that does not read would only cost memory.
            self._move(Event.MISSED)
            self._miss(subscription.channel.name)
            return False
        if verdict == GAP or (last is not None and owner.full):
            self._miss(subscription.channel.name)
            self.due()
            return False
        self._hear(subscription)
        return owner.accept(subscription, item)

    def refused(self, subscription: Subscription, item: Item, last: bytes) -> None:
        """Note an accepted item that exceeded a bound: the client lacks it and all that followed ``last``.

        The backend is queried for it once: if it names another id then, that id is believed.

        Args:
            subscription: of the session to the item's channel.
            item: that was left out.
            last: id of the channel's last item before it.
        """
        name = subscription.channel.name
        subscription.prev_id = last
        self.suspected = True
        self._miss(name)
        if item.id is not None:
            if self._ids_asked is None:
                self._ids_asked = {}
            self._ids_asked[name] = item.id
            self._unverified = NONE
        if not self.state.keeps_items:
            self.due()

    def _miss(self, channel: bytes) -> None:
        if self._missed is None:
            self._missed = set()
        self._missed.add(channel)
        self.owner.context.table.ledger.gap(self.owner.rate_key, self.owner.mode)

    def _keep(self, subscription: Subscription, item: Item, action: str | None) -> bool:
        """Keep an item for the response. Returns False if it is left out."""
        if action is None and (item.id is None or subscription.prev_id is None):
            return False
        kept = self._kept
        if kept is None:
            kept = self._kept = []
            self._kept_bytes = 0
        context = self.owner.context
        most = context.queue_max
        # A close has no id by which it would be missed, so it always has a place.
        if (len(kept) >= most or self._kept_bytes > context.buffer_max) and (action != "close" or len(kept) > most):
            self._stale = True
            if self._late is None:
                self._late = set()
            self._late.add(subscription.channel.name)
            return False
        kept.append((subscription.channel.name, item))
        self._kept_bytes += memory_of_item(item)
        return True

    # --- queries

    def begun(self) -> None:
        """Leave STARTING: the channels are confirmed, and a query that became due before is queued."""
        self._move(Event.BEGUN)
        if self.state is State.QUEUED:
            self.owner.context.scheduler.add(self.owner)

    def due(self) -> None:
        """Have the backend queried, in turn with other sessions; after the response if a query is under way."""
        state = self.state
        if state is State.QUEUED:
            return
        self._move(Event.DUE)
        if state.keeps_items or state is State.CATCHING_UP:
            self._stale = True
        elif self.state is State.QUEUED:
            self.owner.context.scheduler.add(self.owner)

    def lost(self) -> None:
        """Have the backend queried because items may have been lost without a trace."""
        self.suspected = self.open_ended = True
        self.due()

    def _hint(self) -> None:
        """Have the backend queried without waiting for a batch: there is something new."""
        self.suspected = self.open_ended = True
        self._move(Event.URGENT)
        if self.state is State.QUEUED:
            self.owner.context.scheduler.add_urgent(self.owner)

    def proceed(self) -> None:
        """Query the backend without waiting for a turn: a client without channels reads page after page."""
        self._move(Event.URGENT)
        self.owner.context.scheduler.discard(self.owner)
        self.granted()

    def granted(self) -> None:
        """Query the backend: the scheduler has given the session its turn."""
        if self.state is not State.CLOSED:
            self._move(Event.GRANTED)
            self.owner.query()

    def begin(self, filters: FilterQueue | None) -> bool:
        """Take the step to QUERYING; items are kept from now on.

        Args:
            filters: of the session; items that they work on are delivered before the query is sent.

        Returns:
            Whether the query is to be sent now; if not, ``query`` of the session is called again if there is need.
        """
        owner = self.owner
        if self.state is State.GRANTED:
            if owner.blocked:
                self._move(Event.UNREAD)
                return False
            owner.context.table.ledger.recovering(owner.rate_key, owner.mode)
            owner.context.wheel.cancel(self)
            self._stale = False
            self._open_ended_now, self.open_ended = self.open_ended, False
        if filters is not None and filters.busy:
            self._move(Event.FILTERING)
            filters.after(self._filtered)
            return False
        self._move(Event.SENT)
        self._ids_sent = {s.channel.name: s.prev_id for s in owner.subscriptions if s.prev_id is not None}
        return True

    def _filtered(self) -> None:
        # A session whose backend detached is closed here, and goes on without recovery.
        if self.state is State.FLUSHING:
            self._move(Event.FILTERED)
            self.owner.query()

    def no_ids(self) -> None:
        """Drop the query that has its turn: no channel of the session has an id any more."""
        self._move(Event.NO_IDS)
        if self.state is State.CATCHING_UP:
            self._settle((), False)

    def page(self, deferred: bool) -> None:
        """Note that the response names a next page, which is requested now, or when the client reads (``deferred``)."""
        self._move(Event.PAGE_DEFERRED if deferred else Event.PAGE)

    def retry(self) -> bool:
        """Repeat the query of a stream after a pause; items are kept until then.

        Returns:
            False if it has failed too often.
        """
        if self.tries >= len(RETRIES):
            return False
        self._move(Event.RETRY)
        self._pause()
        return True

    def _back_off(self) -> bool:
        """Repeat the query after a pause, in which items are delivered. Returns False if it has failed too often, and
        the client lacks something."""
        if self.tries >= len(RETRIES):
            self.tries = 0
            return not self.suspected and not self.lacks
        self._move(Event.BACK_OFF)
        # The next query is for all items that this one was for.
        self.open_ended = self.open_ended or self._open_ended_now
        self.owner.context.scheduler.discard(self.owner)
        self._pause()
        return True

    def _pause(self) -> None:
        context = self.owner.context
        pause = RETRIES[self.tries] + context.random() * 0.999
        self.tries += 1
        context.wheel.set(self, context.clock() + pause)

    def failed(self) -> bool:
        """Deliver the kept items: the query of a WebSocket failed, and they need not wait for its repetition.

        Returns:
            False if the client lacks something and the query has failed too often: it has to be dropped.
        """
        if not self._back_off():
            return False
        if self.state is State.QUERYING:
            self._move(Event.ANSWERED)
        # Nothing is known that was not known before.
        self._settle({subscription.channel.name for subscription in self.owner.subscriptions}, False)
        return True

    def answered(self, unnamed: Container[bytes] = (), part: bool = False) -> bool:
        """Catch up with the kept items: the response is complete, and the subscriptions have the ids that it names.

        Args:
            unnamed: channels (full names) that the query was about and the response does not name.
            part: the response contained items, and there may be more.

        Returns:
            False if the client lacks something and the backend has not named it too often: it has to be dropped.
        """
        self._move(Event.ANSWERED)
        suspected, self.suspected = self.suspected, False
        if self._settle(unnamed, part):
            self.tries = 0
            return True
        self.suspected = self.suspected or suspected
        return self.state.keeps_items or self.state is State.GRANTED or self._back_off()

    def _settle(self, unnamed: Container[bytes], part: bool) -> bool:
        """Deliver the kept items that follow. Returns False if an ``unnamed`` channel lacks something."""
        owner = self.owner
        stale, self._stale = self._stale, False
        late, self._late = self._late, None
        missed = self._missed
        if missed is not None:
            missed = {name for name in missed if name in unnamed}
        self._missed = missed | late if missed and late else missed or late
        self.listen()
        unknown = self._deliver_kept()
        if owner.over:
            return True
        helped = not unnamed or not self._misses(unknown, unnamed)
        for name in unknown:
            self._miss(name)
            # Older than the response, or newer with a gap before it: opaque ids do not show which.
            stale = stale or name not in unnamed
        if self.state is State.CATCHING_UP:
            self._move(Event.CAUGHT_UP)
        if not self.state.keeps_items:
            stale, self._stale = stale or self._stale, False
            if stale:
                self.due()
        self.wait()
        if helped:
            self._unverified = PART if part else WHOLE
            if not owner.unconfirmed:
                self.verify()
        return helped

    @property
    def lacks(self) -> bool:
        """True if something is known to be missing, or was to be queried for."""
        return self._ids_asked is not None or self._misses(())

    def _misses(self, unknown: Container[bytes], channels: Container[bytes] | None = None) -> bool:
        """Return whether one of ``channels`` (full names; None for all) is ``unknown`` or had items left out."""
        missed = self._missed or ()
        names = [subscription.channel.name for subscription in self.owner.subscriptions]
        return any((channels is None or n in channels) and (n in unknown or n in missed) for n in names)

    def renewed(self, channel: bytes) -> None:
        """Note that a response to another request named a new last id of the channel (full name)."""
        if self._missed is not None:
            self._missed.discard(channel)

    def _deliver_kept(self) -> set[bytes]:
        """Deliver the kept items as far as the response does not contain them.

        Returns the channels (full names) without an item that follows the response.
        """
        kept, self._kept = self._kept, None
        matched: set[bytes] = set()
        unknown: set[bytes] = set()
        if not kept:
            return unknown
        owner = self.owner
        by_name = {subscription.channel.name: subscription for subscription in owner.subscriptions}
        for name, item in kept:
            subscription = by_name.get(name)
            if owner.over or subscription is None:
                continue
            action = owner.action_of(item)
            if self.state.keeps_items:
                # An item before it was a hint, and the next query is under way.
                self._keep(subscription, item, action)
                continue
            if subscription.prev_id is not None and name not in matched and (action is None or action == "send"):
                verdict = check(subscription, item)
                if verdict == GAP:
                    if action is not None:
                        unknown.add(name)
                    continue
                # The response contains all items up to this one.
                matched.add(name)
                unknown.discard(name)
            self.deliver(subscription, item)
        return unknown

    def verify(self) -> None:
        """Query again if something was published while the backend was answering, and did not arrive in order.

        Called when all channels are confirmed. An item causes at most one more query: a backend that still names
        another id knows better, and to query on would never end. After a response that may be a part, the next part is
        queried for, unless the response ends with the newest item that has arrived.
        """
        owner = self.owner
        if owner.over or self.state.keeps_items:
            # The response to come is verified, with the items that arrive meanwhile.
            return
        table = owner.context.table
        asked, self._ids_asked = self._ids_asked, None
        response, self._unverified = self._unverified, NONE
        part = response == PART and self._parts < PARTS_MAX
        more = False
        for subscription in owner.subscriptions:
            name = subscription.channel.name
            unseen = table.conflict(subscription)
            if unseen is None:
                last = subscription.prev_id
                more = more or (
                    part and last is not None and (self._open_ended_now or subscription.channel.last != last)
                )
                continue
            if response and self._ids_sent is not None and self._ids_sent.get(name) == unseen:
                # The newest item that has arrived is the one that the client had when the backend was queried.
                table.overtaken(subscription, unseen)
                more = more or part
                continue
            if response and asked is not None and asked.get(name) == unseen:
                if not part:
                    table.insisted(subscription, unseen)
                    continue
                more = True
            if self._ids_asked is None:
                self._ids_asked = {}
            self._ids_asked[name] = unseen
            self.due()
        if response:
            self._ids_sent = None
            self._parts = self._parts + 1 if more else 0
        if more:
            self.open_ended = self.open_ended or self._open_ended_now
            self.due()

    def on_writable(self) -> None:
        """Have the backend queried for items left out: the client reads again."""
        if self.state is State.BEHIND and not self.owner.blocked and not self.owner.over:
            self._move(Event.WRITABLE)
            self.owner.context.scheduler.add(self.owner)

    def next_page(self) -> None:
        """Leave PAGING: the client has read the page before."""
        self._move(Event.WRITABLE)

    # --- time

    def listen(self) -> None:
        """Restart the countdown of the quiet time."""
        subscriptions = self.owner.subscriptions
        self._heard = self.owner.context.clock()
        self._silent = None
        if len(subscriptions) > 1:
            # Items of one channel are no sign of life of the others.
            self._silent = {s.channel.name for s in subscriptions if s.prev_id is not None} or None

    def _hear(self, subscription: Subscription) -> None:
        silent = self._silent
        if silent is None:
            self._heard = self.owner.context.clock()
            return
        silent.discard(subscription.channel.name)
        if not silent:
            self.listen()

    @property
    def heard(self) -> float:
        """Time of the last item, in seconds; the quiet time counts from there."""
        subscriptions = self.owner.subscriptions
        cohort = subscriptions[0].cohort if len(subscriptions) == 1 else None
        return self._heard if cohort is None else max(self._heard, cohort.heard)

    def note_heard(self) -> None:
        """Keep the time of the last item: the session leaves its cohort."""
        self._heard = self.heard

    def wait(self) -> None:
        """Set the timer for the end of the quiet time, unless a query is under way or pauses after a failure."""
        state = self.state
        if not self.owner.over and not state.keeps_items and state not in _TIMER_IN_USE:
            self.owner.context.wheel.set(self, self.heard + self.owner.quiet_after)

    def on_timer(self, now: float) -> None:
        """Act on the end of the quiet time, or of a pause after a failure.

        Args:
            now: time in seconds.
        """
        owner = self.owner
        if owner.over:
            return
        if self.state is State.RETRY_WAIT:
            self._move(Event.PAUSE_OVER)
            if owner.subscriptions:
                owner.context.scheduler.add_urgent(owner)
            else:
                # The client itself requested the page: it does not queue behind clients that recover.
                self.granted()
        elif self.state is State.BACKING_OFF:
            self._move(Event.PAUSE_OVER)
            owner.context.scheduler.add(owner)
        elif now < self.heard + owner.quiet_after:
            self.wait()
        else:
            self.open_ended = True
            self.due()

    def detach(self) -> list[tuple[bytes, Item]]:
        """End the recovery of a session that goes on without it.

        Returns:
            The kept items, with the full names of their channels.
        """
        kept, self._kept = self._kept, None
        self.owner.context.scheduler.discard(self.owner)
        self.close()
        return kept or []

    def close(self) -> None:
        """End the recovery: the session is over, and leaves the scheduler itself."""
        self.state = State.CLOSED
        self.owner.context.wheel.cancel(self)
        self._kept = None


NONE, WHOLE, PART = range(3)
"""Responses that are to be verified: none, one with everything, one that may have been a part."""

_TIMER_IN_USE: Final = (State.BACKING_OFF, State.CATCHING_UP, State.CLOSED)
"""States without quiet time although items are not kept."""
