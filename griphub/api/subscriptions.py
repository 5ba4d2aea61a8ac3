"""Subscriptions over HTTP: made, renewed, shown, deleted, and signed with other keys.

Requests about one subscription are carried out one after the other, from the first look at the table to the commit: a
deletion waits for a request before it that is still to make the subscription, and two equal requests make one. The
floor may pass the position of a subscription between the check and the commit: the delivery finds that, and rests with
the reason ``behind``.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from griphub.access.owner import owner_key
from griphub.access.quota import LimitReached
from griphub.access.rate import RateLimit
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.follow import Following
from griphub.api.problem import Problem, conflict, forbidden, limited, not_found
from griphub.api.query import nothing_else
from griphub.api.reading import Reading
from griphub.api.request import Answer, Request, no_body
from griphub.api.subscription_body import (
    SubscriptionBody,
    check_subscription_id,
    owner_query,
    rotated_keys,
    signing_key_of_body,
    subscription_body,
    subscription_document,
    subscription_list_query,
)
from griphub.sender.signature import SigningKey
from griphub.store.subscription import Subscription
from griphub.store.topic import Topic

__all__ = ["MAKES_PER_MINUTE_MAX", "UNCONFIRMED_MAX", "SubscriptionRequests"]

MAKES_PER_MINUTE_MAX: Final = 600
"""Requests of one owner per minute that make or renew a subscription: each is a commit, and may be a challenge. All of
them may be sent together after a pause."""

UNCONFIRMED_MAX: Final = 100
"""Subscriptions of one owner whose callbacks at one host have not answered their challenge: that host may not have
asked for the requests."""

RIGHTS_END_MAX: Final = 253_402_300_799_000_000
"""Greatest end of rights, in microseconds since 1970: the last second of the year 9999, as times have four digits."""

Name = tuple[int, str, str]
"""Number of a topic, key of an owner, and id of a subscription."""

_NO_STORE: Final = [("Cache-Control", "no-store")]


class SubscriptionRequests:
    """Answers to requests about subscriptions. The caller has an authenticated owner, whose id space is its own.

    Args:
        context: parts of the hub.
        random: returns a number of random bytes.
    """

    def __init__(self, context: Context, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._context = context
        self._random = random
        self._following = Following(context)
        self._reading = Reading(context, self._following)
        self._rate = RateLimit("subscription_makes_per_minute", MAKES_PER_MINUTE_MAX, MAKES_PER_MINUTE_MAX)
        self._names = _NameLocks()
        self._making: Counter[tuple[str, str]] = Counter()
        """Subscriptions under way to the store, by owner and host: they are unconfirmed ones soon."""

    # --- POST /topics/T/subscriptions

    async def make(self, request: Request, topic: Topic, rights: Rights) -> Answer:
        """Answer ``POST /topics/T/subscriptions``: 201 for a new one, 200 for one with this id and equal parameters.

        Args:
            request: the request.
            topic: its topic; the caller may read it.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused; 410, the place to begin at is not retained.
            LimitReached: there are as many subscriptions as a bound allows.
            StoreError: the store cannot do it now.
        """
        nothing_else(request.target.query)
        context, owner = self._context, owner_key(rights.owner)
        wanted = subscription_body(request.body, context.callback_policy)
        self._spend(owner)
        name = (topic.number, owner, wanted.id)
        async with self._names.only(name):
            earlier = context.subscriptions.table.find(*name)
            if earlier is not None:
                return await self._renew(earlier, wanted, topic)
            return await self._make(wanted, topic, owner)

    async def _make(self, wanted: SubscriptionBody, topic: Topic, owner: str) -> Answer:
        """Make a subscription that the table does not have."""
        now, position, latest = await self._place(wanted, topic, owner)
        key = wanted.key or SigningKey.generate(self._random)
        draft = Subscription(
            number=0,
            topic=topic.number,
            id=wanted.id,
            owner=owner,
            callback=str(wanted.callback),
            start=wanted.start,
            position=position,
            keys=((str(key), None),),
            rights_end=self._rights_end(now),
            created=now,
            confirmed=False,
            rest="",
            failure="",
        )
        with self._unconfirmed(owner, wanted.callback.host):
            try:
                made = await self._context.subscriptions.make(draft)
            except LookupError as error:
                raise _deleted(topic) from error
        if replace(made, number=0) != draft:
            # Stored by a request before, whose answer was lost with the writer.
            return await self._renew(made, wanted, latest)
        return self._answer(201, made, latest, signing_key=str(key))

    async def _renew(self, earlier: Subscription, wanted: SubscriptionBody, topic: Topic) -> Answer:
        """Prolong the rights of a subscription that was made before; one that rests begins again."""
        difference = wanted.difference(earlier)
        if difference:
            text = f"the subscription {wanted.id!r} exists with another {difference}"
            raise conflict(f"{text}: choose another id, or delete it first")
        feed, latest = self._context.subscriptions, await self._latest(topic, earlier.owner)
        status = feed.status(earlier)
        if status.rest and status.position < latest.floor:
            cursor = self._context.epochs.cursor(status.position)
            reason = f"the subscription {earlier.id!r} rests at {cursor}, and the events behind it are not retained"
            raise self._following.gone(latest, f"{reason}; delete it and make another")
        try:
            renewed = await feed.renew(earlier, self._rights_end(self._now()))
        except LookupError as error:
            raise _deleted(topic) from error
        return self._answer(200, renewed, latest)

    async def _place(self, wanted: SubscriptionBody, topic: Topic, owner: str) -> tuple[int, int, Topic]:
        """Return the time now, the position that a subscription begins at, and the topic as it is in the store.

        A time in the future stands for the last event of now: later events are delivered, also those before that time.
        """
        context, now = self._context, self._now()
        if wanted.since is None:
            assert wanted.after is not None
            place = self._reading.place(wanted.after, topic)
            latest = await self._latest(topic, owner)
            # An earlier place than the birth is the beginning, whose events are those behind the birth.
            position = max(place, latest.birth)
            if position < latest.floor:
                floor = context.epochs.cursor(latest.floor)
                raise self._following.gone(latest, f"events up to {floor} are not retained")
            return now, position, latest
        found = await context.readers.id_at(topic.number, wanted.since, owner=owner)
        # Read after the id, so that a floor that has passed the time meanwhile is seen.
        latest = await self._latest(topic, owner)
        if latest.floor_time and wanted.since < latest.floor_time:
            raise self._following.gone(latest, "events since then are not retained")
        # Events up to the floor are deleted, so their times are not found any more.
        return now, max(found, latest.floor), latest

    def _spend(self, owner: str) -> None:
        try:
            self._rate.spend(owner, self._context.now())
        except LimitReached as error:
            most, wait = error.limit, math.ceil(error.retry_after)
            raise limited(str(error), "subscription_makes_per_minute_max", most, wait) from error

    @contextmanager
    def _unconfirmed(self, owner: str, host: str) -> Iterator[None]:
        """Count a subscription that is under way to the store; refuse it beyond the bound of its owner and host."""
        subscriptions = self._context.subscriptions.table.of_owner(owner)
        count = self._making[owner, host] + sum(
            not each.confirmed and urlsplit(each.callback).hostname == host for each in subscriptions
        )
        if count >= UNCONFIRMED_MAX:
            text = (
                f"{count} subscriptions at {host} have not answered their challenge: have them answer, or delete some"
            )
            raise limited(text, "unconfirmed_per_host_max", UNCONFIRMED_MAX)
        self._making[owner, host] += 1
        try:
            yield
        finally:
            self._making[owner, host] -= 1
            if not self._making[owner, host]:
                del self._making[owner, host]

    # --- the others

    async def list(self, request: Request, topic: Topic, rights: Rights) -> Answer:
        """Answer ``GET /topics/T/subscriptions``: those of the caller, of all owners if it may administer the topic.

        Args:
            request: the request.
            topic: its topic.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused.
        """
        query = subscription_list_query(request.target.query)
        no_body(request)
        table, owner, admin = self._context.subscriptions.table, owner_key(rights.owner), _administers(rights, topic)
        latest = await self._latest(topic, owner)
        found = [
            each
            for each in (table.of_topic(topic.number) if admin else table.of_owner(owner))
            if each.topic == topic.number and each.number > query.after
        ]
        documents = [self._document(each, latest, owner=admin) for each in found[: query.limit]]
        return _listed(found, documents, query.limit)

    async def list_own(self, request: Request, rights: Rights) -> Answer:
        """Answer ``GET /subscriptions``: those of the caller, of all topics.

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
        context, owner = self._context, owner_key(rights.owner)
        found = [each for each in context.subscriptions.table.of_owner(owner) if each.number > query.after]
        documents, latest = [], dict[int, Topic | None]()
        for each in found[: query.limit]:
            if each.topic not in latest:
                topic = context.topics.numbered(each.topic)
                latest[each.topic] = None if topic is None else await context.readers.topic(topic.name, owner=owner)
            newest = latest[each.topic]
            # A topic that was deleted meanwhile has ended the subscription.
            if newest is not None and newest.number == each.topic:
                documents.append(self._document(each, newest, owner=False))
        return _listed(found, documents, query.limit)

    async def get(self, request: Request, topic: Topic, id: str, rights: Rights) -> Answer:
        """Answer ``GET /topics/T/subscriptions/ID``.

        Args:
            request: the request.
            topic: its topic.
            id: of the subscription.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused; 404, there is no such subscription.
        """
        owner = _owner(request, topic, rights)
        no_body(request)
        check_subscription_id(id)
        latest = await self._latest(topic, owner_key(rights.owner))
        found = self._find((topic.number, owner, id))
        return self._answer(200, found, latest, owner=_administers(rights, topic))

    async def delete(self, request: Request, topic: Topic, id: str, rights: Rights) -> Answer:
        """Answer ``DELETE /topics/T/subscriptions/ID``: 204 also if there was none; no request with the id follows.

        Args:
            request: the request.
            topic: its topic.
            id: of the subscription.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused.
            StoreError: the store cannot do it now.
        """
        owner = _owner(request, topic, rights)
        no_body(request)
        name = (topic.number, owner, check_subscription_id(id))
        async with self._names.only(name):
            await self._context.subscriptions.delete(*name)
        return Answer(204, b"", "")

    async def rotate(self, request: Request, topic: Topic, id: str, rights: Rights) -> Answer:
        """Answer ``POST /topics/T/subscriptions/ID/keys``: a new key signs, and the earlier one too for a while.

        Args:
            request: the request.
            topic: its topic.
            id: of the subscription.
            rights: of the caller.

        Returns:
            The answer.

        Raises:
            Problem: the request is refused; 404, there is no such subscription; 429, too many keys sign.
            StoreError: the store cannot do it now.
        """
        nothing_else(request.target.query)
        key = str(signing_key_of_body(request.body) or SigningKey.generate(self._random))
        name = (topic.number, owner_key(rights.owner), check_subscription_id(id))
        async with self._names.only(name):
            latest = await self._latest(topic, name[1])
            subscription = self._find(name)
            keys = rotated_keys(subscription.keys, key, self._context.wall())
            # A repeated request with the newest key changes nothing.
            if keys != subscription.keys:
                try:
                    subscription = await self._context.subscriptions.set_keys(subscription, keys)
                except LookupError as error:
                    raise _deleted(topic) from error
        return self._answer(200, subscription, latest, signing_key=key)

    # --- parts of all

    def _find(self, name: Name) -> Subscription:
        found = self._context.subscriptions.table.find(*name)
        if found is None:
            raise not_found(f"there is no subscription {name[2]!r}: make it with POST /topics/T/subscriptions")
        return found

    async def _latest(self, topic: Topic, owner: str) -> Topic:
        """Return a topic as it is in the store, in the turn of an owner: the hub's memory lacks its last events."""
        latest = await self._context.readers.topic(topic.name, owner=owner)
        if latest is None or latest.number != topic.number:
            raise _deleted(topic)
        return latest

    def _now(self) -> int:
        return int(self._context.wall() * 1_000_000)

    def _rights_end(self, now: int) -> int:
        return int(min(now + self._context.config.rights_ttl * 1_000_000, RIGHTS_END_MAX))

    def _document(self, subscription: Subscription, topic: Topic, *, owner: bool) -> dict[str, Any]:
        """Return the members of a subscription; with its ``owner``: for one that may administer the topic."""
        context = self._context
        status = context.subscriptions.status(subscription)
        document = subscription_document(subscription, topic.name, status, topic.last, context.epochs)
        return {**document, "owner": subscription.owner} if owner else document

    def _answer(
        self, status: int, subscription: Subscription, topic: Topic, *, owner: bool = False, signing_key: str = ""
    ) -> Answer:
        document = self._document(subscription, topic, owner=owner)
        if signing_key:
            document["signing_key"] = signing_key
        return Answer(status, orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE), headers=[*_NO_STORE])


