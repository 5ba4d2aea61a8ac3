"""Statistics of subscriptions of the push API: an event for each of them, with its answers since the last one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from griphub.api.pubsub_figures import PubsubFigures, SubscriptionFigures
from griphub.topics.pubsub_table import PubsubTable

__all__ = ["KIND", "PushStats"]

KIND: Final = "push"
"""Type of the events."""

SLICE: Final = 100
"""Subscriptions of one turn."""

Send = Callable[[str, Mapping[str, Any]], None]
"""Sends an event: its type and its fields."""


class PushStats:
    """Statistics of all subscriptions.

    Args:
        table: the subscriptions.
        figures: their figures.
        source: name of the hub in the events.
        send: sends an event.
        wall: returns the time in seconds since 1970.
    """

    def __init__(
        self, table: PubsubTable, figures: PubsubFigures, source: str, send: Send, wall: Callable[[], float]
    ) -> None:
        self._table = table
        self._figures = figures
        self._source = source.encode()
        self._send = send
        self._wall = wall
        self._sent: dict[int, tuple[Counter[str], float]] = {}
        """Answers and latency of each subscription as of its last event."""

    def report(self) -> Iterator[None]:
        """Send an event for each subscription with messages, or with answers since the last one.

        Yields:
            Nothing, behind every ``SLICE`` subscriptions: others have their turn.
        """
        sent, now = {}, self._wall()
        for number, subscription in enumerate([*self._table], 1):
            if number % SLICE == 0:
                yield
            figures = self._figures.of(subscription.number)
            if figures is None:
                continue
            former, latency = self._sent.get(subscription.number, (Counter[str](), 0.0))
            answers = figures.answers - former
            sent[subscription.number] = (figures.answers.copy(), figures.latency)
            if answers or figures.backlog:
                name = f"{subscription.project}/{subscription.id}".encode()
                self._send(KIND, self._event(name, figures, answers, figures.latency - latency, now))
        self._sent = sent

    def _event(
        self, name: bytes, figures: SubscriptionFigures, answers: Counter[str], latency: float, now: float
    ) -> dict[str, Any]:
        return {
            "from": self._source,
            "channel": name,
            "backlog": figures.backlog,
            "oldest": round(1000 * figures.oldest_age(now)),
            "window": figures.window,
            "pause": round(1000 * figures.pause),
            "latency": max(0, round(1000 * latency)),
            **{kind.replace("_", "-"): count for kind, count in answers.items()},
        }
