"""The PostgreSQL ingester against the real thing: each version that a follower sees is a state of the table."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psycopg
import pytest

from griphub.ingesters import postgresql_sql
from griphub.ingesters.ingest_client import IngestClient
from griphub.ingesters.marks import Mark
from griphub.ingesters.postgresql import Ingester
from griphub.ingesters.postgresql_source import NotReady, Source
from griphub.ingesters.postgresql_view import View, quoted
from griphub.windows.bounds import WindowBounds
from tests.support.postgresql import Cluster
from tests.support.soft_hub import SoftHub

VIEW = View("public_rows", "rows", "id", ("id", "n", "text"), "public and n % 7 <> 3")
TABLE = "create table rows (id text primary key, n integer, text text, secret text default 'x', public boolean)"
KEYS = [f"k{number}" for number in range(200)]
PATIENCE = 40.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Not below the folder of pytest, which other users may not enter.
    with tempfile.TemporaryDirectory(prefix="ingester-") as name:
        pathlib.Path(name).chmod(0o755)
        folder = pathlib.Path(name, "one")
        folder.mkdir()
        made = Cluster(folder)
        made.initialise()
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture
def database(cluster: Cluster) -> Cluster:
    cluster.execute("drop schema if exists griphub cascade", "drop table if exists rows", TABLE)
    return cluster


class RecordingSource(Source):
    """Source that reads the view in the transaction of each snapshot."""

    def __init__(self, dsn: str, view: View = VIEW) -> None:
        super().__init__(dsn, view)
        self.seen: dict[str, dict[str, Any]] = {}
        self.states: dict[int, dict[str, Any]] = {}

    async def snapshot(self) -> str:
        connection = self.connection
        await connection.execute("begin isolation level repeatable read read only")
        try:
            cursor = await connection.execute("select pg_current_snapshot()::text")
            row = await cursor.fetchone()
            assert row is not None
            cursor = await connection.execute("select key, data from griphub.public_rows")
            self.seen[row[0]] = dict(await cursor.fetchall())
        finally:
            await connection.execute("commit")
        return str(row[0])

    async def store(self, mark: Mark, expected: int) -> None:
        if mark.next_snapshot in self.seen:
            self.states[mark.next_version] = self.seen[mark.next_snapshot]
        await super().store(mark, expected)


async def read_snapshot(dsn: str, view: View = VIEW) -> tuple[int, dict[str, Any]] | None:
    """Read the snapshot as an application does."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        for statement in postgresql_sql.snapshot_begin(view):
            await connection.execute(statement.encode())
        cursor = await connection.execute(postgresql_sql.snapshot_version(view).encode())
        row = await cursor.fetchone()
        if row is None:
            return None
        cursor = await connection.execute(postgresql_sql.snapshot_rows(view).encode())
        return int(row[0]), dict(await cursor.fetchall())


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} within {PATIENCE} s"
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(ingester: Ingester) -> AsyncIterator[asyncio.Task[None]]:
    """Run an ingester, connected again after each loss, as its command does."""

    async def again() -> None:
        while True:
            try:
                await ingester.follow()
            except (psycopg.Error, NotReady):
                await asyncio.sleep(0.05)

    task = asyncio.ensure_future(again())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def set_up(dsn: str, view: View = VIEW) -> None:
    source = Source(dsn, view)
    await source.connect()
    try:
        await source.set_up()
    finally:
        await source.close()


