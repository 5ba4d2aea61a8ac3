"""How long the names, ids and values may be that publishers and backends choose, in bytes, and which are reserved.

Channels, ids and meta are kept for as long as a client is held or an id is remembered, once for each of very many: so
each has a bound of its own, and is refused where it arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, Self

import orjson

from .item import Item, ItemError
from .json_patch import PATCH_MAX

__all__ = [
    "BOUNDS",
    "META_NAMES_MAX",
    "RESERVED_FAULT",
    "Bounds",
    "Settings",
    "memory_of_item",
    "size_of",
    "size_of_item",
]

META_NAMES_MAX: Final = 256
"""Values that meta may have: each costs some 200 bytes besides its own."""

_ENTRY_MIN: Final = 4
"""Bytes that one value of meta has in a message at least."""


class Settings(Protocol):
    """The keys of the section ``[handler]`` that are bounds, in bytes."""

    @property
    def channel_max(self) -> int:
        """Bytes of a channel's name."""
        ...

    @property
    def id_max(self) -> int:
        """Bytes of an id."""
        ...

    @property
    def meta_max(self) -> int:
        """Bytes of all names and values of meta."""
        ...

    @property
    def item_max(self) -> int:
        """Bytes of an item with all its formats."""
        ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """The greatest lengths in bytes: of a channel's name, of an id or ``prev-id``, of all names and values of meta
    together, and of an item with all its formats; and the names of channels that are reserved."""

    channel: int = 1024
    id: int = 1024
    meta: int = 64 * 1024
    item: int = 16 * 1024 * 1024
    reserved: bytes | None = None
    """Beginning of the names that a backend may not use, without the prefix of its route; None: it may use all."""
    least: int = field(init=False)
    """Length of a message that can exceed no bound, with any content."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "least", min(self.channel, self.id, self.meta, self.item, _ENTRY_MIN * META_NAMES_MAX))

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the bounds of ``settings``, the section ``[handler]``."""
        return cls(settings.channel_max, settings.id_max, settings.meta_max, settings.item_max)

    def with_reserved(self, reserved: bytes, prefix: bytes) -> Self:
        """Return the bounds of a route whose backends may not use reserved channels.

        Args:
            reserved: ``reserved_prefix``, not empty.
            prefix: channel prefix of the route, which goes before each name that its backends write.
        """
        if prefix.startswith(reserved):
            return replace(self, reserved=b"")
        return replace(self, reserved=reserved[len(prefix) :] if reserved.startswith(prefix) else None)

    def reserves(self, name: bytes) -> bool:
        """Return whether ``name`` of a channel, as a backend writes it, is reserved for others."""
        return self.reserved is not None and name.startswith(self.reserved)

    def of_channel(self, name: bytes) -> str:
        """Return the fault in the length of ``name`` of a channel; empty if there is none."""
        return _fault(len(name), self.channel, "channel_max")

    def of_id(self, item_id: bytes | None) -> str:
        """Return the fault in the length of ``item_id``; empty if there is none."""
        return "" if item_id is None else _fault(len(item_id), self.id, "id_max")

    def of_meta(self, meta: Mapping[bytes, bytes]) -> str:
        """Return the fault in the size of ``meta``; empty if there is none."""
        if len(meta) > META_NAMES_MAX:
            return f"{len(meta)} values, at most {META_NAMES_MAX} are allowed"
        return _fault(size_of(meta.items()), self.meta, "meta_max")

    def check_message(self, size: int) -> None:
        """Check a message that has one item, before it is parsed.

        Args:
            size: of the message, in bytes.

        Raises:
            ItemError: the item is too long.
        """
        if size > self.item:
            raise ItemError(f"publish item object has {_fault(size, self.item, 'item_max')}")

    def check_item(self, item: Item, size: int) -> None:
        """Check an item against all bounds.

        Args:
            item: as parsed.
            size: of the message that the item is from, in bytes.

        Raises:
            ItemError: the item, or something in it, is too long.
        """
        if len(item.channel) > self.channel:
            raise ItemError(f"publish item object contains 'channel' of {self.of_channel(item.channel)}")
        for name, item_id in (("id", item.id), ("prev-id", item.prev_id)):
            if item_id is not None and len(item_id) > self.id:
                raise ItemError(f"publish item object contains '{name}' of {self.of_id(item_id)}")
        if item.meta and (fault := self.of_meta(item.meta)):
            raise ItemError(f"publish item object contains 'meta' of {fault}")
        if size > self.item:
            self.check_message(size_of_item(item))


def size_of(pairs: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the bytes of all names and values in ``pairs``."""
    return sum([len(name) + len(value) for name, value in pairs])


def _fault(count: int, most: int, key: str) -> str:
    return f"{count} bytes, at most {most} are allowed ({key})" if count > most else ""


def memory_of_item(item: Item) -> int:
    """Return the bytes for which ``item`` counts while it waits for sessions.

    All its formats exist for as long as one of them is waited with. A patch counts as the largest there may be, so that
    it need not be measured.

    Args:
        item: The item.
    """
    size = size_of(item.meta.items()) if item.meta else 0
    if (response := item.response) is not None:
        size += size_of(response.headers) + len(response.body or b"")
        if response.patch is not None:
            size += PATCH_MAX
    if item.stream is not None:
        size += len(item.stream.content)
    if item.message is not None:
        size += len(item.message.content or b"")
    return size


def size_of_item(item: Item) -> int:
    """Return the bytes of an item with all its formats."""
    size = len(item.channel) + len(item.id or b"") + len(item.prev_id or b"") + size_of(item.meta.items())
    if (response := item.response) is not None:
        size += len(response.reason) + size_of(response.headers) + len(response.body or b"")
        if response.patch is not None:
            size += len(orjson.dumps(response.patch))
    if item.stream is not None:
        size += len(item.stream.content)
    if item.message is not None:
        size += len(item.message.content or b"")
    return size


RESERVED_FAULT: Final = "is reserved: only routes with the property 'reserved' may use it (reserved_prefix)"
"""Fault of a backend that uses a reserved channel."""

BOUNDS: Final = Bounds()
"""As they are if nothing is configured."""
