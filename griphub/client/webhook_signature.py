"""Signatures of callbacks, as Standard Webhooks 1.0.0 has them, verified by a receiver. Sans-I/O; times are handed in.

``webhook-id`` is that of the event, ``webhook-timestamp`` that of the attempt. A signature is ``v1,`` and the base64 of
HMAC-SHA256 over ``id.timestamp.body``; the header has one for each key that signs, separated by spaces.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["TOLERANCE", "BadSignature", "WebhookHeaders", "WebhookKey"]

PREFIX: Final = "whsec_"
"""Beginning of the text of a key."""

SECRET_MIN: Final = 24
"""Least number of bytes of a secret."""

SECRET_MAX: Final = 64
"""Greatest number of bytes of a secret."""

TOLERANCE: Final = 300.0
"""Seconds by which the timestamp of a request may differ from the receiver's clock, both ways."""

SIGNATURES_MAX: Final = 16
"""Greatest number of signatures of a request that are compared."""

_ID: Final = re.compile(r"[!-\-/-~]{1,255}")  # visible ASCII without the dot, which separates the signed parts
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")
_SHOWN: Final = 80  # characters of a wrong value in a message


class BadSignature(ValueError):
    """Request that was not signed with one of the keys, or not at this time: the fault of its sender."""


@dataclass(frozen=True, slots=True)
class WebhookKey:
    """Secret shared by the hub and a receiver.

    Attributes:
        secret: 24 to 64 bytes.

    Raises:
        ValueError: the secret has another length.
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not SECRET_MIN <= len(self.secret) <= SECRET_MAX:
            raise ValueError(
                f"the signing key has {len(self.secret)} bytes: expected {SECRET_MIN} to {SECRET_MAX} random bytes"
            )

    @classmethod
    def generate(cls, random: Callable[[int], bytes]) -> WebhookKey:
        """Make a new key.

        Args:
            random: returns a number of random bytes, as ``secrets.token_bytes``.

        Returns:
            The key, with 32 bytes.
        """
        return cls(random(32))

    @classmethod
    def parse(cls, text: str) -> WebhookKey:
        """Read a key.

        Args:
            text: ``whsec_`` and the base64 of 24 to 64 bytes.

        Returns:
            The key.

        Raises:
            ValueError: the text has another form; the message never has the secret.
        """
        if not text.startswith(PREFIX):
            raise ValueError(f"the signing key does not begin with {PREFIX}: expected {PREFIX} and base64")
        try:
            secret = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"the part of the signing key behind {PREFIX} is no base64") from error
        return cls(secret)

    def sign(self, id: str, timestamp: str, body: bytes) -> str:
        """Return the signature of a request, ``v1,`` and base64.

        Args:
            id: value of ``webhook-id``.
            timestamp: value of ``webhook-timestamp``.
            body: content, byte for byte.
        """
        signed = b"%b.%b.%b" % (id.encode(), timestamp.encode(), body)
        return "v1," + base64.b64encode(hmac.digest(self.secret, signed, "sha256")).decode("ascii")

    def __str__(self) -> str:
        return PREFIX + base64.b64encode(self.secret).decode("ascii")


@dataclass(frozen=True, slots=True)
class WebhookHeaders:
    """Headers that a request is signed by.

    Attributes:
        id: value of ``webhook-id``.
        timestamp: value of ``webhook-timestamp``, seconds since 1970.
        signatures: values of ``webhook-signature``.
    """

    id: str
    timestamp: str
    signatures: tuple[bytes, ...]

    @classmethod
    def of(cls, headers: Mapping[str, str], now_wall: float, tolerance: float = TOLERANCE) -> WebhookHeaders:
        """Return the headers of a request, whose content need not be read if they are wrong.

        Args:
            headers: of the request, whose names are compared without regard to case.
            now_wall: seconds since 1970.
            tolerance: seconds by which the timestamp may differ.

        Raises:
            BadSignature: a header is missing or malformed, or the time is too far away.
        """
        id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        given = headers.get("webhook-signature", "")
        if not given:
            raise BadSignature("the request has no webhook-signature: only the hub's requests are accepted")
        if _ID.fullmatch(id) is None:
            raise BadSignature(f"webhook-id {id[:_SHOWN]!r}: expected 1 to 255 visible ASCII characters without a dot")
        if _TIMESTAMP.fullmatch(timestamp) is None:
            raise BadSignature(f"webhook-timestamp {timestamp[:_SHOWN]!r}: expected seconds since 1970")
        away = int(timestamp) - now_wall
        if not abs(away) <= tolerance:
            raise BadSignature(
                f"webhook-timestamp is {away:+.0f} s from this clock: expected at most {tolerance:.0f} s; compare both"
            )
        texts = given.split(" ", SIGNATURES_MAX)[:SIGNATURES_MAX]
        return cls(id, timestamp, tuple(text.encode("utf-8", "replace") for text in texts))

    def verify(self, keys: Sequence[WebhookKey], body: bytes) -> None:
        """Compare the signatures with those of the content; the duration does not depend on the secret.

        Args:
            keys: keys of the receiver.
            body: content of the request, byte for byte.

        Raises:
            BadSignature: no signature is right.
        """
        right = False
        for key in keys:
            expected = key.sign(self.id, self.timestamp, body).encode("ascii")
            for given in self.signatures:
                # No early end: the number of comparisons is that of the signatures, whichever is right.
                right |= hmac.compare_digest(expected, given)
        if not right:
            raise BadSignature("webhook-signature has no signature of this body with the key of this receiver")
