"""Common part of held responses and held streams: terms, channels, and the end of the hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from gripproxy.delivery.channel import Subscription, Wanted
from gripproxy.grip.item import Item
from gripproxy.sessions.context import SessionContext
from gripproxy.sessions.interfaces import Outlet
from gripproxy.sessions.recovery_scheduler import backend_of
from gripproxy.stats.counters import RouteCounters

__all__ = ["Hold", "Terms"]


class Terms(Protocol):
    """Part of a backend's instruct that holds of every kind need."""

    @property
    def meta(self) -> Mapping[bytes, bytes]:
        """Connection meta."""

    @property
    def rate_key(self) -> bytes:
        """Id of the route if the operator gave it one, else empty."""

    @property
    def route(self) -> object:
        """Route of the request."""

    @property
    def untrusted(self) -> bool:
        """True if the instruct comes from an untrusted target."""


T = TypeVar("T", bound=Terms)


class Hold(ABC, Generic[T]):
    """One held HTTP request.

    Attributes:
        outlet: the client's side.
        context: the context shared by all sessions of the worker.
        terms: of the hold.
        serial: the number of the request in this process.
        subscriptions: to the channels of the hold.
        unconfirmed: how many of them the handler has not confirmed.
        over: the hold has ended; it delivers no item and calls no method of the outlet any more.
        tick: place in the timer wheel.
    """

    __slots__ = ("context", "outlet", "over", "serial", "subscriptions", "terms", "tick", "unconfirmed")

    mode: int

    def __init__(self, outlet: Outlet, context: SessionContext, terms: T, serial: int) -> None:
        self.outlet = outlet
        self.context = context
        self.terms = terms
        self.serial = serial
        self.subscriptions: tuple[Subscription, ...] = ()
        self.unconfirmed = 0
        self.tick = -1
        self.over = False

    @property
    def meta(self) -> Mapping[bytes, bytes]:
        """Connection meta."""
        return self.terms.meta

    @property
    def rate_key(self) -> bytes:
        """Id of the route if the operator gave it one, else empty (docs/grip.md §10)."""
        return self.terms.rate_key

    @property
    def figures(self) -> RouteCounters:
        """Counters of the route."""
        return self.context.table.ledger.of(self.terms.rate_key)

    @property
    def request_key(self) -> Hashable:
        """Key that is equal for sessions that one backend request serves; None for a request of its own, or none."""
        return None

    @property
    def backend_key(self) -> Hashable:
        """Key that is equal for sessions whose requests go to one backend."""
        return backend_of(self.terms.route)

    @property
    @abstractmethod
    def uri(self) -> bytes:
        """URI of the request, base of relative ones."""

    @property
    def route(self) -> object:
        """Route of the request."""
        return self.terms.route

    @property
    def untrusted(self) -> bool:
        """True if links and filters of the hold come from an untrusted target, so that the access policy applies."""
        return self.terms.untrusted

    def start(self, wanted: Iterable[Wanted], confirm_timeout: float) -> None:
        """Subscribe to the channels.

        Args:
            wanted: the subscriptions (see ChannelTable.subscribe).
            confirm_timeout: seconds after which an unconfirmed channel ends the hold as an error.
        """
        if self.over:
            # The worker is draining, and has ended this hold.
            return
        self.context.wheel.set(self, self.context.clock() + confirm_timeout)
        self.context.table.subscribe(self, wanted)

    @abstractmethod
    def on_confirmed(self) -> None:
        """Begin to deliver: all channels are confirmed, so no item published from now on is missed."""

    @abstractmethod
    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """Deliver an item.

        Args:
            subscription: of the hold to the item's channel.
            item: as published.

        Returns:
            Whether the item was written or queued.
        """

    @abstractmethod
    def on_timer(self, now: float) -> None:
        """Act on the timer.

        Args:
            now: time in seconds.
        """

    def recover(self) -> None:
        """Have the backend queried for missed items, in turn with other sessions."""
        self.context.scheduler.add(self)

    @abstractmethod
    def update(self) -> None:
        """Query the backend now: the scheduler has given the hold its turn. Does nothing once the hold is over."""

    @abstractmethod
    def drain(self) -> None:
        """Close the hold because the worker ends: as at its timeout, or with the regular end of a stream."""

    def abort_on_defect(self) -> None:
        """Abort the hold because of a defect of gripproxy: the connection ends, and the response is not complete."""
        if not self.over:
            self._leave_channels()
            self.outlet.truncate()

    def client_lost(self) -> None:
        """End the hold: the client has disconnected."""
        if not self.over:
            self._leave_channels()

    def _leave_channels(self) -> None:
        self.over = True
        self.context.wheel.cancel(self)
        self.context.scheduler.discard(self)
        self.context.table.unsubscribe(self)
