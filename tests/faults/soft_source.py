"""Source of a soft topic in this process: a table with versions, and snapshots over HTTP.

It is the truth of a run: transactions put and delete keys, a truncation removes a range without an event, and a
restore takes it back to an earlier version, from which on versions are given a second time, to other transactions.
"""

from __future__ import annotations

import random
from typing import Final, Self

from aiohttp import web

from tests.support.hub_records import Keys
from tests.support.soft_records import Commit, History

__all__ = ["CUTS", "Source"]

CUTS: Final = "bcdefgh"
"""Bounds at which ingesters may cut the keys."""

NAMES: Final = [f"{letter}{number}" for letter in "abcdefgh" for number in range(8)]
"""All keys."""

STEPS: Final = (1, 1, 1, 2, 7)
"""Differences between two versions."""


class Source:
    """A source, and its server.

    Args:
        history: takes its timelines.
        chance: decides transactions.

    Attributes:
        history: of the run.
        url: of its snapshots.
        reached: version up to which ingesters have given everything.
        serving: whether it is there; it is not while it is being restored.
        snapshots: number of snapshots that were given.
    """

    def __init__(self, history: History, chance: random.Random) -> None:
        self.history: Final = history
        self._chance = chance
        self.url = ""
        self.reached = 0
        self.serving = True
        self.snapshots = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_get("/snapshot", self._snapshot)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/snapshot"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def version(self) -> int:
        """Newest version."""
        return self.history.source.newest

    # --- transactions

    def commit(self, size: int = 0) -> None:
        """Commit a transaction.

        Args:
            size: number of its changes; 0 for one by chance.
        """
        chance, version = self._chance, self._next()
        changes: dict[str, str | None] = {}
        for key in chance.sample(NAMES, size or chance.choice((1, 1, 2, 3, 5, 8, 20, 50))):
            # Not equal to that of the version in another timeline.
            value = f"{self.history.source.number}.{version}"
            changes[key] = None if chance.random() < 0.2 else value
        self.history.source.add(Commit(version, changes))

    def truncate(self) -> None:
        """Remove a range of keys, without an event for any."""
        low, high = sorted(self._chance.sample(range(len(CUTS) + 2), 2))
        bounds = [None, *CUTS, None]
        self.history.source.add(Commit(self._next(), {}, Keys(bounds[low], bounds[high])))

    def restore(self) -> None:
        """Return to an earlier version."""
        commits = self.history.source.commits
        self.history.restored(commits[-min(len(commits), self._chance.randint(2, 30))].version)
        self.reached = self.version

    def _next(self) -> int:
        return self.version + self._chance.choice(STEPS)

    # --- snapshots

    async def _snapshot(self, request: web.Request) -> web.Response:
        if not self.serving:
            return web.json_response({}, status=503)
        chance, query = self._chance, request.query
        # Mostly as far as the hub is, sometimes ahead of it, sometimes from a replica that is behind.
        version = self.version if chance.random() < 0.2 else self.reached
        if chance.random() < 0.2:
            older = self.history.source.between(0, version)[-60:]
            version = chance.choice(older).version if older else version
        self.snapshots += 1
        keys = Keys(query.get("low"), query.get("high"))
        table = self.history.source.state(version, keys)
        return web.json_response({"timeline": self.history.source.number, "version": version, "table": table})
