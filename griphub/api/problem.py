"""Problems: refusals of requests as JSON documents (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import orjson

from gripproxy.grip.errors import ClientError, GripproxyError

__all__ = [
    "MEDIA_TYPE",
    "STATUSES",
    "TITLES",
    "URN",
    "Cause",
    "Gone",
    "Problem",
    "ProblemName",
    "bad_request",
    "condition_failed",
    "conflict",
    "forbidden",
    "gone",
    "limited",
    "method_not_allowed",
    "not_acceptable",
    "not_found",
    "problem_bytes",
    "store_full",
    "too_large",
    "unauthorized",
    "unavailable",
    "unprocessable",
    "unsupported_media_type",
]

URN: Final = "urn:gripproxy:hub:"
"""First part of the type of each problem."""

MEDIA_TYPE: Final = "application/problem+json"

DETAIL_MAX: Final = 4000
"""Greatest length of a detail, in characters; longer ones are cut."""

ProblemName = Literal[
    "bad-request",
    "unauthorized",
    "forbidden",
    "not-found",
    "method",
    "not-acceptable",
    "conflict",
    "gone",
    "condition",
    "too-large",
    "media-type",
    "unprocessable",
    "limit",
    "full",
    "unavailable",
    "unsupported",
    "internal",
]
"""Names of problems: the last part of their type, which clients compare."""

STATUSES: Final[Mapping[ProblemName, int]] = MappingProxyType(
    {
        "bad-request": 400,
        "unauthorized": 401,
        "forbidden": 403,
        "not-found": 404,
        "method": 405,
        "not-acceptable": 406,
        "conflict": 409,
        "gone": 410,
        "condition": 412,
        "too-large": 413,
        "media-type": 415,
        "unprocessable": 422,
        "limit": 429,
        "internal": 500,
        "unsupported": 501,
        "unavailable": 503,
        "full": 507,
    }
)
"""Usual status of each problem. Few requests have another: 408 for one that is too slow, 431 for a too large head."""

TITLES: Final[Mapping[ProblemName, str]] = MappingProxyType(
    {
        "bad-request": "The request breaks a rule",
        "unauthorized": "A valid token is required",
        "forbidden": "The token gives no right to this",
        "not-found": "It does not exist",
        "method": "The resource has no such method",
        "not-acceptable": "No representation has an accepted media type",
        "conflict": "The request contradicts the state",
        "gone": "These events are not retained",
        "condition": "The condition of the request is not met",
        "too-large": "The request is too large",
        "media-type": "The media type or coding of the request is not supported",
        "unprocessable": "The request cannot be carried out",
        "limit": "A limit has been reached",
        "internal": "A fault of the hub",
        "unsupported": "The proxy in front of the hub lacks a feature",
        "unavailable": "The hub cannot answer now",
        "full": "The store is full",
    }
)
"""Title of each problem, equal for all of its occurrences."""

RESERVED: Final = frozenset({"type", "title", "status", "detail"})
"""Members of every problem, which no further member may replace."""


class Problem(GripproxyError):
    """Refusal of a request.

    Args:
        status: of the answer.
        name: last part of its type.
        detail: fault and cure of this occurrence.
        extra: further members.
        headers: further headers of the answer, names and values.
    """

    def __init__(
        self,
        status: int,
        name: ProblemName,
        detail: str,
        extra: Mapping[str, object] | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.name: ProblemName = name
        self.detail = detail if len(detail) <= DETAIL_MAX else detail[: DETAIL_MAX - 1] + "…"
        self.extra = dict(extra or {})
        self.headers = [*headers]

    @property
    def type(self) -> str:
        """URN of the kind of problem."""
        return URN + self.name


Cause = Literal["floor", "unknown", "deleted"]
"""Why events are not retained: they lie below the floor, or the place is of another store or topic, or above all
events, or the topic was deleted."""


class Gone(Problem):
    """Place whose events are not retained: 410.

    Args:
        cause: for the figures.
        detail: fault and cure.
        extra: further members.
    """

    def __init__(self, cause: Cause, detail: str, extra: Mapping[str, object]) -> None:
        super().__init__(410, "gone", detail, extra)
        self.cause: Cause = cause


def problem_bytes(problem: Problem) -> bytes:
    """Return a problem as a JSON document, of the media type ``application/problem+json``.

    Args:
        problem: the problem. Halves of surrogate pairs in its texts are replaced.
    """
    document: dict[str, object] = {
        "type": problem.type,
        "title": TITLES[problem.name],
        "status": problem.status,
        "detail": problem.detail.encode("utf-8", "replace").decode(),
    }
    document.update({name: value for name, value in problem.extra.items() if name not in RESERVED})
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def bad_request(detail: str | ClientError) -> Problem:
    """Return the problem of a request that breaks a rule: 400.

    Args:
        detail: fault and cure, or the error that has them as its text.
    """
    return Problem(400, "bad-request", str(detail))


def unauthorized(detail: str) -> Problem:
    """Return the problem of a request without a valid token: 401 with its challenge.

    Args:
        detail: fault and cure.
    """
    return Problem(401, "unauthorized", detail, headers=[("WWW-Authenticate", 'Bearer realm="hub"')])


def forbidden(detail: str) -> Problem:
    """Return the problem of a request without the right to it: 403.

    Args:
        detail: fault and cure.
    """
    return Problem(403, "forbidden", detail)


def not_found(detail: str, extra: Mapping[str, object] | None = None) -> Problem:
    """Return the problem of a topic, key, event or path that does not exist: 404.

    Args:
        detail: fault and cure.
        extra: further members.
    """
    return Problem(404, "not-found", detail, extra)


def method_not_allowed(method: str, allowed: Sequence[str]) -> Problem:
    """Return the problem of a method that a resource does not have: 405.

    Args:
        method: of the request.
        allowed: methods of the resource.
    """
    names = ", ".join(allowed)
    detail = f"the method {method[:20]} is not one of this resource: expected {names}"
    return Problem(405, "method", detail, {"allow": [*allowed]}, [("Allow", names)])


def not_acceptable(accept: str, offered: Sequence[str]) -> Problem:
    """Return the problem of a request that accepts no representation of a resource: 406.

    Args:
        accept: value of its ``Accept``.
        offered: media types of the resource.
    """
    detail = f"Accept: {accept[:200]} leaves none of {', '.join(offered)}: add one of them"
    return Problem(406, "not-acceptable", detail, {"offered": [*offered]})


def conflict(detail: str, extra: Mapping[str, object] | None = None) -> Problem:
    """Return the problem of a request that contradicts the state: 409.

    Args:
        detail: fault and cure.
        extra: further members.
    """
    return Problem(409, "conflict", detail, extra)


def gone(detail: str, extra: Mapping[str, object]) -> Problem:
    """Return the problem of a place whose events are not retained: 410.

    Args:
        detail: fault and cure.
        extra: ``floor``, ``floor_cursor``, ``oldest_time`` and ``snapshot``.
    """
    return Problem(410, "gone", detail, extra)


def condition_failed(detail: str, last: int, last_cursor: str) -> Problem:
    """Return the problem of an ``If-Match`` that is not met: 412.

    Args:
        detail: fault and cure.
        last: id of the last event; 0 for none.
        last_cursor: its cursor.
    """
    return Problem(412, "condition", detail, {"last": str(last), "last_cursor": last_cursor})


def too_large(detail: str, limit: str, most: int) -> Problem:
    """Return the problem of a request beyond a bound of its size: 413.

    Args:
        detail: fault and cure.
        limit: name of the bound.
        most: value of the bound.
    """
    return Problem(413, "too-large", detail, {"limit": limit, "max": most})


def unsupported_media_type(detail: str) -> Problem:
    """Return the problem of a body whose media type is not supported: 415.

    Args:
        detail: fault and cure.
    """
    return Problem(415, "media-type", detail)


def unprocessable(detail: str) -> Problem:
    """Return the problem of a well-formed request that cannot be carried out: 422.

    Args:
        detail: fault and cure.
    """
    return Problem(422, "unprocessable", detail)


def limited(detail: str, limit: str, most: int, retry_after: int | None = None) -> Problem:
    """Return the problem of a limit that has been reached: 429.

    Args:
        detail: fault and cure.
        limit: name of the limit.
        most: value of the limit.
        retry_after: seconds after which a repetition may succeed; None if waiting does not help.
    """
    headers = [] if retry_after is None else [("Retry-After", str(retry_after))]
    return Problem(429, "limit", detail, {"limit": limit, "max": most}, headers)


def unavailable(detail: str, retry_after: int = 1) -> Problem:
    """Return the problem of a request that the hub cannot answer now: 503.

    Args:
        detail: fault and cure.
        retry_after: seconds after which a repetition may succeed.
    """
    return Problem(503, "unavailable", detail, headers=[("Retry-After", str(retry_after))])


def store_full(detail: str) -> Problem:
    """Return the problem of a store without space: 507.

    Args:
        detail: fault and cure.
    """
    return Problem(507, "full", detail)
