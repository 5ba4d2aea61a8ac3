"""Plain forms of the records of a store: tuples of texts, numbers and bytes, as they cross between processes.

A writer takes thousands of publications in each commit; a tuple is a tenth of the work that a record is. The forms are
those of ``marshal``: no enumerations, no records, no mappings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

import orjson

from griphub.store.cursor import EpochInterval
from griphub.store.event import NO_ATTRIBUTES, Draft, Event, Operation, size_of
from griphub.store.interface import Page, SnapshotPage, StorePage, StoreState
from griphub.store.publication import Outcome, Publication, Published, Refused, Repeated
from griphub.store.pubsub_subscription import BacklogProgress
from griphub.store.subscription import Keys, Subscription
from griphub.store.topic import Retention, Topic, TopicSettings

__all__ = [
    "EVENT_COLUMNS",
    "OPERATIONS",
    "SUBSCRIPTION_COLUMNS",
    "TOPIC_COLUMNS",
    "PlainDraft",
    "PlainName",
    "PlainOutcome",
    "PlainProgress",
    "PlainPublication",
    "Row",
    "attempts_json",
    "event_of",
    "keys_json",
    "keys_of",
    "outcome_of",
    "page_of",
    "plain_draft",
    "plain_progress",
    "plain_publication",
    "plain_state",
    "plain_subscription",
    "plain_topic",
    "settings_json",
    "settings_of",
    "snapshot_page_of",
    "state_of",
    "store_page_of",
    "subscription_of",
    "topic_of",
]

OPERATIONS: Final[tuple[Operation, ...]] = ("put", "delete")
"""Operations by their number in the plain form."""

TOPIC_COLUMNS: Final = "t, name, birth, floor, floor_time, last, count, bytes, access, settings, owner"
EVENT_COLUMNS: Final = "id, prev, ver, ts, data, ctype, key, op, attrs, size"
SUBSCRIPTION_COLUMNS: Final = (
    "n, t, id, owner, callback, start, position, keys, rights_end, created, confirmed, rest, failure"
)

Row = tuple[Any, ...]
"""Row of a query, with ``TOPIC_COLUMNS``, ``EVENT_COLUMNS`` or ``SUBSCRIPTION_COLUMNS``."""

PlainDraft = tuple[int, str | None, str, str | None, bytes, int]
"""Number of the operation, key, content type, attributes as JSON, content, size."""

PlainName = tuple[str, str, bytes, float, str, int | None]
"""Fields of ``Idempotency``, in order."""

PlainProgress = tuple[int, int, int, bytes, str, int]
"""Fields of ``BacklogProgress``, in order; attempts as the table has them."""

PlainPublication = tuple[
    str, Sequence[PlainDraft], tuple[int, str | None] | None, PlainName | None, PlainProgress | None
]
"""Fields of ``Publication``, in order."""

PlainOutcome = tuple[Literal[0, 1], int, int, int, int, int] | tuple[Literal[2], str, int]
"""0 published or 1 repeated: topic, id before the first, first id, first time, number of events. 2 refused: kind, id of
the last event."""


def plain_draft(draft: Draft) -> PlainDraft:
    """Return the plain form of a ``draft``."""
    if draft.key is None and not draft.attributes:
        # Most events.
        data, content_type = draft.data, draft.content_type
        return (0 if draft.op == "put" else 1, None, content_type, None, data, len(data) + len(content_type.encode()))
    attributes = orjson.dumps(dict(draft.attributes)).decode() if draft.attributes else None
    return (
        0 if draft.op == "put" else 1,
        draft.key,
        draft.content_type,
        attributes,
        draft.data,
        size_of(draft),
    )


def plain_publication(publication: Publication) -> PlainPublication:
    """Return the plain form of a publication.

    Args:
        publication: the publication.

    Raises:
        ValueError: a text of it has no UTF-8, so that no commit with it would succeed.
    """
    condition, name = publication.condition, publication.idempotency
    if name is not None:
        (name.scope + name.key + name.owner).encode()
    return (
        publication.topic,
        [plain_draft(draft) for draft in publication.drafts],
        None if condition is None else (condition.last, condition.key),
        None if name is None else (name.scope, name.key, name.digest, float(name.expires), name.owner, name.owner_max),
        None if publication.progress is None else plain_progress(publication.progress),
    )


def attempts_json(attempts: Mapping[int, int]) -> str:
    """Return the numbers of deliveries as the table has them.

    Args:
        attempts: by id of the message.
    """
    return orjson.dumps({str(id): number for id, number in attempts.items()}).decode() if attempts else "{}"


def plain_progress(progress: BacklogProgress) -> PlainProgress:
    """Return the plain form of a ``progress``."""
    attempts = attempts_json(progress.attempts)
    return (progress.number, progress.generation, progress.position, progress.acked, attempts, progress.used)


def outcome_of(plain: PlainOutcome) -> Outcome:
    """Return the outcome of a ``plain`` form."""
    if plain[0] == 2:
        _, kind, last = plain
        return Refused(kind, last)  # type: ignore[arg-type]
    repeated, topic, previous, first, time, count = plain
    if count == 1:
        published = Published(topic, previous, (first,), (time,))
    else:
        published = Published(topic, previous, tuple(range(first, first + count)), tuple(range(time, time + count)))
    return Repeated(published) if repeated else published


def topic_of(row: Row) -> Topic:
    """Return the topic of a ``row`` with ``TOPIC_COLUMNS``."""
    number, name, birth, floor, floor_time, last, count, size, access, settings, owner = row
    return Topic(number, name, birth, floor, floor_time, last, count, size, access, settings_of(settings), owner)


def plain_topic(topic: Topic) -> Row:
    """Return the plain form of a ``topic``: a row with ``TOPIC_COLUMNS``."""
    return (
        *(topic.number, topic.name, topic.birth, topic.floor, topic.floor_time, topic.last, topic.count),
        *(topic.bytes, topic.access, settings_json(topic.settings), topic.owner),
    )


def settings_of(text: str) -> TopicSettings:
    """Return the settings of a topic.

    Args:
        text: as the table has them.

    Raises:
        TypeError: a field is unknown.
        ValueError: it is no JSON.
    """
    settings = orjson.loads(text)
    retention = Retention(**settings.pop("retention"))
    labels = MappingProxyType(settings.pop("labels"))
    return TopicSettings(retention=retention, labels=labels, **settings)


def settings_json(settings: TopicSettings) -> str:
    """Return the ``settings`` of a topic as the table has them."""
    retention = settings.retention
    return orjson.dumps(
        {
            "retention": {
                "age": retention.age,
                "events": retention.events,
                "bytes": retention.bytes,
                "compact": retention.compact,
            },
            "store": settings.store,
            "progress": settings.progress,
            "labels": dict(settings.labels),
            **({"snapshot_url": settings.snapshot_url} if settings.snapshot_url else {}),
            **({"message_retention": settings.message_retention} if settings.message_retention else {}),
        }
    ).decode()


def event_of(row: Row) -> Event:
    """Return the event of a ``row`` with ``EVENT_COLUMNS``."""
    id, previous, version, moment, data, content_type, key, op, attributes, _ = row
    return Event(
        id,
        previous,
        version,
        moment,
        data,
        content_type,
        key,
        OPERATIONS[op],
        NO_ATTRIBUTES if attributes is None else MappingProxyType(orjson.loads(attributes)),
    )


def plain_state(state: StoreState) -> Row:
    """Return the plain form of a ``state``."""
    intervals = [(each.epoch, each.first, each.last) for each in state.intervals]
    return (state.epoch, intervals, state.newest, state.newest_time, state.secret)


def state_of(plain: Row) -> StoreState:
    """Return the state of a ``plain`` form."""
    epoch, intervals, newest, newest_time, secret = plain
    return StoreState(epoch, tuple([EpochInterval(*each) for each in intervals]), newest, newest_time, secret)


def page_of(plain: Row) -> Page:
    """Return the page of a ``plain`` form: topic, events, last id, whether there are more."""
    topic, rows, last, more = plain
    return Page(topic_of(topic), tuple(map(event_of, rows)), last, more)


def snapshot_page_of(plain: Row) -> SnapshotPage:
    """Return the page of a ``plain`` form: topic, events, next key."""
    topic, rows, next_key = plain
    return SnapshotPage(topic_of(topic), tuple(map(event_of, rows)), next_key)


def store_page_of(plain: Row) -> StorePage:
    """Return the page of a ``plain`` form: pairs of topic number and event, last id, whether there are more."""
    rows, last, more = plain
    return StorePage(tuple([(row[0], event_of(row[1:])) for row in rows]), last, more)


def subscription_of(row: Row) -> Subscription:
    """Return the subscription of a ``row`` with ``SUBSCRIPTION_COLUMNS``."""
    number, topic, id, owner, callback, start, position, keys, rights_end, created, confirmed, rest, failure = row
    return Subscription(
        *(number, topic, id, owner, callback, start, position, keys_of(keys), rights_end, created, bool(confirmed)),
        *(rest, failure),
    )


def plain_subscription(subscription: Subscription) -> Row:
    """Return the plain form of a ``subscription``: a row with ``SUBSCRIPTION_COLUMNS``."""
    return (
        *(subscription.number, subscription.topic, subscription.id, subscription.owner, subscription.callback),
        *(subscription.start, subscription.position, keys_json(subscription.keys), subscription.rights_end),
        *(subscription.created, int(subscription.confirmed), subscription.rest, subscription.failure),
    )


def keys_json(keys: Keys) -> str:
    """Return the signing ``keys`` of a subscription as the table has them."""
    return orjson.dumps(keys).decode()


def keys_of(text: str) -> Keys:
    """Return the signing keys of a subscription.

    Args:
        text: as the table has them.
    """
    return tuple([(key, end) for key, end in orjson.loads(text)])
