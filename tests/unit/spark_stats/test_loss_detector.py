"""What never arrived: found where the events tell, and nothing else is found."""

from __future__ import annotations

import random
from typing import Any

from spark_stats.event import parse
from spark_stats.journal import Frame
from spark_stats.loss_detector import MAX_TRACKED, Finding, LossDetector
from tests.support.spark_doubles import SECOND, json, tnet


def see(detector: LossDetector, message: bytes, at: float = 0.0) -> list[Finding]:
    detector.see(*parse(message), Frame("tcp://there", 0, int(at * SECOND), 0, []))
    return detector.take()


def report(detector: LossDetector, at: float, **fields: Any) -> list[Finding]:
    fields = {"from_": "a", "connections": 1, "duration": 10_000} | fields
    return see(detector, tnet("report", **fields), at)


def test_reports_in_time_are_no_finding() -> None:
    detector = LossDetector()
    chance = random.Random(3)
    for i in range(5000):
        # Cut to whole ms, and up to two seconds late.
        assert report(detector, 10.0009 * i + 2 * chance.random()) == []


def test_a_missing_report_is_found_when_the_next_one_confirms_it() -> None:
    detector = LossDetector()
    assert report(detector, 0) == report(detector, 10) == []
    assert report(detector, 40) == []  # those of 20 and 30 may still be under way
    assert report(detector, 50) == [Finding("missed-reports", 2, "a", None, "tcp://there")]
    assert report(detector, 60) == report(detector, 70) == []


def test_late_reports_are_not_missing() -> None:
    detector = LossDetector()
    assert report(detector, 0) == report(detector, 10) == []
    assert report(detector, 41) == report(detector, 41) == report(detector, 41) == report(detector, 50) == []
    # The first of all was late.
    detector = LossDetector()
    assert [report(detector, at) for at in (25, 25, 30, 40, 50, 60)] == [[]] * 6


def test_silence_without_connections_is_nothing() -> None:
    detector = LossDetector()
    assert report(detector, 0) == report(detector, 10) == report(detector, 20, connections=0) == []
    assert report(detector, 900) == report(detector, 910) == []


def test_routes_and_instances_are_apart() -> None:
    detector = LossDetector()
    for at in range(0, 60, 10):
        assert report(detector, at) == []
        if at in (0, 30, 40):
            found = report(detector, at, route="r")
            assert found == ([Finding("missed-reports", 2, "a", "r", "tcp://there")] if at == 40 else [])


def test_an_instance_that_counts_its_events_gives_every_loss_away() -> None:
    detector = LossDetector()
    activity = tnet("activity", from_="a", count=1)
    total = 1000
    assert report(detector, 0, events_sent=total) == []
    for _ in range(20):
        see(detector, activity)
    see(detector, json("activity", **{"from": "b"}))
    assert report(detector, 10, events_sent=total + 21) == []
    for _ in range(20):
        see(detector, activity)
    assert report(detector, 20, events_sent=total + 50) == [Finding("missed-events", 8, "a", None, "tcp://there")]
    assert report(detector, 30, events_sent=total + 51) == []
    # Begun again under the same name; and the reports of routes do not tell.
    assert report(detector, 40, events_sent=3) == report(detector, 40, route="r", events_sent=900) == []
    assert report(detector, 50, events_sent=5) == []


def test_a_lost_stretch_with_reports_in_it_is_counted_whole() -> None:
    detector = LossDetector()
    assert report(detector, 0, events_sent=10) == []
    # Of the next 300 only the last report comes: it is one of them.
    assert report(detector, 30, events_sent=310) == [Finding("missed-events", 299, "a", None, "tcp://there")]
    assert report(detector, 40, events_sent=311) == [Finding("missed-reports", 2, "a", None, "tcp://there")]


def test_a_handler_that_began_anew_counts_from_its_own_beginning() -> None:
    detector = LossDetector()
    assert report(detector, 0, from_="handler_1", connections=0, events_sent=5000) == []
    # The first report of another process: what it sent before nobody can know to be missing.
    assert report(detector, 10, from_="handler_2", connections=0, events_sent=40) == []
    assert report(detector, 20, from_="handler_2", connections=0, events_sent=43) == [
        Finding("missed-events", 2, "handler_2", None, "tcp://there")
    ]
    # The same process number again, with less than before.
    assert report(detector, 30, from_="handler_1", connections=0, events_sent=7) == []
    assert report(detector, 40, from_="handler_1", connections=0, events_sent=9) == [
        Finding("missed-events", 1, "handler_1", None, "tcp://there")
    ]


def test_fields_of_any_type_do_no_harm() -> None:
    detector = LossDetector()
    for value in (None, True, 1.5, [1], {b"x": 1}, "text", b"bytes", -1, 0, 1 << 80):
        for name in ("from_", "route", "duration", "events_sent", "connections"):
            assert report(detector, 0, **{name: value}) == []


def test_the_number_watched_is_bounded() -> None:
    detector = LossDetector()
    for number in range(MAX_TRACKED + 10):
        report(detector, 0, from_=f"n{number}")
    assert len(detector._sent) == len(detector._reports) == MAX_TRACKED
