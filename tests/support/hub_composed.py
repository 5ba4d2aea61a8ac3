"""Application of a running hub with some of its parts replaced, asked without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from griphub.access.patterns import Patterns
from griphub.api.application import HubApplication
from griphub.api.context import Context
from griphub.api.feed import Feed
from griphub.api.follow import Following
from griphub.api.ingest import IngestRequests
from griphub.api.keys import Keys
from griphub.api.mailboxes import MailboxRequests
from griphub.api.problem import Problem
from griphub.api.publishing import Publishing
from griphub.api.pubsub_messages import PubsubMessages
from griphub.api.pubsub_requests import PubsubRequests
from griphub.api.pubsub_subscriptions import PubsubSubscriptions
from griphub.api.pubsub_topics import PubsubTopics
from griphub.api.reading import Reading
from griphub.api.request import Answer, Request, answer_bytes, problem_answer, target_of
from griphub.api.server import HubConnection
from griphub.api.snapshots import Snapshots
from griphub.api.soft_watch import SoftWatching
from griphub.api.subscriptions import SubscriptionRequests
from griphub.api.topics import Topics
from griphub.api.watch import Watching
from griphub.api.websockets import WebSockets
from gripproxy.grip.signature import Key
from tests.support.hub_api import HubApi, Response

__all__ = ["Composed", "context_of"]


def context_of(hub: HubApi) -> Context:
    """Return the parts of a running hub.

    Args:
        hub: the hub.
    """
    context = hub.hub._context
    assert context is not None
    return context


class Composed:
    """Application that is composed of some parts.

    Args:
        context: parts of a running hub, some of them replaced.
        proxy_key: key of the signature that requests over TCP must have.
    """

    def __init__(self, context: Context, proxy_key: Key | None = None) -> None:
        following = Following(context)
        reading = Reading(context, following)
        feed = Feed(context.fanout, context.counters, [context.mailboxes, context.subscriptions])
        publishing = Publishing(context, feed)
        pubsub_topics = PubsubTopics(context, Topics(context, Patterns(())))
        pubsub_subscriptions = PubsubSubscriptions(context, pubsub_topics, frozenset())
        self.application = HubApplication(
            context,
            Topics(context, Patterns(context.config.hub_autocreate)),
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
            PubsubRequests(context, pubsub_topics, pubsub_subscriptions, PubsubMessages(context, feed)),
            proxy_key,
        )

    def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        private: bool = True,
    ) -> asyncio.Future[Response]:
        """Begin a request in this turn of the loop.

        Args:
            method: of the request.
            target: path and query.
            headers: names and values.
            body: content.
            private: whether it arrives through a private socket.

        Returns:
            The answer, later.
        """
        lines = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        request = Request(method.encode(), target_of(target.encode()), lines, b"", target.encode())
        receiver = _Receiver(method)
        try:
            self.application.admits(request, private=private)
        except Problem as problem:
            receiver.answer(problem_answer(problem))
            return receiver.answered
        request.body = body
        self.application.start(request, cast(HubConnection, receiver))
        return receiver.answered


class _Receiver:
    """Receiver of one answer, in place of a connection."""

    def __init__(self, method: str) -> None:
        self.answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._head = method == "HEAD"

    def answer(self, answer: Answer) -> None:
        head, _, body = answer_bytes(answer, keep_alive=True, head=self._head).partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        self.answered.set_result(Response(answer.status, headers, body))
