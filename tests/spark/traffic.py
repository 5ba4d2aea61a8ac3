"""Made-up traffic, as a record: the same for the same seed, with all that goes wrong.

Connections that are never said to be gone, ids that are used again, events that are missing, some that come late, an
instance that falls silent, one that is idle, an endpoint that is away, a recorder that is killed, and segments that are
there twice.

    python -m tests.spark.traffic DIR --events 1000000
"""

from __future__ import annotations

import argparse
import datetime
import pathlib
import shutil
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_stats.schema import SCHEMA

BEGIN = datetime.datetime(2026, 11, 19, 21, 30, tzinfo=datetime.UTC)
INSTANCES = ("pushpin-handler_11", "pushpin-handler_12", "gripproxy-handler")
ENDPOINTS = ("tcp://a:5569", "tcp://b:5569", "tcp://b:5569")
ROUTES = ("", "api", "chat", "feed", "live")
MODES = ("response", "stream", "ws")
TRANSPORTS = ("http-response", "http-stream", "ws-message")
SESSIONS = ("20261119T213000Z-aaaaaaaaaaaa", "20261120T000000Z-bbbbbbbbbbbb")
ADDRESSES = (*(f"192.0.2.{number}" for number in range(250)), *(f"2001:db8::{number:x}" for number in range(9)))
CLASSES = ("2xx", "2xx", "2xx", "4xx", "5xx", "none")
REASONS = ("backend", "late", "limit", "refused")
SECOND = 1_000_000


@dataclass(frozen=True)
class Traffic:
    """What was written: the ``events`` (copies not counted), and from when to when."""

    events: int
    since: datetime.datetime
    until: datetime.datetime


def pick(values: tuple[str, ...], places: np.ndarray) -> pa.Array:
    return pa.array(values).take(pa.array(places))


