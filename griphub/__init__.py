"""Hub: a ready-made GRIP backend with one explicit event store, and every way of following it.

A GRIP backend needs a truth that clients query after a lost notification. The hub is that truth for applications
without one: topics of events, kept in a store, read as history, followed live through the proxy.

    store      events: an interface, and its SQLite engine
    processes  the store's writer and readers, and the sender of callbacks: children of the hub
    topics     texts of events, ranges, channels, items: the seam of history and live
    mailboxes  many topics and keys, followed over one long-poll
    pubsub     Google's Pub/Sub API: names, JSON, resources, filters, messages
    backlog    messages of its subscriptions: order, leases, pace
    sender     decisions about callbacks: policy, signatures, deliveries
    callbacks  requests to callbacks: resolution, connections, dispatch
    access     tokens, rights, capabilities of links, quotas
    notify     the way to the handler: items, and the channels that clients hold
    api        HTTP: server, requests, answers
    service    composition of all these: ``gripproxy hub``
    client     publishers and followers in other programs, which need no other room

The rooms import ``gripproxy.grip``, ``config``, ``process`` and ``http1``, and callbacks the requests of ``backend``.
Only the command line imports the hub. Decisions are sans-I/O.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from griphub.client.cached_value import CachedValue
    from griphub.client.errors import HubError
    from griphub.client.event import NewEvent, Receipt
    from griphub.client.follower import Follower, Selection
    from griphub.client.key_range import KeyRange
    from griphub.client.mailbox import Mailbox, MailboxEvent
    from griphub.client.publisher import Publisher
    from griphub.client.received import ReceivedEvent, Truncated
    from griphub.client.snapshot_cache import SnapshotCache
    from griphub.client.source_snapshot import SourceSnapshot
    from griphub.client.stitched import NotKnown, View
    from griphub.client.subscriber import Subscriber
    from griphub.client.subscriber_counts import SubscriberCounts
    from griphub.client.subscription_actions import OnGone, Report, ReportKind, Strategy
    from griphub.client.watch_actions import WatchReport, WatchReportKind
    from griphub.client.watch_messages import Change, Progress, Resync, Snapshot, Version
    from griphub.client.watcher import Watcher

__all__ = [
    "CachedValue",
    "Change",
    "Follower",
    "HubError",
    "KeyRange",
    "Mailbox",
    "MailboxEvent",
    "NewEvent",
    "NotKnown",
    "OnGone",
    "Progress",
    "Publisher",
    "Receipt",
    "ReceivedEvent",
    "Report",
    "ReportKind",
    "Resync",
    "Selection",
    "Snapshot",
    "SnapshotCache",
    "SourceSnapshot",
    "Strategy",
    "Subscriber",
    "SubscriberCounts",
    "Truncated",
    "Version",
    "View",
    "WatchReport",
    "WatchReportKind",
    "Watcher",
]

_PLACES: Final = {
    "CachedValue": "griphub.client.cached_value",
    "Change": "griphub.client.watch_messages",
    "Follower": "griphub.client.follower",
    "HubError": "griphub.client.errors",
    "KeyRange": "griphub.client.key_range",
    "Mailbox": "griphub.client.mailbox",
    "MailboxEvent": "griphub.client.mailbox",
    "NewEvent": "griphub.client.event",
    "NotKnown": "griphub.client.stitched",
    "OnGone": "griphub.client.subscription_actions",
    "Progress": "griphub.client.watch_messages",
    "Publisher": "griphub.client.publisher",
    "Receipt": "griphub.client.event",
    "ReceivedEvent": "griphub.client.received",
    "Report": "griphub.client.subscription_actions",
    "ReportKind": "griphub.client.subscription_actions",
    "Resync": "griphub.client.watch_messages",
    "Selection": "griphub.client.follower",
    "Snapshot": "griphub.client.watch_messages",
    "SnapshotCache": "griphub.client.snapshot_cache",
    "SourceSnapshot": "griphub.client.source_snapshot",
    "Strategy": "griphub.client.subscription_actions",
    "Subscriber": "griphub.client.subscriber",
    "SubscriberCounts": "griphub.client.subscriber_counts",
    "Truncated": "griphub.client.received",
    "Version": "griphub.client.watch_messages",
    "View": "griphub.client.stitched",
    "WatchReport": "griphub.client.watch_actions",
    "WatchReportKind": "griphub.client.watch_actions",
    "Watcher": "griphub.client.watcher",
}
"""Modules of the exported names. They are loaded with the first use, since the hub itself needs no client."""


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
