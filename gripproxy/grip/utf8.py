"""UTF-8 of text messages (RFC 6455 §8.1)."""

from __future__ import annotations

__all__ = ["is_utf8"]


def is_utf8(data: bytes) -> bool:
    """Return whether ``data`` is well-formed UTF-8 (RFC 3629)."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
