"""Every figure of the report equals one that is calculated another way (oracle.py), over a million events."""

from __future__ import annotations

import datetime
import itertools
from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.conftest import AT, SPAN, Reported
from tests.spark.oracle import PERS, SECOND, Oracle, Spell, place, three_digits
from tests.spark.rows import Row, rows, same
from tests.spark.traffic import BEGIN, INSTANCES

LENGTH = 4 * 3600
# What tests/spark/traffic.py does: nobody listens to b, and there is no recorder, from when to when (s).
AWAY = (LENGTH * 0.3, LENGTH * 0.3 + 170)
NO_RECORDER = (LENGTH * 0.6, LENGTH * 0.6 + 121.001234)


def table(reported: Reported, name: str, *columns: str) -> list[Row]:
    """Rows with these columns; times are µs since 1970."""
    return rows([reported.into / f"{name}.parquet"], columns)


def since_begin(seconds: float) -> int:
    return int(BEGIN.timestamp() * SECOND) + round(seconds * SECOND)


@pytest.fixture(scope="module")
def spells(oracle: Oracle) -> list[Spell]:
    read_since = oracle.since - 3600 * SECOND
    recorded = [since_begin(0.01), since_begin(NO_RECORDER[1] + 0.01)]
    return oracle.spells(
        {
            "tcp://a:5569": [read_since, *recorded],
            "tcp://b:5569": [read_since, *recorded, since_begin(AWAY[1])],
        }
    )


CONNECTION_SETS = {"all": (), "instance": (0,), "route": (1,), "transport": (2,), "instance+route+transport": (0, 1, 2)}


def by_sets(places: tuple[int, ...], names: Row) -> Row:
    return tuple(name if i in places else None for i, name in enumerate(names))


def test_connections_at_a_time(reported: Reported, oracle: Oracle, spells: list[Spell]) -> None:
    calculated = []
    for by, places in CONNECTION_SETS.items():
        groups: dict[Row, list[tuple[int, int | None, int]]] = defaultdict(list)
        for spell in spells:
            keys = by_sets(places, (spell.instance, spell.route, spell.transport))
            groups[keys].append((spell.began, spell.ended, 1))
        for keys, intervals in groups.items():
            calculated += [(*bucket, by, *keys, *level) for bucket, level in oracle.level(intervals).items()]
    columns = ("per", "start", "by", "instance", "route", "transport")
    rows = table(reported, "connections", *columns, "connections_peak", "connections_average", "connections_last")
    # Others are there for new and gone connections only.
    same([row for row in rows if row[-3:] != (0, 0.0, 0)], calculated)


