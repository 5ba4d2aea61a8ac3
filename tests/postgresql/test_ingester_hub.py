"""The PostgreSQL ingester and a hub as real processes: each version that a watcher of the topic sees is a state."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import psycopg
import pytest

from griphub.ingesters.ingest_client import IngestClient
from griphub.ingesters.postgresql import Ingester
from tests.postgresql.test_ingester import TABLE, RecordingSource, Writers, read_snapshot, running, set_up, until
from tests.support.hub import HubSite, hub_site
from tests.support.postgresql import Cluster


@pytest.fixture(scope="module")
def database() -> Iterator[Cluster]:
    # Not below the folder of pytest, which other users may not enter.
    with tempfile.TemporaryDirectory(prefix="ingester-") as name:
        pathlib.Path(name).chmod(0o755)
        folder = pathlib.Path(name, "one")
        folder.mkdir()
        cluster = Cluster(folder)
        cluster.initialise()
        try:
            cluster.start()
            cluster.execute(TABLE)
            yield cluster
        finally:
            cluster.stop()


class Table:
    """Table that a watcher keeps: a snapshot of the source, then the changes of the topic.

    Attributes:
        versions: the table at each progress.
        resyncs: reasons for which a snapshot was needed.
    """

    def __init__(self, site: HubSite, dsn: str) -> None:
        self._url, self._dsn = f"{site.url}/topics/t/watch", dsn
        self.table: dict[str, Any] = {}
        self.versions: dict[int, dict[str, Any]] = {}
        self.resyncs: list[str] = []

    async def follow(self, session: aiohttp.ClientSession) -> None:
        """Follow until cancelled."""
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                found = await read_snapshot(self._dsn)
                if found is not None:
                    version, self.table = found
                    await self._watch(session, version)
            await asyncio.sleep(0.05)

    async def _watch(self, session: aiohttp.ClientSession, version: int) -> None:
        async with session.get(self._url, params={"version": str(version)}) as response:
            if response.status != 200:
                return
            async for text in response.content:
                if text.strip():
                    self._take(json.loads(text))

    def _take(self, line: dict[str, Any]) -> None:
        match line["type"]:
            case "event" if line["op"] == "delete":
                self.table.pop(line["key"], None)
            case "event":
                self.table[line["key"]] = line["data"]
            case "progress":
                self.versions[int(line["version"])] = dict(self.table)
            case "resync":
                self.resyncs.append(line["reason"])


@contextlib.asynccontextmanager
async def kept(table: Table) -> AsyncIterator[None]:
    """Keep a table for the time of the block."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        following = asyncio.ensure_future(table.follow(session))
        try:
            yield
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following


async def test_each_version_of_a_watch_is_a_state_of_the_table_also_over_a_restart_of_the_hub(
    database: Cluster,
) -> None:
    await set_up(database.dsn)
    source = RecordingSource(database.dsn)
    with hub_site() as site:
        settings = {"store": "none", "progress": 1}
        async with aiohttp.ClientSession() as session, session.put(f"{site.url}/topics/t", json=settings) as made:
            assert made.status == 201
        client = IngestClient(site.url, "t")
        ingester = Ingester(source, client, interval=0.05, gather=0.005)
        table = Table(site, database.dsn)
        try:
            async with running(ingester), kept(table):
                await until(lambda: len(table.versions) > 0, "progress")
                with Writers(database.dsn, 12, 3) as writers:
                    await until(lambda: len(table.versions) > 40, "versions")
                    await asyncio.to_thread(site.kill, "hub")
                    seen, resyncs = len(table.versions), len(table.resyncs)
                    await until(lambda: len(table.resyncs) > resyncs, "a resync")
                    await until(lambda: len(table.versions) > seen + 40, "further versions")
                assert writers.failures == []
                polls = ingester.polls
                await until(lambda: ingester.polls > polls + 2, "the last poll")
                await until(lambda: max(table.versions) >= max(source.states) - 1, "the last version")
        finally:
            await client.close()
    compared = [version for version in table.versions if version in source.states]
    assert len(compared) > 80
    assert [version for version in compared if table.versions[version] != source.states[version]] == []
    with psycopg.connect(database.dsn) as connection:
        found = connection.execute("select count(*) from rows where public").fetchone()
    assert found is not None
    assert found[0] > 0
