"""Durations and times of the API: JSON texts of proto3, as nanoseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = [
    "DAY",
    "HOUR",
    "MICROSECOND",
    "MINUTE",
    "SECOND",
    "duration_text",
    "parse_duration",
    "parse_time",
    "spoken",
    "time_text",
]

MICROSECOND: Final = 1000
SECOND: Final = 10**9
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
"""Nanoseconds of each."""

SECONDS_MAX: Final = 315_576_000_000
"""Greatest seconds of a duration, either way (google.protobuf.Duration)."""

_DURATION: Final = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(text: str) -> int | None:
    """Return the nanoseconds of a duration such as ``1.5s``; None if the text is none.

    Args:
        text: seconds with up to nine digits behind the point, and ``s``.
    """
    found = _DURATION.fullmatch(text)
    if found is None or int(found[2]) > SECONDS_MAX:
        return None
    value = int(found[2]) * SECOND + int((found[3] or "").ljust(9, "0"))
    return -value if found[1] else value


def duration_text(value: int) -> str:
    """Return the text of a duration with 0, 3, 6 or 9 digits behind the point.

    Args:
        value: nanoseconds.
    """
    seconds, fraction = divmod(abs(value), SECOND)
    return f"{'-' if value < 0 else ''}{seconds}{_fraction(fraction)}s"


def parse_time(text: str) -> int | None:
    """Return the nanoseconds since 1970 of a time (RFC 3339); None if the text is none.

    Args:
        text: with ``Z`` or any offset.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{found[1]}+00:00")
    except ValueError:
        return None
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    if found[3]:
        if int(found[4]) > 23 or int(found[5]) > 59:
            return None
        offset = 3600 * int(found[4]) + 60 * int(found[5])
        seconds += offset if found[3] == "-" else -offset
    return seconds * SECOND + int((found[2] or "").ljust(9, "0"))


def time_text(value: int) -> str:
    """Return the text of a time in UTC with 0, 3, 6 or 9 digits behind the point.

    Args:
        value: nanoseconds since 1970; of the years 1 to 9999.
    """
    seconds, fraction = divmod(value, SECOND)
    moment = _EPOCH + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}{_fraction(fraction)}Z".rjust(20, "0")


def _fraction(nanoseconds: int) -> str:
    if not nanoseconds:
        return ""
    digits = f"{nanoseconds:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f".{digits}"


def spoken(value: int) -> str:
    """Return a duration as error messages show it, such as ``9m59s`` or ``744h``.

    Args:
        value: nanoseconds.
    """
    sign, value = ("-" if value < 0 else ""), abs(value)
    hours, rest = divmod(value, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    seconds, fraction = divmod(rest, SECOND)
    parts = [f"{hours}h"] if hours else []
    if minutes:
        parts.append(f"{minutes}m")
    if seconds or fraction or not parts:
        parts.append(f"{seconds}{_fraction(fraction)}s")
    return sign + "".join(parts)
