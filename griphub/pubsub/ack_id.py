"""Ack ids: names of single deliveries, which only the hub can make."""

from __future__ import annotations

import base64
import hmac
import struct
from dataclasses import dataclass
from typing import Final

from griphub.pubsub.proto_json import decode_bytes
from griphub.pubsub.status import ApiError, invalid

__all__ = ["AckId", "AckIds"]

_FORM: Final = struct.Struct(">QQQI")
_MAC: Final = 16
"""Bytes of the code that proves where an id is from."""


@dataclass(frozen=True, slots=True)
class AckId:
    """Delivery that an ack id names.

    Attributes:
        subscription: number of the subscription.
        message: id of the message.
        lease: number of the lease, which is never used again.
        life: number of the process's life in which it was given: leases of an earlier one have ended.
    """

    subscription: int
    message: int
    lease: int
    life: int


class AckIds:
    """Texts of ack ids.

    Args:
        secret: key of their codes.
    """

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"ack ids", "sha256")

    def text(self, ack: AckId) -> str:
        """Return the text of an ack id.

        Args:
            ack: the delivery.
        """
        content = _FORM.pack(ack.subscription, ack.message, ack.lease, ack.life)
        code = hmac.digest(self._key, content, "sha256")[:_MAC]
        return base64.urlsafe_b64encode(content + code).decode().rstrip("=")

    def read(self, text: str) -> AckId:
        """Return the delivery that a text names.

        Args:
            text: from a client.

        Raises:
            ApiError: INVALID_ARGUMENT, the hub has not made it.
        """
        content = decode_bytes(text) if len(text) < 200 else None
        if content is None or len(content) != _FORM.size + _MAC:
            raise _bad(text)
        code = hmac.digest(self._key, content[: _FORM.size], "sha256")[:_MAC]
        if not hmac.compare_digest(code, content[_FORM.size :]):
            raise _bad(text)
        return AckId(*_FORM.unpack_from(content))


def _bad(text: str) -> ApiError:
    return invalid(f"You have passed an invalid ack ID to the service (ack_id={text[:200]}).")
