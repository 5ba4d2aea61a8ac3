"""Errors of the client, by the certainty about the request.

    HubError
    ├── ConnectionLost    no answer: the hub was not reached, or the connection ended before the answer
    ├── Unavailable       attempts were made until the deadline, and none was answered with success
    ├── RequestFailed     an answer with an error status that no repetition cures, with its problem document
    │   └── Gone          410: events behind the place are not retained any more
    ├── BadAnswer         an answer that no hub gives, for example that of another server at the URL
    └── Closed            a call to a publisher that is closed, or an event dropped by its closing

The client imports nothing of the server, so its errors have a tree of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = [
    "BadAnswer",
    "Closed",
    "ConnectionLost",
    "Gone",
    "HubError",
    "Problem",
    "RequestFailed",
    "Unavailable",
    "failure",
    "problem_of",
]

URN: Final = "urn:gripproxy:hub:"
"""Beginning of the types of a hub's problem documents."""

PROBLEM_TYPE: Final = "application/problem+json"

EXCERPT: Final = 200
"""Characters of an answer that is no problem document, in the text of its error."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem document of an answer (RFC 9457), or its place taken by an answer without one.

    Attributes:
        status: HTTP status code.
        name: last part of the type, as ``gone`` or ``limit``; empty if the answer is not the hub's.
        title: short text of the kind.
        detail: fault and cure.
        members: further members of the document, as ``floor_cursor`` or ``limit``.
    """

    status: int
    name: str
    title: str
    detail: str
    members: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        text = self.detail or self.title or "no reason given"
        return f"{text} ({self.status} {self.name})" if self.name else f"{text} ({self.status})"


def problem_of(status: int, content_type: str, body: bytes) -> Problem:
    """Return the problem that an answer describes.

    Args:
        status: HTTP status code of the answer.
        content_type: value of its ``Content-Type``.
        body: its content.

    Returns:
        The problem document, or one made of the first characters of another content.
    """
    if content_type.partition(";")[0].strip().lower() == PROBLEM_TYPE:
        try:
            members = json.loads(body)
        except (ValueError, RecursionError):
            members = None
        if isinstance(members, dict):
            kind = str(members.pop("type", ""))
            title, detail = str(members.pop("title", "")), str(members.pop("detail", ""))
            members.pop("status", None)
            return Problem(status, kind.removeprefix(URN) if kind.startswith(URN) else "", title, detail, members)
    text = " ".join(body[: 4 * EXCERPT].decode("utf-8", "replace").split())[:EXCERPT]
    return Problem(status, "", "", text)


class HubError(Exception):
    """Base of all errors of the client.

    Attributes:
        maybe_stored: whether events of the request may be stored in spite of the error.
    """

    maybe_stored = False


class ConnectionLost(HubError):
    """Request without an answer.

    Args:
        reason: text.
        maybe_stored: whether the hub may have the request.
    """

    def __init__(self, reason: str, *, maybe_stored: bool) -> None:
        super().__init__(reason)
        self.maybe_stored = maybe_stored


class Unavailable(HubError):
    """Deadline that passed without success: the hub was away, overloaded, or over a limit.

    Args:
        reason: text of the last attempt.
        problem: of the last answer; None if there was none.
        maybe_stored: whether an attempt may have been carried out without its answer being received. A repetition with
            a name of its own (``idempotency_key``) settles it within a day.
    """

    def __init__(self, reason: str, problem: Problem | None = None, *, maybe_stored: bool = False) -> None:
        super().__init__(reason)
        self.problem = problem
        self.maybe_stored = maybe_stored


class RequestFailed(HubError):
    """Answer with an error status.

    Args:
        problem: its problem document.
        retry_after: seconds that the server asks to wait before a repetition; None if it names none.
    """

    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.retry_after = retry_after
        # A fault of the hub itself leaves open how far the request was carried out.
        self.maybe_stored = problem.status == 500

    @property
    def status(self) -> int:
        """HTTP status code."""
        return self.problem.status


class Gone(RequestFailed):
    """Place whose events are not retained: 410, or the block ``resync`` of a stream."""

    @property
    def floor_cursor(self) -> str | None:
        """Cursor from which all events are retained; None if the topic does not exist any more."""
        value = self.problem.members.get("floor_cursor")
        return value if isinstance(value, str) else None

    @property
    def oldest_time(self) -> str | None:
        """Earliest time from which all events are retained, RFC 3339; None if that is the beginning."""
        value = self.problem.members.get("oldest_time")
        return value if isinstance(value, str) else None


class BadAnswer(HubError):
    """Answer with a status of success whose content is not that of a hub.

    Args:
        reason: text.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}: is the URL that of a hub?")
        self.reason = reason
        self.maybe_stored = True


class Closed(HubError):
    """Call to a closed publisher, or an event that its closing dropped."""


def failure(problem: Problem, retry_after: float | None = None) -> RequestFailed:
    """Return the exception of an answer with an error status.

    Args:
        problem: its problem document.
        retry_after: seconds that the server asks to wait before a repetition; None if it names none.

    Returns:
        ``Gone`` for 410, ``RequestFailed`` otherwise.
    """
    return (Gone if problem.status == 410 else RequestFailed)(problem, retry_after)
