"""What is counted, and which events follow from it."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy.grip.item import Item, MessageFormat, ResponseFormat, StreamFormat
from gripproxy.grip.stats_format import FIGURES
from gripproxy.pipe import FIGURES as FIGURES_KIND
from gripproxy.pipe import RESPONSE, SOCKET, STREAM
from handler.dispatch.subscriptions import ChannelSubscriptions, Subscriptions
from handler.stats.aggregator import BEAT, StatsAggregator, StatsSettings


class House:
    """Statistics with a clock set by hand; events as (kind, fields without ``from``)."""

    def __init__(self, *kinds: str, **settings: Any) -> None:
        self.now = 0.0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.sent_reporting: list[tuple[bool, bool]] = []
        self.sent = 0
        self.stats: StatsAggregator[str] = StatsAggregator(StatsSettings(b"me", **settings), self, lambda: self.now)
        self.subscriptions: Subscriptions[str] = Subscriptions(10, False, self.stats.changed)
        self.subscriptions.report_changes(True)
        self.listen(*kinds)

    def send(self, kind: str, fields: dict[str, Any]) -> None:
        fields = dict(fields)
        assert fields.pop("from") == b"me"
        self.sent += 1
        self.events.append((kind, fields))

    def listen(self, *kinds: str, fresh: tuple[str, ...] | None = None) -> None:
        if self.stats.listen(set(kinds), set(kinds if fresh is None else fresh), self.subscriptions.channels):
            self.sent_reporting.append(self.stats.reporting)
        while self.stats.busy:
            self.stats.work()

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        events, self.events = self.events, []
        return events

    def beat(self, seconds: float = BEAT) -> list[tuple[str, dict[str, Any]]]:
        """Let time pass; return the events of that time."""
        for _ in range(round(seconds / BEAT)):
            self.now += BEAT
            self.stats.beat(self.now)
        while self.stats.busy:
            self.stats.work()
        return self.take()

    def figures(self, worker: str, route: bytes, now: int, peak: int, **values: int) -> None:
        counts = [values.get(name.replace("-", "_"), 0) for name in FIGURES]
        self.stats.figures(worker, (FIGURES_KIND, route, now, peak, *counts), self.now)

    def join(self, worker: str, channel: bytes, mode: int, sessions: int) -> None:
        self.subscriptions.subscribe(worker, channel, self.now)
        self.subscriptions.count(worker, channel, mode, sessions, self.now)


def sub(mode: bytes, subscribers: int, channel: bytes = b"ch") -> tuple[str, dict[str, Any]]:
    return ("sub", {"mode": mode, "channel": channel, "ttl": 60, "subscribers": subscribers})


def gone(mode: bytes, channel: bytes = b"ch") -> tuple[str, dict[str, Any]]:
    return ("sub", {"mode": mode, "channel": channel, "unavailable": True})


class TestSubscriptions:
    def test_the_first_is_told_at_once_and_the_end_too(self) -> None:
        house = House("sub")
        house.join("1", b"ch", STREAM, 1)
        assert house.take() == [sub(b"stream", 1)]
        house.subscriptions.unsubscribe("1", b"ch", False, house.now)
        assert house.take() == [gone(b"stream")]

    def test_a_change_is_told_within_about_a_second(self) -> None:
        house = House("sub")
        house.join("1", b"ch", SOCKET, 1)
        house.take()
        house.join("2", b"ch", SOCKET, 3)
        assert house.take() == []
        assert house.beat(0.8) == []
        assert house.beat(0.3) == [sub(b"ws", 4)]

    def test_a_change_that_is_undone_is_not_told(self) -> None:
        house = House("sub")
        house.join("1", b"ch", SOCKET, 1)
        house.join("2", b"ch", SOCKET, 3)
        house.subscriptions.unsubscribe("2", b"ch", False, house.now)
        house.take()
        assert house.beat(2) == []

    def test_modes_are_apart(self) -> None:
        house = House("sub")
        house.join("1", b"ch", STREAM, 1)
        house.join("1", b"ch", SOCKET, 1)
        house.subscriptions.count("1", b"ch", STREAM, 0, house.now)
        assert house.take() == [sub(b"stream", 1), sub(b"ws", 1), gone(b"stream")]

    def test_long_polls_linger(self) -> None:
        house = House("sub")
        house.join("1", b"ch", RESPONSE, 1)
        house.subscriptions.unsubscribe("1", b"ch", True, house.now)
        assert house.take() == [sub(b"response", 1)]
        assert house.beat(5) == []
        house.join("2", b"ch", RESPONSE, 1)
        assert house.take() == [sub(b"response", 1)], "whoever comes back is told"
        house.subscriptions.unsubscribe("2", b"ch", True, house.now)
        house.now += 11
        house.subscriptions.due_ends(house.now)
        assert house.take() == [gone(b"response")]

    def test_long_polls_linger_beside_streams(self) -> None:
        house = House("sub")
        house.join("1", b"ch", RESPONSE, 1)
        house.join("1", b"ch", STREAM, 1)
        house.subscriptions.count("1", b"ch", RESPONSE, 0, house.now)
        house.take()
        house.now += 11
        house.subscriptions.due_ends(house.now)
        assert house.take() == [gone(b"response")]

    def test_they_are_repeated_before_their_ttl_is_over(self) -> None:
        house = House("sub")
        house.join("1", b"ch", STREAM, 1)
        house.take()
        assert house.beat(29) == []
        assert house.beat(16) == [sub(b"stream", 1)]

    def test_those_of_a_dead_worker_end(self) -> None:
        house = House("sub")
        house.join("1", b"ch", STREAM, 1)
        house.join("2", b"ch", STREAM, 1)
        assert house.beat(1)[1:] == [sub(b"stream", 2)]
        house.subscriptions.lost("1", house.now)
        assert house.beat(1) == [sub(b"stream", 1)]
        house.subscriptions.lost("2", house.now)
        assert house.take() == [gone(b"stream")]

    def test_whoever_comes_is_told_what_is_there(self) -> None:
        house = House()
        house.join("1", b"ch", STREAM, 1)
        house.take()
        house.listen("sub")
        assert house.take() == [sub(b"stream", 1)]
        house.listen("sub")
        assert house.take() == [sub(b"stream", 1)]
        house.listen("sub", "report", fresh=("report",))
        assert house.take() == []
        house.listen()
        house.subscriptions.unsubscribe("1", b"ch", False, house.now)
        assert house.take() == []


class TestItems:
    def entry(self, house: House) -> ChannelSubscriptions[str]:
        for mode in (RESPONSE, STREAM):
            house.join("1", b"ch", mode, 1)
            house.join("2", b"ch", mode, 2)
        return house.subscriptions.channels[b"ch"]

    def test_each_transport_with_subscribers_is_told(self) -> None:
        house = House("message")
        entry = self.entry(house)
        item = Item(
            b"ch",
            id=b"i",
            response=ResponseFormat(body=b"12345"),
            stream=StreamFormat(content=b"1"),
            message=MessageFormat(content=b"1"),
        )
        house.take()
        house.stats.released(item, entry)
        assert house.take() == [
            ("message", {"channel": b"ch", "item-id": b"i", "transport": b"http-response", "count": 3}),
            ("message", {"channel": b"ch", "item-id": b"i", "transport": b"http-stream", "count": 3}),
        ]

    def test_blocks(self) -> None:
        house = House("message", block_size=2)
        entry = self.entry(house)
        house.take()
        house.stats.released(Item(b"ch", stream=StreamFormat(content=b"12345")), entry)
        house.stats.released(Item(b"ch", stream=StreamFormat(action="close")), entry)
        assert [fields["blocks"] for _, fields in house.take()] == [9, 0]


class TestConnections:
    def test_they_come_and_go(self) -> None:
        house = House("conn")
        assert house.sent_reporting == [(True, False)]
        house.stats.connection_events(
            "1", [(b"a", b"r", False, b"peer", True), (b"b", b"", True, b"", False), (b"a", b"r")]
        )
        assert house.take() == [
            ("conn", {"route": b"r", "id": b"a", "type": b"http", "peer-address": b"peer", "ssl": True, "ttl": 120}),
            ("conn", {"id": b"b", "type": b"ws", "ttl": 120}),
            ("conn", {"route": b"r", "id": b"a", "unavailable": True}),
        ]

    def test_those_of_a_dead_worker_end(self) -> None:
        house = House("conn")
        for worker in ("1", "2"):
            house.stats.connection_events(worker, [(worker.encode(), b"r", False, b"", False)])
        house.take()
        house.stats.left("1")
        assert house.beat() == [("conn", {"route": b"r", "id": b"1", "unavailable": True})]
        house.stats.left("1")
        assert house.beat() == []

    def test_very_many_end_in_slices(self) -> None:
        house = House("conn")
        house.stats.connection_events("1", [(b"%d" % n, b"", False, b"", False) for n in range(2500)])
        house.take()
        house.stats.left("1")
        sizes = []
        while house.stats.busy:
            house.stats.work()
            sizes.append(len(house.take()))
        assert sum(sizes) == 2500
        assert max(sizes) <= 1000

    def test_what_is_said_to_nobody_is_forgotten(self) -> None:
        house = House("conn")
        house.stats.connection_events("1", [(b"a", b"", False, b"", False)])
        house.listen()
        assert house.sent_reporting[-1] == (False, False)
        house.stats.connection_events("1", [(b"b", b"", False, b"", False)])
        house.stats.left("1")
        assert [event for event in house.beat() if "unavailable" in event[1]] == []


class TestActivity:
    def test_it_is_summed_over_workers(self) -> None:
        house = House("activity", "counts")
        house.figures("1", b"r", 1, 1, activity=2, requests_received=1)
        house.figures("2", b"r", 1, 1, activity=1)
        house.figures("2", b"", 0, 1, activity=1, requests_received=3)
        assert house.beat() == [
            ("activity", {"route": b"r", "count": 3}),
            ("activity", {"count": 1}),
            ("counts", {"requests-received": 4}),
        ]
        assert house.beat(1) == []


class TestReports:
    def reports(self, house: House, received: int = 0) -> dict[bytes, dict[str, Any]]:
        house.stats.report(received, {}, house.now)
        return {fields.pop("route", b""): fields for kind, fields in house.take() if kind == "report"}

    def test_connections_are_the_most_at_the_same_time(self) -> None:
        house = House("report")
        house.figures("1", b"", 3, 5)
        house.figures("2", b"", 1, 4)
        house.figures("1", b"", 0, 3)
        assert self.reports(house)[b""]["connections"] == 7
        assert self.reports(house)[b""]["connections"] == 1

    def test_figures_are_those_of_the_interval(self) -> None:
        house = House("report")
        house.figures("1", b"r", 1, 1, sent=2, http_response_sent=1, server_messages_sent=9)
        house.figures("2", b"r", 1, 1, sent=3)
        house.now = 4.5
        fields = self.reports(house, received=7)[b"r"]
        assert fields["sent"] == 5
        assert fields["received"] == 0
        assert fields["server-messages-sent"] == 9
        assert fields["duration"] == 4500
        assert "blocks-sent" not in fields
        assert "activity" not in fields
        house.now = 6
        fields = self.reports(house, received=9)[b"r"]
        assert fields["sent"] == 0
        assert fields["duration"] == 1500

    def test_items_taken_in_stand_in_the_report_without_route(self) -> None:
        house = House("report", block_size=10)
        house.figures("1", b"r", 1, 1)
        house.stats.received(Item(b"ch", stream=StreamFormat(content=b"1" * 15)))
        reports = self.reports(house, received=1)
        assert reports[b""]["received"] == 1
        assert reports[b""]["blocks-received"] == 2
        assert "blocks-received" not in reports[b"r"]

    def test_one_without_anything_is_sent_once(self) -> None:
        house = House("report")
        house.figures("1", b"r", 0, 1, minutes=1)
        assert self.reports(house)[b"r"]["minutes"] == 1
        assert not any(value for name, value in self.reports(house)[b"r"].items() if name != "duration")
        assert self.reports(house) == {}

    def test_a_dead_worker_has_no_connections(self) -> None:
        house = House("report")
        house.figures("1", b"r", 2, 2)
        house.figures("2", b"r", 1, 1)
        assert house.stats.connections == 3
        house.stats.left("1")
        assert house.stats.connections == 1
        assert self.reports(house)[b"r"]["connections"] == 3
        assert self.reports(house)[b"r"]["connections"] == 1

    def test_figures_of_another_version_are_refused(self) -> None:
        house = House("report")
        with pytest.raises(ValueError, match="2 figures, expected"):
            house.stats.figures("1", (FIGURES_KIND, b"", 1, 1, 0, 0), 0)

    def test_the_one_without_route_is_the_last_and_says_how_many_events_were_sent(self) -> None:
        house = House("conn", "report", "delivery")
        house.figures("1", b"", 1, 1)
        house.figures("1", b"r", 1, 1)
        house.stats.report(0, {"written": 5}, 10)
        first = house.take()
        assert [(kind, fields.get("route")) for kind, fields in first] == [
            ("delivery", None),
            ("report", b"r"),
            ("report", None),
        ]
        assert first[-1][1]["events-sent"] == 3
        assert "events-sent" not in first[1][1]
        house.stats.connection_events("1", [(b"a", b"r", False, b"", False)])
        house.stats.report(0, {"written": 5}, 20)
        assert house.take()[-1][1]["events-sent"] == 6

    def test_there_is_one_without_route_whenever_events_were_sent(self) -> None:
        house = House("sub", "report")
        house.figures("1", b"r", 0, 1, minutes=1)
        assert self.reports(house).keys() == {b"r", b""}
        assert self.reports(house).keys() == {b"r", b""}
        assert self.reports(house) == {}
        house.join("1", b"ch", STREAM, 1)
        assert self.reports(house)[b""]["events-sent"] == 6
        assert self.reports(house) == {}

    def test_deliveries(self) -> None:
        house = House("delivery")
        house.stats.report(0, {"written": 5, "dropped-filter": 0}, 1)
        assert house.take() == [("delivery", {"written": 5, "dropped-filter": 0})]
        house.stats.report(0, {"written": 5, "dropped-filter": 0}, 2)
        assert house.take() == []
        house.stats.report(0, {"written": 6, "dropped-filter": 2, "dropped-other": 1}, 3)
        assert house.take() == [("delivery", {"written": 1, "dropped-filter": 2, "dropped-other": 1})]


class TestResponses:
    def test_they_are_told_with_the_reports_when_there_were_any(self) -> None:
        house = House("responses")
        house.stats.responses.add([(b"r", 2, "backend", 3), (b"", 0, "client", 1)])
        house.stats.responses.add([(b"r", 2, "backend", 1)])
        house.stats.report(0, {}, 1)
        assert house.take() == [
            ("responses", {"route": b"r", "class": b"2xx", "reason": b"backend", "count": 4}),
            ("responses", {"class": b"none", "reason": b"client", "count": 1}),
        ]
        house.stats.report(0, {}, 2)
        assert house.take() == []

    def test_figures_of_a_time_without_subscribers_are_not_sent_later(self) -> None:
        house = House()
        house.stats.responses.add([(b"", 5, "late", 1)])
        house.stats.report(0, {}, 1)
        house.listen("responses")
        house.stats.report(0, {}, 2)
        assert house.take() == []


class TestLog:
    def test_warnings_are_sent_as_they_come_if_they_are_wanted(self) -> None:
        reports = [
            ("worker 1", "warning", "backend failed", "backend failed: kind=late"),
            ("runner", "error", "x", "ü"),
        ]
        house = House()
        house.stats.logged(reports)
        assert house.take() == []
        house.listen("log")
        house.stats.logged(reports)
        text = b"backend failed: kind=late"
        assert house.take() == [
            ("log", {"process": b"worker 1", "level": b"warning", "event": b"backend failed", "text": text}),
            ("log", {"process": b"runner", "level": b"error", "event": b"x", "text": "ü".encode()}),
        ]


class TestRecoveries:
    def test_they_are_told_by_route_and_transport_when_there_were_any(self) -> None:
        house = House("recovery")
        house.stats.recovered([(b"r", STREAM, (2, 1, 1, 0)), (b"", SOCKET, (0, 1, 1, 0))])
        house.stats.recovered([(b"r", STREAM, (1, 1, 0, 1))])
        assert house.beat() == [
            (
                "recovery",
                {
                    "route": b"r",
                    "transport": b"http-stream",
                    "gaps": 3,
                    "recoveries": 2,
                    "requests": 1,
                    "slow-clients": 1,
                },
            ),
            ("recovery", {"transport": b"ws-message", "gaps": 0, "recoveries": 1, "requests": 1, "slow-clients": 0}),
        ]
        assert house.beat(2) == []

    def test_figures_of_a_time_without_subscribers_are_not_sent_later(self) -> None:
        house = House()
        house.stats.recovered([(b"", RESPONSE, (1, 0, 1, 0))])
        assert house.beat() == []
        house.listen("recovery")
        assert house.beat(2) == []

    @pytest.mark.parametrize("news", [[(b"r", STREAM, (1, 2))], [(b"r", STREAM)], [1]])
    def test_those_of_another_version_are_refused(self, news: Any) -> None:
        with pytest.raises((ValueError, TypeError)):
            House().stats.recovered(news)
