"""Origin of a request: ``X-Forwarded-For`` and ``CDN-Loop`` (docs/grip.md §2.2)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from gripproxy.grip.errors import OperatorError
from gripproxy.grip.headers import split_list

__all__ = ["ForwardedFor", "ForwardedForError", "cdn_loop", "logical_peer"]

_MAX_TRUNCATE: Final = 1000  # a request head has no room for more addresses

_MAX_ADDRESS: Final = 45  # the longest form of an IPv6 address; bounds the cache below


class ForwardedForError(OperatorError, ValueError):
    """The operator wrote an ``x_forwarded_for`` rule that has no meaning; the text names the part."""


class ForwardedFor:
    """Treatment of ``X-Forwarded-For``: a rule of config.

    Args:
        truncate: How many of the client's values to keep, from the end; ``None`` for all.
        append: Whether to add the peer's address.
    """

    __slots__ = ("append", "truncate")

    def __init__(self, truncate: int | None = None, append: bool = False) -> None:
        self.truncate = truncate
        self.append = append

    def __repr__(self) -> str:
        return f"ForwardedFor(truncate={self.truncate!r}, append={self.append!r})"

    def __bool__(self) -> bool:
        """Return whether there is anything to do; if not, the client's headers pass through as they are."""
        return self.append or self.truncate is not None

    @classmethod
    def parse(cls, text: str | Iterable[str]) -> ForwardedFor:
        """Return a rule.

        Args:
            text: Parts separated by commas, or the parts: ``truncate:N`` and ``append``. Empty for no rule.

        Raises:
            ForwardedForError: A part is neither.
        """
        truncate: int | None = None
        append = False
        for part in text.split(",") if isinstance(text, str) else text:
            part = part.strip()
            if part == "append":
                append = True
            elif part.startswith("truncate:"):
                number = part[9:].strip()
                if not (number.isascii() and number.isdigit() and len(number) <= 4 and int(number) <= _MAX_TRUNCATE):
                    raise ForwardedForError(f"truncate: needs a number from 0 to {_MAX_TRUNCATE}, not {number!r}")
                truncate = int(number)
            elif part:
                raise ForwardedForError(f"expected truncate:N or append, not {part!r}")
        return cls(truncate, append)

    def apply(self, values: list[bytes], peer: bytes) -> bytes | None:
        """The value to send to the backend.

        Args:
            values: Of all ``X-Forwarded-For`` headers of the client, in order.
            peer: The address the connection comes from, empty if it has none (unix socket).

        Returns:
            The one value that replaces them, ``None`` to send no such header.
        """
        if not values and not self.append:
            return None
        addresses = split_list(values) if values else []
        if self.truncate is not None:
            addresses = addresses[-self.truncate :] if self.truncate else []
        if self.append and peer:
            addresses.append(peer)
        return b", ".join(addresses) or None


def logical_peer(values: list[bytes], peer: bytes, rule: ForwardedFor) -> bytes:
    """The address to name in logs and statistics.

    With any rule but ``truncate:0`` a client can choose it, so it must not decide anything.

    Args:
        values: Of all ``X-Forwarded-For`` headers of the client, in order.
        peer: The address the connection comes from.
        rule: The rule this client comes under.

    Returns:
        The first forwarded address if it is an IP address and the rule keeps any, else the peer.
    """
    if values and rule.truncate != 0:
        addresses = split_list(values[:1]) or split_list(values)
        if addresses and len(addresses[0]) <= _MAX_ADDRESS and _is_address(addresses[0]):
            return addresses[0]
    return peer


@lru_cache(1024)
def _is_address(text: bytes) -> bool:
    if b"%" in text:  # a zone could carry any text into a log
        return False
    try:
        ipaddress.ip_address(text.decode("ascii"))
    except ValueError:
        return False
    return True


def cdn_loop(values: list[bytes], token: bytes) -> bytes:
    """The ``CDN-Loop`` value to send on (RFC 8586 §2).

    Args:
        values: Of all ``CDN-Loop`` headers of the client, in order.
        token: Our own ``cdn-id``.

    Returns:
        The values present, and the token.
    """
    return b", ".join([*split_list(values), token])
