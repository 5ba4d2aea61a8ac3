"""Figures of a route id, and whose figures an item on a channel belongs to."""

from __future__ import annotations

import pytest

from gripproxy.grip.item import Item, MessageFormat, ResponseFormat, StreamFormat
from gripproxy.grip.stats_format import FIGURES
from gripproxy.pipe import RESPONSE, SOCKET, STREAM
from gripproxy.stats.counters import RouteCounters, WorkerCounters


def taken(figures: RouteCounters) -> dict[str, int]:
    """What is told, without zeros."""
    news = figures.take()
    if news is None:
        return {}
    values = dict(zip(("now", "peak", *FIGURES), news, strict=True))
    return {name: value for name, value in values.items() if value}


class TestFigures:
    def test_are_told_once(self) -> None:
        figures = RouteCounters()
        figures.requests_received += 2
        figures.began(7)
        assert taken(figures) == {"now": 1, "peak": 1, "requests-received": 2, "minutes": 1}
        assert figures.take() is None
        figures.ended(7)
        assert figures.phases == [0] * 64
        assert figures.take() == (0, 1, *[0] * len(FIGURES))
        assert figures.take() is None

    def test_the_peak_is_what_was_there_at_the_same_time(self) -> None:
        figures = RouteCounters()
        for _ in range(3):
            figures.began(0)
        for _ in range(2):
            figures.ended(0)
        assert taken(figures)["peak"] == 3
        figures.began(0)
        figures.ended(0)
        assert taken(figures) == {"now": 1, "peak": 2, "minutes": 1}

    def test_messages_of_a_websocket(self) -> None:
        figures = RouteCounters()
        figures.from_client(10, False, True)
        figures.from_client(5, True, True)
        figures.from_client(3, True, False)
        figures.from_server(7, True)
        figures.to_client(6)
        assert taken(figures) == {
            "client-content-bytes-received": 18,
            "client-messages-received": 2,
            "server-content-bytes-sent": 15,
            "server-messages-sent": 1,
            "server-content-bytes-received": 7,
            "server-messages-received": 1,
            "client-content-bytes-sent": 6,
            "client-messages-sent": 1,
        }


ALL = Item(
    b"ch",
    response=ResponseFormat(body=b"r" * 5),
    stream=StreamFormat(content=b"s" * 15),
    message=MessageFormat(content=b"m" * 25),
)


class TestLedger:
    def test_without_route_ids_everything_is_one(self) -> None:
        ledger = WorkerCounters()
        channel = object()
        ledger.addressed(channel, (1, 2, 3), ALL)
        ledger.written(channel, STREAM, 2, 15)
        ledger.written(channel, SOCKET, 3, 25)
        assert taken(ledger.others) == {
            "sent": 6,
            "http-response-sent": 1,
            "client-content-bytes-sent": 105,
            "client-messages-sent": 3,
        }

    def test_an_item_counts_for_the_routes_of_its_sessions(self) -> None:
        ledger = WorkerCounters(block_size=10)
        channel = object()
        ledger.joined(channel, b"a", STREAM, 1, (0, 2, 0))
        ledger.joined(channel, b"b", RESPONSE, 1, (0, 3, 0))
        ledger.joined(channel, b"b", SOCKET, 1, (1, 3, 0))
        ledger.addressed(channel, (1, 3, 1), ALL)
        assert taken(ledger.others) == {"sent": 2, "blocks-sent": 4}
        assert taken(ledger.of(b"a")) == {"sent": 1, "blocks-sent": 2}
        assert taken(ledger.of(b"b")) == {"sent": 2, "http-response-sent": 1, "blocks-sent": 4}

    def test_a_channel_is_forgotten_with_its_last_session_of_a_route_with_an_id(self) -> None:
        ledger = WorkerCounters()
        channel = object()
        ledger.joined(channel, b"a", STREAM, 1, (0, 0, 0))
        ledger.joined(channel, b"", STREAM, 1, (0, 1, 0))
        assert ledger.routed[channel] == {b"a": [0, 1, 0], b"": [0, 1, 0]}
        ledger.joined(channel, b"a", STREAM, -1, (0, 2, 0))
        assert not ledger.routed

    @pytest.mark.parametrize("plain", [1, 2, 3, 4, 5])
    def test_all_that_is_written_is_counted_for_some_route(self, plain: int) -> None:
        ledger = WorkerCounters()
        channel = object()
        ledger.joined(channel, b"a", STREAM, 1, (0, 0, 0))
        ledger.joined(channel, b"a", STREAM, 1, (0, 1, 0))
        for before in range(2, 5):
            ledger.joined(channel, b"", STREAM, 1, (0, before, 0))
        ledger.written(channel, STREAM, plain, 10)
        parts = [taken(ledger.of(b"a")), taken(ledger.others)]
        assert sum(part.get("client-content-bytes-sent", 0) for part in parts) == plain * 10

    def test_one_route_alone_gets_all(self) -> None:
        ledger = WorkerCounters()
        channel = object()
        ledger.joined(channel, b"a", SOCKET, 1, (0, 0, 0))
        ledger.written(channel, SOCKET, 1, 10)
        assert taken(ledger.of(b"a")) == {"client-content-bytes-sent": 10, "client-messages-sent": 1}

    def test_what_was_not_sent_has_reasons(self) -> None:
        ledger = WorkerCounters()
        ledger.dropped("filter")
        ledger.dropped("filter", 2)
        assert ledger.unsent == {"filter": 3}

    def test_recoveries_by_route_and_mode(self) -> None:
        ledger = WorkerCounters()
        ledger.gap(b"r", STREAM)
        ledger.gap(b"r", STREAM)
        ledger.recovering(b"r", STREAM)
        ledger.asked(b"r", STREAM)
        ledger.slow(b"", SOCKET)
        assert ledger.recovery == {(b"r", STREAM): [2, 1, 1, 0], (b"", SOCKET): [0, 0, 0, 1]}
        assert (ledger.gaps, ledger.recoveries) == (2, 1)
