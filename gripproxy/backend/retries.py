"""Retry rules: which failures of a request to a backend lead to another target, or to a repetition of the request.

One table for all kinds of requests; docs/routes.md ("Failover and retries") shows it to operators. Every other failure
is final: a broken connection that was new or has sent a byte of its response, a response that is late, malformed or too
large.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from gripproxy.backend.outages import BLOCKED, DESCRIPTORS

__all__ = [
    "CLIENT_IDEMPOTENT",
    "CLIENT_OTHER",
    "EVENTS",
    "HANDSHAKE",
    "LINK",
    "OPEN",
    "RULES",
    "SUBREQUEST",
    "RetryRule",
    "Step",
]


class Step(Enum):
    """Step that follows a failure."""

    NEXT_TARGET = "next target"
    REPEAT = "once more, on a new connection"
    LATER = "again after 1, 2, 4, 8 and 16 s"
    """Done by the WebSocket's session, which keeps the events (``gripproxy.sessions.websocket_over_http``)."""
    FAIL = "fails"


class RetryRule(NamedTuple):
    """One row of the table: the step that follows each failure of one kind of request."""

    requests: str
    """The kind of request, as the documentation names it."""
    unconnected: Step
    """No connection: refused, unreachable, name not found, timed out, or TLS failed."""
    barred: Step
    """No connection was tried or could be: the address is barred by policy, or there is no file descriptor."""
    closed: Step
    """A reused connection was closed before the first byte of the response (RFC 9112 §9.3.1)."""
    reset: Step
    """A reused connection was reset before the first byte of the response: the backend may have read the request."""
    reason: str
    """Why it is so, for the documentation."""

    def after_connect_failure(self, kind: str) -> Step:
        """Return the step that follows a failure to connect.

        Args:
            kind: One of ``gripproxy.grip.stats_format.FAILURES``.
        """
        return self.barred if kind in (BLOCKED, DESCRIPTORS) else self.unconnected

    def after_stale(self, clean: bool) -> Step:
        """Return the step that follows the end of a reused connection that has sent nothing.

        Args:
            clean: Whether the connection was closed, not reset.
        """
        return self.closed if clean else self.reset


_NEXT, _REPEAT, _LATER, _FAIL = Step.NEXT_TARGET, Step.REPEAT, Step.LATER, Step.FAIL

CLIENT_IDEMPOTENT: Final = RetryRule(
    "client request: GET, HEAD, OPTIONS, PUT, DELETE or TRACE with at most 100,000 bytes of body",
    _NEXT, _FAIL, _REPEAT, _REPEAT,
    "these methods may be sent twice (RFC 9110 §9.2.2)",
)  # fmt: skip

CLIENT_OTHER: Final = RetryRule(
    "client request: any other",
    _NEXT, _FAIL, _FAIL, _FAIL,
    "only the client can know whether it may be sent twice",
)  # fmt: skip

HANDSHAKE: Final = RetryRule(
    "WebSocket handshake",
    _NEXT, _FAIL, _FAIL, _FAIL,
    "a handshake always gets a new connection",
)  # fmt: skip

OPEN: Final = RetryRule(
    "OPEN of a WebSocket over HTTP",
    _NEXT, _FAIL, _FAIL, _FAIL,
    "the backend may have acted on the OPEN already",
)  # fmt: skip

EVENTS: Final = RetryRule(
    "events of a WebSocket over HTTP",
    _LATER, _LATER, _REPEAT, _FAIL,
    "the target that accepted the WebSocket keeps it; dropping the client would be worse than events seen twice",
)  # fmt: skip

LINK: Final = RetryRule(
    "next link",
    _NEXT, _FAIL, _REPEAT, _REPEAT,
    "a GET; a link to another host than its session's has one target",
)  # fmt: skip

SUBREQUEST: Final = RetryRule(
    "filter request, gone link",
    _NEXT, _FAIL, _REPEAT, _FAIL,
    "a POST of the proxy's own, which a backend that closed the connection has not read",
)  # fmt: skip

RULES: Final = (CLIENT_IDEMPOTENT, CLIENT_OTHER, HANDSHAKE, OPEN, EVENTS, LINK, SUBREQUEST)
"""The table, in the order of the documentation."""
