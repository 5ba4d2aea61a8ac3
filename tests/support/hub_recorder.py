"""Recorder of a history: answers and texts of a hub, as records of tests.support.hub_history."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from griphub.store.interface import WHOLE as WHOLE_TOPIC
from griphub.store.sqlite_reader import SqliteReader
from tests.support.hub_history import (
    Answer,
    Event,
    Got,
    History,
    Keys,
    Opened,
    Paged,
    Progressed,
    Request,
    Snapshot,
    Told,
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

    def made(self, answer: Mapping[str, Any]) -> None:
        """Record the first or a further topic of the name.

        Args:
            answer: to the request that made it.
        """
        if not self._made:
            self.history.births.clear()
        self._made = True
        self.history.births.append(int(answer["birth"]))

    def requested(self, name: str, contents: Sequence[str], keys: Sequence[str | None]) -> None:
        """Record a publication before its first attempt.

        Args:
            name: its ``Idempotency-Key``.
            contents: of its events.
            keys: of its events.
        """
        self.history.requests[name] = Request(name, tuple(contents), tuple(keys), time.monotonic())

    def answered(self, name: str, answer: Mapping[str, Any]) -> None:
        """Record the answer to a publication.

        Args:
            name: its ``Idempotency-Key``.
            answer: body of the answer 201.
        """
        ids = tuple(int(event["id"]) for event in answer["events"])
        self.history.answers.append(Answer(time.monotonic(), name, ids, int(answer["version"])))

    def reader(self, name: str, keys: Keys, *, watches: bool = False) -> None:
        """Record a reader of a range.

        Args:
            name: of the reader.
            keys: its range.
            watches: whether it gets progress.
        """
        self.history.readers[name] = keys
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
        ids = (int(value["id"]), int(value["prev_id"]), int(value["version"]))
        self.history.steps.append(Got(time.monotonic(), reader, *ids, value["data"], value.get("key")))

    def told(self, reader: str, kind: Literal["truncated", "resync", "gone"], value: Mapping[str, Any]) -> None:
        """Record a report of a loss.

        Args:
            reader: name of the reader.
            kind: of the report.
            value: object of the report, or the problem.
        """
        floor = value.get("floor")
        self.history.steps.append(Told(time.monotonic(), reader, kind, None if floor is None else int(floor)))

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

    def finish(self, path: pathlib.Path) -> History:
        """Read the events of the store, and return the complete history.

        Args:
            path: of the store, which may be in use.
        """
        history, reader = self.history, SqliteReader(path)
        try:
            history.newest = reader.state().newest
            topic = reader.topic(self.topic)
            if topic is None:
                return history
            history.floor = topic.floor
            after, more = 0, True
            while more:
                page = reader.page(topic.number, after, WHOLE_TOPIC, PAGE, PAGE_BYTES)
                assert page is not None
                for event in page.events:
                    # Below the floor, compaction leaves the last event of each key.
                    content = json.loads(event.data)
                    history.store.append(Event(event.id, event.prev_id, event.version, event.time, content, event.key))
                after, more = page.last, page.more
        finally:
            reader.close()
        return history
