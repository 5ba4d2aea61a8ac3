"""Silence of a stream: the time without a line after which it counts as lost. Sans-I/O; times are handed in.

A hub gives progress also when nothing happens, so a stream that is silent for three times its interval is dead, also
if a proxy sends keep-alives. The interval is a setting of the topic, which a watcher need not know: silence that ended
a stream doubles the time allowed, and the gap between two progresses corrects it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["INTERVAL", "WatchSilence"]

INTERVAL: Final = 10.0
"""Seconds between progress of a topic, unless it has another setting."""

INTERVALS: Final = 3.0
"""Intervals without a line after which a stream is lost."""

LIMIT_MAX: Final = 3600.0
"""Seconds of the longest silence that is allowed."""


class WatchSilence:
    """Silence of the streams of one watcher.

    Args:
        interval: seconds between progress of the topic, as far as known.

    Raises:
        ValueError: the interval is not above 0.
    """

    def __init__(self, interval: float = INTERVAL) -> None:
        if not 0 < interval < float("inf"):
            raise ValueError(f"interval={interval}: expected seconds above 0")
        self._least = INTERVALS * interval
        self._limit = self._least
        self._from = 0.0
        self._progress: float | None = None
        """Time of the last progress of the stream; None while there is none to measure a gap from."""
        self._connect: float | None = None

    @property
    def limit(self) -> float:
        """Seconds of silence that are allowed."""
        return self._limit

    @property
    def deadline(self) -> float:
        """Monotonic time in seconds at which the stream counts as lost."""
        return self._connect if self._connect is not None else self._from + self._limit

    def connect(self, now: float, limit: float) -> None:
        """Note that a stream was asked for.

        Args:
            now: monotonic time in seconds.
            limit: seconds until it has to be open.
        """
        self._connect = now + limit

    def begin(self, now: float) -> None:
        """Note that the stream is open, at the time ``now`` in seconds."""
        self._connect, self._from, self._progress = None, now, None

    def wait(self, now: float) -> None:
        """Note that the stream is read again, at the time ``now`` in seconds, after it was not for a while."""
        self._from, self._progress = max(self._from, now), None

    def heard(self, now: float) -> None:
        """Note a line, at the time ``now`` in seconds."""
        self._from = now

    def progress(self, now: float) -> None:
        """Note progress, at the time ``now`` in seconds: the gap between two shows the interval."""
        if self._progress is not None:
            self._limit = max(self._least, min(INTERVALS * (now - self._progress), LIMIT_MAX))
        self._progress = now

    def expired(self) -> None:
        """Note that silence has ended a stream: the interval may be longer than known."""
        self._limit = min(2 * self._limit, max(self._limit, LIMIT_MAX))
