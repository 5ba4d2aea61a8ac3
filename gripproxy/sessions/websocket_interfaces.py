"""Interfaces of a WebSocket session to its client and its backend, and the terms of its route (docs/grip.md §8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gripproxy.grip.bounds import BOUNDS, Bounds
from gripproxy.stats.counters import RouteCounters

__all__ = ["BackendLeg", "SocketOutlet", "SocketTerms", "untold"]


class SocketOutlet(Protocol):
    """Client's side of a WebSocket."""

    @property
    def transport(self) -> Any:
        """Object with ``write(bytes)``, for the fan-out."""

    def close(self) -> None:
        """Close the connection once all bytes are written: both sides have sent a close frame."""

    def abort(self, why: str) -> None:
        """Abort the connection without a close frame.

        Args:
            why: the reason, for the log.
        """

    def abort_slow(self, why: str) -> None:
        """Abort the connection of a client that is too slow, with a log line.

        Args:
            why: the reason, for the log.
        """

    def read(self, go: bool) -> None:
        """Start or stop reading from the client.

        Args:
            go: start; otherwise the backend takes no more for now.
        """

    def relayed(self) -> None:
        """Count a message that passes from one side to the other as activity."""

    def note(self, text: str) -> None:
        """Count an error of the backend that is ignored, and log it at a limited rate.

        Args:
            text: the log line.
        """


class BackendLeg(Protocol):
    """Backend's side of a WebSocket."""

    @property
    def answers(self) -> bool:
        """True if the backend can be queried for missed messages."""

    def data(self, opcode: int, data: bytes, first: bool, fin: bool) -> None:
        """Send a piece of a client's message.

        Args:
            opcode: of the message.
            data: the piece.
            first: the piece begins the message.
            fin: the piece ends the message.
        """

    def ping(self, data: bytes) -> None:
        """Send a client's ping.

        Args:
            data: its payload.
        """

    def pong(self, data: bytes) -> None:
        """Send a client's pong.

        Args:
            data: its payload.
        """

    def close(self, code: int | None, reason: bytes) -> None:
        """Send the client's close, or its answer to the backend's.

        Args:
            code: of the close frame; None if it has none.
            reason: of the close frame.
        """

    def end(self) -> None:
        """Close the backend's side without a code: a publisher has closed the WebSocket (docs/grip.md §8.4)."""

    def refresh(self) -> None:
        """Send a request without events (docs/grip.md §8.3); no-op for a leg that is a WebSocket."""

    def recover(self) -> None:
        """Send the query of the session's recovery as soon as possible; only for a backend that ``answers``."""

    def client_lost(self) -> None:
        """Close the backend's side: the client has disconnected without a close frame."""

    def detach(self) -> None:
        """Close the backend's side without the client's: the backend has detached (docs/grip.md §8.5)."""

    def buffered(self) -> int:
        """Return the bytes that wait for the backend, or were read from it and wait for the client."""

    def flow(self, go: bool) -> None:
        """Start or stop reading from the backend.

        Args:
            go: start; otherwise the client does not read as fast as the backend sends.
        """


def untold(kind: str, why: str, got: str) -> None:
    """Ignore a failure: there is no target.

    Args:
        kind: of the failure.
        why: the reason, for the log.
        got: the bytes received instead.
    """


class SocketTerms:
    """Terms that WebSockets of one target share.

    Attributes:
        prefix: channel prefix of the route.
        limit: most subscriptions.
        max_filters: most filters of a subscription.
        implicit: full names of channels that every WebSocket is subscribed to.
        route: the route.
        rate_key: id of the route if the operator gave it one, else empty.
        debug: filter errors are sent to the client.
        figures: counters of the route.
        untrusted: the target is an untrusted one.
        failed: called as ``failed(kind, why, got)`` when the target has failed (Outages.failed).
        bounds: of channels, ids and meta.
    """

    __slots__ = (
        "bounds",
        "debug",
        "failed",
        "figures",
        "implicit",
        "limit",
        "max_filters",
        "prefix",
        "rate_key",
        "route",
        "untrusted",
    )

    def __init__(
        self,
        prefix: bytes,
        limit: int,
        max_filters: int,
        implicit: tuple[bytes, ...],
        route: object,
        rate_key: bytes,
        debug: bool,
        figures: RouteCounters,
        untrusted: bool = False,
        failed: Callable[[str, str, str], None] = untold,
        bounds: Bounds = BOUNDS,
    ) -> None:
        self.bounds = bounds
        self.prefix = prefix
        self.figures = figures
        self.limit = limit
        self.max_filters = max_filters
        self.implicit = implicit
        self.route = route
        self.rate_key = rate_key
        self.debug = debug
        self.untrusted = untrusted
        self.failed = failed
