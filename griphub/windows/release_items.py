"""Items of a release: events and progress for the followers of one channel. Sans-I/O.

A release ends with progress, so that followers know its last version to be complete. Streams get it
in as few items as the bound of an item allows; a WebSocket gets an item for each message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from griphub.topics.event_text import Representation, progress_text, render_text
from griphub.topics.items import hint_item, stream_item
from griphub.windows.decisions import Release
from griphub.windows.event_texts import event_text

__all__ = ["ITEMS_MAX", "ReleaseTexts", "release_items"]

ITEMS_MAX: Final = 50
"""Items of one release; more are one hint."""

TEXTS_BYTES: Final = 16_000_000
"""Bytes of texts that are remembered for the other ranges of a turn; beyond, they are made again."""


class ReleaseTexts:
    """Texts of the events of one turn, each made once for all ranges that it is released to."""

    __slots__ = ("_size", "_texts")

    def __init__(self) -> None:
        self._texts: dict[tuple[int, int], bytes] = {}
        """By version and stamp."""
        self._size = 0

    def of(self, release: Release) -> list[bytes]:
        """Return the JSON objects of the events of a ``release`` of the turn."""
        found = []
        for event in release.events:
            text = self._texts.get(event.place)
            if text is None:
                text = event_text(event, release.epoch)
                if self._size < TEXTS_BYTES:
                    self._size += len(text)
                    self._texts[event.place] = text
            found.append(text)
        return found


def release_items(
    release: Release,
    texts: Sequence[bytes],
    name: str,
    form: Representation,
    previous: str,
    content_max: int,
    *,
    bare_hints: bool = False,
) -> list[bytes]:
    """Return the items that give a release to the followers of a channel; the last one has the id of its progress.

    Args:
        release: the release.
        texts: JSON objects of its events.
        name: of the channel.
        form: of its contents, without progress.
        previous: position of the channel before.
        content_max: bytes of an item's text; an event beyond it makes the whole a hint.
        bare_hints: whether hints have no ids, as Pushpin needs it.
    """
    last = str(release.progress)
    low, high = release.span.bounds
    progress = progress_text(release.progress.version, last, low, high, form)
    chunks = None if release.many else _chunks(release, texts, form, content_max)
    if chunks is None:
        return [hint_item(name, form) if bare_hints else hint_item(name, form, last, previous)]
    if chunks and form is not Representation.WS and len(chunks[-1][1]) + len(progress) <= content_max:
        chunks[-1] = (last, chunks[-1][1] + progress)
    else:
        chunks.append((last, progress))
    items = []
    for id, text in chunks:
        items.append(stream_item(name, id, previous, form, text))
        previous = id
    return items


def _chunks(
    release: Release, texts: Sequence[bytes], form: Representation, content_max: int
) -> list[tuple[str, bytes]] | None:
    """Return ids and texts of items; None if they are too many, or one is too large."""
    chunks: list[tuple[str, bytes]] = []
    parts: list[bytes] = []
    id, size = "", 0
    for event, text in zip(release.events, texts, strict=True):
        if len(text) > content_max or len(chunks) >= ITEMS_MAX:
            return None
        if parts and (form is Representation.WS or size + len(text) > content_max):
            chunks.append((id, b"".join(parts)))
            parts, size = [], 0
        id = str(release.position(event))
        parts.append(render_text(text, id, form))
        size += len(parts[-1])
    if parts:
        chunks.append((id, b"".join(parts)))
    return chunks if len(chunks) <= ITEMS_MAX else None
