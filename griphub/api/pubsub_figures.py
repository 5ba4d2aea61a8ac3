"""Figures of subscriptions of the push API: reported by the sender, summed over its processes, and counted messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from griphub.processes.push_commands import PlainFigures
from griphub.pubsub.push_answer import AnswerClass
from griphub.store.pubsub_subscription import PubsubSubscription

__all__ = ["PubsubFigures", "SubscriptionFigures", "figures_document"]

ACK: Final = AnswerClass.ACK.value


@dataclass(slots=True)
class SubscriptionFigures:
    """Figures of one subscription.

    Attributes:
        known: messages that the sender knows, and that are not acknowledged.
        leased: those of them that are under way.
        oldest: time of the oldest one, in microseconds since 1970; 0 for none.
        window: greatest number of requests under way.
        pause: seconds between requests while they fail.
        read: id up to which the sender knows messages.
        stop: why nothing is sent to the receiver; empty for no reason.
        answers: number of answers by class, since the hub has started.
        latency: sum of the seconds to them.
        left_out: attributes that were no headers.
        unread: number of events behind ``read``, as it was counted last.
    """

    known: int = 0
    leased: int = 0
    oldest: int = 0
    window: int = 0
    pause: float = 0.0
    read: int = 0
    stop: str = ""
    answers: Counter[str] = field(default_factory=Counter)
    latency: float = 0.0
    left_out: int = 0
    unread: int = 0
    _former: PlainFigures | None = None

    def take(self, plain: PlainFigures) -> None:
        """Take a report.

        Args:
            plain: of the same process of the sender as the one before, or behind ``restart``.
        """
        (_, self.known, self.leased, self.oldest, self.window, self.pause, answers, latency, left_out, self.read) = (
            plain[:10]
        )
        self.stop = plain[10]
        former = self._former
        for name, count in answers.items():
            self.answers[name] += count - (former[6].get(name, 0) if former is not None else 0)
        self.latency += latency - (former[7] if former is not None else 0.0)
        self.left_out += left_out - (former[8] if former is not None else 0)
        self._former = plain

    def restart(self) -> None:
        """Note that another process of the sender counts from 0."""
        self._former = None

    def add(self, other: SubscriptionFigures) -> None:
        """Add the figures of another subscription: of pauses and ages the greatest counts.

        Args:
            other: its figures.
        """
        self.known += other.known
        self.leased += other.leased
        self.unread += other.unread
        self.window += other.window
        self.pause = max(self.pause, other.pause)
        self.oldest = min(filter(None, (self.oldest, other.oldest)), default=0)
        for name, count in other.answers.items():
            self.answers[name] += count
        self.latency += other.latency
        self.left_out += other.left_out

    def oldest_age(self, now: float) -> float:
        """Return the age of the oldest message that is not acknowledged, in seconds; 0 for none.

        Args:
            now: time, in seconds since 1970.
        """
        return max(0.0, now - self.oldest / 1_000_000) if self.oldest else 0.0

    @property
    def backlog(self) -> int:
        """Messages that are not acknowledged."""
        return self.known + self.unread

    @property
    def acks(self) -> int:
        """Answers that have acknowledged."""
        return self.answers[ACK]

    @property
    def nacks(self) -> int:
        """Answers that have not, and requests without one."""
        return self.answers.total() - self.acks


class PubsubFigures:
    """Figures by number of the subscription."""

    def __init__(self) -> None:
        self._all: dict[int, SubscriptionFigures] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[int]:
        return iter(self._all)

    def of(self, number: int) -> SubscriptionFigures | None:
        """Return the figures of a subscription; None before the first report.

        Args:
            number: of the subscription.
        """
        return self._all.get(number)

    def take(self, reports: Sequence[PlainFigures], present: Callable[[int], bool]) -> None:
        """Take reports of the sender.

        Args:
            reports: the latest ones.
            present: returns whether there is a subscription with a number.
        """
        for plain in reports:
            if present(plain[0]):
                self._all.setdefault(plain[0], SubscriptionFigures()).take(plain)

    def restart(self) -> None:
        """Note that another process of the sender counts from 0."""
        for figures in self._all.values():
            figures.restart()

    def moved(self, number: int, stop: str) -> None:
        """Note that a subscription has another receiver.

        Args:
            number: of the subscription.
            stop: why nothing is sent to it at first; empty for no reason.
        """
        figures = self._all.get(number)
        if figures is not None:
            figures.stop = stop

    def forget(self, number: int) -> None:
        """Forget a subscription that is not there any more; ``number``: of the subscription."""
        self._all.pop(number, None)


def figures_document(
    subscription: PubsubSubscription, topic: str, figures: SubscriptionFigures, stop: str, now: float
) -> dict[str, Any]:
    """Return the JSON value with the figures of a subscription.

    Args:
        subscription: the subscription.
        topic: name of its topic in the hub; empty for none.
        figures: of the subscription.
        stop: why nothing is sent to the receiver; empty for no reason.
        now: time, in seconds since 1970.
    """
    endpoint = subscription.settings["pushConfig"].get("pushEndpoint")
    answered = figures.answers.total()
    return {
        "number": subscription.number,
        "name": f"projects/{subscription.project}/subscriptions/{subscription.id}",
        "topic": topic or None,
        "endpoint": endpoint,
        "state": ("stopped" if stop else "pushing") if endpoint else "pulled",
        "reason": stop or None,
        "backlog": figures.backlog,
        "leased": figures.leased,
        "oldest_age": round(figures.oldest_age(now), 3),
        "window": figures.window if endpoint else None,
        "pause": figures.pause if endpoint else None,
        "answers": dict(figures.answers),
        "latency": round(figures.latency / answered, 6) if answered else None,
    }
