"""Subscriptions as the push API has them: their owners make, change, move and delete them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from griphub.access.owner import owner_key
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.pubsub_figures import SubscriptionFigures, figures_document
from griphub.api.pubsub_status import json_answer
from griphub.api.pubsub_topics import PubsubTopics, page_after, page_token
from griphub.api.request import Answer, Request, no_body
from griphub.api.subscription_body import subscription_list_query
from griphub.backlog.intervals import Intervals
from griphub.pubsub.durations import MICROSECOND, SECOND
from griphub.pubsub.field_mask import apply_mask
from griphub.pubsub.methods import Paging
from griphub.pubsub.names import DELETED_TOPIC, ResourceName, parse_name
from griphub.pubsub.proto_json import Field, Kind, MessageType, read_message, write_message
from griphub.pubsub.push_config import SIGNING_KEYS, check_push_config
from griphub.pubsub.status import (
    already_exists,
    exhausted,
    failed_precondition,
    invalid,
    missing,
    not_served,
    permission_denied,
    unavailable,
)
from griphub.pubsub.subscription_resource import (
    MODIFY_PUSH_CONFIG,
    SUBSCRIPTION,
    SUBSCRIPTION_UPDATE,
    UPDATE_SUBSCRIPTION,
    check_subscription,
)
from griphub.sender.callback import BadCallback, parse_callback
from griphub.store.pubsub_subscription import PubsubSubscription
from griphub.store.topic import Topic
from gripproxy.grip.errors import OperatorError
from gripproxy.process.log import log

__all__ = ["PubsubSubscriptions", "topic_of_name"]

SEEK: Final = MessageType("SeekRequest", (Field("time", Kind.TIMESTAMP), Field("snapshot", Kind.STRING)))
"""Body of a move."""

LOOKED_MAX: Final = 2000
"""Subscriptions that one request for a list looks at: with those of many others, a page may have fewer than it may."""

_NO_STORE: Final = ("Cache-Control", "no-store")

NEWEST: Final = 2**62
"""Id above all events: a place there is the end of the topic."""


@contextlib.contextmanager
def _there(name: ResourceName) -> Iterator[None]:
    """Refuse a request about a subscription that was deleted meanwhile."""
    try:
        yield
    except LookupError as error:
        raise missing(name.id) from error


def topic_of_name(text: str) -> str:
    """Return the name in the hub of a topic; ``text``: its checked name in this API."""
    return parse_name(text, "topics").local


class PubsubSubscriptions:
    """Answers to requests about subscriptions.

    Args:
        context: parts of the hub.
        topics: requests about topics.
        signing_keys: names of the keys that may sign requests.
    """

    def __init__(self, context: Context, topics: PubsubTopics, signing_keys: frozenset[str]) -> None:
        self._context = context
        self._topics = topics
        self._signing_keys = signing_keys

    def find(self, name: ResourceName, rights: Rights) -> PubsubSubscription:
        """Return a subscription of the caller, or of a topic that the caller administers.

        Args:
            name: of the subscription.
            rights: of the caller.

        Raises:
            ApiError: NOT_FOUND, there is none, or it is another's.
        """
        found = self._context.pubsub.table.named(name.project, name.id)
        if found is None or not self._sees(found, rights):
            raise missing(name.id)
        return found

    def _sees(self, subscription: PubsubSubscription, rights: Rights) -> bool:
        if subscription.owner == owner_key(rights.owner):
            return True
        topic = self._context.topics.numbered(subscription.topic)
        return rights.may("admin", f"{subscription.project}/{subscription.id}" if topic is None else topic.name)

    async def create(self, name: ResourceName, body: object, rights: Rights, *, numbers: bool) -> Answer:
        """Answer ``CreateSubscription``.

        Args:
            name: of the subscription.
            body: JSON value.
            rights: of the caller.
            numbers: whether enumerations are numbers.

        Returns:
            The answer.

        Raises:
            ApiError: the request is refused.
            StoreError: the store cannot do it now.
        """
        feed = self._context.pubsub
        settings = self._checked(name, read_message(SUBSCRIPTION, body))
        if not rights.may("subscribe", name.local):
            # Else names of any project could be taken, and those of many projects are without a bound.
            raise permission_denied(f"The token has no right to subscribe on {name.local!r}, the subscription's name.")
        topic = self._allowed(settings, rights)
        if feed.table.named(name.project, name.id) is not None:
            raise already_exists(name.id)
        self._check_number(owner_key(rights.owner))
        await self._topics.keep(topic, settings["messageRetentionDuration"] / SECOND, rights)
        now = round(self._context.wall() * 1_000_000)
        draft = PubsubSubscription(
            *(0, name.project, name.id, topic.number, owner_key(rights.owner), settings, NEWEST),
            created=now,
            used=now,
        )
        try:
            made = await feed.make(draft)
        except LookupError as error:
            raise missing(topic.name.partition("/")[2]) from error
        except OperatorError as error:
            log.error("subscription of the push API not made", reason=error)
            raise unavailable("the keys of the hub's identity cannot be used: its log has the reason") from error
        if made == "exists":
            raise already_exists(name.id)
        if not isinstance(made, PubsubSubscription):
            raise exhausted(f"The {made} has as many subscriptions as it may have: delete some.")
        return self.answer(made, numbers=numbers)

    def _check_number(self, owner: str) -> None:
        table, config = self._context.pubsub.table, self._context.config
        if len(table) >= config.push_subscriptions_max:
            raise exhausted("The hub has as many subscriptions as it may have (push_subscriptions_max).")
        if table.count_of(owner) >= config.push_subscriptions_per_owner_max:
            text = (
                "The owner has as many subscriptions as one may have (push_subscriptions_per_owner_max): delete some."
            )
            raise exhausted(text)

    def _checked(self, name: ResourceName, values: Mapping[str, Any]) -> dict[str, Any]:
        settings = check_subscription(name, values, plain=self._context.config.push_http)
        push = settings["pushConfig"]
        if endpoint := push.get("pushEndpoint"):
            try:
                parse_callback(endpoint, self._context.callback_policy)
            except BadCallback as error:
                raise invalid(f"Invalid push endpoint given (endpoint={endpoint[:400]}). {error}.") from error
        names = push.get("attributes", {}).get(SIGNING_KEYS, "")
        for key in names.split(",") if names else ():
            if key not in self._signing_keys:
                raise invalid(f"There is no signing key {key!r}: the hub's operator adds it to push_signing_keys.")
        return settings

    def _allowed(self, settings: Mapping[str, Any], rights: Rights) -> Topic:
        """Return the topic of a subscription whose owner has the rights that it needs."""
        name = parse_name(settings["topic"], "topics")
        if not rights.may("subscribe", name.local):
            raise permission_denied(f"The token has no right to subscribe on {name.local!r}.")
        topic = self._topics.find(name)
        if dead := settings.get("deadLetterPolicy"):
            target = parse_name(dead["deadLetterTopic"], "topics")
            if not rights.may("publish", target.local):
                text = f"The token has no right to publish on {target.local!r}, the dead letter topic."
                raise permission_denied(text)
            self._topics.find(target)
        return topic

    async def update(self, name: ResourceName, body: object, mask: str, rights: Rights, *, numbers: bool) -> Answer:
        """Answer ``UpdateSubscription``.

        Args:
            name: of the subscription.
            body: JSON value.
            mask: ``updateMask`` of the query; empty for none.
            rights: of the caller.
            numbers: whether enumerations are numbers.

        Returns:
            The answer.

        Raises:
            ApiError: the request is refused.
            StoreError: the store cannot do it now.
        """
        request = read_message(SUBSCRIPTION_UPDATE, body)
        given = request.get("subscription", {})
        if given.get("name", str(name)) != str(name):
            raise invalid(f"The subscription in the body is {given['name'][:400]}, and that of the path {name}.")
        subscription = self.find(name, rights)
        values = apply_mask(UPDATE_SUBSCRIPTION, subscription.settings, given, request.get("updateMask", "") or mask)
        settings = self._checked(name, {**values, "topic": subscription.settings["topic"]})
        return self.answer(await self._change(name, subscription, settings, rights), numbers=numbers)

    async def modify_push_config(self, name: ResourceName, body: object, rights: Rights) -> Answer:
        """Answer ``ModifyPushConfig``: without an endpoint the subscription is one to pull from.

        Args:
            name: of the subscription.
            body: JSON value.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            ApiError: the request is refused.
            StoreError: the store cannot do it now.
        """
        config = read_message(MODIFY_PUSH_CONFIG, body).get("pushConfig", {})
        subscription = self.find(name, rights)
        checked = check_push_config(config, plain=self._context.config.push_http)
        settings = self._checked(name, {**subscription.settings, "pushConfig": checked})
        await self._change(name, subscription, settings, rights)
        return json_answer({})

    async def _change(
        self, name: ResourceName, subscription: PubsubSubscription, settings: Mapping[str, Any], rights: Rights
    ) -> PubsubSubscription:
        if subscription.settings.get("detached"):
            raise failed_precondition("This subscription is detached: make another one.")
        if subscription.topic:
            topic = self._allowed(settings, rights)
            await self._topics.keep(topic, settings["messageRetentionDuration"] / SECOND, rights)
        with _there(name):
            return await self._context.pubsub.change(subscription, settings)

    async def delete(self, name: ResourceName, rights: Rights) -> Answer:
        """Answer ``DeleteSubscription``: no request of it begins afterwards.

        Args:
            name: of the subscription.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            ApiError: NOT_FOUND, there is none.
            StoreError: the store or the sender cannot do it now.
        """
        await self._context.pubsub.delete(self.find(name, rights))
        return json_answer({})

    async def detach(self, name: ResourceName, rights: Rights) -> Answer:
        """Answer ``DetachSubscription``: its messages are dropped, and none follow.

        Args:
            name: of the subscription.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            ApiError: NOT_FOUND, there is none.
            StoreError: the store cannot do it now.
        """
        subscription = self.find(name, rights)
        with _there(name):
            changed = await self._context.pubsub.change(
                subscription, {**subscription.settings, "pushConfig": {}, "detached": True}
            )
            await self._context.pubsub.seek(changed, NEWEST, b"")
        return json_answer({})

    async def seek(self, name: ResourceName, body: object, rights: Rights) -> Answer:
        """Answer ``Seek``: messages published before a time are acknowledged then, later ones are not.

        Args:
            name: of the subscription.
            body: JSON value.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            ApiError: the request is refused.
            StoreError: the store cannot do it now.
        """
        request = read_message(SEEK, body)
        if "time" in request and "snapshot" in request:
            raise invalid("Invalid value (oneof), oneof field 'target' is already set. Cannot set 'snapshot'")
        if "snapshot" in request:
            raise not_served("the hub has no snapshots of subscriptions: seek to a time")
        if "time" not in request:
            raise invalid("No target was specified in the SeekRequest. Must specify either a time or a snapshot.")
        time: int = request["time"]
        subscription = self.find(name, rights)
        if subscription.settings.get("detached"):
            raise failed_precondition("This subscription is detached: it gets no messages.")
        topic = self._context.topics.numbered(subscription.topic)
        position = NEWEST
        if topic is not None:
            position = await self._context.readers.id_at(
                topic.number, -(-time // MICROSECOND) - 1, owner=owner_key(rights.owner)
            )
            if position >= self._context.fanout.stored:
                position = NEWEST
        acked = Intervals(position)
        if topic is None or not (subscription.settings.get("retainAckedMessages") or topic.settings.message_retention):
            # Those that are acknowledged are not kept.
            acked = Intervals.decode(subscription.position, subscription.acked)
            acked.add(0, position)
        with _there(name):
            await self._context.pubsub.seek(subscription, acked.position, acked.encode())
        return json_answer({})

    # --- answers

    def answer(self, subscription: PubsubSubscription, *, numbers: bool) -> Answer:
        """Return the answer that has a subscription.

        Args:
            subscription: the subscription.
            numbers: whether enumerations are numbers.
        """
        return json_answer(self._document(subscription, numbers=numbers))

    def _document(self, subscription: PubsubSubscription, *, numbers: bool) -> dict[str, Any]:
        values = dict(subscription.settings)
        detached = values.pop("detached", False)
        if not subscription.topic:
            values["topic"] = DELETED_TOPIC
        document = write_message(SUBSCRIPTION, values)
        topic = self._context.topics.numbered(subscription.topic)
        if topic is not None and topic.settings.message_retention:
            document["topicMessageRetentionDuration"] = f"{topic.settings.message_retention:g}s"
        if detached:
            document["detached"] = True
        stopped = bool(subscription.settings["pushConfig"]) and self._context.pubsub.stop_of(subscription)
        document["state"] = 1 + bool(stopped) if numbers else ("RESOURCE_ERROR" if stopped else "ACTIVE")
        return document

    def list(self, project: str, paging: Paging, rights: Rights, *, numbers: bool) -> Answer:
        """Answer ``ListSubscriptions``: those that the caller may see, by name.

        Args:
            project: the project.
            paging: part of the list.
            rights: of the caller.
            numbers: whether enumerations are numbers.

        Returns:
            The answer.

        Raises:
            ApiError: INVALID_ARGUMENT, the token is none.
        """
        after, found = page_after(paging.token), list[PubsubSubscription]()
        looked: Sequence[PubsubSubscription] = self._context.pubsub.table.page(project, after, LOOKED_MAX)
        found += [each for each in looked if self._sees(each, rights)]
        document: dict[str, Any] = {}
        if found:
            document["subscriptions"] = [self._document(each, numbers=numbers) for each in found[: paging.size]]
        if len(found) > paging.size:
            document["nextPageToken"] = page_token(found[paging.size - 1].id)
        elif len(looked) == LOOKED_MAX:
            # So many of others that the rest belongs to another request.
            document["nextPageToken"] = page_token(looked[-1].id)
        return json_answer(document)

    def overview(self, request: Request, rights: Rights) -> Answer:
        """Answer ``GET /push-subscriptions``: figures of those that the caller may see, by number.

        Args:
            request: the request.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused.
        """
        query = subscription_list_query(request.target.query)
        no_body(request)
        feed = self._context.pubsub
        found, after, looked = list[PubsubSubscription](), query.after, 0
        for each in feed.table:
            if each.number <= query.after:
                continue
            if len(found) == query.limit or looked == LOOKED_MAX:
                break
            after, looked = each.number, looked + 1
            if self._sees(each, rights):
                found.append(each)
        else:
            after = 0
        document: dict[str, Any] = {"subscriptions": [self._figures(each) for each in found]}
        if after:
            document["next"] = str(after)
        return Answer(200, orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE), headers=[_NO_STORE])

    def _figures(self, subscription: PubsubSubscription) -> dict[str, Any]:
        context = self._context
        topic = context.topics.numbered(subscription.topic)
        figures = context.pubsub.figures.of(subscription.number) or SubscriptionFigures()
        stop = context.pubsub.stop_of(subscription)
        return figures_document(subscription, "" if topic is None else topic.name, figures, stop, context.wall())

    def list_of_topic(self, topic: Topic, paging: Paging, rights: Rights) -> Answer:
        """Answer ``ListTopicSubscriptions``: names of those that the caller may see.

        Args:
            topic: the topic.
            paging: part of the list.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            ApiError: INVALID_ARGUMENT, the token is none.
        """
        after = page_after(paging.token)
        names = sorted(
            f"projects/{each.project}/subscriptions/{each.id}"
            for each in self._context.pubsub.table.of_topic(topic.number)
            if self._sees(each, rights) and not each.settings.get("detached")
        )
        names = [name for name in names if name > after][: paging.size + 1]
        document: dict[str, Any] = {"subscriptions": names[: paging.size]} if names else {}
        if len(names) > paging.size:
            document["nextPageToken"] = page_token(names[paging.size - 1])
        return json_answer(document)
