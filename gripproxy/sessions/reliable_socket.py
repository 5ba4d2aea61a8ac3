"""A WebSocket with ids: what it missed comes from its backend over HTTP (docs/websocket-reliability.md).

An extension of GRIP. What is missed and when to ask is ``Recovery``'s to decide. Here is how a WebSocket asks: a
request without events names the last ids, and its answer brings what is missing, and the new ids in ``subscribe``
messages.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from gripproxy.grip.item import Item
from gripproxy.pipe import SOCKET
from gripproxy.sessions.channels import Subscription
from gripproxy.sessions.keeper import Keeper
from gripproxy.sessions.recovery import Recovery
from gripproxy.sessions.updates import SPREAD, Asked, lane_of

if TYPE_CHECKING:
    from gripproxy.sessions.websocket import WebSocketSession

__all__ = ["PASSED_MAX", "RECENT", "ReliableSocket"]

PASSED_MAX: Final = 200
"""Ids kept of a channel while a request is under way, two for each item. With more the answer counts as older."""

RECENT: Final = 60.0
"""Seconds that a request may have been under way when its answer comes."""

_NEVER: Final = 10**9
"""Seconds of quiet where the operator wants nobody asked for that."""


class ReliableSocket:
    """What a WebSocket session has for its channels with ids. Implements ``Recovering``.

    The leg sends its questions: ``wanted`` says that there is one, ``take`` what it is; ``answered`` or ``failed``
    follows. ``sent`` and ``received`` tell of the other requests.
    """

    __slots__ = (
        "_asked",
        "_due",
        "_passed",
        "_unnamed",
        "first",
        "quiet_after",
        "recovery",
        "session",
        "wanted",
    )

    def __init__(self, session: WebSocketSession) -> None:
        self.session = session
        keeper = session.keeper
        self.quiet_after = keeper.recover_interval * (1 - SPREAD * keeper.random()) or _NEVER
        """Seconds without an item after which the backend is asked: not the same for all."""
        self.wanted = False
        """A question is to go."""
        self.first = True
        """It may go before what the client has sent: questions and events take turns."""
        self._due = False
        """Something may be missing that did not arrive: it will not do to wait for the next quiet time."""
        self._passed: dict[bytes, list[bytes | None]] | None = None
        """While another request is under way, the last ids the channels have had since it went."""
        self._unnamed: set[bytes] | None = None
        """While a question is under way, the channels it is about, less those the answer has named."""
        self._asked: Asked | None = None
        self.recovery = Recovery(self)

    # --- as Recovery and the queue of updates see it

    @property
    def keeper(self) -> Keeper:
        """What all sessions share."""
        return self.session.keeper

    @property
    def mode(self) -> int:
        """It is a WebSocket."""
        return SOCKET

    @property
    def rate_key(self) -> bytes:
        """The route's id if the operator gave it one."""
        return self.session.rate_key

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """The session's, those without ids too."""
        return self.session.subscriptions

    @property
    def unconfirmed(self) -> int:
        """How many of them are not confirmed."""
        return self.session.unconfirmed

    @property
    def over(self) -> bool:
        """Whether the session is over."""
        return self.session.over

    @property
    def blocked(self) -> bool:
        """The client does not read."""
        extras = self.session.extras
        return extras is not None and extras.blocked

    @property
    def full(self) -> bool:
        """Its filters can take no more items for now."""
        extras = self.session.extras
        return extras is not None and extras.filters is not None and extras.filters.full

    @property
    def update_key(self) -> Hashable:
        """Each asks for itself."""
        return None

    @property
    def update_lane(self) -> Hashable:
        """Equal for sessions whose requests go to the same backend."""
        return lane_of(self.session.route)

    def action_of(self, item: Item) -> str | None:
        """What the item wants of WebSockets."""
        return item.message.action if item.message is not None else None

    # --- items

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """An item has come. Returns whether it was written, queued or acted upon."""
        if item.message is not None and item.message.action == "refresh":
            return self.session.accept(subscription, item, None)
        return self.recovery.deliver(subscription, item)

    def accept(self, subscription: Subscription, item: Item) -> bool:
        """An item whose turn it is. Returns whether it was written, queued or acted upon."""
        last = subscription.prev_id
        if last is not None and item.message is not None and item.message.action == "send":
            subscription.prev_id = item.id
            passed = self._passed
            if passed is not None:
                ids = passed.setdefault(subscription.channel.name, [])
                if len(ids) <= PASSED_MAX:
                    # An item of another kind may have come between.
                    ids += (last, item.id)
        return self.session.accept(subscription, item, last)

    def refused(self, subscription: Subscription, item: Item, last: bytes) -> None:
        """An item exceeds a bound: a gap."""
        self._due = True
        self.recovery.refused(subscription, item, last)

    # --- what the backend says

    def named(self, channel: bytes, prev_id: bytes | None) -> bytes | None:
        """The backend subscribes to a channel (full name); ``prev_id`` is what it says the client has.

        Returns the last id the channel has from now on. To an answer to a question that is what it says. Any other
        request may have been answered before items that the client has got since: what these tell is newer.
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
            if self.keeper.clock() < self.keeper.recovered + RECENT:
                # The request may have been answered before items were lost that nobody will miss by the next one.
                self.recover()
        return prev_id

    def subscribed(self) -> None:
        """Channels or ids have changed."""
        if not self.recovery.asking:
            self.recovery.listen()
            self.recovery.wait()

    def sent(self) -> None:
        """Another request goes to the backend."""
        self.first = True
        self._passed = {}

    def received(self) -> None:
        """It has been answered."""
        self._passed = None

    # --- questions

    def recover(self) -> None:
        """Items may have been lost: have the backend asked when others have had their turn."""
        self._due = self.recovery.newer = True
        self.keeper.updates.add(self)

    def update(self) -> None:
        """Have the backend asked, as soon as no other request is under way."""
        recovery = self.recovery
        if self.over or recovery.paused:
            return
        if recovery.asking:
            recovery.begin()  # once more, that is
            return
        self._go()

    def _go(self) -> None:
        leg = self.session.leg
        if leg is not None and not self.over:
            self.wanted = True
            leg.recover()

    def ask(self) -> None:
        """Have the backend asked at once: there is something new."""
        self._due = True
        if not self.recovery.paused:
            self.keeper.updates.at_once(self)

    def quiet(self) -> None:
        """Nothing has come for long: have the backend asked when others have had their turn."""
        self.recovery.newer = True
        self.keeper.updates.add(self)

    def repeat(self) -> None:
        """Have it asked again."""
        self.keeper.updates.add(self)

    def take(self) -> tuple[tuple[bytes, bytes], ...]:
        """The leg can send a question: return the last ids it is about; nothing if it is not to be sent now."""
        self.wanted = False
        recovery = self.recovery
        last_ids = recovery.last_ids()
        if not last_ids or not (recovery.asking or recovery.begin()):
            return ()
        extras = self.session.extras
        if extras is not None and extras.filters is not None and extras.filters.busy:
            # What they let pass goes out before the answer.
            extras.filters.after(self._go)
            return ()
        self.first = False
        self._unnamed = {s.channel.name for s in self.subscriptions if s.prev_id is not None}
        self._asked = self.keeper.updates.begin(self.update_lane)
        ledger = self.keeper.table.ledger
        ledger.questions += 1
        ledger.asked(self.rate_key, SOCKET)
        return last_ids

    def answered(self, part: bool) -> bool:
        """The question was answered, and what the answer says is done. Returns False if the client is to be dropped.

        A channel that the answer did not name has the id it had. If it lacks something still, the answer was none.
        ``part``: there were messages for the client in it, so there may be more.
        """
        unnamed, self._unnamed = self._unnamed or set(), None
        self._ended(False)
        recovery = self.recovery
        due, self._due = self._due, False
        if recovery.settle(unnamed, part) or self.over:
            recovery.tries = 0
            return True
        self._due = self._due or due
        return recovery.asking or self.wanted or self._later()

    def failed(self) -> bool:
        """The question got no answer that can be used. Returns False if the client is to be dropped."""
        self._unnamed = None
        self._ended(True)
        if not self._later():
            return False
        # Nothing is known that was not known before. What follows need not wait for the next try.
        self.recovery.settle({subscription.channel.name for subscription in self.subscriptions})
        return True

    def _later(self) -> bool:
        """Ask again after a pause. Returns False if that was done often enough, with something missing."""
        recovery = self.recovery
        if recovery.retry():
            return True
        recovery.tries = 0
        return not self._due and not recovery.lacks

    def _ended(self, failed: bool | None) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.end(failed)

    def forsake(self) -> None:
        """The backend does not want to be asked any more: from now on every item is taken as it is."""
        for subscription in self.subscriptions:
            subscription.prev_id = None
        self.recovery.settle()
        self.end()

    def end(self) -> None:
        """The session is over."""
        self._ended(None)
        self.keeper.updates.discard(self)
        self.recovery.end()
