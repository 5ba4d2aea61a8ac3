"""Hub: a ready-made GRIP backend with one explicit event store, and every way of following it.

A GRIP backend needs a truth that clients query after a lost notification. The hub is that truth for applications
without one: topics of events, kept in a store, read as history, followed live through the proxy.

    store      events: an interface, and its SQLite engine
    processes  the store's writer and readers, and the sender of callbacks: children of the hub
    topics     texts of events, ranges, channels, items: the seam of history and live
    mailboxes  many topics and keys, followed over one long-poll
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
    from griphub.client.errors import HubError
    from griphub.client.event import NewEvent, Receipt
    from griphub.client.follower import Follower, Selection
    from griphub.client.mailbox import Mailbox, MailboxEvent
    from griphub.client.publisher import Publisher
    from griphub.client.received import ReceivedEvent, Truncated
    from griphub.client.subscriber import Subscriber
    from griphub.client.subscriber_counts import SubscriberCounts
    from griphub.client.subscription_actions import OnGone, Report, ReportKind, Strategy

__all__ = [
    "Follower",
    "HubError",
    "Mailbox",
    "MailboxEvent",
    "NewEvent",
    "OnGone",
    "Publisher",
    "Receipt",
    "ReceivedEvent",
    "Report",
    "ReportKind",
    "Selection",
    "Strategy",
    "Subscriber",
    "SubscriberCounts",
    "Truncated",
]

_PLACES: Final = {
    "Follower": "griphub.client.follower",
    "HubError": "griphub.client.errors",
    "Mailbox": "griphub.client.mailbox",
    "MailboxEvent": "griphub.client.mailbox",
    "NewEvent": "griphub.client.event",
    "OnGone": "griphub.client.subscription_actions",
    "Publisher": "griphub.client.publisher",
    "Receipt": "griphub.client.event",
    "ReceivedEvent": "griphub.client.received",
    "Report": "griphub.client.subscription_actions",
    "ReportKind": "griphub.client.subscription_actions",
    "Selection": "griphub.client.follower",
    "Strategy": "griphub.client.subscription_actions",
    "Subscriber": "griphub.client.subscriber",
    "SubscriberCounts": "griphub.client.subscriber_counts",
    "Truncated": "griphub.client.received",
}
"""Modules of the exported names. They are loaded with the first use, since the hub itself needs no client."""


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
