"""Recorder of a history: answers and texts of a hub, as records of tests.support.hub_history."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from griphub.client.cached_value import CachedValue
from griphub.client.stitched import View
from griphub.store.interface import WHOLE as WHOLE_TOPIC
from griphub.store.sqlite_reader import SqliteReader
from griphub.store.topic import Topic
from tests.support.hub_records import (
    Answer,
    Event,
    Got,
    History,
    Keys,
    Opened,
    Paged,
    Progressed,
    Request,
    Restored,
    Snapshot,
    Told,
    Viewed,
)

__all__ = ["Recorder", "blocks_of", "lines_of"]

PAGE = 1000
PAGE_BYTES = 2**24


def blocks_of(text: str) -> list[dict[str, Any]]:
    """Return the objects of complete blocks of an event stream.

    Args:
        text: blocks, each with the blank line at its end.
    """
    found = []
    for block in text.split("\n\n"):
        data = [line[6:] for line in block.split("\n") if line.startswith("data: ")]
        if data:
            found.append(json.loads("\n".join(data)))
    return found


def lines_of(text: str) -> list[dict[str, Any]]:
    """Return the objects of complete lines of NDJSON.

    Args:
        text: the lines.
    """
    return [json.loads(line) for line in text.split("\n") if line]


def _content(data: Any) -> str:
    """Return the content of an event without the blanks that have made it larger."""
    return str(data).rstrip()


def _events(reader: SqliteReader, topic: Topic, after: int) -> Iterator[Event]:
    """Yield the events of a topic behind an id."""
    more = True
    while more:
        page = reader.page(topic.number, after, WHOLE_TOPIC, PAGE, PAGE_BYTES)
        assert page is not None
        for event in page.events:
            content = _content(json.loads(event.data))
            yield Event(event.id, event.prev_id, event.version, event.time, content, event.key, event.op)
        after, more = page.last, page.more


def _id(cursor: str) -> int:
    """Return the id that a cursor names; of progress its version."""
    return int(cursor.split(".")[1]) if "." in cursor else int(cursor)


class Recorder:
    """Writes the history of one topic.

    Args:
        topic: name of the topic.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.history = History()
        self._made = False
        self._known: dict[int, tuple[int, int, str, str | None, str]] = {}
        """Fields of each event: very many readers receive the same ones."""

    def made(self, answer: Mapping[str, Any]) -> None:
        """Record the first or a further topic of the name.

        Args:
            answer: to the request that made it.
        """
        if not self._made:
            self.history.births.clear()
        self._made = True
        self.history.births.append(int(answer["birth"]))

    def requested(
        self, name: str, contents: Sequence[str], keys: Sequence[str | None], deletions: Iterable[str] = ()
    ) -> None:
        """Record a publication before its first attempt.

        Args:
            name: its ``Idempotency-Key``.
            contents: of its events.
            keys: of its events.
            deletions: contents of those that delete their key.
        """
        request = Request(name, tuple(contents), tuple(keys), time.monotonic(), frozenset(deletions))
        self.history.requests[name] = request

    def answered(self, name: str, answer: Mapping[str, Any]) -> None:
        """Record the answer to a publication.

        Args:
            name: its ``Idempotency-Key``.
            answer: body of the answer 201.
        """
        ids = tuple(int(event["id"]) for event in answer["events"])
        self.history.answers.append(Answer(time.monotonic(), name, ids, int(answer["version"])))

    def reader(self, name: str, keys: Keys, *, watches: bool = False, polls: bool = False) -> None:
        """Record a reader of a range.

        Args:
            name: of the reader.
            keys: its range.
            watches: whether it gets progress.
            polls: whether its requests are held while there is nothing for it.
        """
        self.history.readers[name] = keys
        if polls:
            self.history.polls.add(name)
        if watches:
            self.history.watchers.add(name)

    def opened(self, reader: str, after: str, right: Literal["valid", "revoked", "forged"] = "valid") -> None:
        """Record a request that a reader begins itself.

        Args:
            reader: name of the reader.
            after: its cursor; ``0`` for the beginning.
            right: whether it may read.
        """
        self.history.steps.append(Opened(time.monotonic(), reader, _id(after), right))

    def take(self, reader: str, objects: Iterable[Mapping[str, Any]]) -> None:
        """Record events and reports that a reader received.

        Args:
            reader: name of the reader.
            objects: of its stream.
        """
        for value in objects:
            match value["type"]:
                case "event":
                    self.event(reader, value)
                case "truncated":
                    self.told(reader, "truncated", value)
                case "resync":
                    self.told(reader, "resync", value)
                case "progress":
                    self.progress(reader, value)

    def event(self, reader: str, value: Mapping[str, Any]) -> None:
        """Record an event that a reader received.

        Args:
            reader: name of the reader.
            value: object of the event.
        """
        fields = (int(value["id"]), int(value["version"]), _content(value["data"]))
        event = (*fields, value.get("key"), value.get("op", "put"))
        # Equal fields are one object; others are kept as they were received.
        known = self._known.setdefault(event[0], event)
        id, version, content, key, op = known if known == event else event
        prev_id = int(value["prev_id"])
        prev_id = self._known[prev_id][0] if prev_id in self._known else prev_id
        self.history.steps.append(Got(time.monotonic(), reader, id, prev_id, version, content, key, op))

    def told(self, reader: str, kind: Literal["truncated", "resync", "gone"], value: Mapping[str, Any]) -> None:
        """Record a report of a loss.

        Args:
            reader: name of the reader.
            kind: of the report.
            value: object of the report, or the problem.
        """
        floor, reason = value.get("floor"), value.get("reason") or value.get("detail") or ""
        self.history.steps.append(Told(time.monotonic(), reader, kind, None if floor is None else int(floor), reason))

    def progress(self, reader: str, value: Mapping[str, Any]) -> None:
        """Record progress that a watcher received.

        Args:
            reader: name of the watcher.
            value: object of the progress.
        """
        keys = self.history.readers[reader]
        assert (value["low"], value["high"]) == (keys.low, keys.high), value
        assert value["cursor"].split(".")[1] == value["version"], value
        step = Progressed(time.monotonic(), reader, int(value["version"]), value["cursor"])
        self.history.steps.append(step)

    def snapshot(self, reader: str, lines: Sequence[Mapping[str, Any]]) -> None:
        """Record a complete snapshot that a watcher has read.

        Args:
            reader: name of the watcher.
            lines: objects of its lines.
        """
        ids = {line["key"]: int(line["id"]) for line in lines[1:-1]}
        self.history.steps.append(Snapshot(time.monotonic(), reader, int(lines[-1]["complete"]), ids))

    def viewed(self, reader: str, view: View[CachedValue]) -> None:
        """Record values that caches gave together.

        Args:
            reader: name of the caches.
            view: the values.
        """
        ids = {key: _id(value.cursor) for key, value in view.items()}
        ranges = tuple(Keys(each.low or None, each.high) for each in view.ranges)
        version = view.version
        self.history.steps.append(Viewed(time.monotonic(), reader, version.epoch, version.number, ranges, ids))

    def page(self, reader: str, value: Mapping[str, Any]) -> None:
        """Record a page of events.

        Args:
            reader: name of the reader.
            value: object of the page.
        """
        if "truncated" in value:
            self.told(reader, "truncated", value["truncated"])
        for event in value["events"]:
            self.event(reader, event)
        self.history.steps.append(Paged(time.monotonic(), reader, int(value["cursor"].rpartition(".")[2])))

    def restored(self, lost: pathlib.Path, path: pathlib.Path, births: int) -> None:
        """Record that the store was restored from a backup.

        Args:
            lost: store before the restore.
            path: of the store.
            births: number of topics of the name that were known when the backup was made.
        """
        history, reader = self.history, SqliteReader(path)
        try:
            before, now = reader.state().intervals[-2:]
        finally:
            reader.close()
        assert before.last is not None
        floor, reader = 0, SqliteReader(lost)
        try:
            topic = reader.topic(self.topic)
            assert topic is not None
            floor, events = topic.floor, tuple(_events(reader, topic, before.last))
        finally:
            reader.close()
        history.restores.append(Restored(before.last, now.first, tuple(history.births), events, floor))
        del history.births[births:]

    def finish(self, path: pathlib.Path) -> History:
        """Read the events of the store, and return the complete history.

        Args:
            path: of the store, which may be in use.
        """
        history, reader = self.history, SqliteReader(path)
        try:
            state = reader.state()
            history.newest, history.epochs = state.newest, [interval.epoch for interval in state.intervals]
            topic = reader.topic(self.topic)
            if topic is not None:
                history.floor, history.compact = topic.floor, topic.settings.retention.compact
                # Below the floor, compaction leaves the last event of each key.
                history.store += _events(reader, topic, 0)
        finally:
            reader.close()
        return history
