"""Sequence of a watch: lines of streams in, whole transactions and progress out, each once and in order. Sans-I/O.

Events of one version are kept until they are whole: until the last event of the transaction, a later event, or
progress. A stream that ends before leaves nothing of them, and the next one begins at the last whole version.
Repetitions are dropped. An order that no hub gives is no repetition: it may hide a loss, so it is an error and ends in
a snapshot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from griphub.client.key_range import KeyRange
from griphub.client.received import ReceivedEvent
from griphub.client.watch_lines import EventLine, ProgressLine
from griphub.client.watch_messages import Change, Progress, Version

__all__ = ["Disorder", "OtherEpoch", "TooLarge", "WatchSequence"]

EVENTS_MAX: Final = 10_000
"""Number of events of one version that are kept until they are whole, and are given in one turn. With more of them the
watch fails."""

BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of the events of one version that are kept until they are whole. With more of them the watch fails."""

REMEMBERED: Final = 1_000
"""Versions by which a repetition is known from an event that is late. Those up to the oldest one count as repeated."""

PARTS_MAX: Final = 256
"""Number of progresses of parts of the range that are remembered, or wait for a version to be
whole. The oldest is forgotten: its range has the next one."""


class Disorder(Exception):
    """Event or progress in an order that no hub gives: something may be lost."""


class TooLarge(Exception):
    """Transaction with more events or bytes in the range than a watcher keeps."""


class OtherEpoch(Exception):
    """Line of an epoch that the stream was not opened with.

    Args:
        epoch: of the line.
    """

    def __init__(self, epoch: str) -> None:
        super().__init__(f"the epoch is {epoch} from here on")
        self.epoch = epoch


class _Group:
    """Events of one version that is not whole yet.

    Args:
        version: their version.
    """

    def __init__(self, version: Version) -> None:
        self.version = version
        self.events: dict[tuple[str, str | None], ReceivedEvent] = {}
        self.size = 0
        self.behind: list[Progress] = []
        """Progress of parts of the range, which is given behind the events."""

    def add(self, line: EventLine) -> None:
        """Add an event.

        Args:
            line: the event.

        Raises:
            TooLarge: there are too many.
        """
        self.events[_name(line.event)] = line.event
        self.size += line.size
        if len(self.events) > EVENTS_MAX or self.size > BYTES_MAX:
            text = f"version {self.version} has more than {EVENTS_MAX} events or {BYTES_MAX} bytes in the range"
            raise TooLarge(f"{text}: watch smaller ranges")

    def follow(self, progress: Progress) -> None:
        """Keep ``progress`` of a part, to be given behind the events."""
        self.behind = [*self.behind[1 - PARTS_MAX :], progress]

    def change(self) -> Change:
        """Return the whole transaction."""
        events = tuple(self.events.values())
        return Change(self.version, events[-1].version_cursor, events, self.size)


def _name(event: ReceivedEvent) -> tuple[str, str | None]:
    """Return the name of an event within its version."""
    return event.id or event.cursor, event.key


