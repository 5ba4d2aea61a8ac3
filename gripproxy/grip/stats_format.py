"""Statistics as the stats socket sends them: events, their framing, and when they are repeated (docs/grip.md §9).

Sans-I/O, used by both ends of the pipe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

import orjson

from gripproxy.grip import tnetstring
from gripproxy.grip.item import Item

__all__ = [
    "ANSWERS",
    "FAILURES",
    "FIGURES",
    "LATENCIES",
    "RECOVERY",
    "REPEAT_FROM",
    "REPEAT_UNTIL",
    "Rounds",
    "blocks",
    "contents",
    "encode",
]

FIGURES: Final = (
    "requests-received",
    "activity",
    "minutes",
    "sent",
    "http-response-sent",
    "blocks-sent",
    "client-header-bytes-received",
    "client-header-bytes-sent",
    "client-content-bytes-received",
    "client-content-bytes-sent",
    "client-messages-received",
    "client-messages-sent",
    "server-header-bytes-received",
    "server-header-bytes-sent",
    "server-content-bytes-received",
    "server-content-bytes-sent",
    "server-messages-received",
    "server-messages-sent",
)
"""Counters of a worker per route id, in the order of its reports to the handler."""

RECOVERY: Final = ("gaps", "recoveries", "requests", "slow-clients")
"""Counters of a worker per route id and mode about losses of clients, in the order of its reports to the handler: times
a session noticed that it missed something; times it had its backend asked for that, or because it was quiet; requests
to backends for held clients; clients cut off because they did not read."""

FAILURES: Final = (
    "refused",
    "unreachable",
    "unresolved",
    "timed-out",
    "tls",
    "blocked",
    "no-descriptors",
    "late",
    "reset",
    "bad-answer",
    "too-large",
)
"""Ways in which a backend fails: it does not accept connections; there is no way to its address; its name has none; no
connection in time; the TLS handshake failed; the address is forbidden to untrusted targets; this process has no file
descriptors left; the response, or its next part, did not come in time; the connection ended before its end; it breaks
HTTP, GRIP or the WebSocket protocol; it has more bytes than are kept."""

ANSWERS: Final = ("backend", "held", "client", "limit", "no-route", "unconfirmed", "filter", *FAILURES)
"""Reasons of responses to clients: the backend's own; the result of its instruct; the client's fault; a limit of
the proxy; no route; the handler did not confirm a hold; a filter failed; the backend failed."""

LATENCIES: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Bounds in seconds of the histogram of times to a backend's response."""

REPEAT_FROM: Final = 0.5
REPEAT_UNTIL: Final = 0.7
"""A present entry is reported again when this part of its ttl has passed: from the first number on a few at a time, at
the second all together. Three quarters are promised."""


def encode(kind: str, fields: Mapping[str, Any], json: bool) -> bytes:
    """Return one event as a message: its type, a space, ``T`` and a tnetstring or ``J`` and JSON.

    Args:
        kind: Type of the event.
        fields: Bytes, ints and booleans by name; bytes that are not UTF-8 have U+FFFD in JSON.
        json: Whether to encode as JSON instead of a tnetstring.
    """
    if json:
        values = {
            name: value.decode("utf-8", "replace") if type(value) is bytes else value for name, value in fields.items()
        }
        return b"%b J%b" % (kind.encode(), orjson.dumps(values))
    return b"%b T%b" % (kind.encode(), tnetstring.dumps({name.encode(): value for name, value in fields.items()}))


def contents(item: Item) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Return the content of ``item`` for responses, streams and WebSockets, None without such a format.

    The order is that of the modes in gripproxy.pipe. A close, a hint or a refresh has empty content.

    Args:
        item: The item.
    """
    response, stream, message = item.response, item.stream, item.message
    return (
        None if response is None else response.body or b"",
        None if stream is None else stream.content,
        None if message is None else message.content or b"",
    )


def blocks(item: Item, content: bytes, block_size: int) -> int:
    """Return the number of blocks that an item counts (docs/grip.md §9).

    Args:
        item: The item; its ``size`` goes before that of the content.
        content: Content of one format.
        block_size: Bytes of one block.
    """
    size = len(content) if item.size is None else item.size
    return -(-size // block_size)


K = TypeVar("K")


class Rounds(Generic[K]):
    """Schedule of repeated reports of present entries, without a timer for each and without waves.

    Keys are in the order in which they were reported last. ``ttl`` in seconds; 0: nothing is repeated.
    """

    __slots__ = ("_said", "_ttl")

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._said: dict[K, float] = {}

    def __len__(self) -> int:
        return len(self._said)

    def __contains__(self, key: K) -> bool:
        return key in self._said

    def __iter__(self) -> Iterator[K]:
        return iter(self._said)

    def said(self, key: K, now: float) -> None:
        """``key`` is present, and was reported just now (seconds)."""
        said = self._said
        said.pop(key, None)
        said[key] = now

    def gone(self, key: K) -> bool:
        """Return whether ``key`` was present; it is no more."""
        return self._said.pop(key, None) is not None

    def clear(self) -> None:
        """Forget all entries."""
        self._said.clear()

    def due(self, now: float, step: float) -> list[K]:
        """Return the keys to report again now, and count them as reported. To be called every ``step`` seconds."""
        ttl, said = self._ttl, self._said
        if not ttl:
            return []
        window = (REPEAT_UNTIL - REPEAT_FROM) * ttl
        few = len(said) * step // window + 1
        keys: list[K] = []
        for key, when in said.items():
            age = now - when
            if age < REPEAT_FROM * ttl or (len(keys) >= few and age < REPEAT_UNTIL * ttl):
                break
            keys.append(key)
        for key in keys:
            self.said(key, now)
        return keys
