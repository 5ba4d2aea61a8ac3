"""Subscriber file: cursor of a subscriber, and ids of its subscriptions, so that a restart goes on where it was."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from griphub.client.errors import BadAnswer
from griphub.client.subscription_places import Place

__all__ = ["PlaceFile", "SavedPlace", "load_place", "save_place"]

FILE_MAX: Final = 64 * 1024
"""Greatest number of bytes of a file that is read."""

SUBSCRIPTIONS_MAX: Final = 16
"""Ids of a file; the oldest is left out. Subscriptions that are not cancelled rest by themselves."""


@dataclass(frozen=True, slots=True)
class SavedPlace:
    """Content of a file.

    Attributes:
        topic: name of the topic.
        cursor: place up to which all events were processed.
        subscriptions: ids of subscriptions that were made and not cancelled.
    """

    topic: str
    cursor: str
    subscriptions: Sequence[str] = ()


def load_place(path: pathlib.Path, topic: str) -> SavedPlace | None:
    """Return the content of a file; None if there is no file.

    Args:
        path: of the file.
        topic: name of the topic that it must be about.

    Raises:
        OSError: it cannot be read.
        ValueError: it has another content, or is about another topic.
    """
    try:
        with path.open("rb") as file:
            content = file.read(FILE_MAX)
    except FileNotFoundError:
        return None
    cure = "name another file, or remove it to begin anew"
    try:
        document = json.loads(content)
        named, cursor, ids = document["topic"], str(Place.of(document["cursor"])), document["subscriptions"]
        if not isinstance(named, str) or not all(isinstance(id, str) for id in ids):
            raise TypeError
    except (ValueError, TypeError, LookupError, BadAnswer) as error:
        raise ValueError(f"{path} is not the file of a subscriber: {cure}") from error
    if named != topic:
        raise ValueError(f"{path} is about the topic {named!r}, not {topic!r}: {cure}")
    return SavedPlace(named, cursor, tuple(ids))


def save_place(path: pathlib.Path, place: SavedPlace) -> None:
    """Write a file as a whole: after a crash it has this content or the one before.

    Args:
        path: of the file.
        place: its content.

    Raises:
        OSError: it cannot be written.
    """
    ids = list(place.subscriptions)[-SUBSCRIPTIONS_MAX:]
    text = json.dumps({"topic": place.topic, "cursor": place.cursor, "subscriptions": ids}) + "\n"
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    temporary = pathlib.Path(name)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class PlaceFile:
    """File that is written in a thread, one content after the other: the last one stays, also over cancelled calls.

    Args:
        path: of the file.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._lock = asyncio.Lock()
        self._writing: asyncio.Future[None] | None = None

    async def save(self, place: Callable[[], SavedPlace]) -> None:
        """Write the file. A call that is cancelled meanwhile may write it.

        Args:
            place: returns its content when the ones before are written.

        Raises:
            OSError: it cannot be written.
        """
        async with self._lock:
            if self._writing is not None and not self._writing.done():
                # Of a cancelled call: its thread goes on.
                await asyncio.wait([self._writing])
            self._writing = asyncio.ensure_future(asyncio.to_thread(save_place, self._path, place()))
            await asyncio.shield(self._writing)
