"""Session of recording: messages in, segments out. Knows the disk and the clock, and no socket.

The way of a message:

1. :meth:`Recording.take` writes it to the journal. From here on the death of the process does not lose it.
2. It waits, a second at most, until many are decoded together.
3. When the journal is large or old enough, its segments are closed and it is deleted (:meth:`Recording.seal`).

After a crash the next recording of the folder turns the journals it finds into segments first, by the same way.
"""

from __future__ import annotations

import datetime
import errno
import logging
import pathlib
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson

from spark_stats.batch import Batch
from spark_stats.directory import Directory
from spark_stats.errors import OperatorError
from spark_stats.journal import Frame, Reader, Writer
from spark_stats.loss_detector import LossDetector
from spark_stats.quarantine import Quarantine
from spark_stats.schema import OWN
from spark_stats.segment import Segments

__all__ = ["Clock", "Limits", "RecordError", "Recording"]

logger = logging.getLogger("spark_stats.recorder")

MAX_BATCH: Final = 8192
"""Events decoded together."""
MAX_WAIT: Final = 1_000_000
"""Longest time that an event waits to be decoded, µs."""
JUMP: Final = 1_000_000
"""µs by which the wall clock may differ from where it should be before that is a jump."""
DAY: Final = 86_400_000_000

_JOURNAL_NAME: Final = re.compile(r"([0-9A-Za-z]+-[0-9a-f]+)-([0-9]{6,})\.journal")


_T = TypeVar("_T")


class RecordError(OperatorError):
    """Failure to write the record; the text names the file, the reason, and the number of events that are lost."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for closing segments and syncing the journal.

    Attributes:
        size: bytes of the journal at which its segments are closed.
        age: seconds since its first event at which they are closed.
        sync: seconds after which a journaled message must survive a power failure; 0 for before any other work,
            None to leave it to the kernel.
    """

    size: int = 64 * 1024 * 1024
    age: float = 300.0
    sync: float | None = 1.0


class Clock:
    """Clock of the machine, in µs."""

    def wall(self) -> int:
        """Return the µs since 1970; they jump when the clock is set."""
        return time.time_ns() // 1000

    def steady(self) -> int:
        """Return the µs since an arbitrary moment; they never jump."""
        # Goes on while the machine sleeps, as the wall clock does, where there is such a clock.
        return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


