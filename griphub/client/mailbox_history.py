"""Histories that a mailbox has to read: events up to a place, over as many attempts as it takes."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Final, cast

from griphub.client.attempts import Attempts
from griphub.client.connection import HubConnection
from griphub.client.errors import BadAnswer, HubError, RequestFailed
from griphub.client.follower import Selection
from griphub.client.history import read_history
from griphub.client.mailbox_actions import Cause, Failure, Place, ReadHistory
from griphub.client.mailbox_answers import MailboxEvent, place_of
from griphub.client.received import ReceivedEvent, Truncated

__all__ = ["HistoryReader", "failure_of"]

HISTORY_AHEAD: Final = 100
"""Events of the history that wait for the application, besides those of one page."""

BOUND_MAX: Final = 255
"""Bytes of a bound of a range: the hub's limit, which is below that of a key. A NUL behind a key does not count."""

_LAST: Final = "\U0010ffff"

_NO_HISTORY: Final = frozenset({400, 403, 404, 410, 422})
"""Status codes of a history that no repetition cures; the hub ends or refuses the subscription as well."""


class HistoryReader:
    """Reader of histories, one request after the other, and the events that wait for the application.

    Args:
        connection: to the hub.
        failure_after: seconds of failed attempts after which they are reported.
        report: receives reasons of failures.
        arrived: called when an event waits.

    Attributes:
        events: events that wait, at most ``HISTORY_AHEAD``.
    """

    def __init__(
        self,
        connection: HubConnection,
        failure_after: float,
        report: Callable[[str], object],
        arrived: Callable[[], object],
    ) -> None:
        self._connection = connection
        self._failure_after = failure_after
        self._report = report
        self._arrived = arrived
        self._ends: dict[str | None, int] = {}
        """Id of the last event to be read, by key; None for a whole topic."""
        self.events: deque[MailboxEvent] = deque()
        self._room = asyncio.Event()

    def take(self) -> MailboxEvent | None:
        """Return the next event, and make room; None if there is none."""
        self._room.set()
        return self.events.popleft() if self.events else None

    def drop(self, key: str | None) -> bool:
        """Remove a subscription from those that are being read, with its events that wait.

        Args:
            key: its key; None for the whole topic.

        Returns:
            Whether others are being read.
        """
        self._ends.pop(key, None)
        kept = [] if key is None else [each for each in self.events if each.event.key != key]
        self.events = deque(kept)
        return bool(self._ends)

    async def read(self, histories: Sequence[ReadHistory]) -> None:
        """Read histories to their ends, over as many attempts as it takes.

        Args:
            histories: one; or those of several keys of a topic, which begin at the same place.
        """
        attempts = Attempts(random.random, self._failure_after)
        place, ended = histories[0].after, False
        self._ends = {history.pair.key: history.until.id for history in histories}
        last, (low, high) = max(self._ends.values()), _range(list(self._ends))
        topic = histories[0].pair.topic
        while not ended:
            attempts.begin(_now())
            selection = Selection(after=place.cursor, low=low, high=high, truncated=True)
            try:
                async with aclosing(self._pages(topic, selection, place, last)) as places:
                    async for reached in places:
                        place = reached
                        attempts.answered()
                        attempts.progressed()
                ended = True
            except HubError as error:
                failure = failure_of(error)
                ended = failure.status in _NO_HISTORY
                if ended:
                    self._report(f"no history of {topic!r}: {failure.detail}")
                else:
                    attempts.fail(_now(), failure.retry_after)
                    await self._pause(attempts, failure.detail)

    async def _pause(self, attempts: Attempts, detail: str) -> None:
        """Wait until the next attempt, and report the failure meanwhile if it has lasted."""
        while not attempts.ready(_now()):
            deadline = attempts.deadline
            assert deadline is not None, "it is paused"
            await asyncio.sleep(max(0.0, deadline - _now()))
            if attempts.report(_now()):
                self._report(f"{Cause.UNREACHABLE.value}: {detail}")

    async def _pages(self, topic: str, selection: Selection, place: Place, last: int) -> AsyncGenerator[Place, None]:
        """Pass on the events of histories, and yield the place behind each event that was read."""
        reading = cast(
            "AsyncGenerator[ReceivedEvent | Truncated, None]", read_history(self._connection, topic, selection)
        )
        async with aclosing(reading) as messages:
            async for message in messages:
                if isinstance(message, Truncated):
                    self._report_truncated(topic, message, place)
                    continue
                found = _event_place(message.id, message.cursor)
                if found.id > last:
                    return
                # At the floor, events that the application has may be read again.
                if found.id > place.id:
                    if self._wants(message.key, found.id):
                        await self._pass_on(MailboxEvent(topic, message))
                    yield found
                if found.id == last:
                    return

    def _wants(self, key: str | None, id: int) -> bool:
        """Return whether an event of the range is one of the subscriptions'."""
        end = self._ends.get(None)
        if end is None:
            end = self._ends.get(key, -1)
        return id <= end

    async def _pass_on(self, event: MailboxEvent) -> None:
        while len(self.events) >= HISTORY_AHEAD:
            self._room.clear()
            await self._room.wait()
        # Meanwhile the application may have ended the subscription.
        if self._wants(event.event.key, 0):
            self.events.append(event)
            self._arrived()

    def _report_truncated(self, topic: str, report: Truncated, place: Place) -> None:
        with suppress(ValueError):
            if place_of(report.floor_cursor).id <= place.id:
                return
        self._report(f"events of {topic!r} up to {report.floor_cursor} are not retained")


def failure_of(error: HubError) -> Failure:
    """Return the failure of a request.

    Args:
        error: of the request.
    """
    if isinstance(error, RequestFailed):
        command = error.problem.members.get("command")
        return Failure(error.status, str(error), error.retry_after, command if isinstance(command, int) else None)
    return Failure(None, str(error))


def _range(keys: Sequence[str | None]) -> tuple[str | None, str | None]:
    """Return the bounds of a range with all of the keys; those of the whole topic if None is among them."""
    named = [key for key in keys if key is not None]
    if len(named) < len(keys):
        return None, None
    # Strings compare by code point, like their UTF-8. A NUL behind a key makes the next one.
    least, greatest = min(named), max(named)
    low = _cut(least, BOUND_MAX)
    if _cut(greatest, BOUND_MAX) == greatest:
        return low or None, greatest + "\0"
    # All keys with that beginning, and some more.
    beginning = _cut(greatest, BOUND_MAX - _size(_LAST))
    return low or None, None if greatest.startswith(beginning + _LAST) else beginning + _LAST


def _cut(key: str, most: int) -> str:
    """Return the beginning of a key that a bound has room for."""
    return key.partition("\0")[0].encode()[:most].decode(errors="ignore")


def _size(text: str) -> int:
    return len(text.encode())


def _now() -> float:
    return asyncio.get_running_loop().time()


def _event_place(id: str, cursor: str) -> Place:
    try:
        return Place(int(id), place_of(cursor).cursor)
    except ValueError as error:
        raise BadAnswer(f"no place of an event: {cursor[:80]!r}") from error
