"""Subscriptions in the SQLite engine: their rows, and their numbers in memory, as of the last commit."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from griphub.store.plain_records import SUBSCRIPTION_COLUMNS, keys_json, plain_subscription, subscription_of
from griphub.store.schema import NEWEST
from griphub.store.subscription import Bound, Keys, Subscription, SubscriptionProgress

__all__ = ["SqliteSubscriptions", "Transact"]

T = TypeVar("T")

_BY_NAME: Final = "t = ? and owner = ? and id = ?"

_INSERT: Final = (
    f"insert into subscription({SUBSCRIPTION_COLUMNS})"
    f" values (null,?,?,?,?,?,min(?, {NEWEST}),?,?,?,?,?,?) returning {SUBSCRIPTION_COLUMNS}"
)

_SAVE: Final = (
    f"update subscription set position = max(position, min(?, {NEWEST})), confirmed = ?, rest = ?, failure = ?"
    " where n = ?"
)


class Transact(Protocol):
    """Transaction of a writer."""

    def __call__(self, work: Callable[[], T]) -> T:
        """Do a work in a transaction, and return its result after the commit.

        Args:
            work: executes statements.

        Raises:
            StoreFull: there is no space.
            StoreBroken: a statement failed.
        """


class SqliteSubscriptions:
    """Subscriptions of a store, after ``load``. Implements ``griphub.store.interface.SubscriptionWriter``.

    Args:
        connection: of the writer.
        transact: does the changes.
        require_space: raises ``StoreFull`` while events are refused.
        has_topic: returns whether there is a topic with a number.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        transact: Transact,
        require_space: Callable[[], None],
        has_topic: Callable[[int], bool],
    ) -> None:
        self._connection = connection
        self._transact = transact
        self._require_space = require_space
        self._has_topic = has_topic
        self._topics: dict[int, Counter[str]] = {}
        """Numbers of subscriptions by topic and owner."""
        self._owners: Counter[str] = Counter()
        self._total = 0

    def load(self) -> None:
        """Count the subscriptions, as of the last commit."""
        self._topics, self._owners, self._total = {}, Counter(), 0
        for topic, owner, count in self._connection.execute(
            "select t, owner, count(*) from subscription group by t, owner"
        ):
            self._count(topic, owner, count)

    def make(
        self,
        draft: Subscription,
        topic_max: int | None = None,
        owner_max: int | None = None,
        total_max: int | None = None,
    ) -> Subscription | Bound | None:
        """Make a subscription; see ``SubscriptionWriter.make``."""
        self._require_space()
        if not self._has_topic(draft.topic):
            return None
        owners = self._topics.get(draft.topic, Counter())
        numbers: tuple[tuple[Bound, int, int | None], ...] = (
            ("topic", owners.total(), topic_max),
            ("owner", self._owners[draft.owner], owner_max),
            ("total", self._total, total_max),
        )
        reached = next((bound for bound, number, most in numbers if most is not None and number >= most), None)

        def work() -> tuple[Subscription | Bound, bool]:
            name = (draft.topic, draft.owner, draft.id)
            earlier = self._one(f"select {SUBSCRIPTION_COLUMNS} from subscription where {_BY_NAME}", name)
            if earlier is not None:
                return earlier, False
            if reached is not None:
                return reached, False
            made = self._one(_INSERT, plain_subscription(draft)[1:])
            assert made is not None
            return made, True

        result, made = self._transact(work)
        if made:
            self._count(draft.topic, draft.owner, 1)
        return result

    def renew(self, number: int, rights_end: int) -> Subscription | None:
        """Prolong the rights of a subscription; see ``SubscriptionWriter.renew``."""
        return self._change(number, "rights_end = ?, rest = '', failure = ''", rights_end)

    def set_keys(self, number: int, keys: Keys) -> Subscription | None:
        """Replace the signing keys of a subscription; see ``SubscriptionWriter.set_keys``."""
        return self._change(number, "keys = ?", keys_json(keys))

    def delete(self, topic: int, owner: str, id: str) -> int | None:
        """Delete a subscription; see ``SubscriptionWriter.delete``."""

        def work() -> list[tuple[int]]:
            return self._connection.execute(
                f"delete from subscription where {_BY_NAME} returning n", (topic, owner, id)
            ).fetchall()

        deleted = self._transact(work)
        if not deleted:
            return None
        self._count(topic, owner, -1)
        return deleted[0][0]

    def save(self, progress: Sequence[SubscriptionProgress]) -> None:
        """Store the states of deliveries; see ``SubscriptionWriter.save``."""
        self._require_space()

        def work() -> None:
            for each in progress:
                values = (each.position, int(each.confirmed), each.rest, each.failure, each.number)
                self._connection.execute(_SAVE, values)

        self._transact(work)

    def topic_deleted(self, topic: int) -> None:
        """Count the subscriptions of a topic no more: they were deleted with it.

        Args:
            topic: its number.
        """
        for owner, number in list(self._topics.get(topic, {}).items()):
            self._count(topic, owner, -number)

    def _change(self, number: int, assignments: str, value: object) -> Subscription | None:
        self._require_space()
        statement = f"update subscription set {assignments} where n = ? returning {SUBSCRIPTION_COLUMNS}"
        return self._transact(lambda: self._one(statement, (value, number)))

    def _one(self, statement: str, values: Sequence[object]) -> Subscription | None:
        # All of them: a statement that has not ended would keep its transaction from being committed.
        rows = self._connection.execute(statement, values).fetchall()
        return subscription_of(rows[0]) if rows else None

    def _count(self, topic: int, owner: str, number: int) -> None:
        owners = self._topics.setdefault(topic, Counter())
        owners[owner] += number
        self._owners[owner] += number
        self._total += number
        if not owners[owner]:
            del owners[owner]
        if not owners:
            del self._topics[topic]
        if not self._owners[owner]:
            del self._owners[owner]
