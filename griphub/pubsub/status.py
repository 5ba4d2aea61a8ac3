"""Errors of the API: ``google.rpc.Status`` in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import orjson

__all__ = [
    "CODES",
    "ApiError",
    "Code",
    "already_exists",
    "bad_fields",
    "bad_payload",
    "exhausted",
    "failed_precondition",
    "internal",
    "invalid",
    "missing",
    "not_served",
    "out_of_range",
    "permission_denied",
    "unauthenticated",
    "unavailable",
]

Code = Literal[
    "INVALID_ARGUMENT",
    "FAILED_PRECONDITION",
    "OUT_OF_RANGE",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "ABORTED",
    "RESOURCE_EXHAUSTED",
    "INTERNAL",
    "UNIMPLEMENTED",
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
]
"""Names of ``google.rpc.Code``."""

CODES: Final[Mapping[Code, int]] = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""HTTP status of each."""

DOMAIN: Final = "pubsub.googleapis.com"
"""Domain of reasons, as clients compare it."""

BAD_REQUEST: Final = "type.googleapis.com/google.rpc.BadRequest"
ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"

MESSAGE_MAX: Final = 4000
"""Greatest length of a message, in characters; longer ones are cut."""


class ApiError(Exception):
    """Refusal of a request.

    Args:
        code: name of the status.
        message: the fault, and the value that was wrong.
        details: further messages, each with its ``@type``.
    """

    def __init__(self, code: Code, message: str, details: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.code: Code = code
        self.details = tuple(details)

    @property
    def status(self) -> int:
        """HTTP status."""
        return CODES[self.code]

    def body(self) -> bytes:
        """Return the JSON document that reports it."""
        error: dict[str, Any] = {"code": self.status, "message": str(self)[:MESSAGE_MAX], "status": self.code}
        if self.details:
            error["details"] = self.details
        return orjson.dumps({"error": error}, option=orjson.OPT_INDENT_2)


def _reason(reason: str, metadata: Mapping[str, str]) -> Mapping[str, Any]:
    return {"@type": ERROR_INFO, "reason": reason, "domain": DOMAIN, "metadata": metadata}


def invalid(message: str, reason: str = "", metadata: Mapping[str, str] | None = None) -> ApiError:
    """Return the error of a value that is not allowed.

    Args:
        message: the fault.
        reason: its name for programs; empty for none.
        metadata: names and values that belong to the reason.
    """
    return ApiError("INVALID_ARGUMENT", message, (_reason(reason, metadata or {}),) if reason else ())


def bad_payload(description: str) -> ApiError:
    """Return the error of a body of another form than that of the method; ``description``: the fault."""
    return ApiError(
        "INVALID_ARGUMENT", description, ({"@type": BAD_REQUEST, "fieldViolations": [_field(description)]},)
    )


def bad_fields(descriptions: Sequence[str]) -> ApiError:
    """Return the error of a body with fields that are not allowed.

    Args:
        descriptions: one of each of these fields.
    """
    violations = [_field(each) for each in descriptions]
    message = "\n".join(descriptions)
    return ApiError("INVALID_ARGUMENT", message, ({"@type": BAD_REQUEST, "fieldViolations": violations},))


def _field(description: str) -> Mapping[str, str]:
    return {"description": description}


def missing(name: str) -> ApiError:
    """Return the error of a resource that does not exist; ``name``: its last segment."""
    return ApiError("NOT_FOUND", f"Resource not found (resource={name}).")


def already_exists(name: str) -> ApiError:
    """Return the error of a resource that exists; ``name``: its last segment."""
    return ApiError("ALREADY_EXISTS", f"Resource already exists in the project (resource={name}).")


def failed_precondition(message: str) -> ApiError:
    """Return the error of a request that the state of a resource forbids; ``message``: the reason."""
    return ApiError("FAILED_PRECONDITION", message)


def out_of_range(message: str) -> ApiError:
    """Return the error of a number beyond its bounds; ``message`` names both."""
    return ApiError("OUT_OF_RANGE", message)


def unauthenticated(message: str) -> ApiError:
    """Return the error of a request without valid credentials; ``message`` names the cure."""
    return ApiError("UNAUTHENTICATED", message, (_reason("CREDENTIALS_MISSING", {}),))


def permission_denied(message: str) -> ApiError:
    """Return the error of a request without the right to it; ``message`` names the right."""
    return ApiError("PERMISSION_DENIED", message)


def exhausted(message: str) -> ApiError:
    """Return the error of a bound that is reached; ``message`` names it."""
    return ApiError("RESOURCE_EXHAUSTED", message)


def unavailable(message: str) -> ApiError:
    """Return the error that clients answer by a repetition; ``message``: the reason."""
    return ApiError("UNAVAILABLE", message)


def not_served(message: str) -> ApiError:
    """Return the error of a part of the API that is not served; ``message``: the reason."""
    return ApiError("UNIMPLEMENTED", message)


def internal() -> ApiError:
    """Return the error of a fault of the hub."""
    return ApiError("INTERNAL", "the hub has a fault, which is in its log")
