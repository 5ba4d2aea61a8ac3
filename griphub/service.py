"""Composition root of the hub process: makes its objects, opens them in order, and closes them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, cast

import uvloop
import zmq

from griphub.access.patterns import Patterns
from griphub.access.quota import Limit, Quotas
from griphub.access.rights import AnonymousAccess
from griphub.access.tokens import TokenVerifier, key_of
from griphub.api.application import HubApplication
from griphub.api.body_parser import BodyParser
from griphub.api.context import Context, HubCounters
from griphub.api.feed import Feed
from griphub.api.follow import Following
from griphub.api.ingest import IngestRequests
from griphub.api.keys import Keys
from griphub.api.mailbox_channel import MailboxChannels, is_mailbox
from griphub.api.mailbox_feed import MailboxFeed
from griphub.api.mailboxes import MailboxRequests
from griphub.api.publishing import Publishing
from griphub.api.pubsub_feed import PubsubFeed
from griphub.api.pull_channels import is_pull
from griphub.api.push_part import PushPart
from griphub.api.reading import Reading
from griphub.api.server import HubServer
from griphub.api.server_limits import ServerLimits
from griphub.api.snapshots import Snapshots
from griphub.api.soft_feed import SoftFeed
from griphub.api.soft_watch import SoftWatching
from griphub.api.subscription_feed import SubscriptionBounds, SubscriptionFeed
from griphub.api.subscriptions import SubscriptionRequests
from griphub.api.topics import Topics
from griphub.api.watch import Watching
from griphub.api.websockets import WebSockets
from griphub.callbacks.own_addresses import own_addresses
from griphub.mailboxes.bounds import Bounds
from griphub.mailboxes.mailboxes import Mailboxes
from griphub.notify.control_client import ControlAddress, ControlClient
from griphub.notify.held_channels import HeldChannels
from griphub.notify.outbox import Outbox, OutboxState
from griphub.processes.child import ChildLog
from griphub.processes.collector import KEEPING, settle_collector
from griphub.processes.progress_loop import ProgressLoop
from griphub.processes.readers import ReaderOptions, ReaderPool
from griphub.processes.retention_loop import RetentionLoop
from griphub.processes.sender import SenderProcess
from griphub.processes.sender_commands import SenderOptions
from griphub.processes.writer import WriterProcess
from griphub.processes.writer_options import WriterOptions
from griphub.sender.address_policy import AddressPolicy
from griphub.store.errors import StoreError, StoreProblem
from griphub.store.event import Draft, Event
from griphub.store.interface import StoreState
from griphub.store.publication import Published
from griphub.store.schema import Sync
from griphub.store.subscription import Subscription
from griphub.topics.channel_index import ChannelIndex
from griphub.topics.event_text import Epochs, Representation
from griphub.topics.fanout import FanOut
from griphub.topics.items import hint_item
from griphub.topics.leases import SnapshotLeases
from griphub.topics.ranges import parse_channel
from griphub.topics.topic_table import TopicTable
from griphub.windows.bounds import WindowBounds
from griphub.windows.window_table import WindowTable
from gripproxy.config import Config
from gripproxy.config.hub_section import split_token_key
from gripproxy.grip.errors import ClientError, OperatorError
from gripproxy.grip.signature import KeyProblem, Signer, load_key
from gripproxy.process.endpoints import BindError, listen_metrics, listen_tcp
from gripproxy.process.heap import keep_freed_memory
from gripproxy.process.hub_sockets import HUB_BODY_MAX, hub_control_socket, hub_socket, hub_sub_spec
from gripproxy.process.log import log
from gripproxy.process.supervised import Child

__all__ = ["Hub", "main"]

TICK: Final = 1.0
"""Seconds between two checks of leases and of the end of rights."""

MAILBOX_PAUSE: Final = 0.003
"""Seconds between two turns of deliveries to very many mailboxes: some times as long as a turn takes, for others."""

LEARNING_TIME: Final = 10.0
"""Seconds after the start in which subscriptions may be those of followers before it."""

FINISH_TIME: Final = 3.0
"""Seconds for the requests under way, and for the items that wait for the handler, after SIGTERM."""

RANGES_MAX: Final = 1_000_000
"""Distinct ranges of keys that have followers, of all owners."""

CHANGES: Final = Limit(100, 1000)
"""Changes of topics under way, of one owner and of all."""

READS_MAX: Final = 10_000
"""Greatest number of reads of the store that wait, of all owners."""

STORED_PAGE: Final = 1000
STORED_BYTES: Final = 4_000_000
"""Events, and bytes of them, that one read after a restart of the writer brings."""


class Hub:
    """All objects of the hub on the running event loop. ``open`` and ``close`` are called once each.

    Args:
        config: the configuration.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        hub = config.hub
        self._store = pathlib.Path(hub.store)
        self._child_log = ChildLog(config.log_level("hub"), config.log_file, config.runner.log_format == "json")
        self._index = ChannelIndex(hub.prefix)
        self._outbox = Outbox(self._hint_for, _body_max(config))
        self._control = ControlClient(_control_address(config), self._outbox, self._index.count)
        self._zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._writer = WriterProcess(
            self._store,
            WriterOptions(cast(Sync, hub.hub_sync), hub.ballast, hub.idempotency_max, log=self._child_log),
            on_return=self._returned,
        )
        self._readers = ReaderPool(
            self._store, hub.readers, ReaderOptions(READS_MAX, hub.pages_per_owner_max, log=self._child_log)
        )
        self._bodies = BodyParser(self._store, self._child_log)
        self._counters = HubCounters()
        self._exits = contextlib.AsyncExitStack()
        self._push = PushPart(config, self._writer, self._readers, self._control.publish)
        self._context: Context | None = None
        self._feed: Feed | None = None
        self._progress: ProgressLoop | None = None
        self._subscriptions: SubscriptionFeed | None = None
        self._soft: SoftFeed | None = None
        self._servers: list[HubServer] = []
        self._application: HubApplication | None = None
        self._held: HeldChannels | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ticks: asyncio.TimerHandle | None = None
        self._learned = self._loop.time() + LEARNING_TIME
        """Time from which reported subscriptions are those of new followers."""

    async def open(self) -> None:
        """Open the store, the way to the handler, and the listening sockets.

        Raises:
            BindError: an address is in use.
            KeyProblem: a key cannot be used.
            StoreProblem: the store cannot be used; ``StoreInUse``: another hub has it open.
        """
        config, hub = self._config, self._config.hub
        base = pathlib.Path(config.directory)
        keys = [key_of(*split_token_key(text), base) for text in hub.hub_key]
        verifier = TokenVerifier(keys, hub.hub_aud, cast(AnonymousAccess, hub.hub_anonymous))
        if self._store.exists():
            # Together: each of them takes a good part of a second to start.
            state, _ = await asyncio.gather(self._writer.start(), self._readers.start())
        else:
            state = await self._writer.start()
            await self._readers.start()
        context = self._context = await self._compose(state, verifier)
        feed = self._feed = Feed(context.fanout, self._counters, [context.mailboxes, context.subscriptions])
        following = Following(context)
        reading = Reading(context, following)
        publishing = Publishing(context, feed)
        self._application = HubApplication(
            context,
            Topics(context, Patterns(hub.hub_autocreate)),
            publishing,
            reading,
            Watching(context, following, reading),
            WebSockets(context, following, reading),
            Keys(context, publishing, reading),
            Snapshots(context, reading, following),
            MailboxRequests(context),
            SubscriptionRequests(context),
            SoftWatching(context, following, reading),
            IngestRequests(context.soft),
            self._push.requests(context, feed),
            load_key(config.proxy.sig_key, base) if hub.listen else None,
        )
        self._control.start(_signer(config, base))
        spec = hub.publish_sub or hub_sub_spec(config)
        self._held = HeldChannels(self._zmq, spec, hub.prefix, self._subscribed, self._index.unsubscribed)
        await self._listen(context)
        retention = RetentionLoop(
            self._writer, self._readers, context.topics, self._index, context.fanout, context.leases, self._loop.time
        )
        self._tasks.append(self._loop.create_task(retention.run(), name="retention"))
        self._push.start(self._zmq)
        self._ticks = self._loop.call_later(TICK, self._tick)

    async def _compose(self, state: StoreState, verifier: TokenVerifier) -> Context:
        hub = self._config.hub
        epochs = Epochs(state.intervals)
        topics = TopicTable()
        after = ""
        while page := await self._readers.topics(after, 1000, owner=""):
            for topic in page:
                topics.set(topic)
            after = page[-1].name
        fanout = FanOut(
            self._index,
            epochs,
            self._control.publish,
            state.newest,
            hub.content_max,
            publish_progress=self._control.publish_counted,
            bare_hints=bool(hub.publish),
        )
        progress = self._progress = ProgressLoop(self._writer, topics, fanout, self._waiting, time.time)
        await progress.open(state.newest_time)
        pubsub = await self._push.open(state.secret, self._sender, self._stored, lambda: fanout.stored)
        quotas = Quotas({"ranges": Limit(hub.ranges_per_owner_max, RANGES_MAX), "topic_changes": CHANGES})
        return Context(
            config=hub,
            state=state,
            epochs=epochs,
            topics=topics,
            index=self._index,
            fanout=fanout,
            progress=progress,
            writer=self._writer,
            readers=self._readers,
            bodies=self._bodies,
            verifier=verifier,
            quotas=quotas,
            leases=SnapshotLeases(hub.snapshot_leases_max),
            mailboxes=self._mailbox_feed(topics, epochs),
            subscriptions=await self._subscription_feed(topics, fanout, pubsub),
            pubsub=pubsub,
            soft=self._soft_feed(topics, quotas),
            callback_policy=AddressPolicy(hub.callback_allow, hub.callback_deny, own_addresses()),
            counters=self._counters,
            now=self._loop.time,
            wall=time.time,
            hint=self._hint,
        )

    def _sender(self) -> SenderProcess:
        assert self._subscriptions is not None
        return self._subscriptions.sender

    def _stored(self, published: Published, drafts: Sequence[Draft]) -> None:
        assert self._feed is not None
        self._feed.published(published, drafts)

    async def _subscription_feed(self, topics: TopicTable, fanout: FanOut, pubsub: PubsubFeed) -> SubscriptionFeed:
        hub = self._config.hub
        options = SenderOptions(
            hub.callback_allow,
            hub.callback_deny,
            hub.callback_ca and str(pathlib.Path(self._config.directory) / hub.callback_ca),
            hub.callback_timeout,
            hub.callback_tries,
            hub.callback_pause,
            hub.callback_pause_max,
            hub.callbacks_max,
            hub.callbacks_per_host_max,
            hub.callbacks_per_owner_max,
            hub.hub_name,
            hub.push_window_max,
            hub.pushes_max,
            hub.pushes_per_host_max,
            hub.pushes_per_owner_max,
        )
        bounds = SubscriptionBounds(
            hub.subscriptions_per_topic_max, hub.subscriptions_per_owner_max, hub.subscriptions_max
        )
        sender = partial(
            SenderProcess, self._store, options, lambda: fanout.stored, log_settings=self._child_log, push=pubsub.link
        )
        feed = self._subscriptions = SubscriptionFeed(
            topics, self._writer, sender, bounds, time.time, pubsub.table.follows
        )
        stored: list[Subscription] = []
        while page := await self._readers.subscriptions(stored[-1].number if stored else 0, 1000, owner=""):
            stored += page
        feed.open(stored)
        return feed

    def _soft_feed(self, topics: TopicTable, quotas: Quotas) -> SoftFeed:
        hub = self._config.hub
        bounds = WindowBounds(
            events=hub.soft_events_per_topic_max,
            bytes=hub.soft_bytes_per_topic_max,
            pieces=hub.soft_pieces_per_topic_max,
            ranges=hub.ranges_per_topic_max,
            windows_each=hub.soft_topics_per_owner_max,
            windows_total=hub.soft_topics_max,
            bytes_each=hub.soft_bytes_per_owner_max,
            bytes_total=hub.soft_bytes_max,
        )
        feed = self._soft = SoftFeed(
            # Windows are in memory: each start of the hub is another epoch.
            WindowTable(lambda: secrets.token_hex(8), bounds),
            topics,
            self._index,
            quotas,
            # All items of soft topics are for watchers, and most are progress.
            self._control.publish_counted,
            self._hint,
            self._waiting,
            time.time,
            hub.content_max,
            bare_hints=bool(hub.publish),
        )
        feed.open(topics)
        return feed

    def _mailbox_feed(self, topics: TopicTable, epochs: Epochs) -> MailboxFeed:
        hub = self._config.hub
        bounds = Bounds(
            hub.mailboxes_per_owner_max,
            keys_each=hub.keys_per_mailbox_max,
            keys_owner=hub.keys_per_owner_max,
            bytes_each=hub.mailbox_bytes_max,
        )
        # Mailboxes are in memory: each start of the hub is another publisher.
        mailboxes = Mailboxes(secrets.token_hex(8), bounds, hub.hub_subscriber_timeout)
        channels = MailboxChannels(hub.prefix, self._control.publish, time.time_ns() // 1000)
        later = partial(self._loop.call_later, MAILBOX_PAUSE)
        return MailboxFeed(mailboxes, channels, topics, epochs, self._loop.time, later)

    async def _listen(self, context: Context) -> None:
        config, hub = self._config, self._config.hub
        assert self._application is not None
        limits = ServerLimits(stall=hub.stall_timeout)
        server = HubServer(self._application, limits)
        self._servers.append(server)
        await server.open(listen_metrics(f"ipc://{hub_socket(config)}", "hub", 0o600), private=True)
        if hub.listen:
            host, _, port = hub.listen.rpartition(":")
            sock = listen_tcp(host or "0.0.0.0", int(port), "listen")
            await server.open(sock, private=False, root=hub.listen_path.encode())
        if hub.prometheus_port:
            # Imported here because most hubs serve no metrics.
            from griphub.api.metrics import HubMetrics, MetricsApplication

            figures = HubMetrics(context, self._outbox, self._control, self._processes)
            metrics = HubServer(MetricsApplication(figures, self.unready), limits)
            self._servers.append(metrics)
            await metrics.open(listen_metrics(hub.prometheus_port, "prometheus_port", None), private=True)

    def hang_up(self) -> None:
        """Pass a SIGHUP on to the children, which have opened the same log file."""
        for _, pid in self._processes():
            if pid != os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGHUP)

    def _processes(self) -> Iterator[tuple[str, int]]:
        """Yield names and ids of the processes of the hub."""
        yield "hub", os.getpid()
        children = [("hub writer", self._writer.pid)]
        if self._subscriptions is not None:
            children.append(("hub sender", self._subscriptions.sender.pid))
        for name, pid in (*children, *(("hub reader", pid) for pid in self._readers.pids)):
            if pid:
                yield name, pid

    def unready(self) -> str:
        """Return why requests are not served; empty if they are."""
        if self._application is None:
            return "the store is being opened"
        return "" if self._writer.working else "the writer of the store is being started again"

    async def finish(self) -> None:
        """Accept no new requests, and finish those under way, for FINISH_TIME at most."""
        for server in self._servers:
            server.retire()
        end = self._loop.time() + FINISH_TIME
        while self._loop.time() < end:
            busy = any(connection.busy for server in self._servers for connection in server.connections)
            if not busy and not self._outbox.waiting:
                return
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        """Close everything; the store is closed last."""
        if self._ticks is not None:
            self._ticks.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._servers:
            server.close()
        if self._held is not None:
            self._held.close()
        self._push.stop()
        self._control.close()
        if self._progress is not None:
            self._progress.close()
        if self._soft is not None:
            self._soft.close()
        if self._subscriptions is not None:
            await self._subscriptions.close()
        await self._push.close()
        await self._bodies.stop()
        await self._readers.stop()
        await self._writer.stop()
        self._zmq.term()

    # --- followers

    def _subscribed(self, name: str) -> None:
        """Take the first subscription of a channel; followers that the index does not know must ask again."""
        if is_mailbox(self._config.hub.prefix, name):
            if self._context is None or name not in self._context.mailboxes.channels:
                # A poll of before the start: repeated, it gets 404.
                self._hint(name)
            return
        if is_pull(self._config.hub.prefix, name):
            if self._context is None or name not in self._context.pubsub.channels:
                # Held before the start: repeated, it is held on the same channel.
                self._hint(name)
            return
        # After a start each channel may have followers of before, also one that has entered the index since.
        if not self._index.subscribed(name) or self._loop.time() < self._learned:
            self._hint(name)

    def _waiting(self) -> int | None:
        """Return the bytes of items that wait for the handler; None while it is away."""
        return None if self._outbox.state is OutboxState.AWAY else self._outbox.waiting

    def _hint(self, name: str) -> None:
        self._outbox.miss([name])
        self._control.flush()

    def _hint_for(self, name: str) -> bytes | None:
        channel = self._index.find(name)
        if channel is not None:
            return hint_item(name, channel.representation)
        if is_mailbox(self._config.hub.prefix, name) or is_pull(self._config.hub.prefix, name):
            return hint_item(name, Representation.POLL)
        try:
            _, representation, _ = parse_channel(self._config.hub.prefix, name)
        except ClientError:
            return None
        return hint_item(name, representation)

    def _tick(self) -> None:
        self._ticks = self._loop.call_later(TICK, self._tick)
        context = self._context
        assert context is not None
        for held in self._index.expire(self._loop.time()):
            if held.keys.keyed:
                context.quotas.give("ranges", held.owner)
            context.soft.left(held)
        context.mailboxes.check()
        context.subscriptions.check()
        context.pubsub.check()
        now = time.time()
        for channel in self._index:
            if channel.rights_end <= now:
                channel.rights_end = float("inf")
                self._hint(channel.name)

    # --- the writer

    def _returned(self, state: StoreState) -> None:
        """Give followers the events of commits whose outcome the hub has not seen."""
        if self._feed is not None:
            task = self._loop.create_task(self._catch_up(self._feed, state.newest), name="catch up")
            self._tasks.append(task)
            task.add_done_callback(self._tasks.remove)

    async def _catch_up(self, feed: Feed, newest: int) -> None:
        async def read(after: int) -> Sequence[tuple[int, Event]]:
            return (await self._readers.events_after(after, STORED_PAGE, STORED_BYTES)).events

        while True:
            try:
                await feed.catch_up(newest, read)
            except StoreError as error:
                log.warning("catching up waits", reason=error)
                await asyncio.sleep(TICK)
            else:
                return


