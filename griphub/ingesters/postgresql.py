"""Ingester for PostgreSQL: gives the changes of a view to a soft topic of a hub.

    python -m griphub.ingesters.postgresql --dsn … --hub URL --topic T --view NAME --table TABLE --key COLUMN \
        --columns a,b,c [--where CONDITION] [--setup]

``--setup`` makes the outbox and its triggers (``--print-sql`` prints them), ``--remove`` removes them. Each poll is a
version: the rows of the outbox that are visible now and were not at the last poll, so whole transactions, and a state
of the table. Commits wake it by NOTIFY, and it polls each second anyway. Progress follows each poll, also an empty one.

TRUNCATE, a failover, a restore, an upgrade to another cluster and a new definition of the view are resets: followers
read a snapshot. ``NAME_snapshot`` is the view at the last answered version: in one transaction, repeatable read,

    lock table griphub.NAME_snapshot in access share mode;
    set local timezone = 'UTC';
    select version from griphub.NAME_snapshot limit 1;
    select key, data from griphub.NAME_snapshot where key is not null;

and no row of the first query asks to try again in a second. The ingester needs the primary, and a table with a unique
key that is not deferrable, of a type whose text does not depend on settings. The condition looks at the columns of one
row only; names of functions in it need their schema, and the result of a function must not change by itself, as that of
``now()`` does. Writers need no rights on the outbox. Its rows stay until the hub has answered: while the ingester is
away, they take space. NOTIFY makes commits of writers wait for each other for a moment; ``--setup --no-notify`` leaves
it out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
from collections.abc import Sequence
from typing import Final

import psycopg

from griphub.client.retry import Backoff
from griphub.ingesters import postgresql_sql as statements
from griphub.ingesters.ingest_client import IngestClient, Rejected, one_line
from griphub.ingesters.ingest_request import Ingested, Verdict, append_line, progress_line, reset_line
from griphub.ingesters.marks import Begin, Mark, Step, after_answer, begin, reset_version
from griphub.ingesters.postgresql_source import NotReady, Source
from griphub.ingesters.postgresql_view import BadView, View

__all__ = ["Ingester", "main"]

log = logging.getLogger("griphub.ingest")

INTERVAL: Final = 1.0
"""Seconds between two polls without a commit."""

GATHER: Final = 0.02
"""Seconds that a poll waits for further commits after the first."""

TRIM_EVERY: Final = 10
"""Polls between two times that the outbox is trimmed."""


class Ingester:
    """Ingester of one view.

    Args:
        source: the database.
        client: the hub.
        interval: seconds between two polls without a commit.
        gather: seconds that a poll waits for further commits after the first.
    """

    def __init__(
        self, source: Source, client: IngestClient, *, interval: float = INTERVAL, gather: float = GATHER
    ) -> None:
        self._source = source
        self._client = client
        self._interval = interval
        self._gather = gather
        self._name = ""
        """Name of the source, with the definition of the view."""
        self._mark: Mark | None = None
        self._epoch = ""
        """Epoch of the hub's window."""
        self._stored = 0
        """Version being given of the mark that is stored."""
        self.polls = 0
        """Number of versions that were given, since the start."""
        self.events = 0
        """Number of events that were given, since the start."""
        self.resets = 0
        """Number of resets, since the start."""

    async def follow(self) -> None:
        """Connect, and give versions until an error or a cancellation.

        Raises:
            NotReady: the database cannot be followed now.
            Rejected: the hub does not understand the requests.
            psycopg.Error: the database failed.
        """
        try:
            await self._source.connect()
            self._name = await self._source.prepare()
            self._mark = await self._source.mark()
            self._stored = self._mark.next_version if self._mark is not None else 0
            step = begin(self._mark, self._name)
            if self._mark is None or step.begin is Begin.RESET:
                await self._reset(step.reason)
            else:
                await self._give(self._mark)
            while True:
                if await self._source.wait(self._interval) and self._gather:
                    await asyncio.sleep(self._gather)
                await self.poll()
        finally:
            await self._source.close()

    async def poll(self) -> None:
        """Give the state of this moment as a version.

        Raises:
            NotReady: another ingester is at work.
            Rejected: the hub does not understand the requests.
            psycopg.Error: the database failed.
        """
        if self._mark is None or self._mark.snapshot is None:
            raise NotReady("no version was given yet")
        before = self._mark.snapshot
        now = await self._source.snapshot()
        if await self._source.truncated(before, now):
            await self._reset("the table was truncated")
            return
        await self._give(await self._store(self._mark.following(now)))
        self.polls += 1
        if self.polls % TRIM_EVERY == 0:
            # Rows behind the stored version stay: its successor may have to be repeated.
            await self._source.trim(before)

    async def _store(self, mark: Mark) -> Mark:
        await self._source.store(mark, self._stored)
        self._stored = mark.next_version
        return mark

    async def _give(self, mark: Mark) -> None:
        """Give the version of a mark that is stored, from its first line, until it is answered."""
        backoff = Backoff()
        while True:
            try:
                answer = await self._lines(mark)
            except Rejected as error:
                if error.verdict is Verdict.RESTART:
                    log.warning("version-restarted: version=%d reason=%s", mark.next_version, one_line(error))
                    await asyncio.sleep(backoff.pause(random.random()))
                    continue
                if error.verdict is Verdict.RESET:
                    await self._reset(str(error))
                    return
                raise
            self._mark = mark.answered()
            if answer.epoch != self._epoch:
                # Its followers need a snapshot, and one of an older version is below their floor.
                self._epoch = answer.epoch
                await self._store(self._mark)
            step = after_answer(mark, answer.progress)
            if step is not None:
                await self._reset(step.reason, answer.progress)
            return

    async def _lines(self, mark: Mark) -> Ingested:
        """Send the changes of a version, and its progress with the last of them."""
        version = mark.next_version
        lines: list[bytes] = []
        epoch: str | None = None
        if mark.snapshot is not None:
            async for changes in self._source.pages(mark.snapshot, mark.next_snapshot):
                if lines:
                    epoch = (await self._client.send(b"".join(lines), epoch)).epoch
                lines = []
                for change in changes:
                    line, reason = append_line(change, version)
                    if reason:
                        log.warning("value-omitted: key=%r version=%d reason=%s", change.key, version, reason)
                    lines.append(line)
                self.events += len(lines)
        return await self._client.send(b"".join([*lines, progress_line(version)]), epoch)

    async def _reset(self, reason: str, progress: int | None = None) -> None:
        """Begin anew: followers read a snapshot at a version that is given without events."""
        backoff = Backoff()
        while True:
            version = reset_version(self._stored, progress)
            log.warning("reset: version=%d reason=%s", version, one_line(reason))
            # Without an answered version: after a crash the reset is repeated.
            mark = await self._store(Mark(self._name, None, None, version, await self._source.snapshot()))
            self.resets += 1
            self._mark = mark
            answer = await self._client.send(reset_line() + progress_line(version))
            self._epoch = answer.epoch
            self._mark = await self._store(mark.answered())
            step: Step | None = after_answer(mark, answer.progress)
            if step is None:
                return
            # Another program gives versions for the topic.
            reason, progress = step.reason, answer.progress
            await asyncio.sleep(backoff.pause(random.random()))