def test_new_and_gone_connections(reported: Reported, oracle: Oracle, spells: list[Spell]) -> None:
    counts: dict[Row, list[int]] = defaultdict(lambda: [0, 0, 0])
    for spell in spells:
        turns = [(spell.began, 0, int(spell.known)), (spell.ended, 1, 1), (spell.ended, 2, int(spell.end == "lapsed"))]
        for at, place_, number in turns:
            if number and at is not None and oracle.since <= at < oracle.until:
                for per, length in PERS.items():
                    for by, places in CONNECTION_SETS.items():
                        keys = by_sets(places, (spell.instance, spell.route, spell.transport))
                        counts[per, at // (length * SECOND) * length * SECOND, by, *keys][place_] += number
    rows = table(
        reported, "connections", "per", "start", "by", "instance", "route", "transport", "new", "gone", "lapsed"
    )
    same([row for row in rows if any(row[-3:])], [(*key, *numbers) for key, numbers in counts.items()])


def test_how_long_connections_last(reported: Reported, oracle: Oracle, spells: list[Spell]) -> None:
    rows = [
        (
            s.instance,
            s.route,
            s.transport,
            s.ended,
            (s.ended - s.began) // 1000 if s.known and s.end == "gone" else None,
        )
        for s in spells
        if s.ended is not None and oracle.since <= s.ended < oracle.until
    ]
    columns = list(zip(*rows, strict=True))

    ended = pa.table(dict(zip(("instance", "route", "transport", "moment", "lasted"), map(list, columns), strict=True)))
    oracle.db.register("ended_rows", ended)
    calculated = oracle.grouped(
        "SELECT * FROM ended_rows", "moment", ["instance", "route", "transport"],
        [[], ["instance"], ["route"], ["transport"], ["instance", "route", "transport"]],
        f"count(lasted), count(*) - count(lasted), avg(lasted), {three_digits(place('lasted', 10))}, "
        f"{three_digits(place('lasted', 19))}, max(lasted)",
    )  # fmt: skip
    same(
        table(
            reported, "connection_time", "per", "start", "instance", "route", "transport",
            "ended", "unknown", "lasted_mean", "lasted_median", "lasted_p95", "lasted_max",
        ),
        calculated,
    )  # fmt: skip


def test_who_was_connected(reported: Reported, spells: list[Spell]) -> None:
    at = int(AT.timestamp()) * SECOND
    there = [spell for spell in spells if spell.began <= at and (spell.ended is None or spell.ended > at)]
    same(
        table(reported, "present", "instance", "id", "route", "transport", "began_at", "ended_at", "known"),
        [(s.instance, s.id, s.route, s.transport, s.began, s.ended, s.known) for s in there],
    )


def test_subscriptions(reported: Reported, oracle: Oracle) -> None:
    sets = {"all": (), "instance": (0,), "mode": (1,), "instance+mode": (0, 1), "channel": (2,)}
    calculated = []
    intervals = oracle.subscribers()
    for by, places in sets.items():
        groups: dict[Row, list[tuple[int, int | None, int]]] = defaultdict(list)
        for names, found in intervals.items():
            groups[by_sets(places, names)].extend(found)
        for keys, group in groups.items():
            subscribers = oracle.level(group)
            subscriptions = oracle.level([(since, until, 1) for since, until, _ in group])
            assert subscribers.keys() == subscriptions.keys()
            calculated += [(*bucket, by, *keys, *subscriptions[bucket], *subscribers[bucket]) for bucket in subscribers]
    figures = [
        f"{name}_{figure}" for name in ("subscriptions", "subscribers") for figure in ("peak", "average", "last")
    ]
    same(table(reported, "subscriptions", "per", "start", "by", "instance", "mode", "channel", *figures), calculated)


def test_items_and_deliveries(reported: Reported, oracle: Oracle) -> None:
    calculated = oracle.grouped(
        "SELECT * FROM inside WHERE type = 'message'", "moment", ["instance", "channel", "transport"],
        [[], ["instance"], ["transport"], ["channel"], ["instance", "transport"]],
        f'count(*), CAST(sum("count") AS BIGINT), CAST(sum(blocks) AS BIGINT), {three_digits(place("count", 10))}, '
        f'{three_digits(place("count", 19))}, max("count")',
    )  # fmt: skip
    figures = ("items", "deliveries", "blocks", "fanout_median", "fanout_p95", "fanout_max")
    same(table(reported, "deliveries", "per", "start", "instance", "channel", "transport", *figures), calculated)


def test_channels(reported: Reported, oracle: Oracle) -> None:
    peaks: dict[str, list[tuple[int, int | None, int]]] = defaultdict(list)
    for (_, _, channel), found in oracle.subscribers().items():
        peaks[channel].extend(found)
    of_channel = {
        channel: max((level[0] for (per, _), level in oracle.level(found).items() if per == "day"), default=0)
        for channel, found in peaks.items()
    }
    items = {
        row[0]: row[1:]
        for row in oracle.rows(
            """
            SELECT channel, count(*), CAST(sum("count") AS BIGINT), max("count"), max(moment) // 60000000 * 60000000
            FROM inside WHERE type = 'message' GROUP BY channel
            """
        )
    }
    calculated = [
        (name, *items.get(name, (0, 0, 0, None)), of_channel.get(name, 0), name not in items)
        for name in {*items, *(name for name, peak in of_channel.items() if peak)}
    ]
    rows = table(
        reported, "channels", "channel", "items", "deliveries", "fanout_max", "last_item", "subscribers_peak", "idle"
    )
    same(rows, calculated)
    assert [row[2] for row in rows] == sorted((row[2] for row in rows), reverse=True)


def test_traffic(reported: Reported, oracle: Oracle) -> None:
    figures = [
        "minutes", "received", "sent", "http_response_sent", "client_content_bytes_sent", "server_messages_sent"
    ]  # fmt: skip
    calculated = oracle.grouped(
        f"""
        SELECT instance, coalesce(route, '') AS route, type, connections, {", ".join(figures)}, "count",
               requests_received,
               CASE type WHEN 'report' THEN moment - duration * 500 ELSE moment END AS moment
        FROM events WHERE moment < {oracle.until} AND type IN ('report', 'activity', 'counts')
        AND CASE type WHEN 'report' THEN moment - duration * 500 ELSE moment END >= {oracle.since}
        """,
        "moment", ["instance", "route"], [[], ["instance"], ["route"], ["instance", "route"]],
        "CASE WHEN GROUPING(instance, route) = 0 THEN max(connections) END, count(*) FILTER (type = 'report') , "
        + ", ".join(f"CAST(sum({name}) AS BIGINT)" for name in figures)
        + ", CAST(sum(\"count\") FILTER (type = 'activity') AS BIGINT), CAST(sum(requests_received) AS BIGINT)",
    )  # fmt: skip
    rows = table(
        reported, "traffic", "per", "start", "instance", "route", "connections_max", "reports", *figures,
        "activity", "requests",
    )  # fmt: skip
    same([(*row[:5], row[5] or 0, *row[6:]) for row in rows], calculated)


def test_outcomes(reported: Reported, oracle: Oracle) -> None:
    calculated = oracle.grouped(
        """
        SELECT instance, moment, name AS outcome, CAST(json_extract(extra, '$."' || name || '"') AS BIGINT) AS n
        FROM (SELECT *, unnest(json_keys(extra)) AS name FROM inside WHERE type = 'delivery')
        """,
        "moment", ["instance", "outcome"], [["outcome"], ["instance", "outcome"]], "CAST(sum(n) AS BIGINT)",
    )  # fmt: skip
    same(table(reported, "outcomes", "per", "start", "instance", "outcome", "count"), calculated)


def test_recoveries(reported: Reported, oracle: Oracle) -> None:
    calculated = oracle.grouped(
        """
        SELECT *, coalesce(transport, '') AS means FROM inside WHERE type = 'recovery'
        """,
        "moment", ["instance", "route", "means"],
        [[], ["instance"], ["route"], ["means"], ["instance", "route", "means"]],
        ", ".join(
            f"CAST(sum(coalesce(CAST(json_extract(extra, '$.\"{name}\"') AS BIGINT), 0)) AS BIGINT)"
            for name in ("gaps", "recoveries", "requests", "slow-clients")
        ),
    )  # fmt: skip
    figures = ("gaps", "recoveries", "requests", "slow_clients")
    same(table(reported, "recoveries", "per", "start", "instance", "route", "transport", *figures), calculated)


def test_responses(reported: Reported, oracle: Oracle) -> None:
    calculated = oracle.grouped(
        f"""
        SELECT *, coalesce(json_extract_string(extra, '$.class'), '') AS kind,
               coalesce(json_extract_string(extra, '$.reason'), '') AS why
        FROM inside WHERE type = 'responses' AND count BETWEEN 0 AND {1 << 40}
        """,
        "moment", ["instance", "route", "kind", "why"],
        [[], ["kind"], ["kind", "why"], ["route", "kind"], ["instance", "route", "kind", "why"]],
        "CAST(sum(count) AS BIGINT)",
    )  # fmt: skip
    same(table(reported, "responses", "per", "start", "instance", "route", "class", "reason", "count"), calculated)


def test_clients(reported: Reported, oracle: Oracle) -> None:
    calculated = oracle.rows(
        """
        SELECT peer_address, count(DISTINCT (instance, id)) FROM inside
        WHERE type = 'conn' AND peer_address IS NOT NULL AND id IS NOT NULL GROUP BY ALL
        ORDER BY 2 DESC, 1 LIMIT 1000
        """
    )
    assert len(calculated) > 200
    assert table(reported, "clients", "peer_address", "connections") == calculated


def test_pushes(reported: Reported, oracle: Oracle) -> None:
    def number(name: str) -> str:
        value = f"TRY_CAST(json_extract_string(extra, '$.\"{name}\"') AS BIGINT)"
        return f"CASE WHEN {value} BETWEEN 0 AND {1 << 40} THEN {value} ELSE 0 END"

    nacks = ("deadline-exceeded", "invalid", "remote-server-4xx", "remote-server-5xx", "unreachable")
    sums = [number("ack"), " + ".join(map(number, nacks))]
    sums += map(number, ("deadline-exceeded", "unreachable", "latency"))
    parts = [f"CAST(sum({each}) AS BIGINT)" for each in sums]
    parts += [f"CAST(max({number(each)}) AS BIGINT)" for each in ("backlog", "oldest")]
    calculated = oracle.grouped(
        "SELECT *, channel AS subscription FROM inside WHERE type = 'push' AND channel IS NOT NULL",
        "moment", ["instance", "subscription"], [[], ["subscription"], ["instance", "subscription"]], ", ".join(parts),
    )  # fmt: skip
    figures = ("acks", "nacks", "late", "unreachable", "latency", "backlog_max", "oldest_max")
    same(table(reported, "pushes", "per", "start", "instance", "subscription", *figures), calculated)


def test_gaps(reported: Reported) -> None:
    rows = table(reported, "gaps", "reason", "endpoint", "instance", "began_at", "ended_at", "count")
    sure = [row for row in rows if row[0] in {"no recorder", "disconnected", "missed-events", "overrun"}]
    noticed = since_begin(AWAY[1] + 20)
    same(
        sure,
        [
            ("no recorder", None, None, since_begin(NO_RECORDER[0] - 10), since_begin(NO_RECORDER[1]), None),
            ("disconnected", "tcp://b:5569", None, since_begin(AWAY[0]), since_begin(AWAY[1]), None),
            *[
                (
                    "disconnected",
                    f"tcp://{name}:5569",
                    None,
                    since_begin(NO_RECORDER[1]),
                    since_begin(NO_RECORDER[1] + 0.01),
                    None,
                )
                for name in "ab"
            ],
            ("missed-events", "tcp://b:5569", INSTANCES[2], noticed, noticed, 17),
        ],
    )
    quiet = [row for row in rows if row[0] in {"silent", "idle"}]
    idle = [row for row in quiet if row[0] == "idle"]
    assert [row[2] for row in idle] == [INSTANCES[0]]
    assert idle[0][4] - idle[0][3] == pytest.approx(LENGTH * 0.05 * SECOND, abs=30 * SECOND)
    (own,) = [row for row in quiet if row[2] == INSTANCES[1] and row[3] < since_begin(LENGTH * 0.25)]
    assert own[0] == "silent"
    assert own[4] - own[3] == pytest.approx(LENGTH * 0.02 * SECOND, abs=30 * SECOND)
    # And all three while there was no recorder.
    assert {row[2] for row in quiet if abs(row[3] - since_begin(NO_RECORDER[0])) < 30 * SECOND} == set(INSTANCES)


def test_coverage(reported: Reported, oracle: Oracle) -> None:
    rows = table(reported, "gaps", "reason", "endpoint", "instance", "began_at", "ended_at")
    seconds: dict[Row, dict[str, float]] = defaultdict(lambda: {"unrecorded": 0.0, "unreported": 0.0})
    # µs are too many to look at one by one; ms will do.
    for name in (None, *INSTANCES):
        for kind, reasons in (("unrecorded", {"no recorder", "disconnected"}), ("unreported", {"silent", "idle"})):
            unknown: set[tuple[int, int]] = set()
            for reason, endpoint, instance, began, ended in rows:
                at_endpoint = endpoint is None or name is None or (endpoint == "tcp://a:5569") == (name == INSTANCES[0])
                if reason in reasons and at_endpoint and (instance is None or name is None or instance == name):
                    unknown.add((began, ended))
            for per, start, low, high in oracle.buckets():
                points = sorted({low, high, *(min(max(x, low), high) for pair in unknown for x in pair)})
                taken = sum(b - a for a, b in itertools.pairwise(points) if any(x <= a and b <= y for x, y in unknown))
                if taken:
                    seconds[per, start, name][kind] = taken / SECOND
    found = table(reported, "coverage", "per", "start", "instance", "unrecorded", "unreported")
    same(
        [(*row[:3], round(row[3], 3), round(row[4], 3)) for row in found],
        [(*key, round(value["unrecorded"], 3), round(value["unreported"], 3)) for key, value in seconds.items()],
    )


def test_the_report_says_what_it_did(reported: Reported) -> None:
    assert reported.made.span == SPAN
    assert reported.made.rows["gaps"] == len(table(reported, "gaps", "reason"))
    assert "1/15 looking for what is missing" in reported.shown
    for name in reported.made.rows:
        lines = (reported.into / f"{name}.csv").read_text().count("\n")
        assert lines == reported.made.rows[name] + 1
    assert not list(reported.into.glob(".*"))


def test_days_are_of_utc(reported: Reported) -> None:
    starts = {row[0] for row in table(reported, "deliveries", "start", "per") if row[1] == "day"}
    assert starts == {
        int(datetime.datetime(2026, 11, day, tzinfo=datetime.UTC).timestamp()) * SECOND for day in (19, 20)
    }


@pytest.mark.parametrize(
    "name",
    [
        "connections",
        "connection_time",
        "subscriptions",
        "deliveries",
        "traffic",
        "outcomes",
        "recoveries",
        "responses",
        "pushes",
    ],
)
def test_rows_are_in_order(reported: Reported, name: str) -> None:
    there = pq.read_schema(reported.into / f"{name}.parquet").names
    keys = [
        key
        for key in ("instance", "channel", "route", "mode", "transport", "outcome", "subscription", "class", "reason")
        if key in there
    ]
    found = table(reported, name, "per", "by", "start", *keys)
    # Short names first, then the earlier bucket; what a row is not for stands before what it is for.
    wanted = sorted(
        found,
        key=lambda row: (len(str(row[0])), len(str(row[1])), row[2], *[(each is not None, each) for each in row[3:]]),
    )
    assert found == wanted
    kinds = [kind for kind, _ in itertools.groupby(row[:2] for row in found)]
    assert len(kinds) == len(set(kinds))
