"""Ranges of keys as parameters and in the names of channels. Keys are ordered by their bytes in UTF-8.

The order of Python's strings, by code points, is the order of their bytes in UTF-8.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from urllib.parse import quote

from griphub.store.interface import WHOLE, KeyRange
from griphub.topics.event_text import Representation
from gripproxy.grip.errors import ClientError

__all__ = [
    "BOUND_MAX",
    "BadChannel",
    "BadRange",
    "bounds_query",
    "channel_name",
    "contains",
    "key_range",
    "parse_channel",
]

BOUND_MAX: Final = 255
"""Greatest length of a bound, in bytes of UTF-8; a final NUL of ``high`` is not counted."""

OPEN: Final = "*"
"""End of a range without bound, in the name of a channel."""

SHOWN: Final = 80
"""Characters of a refused value that a message shows."""

_CHANNEL: Final = re.compile(
    r"(0|[1-9][0-9]{0,18})/([a-z]{1,8})/(?:(\*|[0-9A-Za-z_-]{1,342})~(\*|[0-9A-Za-z_-]{1,342}))?"
)


class BadRange(ClientError, ValueError):
    """Bounds that make no range of keys."""


class BadChannel(ClientError, ValueError):
    """Name of a channel that the hub did not give out."""


def key_range(low: str | None, high: str | None) -> KeyRange:
    """Return the range that two parameters name.

    Args:
        low: least key; None for no bound.
        high: first key beyond; None for no bound. A NUL behind a key makes the range of that single key.

    Returns:
        The range; without both bounds the whole topic, events without key included.

    Raises:
        BadRange: a bound is empty, too long or no text, or no key is between them.
    """
    if low is None and high is None:
        return WHOLE
    if low is not None:
        _check(low, "low", low)
    if high is not None:
        _check(high, "high", high.removesuffix("\0"))
    if low is not None and high is not None and low >= high:
        raise BadRange(
            f"no key is between low={low[:SHOWN]!r} and high={high[:SHOWN]!r}: low must be below high in UTF-8 bytes,"
            " and high is not part of the range"
        )
    return KeyRange(low, high)


def _check(text: str, name: str, counted: str) -> None:
    if not counted:
        raise BadRange(f"{name}={text!r} is empty: leave {name} out for no bound")
    try:
        size = len(counted.encode())
    except UnicodeEncodeError as error:
        raise BadRange(f"{name}={text[:SHOWN]!r} has half of a surrogate pair: expected valid Unicode") from error
    if size > BOUND_MAX:
        raise BadRange(f"{name}={text[:SHOWN]!r}… has {size} bytes: at most {BOUND_MAX} are allowed")
    if "\0" in counted:
        raise BadRange(f"{name}={text[:SHOWN]!r} has a NUL: only high may end in one, for the range of a single key")


def contains(keys: KeyRange, key: str | None) -> bool:
    """Return whether an event lies in a range.

    Args:
        keys: the range.
        key: of the event; None for none, which only the whole topic has.
    """
    if key is None:
        return not keys.keyed
    return (keys.low is None or keys.low <= key) and (keys.high is None or key < keys.high)


def bounds_query(keys: KeyRange, before: str = "&") -> str:
    """Return the parameters that name a range; nothing for the whole topic.

    Args:
        keys: the range.
        before: separator before the first parameter.
    """
    bounds = (("low", keys.low), ("high", keys.high))
    text = "&".join(f"{name}={quote(bound, safe='')}" for name, bound in bounds if bound is not None)
    return f"{before}{text}" if text else ""


def channel_name(prefix: str, number: int, representation: str, keys: KeyRange) -> str:
    """Return the name of the channel of a range: equal ranges have equal names.

    Args:
        prefix: first part of the names of all channels.
        number: of the topic.
        representation: value of a ``Representation``.
        keys: the range.
    """
    text = f"{_encoded(keys.low)}~{_encoded(keys.high)}" if keys.keyed else ""
    return f"{prefix}{number}/{representation}/{text}"


def _encoded(bound: str | None) -> str:
    return OPEN if bound is None else urlsafe_b64encode(bound.encode()).rstrip(b"=").decode()


def parse_channel(prefix: str, name: str) -> tuple[int, Representation, KeyRange]:
    """Return the parts of a channel's name.

    Args:
        prefix: first part of the names of all channels.
        name: name as ``channel_name`` made it.

    Returns:
        Number of the topic, representation and range.

    Raises:
        BadChannel: ``channel_name`` makes no such name.
    """
    match = _CHANNEL.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
    try:
        if match is None:
            raise ValueError("it has another form")
        representation = Representation(match[2])
        number = int(match[1])
        keys = WHOLE if match[3] is None else _keys(match[3], match[4])
        if channel_name(prefix, number, match[2], keys) != name:
            raise ValueError("its range is encoded in another way")
    except ValueError as error:
        raise BadChannel(
            f"{name[:SHOWN]!r} is no channel of the hub: expected {prefix}NUMBER/REPRESENTATION/RANGE; {error}"
        ) from error
    return number, representation, keys


def _keys(low: str, high: str) -> KeyRange:
    if low == OPEN and high == OPEN:
        return KeyRange()
    return key_range(_decoded(low), _decoded(high))


def _decoded(text: str) -> str | None:
    """Return a bound of a channel's name; UnicodeDecodeError and binascii.Error are ValueErrors."""
    if text == OPEN:
        return None
    if len(text) % 4 == 1:
        raise binascii.Error("a bound is no base64url")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
