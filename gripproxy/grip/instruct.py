"""Instruct: the orders of a backend about a request, in ``Grip-*`` headers or an ``application/grip-instruct`` body.

docs/grip.md §3. Records, and the values that the header form and the JSON form have in common; ``instruct_parser``
reads an instruct. :func:`is_grip` decides whether a response carries one at all.
"""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gripproxy.grip.errors import BackendError
from gripproxy.grip.headers import Headers
from gripproxy.grip.links import NextLink
from gripproxy.grip.response import Response

__all__ = [
    "HOLD_TIMEOUT",
    "HOLD_TIMEOUT_MIN",
    "INSTRUCT_TYPE",
    "KEEP_ALIVE_TIMEOUT",
    "MAX_FILTERS",
    "ChannelSpec",
    "Instruct",
    "InstructError",
    "KeepAlive",
    "Mode",
    "is_grip",
]


Mode: TypeAlias = Literal["response", "stream"]


INSTRUCT_TYPE: Final = b"application/grip-instruct"


HOLD_TIMEOUT: Final = 55
"""Seconds a response hold lasts if the backend names no timeout."""


HOLD_TIMEOUT_MIN: Final = 5
"""A shorter hold timeout is raised to this: the client would otherwise poll in a tight loop."""


KEEP_ALIVE_TIMEOUT: Final = 55
"""Seconds between keep-alives if the backend names no timeout."""


MAX_FILTERS: Final = 5
"""Filters allowed on one channel; each costs time on every item of it."""


_HYPHEN: Final = ord("-")
INSTRUCT_TYPE_LENGTH: Final = len(INSTRUCT_TYPE)


INT_MAX: Final = 2**31 - 1


INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,10}")


_BASE64_JUNK: Final = re.compile(rb"[^A-Za-z0-9+/]")


TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


# How a message is framed, and over which connection, is decided by its sender (RFC 9112 §6, RFC 9110 §7.6.1).
FRAMING: Final = frozenset((b"content-length", b"connection", b"keep-alive", b"transfer-encoding"))


class InstructError(BackendError, ValueError):
    """The backend's instruct cannot be obeyed.

    Args:
        detail: The fault, in the words of docs/grip.md §3.7; shown to the client in debug mode.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """A channel a hold asks for.

    Attributes:
        name: As the backend names it, without the route's prefix.
        prev_id: Id of the last item the backend has already given to this client, ``None`` if it keeps no ids. Only the
            JSON form can name an empty id; an empty ``prev-id`` of a header is none.
        filters: Filter names in order, unknown ones too, at most ``MAX_FILTERS``.
    """

    name: bytes
    prev_id: bytes | None = None
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Data to send on a quiet stream.

    Attributes:
        data: Never empty: an empty chunk would end the response.
        mode: ``idle`` counts from the last write, ``interval`` from the last keep-alive.
        timeout: Seconds, at least 1.
    """

    data: bytes
    mode: Literal["idle", "interval"] = "idle"
    timeout: int = KEEP_ALIVE_TIMEOUT


@dataclass(slots=True)
class Instruct:
    """An instruct as parsed.

    Attributes:
        mode: Kind of hold, ``None`` for no hold.
        channels: In order; a hold may have none.
        timeout: Seconds a response hold lasts, at least ``HOLD_TIMEOUT_MIN``.
        keep_alive: For streams, ``None`` if the stream sends nothing by itself.
        meta: Connection meta for filters.
        next: Where the next data is, ``None`` if the backend named no next link.
        gone: The URI to call when the session ends (perhaps relative), or ``None``.
        response: Response for the client now (stream) or at the timeout (response): ``Grip-*`` and framing headers are
            gone, ``Grip-Status`` and ``Grip-Expose-Headers`` applied.
    """

    mode: Mode | None
    channels: tuple[ChannelSpec, ...]
    timeout: int
    keep_alive: KeepAlive | None
    meta: dict[bytes, bytes]
    next: NextLink | None
    gone: bytes | None
    response: Response


def is_grip(headers: Headers) -> bool:
    """Return whether a response carries GRIP data (docs/grip.md §2.5).

    Args:
        headers: The headers of a backend's response.

    Returns:
        Whether any name begins with ``Grip-`` or the media type is ``application/grip-instruct``.
    """
    for name, value in headers:
        # Runs for every header of every response: two tests of a byte come before anything that makes an object.
        if len(name) > 4:
            if name[4] == _HYPHEN:
                if name[:4].lower() == b"grip":
                    return True
            elif (
                len(name) == 12
                and len(value) >= INSTRUCT_TYPE_LENGTH
                and name.lower() == b"content-type"
                and is_instruct_type(value)
            ):
                return True
    return False


def is_instruct_type(content_type: bytes) -> bool:
    """Return whether ``content_type`` is that of an instruct, in any letter case (RFC 9110 §8.3.1)."""
    return content_type.partition(b";")[0].strip().lower() == INSTRUCT_TYPE


def to_int(value: bytes) -> int | None:
    """Return the integer in ``value``; None if it is none of 32 bits."""
    value = value.strip()
    # int() alone would take underscores, and any number of digits.
    if not INTEGER.fullmatch(value):
        return None
    number = int(value)
    return number if -INT_MAX <= number <= INT_MAX else None


def check_filters(channel: ChannelSpec) -> ChannelSpec:
    """Return the channel.

    Args:
        channel: The channel.

    Raises:
        InstructError: it has more than MAX_FILTERS filters.
    """
    if len(channel.filters) > MAX_FILTERS:
        raise InstructError(f"too many filters for channel '{shown(channel.name)}'")
    return channel


def decode_base64(text: bytes) -> bytes:
    """Return the decodable part of ``text``, as Pushpin does: foreign characters and a cut-off end are dropped."""
    digits = _BASE64_JUNK.sub(b"", text)
    if len(digits) % 4 == 1:
        digits = digits[:-1]
    return binascii.a2b_base64(digits + b"=" * (-len(digits) % 4))


def shown(value: bytes) -> str:
    """Return ``value`` as text for messages."""
    return value.decode("utf-8", "replace")
