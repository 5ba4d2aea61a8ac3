"""Parts of the hub's benchmark: for each, the load on the hub and its peers, and the figures of it."""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from bench import items
from bench.hub_disk import Disk
from bench.hub_disk import measured as measured_disk
from bench.hub_load import MARK, SIZE, History, Posted, Poster, batch
from bench.hub_peers import PEERS, Peer
from bench.hub_site import PREFIX, HubProxy
from bench.hub_table import Part, Row
from bench.load import Crowd
from bench.processes import settled
from bench.programs import BenchError
from bench.targets import Wish

__all__ = ["FULL", "ITEM", "SMOKE", "SSE", "STORE_PARTS", "WARM", "WINDOW", "Bench", "Scale", "checked", "held"]


@dataclass(frozen=True)
class Scale:
    """How much of everything.

    Attributes:
        seconds: duration of each row that is measured for a time.
        disk: seconds for which the disk is measured before each part.
        connections: of publishers.
        events: of the history that is read.
        rate: publishes a second where they are paced.
        followers: of the topic whose deliveries are measured.
        rounds: deliveries to all of them, one at a time.
        held: followers whose memory is measured.
        retained: events that the topic with retention keeps.
        subscriptions: whose callbacks are measured.
        replayed: stored events of each of them.
        callbacks: a second, where they are live.
        long: stored events of one subscription.
        pushed: messages of one push subscription.
        pushed_each: messages of each of many.
        backlog: messages of the longest backlog.
        mailboxes: under a load of messages; there is a row with ten times as many as well.
        messages: a second for all mailboxes.
        keys: that each mailbox follows, where there are many.
        watchers: of ranges, each of its own; so many as well of the whole topic, for their memory.
        watched: events a second, each in the ranges of some of them.
        audience: clients that all get the same events.
        wave: events that they get at once.
        snapshot: keys of the topic whose snapshot is read.
        ingested: events a second of a soft topic.
        late: requests of watchers below the floor, within a second.
        live: watchers that get events meanwhile.
        settle: greatest wait for the memory to change no more, and that before events to many watchers, in seconds.
        peers: whether peers are measured.
        keep: whether all rows have the same running service, instead of a fresh one each.
    """

    seconds: float = 5.0
    disk: float = 2.0
    connections: int = 64
    events: int = 500_000
    rate: int = 5000
    followers: int = 10_000
    rounds: int = 20
    held: int = 5000
    retained: int = 20_000
    subscriptions: int = 200
    replayed: int = 300
    callbacks: int = 6000
    long: int = 1_000_000
    pushed: int = 100_000
    pushed_each: int = 500
    backlog: int = 1_000_000
    mailboxes: int = 200
    messages: int = 50_000
    keys: int = 1000
    watchers: int = 10_000
    watched: int = 1000
    audience: int = 5000
    wave: int = 40
    snapshot: int = 500_000
    ingested: int = 20_000
    late: int = 20_000
    live: int = 100
    settle: float = 3.0
    peers: bool = True
    keep: bool = False


FULL = Scale()
SMOKE = Scale(
    seconds=0.3,
    disk=0.1,
    events=5000,
    rate=200,
    followers=100,
    rounds=3,
    held=100,
    retained=1000,
    subscriptions=20,
    replayed=20,
    callbacks=200,
    long=1000,
    pushed=2000,
    pushed_each=20,
    backlog=20_000,
    mailboxes=20,
    messages=1000,
    keys=100,
    watchers=100,
    watched=100,
    audience=100,
    wave=5,
    snapshot=3000,
    ingested=5000,
    late=200,
    live=10,
    settle=0.5,
    peers=False,
    keep=True,
)

BATCH = 100
"""Events of a batch."""

BATCH_CONNECTIONS = 8

WARM = 0.3
"""Seconds of a load that is not measured, before that which is."""

WINDOW = 50
"""Followers opened at a time."""

SSE = ("Accept: text/event-stream",)

ITEM = MARK + "x" * (items.SIZE - len(MARK))
"""Data of an event that is delivered to many: as long as a plain item."""


