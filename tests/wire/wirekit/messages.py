"""HTTP messages as a case writes and reads them: head lines as text, bodies as bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Message", "Request", "Response", "chunk", "chunked", "hold", "instruct", "request", "response", "to_bytes"]


def to_bytes(value: bytes | str) -> bytes:
    """Return text as UTF-8, bytes unchanged."""
    return value.encode() if isinstance(value, str) else value


@dataclass
class Message:
    """The part that requests and responses share. Header names keep the letter case of the wire."""

    headers: list[tuple[str, str]]
    body: bytes = b""
    raw_head: bytes = b""
    time: float = 0.0
    """Monotonic seconds at which the head was complete."""

    def __getitem__(self, name: str) -> str | None:
        """Return the first value of a header (any letter case), None without one."""
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)

    def all(self, name: str) -> list[str]:
        """Return every value of a header, in order."""
        return [v for n, v in self.headers if n.lower() == name.lower()]

    @property
    def lines(self) -> list[str]:
        """The headers as ``Name: value`` lines, in order."""
        return [f"{n}: {v}" for n, v in self.headers]

    @property
    def names(self) -> list[str]:
        """The header names in lower case, in order."""
        return [n.lower() for n, _ in self.headers]


@dataclass
class Request(Message):
    """A request as a backend received it."""

    method: str = ""
    uri: str = ""
    version: str = ""
    connection: int = 0
    """Number of the TCP connection at this backend, from 1: two requests with the same number shared one."""

    @property
    def path(self) -> str:
        """The URI without its query."""
        return self.uri.partition("?")[0]


@dataclass
class Response(Message):
    """A response as a client or publisher received it. ``body`` is decoded; ``trailers`` as sent."""

    version: str = ""
    status: int = 0
    reason: str = ""
    chunks: list[bytes] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The status line without the version: ``200 OK``."""
        return f"{self.status} {self.reason}"

    def json(self) -> Any:
        """The body parsed as JSON."""
        return json.loads(self.body)


def parse_headers(lines: list[bytes]) -> list[tuple[str, str]]:
    """Split header lines at the first colon; values lose the blanks around them."""
    pairs = []
    for line in lines:
        name, _, value = line.decode("utf-8", "surrogateescape").partition(":")
        pairs.append((name, value.strip(" \t")))
    return pairs


def request(method: str, uri: str, *headers: str, body: bytes | str = b"", version: str = "HTTP/1.1") -> bytes:
    """Return a request as bytes.

    ``headers`` are ``Name: value`` lines. ``Host: wire.example`` is added if no line names a host, and
    ``Content-Length`` if there is a body and no framing header. Write bytes by hand for anything odd.
    """
    lines = list(headers)
    names = {line.partition(":")[0].lower() for line in lines}
    if "host" not in names and version != "HTTP/1.0":
        lines.insert(0, "Host: wire.example")
    data = to_bytes(body)
    if data and not names & {"content-length", "transfer-encoding"}:
        lines.append(f"Content-Length: {len(data)}")
    return "".join(f"{line}\r\n" for line in [f"{method} {uri} {version}", *lines, ""]).encode() + data


def response(status: str, *headers: str, body: bytes | str = b"", version: str = "HTTP/1.1") -> bytes:
    r"""Return a response as bytes: ``response("200 OK", "X-A: 1", body="hello\n")``.

    ``Content-Length`` is added unless a header line frames the message already, or the status has no body.
    """
    lines = list(headers)
    data = to_bytes(body)
    names = {line.partition(":")[0].lower() for line in lines}
    if not names & {"content-length", "transfer-encoding"} and status[:1] != "1" and status[:3] not in ("204", "304"):
        lines.append(f"Content-Length: {len(data)}")
    return "".join(f"{line}\r\n" for line in [f"{version} {status}", *lines, ""]).encode() + data


def hold(mode: str, channel: str, *headers: str, body: bytes | str = b"", status: str = "200 OK") -> bytes:
    """Return a response with ``Grip-Hold: mode`` and ``Grip-Channel: channel`` (parameters may follow the name)."""
    lines = list(headers)
    if not any(line.lower().startswith("content-type:") for line in lines):
        lines.append("Content-Type: text/plain")
    return response(status, f"Grip-Hold: {mode}", f"Grip-Channel: {channel}", *lines, body=body)


def instruct(document: object, *headers: str, status: str = "200 OK") -> bytes:
    """Return a response whose body is the document, as ``application/grip-instruct`` JSON (bytes are sent as is)."""
    body = document if isinstance(document, bytes) else json.dumps(document)
    lines = list(headers)
    if not any(line.lower().startswith("content-type:") for line in lines):
        lines.append("Content-Type: application/grip-instruct")
    return response(status, *lines, body=body)


def chunk(data: bytes | str) -> bytes:
    """Return one chunk of a chunked body; an empty one is the end of the body."""
    data = to_bytes(data)
    return b"%x\r\n%s\r\n" % (len(data), data)


def chunked(status: str, *headers: str, chunks: list[bytes | str]) -> bytes:
    """Return a whole chunked response."""
    head = response(status, *headers, "Transfer-Encoding: chunked")
    return head + b"".join(chunk(piece) for piece in chunks) + chunk(b"")
