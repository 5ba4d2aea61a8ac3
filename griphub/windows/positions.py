"""Positions in a window, as GRIP ids and clients name them: ``epoch.version.stamp``.

Several events share a version, so each has a stamp of its own: microseconds of the clock, never used twice, also over
restarts, which begin a new epoch.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from griphub.windows.bounds import VERSION_MAX
from griphub.windows.soft_event import Place
from gripproxy.grip.errors import ClientError

__all__ = ["BadPosition", "Position", "Stamps", "parse_position"]

SHOWN: Final = 80
"""Characters of a refused value that a message shows."""

_POSITION: Final = re.compile(r"([0-9a-z]{1,32})\.(0|[1-9][0-9]{0,18})\.(0|[1-9][0-9]{0,18})")


class BadPosition(ClientError, ValueError):
    """Text that should be a position in a window, and is none."""


class Position(NamedTuple):
    """Position of an event, or of progress.

    Attributes:
        epoch: of the window.
        version: of the event, or the version up to which a range is complete.
        stamp: microseconds, never used twice.
    """

    epoch: str
    version: int
    stamp: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.version}.{self.stamp}"

    @property
    def place(self) -> Place:
        """Place in the order of the window's events, if the epoch is the window's."""
        return self.version, self.stamp


def parse_position(text: str) -> Position:
    """Read a position.

    Args:
        text: ``epoch.version.stamp``, as an answer had it.

    Returns:
        The position.

    Raises:
        BadPosition: it is none.
    """
    match = _POSITION.fullmatch(text)
    if match is None or int(match[2]) > VERSION_MAX or int(match[3]) > VERSION_MAX:
        raise BadPosition(f"{text[:SHOWN]!r} is no position: expected EPOCH.VERSION.MICROSECONDS as the hub gave it")
    return Position(match[1], int(match[2]), int(match[3]))


class Stamps:
    """Source of stamps: strictly increasing, also when the clock goes back."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0
        """Stamp that was given last, in microseconds since 1970."""

    def next(self, now: int) -> int:
        """Return a stamp that was not given before.

        Args:
            now: microseconds since 1970.
        """
        self.last = now if now > self.last else self.last + 1
        return self.last
