"""Outcome of a request to a callback."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from griphub.sender.failure_class import FailureClass
from gripproxy.backend.outages import (
    BAD_ANSWER,
    BLOCKED,
    DESCRIPTORS,
    LATE,
    REFUSED,
    RESET,
    TIMED_OUT,
    TLS,
    TOO_LARGE,
    UNREACHABLE,
    UNRESOLVED,
)

__all__ = ["Outcome", "class_of", "is_shortage"]

_CLASSES: Final[Mapping[str, FailureClass]] = {
    REFUSED: FailureClass.UNREACHABLE,
    UNREACHABLE: FailureClass.UNREACHABLE,
    RESET: FailureClass.UNREACHABLE,
    UNRESOLVED: FailureClass.UNRESOLVED,
    TIMED_OUT: FailureClass.TIMEOUT,
    LATE: FailureClass.TIMEOUT,
    TLS: FailureClass.TLS,
    BLOCKED: FailureClass.REFUSED_ADDRESS,
    BAD_ANSWER: FailureClass.MALFORMED,
    TOO_LARGE: FailureClass.TOO_LARGE,
}

_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of a system that lacks descriptors or memory."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a request: a final answer, or a failure.

    Attributes:
        status: code of the answer; 0 if there is none.
        body: its content.
        retry_after: value of its ``Retry-After``; None if there is none.
        failure: class of the failure; None if a final answer has arrived.
        interim: codes of the interim answers before it.
        seconds: from the beginning of the request to its outcome.
        ours: whether the fault is this machine's, as a lack of descriptors.
        headers: those of the answer that the request keeps, names in lower case; None if it keeps none.
    """

    status: int = 0
    body: bytes = b""
    retry_after: str | None = None
    failure: FailureClass | None = None
    interim: tuple[int, ...] = ()
    seconds: float = 0.0
    ours: bool = False
    headers: Mapping[bytes, str] | None = None


def is_shortage(error: object) -> bool:
    """Return whether an ``error`` means that this machine lacks descriptors or memory."""
    return isinstance(error, OSError) and error.errno in _SHORTAGES


def class_of(kind: str, error: object = None) -> FailureClass | None:
    """Return the class of a failed exchange; None for a fault of this machine.

    Args:
        kind: one of ``gripproxy.grip.stats_format.FAILURES``.
        error: exception of the attempt to connect; or a text, or None.
    """
    if kind == DESCRIPTORS or is_shortage(error):
        return None
    return _CLASSES[kind]