def _control_address(config: Config) -> ControlAddress:
    """Return the address of the control port."""
    publish = config.hub.publish
    if not publish:
        return hub_control_socket(config)
    if publish.startswith("http://"):
        host, _, port = publish[7:].rstrip("/").rpartition(":")
        return host, int(port)
    return publish


def _body_max(config: Config) -> int:
    """Return the greatest size of a request to the control port, in bytes; ``[handler]`` describes another proxy's."""
    return config.handler.push_in_http_max_body_size if config.hub.publish else HUB_BODY_MAX


def _signer(config: Config, base: pathlib.Path) -> Signer | None:
    """Return the signer of requests to the control port of another proxy; None if that needs no key."""
    handler = config.handler
    text = handler.reserved_key or handler.control_key
    key = load_key(text, base) if config.hub.publish and text else None
    return None if key is None else Signer(key, handler.control_iss)


def main(config: Config, child: Child) -> int:
    """Run the hub until SIGTERM or SIGINT.

    Args:
        config: the configuration.
        child: connection to the runner.

    Returns:
        The exit status: 0, or 2 for a configuration or a store that cannot be used.
    """
    return uvloop.run(_run(config, child))


async def _run(config: Config, child: Child) -> int:
    loop = asyncio.get_running_loop()
    log.attach(loop)
    keep_freed_memory()
    stop = asyncio.Event()
    hub = Hub(config)
    child.start(loop, stop.set, hub.hang_up, ready=False)
    try:
        opening = loop.create_task(hub.open(), name="open the hub")
        stopping = loop.create_task(stop.wait(), name="wait for the end")
        await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            opening.cancel()
            await asyncio.wait((opening,))
        else:
            opening.result()
            child.ready()
            log.info("hub ready", store=config.hub.store, sync=config.hub.hub_sync)
            settle_collector(KEEPING)
            await stopping
            await hub.finish()
    except (BindError, KeyProblem, StoreProblem, OperatorError, OSError) as error:
        log.error("configuration", f"[hub] {error}")
        return 2
    finally:
        await hub.close()
        log.attach(None)
        child.close()
    return 0
