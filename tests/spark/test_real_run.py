"""Thousands of clients through a real gripproxy, recorded and reported: what the report says is what they counted.

Items are published when the stats have told all subscribers; what a subscriber gets that comes at the very moment of an
item is not what this is about (docs/stats.md).
"""

from __future__ import annotations

import asyncio
import datetime
import io
import pathlib
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_stats.reports.inventory import inventory
from spark_stats.reports.report import make
from spark_stats.reports.span import Span
from spark_stats.schema import SCHEMA
from tests.e2e.crowd import room_for_files
from tests.spark.crowd import WELCOME, Backend, Client, Crowd, Listener, Poller, Talker
from tests.spark.play import Watcher
from tests.support.service import Service
from tests.wire.wirekit import Proxy, Publisher, Setup

STREAMS, POLLS, TALKERS, SURE = 1500, 800, 700, 50
CHANNELS = 10
CHURN = 300
"""Streams that leave, and half as many that come."""

SETUP = Setup(
    routes="live,id=live {backend}\npoll,id=poll {backend}\nchat,id=chat {backend},over_http\n* {backend}\n",
    config={
        "proxy.workers": 2,
        "runner.client_maxconn": 20_000,
        "runner.process_beat_timeout": 120,
        "handler.message_rate": None,
        "handler.message_hwm": None,
        "handler.stats_report_interval": 1,
        # Who is asked again for a first subscription is a matter of time.
        "handler.update_on_first_subscription": False,
    },
)


@dataclass
class Truth:
    """What happened: ``items`` published.

    ``addressed`` by transport; ``most`` clients at a time by route; and what clients and backend counted.
    """

    items: int
    addressed: Counter[str]
    most: Counter[str]
    crowd: Counter[str]
    backend: Counter[str]
    missed: int


@dataclass
class Run:
    """The truth, and the folder of the report."""

    truth: Truth
    report: pathlib.Path

    def rows(self, table: str, **keys: Any) -> list[dict[str, Any]]:
        """Rows of a table with these values."""
        return [
            row
            for row in pq.read_table(self.report / f"{table}.parquet").to_pylist()
            if all(row[name] == value for name, value in keys.items())
        ]

    def total(self, table: str, figure: str, **keys: Any) -> int:
        """The sum over the days there are."""
        return sum(row[figure] or 0 for row in self.rows(table, per="day", **{"by": "all", **keys}))


@pytest.fixture(scope="module")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("run")
    since = datetime.datetime.now(datetime.UTC).replace(microsecond=0) - datetime.timedelta(minutes=5)
    with room_for_files(3 * (STREAMS + POLLS + TALKERS + SURE) + 500):
        truth = asyncio.run(drive(root / "record"))
    begin_earlier(root / "record", datetime.timedelta(minutes=10))
    until = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(minutes=1)
    make(spark, inventory(root / "record", Span(since, until)), root / "report", out=io.StringIO())
    return Run(truth, root / "report")


def begin_earlier(record: pathlib.Path, by: datetime.timedelta) -> None:
    """Have the record begin earlier, when there were no clients either.

    Who comes while the ttl of connections has not passed since may have been there before, for all that a report knows.
    """
    for path in record.glob("date=*/type=recorder/*.parquet"):
        rows = pq.ParquetFile(path).read().to_pylist()
        for row in rows:
            if row["action"] in ("start", "connected"):
                row["received_at"] -= by
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)


async def drive(record: pathlib.Path) -> Truth:
    """Start everything, let it happen, end everything."""
    loop = asyncio.get_running_loop()
    Backend.counts.clear()
    Backend.last = 0
    server = await loop.create_server(Backend, "127.0.0.1", 0, backlog=1000)
    names = {"backend": f"127.0.0.1:{server.sockets[0].getsockname()[1]}"}
    proxy = await asyncio.to_thread(Proxy, SETUP, names)
    address, ports = "tcp://127.0.0.1:%d", proxy.ports
    places = [address % ports[name] for name in ("pull", "sub", "rep", "stats")]
    publisher = Publisher(ports["control"], *places)
    recorder = Service([sys.executable, "-m", "spark_stats", "record", "--into", str(record), places[-1]])
    scene = Scene(Crowd(ports["http"]), publisher)
    try:
        await asyncio.to_thread(recorder.wait_for_log, f"{re.escape(places[-1])}: connected")
        return await scene.play()
    finally:
        scene.stats.close()
        assert await asyncio.to_thread(recorder.stop) == 0
        publisher.close()
        problems = await asyncio.to_thread(proxy.stop)
        await Backend.close_all(server)
        assert not problems, problems


