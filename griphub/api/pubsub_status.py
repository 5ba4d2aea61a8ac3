"""Refusals under ``/v1``: problem documents of other parts of the hub are ``google.rpc.Status`` there.

Clients of that API look at the number of the HTTP status, and repeat a request for 503 only: a store that is full or
away, and a hub that is being started, are UNAVAILABLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from griphub.api.problem import Problem
from griphub.api.request import Answer
from griphub.pubsub.status import (
    ApiError,
    exhausted,
    internal,
    invalid,
    not_served,
    permission_denied,
    unauthenticated,
    unavailable,
)

__all__ = ["JSON_TYPE", "error_answer", "error_of", "is_call", "json_answer", "status_answer"]

JSON_TYPE: Final = "application/json; charset=UTF-8"
"""Media type of all answers."""

_NO_STORE: Final = ("Cache-Control", "no-store")


def is_call(raw_target: bytes) -> bool:
    """Return whether a request is one to this API; ``raw_target``: its target as received."""
    return raw_target.startswith((b"/v1/", b"/v1?")) or raw_target == b"/v1"


def error_of(problem: Problem) -> ApiError:
    """Return the error that stands for a problem.

    Args:
        problem: of another part of the hub.
    """
    text, status = problem.detail, problem.status
    if status == 401:
        return unauthenticated(text)
    if status == 403:
        return permission_denied(text)
    if status in (404, 405):
        return ApiError("NOT_FOUND", text)
    if status == 429:
        return exhausted(text)
    if status == 500:
        return internal()
    if status == 501:
        return not_served(text)
    if status > 501 or status == 408:
        return unavailable(text)
    return invalid(text)


def error_answer(error: ApiError) -> Answer:
    """Return the answer that reports an ``error``."""
    headers = [_NO_STORE]
    if error.code == "UNAUTHENTICATED":
        headers.append(("WWW-Authenticate", 'Bearer realm="hub"'))
    if error.code == "UNAVAILABLE":
        headers.append(("Retry-After", "1"))
    return Answer(error.status, error.body(), JSON_TYPE, headers)


def status_answer(answer: Answer) -> Answer:
    """Return the answer with the status that stands for a problem document.

    Args:
        answer: with such a document.
    """
    document = orjson.loads(answer.body)
    return error_answer(error_of(Problem(answer.status, "bad-request", document["detail"])))


def json_answer(document: Mapping[str, Any]) -> Answer:
    """Return the answer 200 with a JSON ``document``."""
    return Answer(200, orjson.dumps(document, option=orjson.OPT_INDENT_2), JSON_TYPE, [_NO_STORE])
