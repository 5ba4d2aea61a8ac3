"""Close frames of WebSockets: codes and payload (RFC 6455 §5.5.1, §7.4). Sans-I/O."""

from __future__ import annotations

from typing import Final

from gripproxy.grip.frames import MAX_CONTROL, ProtocolError
from gripproxy.grip.utf8 import is_utf8

__all__ = ["close_payload", "is_close_code", "parse_close"]


# RFC 6455 §7.4.1 and the IANA registry (1012 to 1014). 1004, 1005, 1006 and 1015 are reserved and never on the wire.
_CLOSE_CODES: Final = frozenset((*range(1000, 1004), *range(1007, 1015)))


def is_close_code(code: int) -> bool:
    """Return whether a close code may be on the wire (RFC 6455 §7.4): registered by IANA, or 3000 to 4999."""
    return code in _CLOSE_CODES or 3000 <= code <= 4999


def close_payload(code: int | None, reason: bytes = b"") -> bytes:
    """The payload of a close frame (RFC 6455 §5.5.1).

    Args:
        code: ``None`` for none. A code that must not be on the wire (§7.4: 1005, 1006, 1015, unassigned ones, 0) counts
            as none, since the receiver would have to answer it with an error instead of closing.
        reason: UTF-8; cut to 123 bytes at a character, and left out without a code. Bytes that are not UTF-8 are
            replaced (U+FFFD).

    Returns:
        At most 125 bytes.
    """
    if code is None or not is_close_code(code):
        return b""
    if not reason.isascii():
        reason = reason.decode("utf-8", "replace").encode()
    if len(reason) > MAX_CONTROL - 2:
        reason = reason[: MAX_CONTROL - 2].decode("utf-8", "ignore").encode()
    return code.to_bytes(2, "big") + reason


def parse_close(payload: bytes) -> tuple[int | None, bytes]:
    """Read the payload of a close frame (RFC 6455 §5.5.1, §7.4).

    Args:
        payload: Unmasked.

    Returns:
        The code (``None`` if there is none, which an API shows as 1005) and the reason in UTF-8.

    Raises:
        ProtocolError: 1002 for one byte or a code that must not be on the wire, 1007 for a reason that is not UTF-8.
    """
    if not payload:
        return None, b""
    if len(payload) == 1:
        raise ProtocolError(1002, "close frame with 1 byte; expected none, or a code of 2 bytes")
    code = payload[0] << 8 | payload[1]
    if not is_close_code(code):
        raise ProtocolError(1002, f"close code {code} must not be used")
    reason = payload[2:]
    if not is_utf8(reason):
        raise ProtocolError(1007, "close reason is not UTF-8")
    return code, reason