class Writers:
    """Writers of random transactions, each in a thread."""

    def __init__(self, dsn: str, number: int, seed: int) -> None:
        self._dsn = dsn
        self._end = threading.Event()
        self.commits = 0
        self.aborts = 0
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._write, args=(seed + each,)) for each in range(number)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _write(self, seed: int) -> None:
        chance = random.Random(seed)
        try:
            with psycopg.connect(self._dsn, autocommit=False) as connection:
                while not self._end.is_set():
                    try:
                        self._transaction(connection, chance)
                        self.commits += 1
                    except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation, _Abort):
                        connection.rollback()
                        self.aborts += 1
        except psycopg.Error as error:
            self.failures.append(str(error))

    def _transaction(self, connection: psycopg.Connection[Any], chance: random.Random) -> None:
        for _ in range(chance.randint(1, 50) if chance.random() < 0.5 else chance.randint(1, 3)):
            key, roll = chance.choice(KEYS), chance.random()
            n, public = chance.randint(0, 1000), chance.random() < 0.8
            if roll < 0.6:
                connection.execute(
                    "insert into rows (id, n, text, public) values (%s, %s, %s, %s) on conflict (id)"
                    " do update set n = excluded.n, public = excluded.public",
                    (key, n, "é\n" * chance.randint(0, 5), public),
                )
            elif roll < 0.75:
                connection.execute("delete from rows where id = %s", (key,))
            elif roll < 0.9:
                connection.execute("update rows set n = %s, secret = 'y' where id = %s", (n, key))
            else:
                connection.execute("savepoint one")
                connection.execute("update rows set n = n + 1 where id = %s", (key,))
                connection.execute("rollback to one" if chance.random() < 0.5 else "release one")
            if chance.random() < 0.05:
                # A transaction that began earlier than others and changes rows later.
                self._end.wait(chance.random() / 30)
        if chance.random() < 0.2:
            raise _Abort
        connection.commit()


class _Abort(Exception):
    """Transaction that its writer gives up."""


def differing(hub: SoftHub, source: RecordingSource) -> list[int]:
    """Return the versions that the follower saw and that were no state of the table."""
    assert set(hub.versions) <= set(source.states), "a version that no poll was"
    return [version for version, table in hub.versions.items() if table != source.states[version]]


async def under_writers(cluster: Cluster, polls: int, events: int, seed: int) -> tuple[SoftHub, RecordingSource, int]:
    """Run the ingester under 12 writers; return hub, source and the number of snapshots that were compared."""
    await set_up(cluster.dsn)
    snapshots: dict[int, dict[str, Any]] = {}
    async with SoftHub() as hub:
        source = RecordingSource(cluster.dsn)
        client = IngestClient(hub.url, "t")
        ingester = Ingester(source, client, interval=0.05, gather=0.005)

        async def snapshot() -> tuple[int, dict[str, Any]] | None:
            return await read_snapshot(cluster.dsn)

        try:
            async with running(ingester):
                await until(lambda: ingester.resets == 1, "the first reset")
                deadline = time.monotonic() + PATIENCE
                while not await hub.follow(snapshot):
                    assert time.monotonic() < deadline
                with Writers(cluster.dsn, 12, seed) as writers:
                    while ingester.polls < polls or ingester.events < events:
                        assert time.monotonic() < deadline + PATIENCE
                        found = await snapshot()
                        if found is not None:
                            snapshots[found[0]] = found[1]
                        await asyncio.sleep(0.02)
                assert writers.failures == []
                assert min(writers.commits, writers.aborts) > 20
                last = ingester.polls
                await until(lambda: ingester.polls >= last + 2, "the last poll")
        finally:
            await client.close()
        for version, state in snapshots.items():
            assert state == source.states[version], f"the snapshot of version {version} is no state of the table"
        return hub, source, len(snapshots)


async def test_each_version_is_a_state_of_the_table(database: Cluster) -> None:
    hub, source, snapshots = await under_writers(database, 150, 2000, 1)
    assert differing(hub, source) == []
    assert (hub.resyncs, len(hub.versions) > 140, hub.seen > 1000, snapshots > 20) == ([], True, True, True)
    with psycopg.connect(database.dsn) as connection:
        row = connection.execute("select count(*) from griphub.public_rows_outbox").fetchone()
    assert row is not None
    assert row[0] < hub.seen / 2, "the outbox is trimmed"


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("order by transaction id", "order by k, seq desc) changed", "order by k, xid desc, seq desc) changed"),
        ("ids above the last", "xid >= pg_snapshot_xmin(%(before)s", "xid >= pg_snapshot_xmax(%(before)s"),
        ("what is visible now", "and pg_visible_in_snapshot(xid, %(now)s::pg_snapshot)", ""),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_a_wrong_poll_is_noticed(
    database: Cluster, monkeypatch: pytest.MonkeyPatch, name: str, right: str, wrong: str
) -> None:
    query = postgresql_sql.page
    assert right in query(VIEW)
    monkeypatch.setattr(postgresql_sql, "page", lambda view: query(view).replace(right, wrong))
    hub, source, _ = await under_writers(database, 60, 500, 2)
    assert differing(hub, source) != [], f"not noticed: {name}"