# --- command


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of the command.

    Args:
        words: the words; None for those of the process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m griphub.ingesters.postgresql",
        description="Gives the changes of a view of a PostgreSQL database to a soft topic of a hub.",
        epilog="The bearer token for the hub is read from the environment: GRIPHUB_TOKEN.",
        allow_abbrev=False,
    )
    parser.add_argument("--dsn", default="", help="connection string of libpq; the rest comes from PGHOST and the like")
    parser.add_argument("--hub", metavar="URL", help="URL of the hub with the prefix of its route")
    parser.add_argument("--topic", metavar="T", help="name of the soft topic, which no other ingester feeds")
    parser.add_argument("--view", metavar="NAME", required=True, help="name of the view that is published")
    parser.add_argument("--table", metavar="TABLE", required=True, help="table or schema.table")
    parser.add_argument("--key", metavar="COLUMN", required=True, help="unique column: the key of events")
    parser.add_argument("--columns", metavar="A,B", required=True, help="columns that are published")
    parser.add_argument("--where", metavar="SQL", default="", help="condition on the columns of a row")
    parser.add_argument("--schema", metavar="NAME", default="griphub", help="schema of the outbox (griphub)")
    parser.add_argument("--interval", type=float, default=INTERVAL, help="seconds between polls without a commit (1)")
    parser.add_argument("--no-notify", action="store_true", help="with --setup: commits do not wake the ingester")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--setup", action="store_true", help="make outbox and triggers first, or make them anew")
    mode.add_argument("--print-sql", action="store_true", help="print the statements of --setup, and end")
    mode.add_argument("--remove", action="store_true", help="remove outbox and triggers, and end")
    options = parser.parse_args(words)
    if not (options.print_sql or options.remove) and not (options.hub and options.topic):
        parser.error("--hub and --topic are needed")
    if not 0.01 <= options.interval <= 3600:
        parser.error(f"--interval {options.interval}: expected 0.01 to 3600 seconds")
    return options


async def _run(view: View, options: argparse.Namespace) -> None:
    if options.remove or options.setup:
        await _prepare(view, options)
        if options.remove:
            return
    client = IngestClient(options.hub, options.topic, os.environ.get("GRIPHUB_TOKEN"))
    ingester = Ingester(Source(options.dsn, view), client, interval=options.interval)
    backoff = Backoff()
    try:
        while True:
            polls = ingester.polls
            try:
                await ingester.follow()
            except (NotReady, psycopg.Error) as error:
                if ingester.polls > polls:
                    backoff.reset()
                pause = backoff.pause(random.random())
                log.warning("source-away: pause=%.1f reason=%s", pause, one_line(error))
                await asyncio.sleep(pause)
    finally:
        await client.close()


async def _prepare(view: View, options: argparse.Namespace) -> None:
    source = Source(options.dsn, view, notify=not options.no_notify)
    try:
        await source.connect()
        await (source.remove() if options.remove else source.set_up())
    finally:
        await source.close()


async def _until_signal(view: View, options: argparse.Namespace) -> None:
    task = asyncio.ensure_future(_run(view, options))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main(words: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        words: its arguments; None for those of the process.

    Returns:
        The exit status: 1 after an error that no repetition cures.
    """
    options = arguments(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        columns = tuple(column.strip() for column in options.columns.split(","))
        view = View(options.view, options.table, options.key, columns, options.where, options.schema)
        if options.print_sql:
            print(";\n\n".join(statements.setup(view, notify=not options.no_notify)) + ";")
            return 0
        asyncio.run(_until_signal(view, options))
    except (BadView, NotReady, Rejected, psycopg.Error, ValueError) as error:
        print(f"postgresql ingester: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
