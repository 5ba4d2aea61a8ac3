"""Push receiver: requests of the hub to a callback, verified and answered. Bodies are bounded, alone and together.

A request with another signature is answered 401, also one of a subscription that a killed process has left, whose key
is lost: the hub repeats it with growing pauses, and the subscription rests then. 2xx would keep it alive for weeks,
each event sent twice; 410 would end those of another process behind the same address during a change of versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from griphub.client.errors import BadAnswer
from griphub.client.received import ReceivedEvent, document_of
from griphub.client.webhook_signature import BadSignature, WebhookHeaders, WebhookKey

__all__ = ["BODY_MAX", "PushReceiver"]

BODY_MAX: Final = 64 * 1024 * 1024
"""Greatest number of bytes of a request: a text of 10 MB fits, whose control characters have six bytes each in JSON. A
larger one is answered 413."""

BODIES_MAX: Final = BODY_MAX
"""Bytes of all bodies that are being received. Beyond, requests are answered 503, and the hub repeats them."""

REQUESTS_MAX: Final = 32
"""Requests whose bodies are being received. The hub sends one at a time for each subscription; beyond, as for bytes."""

BODY_TIMEOUT: Final = 15.0
"""Seconds for the body of a request; then it is answered 408. The hub's own limit is 10 by default."""

CHALLENGE_MAX: Final = 256
"""Greatest number of characters of a challenge."""

CHUNK: Final = 64 * 1024
"""Bytes of a body read in one turn."""

RETRY_AFTER: Final = "1"
"""Seconds that the hub is asked to wait with an event for which there is no room."""


class PushReceiver:
    """Handler of requests to a callback.

    Args:
        key: with which the hub signs.
        wall: seconds since 1970.
        confirms: returns whether a subscription id is that of a subscription that is wanted.
        push: takes subscription id, event and the bytes of the request, and returns the status of the answer.

    Attributes:
        refused: requests that were not answered with success or 503, by status code.
    """

    def __init__(
        self,
        key: WebhookKey,
        wall: Callable[[], float],
        confirms: Callable[[str], bool],
        push: Callable[[str, ReceivedEvent, int], int],
    ) -> None:
        self._keys = (key,)
        self._wall = wall
        self._confirms = confirms
        self._push = push
        self._requests = 0
        self._bytes = 0
        self.refused: dict[int, int] = {}

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer a request.

        Args:
            request: of an application of aiohttp; its content was not read.

        Returns:
            The answer.
        """
        try:
            headers = self._head(request)
            if self._requests >= REQUESTS_MAX:
                raise _Refusal(503, "too many requests at the same time")
            self._requests += 1
            try:
                body = await self._body(request)
            finally:
                self._requests -= 1
            headers.verify(self._keys, body)
            return self._read(body)
        except BadSignature as error:
            return self._refuse(401, str(error))
        except _Refusal as refusal:
            return self._refuse(refusal.status, str(refusal))

    def _head(self, request: web.BaseRequest) -> WebhookHeaders:
        """Return the signed headers of a request, before its content is read."""
        if request.method != "POST":
            raise _Refusal(405, "a callback takes POST alone")
        headers = WebhookHeaders.of(request.headers, self._wall())
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise _Refusal(415, "a hub sends no compressed content")
        if (request.content_length or 0) > BODY_MAX:
            raise _Refusal(413, f"the body has {request.content_length} bytes: at most {BODY_MAX} are accepted")
        return headers

    async def _body(self, request: web.BaseRequest) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                async for chunk in request.content.iter_chunked(CHUNK):
                    size += len(chunk)
                    if size > BODY_MAX:
                        raise _Refusal(413, f"the body has more than {BODY_MAX} bytes")
                    if self._bytes + len(chunk) > BODIES_MAX:
                        raise _Refusal(503, "too many bytes at the same time")
                    self._bytes += len(chunk)
                    parts.append(chunk)
        except TimeoutError as error:
            raise _Refusal(408, f"the body took more than {BODY_TIMEOUT:.0f} s") from error
        finally:
            self._bytes -= sum(map(len, parts))
        return b"".join(parts)

    def _read(self, body: bytes) -> web.Response:
        """Answer a request that the hub has signed."""
        try:
            document = document_of(body)
            id = document.get("subscription_id")
            if not isinstance(id, str):
                raise BadAnswer("no subscription_id")
            if document.get("type") == "challenge":
                return self._confirm(id, document)
            status = self._push(id, ReceivedEvent.of(_own(document)), len(body))
        except BadAnswer as error:
            raise _Refusal(400, error.reason) from error
        if status == 503:
            return web.Response(status=503, headers={"Retry-After": RETRY_AFTER})
        if status >= 300:
            raise _Refusal(status, "no event of this subscription")
        return web.Response(status=status)

    def _confirm(self, id: str, document: Mapping[str, Any]) -> web.Response:
        challenge = document.get("challenge")
        if not isinstance(challenge, str) or not 0 < len(challenge) <= CHALLENGE_MAX:
            raise BadAnswer("no challenge")
        if not self._confirms(id):
            # A deliberate answer: the hub does not ask again.
            raise _Refusal(410, "this subscription is not wanted any more")
        return web.Response(text=challenge)

    def _refuse(self, status: int, reason: str) -> web.Response:
        self.refused[status] = self.refused.get(status, 0) + 1
        headers = {"Retry-After": RETRY_AFTER} if status == 503 else {}
        response = web.Response(status=status, text=f"{reason}\n", headers=headers)
        if status in (405, 408, 413, 415, 503) or status == 401:
            # The content was not read to its end, or is that of a stranger.
            response.force_close()
        return response


class _Refusal(Exception):
    """Answer with an error status.

    Args:
        status: code of HTTP.
        reason: text for the operator of the sender.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def _own(document: dict[str, Any]) -> dict[str, Any]:
    """Return the object of the event, as the history has it."""
    return {name: value for name, value in document.items() if name not in ("subscription_id", "topic")}