@contextlib.asynccontextmanager
async def followed(cluster: Cluster, hub: SoftHub) -> AsyncIterator[tuple[Ingester, RecordingSource]]:
    """Run an ingester, and a follower that reads a snapshot whenever it has to."""
    source = RecordingSource(cluster.dsn)
    client = IngestClient(hub.url, "t")
    ingester = Ingester(source, client, interval=0.05, gather=0.0)

    async def follow() -> None:
        while True:
            if not hub.followed:
                with contextlib.suppress(psycopg.Error):
                    await hub.follow(lambda: read_snapshot(cluster.dsn))
            await asyncio.sleep(0.02)

    follower = asyncio.ensure_future(follow())
    try:
        async with running(ingester):
            yield ingester, source
    finally:
        follower.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await follower
        await client.close()


def row(key: str, n: int) -> str:
    return (
        f"insert into rows values ('{key}', {n}, 't', 'x', true)"
        f" on conflict (id) do update set n = excluded.n, public = excluded.public"
    )


async def test_keys_conditions_and_columns(database: Cluster) -> None:
    await set_up(database.dsn)
    async with SoftHub() as hub, followed(database, hub) as (_, source):
        await until(lambda: hub.followed, "a follower")
        database.execute(row("a", 1), row("b", 2))
        await until(lambda: hub.table.keys() == {"a", "b"}, "two rows")
        assert hub.table["a"] == {"id": "a", "n": 1, "text": "t"}, "the key's columns, and no secret"
        seen = hub.seen
        database.execute("update rows set secret = 'z'", "update rows set n = 3 where id = 'b'")
        await until(lambda: hub.table.keys() == {"a"}, "a row leaves the view by its condition")
        assert hub.seen == seen + 1, "a change of other columns is none"
        database.execute("update rows set id = 'c' where id = 'a'", "update rows set n = 4 where id = 'b'")
        await until(lambda: hub.table.keys() == {"b", "c"}, "a new key, and a row that enters the view")
        database.execute("begin; delete from rows where id = 'c'; " + row("c", 9) + "; commit")
        await until(lambda: hub.table["c"]["n"] == 9, "deleted and put in one transaction")
        database.execute(f"insert into rows values ('{'k' * 2000}', 1, 't', 'x', true)")
        database.execute("insert into rows values ('large', 1, repeat('x', 2000000), 'x', true)")
        await until(lambda: "large" in hub.table, "a row that is too large")
        assert hub.table["large"] is None
        assert all(len(key) < 2000 for key in hub.table), "a key that is too long is left out"
        assert [
            v for v in differing(hub, source) if "large" not in source.states[v] and len(source.states[v]) < 3
        ] == []


async def test_truncate_is_a_resync(database: Cluster) -> None:
    await set_up(database.dsn)
    database.execute(row("a", 1), row("b", 2))
    async with SoftHub() as hub, followed(database, hub) as (ingester, source):
        await until(lambda: hub.table.keys() == {"a", "b"}, "two rows")
        database.execute("begin; truncate rows; " + row("c", 1) + "; commit")
        await until(lambda: hub.table.keys() == {"c"}, "the row after it")
        assert (hub.resyncs, ingester.resets) == (["reset"], 2)
        assert differing(hub, source) == []


async def test_a_large_transaction_comes_in_several_requests(database: Cluster) -> None:
    await set_up(database.dsn)
    async with SoftHub() as hub, followed(database, hub) as (_, source):
        await until(lambda: hub.followed, "a follower")
        requests = hub.requests
        hub.faults = [0, 503, -503]
        database.execute("insert into rows select 'k' || g, 7 * g, 't', 'x', true from generate_series(1, 23000) g")
        await until(lambda: len(hub.table) == 23_000, "all rows")
        assert hub.requests - requests >= 7
        assert differing(hub, source) == []
        assert hub.seen == 23_000, "requests that were repeated gave no event twice"


