"""WebSocket with ids: missed messages come from its backend over HTTP (docs/websocket-reliability.md).

An extension of GRIP. ``Recovery`` notices missed items and decides when to query. The query of a WebSocket is a
request without events that names the last ids; its response has the missing messages, and the new ids in
``subscribe`` messages.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol

from gripproxy.delivery.channel import Subscription
from gripproxy.delivery.filter_queue import FilterQueue
from gripproxy.grip.item import Item
from gripproxy.pipe import SOCKET
from gripproxy.sessions.context import SessionContext
from gripproxy.sessions.recovery import Recovery
from gripproxy.sessions.recovery_scheduler import SPREAD, Asked, backend_of
from gripproxy.sessions.recovery_states import State
from gripproxy.sessions.websocket_interfaces import BackendLeg

__all__ = ["PASSED_MAX", "RECENT", "ReliableWebSocket"]

PASSED_MAX: Final = 200
"""Ids kept of a channel while a request is under way, two for each item. With more the response counts as older."""

RECENT: Final = 60.0
"""Seconds that a request may have been under way when its response arrives."""

_NEVER: Final = 10**9
"""Seconds of quiet time if the operator has turned it off."""


class SessionExtras(Protocol):
    """Optional state of a session, as its recovery uses it."""

    @property
    def blocked(self) -> bool:
        """True while the client does not read."""

    @property
    def filters(self) -> FilterQueue | None:
        """Items that wait for filters."""


class QueryingSession(Protocol):
    """A WebSocket session, as its recovery uses it."""

    @property
    def context(self) -> SessionContext:
        """Context shared by all sessions of the worker."""

    @property
    def rate_key(self) -> bytes:
        """The route's id if the operator gave it one, else empty."""

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """All subscriptions, those without ids too."""

    @property
    def unconfirmed(self) -> int:
        """Number of subscriptions that are not confirmed."""

    @property
    def over(self) -> bool:
        """True once the session has ended."""

    @property
    def route(self) -> object:
        """Route of the client's request."""

    @property
    def leg(self) -> BackendLeg | None:
        """The backend's side."""

    @property
    def extras(self) -> SessionExtras | None:
        """Optional state; None if there is none."""

    def settle(self) -> None:
        """Have items written by the fan-out that follow, if nothing but such items matters now."""

    def unsettle(self) -> None:
        """Have every item passed to ``deliver``."""

    def accept(self, subscription: Subscription, item: Item, last: bytes | None) -> bool:
        """Deliver an item that follows, or needs no check.

        Args:
            subscription: of the session to the item's channel.
            item: as published.
            last: id of the channel's last item before it; None without ids.

        Returns:
            Whether the item was written, queued or acted upon.
        """


