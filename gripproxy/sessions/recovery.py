"""What a session that has ids does about items it missed: notice, ask the backend, catch up (docs/grip.md §6).

Sans-I/O, and the same for every kind of client. An item that does not follow the last one is never delivered as if it
did. Instead the backend is asked; what arrives meanwhile waits, and is checked against the ids of the answer. Without
traffic the backend is asked after a while, so that even a lost publisher is only a delay. Ids are opaque: equal or
not is all they tell.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, Protocol

from gripproxy.grip.bounds import memory_of_item
from gripproxy.grip.item import Item
from gripproxy.sessions.channels import Subscription
from gripproxy.sessions.keeper import Keeper, Updatable
from gripproxy.sessions.wheel import Alarm

__all__ = ["FOLLOWS", "GAP", "PARTS_MAX", "REPEATED", "RETRIES", "Recovering", "Recovery", "check"]

FOLLOWS, REPEATED, GAP = range(3)

RETRIES: Final = (1, 2, 4, 8, 16)
"""Seconds before each new try after a question that failed, plus up to one more (docs/grip.md §6.6)."""

PARTS_MAX: Final = 1000
"""Answers in parts that a backend may give in a row before it is believed that there is no more."""


def check(subscription: Subscription, item: Item) -> int:
    """Return how the item stands to the last one of its channel: FOLLOWS, REPEATED or GAP (docs/grip.md §6.3).

    Without a last id everything follows.
    """
    last = subscription.prev_id
    if last is None:
        return FOLLOWS
    if item.id is not None and item.id == last:
        return REPEATED
    return FOLLOWS if item.prev_id == last else GAP


class Recovering(Updatable, Protocol):
    """A session with a ``Recovery``, as that sees it."""

    @property
    def mode(self) -> int: ...
    @property
    def rate_key(self) -> bytes: ...
    @property
    def keeper(self) -> Keeper: ...
    @property
    def subscriptions(self) -> tuple[Subscription, ...]: ...
    @property
    def unconfirmed(self) -> int: ...
    @property
    def over(self) -> bool: ...

    @property
    def blocked(self) -> bool:
        """The client does not read."""

    @property
    def full(self) -> bool:
        """Its filters can take no more items for now."""

    @property
    def quiet_after(self) -> float:
        """Seconds without an item after which the backend is asked."""

    def action_of(self, item: Item) -> str | None:
        """Return what the item wants of this kind of client; None if it has no format for it."""

    def accept(self, subscription: Subscription, item: Item) -> bool:
        """An item whose turn it is: one to be sent becomes the last of its channel, if that has one.

        Returns whether it was written, queued or acted upon.
        """

    def ask(self) -> None:
        """Ask the backend now: there is something new."""

    def quiet(self) -> None:
        """Nothing came for ``quiet_after`` seconds: have the backend asked."""

    def repeat(self) -> None:
        """Ask again what could not be asked before."""


class Recovery:
    """The state of one session's recovery.

    While ``asking``, items wait: at most ``keeper.queue_max``, and no more once they have ``keeper.buffer_max`` bytes.
    The backend is asked for further ones after its answer. ``behind``: the client does not read, and has missed
    something by that. ``owner`` is the session.
    """

    __slots__ = (
        "_again",
        "_alarm",
        "_because",
        "_had",
        "_heard",
        "_judges",
        "_late",
        "_missed",
        "_open",
        "_part",
        "_parts",
        "_queue",
        "_silent",
        "_size",
        "asking",
        "behind",
        "newer",
        "owner",
        "paused",
        "tries",
    )

    def __init__(self, owner: Recovering) -> None:
        self.owner = owner
        self.asking = False
        self.behind = False
        self.tries = 0
        """Questions that failed, one after the other."""
        self._again = False
        """The question under way may be too old to be answered with everything."""
        self._because: dict[bytes, bytes] | None = None
        """Items that the backend is asked for because its last answer had not seen them: id by channel."""
        self._had: dict[bytes, bytes] | None = None
        """Last ids when the question was asked, by channel."""
        self._judges = False
        """The backend has answered since ``_because`` was written down."""
        self.newer = False
        """There may be something newer than what has arrived, for the next question."""
        self._open = False
        """The same, for the last one: no item tells whether its answer has everything."""
        self._part = False
        """Its answer may have been a part of what it has."""
        self._parts = 0
        """How many parts in a row may not have been the last."""
        self._missed: set[bytes] | None = None
        """Channels (full names) of which items were left out since their last id was named."""
        self._late: set[bytes] | None = None
        """The same, of items that came during the question under way."""
        self._queue: list[tuple[bytes, Item]] | None = None
        self._size = 0
        """Bytes of the items in it."""
        self._heard = 0.0
        self._silent: set[bytes] | None = None
        """Channels with ids that had no item since the countdown began; None if any item will do."""
        self.paused = False
        """The last question failed, and the next one is not due yet."""
        self._alarm = Alarm(self._on_alarm)

    # --- items

    def last_ids(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return (channel name without the route's prefix, last id) of every channel that has one."""
        return tuple([(s.name, s.prev_id) for s in self.owner.subscriptions if s.prev_id is not None])

    def deliver(self, subscription: Subscription, item: Item) -> bool:
        """An item has come. Returns whether it was written, queued or acted upon."""
        owner = self.owner
        action = owner.action_of(item)
        if self.asking:
            return self._keep(subscription, item, action)
        if action == "hint":
            self.newer = True
            owner.ask()
            return True
        if action is not None and action != "send":
            return owner.accept(subscription, item)
        last = subscription.prev_id
        verdict = check(subscription, item)
        if action is None:
            if verdict == FOLLOWS and last is not None and item.id is not None:
                # Nothing of it is for this kind of client, which has it thereby.
                subscription.prev_id = item.id
            return False
        if verdict == REPEATED:
            return False
        if last is not None and owner.blocked:
            # A client that does not read is not waited for with what the backend has anyway.
            self.behind = True
            self._miss(subscription.channel.name)
            return False
        if verdict == GAP or (last is not None and owner.full):
            self._miss(subscription.channel.name)
            self.want()
            return False
        self._hear(subscription)
        return owner.accept(subscription, item)

    def refused(self, subscription: Subscription, item: Item, last: bytes) -> None:
        """An item that was accepted exceeds a bound: the client lacks it, and all that followed ``last``.

        The backend is asked for it once: if it names another id then, it is believed.
        """
        name = subscription.channel.name
        subscription.prev_id = last
        self._miss(name)
        if item.id is not None:
            if self._because is None:
                self._because = {}
            self._because[name] = item.id
            self._judges = False
        if not self.asking:
            self.want()

    def _miss(self, channel: bytes) -> None:
        if self._missed is None:
            self._missed = set()
        self._missed.add(channel)
        self.owner.keeper.table.ledger.gap(self.owner.rate_key, self.owner.mode)

    def _keep(self, subscription: Subscription, item: Item, action: str | None) -> bool:
        """Have the item wait for the answer."""
        if action is None and (item.id is None or subscription.prev_id is None):
            return False
        queue = self._queue
        if queue is None:
            queue = self._queue = []
            self._size = 0
        keeper = self.owner.keeper
        most = keeper.queue_max
        # A close has no id to be missed by, so there is a place for it.
        if (len(queue) >= most or self._size > keeper.buffer_max) and (action != "close" or len(queue) > most):
            self._again = True
            if self._late is None:
                self._late = set()
            self._late.add(subscription.channel.name)
            return False
        queue.append((subscription.channel.name, item))
        self._size += memory_of_item(item)
        return True

    # --- questions

    def want(self) -> None:
        """Ask the backend soon, when its other clients have had their turn; not before a failed question is due."""
        if not self.paused:
            self.owner.keeper.updates.add(self.owner)

    def postpone(self) -> None:
        """A question was due before the session had begun."""
        self._again = True

    def resume(self) -> None:
        """The session has begun: what was due is due now."""
        if self._again and not self.asking:
            self._again = False
            self.want()

    def begin(self) -> bool:
        """A question is to be asked: items wait from now on. Returns False if it may not be asked now."""
        owner = self.owner
        if self.asking:
            self._again = True
            return False
        if owner.blocked:
            self.behind = True
            return False
        self.asking = True
        owner.keeper.table.ledger.recovering(owner.rate_key, owner.mode)
        self._again = self.paused = False
        self._open, self.newer = self.newer, False
        self._had = {s.channel.name: s.prev_id for s in owner.subscriptions if s.prev_id is not None}
        owner.keeper.updates.discard(owner)
        owner.keeper.wheel.cancel(self._alarm)
        return True

    def doubt(self) -> None:
        """The answer to the question under way may be too old: ask once more after it."""
        self._again = True

    def retry(self) -> bool:
        """The question failed: it will be repeated. Returns False if it was often enough."""
        if self.tries >= len(RETRIES):
            return False
        keeper = self.owner.keeper
        pause = RETRIES[self.tries] + keeper.random() * 0.999
        self.tries += 1
        self.paused = True
        keeper.updates.discard(self.owner)
        keeper.wheel.set(self._alarm, keeper.clock() + pause)
        return True

    def settle(self, unnamed: Container[bytes] = (), part: bool = False) -> bool:
        """The question is over and the subscriptions have the ids of the answer: catch up with what has come meanwhile.

        ``unnamed``: channels (full names) the answer said nothing about. Returns False if one of them lacks something
        still; what it lacks is not asked for then. ``part``: the answer brought something, and there may be more.
        """
        owner = self.owner
        self.asking = False
        queue, self._queue = self._queue, None
        again, self._again = self._again, False
        late, self._late = self._late, None
        missed = self._missed
        if missed is not None:
            missed = {name for name in missed if name in unnamed}
        self._missed = missed | late if missed and late else missed or late
        self.listen()
        unknown = self._catch_up(queue) if queue else ()
        if owner.over:
            return True
        helped = not unnamed or not self._misses(unknown, unnamed)
        for name in unknown:
            self._miss(name)
            if name not in unnamed and not self.asking:
                # Older than the answer, or newer with something missing in between: opaque ids do not tell.
                self.want()
        if again and not self.asking:
            self.want()
        self.wait()
        if helped:
            self._judges = True
            self._part = part
            if not owner.unconfirmed:
                self.look()
        return helped

    @property
    def lacks(self) -> bool:
        """Whether something is known to be missing, or was to be asked for."""
        return self._because is not None or self._misses(())

    def _misses(self, unknown: Container[bytes], channels: Container[bytes] | None = None) -> bool:
        """Return whether items of the channels (full names; None for all) were left out, or are ``unknown``."""
        missed = self._missed or ()
        names = [subscription.channel.name for subscription in self.owner.subscriptions]
        return any((channels is None or n in channels) and (n in unknown or n in missed) for n in names)

    def renewed(self, channel: bytes) -> None:
        """The channel (full name) has a new last id, without a question."""
        if self._missed is not None:
            self._missed.discard(channel)

    def _catch_up(self, queue: list[tuple[bytes, Item]]) -> set[bytes]:
        """Deliver what arrived during the question, as far as the answer does not contain it.

        Returns the channels with nothing that fits the answer.
        """
        owner = self.owner
        matched: set[bytes] = set()
        unknown: set[bytes] = set()
        by_name = {subscription.channel.name: subscription for subscription in owner.subscriptions}
        for name, item in queue:
            subscription = by_name.get(name)
            if owner.over or subscription is None:
                continue
            action = owner.action_of(item)
            if self.asking:
                self._keep(subscription, item, action)
                continue
            if subscription.prev_id is not None and name not in matched and (action is None or action == "send"):
                verdict = check(subscription, item)
                if verdict == GAP:
                    if action is not None:
                        unknown.add(name)
                    continue
                # All up to here is in the answer.
                matched.add(name)
                unknown.discard(name)
            self.deliver(subscription, item)
        return unknown

    def look(self) -> None:
        """Ask again if something was published while the backend was answering, and did not arrive here in order.

        Called when all channels are confirmed. An item causes at most one more question: a backend that still names
        another id knows better, and to ask on would be for ever. After an answer that brought something, and may be a
        part, the next one is asked for, unless it ends with the newest item that has arrived.
        """
        owner = self.owner
        if owner.over or self.asking:
            # The answer to come is looked at, with what arrives meanwhile.
            return
        table = owner.keeper.table
        because, self._because = self._because, None
        judges, self._judges = self._judges, False
        part = judges and self._part and self._parts < PARTS_MAX
        more = False
        for subscription in owner.subscriptions:
            name = subscription.channel.name
            unseen = table.conflict(subscription)
            if unseen is None:
                last = subscription.prev_id
                more = more or (part and last is not None and (self._open or subscription.channel.last != last))
                continue
            if judges and self._had is not None and self._had.get(name) == unseen:
                # The newest that has arrived is what the client had when the backend was asked.
                table.overtaken(subscription, unseen)
                more = more or part
                continue
            if judges and because is not None and because.get(name) == unseen:
                if not part:
                    table.insisted(subscription, unseen)
                    continue
                more = True
            if self._because is None:
                self._because = {}
            self._because[name] = unseen
            self.want()
        if judges:
            self._had = None
            self._parts = self._parts + 1 if more else 0
        if more:
            self.newer = self.newer or self._open
            self.want()

    def on_writable(self) -> None:
        """The client has caught up; what it missed is asked for."""
        if self.behind and not self.asking and not self.owner.blocked and not self.owner.over:
            self.behind = False
            self.want()

    # --- time

    def listen(self) -> None:
        """Begin the countdown anew."""
        subscriptions = self.owner.subscriptions
        self._heard = self.owner.keeper.clock()
        self._silent = None
        if len(subscriptions) > 1:
            # One that is busy does not tell about the others.
            self._silent = {s.channel.name for s in subscriptions if s.prev_id is not None} or None

    def _hear(self, subscription: Subscription) -> None:
        silent = self._silent
        if silent is None:
            self._heard = self.owner.keeper.clock()
            return
        silent.discard(subscription.channel.name)
        if not silent:
            self.listen()

    def wait(self) -> None:
        """Count down to the next question, from the last item on."""
        if not self.owner.over and not self.asking and not self.paused:
            self.owner.keeper.wheel.set(self._alarm, self._heard + self.owner.quiet_after)

    def _on_alarm(self, now: float) -> None:
        if self.owner.over:
            return
        if self.paused:
            self.paused = False
            self.owner.repeat()
        elif now < self._heard + self.owner.quiet_after:
            self.wait()
        else:
            self.owner.quiet()

    def end(self) -> None:
        """The session is over."""
        self.owner.keeper.wheel.cancel(self._alarm)
        self._queue = None
