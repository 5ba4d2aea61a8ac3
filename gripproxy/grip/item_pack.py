"""Items on the pipe: a tuple of plain values that ``marshal`` carries from the handler to workers."""

from __future__ import annotations

from typing import Any

from gripproxy.grip.item import NO_META, Item, MessageFormat, ResponseFormat, StreamFormat

__all__ = ["pack_item", "unpack_item"]


def pack_item(item: Item) -> tuple[Any, ...]:
    """Return ``item`` as a tuple of plain values that ``marshal`` can carry; :func:`unpack_item` reverses it."""
    response, stream, message = item.response, item.stream, item.message
    if (
        stream is not None
        and response is None
        and message is None
        and stream.content_filters is None
        and stream.action == "send"
        and not item.meta
    ):
        # Nearly every item: content for streams and nothing else is packed as its content.
        return (item.channel, item.id, item.prev_id, None, stream.content, None, None, item.size, item.no_seq)
    return (
        item.channel,
        item.id,
        item.prev_id,
        None
        if response is None
        else (
            response.action,
            response.code,
            response.reason,
            response.headers,
            response.body,
            response.patch,
            response.content_filters,
        ),
        None
        if stream is None
        else stream.content
        if stream.content_filters is None and stream.action == "send"
        else (stream.action, stream.content, stream.content_filters),
        None
        if message is None
        else (
            message.action,
            message.type,
            message.content,
            message.code,
            message.reason,
            message.content_filters,
        ),
        item.meta or None,
        item.size,
        item.no_seq,
    )


def unpack_item(packed: tuple[Any, ...]) -> Item:
    """Return the item in ``packed``, made by :func:`pack_item` in this or another process of one installation."""
    channel, id_, prev_id, response, stream, message, meta, size, no_seq = packed
    if response is None and message is None and meta is None and type(stream) is bytes:
        return Item(channel, id_, prev_id, None, StreamFormat("send", stream), None, NO_META, size, no_seq)
    return Item(
        channel,
        id_,
        prev_id,
        None if response is None else ResponseFormat(*response),
        None if stream is None else StreamFormat("send", stream) if type(stream) is bytes else StreamFormat(*stream),
        None if message is None else MessageFormat(*message),
        NO_META if meta is None else meta,
        size,
        no_seq,
    )
