"""Connection to a hub over HTTP: one request and its answer, or a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Self
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from yarl import URL

from griphub.client.batch import Answer
from griphub.client.errors import BadAnswer, ConnectionLost, failure, problem_of
from griphub.client.retry import retry_after

__all__ = ["ANSWER_MAX", "HubConnection", "StreamResponse", "Token"]

ANSWER_MAX: Final = 64 * 1024 * 1024
"""Bytes of an answer that is read as a whole: a page with one event of 10 MB fits, also of control characters, each of
which has six bytes in JSON."""

REQUEST_TIMEOUT: Final = 30.0
"""Seconds of one attempt, from connecting to the end of the answer."""

CONNECT_TIMEOUT: Final = 10.0
"""Seconds until a connection is open."""

STREAM_TIMEOUT: Final = 75.0
"""Seconds of silence after which a stream counts as lost: a hub sends a keep-alive every 20."""

CHUNK: Final = 64 * 1024
"""Bytes of a stream read in one turn."""

Token = str | Callable[[], str] | None
"""Bearer token, or a function that returns one for each request; None for no token."""

Pairs = Sequence[tuple[str, str]]


class StreamResponse:
    """Answer that is read as it arrives.

    Args:
        response: of aiohttp; its status is one of success.
    """

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        """HTTP status code."""
        return self._response.status

    @property
    def content_type(self) -> str:
        """Media type without parameters."""
        return self._response.content_type

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the content as it arrives, until its end.

        Raises:
            ConnectionLost: the connection ended before the content, or was silent for too long.
        """
        try:
            async for chunk in self._response.content.iter_chunked(CHUNK):
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ConnectionLost(_reason(error), maybe_stored=False) from error


class HubConnection:
    """Connections to one hub. They are kept open between requests, and closed by ``close``.

    Args:
        url: of the hub with the prefix of its route, as ``https://example.com/hub``.
        token: bearer token, or a function that returns one.
        timeout: seconds of one request.

    Raises:
        ValueError: the URL is not one of HTTP, or carries a query.
    """

    def __init__(self, url: str, token: Token = None, timeout: float = REQUEST_TIMEOUT) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be http://HOST/… or https://HOST/…, not {url!r}")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError(f"url must have no user, query or fragment, as {url!r} has: a token has its own argument")
        self._base = url.rstrip("/")
        self._token = token
        self._timeout = aiohttp.ClientTimeout(total=timeout, connect=min(CONNECT_TIMEOUT, timeout))
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def url(self, path: Sequence[str], query: Pairs = ()) -> str:
        """Return the URL of a request.

        Args:
            path: segments below the hub's URL, not encoded.
            query: parameters, not encoded.
        """
        text = "/".join([self._base, *(quote(segment, safe="") for segment in path)])
        return f"{text}?{urlencode(query)}" if query else text

    async def request(
        self, method: str, path: Sequence[str], query: Pairs = (), headers: Pairs = (), body: bytes | None = None
    ) -> Answer:
        """Send one request, without a repetition.

        Args:
            method: of HTTP.
            path: segments below the hub's URL, not encoded.
            query: parameters, not encoded.
            headers: names and values.
            body: content; None for none.

        Returns:
            The answer, of any status.

        Raises:
            ConnectionLost: there was no answer.
            BadAnswer: the answer is larger than 32 MB.
        """
        try:
            async with self._open().request(
                method,
                URL(self.url(path, query), encoded=True),
                headers=self._headers(headers),
                data=body,
                allow_redirects=False,
                timeout=self._timeout,
            ) as response:
                content = await self._content(response)
                return Answer(
                    response.status,
                    response.headers.get("Content-Type", ""),
                    content,
                    retry_after(response.headers.get("Retry-After"), time.time()),
                    response.headers.get("Idempotency-Replayed", "").lower() == "true",
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectionLost(_reason(error), maybe_stored=False) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ConnectionLost(_reason(error), maybe_stored=True) from error

    @asynccontextmanager
    async def stream(
        self, path: Sequence[str], query: Pairs = (), headers: Pairs = ()
    ) -> AsyncIterator[StreamResponse]:
        """Send a ``GET`` whose answer is read as it arrives; the connection ends with the context.

        Args:
            path: segments below the hub's URL, not encoded.
            query: parameters, not encoded.
            headers: names and values.

        Yields:
            The answer; its status is one of success.

        Raises:
            ConnectionLost: there was no answer.
            RequestFailed: an error status.
            BadAnswer: a redirection.
        """
        try:
            response = await self._open().get(
                URL(self.url(path, query), encoded=True),
                headers=self._headers(headers),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT, sock_read=STREAM_TIMEOUT),
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ConnectionLost(_reason(error), maybe_stored=False) from error
        try:
            if response.status >= 300:
                try:
                    content = await asyncio.wait_for(self._content(response), self._timeout.total)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    raise ConnectionLost(_reason(error), maybe_stored=False) from error
                problem = problem_of(response.status, response.headers.get("Content-Type", ""), content)
                raise failure(problem, retry_after(response.headers.get("Retry-After"), time.time()))
            yield StreamResponse(response)
        finally:
            response.close()

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Cookies of a proxy in front of the hub are not kept: the token is the only credential.
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True)
        return self._session

    def _headers(self, headers: Pairs) -> list[tuple[str, str]]:
        token = self._token() if callable(self._token) else self._token
        return [*headers, ("Authorization", f"Bearer {token}")] if token else list(headers)

    async def _content(self, response: aiohttp.ClientResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_chunked(CHUNK):
            parts.append(chunk)
            size += len(chunk)
            if size > ANSWER_MAX:
                raise BadAnswer(f"the answer has more than {ANSWER_MAX} bytes")
        return b"".join(parts)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    return str(error) or type(error).__name__
