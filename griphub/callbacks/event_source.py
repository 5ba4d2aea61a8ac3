"""Source of events: the store as the desk of the push API reads it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from griphub.callbacks.desk_subscription import EventPage, Unreadable
from griphub.callbacks.pushed_event import PushedEvent
from griphub.store.sqlite_reader import RowReader
from gripproxy.process.log import log

__all__ = ["StoreSource"]

PAGE_BYTES: Final = 1_000_000
"""Bytes of events after which a page ends."""


class StoreSource:
    """Events of a store. Implements ``griphub.callbacks.desk_subscription.EventSource``.

    Args:
        rows: reader of the store.
        known: returns the id up to which the hub knows the events of the store; later ones are not read.
    """

    def __init__(self, rows: RowReader, known: Callable[[], int]) -> None:
        self._rows = rows
        self._known = known

    def page(self, topic: int, after: int, limit: int) -> EventPage | None:
        """Return events of a topic; see ``EventSource.page``.

        Args:
            topic: its number.
            after: id below the first event.
            limit: greatest number of events.
        """
        try:
            page = self._rows.page(topic, after, (None, None, False), limit, PAGE_BYTES, self._known())
        except sqlite3.Error as error:
            log.error("page not read", topic=topic, reason=error)
            return None
        if page is None:
            return None
        row, rows, last, _ = page
        return EventPage([PushedEvent(each) for each in rows], last, row[3])

    def event(self, topic: int, id: int) -> PushedEvent | None:
        """Return one event; see ``EventSource.event``.

        Args:
            topic: number of its topic.
            id: of the event.

        Raises:
            Unreadable: it cannot be read now.
        """
        try:
            row = self._rows.event_at(topic, id)
        except sqlite3.Error as error:
            log.error("event not read", topic=topic, id=id, reason=error)
            raise Unreadable(str(error)) from error
        return None if row is None else PushedEvent(row)