class ReliableWebSocket:
    """Recovery of a WebSocket session that has channels with ids. Implements ``Recovering``.

    The leg sends the queries: ``wanted`` is true when there is one, ``take`` returns it; ``answered`` or ``failed``
    follows. The leg reports other requests by ``sent`` and ``received``.

    Args:
        session: the WebSocket.
    """

    __slots__ = (
        "_asked",
        "_passed",
        "_unnamed",
        "first",
        "quiet_after",
        "recovery",
        "session",
    )

    def __init__(self, session: QueryingSession) -> None:
        self.session = session
        context = session.context
        self.quiet_after = context.recover_interval * (1 - SPREAD * context.random()) or _NEVER
        """Seconds without an item after which the backend is queried, different for each session."""
        self.first = True
        """The query goes before events of the client: queries and events take turns."""
        self._passed: dict[bytes, list[bytes | None]] | None = None
        """While another request is under way, last ids that channels (full names) have had since it was sent."""
        self._unnamed: set[bytes] | None = None
        """While a query is under way, channels (full names) that it is about and the response has not named."""
        self._asked: Asked | None = None
        self.recovery = Recovery(self)

    # --- interface to Recovery and to the scheduler

    @property
    def context(self) -> SessionContext:
        """Context shared by all sessions of the worker."""
        return self.session.context

    @property
    def mode(self) -> int:
        """Kind of the session: SOCKET."""
        return SOCKET

    @property
    def rate_key(self) -> bytes:
        """Id of the route if the operator gave it one, else empty."""
        return self.session.rate_key

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """All subscriptions of the session, those without ids too."""
        return self.session.subscriptions

    @property
    def unconfirmed(self) -> int:
        """Number of subscriptions that the handler has not confirmed."""
        return self.session.unconfirmed

    @property
    def over(self) -> bool:
        """True once the session has ended."""
        return self.session.over

    @property
    def blocked(self) -> bool:
        """True while the client does not read."""
        extras = self.session.extras
        return extras is not None and extras.blocked

    @property
    def full(self) -> bool:
        """True while the filters can take no more items."""
        extras = self.session.extras
        return extras is not None and extras.filters is not None and extras.filters.full

    @property
    def request_key(self) -> Hashable:
        """None: each session needs a request of its own."""
        return None

    @property
    def backend_key(self) -> Hashable:
        """Key that is equal for sessions whose requests go to one backend."""
        return backend_of(self.session.route)

    def action_of(self, item: Item) -> str | None:
        """Return the action of the item for WebSockets; None if it has no format for them.

        Args:
            item: as published.
        """
        return item.message.action if item.message is not None else None

    @property
    def steady(self) -> bool:
        """True if an item that follows needs no more than its delivery, so that the session may be in a cohort."""
        return self.recovery.state is State.IDLE and self._passed is None and not self.full

    # --- items

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """Check an item, and deliver it if it follows.

        Args:
            subscription: of the session to the item's channel.
            item: as published.

        Returns:
            Whether the item was written, queued or acted upon.
        """
        session = self.session
        if item.message is not None and item.message.action == "refresh":
            return session.accept(subscription, item, None)
        if subscription.cohort is None:
            return self.recovery.deliver(subscription, item)
        session.unsettle()
        taken = self.recovery.deliver(subscription, item)
        session.settle()
        return taken

    def accept(self, subscription: Subscription, item: Item) -> bool:
        """Deliver an item that follows.

        Args:
            subscription: of the session to the item's channel.
            item: as published.

        Returns:
            Whether the item was written, queued or acted upon.
        """
        last = subscription.prev_id
        if last is not None and item.message is not None and item.message.action == "send":
            subscription.prev_id = item.id
            passed = self._passed
            if passed is not None:
                ids = passed.setdefault(subscription.channel.name, [])
                if len(ids) <= PASSED_MAX:
                    # There may be an item without a format for WebSockets in between.
                    ids += (last, item.id)
        return self.session.accept(subscription, item, last)

    def refused(self, subscription: Subscription, item: Item, last: bytes) -> None:
        """Note an item that exceeds a bound: a gap.

        Args:
            subscription: of the session to the item's channel.
            item: that was refused.
            last: id of the channel's last item before it.
        """
        self.recovery.refused(subscription, item, last)

    # --- messages of the backend

    def named(self, channel: bytes, prev_id: bytes | None) -> bytes | None:
        """Return the last id that a channel has from now on: the backend subscribes to it.

        The response to a query has the last word. Any other request may have been answered before items that the
        client has got since, whose ids are newer then.

        Args:
            channel: full name.
            prev_id: last id that the client has, according to the backend; None ends the check of ids.
        """
        last = next((s.prev_id for s in self.subscriptions if s.channel.name == channel), None)
        unnamed = self._unnamed
        ids = self._passed.get(channel) if self._passed is not None and prev_id is not None else None
        if unnamed is not None:
            unnamed.discard(channel)
        elif ids is not None and (prev_id in ids or len(ids) > PASSED_MAX):
            return last
        elif prev_id != last:
            self.recovery.renewed(channel)
            if self.context.clock() < self.context.recovered + RECENT:
                # Items may have been lost after the response was made, and no later item would show the gap.
                self.recover()
        return prev_id

    def subscribed(self) -> None:
        """Restart the quiet time: channels or ids have changed."""
        if not self.recovery.state.keeps_items:
            self.recovery.listen()
            self.recovery.wait()

    def sent(self) -> None:
        """Note that a request other than a query is sent."""
        self.session.unsettle()
        self.first = True
        self._passed = {}

    def received(self) -> None:
        """Note the response to a request other than a query."""
        self._passed = None
        self.session.settle()

    # --- queries

    def recover(self) -> None:
        """Have the backend queried, in turn with other sessions: items may have been lost."""
        if not self.over:
            self.recovery.lost()

    def update(self) -> None:
        """Send the query when no other request is under way: the scheduler has given the session its turn."""
        self.recovery.granted()

    @property
    def wanted(self) -> bool:
        """True if a query is to be sent."""
        state = self.recovery.state
        return state is State.GRANTED or state is State.READY

    def query(self) -> None:
        """Have the leg send the query."""
        leg = self.session.leg
        if leg is not None and not self.over:
            leg.recover()

    def take(self) -> tuple[tuple[bytes, bytes], ...]:
        """Begin the query that is wanted; the leg sends it.

        Returns:
            The last ids that it is about; nothing if it is not to be sent now.
        """
        recovery = self.recovery
        self.session.unsettle()
        last_ids = recovery.last_ids()
        if not last_ids:
            recovery.no_ids()
            return ()
        extras = self.session.extras
        if not recovery.begin(extras.filters if extras is not None else None):
            return ()
        self.first = False
        self._unnamed = {s.channel.name for s in self.subscriptions if s.prev_id is not None}
        self._asked = self.context.scheduler.begin(self.backend_key)
        ledger = self.context.table.ledger
        ledger.questions += 1
        ledger.asked(self.rate_key, SOCKET)
        return last_ids

    def answered(self, part: bool) -> bool:
        """Catch up with the items that waited: the response is dealt with.

        A channel that it did not name has the id it had. If the channel lacks something, the query counts as failed.

        Args:
            part: the response contained messages for the client, and there may be more.

        Returns:
            False if the client has to be dropped.
        """
        unnamed, self._unnamed = self._unnamed or set(), None
        self._ended(False)
        helped = self.recovery.answered(unnamed, part)
        self.session.settle()
        return helped

    def failed(self) -> bool:
        """Have the query repeated later: it got no response that can be used.

        Returns:
            False if the client has to be dropped.
        """
        self._unnamed = None
        self._ended(True)
        return self.recovery.failed()

    def _ended(self, failed: bool | None) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.end(failed)

    def detach(self) -> None:
        """End the recovery of a session that goes on: its backend detached, and every item is taken as it is."""
        for subscription in self.subscriptions:
            subscription.prev_id = None
        self._ended(None)
        kept = self.recovery.detach()
        for name, item in kept:
            for subscription in self.subscriptions:
                if subscription.channel.name == name:
                    self.session.accept(subscription, item, None)

    def close(self) -> None:
        """End the recovery: the session is over."""
        self._ended(None)
        self.context.scheduler.discard(self)
        self.recovery.close()
