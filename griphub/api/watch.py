"""Watching: events of a range, progress, and a resync in place of silence.

A watch is another representation of following: the same pages, holds, links and chains, whose channels have progress as
further items (``topics.progress``). It never leaves anything out: a request for a place that is not retained gets a
resync within the stream, also the first one; its watcher reads a snapshot and watches from its version.
"""

from __future__ import annotations

from griphub.access.owner import owner_key
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.follow import Follower, Following
from griphub.api.problem import Problem
from griphub.api.query import RESYNC, accepted_representation, last_event_id, watch_query
from griphub.api.reading import Reading
from griphub.api.request import Answer, Request
from griphub.store.topic import Topic

__all__ = ["Watching"]


class Watching:
    """Answers to watchers of event streams and lines; ``WebSockets`` has the others.

    Args:
        context: parts of the hub.
        following: replay and live events.
        reading: resolves places.
    """

    def __init__(self, context: Context, following: Following, reading: Reading) -> None:
        self._context = context
        self._following = following
        self._reading = reading

    async def answer(self, request: Request, topic: Topic, rights: Rights) -> Answer:
        """Answer ``GET /topics/T/watch``.

        Args:
            request: the request.
            topic: its topic; the caller may read it.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused; 429, a bound was reached; 503.
        """
        if last_event_id(request.headers) == RESYNC:
            # The resync before has ended the watch; this ends the EventSource.
            return Answer(204, b"", "")
        query, owner = watch_query(request.target.query), owner_key(rights.owner)
        form = accepted_representation(request.headers, watching=True)
        self._context.counters.watches += 1
        try:
            after, position = await self._reading.start(request, query, topic, owner)
            follower = Follower(
                topic, query.keys, form, after, owner, rights.ends, position=position, announced=not position
            )
            return await self._following.stream(follower)
        except Problem as problem:
            if problem.status != 410:
                raise
            return self._following.resync_stream(problem, form, query.keys)
