"""Rows of the SQLite engine as records."""

from __future__ import annotations

import sqlite3
from types import MappingProxyType
from typing import Any, Final

import orjson

from griphub.store.cursor import EpochInterval
from griphub.store.event import NO_ATTRIBUTES, Event, Operation
from griphub.store.interface import StoreState
from griphub.store.topic import Retention, Topic, TopicSettings

__all__ = [
    "EVENT_COLUMNS",
    "OPERATIONS",
    "TOPIC_COLUMNS",
    "event_of",
    "settings_json",
    "settings_of",
    "state_of",
    "topic_of",
]

OPERATIONS: Final[tuple[Operation, ...]] = ("put", "delete")
"""Operations by their number in the table."""

TOPIC_COLUMNS: Final = "t, name, birth, floor, floor_time, last, count, bytes, access, settings"
EVENT_COLUMNS: Final = "id, prev, ver, ts, data, ctype, key, op, attrs, size"


def topic_of(row: tuple[Any, ...]) -> Topic:
    """Return the topic of a ``row`` with ``TOPIC_COLUMNS``."""
    number, name, birth, floor, floor_time, last, count, size, access, settings = row
    return Topic(number, name, birth, floor, floor_time, last, count, size, access, settings_of(settings))


def settings_of(text: str) -> TopicSettings:
    """Return the settings of a topic.

    Args:
        text: as the table has them.

    Raises:
        TypeError: a field is unknown.
        ValueError: it is no JSON.
    """
    settings = orjson.loads(text)
    retention = Retention(**settings.pop("retention"))
    labels = MappingProxyType(settings.pop("labels"))
    return TopicSettings(retention=retention, labels=labels, **settings)


def settings_json(settings: TopicSettings) -> str:
    """Return the settings of a topic as the table has them."""
    retention = settings.retention
    return orjson.dumps(
        {
            "retention": {
                "age": retention.age,
                "events": retention.events,
                "bytes": retention.bytes,
                "compact": retention.compact,
            },
            "store": settings.store,
            "progress": settings.progress,
            "labels": dict(settings.labels),
        }
    ).decode()


def event_of(row: tuple[Any, ...]) -> Event:
    """Return the event of a ``row`` with ``EVENT_COLUMNS``."""
    id, previous, version, moment, data, content_type, key, op, attributes, _ = row
    return Event(
        id,
        previous,
        version,
        moment,
        data,
        content_type,
        key,
        OPERATIONS[op],
        NO_ATTRIBUTES if attributes is None else MappingProxyType(orjson.loads(attributes)),
    )


def state_of(connection: sqlite3.Connection) -> StoreState:
    """Return the state of a store.

    Args:
        connection: in a read transaction, or that of the only writer.
    """
    rows = connection.execute("select epoch, first, last from epoch order by n").fetchall()
    intervals = tuple(EpochInterval(*row) for row in rows)
    newest, moment = connection.execute(
        "select (select v from meta where k = 'next_id') - 1, (select v from meta where k = 'last_ts')"
    ).fetchone()
    return StoreState(intervals[-1].epoch, intervals, newest, moment)
