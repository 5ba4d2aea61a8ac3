"""The same traffic through Pushpin 1.36 and through gripproxy, recorded, gives the same report.

A play (tests/spark/play.py) goes through both, in both formats of the stats, and one recorder hears all four. How long
a step takes is chance, on a busy machine above all, so the times of the record are replaced before the report: each
step is a minute of its own, and in it each kind of event has its second. Figures about time (averages, how long
connections lasted, the bucket of everything) are thereby those of the same times, which events have to be paired and
put in order for all the same. What of a report differs is named in ``DIFFERENT``, with the reason; all else is equal.
"""

from __future__ import annotations

import datetime
import io
import pathlib
import signal
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_stats.reports.inventory import inventory
from spark_stats.reports.report import TABLES, make
from spark_stats.reports.span import Span
from spark_stats.schema import SCHEMA
from tests.spark.play import MARKER, Play, end, perform, setup
from tests.support.service import Service
from tests.wire.wirekit import Site
from tests.wire.wirekit.expecting import running

PROXIES = ("pushpin", "gripproxy")
FORMATS = ("tnetstring", "json")

BEGIN = datetime.datetime(2026, 11, 20, 10, tzinfo=datetime.UTC)
SPAN = Span(BEGIN, BEGIN + datetime.timedelta(hours=2))
MINUTE = datetime.timedelta(minutes=1)
SECONDS = {"conn": 10, "sub": 15, "message": 20, "activity": 25, "counts": 25, "gone": 30, "mark": 50}
"""When in its minute an event is."""
TTL = 1200
"""Of all that is present: longer than the play takes in this time."""
NOT_OF_THE_PLAY = ("10.0.0.1", "127.0.0.1")
"""Who holds the marker's stream, and who asked before the play, of whom 1.36 may remember one until its ttl is over."""
REPORTED = 40
"""The minute of all reports: which of them tells of what is chance, and only their sums are not."""

NO_ROUTE = "what clients do while they are held counts for no route with 1.36, and for theirs from 1.37 on"
ESTIMATE = "bytes of heads are estimates in both"
LATE = "1.36 may report what was before the play when all else of then was reported long ago"
OWN = "the event is gripproxy's own"

DIFFERENT: dict[str, dict[str, str]] = {
    "traffic": {
        "reports": "how many there are depends on how long it took",
        "minutes": "one more for each minute that a connection has lasted: it depends on how long it took",
        "connections_max": NO_ROUTE,
        "client_header_bytes_received": ESTIMATE,
        "client_header_bytes_sent": ESTIMATE,
        "server_header_bytes_received": ESTIMATE,
        "server_header_bytes_sent": ESTIMATE,
        "client_content_bytes_sent": LATE,
        "server_content_bytes_received": LATE,
    },
    "outcomes": {"count": OWN},
    "responses": {"count": OWN},
    "recoveries": {"gaps": OWN, "recoveries": OWN, "requests": OWN, "slow_clients": OWN},
}
"""By table and column: why it is not the same."""
BY_ROUTE = dict.fromkeys(("sent", "http_response_sent", "blocks_sent"), NO_ROUTE)
"""The same, of the rows of ``traffic`` that are for a route: over all routes they are equal."""


@dataclass(frozen=True)
class Told:
    """The folder of a report by proxy; of what was recorded the recorder's own events."""

    reports: dict[str, pathlib.Path]
    own: list[dict[str, Any]]


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    root = tmp_path_factory.mktemp("same")
    rows = record(root / "record")
    reports = {}
    for proxy in PROXIES:
        for hour, form in enumerate(FORMATS):
            regular(root / proxy, rows[proxy, form], form, BEGIN + datetime.timedelta(hours=hour))
        reports[proxy] = root / f"report of {proxy}"
        make(spark, inventory(root / proxy, SPAN), reports[proxy], BEGIN + 4.5 * MINUTE, out=io.StringIO())
    return Told(reports, rows["own", ""])


