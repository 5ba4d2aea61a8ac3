"""State of a watcher of one range: streams and snapshots in, messages and requests out. Sans-I/O; times are handed in.

A watch is soft state: it may end at any line, and is begun again at the last whole version. If the hub does not retain
the changes from there on, a snapshot takes the place of all that was given, and the watch goes on at its version.

    IDLE            not begun
    CONNECTING      a stream was asked for
    WATCHING        a stream is open
    SNAPSHOT        a snapshot is being read; without its last line it is void
    HANDED          the application was asked for a place, since it takes snapshots itself
    BACKING_OFF     a request failed; the next one is due at ``deadline``
    STOPPED         the end

| input                            | counts in                          | leads to                          |
|----------------------------------|------------------------------------|-----------------------------------|
| ``begin``                        | all but STOPPED                    | CONNECTING, SNAPSHOT, HANDED      |
| ``opened``                       | CONNECTING                         | WATCHING                          |
| ``line``: event, progress        | CONNECTING, WATCHING               | WATCHING                          |
| ``line``: resync; ``gone``       | CONNECTING, WATCHING               | SNAPSHOT, HANDED, BACKING_OFF     |
| ``line``: other epoch, expired   | CONNECTING, WATCHING               | BACKING_OFF                       |
| ``ended``                        | any request                        | BACKING_OFF                       |
| ``refused``                      | any request                        | STOPPED                           |
| ``versioned``, ``taken``         | SNAPSHOT                           | SNAPSHOT, BACKING_OFF, STOPPED    |
| ``complete``                     | SNAPSHOT                           | CONNECTING, BACKING_OFF           |
| ``placed``                       | HANDED                             | CONNECTING, SNAPSHOT, STOPPED     |
| ``timer``                        | CONNECTING, WATCHING, BACKING_OFF  | any request, BACKING_OFF          |

One request is under way at a time. An input names the number of its request; one of another request has no effect.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from griphub.client.errors import BadAnswer
from griphub.client.key_range import KeyRange
from griphub.client.received import ReceivedEvent
from griphub.client.retry import Backoff
from griphub.client.watch_actions import (
    AskApplication,
    Deliver,
    Fail,
    OpenStream,
    TakeSnapshot,
    WatchAction,
    WatchReport,
    WatchReportKind,
)
from griphub.client.watch_lines import EventLine, Expired, ProgressLine, WatchLine
from griphub.client.watch_messages import Resync, Snapshot, Version
from griphub.client.watch_sequence import Disorder, OtherEpoch, TooLarge, WatchSequence
from griphub.client.watch_silence import WatchSilence

__all__ = ["SNAPSHOT_MAX", "WatchPhase", "WatchState"]

EPOCHS_MAX: Final = 16
"""Epochs behind one place, without a message: with more than so many restores in a row a snapshot is read instead."""

SNAPSHOT_MAX: Final = 256 * 1024 * 1024
"""Bytes of a snapshot that a watcher keeps until it is whole. With more of them the watch fails."""

CONNECT_LIMIT: Final = 60.0
"""Seconds after which a stream that was asked for and is not open counts as lost."""

RESYNC_GAP: Final = 10.0
"""Seconds between two resyncs from which on the second one needs no pause: a hub that forgets faster than its snapshot
is read is not asked without end."""


class WatchPhase(enum.Enum):
    """State of a watcher, by the request under way."""

    IDLE = "idle"
    CONNECTING = "connecting"
    WATCHING = "watching"
    SNAPSHOT = "snapshot"
    HANDED = "handed"
    BACKING_OFF = "backing off"
    STOPPED = "stopped"


_STREAM: Final = (WatchPhase.CONNECTING, WatchPhase.WATCHING)
_REQUEST: Final = (*_STREAM, WatchPhase.SNAPSHOT, WatchPhase.HANDED)


class _Taken:
    """Snapshot that is being read."""

    def __init__(self, version: Version, cursor: str, begin: str) -> None:
        self.version = version
        self.cursor = cursor
        self.begin = begin
        self.events: list[ReceivedEvent] = []
        self.size = 0

    def add(self, event: ReceivedEvent, size: int) -> None:
        """Add an event of ``size`` bytes."""
        self.events.append(event)
        self.size += size


class WatchState:
    """Decisions of a watcher of one range.

    Args:
        range: the watched range.
        cursor: place behind which changes are wanted, ``0`` for the beginning; None to begin with a snapshot.
        chance: makes random numbers from 0 up to 1, for pauses.
        handed: whether the application takes snapshots itself after a resync.
        silence: time without a line after which a stream is lost; None for the usual one.
        snapshot_max: bytes of a snapshot.

    Raises:
        BadAnswer: ``cursor`` is no cursor.
    """

    def __init__(
        self,
        range: KeyRange,
        cursor: str | None,
        chance: Callable[[], float],
        *,
        handed: bool = False,
        silence: WatchSilence | None = None,
        snapshot_max: int = SNAPSHOT_MAX,
    ) -> None:
        self._range = range
        self._chance = chance
        self._handed = handed
        self._silence = silence or WatchSilence()
        self._snapshot_max = snapshot_max
        self._phase = WatchPhase.IDLE
        self._number = 0
        self._sequence = None if cursor is None else WatchSequence(range, Version.of(cursor), cursor)
        """Order of the changes; None until the first snapshot is whole."""
        self._due: Resync | None = None
        """Resync that is to be carried out; None if the sequence goes on."""
        self._resynced = float("-inf")
        """Time of the last resync in seconds."""
        self._resync_backoff = Backoff()
        self._epochs: set[str] = set()
        """Other epochs that were seen behind the place, and with which the next stream may go on."""
        self._snapshot: _Taken | None = None
        self._backoff = Backoff()
        self._retry_at = 0.0

    @property
    def phase(self) -> WatchPhase:
        """Current state."""
        return self._phase

    @property
    def cursor(self) -> str | None:
        """Place up to which all changes were given; None before the first snapshot."""
        return None if self._sequence is None else self._sequence.cursor

    @property
    def deadline(self) -> float | None:
        """Monotonic time in seconds at which ``timer`` is due; None for none."""
        if self._phase is WatchPhase.BACKING_OFF:
            return self._retry_at
        return self._silence.deadline if self._phase in _STREAM else None

    # --- orders

    def begin(self, now: float) -> list[WatchAction]:
        """Begin, or begin again after the request under way was abandoned.

        Args:
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        return [] if self._phase is WatchPhase.STOPPED else self._request(now)

    def waiting(self, now: float) -> None:
        """Note that the application waits for messages again: while it does not, the stream is not silent, but unread.

        Args:
            now: monotonic time in seconds.
        """
        if self._phase is WatchPhase.WATCHING:
            self._silence.wait(now)

    def timer(self, now: float) -> list[WatchAction]:
        """Begin the request that is due, or leave a silent stream; nothing before ``deadline``.

        Args:
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        deadline = self.deadline
        if deadline is None or now < deadline:
            return []
        if self._phase is WatchPhase.BACKING_OFF:
            return self._request(now)
        self._silence.expired()
        return self._back_off(now, WatchReportKind.SILENT, "the stream was silent for too long")

    def stop(self) -> None:
        """End. All later inputs are without effect."""
        self._phase = WatchPhase.STOPPED
        self._snapshot = None

    # --- the stream

    def opened(self, number: int, now: float) -> list[WatchAction]:
        """Take the beginning of a stream.

        Args:
            number: of the request.
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        if self._counts(number, WatchPhase.CONNECTING):
            self._phase = WatchPhase.WATCHING
            self._silence.begin(now)
        return []

    def line(self, number: int, line: WatchLine, now: float) -> list[WatchAction]:
        """Take a line of a stream.

        Args:
            number: of the request.
            line: the line.
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        if not self._counts(number, *_STREAM) or self._sequence is None:
            return []
        self.opened(number, now)
        match line:
            case Resync():
                return self._resync(line, now, WatchReportKind.RESYNC)
            case Expired():
                return self._back_off(now, WatchReportKind.LOST, "the rights of the stream have expired")
            case ProgressLine():
                self._silence.progress(now)
        self._silence.heard(now)
        try:
            messages = self._sequence.event(line) if isinstance(line, EventLine) else self._sequence.progress(line)
        except Disorder as error:
            return self._resync(Resync(str(error)), now, WatchReportKind.DISORDER)
        except OtherEpoch as error:
            self._epochs.add(error.epoch)
            if len(self._epochs) > EPOCHS_MAX:
                return self._resync(Resync(str(error)), now, WatchReportKind.DISORDER)
            return self._back_off(now, WatchReportKind.EPOCH, str(error))
        except TooLarge as error:
            return self.refused(number, str(error))
        if messages:
            self._epochs.clear()
            self._backoff.reset()
        return [Deliver(message) for message in messages]

    def gone(self, number: int, resync: Resync, now: float) -> list[WatchAction]:
        """Take the answer 410 to the request for a stream.

        Args:
            number: of the request.
            resync: its content.
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        return self._resync(resync, now, WatchReportKind.RESYNC) if self._counts(number, *_STREAM) else []

    def ended(self, number: int, reason: str, now: float, asked: float | None = None) -> list[WatchAction]:
        """Take the end of the request under way without a result: no answer, a lost stream, a torn snapshot.

        Args:
            number: of the request.
            reason: text.
            now: monotonic time in seconds.
            asked: seconds that the hub asks to wait; None if it names none.

        Returns:
            Actions, in order.
        """
        if not self._counts(number, *_REQUEST):
            return []
        return self._back_off(now, WatchReportKind.LOST, reason, asked)

    def refused(self, number: int, reason: str) -> list[WatchAction]:
        """Take an answer that no repetition cures. It is the end.

        Args:
            number: of the request.
            reason: text.

        Returns:
            Actions, in order.
        """
        if not self._counts(number, *_REQUEST):
            return []
        self.stop()
        return [Fail(reason)]

    # --- the snapshot

    def versioned(self, number: int, cursor: str, now: float, begin: str | None = None) -> list[WatchAction]:
        """Take the first line of a snapshot.

        Args:
            number: of the request.
            cursor: place of its version.
            now: monotonic time in seconds.
            begin: earlier place, from which the watch goes on; changes up to the version are dropped. None for the
                place of the version.

        Returns:
            Actions, in order.
        """
        if not self._counts(number, WatchPhase.SNAPSHOT):
            return []
        try:
            self._snapshot = _Taken(Version.of(cursor), cursor, cursor if begin is None else begin)
        except BadAnswer as error:
            return self._back_off(now, WatchReportKind.LOST, str(error))
        return []

    def taken(self, number: int, event: ReceivedEvent, size: int, now: float) -> list[WatchAction]:
        """Take an event of a snapshot.

        Args:
            number: of the request.
            event: the event; one of another range, or a deletion, is dropped.
            size: its bytes.
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        if not self._counts(number, WatchPhase.SNAPSHOT) or self._snapshot is None:
            return []
        if event.key is None or event.key not in self._range or event.op == "delete":
            return []
        snapshot = self._snapshot
        try:
            version = Version.of(event.version_cursor)
        except BadAnswer as error:
            return self._back_off(now, WatchReportKind.LOST, str(error))
        if version.number > snapshot.version.number:
            reason = f"the snapshot of {snapshot.version} has an event of {version} and is void"
            return self._back_off(now, WatchReportKind.LOST, reason)
        snapshot.add(event, size)
        if snapshot.size > self._snapshot_max:
            text = f"the snapshot has more than {self._snapshot_max} bytes: watch smaller ranges, or raise snapshot_max"
            return self.refused(number, text)
        return []

    def complete(self, number: int, now: float) -> list[WatchAction]:
        """Take the last line of a snapshot: it is whole, and the watch goes on at exactly its version.

        Args:
            number: of the request.
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        if not self._counts(number, WatchPhase.SNAPSHOT):
            return []
        taken, self._snapshot = self._snapshot, None
        if taken is None:
            return self._back_off(now, WatchReportKind.LOST, "the snapshot has no version")
        self._place(taken.version, taken.begin)
        snapshot = Snapshot(self._range, taken.version, taken.cursor, tuple(taken.events), taken.size)
        return [Deliver(snapshot), *self._request(now)]

    # --- the application

    def placed(self, number: int, cursor: str | None, now: float) -> list[WatchAction]:
        """Take the application's answer to ``AskApplication``.

        Args:
            number: of the request.
            cursor: place of the snapshot that it has taken; None for a snapshot by the watcher.
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        if not self._counts(number, WatchPhase.HANDED):
            return []
        if cursor is None:
            return self._take(now)
        try:
            self._place(Version.of(cursor), cursor)
        except BadAnswer as error:
            return self.refused(number, f"on_resync returned {error.reason}")
        return self._request(now)

    # --- transitions

    def _counts(self, number: int, *phases: WatchPhase) -> bool:
        return number == self._number and self._phase in phases

    def _place(self, version: Version, cursor: str) -> None:
        self._sequence, self._due = WatchSequence(self._range, version, cursor), None
        self._epochs.clear()

    def _request(self, now: float) -> list[WatchAction]:
        """Begin the next request."""
        sequence = self._sequence
        if self._due is not None and self._handed and sequence is not None:
            self._phase = WatchPhase.HANDED
            self._number += 1
            return [AskApplication(self._number, self._due)]
        if sequence is None or self._due is not None:
            return self._take(now)
        sequence.reopen(self._epochs)
        self._phase = WatchPhase.CONNECTING
        self._number += 1
        self._silence.connect(now, CONNECT_LIMIT)
        return [OpenStream(self._number, sequence.cursor)]

    def _take(self, now: float) -> list[WatchAction]:
        self._phase, self._snapshot = WatchPhase.SNAPSHOT, None
        self._number += 1
        return [TakeSnapshot(self._number)]

    def _resync(self, resync: Resync, now: float, kind: WatchReportKind) -> list[WatchAction]:
        self._due = resync
        soon, self._resynced = now - self._resynced < RESYNC_GAP, now
        if soon:
            return self._back_off(now, kind, resync.reason, self._resync_backoff.pause(self._chance()))
        self._resync_backoff.reset()
        return [WatchReport(kind, resync.reason), *self._request(now)]

    def _back_off(
        self, now: float, kind: WatchReportKind, reason: str, asked: float | None = None
    ) -> list[WatchAction]:
        self._phase, self._snapshot = WatchPhase.BACKING_OFF, None
        self._number += 1
        pause = self._backoff.pause(self._chance(), asked)
        self._retry_at = now + pause
        return [WatchReport(kind, reason, pause)]
