"""Push API as a part of the hub: its objects, made from the configuration, and their tasks."""

from __future__ import annotations

import asyncio
import pathlib
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

import zmq

from griphub.access.patterns import Patterns
from griphub.api.backlog_counts import BacklogCounts
from griphub.api.context import Context
from griphub.api.feed import Feed
from griphub.api.identity_keys import IdentityKeys
from griphub.api.pubsub_feed import PubsubBounds, PubsubFeed
from griphub.api.pubsub_messages import PubsubMessages
from griphub.api.pubsub_requests import PubsubRequests
from griphub.api.pubsub_subscriptions import PubsubSubscriptions
from griphub.api.pubsub_topics import PubsubTopics
from griphub.api.pull_channels import PullChannels
from griphub.api.push_identity import PushIdentity
from griphub.api.push_stats import PushStats
from griphub.api.topics import Topics
from griphub.notify.stats_publisher import StatsPublisher
from griphub.processes.readers import ReaderPool
from griphub.processes.sender import SenderProcess
from griphub.processes.writer import WriterProcess
from griphub.pubsub.ack_id import AckIds
from griphub.sender.signing_keys import signing_keys_of
from griphub.store.event import Draft
from griphub.store.publication import Published
from gripproxy.config import Config

__all__ = ["PushPart"]

STATS_INTERVAL: Final = 10.0
"""Seconds between two events of a push subscription if ``stats_report_interval`` is 0."""


class PushPart:
    """Objects of the push API. ``open``, ``start``, ``stop`` and ``close`` are called once each, in this order.

    Args:
        config: the configuration.
        writer: writing process of the store.
        readers: of the store.
        publish: publishes an item on a channel.
    """

    def __init__(
        self, config: Config, writer: WriterProcess, readers: ReaderPool, publish: Callable[[str, bytes], None]
    ) -> None:
        self._config = config
        self._writer = writer
        self._readers = readers
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._feed: PubsubFeed | None = None
        self._newest: Callable[[], int] = lambda: 0
        self._stats: StatsPublisher | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(
        self,
        secret: bytes,
        sender: Callable[[], SenderProcess],
        stored: Callable[[Published, Sequence[Draft]], None],
        newest: Callable[[], int],
    ) -> PubsubFeed:
        """Begin with the stored subscriptions.

        Args:
            secret: of the store, which signs ack ids.
            sender: returns the process of the sender.
            stored: called with the outcome of a dead letter's publication, and its event.
            newest: returns the id up to which the hub knows the events of the store.

        Returns:
            The subscriptions at work.

        Raises:
            OperatorError: a file of keys cannot be used.
            StoreError: the store cannot be read.
        """
        hub, store = self._config.hub, pathlib.Path(self._config.hub.store)
        signing = signing_keys_of(hub.push_signing_keys, pathlib.Path(self._config.directory))
        self._newest = newest
        feed = self._feed = PubsubFeed(
            self._writer,
            self._readers.pubsub,
            sender,
            newest,
            stored,
            PushIdentity(IdentityKeys(store, time.time), hub.hub_name, signing, self._loop.time),
            PullChannels(hub.prefix, self._publish, secrets.token_hex(4), hub.pulls_max),
            AckIds(secret),
            PubsubBounds(),
            self._loop.time,
            time.time,
        )
        await feed.open()
        return feed

    def requests(self, context: Context, feed: Feed) -> PubsubRequests:
        """Return the answers to requests of the API.

        Args:
            context: parts of the hub.
            feed: receiver of stored events.
        """
        names = [entry.partition(":")[0] for entry in self._config.hub.push_signing_keys]
        topics = PubsubTopics(context, Topics(context, Patterns(())))
        subscriptions = PubsubSubscriptions(context, topics, frozenset(names))
        return PubsubRequests(context, topics, subscriptions, PubsubMessages(context, feed))

    def start(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        """Begin with counts and statistics.

        Args:
            context: owner of ZeroMQ sockets.

        Raises:
            BindError: the address of the statistics cannot be used.
        """
        feed, handler, hub = self._feed, self._config.handler, self._config.hub
        assert feed is not None
        counts = BacklogCounts(feed.table, feed.figures, self._readers, self._newest)
        self._tasks.append(self._loop.create_task(counts.run(), name="count backlogs"))
        if hub.stats_spec:
            publisher = self._stats = StatsPublisher(context, json=handler.stats_format == "json")
            publisher.open(hub.stats_spec, handler.ipc_file_mode)
            stats = PushStats(feed.table, feed.figures, hub.hub_name, publisher.send, time.time)
            interval = handler.stats_report_interval or STATS_INTERVAL
            self._tasks.append(self._loop.create_task(_report(stats, interval), name="statistics"))

    def stop(self) -> None:
        """End counts and statistics."""
        for task in self._tasks:
            task.cancel()
        if self._stats is not None:
            self._stats.close()

    async def close(self) -> None:
        """Write the last states; called when the sender has ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._feed is not None:
            await self._feed.close()


async def _report(stats: PushStats, interval: float) -> None:
    while True:
        await asyncio.sleep(interval)
        for _ in stats.report():
            await asyncio.sleep(0)
