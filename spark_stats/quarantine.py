"""Messages of a stats socket that are no events: counted by reason, with a few samples of each."""

from __future__ import annotations

import datetime
import os
from typing import Final

import orjson

from spark_stats.directory import Directory
from spark_stats.journal import Frame

__all__ = ["Quarantine"]

SAMPLES: Final = 10
"""Messages kept per reason and period."""
PERIOD: Final = 60_000_000
"""Length of a sampling period in microseconds."""
MAX_HEAD: Final = 1024
"""Bytes kept of a message."""
MAX_FILE: Final = 16 * 1024 * 1024
"""Bytes of the samples of a day; after that they are only counted."""


class Quarantine:
    """Counts since the start by reason (``counts``), and samples in ``_recorder/quarantine/<date>.jsonl``.

    One JSON object per line with ``received_at``, ``endpoint``, ``session``, ``seq``, ``reason``, ``bytes`` (length
    of the message) and ``head`` (its begin, Latin-1).

    Args:
        directory: folder of the record.
        session: name of the session.
        sampling: keep samples; False only counts.
    """

    def __init__(self, directory: Directory, session: str, sampling: bool = True) -> None:
        self._directory = directory
        self._session = session
        self._sampling = sampling
        self._sampled: dict[str, int] = {}
        self._period = 0
        self.counts: dict[str, int] = {}

    @property
    def total(self) -> int:
        """Malformed messages since the start."""
        return sum(self.counts.values())

    def refuse(self, reason: str, frame: Frame, seq: int, message: bytes) -> None:
        """Count a message, and keep a sample if fewer than SAMPLES of this reason were kept in the period.

        Args:
            reason: text of :class:`~spark_stats.event.Malformed`.
            frame: frame that contains the message.
            seq: number of the message in the session.
            message: its bytes.

        Raises:
            OSError: the sample could not be written.
        """
        self.counts[reason] = self.counts.get(reason, 0) + 1
        if not self._sampling:
            return
        if frame.elapsed // PERIOD != self._period:
            self._period = frame.elapsed // PERIOD
            self._sampled = {}
        kept = self._sampled.get(reason, 0)
        if kept >= SAMPLES:
            return
        self._sampled[reason] = kept + 1
        at = datetime.datetime.fromtimestamp(frame.received / 1e6, datetime.UTC)
        line = orjson.dumps(
            {
                "received_at": at.isoformat(),
                "endpoint": frame.endpoint,
                "session": self._session,
                "seq": seq,
                "reason": reason,
                "bytes": len(message),
                "head": message[:MAX_HEAD].decode("latin-1"),
            },
            option=orjson.OPT_APPEND_NEWLINE,
        )
        path = self._directory.quarantine / f"{at.date()}.jsonl"
        with open(path, "ab", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size + len(line) <= MAX_FILE and file.write(line) != len(line):
                file.truncate(size)
                raise OSError(f"{path}: a line was written in part; the disk may be full")
