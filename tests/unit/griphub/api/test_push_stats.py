"""Statistics of subscriptions of the push API: figures in, events out."""

from __future__ import annotations

from typing import Any

from griphub.api.pubsub_figures import PubsubFigures
from griphub.api.push_stats import PushStats
from griphub.store.pubsub_subscription import PubsubSubscription
from griphub.topics.pubsub_table import PubsubTable


class House:
    """Statistics, and what they send."""

    def __init__(self) -> None:
        self.table = PubsubTable()
        self.figures = PubsubFigures()
        self.sent: list[dict[str, Any]] = []
        self.stats = PushStats(self.table, self.figures, "hub", self._send, lambda: 7.5)
        for number in (1, 2):
            self.table.set(PubsubSubscription(number, "p", f"s{number}", 3, "o", {"pushConfig": {}}, 0))

    def _send(self, kind: str, fields: Any) -> None:
        assert kind == "push"
        self.sent.append(dict(fields))

    def measure(self, number: int, known: int, answers: dict[str, int], latency: float) -> None:
        oldest = 5_000_000 if known else 0
        self.figures.take([(number, known, 0, oldest, 8, 0.5, answers, latency, 0, 0, "")], lambda number: True)

    def report(self) -> list[dict[str, Any]]:
        self.sent = []
        for _ in self.stats.report():
            pass
        return self.sent


def test_an_event_has_what_happened_since_the_last() -> None:
    house = House()
    house.measure(1, 3, {"ack": 2, "remote_server_5xx": 1}, 0.75)
    event = {"from": b"hub", "channel": b"p/s1", "backlog": 3, "oldest": 2500, "window": 8, "pause": 500}
    assert house.report() == [{**event, "latency": 750, "ack": 2, "remote-server-5xx": 1}]
    house.measure(1, 3, {"ack": 5, "remote_server_5xx": 1}, 1.0)
    assert house.report() == [{**event, "latency": 250, "ack": 3}]
    assert house.report() == [{**event, "latency": 0}]


def test_others_have_their_turn_behind_a_hundred() -> None:
    house = House()
    for number in range(3, 251):
        house.table.set(PubsubSubscription(number, "p", f"s{number}", 3, "o", {"pushConfig": {}}, 0))
        house.measure(number, 1, {}, 0.0)
    turns = house.stats.report()
    next(turns)
    assert len(house.sent) < 100
    assert len(list(turns)) == 1
    assert len(house.sent) == 248


def test_a_subscription_without_messages_and_answers_has_none() -> None:
    house = House()
    house.measure(1, 0, {"ack": 1}, 0.5)
    house.measure(2, 0, {}, 0.0)
    assert [event["channel"] for event in house.report()] == [b"p/s1"]
    assert house.report() == []
    house.table.remove(1)
    assert house.report() == []
