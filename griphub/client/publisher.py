"""Publisher: events of one topic to a hub, in order, each stored once, also over lost connections."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from griphub.client.batch import Answer, Entry, Outbox, Outcome, PublishRequest, entry_of
from griphub.client.connection import REQUEST_TIMEOUT, HubConnection, Token
from griphub.client.errors import BadAnswer, Closed, ConnectionLost, HubError
from griphub.client.event import NewEvent, Operation, Receipt

__all__ = ["BUFFER", "Publisher"]

BUFFER: Final = 8 * 1024 * 1024
"""Bytes of events that wait for the hub or are under way."""

RETRY_FOR: Final = 60.0
"""Seconds after a call in which attempts are begun."""


@dataclass(frozen=True, slots=True)
class _Call:
    """Call under way.

    Attributes:
        admitted: done when the buffer has the entry.
        outcome: receipts.
        submitted: whether its caller does not wait for the outcome.
    """

    admitted: asyncio.Future[None]
    outcome: asyncio.Future[list[Receipt]]
    submitted: bool


class Publisher:
    """Publisher to one topic. ``async with`` closes it: normally after everything is stored, after an error directly.

    ``publish`` and ``submit`` calls that wait at the same time may share a request, which is one transaction: their
    events then have the same version. ``publish_many`` is one transaction of its own.

    Every request has an ``Idempotency-Key`` and is repeated with it after a lost connection and after 429, 502, 503 and
    504, with growing pauses, until ``retry_for`` seconds after the call. Only one request is under way, so events are
    stored in the order of the calls. Other error statuses are the outcome of the calls concerned; an event that the hub
    does not accept harms none that shared its request.

    Args:
        url: of the hub with the prefix of its route, as ``https://example.com/hub``.
        topic: name of the topic.
        token: bearer token, or a function that returns one for each request; None for none.
        linger: seconds that the first event of a request waits for others. With 0 a request takes those that are
            there when the one before is answered.
        buffer: bytes of events that may wait or be under way. Further calls wait for room, in their order; a larger
            event is accepted when no other waits.
        retry_for: seconds after a call in which attempts are begun.
        timeout: seconds of one attempt.

    Raises:
        ValueError: the URL is not one of HTTP.
    """

    def __init__(
        self,
        url: str,
        topic: str,
        *,
        token: Token = None,
        linger: float = 0.0,
        buffer: int = BUFFER,
        retry_for: float = RETRY_FOR,
        timeout: float = REQUEST_TIMEOUT,
    ) -> None:
        self._connection = HubConnection(url, token, timeout)
        self._path = ("topics", topic, "events")
        self._linger = linger
        self._buffer = buffer
        self._retry_for = retry_for
        self._outbox = Outbox(lambda: secrets.token_urlsafe(16), random.random)
        self._calls: dict[Entry, _Call] = {}
        self._room: deque[Entry] = deque()
        self._failed: HubError | None = None
        self._stored = 0
        self._last: Receipt | None = None
        self._changed = asyncio.Event()
        self._flushing = 0
        self._sender: asyncio.Task[None] | None = None
        self._closing = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            await self._end()

    # --- calls

    async def publish(
        self,
        data: Any = None,
        *,
        key: str | None = None,
        op: Operation | None = None,
        attributes: Mapping[str, str] | None = None,
        content_type: str | None = None,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> Receipt:
        """Publish one event, and wait until it is stored.

        A call that is cancelled before its request begins publishes no event; later, the event may be stored.

        Args:
            data: content: ``bytes`` as they are; a ``str`` with a ``content_type`` other than JSON as UTF-8; anything
                else as JSON.
            key: key of the event; None for none.
            op: ``put`` or ``delete``, with a key.
            attributes: texts by name.
            content_type: media type; None for ``application/octet-stream`` for bytes, else ``application/json``.
            if_match: cursor that must be the topic's last event, or with ``key`` the key's; ``0`` for no event yet.
                The event then has a request of its own.
            idempotency_key: name of the event for a repetition of the call, also by another process, within a day. The
                event then has a request of its own.

        Returns:
            Place and time of the event.

        Raises:
            RequestFailed: the hub refuses it; 412 if ``if_match`` names another event.
            Unavailable: the hub could not be reached in time; ``maybe_stored`` reports whether that is certain.
            BadAnswer: the answer is not a hub's.
            Closed: the publisher is closed.
            ValueError: the event cannot be written.
        """
        event = NewEvent(data, key, op, attributes or {}, content_type)
        entry = entry_of([event], self._deadline(), condition=if_match, name=idempotency_key)
        return (await self._wait(entry))[0]

    async def publish_many(
        self, events: Iterable[NewEvent], *, if_match: str | None = None, idempotency_key: str | None = None
    ) -> list[Receipt]:
        """Publish events as one transaction: all are stored and become visible together, or none.

        Args:
            events: at least one, at most 1,000 and 10 MB.
            if_match: cursor that must be the topic's last event; ``0`` for no event yet.
            idempotency_key: name of the transaction for a repetition of the call within a day.

        Returns:
            Places and times, in the order of the events.

        Raises:
            RequestFailed: the hub refuses it; 412 if ``if_match`` names another event.
            Unavailable: the hub could not be reached in time.
            BadAnswer: the answer is not a hub's.
            Closed: the publisher is closed.
            ValueError: an event cannot be written, or there is none.
        """
        batch = list(events)
        if if_match is not None and len(batch) == 1 and batch[0].key is not None:
            raise ValueError("if_match of publish_many is about the topic: use publish for the last event of a key")
        entry = entry_of(batch, self._deadline(), condition=if_match, name=idempotency_key, atomic=True)
        return await self._wait(entry)

    async def submit(
        self,
        data: Any = None,
        *,
        key: str | None = None,
        op: Operation | None = None,
        attributes: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> None:
        """Hand in one event, and wait only until the buffer has room for it.

        The first failure of an event handed in is raised by the next ``flush`` or ``close``.

        Args:
            data: content, as for ``publish``.
            key: key of the event; None for none.
            op: ``put`` or ``delete``, with a key.
            attributes: texts by name.
            content_type: media type, as for ``publish``.

        Raises:
            Closed: the publisher is closed.
            ValueError: the event cannot be written.
        """
        event = NewEvent(data, key, op, attributes or {}, content_type)
        entry = entry_of([event], self._deadline())
        call = self._begin(entry, submitted=True)
        try:
            await call.admitted
        except asyncio.CancelledError:
            self._withdraw(entry)
            raise

    @property
    def stored(self) -> int:
        """Number of events that were stored so far."""
        return self._stored

    @property
    def last(self) -> Receipt | None:
        """Receipt of the last stored event; None if there is none."""
        return self._last

    @property
    def failure(self) -> HubError | None:
        """First failure of an event of ``submit`` since the last ``flush``, which will raise it; None for none."""
        return self._failed

    async def flush(self) -> None:
        """Wait until all events of earlier calls are stored or have failed.

        Raises:
            HubError: the first failure of an event of ``submit`` since the last ``flush``.
        """
        if self._calls:
            self._flushing += 1
            self._changed.set()
            try:
                await asyncio.wait([call.outcome for call in self._calls.values()])
            finally:
                self._flushing -= 1
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    async def close(self) -> None:
        """Wait as ``flush`` does, then close the connection. Calls that begin afterwards get ``Closed``.

        Raises:
            HubError: the first failure of an event of ``submit`` since the last ``flush``.
        """
        self._closing = True
        try:
            await self.flush()
        finally:
            await self._end()

    # --- entries

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._retry_for

    def _begin(self, entry: Entry, *, submitted: bool = False) -> _Call:
        """Register a call, behind those that wait for room already."""
        if self._closing:
            raise Closed("the publisher is closed: make another one")
        loop = asyncio.get_running_loop()
        call = self._calls[entry] = _Call(loop.create_future(), loop.create_future(), submitted)
        self._room.append(entry)
        self._admit()
        if self._sender is None:
            self._sender = loop.create_task(self._send_all())
            self._sender.add_done_callback(self._sender_ended)
        return call

    async def _wait(self, entry: Entry) -> list[Receipt]:
        call = self._begin(entry)
        try:
            return await call.outcome
        except asyncio.CancelledError:
            self._withdraw(entry)
            raise

    def _admit(self) -> None:
        """Move entries from the calls that wait for room to the outbox, as far as it has room."""
        while self._room:
            entry = self._room[0]
            if self._outbox and self._outbox.size + entry.size > self._buffer:
                return
            self._room.popleft()
            self._outbox.add(entry)
            admitted = self._calls[entry].admitted
            if not admitted.done():
                admitted.set_result(None)
            self._changed.set()

    def _withdraw(self, entry: Entry) -> None:
        """Remove the entry of a cancelled call if its request has not begun."""
        if entry in self._room:
            self._room.remove(entry)
        elif not self._outbox.withdraw(entry):
            return
        call = self._calls.pop(entry)
        call.outcome.cancel()
        self._admit()

    def _settle(self, entry: Entry, outcome: Outcome) -> None:
        call = self._calls.pop(entry)
        if not isinstance(outcome, HubError):
            self._stored += len(outcome)
            self._last = outcome[-1]
        if not call.admitted.done():
            if isinstance(outcome, HubError) and call.submitted:
                call.admitted.set_exception(outcome)
            else:
                call.admitted.set_result(None)
        if call.outcome.done():
            return
        if not isinstance(outcome, HubError):
            call.outcome.set_result(outcome)
        elif call.submitted:
            self._failed = self._failed or outcome
            call.outcome.set_result([])
        else:
            call.outcome.set_exception(outcome)

    # --- requests

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._outbox:
                self._changed.clear()
                await self._changed.wait()
            await self._gather()
            while (request := self._outbox.next_request()) is not None:
                step = self._outbox.settle(await self._attempt(request), loop.time())
                for entry, outcome in step.settled:
                    self._settle(entry, outcome)
                self._admit()
                if step.pause:
                    await asyncio.sleep(step.pause)

    async def _gather(self) -> None:
        """Give further calls the time to join the first request after a pause."""
        # Calls of tasks that are ready now join it in any case.
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(self._linger):
                while not (self._outbox.full or self._flushing):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    async def _attempt(self, request: PublishRequest) -> Answer | HubError:
        try:
            return await self._connection.request("POST", self._path, request.query, request.headers, request.body)
        except (ConnectionLost, BadAnswer) as error:
            return error

    def _sender_ended(self, task: asyncio.Task[None]) -> None:
        """End all calls after an unexpected error, as that of the token's function."""
        if task.cancelled():
            return
        error = task.exception()
        self._closing = True
        for entry in [*self._outbox.drop(), *self._room]:
            ended = Closed(f"the publisher ended after an error: {error!r}")
            ended.__cause__ = error
            ended.maybe_stored = True
            self._settle(entry, ended)
        self._room.clear()

    async def _end(self) -> None:
        self._closing = True
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])
        for entry in [*self._outbox.drop(), *self._room]:
            self._settle(entry, Closed("the publisher was closed before the event was stored"))
        self._room.clear()
        await self._connection.close()
