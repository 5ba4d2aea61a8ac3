"""Responses as bytes for a client (RFC 9112): status line, headers, framing. Sans-I/O."""

from __future__ import annotations

from typing import Final

from gripproxy.grip.response import Response, phrase

__all__ = ["bad_request", "chunked_lines", "error_response", "framing_lines", "stream_head", "whole"]

_FRAMING: Final = frozenset((b"content-length", b"transfer-encoding", b"connection", b"keep-alive"))


def error_response(status: int, text: str) -> Response:
    """Return an error response of the proxy (docs/grip.md §2.6): ``status``, text/plain, ``text`` and a newline."""
    return Response(status, phrase(status), [(b"Content-Type", b"text/plain")], text.encode() + b"\n")


def bad_request(status: int, text: str) -> Response:
    """Return the answer to bytes that are no request: ``text`` is the reason, ``status`` 400, 405 or a closer one."""
    response = error_response(status, f"Failed to parse request: {text}" if status == 400 else text)
    if status == 405:
        response.headers.append((b"Allow", b"GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH"))
    return response


def _lines(minor: int, response: Response) -> list[bytes]:
    headers = [b"%b: %b\r\n" % header for header in response.headers if header[0].lower() not in _FRAMING]
    return [b"HTTP/1.%d %d %b\r\n" % (minor, response.code, response.reason), *headers]


def chunked_lines(last: bool) -> bytes:
    """Return the header lines of a chunked response; ``last``: the connection is closed after it."""
    close = b", close" if last else b""
    return b"Connection: Transfer-Encoding%b\r\nTransfer-Encoding: chunked\r\n" % close


def framing_lines(minor: int, chunked: bool, keep: bool, last: bool) -> bytes:
    """Return the end of a relayed head, blank line included: framing of the body, persistence of the connection.

    Args:
        minor: HTTP/1 minor version of the client.
        chunked: whether the body is chunked.
        keep: whether the connection stays open.
        last: whether the connection is closed after a chunked response.
    """
    lines = chunked_lines(last) if chunked else b""
    if not keep:
        if minor and not chunked:
            lines += b"Connection: close\r\n"
    elif not minor:
        lines += b"Connection: keep-alive\r\n"
    return lines + b"\r\n"


def whole(response: Response, minor: int, keep: bool, head: bool) -> bytes:
    """Return a complete response.

    Args:
        response: the response; framing headers in it are left out.
        minor: HTTP/1 minor version of the client.
        keep: whether the connection stays open after it.
        head: whether the method was HEAD: the length is sent and the body left out (RFC 9110 §9.3.2).
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
    """Return the head of a response whose body has no known end.

    Args:
        response: the response; its body is not looked at.
        minor: HTTP/1 minor version of the client.
        head: whether the method was HEAD.

    Returns:
        The head, and whether the body is to be chunked.
    """
    out = _lines(minor, response)
    if response.code == 204 or response.code == 304 or response.code < 200:
        out.append(b"\r\n")
        return b"".join(out), False
    if minor:
        out.append(chunked_lines(False))
    out.append(b"\r\n")
    return b"".join(out), bool(minor) and not head
