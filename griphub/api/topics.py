"""Topics over HTTP: made, changed, shown, deleted, revoked."""

from __future__ import annotations

from contextlib import nullcontext

import orjson

from griphub.access.owner import owner_key
from griphub.access.patterns import Patterns
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.problem import Problem
from griphub.api.query import topic_list_query
from griphub.api.request import Answer, Request
from griphub.api.soft_problems import limit_reached, soft_problem
from griphub.api.topic_body import patched_settings, settings_of_body, topic_json
from griphub.store.topic import Topic, TopicSettings
from griphub.windows.bounds import WindowLimit

__all__ = ["Topics"]


class Topics:
    """Answers to requests about topics.

    Args:
        context: parts of the hub.
        autocreate: names of topics that a publication makes.
    """

    def __init__(self, context: Context, autocreate: Patterns) -> None:
        self._context = context
        self._autocreate = autocreate

    def find(self, name: str) -> Topic:
        """Return a topic that the hub stores.

        Args:
            name: of the topic.

        Raises:
            Problem: 404, there is none; 409, it is a soft one.
        """
        topic = self.find_any(name)
        if topic.settings.soft:
            raise soft_problem(name)
        return topic

    def find_soft(self, name: str) -> Topic:
        """Return a soft topic.

        Args:
            name: of the topic.

        Raises:
            Problem: 404, there is none; 409, the hub stores it.
        """
        topic = self.find_any(name)
        if not topic.settings.soft:
            text = f"the topic {name!r} is stored by the hub: publish to /topics/NAME/events, or make a topic with"
            raise Problem(409, "conflict", f"{text} store='none' for events of another store")
        return topic

    def find_any(self, name: str) -> Topic:
        """Return a topic of either kind.

        Args:
            name: of the topic.

        Raises:
            Problem: 404, there is none.
        """
        topic = self._context.topics.named(name)
        if topic is None:
            raise Problem(404, "not-found", f"there is no topic {name!r}: make it with PUT /topics/NAME")
        return topic

    def made_by_publishing(self, name: str) -> bool:
        """Return whether a publication makes the topic ``name`` if it is missing."""
        return self._autocreate.matches(name)

    async def make(self, name: str, rights: Rights, settings: TopicSettings) -> tuple[Topic, bool]:
        """Make a topic or change its settings.

        Args:
            name: of the topic.
            rights: of the caller, its owner if it is made.
            settings: all of its settings.

        Returns:
            The topic, and whether it was made.

        Raises:
            Problem: 409, it is of the other kind; 429, there are too many topics.
            StoreError: the store cannot do it now.
        """
        context, config, owner = self._context, self._context.config, owner_key(rights.owner)
        known = context.topics.named(name)
        if known is not None:
            _check_kind(known, settings)
        if known is None and len(context.topics) >= config.topics_max:
            raise Problem(
                429, "limit", f"there are {config.topics_max} topics", {"limit": "topics_max", "max": config.topics_max}
            )
        try:
            with context.soft.windows.reserved(owner) if known is None and settings.soft else nullcontext():
                made = await context.writer.put_topic(name, settings, owner, config.topics_per_owner_max)
        except WindowLimit as error:
            raise limit_reached(error) from error
        if made is None:
            most = config.topics_per_owner_max
            text = f"the owner has {most} topics: delete some"
            raise Problem(429, "limit", text, {"limit": "topics_per_owner_max", "max": most})
        context.topics.set(made[0])
        if made[1]:
            context.fanout.reach(made[0].birth)
        context.soft.open([made[0]])
        # Another request may have made it meanwhile.
        _check_kind(made[0], settings)
        return made

    async def put(self, request: Request, name: str, rights: Rights) -> Answer:
        """Answer ``PUT /topics/T``.

        Args:
            request: the request.
            name: of the topic.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused.
        """
        topic, made = await self.make(name, rights, settings_of_body(request.body))
        return Answer(201 if made else 200, topic_json(topic, self._context.epochs) + b"\n")

    async def patch(self, request: Request, name: str, rights: Rights) -> Answer:
        """Answer ``PATCH /topics/T``: a JSON merge patch (RFC 7396) of the settings.

        Args:
            request: the request.
            name: of the topic.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused.
        """
        settings = patched_settings(self.find_any(name).settings, request.body)
        topic, _ = await self.make(name, rights, settings)
        return Answer(200, topic_json(topic, self._context.epochs) + b"\n")

    async def get(self, name: str, rights: Rights) -> Answer:
        """Answer ``GET /topics/T``.

        Args:
            name: of the topic.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused.
        """
        self.find_any(name)
        topic = await self._context.readers.topic(name, owner=owner_key(rights.owner))
        if topic is None:
            return Answer(200, topic_json(self.find_any(name), self._context.epochs) + b"\n")
        return Answer(200, topic_json(topic, self._context.epochs) + b"\n")

    async def delete(self, name: str, rights: Rights) -> Answer:
        """Answer ``DELETE /topics/T``: its followers get a resync, and end.

        Args:
            name: of the topic.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: 404, there is none.
        """
        number = self.find_any(name).number
        deleted = await self._context.writer.delete_topic(name, owner=owner_key(rights.owner))
        # Others may have deleted it meanwhile, and made it again: then that one is deleted.
        for each in {number} if deleted is None else {number, deleted.number}:
            self._forget(name, each)
        return Answer(204, b"", "")

    def _forget(self, name: str, number: int) -> None:
        context = self._context
        context.mailboxes.end(name)
        context.topics.remove(number)
        context.fanout.forget(number)
        context.soft.forget(number)
        context.subscriptions.end(number)
        context.pubsub.end(number)
        for held in context.index.of_topic(number):
            for channel in list(held.channels):
                context.hint(channel.name)

    async def revoke(self, name: str, rights: Rights) -> Answer:
        """Answer ``POST /topics/T/revoke``: links that were given out end.

        Args:
            name: of the topic.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: 404, there is none.
        """
        context = self._context
        self.find_any(name)
        raised = await context.writer.raise_access(name, owner=owner_key(rights.owner))
        if raised is None:
            raise Problem(404, "not-found", f"there is no topic {name!r}")
        context.topics.set(raised)
        # Clients that still have the right subscribe again.
        context.mailboxes.end(name)
        context.subscriptions.revoke(raised.number)
        for held in context.index.of_topic(raised.number):
            for channel in held.channels:
                context.hint(channel.name)
        return Answer(204, b"", "")

    async def list(self, request: Request, rights: Rights) -> Answer:
        """Answer ``GET /topics``: the topics that the caller may see, a page at a time.

        Args:
            request: the request.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused.
        """
        query = topic_list_query(request.target.query)
        owner = owner_key(rights.owner)
        found: list[Topic] = []
        after, complete = query.after, False
        # A page of the store at a time, and not more than a few, since most topics may be those of others.
        for _ in range(10):
            page = await self._context.readers.topics(after, 1000, owner=owner)
            for topic in page:
                after = topic.name
                if rights.sees(topic.name):
                    found.append(topic)
                    if len(found) >= query.limit:
                        break
            else:
                if len(page) < 1000:
                    complete = True
                    break
                continue
            break
        following = None if complete else orjson.dumps(after)
        body = b'{"topics":[%b],"next":%b}\n' % (
            b",".join(topic_json(topic, self._context.epochs) for topic in found),
            following or b"null",
        )
        return Answer(200, body)


def _check_kind(topic: Topic, settings: TopicSettings) -> None:
    """Raise a problem if a topic is stored elsewhere than its settings demand."""
    if topic.settings.store != settings.store:
        text = f"the topic {topic.name!r} has store={topic.settings.store!r}, which cannot be changed: delete it first"
        raise Problem(409, "conflict", text)
