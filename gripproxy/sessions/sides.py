"""The two sides of a WebSocket session, as the session sees them, and the terms it stands under (docs/grip.md §8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gripproxy.grip.bounds import BOUNDS, Bounds
from gripproxy.sessions.figures import Figures

__all__ = ["BackendLeg", "SocketOutlet", "SocketTerms", "untold"]


class SocketOutlet(Protocol):
    """The client's side."""

    @property
    def transport(self) -> Any:
        """Something with ``write(bytes)``."""

    def end(self) -> None:
        """Both sides have closed: close the connection once everything is written."""

    def drop(self, why: str) -> None:
        """Close the connection at once, without a close frame."""

    def cut(self, why: str) -> None:
        """The client cannot keep up: drop the connection, log and count it."""

    def read(self, go: bool) -> None:
        """Read, or do not read, from the client: the backend takes no more for now."""

    def relayed(self) -> None:
        """A message goes from one side to the other."""

    def note(self, text: str) -> None:
        """Something the backend did wrong that is ignored: counted, and logged at a limited rate."""


class BackendLeg(Protocol):
    """The backend's side, as the session uses it."""

    @property
    def answers(self) -> bool:
        """Whether the backend can be asked for what was missed."""

    def data(self, opcode: int, data: bytes, first: bool, fin: bool) -> None:
        """A piece of a client's message; ``opcode`` is the message's."""

    def ping(self, data: bytes) -> None: ...
    def pong(self, data: bytes) -> None: ...

    def close(self, code: int | None, reason: bytes) -> None:
        """The client closes, or answers our close."""

    def end(self) -> None:
        """A publisher has closed the client: close the backend's side without a code (docs/grip.md §8.4)."""

    def refresh(self) -> None:
        """Ask the backend at once; nothing on a leg that is a WebSocket."""

    def recover(self) -> None:
        """The session's ReliableSocket wants to ask; only where the backend ``answers``."""

    def client_lost(self) -> None:
        """The client is gone without a close."""

    def detach(self) -> None:
        """The backend wants out (docs/grip.md §8.5)."""

    def buffered(self) -> int:
        """Return how many bytes wait for the backend, or were read of it and wait for the client."""

    def flow(self, go: bool) -> None:
        """The client does not read as fast as the backend sends, or does again."""


def untold(kind: str, why: str, got: str) -> None:
    """Stands in where there is no backend."""


class SocketTerms:
    """What equal WebSockets share: ``prefix`` is the route's channel prefix, ``limit`` the most subscriptions,
    ``route`` what finds the route again, ``rate_key`` its id if it has one, ``debug`` whether errors are told,
    ``figures`` what is counted for the route, ``untrusted`` whether their target is an untrusted one;
    ``failed(kind, why, got)`` tells that the target has failed (Outages.failed); ``bounds`` are those of channels, ids
    and meta."""

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
        figures: Figures,
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