class Scene:
    """What happens, one thing after the other."""

    def __init__(self, crowd: Crowd, publisher: Publisher) -> None:
        self.crowd = crowd
        self.publisher = publisher
        self.stats = Watcher(publisher)
        self.items = 0
        self.asked_for = 0
        """Lines that come from the backend, more than those of the items that showed it."""
        self.addressed: Counter[str] = Counter()
        self.subscribed: Counter[tuple[str, str]] = Counter()

    async def told(self, done: Callable[[], bool]) -> None:
        """Wait until the stats have told it. Nothing else happens meanwhile, but that clients and backend go on."""
        await asyncio.to_thread(self.stats.until, done)

    async def all_told(self) -> None:
        """Wait until they have told all subscribers."""
        await self.told(lambda: all(self.stats.subscribers.get(key, 0) == n for key, n in self.subscribed.items()))

    def clients(self, kind: type[Client], mode: str, host: str, name: str, number: int) -> list[Client]:
        """So many clients, on their channels in turn."""
        made = []
        for place in range(number):
            channel = f"{name}{place % CHANNELS}"
            self.subscribed[mode, channel] += 1
            folder = host if host != "any" else "sure"
            made.append(kind(self.crowd, host, f"/{folder}/{channel}"))
        return made

    async def publish(self, channel: str, formats: dict[str, Any], by_http: bool, **fields: str) -> None:
        """An item, whose deliveries are counted before."""
        self.items += 1
        for transport, mode in (("http-stream", "stream"), ("http-response", "response"), ("ws-message", "ws")):
            if transport in formats:
                self.addressed[transport] += self.subscribed[mode, channel]
        item = {"channel": channel, "formats": formats, **fields}
        await asyncio.to_thread(self.publisher.publish if by_http else self.publisher.push_item, item)

    async def wave(self, number: int) -> None:
        """Items to all streams and WebSockets, and wait until all have them."""
        for place in range(number * CHANNELS):
            content = {"content": f"item {place}\n"}
            formats = {"http-stream": content, "ws-message": content}
            await self.publish(f"c{place % CHANNELS}", formats, bool(place % 3))
        await self.all_got()

    async def all_got(self) -> None:
        """Wait until everybody has everything; what was missed and asked for, too."""
        await self.crowd.until(lambda: self.crowd.counts["lines"] >= self.addressed.total() + self.asked_for)

    async def play(self) -> Truth:
        """All of it; returns what is true of it."""
        crowd, stats = self.crowd, self.stats
        streams = self.clients(Listener, "stream", "live", "c", STREAMS)
        polls = self.clients(Poller, "response", "poll", "p", POLLS)
        talkers = self.clients(Talker, "ws", "chat", "c", TALKERS)
        sure = self.clients(Listener, "stream", "any", "s", SURE)
        for some in (streams, polls, talkers, sure):
            await crowd.join(some)
        await self.all_told()
        everybody = len(streams) + len(polls) + len(talkers) + len(sure)
        await self.told(lambda: len(stats.present) == everybody)
        most = Counter({"live": STREAMS, "poll": POLLS, "chat": TALKERS, "": SURE})

        await self.wave(5)
        for _ in range(2):
            for place in range(CHANNELS):
                await self.publish(f"p{place}", {"http-response": {"body": "answer"}}, bool(place % 2))
            await self.all_got()
            # They ask again: nobody is subscribed twice, and nobody is missing.
            requests = crowd.counts["requests"]
            await self.told(lambda requests=requests: len(stats.present) == everybody)  # type: ignore[misc]
            await self.told(lambda requests=requests: stats.sums["requests"] >= requests)  # type: ignore[misc]
            await self.all_told()

        for one in talkers:
            assert isinstance(one, Talker)
            one.say(b"ping")
        await crowd.until(lambda: crowd.counts["answers"] == TALKERS)

        leaving, streams = streams[:CHURN], streams[CHURN:]
        for one in leaving:
            self.subscribed["stream", one.path.rpartition("/")[2]] -= 1
        await crowd.leave(leaving)
        coming = self.clients(Listener, "stream", "live", "c", CHURN // 2)
        await crowd.join(coming)
        streams += coming
        await self.all_told()
        await self.wave(3)

        # What nobody hears, and what was published before.
        for _ in range(5):
            await asyncio.to_thread(self.publisher.stream, "c0", "once\n", id="once")
        self.items += 1
        self.addressed["http-stream"] += self.subscribed["stream", "c0"]
        await self.publish("nobody", {"http-stream": {"content": "x"}}, True)

        # Items 1 to 4 never come: everybody has to ask for them, and for the one that showed it.
        Backend.last = 5
        self.asked_for = 4 * SURE
        for channel in range(CHANNELS):
            await self.publish(f"s{channel}", {"http-stream": {"content": "5\n"}}, True, id="5", **{"prev-id": "4"})
        await self.all_got()
        Backend.last = 6
        for channel in range(CHANNELS):
            await self.publish(f"s{channel}", {"http-stream": {"content": "6\n"}}, False, id="6", **{"prev-id": "5"})
        await self.all_got()

        await crowd.leave([*streams, *polls, *talkers, *sure])
        await self.told(lambda: not stats.present and not any(stats.subscribers.values()))
        await self.told(lambda: stats.sums["report sent"] >= self.addressed.total())
        await self.told(lambda: stats.sums["delivery written"] >= self.addressed.total() - SURE)
        await self.told(lambda: stats.quiet)
        return Truth(self.items, self.addressed, most, crowd.counts, Backend.counts, SURE)


def test_connections(run: Run) -> None:
    requests = run.truth.crowd["requests"]
    assert requests == run.total("connections", "new")
    assert requests == run.total("connections", "gone")
    assert requests == run.total("connection_time", "ended")
    assert requests == run.total("traffic", "requests")
    assert run.total("connections", "lapsed") == 0
    assert run.total("connection_time", "unknown") == 0
    assert max(row["connections_peak"] for row in run.rows("connections", by="all")) == run.truth.most.total()
    for route, number in run.truth.most.items():
        rows = run.rows("traffic", by="instance+route", per="day", route=route)
        assert max(row["connections_max"] for row in rows) == number, route


def test_items_and_deliveries(run: Run) -> None:
    truth = run.truth
    assert run.total("traffic", "received") == truth.items
    assert run.total("traffic", "sent") == truth.addressed.total()
    assert run.total("traffic", "http_response_sent") == truth.addressed["http-response"]
    assert run.total("deliveries", "deliveries") == truth.addressed.total()
    for transport, number in truth.addressed.items():
        assert run.total("deliveries", "deliveries", by="transport", transport=transport) == number
    # Of those on the channels with ids one was asked for instead.
    pushed = truth.crowd["lines"] - 5 * truth.missed
    assert run.total("outcomes", "count", by="outcome", outcome="written") == pushed
    assert pushed == truth.addressed.total() - truth.missed
    assert {row["outcome"] for row in run.rows("outcomes", by="outcome") if row["count"]} == {
        "written",
        "dropped-duplicate",
    }
    assert run.total("outcomes", "count", by="outcome", outcome="dropped-duplicate") == 4


def test_bytes_and_messages(run: Run) -> None:
    truth = run.truth
    assert run.total("traffic", "client_content_bytes_sent") == truth.crowd["bytes"]
    assert run.total("traffic", "client_content_bytes_received") == truth.crowd["bytes sent"]
    assert run.total("traffic", "client_messages_sent") == truth.crowd["messages"]
    assert run.total("traffic", "client_messages_received") == truth.crowd["messages sent"]
    assert run.total("traffic", "server_content_bytes_sent") == truth.backend["bytes"]
    assert run.total("traffic", "server_content_bytes_received") == truth.backend["bytes sent"]
    assert run.total("traffic", "server_messages_sent") == truth.backend["messages"]
    assert run.total("traffic", "server_messages_received") == truth.backend["messages sent"]
    assert truth.crowd["bytes"] > len(WELCOME) * STREAMS


def test_recoveries(run: Run) -> None:
    assert run.total("recoveries", "gaps") == run.truth.missed
    # Behind an answer that may be a part one asks for the rest.
    assert run.total("recoveries", "recoveries") >= run.truth.missed
    assert run.total("recoveries", "requests") == run.truth.backend["links"]
    assert run.total("recoveries", "requests", by="transport", transport="http-stream") >= CHANNELS
    assert run.total("recoveries", "slow_clients") == 0


def test_responses_and_clients(run: Run) -> None:
    """Each request has one response, but those of the polls that were held to the end; all clients have one address."""
    requests = run.truth.crowd["requests"]
    assert run.total("responses", "count") == requests - POLLS
    assert run.total("responses", "count", by="class", **{"class": "5xx"}) == 0
    assert run.rows("clients") == [{"peer_address": "127.0.0.1", "connections": requests}]


def test_nothing_of_it_is_unknown(run: Run) -> None:
    reasons = {row["reason"] for row in run.rows("gaps")}
    assert reasons.isdisjoint({"missed-events", "overrun", "missed-reports"}), reasons
