"""Retention: the floor that the bounds of a topic demand. Sans-I/O: the engine finds the ids and deletes."""

from __future__ import annotations

from collections.abc import Callable

from griphub.store.topic import Topic

__all__ = ["SLICE", "floor_of"]

SLICE = 500
"""Rows deleted in one transaction, so that publications do not wait for a retention."""


def floor_of(
    topic: Topic,
    now: int,
    before_time: Callable[[int], int],
    beyond_count: Callable[[int], int],
    beyond_bytes: Callable[[int], int],
    keep: int | None,
) -> int:
    """Return the floor that a topic's retention demands: never lower than its floor now.

    Args:
        topic: the topic.
        now: time in microseconds since 1970.
        before_time: returns the id of the last event not later than a time in microseconds; 0 for none.
        beyond_count: returns the id of the newest event that is beyond so many newer ones; 0 for none.
        beyond_bytes: returns the id of the newest event that is beyond so many bytes of newer ones; 0 for none.
        keep: an id that the floor must not pass; None for none.
    """
    retention = topic.settings.retention
    floor = topic.floor
    if retention.age is not None:
        floor = max(floor, before_time(now - round(retention.age * 1_000_000)))
    if retention.events is not None and topic.count > retention.events:
        floor = max(floor, beyond_count(retention.events))
    if retention.bytes is not None and topic.bytes > retention.bytes:
        floor = max(floor, beyond_bytes(retention.bytes))
    return floor if keep is None else max(topic.floor, min(floor, keep))
