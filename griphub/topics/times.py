"""Times as clients write and read them: RFC 3339 with microseconds, and microseconds since 1970 in the store."""

from __future__ import annotations

import re
import time
from datetime import date
from functools import lru_cache
from typing import Final

from gripproxy.grip.errors import ClientError

__all__ = ["TIME_MAX", "BadTime", "parse_time", "second_text", "time_text"]

TIME_MAX: Final = 64
"""Greatest length of a time that is read, in characters."""

_MICRO: Final = 1_000_000

_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,30}))?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)

_EXAMPLE: Final = "expected RFC 3339 with a zone, as 2026-11-23T19:00:00.123456Z"

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


class BadTime(ClientError, ValueError):
    """Parameter that should be a time, and is none."""


@lru_cache(maxsize=4096)
def second_text(second: int) -> bytes:
    """Return a time up to its seconds, as ``2026-11-23T19:00:00``.

    Args:
        second: seconds since 1970, of a year from 1 to 9999.
    """
    if second >= 0:
        year, month, day, hour, minute, rest = time.gmtime(second)[:6]
        return b"%04d-%02d-%02dT%02d:%02d:%02d" % (year, month, day, hour, minute, rest)
    days, rest = divmod(second, 86_400)
    day_text = date.fromordinal(_EPOCH_DAY + days).isoformat().encode()
    return b"%bT%02d:%02d:%02d" % (day_text, rest // 3600, rest // 60 % 60, rest % 60)


def time_text(microseconds: int) -> str:
    """Return a time as RFC 3339 in UTC with six digits of a second.

    Args:
        microseconds: since 1970, of a year from 1 to 9999.
    """
    second, micro = divmod(microseconds, _MICRO)
    return f"{second_text(second).decode()}.{micro:06d}Z"


def parse_time(text: str, name: str = "time") -> int:
    """Return a time that a client wrote, in microseconds since 1970; digits beyond microseconds are cut off.

    Args:
        text: RFC 3339 with a zone. A leap second is refused: the clock of the store has none.
        name: of the parameter, for the message.

    Returns:
        Microseconds since 1970, negative before.

    Raises:
        BadTime: it is no such time, or its year is none from 1 to 9999 in UTC.
    """
    match = _RFC3339.fullmatch(text) if len(text) <= TIME_MAX else None
    if match is None:
        raise BadTime(f"{name}={text[:80]!r} is no time: {_EXAMPLE}{_plus_hint(text)}")
    if match[8] is None:
        raise BadTime(f"{name}={text!r} has no zone: {_EXAMPLE}; write Z for UTC")
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    if second == 60:
        raise BadTime(f"{name}={text!r} is a leap second, which the store's clock does not have: write second 59")
    try:
        days = date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError as error:
        raise BadTime(f"{name}={text!r} is no day of the calendar from year 0001 to 9999: {error}") from error
    zone = 0 if match[8] in "Zz" else (int(match[8][1:3]) * 60 + int(match[8][4:])) * 60
    if hour > 23 or minute > 59 or second > 59 or zone >= 86_400 or (match[8] not in "Zz" and int(match[8][4:]) > 59):
        raise BadTime(f"{name}={text!r} is no time of the day: {_EXAMPLE}")
    if match[8][0] == "-":
        zone = -zone
    whole = days * 86_400 + hour * 3600 + minute * 60 + second - zone
    if not _FIRST <= whole <= _LAST:
        raise BadTime(f"{name}={text!r} lies outside of the years 0001 to 9999 in UTC")
    return whole * _MICRO + int((match[7] or "0")[:6].ljust(6, "0"))


_FIRST: Final = (date(1, 1, 1).toordinal() - _EPOCH_DAY) * 86_400
_LAST: Final = (date(9999, 12, 31).toordinal() - _EPOCH_DAY + 1) * 86_400 - 1


def _plus_hint(text: str) -> str:
    """Return a hint for a plus sign that a query turned into a space."""
    return "; a plus sign of the zone is written %2B in a query" if re.search(r" [0-9]{2}:[0-9]{2}$", text) else ""
