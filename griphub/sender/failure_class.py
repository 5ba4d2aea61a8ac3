"""Classes of failures: all that the owner of a subscription may learn about its callback.

An owner learns a class, never a body, an address or a time: with these, a callback could be used to look into the
network that the hub is in.
"""

from __future__ import annotations

import email.utils
import enum
import math
from dataclasses import dataclass
from typing import Final

__all__ = ["PAUSE_ASKED_MAX", "SUCCESS", "FailureClass", "Verdict", "failed", "judge", "retry_after"]

PAUSE_ASKED_MAX: Final = 3600.0
"""Seconds of the longest pause that a callback may ask for."""


class FailureClass(enum.StrEnum):
    """Class of the failure of a request; the value is that of the API."""

    REFUSED_ADDRESS = "refused-address"
    """All addresses of the host are ones that the hub may not call."""
    UNRESOLVED = "unresolved"
    """The host has no address."""
    UNREACHABLE = "unreachable"
    """No connection, or one that ended before the answer."""
    TLS = "tls"
    """No secure connection: the certificate or the protocol."""
    TIMEOUT = "timeout"
    """No answer within the time allowed."""
    REDIRECT = "redirect"
    """Answer with 3xx, which is never followed."""
    CLIENT_ERROR = "client-error"
    """Answer with 4xx."""
    SERVER_ERROR = "server-error"
    """Answer with 5xx."""
    TOO_LARGE = "too-large"
    """Answer with 413 to the event, or an answer with more bytes than allowed."""
    MALFORMED = "malformed"
    """Answer that is no HTTP, has no final status, or does not repeat the token of a challenge."""
    GONE = "gone"
    """Answer with 410: the callback does not exist any more."""

    @property
    def retryable(self) -> bool:
        """False if the subscription rests after the first such failure."""
        return self is not FailureClass.GONE


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a request.

    Attributes:
        failure: class of the failure; None for success.
        wait: seconds that the callback asks to wait before the next attempt; None if it names none.
    """

    failure: FailureClass | None
    wait: float | None = None


SUCCESS: Final = Verdict(None)
"""Outcome of a request that was answered with 2xx."""

_WAITS: Final = frozenset({429, 503})  # status codes whose Retry-After counts


def failed(failure: FailureClass) -> Verdict:
    """Return the outcome of a request without an answer, or with one that cannot be used.

    Args:
        failure: its class.
    """
    return Verdict(failure)


def judge(status: int, retry_after_value: str | None = None, now_wall: float = 0.0) -> Verdict:
    """Return the outcome that a status code means.

    404 is tried again like other 4xx: a deployment may answer it for a moment. 410 is a deliberate answer (RFC 9110
    section 15.5.11), after which the subscription rests.

    Args:
        status: code of the answer.
        retry_after_value: value of its ``Retry-After``; None if there is none. Counts with 429 and 503.
        now_wall: seconds since 1970, for a ``Retry-After`` that is a date.
    """
    if 200 <= status <= 299:
        return SUCCESS
    wait = retry_after(retry_after_value, now_wall) if status in _WAITS else None
    return Verdict(_class_of(status), wait)


def _class_of(status: int) -> FailureClass:
    match status:
        case 410:
            return FailureClass.GONE
        case 413:
            return FailureClass.TOO_LARGE
        case _ if 300 <= status <= 399:
            return FailureClass.REDIRECT
        case _ if 400 <= status <= 499:
            return FailureClass.CLIENT_ERROR
        case _ if 500 <= status <= 599:
            return FailureClass.SERVER_ERROR
        case _:
            # 1xx is no final answer, and 101 was not requested.
            return FailureClass.MALFORMED


def retry_after(value: str | None, now_wall: float) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for (RFC 9110 section 10.2.3).

    Args:
        value: of the header: seconds, or a date; None if there is none.
        now_wall: seconds since 1970.

    Returns:
        Seconds from now, from 0 to 3600; None if the header has no meaning.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), PAUSE_ASKED_MAX)
    try:
        moment = email.utils.parsedate_to_datetime(text[:64]).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, moment - now_wall), PAUSE_ASKED_MAX) if math.isfinite(moment) else None
