"""Objects and figures that all parts of the API share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from griphub.access.quota import Quotas
from griphub.access.tokens import TokenVerifier
from griphub.api.body_parser import BodyParser
from griphub.api.commit_times import CommitTimes
from griphub.api.mailbox_feed import MailboxFeed
from griphub.api.pubsub_feed import PubsubFeed
from griphub.api.soft_feed import SoftFeed
from griphub.api.subscription_feed import SubscriptionFeed
from griphub.processes.progress_loop import ProgressLoop
from griphub.processes.readers import ReaderPool
from griphub.processes.writer import WriterProcess
from griphub.sender.address_policy import AddressPolicy
from griphub.store.interface import StoreState
from griphub.topics.channel_index import ChannelIndex
from griphub.topics.event_text import Epochs
from griphub.topics.fanout import FanOut
from griphub.topics.leases import SnapshotLeases
from griphub.topics.topic_table import TopicTable
from gripproxy.config import Hub

__all__ = ["Context", "HubCounters"]


@dataclass(slots=True)
class HubCounters:
    """Figures since the start, for the metrics.

    Attributes:
        published: events stored.
        published_bytes: bytes of their contents.
        repeated: publications answered by an earlier outcome.
        pages: pages of history and replay read.
        replays: answers that began a stream, a long-poll or a WebSocket.
        gone: requests for places that are not retained.
        resyncs: streams and WebSockets that were ended by a resync, by its cause.
        watches: answers that began a watch.
        answers: answers by status.
        topics: events by topic number.
        commits: times of commits.
    """

    published: int = 0
    published_bytes: int = 0
    repeated: int = 0
    pages: int = 0
    replays: int = 0
    gone: int = 0
    resyncs: Counter[str] = field(default_factory=Counter)
    watches: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    topics: Counter[int] = field(default_factory=Counter)
    commits: CommitTimes = field(default_factory=CommitTimes)


@dataclass(frozen=True, slots=True)
class Context:
    """Parts of the hub that requests are carried out with.

    Attributes:
        config: section ``[hub]``.
        state: the store at the start: its epochs and its secret.
        epochs: epochs of the store.
        topics: all topics.
        index: channels with followers.
        fanout: makes items of events.
        progress: progress of watchers.
        writer: writing process of the store.
        readers: reading processes.
        bodies: reading process of large bodies.
        verifier: verifies tokens.
        quotas: bounds of owners.
        leases: versions that snapshots are being read at.
        mailboxes: mailboxes, and their part of the stored events.
        subscriptions: subscriptions, and their part of the stored events.
        pubsub: subscriptions of the push API.
        soft: windows of soft topics, and their followers.
        callback_policy: addresses that callbacks may lead to.
        counters: figures.
        now: monotonic time in seconds.
        wall: seconds since 1970.
        hint: called with the name of a channel whose followers must ask again.
    """

    config: Hub
    state: StoreState
    epochs: Epochs
    topics: TopicTable
    index: ChannelIndex
    fanout: FanOut
    progress: ProgressLoop
    writer: WriterProcess
    readers: ReaderPool
    bodies: BodyParser
    verifier: TokenVerifier
    quotas: Quotas
    leases: SnapshotLeases
    mailboxes: MailboxFeed
    subscriptions: SubscriptionFeed
    pubsub: PubsubFeed
    soft: SoftFeed
    callback_policy: AddressPolicy
    counters: HubCounters
    now: Callable[[], float]
    wall: Callable[[], float]
    hint: Callable[[str], None]
