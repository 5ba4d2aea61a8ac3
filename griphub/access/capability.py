"""Capabilities: signed rights of links.

A proxy that follows a link sends no header of the client (docs/grip.md §6.6), so the link itself states the range that
it gives, until when, and under which access number of the topic. Equal capabilities have equal texts: clients with
equal rights have equal links, which the proxy follows once for all of them.

A text is base64url of the packed fields and a truncated HMAC-SHA256 of them.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gripproxy.grip.errors import ClientError

__all__ = ["CAPABILITY_MAX", "EXPIRY_STEP", "BadCapability", "Capability", "Mode", "read", "rounded_expiry", "sign"]

Mode: TypeAlias = Literal["follow", "watch", "snapshot"]

CAPABILITY_MAX: Final = 2560
"""Greatest length of a capability's text, in bytes: that of one with all fields at their bounds, rounded up."""

EXPIRY_STEP: Final = 600
"""Seconds between two times at which capabilities expire."""

_PURPOSE: Final = "link"
_VERSION: Final = 1
_MAC_SIZE: Final = 16  # bytes; 128 bits, as RFC 2104 §5 asks for at least
_MODES: Final[tuple[Mode, ...]] = ("follow", "watch", "snapshot")
_NUMBER_MAX: Final = 2**63 - 1
_REPRESENTATION_MAX: Final = 16  # bytes
_BOUND_MAX: Final = 256  # bytes: a bound of 255, and the NUL that ends the range of a single key
_KEY_MAX: Final = 1024  # bytes
_KEYS_KEPT: Final = 16  # derived keys: a process has one secret and few purposes
_TEXT: Final = re.compile(r"[A-Za-z0-9_-]+")

_LOW, _HIGH, _KEYED, _POSITION, _AFTER_KEY, _TRUNCATED, _TURN = 1, 2, 4, 8, 16, 32, 64


class BadCapability(ClientError, ValueError):
    """Text that this hub has not signed."""


@dataclass(frozen=True, slots=True)
class Capability:
    """Right to read one range of one topic, as a link carries it.

    Attributes:
        mode: events; events and progress; or pages of a snapshot.
        topic: number of the topic.
        access: access number of the topic when the link was made.
        representation: form of the contents, at most 16 bytes.
        keys: least key or None, first key beyond or None, and whether events without key are left out.
        expires: seconds since 1970; 0 for never.
        position: id behind which a page begins, or version of a snapshot; None for a link that is shared.
        until: id at which the reading ends; 0 for none.
        limit: number of events that are still to be given; 0 for no limit.
        truncated: whether events that are not retained may be left out.
        after_key: key behind which a page of a snapshot begins; None for the first page.
        turn: number of the owner in whose turn the page is read; None for a link that is shared.
    """

    mode: Mode
    topic: int
    access: int
    representation: str
    keys: tuple[str | None, str | None, bool]
    expires: int
    position: int | None = None
    until: int = 0
    limit: int = 0
    truncated: bool = False
    after_key: str | None = None
    turn: int | None = None

    def problem(self, now: float, access: int) -> Literal["expired", "revoked"] | None:
        """Return the reason why the capability does not count any more; None if it does.

        Args:
            now: seconds since 1970.
            access: the topic's access number. A lower one than the capability's belongs to a restored store, which may
                have lost a revocation.
        """
        if access != self.access:
            return "revoked"
        if self.expires and now >= self.expires:
            return "expired"
        return None


