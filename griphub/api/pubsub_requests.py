"""Requests of the push API: from the path to the part that answers, with the rights of the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from griphub.access.owner import owner_key
from griphub.access.rights import Right, Rights
from griphub.api.body_parser import LARGE_BODY
from griphub.api.context import Context
from griphub.api.publishing import answer_of
from griphub.api.pubsub_body import messages_of, object_of
from griphub.api.pubsub_messages import PubsubMessages
from griphub.api.pubsub_subscriptions import PubsubSubscriptions
from griphub.api.pubsub_topics import PubsubTopics
from griphub.api.request import Answer, Reply, Request
from griphub.pubsub.methods import Call, paging_of, parse_call, wants_numbers
from griphub.pubsub.names import ResourceName
from griphub.pubsub.status import ApiError, invalid, permission_denied, unauthenticated

__all__ = ["PubsubRequests"]

_CHANGES: Final = frozenset(
    (
        *("CreateTopic", "UpdateTopic", "DeleteTopic", "CreateSubscription", "UpdateSubscription"),
        *("DeleteSubscription", "ModifyPushConfig", "Seek", "DetachSubscription"),
    )
)
"""Methods that are a commit of their own."""


class PubsubRequests:
    """Answers to requests of the push API.

    Args:
        context: parts of the hub.
        topics: requests about topics.
        subscriptions: requests about subscriptions.
        messages: requests about messages.

    Attributes:
        subscriptions: that of the arguments.
    """

    def __init__(
        self, context: Context, topics: PubsubTopics, subscriptions: PubsubSubscriptions, messages: PubsubMessages
    ) -> None:
        self._context = context
        self._topics = topics
        self.subscriptions: Final = subscriptions
        self._messages = messages

    def begin(self, request: Request, rights: Callable[[], Rights], reply: Reply) -> Coroutine[Any, Any, Answer] | None:
        """Return the work for a request; None if ``reply`` is called by the commit.

        Args:
            request: the request.
            rights: returns those of the caller.
            reply: called once with the answer, if no work is returned.

        Raises:
            ApiError: the request is refused.
            Problem: it has no valid token, or its body is no JSON.
        """
        call = parse_call(request.method, request.raw_target.partition(b"?")[0])
        numbers = wants_numbers(request.target.query)
        found = rights()
        if call.method == "Publish":
            assert call.name is not None
            self._may(found, "publish", call.name)
            self._topics.find(call.name)
            if len(request.body) >= LARGE_BODY:
                return self._publish_large(request, call.name.local, found)
            self._messages.publish(call.name.local, messages_of(request.body), found, reply)
            return None
        work = partial(self._work, request, call, found, numbers=numbers)
        return self._change(found, work) if call.method in _CHANGES else work()

    async def _publish_large(self, request: Request, topic: str, rights: Rights) -> Answer:
        drafts = await self._context.bodies.messages(request, owner_key(rights.owner))
        return await answer_of(lambda reply: self._messages.publish(topic, drafts, rights, reply))

    async def _change(self, rights: Rights, work: Callable[[], Awaitable[Answer]]) -> Answer:
        quotas, owner = self._context.quotas, owner_key(rights.owner)
        quotas.take("topic_changes", owner)
        try:
            return await work()
        finally:
            quotas.give("topic_changes", owner)

    async def _work(self, request: Request, call: Call, rights: Rights, *, numbers: bool) -> Answer:
        await self._context.pubsub.refresh()
        if call.name is None:
            paging = paging_of(request.target.query)
            if call.method == "ListTopics":
                return await self._topics.list(call.project, paging, rights, owner_key(rights.owner))
            return self.subscriptions.list(call.project, paging, rights, numbers=numbers)
        if call.name.collection == "topics":
            return await self._topic(request, call, call.name, rights)
        return await self._subscription(request, call, call.name, rights, numbers=numbers)

    async def _topic(self, request: Request, call: Call, name: ResourceName, rights: Rights) -> Answer:
        topics = self._topics
        match call.method:
            case "GetTopic":
                self._sees(rights, name)
                return topics.answer(topics.find(name))
            case "ListTopicSubscriptions":
                self._sees(rights, name)
                return self.subscriptions.list_of_topic(topics.find(name), paging_of(request.target.query), rights)
        self._may(rights, "admin", name)
        match call.method:
            case "CreateTopic":
                return await topics.create(name, object_of(request.body), rights)
            case "UpdateTopic":
                return await topics.update(name, object_of(request.body), _mask(request), rights)
            case _:
                return await topics.delete(name, rights)

    async def _subscription(
        self, request: Request, call: Call, name: ResourceName, rights: Rights, *, numbers: bool
    ) -> Answer:
        subscriptions, messages = self.subscriptions, self._messages
        body = partial(object_of, request.body)
        match call.method:
            case "CreateSubscription":
                return await subscriptions.create(name, body(), rights, numbers=numbers)
            case "UpdateSubscription":
                return await subscriptions.update(name, body(), _mask(request), rights, numbers=numbers)
            case "ModifyPushConfig":
                return await subscriptions.modify_push_config(name, body(), rights)
            case "DeleteSubscription":
                return await subscriptions.delete(name, rights)
            case "DetachSubscription":
                return await subscriptions.detach(name, rights)
            case "Seek":
                return await subscriptions.seek(name, body(), rights)
            case "Pull":
                return await messages.pull(request, body(), subscriptions.find(name, rights))
            case "Acknowledge":
                return await messages.acknowledge(body(), subscriptions.find(name, rights))
            case "ModifyAckDeadline":
                return await messages.modify_ack_deadline(body(), subscriptions.find(name, rights))
            case _:
                found = subscriptions.find(name, rights)
                self._context.pubsub.touch(found)
                return subscriptions.answer(found, numbers=numbers)

    # --- rights

    def _may(self, rights: Rights, right: Right, name: ResourceName) -> None:
        if not rights.may(right, name.local):
            raise self._refused(rights, f"no right to {right} on {name.local!r}")

    def _sees(self, rights: Rights, name: ResourceName) -> None:
        if not rights.sees(name.local):
            raise self._refused(rights, f"no right over {name.local!r}")

    def _refused(self, rights: Rights, text: str) -> ApiError:
        if rights is self._context.verifier.anonymous:
            return unauthenticated(f"A request without a token has {text}: send Authorization: Bearer TOKEN.")
        return permission_denied(f"The token has {text}.")


def _mask(request: Request) -> str:
    query = request.target.query
    values = [*query.get("updateMask", ()), *query.get("update_mask", ())]
    if len(values) > 1:
        raise invalid("The parameter updateMask is given more than once.")
    return values[0] if values else ""
