"""Range of time that a report is about, and its form on the command line."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Final

__all__ = ["LOOK_BACK", "Span", "moment"]

LOOK_BACK: Final = datetime.timedelta(hours=1)
"""Time before the range that is read as well, for the state at its beginning.

Connections and subscriptions are reported again within their ttl, 2 minutes by default.
"""

_AGO: Final = re.compile(r"([0-9]+)([mhd])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class Span:
    """From ``since`` to before ``until``, both UTC and on whole seconds."""

    since: datetime.datetime
    until: datetime.datetime

    def __post_init__(self) -> None:
        for time in (self.since, self.until):
            if time.utcoffset() != datetime.timedelta() or time.microsecond:
                raise ValueError(f"{time}: expected a whole second of UTC")
        if self.since >= self.until:
            raise ValueError(f"the range ends ({self.until}) before it has begun ({self.since})")

    @property
    def read_since(self) -> datetime.datetime:
        """Return the time from which events are read."""
        return self.since - LOOK_BACK

    def __str__(self) -> str:
        return f"{self.since:%Y-%m-%d %H:%M:%S} to {self.until:%Y-%m-%d %H:%M:%S} UTC"


def moment(text: str, now: datetime.datetime) -> datetime.datetime:
    """Return the time that ``text`` names, UTC, cut to whole seconds.

    Args:
        text: ``now``; ``90m``, ``36h`` or ``7d`` before now; or an ISO 8601 date or time, UTC unless it has an offset.
        now: the current time.

    Raises:
        ValueError: the text names no time.
    """
    if text == "now":
        time = now
    elif found := _AGO.fullmatch(text):
        try:
            time = now - datetime.timedelta(**{_UNITS[found[2]]: int(found[1])})
        except OverflowError as e:
            raise ValueError(f"{text!r}: that long ago there were no years") from e
    else:
        try:
            time = datetime.datetime.fromisoformat(text)
        except ValueError as e:
            raise ValueError(f"{text!r}: expected now, 90m, 36h, 7d, 2026-11-20 or 2026-11-20T16:00") from e
        if time.tzinfo is None:
            time = time.replace(tzinfo=datetime.UTC)
    return time.astimezone(datetime.UTC).replace(microsecond=0)
