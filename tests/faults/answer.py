"""An HTTP answer as a client sees it: head, then the body piece by piece, and whether it came to its proper end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

__all__ = ["Answer", "Broken", "Events", "ask", "connect"]


class Broken(Exception):
    """The connection ended, or brought something else than a whole answer. The text says what."""


class Answer:
    """One answer: ``status``, ``headers`` (names in small letters) and the ``pieces`` of the body."""

    def __init__(self, reader: asyncio.StreamReader, status: int, headers: dict[str, str]) -> None:
        self.reader = reader
        self.status = status
        self.headers = headers

    async def pieces(self) -> AsyncIterator[bytes]:
        """Return the body as it comes. Raises Broken if it is cut."""
        try:
            if self.headers.get("transfer-encoding") == "chunked":
                while size := int(await self.reader.readline() or b"x", 16):
                    piece = await self.reader.readexactly(size + 2)
                    yield piece[:-2]
                await self.reader.readexactly(2)
            elif "content-length" in self.headers:
                yield await self.reader.readexactly(int(self.headers["content-length"]))
            else:
                raise Broken("an answer without length")
        except (asyncio.IncompleteReadError, ValueError, OSError) as error:
            raise Broken(f"cut: {error!r:.80}") from None

    async def text(self) -> str:
        """Return the whole body. Raises Broken if it is cut."""
        return b"".join([piece async for piece in self.pieces()]).decode()


async def connect(
    port: int, small: bool = False, limit: int = 2**18
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the proxy; ``small``: with so little room that a reader who stops is noticed soon. Raises Broken."""
    sock = socket.socket()
    sock.setblocking(False)
    try:
        if small:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        return await asyncio.open_connection(sock=sock, limit=8192 if small else limit)
    except OSError as error:
        sock.close()
        raise Broken(f"no connection: {error.strerror}") from None
    except asyncio.CancelledError:
        sock.close()
        raise


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, headers: dict[str, str], patience: float
) -> Answer:
    """Ask for a path and return the answer, of which the head has come. Raises Broken, also after ``patience`` s."""
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    try:
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        async with asyncio.timeout(patience):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except TimeoutError:
        raise Broken(f"no answer in {patience:g} s") from None
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
        raise Broken(f"no answer: {error!r:.80}") from None
    fields = (line.partition(": ") for line in head[1:] if line)
    return Answer(reader, int(head[0].split(" ")[1]), {name.lower(): value for name, _, value in fields})


class Events:
    """The events of a text/event-stream, whole ones only: an event that was cut does not count."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, data: bytes) -> list[dict[str, str]]:
        """Return the events completed by ``data``: their fields; a comment is the field of the empty name."""
        blocks = (self._rest + data.decode()).split("\n\n")
        self._rest = blocks.pop()
        return [
            {name: value.removeprefix(" ") for name, _, value in (line.partition(":") for line in block.split("\n"))}
            for block in blocks
        ]
