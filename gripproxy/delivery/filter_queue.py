"""Filters of one session: items pass them in order, also while a filter waits for the backend."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from gripproxy.delivery.channel import Session, Subscription
from gripproxy.delivery.context import DeliveryContext
from gripproxy.grip.bounds import memory_of_item
from gripproxy.grip.filters import (
    DELIVERY,
    DROP,
    Ask,
    AskAnswer,
    Context,
    FilterError,
    FilterLimit,
    Send,
    Verdict,
    content_filters_match,
    lets_through,
    mismatch_text,
    run_filters,
)
from gripproxy.grip.item import Item

__all__ = ["FilterQueue", "FilteredSession", "close", "concerns", "refresh"]


class FilteredTerms(Protocol):
    """Terms of a session as the queue uses them."""

    @property
    def untrusted(self) -> bool:
        """True if the backend's instruct comes from an untrusted target."""


class FilteredSession(Session, Protocol):
    """Session as its queue uses it."""

    @property
    def context(self) -> DeliveryContext:
        """Context shared by all sessions of the worker."""

    @property
    def meta(self) -> Mapping[bytes, bytes]:
        """Connection meta."""

    @property
    def uri(self) -> bytes:
        """URI of the request."""

    @property
    def route(self) -> object:
        """Route of the request."""

    @property
    def terms(self) -> FilteredTerms:
        """Terms of the session."""

    def content_of(self, item: Item) -> bytes:
        """Return the content of the item for this kind of session.

        Args:
            item: as published.
        """

    def content_filters_of(self, item: Item) -> tuple[str, ...] | None:
        """Return the filters that the publisher prepared the content for; None for any.

        Args:
            item: as published.
        """

    def filtered(self, item: Item, content: bytes) -> None:
        """Deliver an item that has passed the filters.

        Args:
            item: as published.
            content: of the item, after the filters.
        """

    def filter_failed(self, text: str) -> None:
        """Note that a filter failed (docs/grip.md §7).

        Args:
            text: the reason.
        """

    def refused(self, subscription: Subscription, item: Item, last: bytes | None, text: str) -> None:
        """Leave out an item that exceeds a bound.

        Args:
            subscription: of the session to the item's channel.
            item: that is refused.
            last: id of the channel's last item before it, from where items are missing now; None without ids.
            text: the reason.
        """


def concerns(session: FilteredSession, subscription: Subscription, item: Item) -> bool:
    """Return whether an item's action is for a session: its delivery filters decide, as about content.

    An action that is dropped is counted, and still advances the last id if it follows it (docs/grip.md §7).

    Args:
        session: the session.
        subscription: of the session to the item's channel.
        item: with an action other than ``send``.
    """
    names = subscription.filters
    if not names or DELIVERY.isdisjoint(names):
        return True
    shared = session.context.sharing.of(item)
    if lets_through(names, session.meta, item.meta, {s.name for s in session.subscriptions}, shared):
        return True
    session.context.table.ledger.dropped("filter")
    last = subscription.prev_id
    if last is not None and item.id is not None and item.prev_id == last:
        subscription.prev_id = item.id
    return False


def close(filters: FilterQueue | None, act: Callable[[], None]) -> None:
    """Close a session behind the items that wait in its filters.

    Args:
        filters: of the session; None without.
        act: closes the session.
    """
    if filters is None:
        act()
    else:
        filters.close(act)


def refresh(filters: FilterQueue | None, act: Callable[[], None]) -> None:
    """Have a session's backend requested behind the items that wait in its filters.

    Args:
        filters: of the session; None without.
        act: sends the request.
    """
    if filters is None:
        act()
    else:
        filters.refresh(act)


class _Question:
    """Request of a filter, shared by all sessions with an equal request about an item."""

    __slots__ = ("_answer", "_context", "_over", "_waiting", "route")

    def __init__(self, context: DeliveryContext, route: object) -> None:
        self._context = context
        self.route = route
        self._waiting: deque[tuple[FilterQueue, Callable[[AskAnswer | None], None]]] = deque()
        self._over = False
        self._answer: AskAnswer | None = None

    def join(self, queue: FilterQueue, answered: Callable[[AskAnswer | None], None]) -> None:
        """Have ``answered`` called in a later turn of the loop."""
        self._waiting.append((queue, answered))
        if self._over and len(self._waiting) == 1:
            self._context.turns.add(self._tell)

    def done(self, answer: AskAnswer | None) -> None:
        """Take the response; None if there is none."""
        self._over = True
        self._answer = answer
        if self._waiting and not self._tell():
            self._context.turns.again(self._tell)

    def _tell(self) -> bool:
        waiting, turns = self._waiting, self._context.turns
        while waiting:
            queue, answered = waiting[0]
            queue.attempt(partial(answered, self._answer))
            waiting.popleft()
            if turns.late():
                break
        return not waiting


