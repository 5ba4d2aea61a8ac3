"""Requests of a subscriber to the hub, and the meaning of their answers for its state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from griphub.client.batch import Answer
from griphub.client.connection import HubConnection
from griphub.client.errors import BadAnswer, Gone, HubError, RequestFailed, failure, problem_of
from griphub.client.received import ReceivedEvent, document_of
from griphub.client.retry import REPEATED
from griphub.client.subscription_places import seconds_of
from griphub.client.subscription_standing import Standing

__all__ = ["Failed", "GoneAnswer", "Outcome", "Page", "Refused", "Subscribed", "SubscriptionRequests"]

PAGE_EVENTS: Final = 1000
"""Greatest number of events that are asked for in one page; the hub bounds its bytes."""


@dataclass(frozen=True, slots=True)
class Page:
    """Page of history.

    Attributes:
        events: in order.
        cursor: place up to which they are all.
        more: whether another page follows.
        size: bytes of the answer.
        standing: the hub's word on the subscription, asked for behind the page; None if it was not.
    """

    events: Sequence[ReceivedEvent]
    cursor: str
    more: bool
    size: int
    standing: Standing | None = None


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Success of a subscription.

    Attributes:
        rights: seconds for which it was granted; None if the hub names none.
    """

    rights: float | None


@dataclass(frozen=True, slots=True)
class GoneAnswer:
    """Place whose events are not retained.

    Attributes:
        error: for the application.
        newest: cursor of the topic's newest event; None if it is not known.
    """

    error: Gone
    newest: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Answer that no immediate repetition cures.

    Attributes:
        error: for the application.
    """

    error: RequestFailed


@dataclass(frozen=True, slots=True)
class Failed:
    """Failure that a repetition may cure.

    Attributes:
        reason: text.
        asked: seconds that the hub asks to wait; None if it names none.
    """

    reason: str
    asked: float | None = None


Outcome = Page | Subscribed | GoneAnswer | Refused | Failed


class SubscriptionRequests:
    """Requests about one topic.

    Args:
        connection: to the hub.
        topic: name of the topic.
        page: greatest number of events of a page.
    """

    def __init__(self, connection: HubConnection, topic: str, page: int = PAGE_EVENTS) -> None:
        self._connection = connection
        self._topic = topic
        self._page = str(min(page, PAGE_EVENTS))

    async def poll(self, after: str, subscription_id: str | None) -> Page | GoneAnswer | Refused | Failed:
        """Ask for the page of history behind a cursor.

        Args:
            after: the cursor.
            subscription_id: id of the subscription whose loss new events may prove; None for none.

        Returns:
            The outcome.
        """
        try:
            page = await self._read([("after", after), ("limit", self._page)])
        except HubError as error:
            return _failure_of(error)
        # The last page decides: a subscription that replays a long history is behind the first ones.
        if subscription_id is None or page.more or not page.events:
            return page
        return replace(page, standing=await self._standing(subscription_id))

    async def place(self, since: str) -> Page | GoneAnswer | Refused | Failed:
        """Ask for the place behind the last event up to a time.

        Args:
            since: time of RFC 3339 with a zone.

        Returns:
            A page without events, whose cursor is the place; or a failure.
        """
        try:
            return await self._read([("since", since), ("until", since)])
        except HubError as error:
            return _failure_of(error)

    async def newest(self) -> str | None:
        """Return the cursor of the topic's newest event; None if the hub does not answer."""
        try:
            answer = await self._connection.request("GET", ("topics", self._topic))
            last = document_of(_success(answer, 200).body).get("last_cursor")
        except HubError:
            return None
        return last if isinstance(last, str) else None

    async def subscribe(
        self, id: str, after: str, callback: str, signing_key: str
    ) -> Subscribed | GoneAnswer | Refused | Failed:
        """Make a subscription, or prolong the one with this id and equal parameters.

        Args:
            id: of the subscription.
            after: cursor behind which it begins.
            callback: URL.
            signing_key: text of the key that the hub is to sign with.

        Returns:
            The outcome.
        """
        document = {"subscription_id": id, "callback": callback, "after": after, "signing_key": signing_key}
        headers = [("Content-Type", "application/json")]
        try:
            body = json.dumps(document).encode()
            answer = await self._connection.request("POST", self._path(), (), headers, body)
            return Subscribed(_rights_of(document_of(_success(answer, 200, 201).body)))
        except RequestFailed as error:
            # Over a bound of subscriptions polls go on; other pauses are those of the hub itself.
            return Refused(error) if error.status == 429 else _failure_of(error)
        except HubError as error:
            return _failure_of(error)

    async def cancel(self, id: str) -> bool:
        """Delete a subscription.

        Args:
            id: of the subscription.

        Returns:
            Whether no request with this id begins any more.
        """
        try:
            answer = await self._connection.request("DELETE", self._path(id))
        except HubError:
            return False
        return answer.status in (204, 404)

    async def _read(self, query: Sequence[tuple[str, str]]) -> Page:
        headers = [("Accept", "application/json")]
        answer = await self._connection.request("GET", ("topics", self._topic, "events"), query, headers)
        page = document_of(_success(answer, 200).body)
        events, cursor, more = page.get("events"), page.get("cursor"), page.get("more")
        if not isinstance(events, list) or not isinstance(cursor, str) or not isinstance(more, bool):
            raise BadAnswer("no page of events")
        if not all(isinstance(each, dict) for each in events):
            raise BadAnswer("no page of events")
        return Page([ReceivedEvent.of(each) for each in events], cursor, more, len(answer.body))

    async def _standing(self, id: str) -> Standing | None:
        """Return the hub's word on a subscription; None without an answer."""
        try:
            answer = await self._connection.request("GET", self._path(id))
            if answer.status == 404:
                return Standing.missing()
            return Standing.of(document_of(_success(answer, 200).body))
        except HubError:
            return None

    def _path(self, *id: str) -> tuple[str, ...]:
        return ("topics", self._topic, "subscriptions", *id)


def _success(answer: Answer, *statuses: int) -> Answer:
    if answer.status not in statuses:
        raise failure(problem_of(answer.status, answer.content_type, answer.body), answer.retry_after)
    return answer


def _failure_of(error: HubError) -> GoneAnswer | Refused | Failed:
    if isinstance(error, Gone):
        return GoneAnswer(error)
    if isinstance(error, RequestFailed):
        if error.status in REPEATED or error.status == 500:
            return Failed(str(error), error.retry_after)
        return Refused(error)
    return Failed(str(error))


def _rights_of(document: dict[str, Any]) -> float | None:
    """Return the seconds from the making of a subscription to the end of its rights, both by the hub's clock."""
    made, end = (seconds_of(str(document.get(name))) for name in ("created", "rights_end"))
    return None if made is None or end is None or end <= made else end - made
