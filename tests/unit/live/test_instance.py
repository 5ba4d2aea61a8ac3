"""gripproxy.live.instance: connections that are there, reports, and events that never arrived."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy.live.event import Malformed
from gripproxy.live.instance import MAX_ROUTES, OTHERS, Instance


def instance() -> Instance:
    return Instance("gripproxy-handler_1", "tcp://a", 0)


def conn(kind: str = "http", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "ttl": 120, **fields}


class TestConnections:
    def test_they_come_and_go(self) -> None:
        one = instance()
        assert one.connection("a", conn(route="r", ssl=True), 0)
        assert one.connection("b", conn("ws"), 0)
        assert not one.connection("a", conn(route="r", ssl=True), 1)
        assert (one.present, one.tls) == ({("r", "http"): 1, ("", "ws"): 1}, 1)
        assert [one.ended("a"), one.ended("a"), one.ended("c")] == [True, False, False]
        assert (one.present, one.tls) == ({("", "ws"): 1}, 0)

    def test_the_route_stays_when_a_later_event_has_none(self) -> None:
        one = instance()
        one.connection("a", conn(route="r"), 0)
        one.connection("a", conn(), 0)
        assert one.present == {("r", "http"): 1}

    def test_they_expire_unless_said_again(self) -> None:
        one = instance()
        for cid in ("a", "b", "c"):
            one.connection(cid, conn(), 0)
        one.connection("a", conn(), 60)
        assert one.expired(119) == ([], [])
        assert one.expired(120) == (["b", "c"], [])

    def test_without_a_ttl_they_do_not_expire(self) -> None:
        one = instance()
        one.connection("a", conn(ttl=0), 0)
        assert one.expired(1e9) == ([], [])

    @pytest.mark.parametrize("fields", [{}, {"type": "ftp", "ttl": 1}, conn(ssl=1), conn(ttl="1"), conn(route=1)])
    def test_malformed(self, fields: dict[str, Any]) -> None:
        one = instance()
        with pytest.raises(Malformed):
            one.connection("a", fields, 0)
        assert (one.connections, one.present) == ({}, {})

    def test_too_many_routes_are_one(self) -> None:
        one = instance()
        routes = {one.route({"route": f"r{number}"}) for number in range(MAX_ROUTES + 10)}
        assert len(routes) == MAX_ROUTES + 1
        assert OTHERS in routes
        assert one.route({"route": "r3"}) == "r3"


class TestReports:
    def test_rates_are_over_the_duration(self) -> None:
        report = instance().report({"from": "x", "duration": 2000, "sent": 10, "received": 4}, 100)
        assert (report.rate("sent"), report.rate("sent", "received"), report.rate("other")) == (5, 7, 0)

    def test_it_stands_for_the_present_for_a_while(self) -> None:
        report = instance().report({"duration": 10_000}, 100)
        assert [report.current(now) for now in (100, 125, 125.1)] == [True, True, False]
        report = instance().report({"duration": 100}, 100)
        assert [report.current(now) for now in (105, 105.1)] == [True, False]

    @pytest.mark.parametrize("fields", [{}, {"duration": -1}, {"duration": 1, "sent": -5}])
    def test_malformed(self, fields: dict[str, Any]) -> None:
        one = instance()
        with pytest.raises(Malformed):
            one.report(fields, 0)
        assert one.reports == {}


class TestMissed:
    def report(self, one: Instance, sent: int, **fields: Any) -> None:
        one.events += 1
        one.report({"duration": 1000, "events-sent": sent, **fields}, 0)

    def test_unknown_if_it_does_not_say(self) -> None:
        one = instance()
        one.report({"duration": 1}, 0)
        assert one.missed is None

    def test_what_did_not_arrive_between_two_reports(self) -> None:
        one = instance()
        self.report(one, 1000)
        assert one.missed == 0
        one.events += 9
        self.report(one, 1010)
        assert one.missed == 0
        one.events += 5
        self.report(one, 1020)
        assert one.missed == 4
        self.report(one, 1021)
        assert one.missed == 4

    def test_reports_of_routes_do_not_count(self) -> None:
        one = instance()
        self.report(one, 10)
        self.report(one, 500, route="r")
        self.report(one, 12)
        assert one.missed == 0

    def test_a_new_beginning_is_no_loss(self) -> None:
        one = instance()
        self.report(one, 1000)
        self.report(one, 3)
        assert one.missed == 0
        # Nor is what was sent while there was no connection.
        one.disconnected()
        self.report(one, 700)
        assert one.missed == 0
        self.report(one, 702)
        assert one.missed == 1
