"""Figures of subscriptions of the push API: reports in, sums and documents out."""

from __future__ import annotations

from typing import Any

from griphub.api.pubsub_figures import PubsubFigures, SubscriptionFigures, figures_document
from griphub.processes.push_commands import PlainFigures
from griphub.store.pubsub_subscription import PubsubSubscription

PUSH = {"pushEndpoint": "https://example.com/"}


def report(
    number: int = 1, known: int = 3, oldest: int = 5_000_000, acks: int = 2, nacks: int = 1, stop: str = ""
) -> PlainFigures:
    answers = {"ack": acks, "unreachable": nacks}
    return (number, known, 1, oldest, 8, 0.5, answers, 0.25 * (acks + nacks), 4, 70, stop)


def subscription(push: dict[str, Any]) -> PubsubSubscription:
    return PubsubSubscription(1, "p", "ss-1", 3, "o", {"pushConfig": push}, 0)


def test_reports_are_those_of_one_process_of_the_sender() -> None:
    figures = PubsubFigures()
    figures.take([report(), report(9)], lambda number: number == 1)
    assert [*figures] == [1]
    one = figures.of(1)
    assert one is not None
    assert (one.acks, one.nacks, one.latency, one.left_out, one.read) == (2, 1, 0.75, 4, 70)
    figures.take([report(acks=5)], lambda number: True)
    assert (one.acks, one.nacks, one.latency, one.left_out) == (5, 1, 1.5, 4)
    # The next process begins at 0.
    figures.restart()
    figures.take([report(acks=1, nacks=0)], lambda number: True)
    assert (one.acks, one.nacks, one.latency, one.left_out) == (6, 1, 1.75, 8)


def test_unread_events_are_part_of_the_backlog() -> None:
    figures = PubsubFigures()
    figures.take([report()], lambda number: True)
    one = figures.of(1)
    assert one is not None
    one.unread = 40
    assert one.backlog == 43


def test_a_subscription_that_moves_or_ends() -> None:
    figures = PubsubFigures()
    figures.take([report(stop="no key")], lambda number: True)
    one = figures.of(1)
    assert one is not None
    assert one.stop == "no key"
    figures.moved(1, "")
    figures.moved(2, "")
    assert one.stop == ""
    figures.forget(1)
    figures.forget(1)
    assert (len(figures), figures.of(1)) == (0, None)


def test_sums() -> None:
    one, two, rest = SubscriptionFigures(), SubscriptionFigures(), SubscriptionFigures()
    one.take(report())
    two.take(report(oldest=2_000_000, acks=10))
    rest.add(one)
    rest.add(two)
    rest.add(SubscriptionFigures())
    assert (rest.known, rest.window, rest.pause, rest.oldest, rest.acks, rest.nacks) == (6, 16, 0.5, 2_000_000, 12, 2)
    assert rest.oldest_age(3.5) == 1.5
    assert rest.oldest_age(1.0) == 0
    assert SubscriptionFigures().oldest_age(1.0) == 0


def test_documents() -> None:
    figures = SubscriptionFigures()
    figures.take(report())
    assert figures_document(subscription(PUSH), "p/tt-1", figures, "", 7.25) == {
        "number": 1,
        "name": "projects/p/subscriptions/ss-1",
        "topic": "p/tt-1",
        "endpoint": "https://example.com/",
        "state": "pushing",
        "reason": None,
        "backlog": 3,
        "leased": 1,
        "oldest_age": 2.25,
        "window": 8,
        "pause": 0.5,
        "answers": {"ack": 2, "unreachable": 1},
        "latency": 0.25,
    }
    stopped = figures_document(subscription(PUSH), "", SubscriptionFigures(), "no key", 7.25)
    assert (stopped["state"], stopped["reason"], stopped["topic"], stopped["latency"]) == (
        *("stopped", "no key", None, None),
    )
    pulled = figures_document(subscription({}), "p/tt-1", figures, "", 7.25)
    assert (pulled["state"], pulled["endpoint"], pulled["window"], pulled["pause"]) == ("pulled", None, None, None)
