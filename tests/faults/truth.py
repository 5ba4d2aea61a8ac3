"""What the channels of a run contain, in order: what every reliable client must end up with.

A channel is an append-only file with one line per item, written before the item is published and read by the backend.
Ids come in two kinds, by channel: counters, and hashes that say nothing of their order.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
from typing import Final

__all__ = ["ChannelLog", "content", "event", "item_id", "parse"]

PADS: Final = {"heavy": 20_000, "wide": 2_000}
"""Bytes of padding in the items of channels whose name ends so."""


def item_id(channel: str, number: int) -> str:
    """Return the id of a channel's item; number 0 is the state before the first one."""
    if channel.partition("-")[2].partition("-")[0].isdigit() and int(channel.split("-")[1]) % 2:
        return hashlib.sha256(f"{channel} {number}".encode()).hexdigest()[:12]
    return str(number)


def content(channel: str, number: int) -> str:
    """Return an item's content: one line that says which one it is."""
    pad = PADS.get(channel.rpartition("-")[2], 0)
    return f"{channel} {number} {item_id(channel, number)}{' ' + 'x' * pad if pad else ''}"


def event(channel: str, number: int) -> str:
    """Return an item as an event of a text/event-stream."""
    return f"id: {item_id(channel, number)}\ndata: {content(channel, number)}\n\n"


def parse(line: str) -> tuple[str, int, str] | None:
    """Return (channel, number, id) of an item's content; None if it is none."""
    parts = line.split(" ")
    if len(parts) < 3 or not parts[1].isdigit():
        return None
    return parts[0], int(parts[1]), parts[2]


class ChannelLog:
    """One channel's log, for its one writer or any reader. ``length`` items are known; ``refresh`` looks for more."""

    def __init__(self, folder: pathlib.Path, channel: str) -> None:
        self.channel = channel
        self.length = 0
        self._numbers = {item_id(channel, 0): 0}
        self._path = folder / f"{channel}.log"
        self._offset = 0
        self._file: int | None = None

    def refresh(self) -> int:
        """Take in what was appended since; return the number of items. A line without its end is not there yet."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return 0
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.split():
            self.length += 1
            assert line == item_id(self.channel, self.length).encode(), f"{self._path} has been damaged at {line!r}"
            self._numbers[line.decode()] = self.length
        return self.length

    def append(self) -> int:
        """Write the next item down and return its number. There is one writer, which has refreshed before."""
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        number = self.length + 1
        line = item_id(self.channel, number).encode()
        os.write(self._file, line + b"\n")
        self.length = number
        self._offset += len(line) + 1
        self._numbers[line.decode()] = number
        return number

    def number(self, identifier: str) -> int | None:
        """Return the number of the item with this id; None if there is none."""
        return self._numbers.get(identifier)

    def close(self) -> None:
        """Write no more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
