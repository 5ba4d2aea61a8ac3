"""Bytes of a backend's connection in, responses out, by httptools (llhttp).

This module decides the points llhttp leaves open: trailers arrive as headers after the head and are dropped; bytes of
a head are counted; a HEAD answer has no body, for any Content-Length; a response without length ends with the
connection, also with ``Transfer-Encoding: identity``. Refused are codings other than ``chunked``, lengths of 2^63 and
more, status codes below 200 that are not interim ones, and control characters in a reason phrase.

A head in the cache of heads, byte for byte, is not parsed, nor the body behind it: its length is known.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

import httptools

from gripproxy.grip.errors import BackendError
from gripproxy.grip.response import PHRASES
from gripproxy.http1.head_cache import HEAD_END, RESPONSES, ResponseHead
from gripproxy.http1.header_classes import HeaderClasses
from gripproxy.http1.request_parser import LENGTH_MAX

__all__ = ["INTERIM_MAX", "LINES_MAX", "RESPONSE_HEAD_MAX", "BadResponse", "ResponseParser"]

RESPONSE_HEAD_MAX: Final = 256 * 1024
"""Bytes the head of a backend's response may have."""

LINES_MAX: Final = 1000
"""Header lines of one head of a backend's response. As objects short lines take thirty times their bytes."""

INTERIM_MAX: Final = 64 * 1024
"""Bytes the head of an interim response may have: they are looked through again with each piece that comes."""

LENGTH_DIGITS: Final = 100
"""Digits of a length that are read as they are; of more the zeros before it, any number of which llhttp takes, go."""

_STOPS: Final = (httptools.HttpParserError, httptools.HttpParserUpgrade)
"""Exceptions by which llhttp ends in the middle of its input."""

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search
"""Bytes that a reason phrase may not have (RFC 9112 §4): control characters but HTAB. llhttp checks values only."""

_REASONS: Final = frozenset(PHRASES.values())
"""Reason phrases that need no look."""

_FINAL: Final = tuple(b"HTTP/1.%d %d" % (minor, digit) for minor in (1, 0) for digit in (2, 4, 3, 5))
"""How a final response mostly begins."""

_INTERIM: Final = re.compile(rb"HTTP/1\.[01] 1(?!01)").match
_STATUS_END: Final = len(b"HTTP/1.1 100")
_BEGINNINGS: Final = (b"HTTP/1.1 1", b"HTTP/1.0 1")
"""How an interim response begins, and the bytes that decide it. 101 is final (RFC 9110 §15.2.2)."""

LENGTH, CODING = 1, 2
_KINDS: Final = HeaderClasses(lambda name: {b"content-length": LENGTH, b"transfer-encoding": CODING}.get(name, 0))
"""Headers that decide where the body ends."""


def _may_be_interim(data: bytes, start: int) -> bool:
    """Return whether at ``start`` of ``data`` an interim response begins, or too little of a response to decide."""
    if len(data) - start >= _STATUS_END:
        return _INTERIM(data, start) is not None
    return any(beginning.startswith(data[start : start + 10]) for beginning in _BEGINNINGS)


class BadResponse(BackendError, ValueError):
    """The bytes are no HTTP/1 response, or one that is refused: the backend's fault."""


