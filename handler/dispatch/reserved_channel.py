"""Reserved channels: those that only some publishers may use (``reserved_prefix``, docs/grip.md §5.9)."""

from __future__ import annotations

from gripproxy.grip.errors import PublisherError

__all__ = ["ReservedChannel"]

_SHOWN = 80  # bytes of a channel in a message


class ReservedChannel(PublisherError, ValueError):
    """An item is on a reserved channel, and its publisher may not use these: the publisher's fault.

    Args:
        channel: of the item.
        reserved: ``reserved_prefix``.
    """

    def __init__(self, channel: bytes, reserved: bytes) -> None:
        name, prefix = (text[:_SHOWN].decode("utf-8", "replace") for text in (channel, reserved))
        super().__init__(
            f"channel {name!r} begins with '{prefix}', which is reserved: publish over HTTP with reserved_key, or on "
            "another channel"
        )
