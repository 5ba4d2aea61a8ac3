"""Signatures of callbacks, as Standard Webhooks 1.0.0 has them: made by the hub, verified by a receiver.

``webhook-id`` is that of the event, equal in all attempts, ``webhook-timestamp`` that of the attempt. A signature is
``v1,`` and the base64 of HMAC-SHA256 over ``id.timestamp.body``; the header has one for each active key, separated by
spaces, so that a receiver may change its key at any moment while two of them are active.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from gripproxy.grip.errors import ClientError

__all__ = [
    "ID_HEADER",
    "KEYS_MAX",
    "SECRET_MAX",
    "SECRET_MIN",
    "SIGNATURE_HEADER",
    "TIMESTAMP_HEADER",
    "TOLERANCE",
    "BadSignature",
    "BadSigningKey",
    "Signer",
    "SigningKey",
    "verify",
]

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"

PREFIX: Final = "whsec_"
"""Beginning of the text of a secret key."""

SECRET_MIN: Final = 24
"""Least number of bytes of a secret (Standard Webhooks, "Signature scheme")."""

SECRET_MAX: Final = 64
"""Greatest number of bytes of a secret."""

KEYS_MAX: Final = 4
"""Greatest number of keys of a signer, active or not: each signs the whole body of each attempt."""

TOLERANCE: Final = 300.0
"""Seconds by which the timestamp of a request may differ from the receiver's clock, both ways."""

SIGNATURES_MAX: Final = 16
"""Greatest number of signatures of a request that a receiver compares."""

_ID: Final = re.compile(r"[!-\-/-~]{1,255}")  # visible ASCII without the dot, which separates the signed parts
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")


class BadSigningKey(ClientError, ValueError):
    """Text that is no signing key, or keys that cannot be used together; the message never has the secret."""


class BadSignature(ClientError):
    """Request that was not signed with one of the keys, or not at this time."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """Secret shared by the hub and a receiver.

    Attributes:
        secret: 24 to 64 bytes.
        until: wall time from which on the key signs no more, in seconds since 1970; None for no end.

    Raises:
        BadSigningKey: the secret has another length.
    """

    secret: bytes = field(repr=False)
    until: float | None = None

    def __post_init__(self) -> None:
        if not SECRET_MIN <= len(self.secret) <= SECRET_MAX:
            raise BadSigningKey(
                f"the signing key has {len(self.secret)} bytes: expected {SECRET_MIN} to {SECRET_MAX} random bytes"
            )

    @classmethod
    def parse(cls, text: str, until: float | None = None) -> SigningKey:
        """Read a key.

        Args:
            text: ``whsec_`` and the base64 of 24 to 64 bytes.
            until: wall time of its end, in seconds since 1970; None for no end.

        Returns:
            The key.

        Raises:
            BadSigningKey: the text has another form; the message names the fault without the secret.
        """
        if not text.startswith(PREFIX):
            raise BadSigningKey(f"the signing key does not begin with {PREFIX}: expected {PREFIX} and base64")
        coded = text.removeprefix(PREFIX)
        if len(coded) > 4 * SECRET_MAX:
            raise BadSigningKey(f"the signing key has {len(text)} characters: expected at most {SECRET_MAX} bytes")
        try:
            secret = base64.b64decode(coded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadSigningKey(f"the part of the signing key behind {PREFIX} is no base64") from error
        return cls(secret, until)

    @classmethod
    def generate(cls, random: Callable[[int], bytes], until: float | None = None) -> SigningKey:
        """Make a new key.

        Args:
            random: returns a number of random bytes, as ``secrets.token_bytes``.
            until: wall time of its end, in seconds since 1970; None for no end.

        Returns:
            The key, with 32 bytes.
        """
        return cls(random(32), until)

    def active(self, now_wall: float) -> bool:
        """Return whether the key signs.

        Args:
            now_wall: seconds since 1970.
        """
        return self.until is None or now_wall < self.until

    def sign(self, signed: bytes) -> str:
        """Return the signature of bytes, ``v1,`` and base64.

        Args:
            signed: ``id.timestamp.body``.
        """
        return "v1," + base64.b64encode(hmac.digest(self.secret, signed, "sha256")).decode("ascii")

    def __str__(self) -> str:
        return PREFIX + base64.b64encode(self.secret).decode("ascii")


class Signer:
    """Signs the requests of one subscription.

    Args:
        keys: at most ``KEYS_MAX``, the newest first; at least one without an end, so that no request is unsigned.

    Raises:
        BadSigningKey: there are too many keys, or all of them end.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        if len(keys) > KEYS_MAX:
            raise BadSigningKey(f"{len(keys)} signing keys: expected at most {KEYS_MAX}")
        if all(key.until is not None for key in keys):
            raise BadSigningKey("all signing keys have an end: expected at least one without")
        self._keys = tuple(keys)

    def headers(self, id: str, now_wall: float, body: bytes) -> list[tuple[str, str]]:
        """Return the three headers of an attempt.

        Args:
            id: of the event: 1 to 255 visible ASCII characters without a dot.
            now_wall: seconds since 1970.
            body: content of the request.

        Returns:
            Names and values.

        Raises:
            ValueError: the id has other characters.
        """
        if _ID.fullmatch(id) is None:
            raise ValueError(f"{id[:80]!r} is no webhook-id: expected 1 to 255 visible ASCII characters without a dot")
        timestamp = str(int(now_wall))
        signed = _signed(id, timestamp, body)
        signatures = " ".join(key.sign(signed) for key in self._keys if key.active(now_wall))
        return [(ID_HEADER, id), (TIMESTAMP_HEADER, timestamp), (SIGNATURE_HEADER, signatures)]


def verify(
    keys: Sequence[SigningKey],
    id: str,
    timestamp: str,
    signatures: str,
    body: bytes,
    now_wall: float,
    tolerance: float = TOLERANCE,
) -> None:
    """Compare the signature of a received request; its duration does not depend on the secret.

    Args:
        keys: keys of the receiver; those with an end in the past do not count.
        id: value of ``webhook-id``.
        timestamp: value of ``webhook-timestamp``, seconds since 1970.
        signatures: value of ``webhook-signature``.
        body: content of the request, byte for byte.
        now_wall: seconds since 1970.
        tolerance: seconds by which the timestamp may differ.

    Raises:
        BadSignature: a header is malformed, the time is too far away, or no signature is right.
    """
    if _ID.fullmatch(id) is None:
        raise BadSignature(f"webhook-id {id[:80]!r}: expected 1 to 255 visible ASCII characters without a dot")
    if _TIMESTAMP.fullmatch(timestamp) is None:
        raise BadSignature(f"webhook-timestamp {timestamp[:80]!r}: expected seconds since 1970")
    away = int(timestamp) - now_wall
    if not math.fabs(away) <= tolerance:
        raise BadSignature(f"webhook-timestamp is {away:+.0f} s from this clock: expected at most {tolerance:.0f} s")
    given = [one.encode("utf-8", "replace") for one in signatures.split(" ", SIGNATURES_MAX)[:SIGNATURES_MAX]]
    signed = _signed(id, timestamp, body)
    right = False
    for key in keys:
        if key.active(now_wall):
            expected = key.sign(signed).encode("ascii")
            for one in given:
                # No early end: the number of comparisons is that of the signatures, whichever is right.
                right |= hmac.compare_digest(expected, one)
    if not right:
        raise BadSignature("webhook-signature has no signature of this body with an active key")


def _signed(id: str, timestamp: str, body: bytes) -> bytes:
    return b"%b.%b.%b" % (id.encode("ascii"), timestamp.encode("ascii"), body)
