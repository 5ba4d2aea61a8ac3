"""Subscriptions of the push API in the SQLite engine."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from griphub.store.plain_pubsub import (
    PUBSUB_COLUMNS,
    plain_pubsub,
    pubsub_of,
    pubsub_settings_json,
)
from griphub.store.plain_records import PlainProgress, plain_progress
from griphub.store.pubsub_subscription import BacklogProgress, PubsubBound, PubsubSubscription
from griphub.store.schema import NEWEST
from griphub.store.sqlite_subscriptions import Transact

__all__ = ["SqlitePubsub"]

_INSERT: Final = (
    f"insert into pubsub({PUBSUB_COLUMNS}) values (null,?,?,?,?,?,min(?, {NEWEST}),?,?,?,?,?)"
    f" returning {PUBSUB_COLUMNS}"
)

_SAVE: Final = (
    "update pubsub set position = ?, acked = ?, attempts = ?, used = max(used, ?)"
    f" where n = ? and generation = ? and position <= ? and ? <= {NEWEST}"
)


class SqlitePubsub:
    """Subscriptions of the push API of a store, after ``load``. Implements ``griphub.store.interface.PubsubWriter``.

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
        self._projects: Counter[str] = Counter()
        self._topics: Counter[int] = Counter()
        """Numbers of subscriptions."""

    def load(self) -> None:
        """Count the subscriptions, as of the last commit."""
        execute = self._connection.execute
        self._projects = Counter(dict(execute("select project, count(*) from pubsub group by project")))
        self._topics = Counter(dict(execute("select t, count(*) from pubsub where t > 0 group by t")))

    def make(
        self, draft: PubsubSubscription, project_max: int | None = None, topic_max: int | None = None
    ) -> PubsubSubscription | PubsubBound | None:
        """Make a subscription; see ``PubsubWriter.make``."""
        self._require_space()
        if not self._has_topic(draft.topic):
            return None
        bound: PubsubBound | None = None
        if project_max is not None and self._projects[draft.project] >= project_max:
            bound = "project"
        elif topic_max is not None and self._topics[draft.topic] >= topic_max:
            bound = "topic"

        def work() -> PubsubSubscription | PubsubBound:
            name = (draft.project, draft.id)
            if self._one("select n from pubsub where project = ? and id = ?", name) is not None:
                return "exists"
            if bound is not None:
                return bound
            made = self._one(_INSERT, plain_pubsub(draft)[1:])
            assert made is not None
            return pubsub_of(made)

        result = self._transact(work)
        if isinstance(result, PubsubSubscription):
            self._projects[draft.project] += 1
            self._topics[draft.topic] += 1
        return result

    def change(self, number: int, settings: Mapping[str, Any], used: int) -> PubsubSubscription | None:
        """Replace the settings of a subscription; see ``PubsubWriter.change``."""
        return self.change_plain(number, pubsub_settings_json(settings), used)

    def change_plain(self, number: int, settings: str, used: int) -> PubsubSubscription | None:
        """Replace the settings of a subscription; see ``PubsubWriter.change``.

        Args:
            number: of the subscription.
            settings: all fields, as the table has them.
            used: time of this use, in microseconds since 1970.

        Returns:
            The subscription then; None if there is none.
        """
        return self._change("settings = ?, used = max(used, ?) where n = ?", (settings, used, number))

    def seek(self, number: int, position: int, acked: bytes, used: int) -> PubsubSubscription | None:
        """Move a subscription to another place; see ``PubsubWriter.seek``."""
        return self._change(
            f"position = min(?, {NEWEST}), acked = ?, attempts = '{{}}', generation = generation + 1,"
            " used = max(used, ?) where n = ?",
            (position, acked, used, number),
        )

    def delete(self, number: int) -> bool:
        """Delete a subscription; see ``PubsubWriter.delete``."""

        def work() -> list[tuple[str, int]]:
            return self._connection.execute("delete from pubsub where n = ? returning project, t", (number,)).fetchall()

        deleted = self._transact(work)
        for project, topic in deleted:
            self._projects[project] -= 1
            if topic:
                self._topics[topic] -= 1
        return bool(deleted)

    def save(self, progress: Sequence[BacklogProgress]) -> None:
        """Store the states of deliveries; see ``PubsubWriter.save``."""
        self.save_all(list(map(plain_progress, progress)))

    def save_all(self, progress: Sequence[PlainProgress]) -> None:
        """Store the states of deliveries in one commit; see ``PubsubWriter.save``.

        Args:
            progress: in their plain form.
        """

        def work() -> None:
            for each in progress:
                self.save_plain(each)

        self._require_space()
        self._transact(work)

    def save_plain(self, progress: PlainProgress) -> None:
        """Store the state of the deliveries of one subscription, in a transaction of the caller.

        Args:
            progress: in its plain form.
        """
        number, generation, position, acked, attempts, used = progress
        values = (position, acked, attempts, used, number, generation, position, position)
        self._connection.execute(_SAVE, values)

    def delete_topic(self, topic: int) -> None:
        """Let the subscriptions of a topic be ones of a deleted topic, in a transaction of the caller.

        Args:
            topic: its number.
        """
        self._connection.execute("update pubsub set t = 0, generation = generation + 1 where t = ?", (topic,))

    def topic_deleted(self, topic: int) -> None:
        """Count the subscriptions of a topic no more, which was deleted.

        Args:
            topic: its number.
        """
        self._topics.pop(topic, None)

    def _change(self, assignments: str, values: Sequence[object]) -> PubsubSubscription | None:
        self._require_space()
        statement = f"update pubsub set {assignments} returning {PUBSUB_COLUMNS}"
        row = self._transact(lambda: self._one(statement, values))
        return None if row is None else pubsub_of(row)

    def _one(self, statement: str, values: Sequence[object]) -> Any:
        # All of them: a statement that has not ended would keep its transaction from being committed.
        rows = self._connection.execute(statement, values).fetchall()
        return rows[0] if rows else None