def record(root: pathlib.Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Play through all proxies; return the events of each in the order in which they came."""
    sites: dict[tuple[str, str], Site] = {}
    before = running.proxy
    try:
        for proxy in PROXIES:
            running.proxy = proxy
            for form in FORMATS:
                sites[proxy, form] = Site(setup(form))
        endpoints = {f"tcp://127.0.0.1:{site.proxy.ports['stats']}": key for key, site in sites.items()}
        recorder = Service([sys.executable, "-m", "spark_stats", "record", "--into", str(root), *endpoints])
        try:
            for endpoint in endpoints:
                recorder.wait_for_log(f"{endpoint}: connected")
            with ThreadPoolExecutor(len(sites)) as threads:
                for played in [threads.submit(play, site) for site in sites.values()]:
                    played.result()
        finally:
            assert recorder.stop(signal.SIGTERM) == 0
    finally:
        for (proxy, _), site in sites.items():
            running.proxy = proxy
            problems = [*site.problems(), *site.stop()]
            assert not problems, problems
        running.proxy = before
    found: dict[tuple[str, str], list[dict[str, Any]]] = {key: [] for key in [*sites, ("own", "")]}
    for row in ds.dataset(root, format="parquet", partitioning="hive").to_table().sort_by("seq").to_pylist():
        found[("own", "") if row["type"] == "recorder" else endpoints[row["endpoint"]]].append(row)
    return found


def play(site: Site) -> None:
    with Play(site) as one:
        one.begin()
        one.start()
        perform(one)
    end(one)


def regular(root: pathlib.Path, rows: list[dict[str, Any]], instance: str, begin: datetime.datetime) -> None:
    """Add the events of one play to a record, at times of their own, as those of ``instance``."""
    endpoint = f"tcp://{instance}"
    minute = 0
    # Longer before than the ttl: what comes first is new.
    since = begin - datetime.timedelta(minutes=30)
    made = [
        own("start", since, endpoint="", extra=f'{{"endpoints":["{endpoint}"]}}'),
        own("connected", since, endpoint),
    ]
    others = {row["id"] for row in rows if row["peer_address"] in NOT_OF_THE_PLAY}
    for row in rows:
        at, kind = SECONDS.get(row["type"], 55), row["type"]
        changed: dict[str, Any] = {"from": instance, "endpoint": endpoint}
        if kind == "conn" and row["unavailable"]:
            at = SECONDS["gone"]
        if kind == "message" and row["channel"] == MARKER:
            at = SECONDS["mark"]
            when = begin + minute * MINUTE
            minute += 1
        elif kind == "report":
            when, changed["duration"] = begin + REPORTED * MINUTE, 1000
        else:
            when = begin + minute * MINUTE
        # What was before the play; and when the marker's own stream is told again is chance.
        if not minute or row["route"] == "probe" or row["id"] in others or (kind, row["channel"]) == ("sub", MARKER):
            continue
        if row["ttl"] is not None:
            changed["ttl"] = TTL
        made.append({**row, **changed, "received_at": when + datetime.timedelta(seconds=at)})
    made.append(own("stop", begin + datetime.timedelta(minutes=59), endpoint=""))
    for number, row in enumerate(made):
        row["session"], row["seq"], row["elapsed"] = f"session-{instance}", number, number
    for kind in {row["type"] for row in made}:
        folder = root / f"date={begin.date()}" / f"type={kind}"
        folder.mkdir(parents=True, exist_ok=True)
        some = [row for row in made if row["type"] == kind]
        pq.write_table(pa.Table.from_pylist(some, schema=SCHEMA), folder / f"{instance}.parquet")


def own(action: str, at: datetime.datetime, endpoint: str, extra: str | None = None) -> dict[str, Any]:
    """An event of the recorder."""
    known = {"event": "recorder", "type": "recorder", "action": action, "endpoint": endpoint, "extra": extra}
    return {**dict.fromkeys(SCHEMA.names), **known, "received_at": at}


def rows_of(told: Told, proxy: str, name: str, different: Iterable[str]) -> list[dict[str, Any]]:
    table = pq.read_table(told.reports[proxy] / f"{name}.parquet")
    assert set(different) <= set(table.column_names)
    found: list[dict[str, Any]] = table.drop_columns([*different, *(["id"] if name == "present" else [])]).to_pylist()
    return found


def in_order(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(map(str, rows))


@pytest.mark.parametrize("name", [*TABLES, "present"])
def test_the_same_report(told: Told, name: str) -> None:
    different = DIFFERENT.get(name, {})
    if name == "pushes":
        # Of a hub, which neither has here.
        assert [rows_of(told, proxy, name, ()) for proxy in PROXIES] == [[], []]
        return
    theirs, ours = (rows_of(told, proxy, name, different) for proxy in PROXIES)
    if OWN in different.values():
        assert ours
        assert not theirs
        return
    if name == "traffic":
        for rows in (theirs, ours):
            for row in rows:
                if row["route"] is not None:
                    row.update(dict.fromkeys(BY_ROUTE))
        # 1.36 has reports on the route of the marker's stream only for the request.
        theirs, ours = ([row for row in rows if row["route"] != MARKER] for rows in (theirs, ours))
    assert in_order(ours) == in_order(theirs)
    assert ours


def test_the_play_is_in_the_report(told: Told) -> None:
    """Of which both could be wrong in the same way."""
    for proxy in PROXIES:
        traffic = [row for row in rows_of(told, proxy, "traffic", ()) if (row["per"], row["by"]) == ("day", "instance")]
        assert {row["instance"] for row in traffic} == set(FORMATS)
        for row in traffic:
            assert row["requests"] == 13
            assert row["received"] == 16
            assert row["sent"] == 20
            assert row["http_response_sent"] == 2
            assert row["minutes"] >= 13
        (new,) = {
            row["new"]
            for row in rows_of(told, proxy, "connections", ())
            if (row["per"], row["by"], row["instance"]) == ("day", "instance", "json")
        }
        assert new == 13


def test_nothing_was_missed(told: Told) -> None:
    """Of gripproxy that is exact: it counts the events that it sends."""
    assert {row["action"] for row in told.own} <= {"start", "connected", "tick", "stop", "recovered"}
