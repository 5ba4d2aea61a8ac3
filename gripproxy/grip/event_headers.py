"""Headers of responses that carry WebSocket-over-HTTP events (docs/grip.md §8.2, §8.3)."""

from __future__ import annotations

import re
from typing import Final

from gripproxy.grip.bounds import BOUNDS, size_of
from gripproxy.grip.headers import Headers, ParamsError, all_of, first, param, parse_params, split_list
from gripproxy.grip.websocket_events import EventError

__all__ = [
    "CONTENT_TYPE",
    "KEEP_ALIVE_MIN",
    "MAX_META",
    "MESSAGE_PREFIX",
    "bytes_accepted",
    "event_fields",
    "grip_extension",
    "is_events",
    "keep_alive_interval",
    "parse_interval",
    "public_headers",
    "set_meta",
    "update_meta",
]


CONTENT_TYPE: Final = b"application/websocket-events"


KEEP_ALIVE_MIN: Final = 20
"""Seconds; a backend that asks for a shorter ``Keep-Alive-Interval`` gets this one."""


MESSAGE_PREFIX: Final = b"m:"
"""Default prefix of messages for the client (docs/grip.md §8.2)."""


MAX_META: Final = 100
"""Names of meta kept for a connection: they are sent along with every request, and a backend can set new ones in each
response."""


_INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,10}")


_SET_META: Final = b"set-meta-"


_HYPHEN: Final = ord("-")


_MAX_INTERVAL: Final = 2**31 - 1


# Of an OPEN response: for the proxy, or about this one message and connection (RFC 9110 §7.6.1). Extensions are agreed
# on between the client and the proxy, the key is answered by the proxy.
_PRIVATE: Final = frozenset(
    (
        b"connection",
        b"content-bytes-accepted",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"keep-alive",
        b"keep-alive-interval",
        b"more-events",
        b"sec-websocket-accept",
        b"sec-websocket-extensions",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)


def is_events(headers: Headers) -> bool:
    """Return whether ``headers`` of a response name exactly ``application/websocket-events``, without parameters."""
    return first(headers, b"content-type") == CONTENT_TYPE


def keep_alive_interval(headers: Headers) -> int | None:
    """``Keep-Alive-Interval`` of a response.

    Args:
        headers: Headers of the response.

    Returns:
        Seconds, at least ``KEEP_ALIVE_MIN``; 0 if it turns the keep-alive off (0, negative or no number); ``None`` if
        the header is missing and all stays as it was.
    """
    return parse_interval(first(headers, b"keep-alive-interval"))


def parse_interval(value: bytes | None) -> int | None:
    """Read the value of ``Keep-Alive-Interval``.

    Args:
        value: None for none.

    Returns:
        Seconds, as those of :func:`keep_alive_interval`; ``None`` for no value.
    """
    if value is None:
        return None
    value = value.strip()
    seconds = int(value) if _INTEGER.fullmatch(value) else 0
    return max(seconds, KEEP_ALIVE_MIN) if 0 < seconds <= _MAX_INTERVAL else 0


def event_fields(headers: Headers) -> tuple[bytes | None, bytes | None, bytes | None, bool]:
    """Read the fields of a response with events in one pass: there is a response for each message of a client.

    Args:
        headers: Headers of the response.

    Returns:
        Values of ``Keep-Alive-Interval``, ``Content-Bytes-Accepted`` and ``More-Events``, the first of each; and
        whether there may be ``Set-Meta-*``.
    """
    interval = accepted = more = None
    meta = False
    for name, value in headers:
        size = len(name)
        if size == 19:
            if interval is None and name.lower() == b"keep-alive-interval":
                interval = value
        elif size == 22:
            if accepted is None and name.lower() == b"content-bytes-accepted":
                accepted = value
        elif size == 11 and more is None and name.lower() == b"more-events":
            more = value
        if size > 9 and name[8] == _HYPHEN and name[:9].lower() == _SET_META:
            meta = True
    return interval, accepted, more, meta


def bytes_accepted(value: bytes | None) -> int | None:
    """Read the value of ``Content-Bytes-Accepted``, for :meth:`Outbox.accepted`.

    Args:
        value: None for none.

    Returns:
        The number, ``None`` (all) if it is missing, negative or no number.
    """
    if value is None or not _INTEGER.fullmatch(value := value.strip()):
        return None
    count = int(value)
    return count if count >= 0 else None


def set_meta(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Read the ``Set-Meta-*`` headers of a response.

    Args:
        headers: Headers of the response.

    Returns:
        (name without ``Set-Meta-``, as the backend wrote it; value) in order. An empty value deletes.
    """
    length = len(_SET_META)
    return [
        (name[length:], value) for name, value in headers if len(name) > length and name[:length].lower() == _SET_META
    ]


def update_meta(meta: Headers, headers: Headers, most: int = BOUNDS.meta) -> Headers:
    """Apply the ``Set-Meta-*`` headers of a response.

    Args:
        meta: (name, value) pairs so far; not changed.
        headers: Of the response.
        most: Bytes that all names and values may have.

    Returns:
        The pairs now; ``meta`` itself if nothing was set. Names are compared without regard to letter case.

    Raises:
        EventError: There would be more than ``MAX_META``, or more bytes than ``most``.
    """
    changes = set_meta(headers)
    if not changes:
        return meta
    updated = {name.lower(): (name, value) for name, value in meta}
    for name, value in changes:
        updated.pop(name.lower(), None)
        if value:
            updated[name.lower()] = (name, value)
    if len(updated) > MAX_META:
        raise EventError(f"Set-Meta-* makes {len(updated)} names of meta; at most {MAX_META} are kept")
    size = size_of(updated.values())
    if size > most:
        raise EventError(f"Set-Meta-* makes {size} bytes of meta; at most {most} are allowed (meta_max)")
    return list(updated.values())


def public_headers(headers: Headers) -> Headers:
    """Select the headers of an ``OPEN`` response that go to the client in its 101.

    Args:
        headers: Headers of the response.

    Returns:
        All but those for the proxy (``Set-Meta-*``, ``Keep-Alive-Interval``, …), of the message's framing, and of the
        handshake, which the proxy writes itself.
    """
    length = len(_SET_META)
    return [
        header
        for header in headers
        if (name := header[0].lower()) not in _PRIVATE and not (len(name) > length and name.startswith(_SET_META))
    ]


def grip_extension(headers: Headers) -> bytes | None:
    """Return whether a backend's handshake response turns GRIP on (docs/grip.md §8.2).

    Args:
        headers: Of the 101, or of the response to ``OPEN``.

    Returns:
        The message prefix (``m:`` if none is named; empty means that every message goes to the client), or ``None`` if
        ``Sec-WebSocket-Extensions`` has no ``grip``. An item with a quote that is not closed is skipped.
    """
    for item in split_list(all_of(headers, b"sec-websocket-extensions")):
        try:
            name, params = parse_params(item)
        except ParamsError:
            continue  # as in every list-type header (docs/grip.md §0.1)
        if name.lower() == b"grip":
            prefix = param(params, b"message-prefix")
            return MESSAGE_PREFIX if prefix is None else prefix
    return None
