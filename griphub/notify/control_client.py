"""Control client: publishes items through the handler's control port, acknowledged and in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, cast

from griphub.notify.http_response import ResponseReader
from griphub.notify.outbox import Outbox, OutboxState
from griphub.notify.subscriber_counts import subscriber_counts
from gripproxy.grip.signature import Signer
from gripproxy.process.log import log

__all__ = ["ANSWER_TIME", "ControlAddress", "ControlClient"]

ANSWER_TIME: Final = 10.0
"""Seconds for the answer to a request, and for an attempt to connect; afterwards the connection is closed."""

RETRY_FIRST: Final = 0.05
RETRY_LAST: Final = 1.0
"""Seconds before a further attempt to connect, or to publish after a refusal: the first and the longest pause."""

LOGGED: Final = 4096
"""Bytes of a refusal in the log."""

ControlAddress = str | tuple[str, int]
"""Path of a Unix socket, or host and port."""


class ControlClient:
    """Connection to the handler that publishes, and is made again whenever it has ended.

    A handler may end the connection behind each answer, as Pushpin does: no item is lost then, and those that wait go
    through the next connection, which is opened immediately.

    Args:
        address: of the control port.
        outbox: items to publish.
        on_counts: called with the channels of items and the number of subscribers that each of them had, after a
            request with an item of ``publish_counted``; with None in place of numbers if the handler does not count.
    """

    def __init__(
        self,
        address: ControlAddress,
        outbox: Outbox,
        on_counts: Callable[[Sequence[str], Sequence[int] | None], None] = lambda channels, counts: None,
    ) -> None:
        self._address = address
        self._outbox = outbox
        self._on_counts = on_counts
        self._loop = asyncio.get_running_loop()
        host = "localhost" if isinstance(address, str) else f"{address[0]}:{address[1]}"
        self._signer: Signer | None = None
        head = f"POST /publish HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        self._head = f"{head}Content-Length: ".encode()
        self._counting_head = f"{head}Accept: application/json\r\nGripproxy-Count: yes\r\nContent-Length: ".encode()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._flush: asyncio.Handle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        """Pause after a refusal."""
        self._retry = RETRY_FIRST
        """Seconds of the next pause; an answer sets it back."""
        self._ended = asyncio.Event()
        self._served = False
        """True once the connection has answered a request, unless another is under way."""
        self.requests = 0
        """Requests that were answered, since the start."""
        self.failures = 0
        """Connections that ended and requests that were refused, since the start."""

    def start(self, signer: Signer | None = None) -> None:
        """Begin to connect.

        Args:
            signer: makes bearer tokens for the port; None: it needs none.
        """
        self._signer = signer
        self._task = self._loop.create_task(self._run(), name="publish to the handler")

    def close(self) -> None:
        """End the connection; items that wait are not sent."""
        if self._task is not None:
            self._task.cancel()
        if self._flush is not None:
            self._flush.cancel()
        if self._transport is not None:
            self._transport.close()

    def publish(self, channel: str, item: bytes) -> None:
        """Publish an item; all items of a turn of the loop go out together.

        Args:
            channel: name of its channel.
            item: its JSON.
        """
        self._outbox.add(channel, item)
        self.flush()

    def publish_counted(self, channel: str, item: bytes) -> None:
        """Publish an item, and have the subscribers of its request's items counted, which costs the handler some time.

        Args:
            channel: name of its channel.
            item: its JSON.
        """
        self._outbox.add(channel, item, counted=True)
        self.flush()

    def flush(self) -> None:
        """Send, at the end of this turn of the loop, the items and hints of the outbox."""
        if self._flush is None and self._pause is None:
            self._flush = self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._flush = None
        transport = self._transport
        if transport is None:
            return
        body = self._outbox.next_body()
        if body:
            bearer = b""
            if self._signer is not None:
                bearer = b"Authorization: Bearer %b\r\n" % self._signer.token(int(time.time()))
            head = self._counting_head if self._outbox.counts else self._head
            transport.write(b"%b%d\r\n%b\r\n%b" % (head, len(body), bearer, body))
            self._deadline = self._loop.call_later(ANSWER_TIME, transport.abort)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(ANSWER_TIME):
                    await self._connect()
            except OSError as error:
                if self._outbox.state is not OutboxState.AWAY:
                    self._lose(str(error))
            else:
                await self._ended.wait()
                if self._served:
                    continue
            # Also behind a connection: a handler may accept one and close it without an answer.
            await asyncio.sleep(self._next_pause())

    async def _connect(self) -> None:
        if isinstance(self._address, str):
            await self._loop.create_unix_connection(lambda: _Connection(self), self._address)
        else:
            await self._loop.create_connection(lambda: _Connection(self), *self._address)

    def _next_pause(self) -> float:
        pause = self._retry
        self._retry = min(2 * pause, RETRY_LAST)
        return pause

    def _resume(self) -> None:
        self._pause = None
        self.flush()

    def connected(self, transport: asyncio.Transport) -> None:
        """Begin to send through a new connection.

        Args:
            transport: of the connection.
        """
        self._transport = transport
        self._ended.clear()
        self._served = False
        if self._outbox.state is OutboxState.AWAY:
            log.info("connected to the handler", address=self._address, hints=self._outbox.missed)
        self._outbox.connected()
        self.flush()

    def answered(self, status: int, body: bytes, *, last: bool) -> None:
        """Take the answer to the request under way.

        Args:
            status: its status.
            body: its first bytes.
            last: whether the handler ends the connection behind it.
        """
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._outbox.state is not OutboxState.SENDING:
            return
        self._served = True
        if last and self._transport is not None:
            self._transport.close()
            self._transport = None
        if status == 200:
            self.requests += 1
            self._retry = RETRY_FIRST
            channels = self._outbox.delivered()
            if self._outbox.counts:
                self._on_counts(channels, subscriber_counts(body, len(channels)))
        else:
            self.failures += 1
            reason = body[:LOGGED].decode("utf-8", "replace")
            log.error("the handler refused items", code=status, reason=reason)
            self._outbox.refused()
            # Not with the next item: each request would be refused, and logged.
            self._pause = self._loop.call_later(self._next_pause(), self._resume)
            return
        self.flush()

    def ended(self, reason: str) -> None:
        """Note the end of the connection, for ``reason``."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._transport = None
        self._served = self._served and self._outbox.state is OutboxState.READY
        if not self._served:
            self._lose(reason or "closed")
        self._ended.set()

    def _lose(self, reason: str) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self.failures += 1
        self._outbox.lost()
        log.info("connection to the handler ended", reason=reason, hints=self._outbox.missed)


class _Connection(asyncio.Protocol):
    """One connection of a control client."""

    def __init__(self, client: ControlClient) -> None:
        self._client = client
        self._reader = ResponseReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._client.connected(self._transport)

    def data_received(self, data: bytes) -> None:
        try:
            for status, body in self._reader.feed(data):
                self._client.answered(status, body, last=self._reader.ends)
        except ValueError as error:
            log.error("the handler's answer is unreadable", reason=error)
            assert self._transport is not None
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.ended(str(exc) if exc else "")