class Bench:
    """A run: its programs, its folder, its service, and the tables so far.

    Args:
        programs: folder of the compiled programs.
        folder: on the disk that is measured; all that is written is in folders below it.
        scale: how much of everything.
        on_row: called with each row that is measured.
    """

    def __init__(
        self, programs: pathlib.Path, folder: pathlib.Path, scale: Scale, on_row: Callable[[Part, Row], None]
    ) -> None:
        self.programs = programs
        self.folder = folder
        self.scale = scale
        self.parts: list[Part] = []
        self._on_row = on_row
        self._site = HubProxy(programs)

    def begin(self, key: str, title: str, columns: tuple[str, ...]) -> None:
        """Measure the disk, and begin a table.

        Args:
            key: name of the part.
            title: heading.
            columns: names of the figures, with units.
        """
        disk: Disk = measured_disk(self.folder, self.scale.disk)
        self.parts.append(Part(key, title, columns, disk))

    def row(
        self, name: str, figures: Mapping[str, float] | None = None, note: str = "", *, failed: bool = False
    ) -> None:
        """Add a line to the table.

        Args:
            name: first cell of the line.
            figures: by column.
            note: remark.
            failed: whether figures are missing because something failed.
        """
        row = Row(name, dict(figures or {}), note, failed)
        self.parts[-1].rows.append(row)
        self._on_row(self.parts[-1], row)

    @property
    def disk(self) -> Disk:
        """Disk as it was measured before the part."""
        return self.parts[-1].disk

    @contextlib.contextmanager
    def measuring(self, name: str) -> Iterator[None]:
        """Make a failure in the block a row of the table, and go on.

        Args:
            name: first cell of that row.
        """
        try:
            yield
        except BrokenPipeError:
            raise
        except (BenchError, OSError, sqlite3.Error) as error:
            self.row(name, note=f"failed: {str(error).partition(chr(10))[0]}", failed=True)

    @contextlib.contextmanager
    def site(self) -> Iterator[HubProxy]:
        """The service: with an empty store, and ended afterwards, unless it is kept."""
        kept = False
        try:
            if self._site.wish is None:
                self._site.start(Wish())
            yield self._site
            kept = self.scale.keep
        finally:
            if not kept:
                self._site.stop()

    def close(self) -> None:
        """End the service, if it was kept."""
        self._site.stop()

    @contextlib.contextmanager
    def peer(self, kind: type[Peer]) -> Iterator[Peer]:
        """A peer with an empty store, ended afterwards.

        Args:
            kind: which one.
        """
        with tempfile.TemporaryDirectory(prefix="peer-", dir=self.folder, ignore_cleanup_errors=True) as name:
            pathlib.Path(name).chmod(0o755)  # one that does not run as root must get in
            one = kind(self.programs, pathlib.Path(name))
            try:
                one.start()
                yield one
            finally:
                one.stop()


def _posted(bench: Bench, poster: Poster, *, rate: int = 0) -> Posted:
    """Post for the time of a row, after some that are not measured.

    Raises:
        BenchError: one of a hundred was refused, or none taken.
    """
    with contextlib.closing(poster):
        poster.post(seconds=min(WARM, bench.scale.seconds), rate=rate)
        return checked(poster.post(seconds=bench.scale.seconds, rate=rate))


def checked(posted: Posted) -> Posted:
    """Return the report of a publisher, which must not be one of refusals.

    Args:
        posted: the report.

    Raises:
        BenchError: one of a hundred was refused, or none taken.
    """
    if not posted.taken or posted.refused > 0.01 * posted.taken:
        raise BenchError(f"of {posted.taken + posted.refused} publishes {posted.refused} were refused")
    return posted


def _refused(posted: Posted) -> str:
    return f"{posted.refused} refused" if posted.refused else ""


# --- publishes

PUBLISH = ("publishes/s", "p50, ms", "p99, ms", "per fdatasync")


def publish(bench: Bench) -> None:
    """Durable publishes of one event each, of the hub and of its peers.

    Args:
        bench: the run.
    """
    scale = bench.scale
    bench.begin("publish", f"Durable publishes of {SIZE} bytes, {scale.connections} connections", PUBLISH)

    def row(name: str, rate: float, p50: float, p99: float, note: str) -> None:
        figures = dict(zip(PUBLISH, (rate, p50, p99, rate / bench.disk.rate), strict=True))
        bench.row(name, figures, note)

    for direct in (False, True):
        name = "hub, its own socket" if direct else "hub, through the proxy"
        with bench.measuring(name), bench.site() as site:
            path = site.topic("single")
            poster = site.poster(path, b"x" * SIZE, connections=scale.connections, direct=direct)
            posted = _posted(bench, poster)
            quantile = posted.latencies.quantile
            note = "; ".join(part for part in ("hub_sync=full", _refused(posted)) if part)
            row(name, posted.rate, quantile(0.5), quantile(0.99), note)
    for kind in PEERS if scale.peers else ():
        if missing := kind.missing():
            bench.row(kind.name, note=f"not installed: no {missing}; apt-get install {kind.package}")
            continue
        with bench.measuring(kind.name), bench.peer(kind) as peer:
            found = peer.measure(scale.seconds, scale.connections)
            row(kind.name, found.rate, found.p50, found.p99, kind.way)


