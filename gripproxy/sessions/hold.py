"""What a held response and a held stream have in common: terms, channels, and how the hold ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from gripproxy.grip.item import Item
from gripproxy.sessions.channels import Subscription, Wanted
from gripproxy.sessions.figures import Figures
from gripproxy.sessions.keeper import Keeper
from gripproxy.sessions.outlet import Outlet
from gripproxy.sessions.updates import lane_of

__all__ = ["Hold", "Terms"]


class Terms(Protocol):
    """What the backend said about a hold, as far as every kind of it needs it."""

    @property
    def meta(self) -> Mapping[bytes, bytes]: ...
    @property
    def rate_key(self) -> bytes: ...
    @property
    def route(self) -> object: ...
    @property
    def untrusted(self) -> bool: ...


T = TypeVar("T", bound=Terms)


class Hold(ABC, Generic[T]):
    """One held HTTP request.

    ``outlet`` is the client's side, ``serial`` the request's number in this process. ``over`` is final: from then on
    nothing is delivered, and nothing asked of the outlet.
    """

    __slots__ = ("keeper", "outlet", "over", "serial", "subscriptions", "terms", "tick", "unconfirmed")

    mode: int

    def __init__(self, outlet: Outlet, keeper: Keeper, terms: T, serial: int) -> None:
        self.outlet = outlet
        self.keeper = keeper
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
        """The route's id if the operator gave it one (docs/grip.md §10)."""
        return self.terms.rate_key

    @property
    def figures(self) -> Figures:
        """What is counted for its route."""
        return self.keeper.table.ledger.of(self.terms.rate_key)

    @property
    def update_key(self) -> Hashable:
        """Equal for sessions that one backend request serves; None for one of its own, or none at all."""
        return None

    @property
    def update_lane(self) -> Hashable:
        """Equal for sessions whose requests go to the same backend."""
        return lane_of(self.terms.route)

    @property
    @abstractmethod
    def uri(self) -> bytes:
        """The request's URI, base of relative ones."""

    @property
    def route(self) -> object:
        """The route the request came by."""
        return self.terms.route

    @property
    def untrusted(self) -> bool:
        """Whether an untrusted target had a part in what the hold asks for: the access policy applies to its links."""
        return self.terms.untrusted

    def start(self, wanted: Iterable[Wanted], confirm_timeout: float) -> None:
        """Subscribe (see ChannelTable.subscribe); unconfirmed for ``confirm_timeout`` seconds is an error."""
        if self.over:
            # The process is ending, and with it went this hold.
            return
        self.keeper.wheel.set(self, self.keeper.clock() + confirm_timeout)
        self.keeper.table.subscribe(self, wanted)

    @abstractmethod
    def on_confirmed(self) -> None:
        """All channels are confirmed: items published from now on arrive."""

    @abstractmethod
    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """An item for one of the channels has come. Returns whether it was written or queued."""

    @abstractmethod
    def on_timer(self, now: float) -> None:
        """The time set in the wheel has come; ``now`` in seconds."""

    @abstractmethod
    def update(self) -> None:
        """Ask the backend what the client should have now. Does nothing once the hold is over."""

    @abstractmethod
    def drain(self) -> None:
        """The process ends: let the client go as gently as there is time for."""

    def give_up(self) -> None:
        """A bug of ours hit it: the connection ends, and what was sent does not look complete."""
        if not self.over:
            self._leave_channels()
            self.outlet.break_off()

    def leave(self) -> None:
        """The client is gone."""
        if not self.over:
            self._leave_channels()

    def _leave_channels(self) -> None:
        self.over = True
        self.keeper.wheel.cancel(self)
        self.keeper.updates.discard(self)
        self.keeper.table.unsubscribe(self)
