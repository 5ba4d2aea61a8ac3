"""A strict reader of HTTP/1 messages, independent of the proxy's: framing is taken off, the rest kept byte by byte."""

from __future__ import annotations

__all__ = ["Incomplete", "first_message", "messages"]

FRAMING = (b"content-length:", b"transfer-encoding:", b"connection: transfer-encoding")


class Incomplete(Exception):
    """The bytes end inside a message."""


def _chunked(data: bytes) -> tuple[bytes, bytes]:
    """Return the body at the beginning of ``data``, and what is behind it. No extensions, no trailers."""
    body = b""
    while True:
        line, mark, data = data.partition(b"\r\n")
        if not mark:
            raise Incomplete
        assert line.lower() == line, f"a size in another form than the proxy's: {line!r}"
        size = int(line, 16)
        if len(data) < size + 2:
            raise Incomplete
        assert data[size : size + 2] == b"\r\n", f"no line end behind a chunk: {data[size:][:20]!r}"
        if not size:
            return body, data[2:]
        body += data[:size]
        data = data[size + 2 :]


def first_message(data: bytes, head: bool = False) -> tuple[bytes, bytes]:
    """Return the first message without its framing, and what is behind it.

    Args:
        data: Requests, or responses up to the end of the connection.
        head: The response answers HEAD.

    Raises:
        Incomplete: The message is not there as a whole.
    """
    start, mark, rest = data.partition(b"\r\n\r\n")
    if not mark:
        raise Incomplete
    lines = start.split(b"\r\n")
    framing = [line for line in lines[1:] if line.lower().startswith(FRAMING)]
    plain = b"\r\n".join(line for line in lines if line not in framing) + b"\r\n\r\n"
    lengths = [line for line in framing if line.lower().startswith(b"content-length:")]
    codings = [line for line in framing if line.lower().startswith(b"transfer-encoding:")]
    assert len(lengths) + len(codings) <= 1, f"two framings: {framing}"
    answers = lines[0].startswith(b"HTTP/")
    code = int(lines[0].split(b" ")[1]) if answers else 0
    if answers and (head or code < 200 or code in (204, 304)):
        return plain, rest
    if lengths:
        size = int(lengths[0].partition(b":")[2])
        if len(rest) < size:
            raise Incomplete
        return plain + rest[:size], rest[size:]
    if codings:
        assert codings[0].lower() == b"transfer-encoding: chunked"
        body, rest = _chunked(rest)
        return plain + body, rest
    return (plain + rest, b"") if answers else (plain, rest)


def messages(data: bytes, head: bool = False) -> list[bytes]:
    """Return all messages of a connection without their framing. Raises Incomplete if the last one is cut off."""
    found = []
    while data:
        message, data = first_message(data, head)
        found.append(message)
    return found