class FilterQueue:
    """Runs the filters of a session's subscriptions, and keeps the order while one waits for an HTTP response.

    At most ``context.queue_max`` items wait, and no more once they have ``context.buffer_max`` bytes; further ones are
    dropped and counted (docs/grip.md §4.1, §10). A close has a place beyond that, and with it the queue is closed.

    Args:
        session: whose items they are.
    """

    __slots__ = ("_busy", "_closed", "_due", "_session", "_size", "_waiting", "dropped")

    def __init__(self, session: FilteredSession) -> None:
        self._session = session
        self._waiting: deque[tuple[Subscription, Item, bytes | None] | Callable[[], None]] = deque()
        self._size = 0
        self._busy = False
        self._closed = False
        self.dropped = 0
        self._due = False
        """A request of the backend waits behind the items."""

    def put(self, subscription: Subscription, item: Item, last: bytes | None) -> bool:
        """Take an item.

        Args:
            subscription: of the session to the item's channel.
            item: as published.
            last: id of the channel's last item before it; None without ids.

        Returns:
            False if the queue is full and the item was dropped.
        """
        if self._closed:
            return False
        if self._busy:
            if self.full:
                self.dropped += 1
                self._session.context.table.ledger.dropped("filter-queue")
                return False
            self._waiting.append((subscription, item, last))
            self._size += memory_of_item(item)
            return True
        self._run(subscription, item, last)
        return True

    @property
    def full(self) -> bool:
        """True if the next item would be dropped."""
        context = self._session.context
        return self._busy and (len(self._waiting) >= context.queue_max or self._size > context.buffer_max)

    @property
    def busy(self) -> bool:
        """True while an item is on its way through the filters."""
        return self._busy

    def after(self, act: Callable[[], None]) -> None:
        """Call a function behind all items that wait, however many; now if none waits. One at a time.

        Args:
            act: the function.
        """
        if self._busy:
            self._waiting.append(act)
        else:
            act()

    def close(self, act: Callable[[], None]) -> None:
        """Close the session behind all items that wait; now if none waits. Later items are not taken.

        Args:
            act: closes the session.
        """
        if not self._closed:
            self._closed = True
            self.after(act)

    def refresh(self, act: Callable[[], None]) -> None:
        """Request the backend behind all items that wait; now if none waits. Further calls until then do nothing.

        Args:
            act: sends the request.
        """
        if not self._due:
            self._due = True
            self.after(partial(self._refresh, act))

    def _refresh(self, act: Callable[[], None]) -> None:
        self._due = False
        act()

    def _run(self, subscription: Subscription, item: Item, last: bytes | None) -> None:
        session = self._session
        names = subscription.filters
        wanted = session.content_filters_of(item)
        if wanted is not None and not content_filters_match(names, wanted):
            session.filter_failed(mismatch_text(names, wanted))
            return
        try:
            content = session.content_of(item)
            if not names:
                session.filtered(item, content)
                return
            context = Context(
                meta=session.meta,
                item_meta=item.meta,
                channel=subscription.name,
                prev_ids={s.name: s.prev_id for s in session.subscriptions if s.prev_id is not None},
                subscriptions={s.name for s in session.subscriptions},
                uri=session.uri,
            )
            verdict = run_filters(names, context, content, session.context.sharing.of(item))
        except FilterError as error:
            self._failed(subscription, item, last, error)
            return
        self._settle(subscription, item, last, verdict)

    def _failed(self, subscription: Subscription, item: Item, last: bytes | None, error: FilterError) -> None:
        session = self._session
        text = f"filter error: {error}"
        if not isinstance(error, FilterLimit):
            session.filter_failed(text)
            return
        session.context.refusals.add(subscription.channel.name, error.name, str(error))
        if last is not None:
            # Items that wait behind it follow it: the backend sends them together with it.
            kept = [w for w in self._waiting if not isinstance(w, tuple) or w[0] is not subscription]
            self._waiting = deque(kept)
            self._size = sum([memory_of_item(w[1]) for w in kept if isinstance(w, tuple)])
        session.refused(subscription, item, last, text)

    def _settle(self, subscription: Subscription, item: Item, last: bytes | None, verdict: Verdict) -> None:
        session = self._session
        if isinstance(verdict, Send):
            session.filtered(item, verdict.content)
        elif isinstance(verdict, Ask):
            self._busy = True
            self._ask(item, verdict, partial(self._answered, subscription, item, last, verdict))
        else:
            assert verdict is DROP
            session.context.table.ledger.dropped("filter")

    def _ask(self, item: Item, ask: Ask, answered: Callable[[AskAnswer | None], None]) -> None:
        """Request the backend, once for all sessions whose request would be equal."""
        session = self._session
        context, route = session.context, session.route
        shared = context.sharing.of(item)
        # The session's own scheme, host and port decide how the URL is reached, and its trust whether.
        origin = tuple(session.uri.split(b"/", 3)[:3])
        key = ("ask", ask.url, tuple(ask.headers), ask.body, id(route), origin, session.terms.untrusted)
        question: _Question | None = shared.get(key)
        if question is None:
            size = sum([len(name) + len(value) for name, value in ask.headers]) + len(ask.body)
            question = shared.keep(key, _Question(context, route), size)
            question.join(self, answered)
            context.ask(ask, session.uri, route, session.terms.untrusted, question.done)
        else:
            question.join(self, answered)

    def _answered(
        self, subscription: Subscription, item: Item, last: bytes | None, ask: Ask, answer: AskAnswer | None
    ) -> None:
        self._busy = False
        if self._session.over:
            return
        try:
            verdict = ask.resume(answer)
        except FilterError as error:
            self._failed(subscription, item, last, error)
        else:
            self._settle(subscription, item, last, verdict)
        self._go_on()

    def _go_on(self) -> bool:
        """Run the items that wait, until a filter waits again or the turn is over."""
        session = self._session
        turns = session.context.turns
        while self._waiting and not self._busy and not session.over:
            waiting = self._waiting.popleft()
            if isinstance(waiting, tuple):
                self._size -= memory_of_item(waiting[1])
                self._run(*waiting)
            else:
                waiting()
            if self._waiting and not self._busy and turns.late():
                self._busy = True
                turns.again(self._resume)
        return True

    def _resume(self) -> bool:
        self._busy = False
        self.attempt(self._go_on)
        return True

    def attempt(self, act: Callable[[], object]) -> None:
        """Call a function for the session; its exception is the session's, and ends it.

        Args:
            act: the function.
        """
        try:
            act()
        except Exception as error:  # noqa: BLE001 - of one session; those behind it have their turn
            self._session.context.table.failed(self._session, error)
