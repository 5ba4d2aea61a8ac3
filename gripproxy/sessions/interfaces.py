"""Interfaces of a held session: to its client connection, and to its recovery.

A session is a state machine and knows no socket: the connection calls ``on_confirmed``, ``deliver``, ``on_timer``,
``on_blocked`` and so on; the session responds by calling its outlet.
"""

from __future__ import annotations

from typing import Any, Protocol

from gripproxy.delivery.channel import Subscription
from gripproxy.grip.item import Item
from gripproxy.grip.response import Response
from gripproxy.sessions.context import SessionContext
from gripproxy.sessions.recovery_scheduler import Queryable

__all__ = ["Outlet", "Recovering"]


class Outlet(Protocol):
    """Client's side of one held request."""

    @property
    def transport(self) -> Any:
        """Object with ``write(bytes)``, for the fan-out."""

    def uri(self) -> bytes:
        """Return the URI of the held request."""

    def begin_stream(self, response: Response) -> bool:
        """Send status, headers and the first bytes of a body without end.

        Args:
            response: with those bytes as its body.

        Returns:
            Whether the body is chunked (HTTP/1.1); otherwise it ends with the connection (HTTP/1.0).
        """

    def write(self, data: bytes) -> None:
        """Send bytes.

        Args:
            data: with their framing, if the body is chunked.
        """

    def close_stream(self, chunked: bool) -> None:
        """Close the body; the hold is over.

        Args:
            chunked: the body is chunked.
        """

    def respond(self, response: Response) -> None:
        """Send a whole response; the hold is over.

        Args:
            response: the response.
        """

    def fail(self, detail: str) -> None:
        """Close the hold as an error: by a 502 if nothing was sent, else by the end of the body.

        Args:
            detail: the reason, sent to clients of routes in debug mode.
        """

    def unavailable(self) -> None:
        """Close the hold as an error of the proxy: the handler did not confirm the channels in time."""

    def truncate(self) -> None:
        """Truncate the response, because content is missing: the connection ends without the end of the body, so that
        the response cannot be taken for complete; the hold is over."""

    def abort_slow(self, why: str) -> None:
        """Abort the connection of a client that is too slow, with a log line.

        Args:
            why: the reason, for the log.
        """

    def retry(self, last_ids: tuple[tuple[bytes, bytes], ...], because: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Send the request to the backend again; the session is over.

        Args:
            last_ids: (channel, last id) of each channel with an id.
            because: (channel, item id) of items that the last response did not contain, for the next hold.
        """


class Recovering(Queryable, Protocol):
    """A session as its ``Recovery`` uses it."""

    @property
    def mode(self) -> int:
        """Kind of the session: STREAM or SOCKET."""

    @property
    def rate_key(self) -> bytes:
        """Id of the route if the operator gave it one, else empty."""

    @property
    def context(self) -> SessionContext:
        """Context shared by all sessions of the worker."""

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """All subscriptions, those without ids too."""

    @property
    def unconfirmed(self) -> int:
        """Subscriptions that the handler has not confirmed."""

    @property
    def over(self) -> bool:
        """True if the session has ended."""

    @property
    def blocked(self) -> bool:
        """True if the client does not read."""

    @property
    def full(self) -> bool:
        """True if the filters can take no more items for now."""

    @property
    def quiet_after(self) -> float:
        """Seconds without an item after which the backend is queried."""

    def action_of(self, item: Item) -> str | None:
        """Return the action of the item for this kind of client; None if it has no format for it."""

    def accept(self, subscription: Subscription, item: Item) -> bool:
        """Deliver an item that follows; with an id it becomes the last of its channel.

        Args:
            subscription: of the session to the item's channel.
            item: as published.

        Returns:
            Whether the item was written, queued or acted upon.
        """

    def query(self) -> None:
        """Send the query, or have it sent as soon as possible; ``Recovery.begin`` is called when it can be sent."""
