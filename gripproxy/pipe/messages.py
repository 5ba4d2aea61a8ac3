"""Messages of the pipe between a worker and the handler: tuples that begin with their kind.

Worker to handler::

    (HELLO, version, epoch, worker, [(channel, responses, streams, sockets, last_id | None), ...])
    (SUBSCRIBE, channel, number)        answered by SUBSCRIBED with the same number
    (UNSUBSCRIBE, channel, linger)      linger: the last session was a response hold (docs/grip.md §6.8)
    (COUNT, channel, mode, n)           sessions of the channel in this worker, at most every 100 ms
    (CONFLICT, channel, id, prev_id)    a backend that was asked for the item ``id`` insists on ``prev_id``
    (STATS, {...}, {...})               counter deltas, and values that can also fall, by name; among the deltas
                                        ``recovery`` and ``responses`` are lists: see WorkerStats.by_route;
                                        ``log`` is one of (process, level, event, text): warnings and errors
    (ANSWER, request, value)            to a COMMAND
    (RETIRING, process)                 the worker takes no new clients; another of its number serves
    (FIGURES, route, now, peak, ...)    counts of a route id since the last: gripproxy.grip.stats_format.FIGURES
    (CONNECTIONS, [...])                while watched: (id, route, socket, peer, tls) of those present, (id, route) gone

Handler to worker::

    (SUBSCRIBED, channel, number, recent | None)
    (ITEM, packed_item, now)            see gripproxy.grip.item_pack.pack_item; seconds of the monotonic clock
    (COMMAND, request, name, args)      update, recover, refresh, conncheck
    (WATCH, connections, counts)        whether to report each connection (now all present), and counts immediately
    (LOST,)                             items were dropped for this worker since the message before
"""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "ANSWER",
    "COMMAND",
    "CONFLICT",
    "CONNECTIONS",
    "COUNT",
    "FIGURES",
    "HELLO",
    "ITEM",
    "LOAD_BYTES",
    "LOST",
    "RESPONSE",
    "RETIRING",
    "SOCKET",
    "STATS",
    "STREAM",
    "SUBSCRIBE",
    "SUBSCRIBED",
    "UNSUBSCRIBE",
    "VERSION",
    "WATCH",
    "Message",
    "load_of",
]


VERSION: Final = 2

HELLO: Final = 1
SUBSCRIBE: Final = 2
UNSUBSCRIBE: Final = 3
COUNT: Final = 4
CONFLICT: Final = 5
STATS: Final = 6
ANSWER: Final = 7
RETIRING: Final = 8
FIGURES: Final = 9
CONNECTIONS: Final = 10
SUBSCRIBED: Final = 16
ITEM: Final = 17
COMMAND: Final = 18
LOST: Final = 19
WATCH: Final = 20

RESPONSE: Final = 0
"""Mode of a COUNT: held responses (long-polls)."""
STREAM: Final = 1
"""Mode of a COUNT: held streams."""
SOCKET: Final = 2
"""Mode of a COUNT: WebSockets."""


LOAD_BYTES: Final = 640
"""Bytes of content for which a waiting message counts as one more."""


Message = tuple[Any, ...]


def load_of(message: Message) -> int:
    """Return how many messages one counts for while it waits: 1, and 1 more for each LOAD_BYTES of its content."""
    return 1 + _bytes_in(message) // LOAD_BYTES


def _bytes_in(value: Any) -> int:
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, tuple | list):
        return sum(map(_bytes_in, value))
    if isinstance(value, dict):
        return _bytes_in(list(value.items()))
    return 0
