"""Parser of event streams (server-sent events of the HTML standard), bounded. Sans-I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from griphub.client.errors import BadAnswer

__all__ = ["BLOCK_MAX", "Block", "EventStreamParser"]

BLOCK_MAX: Final = 32 * 1024 * 1024
"""Bytes of one block: an event of 10 MB fits, in base64 too."""

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Block:
    """Block of an event stream.

    Attributes:
        event: name; empty for a message.
        data: text; None for a block without, which only moves the id.
        id: last id of the stream; None if it has none yet.
    """

    event: str
    data: str | None
    id: str | None


class EventStreamParser:
    """Parser of one stream.

    Args:
        limit: bytes of one block.
    """

    def __init__(self, limit: int = BLOCK_MAX) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._searched = 0
        self._begun = False
        self._id: str | None = None
        self._moved = False
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[Block]:
        """Take bytes of the stream.

        Args:
            chunk: the next ones.

        Returns:
            The blocks that end in it.

        Raises:
            BadAnswer: a block is larger than the limit.
        """
        self._buffer += chunk
        blocks: list[Block] = []
        begin = 0
        while (match := _LINE_END.search(self._buffer, max(begin, self._searched))) is not None:
            if match[0] == b"\r" and match.end() == len(self._buffer):
                # Its line feed may follow in the next chunk.
                break
            block = self._take(bytes(self._buffer[begin : match.start()]))
            begin = match.end()
            if block is not None:
                blocks.append(block)
        del self._buffer[:begin]
        self._searched = max(0, len(self._buffer) - 1)
        if len(self._buffer) + self._size > self._limit:
            raise BadAnswer(f"a block of the event stream has more than {self._limit} bytes")
        return blocks

    def _take(self, line: bytes) -> Block | None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._dispatch()
        self._size += len(line)
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
            self._moved = True
        elif not name:
            # A comment, as a keep-alive is one, is no part of a block.
            self._size -= len(line)
        return None

    def _dispatch(self) -> Block | None:
        data, event, moved = self._data, self._event, self._moved
        self._data, self._event, self._moved, self._size = [], "", False, 0
        if not data and not moved:
            return None
        return Block(event, "\n".join(data) if data else None, self._id)
