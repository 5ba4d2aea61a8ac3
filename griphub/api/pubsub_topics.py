"""Topics as the push API has them: the hub's topics with names ``PROJECT/ID``."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.pubsub_status import json_answer
from griphub.api.request import Answer
from griphub.api.topics import Topics
from griphub.pubsub.durations import DAY, SECOND
from griphub.pubsub.field_mask import apply_mask
from griphub.pubsub.methods import Paging
from griphub.pubsub.names import ResourceName
from griphub.pubsub.proto_json import read_message, write_message
from griphub.pubsub.status import already_exists, failed_precondition, invalid, missing
from griphub.pubsub.topic_resource import TOPIC, TOPIC_UPDATE, UPDATE_TOPIC, check_topic
from griphub.store.topic import Retention, Topic, TopicSettings

__all__ = ["PubsubTopics", "page_after", "page_token", "topic_name"]

AGE: Final = 7 * DAY / SECOND
"""Seconds for which a topic of this API keeps its events at least: those of a subscription's messages by default."""

PAGES_MAX: Final = 20
"""Greatest number of pages of the store that are looked through for one page of a list."""

_TOKEN: Final = "after:"


def topic_name(name: str) -> str:
    """Return the name of a topic in this API; ``name``: that in the hub, ``PROJECT/ID``."""
    project, _, id = name.partition("/")
    return f"projects/{project}/topics/{id}"


def page_token(last: str) -> str:
    """Return the token of the page behind a resource; ``last``: its id."""
    return base64.urlsafe_b64encode((_TOKEN + last).encode()).decode().rstrip("=")


def page_after(token: str) -> str:
    """Return the id behind which a page begins; empty for the first page.

    Args:
        token: of the request; empty for none.

    Raises:
        ApiError: INVALID_ARGUMENT, it is none of this API.
    """
    if not token:
        return ""
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True).decode()
    except ValueError:
        text = ""
    if not text.startswith(_TOKEN):
        raise invalid(f"Invalid page token given (token={token[:200]}).")
    return text.removeprefix(_TOKEN)


