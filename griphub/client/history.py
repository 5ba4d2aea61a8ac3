"""History: stored events of a topic, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from griphub.client.connection import HubConnection
from griphub.client.errors import BadAnswer, failure, problem_of
from griphub.client.follower import Selection
from griphub.client.received import ReceivedEvent, Truncated, document_of

__all__ = ["read_history"]

PAGE_MAX: Final = 1000
"""Greatest number of events that are asked for in one page."""


async def read_history(
    connection: HubConnection, topic: str, selection: Selection, limit: int | None = None
) -> AsyncIterator[ReceivedEvent | Truncated]:
    """Yield the stored events of a topic, a page of them in memory.

    Args:
        connection: to the hub.
        topic: name of the topic.
        selection: the events.
        limit: greatest number of events; None for all that are stored when the last page is read.

    Yields:
        Events, and ``Truncated`` before them where the selection allows it.

    Raises:
        ConnectionLost: the hub was not reached.
        RequestFailed: the hub refuses it; ``Gone`` if the events are not retained.
        BadAnswer: the answer is not a hub's.
    """
    left = limit
    while left is None or left > 0:
        query = selection.query() if left is None else [*selection.query(), ("limit", str(min(left, PAGE_MAX)))]
        headers = [("Accept", "application/json")]
        answer = await connection.request("GET", ("topics", topic, "events"), query, headers)
        if answer.status != 200:
            raise failure(problem_of(answer.status, answer.content_type, answer.body), answer.retry_after)
        page = document_of(answer.body)
        events, cursor, more = page.get("events"), page.get("cursor"), page.get("more")
        if not isinstance(events, list) or not isinstance(cursor, str) or not isinstance(more, bool):
            raise BadAnswer("no page of events")
        if isinstance(page.get("truncated"), dict):
            yield Truncated.of(page["truncated"])
        for document in events:
            if not isinstance(document, dict):
                raise BadAnswer("no page of events")
            yield ReceivedEvent.of(document)
        if not more:
            return
        left = None if left is None else left - len(events)
        selection = replace(selection, after=cursor, since=None)