class ResponseOwner(Protocol):
    """Receiver of the responses of one connection: the backend connection."""

    def response_begun(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Take a final head.

        Args:
            code: status code.
            reason: reason phrase.
            headers: names and values in order.
        """
        ...

    def response_body(self, data: bytes) -> None:
        """Take the next piece, ``data``, of the body."""
        ...

    def response_complete(self) -> None:
        """Note the end of the response."""
        ...

    def interim_response(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Take the head of an interim response (RFC 9110 §15.2).

        Args:
            code: status code, below 200.
            reason: reason phrase.
            headers: names and values in order.
        """
        ...


class ResponseParser:
    """Parser of the bytes of one backend connection, one response per ``expect`` call.

    After ``response_complete`` any further byte is an error: no request is open.

    Args:
        owner: receiver of the responses.
    """

    __slots__ = (
        "_bodyless",
        "_head_size",
        "_headers",
        "_interim",
        "_left",
        "_new",
        "_odd",
        "_owner",
        "_parser",
        "_pending",
        "_reason",
        "_trailer",
        "_upgrade",
        "asked",
        "begun",
        "head_size",
        "rest",
        "reusable",
        "switched",
        "to_eof",
    )

    def __init__(self, owner: ResponseOwner) -> None:
        self._owner = owner
        self._parser: Any = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._bodyless = False
        self._head_size = 0
        self._trailer = False
        self._interim = False
        self.asked = False
        """A request was sent and its response is not complete."""
        self.begun = False
        """The head of the final response is complete."""
        self.head_size = 0
        """Bytes of the header lines of the newest final response."""
        self.to_eof = False
        """The response has no length: it ends when the backend closes."""
        self.switched = False
        """The backend answered 101."""
        self.rest = b""
        self._upgrade = False
        self._left = 0
        """Bytes left of the body of a response whose head is cached: they are not parsed."""
        self._pending: bytes | None = b""
        """Beginning of a possible interim response; None once the final one has begun. Its bytes count in
        ``_head_size``, which is bounded."""
        self._odd = False
        """The final head does not begin as one of HTTP/1 does."""
        self._new = b""
        """A head to be kept if its response has a length, while it is parsed."""
        self.reusable = True
        """Another request may be sent on this connection after the response."""

    def expect(self, head: bool, upgrade: bool = False) -> None:
        """Prepare for the response to a request that was sent.

        Args:
            head: whether its method was HEAD (RFC 9112 §6.3: no body in the response).
            upgrade: whether it asked for a WebSocket: then 101 is a response, and ``rest`` has the bytes behind it.
        """
        self._upgrade = upgrade
        self.asked = True
        self.begun = False
        self.to_eof = False
        self._head_size = 0
        self._pending = b""
        self._bodyless = head

    def _body(self, data: bytes) -> None:
        """Take more of the body of a response whose head is cached, and any bytes behind it."""
        size, left = len(data), self._left
        if size > left:
            # Complete, with something behind it: the answer stands, the connection does not. llhttp skips empty lines.
            if data[left:].strip(b"\r\n"):
                self.reusable = False
            data = data[:left]
            size = left
        self._left = left - size
        if data:
            self._owner.response_body(data)
        if not self._left:
            self.asked = False
            self._owner.response_complete()

    def feed(self, data: bytes, whole: bool = False) -> ResponseHead | None:
        """Parse bytes.

        Args:
            data: the bytes read.
            whole: whether a complete response behind a cached head may be returned instead of passed to the owner.

        Returns:
            With ``whole``, the head of a complete response that is only to be relayed; else None.

        Raises:
            BadResponse: the bytes are no response; the connection is of no use.
        """
        if self._left:
            self._body(data)
            return None
        if not self.asked:
            raise BadResponse("bytes that answer no request")
        if not self.begun:
            if not self._head_size and not self._bodyless:
                block = data[: data.find(HEAD_END) + 4]
                head = RESPONSES.get(block)
                if head is not None:
                    self.begun = True
                    self.head_size = head.size
                    self.reusable = head.reusable
                    if whole and head.relay and len(data) == head.end + head.length:
                        self.asked = False
                        return head
                    self._left = head.length
                    self._owner.response_begun(head.code, head.reason, list(head.headers))
                    self._body(data[head.end :])
                    return None
                if len(block) > 4 and RESPONSES.again(block):
                    self._new = block
            self._head_size += len(data)
            if self._head_size > RESPONSE_HEAD_MAX + 65536:
                raise BadResponse(f"its head has more than {RESPONSE_HEAD_MAX} bytes")
            if self._pending is not None:
                if self._pending or not data.startswith(_FINAL):
                    data = self._interims(self._pending + data)
                    if not data:
                        return None
                self._pending = None
        try:
            self._parser.feed_data(data)
        except _STOPS as error:
            self._stopped(error, data)
        if not self.begun and len(self._headers) > LINES_MAX:
            raise self._too_many()
        return None

    def _too_many(self) -> BadResponse:
        lines, self._headers = len(self._headers), []
        return BadResponse(f"its head has {lines} lines and more, at most {LINES_MAX} are taken")

    def _interims(self, data: bytes) -> bytes:
        """Parse interim responses, each when its head is complete; return the beginning of the final one.

        llhttp would take ``Connection: close`` in one of them for the end of the connection. Each has a parser of its
        own, which is at its end where the head is.
        """
        self._pending = b""
        start = 0
        while _may_be_interim(data, start):
            end = data.find(HEAD_END, start) + 4
            if end < 4:
                if len(data) - start > INTERIM_MAX:
                    raise BadResponse(f"the head of an interim response has more than {INTERIM_MAX} bytes")
                self._pending = data[start:]
                return b""
            try:
                self._parser.feed_data(data[start:end])
            except _STOPS as error:
                self._stopped(error, data)
            self._parser = httptools.HttpResponseParser(self)
            start = end
        data = data[start:]
        self._odd = not data.startswith(b"HTTP/1.")
        return data

    def _stopped(self, error: Exception, data: bytes) -> None:
        """Llhttp did not parse ``data`` to its end. Raises BadResponse if it is none."""
        if isinstance(error, httptools.HttpParserUpgrade):
            if not self.switched:
                raise BadResponse("a switch of protocols nobody asked for") from error
            self.rest = data[error.args[0] :]
        elif isinstance(error, httptools.HttpParserCallbackError):
            cause = error.__context__
            try:
                raise (cause if isinstance(cause, BadResponse) else error) from None
            finally:
                # The frame is in the traceback: with these it would be a circle, which only the collector undoes.
                del cause, error
        elif self.begun and not self.asked:
            # Complete, with something behind it: the answer stands, the connection does not.
            self.reusable = False
        else:
            raise BadResponse(str(error)) from error

    def close(self) -> None:
        """Drop the parser: it and this object refer to each other, and would wait for the collector."""
        self._parser = None

    def eof(self) -> bool:
        """Return whether the end of the connection completes a response (one without length)."""
        if self.asked and self.begun and self.to_eof:
            self.asked = False
            self._owner.response_complete()
            return True
        return False

    def on_message_begin(self) -> None:
        if not self.asked:
            self.reusable = False
        self._headers = []
        self._reason = b""
        self._trailer = False

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._trailer:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._trailer = True
        if not self.asked:
            return
        if len(self._headers) > LINES_MAX:
            raise self._too_many()
        # Of the bytes fed only the first head is to be kept.
        new, self._new = self._new, b""
        parser = self._parser
        code: int = parser.get_status_code()
        if self._odd and parser.get_http_version() not in ("1.0", "1.1"):
            raise BadResponse(f"HTTP version {parser.get_http_version()}, HTTP/1.0 and HTTP/1.1 are spoken")
        if self._reason not in _REASONS and _CONTROL(self._reason):
            raise BadResponse(f"a control character in its reason phrase {self._reason[:80]!r}")
        self._interim = False
        if code < 200:
            if code < 100:
                raise BadResponse(f"status code {code:03}, a final one is from 200 to 999")
            if code == 101:
                if not self._upgrade:
                    raise BadResponse("101 to a request that asked for no other protocol")
                self.switched = self.begun = True
                self.reusable = False
                self._owner.response_begun(code, self._reason, self._headers)
                return
            self._interim = True
            self._owner.interim_response(code, self._reason, self._headers)
            return
        size, framed, length, codings = 0, False, 0, 0
        for name, value in self._headers:
            size += len(name) + len(value) + 4
            kind = _KINDS[name]
            if kind:
                if kind == LENGTH:
                    framed = True
                    if len(value) > LENGTH_DIGITS:
                        value = value.strip().lstrip(b"0") or b"0"
                    length = int(value)
                    if length > LENGTH_MAX:
                        raise BadResponse(f"a Content-Length of more than {LENGTH_MAX} bytes")
                    continue
                codings += 1
                coding = value.strip().lower()
                if codings > 1 or (coding != b"chunked" and coding != b"identity"):
                    raise BadResponse(f"Transfer-Encoding {value[:80]!r}, chunked is understood")
                framed = coding == b"chunked"
                length = -1
        self.head_size = size
        if size > RESPONSE_HEAD_MAX:
            raise BadResponse(f"its head has more than {RESPONSE_HEAD_MAX} bytes")
        self.begun = True
        self.reusable = parser.should_keep_alive()
        if codings and parser.get_http_version() == "1.0":
            # The meaning of a coding in HTTP/1.0 is uncertain (RFC 9112 §6.1).
            self.reusable = False
        if not self._bodyless and code != 204 and code != 304:
            self.to_eof = not framed
            if not framed:
                self.reusable = False
                length = -1
        else:
            length = min(length, 0)
        if new and length >= 0:
            RESPONSES.keep(new, ResponseHead(new, code, self._reason, self._headers, length, self.reusable))
        self._owner.response_begun(code, self._reason, self._headers)
        if self._bodyless:
            # llhttp now waits for the body that a HEAD answer only announces.
            self._parser = httptools.HttpResponseParser(self)
            self.asked = False
            self._owner.response_complete()

    def on_body(self, data: bytes) -> None:
        if self.asked:
            self._owner.response_body(data)
        else:
            self.reusable = False

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif self.asked and self.begun:
            self.asked = False
            self._owner.response_complete()