class Maker:
    def __init__(self, events: int, seconds: int, channels: int, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.events = events
        self.length = seconds * SECOND
        self.channels = pa.array([f"channel-{number}" for number in range(channels)])
        self.tables: list[tuple[str, pa.Table]] = []

    def add(self, kind: str, at: np.ndarray, instance: np.ndarray, **columns: pa.Array) -> None:
        """Events of a type at µs since the begin; some get lost."""
        table = pa.table({"at": at.astype("int64"), "instance": instance.astype("int8"), **columns})
        kept = (at >= 0) & (at < self.length) & (self.random.random(len(at)) > 0.003)
        # The endpoint b is away for a while, and there is no recorder for a while.
        kept &= ~((instance > 0) & (at >= self.length * 0.3) & (at < self.length * 0.3 + 170 * SECOND))
        kept &= ~((at >= self.killed) & (at < self.restarted))
        self.tables.append((kind, table.filter(pa.array(kept))))

    @property
    def killed(self) -> int:
        return int(self.length * 0.6)

    @property
    def restarted(self) -> int:
        return self.killed + 121 * SECOND + 1234

    def some_channels(self, count: int) -> pa.Array:
        """Some are much busier than others."""
        places = (self.random.random(count) ** 3 * len(self.channels)).astype("int64")
        return self.channels.take(pa.array(places))

    def connections(self, count: int) -> None:
        random = self.random
        began = np.sort(random.integers(-600 * SECOND, self.length, count))
        lasts = (random.lognormal(16.5, 2.0, count)).astype("int64")  # µs; the median is 15 s
        lasts = np.minimum(lasts, 3 * 3600 * SECOND)
        instance, route = random.integers(0, 3, count), random.integers(0, 5, count)
        socket = random.integers(0, 2, count)
        number = np.arange(count)
        # One in fifty has the id of an earlier one of the same instance.
        again = np.flatnonzero(number % 50 == 49)
        number[again], instance[again] = number[again - 40], instance[again - 40]
        # Present when accepted and when held, then every 80 s.
        times = 2 + lasts // (80 * SECOND)
        which: np.ndarray = np.repeat(np.arange(count), times)
        place = np.arange(len(which)) - np.repeat(np.cumsum(times) - times, times)
        at = began[which] + np.where(place < 2, place * 3000, (place - 1) * 80 * SECOND)
        here = place >= 0
        gone = np.flatnonzero(random.random(count) > 0.02)
        every = np.concatenate([which[here], gone])
        at = np.concatenate([at[here], began[gone] + np.maximum(lasts[gone], 4000)])
        ended = np.concatenate([np.zeros(here.sum(), bool), np.ones(len(gone), bool)])
        # Events of gone connections have no type, and Pushpin forgets the route of some.
        routes = pc.if_else(
            pa.array((route[every] == 0) | (random.random(len(every)) < 0.1)), None, pick(ROUTES, route[every])
        )
        identity = pc.binary_join_element_wise(
            "2e5420a4-9e92-49a0-9d03-", pc.cast(pa.array(number[every] + 10**11), pa.string()), ""
        )
        self.add(
            "conn", at, instance[every],
            route=routes, id=identity,
            conn_type=pc.if_else(pa.array(ended), None, pick(("http", "ws"), socket[every])),
            # Some clients have many connections; that of a connection does not change.
            peer_address=pc.if_else(pa.array(ended), None, pick(ADDRESSES, number[every] % 997 % len(ADDRESSES))),
            ttl=pc.if_else(pa.array(ended), None, pa.scalar(120, pa.int64())),
            unavailable=pc.if_else(pa.array(ended), True, pa.scalar(None, pa.bool_())),
        )  # fmt: skip

    def subscriptions(self, count: int) -> None:
        random = self.random
        gone = random.random(count) < 0.15
        self.add(
            "sub", random.integers(0, self.length, count), random.integers(0, 3, count),
            mode=pick(MODES, random.integers(0, 3, count)), channel=self.some_channels(count),
            ttl=pc.if_else(pa.array(gone), None, pa.scalar(60, pa.int64())),
            subscribers=pc.if_else(pa.array(gone), None, pa.array(random.geometric(0.05, count))),
            unavailable=pc.if_else(pa.array(gone), True, pa.scalar(None, pa.bool_())),
        )  # fmt: skip

    def items(self, count: int) -> None:
        random = self.random
        to = (random.pareto(1.2, count) * 5).astype("int64") + 1
        self.add(
            "message", random.integers(0, self.length, count), random.integers(0, 3, count),
            channel=self.some_channels(count), item_id=pc.cast(pa.array(np.arange(count)), pa.string()),
            transport=pick(TRANSPORTS, random.integers(0, 3, count)), count=pa.array(np.minimum(to, 200_000)),
            blocks=pc.if_else(pa.array(random.random(count) < 0.5), None, pa.array(to)),
        )  # fmt: skip

    def activity(self, count: int) -> None:
        random = self.random
        route = random.integers(0, 5, count)
        routes = pc.if_else(pa.array(route == 0), None, pick(ROUTES, route))
        at, instance = random.integers(0, self.length, count), random.integers(0, 3, count)
        self.add("activity", at, instance, route=routes, count=pa.array(random.integers(1, 30, count)))
        at, instance = random.integers(0, self.length, count // 2), random.integers(0, 3, count // 2)
        self.add("counts", at, instance, requests_received=pa.array(random.integers(1, 30, count // 2)))

    def reports(self) -> None:
        random = self.random
        rounds = np.arange(10 * SECOND, self.length, 10 * SECOND)
        for instance in range(3):
            for route in range(5):
                at = rounds + instance * 1_300_000 + route * 700 + random.integers(0, 200_000, len(rounds))
                # The first instance is idle for a while: it says so once. The second falls silent.
                idle = (instance == 0) & (rounds > self.length * 0.45) & (rounds < self.length * 0.5)
                first = np.flatnonzero(idle)[:1]
                drop = idle.copy()
                drop[first] = False
                drop |= (instance == 1) & (rounds > self.length * 0.2) & (rounds < self.length * 0.22)
                connections = np.where(idle, 0, random.integers(1, 900, len(rounds)))
                routes = pa.nulls(len(rounds), pa.string()) if not route else pick(ROUTES, np.full(len(rounds), route))
                figures = {
                    name: np.where(idle, 0, random.integers(0, 10_000, len(rounds)))
                    for name in (
                        "minutes",
                        "sent",
                        "http_response_sent",
                        "client_content_bytes_sent",
                        "server_messages_sent",
                    )
                }
                received = np.where(idle | (route > 0), 0, random.integers(0, 500, len(rounds)))
                keep = ~drop
                self.add(
                    "report", at[keep], np.full(keep.sum(), instance),
                    route=routes.filter(pa.array(keep)), connections=pa.array(connections[keep]),
                    received=pa.array(received[keep]), duration=pa.array(random.integers(9_980, 10_020, keep.sum())),
                    **{name: pa.array(values[keep]) for name, values in figures.items()},
                )  # fmt: skip
            written, slow = random.integers(0, 5000, len(rounds)), random.integers(0, 3, len(rounds))
            extra = pa.array(
                [f'{{"dropped-slow":{b},"written":{a}}}' for a, b in zip(written, slow, strict=True)], pa.string()
            )
            self.add("delivery", rounds + instance * 1_300_100, np.full(len(rounds), instance), extra=extra)

    def recoveries(self, count: int) -> None:
        random = self.random
        route = random.integers(0, 5, count)
        # A later version may tell more, or less.
        gaps, asked, slow = (
            random.geometric(0.3, count) - 1,
            random.integers(0, 90, count),
            random.integers(0, 2, count),
        )
        more = np.where(random.random(count) < 0.1, '"shared":2,', "")
        extra = [
            f'{{"gaps":{a},{d}"recoveries":{b},"requests":{b // 3},"slow-clients":{c}}}'
            if a
            else f'{{"recoveries":{b}}}'
            for a, b, c, d in zip(gaps, asked, slow, more, strict=True)
        ]
        self.add(
            "recovery", random.integers(0, self.length, count), random.integers(0, 3, count),
            route=pc.if_else(pa.array(route == 0), None, pick(ROUTES, route)),
            transport=pick(TRANSPORTS, random.integers(0, 3, count)), extra=pa.array(extra, pa.string()),
        )  # fmt: skip

    def responses(self, count: int) -> None:
        """Events about responses; one has no class, and one a number that makes no sense."""
        random = self.random
        route = random.integers(0, 5, count)
        kind, reason = random.integers(0, len(CLASSES), count), random.integers(0, len(REASONS), count)
        extra = [f'{{"class":"{CLASSES[a]}","reason":"{REASONS[b]}"}}' for a, b in zip(kind, reason, strict=True)]
        extra[0] = '{"reason":"late"}'
        number = random.geometric(0.02, count)
        number[1] = 1 << 41
        self.add(
            "responses", random.integers(0, self.length, count), random.integers(0, 3, count),
            route=pc.if_else(pa.array(route == 0), None, pick(ROUTES, route)),
            count=pa.array(number), extra=pa.array(extra, pa.string()),
        )  # fmt: skip

    def pushes(self, count: int) -> None:
        """Events of the hub about its push subscriptions; some lack figures, or have strange ones."""
        random = self.random
        figures = [random.integers(0, most, count) for most in (50, 5, 3, 2, 9000, 100_000, 600_000)]
        names = ("ack", "remote-server-5xx", "deadline-exceeded", "unreachable", "latency", "backlog", "oldest")
        extra = [
            "{" + ",".join([f'"{name}":{value}' for name, value in zip(names, row, strict=True) if value]) + "}"
            for row in zip(*figures, strict=True)
        ]
        extra[0] = '{"ack":"many","backlog":-7,"window":3}'
        self.add(
            "push", random.integers(0, self.length, count), random.integers(0, 3, count),
            channel=self.some_channels(count), extra=pa.array(extra, pa.string()),
        )  # fmt: skip

    def own(self) -> pa.Table:
        """The recorder's events, in the order of time."""
        away = int(self.length * 0.3)
        rows: list[tuple[int, str, str, int | None, str | None, str | None]] = []
        ends = '{"endpoints":["tcp://a:5569","tcp://b:5569"]}'
        for begin, end in ((0, self.killed), (self.restarted, self.length)):
            rows.append((begin, "start", "", None, ends, None))
            rows += [
                (begin + 10_000, "connected", endpoint, None, None, None)
                for endpoint in ("tcp://a:5569", "tcp://b:5569")
            ]
            rows += [(at, "tick", "", 5, None, None) for at in range(begin + 10 * SECOND, end, 10 * SECOND)]
        rows.append((away, "disconnected", "tcp://b:5569", None, None, None))
        rows.append((away + 170 * SECOND, "connected", "tcp://b:5569", None, None, None))
        rows.append((away + 190 * SECOND, "missed-events", "tcp://b:5569", 17, None, INSTANCES[2]))
        rows.append((self.length - 1, "stop", "", None, None, None))
        rows.sort()
        at, action, endpoint, count, extra, sender = zip(*rows, strict=True)
        return pa.table(
            {
                "at": pa.array(at, pa.int64()), "action": pa.array(action), "endpoint": pa.array(endpoint),
                "count": pa.array(count, pa.int64()), "extra": pa.array(extra, pa.string()),
                "from": pa.array(sender, pa.string()), "event": pa.repeat("recorder", len(rows)),
            }
        )  # fmt: skip


def make(
    root: pathlib.Path,
    events: int = 100_000,
    hours: float = 4.0,
    channels: int = 200,
    segment: int = 3600,
    seed: int = 7,
) -> Traffic:
    """Write a record of about so many events into ``root``; ``segment`` is the age of a segment in seconds."""
    maker = Maker(events, int(hours * 3600), channels, seed)
    maker.connections(int(events * 0.165))
    maker.subscriptions(int(events * 0.1))
    maker.items(int(events * 0.22))
    maker.activity(int(events * 0.05))
    maker.reports()
    maker.recoveries(int(events * 0.01) + 10)
    maker.pushes(int(events * 0.01) + 10)
    maker.responses(int(events * 0.01) + 10)
    total = 0
    numbered = []
    kinds: dict[str, list[pa.Table]] = {}
    for kind, table in maker.tables:
        kinds.setdefault(kind, []).append(table)
    for kind, tables in kinds.items():
        table = pa.concat_tables(tables, promote_options="default")
        places = table["instance"]
        table = (
            table.append_column("from", pa.array(INSTANCES).take(places))
            .append_column("endpoint", pa.array(ENDPOINTS).take(places))
            .append_column("event", pa.repeat(kind, len(table)))
            .drop_columns("instance")
        )
        numbered.append((kind, table))
    numbered.append(("recorder", maker.own()))
    # Numbers go by the time events come, over all types. Some come late, as after a clock was set back.
    at = np.concatenate([table["at"].to_numpy() for _, table in numbered])
    own: np.ndarray = np.repeat([kind == "recorder" for kind, _ in numbered], [len(table) for _, table in numbered])
    begin = int(BEGIN.timestamp()) * SECOND
    comes = at + np.where(maker.random.random(len(at)) < 0.01, maker.random.integers(0, 120 * SECOND, len(at)), 0)
    # But on the same day, and with the same recorder.
    midnight = (begin + at) // (86400 * SECOND) * 86400 * SECOND + 86400 * SECOND - 1 - begin
    comes = np.minimum(comes, np.minimum(midnight, np.where(at < maker.killed, maker.killed - 1, maker.length - 1)))
    comes[own] = at[own]
    seqs: np.ndarray = np.empty(len(at), "int64")
    seqs[np.argsort(comes, kind="stable")] = np.arange(len(at))
    for kind, table in numbered:
        count = len(table)
        table = table.append_column("comes", pa.array(comes[:count])).append_column("seq", pa.array(seqs[:count]))
        comes, seqs = comes[count:], seqs[count:]
        write(root, kind, table.sort_by("seq"), begin, maker.restarted, segment)
        total += len(table)
    for kind in ("conn", "message", "report"):
        first = sorted(root.glob(f"date=*/type={kind}/*"))[1]
        shutil.copy(first, first.with_name(f"restored {first.name}"))
    return Traffic(total, BEGIN, BEGIN + datetime.timedelta(microseconds=maker.length))


def write(root: pathlib.Path, kind: str, table: pa.Table, begin: int, restarted: int, segment: int) -> None:
    at, comes = table["at"].to_numpy(), table["comes"].to_numpy()
    second = (comes >= restarted).astype(int)
    key = (second * 1000 + (begin + comes) // (86400 * SECOND) % 1000) * 1_000_000 + comes // (segment * SECOND)
    for place, value in enumerate(np.unique(key)):
        chosen = np.flatnonzero(key == value)
        part = table.slice(chosen[0], len(chosen))
        times = at[chosen[0] : chosen[-1] + 1]
        session = SESSIONS[second[chosen[0]]]
        columns = {
            "session": pa.repeat(session, len(part)),
            "received_at": pa.array(begin + times).cast(SCHEMA.field("received_at").type),
            "elapsed": pa.array(comes[chosen[0] : chosen[-1] + 1]),
        }
        full = [
            columns.get(
                field.name, part[field.name] if field.name in part.column_names else pa.nulls(len(part), field.type)
            )
            for field in SCHEMA
        ]
        date = datetime.datetime.fromtimestamp((begin + times[0]) / SECOND, datetime.UTC).date()
        path = root / f"date={date}" / f"type={kind}" / f"{session}-{place + 1:06d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(full, schema=SCHEMA), path, compression="zstd", row_group_size=131_072)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--channels", type=int, default=200)
    parser.add_argument("--segment", type=int, default=3600)
    given = parser.parse_args()
    made = make(given.directory, given.events, given.hours, given.channels, given.segment)
    since, until = (moment.replace(microsecond=0).isoformat() for moment in (made.since, made.until))
    print(f"{made.events} events from {since} to {until}")