class Recording:
    """Session of recording, from :meth:`begin` to :meth:`end`.

    Every method may raise :class:`RecordError`; the recording is over then, and the next one turns the journaled
    messages into segments.

    Args:
        directory: folder of the record, locked.
        limits: times and sizes at which segments are closed.
        clock: source of time; that of the machine by default.
    """

    def __init__(self, directory: Directory, limits: Limits, clock: Clock | None = None) -> None:
        self._directory = directory
        self._limits = limits
        self._clock = clock or Clock()
        self._began = self._clock.steady()
        self._ahead = self._clock.wall() - self._began
        began = datetime.datetime.fromtimestamp(self._clock.wall() / 1e6, datetime.UTC)
        self.session = f"{began:%Y%m%dT%H%M%SZ}-{secrets.token_hex(6)}"
        self._number = 0
        self._seq = 0
        self._journal: Writer | None = None
        self._segments = Segments(directory, "")
        self._journal_began = 0
        self._synced = 0
        self.losses = LossDetector()
        self.quarantine = Quarantine(directory, self.session)
        self._batch = Batch(self.session, self.quarantine.refuse, self.losses.see)
        self._batched = 0
        self._batch_began = 0
        self._batch_day = 0
        self.events = 0
        """Messages taken from outside."""
        self.closed = 0
        """Segments written."""
        self.missed = 0
        """Events and reports known to be missing."""

    def elapsed(self) -> int:
        """Return the µs since the session began."""
        return self._clock.steady() - self._began

    def begin(self, endpoints: Sequence[str]) -> None:
        """Turn the journals of a crashed recorder into segments, then note the start.

        Args:
            endpoints: stats sockets to note.
        """
        recovered = self._guard(self._recover, 0)
        self.note("start", facts={"endpoints": list(endpoints)})
        for facts in recovered:
            self.note("recovered", facts=facts)

    def take(self, endpoint: str, messages: list[bytes]) -> None:
        """Record ``messages`` that were received at one time from ``endpoint``."""
        if messages:
            self._append(endpoint, messages, False)
            self.events += len(messages)

    def note(self, action: str, endpoint: str = "", facts: Mapping[str, Any] | None = None) -> None:
        """Record an event of the recorder itself.

        Args:
            action: name of the event.
            endpoint: stats socket concerned, if any.
            facts: values by name of a column, or of ``extra`` for other names; None values are left out.
        """
        known = {name: value for name, value in (facts or {}).items() if value is not None}
        self._append(endpoint, [OWN.encode() + b" J" + orjson.dumps({**known, "action": action})], True)

    def tick(self) -> None:
        """Do timed work: decode, sync, close segments. Call this every second or more often."""
        self._look_at_clock()
        now = self.elapsed()
        if self._batched and now - self._batch_began >= MAX_WAIT:
            self._decode()
        sync = self._limits.sync
        if sync and self._journal is not None and now - self._synced >= sync * 1e6:
            self._guard(self._journal.sync, 0)
            self._synced = now
        self._seal_if_due(now)

    def seal(self) -> None:
        """Close the segments of all messages taken so far."""
        while self._batched:  # losses that decoding detects are noted, and decoded in turn
            self._decode()
        if self._journal is not None:
            journal, self._journal = self._journal, None
            journal.close()
            self.closed += len(self._guard(self._segments.close, 0))
            self._guard(journal.path.unlink, 0)

    def end(self) -> None:
        """Note the end, and close the segments."""
        self._decode()
        self.note("stop")
        self.seal()

    def _append(self, endpoint: str, messages: list[bytes], own: bool) -> None:
        received = self._clock.wall()
        day = received // DAY
        # Before the frame is made and journaled: this may note events of its own, and close the journal.
        while self._batched and day != self._batch_day:
            self._decode()
        now = self.elapsed()
        frame = Frame(endpoint, received, now, self._seq, messages, own)
        if self._journal is None:
            self._number += 1
            name = f"{self.session}-{self._number:06d}"
            path = self._directory.journals / f"{name}.journal"
            self._journal = self._guard(lambda: Writer(path), len(messages))
            self._segments = Segments(self._directory, name)
            self._journal_began = self._synced = now
        journal = self._journal
        self._guard(lambda: journal.append(frame), len(messages))
        if self._limits.sync == 0:
            self._guard(journal.sync, 0)
        self._seq += len(messages)
        if not self._batched:
            self._batch_began, self._batch_day = now, day
        self._guard(lambda: self._batch.add(frame), 0)
        self._batched += len(messages)
        if self._batched >= MAX_BATCH:
            self._decode()
        self._seal_if_due(now)

    def _seal_if_due(self, now: int) -> None:
        journal = self._journal
        if journal is not None and (
            journal.size >= self._limits.size or now - self._journal_began >= self._limits.age * 1e6
        ):
            self.seal()

    def _decode(self) -> None:
        if not self._batched:
            return
        self._batched = 0
        _into_segments(self._batch, self._batch_day, self._segments)
        for finding in self.losses.take():
            self.missed += finding.count
            logger.warning(
                "%s: %d %s of %s%s never arrived",
                finding.endpoint,
                finding.count,
                finding.action.removeprefix("missed-"),
                finding.sender,
                f", route {finding.route}" if finding.route is not None else "",
            )
            facts = {"from": finding.sender, "route": finding.route, "count": finding.count}
            self.note(finding.action, finding.endpoint, facts)

    def _look_at_clock(self) -> None:
        ahead = self._clock.wall() - self._clock.steady()
        jump = ahead - self._ahead
        if abs(jump) >= JUMP:
            self._ahead = ahead
            logger.warning("the wall clock jumped by %.3f s", jump / 1e6)
            self.note("clock", facts={"jump-ms": jump // 1000})

    def _recover(self) -> list[dict[str, Any]]:
        for path in sorted(self._directory.open.iterdir()):
            logger.warning("%s: removed, an unfinished segment of a recorder that crashed", path)
            path.unlink()
        facts = []
        for path in sorted(self._directory.journals.iterdir()):
            if _JOURNAL_NAME.fullmatch(path.name):
                facts.append(recover(self._directory, path))
            else:
                logger.warning("%s: left alone, not the name of a journal", path)
        return facts

    def _guard(self, act: Callable[[], _T], at_stake: int) -> _T:
        """Return the result of ``act``, which writes to the disk; ``at_stake`` messages are lost if it fails."""
        try:
            return act()
        except OSError as e:
            why = {
                errno.ENOSPC: "the disk is full",
                errno.EDQUOT: "the quota is used up",
                errno.EFBIG: "the file would be larger than the limit (RLIMIT_FSIZE) allows",
            }.get(e.errno or 0, "cannot write")
            raise RecordError(
                f"{e.filename or self._directory.root}: {why} ({e.strerror or e}). Lost: {at_stake} events just "
                "received; all before them are in the journal, and in segments once the recorder was started again"
            ) from e


def recover(directory: Directory, path: pathlib.Path) -> dict[str, Any]:
    """Turn the journal of a recorder that crashed into segments, and delete it.

    Args:
        directory: folder of the record, locked.
        path: the journal.

    Returns:
        Figures by name: ``journal``, ``count`` of events, ``malformed``, ``events-dropped`` and ``bytes-dropped`` with
        a torn tail, ``segments`` written, ``found`` complete already.

    Raises:
        OSError: a segment could not be written; the journal is still there.
    """
    name = path.name.removesuffix(".journal")
    session = name.rpartition("-")[0]
    quarantine = Quarantine(directory, session, sampling=False)
    batch = Batch(session, quarantine.refuse)
    segments = Segments(directory, name)
    reader = Reader(path)
    events = batched = day = 0
    for frame in reader:
        if batched and (batched >= MAX_BATCH or frame.received // DAY != day):
            _into_segments(batch, day, segments)
            batched = 0
        day = frame.received // DAY
        batch.add(frame)
        batched += len(frame.messages)
        events += len(frame.messages)
    _into_segments(batch, day, segments)
    written = segments.close()
    path.unlink()
    facts = {
        "journal": path.name,
        "count": events,
        "malformed": quarantine.total,
        "events-dropped": reader.events_dropped,
        "bytes-dropped": reader.bytes_dropped,
        "segments": len(written),
        "found": segments.found,
    }
    logger.warning(
        "%s: recovered %d events of a recorder that crashed into %d segments, %d were complete already",
        path,
        events,
        len(written),
        segments.found,
    )
    if reader.bytes_dropped:
        logger.warning(
            "%s: dropped %d bytes that were torn or broken, with at least %d events",
            path,
            reader.bytes_dropped,
            reader.events_dropped,
        )
    return facts


def _into_segments(batch: Batch, day: int, segments: Segments) -> None:
    """Move the events of a batch into the segments of a day, counted from 1970."""
    date = (datetime.date(1970, 1, 1) + datetime.timedelta(days=day)).isoformat()
    for partition, table in batch.tables():
        segments.add(date, partition, table)
