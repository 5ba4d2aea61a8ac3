"""Unknown names in items that were taken: formats and keys that are newer, or misspelt. Counted and logged."""

from __future__ import annotations

from typing import Final

from gripproxy.process.log import log

from .refusals import INTERVAL, WAYS

__all__ = ["UnknownNames"]

_START: Final = float("-inf")


class UnknownNames:
    """Items with unknown names, by way in. Sans-I/O but for the log; a line for each way in and INTERVAL at most."""

    __slots__ = ("_due", "_totals", "_untold")

    def __init__(self) -> None:
        self._totals = dict.fromkeys(WAYS, 0)
        self._untold = dict.fromkeys(WAYS, 0)
        self._due = dict.fromkeys(WAYS, _START)

    def note(self, way: str, channel: bytes, names: tuple[str, ...], now: float) -> None:
        """Count an item that was taken although it has names that are unknown.

        Args:
            way: one of WAYS.
            channel: the item's channel.
            names: of formats, or of keys as ``http-stream.contents``.
            now: time in seconds.
        """
        self._totals[way] += 1
        if now < self._due[way]:
            self._untold[way] += 1
            return
        self._due[way] = now + INTERVAL
        untold, self._untold[way] = self._untold[way], 0
        log.warning(
            "unknown names in an item",
            "the item was taken without them",
            way=way,
            channel=channel,
            names=names,
            more_before=untold or None,
        )

    def totals(self) -> dict[str, int]:
        """Return the number of items with unknown names by way in, in small letters."""
        return {way.lower(): total for way, total in self._totals.items()}
