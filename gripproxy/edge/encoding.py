"""Responses as bytes for a client (RFC 9112): status line, headers, framing. Sans-I/O."""

from __future__ import annotations

from typing import Final

from gripproxy.grip.response import Response, phrase

__all__ = ["bad_request", "chunked_lines", "error_response", "framing_lines", "stream_head", "whole"]

_FRAMING: Final = frozenset((b"content-length", b"transfer-encoding", b"connection", b"keep-alive"))


def error_response(status: int, text: str) -> Response:
    """Return one of our own errors (docs/grip.md §2.6): text/plain, the text and a newline."""
    return Response(status, phrase(status), [(b"Content-Type", b"text/plain")], text.encode() + b"\n")


def bad_request(status: int, text: str) -> Response:
    """Return the answer to what is no request: ``text`` says why, ``status`` is 400, 405 or what fits better."""
    response = error_response(status, f"Failed to parse request: {text}" if status == 400 else text)
    if status == 405:
        response.headers.append((b"Allow", b"GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH"))
    return response


def _lines(minor: int, response: Response) -> list[bytes]:
    out = [b"HTTP/1.%d %d %b\r\n" % (minor, response.code, response.reason)]
    for header in response.headers:
        if header[0].lower() not in _FRAMING:
            out.append(b"%b: %b\r\n" % header)
    return out


def chunked_lines(last: bool) -> bytes:
    """Return the header lines of a chunked response; ``last``: the connection is closed after it."""
    close = b", close" if last else b""
    return b"Connection: Transfer-Encoding%b\r\nTransfer-Encoding: chunked\r\n" % close


def framing_lines(minor: int, chunked: bool, keep: bool, last: bool) -> bytes:
    """Return the end of a relayed head, blank line included: what tells the client how the body ends and whether the
    connection stays (``keep``). ``minor`` and ``last``: see ``whole`` and ``chunked_lines``."""
    lines = chunked_lines(last) if chunked else b""
    if not keep:
        if minor and not chunked:
            lines += b"Connection: close\r\n"
    elif not minor:
        lines += b"Connection: keep-alive\r\n"
    return lines + b"\r\n"


def whole(response: Response, minor: int, keep: bool, head: bool) -> bytes:
    """Return a complete response.

    ``minor`` is the client's HTTP/1 minor version, ``keep`` whether the connection stays open after it, ``head``
    whether the method was HEAD: then the body's length is told and the body left out (RFC 9110 §9.3.2).
    """
    out = _lines(minor, response)
    code = response.code
    empty = code == 204 or code == 304 or code < 200
    if not empty:
        out.append(b"Content-Length: %d\r\n" % len(response.body))
    if not keep:
        if minor:
            out.append(b"Connection: close\r\n")
    elif not minor:
        out.append(b"Connection: keep-alive\r\n")
    out.append(b"\r\n")
    if not empty and not head:
        out.append(response.body)
    return b"".join(out)


def stream_head(response: Response, minor: int, head: bool) -> tuple[bytes, bool]:
    """Return the head of a response whose body has no known end, and whether the body is to be chunked."""
    out = _lines(minor, response)
    if response.code == 204 or response.code == 304 or response.code < 200:
        out.append(b"\r\n")
        return b"".join(out), False
    if minor:
        out.append(chunked_lines(False))
    out.append(b"\r\n")
    return b"".join(out), bool(minor) and not head
