"""Histories that a mailbox has to read: events up to a place, over as many attempts as it takes."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable
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

_NO_HISTORY: Final = frozenset({400, 403, 404, 410, 422})
"""Status codes of a history that no repetition cures; the hub ends or refuses the subscription as well."""


class HistoryReader:
    """Reader of one history after the other, and the events that wait for the application.

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
        self.events: deque[MailboxEvent] = deque()
        self._room = asyncio.Event()

    def take(self) -> MailboxEvent | None:
        """Return the next event, and make room; None if there is none."""
        self._room.set()
        return self.events.popleft() if self.events else None

    def clear(self) -> None:
        """Remove the events that wait."""
        self.events.clear()

    async def read(self, history: ReadHistory) -> None:
        """Read a history to its end, over as many attempts as it takes.

        Args:
            history: the action.
        """
        attempts = Attempts(random.random, self._failure_after)
        place, ended = history.after, False
        while not ended:
            attempts.begin(_now())
            try:
                async with aclosing(self._pages(history, place)) as places:
                    async for reached in places:
                        place = reached
                        attempts.answered()
                        attempts.progressed()
                ended = True
            except HubError as error:
                failure = failure_of(error)
                ended = failure.status in _NO_HISTORY
                if ended:
                    self._report(f"no history of {history.pair.topic!r}: {failure.detail}")
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

    async def _pages(self, history: ReadHistory, place: Place) -> AsyncGenerator[Place, None]:
        """Pass on the events of a history, and yield the place behind each of them."""
        topic, key = history.pair
        # A NUL behind a key makes the range of that single key.
        high = None if key is None else key + "\0"
        selection = Selection(after=place.cursor, low=key, high=high, truncated=True)
        reading = cast(
            "AsyncGenerator[ReceivedEvent | Truncated, None]", read_history(self._connection, topic, selection)
        )
        async with aclosing(reading) as messages:
            async for message in messages:
                if isinstance(message, Truncated):
                    self._report_truncated(topic, message, place)
                    continue
                found = _event_place(message.id, message.cursor)
                if found.id > history.until.id:
                    return
                # At the floor, events that the application has may be read again.
                if found.id > place.id:
                    while len(self.events) >= HISTORY_AHEAD:
                        self._room.clear()
                        await self._room.wait()
                    self.events.append(MailboxEvent(topic, message))
                    self._arrived()
                    yield found
                if found.id == history.until.id:
                    return

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
        return Failure(error.status, str(error), error.retry_after)
    return Failure(None, str(error))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _event_place(id: str, cursor: str) -> Place:
    try:
        return Place(int(id), place_of(cursor).cursor)
    except ValueError as error:
        raise BadAnswer(f"no place of an event: {cursor[:80]!r}") from error