class _NameLocks:
    """Locks of the names that requests are about at this moment."""

    def __init__(self) -> None:
        self._locks: dict[Name, asyncio.Lock] = {}
        self._users: Counter[Name] = Counter()

    @asynccontextmanager
    async def only(self, name: Name) -> AsyncIterator[None]:
        """Have the requests about one name carried out one after the other, in the order of their arrival."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] += 1
        try:
            async with lock:
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]


def _listed(found: Sequence[Subscription], documents: Sequence[dict[str, Any]], limit: int) -> Answer:
    """Return a page of a list: the first ``limit`` of the subscriptions that were found, as documents."""
    document: dict[str, object] = {"subscriptions": documents}
    if len(found) > limit:
        document["next"] = str(found[limit - 1].number)
    return Answer(200, orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE), headers=[*_NO_STORE])


def _administers(rights: Rights, topic: Topic) -> bool:
    return rights.may("admin", topic.name)


def _owner(request: Request, topic: Topic, rights: Rights) -> str:
    """Return the owner of the subscription that a request is about."""
    own = owner_key(rights.owner)
    named = owner_query(request.target.query)
    if named is None or named == own:
        return own
    if not _administers(rights, topic):
        raise forbidden(f"subscriptions of other owners need the right to admin on {topic.name!r}: leave out owner")
    return named


def _deleted(topic: Topic) -> Problem:
    text = f"the topic {topic.name!r} or the subscription was deleted meanwhile"
    return not_found(f"{text}: delete the subscription, and make it again")
