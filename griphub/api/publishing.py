"""Publishing: one commit for the events of a request, answered when it is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from griphub.access.owner import owner_key
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.feed import Feed
from griphub.api.problem import Problem, limited
from griphub.api.publish_body import digest_of
from griphub.api.query import idempotency_key, if_match
from griphub.api.request import Answer, Reply, Request, problem_answer
from griphub.processes.writer import PlainDone
from griphub.processes.writer_options import OWNER_MAX
from griphub.store.cursor import is_known, parse_cursor
from griphub.store.errors import OwnerBusy, StoreBusy, StoreError, StoreFull
from griphub.store.event import Draft
from griphub.store.plain_records import PlainPublication
from griphub.store.publication import Condition, Idempotency, Outcome, Publication, Published, Refused, Repeated
from griphub.topics.event_text import Epochs
from griphub.topics.times import second_text, time_text

__all__ = ["Publishing", "answer_of", "event_body", "published_body", "store_failure"]

NO_EVENT: Final = -1
"""Id that no event has: a condition with it is never met."""


def event_body(id: int, time: int, epochs: Epochs) -> bytes:
    """Return the JSON that reports one stored event.

    Args:
        id: of the event.
        time: of the event, in microseconds since 1970.
        epochs: epochs of the store.
    """
    name = epochs.current if id >= epochs.first else epochs.name(id)
    second, micro = divmod(time, 1_000_000)
    return b'{"events":[{"id":"%d","cursor":"%b.%d","time":"%b.%06dZ"}],"version":"%d","version_cursor":"%b.%d"}\n' % (
        id,
        name,
        id,
        second_text(second),
        micro,
        id,
        name,
        id,
    )


def published_body(published: Published, epochs: Epochs) -> bytes:
    """Return the JSON that reports stored events.

    Args:
        published: outcome of their publication.
        epochs: epochs of the store.
    """
    if len(published.ids) == 1:
        return event_body(published.ids[0], published.times[0], epochs)
    events = ",".join(
        [
            f'{{"id":"{id}","cursor":"{epochs.cursor(id)}","time":"{time_text(time)}"}}'
            for id, time in zip(published.ids, published.times, strict=True)
        ]
    )
    version = published.ids[-1]
    return f'{{"events":[{events}],"version":"{version}","version_cursor":"{epochs.cursor(version)}"}}\n'.encode()


class Publishing:
    """Answers to requests that publish.

    Args:
        context: parts of the hub.
        feed: receiver of stored events.
    """

    def __init__(self, context: Context, feed: Feed) -> None:
        self._context = context
        self.feed = feed
        """Receiver of stored events."""

    def publish(self, request: Request, topic: str, rights: Rights, drafts: tuple[Draft, ...], reply: Reply) -> None:
        """Store the events of ``POST /topics/T/events``; ``reply`` is called after the commit.

        Args:
            request: the request.
            topic: name of an existing topic.
            rights: of the caller, among them that to publish.
            drafts: the events.
            reply: called once with the answer.

        Raises:
            Problem: the request is refused.
        """
        key = drafts[0].key if request.header(b"event-key") is not None else None
        self.store(request, topic, rights, drafts, key, reply)

    def store(
        self, request: Request, topic: str, rights: Rights, drafts: tuple[Draft, ...], key: str | None, reply: Reply
    ) -> None:
        """Store events; ``reply`` is called after the commit.

        Args:
            request: the request, for its condition and its name.
            topic: name of an existing topic.
            rights: of the caller.
            drafts: the events.
            key: key that ``If-Match`` is about; None for the topic.
            reply: called once with the answer.

        Raises:
            Problem: the request is refused.
        """
        condition = self._condition(request, key)
        name = self._name(request, topic, rights)
        self.append(Publication(topic, drafts, condition, name), owner_key(rights.owner), reply)

    def append(self, publication: Publication, owner: str, reply: Reply) -> None:
        """Store a publication; ``reply`` is called after the commit.

        Args:
            publication: the publication.
            owner: key of the owner.
            reply: called once with the answer.

        Raises:
            Problem: 429, too much of the owner is waiting; 503, the writer is away, or has too much waiting.
        """
        topic, drafts = publication.topic, publication.drafts
        begun = self._context.now()

        def done(outcome: Outcome | StoreError) -> None:
            self._context.counters.commits.add(self._context.now() - begun)
            reply(self.answer(topic, drafts, outcome))

        try:
            self._context.writer.append(publication, done, owner)
        except (OwnerBusy, StoreBusy) as error:
            raise _not_taken(error) from error

    def append_plain(self, plain: PlainPublication, size: int, done: PlainDone, owner: str) -> None:
        """Store a publication in its plain form.

        Args:
            plain: the publication.
            size: bytes that it counts for.
            done: called once, with the outcome after the commit.
            owner: key of the owner.

        Raises:
            Problem: 429, too much of the owner is waiting; 503, the writer is away, or has too much waiting.
        """
        try:
            self._context.writer.append_plain(plain, size, done, owner)
        except (OwnerBusy, StoreBusy) as error:
            raise _not_taken(error) from error

    def _condition(self, request: Request, key: str | None) -> Condition | None:
        text = if_match(request.headers)
        if text is None:
            return None
        cursor = parse_cursor(text)
        context = self._context
        known = is_known(cursor, context.state.intervals, max(context.fanout.stored, context.fanout.newest))
        return Condition(cursor.id if known else NO_EVENT, key)

    def _name(self, request: Request, topic: str, rights: Rights) -> Idempotency | None:
        key = idempotency_key(request.headers)
        if key is None:
            return None
        config, owner = self._context.config, owner_key(rights.owner)
        target = request.target
        digest = digest_of(request.method, request.headers, request.body, target.path, target.query)
        return Idempotency(
            f"{owner}\n{topic}", key, digest, config.idempotency_ttl, owner, config.idempotency_per_owner_max
        )

    def answer(self, topic: str, drafts: tuple[Draft, ...], outcome: Outcome | StoreError) -> Answer:
        """Return the answer to a publication, whose events are passed on if they were stored.

        Args:
            topic: name of its topic.
            drafts: the events.
            outcome: of the publication.
        """
        context = self._context
        if isinstance(outcome, Published):
            self.feed.published(outcome, drafts)
            return Answer(201, published_body(outcome, context.epochs))
        if isinstance(outcome, Repeated):
            context.counters.repeated += 1
            body = published_body(outcome.first, context.epochs)
            return Answer(201, body, headers=[("Idempotency-Replayed", "true")])
        if isinstance(outcome, Refused):
            return _refusal(outcome, topic, context)
        return store_failure(outcome)


def _not_taken(error: OwnerBusy | StoreBusy) -> Problem:
    """Return the problem of a publication that the writer does not take."""
    if isinstance(error, OwnerBusy):
        return limited(str(error), "owner_bytes", OWNER_MAX, 1)
    return Problem(503, "unavailable", str(error), headers=[("Retry-After", "1")])


def _refusal(refused: Refused, topic: str, context: Context) -> Answer:
    """Return the answer to a publication that was not stored."""
    last = context.epochs.cursor(refused.last) if refused.last else "0"
    problems = {
        "unknown": Problem(404, "not-found", f"there is no topic {topic!r}: make it with PUT /topics/NAME"),
        "condition": Problem(
            412,
            "condition",
            f"the last event is {last}, not the one that If-Match names",
            {"last": str(refused.last), "last_cursor": last},
        ),
        "another": Problem(422, "unprocessable", "this Idempotency-Key was used for another request: take a new one"),
        "names": Problem(
            429,
            "limit",
            "no room for a further Idempotency-Key: they are remembered for idempotency_ttl seconds",
            {"limit": "idempotency_per_owner_max", "max": context.config.idempotency_per_owner_max},
        ),
    }
    return problem_answer(problems[refused.kind])


async def answer_of(publish: Callable[[Reply], None]) -> Answer:
    """Return the answer of a publication.

    Args:
        publish: begins it; calls its argument once with the answer.

    Raises:
        Exception: of ``publish``.
    """
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    publish(lambda answer: None if answered.done() else answered.set_result(answer))
    return await answered


def store_failure(error: StoreError) -> Answer:
    """Return the answer to a request that the store could not carry out.

    Args:
        error: failure of the store.
    """
    if isinstance(error, StoreFull):
        return problem_answer(Problem(507, "full", str(error)))
    return problem_answer(Problem(503, "unavailable", str(error), headers=[("Retry-After", "1")]))