class WatchSequence:
    """Order of a watch of one range, over any number of streams.

    Args:
        range: the watched range.
        version: version up to which all changes are known.
        cursor: its place.
    """

    def __init__(self, range: KeyRange, version: Version, cursor: str) -> None:
        self._range = range
        self._version = version
        self._cursor = cursor
        self._epochs = frozenset({version.epoch})
        """Epochs that a stream may go on with: its beginning was judged by a hub that had begun them."""
        self._floor = version.number
        """Number up to which an event is a repetition."""
        self._given: OrderedDict[int, None] = OrderedDict()
        """Numbers of versions that were given."""
        self._last: frozenset[tuple[str, str | None]] = frozenset()
        """Names of the events that were given last."""
        self._group: _Group | None = None
        self._ahead: list[Progress] = []
        """Progress of parts of the range above the version."""
        self.repeated = 0
        """Events that were dropped as repetitions."""
        self.foreign = 0
        """Events and progress of other keys that were dropped."""

    @property
    def version(self) -> Version:
        """Version up to which all changes were given."""
        return self._version

    @property
    def cursor(self) -> str:
        """Place of the version, from which a stream is to be opened."""
        return self._cursor

    def reopen(self, epochs: Iterable[str] = ()) -> None:
        """Begin with a new stream: it repeats all events of a version that was not whole.

        Args:
            epochs: other ones that were seen behind the place. The new stream was opened after that, so the hub has
                found the place to be one of its own history.
        """
        self._group = None
        self._ahead.clear()
        self._epochs = frozenset({*epochs, self._version.epoch})

    def event(self, line: EventLine) -> list[Change | Progress]:
        """Take an event.

        Args:
            line: the event.

        Returns:
            Messages, in order.

        Raises:
            Disorder: something may be lost.
            OtherEpoch: a new stream has to find out if the place is still one of the hub's history.
            TooLarge: the transaction is too large.
        """
        version, key = line.version, line.event.key
        if not self._range.whole and (key is None or key not in self._range):
            self.foreign += 1
            return []
        self._check_epoch(version)
        messages: list[Change | Progress] = []
        group = self._group
        reached = self._version if group is None else group.version
        if version.number < reached.number or (group is None and version == reached):
            self._repeat(line)
            return []
        if group is not None and group.version == version and _name(line.event) in group.events:
            self.repeated += 1
            return []
        if group is not None and group.version != version:
            messages = self._close(group)
        self._check_ahead(version, key)
        group = self._group
        if group is None:
            group = self._group = _Group(version)
        group.add(line)
        return messages + self._close(group) if line.last else messages

    def progress(self, line: ProgressLine) -> list[Change | Progress]:
        """Take progress.

        Args:
            line: the progress.

        Returns:
            Messages, in order.

        Raises:
            OtherEpoch: a new stream has to find out if the place is still one of the hub's history.
            Disorder: the number of another epoch is not above all earlier ones.
        """
        part = line.range.overlap(self._range)
        if part is None:
            self.foreign += 1
            return []
        self._check_epoch(line.version)
        if line.version.number < self._version.number:
            # Of a part, or repeated: nothing is known by it that was not.
            return []
        whole = part == self._range
        progress = Progress(part, line.version, line.cursor, whole)
        group = self._group
        if not whole:
            self._ahead = [*self._ahead[1 - PARTS_MAX :], progress]
        if group is not None and line.version.number >= group.version.number:
            if not whole:
                group.follow(progress)
                return []
            messages = self._close(group)
        else:
            messages = []
        if whole:
            self._move(line.version, line.cursor)
        return [*messages, progress]

    def _check_epoch(self, version: Version) -> None:
        reached = self._version if self._group is None else self._group.version
        if version.epoch == reached.epoch or not reached.epoch:
            return
        if version.epoch == self._version.epoch and version.number <= self._version.number:
            # Of before the new epoch: a repetition, or an error of its own.
            return
        if version.epoch not in self._epochs:
            raise OtherEpoch(version.epoch)
        if version.number <= reached.number:
            raise Disorder(f"{version} follows {reached}, of another epoch")

    def _check_ahead(self, version: Version, key: str | None) -> None:
        for progress in self._ahead:
            if version.number <= progress.version.number and key is not None and key in progress.range:
                raise Disorder(f"an event of {version} follows the progress {progress.version} of {progress.range}")

    def _repeat(self, line: EventLine) -> None:
        """Drop a repetition.

        Raises:
            Disorder: it is none.
        """
        number = line.version.number
        if number <= self._floor:
            known = True
        elif number == self._version.number and self._last:
            known = _name(line.event) in self._last
        else:
            known = number in self._given
        if not known:
            raise Disorder(f"an event of {line.version} follows {self._version}")
        self.repeated += 1

    def _close(self, group: _Group) -> list[Change | Progress]:
        """Give the events of a version, which are whole."""
        self._group = None
        change = group.change()
        self._given[group.version.number] = None
        if len(self._given) > REMEMBERED:
            self._floor = max(self._floor, self._given.popitem(last=False)[0])
        self._move(group.version, change.cursor)
        self._last = frozenset(group.events)
        return [change, *group.behind]

    def _move(self, version: Version, cursor: str) -> None:
        if version != self._version:
            self._last = frozenset()
        self._version, self._cursor = version, cursor
        if self._ahead:
            self._ahead = [each for each in self._ahead if each.version.number > version.number]
