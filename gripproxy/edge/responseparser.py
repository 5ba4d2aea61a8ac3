"""Bytes of a backend's connection in, responses out, by httptools (llhttp).

What llhttp leaves open is settled here: trailers arrive as headers after the head and are dropped; head bytes are
counted; a HEAD answer has no body whatever its length says; a response without length ends with the connection.

A head that came before, byte for byte, is not parsed again, nor the body behind it: its length is known.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import httptools

from gripproxy.edge.heads import HEAD_END, RESPONSES, ResponseHead
from gripproxy.edge.names import Names

__all__ = ["RESPONSE_HEAD_MAX", "BadResponse", "ResponseParser"]

RESPONSE_HEAD_MAX: Final = 256 * 1024
"""Bytes the head of a backend's response may have."""

LENGTH_DIGITS: Final = 100
"""Digits of a length with which a head is kept; llhttp takes any number of zeros before it."""

LENGTH, CODING = 1, 2
_KINDS: Final = Names(lambda name: {b"content-length": LENGTH, b"transfer-encoding": CODING}.get(name, 0))
"""Headers that say where the body ends."""


class BadResponse(ValueError):
    """The backend's fault: what it sent is not an HTTP/1 response."""


class ResponseOwner(Protocol):
    """Who is told about responses: a backend connection."""

    def response_begun(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None: ...
    def response_body(self, data: bytes) -> None: ...
    def response_complete(self) -> None: ...
    def interim_response(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None: ...


class ResponseParser:
    """Parses what a backend answers on one connection, one response per ``expect`` call.

    After ``response_complete`` any further byte is an error: nothing was asked.
    """

    __slots__ = (
        "_bodyless",
        "_head_size",
        "_headers",
        "_interim",
        "_left",
        "_new",
        "_owner",
        "_parser",
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
        """Bytes that the body of a response still has whose head came before: they are not parsed."""
        self._new = b""
        """A head to be kept if its response has a length, while it is parsed."""
        self.reusable = True
        """Another request may be sent on this connection after the response."""

    def expect(self, head: bool, upgrade: bool = False) -> None:
        """A request was sent; ``head`` says that its method was HEAD (RFC 9112 §6.3: no body in the answer),
        ``upgrade`` that it asked for a WebSocket: then 101 is an answer, and ``rest`` has what came behind it."""
        self._upgrade = upgrade
        self.asked = True
        self.begun = False
        self.to_eof = False
        self._head_size = 0
        self._bodyless = head

    def _body(self, data: bytes) -> None:
        """Take more of the body of a response whose head came before, and what is behind it."""
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
        """Parse ``data``. Raises BadResponse, after which the connection is of no use.

        ``whole``: a response that is all there, behind a head that came before, and is only to be relayed, is not told
        but its head returned.
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
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            if not self.switched:
                raise BadResponse("a switch of protocols nobody asked for") from error
            self.rest = data[error.args[0] :]
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if isinstance(cause, BadResponse):
                raise cause from None
            raise
        except httptools.HttpParserError as error:
            if self.begun and not self.asked:
                # Complete, with something behind it: the answer stands, the connection does not.
                self.reusable = False
                return None
            raise BadResponse(str(error)) from error
        return None

    def close(self) -> None:
        """Let go of the parser: it and this object refer to each other, and would wait for the collector."""
        self._parser = None

    def eof(self) -> bool:
        """The backend closed. Returns whether that completed a response (one without length)."""
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
        # Only the first head of what is fed is the one that is to be kept.
        new, self._new = self._new, b""
        parser = self._parser
        code: int = parser.get_status_code()
        self._interim = False
        if 100 <= code < 200:
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
        size, framed, length = 0, False, 0
        for name, value in self._headers:
            size += len(name) + len(value) + 4
            kind = _KINDS[name]
            if kind:
                framed = True
                length = int(value) if kind == LENGTH and length >= 0 and len(value) <= LENGTH_DIGITS else -1
        self.head_size = size
        if size > RESPONSE_HEAD_MAX:
            raise BadResponse(f"its head has more than {RESPONSE_HEAD_MAX} bytes")
        self.begun = True
        self.reusable = parser.should_keep_alive()
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
