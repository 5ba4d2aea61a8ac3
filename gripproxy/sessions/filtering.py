"""Items of one session on their way through its filters, in order, also when a filter asks the backend."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from gripproxy.grip.filters import (
    DROP,
    Ask,
    AskAnswer,
    Context,
    FilterError,
    Send,
    content_filters_match,
    mismatch_text,
    run_filters,
)
from gripproxy.grip.item import Item
from gripproxy.sessions.channels import Subscription
from gripproxy.sessions.keeper import Keeper

__all__ = ["FilterQueue", "FilteredSession"]


class FilteredTerms(Protocol):
    """What the queue needs of the session's terms."""

    @property
    def untrusted(self) -> bool: ...


class FilteredSession(Protocol):
    """What the queue needs of its session."""

    @property
    def keeper(self) -> Keeper: ...
    @property
    def meta(self) -> Mapping[bytes, bytes]: ...
    @property
    def uri(self) -> bytes: ...
    @property
    def route(self) -> object: ...
    @property
    def terms(self) -> FilteredTerms: ...
    @property
    def subscriptions(self) -> tuple[Subscription, ...]: ...
    @property
    def over(self) -> bool: ...
    def content_of(self, item: Item) -> bytes: ...
    def content_filters_of(self, item: Item) -> tuple[str, ...] | None: ...
    def filtered(self, item: Item, content: bytes) -> None: ...
    def filter_failed(self, text: str) -> None: ...


class FilterQueue:
    """Runs the filters of a session's subscriptions and keeps the order while one waits for an HTTP answer.

    At most ``keeper.queue_max`` items wait; further ones are dropped and counted (docs/grip.md §4.1, §10).
    """

    __slots__ = ("_asking", "_session", "_waiting", "dropped", "due")

    def __init__(self, session: FilteredSession) -> None:
        self._session = session
        self._waiting: deque[tuple[Subscription, Item] | Callable[[], None]] = deque()
        self._asking = False
        self.dropped = 0
        self.due = False
        """The backend is to be asked again when no filter works any more."""

    def put(self, subscription: Subscription, item: Item) -> bool:
        """Take an item. Returns False if the queue is full and the item was dropped."""
        if self._asking:
            if len(self._waiting) >= self._session.keeper.queue_max:
                self.dropped += 1
                self._session.keeper.table.ledger.dropped("filter-queue")
                return False
            self._waiting.append((subscription, item))
            return True
        self._run(subscription, item)
        return True

    @property
    def full(self) -> bool:
        """Whether the next item would be dropped."""
        return self._asking and len(self._waiting) >= self._session.keeper.queue_max

    @property
    def busy(self) -> bool:
        """Whether an item is on its way through them."""
        return self._asking

    def after(self, act: Callable[[], None]) -> None:
        """Do something behind all items that wait, however many; at once if none does. One at a time."""
        if self._asking:
            self._waiting.append(act)
        else:
            act()

    def then(self, act: Callable[[], None]) -> None:
        """Do something behind the items that wait; at once if none does, or if no more may wait."""
        if self._asking and len(self._waiting) < self._session.keeper.queue_max:
            self._waiting.append(act)
        else:
            act()

    def _run(self, subscription: Subscription, item: Item) -> None:
        session = self._session
        names = subscription.filters
        wanted = session.content_filters_of(item)
        if wanted is not None and not content_filters_match(names, wanted):
            session.filter_failed(mismatch_text(names, wanted))
            return
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
        try:
            verdict = run_filters(names, context, content)
        except FilterError as error:
            session.filter_failed(f"filter error: {error}")
            return
        self._settle(item, verdict)

    def _settle(self, item: Item, verdict: object) -> None:
        if isinstance(verdict, Send):
            self._session.filtered(item, verdict.content)
        elif isinstance(verdict, Ask):
            self._asking = True
            session = self._session
            session.keeper.ask(
                verdict, session.uri, session.route, session.terms.untrusted, self._answer(item, verdict)
            )
        else:
            assert verdict is DROP
            self._session.keeper.table.ledger.dropped("filter")

    def _answer(self, item: Item, ask: Ask) -> Callable[[AskAnswer | None], None]:
        def answered(answer: AskAnswer | None) -> None:
            self._asking = False
            if self._session.over:
                return
            try:
                self._settle(item, ask.resume(answer))
            except FilterError as error:
                self._session.filter_failed(f"filter error: {error}")
            while self._waiting and not self._asking and not self._session.over:
                waiting = self._waiting.popleft()
                if isinstance(waiting, tuple):
                    self._run(*waiting)
                else:
                    waiting()

        return answered
