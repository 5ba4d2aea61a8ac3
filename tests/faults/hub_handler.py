"""Double of the handler and the workers for one hub: items in, held readers served, without their processes.

It follows docs/grip.md section 6 on reliable sessions, and the order of steps is the test's own: an item goes to a held
reader only if its ``prev-id`` is the reader's position, else the reader follows its link; a hold at another position
than that of the last item asks again at once.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import zmq

__all__ = ["HandlerDouble"]


class HandlerDouble:
    """Control port and SUB socket of a handler.

    Args:
        control: path of the control port's Unix socket.
        spec: ZeroMQ address of the SUB socket.
    """

    def __init__(self, control: str, spec: str) -> None:
        self._control = control
        self._spec = spec
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._zmq.socket(zmq.SUB)
        self._held: dict[str, list[Callable[[dict[str, Any]], None]]] = defaultdict(list)
        self._last: dict[str, str] = {}
        """Id of the last item of each channel."""
        self.cuts = 0
        """Further requests whose connection is cut before their items are taken."""
        self.losses = 0
        """Further items that are lost on their way to the held readers."""
        self.items = 0
        """Items that were taken."""

    async def open(self) -> None:
        """Begin to listen."""
        pathlib.Path(self._control).parent.mkdir(exist_ok=True)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(self._spec)
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._attend)
        self._server = await asyncio.start_unix_server(self._accept, self._control)

    async def close(self) -> None:
        """Close all sockets."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.gather(*self._serving, return_exceptions=True)
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._zmq.term()

    def _attend(self) -> None:
        # Connections of the socket begin, and take subscriptions, within its calls only.
        self._socket.get(zmq.EVENTS)

    @property
    def channels(self) -> int:
        """Channels that have held readers."""
        return len(self._held)

    def hold(self, channel: str, position: str | None, take: Callable[[dict[str, Any]], None]) -> bool:
        """Hold a reader.

        Args:
            channel: its channel.
            position: that the hub named; None for none.
            take: called with each item of the channel.

        Returns:
            False if the last item of the channel is another than the position: the reader has to ask again.
        """
        if channel not in self._held:
            self._socket.setsockopt(zmq.SUBSCRIBE, channel.encode())
            self._attend()
        if take not in self._held[channel]:
            self._held[channel].append(take)
        if position is None or self._last.get(channel, position) == position:
            return True
        del self._last[channel]
        return False

    def leave(self, channel: str, take: Callable[[dict[str, Any]], None]) -> None:
        """End the hold of a reader.

        Args:
            channel: its channel.
            take: as in ``hold``.
        """
        self._held[channel].remove(take)
        if not self._held[channel]:
            del self._held[channel]
            self._socket.setsockopt(zmq.UNSUBSCRIBE, channel.encode())
            self._attend()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
                )
                body = await reader.readexactly(length)
                if self.cuts:
                    self.cuts -= 1
                    writer.transport.abort()
                    return
                for item in json.loads(body)["items"]:
                    self._take(item)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._writers.discard(writer)

    def _take(self, item: dict[str, Any]) -> None:
        self.items += 1
        channel = item["channel"]
        if "id" in item:
            self._last[channel] = item["id"]
        else:
            self._last.pop(channel, None)
        if self.losses:
            self.losses -= 1
            return
        for take in list(self._held.get(channel, ())):
            take(item)
