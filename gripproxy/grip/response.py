"""A whole HTTP response as the backend gave it or the client will get it, and the standard reason phrases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["FINAL_MAX", "FINAL_MIN", "PHRASES", "UNKNOWN_PHRASE", "Response", "chunk", "phrase"]

FINAL_MIN: Final = 200
FINAL_MAX: Final = 999
"""Bounds of a final status (RFC 9110 §15). Behind a lower one, which is interim, a client waits for the final response:
the next bytes on its connection, of any origin, would become that."""


@dataclass(slots=True)
class Response:
    """A response that is held in memory completely.

    Attributes:
        code: Status code; a backend may name any from ``FINAL_MIN`` to ``FINAL_MAX`` (docs/grip.md §3.1).
        reason: Reason phrase, may be empty.
        headers: (name, value) pairs in order, names in the sender's letter case.
        body: The decoded body, without transfer framing.
    """

    code: int
    reason: bytes
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""


UNKNOWN_PHRASE: Final = b"Undefined Reason"

# Written out instead of taken from http.HTTPStatus: that table changes with the Python version, and responses must not.
PHRASES: Final[dict[int, bytes]] = {
    100: b"Continue",
    101: b"Switching Protocols",
    102: b"Processing",
    103: b"Early Hints",
    200: b"OK",
    201: b"Created",
    202: b"Accepted",
    203: b"Non-Authoritative Information",
    204: b"No Content",
    205: b"Reset Content",
    206: b"Partial Content",
    207: b"Multi-Status",
    208: b"Already Reported",
    226: b"IM Used",
    300: b"Multiple Choices",
    301: b"Moved Permanently",
    302: b"Found",
    303: b"See Other",
    304: b"Not Modified",
    305: b"Use Proxy",
    307: b"Temporary Redirect",
    308: b"Permanent Redirect",
    400: b"Bad Request",
    401: b"Unauthorized",
    402: b"Payment Required",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    406: b"Not Acceptable",
    407: b"Proxy Authentication Required",
    408: b"Request Timeout",
    409: b"Conflict",
    410: b"Gone",
    411: b"Length Required",
    412: b"Precondition Failed",
    413: b"Request Entity Too Large",
    414: b"Request-URI Too Long",
    415: b"Unsupported Media Type",
    416: b"Requested Range Not Satisfiable",
    417: b"Expectation Failed",
    418: b"I'm a teapot",
    421: b"Misdirected Request",
    422: b"Unprocessable Entity",
    423: b"Locked",
    424: b"Failed Dependency",
    425: b"Too Early",
    426: b"Upgrade Required",
    428: b"Precondition Required",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    451: b"Unavailable For Legal Reasons",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
    506: b"Variant Also Negotiates",
    507: b"Insufficient Storage",
    508: b"Loop Detected",
    510: b"Not Extended",
    511: b"Network Authentication Required",
}


def phrase(code: int) -> bytes:
    """The standard reason phrase of a status code.

    Args:
        code: Status code, any integer.

    Returns:
        The phrase of RFC 7231 §6 and the IANA registry, ``Undefined Reason`` for a code that has none (docs/grip.md
        §3.1).
    """
    return PHRASES.get(code, UNKNOWN_PHRASE)


def chunk(content: bytes) -> bytes:
    """Return ``content`` as one chunk of a chunked body (RFC 9112 §7.1); nothing for nothing, which would end it."""
    return b"%x\r\n%b\r\n" % (len(content), content) if content else b""
