"""Client: requests to callbacks, over plain TCP or TLS, by callbacks of the loop: no coroutine or timer for each."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Sequence
from typing import Final

from griphub.callbacks.address_turns import AddressTurns
from griphub.callbacks.connections import Connections
from griphub.callbacks.courier import Abortable
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.request import CallbackRequest, Means
from griphub.callbacks.request_limits import RequestLimits
from griphub.callbacks.resolver import Resolver, system_addresses
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import CallbackUrl

__all__ = ["USER_AGENT", "CallbackClient"]

USER_AGENT: Final = b"gripproxy-hub"
"""Value of ``User-Agent``."""


class CallbackClient:
    """Requests to callbacks.

    A callback's address is judged when its name is resolved, and the connection is made to that address. No redirect is
    followed. An answer counts when it is complete, or has more bytes than its reader needs.

    Args:
        policy: judges the addresses.
        limits: bounds.
        tls: configuration of TLS, which verifies certificates and names.
        loop: the event loop.
        resolve: returns the addresses of a name, or raises ``OSError``; called in threads.
    """

    def __init__(
        self,
        policy: AddressPolicy,
        limits: RequestLimits,
        tls: ssl.SSLContext,
        loop: asyncio.AbstractEventLoop,
        resolve: Callable[[str], Sequence[str]] = system_addresses,
    ) -> None:
        self._limits = limits
        self._connections = Connections(limits, tls, loop)
        self._resolver = Resolver(policy, limits, loop, resolve)
        self._turns: AddressTurns[CallbackRequest] = AddressTurns(limits.per_address, limits.address_share)
        self._requests: dict[CallbackRequest, None] = {}
        self._means = Means(
            *(limits, self._resolver, self._turns, self._connections),
            now=loop.time,
            soon=loop.call_soon,
            ended=self._ended,
        )

    @property
    def connections(self) -> int:
        """Number of connections, idle ones and those that are being opened too."""
        return len(self._connections)

    @property
    def requests(self) -> int:
        """Number of requests under way and waiting."""
        return len(self._requests)

    @property
    def resolving(self) -> int:
        """Number of names that are being resolved."""
        return self._resolver.resolving

    def send(
        self,
        url: CallbackUrl,
        owner: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        answer_max: int,
        done: Callable[[Outcome], None],
        *,
        deadline: float | None = None,
        content_type: str | None = "application/json",
        method: str = "POST",
        keep: Collection[bytes] = (),
    ) -> Abortable:
        """Begin a request.

        Args:
            url: of the callback.
            owner: key of the owner of the subscription.
            headers: names and values beside those of every request, ASCII.
            body: its content.
            answer_max: bytes of the answer's content that are needed; of a longer one, one more is reported.
            done: called once with its outcome, unless it is aborted; never within this call.
            deadline: seconds of its own, in place of those of all requests; None for these.
            content_type: media type of its content; None if it is among the headers, or there is none.
            method: its method.
            keep: names of headers of the answer that the outcome has, in lower case.

        Returns:
            The request, to be aborted.
        """
        seconds = self._limits.deadline if deadline is None else deadline
        head = _head(method, url, headers, len(body), content_type)
        request = CallbackRequest(self._means, url, owner, head, body, answer_max, done, seconds, keep)
        begin = request.begin if len(self._requests) < self._limits.requests_max else request.refuse
        self._requests[request] = None
        try:
            begin()
        except Exception:
            # Its caller does not learn of it, and could not abort it.
            request.abort()
            raise
        return request

    def sweep(self, now: float) -> None:
        """End requests whose time is over, and close idle connections; called a few times a second.

        Args:
            now: time of the loop in seconds.
        """
        for request in list(self._requests):
            request.expire(now)
        self._connections.sweep(now)

    def close(self) -> None:
        """Abort all requests, and close all connections."""
        for request in list(self._requests):
            request.abort()
        self._connections.close()

    def _ended(self, request: CallbackRequest) -> None:
        del self._requests[request]


def _head(
    method: str, url: CallbackUrl, headers: Sequence[tuple[str, str]], length: int, content_type: str | None
) -> bytes:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    kind = "" if content_type is None else f"Content-Type: {content_type}\r\n"
    return (
        f"{method} {url.target} HTTP/1.1\r\nHost: {url.authority}\r\nUser-Agent: {USER_AGENT.decode()}\r\n"
        f"{kind}Content-Length: {length}\r\n{lines}\r\n"
    ).encode("ascii")