def rounded_expiry(now: float, ttl: float, rights_end: int = 0) -> int:
    """Return the time at which a link expires, rounded up to a multiple of ``EXPIRY_STEP``.

    Links of equal rights that are made within one step are equal. A link may outlive the rights by one step.

    Args:
        now: seconds since 1970.
        ttl: seconds for which the link is to be of use.
        rights_end: time at which the rights end, in seconds since 1970; 0 for never.

    Returns:
        Seconds since 1970.
    """
    end = min(now + ttl, rights_end) if rights_end else now + ttl
    return -int(-end // EXPIRY_STEP) * EXPIRY_STEP


def sign(capability: Capability, secret: bytes, purpose: str = _PURPOSE) -> str:
    """Return the text of a capability, for a segment of a path.

    Args:
        capability: equal ones give equal texts.
        secret: that of the store, so that links outlive a restart.
        purpose: use of the text; one that is signed for another purpose is refused.

    Returns:
        At most ``CAPABILITY_MAX`` bytes of ``A-Z a-z 0-9 _ -``.

    Raises:
        ValueError: a field is beyond its bound.
    """
    packed = _pack(capability)
    return _armoured(packed + _mac(packed, secret, purpose))


def read(text: str, secret: bytes, purpose: str = _PURPOSE) -> Capability:
    """Return the capability of a text. Expiry and access number are the caller's to check: ``Capability.problem``.

    Args:
        text: segment of a path, which any peer may have written.
        secret: that of the store.
        purpose: use of the text.

    Raises:
        BadCapability: it was not signed with the secret for this purpose, or by another version of the hub.
    """
    if len(text) > CAPABILITY_MAX:
        raise BadCapability(f"the link has {len(text)} bytes: expected at most {CAPABILITY_MAX}")
    if not _TEXT.fullmatch(text) or len(text) % 4 == 1:
        raise BadCapability(f"{text[:80]!r} is no link of this hub: expected base64url")
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    packed, mac = raw[:-_MAC_SIZE], raw[-_MAC_SIZE:]
    # The last character has bits that mean nothing: without the comparison a link would have several texts.
    if not hmac.compare_digest(mac, _mac(packed, secret, purpose)) or _armoured(raw) != text:
        raise BadCapability("the link was not signed by this hub, or was altered: expected one that an answer gave")
    try:
        return _unpack(packed)
    except (IndexError, ValueError) as error:
        raise BadCapability("the link was made by another version of the hub: connect again") from error


def _armoured(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@functools.lru_cache(maxsize=_KEYS_KEPT)
def _derived(secret: bytes, purpose: str) -> bytes:
    """Return the key for one purpose: a signature for one is worth nothing for another."""
    return hmac.digest(secret, b"griphub/capability/" + purpose.encode(), hashlib.sha256)


def _mac(packed: bytes, secret: bytes, purpose: str) -> bytes:
    return hmac.digest(_derived(secret, purpose), packed, hashlib.sha256)[:_MAC_SIZE]


# --- packed fields


def _pack(capability: Capability) -> bytes:
    low, high, keyed = capability.keys
    optional = (
        (_LOW, low is not None),
        (_HIGH, high is not None),
        (_KEYED, keyed),
        (_POSITION, capability.position is not None),
        (_AFTER_KEY, capability.after_key is not None),
        (_TRUNCATED, capability.truncated),
        (_TURN, capability.turn is not None),
    )
    packed = bytearray((_VERSION, _MODES.index(capability.mode), sum(flag for flag, there in optional if there)))
    numbers = (
        ("topic", capability.topic),
        ("access", capability.access),
        ("expires", capability.expires),
        ("until", capability.until),
        ("limit", capability.limit),
        ("position", capability.position),
        ("turn", capability.turn),
    )
    for name, number in numbers:
        if number is not None:
            _put_number(packed, name, number)
    _put_text(packed, "representation", capability.representation, _REPRESENTATION_MAX)
    bounded = (("low", low, _BOUND_MAX), ("high", high, _BOUND_MAX), ("after_key", capability.after_key, _KEY_MAX))
    for name, text, most in bounded:
        if text is not None:
            _put_text(packed, name, text, most)
    return bytes(packed)


def _put_number(packed: bytearray, name: str, number: int) -> None:
    if not 0 <= number <= _NUMBER_MAX:
        raise ValueError(f"{name} is {number}: expected 0 to {_NUMBER_MAX}")
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)


def _put_text(packed: bytearray, name: str, text: str, most: int) -> None:
    data = text.encode()
    if len(data) > most:
        raise ValueError(f"{name} has {len(data)} bytes: expected at most {most}")
    _put_number(packed, name, len(data))
    packed += data


class _Unpacking:
    """Reader of packed fields."""

    __slots__ = ("_at", "_packed")

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._at = 0

    def byte(self) -> int:
        value = self._packed[self._at]
        self._at += 1
        return value

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text(self) -> str:
        size = self.number()
        data = self._packed[self._at : self._at + size]
        if len(data) < size:
            raise ValueError("a text is cut off")
        self._at += size
        return data.decode()

    def end(self) -> None:
        if self._at != len(self._packed):
            raise ValueError("bytes follow the last field")


def _unpack(packed: bytes) -> Capability:
    fields = _Unpacking(packed)
    if fields.byte() != _VERSION:
        raise ValueError("another version")
    mode, flags = _MODES[fields.byte()], fields.byte()
    topic, access, expires, until, limit = (fields.number() for _ in range(5))
    position, turn = (fields.number() if flags & flag else None for flag in (_POSITION, _TURN))
    representation = fields.text()
    low, high, after_key = (fields.text() if flags & flag else None for flag in (_LOW, _HIGH, _AFTER_KEY))
    fields.end()
    return Capability(
        mode=mode,
        topic=topic,
        access=access,
        representation=representation,
        keys=(low, high, bool(flags & _KEYED)),
        expires=expires,
        position=position,
        until=until,
        limit=limit,
        truncated=bool(flags & _TRUNCATED),
        after_key=after_key,
        turn=turn,
    )
