"""Counts of a subscriber, for the application and its metrics."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SubscriberCounts"]


@dataclass(frozen=True, slots=True)
class SubscriberCounts:
    """Figures of a subscriber since its start.

    Attributes:
        pushed: events that arrived by a push.
        polled: events that were found by a poll.
        repeated: pushes of events that were there already.
        overtaken: pushes that were dropped, since an event before them was missing; a poll brings both.
        others: pushes of subscriptions that are cancelled.
        busy: pushes that were answered 503, since too many events wait.
        refused: requests to the callback that were no push of the hub.
        renewed: subscriptions that were made anew, since a push of the one before was lost.
        failed: requests to the hub that failed, or were refused.
        waiting: events that wait for the application.
    """

    pushed: int
    polled: int
    repeated: int
    overtaken: int
    others: int
    busy: int
    refused: int
    renewed: int
    failed: int
    waiting: int