class PubsubTopics:
    """Answers to requests about topics.

    Args:
        context: parts of the hub.
        topics: requests about the hub's topics.
    """

    def __init__(self, context: Context, topics: Topics) -> None:
        self._context = context
        self._topics = topics

    def find(self, name: ResourceName) -> Topic:
        """Return a topic.

        Args:
            name: of the topic.

        Raises:
            ApiError: NOT_FOUND, there is none.
        """
        topic = self._context.topics.named(name.local)
        if topic is None or topic.settings.soft:
            raise missing(name.id)
        return topic

    async def create(self, name: ResourceName, body: object, rights: Rights) -> Answer:
        """Answer ``CreateTopic``.

        Args:
            name: of the topic.
            body: JSON value.
            rights: of the caller, that to administer the topic among them.

        Returns:
            The answer.

        Raises:
            ApiError: the request is refused.
            Problem: there are too many topics.
            StoreError: the store cannot do it now.
        """
        values = check_topic(name, read_message(TOPIC, body))
        if self._context.topics.named(name.local) is not None:
            raise already_exists(name.id)
        topic, made = await self._topics.make(name.local, rights, _settings_of(TopicSettings(), values))
        if not made:
            raise already_exists(name.id)
        return self.answer(topic)

    async def update(self, name: ResourceName, body: object, mask: str, rights: Rights) -> Answer:
        """Answer ``UpdateTopic``.

        Args:
            name: of the topic.
            body: JSON value.
            mask: ``updateMask`` of the query; empty for none.
            rights: of the caller, that to administer the topic among them.

        Returns:
            The answer.

        Raises:
            ApiError: the request is refused.
            StoreError: the store cannot do it now.
        """
        request = read_message(TOPIC_UPDATE, body)
        given = request.get("topic", {})
        if given.get("name", str(name)) != str(name):
            raise invalid(f"The topic in the body is {given['name'][:400]}, and that of the path {name}.")
        topic = self.find(name)
        values = apply_mask(UPDATE_TOPIC, _values_of(topic), given, request.get("updateMask", "") or mask)
        settings = _settings_of(topic.settings, check_topic(name, values))
        changed, _ = await self._topics.make(name.local, rights, settings)
        return self.answer(changed)

    async def delete(self, name: ResourceName, rights: Rights) -> Answer:
        """Answer ``DeleteTopic``: its subscriptions are left, without a topic.

        Args:
            name: of the topic.
            rights: of the caller, that to administer the topic among them.

        Returns:
            The answer.

        Raises:
            ApiError: NOT_FOUND, there is none.
            StoreError: the store cannot do it now.
        """
        self.find(name)
        await self._topics.delete(name.local, rights)
        return json_answer({})

    def answer(self, topic: Topic) -> Answer:
        """Return the answer that has a ``topic``."""
        return json_answer(write_message(TOPIC, _values_of(topic)))

    async def list(self, project: str, paging: Paging, rights: Rights, owner: str) -> Answer:
        """Answer ``ListTopics``: those that the caller may see, by name.

        Args:
            project: the project.
            paging: part of the list.
            rights: of the caller.
            owner: key of the caller.

        Returns:
            The answer.

        Raises:
            ApiError: INVALID_ARGUMENT, the token is none.
            StoreError: the store cannot do it now.
        """
        first, found = f"{project}/", list[Topic]()
        after, more = first + page_after(paging.token), True
        for _ in range(PAGES_MAX):
            page: Sequence[Topic] = await self._context.readers.topics(after, 1000, owner=owner)
            for topic in page:
                if not topic.name.startswith(first):
                    more = False
                    break
                after = topic.name
                if rights.sees(topic.name) and not topic.settings.soft:
                    found.append(topic)
                    if len(found) > paging.size:
                        break
            more = more and len(page) == 1000
            if not more or len(found) > paging.size:
                break
        document: dict[str, Any] = {}
        if found:
            document["topics"] = [write_message(TOPIC, _values_of(topic)) for topic in found[: paging.size]]
        if len(found) > paging.size:
            document["nextPageToken"] = page_token(found[paging.size - 1].name.removeprefix(first))
        elif more:
            # So many topics of others that the rest belongs to another request.
            document["nextPageToken"] = page_token(after.removeprefix(first))
        return json_answer(document)

    async def keep(self, topic: Topic, seconds: float, rights: Rights) -> None:
        """Have a topic keep its events for as long as a subscription asks for.

        Args:
            topic: the topic.
            seconds: number of seconds for which the subscription keeps messages.
            rights: of the owner of the subscription.

        Raises:
            ApiError: FAILED_PRECONDITION, the topic keeps them for less, and the caller may not change that.
            StoreError: the store cannot do it now.
        """
        age = topic.settings.retention.age
        if age is None or age >= seconds:
            return
        if not rights.may("admin", topic.name):
            text = f"The topic {topic_name(topic.name)} keeps messages for {age:g} seconds, less than the subscription"
            raise failed_precondition(f"{text}: ask for a shorter retention, or its owner for a longer one.")
        retention = replace(topic.settings.retention, age=seconds)
        await self._topics.make(topic.name, rights, replace(topic.settings, retention=retention))


def _values_of(topic: Topic) -> dict[str, Any]:
    settings = topic.settings
    values: dict[str, Any] = {"name": topic_name(topic.name)}
    if settings.labels:
        values["labels"] = dict(settings.labels)
    if settings.message_retention:
        values["messageRetentionDuration"] = round(settings.message_retention * SECOND)
    return values


def _settings_of(settings: TopicSettings, values: Mapping[str, Any]) -> TopicSettings:
    """Return the settings of a topic after a change; events are kept for its subscriptions, and for its own sake."""
    kept = values.get("messageRetentionDuration", 0) / SECOND
    retention: Retention = settings.retention
    if settings == TopicSettings():
        retention = replace(retention, age=AGE)
    if retention.age is not None and retention.age < kept:
        retention = replace(retention, age=kept)
    return replace(settings, retention=retention, labels=dict(values.get("labels", {})), message_retention=kept)
