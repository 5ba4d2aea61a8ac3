"""Parsers of heads and of WebSocket frames, the proxy's and those of libraries, for ``bench/libraries.py``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

__all__ = ["Part", "frames", "heads", "new_heads"]

HEAD: Final = (
    b"GET /stream?channel=%07d HTTP/1.1\r\nHost: example.org\r\nConnection: keep-alive\r\n"
    b"Cache-Control: max-age=0\r\nUpgrade-Insecure-Requests: 1\r\n"
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36\r\n"
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n"
    b"Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9\r\nCookie: session=%07d\r\n\r\n"
)
"""A browser's request; the numbers make one that was not seen before."""
MESSAGE: Final = b"x" * 100
"""Payload of a WebSocket message."""

Part = Iterator[tuple[str, Callable[[list[bytes]], None]]]
"""Implementations of one part: name, and a function that does the work once for each of the inputs."""


def new_heads(times: int) -> list[bytes]:
    """Return ``times`` heads that no cache has."""
    start = time.monotonic_ns() // 1000 % 1_000_000
    return [HEAD % (start + number, start + number) for number in range(times)]


def heads() -> Part:
    """Yield parsers of a request's head; each parses the head of a client of its own, or one after the other of one."""
    import aiohttp.http_parser
    import h11
    import httptools

    from gripproxy.http1.request_parser import RequestParser

    class Owner:
        def request_begun(self, request: Any) -> None:
            self.headers = request.headers

        def request_body(self, request: Any, data: bytes) -> None: ...

        def request_complete(self, request: Any) -> None: ...

    class Collector:
        def __init__(self) -> None:
            self.headers: list[tuple[bytes, bytes]] = []
            self.url = b""

        def on_url(self, url: bytes) -> None:
            self.url = url

        def on_header(self, name: bytes, value: bytes) -> None:
            self.headers.append((name, value))

        def on_message_complete(self) -> None:
            self.headers = []

    def known(inputs: list[bytes]) -> None:
        parser, same = RequestParser(Owner(), 10_000), HEAD % (1, 1)
        for _ in inputs:
            if parser.known(same) is None:
                parser.feed(same)

    def ours(inputs: list[bytes]) -> None:
        parser = RequestParser(Owner(), 10_000)
        for data in inputs:
            if parser.known(data) is None:
                parser.feed(data)

    def by_httptools(inputs: list[bytes]) -> None:
        parser = httptools.HttpRequestParser(Collector())
        for data in inputs:
            parser.feed_data(data)

    def by_aiohttp(inputs: list[bytes]) -> None:
        loop = asyncio.new_event_loop()
        protocol: Any = aiohttp.base_protocol.BaseProtocol(loop)
        make: Any = aiohttp.http_parser.HttpRequestParser
        parser = make(protocol, loop, 2**16)
        for data in inputs:
            parser.feed_data(data)
        loop.close()

    def by_h11(inputs: list[bytes]) -> None:
        for data in inputs:
            connection = h11.Connection(h11.SERVER)
            connection.receive_data(data)
            connection.next_event()

    yield "gripproxy, a head seen before", known
    yield "gripproxy, a new head", ours
    yield "httptools alone, headers collected", by_httptools
    yield "aiohttp's parser in C", by_aiohttp
    yield "h11", by_h11


def frames() -> Part:
    """Yield readers of one masked text frame and writers of one unmasked text frame."""
    import aiohttp._websocket.reader
    import aiohttp.http_websocket
    import websockets.frames
    import websockets.protocol
    import websockets.server

    from gripproxy.grip.assembler import Assembler, whole_event
    from gripproxy.grip.frames import TEXT, FrameParser, serialise

    frame = serialise(TEXT, MESSAGE, mask=True)

    def whole(inputs: list[bytes]) -> None:
        for _ in inputs:
            assert whole_event(frame, True, 2**20) is not None

    def ours(inputs: list[bytes]) -> None:
        parser, assembler = FrameParser(True, 2**20), Assembler(2**20)
        for _ in inputs:
            for one in parser.feed(frame):
                assembler.feed(one)

    def by_websockets(inputs: list[bytes]) -> None:
        protocol = websockets.server.ServerProtocol(state=websockets.protocol.State.OPEN)
        for _ in inputs:
            protocol.receive_data(frame)
            protocol.events_received()

    def by_aiohttp(inputs: list[bytes]) -> None:
        loop = asyncio.new_event_loop()
        protocol: Any = aiohttp.base_protocol.BaseProtocol(loop)
        queue: Any = aiohttp._websocket.reader.WebSocketDataQueue
        make: Any = aiohttp.http_websocket.WebSocketReader
        reader = make(queue(protocol, 2**30, loop=loop), 2**20, False, True)
        for _ in inputs:
            reader.feed_data(frame)
        loop.close()

    def write(inputs: list[bytes]) -> None:
        for _ in inputs:
            serialise(TEXT, MESSAGE)

    def write_by_websockets(inputs: list[bytes]) -> None:
        protocol = websockets.server.ServerProtocol(state=websockets.protocol.State.OPEN)
        for _ in inputs:
            protocol.send_text(MESSAGE)
            protocol.data_to_send()

    def write_one_by_websockets(inputs: list[bytes]) -> None:
        for _ in inputs:
            websockets.frames.Frame(websockets.frames.Opcode.TEXT, MESSAGE).serialize(mask=False)

    yield "gripproxy, read a frame that arrived whole", whole
    yield "gripproxy, read by parser and assembler", ours
    yield "websockets, read (ServerProtocol)", by_websockets
    yield "aiohttp, read (its reader in C)", by_aiohttp
    yield "gripproxy, write", write
    yield "websockets, write (ServerProtocol)", write_by_websockets
    yield "websockets, write (Frame.serialize)", write_one_by_websockets
