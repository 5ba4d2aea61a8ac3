"""The pipe: the protocol between the workers and the handler, both ends.

Imports ``grip`` only. The pipe is one Unix stream connection per worker, in a folder that only the service's user
may enter. Messages are tuples whose first element is their kind; frames carry batches of them.

A worker opens with ``HELLO`` and its channels. It sends ``SUBSCRIBE`` and ``UNSUBSCRIBE``, counts and statistics;
the handler sends ``SUBSCRIBED``, ``ITEM``, ``COMMAND``, and ``LOST`` when the worker's bounded queue was dropped.
Nothing survives a reconnect: end of file is the notice of death, and the next ``HELLO`` states everything anew.

The guarantee on which delivery builds: an item accepted after ``SUBSCRIBED`` was sent is delivered to that worker,
or the worker is informed that it was not. Written messages are counted in units that grow with their bytes while the
peer does not read.
"""

from gripproxy.pipe.connection import FRAME_BYTES, MAX_QUEUE, WRITE_AHEAD, PipeConnection, socket_path
from gripproxy.pipe.framing import MAX_FRAME, Decoder, PipeError, encode
from gripproxy.pipe.messages import (
    ANSWER,
    COMMAND,
    CONFLICT,
    CONNECTIONS,
    COUNT,
    FIGURES,
    HELLO,
    ITEM,
    LOAD_BYTES,
    LOST,
    RESPONSE,
    RETIRING,
    SOCKET,
    STATS,
    STREAM,
    SUBSCRIBE,
    SUBSCRIBED,
    UNSUBSCRIBE,
    VERSION,
    WATCH,
    Message,
    load_of,
)

__all__ = [
    "ANSWER",
    "COMMAND",
    "CONFLICT",
    "CONNECTIONS",
    "COUNT",
    "FIGURES",
    "FRAME_BYTES",
    "HELLO",
    "ITEM",
    "LOAD_BYTES",
    "LOST",
    "MAX_FRAME",
    "MAX_QUEUE",
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
    "WRITE_AHEAD",
    "Decoder",
    "Message",
    "PipeConnection",
    "PipeError",
    "encode",
    "load_of",
    "socket_path",
]
