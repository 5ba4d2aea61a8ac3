"""Maintenance of a store's file: check, vacuum, back up, restore, export and import."""

from __future__ import annotations

import base64
import os
import pathlib
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import orjson

from griphub.store.errors import StoreError, StoreProblem
from griphub.store.event import Draft, Event
from griphub.store.file_lock import FileLock
from griphub.store.interface import WHOLE
from griphub.store.plain_records import settings_json, settings_of
from griphub.store.publication import Publication, Refused
from griphub.store.schema import NEWEST, PUBSUB_SINCE, SUBSCRIPTIONS_SINCE, connect_reader
from griphub.store.sqlite_reader import SqliteReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.topic import Topic

__all__ = ["back_up", "check", "export", "import_events", "restore", "sizes", "vacuum"]

PAGE_EVENTS: Final = 1000
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Events and bytes of content in one page."""

_CHECKS: Final = (
    (
        "select name, count, bytes, last from topic t where (count, bytes) is not"
        " (select count(*), coalesce(sum(size), 0) from event e where e.t = t.t)",
        "topic {0}: it counts {1} events of {2} bytes, its events are others",
    ),
    (
        "select name, last from topic t"
        " where last is not coalesce((select max(id) from event e where e.t = t.t), last)",
        "topic {0}: its last event is not {1}",
    ),
    (
        "select id, (select v from meta where k = 'next_id') from event"
        " where id >= (select v from meta where k = 'next_id')",
        "event {0}: ids were issued up to {1} only",
    ),
    (
        "select a.id, b.id from event a join event b on b.id = (select min(id) from event where id > a.id)"
        " where b.ts <= a.ts",
        "events {0} and {1}: their times do not increase",
    ),
    (
        "select e.id, e.t from event e left join topic t on t.t = e.t left join gone g on g.t = e.t"
        " where t.t is null and g.t is null",
        "event {0}: there is no topic {1}",
    ),
    (
        "select e.id, e.prev from event e join topic t on t.t = e.t where e.id > t.floor and e.prev > t.floor"
        " and e.prev is not (select max(id) from event p where p.t = e.t and p.id < e.id)",
        "event {0}: its predecessor is not {1}",
    ),
)
"""Queries that find rows of a damaged store only, and sentences about these."""

_SUBSCRIPTION_CHECKS: Final = (
    (
        "select s.n, s.t from subscription s left join topic t on t.t = s.t where t.t is null",
        "subscription {0}: there is no topic {1}",
    ),
    (
        f"select n, position, {NEWEST} from subscription where position > {NEWEST}",
        "subscription {0}: its position is {1}, and ids were issued up to {2} only",
    ),
)
"""Those for stores from format 2 on."""

_PUBSUB_CHECKS: Final = (
    (
        "select s.n, s.t from pubsub s left join topic t on t.t = s.t where t.t is null and s.t > 0",
        "subscription {0} of the push API: there is no topic {1}",
    ),
    (
        f"select n, position, {NEWEST} from pubsub where position > {NEWEST}",
        "subscription {0} of the push API: its position is {1}, and ids were issued up to {2} only",
    ),
)
"""Those for stores from format 3 on."""

LOCK_WAIT: Final = 2.0
"""Seconds for the end of a writer whose hub was killed."""

PROBLEMS_MAX: Final = 20
"""Greatest number of reported problems of one kind."""


def check(path: pathlib.Path, on_step: Callable[[int, int], None] = lambda step, steps: None) -> list[str]:
    """Return the problems of a store; none if it is sound. It may be in use.

    Args:
        path: of the store.
        on_step: called before each step with its number, from 1 on, and with the number of steps.

    Raises:
        StoreProblem: it cannot be opened.
    """
    connection = connect_reader(path)
    try:
        connection.execute("begin")
        (version,) = connection.execute("pragma user_version").fetchone()
        checks = _CHECKS + (_SUBSCRIPTION_CHECKS if version >= SUBSCRIPTIONS_SINCE else ())
        checks += _PUBSUB_CHECKS if version >= PUBSUB_SINCE else ()
        on_step(1, 1 + len(checks))
        problems = [text for (text,) in connection.execute("pragma quick_check(20)") if text != "ok"]
        if not problems:
            for step, (query, sentence) in enumerate(checks, 2):
                on_step(step, 1 + len(checks))
                problems += [sentence.format(*row) for row in connection.execute(f"{query} limit {PROBLEMS_MAX}")]
    except sqlite3.DatabaseError as error:
        return [f"{path}: {error}"]
    finally:
        connection.close()
    return problems


def sizes(path: pathlib.Path) -> list[Topic]:
    """Return all topics of a store, the largest first.

    Args:
        path: of the store.

    Raises:
        StoreProblem: it cannot be opened.
    """
    reader = SqliteReader(path)
    try:
        found: list[Topic] = []
        while part := reader.topics(found[-1].name if found else ""):
            found += part
    finally:
        reader.close()
    return sorted(found, key=lambda topic: (-topic.bytes, topic.name))


def vacuum(path: pathlib.Path) -> tuple[int, int]:
    """Release the space of deleted events to the file system. The store must not be in use.

    Args:
        path: of the store.

    Returns:
        Bytes of the file before and after.

    Raises:
        StoreProblem: it cannot be opened, is in use, or the disk has no room for a copy.
    """
    before = path.stat().st_size if path.exists() else 0
    writer = SqliteWriter(path)
    try:
        writer.vacuum()
    finally:
        writer.close()
    return before, path.stat().st_size


def back_up(path: pathlib.Path, target: pathlib.Path) -> None:
    """Write a copy of a store, as it is at one moment. The store may be in use.

    Args:
        path: of the store.
        target: of the copy, which must not exist; it is there only when it is complete.

    Raises:
        StoreProblem: the store cannot be opened, or the copy cannot be written.
    """
    if target.exists():
        raise StoreProblem(f"{target} exists: name a file that does not")
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)
    connection = connect_reader(path)
    try:
        connection.execute("pragma query_only = off")
        connection.execute("vacuum into ?", (str(part),))
        _synchronise(part)
        os.rename(part, target)
        _synchronise(target.parent)
    except (sqlite3.Error, OSError) as error:
        part.unlink(missing_ok=True)
        raise StoreProblem(f"cannot write {target}: {error}") from error
    finally:
        connection.close()


def restore(backup: pathlib.Path, path: pathlib.Path, *, replace: bool = False) -> str:
    """Make a store of a backup, in a new epoch: cursors above the backup are gone.

    Args:
        backup: the copy, which is not changed.
        path: of the store, which must not be in use.
        replace: whether an existing store is moved away, to a name that ends in ``.replaced``.

    Returns:
        The new epoch.

    Raises:
        StoreProblem: the backup is no store, the store exists or is in use, or it cannot be written.
    """
    aside = path.with_name(path.name + ".replaced")
    if path.exists() and not replace:
        raise StoreProblem(f"{path} exists: move it away, or have it replaced with --force")
    if path.exists() and aside.exists():
        raise StoreProblem(f"{aside} exists, from an earlier restore: remove it first")
    connect_reader(backup).close()
    lock = FileLock(path, LOCK_WAIT)
    part = path.with_name(path.name + ".part")
    try:
        shutil.copyfile(backup, part)
        # Before it has its name: a store that is there is one of the new epoch.
        epoch = _begin_epoch(part)
        _synchronise(part)
        # The log of the old store would be taken for that of the new one.
        for end in ("-shm", "-wal", ""):
            if (old := path.with_name(path.name + end)).exists():
                os.rename(old, aside.with_name(aside.name + end))
        os.rename(part, path)
        _synchronise(path.parent)
    except OSError as error:
        raise StoreProblem(f"cannot write {path}: {error.strerror}") from error
    except StoreError as error:
        raise StoreProblem(f"cannot write {path}: {error}") from error
    finally:
        for rest in (part, *(part.with_name(part.name + end) for end in (".lock", "-wal", "-shm"))):
            rest.unlink(missing_ok=True)
        lock.release()
    return epoch


def _begin_epoch(path: pathlib.Path) -> str:
    writer = SqliteWriter(path)
    try:
        return writer.begin_epoch()
    finally:
        writer.close()


def export(path: pathlib.Path, names: Iterable[str] = ()) -> Iterator[bytes]:
    """Yield topics and their events as NDJSON, a line each; a topic's line precedes its events. It may be in use.

    Args:
        path: of the store.
        names: of the topics; none: all.

    Raises:
        StoreProblem: it cannot be opened, or has no topic of a name.
    """
    reader = SqliteReader(path)
    try:
        wanted = list(names) or sorted(topic.name for topic in sizes(path))
        for name in wanted:
            topic = reader.topic(name)
            if topic is None:
                raise StoreProblem(f"{path} has no topic {name!r}")
            settings = orjson.loads(settings_json(topic.settings))
            yield orjson.dumps({"topic": name, "owner": topic.owner, "settings": settings}) + b"\n"
            after, more = 0, True
            while more:
                page = reader.page(topic.number, after, WHOLE, PAGE_EVENTS, PAGE_BYTES)
                if page is None:
                    raise StoreProblem(f"topic {name!r} was deleted during the export")
                for event in page.events:
                    yield orjson.dumps(_line(event)) + b"\n"
                after, more = page.last, page.more
    finally:
        reader.close()


def import_events(path: pathlib.Path, lines: Iterable[bytes]) -> int:
    """Publish the events of an export; versions stay together, ids and times are new. The store must not be in use.

    Args:
        path: of the store, made if there is none.
        lines: NDJSON.

    Returns:
        Number of events.

    Raises:
        StoreProblem: a line cannot be used; those before it are stored.
    """
    writer = SqliteWriter(path)
    count, topic, version = 0, "", ""
    drafts: list[Draft] = []

    def publish() -> None:
        nonlocal count
        if drafts:
            [outcome] = writer.append([Publication(topic, tuple(drafts))])
            if isinstance(outcome, Refused):
                raise StoreProblem(f"topic {topic!r}: not stored, {outcome.kind}")
            count += len(drafts)
            drafts.clear()

    try:
        for number, line in enumerate(lines, 1):
            try:
                entry = orjson.loads(line)
                if not isinstance(entry, dict):
                    raise TypeError("a line is an object")
                if "topic" in entry:
                    publish()
                    topic, version = entry["topic"], ""
                    settings = settings_of(orjson.dumps(entry["settings"]).decode())
                    made = writer.put_topic(topic, settings, entry.get("owner", ""))
                    if made is not None and made[0].settings.store != settings.store:
                        raise ValueError(f"the topic {topic!r} is there already, with another store=")
                    continue
                draft = _draft(entry)
                if entry["version"] != version:
                    publish()
                    version = entry["version"]
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise StoreProblem(f"line {number} is no line of an export: {error!r}") from error
            drafts.append(draft)
        publish()
    finally:
        writer.close()
    return count


def _line(event: Event) -> dict[str, Any]:
    # Ids are texts: JavaScript and jq round numbers above 2**53.
    line: dict[str, Any] = {
        "id": str(event.id),
        "version": str(event.version),
        "time": event.time,
        "content_type": event.content_type,
    }
    if event.key is not None:
        line["key"] = event.key
    if event.op == "delete":
        line["op"] = "delete"
    if event.attributes:
        line["attributes"] = dict(event.attributes)
    try:
        line["data"] = event.data.decode()
    except UnicodeDecodeError:
        line["data_base64"] = base64.b64encode(event.data).decode()
    return line


def _draft(entry: dict[str, Any]) -> Draft:
    """Return the event of a line.

    Raises:
        KeyError: a field is missing.
        TypeError: a field has another type.
        ValueError: a field has no such value.
    """
    coded = entry.get("data_base64")
    text = entry["data"] if coded is None else coded
    key, op, attributes = entry.get("key"), entry.get("op", "put"), entry.get("attributes", {})
    for value in (text, entry["content_type"], entry["version"], "" if key is None else key, *attributes.values()):
        if type(value) is not str:
            raise TypeError(f"{value!r} is no text")
    if op not in ("put", "delete"):
        raise ValueError(f"op must be put or delete, not {op!r}")
    data = text.encode() if coded is None else base64.b64decode(coded, validate=True)
    return Draft(data, entry["content_type"], key, op, attributes)


def _synchronise(path: pathlib.Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
