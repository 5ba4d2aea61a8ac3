"""The PostgreSQL ingester and the rows that a table may have: large ones, odd ones, keys, and those of a TRUNCATE."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import psycopg
import pytest

from griphub.ingesters.ingest_client import IngestClient
from griphub.ingesters.ingest_request import append_line
from griphub.ingesters.postgresql import Ingester
from griphub.ingesters.postgresql_source import NotReady, Source
from griphub.ingesters.postgresql_view import View
from griphub.windows.ingest_lines import DEFAULT_LIMITS
from griphub.windows.span import ALL
from tests.postgresql.test_ingester import cluster, read_snapshot, running, until
from tests.support.postgresql import Cluster
from tests.support.soft_hub import SoftHub

__all__ = ["cluster"]

NONE = ("drop schema if exists griphub cascade", "drop table if exists docs")


async def set_up(dsn: str, view: View) -> None:
    source = Source(dsn, view)
    await source.connect()
    try:
        await source.set_up()
    finally:
        await source.close()


@contextlib.asynccontextmanager
async def following(cluster: Cluster, view: View) -> AsyncIterator[tuple[SoftHub, Ingester]]:
    """A hub, and an ingester that is to be run."""
    async with SoftHub() as hub:
        client = IngestClient(hub.url, "t")
        try:
            yield hub, Ingester(Source(cluster.dsn, view), client, interval=0.05, gather=0.0)
        finally:
            await client.close()


async def pages_of(cluster: Cluster, view: View, *statements: str) -> list[list[bytes]]:
    """Return the lines of each page of some changes."""
    source = Source(cluster.dsn, view)
    await source.connect()
    try:
        before = await source.snapshot()
        cluster.execute(*statements)
        pages = source.pages(before, await source.snapshot())
        return [[append_line(change, 7)[0] for change in page] async for page in pages]
    finally:
        await source.close()


async def test_requests_with_long_texts_are_within_the_bound_of_a_hub(cluster: Cluster) -> None:
    cluster.execute(*NONE, "create table docs(id text primary key, body text)")
    view = View("docs", "docs", "id", ("body",))
    await set_up(cluster.dsn, view)
    text = "(select string_agg(chr(20000 + (i + n) % 5000), '') from generate_series(1, 280000) i)"
    pages = await pages_of(cluster, view, f"insert into docs select 'k' || n, {text} from generate_series(1, 20) n")
    assert sum(map(len, pages)) == 20
    assert max(sum(map(len, page)) for page in pages) <= DEFAULT_LIMITS.body
    assert len(pages) > 1


async def test_a_large_transaction_is_found_once_and_given_in_pages(cluster: Cluster) -> None:
    cluster.execute(*NONE, "create table docs(id text primary key, n int)")
    view = View("docs", "docs", "id", ("n",))
    await set_up(cluster.dsn, view)
    pages = await pages_of(cluster, view, "insert into docs select i::text, i from generate_series(1, 12345) i")
    assert [len(page) for page in pages] == [5000, 5000, 2345]
    lines = [line for page in pages for line in page]
    assert len(set(lines)) == 12345


async def test_a_row_that_no_event_can_have_holds_up_no_other(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.execute(*NONE, "create table docs(id text primary key, n numeric, doc jsonb)")
    view = View("docs", "docs", "id", ("n", "doc"))
    await set_up(cluster.dsn, view)
    async with following(cluster, view) as (hub, ingester):
        async with running(ingester):
            await until(lambda: ingester.resets > 0 and ingester.polls > 0, "the first reset")
            deep = '{"a":' * 70 + "1" + "}" * 70
            cluster.execute(
                f"insert into docs values ('deep', 1, '{deep}')",
                "insert into docs values ('great', 1" + "0" * 400 + ", null)",
                "insert into docs values ('plain', 1, null)",
            )
            await until(lambda: len(hub.window.read(ALL, (0, 0), 2**62, 100)) == 3, "all three rows")
        found = {event.key: event for event in hub.window.read(ALL, (0, 0), 2**62, 100)}
    assert found["plain"].data == b'{"n":1,"doc":null}'
    for key in ("deep", "great"):
        assert found[key].data == b"null"
        assert found[key].attributes["omitted"].endswith(" bytes")
        assert f"value-omitted: key='{key}'" in caplog.text


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        *((kind, True) for kind in ("text", "varchar(20)", "uuid", "bigint", "numeric", "inet", "word", "mood")),
        *((kind, False) for kind in ("timestamptz", "date", "interval", "float8", "bytea", "money", "day")),
    ],
)
async def test_keys_whose_texts_depend_on_the_session_are_refused(cluster: Cluster, kind: str, fits: bool) -> None:
    cluster.execute(
        *NONE,
        *("drop type if exists mood", "create type mood as enum ('fine', 'sad')"),
        *("drop domain if exists word", "create domain word as text"),
        *("drop domain if exists day", "create domain day as date"),
        f"create table docs(id {kind} primary key, n int)",
    )
    view = View("docs", "docs", "id", ("n",))
    if fits:
        await set_up(cluster.dsn, view)
    else:
        with pytest.raises(NotReady, match="whose text depends on settings of each session"):
            await set_up(cluster.dsn, view)


async def test_values_of_writers_with_other_settings_are_equal(cluster: Cluster) -> None:
    cluster.execute(*NONE, "create table docs(id text primary key, at timestamptz, length interval, raw bytea)")
    view = View("docs", "docs", "id", ("at", "length", "raw"))
    await set_up(cluster.dsn, view)
    with psycopg.connect(cluster.dsn, autocommit=True) as writer:
        writer.execute("set timezone to 'America/New_York'")
        writer.execute("set intervalstyle to 'iso_8601'")
        writer.execute("set bytea_output to 'escape'")
        async with following(cluster, view) as (hub, ingester):
            async with running(ingester):
                await until(lambda: ingester.resets > 0 and ingester.polls > 0, "the first reset")
                writer.execute("insert into docs values ('a', '2024-01-01 00:00:00+00', '1 day 02:00', 'x')")
                await until(lambda: ingester.events >= 1, "the insert")
                polls = ingester.polls
                await until(lambda: ingester.polls > polls + 2, "further polls")
            [event] = hub.window.read(ALL, (0, 0), 2**62, 100)
    found = await read_snapshot(cluster.dsn, view)
    assert found is not None
    assert found[1] == {"a": {"at": "2024-01-01T00:00:00+00:00", "length": "1 day 02:00:00", "raw": "\\x78"}}
    assert event.data == b'{"at":"2024-01-01T00:00:00+00:00","raw":"\\\\x78","length":"1 day 02:00:00"}'


async def test_a_snapshot_beside_a_truncation_is_a_state_of_its_version(cluster: Cluster) -> None:
    cluster.execute(*NONE, "create table docs(id text primary key, n int)")
    view = View("docs", "docs", "id", ("n",))
    await set_up(cluster.dsn, view)
    async with following(cluster, view) as (_, ingester):
        async with running(ingester):
            await until(lambda: ingester.resets > 0 and ingester.polls > 0, "the first reset")
            cluster.execute("insert into docs values ('a', 1), ('b', 2)")
            await until(lambda: ingester.events >= 2, "the insert")
            polls = ingester.polls
            await until(lambda: ingester.polls > polls + 2, "further polls")
        # The ingester rests: the stored version stays the same.
        before = await read_snapshot(cluster.dsn, view)
        assert before is not None
        assert sorted(before[1]) == ["a", "b"]
        async with await psycopg.AsyncConnection.connect(cluster.dsn) as truncating:
            await truncating.execute("truncate docs")
            reading = asyncio.ensure_future(read_snapshot(cluster.dsn, view))
            waiting = "select count(*) from pg_locks where not granted"
            async with await psycopg.AsyncConnection.connect(cluster.dsn, autocommit=True) as witness:
                count = 0
                while not count:
                    row = await (await witness.execute(waiting)).fetchone()
                    assert row is not None
                    count = row[0]
                    assert not reading.done(), "it waits for the table"
            await truncating.commit()
        found = await reading
    assert found is None or found == before, (before, found)


async def test_a_snapshot_does_not_wait_for_a_truncation_without_an_end(cluster: Cluster) -> None:
    cluster.execute(*NONE, "create table docs(id text primary key, n int)")
    view = View("docs", "docs", "id", ("n",))
    await set_up(cluster.dsn, view)
    async with await psycopg.AsyncConnection.connect(cluster.dsn) as truncating:
        await truncating.execute("truncate docs")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await read_snapshot(cluster.dsn, view)