def batches(bench: Bench) -> None:
    """Batches of events, without keys and with.

    Args:
        bench: the run.
    """
    columns = ("events/s", "batches/s", "p50, ms", "p99, ms")
    bench.begin("batch", f"Batches of {BATCH} events of {SIZE} bytes, {BATCH_CONNECTIONS} connections", columns)
    for keys in (False, True):
        for direct in (False, True):
            name = f"{'with' if keys else 'without'} keys, {'its own socket' if direct else 'through the proxy'}"
            with bench.measuring(name), bench.site() as site:
                path, body = site.topic("batches"), batch(BATCH, keys=keys)
                poster = site.poster(
                    path, body, connections=BATCH_CONNECTIONS, content_type="application/json", direct=direct
                )
                posted = _posted(bench, poster)
                quantile = posted.latencies.quantile
                values = (posted.rate * BATCH, posted.rate, quantile(0.5), quantile(0.99))
                note = "10,000 keys in turn" if keys else ""
                bench.row(name, dict(zip(columns, values, strict=True)), note)


# --- history


def history(bench: Bench) -> None:
    """One reader of a long history, alone and beside publishes.

    Args:
        bench: the run.
    """
    scale = bench.scale
    columns = ("events/s read", "publishes/s", "publish p50, ms", "publish p99, ms")
    bench.begin("history", f"One reader of {scale.events:,} events as lines", columns)
    with bench.measuring("reader"), bench.site() as site:
        path = site.topic("history")
        site.fill(path, scale.events)
        other = site.topic("other")
        rates = {}
        for direct in (True, False):
            name = "its own socket" if direct else "through the proxy"
            read = History(site.socket, path) if direct else History(site.port, PREFIX + path)
            seen = read.read()
            rates[direct] = seen.rate
            note = "" if seen.events == scale.events else f"{seen.events:,} lines"
            bench.row(f"reader, {name}", {columns[0]: seen.rate}, note, failed=seen.events < scale.events)
        for beside in (False, True):
            _publishes_beside(bench, site, path, other, columns, rates[False] / 2 if beside else 0)


def _publishes_beside(
    bench: Bench, site: HubProxy, path: str, other: str, columns: tuple[str, ...], pace: float
) -> None:
    """Measure paced publishes through the proxy, beside a reader with a pace in events a second (0: none)."""
    scale = bench.scale
    name = f"{scale.rate:,} publishes/s, {'with a reader at half its rate' if pace else 'alone'}"
    with bench.measuring(name):
        poster = site.poster(other, b"x" * SIZE, connections=scale.connections)
        with contextlib.closing(poster):
            poster.post(seconds=min(WARM, scale.seconds), rate=scale.rate)
            poster.begin(scale.seconds, rate=scale.rate)
            figures = {}
            if pace:
                read = History(site.port, PREFIX + path).read(rate=pace, seconds=scale.seconds)
                figures[columns[0]] = read.rate
            posted = checked(poster.posted())
        quantile = posted.latencies.quantile
        values = (posted.rate, quantile(0.5), quantile(0.99))
        bench.row(name, figures | dict(zip(columns[1:], values, strict=True)), _refused(posted))


# --- followers


def deliveries(bench: Bench) -> None:
    """From publishing to the last of many followers, next to a plain item.

    Args:
        bench: the run.
    """
    scale = bench.scale
    columns = ("to the last, ms", "to the last, most, ms", "p50 of all, ms", "deliveries/s")
    bench.begin("fanout", f"One event at a time to {scale.followers:,} event streams", columns)
    medians = {}
    for hub in (False, True):
        name = "event of the hub" if hub else "plain item, by HTTP"
        with bench.measuring(name), bench.site() as site, contextlib.ExitStack() as stack:
            path = site.topic("followed") if hub else ""
            crowd = stack.enter_context(contextlib.closing(_crowd(site, path)))
            send = _sender(site, stack, path)
            crowd.open(scale.followers, window=WINDOW)
            last, p50 = _last_deliveries(crowd, scale.rounds, send)
            medians[hub] = statistics.median(last)
            values = (medians[hub], max(last), p50, crowd.held / (medians[hub] / 1e3))
            note = f"{medians[True] / medians[False]:.2f} times the plain item" if len(medians) == 2 else ""
            bench.row(name, dict(zip(columns, values, strict=True)), note)


def _crowd(site: HubProxy, path: str) -> Crowd:
    """Return clients to be: followers of a topic, or without a path plain streams of one channel."""
    if not path:
        return site.crowd("stream")
    return Crowd(site.programs, site.port, "stream", PREFIX + path, headers=SSE)


