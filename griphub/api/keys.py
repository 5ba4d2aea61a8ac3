"""Values of keys, and single events, over HTTP."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote

from griphub.access.owner import owner_key
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.problem import Problem
from griphub.api.publish_body import deletion_of, draft_of
from griphub.api.publishing import Publishing
from griphub.api.reading import Reading
from griphub.api.request import Answer, Reply, Request
from griphub.store.event import Draft, Event
from griphub.store.topic import Topic
from griphub.topics.times import time_text

__all__ = ["Keys"]

ATTRIBUTES_SHOWN: Final = 4096
"""Bytes of attributes that a header has; larger ones are in the history only, since proxies refuse long heads."""


class Keys:
    """Answers to requests about one key or one event.

    Args:
        context: parts of the hub.
        publishing: stores events.
        reading: resolves cursors.
    """

    def __init__(self, context: Context, publishing: Publishing, reading: Reading) -> None:
        self._context = context
        self._publishing = publishing
        self._reading = reading

    def draft(self, request: Request, key: str) -> tuple[Draft, ...]:
        """Return the event of ``PUT`` or ``DELETE /topics/T/keys/K``.

        Args:
            request: the request.
            key: the key.

        Raises:
            Problem: the request is refused.
        """
        read = draft_of if request.method == b"PUT" else deletion_of
        return (read(request.headers, request.body, key),)

    def store(
        self, request: Request, topic: str, key: str, rights: Rights, drafts: tuple[Draft, ...], reply: Reply
    ) -> None:
        """Store the event of ``PUT`` or ``DELETE /topics/T/keys/K``.

        Args:
            request: the request.
            topic: name of a topic.
            key: the key.
            rights: of the caller.
            drafts: the event.
            reply: called once with the answer.

        Raises:
            Problem: the request is refused.
        """
        self._publishing.store(request, topic, rights, drafts, key, reply)

    async def get(self, topic: Topic, key: str, rights: Rights) -> Answer:
        """Answer ``GET /topics/T/keys/K`` with the value and its metadata.

        Args:
            topic: the topic.
            key: the key.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: 404, the key has no value.
        """
        event = await self._context.readers.last_of(topic.number, key, owner=owner_key(rights.owner))
        if event is None:
            raise Problem(404, "not-found", f"the key {key!r} has no value", {"last": "0"})
        if event.op == "delete":
            cursor = self._context.epochs.cursor(event.id)
            raise Problem(
                404, "not-found", f"the key {key!r} was deleted", {"last": str(event.id), "last_cursor": cursor}
            )
        return self._content(event)

    async def event(self, topic: Topic, text: str, rights: Rights) -> Answer:
        """Answer ``GET /topics/T/events/CURSOR`` with the content and metadata of one event.

        Args:
            topic: the topic.
            text: cursor of the event.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: 400, 404 or 410.
        """
        number = self._reading.place(text, topic)
        event = await self._context.readers.event_at(topic.number, number, owner=owner_key(rights.owner))
        if event is None:
            raise Problem(404, "not-found", f"the topic has no event at {text}, or not any more")
        return self._content(event)

    def _content(self, event: Event) -> Answer:
        epochs = self._context.epochs
        cursor = epochs.cursor(event.id)
        headers = [
            ("ETag", f'"{cursor}"'),
            ("Event-Id", str(event.id)),
            ("Event-Cursor", cursor),
            ("Event-Version", str(event.version)),
            ("Event-Time", time_text(event.time)),
            ("Cache-Control", "no-cache"),
            # Contents come from publishers: a browser must not take them for a page of this site.
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Security-Policy", "sandbox"),
        ]
        if event.key is not None:
            headers += [("Event-Key", quote(event.key, safe="")), ("Event-Op", event.op)]
        if event.attributes:
            text = json.dumps(dict(event.attributes), separators=(",", ":"))
            if len(text) <= ATTRIBUTES_SHOWN:
                headers.append(("Event-Attributes", text))
        return Answer(200, event.data, event.content_type, headers)
