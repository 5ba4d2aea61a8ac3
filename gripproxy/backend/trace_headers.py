"""Trace headers: the ids by which a request is found again in the logs of proxies and backends.

``X-Request-Id`` is the name of nginx and most frameworks, ``traceparent`` that of Trace Context (W3C). Those of a
client are passed on as they are. Missing ones are made of the request's serial, so that links of a held request repeat
its ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gripproxy.http1.request_parser import Request
from gripproxy.process.log_event import escape, quoted

__all__ = ["FORMATTED", "NAMES", "NO_IDS", "SHOWN", "TraceHeaders"]

NAMES: Final = ("x-request-id", "traceparent")
"""Names that the key ``trace_headers`` may have."""

FRESH: Final = 1 << 56
"""Bit of serials that no client's request has."""

SHOWN: Final = 128
"""Bytes of a client's id that log lines have."""

Ids = tuple[bytes, bytes]
"""Values of ``X-Request-Id`` and ``traceparent``, empty without one."""

NO_IDS: Final[Ids] = (b"", b"")
"""Ids of a request that has none of its own."""

FORMATTED: Final = 1 << 32
"""Least serial that ``text_format`` is not for."""


class TraceHeaders:
    """Maker of the ids of one process.

    Args:
        names: Headers that requests get, of NAMES.
        seed: 12 random bytes, different in each process.
    """

    __slots__ = ("_id", "_lines", "_parent", "_serial", "_text", "text_format")

    def __init__(self, names: tuple[str, ...], seed: bytes) -> None:
        process, tail = seed[:8].hex().encode(), seed[8:12].hex().encode()
        self._id = process + b"-%x" if NAMES[0] in names else b""
        self._parent = b"00-%b%%016x-%b%%08x-00" % (process, tail) if NAMES[1] in names else b""
        both = bool(self._id and self._parent)
        self._lines = b"X-Request-Id: %b\r\ntraceparent: %b\r\n" % (self._id, self._parent) if both else b""
        self._text = b" request_id=%b traceparent=%b" % (self._id, self._parent) if both else b""
        padded = b" request_id=%b-%%b traceparent=00-%b00000000%%b-%b%%b-00" % (process, process, tail)
        self.text_format = padded if both else b""
        """Format of ``text`` for a request with NO_IDS of its own and a serial below FORMATTED. Its values are the
        serial in hex, and two copies of it with eight digits. Empty if ``names`` lack one of NAMES."""
        self._serial = 0

    def lines(self, request: Request, serial: int) -> bytes:
        """Return the header lines of the ids that a client's request lacks.

        Args:
            request: The request.
            serial: Its serial in this process, from 1.
        """
        head = request.head
        given = self._given(request) if head is None or head.trace is None else head.trace
        if given is NO_IDS:
            lines = self._lines
            return lines % (serial, serial, serial & 0xFFFFFFFF) if lines else self.made(serial)
        return _lines(*[b"" if has else make for has, make in zip(given, self._ids(serial), strict=True)])

    def made(self, serial: int) -> bytes:
        """Return the header lines of a request that has no ids of its own.

        Args:
            serial: That of the client's request in this process, from 1.
        """
        if self._lines:
            return self._lines % (serial, serial, serial & 0xFFFFFFFF)
        return _lines(*self._ids(serial))

    def fresh(self) -> bytes:
        """Return the header lines of a request that is no client's own: events of a WebSocket, a subrequest."""
        self._serial += 1
        return self.made(FRESH | self._serial)

    def ids(self, request: Request, serial: int) -> Ids:
        """Return the ids that the backend has got of a client's request.

        Args:
            request: The request; its own ids go before made ones.
            serial: Its serial in this process.
        """
        request_id, parent = self._given(request)
        made_id, made_parent = self._ids(serial)
        return request_id or made_id, parent or made_parent

    def text(self, request: Request, serial: int) -> bytes:
        """Return the ids as fields of a log line in printable ASCII, each with a space before it.

        Args:
            request: The request; its own ids go before made ones.
            serial: Its serial in this process.
        """
        if self._text and self._given(request) is NO_IDS:
            return self._text % (serial, serial, serial & 0xFFFFFFFF)
        request_id, parent = self.ids(request, serial)
        return _field(b"request_id", request_id) + _field(b"traceparent", parent)

    def passed_on(self, request: Request) -> bytes:
        """Return the header lines of the ids that a client has sent; empty without any.

        Args:
            request: The client's request.
        """
        return _lines(*self._given(request))

    def _ids(self, serial: int) -> Ids:
        request_id = self._id % serial if self._id else b""
        return request_id, self._parent % (serial, serial & 0xFFFFFFFF) if self._parent else b""

    @staticmethod
    def _given(request: Request) -> Ids:
        """Return the ids that a client has sent, which are kept with a head that is cached; NO_IDS without any."""
        head = request.head
        if head is None:
            return _found(request.headers)
        if head.trace is None:
            head.trace = _found(head.headers)
        found: Ids = head.trace
        return found


def _found(headers: Sequence[tuple[bytes, bytes]]) -> Ids:
    request_id = parent = b""
    for name, value in headers:
        # Comparing lengths first saves the lower() calls.
        length = len(name)
        if length == 12 and not request_id and name.lower() == b"x-request-id":
            request_id = value
        elif length == 11 and not parent and name.lower() == b"traceparent":
            parent = value
    return (request_id, parent) if request_id or parent else NO_IDS


def _lines(request_id: bytes, parent: bytes) -> bytes:
    lines = b"X-Request-Id: %b\r\n" % request_id if request_id else b""
    return lines + b"traceparent: %b\r\n" % parent if parent else lines


def _field(name: bytes, value: bytes) -> bytes:
    """Return a field of a log line in printable ASCII, with a space before it; empty for an empty value."""
    if not value:
        return b""
    return b" %b=%b" % (name, escape(quoted(value[:SHOWN])).encode("ascii", "backslashreplace"))