async def test_a_hub_that_restarts_costs_a_resync(database: Cluster) -> None:
    await set_up(database.dsn)
    async with SoftHub() as hub, followed(database, hub) as (ingester, source):
        await until(lambda: hub.followed, "a follower")
        with Writers(database.dsn, 3, 5):
            for _ in range(5):
                polls = ingester.polls
                await until(lambda at=polls: ingester.polls > at + 5 and hub.followed, "polls")  # type: ignore[misc]
                hub.restart()
        polls = ingester.polls
        await until(lambda: ingester.polls > polls + 2 and hub.followed, "polls")
        assert ingester.resets == 1
        assert differing(hub, source) == []


async def test_a_window_that_is_too_small_costs_a_resync(database: Cluster) -> None:
    await set_up(database.dsn)
    async with SoftHub(WindowBounds(events=1000)) as hub, followed(database, hub) as (ingester, source):
        await until(lambda: hub.followed, "a follower")
        database.execute("insert into rows select 'k' || g, 7 * g, 't', 'x', true from generate_series(1, 6000) g")
        await until(lambda: len(hub.table) == 6000, "all rows")
        assert hub.resyncs[0] == "full"
        assert differing(hub, source) == []
        assert ingester.resets <= 2


async def test_a_restart_repeats_the_last_version(database: Cluster) -> None:
    await set_up(database.dsn)
    async with SoftHub() as hub:
        for number in range(1, 6):
            async with followed(database, hub) as (ingester, source):
                await until(lambda: hub.followed, "a follower")
                database.execute(row("a", number * 7))
                await until(lambda at=number: hub.table.get("a", {}).get("n") == at * 7, "the row")  # type: ignore[misc]
                assert ingester.resets == (1 if number == 1 else 0)
                assert [v for v in hub.versions if v in source.states and hub.versions[v] != source.states[v]] == []
        assert hub.resyncs == []


async def test_a_version_cut_off_in_its_middle_is_given_again_equal(database: Cluster) -> None:
    await set_up(database.dsn)
    async with SoftHub() as hub:
        async with followed(database, hub) as (ingester, _):
            await until(lambda: hub.followed, "a follower")
            hub.cut = True
            database.execute("insert into rows select 'k' || g, 7 * g, 't', 'x', true from generate_series(1, 12000) g")
            await until(lambda: len(hub.window) > 0, "the first lines")
        hub.cut = False
        database.execute("update rows set n = 14", "delete from rows where id = 'k7'")
        async with followed(database, hub) as (ingester, source):
            await until(lambda: len(hub.table) == 11_999 and hub.table["k1"]["n"] == 14, "all rows")
            assert (ingester.resets, hub.resyncs) == (0, [])
            assert differing_known(hub, source) == []


def differing_known(hub: SoftHub, source: RecordingSource) -> list[int]:
    return [v for v, table in hub.versions.items() if v in source.states and table != source.states[v]]


async def test_a_second_ingester_waits(database: Cluster) -> None:
    await set_up(database.dsn)
    async with SoftHub() as hub, followed(database, hub) as (ingester, _):
        await until(lambda: ingester.resets == 1, "the first")
        second = Source(database.dsn, VIEW)
        await second.connect()
        try:
            with pytest.raises(NotReady, match="another ingester of view public_rows is at work"):
                await second.prepare()
        finally:
            await second.close()


async def test_a_database_that_cannot_be_followed_says_why(database: Cluster) -> None:
    source = Source(database.dsn, VIEW)
    await source.connect()
    try:
        with pytest.raises(NotReady, match="is not set up: start once with --setup"):
            await source.prepare()
        await source.set_up()
        assert VIEW.digest in await source.prepare()
        other = View("public_rows", "rows", "id", ("id", "n"), "public")
        changed = Source(database.dsn, other)
        await changed.connect()
        with pytest.raises(NotReady, match="set up with another definition"):
            await changed.prepare()
        await changed.close()
        await source.remove()
        for column in ("n", "text"):
            wrong = Source(database.dsn, View("v", "rows", column, ("id",)))
            await wrong.connect()
            with pytest.raises(NotReady, match="needs to be not null and have a unique index"):
                await wrong.set_up()
            await wrong.close()
    finally:
        await source.close()