def _sender(site: HubProxy, stack: contextlib.ExitStack, path: str) -> Callable[[], int]:
    """Return a function that publishes one event, or without a path a plain item, and returns the time of its start."""
    if path:
        poster = site.poster(path, ITEM.encode(), connections=1)
        stack.callback(poster.close)
        return lambda: checked(poster.post(1)).start
    publisher = site.publisher("stream", way="http")
    stack.callback(publisher.close)
    return lambda: publisher.send(1).start


def _last_deliveries(crowd: Crowd, rounds: int, send: Callable[[], int]) -> tuple[list[float], float]:
    """Send one after the other; return the times to the last of the followers, and the median of all, in ms."""
    crowd.zero()
    crowd.expect(1, seconds=30)
    send()
    crowd.seen(60)
    crowd.zero()
    times = []
    for index in range(1, rounds + 1):
        crowd.expect(index, seconds=30)
        start = send()
        seen = crowd.seen(60)
        if seen.count != index * crowd.held:
            raise BenchError(f"only {seen.count:,} of {index * crowd.held:,} deliveries came")
        times.append((seen.last - start) / 1e6)
    return times, seen.latencies.quantile(0.5)


def memory(bench: Bench) -> None:
    """Memory of a held follower, over all processes, next to a plain stream.

    Args:
        bench: the run.
    """
    scale = bench.scale
    columns = ("KB each", "of it workers", "handler", "hub")
    bench.begin("memory", f"Memory (PSS) of each of {scale.held:,} held streams", columns)
    for hub in (False, True):
        name = "follower of a topic" if hub else "plain stream"
        with bench.measuring(name), bench.site() as site:
            path = site.topic("held") if hub else ""
            with held(partial(_crowd, site, path), scale.held, site.memory_by_role, scale.settle) as (_, grown):
                parts = (grown.get("worker", 0.0), grown.get("handler", 0.0), grown.get("hub", 0.0))
                bench.row(name, dict(zip(columns, (sum(grown.values()), *parts), strict=True)))


@contextlib.contextmanager
def held(
    make: Callable[[], Crowd], number: int, memory: Callable[[], Mapping[str, int]], settle: float
) -> Iterator[tuple[Crowd, dict[str, float]]]:
    """Clients that are held, and the memory that each of them takes, after twenty have come and gone.

    Args:
        make: returns clients to be.
        number: of them.
        memory: returns the memory of processes by their roles, in KB.
        settle: greatest wait for it to change no more, in seconds.

    Yields:
        The clients, and the KB of each, by roles.
    """
    with contextlib.closing(make()) as crowd:
        crowd.open(20, window=WINDOW)
    settled(lambda: sum(memory().values()), most=settle)
    before = memory()
    with contextlib.closing(make()) as crowd:
        crowd.open(number, window=WINDOW)
        settled(lambda: sum(memory().values()), most=settle)
        yield crowd, {key: (value - before.get(key, 0)) / crowd.held for key, value in memory().items()}


# --- maintenance of the store


def maintenance(bench: Bench) -> None:
    """Publishes without checkpoints and retention, with checkpoints, and with both.

    Args:
        bench: the run.
    """
    scale = bench.scale
    columns = ("publishes/s", "p50, ms", "p99, ms", "most, ms")
    bench.begin("maintenance", f"{scale.rate:,} publishes/s beside checkpoints and retention", columns)
    for checkpoints, retention in ((False, False), (True, False), (True, True)):
        name = "neither" if not checkpoints else "checkpoints and retention" if retention else "checkpoints"
        with bench.measuring(name), bench.site() as site, contextlib.ExitStack() as stack:
            path = site.topic("kept", events=scale.retained if retention else None)
            site.fill(path, scale.retained)
            if not checkpoints:
                stack.enter_context(_held_back(site.store))
            posted = _posted(bench, site.poster(path, b"x" * SIZE, connections=scale.connections), rate=scale.rate)
            values = (posted.rate, *(posted.latencies.quantile(share) for share in (0.5, 0.99, 1.0)))
            notes = ("checkpoints held back by an open read transaction", "", f"the last {scale.retained:,} events")
            bench.row(name, dict(zip(columns, values, strict=True)), notes[checkpoints + retention])


@contextlib.contextmanager
def _held_back(store: pathlib.Path) -> Iterator[None]:
    """Keep a read transaction open, past which no checkpoint copies."""
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, isolation_level=None)) as connection:
        connection.execute("begin")
        connection.execute("select count(*) from sqlite_schema").fetchone()
        yield


STORE_PARTS: Mapping[str, Callable[[Bench], None]] = {
    "publish": publish,
    "batch": batches,
    "history": history,
    "fanout": deliveries,
    "memory": memory,
    "maintenance": maintenance,
}
"""By their names on the command line."""