async def test_a_failover_is_a_resync(database: Cluster) -> None:
    await set_up(database.dsn)
    folder = database.folder.parent / "two"
    folder.mkdir()
    standby = Cluster(folder)
    async with SoftHub() as hub:
        async with followed(database, hub) as (ingester, _):
            database.execute(row("a", 7), row("b", 14))
            await until(lambda: hub.table.keys() == {"a", "b"}, "two rows")
            standby.copy_of(database)
            # The standby does not get this row any more.
            database.execute(row("lost", 1))
            await until(lambda: "lost" in hub.table, "a row that is lost")
        try:
            settings = standby.data / "postgresql.auto.conf"
            settings.write_text("\n".join(line for line in settings.read_text().splitlines() if "conninfo" not in line))
            standby.start()
            source = Source(standby.dsn, VIEW)
            await source.connect()
            with pytest.raises(NotReady, match="is a standby"):
                await source.prepare()
            await source.close()
            standby.promote()
            async with followed(standby, hub) as (ingester, recorded):
                await until(lambda: hub.table.keys() == {"a", "b"}, "the rows of the new primary")
                assert (ingester.resets, hub.resyncs) == (1, ["reset"])
                standby.execute(row("c", 1))
                await until(lambda: "c" in hub.table, "a new row")
                assert differing_known(hub, recorded) == []
        finally:
            standby.stop()


async def test_files_put_back_are_a_resync(database: Cluster) -> None:
    await set_up(database.dsn)
    async with SoftHub() as hub, followed(database, hub) as (ingester, source):
        database.execute(row("a", 7))
        await until(lambda: "a" in hub.table, "a row")
        database.stop()
        try:
            database.save("saved")
        finally:
            database.start()
        await until(lambda: hub.followed, "a follower")
        database.execute(row("lost", 1))
        await until(lambda: "lost" in hub.table, "a row that is lost")
        polls = ingester.polls
        await until(lambda: ingester.polls > polls + 5, "some versions")
        resets = ingester.resets
        database.stop()
        database.restore("saved")
        database.start()
        await until(lambda: hub.table.keys() == {"a"}, "the rows that were put back")
        assert ingester.resets == resets + 1
        database.execute(row("b", 1))
        await until(lambda: "b" in hub.table, "a new row")
        assert hub.table == source.states[max(source.states)]


async def output(command: list[str]) -> str:
    """Return the output of a command that succeeds."""
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


async def test_the_command(database: Cluster) -> None:
    words = ["--dsn", database.dsn, "--view", VIEW.name, "--table", "rows", "--key", "id", "--columns", "id,n,text"]
    words += ["--where", VIEW.where]
    command = [sys.executable, "-m", "griphub.ingesters.postgresql", *words]
    assert f"create trigger {quoted('griphub_public_rows_note')}" in await output([*command, "--print-sql"])
    async with SoftHub() as hub:
        process = await asyncio.create_subprocess_exec(
            *command, "--setup", "--hub", hub.url, "--topic", "t", stderr=asyncio.subprocess.PIPE, env=os.environ
        )
        try:
            await until(lambda: hub.requests > 0, "a request")
            await until(lambda: hub.window.size == 0, "an empty window")
            deadline = time.monotonic() + PATIENCE
            while not await hub.follow(lambda: read_snapshot(database.dsn)):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            database.execute(row("a", 7))
            await until(lambda: "a" in hub.table, "a row")
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode == 0, log.decode()
        assert "reset: version=1 reason=first start" in log.decode()
    await output([*command, "--remove"])
    with psycopg.connect(database.dsn) as connection:
        assert connection.execute("select to_regclass('griphub.public_rows_outbox')").fetchone() == (None,)
